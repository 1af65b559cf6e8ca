//! Where each disk lies among its device's addresses.
//!
//! The engine knows one line of addresses a device; schedulers order and merge by them. Disks
//! in memory and emulated ones lie one after the other, each on a whole MiB, in the order of the
//! configuration. A file would like to lie where its first extent does on the physical device;
//! all files are placed in the order of these wishes (those without one last), each where it
//! wishes or, if the one before reaches beyond that, right behind it. So ranges never overlap,
//! files that follow each other on the device do so here, and where a wish cannot be granted
//! (a fragmented or sparse file is longer here than its first extent) only the guess of seek
//! distances suffers.

/// Disks begin at multiples of this.
pub const STEP: u64 = 1 << 20;

/// A disk to be placed.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    /// Bytes.
    pub size: u64,
    /// Where it would like to begin.
    pub at: Option<u64>,
}

/// The disks do not fit.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the disks need {needed} bytes of addresses, but the device has {capacity}")]
pub struct TooSmall {
    /// Bytes, each disk rounded up.
    pub needed: u64,
    /// Bytes.
    pub capacity: u64,
}

/// The first address of each disk.
///
/// # Errors
/// When they do not fit `capacity`.
pub fn place(disks: &[Wanted], capacity: u64) -> Result<Vec<u64>, TooSmall> {
    let mut order: Vec<usize> = (0..disks.len()).collect();
    order.sort_by_key(|&i| (disks[i].at.is_none(), disks[i].at));
    let total = disks.iter().fold(0u64, |sum, d| {
        sum.saturating_add(d.size.next_multiple_of(STEP))
    });
    // The last disk's own end counts, not what it is rounded up to.
    let mut bases = vec![0; disks.len()];
    let mut next = 0u64;
    let mut end = 0u64;
    let mut left = total;
    for i in order {
        left -= disks[i].size.next_multiple_of(STEP);
        let wish = disks[i].at.unwrap_or(0) / STEP * STEP;
        // No wish may push those behind it out of the addresses.
        let last = capacity
            .checked_sub(left)
            .and_then(|c| c.checked_sub(disks[i].size))
            .map_or(0, |l| l / STEP * STEP);
        let base = next.max(wish.min(last));
        bases[i] = base;
        end = base.saturating_add(disks[i].size);
        next = end.checked_next_multiple_of(STEP).unwrap_or(u64::MAX);
    }
    if end > capacity {
        return Err(TooSmall {
            needed: end,
            capacity,
        });
    }
    Ok(bases)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(size: u64, at: Option<u64>) -> Wanted {
        Wanted { size, at }
    }

    #[test]
    fn without_wishes_disks_follow_each_other_on_whole_mebibytes() {
        let disks = [
            wanted(STEP + 1, None),
            wanted(512, None),
            wanted(STEP, None),
        ];
        assert_eq!(place(&disks, 4 * STEP).unwrap(), [0, 2 * STEP, 3 * STEP]);
        let error = place(&disks, 4 * STEP - 1).unwrap_err();
        assert_eq!(
            error,
            TooSmall {
                needed: 4 * STEP,
                capacity: 4 * STEP - 1
            }
        );
    }

    #[test]
    fn wishes_are_kept_in_order_and_never_overlap() {
        let disks = [
            wanted(10 * STEP, Some(50 * STEP + 7)),
            wanted(10 * STEP, None),
            wanted(10 * STEP, Some(5 * STEP)),
            wanted(10 * STEP, Some(6 * STEP)),
        ];
        let bases = place(&disks, u64::MAX).unwrap();
        assert_eq!(bases, [50 * STEP, 60 * STEP, 5 * STEP, 15 * STEP]);
    }

    proptest::proptest! {
        #[test]
        fn whatever_is_wished_nothing_overlaps_and_what_fits_is_placed(
            disks in proptest::collection::vec(
                (1u64..50 * STEP, proptest::option::of(0u64..u64::MAX)), 1..20),
        ) {
            let disks: Vec<_> = disks.into_iter().map(|(s, a)| wanted(s, a)).collect();
            let bases = place(&disks, 1 << 62).unwrap();
            let mut ranges: Vec<_> =
                bases.iter().zip(&disks).map(|(&b, d)| (b, b + d.size)).collect();
            ranges.sort_unstable();
            assert!(ranges.windows(2).all(|w| w[0].1 <= w[1].0));
            assert!(bases.iter().all(|b| b % STEP == 0));
        }
    }
}
