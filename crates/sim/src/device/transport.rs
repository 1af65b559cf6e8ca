//! Transport between the hosts and their device.
//!
//! ```text
//!   engine --submit delay--> queue in front of the device --> device model
//!     ^                                                            |
//!     +------------------------complete delay----------------------+
//! ```
//!
//! A single host at its own device has neither delays nor a queue, because it knows the device's
//! depth. Several hosts, or one behind a network, submit up to their own depth, and the device's
//! end of the transport queues the excess in order of arrival. I/Os of one host never overtake each
//! other in transit.

use super::slab::Slab;
use crate::scenario::Path;
use crate::seed::generator;
use rand_pcg::Pcg64Mcg;
use std::collections::VecDeque;
use tidegate_core::time::Nanos;
use tidegate_device::ModelIo;
use tidegate_workload::time::TimeDistribution;

/// Directions of the transport.
#[derive(Clone, Copy)]
enum Direction {
    ToDevice = 0,
    ToHost = 1,
}

/// I/Os between the hosts and their device.
pub(super) struct Transport {
    path: Path,
    rng: Pcg64Mcg,
    /// Arrival time of each host's last I/O at the device, and of its last completion at the host,
    /// by [`Direction`].
    last: Vec<[Nanos; 2]>,
    /// I/Os on their way to the device.
    there: Slab<ModelIo>,
    /// Names of the I/Os whose completions are on their way to the hosts.
    back: Slab<u64>,
    /// I/Os that have reached the device's end, which has no room for them yet.
    queue: VecDeque<ModelIo>,
}

/// Outcome of sending an I/O to the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Sent {
    /// The I/O goes to the device at once.
    Device(ModelIo),
    /// The I/O waits in the queue in front of the device.
    Queued,
    /// The I/O arrives at this time under this number.
    Arrives(Nanos, u32),
}

impl Transport {
    /// Transport to a device that `hosts` hosts share; nothing is on its way.
    pub(super) fn new(path: Path, seed: u64, device: &str, hosts: usize) -> Transport {
        Transport {
            path,
            // A VM may have the device's name, and none has this part.
            rng: generator(seed, device, u64::MAX - 1),
            last: vec![[Nanos::ZERO; 2]; hosts],
            there: Slab::default(),
            back: Slab::default(),
            queue: VecDeque::new(),
        }
    }

    /// Returns `true` if hosts do not know how much the device accepts, and so have only their own
    /// depth to go by. False for a single host at its own device.
    pub(super) fn has_own_queue(&self) -> bool {
        self.last.len() > 1 || self.path != Path::default()
    }

    /// Sends a host's I/O to the device.
    pub(super) fn send(&mut self, now: Nanos, host: usize, io: ModelIo) -> Sent {
        if let Some(takes) = self.path.submit {
            let at = self.arrival(now, host, &takes, Direction::ToDevice);
            return Sent::Arrives(at, self.there.put(io));
        }
        // The engine keeps to the device's depth, so that there is room.
        if !self.has_own_queue() {
            return Sent::Device(io);
        }
        // `give_work` moves it on as soon as the device has room.
        self.queue.push_back(io);
        Sent::Queued
    }

    /// Puts an I/O that arrives at the device, by its number, into the queue.
    pub(super) fn arrive_at_device(&mut self, number: u32) {
        let io = self.there.take(number);
        self.queue.push_back(io);
    }

    /// Next I/O of the queue in front of the device.
    pub(super) fn pop_queued(&mut self) -> Option<ModelIo> {
        self.queue.pop_front()
    }

    /// Sends the completion of an I/O, by its name, to its host. Returns the time of its arrival
    /// and its number until then; `None` if it is there at once.
    pub(super) fn send_back(&mut self, now: Nanos, host: usize, io: u64) -> Option<(Nanos, u32)> {
        let takes = self.path.complete?;
        let at = self.arrival(now, host, &takes, Direction::ToHost);
        Some((at, self.back.put(io)))
    }

    /// Name of the I/O whose completion arrives, by its number.
    pub(super) fn take_completion(&mut self, number: u32) -> u64 {
        self.back.take(number)
    }

    /// Draws the arrival time of an I/O or completion of a host that departs now.
    fn arrival(
        &mut self,
        now: Nanos,
        host: usize,
        takes: &TimeDistribution,
        direction: Direction,
    ) -> Nanos {
        let last = &mut self.last[host][direction as usize];
        // A later departure never arrives earlier than the one before it.
        *last = (now + takes.draw(&mut self.rng)).max(*last);
        *last
    }

    /// Removes everything that is on its way or waits, and returns the names of these I/Os.
    pub(super) fn drain(&mut self) -> Vec<u64> {
        let ios = self.there.drain().chain(self.queue.drain(..));
        ios.map(|io| io.id).chain(self.back.drain()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn transport(submit: Option<TimeDistribution>, hosts: usize) -> Transport {
        let path = Path {
            submit,
            complete: Some(TimeDistribution::Fixed(Nanos(20))),
        };
        Transport::new(path, 1, "disk", hosts)
    }

    #[test]
    fn a_single_host_at_the_device_has_no_queue() {
        let mut at_device = Transport::new(Path::default(), 1, "disk", 1);
        let io = ModelIo::read(7, 0, 512);
        assert!(!at_device.has_own_queue());
        assert_eq!(at_device.send(Nanos(5), 0, io), Sent::Device(io));
        assert_eq!(at_device.send_back(Nanos(5), 0, 7), None);
        let mut shared = Transport::new(Path::default(), 1, "disk", 2);
        assert!(shared.has_own_queue());
        assert_eq!(shared.send(Nanos(5), 0, io), Sent::Queued);
        assert_eq!((shared.pop_queued(), shared.pop_queued()), (Some(io), None));
    }

    #[test]
    fn nothing_of_a_host_overtakes_anything() {
        let takes = TimeDistribution::Uniform {
            from: Nanos(10),
            to: Nanos(1000),
        };
        let mut transport = transport(Some(takes), 2);
        let mut last = Nanos::ZERO;
        for id in 0..50 {
            let sent = transport.send(Nanos(id), 0, ModelIo::read(id, 0, 512));
            let Sent::Arrives(at, number) = sent else {
                panic!("it is on its way: {sent:?}");
            };
            assert!(at >= last && at >= Nanos(id + 10));
            last = at;
            transport.arrive_at_device(number);
            assert_eq!(transport.pop_queued().map(|io| io.id), Some(id));
        }
    }

    #[test]
    fn all_that_is_on_its_way_is_drained() {
        let mut transport = transport(Some(TimeDistribution::Fixed(Nanos(10))), 1);
        for id in [1, 2] {
            transport.send(Nanos(5), 0, ModelIo::read(id, 0, 512));
        }
        transport.arrive_at_device(0);
        let back = transport.send_back(Nanos(5), 0, 3);
        assert_eq!(back, Some((Nanos(25), 0)));
        assert_eq!(transport.drain(), [2, 1, 3]);
        assert!(transport.drain().is_empty());
    }
}
