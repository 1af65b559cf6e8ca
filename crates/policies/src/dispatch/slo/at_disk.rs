//! What was promised and is with a disk that seeks.
//!
//! Such a disk orders what it holds by itself, the nearest first: a stream of writes that goes on
//! keeps a read elsewhere waiting until the disk's own patience ends, a second or so. So nothing
//! more goes while the disk passes a promised I/O over: what it holds beside it is soon done.

use tidegate_base::request::IoId;
use tidegate_base::time::Nanos;

/// Positionings after which an I/O counts as passed over.
const PATIENCE: u64 = 2;

/// Promised I/Os in flight with when they went, the oldest first.
#[derive(Debug, Default)]
pub(super) struct AtDisk(Vec<(IoId, Nanos)>);

impl AtDisk {
    /// Creates an empty list with room for so many I/Os.
    pub(super) fn with_capacity(ios: usize) -> AtDisk {
        AtDisk(Vec::with_capacity(ios))
    }

    /// A promised I/O goes.
    pub(super) fn started(&mut self, now: Nanos, io: IoId) {
        self.0.push((io, now));
    }

    /// An I/O came back, whether promised or not.
    pub(super) fn ended(&mut self, io: IoId) {
        self.0.retain(|&(promised, _)| promised != io);
    }

    /// Returns whether one has been passed over for so long that nothing more is to go.
    #[inline]
    pub(super) fn passes_over(&self, now: Nanos, positioning: Nanos) -> bool {
        let oldest = self.0.first();
        oldest.is_some_and(|&(_, went)| now.since(went) > Nanos(PATIENCE * positioning.0))
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
        assert!(!at_disk.passes_over(ms(1000), ms(10)));
        at_disk.started(ms(100), first);
        at_disk.started(ms(130), second);
        assert!(!at_disk.passes_over(ms(120), ms(10)));
        assert!(at_disk.passes_over(ms(121), ms(10)));
        at_disk.ended(first);
        assert!(!at_disk.passes_over(ms(150), ms(10)));
        assert!(at_disk.passes_over(ms(151), ms(10)));
        at_disk.ended(second);
        assert!(!at_disk.passes_over(ms(1000), ms(10)));
    }
}
