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
//! - Shorter parts are kept if they deliver at most 1 % less.
//!
//! A latency objective keeps the shortest parts.

use super::search_phase::{PartTrial, Phase};
use super::{DepthControl, LONG, VAGUE};
use crate::queue_depth::rate::Rate;
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
/// Largest multiple of the shortest length: 64 KiB to 1 MiB.
const MULTIPLE_MAX: u32 = 16;

/// Length of parts, as a multiple of the shortest, and what decides about trials of another one.
#[derive(Clone, Copy, Debug)]
pub(super) struct PartLength {
    /// Length in force; a power of two.
    multiple: u32,
    /// An I/O was split since the last trial, so that longer parts would make a difference.
    splits: bool,
    /// Last trial, and the last one of longer parts.
    last: PartTrial,
    last_longer: PartTrial,
}

impl Default for PartLength {
    fn default() -> PartLength {
        PartLength {
            multiple: 1,
            splits: false,
            last: PartTrial::Shorter,
            last_longer: PartTrial::Longer,
        }
    }
}

impl PartLength {
    /// Returns the next trial that is possible with this many I/Os in flight, and the number with
    /// it; `None`: none is.
    fn next_trial(&self, depth: u32) -> Option<(PartTrial, u32)> {
        let fewer = depth * 3 / 8;
        let longer = if self.last_longer == PartTrial::Longer && fewer > 0 {
            (PartTrial::LongerAndFewer, fewer)
        } else {
            (PartTrial::Longer, depth.div_ceil(2))
        };
        let may_grow = self.splits && self.multiple < MULTIPLE_MAX && depth > 1;
        let may_shrink = self.multiple > 1;
        // Shorter parts every other time, because they are what is wanted.
        if may_shrink && (self.last != PartTrial::Shorter || !may_grow) {
            return Some((PartTrial::Shorter, depth * 2));
        }
        may_grow.then_some(longer)
    }
}

impl DepthControl {
    /// Returns `true` if the length of parts is chosen by measured work: no profile knows it, and
    /// no latency objective demands the shortest.
    pub(crate) fn measures_parts(&self) -> bool {
        !self.seeks && self.work.saturated.is_none() && self.budget.is_none()
    }

    /// Returns the length of parts as a multiple of the shortest, from 1 to [`MULTIPLE_MAX`].
    #[inline]
    pub(crate) fn part_multiple(&self) -> u32 {
        let multiple = self.parts.multiple;
        match self.phase {
            // A trial goes on until its end, though the length was reset since it began.
            Phase::Parts { .. } if !self.measures_parts() => 1,
            Phase::Parts {
                trial: PartTrial::Shorter,
                ..
            } => (multiple / 2).max(1),
            Phase::Parts { .. } => multiple * 2,
            _ => multiple,
        }
    }

    /// Notes that only a part of an I/O is sent because several VMs use the device.
    #[inline]
    pub(crate) fn was_split(&mut self) {
        self.parts.splits = true;
    }

    /// Returns to the shortest parts.
    pub(super) fn reset_parts(&mut self) {
        if !self.measures_parts() {
            self.parts = PartLength::default();
        }
    }

    /// Begins a trial of another length of parts where one is due. Returns whether it does.
    pub(super) fn try_parts(&mut self, now: Nanos, reference: Rate) -> bool {
        if !core::mem::take(&mut self.parts_due) || !self.measures_parts() {
            return false;
        }
        let trial = self.parts.next_trial(self.depth);
        self.parts.splits = false;
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
        // A profile, seeks or a latency objective came during the trial.
        if !self.measures_parts() {
            return self.descend_after_parts(now, reference);
        }
        // Fewer bytes in flight have the benefit of the doubt, as a smaller depth has.
        let (pays, lean) = match trial {
            PartTrial::LongerAndFewer => (-FEWER_LOSS, -self.doubt()),
            PartTrial::Longer => (LONGER_GAIN, 0.0),
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
                self.parts.multiple = self.part_multiple();
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
    use tidegate_base::random::SplitMix64;
    use tidegate_base::request::Op;

    /// Device that takes a fixed time for each I/O and the rest by its bytes, and needs 256 KiB in
    /// flight for its full rate; with a load of requests of 256 KiB that are split.
    struct SimulatedDevice {
        /// Time of an I/O beside that for its bytes, in parts of the time for 64 KiB.
        fixed: f64,
        random: SplitMix64,
        now: Nanos,
    }

    const SHORTEST: u32 = 64 << 10;
    const REQUEST: u32 = 256 << 10;

    impl SimulatedDevice {
        /// Runs the load, and returns the mean over time of the multiple and of the bytes in
        /// flight, and the least multiple.
        fn run(&mut self, control: &mut DepthControl, ms: u64) -> (f64, f64, u32) {
            let until = self.now + Nanos::from_millis(ms);
            let (mut multiple_ns, mut bytes_ns, mut least) = (0.0, 0.0, u32::MAX);
            while self.now < until {
                let bytes = (SHORTEST * control.part_multiple()).min(REQUEST);
                let in_flight = control.limit();
                let full = f64::from((in_flight * bytes).min(REQUEST)) / f64::from(REQUEST);
                let mean_ns = 50_000.0 * (self.fixed + f64::from(bytes / SHORTEST)) / full;
                let spread = self.random.below(2001) as f64 / 1000.0;
                self.now += Nanos((mean_ns * spread) as u64);
                let multiple = control.part_multiple();
                multiple_ns += mean_ns * spread * f64::from(multiple);
                bytes_ns += mean_ns * spread * f64::from(in_flight * bytes);
                least = least.min(multiple);
                control.dispatch_stopped(true);
                if bytes < REQUEST {
                    control.was_split();
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
            assert_eq!(control.parts.multiple, 4);
            device.fixed = 0.0;
            let (_, _, least) = device.run(&mut control, 60_000);
            assert!(least <= 2, "seed {seed}: {least}");
            assert!(control.parts.multiple <= 4, "seed {seed}");
        }
    }

    #[test]
    fn a_latency_objective_keeps_the_shortest_parts() {
        let (mut device, mut control) = device(1.0, 1);
        device.run(&mut control, 20_000);
        let budget = Budget {
            time: Nanos::from_millis(1),
            vm: None,
            part: SHORTEST,
        };
        control.set_budget(Some(budget), None);
        assert_eq!(control.part_multiple(), 1);
        device.run(&mut control, 20_000);
        assert_eq!(control.part_multiple(), 1);
    }

    #[test]
    fn a_latency_objective_that_comes_during_a_trial_ends_it() {
        let budget = Budget {
            time: Nanos::from_millis(1),
            vm: None,
            part: SHORTEST,
        };
        for trial in [PartTrial::Shorter, PartTrial::Longer] {
            for stays in [true, false] {
                let (mut device, mut control) = device(1.0, 1);
                let begun = |phase| matches!(phase, Phase::Parts { trial: t, .. } if t == trial);
                while !begun(control.phase) {
                    device.run(&mut control, 1);
                }
                control.set_budget(Some(budget), None);
                assert_eq!(control.part_multiple(), 1, "{trial:?}");
                if !stays {
                    control.set_budget(None, None);
                    assert!(control.part_multiple() >= 1, "{trial:?}");
                }
                device.run(&mut control, 1000);
                assert!(control.parts.multiple >= 1, "{trial:?}");
                assert!(!stays || control.part_multiple() == 1, "{trial:?}");
            }
        }
    }
}
