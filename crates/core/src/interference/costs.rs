//! Estimated device time of I/Os, as a table that is looked up in integers.
//!
//! From the saturation profile where there is one, else from costs learnt online, else from what
//! is assumed of the device's kind. The scale is corrected by what the device needs in fact
//! ([`Costs::pace`]), so the source matters for the proportions alone.

use tidegate_base::device::DeviceSpec;
use tidegate_base::time::Nanos;
use tidegate_capacity::estimator::CostEstimator;
use tidegate_capacity::profile::{Access, Direction, Pattern, Profile};

/// Binary logarithms of the smallest and of the largest size in the table.
const SMALLEST_LOG2: u32 = 9;
const LARGEST_LOG2: u32 = 23;
const SIZES: usize = (LARGEST_LOG2 - SMALLEST_LOG2 + 1) as usize;
/// Kinds of I/O: reads and writes, each random and sequential.
const KINDS: usize = 4;
/// Fixed-point one of the pace.
const PACE_ONE: u64 = 1 << 10;
/// I/Os in a span from which the pace is learnt. Shorter ones count until the first of these: where
/// the device works on several I/Os at a time, they are longer than what each takes of it.
const PACE_IOS: u32 = 4;
/// Spans from which the pace is learnt in large steps, the first ones.
const PACE_FIRST: u32 = 16;

/// Origin of the estimated device time of I/Os.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum CostSource {
    /// Assumed of a device of this kind.
    #[default]
    Assumed,
    /// Learnt from the device's I/Os.
    Learnt,
    /// Measured: the saturation profile.
    Profile,
}

/// Table of device times.
pub(super) struct Costs {
    /// Nanoseconds by kind and size.
    table: [[u64; SIZES]; KINDS],
    source: CostSource,
    /// Real time in which the busy device ends I/Os of one estimated nanosecond, as a fixed-point
    /// number; 0: not known yet. The median over spans of samples.
    pace: u64,
    /// Spans from which the pace was learnt, up to [`PACE_FIRST`].
    paced: u32,
    /// The pace is from spans of at least [`PACE_IOS`].
    is_firm: bool,
    /// End of the last span from which the pace was learnt.
    paced_until: Nanos,
}

fn kind(is_write: bool, sequential: bool) -> usize {
    usize::from(is_write) * 2 + usize::from(sequential)
}

impl Costs {
    /// Creates the costs that are assumed of a device.
    pub(super) fn assumed(spec: &DeviceSpec) -> Costs {
        let mut costs = Costs::constant(1);
        let estimator = CostEstimator::new(Nanos::ZERO, spec);
        costs.take_profile(&estimator.expected_profile(), CostSource::Assumed);
        costs
    }

    /// Creates costs that are the same for all I/Os.
    pub(super) fn constant(ns: u64) -> Costs {
        Costs {
            table: [[ns; SIZES]; KINDS],
            source: CostSource::Assumed,
            pace: 0,
            paced: 0,
            is_firm: false,
            paced_until: Nanos::ZERO,
        }
    }

    /// Takes the costs of the best source there is. Allocates nothing.
    pub(super) fn update(&mut self, profile: Option<&Profile>, estimator: Option<&CostEstimator>) {
        let learnt = estimator.filter(|estimator| estimator.windows() > 0);
        match (profile, learnt) {
            (Some(profile), _) => self.take_profile(profile, CostSource::Profile),
            (None, Some(estimator)) => {
                let time = |is_write: bool, sequential: bool, bytes: u32| {
                    let part = f64::from(u8::from(sequential));
                    estimator.time_ps(&Pattern {
                        reads: f64::from(u8::from(!is_write)),
                        sequential_reads: part,
                        sequential_writes: part,
                        size: f64::from(bytes),
                    }) as u64
                };
                self.fill(CostSource::Learnt, time);
            }
            (None, None) => {}
        }
    }

    fn take_profile(&mut self, profile: &Profile, source: CostSource) {
        self.fill(source, |is_write, sequential, bytes| {
            let direction = [Direction::Read, Direction::Write][usize::from(is_write)];
            let access = [Access::Random, Access::Sequential][usize::from(sequential)];
            profile.time_ps(direction, access, bytes)
        });
    }

    fn fill(&mut self, source: CostSource, time_ps: impl Fn(bool, bool, u32) -> u64) {
        if source != self.source {
            // Another scale: the pace is learnt anew.
            (self.source, self.pace, self.paced) = (source, 0, 0);
            self.is_firm = false;
        }
        for (is_write, sequential) in [(false, false), (false, true), (true, false), (true, true)] {
            let row = &mut self.table[kind(is_write, sequential)];
            for (ns, log2) in row.iter_mut().zip(SMALLEST_LOG2..) {
                *ns = (time_ps(is_write, sequential, 1 << log2) / 1000).clamp(1, 1 << 40);
            }
        }
    }

    /// Origin of the costs.
    pub(super) fn source(&self) -> CostSource {
        self.source
    }

    /// Estimated time of a read or write of `len` bytes.
    pub(super) fn of_data(&self, is_write: bool, sequential: bool, len: u32) -> u64 {
        let row = &self.table[kind(is_write, sequential)];
        let len = len.max(1 << SMALLEST_LOG2);
        let log2 = len.ilog2().min(LARGEST_LOG2 - 1);
        let at = (log2 - SMALLEST_LOG2) as usize;
        let (below, above) = (row[at], row[at + 1]);
        // Beyond the largest size on the line through the last two.
        let beyond = u128::from(len - (1 << log2));
        below + ((u128::from(above.saturating_sub(below)) * beyond) >> log2) as u64
    }

    /// Estimated time of an I/O that had the device for `ns`.
    pub(super) fn of_time(&self, ns: u64) -> u64 {
        match self.pace {
            0 => ns,
            pace => (u128::from(ns) * u128::from(PACE_ONE) / u128::from(pace)) as u64,
        }
    }

    /// Real time in which the busy device usually ends I/Os of this estimated time; `None`: not
    /// known yet.
    pub(super) fn real(&self, cost: u64) -> Option<u64> {
        let real = u128::from(cost) * u128::from(self.pace) / u128::from(PACE_ONE);
        (self.pace > 0).then_some(real as u64)
    }

    /// Learns from a span that began at `began` and lasted `busy` without the time in which the
    /// device was idle, and in which `ios` I/Os of the estimated time `cost` ended.
    pub(super) fn learn_pace(
        &mut self,
        now: Nanos,
        began: Nanos,
        (busy, cost, ios): (u64, u64, u32),
    ) {
        // Spans that overlap are one observation: a stall that many requests see must not become
        // the usual pace.
        let is_firm = ios >= PACE_IOS;
        if self.is_firm && !is_firm || cost == 0 || busy == 0 || began < self.paced_until {
            return;
        }
        if is_firm && !self.is_firm {
            (self.is_firm, self.pace, self.paced) = (true, 0, 0);
        }
        self.paced_until = now;
        let ratio = u128::from(busy) * u128::from(PACE_ONE) / u128::from(cost);
        let ratio = u64::try_from(ratio).unwrap_or(u64::MAX).clamp(1, 1 << 40);
        if self.pace == 0 {
            self.pace = ratio;
            return;
        }
        let step = if self.paced < PACE_FIRST { 4 } else { 32 };
        self.paced = (self.paced + 1).min(PACE_FIRST);
        let step = self.pace / step + 1;
        self.pace = if ratio > self.pace {
            ratio.min(self.pace + step)
        } else {
            ratio.max(self.pace.saturating_sub(step)).max(1)
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FLASH: DeviceSpec = DeviceSpec {
        depth: 32,
        physical_block: 4096,
        max_io: 1 << 20,
        zeroes_are_writes: false,
        positioning: Nanos::ZERO,
        bytes_per_s: 0,
    };

    #[test]
    fn costs_grow_with_the_size_and_with_seeks() {
        let flash = Costs::assumed(&FLASH);
        let sizes = [512, 4096, 6000, 65536, 1 << 20, 40 << 20];
        let costs = sizes.map(|len| flash.of_data(true, false, len));
        assert!(costs.is_sorted() && costs[0] > 0, "{costs:?}");
        let disk = Costs::assumed(&DeviceSpec {
            positioning: Nanos::from_millis(12),
            ..FLASH
        });
        let [random, sequential] = [false, true].map(|it| disk.of_data(false, it, 4096));
        assert!(random > 12_000_000 && sequential < 1_000_000);
    }

    #[test]
    fn the_pace_is_the_usual_one_and_one_stall_does_not_change_it_much() {
        let mut costs = Costs::constant(1000);
        assert_eq!(costs.real(1000), None);
        let mut now = Nanos::ZERO;
        let mut learn = |costs: &mut Costs, busy| {
            let began = now;
            now += Nanos(busy);
            costs.learn_pace(now, began, (busy, 10_000, 10));
        };
        for _ in 0..100 {
            learn(&mut costs, 30_000);
        }
        assert_eq!(costs.real(1000), Some(3000));
        learn(&mut costs, 3_000_000_000);
        let after = costs.real(1000).expect("known");
        assert!((3000..3200).contains(&after), "{after}");
        // A second view of the same stall.
        costs.learn_pace(now, Nanos::ZERO, (3_000_000_000, 10_000, 10));
        assert_eq!(costs.real(1000), Some(after));
    }
}
