//! Every regulator, dispatcher and controller by name, with its parameters.

use super::{Honours, ParamInfo, ParamKind, Params, PartInfo};
use crate::control::credit_feedback::{CreditFeedback, CreditFeedbackParams};
use crate::dispatch::background::BackgroundParams;
use crate::dispatch::bd_edf::{BdEdf, BdEdfParams};
use crate::dispatch::by_deadline::{DeadlineFrom, Deadlines};
use crate::dispatch::cfq::{BackgroundClass, Cfq, CfqParams};
use crate::dispatch::deadline::{Deadline, DeadlineParams};
use crate::dispatch::drr::{Drr, DrrParams};
use crate::dispatch::edf::{Edf, EdfParams};
use crate::dispatch::fifo::Fifo;
use crate::dispatch::mclock::{MClock, MClockParams};
use crate::dispatch::sfq::{CostBy, Sfq, SfqParams};
use crate::regulate::open::Open;
use crate::regulate::proportion::Terms;
use crate::regulate::token_bucket::TokenBucket;
use crate::regulate::vbc::{Vbc, VbcParams};
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

/// Below it an I/O takes a device about as long as one of this size does.
const COST_SIZE: ParamInfo = ParamInfo {
    name: "cost_size",
    kind: ParamKind::Bytes,
    default: 16 << 10,
    min: 512,
    max: 16 << 20,
    help: "an I/O costs its bytes against its VM's share, at least this many",
};

/// What every composition has whose dispatcher knows no background tenants.
pub(super) static BACKGROUND: &[ParamInfo] = &[
    ParamInfo {
        name: "background_depth",
        kind: ParamKind::Count,
        default: 4,
        min: 1,
        max: 4096,
        help: "background I/Os in flight at most",
    },
    ParamInfo {
        name: "background_grace",
        kind: ParamKind::Duration,
        default: 2_000_000,
        min: 0,
        max: 1_000_000_000,
        help: "the background waits until VMs were quiet for so long",
    },
    ParamInfo {
        name: "background_after",
        kind: ParamKind::Duration,
        default: 500_000_000,
        min: 0,
        max: 3_600_000_000_000,
        help: "a background I/O goes before all VMs when none went for so long; 0: never",
    },
];

pub(super) fn background(params: &Params) -> BackgroundParams {
    BackgroundParams {
        depth: params.get("background_depth") as u32,
        grace: Nanos(params.get("background_grace")),
        after: Nanos(params.get("background_after")),
    }
}

const BETA: ParamInfo = ParamInfo {
    name: "beta",
    kind: ParamKind::Count,
    default: 32,
    min: 1,
    max: 65_536,
    help: "credits an interval for the VM with the smallest reservation; others in proportion",
};

const MAX_INTERVAL: ParamInfo = ParamInfo {
    name: "max_interval",
    kind: ParamKind::Count,
    default: 0,
    min: 0,
    max: Terms::MOST as u64,
    help: "requests in an interval at most; 0: what the device transfers in 2 s, or 20,000",
};

const DEFAULT_IOPS: ParamInfo = ParamInfo {
    name: "default_iops",
    kind: ParamKind::Count,
    default: 100,
    min: 1,
    max: 1 << 30,
    help: "what a VM without a reservation counts as, in requests a second",
};

const REQUEST_SIZE: ParamInfo = ParamInfo {
    name: "request_size",
    kind: ParamKind::Bytes,
    default: 16 << 10,
    min: 512,
    max: 16 << 20,
    help: "of a reservation in bytes a second, or without one, so many cost a credit",
};

const LITERAL: ParamInfo = ParamInfo {
    name: "literal",
    kind: ParamKind::Flag,
    default: 0,
    min: 0,
    max: 1,
    help: "keep to the letter of the paper, also where it serves worse",
};

fn terms(params: &Params) -> Terms {
    Terms {
        beta: params.get("beta") as u32,
        max_interval: params.get("max_interval") as u32,
        default_iops: params.get("default_iops"),
        request_size: params.get("request_size") as u32,
    }
}

static CONTROLLERS: &[PartInfo<dyn Controller>] = &[PartInfo {
    name: "credit-feedback",
    summary: "more credits for whoever missed its objective",
    params: &[
        ParamInfo {
            name: "feedback",
            kind: ParamKind::Flag,
            default: 1,
            min: 0,
            max: 1,
            help: "off: credits stay in the proportions of the reservations",
        },
        BETA,
        MAX_INTERVAL,
        DEFAULT_IOPS,
        REQUEST_SIZE,
        LITERAL,
    ],
    honours: Honours {
        reservation: true,
        latency: true,
        ..Honours::NONE
    },
    build: |params, capacity| {
        let of = CreditFeedbackParams {
            terms: terms(params),
            feedback: params.get("feedback") != 0,
            literal: params.get("literal") != 0,
        };
        Box::new(CreditFeedback::new(of, capacity.vms))
    },
}];

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
    PartInfo {
        name: "vbc",
        summary: "credits in proportion to reservations, granted anew when all had their turn",
        params: &[
            BETA,
            MAX_INTERVAL,
            DEFAULT_IOPS,
            REQUEST_SIZE,
            ParamInfo {
                name: "idle_grace",
                kind: ParamKind::Duration,
                default: 50_000_000,
                min: 1_000_000,
                max: 3_600_000_000_000,
                help: "a VM with credit and nothing to do holds others up for twice its mean think \
                       time, at most this",
            },
            ParamInfo {
                name: "wait_for",
                kind: ParamKind::Duration,
                default: 10_000_000,
                min: 0,
                max: 3_600_000_000_000,
                help: "one that thinks longer than this on average holds nobody up",
            },
            LITERAL,
        ],
        honours: Honours {
            reservation: true,
            ..Honours::NONE
        },
        build: |params, capacity| {
            let params = VbcParams {
                terms: terms(params),
                idle_grace: Nanos(params.get("idle_grace")),
                wait_for: Nanos(params.get("wait_for")),
                literal: params.get("literal") != 0,
            };
            Box::new(Vbc::new(params, capacity))
        },
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
            COST_SIZE,
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
    PartInfo {
        name: "sfq",
        summary: "shares by weight, fair from one request to the next",
        params: &[
            ParamInfo {
                name: "depth",
                kind: ParamKind::Count,
                default: 0,
                min: 0,
                max: 4096,
                help: "I/Os outstanding at most; 0: as many as the device takes",
            },
            ParamInfo::choice("cost", CostBy::WORDS, "what an I/O costs its VM"),
            COST_SIZE,
        ],
        honours: Honours {
            weight: true,
            ..Honours::NONE
        },
        build: |params, capacity| {
            let params = SfqParams {
                depth: params.get("depth") as u32,
                cost: CostBy::from_word(params.get("cost")),
                cost_size: params.get("cost_size") as u32,
            };
            Box::new(Sfq::new(params, capacity))
        },
    },
    PartInfo {
        name: "drr",
        summary: "shares by weight in turns",
        params: &[
            ParamInfo {
                name: "quantum",
                kind: ParamKind::Bytes,
                default: 64 << 10,
                min: 16 << 10,
                max: 16 << 20,
                help: "what the lightest VM may spend in a turn",
            },
            COST_SIZE,
        ],
        honours: Honours {
            weight: true,
            ..Honours::NONE
        },
        build: |params, capacity| {
            let params = DrrParams {
                quantum: params.get("quantum") as u32,
                cost_size: params.get("cost_size") as u32,
            };
            Box::new(Drr::new(params, capacity))
        },
    },
    PartInfo {
        name: "deadline",
        summary: "batches in the order of addresses, begun with the oldest once it has expired",
        params: &[
            span(
                "read_expire",
                500_000_000,
                "a read that waited so long goes first",
            ),
            span(
                "write_expire",
                5_000_000_000,
                "a write that waited so long goes first",
            ),
            ParamInfo {
                name: "fifo_batch",
                kind: ParamKind::Count,
                default: 16,
                min: 1,
                max: 65_536,
                help: "I/Os in a batch at most; expiry is looked at between batches",
            },
            ParamInfo {
                name: "writes_starved",
                kind: ParamKind::Count,
                default: 2,
                min: 1,
                max: 65_536,
                help: "batches of reads that may go before writes that wait",
            },
        ],
        honours: Honours::NONE,
        build: |params, capacity| {
            let params = DeadlineParams {
                expire: ["read_expire", "write_expire"].map(|name| Nanos(params.get(name))),
                fifo_batch: params.get("fifo_batch") as u32,
                writes_starved: params.get("writes_starved") as u32,
            };
            Box::new(Deadline::new(params, capacity))
        },
    },
    PartInfo {
        name: "edf",
        summary: "the earliest deadline first",
        params: &[
            MARGIN,
            DEADLINE_FROM,
            DEFAULT_LATENCY,
            BEST_EFFORT_LATENCY,
            span(
                "background_latency",
                10_000_000_000,
                "when a background process's request is due; the paper's baseline: 500 ms",
            ),
        ],
        honours: Honours {
            latency: true,
            ..Honours::NONE
        },
        build: |params, capacity| {
            let params = EdfParams {
                deadlines: deadlines(params),
                background_latency: Nanos(params.get("background_latency")),
            };
            Box::new(Edf::new(params, capacity))
        },
    },
    PartInfo {
        name: "bd-edf",
        summary: "batches and waits between deadlines, for disks that seek",
        params: BD_EDF,
        honours: Honours {
            latency: true,
            ..Honours::NONE
        },
        build: |params, capacity| {
            let params = BdEdfParams {
                deadlines: deadlines(params),
                max_size: params.get("max_size") as u32,
                transfer_rate: params.get("transfer_rate"),
                max_wait: Nanos(params.get("max_wait")),
                promote_background_after: Nanos(params.get("promote_background_after")),
                bound_waits: params.get("bound_waits") == 1,
                deep_queue: params.get("deep_queue") == 1,
            };
            Box::new(BdEdf::new(params, capacity))
        },
    },
    PartInfo {
        name: "cfq",
        summary: "time slices of the disk, by class and level of priority",
        params: CFQ_PARAMS,
        honours: Honours {
            priority: true,
            ..Honours::NONE
        },
        build: |params, capacity| {
            let duration = |name| Nanos(params.get(name));
            let params = CfqParams {
                slice_sync: duration("slice_sync"),
                slice_async: duration("slice_async"),
                slice_idle: duration("slice_idle"),
                quantum: params.get("slice_depth") as u32,
                fifo_expire: ["fifo_expire_sync", "fifo_expire_async"].map(duration),
                back_seek_max: params.get("back_seek_max"),
                back_seek_penalty: params.get("back_seek_penalty"),
                priorities: params.get("priorities") == 1,
                async_writes: params.get("async_writes") == 1,
                background_class: BackgroundClass::from_word(params.get("background_class")),
                idle_grace: duration("idle_class_grace"),
                idle_overdue: duration("idle_class_overdue"),
            };
            Box::new(Cfq::new(params, capacity))
        },
    },
];

/// The paper's figure.
const MARGIN: ParamInfo = ParamInfo {
    max: 1_000_000_000,
    ..span(
        "margin",
        9_000_000,
        "a request is due so much before its VM's latency is over",
    )
};

/// Later than any bound that the paper promises a VM, earlier than its background processes.
const DEFAULT_LATENCY: ParamInfo = ParamInfo {
    max: 5_000_000_000,
    ..span(
        "default_latency",
        200_000_000,
        "the latency of a VM that was promised a rate alone",
    )
};

const DEADLINE_FROM: ParamInfo = ParamInfo {
    name: "deadline_from",
    kind: ParamKind::Choice(DeadlineFrom::WORDS),
    default: DeadlineFrom::Arrival as u64,
    min: 0,
    max: DeadlineFrom::Admission as u64,
    help: "from when on a latency counts: a request's arrival, or when credits let it in",
};

/// As Linux's deadline has for writes.
const BEST_EFFORT_LATENCY: ParamInfo = ParamInfo {
    max: 5_000_000_000,
    ..span(
        "best_effort_latency",
        5_000_000_000,
        "the latency of a VM that was promised nothing",
    )
};

static BD_EDF: &[ParamInfo] = &[
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
        help: "a transfer of this size is left before the earliest deadline",
    },
    ParamInfo {
        name: "transfer_rate",
        kind: ParamKind::Bytes,
        default: 0,
        min: 0,
        max: 1 << 40,
        help: "bytes a second of it; 0: as the device says, else 100 MB",
    },
    span(
        "max_wait",
        0,
        "a wait lasts at most so long; 0: until the deadline",
    ),
    span(
        "promote_background_after",
        500_000_000,
        "one background I/O goes first after so long without any; 0: never",
    ),
    flag(
        "bound_waits",
        "wait no longer than positioning takes, nor for a VM that thinks longer",
    ),
    flag(
        "deep_queue",
        "several I/Os in flight as far as deadlines allow; without: one",
    ),
];

fn deadlines(params: &Params) -> Deadlines {
    Deadlines {
        from: DeadlineFrom::from_word(params.get("deadline_from")),
        margin: Nanos(params.get("margin")),
        default_latency: Nanos(params.get("default_latency")),
        best_effort_latency: Nanos(params.get("best_effort_latency")),
    }
}

/// On unless said.
const fn flag(name: &'static str, help: &'static str) -> ParamInfo {
    ParamInfo {
        name,
        kind: ParamKind::Flag,
        default: 1,
        min: 0,
        max: 1,
        help,
    }
}

const fn span(name: &'static str, default: u64, help: &'static str) -> ParamInfo {
    ParamInfo {
        name,
        kind: ParamKind::Duration,
        default,
        min: 0,
        max: 3_600_000_000_000,
        help,
    }
}

/// What Linux calls them, but for `slice_depth` (its `quantum`, which is deficit round robin's
/// here) and the last five.
static CFQ_PARAMS: &[ParamInfo] = &[
    ParamInfo {
        min: 1_000_000,
        max: 10_000_000_000,
        ..span("slice_sync", 100_000_000, "time slice of a VM at level 4")
    },
    ParamInfo {
        min: 1_000_000,
        max: 10_000_000_000,
        ..span("slice_async", 40_000_000, "the same of asynchronous writes")
    },
    ParamInfo {
        max: 100_000_000,
        ..span(
            "slice_idle",
            8_000_000,
            "how long a VM's next request is waited for",
        )
    },
    ParamInfo {
        name: "slice_depth",
        kind: ParamKind::Count,
        default: 8,
        min: 1,
        max: 4096,
        help: "I/Os of one VM in flight at most while others wait",
    },
    span(
        "fifo_expire_sync",
        125_000_000,
        "a slice begins with what waited so long",
    ),
    span(
        "fifo_expire_async",
        250_000_000,
        "the same of asynchronous writes",
    ),
    ParamInfo {
        name: "back_seek_max",
        kind: ParamKind::Bytes,
        default: 16 << 20,
        min: 0,
        max: 1 << 50,
        help: "how far back the head goes for a request",
    },
    ParamInfo {
        name: "back_seek_penalty",
        kind: ParamKind::Count,
        default: 2,
        min: 1,
        max: 1000,
        help: "a byte back counts as so many ahead",
    },
    flag(
        "priorities",
        "VMs have classes; without: all are best effort of level 4",
    ),
    ParamInfo {
        default: 0,
        ..flag("async_writes", "writes wait in queues of their own, behind")
    },
    ParamInfo::choice(
        "background_class",
        BackgroundClass::WORDS,
        "the class of background tenants",
    ),
    ParamInfo {
        max: 1_000_000_000,
        ..span(
            "idle_class_grace",
            100_000_000,
            "the idle class goes when nobody has asked for so long",
        )
    },
    span(
        "idle_class_overdue",
        5_000_000_000,
        "an idle VM that waited so long has an I/O; 0: it has none",
    ),
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
