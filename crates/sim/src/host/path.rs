//! From the hosts to the device and back.
//!
//! ```text
//!   engine --submit delay--> queue in front of the device --> device model
//!     ^                                                            |
//!     +------------------------complete delay----------------------+
//! ```
//!
//! One host that the device is part of has neither delays nor a queue: it knows what the device
//! takes. Several hosts, or one behind a network, send what their own depth lets them, and the
//! device's end of the path keeps what it has no room for, in the order in which it came. Of one
//! host nothing overtakes anything on its way.

use super::events::Event;
use super::exchange::{sender, tag};
use super::{Host, Slots};
use crate::scenario::Path;
use crate::seed::generator;
use rand_pcg::Pcg64Mcg;
use std::collections::VecDeque;
use tidegate_core::engine::Engine;
use tidegate_core::request::{DeviceIo, Op};
use tidegate_core::time::Nanos;
use tidegate_device::ModelIo;
use tidegate_workload::time::TimeDistribution;

/// What lies between the hosts and their device.
pub(super) struct Way {
    path: Path,
    rng: Pcg64Mcg,
    /// When what each host sent last reaches the device, and its last completion the host.
    last: Vec<[Nanos; 2]>,
    /// I/Os on their way to the device, and the names of those on their way back.
    there: Slots<ModelIo>,
    back: Slots<u64>,
    /// What has reached the device's end, and the device has no room for yet.
    queue: VecDeque<ModelIo>,
}

impl Way {
    pub(super) fn new(path: Path, seed: u64, device: &str, hosts: usize) -> Way {
        Way {
            path,
            // A tenant may have the device's name, and none has this part.
            rng: generator(seed, device, u64::MAX - 1),
            last: vec![[Nanos::ZERO; 2]; hosts],
            there: Slots::default(),
            back: Slots::default(),
            queue: VecDeque::new(),
        }
    }

    /// When something of a host arrives that sets out now. `back`: from the device.
    fn arrives(&mut self, now: Nanos, host: usize, takes: &TimeDistribution, back: bool) -> Nanos {
        let last = &mut self.last[host][usize::from(back)];
        *last = (now + takes.draw(&mut self.rng)).max(*last);
        *last
    }

    /// Everything that is on its way or waits, by its name; nothing is afterwards.
    fn drain(&mut self) -> Vec<u64> {
        let ios = self.there.drain().chain(self.queue.drain(..));
        ios.map(|io| io.id).chain(self.back.drain()).collect()
    }
}

impl Host {
    /// The device is given work.
    pub(super) fn give_work(&mut self) {
        let path = self.way.path;
        // One host at the device knows how much it takes. All others have only their own depth to
        // go by.
        let apart = self.engines.len() > 1 || path != Path::default();
        while apart || self.model.has_room() {
            let Some((host, io)) = self.poll_dispatch() else {
                break;
            };
            self.device.bytes += u64::from(io.len);
            let io = ModelIo {
                id: tag(host, io.id),
                op: io.op,
                // The engine says of a flush where the head may be; a device is told none.
                addr: if io.op == Op::Flush { 0 } else { io.addr },
                len: io.len,
                fua: io.fua,
            };
            match &path.submit {
                Some(takes) => {
                    let at = self.way.arrives(self.now, host, takes, false);
                    let slot = self.way.there.put(io);
                    self.events.plan(at, Event::Reach(slot));
                }
                None if apart => self.way.queue.push_back(io),
                None => self.submit_io(io),
            }
        }
        while self.model.has_room()
            && let Some(io) = self.way.queue.pop_front()
        {
            self.submit_io(io);
        }
    }

    /// An I/O reaches the device's end of the path.
    pub(super) fn reach(&mut self, slot: u32) {
        let io = self.way.there.take(slot);
        self.way.queue.push_back(io);
    }

    fn submit_io(&mut self, io: ModelIo) {
        if io.op != Op::Flush {
            self.distances.started(io.addr, io.len);
        }
        self.model.submit(self.now, io);
    }

    /// I/Os of the device end.
    pub(super) fn complete(&mut self) {
        let path = self.way.path;
        while let Some(ended) = self.model.pop_completed(self.now) {
            self.device.ios += 1;
            match &path.complete {
                Some(takes) => {
                    let (host, _) = sender(ended.id);
                    let at = self.way.arrives(self.now, host, takes, true);
                    let slot = self.way.back.put(ended.id);
                    self.events.plan(at, Event::Return(slot));
                }
                None => self.ended(ended.id),
            }
        }
    }

    /// A completion reaches its host.
    pub(super) fn come_back(&mut self, slot: u32) {
        let id = self.way.back.take(slot);
        self.ended(id);
    }

    fn ended(&mut self, id: u64) {
        let (host, id) = sender(id);
        self.engines[host].handle_completion(self.now, id, Ok(()));
    }

    /// What one of the hosts wants done next, and which: they take turns.
    fn poll_dispatch(&mut self) -> Option<(usize, DeviceIo)> {
        for _ in 0..self.engines.len() {
            let host = self.turn;
            self.turn = (host + 1) % self.engines.len();
            if let Some(io) = self.engines[host].poll_dispatch(self.now) {
                return Some((host, io));
            }
        }
        None
    }

    /// Everybody hangs up and the device finishes what it has: an engine must not be dropped with
    /// requests that nobody answered.
    pub(super) fn close(&mut self) {
        for guest in &mut self.guests {
            if let Some((_, client)) = guest.engine.take() {
                self.engines[guest.host].handle_disconnect(self.now, client);
            }
        }
        // What is on its way, or waits in front of the device, ends without it.
        for id in self.way.drain() {
            self.ended(id);
        }
        while !self.engines.iter().all(Engine::is_idle) {
            while self.poll_done().is_some() {}
            while self.model.has_room()
                && let Some((host, io)) = self.poll_dispatch()
            {
                let id = tag(host, io.id);
                self.model.submit(self.now, ModelIo::flush(id));
            }
            let Some(ended) = self.model.pop_completed(Nanos::MAX) else {
                break;
            };
            self.now = self.now.max(ended.at);
            self.ended(ended.id);
        }
        while self.poll_done().is_some() {}
    }
}
