//! Schedulers that the reproduction of ISACS compares, and changes of them, of the testbed and of
//! the guests, which show the cause of a claim's outcome.
//!
//! IVCredit, CVCredit, concealing and CPU-BOOST are the paper's terms, explained in
//! [`isacs`](tidegate_vcpu::schedulers::isacs). Lines are those of its algorithm 1.

use super::case::Case;
use tidegate_core::time::Nanos;
use tidegate_vcpu::scenario::SchedulerSpec;
use tidegate_vcpu::schedulers::{credit2, io_turns, isacs};

/// Scheduler of the comparison.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Scheduler {
    Credit2,
    Isacs,
    /// Own scheduler `io-turns`, with default parameters.
    IoTurns,
}

/// Change of what is compared: a reading that was replaced, a reading that is possible as well, or
/// ISACS with a part left out.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Change {
    Nothing,
    /// A run-queue for each pCPU.
    QueuePerCore,
    /// A run-queue for each pCPU, without algorithm 2.
    WithoutIoBalance,
    /// Rule of resets of Xen 4.12.3.
    Release4123,
    /// Twelve mixed VMs in table 4, as section 5.1 says; six are measured.
    TwelveVms,
    /// Packets every 5 to 6 ms, which ISACS counts as frequent I/O.
    FrequentPing,
    /// Events of a VM all on its first vCPU; the window and the costs of receiving of that model.
    FirstVcpu,
    /// A look at the end of the rate limit for vCPUs that woke within it.
    LooksAgain,
    /// CPU-BOOST begins when no vCPU has credit, and ends when one with credit begins to wait.
    Mended,
    /// Credit burnt in CPU-BOOST counts as consumed in equation 4.
    BoostCounts,
    /// Line 18 adds credit and clips it, as Credit2 does.
    AddsCredit,
    /// Line 18 sets credit less debt.
    KeepsDebt,
    /// The average gives a new interval a tenth and the history nine tenths.
    SlowAverage,
    WithoutIoCredit,
    WithoutConcealing,
    WithoutBoost,
    /// A thousandth of IVCredit: the paper's microseconds added to credit in nanoseconds.
    WeakIoCredit,
    /// Slices of ISACS end at the rate limit.
    ShortSlices,
    /// Slices in CPU-BOOST as long as the lead in CVCredit.
    LongBoost,
}

impl Change {
    /// All changes, which show the cause of a claim's outcome: of the testbed and the guests, of
    /// the reading, and parts left out.
    pub(super) const ALL: [Change; 18] = [
        Change::QueuePerCore,
        Change::WithoutIoBalance,
        Change::Release4123,
        Change::TwelveVms,
        Change::FrequentPing,
        Change::FirstVcpu,
        Change::LooksAgain,
        Change::Mended,
        Change::BoostCounts,
        Change::AddsCredit,
        Change::KeepsDebt,
        Change::SlowAverage,
        Change::WithoutIoCredit,
        Change::WithoutConcealing,
        Change::WithoutBoost,
        Change::WeakIoCredit,
        Change::ShortSlices,
        Change::LongBoost,
    ];

    /// Beginning of a sentence about runs with this change.
    pub(super) fn phrase(self) -> &'static str {
        match self {
            Change::Nothing => "As it is",
            Change::QueuePerCore => "With a run-queue per pCPU",
            Change::WithoutIoBalance => "With a run-queue per pCPU, without I/O balancing",
            Change::Release4123 => "With the resets of Xen 4.12.3",
            Change::TwelveVms => "With twelve mixed VMs in table 4",
            Change::FrequentPing => "With packets every 5 ms",
            Change::FirstVcpu => "With all events on the first vCPU",
            Change::LooksAgain => "With a look at the end of the rate limit",
            Change::Mended => "With line 4 of algorithm 1 mended",
            Change::BoostCounts => "With CPU-BOOST counted in equation 4",
            Change::AddsCredit => "With credit added and clipped",
            Change::KeepsDebt => "With debt kept",
            Change::SlowAverage => "With the weights of equation 1 changed round",
            Change::WithoutIoCredit => "Without IVCredit",
            Change::WithoutConcealing => "Without concealing",
            Change::WithoutBoost => "Without CPU-BOOST",
            Change::WeakIoCredit => "With a thousandth of IVCredit",
            Change::ShortSlices => "With slices of 1 ms",
            Change::LongBoost => "With long slices in CPU-BOOST",
        }
    }

    /// Returns whether the change makes a difference to `scheduler` in `case`.
    fn concerns(self, scheduler: Scheduler, case: Case) -> bool {
        match self {
            Change::Nothing => false,
            Change::QueuePerCore | Change::WithoutIoBalance | Change::Release4123 => true,
            Change::TwelveVms => case == Case::PingMixed,
            Change::FrequentPing => case.is_of_packets(),
            Change::FirstVcpu => !case.is_of_files(),
            // `io-turns` always looks again.
            Change::LooksAgain => scheduler != Scheduler::IoTurns,
            _ => scheduler == Scheduler::Isacs,
        }
    }

    /// Guests under this change.
    pub(super) fn guests(self) -> Guests {
        let usual = Guests {
            mixed: 6,
            // Ping's default period is 1 s. Beside streams it is a tenth of that, still far beyond
            // the intervals that ISACS counts: a simulated second of them takes long. Over all
            // rounds as many packets are counted as in the paper, which leaves out half of 1,000
            // and of 2,000.
            pings: [(Nanos::from_millis(100), 68), (Nanos::SECOND, 134)],
            first_vcpu: false,
        };
        match self {
            Change::TwelveVms => Guests { mixed: 12, ..usual },
            Change::FrequentPing => {
                let period = Nanos::from_millis(5);
                Guests {
                    pings: [(period, 1_000), (period, 2_000)],
                    ..usual
                }
            }
            Change::FirstVcpu => Guests {
                first_vcpu: true,
                ..usual
            },
            _ => usual,
        }
    }

    /// ISACS under this change.
    fn isacs(self, params: isacs::Params) -> isacs::Params {
        use isacs::{Algorithm1, Params};
        match self {
            Change::WithoutIoBalance => Params {
                io_balance: false,
                ..params
            },
            Change::Mended => Params {
                algorithm_1: Algorithm1::Mended,
                ..params
            },
            Change::BoostCounts => Params {
                counts_boost: true,
                ..params
            },
            Change::AddsCredit => Params {
                adds_credit: true,
                ..params
            },
            Change::KeepsDebt => Params {
                keeps_debt: true,
                ..params
            },
            Change::SlowAverage => Params {
                // Weights are in thousandths.
                new_sample: 1_000 - params.new_sample,
                ..params
            },
            Change::WithoutIoCredit => Params {
                io_credit: false,
                ..params
            },
            Change::WithoutConcealing => Params {
                concealing: false,
                ..params
            },
            Change::WithoutBoost => Params {
                cpu_boost: false,
                ..params
            },
            Change::WeakIoCredit => Params {
                io_credit_divisor: 1_000,
                ..params
            },
            Change::LongBoost => Params {
                long_boost: true,
                ..params
            },
            _ => params,
        }
    }
}

/// Guests as they are modelled under a change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Guests {
    /// Number of mixed VMs in table 4.
    pub(super) mixed: usize,
    /// Time between two packets, and their number: hybrid and mixed.
    pub(super) pings: [(Nanos, u64); 2],
    /// Events of a VM land on its first vCPU, and streams are those of that model.
    pub(super) first_vcpu: bool,
}

/// Scheduler with a change.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Policy {
    pub(super) scheduler: Scheduler,
    pub(super) change: Change,
}

impl Policy {
    pub(super) const CREDIT2: Policy = Policy::new(Scheduler::Credit2, Change::Nothing);
    pub(super) const ISACS: Policy = Policy::new(Scheduler::Isacs, Change::Nothing);
    pub(super) const IO_TURNS: Policy = Policy::new(Scheduler::IoTurns, Change::Nothing);

    pub(super) const fn new(scheduler: Scheduler, change: Change) -> Policy {
        Policy { scheduler, change }
    }

    /// Credit2 and ISACS, both with `change`.
    pub(super) const fn both(change: Change) -> [Policy; 2] {
        [
            Policy::new(Scheduler::Credit2, change),
            Policy::new(Scheduler::Isacs, change),
        ]
    }

    /// Policy whose run of `case` stands for this one's: without the change where it makes no
    /// difference.
    pub(super) fn in_case(self, case: Case) -> Policy {
        let Policy { scheduler, change } = self;
        match change {
            // Algorithm 2 is ISACS's alone.
            Change::WithoutIoBalance if scheduler != Scheduler::Isacs => {
                Policy::new(scheduler, Change::QueuePerCore)
            }
            _ if change.concerns(scheduler, case) => self,
            _ => Policy::new(scheduler, Change::Nothing),
        }
    }

    fn credit2(self) -> credit2::Params {
        let usual = credit2::Params::default();
        let change = self.change;
        credit2::Params {
            run_queues: match change {
                Change::QueuePerCore | Change::WithoutIoBalance => credit2::RunQueues::Core,
                // The machine has one socket, for which Xen has one run-queue.
                _ => credit2::RunQueues::Socket,
            },
            // The paper has "Xen 4.12" only. With 4.12.3's rule table 5's i1c11, a cell that may be
            // used for calibration, comes to more than twice the paper's.
            release: match change {
                Change::Release4123 => credit2::Release::V4_12_3,
                _ => credit2::Release::V4_12_0,
            },
            max_slice: match (change, self.scheduler) {
                // A slice ends at the rate limit, which is when the scheduler looks again.
                (Change::ShortSlices, Scheduler::Isacs) => usual.rate_limit,
                _ => usual.max_slice,
            },
            // Turns for I/O begin within a slice.
            looks_again: change == Change::LooksAgain || self.scheduler == Scheduler::IoTurns,
            ..usual
        }
    }

    /// Scheduler with its parameters.
    pub(super) fn spec(self) -> SchedulerSpec {
        let credit2 = self.credit2();
        match self.scheduler {
            Scheduler::Credit2 => credit2.spec(),
            Scheduler::IoTurns => {
                let usual = io_turns::Params::default();
                io_turns::Params { credit2, ..usual }.spec()
            }
            Scheduler::Isacs => {
                let params = isacs::Params {
                    credit2,
                    algorithm_1: isacs::Algorithm1::Printed,
                    counts_boost: false,
                    ..isacs::Params::default()
                };
                self.change.isacs(params).spec()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::case::Source;
    use super::*;

    #[test]
    fn a_change_that_makes_no_difference_is_not_run() {
        let file = Case::DdMixed(Source::Zero, 2);
        for change in [Change::Mended, Change::SlowAverage, Change::WithoutBoost] {
            let [credit2, isacs] = Policy::both(change);
            assert_eq!(credit2.in_case(file), Policy::CREDIT2);
            assert_eq!(isacs.in_case(file), isacs);
        }
        let [_, twelve] = Policy::both(Change::TwelveVms);
        assert_eq!(twelve.in_case(file), Policy::ISACS);
        assert_eq!(twelve.in_case(Case::PingMixed), twelve);
        let [credit2, _] = Policy::both(Change::WithoutIoBalance);
        let per_core = Policy::new(Scheduler::Credit2, Change::QueuePerCore);
        assert_eq!(credit2.in_case(file), per_core);
    }

    #[test]
    fn every_change_changes_the_scheduler_or_the_guests() {
        for change in Change::ALL {
            let [_, isacs] = Policy::both(change);
            let differs =
                isacs.spec() != Policy::ISACS.spec() || change.guests() != Change::Nothing.guests();
            assert!(differs, "{change:?}");
        }
    }
}
