//! Registry entry of BD-EDF, with its parameters and how they build a dispatcher.

use super::{BatchOrder, BdEdf, BdEdfParams};
use crate::dispatch::deadline_order::{
    BEST_EFFORT_LATENCY, DEADLINE_FROM, DEFAULT_LATENCY, MARGIN, deadlines_of,
};
use tidegate_base::time::Nanos;
use tidegate_core::part::{Enforces, ParamInfo, ParamKind, PartDescriptor};
use tidegate_core::roles::Dispatcher;

/// Registry entry of the `bd-edf` dispatcher.
pub(crate) static DESCRIPTOR: PartDescriptor<dyn Dispatcher> = PartDescriptor {
    name: "bd-edf",
    summary: "batches and anticipation within deadlines, for hard disks",
    params: PARAMS,
    enforces: Enforces {
        latency: true,
        ..Enforces::NONE
    },
    build: |params, capacity| {
        let params = BdEdfParams {
            batch_order: BatchOrder::from_word(params.get("batch_order")),
            deadlines: deadlines_of(params),
            max_size: params.get("max_size") as u32,
            transfer_rate: params.get("transfer_rate"),
            max_wait: Nanos(params.get("max_wait")),
            promote_background_after: Nanos(params.get("promote_background_after")),
            bound_waits: params.get("bound_waits") == 1,
            deep_queue: params.get("deep_queue") == 1,
        };
        Box::new(BdEdf::new(params, capacity))
    },
};

static PARAMS: &[ParamInfo] = &[
    MARGIN,
    DEADLINE_FROM,
    DEFAULT_LATENCY,
    BEST_EFFORT_LATENCY,
    ParamInfo {
        name: "max_size",
        kind: ParamKind::Bytes,
        default: 44 << 10,
        min: 512,
        max: 16 << 20,
        help: "slack before the earliest deadline: the time to transfer this size",
    },
    ParamInfo {
        name: "transfer_rate",
        kind: ParamKind::Bytes,
        default: 0,
        min: 0,
        max: 1 << 40,
        help: "bandwidth for the slack; 0: the device's, or 100 MB/s if unknown",
    },
    ParamInfo::span("max_wait", 0, "maximum anticipation; 0: until the deadline"),
    ParamInfo::span(
        "promote_background_after",
        500_000_000,
        "time after which one background I/O goes first; 0: never",
    ),
    ParamInfo::choice(
        "batch_order",
        BatchOrder::WORDS,
        "request of the same VM that goes on: the nearest, or only the next ahead (the paper)",
    ),
    ParamInfo::flag(
        "bound_waits",
        "limits anticipation to the positioning time and to VMs with shorter think time",
    ),
    ParamInfo::flag(
        "deep_queue",
        "keeps several I/Os in flight as far as deadlines allow; off: one",
    ),
];
