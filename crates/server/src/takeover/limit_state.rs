//! Use of limits in the messages between two daemons.

use serde::{Deserialize, Serialize};
use tidegate_core::objective::{Burst, Limit, Objective, OpsRate, Rate};
use tidegate_core::roles::{Consumed, Spent};
use tidegate_core::time::Nanos;

use crate::command::{LimitName, LimitUse};

/// Use of the limit of a VM, a disk or a limit group.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct LimitState {
    limit: LimitOf,
    /// Use of the rates of all requests, reads and writes, each in requests and in bytes; `null`
    /// for a rate that is not limited.
    used: [[Option<RateState>; 2]; 3],
    /// Limit under which that was used up.
    #[serde(default)]
    under: Option<RatesState>,
}

/// Name of who has a limit.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum LimitOf {
    Vm(String),
    /// Disk, by its export.
    Disk(String),
    Group(String),
}

/// Use of a rate; times in nanoseconds, as [`Spent`] has them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct RateState {
    owed: u64,
    saved: Option<u64>,
    burst_owed: u64,
}

/// Rates of all requests, reads and writes, and those of a burst with its length in nanoseconds.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct RatesState {
    steady: [RateFigures; 3],
    burst: Option<([RateFigures; 3], u64)>,
}

/// Requests a second, normalisation size in bytes, and bytes a second; `null`: not part of the
/// rate.
type RateFigures = (Option<u64>, Option<u32>, Option<u64>);

impl From<Limit> for RatesState {
    fn from(limit: Limit) -> RatesState {
        let figures = |rate: Rate| {
            let norm = rate.ops.and_then(|ops| ops.norm);
            (rate.ops.map(|ops| ops.per_s), norm, rate.bytes_per_s)
        };
        RatesState {
            steady: [limit.total, limit.read, limit.write].map(figures),
            burst: (limit.burst).map(|burst| {
                let rates = [burst.total, burst.read, burst.write];
                (rates.map(figures), burst.length.0)
            }),
        }
    }
}

impl RatesState {
    /// Returns the limit; `None` if it is none that a configuration could have.
    fn limit(&self) -> Option<Limit> {
        let rate = |(per_s, norm, bytes_per_s): RateFigures| Rate {
            ops: per_s.map(|per_s| OpsRate { per_s, norm }),
            bytes_per_s,
        };
        let [total, read, write] = self.steady.map(rate);
        let burst = self.burst.map(|(rates, length)| {
            let [total, read, write] = rates.map(rate);
            Burst {
                total,
                read,
                write,
                length: Nanos(length),
            }
        });
        let limit = Limit {
            total,
            read,
            write,
            burst,
        };
        let objective = Objective {
            limit,
            ..Objective::default()
        };
        objective.validate().is_ok().then_some(limit)
    }
}

impl From<LimitUse> for LimitState {
    fn from(limit: LimitUse) -> LimitState {
        let state = |spent: Spent| RateState {
            owed: spent.owed.0,
            saved: spent.saved.map(|saved| saved.0),
            burst_owed: spent.burst_owed.0,
        };
        LimitState {
            limit: match limit.limit {
                LimitName::Vm(name) => LimitOf::Vm(name),
                LimitName::Disk(export) => LimitOf::Disk(export),
                LimitName::Group(name) => LimitOf::Group(name),
            },
            used: limit.consumed.0.map(|rates| rates.map(|it| it.map(state))),
            under: limit.under.map(RatesState::from),
        }
    }
}

impl From<LimitState> for LimitUse {
    fn from(state: LimitState) -> LimitUse {
        let spent = |state: RateState| Spent {
            owed: Nanos(state.owed),
            saved: state.saved.map(Nanos),
            burst_owed: Nanos(state.burst_owed),
        };
        let used = state.used.map(|rates| rates.map(|it| it.map(spent)));
        LimitUse {
            limit: match state.limit {
                LimitOf::Vm(name) => LimitName::Vm(name),
                LimitOf::Disk(export) => LimitName::Disk(export),
                LimitOf::Group(name) => LimitName::Group(name),
            },
            consumed: Consumed(used),
            under: state.under.and_then(|rates| rates.limit()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bursting() -> Limit {
        let counted = Rate {
            ops: Some(OpsRate {
                per_s: 700,
                norm: Some(4096),
            }),
            bytes_per_s: Some(5_000_000),
        };
        Limit {
            total: counted,
            read: Rate::iops(100),
            write: Rate::bytes(1_000_000),
            burst: Some(Burst {
                total: counted,
                read: Rate::iops(300),
                write: Rate::NONE,
                length: Nanos::SECOND,
            }),
        }
    }

    #[test]
    fn the_use_of_a_limit_goes_through_a_message_as_it_is() {
        let names = [
            LimitName::Vm("oltp".to_owned()),
            LimitName::Disk("oltp-log".to_owned()),
            LimitName::Group("logs".to_owned()),
        ];
        for limit in names {
            let mut consumed = Consumed::default();
            consumed.0[0][1] = Some(Spent {
                owed: Nanos(u64::MAX),
                saved: None,
                burst_owed: Nanos(3),
            });
            consumed.0[2][0] = Some(Spent {
                saved: Some(Nanos(7)),
                ..Spent::default()
            });
            let under = Some(bursting());
            let used = LimitUse {
                limit,
                consumed,
                under,
            };
            let sent = serde_json::to_string(&LimitState::from(used.clone())).expect("JSON");
            let received: LimitState = serde_json::from_str(&sent).expect("what was sent");
            assert_eq!(LimitUse::from(received), used, "{sent}");
        }
    }
    #[test]
    fn a_limit_that_no_configuration_has_is_not_known() {
        let sent = |change: &dyn Fn(&mut Limit)| {
            let mut limit = bursting();
            change(&mut limit);
            RatesState::from(limit).limit().is_some()
        };
        assert!(sent(&|_| {}));
        assert!(!sent(&|limit| limit.write = Rate::bytes(0)));
        assert!(!sent(&|limit| {
            let ops = limit.total.ops.as_mut();
            ops.expect("it has a rate").norm = Some(0);
        }));
        assert!(!sent(&|limit| {
            let burst = limit.burst.as_mut();
            burst.expect("it has one").length = Nanos::MAX;
        }));
    }

    #[test]
    fn the_use_of_a_limit_without_its_rates_is_understood() {
        let used = "[[null,null],[null,null],[null,null]]";
        let sent = format!(r#"{{"limit":{{"vm":"oltp"}},"used":{used}}}"#);
        let received: LimitState = serde_json::from_str(&sent).expect("it is whole");
        assert_eq!(LimitUse::from(received).under, None);
    }
}
