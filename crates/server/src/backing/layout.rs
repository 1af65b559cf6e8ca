//! Layout of the disks in the addresses of their device.
//!
//! The engine knows one range of addresses for each device; schedulers sort and merge by them.
//! Disks in memory and on emulated devices follow each other on whole MiB, in the order of the
//! configuration. A file prefers the address of its first extent on the physical device. Files are
//! placed in the order of their preferred addresses, those without one last: each at its preferred
//! address, or right behind the previous file if that reaches further. So ranges never overlap, and
//! files that follow each other on the device do so here. Where a preference cannot be met (a
//! fragmented or sparse file is longer here than its first extent), only the estimate of seek
//! distances suffers.
//!
//! A disk that is added later gets the first free range at or behind its preferred address, else
//! the first free range at all. A disk that grows stays if there is room behind it, and else moves.

use std::collections::BTreeMap;

use tidegate_units::human::bytes_and_count;

/// Alignment of the disks' first addresses in bytes.
pub const STEP: u64 = 1 << 20;

/// Disk to be placed.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    /// Size in bytes.
    pub size: u64,
    /// Preferred first address.
    pub at: Option<u64>,
}

/// The disks of a device together are larger than its address range.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "the disks need {} of addresses, but the device has {}",
    bytes_and_count(*needed),
    bytes_and_count(*capacity)
)]
pub struct TooSmall {
    /// Required bytes, with each disk but the last rounded up to [`STEP`].
    pub needed: u64,
    /// Size of the device in bytes.
    pub capacity: u64,
}

/// Returns the first address of each disk. Panics if a disk is empty.
///
/// # Errors
/// Fails if the disks do not fit `capacity` bytes.
pub fn lay_out(disks: &[Wanted], capacity: u64) -> Result<Vec<u64>, TooSmall> {
    // Two empty ranges could begin at one address, which is the key of a disk here.
    assert!(disks.iter().all(|disk| disk.size > 0), "a disk is empty");
    let mut order: Vec<usize> = (0..disks.len()).collect();
    order.sort_by_key(|&i| (disks[i].at.is_none(), disks[i].at));
    let total = disks.iter().fold(0u64, |sum, d| {
        sum.saturating_add(d.size.next_multiple_of(STEP))
    });
    // The last disk counts with its own size, not rounded up.
    let mut bases = vec![0; disks.len()];
    let mut next = 0u64;
    let mut end = 0u64;
    let mut left = total;
    for i in order {
        left -= disks[i].size.next_multiple_of(STEP);
        let wish = disks[i].at.unwrap_or(0) / STEP * STEP;
        // A preference must not push the disks behind it past the device's end.
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
    // `Layout::free` starts at aligned addresses, and would take the rest of a step for used.
    assert!(
        bases.iter().all(|base| base.is_multiple_of(STEP)),
        "a disk begins between two steps"
    );
    Ok(bases)
}

/// No free range of a device is large enough for a disk.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "no room for {} on the device: the largest free place has {} of its {}",
    bytes_and_count(*size),
    bytes_and_count(*largest),
    bytes_and_count(*capacity)
)]
pub struct NoRoom {
    /// Size of the disk in bytes.
    pub size: u64,
    /// Size of the largest free range in bytes.
    pub largest: u64,
    /// Size of the device in bytes.
    pub capacity: u64,
}

/// Address range of a device, and the parts of it that disks occupy.
#[derive(Debug)]
pub struct Layout {
    capacity: u64,
    /// End of each disk's range by its first address.
    taken: BTreeMap<u64, u64>,
}

impl Layout {
    /// Places the initial disks and returns the first address of each.
    ///
    /// # Errors
    /// Fails if the disks do not fit `capacity` bytes.
    pub fn new(disks: &[Wanted], capacity: u64) -> Result<(Layout, Vec<u64>), TooSmall> {
        let bases = lay_out(disks, capacity)?;
        let ends = bases.iter().zip(disks);
        let taken = ends.map(|(&base, disk)| (base, base + disk.size));
        let taken: BTreeMap<u64, u64> = taken.collect();
        // A byte that two disks share would show one VM's data to another.
        let next = taken.keys().skip(1);
        assert!(
            taken.len() == disks.len() && taken.values().zip(next).all(|(end, next)| end <= next),
            "two disks overlap"
        );
        Ok((Layout { capacity, taken }, bases))
    }

    /// Takes a range for one more disk and returns its first address. Panics if the disk is empty.
    ///
    /// # Errors
    /// Fails if no free range is large enough.
    pub fn allocate(&mut self, wanted: Wanted) -> Result<u64, NoRoom> {
        assert!(wanted.size > 0, "a disk is empty");
        let wish = wanted.at.unwrap_or(0) / STEP * STEP;
        let fits = |from: u64, to: u64| to.checked_sub(from).is_some_and(|n| n >= wanted.size);
        let mut first = None;
        let mut found = None;
        let mut largest = 0;
        for (from, to) in self.free() {
            largest = largest.max(to - from);
            first = first.or(fits(from, to).then_some(from));
            let behind = from.max(wish);
            found = found.or(fits(behind, to).then_some(behind));
        }
        let Some(base) = found.or(first) else {
            return Err(NoRoom {
                size: wanted.size,
                largest,
                capacity: self.capacity,
            });
        };
        let end = base + wanted.size;
        assert!(
            end <= self.capacity,
            "a disk ends at {end}, behind its device"
        );
        let before = self.taken.insert(base, end);
        assert!(before.is_none(), "two disks begin at {base}");
        Ok(base)
    }

    /// Frees the range of the disk that begins at `base`. Panics if none does.
    pub fn release(&mut self, base: u64) {
        self.taken.remove(&base).expect("a disk begins there");
    }

    /// Changes the size of the disk that begins at `base` and returns its new first address.
    ///
    /// # Errors
    /// Fails if no free range is large enough; the disk then keeps its range.
    ///
    /// # Panics
    /// If no disk begins there, or `size` is 0.
    pub fn resize(&mut self, base: u64, size: u64) -> Result<u64, NoRoom> {
        assert!(size > 0, "a disk is empty");
        let end = self.taken.remove(&base).expect("a disk begins there");
        let next = self.taken.range(base..).next();
        let limit = next.map_or(self.capacity, |(&next, _)| next);
        if base.checked_add(size).is_some_and(|end| end <= limit) {
            self.taken.insert(base, base + size);
            return Ok(base);
        }
        let at = Some(base);
        self.allocate(Wanted { size, at }).inspect_err(|_| {
            self.taken.insert(base, end);
        })
    }

    /// Iterates over the free ranges, as the first address at which a disk may begin and the end.
    fn free(&self) -> impl Iterator<Item = (u64, u64)> {
        let begins = std::iter::once(0).chain(self.taken.values().copied());
        let ends = (self.taken.keys().copied()).chain([self.capacity]);
        begins.zip(ends).filter_map(|(from, to)| {
            let from = from.checked_next_multiple_of(STEP)?;
            (from < to).then_some((from, to))
        })
    }
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
        assert_eq!(lay_out(&disks, 4 * STEP).unwrap(), [0, 2 * STEP, 3 * STEP]);
        let error = lay_out(&disks, 4 * STEP - 1).unwrap_err();
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
        let bases = lay_out(&disks, u64::MAX).unwrap();
        assert_eq!(bases, [50 * STEP, 60 * STEP, 5 * STEP, 15 * STEP]);
    }

    proptest::proptest! {
        #[test]
        fn whatever_is_wished_nothing_overlaps_and_what_fits_is_placed(
            disks in proptest::collection::vec(
                (1u64..50 * STEP, proptest::option::of(0u64..u64::MAX)), 1..20),
        ) {
            let disks: Vec<_> = disks.into_iter().map(|(s, a)| wanted(s, a)).collect();
            let bases = lay_out(&disks, 1 << 62).unwrap();
            let mut ranges: Vec<_> =
                bases.iter().zip(&disks).map(|(&b, d)| (b, b + d.size)).collect();
            ranges.sort_unstable();
            assert!(ranges.windows(2).all(|w| w[0].1 <= w[1].0));
            assert!(bases.iter().all(|b| b % STEP == 0));
        }
    }

    #[test]
    fn a_place_that_was_left_is_taken_again_and_what_grows_moves_only_if_it_must() {
        let disks = [
            wanted(2 * STEP, None),
            wanted(STEP, None),
            wanted(STEP, None),
        ];
        let (mut layout, bases) = Layout::new(&disks, 8 * STEP).unwrap();
        assert_eq!(bases, [0, 2 * STEP, 3 * STEP]);
        layout.release(2 * STEP);
        assert_eq!(layout.allocate(wanted(STEP / 2, None)), Ok(2 * STEP));
        assert_eq!(layout.resize(2 * STEP, STEP), Ok(2 * STEP));
        assert_eq!(layout.resize(2 * STEP, STEP + 1), Ok(4 * STEP));
        let refused = NoRoom {
            size: 3 * STEP,
            largest: 2 * STEP,
            capacity: 8 * STEP,
        };
        assert_eq!(
            layout.allocate(wanted(3 * STEP, None)),
            Err(refused.clone())
        );
        assert_eq!(layout.resize(3 * STEP, 3 * STEP), Err(refused));
        // Still where it was: its place is not free.
        assert_eq!(layout.allocate(wanted(STEP, Some(3 * STEP))), Ok(6 * STEP));
        assert_eq!(
            layout.allocate(wanted(STEP, Some(7 * STEP + 9))),
            Ok(7 * STEP)
        );
    }

    proptest::proptest! {
        #[test]
        fn places_that_are_taken_resized_and_left_never_overlap(
            steps in proptest::collection::vec((0u8..3, 1u64..20 * STEP, 0u64..100 * STEP), 1..200),
        ) {
            let capacity = 100 * STEP;
            let (mut layout, _) = Layout::new(&[], capacity).unwrap();
            let mut disks: Vec<(u64, u64)> = Vec::new();
            for (what, size, at) in steps {
                let which = (!disks.is_empty()).then(|| at as usize % disks.len());
                match (what, which) {
                    (0, Some(which)) => layout.release(disks.swap_remove(which).0),
                    (1, Some(which)) => {
                        if let Ok(base) = layout.resize(disks[which].0, size) {
                            disks[which] = (base, size);
                        }
                    }
                    _ => {
                        if let Ok(base) = layout.allocate(wanted(size, Some(at))) {
                            disks.push((base, size));
                        }
                    }
                }
                let mut ranges: Vec<_> = disks.iter().map(|&(b, s)| (b, b + s)).collect();
                ranges.sort_unstable();
                assert!(ranges.windows(2).all(|w| w[0].1 <= w[1].0));
                assert!(ranges.iter().all(|r| r.0 % STEP == 0 && r.1 <= capacity));
            }
        }
    }
}
