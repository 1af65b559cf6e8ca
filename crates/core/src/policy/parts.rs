//! Every regulator, dispatcher and controller by name, with its parameters.

use super::{Honours, ParamInfo, ParamKind, PartInfo};
use crate::dispatch::fifo::Fifo;
use crate::dispatch::mclock::{MClock, MClockParams};
use crate::regulate::open::Open;
use crate::regulate::token_bucket::TokenBucket;
use crate::roles::{Controller, Dispatcher, Regulator};
use crate::time::Nanos;

/// How late a paced dispatch may come and still be made good. Well below 1 % of 100 ms, so
/// that no window of 100 ms is overshot by more than 1 % and one request.
const SLACK: ParamInfo = ParamInfo {
    name: "slack",
    kind: ParamKind::Duration,
    default: 900_000,
    min: 0,
    max: 1_000_000_000,
    help: "a limit makes good a late dispatch for at most this long",
};

static CONTROLLERS: &[PartInfo<dyn Controller>] = &[];

static REGULATORS: &[PartInfo<dyn Regulator>] = &[
    PartInfo {
        name: "open",
        summary: "holds nothing back",
        params: &[],
        honours: Honours::NONE,
        build: |_, _| Box::new(Open),
    },
    PartInfo {
        name: "token-bucket",
        summary: "limits in requests and bytes a second, by direction, with bursts",
        params: &[SLACK],
        honours: Honours {
            limit: true,
            limit_by_direction: true,
            burst: true,
            ..Honours::NONE
        },
        build: |params, _| Box::new(TokenBucket::new(Nanos(params.get("slack")))),
    },
];

static DISPATCHERS: &[PartInfo<dyn Dispatcher>] = &[
    PartInfo {
        name: "fifo",
        summary: "in the order of arrival",
        params: &[],
        honours: Honours::NONE,
        build: |_, capacity| Box::new(Fifo::new(capacity)),
    },
    PartInfo {
        name: "mclock",
        summary: "reservations first, then shares by weight, never above limits",
        params: &[
            ParamInfo {
                name: "cost_size",
                kind: ParamKind::Bytes,
                default: 16 << 10,
                min: 512,
                max: 16 << 20,
                help: "an I/O costs its bytes against its VM's share, at least this many",
            },
            SLACK,
            ParamInfo {
                name: "catch_up",
                kind: ParamKind::Duration,
                default: 1_000_000_000,
                min: 0,
                max: 3_600_000_000_000,
                help: "a reservation that fell behind is made good for at most this long",
            },
        ],
        honours: Honours {
            reservation: true,
            limit: true,
            weight: true,
            ..Honours::NONE
        },
        build: |params, capacity| {
            let params = MClockParams {
                cost_size: params.get("cost_size") as u32,
                slack: Nanos(params.get("slack")),
                catch_up: Nanos(params.get("catch_up")),
            };
            Box::new(MClock::new(params, capacity))
        },
    },
];

/// Every controller.
pub fn controllers() -> &'static [PartInfo<dyn Controller>] {
    CONTROLLERS
}

/// Every regulator.
pub fn regulators() -> &'static [PartInfo<dyn Regulator>] {
    REGULATORS
}

/// Every dispatcher.
pub fn dispatchers() -> &'static [PartInfo<dyn Dispatcher>] {
    DISPATCHERS
}
