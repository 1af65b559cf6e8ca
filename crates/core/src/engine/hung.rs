//! Disks that hang leave the device's depth count, so that their neighbours go on.
//!
//! A disk *hangs* when none of its I/Os has ended for [`DATA_SILENCE_TIMEOUT`] although the device
//! goes on for others: another disk's I/O has ended in that time, or every I/O in flight is of such
//! silent disks and another disk waits. (The second case is the usual one: a disk that hangs soon
//! holds every place, so that no other I/O is left that could end.) Where no other disk uses the
//! device, taking a disk out gains nothing, and it is not done.
//!
//! Flushes, discards and zeroing move no payload and can honestly take seconds: a disk with nothing
//! else in flight is given [`OTHER_SILENCE_TIMEOUT`].
//!
//! ```text
//! serving --silent, others go on--> hung: its I/Os in flight count no more; one goes (a probe),
//!    ^                                    |  what else of it the dispatcher picks is parked
//!    +---------- any I/O of it ends ------+
//! ```
//!
//! For roles an uncounted I/O has ended with an error; they do not hear of its true end. It keeps
//! its slab slot until then, and its guest requests and their buffers stay as well. At most
//! [`DeviceSpec::uncounted_max`](super::DeviceSpec::uncounted_max) I/Os are uncounted; I/Os of
//! hung disks beyond that count like all others.
//!
//! Off at first
//! ([`DeviceMut::enable_hung_disk_handling`](super::DeviceMut::enable_hung_disk_handling)): then a
//! completion only tests an `Option`. The driver calls
//! [`DeviceMut::detect_hung_disks`](super::DeviceMut::detect_hung_disks) about once a second to
//! search for silent disks.

use super::Engine;
use super::active::ActivePolicy;
use super::in_flight::{InFlightIo, leave_shares, mark};
use crate::interference::KnownWait;
use crate::roles::{Event, Interests};
use crate::view::View;
use tidegate_base::request::{IoError, Op};
use tidegate_base::time::Nanos;

/// Silence after which a disk with reads or writes in flight is taken to hang: hundreds of times a
/// slow disk's worst seek, and less than guests' time-outs (Linux: 30 s for SCSI, none for virtio).
pub const DATA_SILENCE_TIMEOUT: Nanos = Nanos::from_secs(1);
/// Silence after which a disk with only flushes, discards or zeroing in flight is taken to hang.
/// Writing back a cache of some hundred MiB takes a hard disk a few seconds.
pub const OTHER_SILENCE_TIMEOUT: Nanos = Nanos::from_secs(5);

/// Times for which a disk may be silent before it is taken to hang.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SilenceTimeouts {
    /// Time with reads or writes in flight.
    pub data: Nanos,
    /// Time with nothing but flushes, discards or zeroing in flight.
    pub other: Nanos,
}

impl Default for SilenceTimeouts {
    fn default() -> SilenceTimeouts {
        SilenceTimeouts {
            data: DATA_SILENCE_TIMEOUT,
            other: OTHER_SILENCE_TIMEOUT,
        }
    }
}

/// Oldest I/Os in flight of a disk, by kind: since their start it may have been silent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Silence {
    /// Start of its oldest read or write; [`Nanos::MAX`]: it has none in flight.
    data: Nanos,
    /// Start of its oldest other I/O; [`Nanos::MAX`]: it has none in flight.
    other: Nanos,
}

impl Silence {
    const NONE: Silence = Silence {
        data: Nanos::MAX,
        other: Nanos::MAX,
    };

    /// Returns whether the disk has nothing in flight.
    fn is_idle(self) -> bool {
        self == Silence::NONE
    }

    /// Returns the time since which a disk is silent, if that is for too long. `last_end`: time at
    /// which an I/O of it last ended.
    fn too_long(self, now: Nanos, last_end: Nanos, timeouts: &SilenceTimeouts) -> Option<Nanos> {
        let since = |start: Nanos, timeout: Nanos| {
            // An end after the start of the oldest I/O is progress of the disk, too.
            let since = start.max(last_end);
            (start != Nanos::MAX && now.since(since) >= timeout).then_some(since)
        };
        since(self.data, timeouts.data).or_else(|| since(self.other, timeouts.other))
    }
}

/// Disk that hangs.
pub(super) struct HungDisk {
    pub disk: u32,
    pub since: Nanos,
    /// The probe, the only I/O that a hung disk gets, is in flight.
    pub probed: bool,
    /// Units that the dispatcher has picked meanwhile, out of its index and of their lanes.
    pub parked: Vec<u32>,
}

/// Silence of all disks, and the disks that hang.
pub(super) struct HungDisks {
    pub timeouts: SilenceTimeouts,
    /// Time at which an I/O of each disk last ended, by the disk's slot; [`Nanos::ZERO`]: none did.
    last_end: Vec<Nanos>,
    pub hung: Vec<HungDisk>,
    /// I/Os in flight that do not count against the depth.
    pub uncounted: u32,
    uncounted_max: u32,
    /// Silence of each disk, by its slot; valid only right after [`HungDisks::gather`].
    silence: Vec<Silence>,
}

impl HungDisks {
    pub(super) fn new(disks: usize, uncounted_max: u32, timeouts: SilenceTimeouts) -> HungDisks {
        let mut this = HungDisks {
            timeouts,
            last_end: Vec::new(),
            hung: Vec::new(),
            uncounted: 0,
            uncounted_max,
            silence: Vec::new(),
        };
        this.make_room(disks);
        this
    }

    /// Makes room for `disks` slots of disks.
    pub(super) fn make_room(&mut self, disks: usize) {
        if self.last_end.len() < disks {
            self.last_end.resize(disks, Nanos::ZERO);
            self.silence.resize(disks, Silence::NONE);
        }
    }

    pub(super) fn find(&self, disk: u32) -> Option<&HungDisk> {
        self.hung.iter().find(|hung| hung.disk == disk)
    }

    pub(super) fn has_room(&self) -> bool {
        self.uncounted < self.uncounted_max
    }

    /// Returns whether the I/Os of a disk have to wait: it hangs, and its probe is in flight or
    /// there is no room for one.
    pub(super) fn keeps_waiting(&self, disk: u32) -> bool {
        self.find(disk)
            .is_some_and(|hung| hung.probed || !self.has_room())
    }

    /// Gathers the silence of all disks with I/Os in flight.
    pub(super) fn gather<'a>(&mut self, live: impl Iterator<Item = &'a InFlightIo>) {
        self.silence.fill(Silence::NONE);
        for slot in live {
            let of_disk = &mut self.silence[slot.io.disk.index()];
            let oldest = match slot.io.op {
                Op::Read | Op::Write => &mut of_disk.data,
                Op::Flush | Op::Discard | Op::WriteZeroes => &mut of_disk.other,
            };
            *oldest = slot.started.min(*oldest);
        }
    }

    /// Disks that are silent for too long and not known to hang, with the time since which they
    /// are; to be called after `gather`.
    pub(super) fn silent(&self, now: Nanos) -> Vec<(u32, Nanos)> {
        let disks = self.silence.iter().zip(&self.last_end).zip(0..);
        let silent = disks.filter_map(|((silence, &last_end), disk)| {
            let since = silence.too_long(now, last_end, &self.timeouts)?;
            self.find(disk).is_none().then_some((disk, since))
        });
        silent.collect()
    }

    /// Returns the time at which an I/O last ended of any disk not among these.
    pub(super) fn last_end_of_others(&self, silent: &[(u32, Nanos)]) -> Nanos {
        let others = self.last_end.iter().zip(0..);
        let others = others.filter(|&(_, disk)| silent.iter().all(|&(it, _)| it != disk));
        others.map(|(&end, _)| end).max().unwrap_or(Nanos::ZERO)
    }

    /// Returns whether every I/O that counts is of one of these disks; after `gather`.
    pub(super) fn hold_the_device(&self, silent: &[(u32, Nanos)]) -> bool {
        let busy = self.silence.iter().zip(0..);
        let mut busy = busy.filter(|(silence, _)| !silence.is_idle());
        busy.all(|(_, disk)| silent.iter().any(|&(it, _)| it == disk) || self.find(disk).is_some())
    }

    /// Records that an I/O of a disk has ended.
    pub(super) fn record_end(&mut self, now: Nanos, disk: u32, counted: bool) {
        self.last_end[disk as usize] = now;
        // Room for another I/O that does not count.
        self.uncounted -= u32::from(!counted);
    }

    /// Takes out all parked units of the disks that `is_meant` selects, to be put back into their
    /// lanes by a caller that is about to search those. Units of disks that still hang are parked
    /// again when they are picked.
    pub(super) fn take_parked(&mut self, is_meant: impl Fn(u32) -> bool) -> Vec<Vec<u32>> {
        let meant = self.hung.iter_mut().filter(|hung| is_meant(hung.disk));
        meant
            .map(|hung| core::mem::take(&mut hung.parked))
            .collect()
    }

    /// Parks a unit that the dispatcher has picked if its disk hangs and has its probe in flight.
    /// Returns whether it was parked.
    #[cold]
    pub(super) fn park(&mut self, view: &mut View, active: &mut ActivePolicy, unit: u32) -> bool {
        let disk = view.queues.reqs.cold[unit as usize].disk;
        if !self.keeps_waiting(disk) {
            return false;
        }
        let of_disk = self.hung.iter_mut().find(|hung| hung.disk == disk);
        let of_disk = of_disk.expect("a disk that keeps waiting hangs");
        of_disk.parked.push(unit);
        active.park(view, unit);
        true
    }
}

impl Engine {
    /// Takes an I/O in flight out of the depth count: for roles and the device's observers it has
    /// ended.
    pub(super) fn uncount(&mut self, index: u32) {
        let slot = self.in_flight.at_mut(index);
        assert!(
            slot.marks & mark::UNCOUNTED == 0,
            "an I/O is taken out of the depth count once"
        );
        slot.marks |= mark::UNCOUNTED;
        let (marks, kind, started) = (slot.marks, slot.kind, slot.started);
        let now = self.view.queues.now;
        self.view.queues.device.in_flight -= 1;
        leave_shares(&mut self.view.queues.device, marks);
        let device = &mut self.view.queues.device;
        // If it was the only one, the device counts as idle from now on.
        device.last_end = now;
        if let Some(monitor) = &mut self.control.monitor {
            monitor.taken_out(now, kind);
        }
        if let Some(estimator) = &mut self.view.estimator {
            let deepest = self.control.limit.min(self.active.fan_out.depth);
            // Ended without success: its duration must not become a cost.
            estimator.ended(now, &self.in_flight.io_at(index).io, false, deepest);
        }
        if self.control.depth_control.is_some() {
            let io = &self.in_flight.io_at(index).io;
            (self.control).count_end(&self.view, io, false);
        }
        if self.active.hears(Interests::ENDED) {
            let event = Event::Ended {
                io: &self.in_flight.io_at(index).io,
                outcome: Err(IoError::Io),
                took: now.since(started),
            };
            self.active
                .fan_out
                .tell(&mut self.active.roles, &self.view, &event);
            self.active.follow_up(&mut self.view);
        }
    }

    /// Ends the hang of a disk, if it hangs: its parked units wait as before.
    #[cold]
    pub(super) fn revive(&mut self, disk: u32) {
        let Some(hung) = &mut self.hung else { return };
        let Some(at) = hung.hung.iter().position(|hung| hung.disk == disk) else {
            return;
        };
        let parked = hung.hung.swap_remove(at).parked;
        self.any_hung = !hung.hung.is_empty();
        self.active.unpark(&mut self.view, parked);
        self.flushes_have_waited(disk, KnownWait::HungDisk);
        self.flushes.revive(disk);
    }

    /// Marks an I/O that has just started while a disk hangs: if it is of such a disk it is its
    /// probe and does not count.
    #[cold]
    pub(super) fn mark_probe(&mut self, slot: u32) {
        let Some(hung) = &mut self.hung else { return };
        let disk = self.in_flight.io_at(slot).io.disk.index;
        let Some(of_disk) = hung.hung.iter_mut().find(|hung| hung.disk == disk) else {
            return;
        };
        assert!(
            !of_disk.probed,
            "a second probe goes to the hung disk slot {disk}"
        );
        of_disk.probed = true;
        hung.uncounted += 1;
        assert!(
            hung.uncounted <= hung.uncounted_max,
            "{} I/Os do not count, of at most {}",
            hung.uncounted,
            hung.uncounted_max
        );
        self.uncount(slot);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_counts_from_the_last_end_or_from_the_oldest_start() {
        let at = Nanos::from_millis;
        let with = |data: Nanos, other: Nanos| Silence { data, other };
        let (none, timeouts) = (Nanos::MAX, &SilenceTimeouts::default());
        let reads = with(at(500), none);
        assert_eq!(reads.too_long(at(1499), at(100), timeouts), None);
        assert_eq!(reads.too_long(at(1500), at(100), timeouts), Some(at(500)));
        assert_eq!(reads.too_long(at(1500), at(501), timeouts), None);
        assert_eq!(reads.too_long(at(1501), at(501), timeouts), Some(at(501)));
        let flush = with(none, at(500));
        assert_eq!(flush.too_long(at(5499), at(0), timeouts), None);
        assert_eq!(flush.too_long(at(5500), at(0), timeouts), Some(at(500)));
        let both = with(at(4000), at(500));
        assert_eq!(both.too_long(at(4999), at(0), timeouts), None);
        assert_eq!(both.too_long(at(5000), at(0), timeouts), Some(at(4000)));
        assert_eq!(Silence::NONE.too_long(at(99_000), at(0), timeouts), None);
    }
}
