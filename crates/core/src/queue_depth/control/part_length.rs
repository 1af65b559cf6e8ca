//! Length of the parts in which long I/Os are sent while several VMs use a device, by the work that
//! the device delivers with them.
//!
//! Shorter parts let another VM's request pass sooner, but each part costs the device a little. A
//! profile says how much. Without one, trials measure it, unless seeks dominate: once the search
//! for a depth has ended, twice or half the length is tried. A new request waits for the bytes in
//! flight, so longer parts are tried with fewer I/Os:
//!
//! - With three quarters of the bytes in flight, longer parts may deliver up to 3 % less. A device
//!   whose rate depends on bytes and on the number of I/Os (a cloud disk, 2026: 64 KiB at depth 18
//!   as fast as 128 KiB at depth 6) then gets a shorter queue.
//! - With as many bytes in flight, longer parts must deliver more than 3 % more.
//! - Shorter parts are kept if they deliver at most 1 % less. Below 64 KiB they are tried only
//!   where the device takes 100 us or more for one: there, as on a cloud volume of 100 MB/s, the
//!   CPU time of more I/Os does not matter, and another VM's small request waits a fraction as
//!   long. On a device that is no longer slow they have 64 KiB again.
//!
//! A latency objective keeps the length to begin with.

use super::search_phase::{PartTrial, Phase};
use super::{DepthControl, LONG, VAGUE};
use crate::queue_depth::rate::Rate;
use crate::splitting::{AUTO_PART_MIN, SHORT_PART_TIME};
use tidegate_base::time::Nanos;

/// Gain as a fraction of the work from which on longer parts with as many bytes in flight pay: the
/// work that splitting may cost.
const LONGER_GAIN: f64 = 0.03;
/// Fraction of the work that longer parts with fewer bytes in flight may cost: as much as a
/// comparison with a smaller depth may.
const FEWER_LOSS: f64 = 0.03;
/// Fraction of the work that shorter parts may cost; less than longer ones must gain, or the length
/// would go to and fro.
const SHORTER_LOSS: f64 = 0.01;
/// Unit of lengths, in bytes, and the shortest length.
const QUARTER_BYTES: u32 = AUTO_PART_MIN / QUARTERS_START;
/// Length to begin with, and the largest, in units of 16 KiB: 64 KiB and 1 MiB.
const QUARTERS_START: u32 = 4;
const QUARTERS_MAX: u32 = 64;

/// Length of parts, and what decides about trials of another one.
#[derive(Clone, Copy, Debug)]
pub(super) struct PartLength {
    /// Length in force, in units of [`QUARTER_BYTES`]; a power of two.
    quarters: u32,
    /// Physical block of the device in bytes, which is never split.
    block: u32,
    /// An I/O was split since the last trial, so that longer parts would make a difference.
    splits: bool,
    /// Bytes of the longest I/O that parts may bound since the last trial began, as it would go
    /// whole; 0: no VM shared the device.
    longest: u32,
    /// The length was reset since the last trial began, which then says nothing.
    is_trial_void: bool,
    /// Last trial, and the last one of longer parts.
    last: PartTrial,
    last_longer: PartTrial,
}

impl PartLength {
    /// Returns the state of a device with physical blocks of `block` bytes.
    pub(super) fn new(block: u32) -> PartLength {
        PartLength {
            quarters: QUARTERS_START,
            block,
            splits: false,
            longest: 0,
            is_trial_void: true,
            last: PartTrial::Shorter,
            last_longer: PartTrial::Longer,
        }
    }

    /// Returns the next trial that is possible with this many I/Os in flight, and the number with
    /// it; `None`: none is. `per_ns`: bytes that the device moves in a nanosecond.
    fn next_trial(&self, depth: u32, per_ns: f64) -> Option<(PartTrial, u32)> {
        let fewer = depth * 3 / 8;
        // Below the length to begin with a shorter queue is found with the length as it is.
        let may_be_fewer = self.quarters >= QUARTERS_START && fewer > 0;
        let longer = if self.last_longer == PartTrial::Longer && may_be_fewer {
            (PartTrial::LongerAndFewer, fewer)
        } else {
            (PartTrial::Longer, depth.div_ceil(2))
        };
        let may_grow = self.splits && self.quarters < QUARTERS_MAX && depth > 1;
        let may_shrink = self.quarters > QUARTERS_START || self.may_shrink_below_start(per_ns);
        // Shorter parts every other time, because they are what is wanted.
        if may_shrink && (self.last != PartTrial::Shorter || !may_grow) {
            return Some((PartTrial::Shorter, depth * 2));
        }
        may_grow.then_some(longer)
    }

    /// True if parts shorter than those to begin with would make a difference, on a device so slow
    /// that their number does not matter.
    fn may_shrink_below_start(&self, per_ns: f64) -> bool {
        let half = QUARTER_BYTES * self.quarters / 2;
        let is_slow = f64::from(half) >= per_ns * SHORT_PART_TIME.0 as f64;
        self.quarters > 1 && half >= self.block && self.longest > half && is_slow
    }

    /// True if parts are shorter than those to begin with on a device that takes less than half of
    /// the time for one that allows it.
    fn are_too_short(&self, per_ns: f64) -> bool {
        let part = f64::from(QUARTER_BYTES * self.quarters);
        self.quarters < QUARTERS_START && part < per_ns * SHORT_PART_TIME.0 as f64 / 2.0
    }
}

impl DepthControl {
    /// Returns `true` if the length of parts is chosen by measured work: no profile knows it, and
    /// no latency objective demands the shortest.
    pub(crate) fn measures_parts(&self) -> bool {
        !self.seeks && self.work.saturated.is_none() && self.budget.is_none()
    }

    /// Returns the length of parts in units of [`QUARTER_BYTES`], from 1 to [`QUARTERS_MAX`].
    fn part_quarters(&self) -> u32 {
        let quarters = self.parts.quarters;
        match self.phase {
            // A trial goes on until its end, though the length was reset since it began.
            Phase::Parts { .. } if self.parts.is_trial_void => quarters,
            Phase::Parts {
                trial: PartTrial::Shorter,
                ..
            } => (quarters / 2).max(1),
            Phase::Parts { .. } => quarters * 2,
            _ => quarters,
        }
    }

    /// Returns the length of parts in bytes where `start` is the one to begin with;
    /// [`u32::MAX`]: I/Os go whole.
    #[inline]
    pub(crate) fn part_len(&self, start: u32) -> u32 {
        match self.part_quarters() {
            QUARTERS_START => start,
            _ if start == u32::MAX => u32::MAX,
            quarters => start.saturating_mul(quarters) / QUARTERS_START,
        }
    }

    /// Notes that `len` bytes of an I/O go where parts may bound it, `whole` if they did not.
    #[inline]
    pub(crate) fn was_bounded(&mut self, whole: u32, len: u32) {
        self.parts.splits |= len < whole;
        self.parts.longest = self.parts.longest.max(whole);
    }

    /// Returns to the length to begin with.
    pub(super) fn reset_parts(&mut self) {
        if !self.measures_parts() {
            self.parts = PartLength::new(self.parts.block);
        }
    }

    /// Begins a trial of another length of parts where one is due. Returns whether it does.
    pub(super) fn try_parts(&mut self, now: Nanos, reference: Rate) -> bool {
        if !core::mem::take(&mut self.parts_due) || !self.measures_parts() {
            return false;
        }
        if self.parts.are_too_short(reference.per_ns) {
            let in_flight = self.depth * self.parts.quarters / QUARTERS_START;
            self.depth = in_flight.max(self.least);
            self.parts.quarters = QUARTERS_START;
            self.begin(now);
            return true;
        }
        let trial = self.parts.next_trial(self.depth, reference.per_ns);
        (self.parts.splits, self.parts.longest) = (false, 0);
        self.parts.is_trial_void = false;
        let Some((trial, candidate)) = trial else {
            return false;
        };
        self.parts.last = trial;
        if trial != PartTrial::Shorter {
            self.parts.last_longer = trial;
        }
        let phase = Phase::Parts {
            trial,
            candidate: candidate.min(self.most()),
            reference,
        };
        self.change(now, phase);
        true
    }

    /// Evaluates the measurement of another length of parts.
    pub(super) fn tried_parts(
        &mut self,
        now: Nanos,
        rate: Rate,
        trial: PartTrial,
        reference: Rate,
    ) {
        // A profile, seeks or a latency objective came during the trial; or nothing was as long as
        // the shorter of both lengths, so that they did not differ.
        let shorter = QUARTER_BYTES * self.part_quarters().min(self.parts.quarters);
        if self.parts.is_trial_void || self.parts.longest <= shorter {
            return self.descend_after_parts(now, reference);
        }
        // Fewer bytes in flight have the benefit of the doubt, as a smaller depth has; and so have
        // the short parts of a slow device.
        let is_short = self.parts.quarters <= QUARTERS_START;
        let (pays, lean) = match trial {
            PartTrial::LongerAndFewer => (-FEWER_LOSS, -self.doubt()),
            PartTrial::Longer => (LONGER_GAIN, 0.0),
            PartTrial::Shorter if is_short => (-SHORTER_LOSS, -self.doubt()),
            PartTrial::Shorter => (-SHORTER_LOSS, 0.0),
        };
        let (gain, error) = self.noise.gain_over(&rate, &reference);
        // Trials repeat, so that one of a few I/Os would find a gain by chance sooner or later.
        if gain > pays && rate.error > VAGUE && self.meter.elapsed(now) < LONG {
            return;
        }
        match self.compare(now, gain - pays, error, lean) {
            None => {}
            Some(false) => self.descend_after_parts(now, reference),
            Some(true) => {
                self.parts.quarters = self.part_quarters();
                self.depth = self.limit();
                self.note(rate);
                self.descend_after_parts(now, rate);
            }
        }
    }

    /// Tries smaller depths with the length of parts in force.
    fn descend_after_parts(&mut self, now: Nanos, reference: Rate) {
        // I/Os of shorter parts on trial tell nothing about longer ones.
        self.parts.splits = false;
        self.too_small = 0;
        self.descend(now, reference);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue_depth::control::tests::spec;
    use crate::queue_depth::control::{Budget, End};
    use tidegate_base::device::DeviceSpec;
    use tidegate_base::random::SplitMix64;
    use tidegate_base::request::Op;

    /// Device that takes a fixed time for each I/O and the rest by its bytes, and needs 256 KiB in
    /// flight for its full rate; with a load of requests of 256 KiB that are split.
    struct SimulatedDevice {
        /// Time of an I/O beside that for its bytes, in parts of the time for 64 KiB.
        fixed: f64,
        /// Nanoseconds for 64 KiB.
        start_ns: f64,
        /// True if another VM shares the device, so that I/Os go in parts.
        shares: bool,
        random: SplitMix64,
        now: Nanos,
    }

    const REQUEST: u32 = 256 << 10;

    impl SimulatedDevice {
        /// Runs the load, and returns the mean over time of the multiple and of the bytes in
        /// flight, and the least multiple.
        fn run(&mut self, control: &mut DepthControl, ms: u64) -> (f64, f64, u32) {
            let until = self.now + Nanos::from_millis(ms);
            let (mut multiple_ns, mut bytes_ns, mut least) = (0.0, 0.0, u32::MAX);
            while self.now < until {
                let part = control.part_len(AUTO_PART_MIN);
                let bytes = if self.shares { part } else { REQUEST }.min(REQUEST);
                let in_flight = control.limit();
                let full = f64::from((in_flight * bytes).min(REQUEST)) / f64::from(REQUEST);
                let mean_ns = self.start_ns
                    * (self.fixed + f64::from(bytes) / f64::from(AUTO_PART_MIN))
                    / full;
                let spread = self.random.below(2001) as f64 / 1000.0;
                self.now += Nanos((mean_ns * spread) as u64);
                let quarters = control.part_quarters();
                let multiple = f64::from(quarters) / f64::from(QUARTERS_START);
                multiple_ns += mean_ns * spread * multiple;
                bytes_ns += mean_ns * spread * f64::from(in_flight * bytes);
                least = least.min(quarters);
                control.dispatch_stopped(true);
                if self.shares {
                    control.was_bounded(REQUEST, bytes);
                }
                let end = End {
                    op: Op::Read,
                    bytes,
                    in_flight,
                };
                control.ended(self.now, None, &end);
            }
            let ns = ms as f64 * 1e6;
            (multiple_ns / ns, bytes_ns / ns, least)
        }
    }

    fn device(fixed: f64, seed: u64) -> (SimulatedDevice, DepthControl) {
        let device = SimulatedDevice {
            fixed,
            start_ns: 50_000.0,
            shares: true,
            random: SplitMix64::new(seed),
            now: Nanos::ZERO,
        };
        (device, DepthControl::new(&spec(32), None, Nanos::ZERO))
    }

    #[test]
    fn parts_become_as_long_as_their_number_costs_work() {
        // Twice the length gains nothing, so that only the bytes in flight count; 12 % and then
        // 6 %; nearly a half, a third and nothing.
        for (fixed, least, most) in [(0.0, 1.0, 2.5), (0.25, 1.7, 4.1), (1.0, 3.6, 4.1)] {
            for seed in 0..6 {
                let (mut device, mut control) = device(fixed, seed);
                device.run(&mut control, 20_000);
                let (mean, bytes, _) = device.run(&mut control, 60_000);
                assert!(
                    (least..=most).contains(&mean),
                    "{fixed}, seed {seed}: {mean:.2}"
                );
                let bytes = bytes / f64::from(REQUEST);
                assert!(bytes <= 1.8, "{fixed}, seed {seed}: {bytes:.2} of enough");
            }
        }
    }

    #[test]
    fn parts_become_short_again_where_that_costs_nothing() {
        for seed in 0..6 {
            let (mut device, mut control) = device(1.0, seed);
            device.run(&mut control, 20_000);
            assert_eq!(control.parts.quarters, 4 * QUARTERS_START);
            device.fixed = 0.0;
            let (_, _, least) = device.run(&mut control, 60_000);
            assert!(least <= 2 * QUARTERS_START, "seed {seed}: {least}");
            assert!(control.parts.quarters <= 4 * QUARTERS_START, "seed {seed}");
        }
    }

    #[test]
    fn parts_become_shorter_yet_on_a_slow_device_where_that_costs_nothing() {
        // 100 MiB/s by bytes alone, and with 6 % more for each I/O of 64 KiB; ten times as fast.
        let cases = [
            (0.0, 6.4e5, 0.2..0.8),
            (0.06, 6.4e5, 0.7..2.5),
            (0.0, 6.4e4, 1.0..2.5),
        ];
        for (fixed, start_ns, range) in cases {
            for seed in 0..6 {
                let (mut device, mut control) = device(fixed, seed);
                device.start_ns = start_ns;
                device.run(&mut control, 60_000);
                let (mean, _, _) = device.run(&mut control, 60_000);
                assert!(range.contains(&mean), "{fixed}, seed {seed}: {mean:.2}");
            }
        }
    }

    #[test]
    fn parts_stay_while_nothing_is_split_and_grow_again_once_the_device_is_fast() {
        for seed in 0..6 {
            let (mut device, mut control) = device(0.0, seed);
            (device.start_ns, device.shares) = (6.4e5, false);
            device.run(&mut control, 60_000);
            assert_eq!(control.parts.quarters, QUARTERS_START, "seed {seed}");
            device.shares = true;
            let (_, _, least) = device.run(&mut control, 120_000);
            assert!(least < QUARTERS_START, "seed {seed}");
            device.start_ns = 5e4;
            device.run(&mut control, 30_000);
            let (_, _, least) = device.run(&mut control, 30_000);
            assert!(least >= QUARTERS_START, "seed {seed}: {least}");
        }
    }

    #[test]
    fn physical_blocks_bound_the_length() {
        for (block, least) in [(4096, 1), (32 << 10, 2), (64 << 10, 4)] {
            let (mut device, _) = device(0.0, 1);
            device.start_ns = 6.4e5;
            let spec = DeviceSpec {
                physical_block: block,
                ..spec(32)
            };
            let mut control = DepthControl::new(&spec, None, Nanos::ZERO);
            let (_, _, found) = device.run(&mut control, 120_000);
            assert_eq!(found, least, "blocks of {block} bytes");
        }
    }

    #[test]
    fn a_latency_objective_keeps_the_length_to_begin_with() {
        let (mut device, mut control) = device(1.0, 1);
        device.run(&mut control, 20_000);
        let budget = Budget {
            time: Nanos::from_millis(1),
            vm: None,
            part: AUTO_PART_MIN,
        };
        control.set_budget(Some(budget), None);
        assert_eq!(control.part_quarters(), QUARTERS_START);
        device.run(&mut control, 20_000);
        assert_eq!(control.part_quarters(), QUARTERS_START);
    }

    #[test]
    fn a_latency_objective_that_comes_during_a_trial_ends_it() {
        let budget = Budget {
            time: Nanos::from_millis(1),
            vm: None,
            part: AUTO_PART_MIN,
        };
        for trial in [PartTrial::Shorter, PartTrial::Longer] {
            for stays in [true, false] {
                let (mut device, mut control) = device(1.0, 1);
                let begun = |phase| matches!(phase, Phase::Parts { trial: t, .. } if t == trial);
                while !begun(control.phase) {
                    device.run(&mut control, 1);
                }
                control.set_budget(Some(budget), None);
                assert_eq!(control.part_quarters(), QUARTERS_START, "{trial:?}");
                if !stays {
                    control.set_budget(None, None);
                    assert!(control.part_quarters() >= QUARTERS_START, "{trial:?}");
                }
                device.run(&mut control, 1000);
                assert!(control.parts.quarters >= QUARTERS_START, "{trial:?}");
                assert!(
                    !stays || control.part_quarters() == QUARTERS_START,
                    "{trial:?}"
                );
            }
        }
    }
}
