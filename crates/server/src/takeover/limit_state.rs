//! Use of limits in the messages between two daemons.

use serde::{Deserialize, Serialize};
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
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
            let used = LimitUse { limit, consumed };
            let sent = serde_json::to_string(&LimitState::from(used.clone())).expect("JSON");
            let received: LimitState = serde_json::from_str(&sent).expect("what was sent");
            assert_eq!(LimitUse::from(received), used, "{sent}");
        }
    }
}
