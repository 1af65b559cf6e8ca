//! Trail of ended I/Os: which VM's I/Os the device has ended last, in a ring.
//!
//! An I/O costs one store, a write another one in a ring of writes alone: those are found there
//! however rare they are among reads. What the I/Os of a span of time cost is computed only for
//! requests that are sampled, and then from at most [`WALK`] entries.

use super::costs::Costs;
use tidegate_base::random::mix;
use tidegate_base::time::Nanos;

/// Ended I/Os, and ended writes, that are remembered. A longer span counts by its last ones.
pub(super) const LEN: usize = 4096;
/// Entries from which the composition of a span is computed.
const WALK: u32 = 24;
/// VMs that a composition tells apart.
const VMS: usize = 12;
/// Positions are compared modulo 2^31, because a request stores them in 31 bits.
pub(super) const POSITIONS: u32 = u32::MAX >> 1;

/// Bits of [`Entry::what`]; the bits below them are a value, whose unit depends on them.
const WRITE: u32 = 1 << 31;
const SEQUENTIAL: u32 = 1 << 30;
/// The I/O is no read or write: the value is its time in units of 64 ns, not its bytes.
const TIMED: u32 = 1 << 29;
const VALUE: u32 = TIMED - 1;
const TIME_UNIT_LOG2: u32 = 6;

/// Ended I/O, in eight bytes.
#[derive(Clone, Copy)]
struct Entry {
    /// Slot of the VM.
    vm: u32,
    what: u32,
}

/// Ended write, with its position in the trail.
#[derive(Clone, Copy)]
struct Written {
    position: u32,
    entry: Entry,
}

/// Largest sum of costs: some years, and sums of a few do not overflow.
const COST_MAX: u64 = 1 << 57;

/// Slot in entries of VMs that were removed.
const REMOVED: u32 = u32::MAX;

/// Ring of the I/Os that ended last.
pub(super) struct Trail {
    entries: Box<[Entry; LEN]>,
    /// Number of I/Os that have ended, modulo 2^32.
    position: u32,
    writes: Box<[Written; LEN]>,
    /// Number of writes that have ended, modulo 2^32.
    written: u32,
    /// First address behind the read or write that ended last.
    end: u64,
}

/// Device time that VMs' I/Os took in a span, in estimated nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Composition {
    vms: [(u32, u64); VMS],
    used: usize,
    /// I/Os of VMs beyond [`VMS`], and of those that were removed.
    pub rest: u64,
    /// All I/Os.
    pub total: u64,
    /// Number of I/Os.
    pub ios: u32,
}

impl Composition {
    const NONE: Composition = Composition {
        vms: [(REMOVED, 0); VMS],
        used: 0,
        rest: 0,
        total: 0,
        ios: 0,
    };

    fn add(&mut self, vm: u32, cost: u64) {
        self.total += cost;
        let known = self.vms[..self.used].iter_mut().find(|(it, _)| *it == vm);
        if let Some((_, sum)) = known {
            *sum += cost;
        } else if vm == REMOVED || self.used == VMS {
            self.rest += cost;
        } else {
            self.vms[self.used] = (vm, cost);
            self.used += 1;
        }
    }

    /// Time of a VM's I/Os.
    pub(super) fn of(&self, vm: u32) -> u64 {
        self.each().find(|&(it, _)| it == vm).map_or(0, |it| it.1)
    }

    /// VMs by their slots, with the time of their I/Os.
    pub(super) fn each(&self) -> impl Iterator<Item = (u32, u64)> + '_ {
        self.vms[..self.used].iter().copied()
    }

    /// Scales the times from those of `of` I/Os to those of `to`, or leaves them if there are none.
    fn scale(&mut self, to: u32, of: u32) {
        if to == of || of == 0 {
            return;
        }
        let scale = |cost: &mut u64| {
            let all = u128::from(*cost) * u128::from(to) / u128::from(of);
            *cost = u64::try_from(all).unwrap_or(u64::MAX).min(COST_MAX);
        };
        let vms = self.vms[..self.used].iter_mut();
        vms.for_each(|(_, cost)| scale(cost));
        scale(&mut self.rest);
        // From the parts, so that these add up to it.
        self.total = self.rest + self.each().map(|it| it.1).sum::<u64>();
    }

    /// Adds the I/Os of another span.
    pub(super) fn with(mut self, other: &Composition) -> Composition {
        other.each().for_each(|(vm, cost)| self.add(vm, cost));
        self.total += other.rest;
        self.rest += other.rest;
        self.ios += other.ios;
        self
    }
}

impl Trail {
    pub(super) fn new() -> Trail {
        let vacant = Entry {
            vm: REMOVED,
            what: 0,
        };
        Trail {
            entries: Box::new([vacant; LEN]),
            position: 0,
            writes: Box::new(
                [Written {
                    position: 0,
                    entry: vacant,
                }; LEN],
            ),
            written: 0,
            end: 0,
        }
    }

    /// Number of I/Os that have ended, modulo 2^32.
    #[inline(always)]
    pub(super) fn position(&self) -> u32 {
        self.position
    }

    /// Records the end of a read or write.
    #[inline(always)]
    pub(super) fn data_ended(&mut self, vm: u32, is_write: bool, addr: u64, len: u32) {
        let sequential = u32::from(addr == self.end);
        self.end = addr.wrapping_add(u64::from(len));
        let kind = (u32::from(is_write) * WRITE) | (sequential * SEQUENTIAL);
        let what = kind | (len & VALUE);
        let entry = Entry { vm, what };
        if is_write {
            let position = self.position;
            self.writes[self.written as usize % LEN] = Written { position, entry };
            self.written = self.written.wrapping_add(1);
        }
        self.push(entry);
    }

    /// Records the end of another I/O, which had the device for `took`.
    #[cold]
    pub(super) fn other_ended(&mut self, vm: u32, took: Nanos) {
        let units = (took.0 >> TIME_UNIT_LOG2).min(u64::from(VALUE)) as u32;
        let what = TIMED | units;
        self.push(Entry { vm, what });
    }

    #[inline(always)]
    fn push(&mut self, entry: Entry) {
        self.entries[self.position as usize % LEN] = entry;
        self.position = self.position.wrapping_add(1);
    }

    /// Computes which VMs' I/Os ended from one position to another, both modulo 2^31.
    pub(super) fn composition(&self, from: u32, to: u32, costs: &Costs) -> Composition {
        let steps = to.wrapping_sub(from) & POSITIONS;
        let back = self.position.wrapping_sub(from) & POSITIONS;
        // The oldest entries of a long span may be overwritten.
        let lost = back.saturating_sub(LEN as u32).min(steps);
        let (first, known) = (from.wrapping_add(lost), steps - lost);
        let entry = |at: u32| self.entries[at as usize % LEN];
        let mut composition = composition_of(first, known, entry, costs);
        composition.scale(steps, known);
        composition.ios = if known == 0 { 0 } else { steps };
        composition
    }

    /// Computes which VMs' writes ended from one position to another, both modulo 2^31.
    pub(super) fn writes(&self, from: u32, to: u32, costs: &Costs) -> Composition {
        let steps = to.wrapping_sub(from) & POSITIONS;
        let [since_from, since_to] = [from, to].map(|position| self.writes_since(position));
        let first = self.written.wrapping_sub(since_from);
        let known = since_from - since_to;
        let entry = |at: u32| self.writes[at as usize % LEN].entry;
        let mut composition = composition_of(first, known, entry, costs);
        if since_from == LEN as u32 && known > 0 {
            // Writes of the first part of the span may be overwritten.
            let oldest = self.writes[first as usize % LEN].position;
            composition.scale(steps, to.wrapping_sub(oldest) & POSITIONS);
        }
        composition.ios = known;
        composition
    }

    /// Number of remembered writes that have ended since a position, modulo 2^31.
    fn writes_since(&self, position: u32) -> u32 {
        let back = self.position.wrapping_sub(position) & POSITIONS;
        let (mut since, mut before) = (0, self.written.min(LEN as u32) + 1);
        while before - since > 1 {
            let middle = u32::midpoint(since, before);
            let at = self.written.wrapping_sub(middle) as usize % LEN;
            if self.position.wrapping_sub(self.writes[at].position) <= back {
                since = middle;
            } else {
                before = middle;
            }
        }
        since
    }

    /// Makes the entries of a VM that was removed belong to none.
    pub(super) fn forget(&mut self, vm: u32) {
        let of_vm = self.entries.iter_mut().filter(|entry| entry.vm == vm);
        of_vm.for_each(|entry| entry.vm = REMOVED);
        let writes = self.writes.iter_mut().map(|write| &mut write.entry);
        let of_vm = writes.filter(|entry| entry.vm == vm);
        of_vm.for_each(|entry| entry.vm = REMOVED);
    }
}

/// Computes which VMs' I/Os are in `known` entries of a ring from `first` on.
fn composition_of(
    first: u32,
    known: u32,
    entry: impl Fn(u32) -> Entry,
    costs: &Costs,
) -> Composition {
    let mut composition = Composition::NONE;
    let visited = known.min(WALK);
    for walk in 0..u64::from(visited) {
        // A random entry of each of `visited` equal parts: entries at equal distances would
        // all be of one VM where VMs take turns.
        let part = |n: u64| n * u64::from(known) / u64::from(visited);
        let (begin, end) = (part(walk), part(walk + 1));
        let within = mix(walk << 32 | u64::from(first)) % (end - begin);
        let Entry { vm, what } = entry(first.wrapping_add((begin + within) as u32));
        composition.add(vm, cost_of(what, costs));
    }
    composition.scale(known, visited);
    composition
}

/// Returns the estimated device time of an entry.
fn cost_of(what: u32, costs: &Costs) -> u64 {
    let value = what & VALUE;
    if what & TIMED != 0 {
        return costs.of_time(u64::from(value) << TIME_UNIT_LOG2);
    }
    costs.of_data(what & WRITE != 0, what & SEQUENTIAL != 0, value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unit_costs() -> Costs {
        Costs::constant(1000)
    }

    #[test]
    fn a_span_is_divided_by_the_vms_whose_ios_ended_in_it() {
        let mut trail = Trail::new();
        for n in 0..18 {
            trail.data_ended(n % 3, false, 0, 4096);
        }
        let all = trail.composition(0, 18, &unit_costs());
        assert_eq!((all.of(0), all.of(2), all.ios), (6000, 6000, 18));
        let none = trail.composition(12, 12, &unit_costs());
        assert_eq!((none.total, none.ios), (0, 0));
        let last = trail.composition(16, 18, &unit_costs());
        assert_eq!((last.of(0), last.of(1), last.of(2)), (0, 1000, 1000));
    }

    #[test]
    fn vms_that_take_turns_have_equal_parts_of_a_long_span() {
        let mut trail = Trail::new();
        for n in 0..20_000 {
            trail.data_ended(n % 2, false, 0, 4096);
        }
        let all = trail.composition(0, 20_000, &unit_costs());
        assert_eq!(all.ios, 20_000);
        assert_eq!(all.total, 20_000_000);
        let part = all.of(0) as f64 / all.total as f64;
        assert!((0.3..0.7).contains(&part), "{part}");
    }

    #[test]
    fn writes_are_told_from_reads() {
        let mut trail = Trail::new();
        for n in 0..12 {
            trail.data_ended(n % 3, n % 3 == 1, 0, 4096);
        }
        trail.other_ended(2, Nanos::SECOND);
        let writes = trail.writes(0, 13, &unit_costs());
        assert_eq!((writes.of(1), writes.total), (4000, 4000));
        let writes = trail.writes(2, 7, &unit_costs());
        assert_eq!((writes.of(1), writes.ios), (1000, 1), "that at position 4");
        assert_eq!(trail.writes(2, 4, &unit_costs()).total, 0);
    }

    #[test]
    fn a_few_writes_are_found_among_many_reads() {
        let mut trail = Trail::new();
        for n in 0..10_000 {
            trail.data_ended(u32::from(n % 1000 == 7), n % 1000 == 7, 0, 4096);
        }
        let writes = trail.writes(0, 10_000, &unit_costs());
        assert_eq!((writes.of(1), writes.of(0)), (10_000, 0));
        let writes = trail.writes(9007, 9500, &unit_costs());
        assert_eq!(writes.of(1), 1000);
        trail.forget(1);
        assert_eq!(trail.writes(0, 10_000, &unit_costs()).rest, 10_000);
    }

    #[test]
    fn writes_that_were_forgotten_count_as_those_after_them() {
        let mut trail = Trail::new();
        for n in 0..6 * LEN as u32 {
            trail.data_ended(n % 2, n % 2 == 1, 0, 4096);
        }
        let writes = trail.writes(0, 6 * LEN as u32, &unit_costs());
        let expected = 3 * LEN as u64 * 1000;
        assert!(
            writes.of(1).abs_diff(expected) < expected / 1000,
            "{writes:?}"
        );
    }

    #[test]
    fn positions_wrap_around() {
        let mut trail = Trail::new();
        trail.position = u32::MAX - 5;
        trail.written = u32::MAX - 2;
        let from = trail.position & POSITIONS;
        for n in 0..10 {
            trail.data_ended(n % 2, n % 2 == 1, 0, 4096);
        }
        let to = trail.position() & POSITIONS;
        let all = trail.composition(from, to, &unit_costs());
        assert_eq!((all.ios, all.of(0), all.of(1)), (10, 5000, 5000));
        let writes = trail.writes(to.wrapping_sub(3) & POSITIONS, to, &unit_costs());
        assert_eq!((writes.of(1), writes.total), (2000, 2000));
    }

    #[test]
    fn removed_vms_and_those_beyond_the_table_are_the_rest() {
        let mut trail = Trail::new();
        for vm in 0..20 {
            trail.data_ended(vm, true, 0, 4096);
        }
        trail.forget(0);
        let all = trail.composition(0, 20, &unit_costs());
        assert_eq!((all.of(0), all.of(1), all.rest), (0, 1000, 8000));
        assert_eq!(all.total, 20_000);
    }
}
