//! I/Os with a promise that are in flight at a disk that seeks.
//!
//! Such a disk reorders its queue, the nearest first. Beside a stream of writes, a read elsewhere
//! waits until the disk's own time-out, about a second. So nothing more goes to the disk while one
//! of these I/Os has been there for longer than its promise leaves: the disk soon finishes the rest
//! of its queue. An I/O of a VM that is served beyond its floor is not late for long, so nothing is
//! held back for it.
//!
//! A floor that is due is not held back for I/Os of floors, nor for one with a latency bound until
//! that is nearly late. Floors are rates, and fit the disk together, so the disk finishes its queue
//! although they go on. Held back, a VM would have one I/O at the disk at a time, and could not
//! make up for that where its own limit is near its floor: of 45 IOPS with a limit of 45 IOPS, 25
//! were served beside 16 random reads.
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

/// Promise that is due, for which a hold may be broken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum DuePromise {
    /// Nothing is due but shares, and bounds that are best effort.
    None,
    /// A request with a latency bound is due.
    Bound,
    /// A floor without a latency bound is due.
    Floor,
}

/// Promise for which an I/O is watched.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum WatchedFor {
    /// A floor; the I/O is late from this time on.
    Floor(Nanos),
    /// A latency bound by which the I/O is to end at this time. Every delay counts.
    Bound(Nanos),
    /// A latency bound without a rate, for which no promise waits.
    BestEffort,
}

/// I/O that is watched.
#[derive(Clone, Copy, Debug)]
struct Watched {
    io: IoId,
    /// Time from which on others are held back for it.
    hold_from: Nanos,
    /// Times from which on due bounds and due floors are held back for it; [`Nanos::MAX`]: never.
    bounds_from: Nanos,
    floors_from: Nanos,
}

impl Watched {
    /// Returns the time from which on nothing goes although a promise is due.
    fn hold_from(&self, due: DuePromise) -> Nanos {
        match due {
            DuePromise::None => self.hold_from,
            DuePromise::Bound => self.bounds_from,
            DuePromise::Floor => self.floors_from,
        }
    }
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
    /// back for it after [`PATIENCE_POSITIONINGS`], but not before it is nearly late.
    pub(super) fn started(
        &mut self,
        now: Nanos,
        io: IoId,
        positioning: Nanos,
        watched_for: WatchedFor,
    ) {
        if self.0.len() == self.0.capacity() {
            return;
        }
        let patient_until = now + Nanos(PATIENCE_POSITIONINGS * positioning.0);
        // `Nanos` saturates at zero, so a late time of zero leaves the patience alone.
        let nearly =
            |late: Nanos| patient_until.max(late - Nanos(EARLIER_POSITIONINGS * positioning.0));
        let (hold_from, bounds_from, floors_from) = match watched_for {
            WatchedFor::Floor(late) => (nearly(late), nearly(late), Nanos::MAX),
            WatchedFor::Bound(end) => (patient_until, patient_until, nearly(end)),
            WatchedFor::BestEffort => (patient_until, Nanos::MAX, Nanos::MAX),
        };
        self.0.push(Watched {
            io,
            hold_from,
            bounds_from,
            floors_from,
        });
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
    /// of an I/O may come sooner. `due`: what is promised and due.
    #[inline]
    pub(super) fn held_until(&self, now: Nanos, due: DuePromise) -> Option<Nanos> {
        let ends = |watched: &Watched| watched.hold_from + HOLD_MAX;
        (self.0.iter())
            // An I/O past its longest hold no longer counts: the disk hangs with it.
            .filter(|watched| watched.hold_from(due) < now && now < ends(watched))
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

    /// Watched for a floor that is late at once, unless it is served beyond its rate.
    const LATE: WatchedFor = WatchedFor::Floor(Nanos::ZERO);

    #[test]
    fn others_are_held_back_until_all_that_are_overdue_are_back() {
        let [first, second] = ids();
        let mut at_disk = AtDisk::with_capacity(2);
        for due in [DuePromise::None, DuePromise::Bound] {
            assert_eq!(at_disk.held_until(ms(1000), due), None);
            at_disk.started(ms(100), first, ms(40), LATE);
            at_disk.started(ms(130), second, ms(10), LATE);
            assert_eq!(at_disk.held_until(ms(150), due), None);
            assert_eq!(at_disk.held_until(ms(151), due), Some(ms(1150)));
            assert_eq!(at_disk.held_until(ms(181), due), Some(ms(1180)));
            at_disk.ended(second);
            assert_eq!(at_disk.held_until(ms(181), due), Some(ms(1180)));
            at_disk.ended(first);
            assert_eq!(at_disk.held_until(ms(1000), due), None);
        }
    }

    #[test]
    fn an_io_far_from_late_holds_nothing_back() {
        let [io, _] = ids();
        let mut at_disk = AtDisk::with_capacity(1);
        at_disk.started(ms(0), io, ms(10), WatchedFor::Floor(ms(500)));
        assert_eq!(at_disk.held_until(ms(420), DuePromise::None), None);
        let held = at_disk.held_until(ms(421), DuePromise::None);
        assert_eq!(held, Some(ms(1420)));
    }

    #[test]
    fn a_due_floor_waits_for_no_floor_and_for_a_bound_only_once_that_is_nearly_late() {
        let [floor, bounded] = ids();
        let mut at_disk = AtDisk::with_capacity(2);
        at_disk.started(ms(0), floor, ms(10), LATE);
        assert_eq!(at_disk.held_until(ms(30), DuePromise::Floor), None);
        assert_eq!(at_disk.held_until(ms(30), DuePromise::None), Some(ms(1020)));
        at_disk.started(ms(100), bounded, ms(10), WatchedFor::Bound(ms(400)));
        at_disk.ended(floor);
        assert_eq!(
            at_disk.held_until(ms(121), DuePromise::Bound),
            Some(ms(1120))
        );
        assert_eq!(at_disk.held_until(ms(320), DuePromise::Floor), None);
        assert_eq!(
            at_disk.held_until(ms(321), DuePromise::Floor),
            Some(ms(1120))
        );
        at_disk.ended(bounded);
        // A tight bound lets nothing past once the patience with it is over.
        at_disk.started(ms(500), bounded, ms(10), WatchedFor::Bound(ms(550)));
        assert_eq!(at_disk.held_until(ms(520), DuePromise::Floor), None);
        assert_eq!(
            at_disk.held_until(ms(521), DuePromise::Floor),
            Some(ms(1520))
        );
    }

    #[test]
    fn no_promise_waits_for_a_bound_without_a_rate() {
        let [bounded, promised] = ids();
        let mut at_disk = AtDisk::with_capacity(2);
        at_disk.started(ms(0), bounded, ms(10), WatchedFor::BestEffort);
        for due in [DuePromise::Bound, DuePromise::Floor] {
            assert_eq!(at_disk.held_until(ms(30), due), None);
        }
        assert_eq!(at_disk.held_until(ms(30), DuePromise::None), Some(ms(1020)));
        at_disk.started(ms(30), promised, ms(10), LATE);
        assert_eq!(
            at_disk.held_until(ms(60), DuePromise::Bound),
            Some(ms(1050))
        );
    }

    #[test]
    fn an_io_that_hangs_holds_others_back_for_a_second_only() {
        let [hung, fresh] = ids();
        let none = DuePromise::None;
        let mut at_disk = AtDisk::with_capacity(2);
        at_disk.started(ms(100), hung, ms(10), LATE);
        at_disk.started(ms(1110), fresh, ms(10), LATE);
        assert_eq!(at_disk.held_until(ms(1119), none), Some(ms(1120)));
        assert_eq!(at_disk.held_until(ms(1120), none), None);
        // The next I/O is watched on its own.
        assert_eq!(at_disk.held_until(ms(1131), none), Some(ms(2130)));
        // Without room an I/O is not watched, and nothing is allocated.
        at_disk.started(ms(1200), hung, ms(10), LATE);
        assert_eq!(at_disk.0.len(), 2);
    }
}
