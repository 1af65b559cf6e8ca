//! I/Os with a promise that are in flight at a disk that seeks.
//!
//! Such a disk reorders its queue, the nearest first. Beside a stream of writes, a read elsewhere
//! waits until the disk's own time-out, about a second. So nothing more goes to the disk while one
//! of these I/Os has been there for longer than its promise leaves: the disk soon finishes the rest
//! of its queue. An I/O of a VM that is served beyond its floor is not late for long, so nothing is
//! held back for it.
//!
//! The hold costs work and shares, because the disk's queue runs dry and is then filled at once. It
//! begins after two positionings all the same, also for the sake of a floor: with eight, seven in a
//! hundred seconds of a floor were missed beside random writes.

use tidegate_base::request::IoId;
use tidegate_base::time::Nanos;

/// Positionings that an I/O may take before others are held back for it.
const PATIENCE_POSITIONINGS: u64 = 2;
/// Positionings before an I/O is late at which others are held back for it, because the disk first
/// ends what else it holds. By trial: with 0, the floor of the mix `batch-deadline` is missed on
/// `hdd-7200-1tb`; with 8 it is kept.
const EARLIER_POSITIONINGS: u64 = 8;
/// Positionings after which an I/O of a deadline transfer is late at a disk that seeks, even if the
/// transfer is ahead of its rate.
pub(super) const TRANSFER_LATE_POSITIONINGS: u64 = 16;
/// Longest time for which others are held back for one I/O. A disk's own patience with a read is
/// about a second; one that takes longer hangs, or has errors, and other I/Os must not wait for it.
const HOLD_MAX: Nanos = Nanos::SECOND;

/// I/O that is watched.
#[derive(Clone, Copy, Debug)]
struct Watched {
    io: IoId,
    /// Time from which on others are held back for it.
    hold_from: Nanos,
    /// True for a VM with a latency bound without a rate, for which no promise waits.
    best_effort: bool,
}

/// Watched I/Os in flight, in the order in which they went.
#[derive(Debug, Default)]
pub(super) struct AtDisk(Vec<Watched>);

impl AtDisk {
    /// Creates an empty list with room for `ios` I/Os. Nothing is allocated later: I/Os beyond the
    /// room are not watched, which matters little, because those before them are.
    pub(super) fn with_capacity(ios: usize) -> AtDisk {
        AtDisk(Vec::with_capacity(ios))
    }

    /// Watches an I/O that goes now to a disk whose positioning takes this long. Others are held
    /// back for it after [`PATIENCE_POSITIONINGS`], but not before it is nearly late: `late_from`
    /// is the time from which it is, [`Nanos::ZERO`] if every delay counts. `best_effort`: its VM
    /// has a latency bound without a rate.
    pub(super) fn started(
        &mut self,
        now: Nanos,
        io: IoId,
        positioning: Nanos,
        late_from: Nanos,
        best_effort: bool,
    ) {
        if self.0.len() < self.0.capacity() {
            let patient_until = now + Nanos(PATIENCE_POSITIONINGS * positioning.0);
            // `Nanos` saturates at zero, so `late_from` zero leaves the patience alone.
            let hold_from =
                patient_until.max(late_from - Nanos(EARLIER_POSITIONINGS * positioning.0));
            self.0.push(Watched {
                io,
                hold_from,
                best_effort,
            });
        }
    }

    /// Forgets an I/O that came back; one that is not watched is ignored.
    #[inline]
    pub(super) fn ended(&mut self, io: IoId) {
        if !self.0.is_empty() {
            self.0.retain(|watched| watched.io != io);
        }
    }

    /// Returns whether no I/O is watched.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the time until which nothing more is to go; `None` if something may go now. The end
    /// of an I/O may come sooner. `promise_due`: a promise with a rate is due.
    #[inline]
    pub(super) fn held_until(&self, now: Nanos, promise_due: bool) -> Option<Nanos> {
        let ends = |watched: &Watched| watched.hold_from + HOLD_MAX;
        (self.0.iter())
            // An I/O past its longest hold no longer counts: the disk hangs with it.
            .filter(|watched| watched.hold_from < now && now < ends(watched))
            .filter(|watched| !(promise_due && watched.best_effort))
            .map(ends)
            .max()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids() -> [IoId; 2] {
        [0, 1].map(|index| IoId {
            index,
            generation: 0,
        })
    }

    fn ms(ms: u64) -> Nanos {
        Nanos::from_millis(ms)
    }

    #[test]
    fn others_are_held_back_until_all_that_are_overdue_are_back() {
        let [first, second] = ids();
        let mut at_disk = AtDisk::with_capacity(2);
        assert_eq!(at_disk.held_until(ms(1000), true), None);
        at_disk.started(ms(100), first, ms(40), Nanos::ZERO, false);
        at_disk.started(ms(130), second, ms(10), Nanos::ZERO, false);
        assert_eq!(at_disk.held_until(ms(150), true), None);
        assert_eq!(at_disk.held_until(ms(151), true), Some(ms(1150)));
        assert_eq!(at_disk.held_until(ms(181), true), Some(ms(1180)));
        at_disk.ended(second);
        assert_eq!(at_disk.held_until(ms(181), true), Some(ms(1180)));
        at_disk.ended(first);
        assert_eq!(at_disk.held_until(ms(1000), true), None);
    }

    #[test]
    fn an_io_far_from_late_holds_nothing_back() {
        let [io, _] = ids();
        let mut at_disk = AtDisk::with_capacity(1);
        at_disk.started(ms(0), io, ms(10), ms(500), false);
        assert_eq!(at_disk.held_until(ms(420), true), None);
        assert_eq!(at_disk.held_until(ms(421), true), Some(ms(1420)));
    }

    #[test]
    fn no_promise_waits_for_a_bound_without_a_rate() {
        let [bounded, promised] = ids();
        let mut at_disk = AtDisk::with_capacity(2);
        at_disk.started(ms(0), bounded, ms(10), Nanos::ZERO, true);
        assert_eq!(at_disk.held_until(ms(30), true), None);
        assert_eq!(at_disk.held_until(ms(30), false), Some(ms(1020)));
        at_disk.started(ms(30), promised, ms(10), Nanos::ZERO, false);
        assert_eq!(at_disk.held_until(ms(60), true), Some(ms(1050)));
    }

    #[test]
    fn an_io_that_hangs_holds_others_back_for_a_second_only() {
        let [hung, fresh] = ids();
        let mut at_disk = AtDisk::with_capacity(2);
        at_disk.started(ms(100), hung, ms(10), Nanos::ZERO, false);
        at_disk.started(ms(1110), fresh, ms(10), Nanos::ZERO, false);
        assert_eq!(at_disk.held_until(ms(1119), true), Some(ms(1120)));
        assert_eq!(at_disk.held_until(ms(1120), true), None);
        // The next I/O is watched on its own.
        assert_eq!(at_disk.held_until(ms(1131), true), Some(ms(2130)));
        // Without room an I/O is not watched, and nothing is allocated.
        at_disk.started(ms(1200), hung, ms(10), Nanos::ZERO, false);
        assert_eq!(at_disk.0.len(), 2);
    }
}
