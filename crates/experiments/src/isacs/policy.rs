//! Schedulers of the comparison.

use tidegate_core::time::Nanos;
use tidegate_vcpu::scenario::SchedulerSpec;
use tidegate_vcpu::schedulers::{credit2, io_turns, isacs};

/// Scheduler of the comparison, or ISACS with a change.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Policy {
    Credit2,
    Isacs,
    /// Variants of both with one run-queue for all pCPUs, as on a machine with one socket.
    Credit2Shared,
    IsacsShared,
    WithoutIoCredit,
    WithoutConcealing,
    WithoutBoost,
    WithoutIoBalance,
    KeepsDebt,
    /// ISACS with IVCredit in microseconds added to credit in nanoseconds.
    Faint,
    /// ISACS that looks again each time the rate limit is over.
    ShortSlices,
    /// ISACS with slices in CPU-BOOST as long as the lead in CVCredit.
    LongBoost,
    /// Variants of both that look again, at the end of the rate limit, for vCPUs that woke within
    /// it.
    Credit2LooksAgain,
    IsacsLooksAgain,
    /// Own scheduler in its first form, `credit2-io`: Credit2 with turns for I/O without gaps.
    IoTurns,
    IoTurnsShared,
    /// ISACS whose average gives a new interval a tenth and the history nine tenths.
    SlowAverage,
}

impl Policy {
    /// ISACS with one change each, to show the cause of a claim's outcome.
    pub(super) const ABLATED: [Policy; 9] = [
        Policy::WithoutIoCredit,
        Policy::WithoutConcealing,
        Policy::WithoutBoost,
        Policy::WithoutIoBalance,
        Policy::KeepsDebt,
        Policy::Faint,
        Policy::ShortSlices,
        Policy::LongBoost,
        Policy::SlowAverage,
    ];

    /// Beginning of a sentence about runs under this scheduler.
    pub(super) fn phrase(self) -> &'static str {
        match self {
            Policy::WithoutIoCredit => "Without IVCredit",
            Policy::WithoutConcealing => "Without concealing",
            Policy::WithoutBoost => "Without CPU-BOOST",
            Policy::WithoutIoBalance => "Without I/O balancing",
            Policy::KeepsDebt => "With debt kept",
            Policy::ShortSlices => "With slices of 1 ms",
            Policy::Faint => "With a thousandth of IVCredit",
            Policy::LongBoost => "With long slices in CPU-BOOST",
            Policy::Credit2Shared | Policy::IsacsShared | Policy::IoTurnsShared => {
                "With one run-queue"
            }
            Policy::Credit2LooksAgain | Policy::IsacsLooksAgain => {
                "With a look at the end of the rate limit"
            }
            Policy::SlowAverage => "With the weights of equation 1 changed round",
            Policy::IoTurns => "With credit2-io",
            Policy::Credit2 | Policy::Isacs => "As it is",
        }
    }

    /// Scheduler with its parameters.
    pub(super) fn spec(self) -> SchedulerSpec {
        let run_queues = match self {
            Policy::Credit2Shared | Policy::IsacsShared | Policy::IoTurnsShared => {
                credit2::RunQueues::All
            }
            _ => credit2::RunQueues::Core,
        };
        let usual = credit2::Params::default();
        let credit2 = credit2::Params {
            run_queues,
            max_slice: match self {
                // A slice ends at the rate limit, which is when the scheduler looks again.
                Policy::ShortSlices => usual.rate_limit,
                _ => usual.max_slice,
            },
            looks_again: matches!(
                self,
                Policy::Credit2LooksAgain
                    | Policy::IsacsLooksAgain
                    // Own schedulers look again, too: turns for I/O begin within a slice.
                    | Policy::IoTurns
                    | Policy::IoTurnsShared
            ),
            ..usual
        };
        match self {
            Policy::Credit2 | Policy::Credit2Shared | Policy::Credit2LooksAgain => {
                return credit2.spec();
            }
            Policy::IoTurns | Policy::IoTurnsShared => {
                // The form in which it was called credit2-io: turns without a gap.
                let params = io_turns::Params {
                    credit2,
                    io_turn: Nanos::from_micros(500),
                    gap: Nanos::ZERO,
                    io_rate_limit: Nanos::from_micros(500),
                    lead: Nanos::from_millis(1),
                    ends_early: false,
                };
                return params.spec();
            }
            _ => {}
        }
        let usual_isacs = isacs::Params::default();
        let params = isacs::Params {
            credit2,
            io_credit: self != Policy::WithoutIoCredit,
            concealing: self != Policy::WithoutConcealing,
            cpu_boost: self != Policy::WithoutBoost,
            io_balance: self != Policy::WithoutIoBalance,
            keeps_debt: self == Policy::KeepsDebt,
            new_sample: match self {
                // Weights are in thousandths.
                Policy::SlowAverage => 1_000 - usual_isacs.new_sample,
                _ => usual_isacs.new_sample,
            },
            long_boost: self == Policy::LongBoost,
            io_credit_divisor: if self == Policy::Faint { 1_000 } else { 1 },
            ..usual_isacs
        };
        params.spec()
    }
}
