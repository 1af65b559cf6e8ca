//! Bounds on the I/Os of each VM while several share the device: long I/Os are split, and a place
//! is reserved for a VM that is about to issue its next request.
//!
//! A VM that issues one request at a time is never in the policy's queue when the device gets room:
//! its next request comes a moment after the reply to the last. Whatever its weight, it then waits
//! for all I/Os that a neighbour with a deep queue has submitted. Two measures shorten that wait at
//! no cost in device time:
//!
//! - **Parts.** While another VM has requests inside, or one came within the last 10 ms, an I/O
//!   moves at most `max_io_shared` bytes; the rest of its request waits in the queue, where the
//!   policy decides again, and requests are not merged to more. Where the device has a profile,
//!   parts are doubled until all of them together take at most a quarter longer than the whole;
//!   where no length does, the I/O is not split. On a disk with seeks that is the rule.
//! - **A place.** A VM that has just been answered and has nothing else inside is expected back
//!   within twice the time it usually takes, if that is at most a millisecond. Until then the last
//!   free place of the device's depth is not given to others, as long as something is in flight:
//!   the device has work, and the request that comes finds as little of it as possible.
//!
//! Neither applies for the sake of a background process, which has what VMs leave.
//!
//! The policy still chooses which unit goes next, and its bounds hold: parts cost what their bytes
//! cost, and one place less is a smaller depth.

use tidegate_base::device::DeviceSpec;
use tidegate_base::request::Op;
use tidegate_base::time::Nanos;
use tidegate_capacity::estimator::CostEstimator;
use tidegate_capacity::profile::{Access, Direction, Pattern, Profile};

/// Time after a VM's last request for which others' I/Os are split on its account.
const SHARED_AFTER_REQUEST: Nanos = Nanos::from_millis(10);
/// Longest usual think time of a VM for which a place is reserved.
const EXPECTED_THINK_TIME_MAX: Nanos = Nanos::from_millis(1);
/// Maximum time that all parts of an I/O may take, as a fraction of the whole's time, where the
/// configuration gives their length.
const CONFIGURED_TIME_RATIO_MAX: (u128, u128) = (5, 4);
/// Maximum time that all parts may take where their length is chosen: at least 97 % of the whole's
/// rate.
const AUTO_TIME_RATIO_MAX: (u128, u128) = (100, 97);
/// Shortest part that is chosen, in bytes: below it, the CPU time of each I/O costs flash
/// throughput.
pub(crate) const AUTO_PART_MIN: u32 = 64 << 10;
/// Shortest part that is chosen on a device that takes [`SHORT_PART_TIME`] for it, in bytes.
const AUTO_PART_MIN_SLOW: u32 = 16 << 10;
/// Device time of a part from which on it may be shorter than [`AUTO_PART_MIN`]: there, an I/O's
/// CPU time of a few microseconds does not matter.
pub(crate) const SHORT_PART_TIME: Nanos = Nanos::from_micros(100);
/// Replies after which learnt costs are evaluated again.
const REPLIES_BETWEEN_EVALUATIONS: u32 = 1024;
/// Number of powers of two of an I/O's length.
const LENGTH_CLASSES: usize = u32::BITS as usize;
/// Slot of no VM.
const NO_VM: u32 = u32::MAX;

/// Largest I/O while several VMs use a device.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum MaxIoShared {
    /// No bound, and no place is reserved.
    Off,
    /// Shortest size that costs the device at most 3 % of its work: by its profile, by learnt
    /// costs, or on flash without a profile as the control of the depth measures it.
    #[default]
    Auto,
    /// Size in bytes, doubled while all parts would take more than a quarter longer than the whole.
    Bytes(u32),
}

impl MaxIoShared {
    /// Returns the longest part, in bytes, of I/Os of up to `max_io` bytes on a device with this
    /// profile; `None`: the longest I/Os go whole.
    pub fn longest_part(self, profile: &Profile, max_io: u32) -> Option<u32> {
        if matches!(self, MaxIoShared::Off | MaxIoShared::Bytes(0)) {
            return None;
        }
        let spec = DeviceSpec {
            // Depth, positioning and bandwidth decide nothing where a profile is known.
            depth: 1,
            physical_block: 4096,
            max_io,
            zeroes_are_writes: false,
            positioning: Nanos::ZERO,
            bytes_per_s: 0,
        };
        let longest = Splitting::new(self, 0, 0, &spec, Some(profile)).longest();
        Some(longest).filter(|&part| part < max_io)
    }
}

/// VM, and a time until or since which something holds for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Seen {
    vm: u32,
    at: Nanos,
}

/// State of the bounds for shared devices; see the [module](self).
pub(crate) struct Splitting {
    /// Configured length of parts.
    configured: MaxIoShared,
    /// Shortest part, the device's physical block and its longest I/O in bytes; and if seeks
    /// dominate, as far as is known without costs.
    least: u32,
    block: u32,
    max_io: u32,
    seeks: bool,
    /// Replies since learnt costs were evaluated.
    answers: u32,
    /// Length of parts in bytes, by direction and by the power of two that an I/O's length does not
    /// exceed; [`u32::MAX`]: no split.
    parts: [[u32; LENGTH_CLASSES]; 2],
    /// VM whose request came last, and the last other VM before it.
    last: [Seen; 2],
    /// Usual time from a VM's last reply to its next request, by VM slot; [`Nanos::MAX`]: not
    /// known.
    thinks: Vec<Nanos>,
    /// VM whose next request is expected, and until when.
    expected: Seen,
    /// Requests inside, over all VMs without background processes.
    inside: u32,
}

impl Splitting {
    /// Creates the state for a device. `inside`: requests inside by now of VMs that are not in the
    /// background.
    pub(crate) fn new(
        configured: MaxIoShared,
        vms: usize,
        inside: u32,
        spec: &DeviceSpec,
        profile: Option<&Profile>,
    ) -> Splitting {
        let none_seen = Seen {
            vm: NO_VM,
            at: Nanos::ZERO,
        };
        let least = match configured {
            MaxIoShared::Bytes(bytes) => bytes.min(spec.max_io),
            MaxIoShared::Auto | MaxIoShared::Off => AUTO_PART_MIN.max(spec.physical_block),
        };
        // The search for a length doubles this one, which 0 would keep up for ever.
        assert!(least > 0, "parts of no bytes");
        let mut splitting = Splitting {
            configured,
            least,
            block: spec.physical_block,
            max_io: spec.max_io,
            seeks: spec.positioning > Nanos::ZERO,
            answers: 0,
            parts: [[u32::MAX; LENGTH_CLASSES]; 2],
            last: [none_seen; 2],
            thinks: vec![Nanos::MAX; vms],
            expected: none_seen,
            inside,
        };
        splitting.set_profile(profile);
        splitting
    }

    /// Returns `true` if the length of parts is chosen by their cost.
    pub(crate) fn is_auto(&self) -> bool {
        self.configured == MaxIoShared::Auto
    }

    /// Sets whether seeks dominate, as learnt; this decides for I/Os of unknown cost.
    pub(crate) fn set_seeks(&mut self, seeks: bool) {
        self.seeks = seeks;
    }

    /// Returns the length of the longest part in bytes; [`u32::MAX`]: some I/Os go whole.
    pub(crate) fn longest(&self) -> u32 {
        let power = power_of(self.max_io);
        self.parts[0][power].max(self.parts[1][power])
    }

    /// Takes another profile of the device.
    pub(crate) fn set_profile(&mut self, profile: Option<&Profile>) {
        match profile {
            Some(profile) => {
                let time = |direction, bytes| {
                    Some(profile.time_ps(direction, Access::Random, bytes).into())
                };
                self.choose(time);
            }
            // Nothing is known of costs yet.
            None => self.choose(|_, _| None),
        }
    }

    /// Chooses the length of parts by learnt costs, once in [`REPLIES_BETWEEN_EVALUATIONS`]
    /// replies. Returns `true` if it did.
    pub(crate) fn choose_by_costs(&mut self, estimator: &CostEstimator) -> bool {
        // A configured length is only lengthened by the profile, not by learnt costs.
        if self.answers < REPLIES_BETWEEN_EVALUATIONS || !self.is_auto() {
            return false;
        }
        self.answers = 0;
        self.choose(|direction, bytes| {
            let cost = estimator.cost(&Pattern {
                reads: if direction == Direction::Read {
                    1.0
                } else {
                    0.0
                },
                sequential_reads: 0.0,
                sequential_writes: 0.0,
                size: f64::from(bytes),
            });
            cost.is_known().then_some(cost.time_ps as u128)
        });
        true
    }

    /// Chooses the length of parts. `time`: time of a random I/O by direction and size; `None`: not
    /// known.
    fn choose(&mut self, time: impl Fn(Direction, u32) -> Option<u128>) {
        let (least, auto, seeks) = (self.least, self.is_auto(), self.seeks);
        let (shortest, most) = if auto {
            (AUTO_PART_MIN_SLOW.max(self.block), AUTO_TIME_RATIO_MAX)
        } else {
            (least, CONFIGURED_TIME_RATIO_MAX)
        };
        for direction in [Direction::Read, Direction::Write] {
            for (power, part) in self.parts[direction as usize].iter_mut().enumerate() {
                let length = Lengths {
                    shortest,
                    usual: least,
                    whole: 1 << power,
                };
                let found = shortest_part(|bytes| time(direction, bytes), length, most);
                *part = match found {
                    Some(found) => found,
                    // A part more is a seek more, so nothing is split before costs are known.
                    None if auto && seeks => u32::MAX,
                    None => least,
                };
            }
        }
    }

    /// Resets a slot for a VM that was added.
    pub(crate) fn vm_added(&mut self, vm: u32) {
        let slot = vm as usize;
        if self.thinks.len() <= slot {
            self.thinks.resize(slot + 1, Nanos::MAX);
        }
        // The slot's former VM may have had another pace.
        self.thinks[slot] = Nanos::MAX;
        if self.expected.vm == vm {
            self.expected.vm = NO_VM;
        }
    }

    /// Records a VM's request; `thought`: time since its last reply, if none was inside.
    #[inline]
    pub(crate) fn arrived(&mut self, now: Nanos, vm: u32, thought: Option<Nanos>) {
        self.inside += 1;
        // Two different VMs are kept, so that one of them is another one than the VM in question.
        if self.last[0].vm != vm {
            self.last[1] = self.last[0];
            self.last[0].vm = vm;
        }
        self.last[0].at = now;
        if let Some(thought) = thought {
            let mean = &mut self.thinks[vm as usize];
            *mean = match *mean {
                // The first think time counts in full, later ones with a weight of 1/8.
                Nanos::MAX => thought,
                mean => Nanos(mean.0 - mean.0 / 8 + thought.0 / 8),
            };
        }
    }

    /// Records a reply to a VM that is not in the background.
    #[inline]
    pub(crate) fn answered(&mut self) {
        self.inside -= 1;
        self.answers = self.answers.saturating_add(1);
    }

    /// Returns the requests inside, over all VMs without background processes.
    #[inline]
    pub(crate) fn inside(&self) -> u32 {
        self.inside
    }

    /// Records that a VM was answered and has nothing inside any more.
    #[inline]
    pub(crate) fn went_quiet(&mut self, now: Nanos, vm: u32) {
        let thinks = self.thinks[vm as usize];
        if thinks <= EXPECTED_THINK_TIME_MAX {
            self.expected = Seen {
                vm,
                // Twice the mean, so that most of the requests that follow come in time.
                at: now + thinks + thinks,
            };
        }
    }

    /// Returns the VM whose next request is expected, and until when; `None`: none.
    #[inline]
    pub(crate) fn expected(&self, now: Nanos) -> Option<(u32, Nanos)> {
        let Seen { vm, at } = self.expected;
        (vm != NO_VM && now < at).then_some((vm, at))
    }

    /// Returns the bytes of a VM's I/O that may go at once; `beside`: other VMs have requests
    /// inside.
    #[inline]
    pub(crate) fn part_len(&self, now: Nanos, vm: u32, op: Op, len: u32, beside: bool) -> u32 {
        let came = |seen: &Seen| {
            seen.vm != vm && seen.vm != NO_VM && now.since(seen.at) <= SHARED_AFTER_REQUEST
        };
        if beside || self.last.iter().any(came) {
            self.parts[Direction::for_op(op) as usize][power_of(len)]
        } else {
            u32::MAX
        }
    }
}

/// Returns the power of two that a length does not exceed.
fn power_of(len: u32) -> usize {
    // Rounded up, because the cost of the longest I/O of the class is what counts.
    let power = u32::BITS - len.saturating_sub(1).leading_zeros();
    // Lengths above 2^31 share the last class.
    (power as usize).min(LENGTH_CLASSES - 1)
}

/// Lengths in bytes between which a part is chosen.
#[derive(Clone, Copy, Debug)]
struct Lengths {
    /// Shortest part.
    shortest: u32,
    /// Shortest part that may take less than [`SHORT_PART_TIME`].
    usual: u32,
    /// Length of the I/O.
    whole: u32,
}

/// Returns the shortest part, the shortest length times a power of two, all of which take at most
/// `most.0 / most.1` of the time of the whole I/O; [`u32::MAX`]: there is none, and it goes whole.
/// `None`: the times, in picoseconds, are not known. Shorter parts than usual are left out where
/// theirs is not known: I/Os of their size may never be seen.
fn shortest_part(
    time: impl Fn(u32) -> Option<u128>,
    length: Lengths,
    most: (u128, u128),
) -> Option<u32> {
    let Lengths {
        shortest: mut part,
        usual,
        whole,
    } = length;
    // As short as the shortest part: nothing to split.
    if part >= whole {
        return Some(u32::MAX);
    }
    let whole_time = time(whole)?;
    while part < whole {
        let each = match time(part) {
            Some(each) => each,
            None if part < usual => 0,
            None => return None,
        };
        let is_long = part >= usual || each >= u128::from(SHORT_PART_TIME.0) * 1000;
        if is_long && u128::from(whole.div_ceil(part)) * each * most.1 <= whole_time * most.0 {
            return Some(part);
        }
        // Saturates at a length that no I/O exceeds, which ends the loop.
        part = part.saturating_mul(2);
    }
    Some(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_capacity::profile::Curve;

    const KIB: u32 = 1 << 10;

    fn profile(time_us: impl Fn(u32) -> f64) -> Profile {
        let points: Vec<_> = [4, 16, 64, 128, 1024]
            .map(|kib| (kib * KIB, 1e6 / time_us(kib)))
            .to_vec();
        let curve = || Curve::new(&points).expect("in range");
        Profile::new([curve(), curve()], None, Vec::new(), Vec::new())
    }

    const SPEC: DeviceSpec = DeviceSpec {
        depth: 32,
        physical_block: 4096,
        max_io: 1 << 20,
        zeroes_are_writes: false,
        positioning: Nanos::ZERO,
        bytes_per_s: 0,
    };

    fn shared(configured: MaxIoShared, vms: usize, profile: Option<&Profile>) -> Splitting {
        Splitting::new(configured, vms, 0, &SPEC, profile)
    }

    #[test]
    fn parts_that_are_chosen_cost_at_most_a_thirtieth_and_go_whole_where_seeks_dominate() {
        // Time by bytes alone; with a little for each I/O; with more; with a seek; and by bytes
        // alone on devices that are so fast that the number of I/Os matters.
        let cases = [
            (0.0, 10.0, 16),
            (5.0, 10.0, 16),
            (19.0, 10.0, 64),
            (30.0, 10.0, 128),
            (8000.0, 10.0, 0),
            (0.0, 4.0, 32),
            (0.0, 1.0, 64),
        ];
        for (fixed, each, part) in cases {
            let profile = profile(|kib| fixed + each * f64::from(kib));
            let splitting = shared(MaxIoShared::Auto, 2, Some(&profile));
            let part = if part == 0 { u32::MAX } else { part * KIB };
            for op in [Op::Read, Op::Write] {
                let found = splitting.part_len(Nanos::ZERO, 0, op, 1024 * KIB, true);
                assert_eq!(found, part, "{fixed}");
                let short = splitting.part_len(Nanos::ZERO, 0, op, 64 * KIB, true);
                assert!(short >= part.min(32 * KIB), "{fixed}: {short}");
            }
            assert_eq!(splitting.longest(), part);
            let longest = MaxIoShared::Auto.longest_part(&profile, 1024 * KIB);
            assert_eq!(longest, (part != u32::MAX).then_some(part));
            assert_eq!(MaxIoShared::Off.longest_part(&profile, 1024 * KIB), None);
        }
        // Before anything is known of costs, what the device is decides.
        let flash = shared(MaxIoShared::Auto, 2, None);
        assert_eq!(flash.longest(), 64 * KIB);
        let seeks = DeviceSpec {
            positioning: Nanos::from_millis(12),
            ..SPEC
        };
        let seeks = Splitting::new(MaxIoShared::Auto, 2, 0, &seeks, None);
        assert_eq!(seeks.longest(), u32::MAX);
    }

    #[test]
    fn short_parts_of_unknown_cost_leave_the_usual_ones() {
        let length = Lengths {
            shortest: 16 * KIB,
            usual: 64 * KIB,
            whole: 256 * KIB,
        };
        // By bytes alone, known from some size on.
        for (known, part) in [(16, Some(16)), (32, Some(32)), (64, Some(64)), (128, None)] {
            let time = |bytes| (bytes >= known * KIB).then(|| u128::from(bytes) * 10_000);
            let found = shortest_part(time, length, AUTO_TIME_RATIO_MAX);
            assert_eq!(found, part.map(|kib: u32| kib * KIB), "from {known} KiB on");
        }
    }

    #[test]
    fn parts_are_as_long_as_they_must_be_to_cost_little() {
        // Time by bytes alone; with a little for each I/O; with much; and nothing but that.
        for (fixed, part) in [(0.0, 16), (10.0, 16), (50.0, 32), (5000.0, 0)] {
            let profile = profile(|kib| fixed + 10.0 * f64::from(kib));
            let splitting = shared(MaxIoShared::Bytes(16 * KIB), 2, Some(&profile));
            let part = if part == 0 { u32::MAX } else { part * KIB };
            let found = splitting.part_len(Nanos::ZERO, 0, Op::Read, 128 * KIB, true);
            assert_eq!(found, part, "{fixed}");
            assert_eq!(
                found,
                splitting.part_len(Nanos::ZERO, 0, Op::Write, 128 * KIB, true)
            );
        }
    }

    #[test]
    fn a_vm_is_beside_others_for_10_ms_after_their_last_request() {
        let mut splitting = shared(MaxIoShared::Bytes(16 * KIB), 2, None);
        let at = Nanos::from_millis;
        let part =
            |splitting: &Splitting, ms| splitting.part_len(at(ms), 0, Op::Read, 128 * KIB, false);
        splitting.arrived(at(0), 0, None);
        assert_eq!(part(&splitting, 1), u32::MAX);
        splitting.arrived(at(2), 1, None);
        // Its own requests do not make the other be forgotten.
        (3..10).for_each(|ms| splitting.arrived(at(ms), 0, None));
        assert_eq!(part(&splitting, 12), 16 * KIB);
        assert_eq!(part(&splitting, 13), u32::MAX);
    }

    #[test]
    fn only_vms_that_come_back_soon_are_expected() {
        let mut splitting = shared(MaxIoShared::Bytes(16 * KIB), 3, None);
        let now = Nanos::from_millis(5);
        splitting.went_quiet(now, 0);
        assert_eq!(splitting.expected(now), None, "never seen to come back");
        splitting.arrived(now, 0, Some(Nanos::from_micros(50)));
        splitting.went_quiet(now, 0);
        let until = now + Nanos::from_micros(100);
        assert_eq!(splitting.expected(now), Some((0, until)));
        assert_eq!(splitting.expected(until), None);
        splitting.arrived(now, 1, Some(Nanos::from_millis(2)));
        splitting.went_quiet(now, 1);
        assert_eq!(
            splitting.expected(now),
            Some((0, until)),
            "that takes too long"
        );
        // Another VM in its slot has another habit.
        splitting.vm_added(0);
        assert_eq!(splitting.expected(now), None);
    }
}
