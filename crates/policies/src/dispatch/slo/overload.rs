//! Overload control: chooses the promises that step down, one by one, while the device is slower
//! than promised.
//!
//! Deadline order collapses as a whole, so the queue of promises is kept short instead:
//!
//! ```text
//!   what is due is late for 100 ms ---> the next promise of this list steps down:
//!     1. background processes, to one part per 500 ms
//!     2. deadline transfers, the one with the most time left first: their share alone
//!     3. targets, the newest first: their reservation and their share
//!     4. latency bounds, the newest first: not scheduled by
//!   nothing was late for 1 s ---> those that stepped down last come back
//! ```
//!
//! Within a kind the number that steps down at a time doubles (1, 2, 4, ...), so that a device with
//! thousands of bounds is relieved within seconds. Reservations never step down: where they exceed
//! the device, the order of deadlines cuts them in proportion ([`promises`]).
//!
//! [`promises`]: super::promises

use tidegate_base::time::Nanos;
use tidegate_core::roles::SteppedDown;

/// Part of an objective that can step down, in the order in which parts do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Part {
    Transfer,
    Target,
    Latency,
}

impl Part {
    /// Every part, the first to step down first.
    pub(super) const ALL: [Part; 3] = [Part::Transfer, Part::Target, Part::Latency];
}

/// Set of parts of one VM's objective.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Parts(u8);

impl Parts {
    /// The empty set.
    pub(super) const NONE: Parts = Parts(0);

    /// Returns whether a part is in the set.
    #[inline]
    pub(super) fn has(self, part: Part) -> bool {
        self.0 & (1 << part as u8) != 0
    }

    /// Adds a part to the set or removes it.
    pub(super) fn set(&mut self, part: Part, is_in: bool) {
        let bit = 1 << part as u8;
        self.0 = if is_in { self.0 | bit } else { self.0 & !bit };
    }
}

/// Change that is due now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Change {
    /// Promises have been late for long enough: more of them step down.
    Down,
    /// Nothing was late for long enough: the last ones come back.
    Back,
}

/// Promise that has stepped down.
#[derive(Clone, Copy, Debug)]
struct Down {
    vm: u32,
    part: Part,
    /// Number of the step, from 1 on; those of one step come back together.
    step: u32,
}

/// Promise that could step down, with its sort key.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    /// Sort key; the largest steps down first.
    key: u64,
    vm: u32,
}

/// Detection of overload, and the promises that have stepped down.
#[derive(Debug)]
pub(super) struct Overload {
    /// Lateness of the earliest deadline that counts as late.
    tolerance: Nanos,
    /// Time since which the earliest deadline has been late; [`Nanos::MAX`]: it is not.
    late_since: Nanos,
    /// Time since which no deadline has been late.
    calm_since: Nanos,
    /// Number of steps in force; the first is the background's.
    steps: u32,
    /// Kind of promise that stepped down last, and the number of promises at that step.
    last: Option<(Part, u32)>,
    down: Vec<Down>,
    /// Buffer for sorting candidates, so that a step allocates nothing.
    candidates: Vec<Candidate>,
}

impl Overload {
    /// Time for which promises are late until the next step.
    const STEP_DOWN_AFTER: Nanos = Nanos::from_millis(100);
    /// Time without a late promise until the last step is taken back.
    const STEP_BACK_AFTER: Nanos = Nanos::SECOND;
    /// Lateness in positionings that a disk's own reordering explains.
    const TOLERANCE_POSITIONINGS: u64 = 8;
    /// Lateness that a flash disk's own housekeeping explains.
    const TOLERANCE_MIN: Nanos = Nanos::from_millis(20);

    /// Creates the detector with room for the promises of `vms` VMs.
    pub(super) fn with_capacity(vms: usize) -> Overload {
        Overload {
            tolerance: Self::TOLERANCE_MIN,
            late_since: Nanos::MAX,
            calm_since: Nanos::ZERO,
            steps: 0,
            last: None,
            down: Vec::with_capacity(Part::ALL.len() * vms),
            candidates: Vec::with_capacity(vms),
        }
    }

    /// Returns the bytes of memory that one more VM takes.
    pub(super) fn bytes_per_vm() -> usize {
        Part::ALL.len() * size_of::<Down>() + size_of::<Candidate>()
    }

    /// Sets the time of the device's positioning; zero on flash.
    pub(super) fn set_positioning(&mut self, positioning: Nanos) {
        let seeks = Nanos(positioning.0 * Self::TOLERANCE_POSITIONINGS);
        self.tolerance = seeks.max(Self::TOLERANCE_MIN);
    }

    /// Returns whether a promise is late just now.
    #[inline]
    pub(super) fn is_late(&self) -> bool {
        self.late_since != Nanos::MAX
    }

    /// Returns whether background processes have stepped down to their least rate.
    #[inline]
    pub(super) fn is_background_down(&self) -> bool {
        self.steps > 0
    }

    /// Returns the numbers of promises that have stepped down, by kind.
    pub(super) fn stepped_down(&self) -> SteppedDown {
        let count = |part| self.down.iter().filter(|down| down.part == part).count() as u32;
        SteppedDown {
            background: self.is_background_down(),
            transfers: count(Part::Transfer),
            targets: count(Part::Target),
            latencies: count(Part::Latency),
        }
    }

    /// Takes over the earliest deadline that is due, if any is. Returns the change to be carried
    /// out by [`Overload::step_down`] or [`Overload::step_back`].
    #[inline]
    pub(super) fn update(&mut self, now: Nanos, earliest: Option<Nanos>) -> Option<Change> {
        let is_late = earliest.is_some_and(|deadline| deadline + self.tolerance < now);
        // The common case, kept short: `judge` is out of line.
        if !is_late && self.steps == 0 {
            self.late_since = Nanos::MAX;
            return None;
        }
        self.judge(now, is_late)
    }

    /// Decides on a step from how long deadlines have been late, or none has.
    #[cold]
    fn judge(&mut self, now: Nanos, is_late: bool) -> Option<Change> {
        if is_late {
            self.calm_since = now;
            if self.late_since == Nanos::MAX {
                self.late_since = now;
            } else if now.since(self.late_since) >= Self::STEP_DOWN_AFTER {
                self.late_since = now;
                return Some(Change::Down);
            }
            return None;
        }
        self.late_since = Nanos::MAX;
        if now.since(self.calm_since) < Self::STEP_BACK_AFTER {
            return None;
        }
        self.calm_since = now;
        Some(Change::Back)
    }

    /// Makes the next promises step down. `candidates` calls back with each VM whose part can step
    /// down and a key: the largest key goes first, among equal ones the higher slot. `changed` is
    /// called with each VM and part that has stepped down.
    pub(super) fn step_down(
        &mut self,
        candidates: impl Fn(Part, &mut dyn FnMut(usize, u64)),
        mut changed: impl FnMut(usize, Part),
    ) {
        if self.steps == 0 {
            // The first step is the background's alone, see `is_background_down`.
            self.steps = 1;
            return;
        }
        for part in Part::ALL {
            let found = &mut self.candidates;
            found.clear();
            candidates(part, &mut |vm, key| {
                let vm = vm as u32;
                found.push(Candidate { key, vm });
            });
            if found.is_empty() {
                continue;
            }
            // Slots break ties, so that the order does not depend on the sort.
            found.sort_unstable_by_key(|it| core::cmp::Reverse((it.key, it.vm)));
            let wanted = match self.last {
                // A step of another kind begins with one again.
                Some((last, count)) if last == part => count.saturating_mul(2),
                _ => 1,
            };
            self.steps += 1;
            for candidate in found.iter().take(wanted as usize) {
                self.down.push(Down {
                    vm: candidate.vm,
                    part,
                    step: self.steps,
                });
                changed(candidate.vm as usize, part);
            }
            self.last = Some((part, wanted));
            return;
        }
    }

    /// Takes the last step back. `changed` is called with each VM and part that comes back.
    pub(super) fn step_back(&mut self, mut changed: impl FnMut(usize, Part)) {
        // `down` is in the order of steps, so those of the last step are at its end.
        while let Some(down) = self.down.pop_if(|down| down.step == self.steps) {
            changed(down.vm as usize, down.part);
        }
        self.steps = self.steps.saturating_sub(1);
        // Lateness from now on is a new overload, which starts with small steps again.
        self.last = None;
    }

    /// Forgets a VM that has been removed, or whose slot another one takes.
    pub(super) fn forget_vm(&mut self, vm: usize) {
        if !self.down.is_empty() {
            self.down.retain(|down| down.vm as usize != vm);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Nanos {
        Nanos::from_millis(ms)
    }

    /// Overload control with VMs whose parts and keys are given, and the parts that are down.
    struct Host {
        overload: Overload,
        parts: Vec<(usize, Part, u64)>,
        down: Vec<(usize, Part)>,
    }

    impl Host {
        fn new(parts: &[(usize, Part, u64)]) -> Host {
            Host {
                overload: Overload::with_capacity(16),
                parts: parts.to_vec(),
                down: Vec::new(),
            }
        }

        /// Lets time pass in steps of 10 ms, with a deadline that is late or none.
        fn pass(&mut self, millis: core::ops::Range<u64>, late: bool) {
            for now in millis.step_by(10).map(ms) {
                let change = self.overload.update(now, late.then_some(Nanos::ZERO));
                let Host {
                    overload,
                    parts,
                    down,
                } = self;
                let before = down.clone();
                match change {
                    None => {}
                    Some(Change::Down) => overload.step_down(
                        |wanted, found| {
                            for &(vm, part, key) in parts.iter() {
                                if part == wanted && !before.contains(&(vm, part)) {
                                    found(vm, key);
                                }
                            }
                        },
                        |vm, part| down.push((vm, part)),
                    ),
                    Some(Change::Back) => {
                        overload.step_back(|vm, part| down.retain(|&it| it != (vm, part)))
                    }
                }
            }
        }
    }

    #[test]
    fn promises_step_down_one_by_one_in_order_and_come_back_in_reverse() {
        use Part::{Latency, Target, Transfer};
        let parts = [
            (0, Latency, 1),
            (1, Latency, 5),
            (2, Target, 3),
            (3, Transfer, 10),
            (4, Transfer, 60),
        ];
        let mut host = Host::new(&parts);
        // A tolerance of 20 ms, then 100 ms for each step.
        host.pass(0..140, true);
        assert!(host.overload.is_background_down() && host.down.is_empty());
        host.pass(140..240, true);
        assert_eq!(host.down, [(4, Transfer)], "it has the most time left");
        host.pass(240..340, true);
        assert_eq!(host.down, [(4, Transfer), (3, Transfer)]);
        host.pass(340..540, true);
        let [.., target, newest] = host.down[..] else {
            panic!("{:?}", host.down)
        };
        assert_eq!((target, newest), ((2, Target), (1, Latency)));
        let stepped = host.overload.stepped_down();
        assert_eq!((stepped.transfers, stepped.latencies), (2, 1));
        // A second without lateness for each step back.
        host.pass(540..1600, false);
        assert_eq!(host.down.last(), Some(&(2, Target)));
        host.pass(1600..6000, false);
        assert!(host.down.is_empty() && !host.overload.is_background_down());
        assert_eq!(host.overload.stepped_down(), SteppedDown::default());
    }

    #[test]
    fn many_bounds_step_down_within_a_second() {
        let many: Vec<_> = (0..15).map(|vm| (vm, Part::Latency, vm as u64)).collect();
        let mut host = Host::new(&many);
        host.pass(0..240, true);
        assert_eq!(host.down, [(14, Part::Latency)]);
        // 2, 4 and 8 more.
        host.pass(240..540, true);
        assert_eq!(host.down.len(), 15);
        host.overload.forget_vm(3);
        assert_eq!(host.overload.stepped_down().latencies, 14);
    }

    #[test]
    fn lateness_that_ends_in_time_changes_nothing() {
        let mut host = Host::new(&[(0, Part::Latency, 0)]);
        host.pass(0..100, true);
        host.pass(100..200, false);
        host.pass(200..290, true);
        assert!(!host.overload.is_background_down() && host.down.is_empty());
    }
}
