//! What was promised and is with a disk that seeks.
//!
//! Such a disk orders what it holds by itself, the nearest first: a stream of writes that goes on
//! keeps a read elsewhere waiting until the disk's own patience ends, a second or so. So nothing
//! more goes while the disk passes a promised I/O over: what it holds beside it is soon done.

use tidegate_base::request::IoId;
use tidegate_base::time::Nanos;

/// Positionings after which an I/O counts as passed over.
const PATIENCE: u64 = 2;
/// Longest time for which others are held back for one I/O. A disk's own patience with a read is
/// about a second; one that takes longer hangs, or has errors, and its neighbours are to go on.
const LONGEST_HOLD: Nanos = Nanos::SECOND;

/// Promised I/Os in flight with when they went, the oldest first. Nothing is allocated after start:
/// those beyond the room there is are not watched, as they go after those that are.
#[derive(Debug, Default)]
pub(super) struct AtDisk(Vec<(IoId, Nanos)>);

impl AtDisk {
    /// Creates an empty list with room for so many I/Os.
    pub(super) fn with_capacity(ios: usize) -> AtDisk {
        AtDisk(Vec::with_capacity(ios))
    }

    /// A promised I/O goes.
    pub(super) fn started(&mut self, now: Nanos, io: IoId) {
        if self.0.len() < self.0.capacity() {
            self.0.push((io, now));
        }
    }

    /// An I/O came back, whether promised or not.
    pub(super) fn ended(&mut self, io: IoId) {
        self.0.retain(|&(promised, _)| promised != io);
    }

    /// Returns until when nothing more is to go because the disk passes an I/O over; `None` while it
    /// does not. The end of that I/O may come sooner.
    #[inline]
    pub(super) fn held_until(&self, now: Nanos, positioning: Nanos) -> Option<Nanos> {
        let patience = Nanos(PATIENCE * positioning.0);
        (self.0.iter())
            .take_while(|&&(_, went)| now.since(went) > patience)
            .map(|&(_, went)| went + LONGEST_HOLD.max(patience))
            .find(|&until| until > now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_counts_and_only_until_it_is_back() {
        let [first, second] = [0, 1].map(|index| IoId {
            index,
            generation: 0,
        });
        let ms = Nanos::from_millis;
        let mut at_disk = AtDisk::with_capacity(2);
        let held_until = |at_disk: &AtDisk, now| at_disk.held_until(ms(now), ms(10));
        assert_eq!(held_until(&at_disk, 1000), None);
        at_disk.started(ms(100), first);
        at_disk.started(ms(130), second);
        assert_eq!(held_until(&at_disk, 120), None);
        assert_eq!(held_until(&at_disk, 121), Some(ms(1100)));
        at_disk.ended(first);
        assert_eq!(held_until(&at_disk, 150), None);
        assert_eq!(held_until(&at_disk, 151), Some(ms(1130)));
        at_disk.ended(second);
        assert_eq!(held_until(&at_disk, 1000), None);
    }

    #[test]
    fn one_that_hangs_holds_others_back_for_a_second_only() {
        let ms = Nanos::from_millis;
        let [hung, fresh] = [0, 1].map(|index| IoId {
            index,
            generation: 0,
        });
        let mut at_disk = AtDisk::with_capacity(2);
        at_disk.started(ms(100), hung);
        at_disk.started(ms(1095), fresh);
        assert_eq!(at_disk.held_until(ms(1099), ms(10)), Some(ms(1100)));
        assert_eq!(at_disk.held_until(ms(1100), ms(10)), None);
        // The next one is watched for itself.
        assert_eq!(at_disk.held_until(ms(1116), ms(10)), Some(ms(2095)));
        // Beyond the room there is nothing is watched, and nothing breaks.
        at_disk.started(ms(1200), hung);
    }
}
