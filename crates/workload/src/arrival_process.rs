//! Arrival processes of open-loop workloads.
//!
//! ```text
//!            on                   off                on
//!   |--x----x----x----x--|                   |--x----x----x-- ...
//! start             phase_end              start
//! ```
//!
//! Without bursts the first phase never ends. A phase starts without memory of the one before: even
//! spacing begins anew, and a Poisson process has no memory anyway.

use crate::error::{Findings, WorkloadError};
use crate::random_variate;
use crate::time::{TimeDistribution, nearest};
use rand_pcg::Pcg64Mcg;
use tidegate_core::time::Nanos;

/// Resolution of rates: units per request a second, so that a rate is a whole number of
/// thousandths.
const PER_S_UNIT: u64 = 1000;
/// One request in units of `PER_S_UNIT` x nanoseconds.
const REQUEST: u64 = PER_S_UNIT * 1_000_000_000;
/// Largest rate in requests per second.
const PER_S_MAX: f64 = 10e6;
/// Number of phases in a row without an arrival after which the process is taken to have ended.
/// Checked arrivals have an arrival in one of a thousand phases on average.
const SILENT_PHASES_MAX: u32 = 1 << 20;

/// Arrival process of an open-loop workload.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Arrivals {
    /// Requests per second while the process is on, 0.001 to 10 million, in steps of 0.001.
    pub per_s: f64,
    /// Spacing of arrivals.
    pub spacing: Spacing,
    /// On and off phases, beginning with on; `None`: always on.
    pub bursts: Option<Bursts>,
}

/// Spacing of arrivals within a phase.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Spacing {
    /// Even spacing; the first arrival is at the begin of the phase.
    Fixed,
    /// Poisson process: exponential gaps, also before the first arrival.
    Poisson,
}

/// Alternating phases with and without arrivals.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Bursts {
    /// Duration of an on phase; its mean must cover at least a thousandth of a request at the rate.
    pub on: TimeDistribution,
    /// Duration of an off phase.
    pub off: TimeDistribution,
}

impl Arrivals {
    /// Checks the ranges that the fields' documentation states.
    ///
    /// # Errors
    /// All mistakes, with the fields' names.
    pub fn check(&self) -> Result<(), Vec<WorkloadError>> {
        Findings::collect(|findings| self.check_into(findings))
    }

    pub(crate) fn check_into(&self, findings: &mut Findings) {
        let fine = (0.001..=PER_S_MAX).contains(&self.per_s);
        findings.expect(fine, "per_s", self.per_s, "0.001 to 10 million a second");
        let Some(bursts) = &self.bursts else { return };
        findings.within("bursts", |findings| {
            findings.within("on", |findings| {
                bursts.on.check_into(findings);
                let requests = bursts.on.mean_ns() * self.per_s / 1e9;
                // With a wrong rate the product says nothing about the phase, and would be a second
                // error for one mistake.
                findings.expect(
                    !fine || requests >= 0.001,
                    "",
                    format_args!("long enough for {requests} requests on average"),
                    "long enough for a thousandth of one",
                );
            });
            findings.within("off", |findings| bursts.off.check_into(findings));
        });
    }
}

/// Generator of the arrival times of an open-loop workload.
#[derive(Clone, Debug)]
pub struct ArrivalClock {
    gap: Gap,
    bursts: Option<Bursts>,
    /// Time of the last arrival; before a phase's first arrival, the begin of the phase.
    at: Nanos,
    /// True until the first arrival of the phase.
    fresh: bool,
    /// End of the phase (exclusive); `None`: its duration has not been drawn yet.
    phase_end: Option<Nanos>,
}

/// Distance between two arrivals.
#[derive(Clone, Debug)]
enum Gap {
    /// Even spacing: `whole` + `part` / `rate` nanoseconds; `carry` / `rate` of a nanosecond is
    /// carried over from earlier gaps, so that no rounding error accumulates.
    Even {
        whole: u64,
        part: u64,
        carry: u64,
        rate: u64,
    },
    Exponential {
        mean_ns: f64,
    },
}

impl ArrivalClock {
    /// Creates a process that begins at `start` with an on phase.
    ///
    /// The rate is rounded to thousandths. Values that [`Arrivals::check`] refuses are clamped to
    /// the nearest that it accepts.
    pub fn new(arrivals: &Arrivals, start: Nanos) -> ArrivalClock {
        // Out-of-range values come from callers that did not check; they must not divide by 0
        // below.
        let per_s = arrivals.per_s.clamp(0.001, PER_S_MAX);
        let rate = nearest(per_s * PER_S_UNIT as f64).0.max(1);
        ArrivalClock {
            gap: match arrivals.spacing {
                Spacing::Fixed => Gap::Even {
                    whole: REQUEST / rate,
                    part: REQUEST % rate,
                    carry: 0,
                    rate,
                },
                Spacing::Poisson => Gap::Exponential {
                    mean_ns: REQUEST as f64 / rate as f64,
                },
            },
            bursts: arrivals.bursts,
            at: start,
            fresh: true,
            // Without bursts the only phase has no end, and no off phase is ever drawn.
            phase_end: arrivals.bursts.is_none().then_some(Nanos::MAX),
        }
    }

    /// Returns the time of the next arrival: not earlier than the last one, and [`Nanos::MAX`] if
    /// there is none.
    ///
    /// Even spacing is exact: arrival n, counted from 0, of a phase that begins at t is at t + n /
    /// rate, rounded down to a nanosecond.
    #[inline]
    pub fn next(&mut self, rng: &mut Pcg64Mcg) -> Nanos {
        let next = self.step(rng);
        match self.phase_end {
            Some(end) if next < end => {
                self.at = next;
                next
            }
            _ => self.next_phase(next, rng),
        }
    }

    /// Returns the time of the next arrival as if the phase had no end.
    #[inline]
    fn step(&mut self, rng: &mut Pcg64Mcg) -> Nanos {
        let first = std::mem::take(&mut self.fresh);
        match &mut self.gap {
            Gap::Even { carry, .. } if first => {
                *carry = 0;
                self.at
            }
            Gap::Even {
                whole,
                part,
                carry,
                rate,
            } => {
                // `part` and `carry` are below `rate`, so at most one nanosecond is carried.
                *carry += *part;
                let over = *carry >= *rate;
                *carry -= if over { *rate } else { 0 };
                self.at + Nanos(*whole + u64::from(over))
            }
            Gap::Exponential { mean_ns } => {
                self.at + nearest(*mean_ns * random_variate::exponential(rng))
            }
        }
    }

    /// Returns the first arrival that lies within a phase, from the candidate `next` on.
    #[cold]
    fn next_phase(&mut self, mut next: Nanos, rng: &mut Pcg64Mcg) -> Nanos {
        // Without bursts the phase ends with the clock's 64 bits only.
        let Some(bursts) = self.bursts else {
            self.at = Nanos::MAX;
            return Nanos::MAX;
        };
        for _ in 0..SILENT_PHASES_MAX {
            let end = match self.phase_end {
                Some(end) => {
                    // The order of draws (off, gap, on) is part of what a seed determines.
                    self.at = end + bursts.off.draw(rng);
                    self.fresh = true;
                    next = self.step(rng);
                    self.at
                }
                None => self.at,
            } + bursts.on.draw(rng);
            self.phase_end = Some(end);
            if next < end {
                self.at = next;
                return next;
            }
            // The clock's end: later phases would lie beyond 64 bits.
            if end == Nanos::MAX {
                break;
            }
        }
        // For good: later calls return at once instead of searching again.
        (self.bursts, self.at) = (None, Nanos::MAX);
        Nanos::MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random_variate::tests::{chi_squared, seeded};
    use proptest::prelude::*;

    const START: Nanos = Nanos(12_345);
    const SECOND: Nanos = Nanos::SECOND;

    fn arrivals(per_s: f64, spacing: Spacing) -> Arrivals {
        Arrivals {
            per_s,
            spacing,
            bursts: None,
        }
    }

    fn bursts(on: TimeDistribution, off: TimeDistribution) -> Option<Bursts> {
        Some(Bursts { on, off })
    }

    fn times(arrivals: &Arrivals, seed: u64, n: usize) -> Vec<Nanos> {
        let (mut clock, mut rng) = (ArrivalClock::new(arrivals, START), seeded(seed));
        (0..n).map(|_| clock.next(&mut rng)).collect()
    }

    #[test]
    fn a_rate_that_divides_no_second_stays_exact_for_ever() {
        let times = times(&arrivals(3.0, Spacing::Fixed), 1, 3_000_001);
        let since_start = |n: usize| times[n].since(START).0;
        assert_eq!(since_start(0), 0);
        assert_eq!(since_start(1), 333_333_333);
        assert_eq!(since_start(2), 666_666_666);
        assert_eq!(since_start(3), 1_000_000_000);
        assert_eq!(since_start(3_000_000), 1_000_000 * SECOND.0);
    }

    #[test]
    fn rates_count_in_thousandths() {
        let times = times(&arrivals(0.001, Spacing::Fixed), 1, 2);
        assert_eq!(times[1].since(START), Nanos::from_secs(1000));
    }

    #[test]
    fn the_seed_does_not_matter_to_even_spacing() {
        let even = arrivals(777.0, Spacing::Fixed);
        assert_eq!(times(&even, 1, 100), times(&even, 2, 100));
    }

    #[test]
    fn poisson_gaps_are_exponential() {
        let times = times(&arrivals(1000.0, Spacing::Poisson), 5, 100_000);
        let mut counts = [0; 20];
        let mut before = START;
        for &at in &times {
            // Gaps fall into twenty cells that are equally likely.
            let p = libm::exp(-(at.since(before).0 as f64 / 1e6));
            counts[((p * 20.0) as usize).min(19)] += 1;
            before = at;
        }
        let off = chi_squared(&counts, &[0.05; 20]);
        assert!(off < 4.0, "{off}: {counts:?}");
    }

    #[test]
    fn poisson_counts_vary_as_much_as_their_mean() {
        let times = times(&arrivals(1000.0, Spacing::Poisson), 6, 100_000);
        let mut counts = vec![0.0_f64; 990];
        for at in &times {
            if let Some(count) = counts.get_mut((at.since(START).0 / 100_000_000) as usize) {
                *count += 1.0;
            }
        }
        let n = counts.len() as f64;
        let mean = counts.iter().sum::<f64>() / n;
        let variance = counts.iter().map(|c| (c - mean) * (c - mean)).sum::<f64>() / n;
        assert!((mean - 100.0).abs() < 1.2, "{mean}");
        assert!((variance / mean - 1.0).abs() < 0.15, "{variance} / {mean}");
    }

    #[test]
    fn even_spacing_begins_anew_with_each_burst() {
        let (on, off) = (Nanos::from_millis(25), Nanos::from_millis(100));
        let bursty = Arrivals {
            bursts: bursts(TimeDistribution::Fixed(on), TimeDistribution::Fixed(off)),
            ..arrivals(100.0, Spacing::Fixed)
        };
        let ms: Vec<u64> = times(&bursty, 1, 8)
            .iter()
            .map(|at| at.since(START).0 / 1_000_000)
            .collect();
        assert_eq!(ms, [0, 10, 20, 125, 135, 145, 250, 260]);
    }

    #[test]
    fn a_burst_ends_before_an_arrival_that_would_fall_on_its_end() {
        let phase = TimeDistribution::Fixed(Nanos::from_millis(20));
        let bursty = Arrivals {
            bursts: bursts(phase, phase),
            ..arrivals(100.0, Spacing::Fixed)
        };
        let third = times(&bursty, 1, 3)[2].since(START);
        assert_eq!(third, Nanos::from_millis(40));
    }

    #[test]
    fn bursts_keep_their_rate_while_they_last() {
        for spacing in [Spacing::Fixed, Spacing::Poisson] {
            let bursty = Arrivals {
                bursts: bursts(
                    TimeDistribution::Exponential { mean: SECOND },
                    TimeDistribution::Exponential {
                        mean: Nanos::from_secs(3),
                    },
                ),
                ..arrivals(1000.0, spacing)
            };
            let n = 1_000_000;
            let last = times(&bursty, 9, n)[n - 1].since(START).as_secs_f64();
            // A quarter of the time; about a thousand phases, so within a tenth of it.
            assert!((n as f64 / last - 250.0).abs() < 25.0, "{spacing:?}");
        }
    }

    #[test]
    fn a_poisson_burst_has_no_memory_of_the_one_before() {
        // Phases of half a mean gap: as many arrivals per second of sending as ever.
        let bursty = Arrivals {
            bursts: bursts(
                TimeDistribution::Fixed(Nanos::from_millis(5)),
                TimeDistribution::Fixed(Nanos::from_millis(5)),
            ),
            ..arrivals(100.0, Spacing::Poisson)
        };
        let times = times(&bursty, 10, 100_000);
        let last = times[99_999].since(START).as_secs_f64();
        assert!((100_000.0 / last - 50.0).abs() < 0.6, "{last}");
        assert!(
            times
                .iter()
                .all(|at| at.since(START).0 % 10_000_000 < 5_000_000)
        );
    }

    #[test]
    fn a_process_that_never_sends_says_so() {
        let never = Arrivals {
            bursts: bursts(
                TimeDistribution::Fixed(Nanos::ZERO),
                TimeDistribution::Fixed(Nanos::ZERO),
            ),
            ..arrivals(1.0, Spacing::Poisson)
        };
        assert_eq!(times(&never, 1, 2), [Nanos::MAX; 2]);
        let found = never.check().unwrap_err();
        assert_eq!(
            found[0].to_string(),
            "bursts.on is long enough for 0 requests on average; \
             allowed: long enough for a thousandth of one"
        );
    }

    #[test]
    fn rates_out_of_range_are_named() {
        for per_s in [0.0, -1.0, 0.0009, 10_000_001.0, f64::NAN, f64::INFINITY] {
            let found = arrivals(per_s, Spacing::Fixed).check().unwrap_err();
            assert_eq!(found[0].field, "per_s", "{per_s}");
        }
        assert_eq!(arrivals(10e6, Spacing::Poisson).check(), Ok(()));
    }

    fn any_time() -> impl Strategy<Value = TimeDistribution> {
        let nanos = (0_u64..2_000_000_000).prop_map(Nanos);
        prop_oneof![
            nanos.clone().prop_map(TimeDistribution::Fixed),
            (nanos.clone(), nanos.clone()).prop_map(|(a, b)| TimeDistribution::Uniform {
                from: a.min(b),
                to: a.max(b),
            }),
            nanos
                .clone()
                .prop_map(|mean| TimeDistribution::Exponential { mean }),
            (nanos.clone(), nanos.clone())
                .prop_map(|(mean, deviation)| TimeDistribution::Normal { mean, deviation }),
            (nanos, 0.0..4.0_f64)
                .prop_map(|(median, sigma)| TimeDistribution::LogNormal { median, sigma }),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

        #[test]
        fn arrivals_never_go_backwards(
            per_s in 0.001..1e7_f64,
            poisson in any::<bool>(),
            phases in prop::option::of((any_time(), any_time())),
            start in prop_oneof![any::<u64>(), Just(u64::MAX - 1000)],
            seed in any::<u64>(),
        ) {
            let spacing = if poisson { Spacing::Poisson } else { Spacing::Fixed };
            let arrivals = Arrivals {
                per_s,
                spacing,
                bursts: phases.map(|(on, off)| Bursts { on, off }),
            };
            prop_assume!(arrivals.check().is_ok());
            let (mut clock, mut rng) = (ArrivalClock::new(&arrivals, Nanos(start)), seeded(seed));
            let mut before = Nanos(start);
            for _ in 0..200 {
                let at = clock.next(&mut rng);
                prop_assert!(at >= before, "{at} after {before}");
                before = at;
            }
        }

        #[test]
        fn even_spacing_is_exact(thousandths in 1_u64..10_000_000_000, n in 1_usize..2000) {
            let even = arrivals(thousandths as f64 / 1000.0, Spacing::Fixed);
            let last = times(&even, 0, n)[n - 1].since(START).0;
            let exact = (n as u128 - 1) * u128::from(REQUEST) / u128::from(thousandths);
            prop_assert_eq!(u128::from(last), exact);
        }
    }
}
