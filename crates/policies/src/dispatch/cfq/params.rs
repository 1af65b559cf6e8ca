//! Parameters of CFQ, and the lengths of slices that follow from them.

use super::Cfq;
use tidegate_base::objective::Priority;
use tidegate_base::time::Nanos;
use tidegate_core::part::{Enforces, ParamInfo, ParamKind, Params, PartDescriptor};
use tidegate_core::roles::Dispatcher;
use tidegate_core::starvation::{Bound, Slices};

/// Shortest turn of a kind of workload (Linux: `CFQ_MIN_TT`, two ticks).
pub(super) const TURN_MIN: Nanos = Nanos::from_millis(2);

/// Priority class of background processes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BackgroundClass {
    /// The idle class.
    Idle,
    /// The middle of best effort, as a process under Linux has.
    BestEffort,
    /// The class that the process's objective names.
    AsNamed,
}

impl BackgroundClass {
    /// Words of the configuration, in the order of the variants.
    pub const WORDS: &[&str] = &["idle", "best-effort", "as-named"];

    /// Returns the class at a place among [`BackgroundClass::WORDS`]; panics beyond the last.
    pub(crate) fn from_word(place: u64) -> BackgroundClass {
        use BackgroundClass::*;
        [Idle, BestEffort, AsNamed][place as usize]
    }
}

/// Parameters of [`Cfq`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CfqParams {
    /// Time slice of a synchronous queue of level 4.
    pub slice_sync: Nanos,
    /// Time slice of an asynchronous queue of level 4.
    pub slice_async: Nanos,
    /// Time for which the device idles for an active queue that has run dry.
    pub slice_idle: Nanos,
    /// Maximum number of I/Os of the active queue in flight while others wait; half of it before
    /// the first has ended and when the slice is nearly over.
    pub quantum: u32,
    /// Factor of the I/Os in a slice of asynchronous writes while others wait: twice this for each
    /// level from the queue's own down to the lowest.
    pub slice_async_rq: u32,
    /// VMs that seek are idled for all together instead of one by one.
    pub group_seekers: bool,
    /// Slices are shorter where one for each waiting queue would take longer than `target_latency`.
    pub low_latency: bool,
    /// Time within which each queue of a class is to have its turn.
    pub target_latency: Nanos,
    /// Time after which synchronous and asynchronous requests expire.
    pub fifo_expire: [Nanos; 2],
    /// Largest distance in bytes that the elevator goes back.
    pub back_seek_max: u64,
    /// Factor by which a distance back counts more than one ahead.
    pub back_seek_penalty: u64,
    /// VMs have the classes of their objectives; else all are best effort of level 4.
    pub priorities: bool,
    /// Writes are asynchronous, in queues of their own behind the others.
    pub async_writes: bool,
    /// Asynchronous writes of all VMs are in one queue, of best effort 4.
    pub shared_async: bool,
    /// VMs write asynchronously, where `async_writes` is set; else only background processes do.
    pub async_vm_writes: bool,
    /// Higher classes, synchronous requests and requests near the head end another queue's turn;
    /// else only the turn of the idle class is ended early.
    pub preemption: bool,
    /// Class of background processes.
    pub background_class: BackgroundClass,
    /// Time without a request above the idle class before the idle class goes.
    pub idle_grace: Nanos,
    /// Time after which a waiting idle VM has an I/O before others; zero: never.
    pub idle_overdue: Nanos,
}

/// Queues of asynchronous writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum AsyncQueues {
    /// No queue: all writes are synchronous.
    None,
    /// A queue for each VM.
    PerVm,
    /// One queue for all VMs.
    Shared,
}

impl CfqParams {
    /// Returns the queues that asynchronous writes have.
    pub(super) fn async_queues(&self) -> AsyncQueues {
        match (self.async_writes, self.shared_async) {
            (false, _) => AsyncQueues::None,
            (true, false) => AsyncQueues::PerVm,
            (true, true) => AsyncQueues::Shared,
        }
    }

    /// Returns a queue's time slice: a fifth of the base more for each level above 4, a fifth less
    /// for each below.
    pub(super) fn slice(&self, sync: bool, class: Priority) -> Nanos {
        let level = level_of(class);
        let base = if sync {
            self.slice_sync
        } else {
            self.slice_async
        };
        // As `cfq_prio_slice` with `CFQ_SLICE_SCALE` 5; levels 0 to 7 give 9/5 to 2/5 of the base.
        Nanos(base.0 / 5 * (5 + MIDDLE_LEVEL as u64 - level as u64))
    }

    /// Returns the maximum number of I/Os of asynchronous writes in a slice while others wait
    /// (`cfq_prio_to_maxrq`).
    pub(super) fn async_ios_max(&self, class: Priority) -> u32 {
        // At most 2 x 10^8 x 8, which fits 32 bits: the bound of `slice_async_rq` below.
        2 * self.slice_async_rq * u32::from(LEVEL_COUNT - level_of(class))
    }

    /// Returns the bound on the time for which a queue may be passed over.
    pub(super) fn starvation(&self) -> Bound {
        // Writes pass each other within the shared queue, and `Slices` has queues of one kind for
        // VMs and background processes alike.
        if self.async_writes && (self.shared_async || !self.async_vm_writes) {
            return Bound::Unbounded;
        }
        let base = if self.async_writes {
            // A VM may be passed over for slices of either kind, so the longer base counts.
            self.slice_sync.max(self.slice_async)
        } else {
            self.slice_sync
        };
        Bound::Slices(Slices {
            // Slice of level 0.
            longest: Nanos(base.0 / 5 * 9),
            idle: self.slice_idle,
            overdue: self.idle_overdue,
            priorities: self.priorities,
            background: match self.background_class {
                BackgroundClass::Idle => Some(Priority::Idle),
                BackgroundClass::BestEffort => Some(Priority::DEFAULT),
                BackgroundClass::AsNamed => None,
            },
            by_lane: self.async_writes,
            workload: if self.group_seekers {
                self.longest_workload()
            } else {
                Nanos::ZERO
            },
        })
    }

    /// Returns the longest turn of a kind of workload.
    fn longest_workload(&self) -> Nanos {
        let idles = self.slice_idle + self.slice_idle;
        // The three bounds of `Trees::serve`: a part of the target latency, and its two minima.
        self.target_latency.max(idles).max(TURN_MIN)
    }

    /// Returns the longest slice of a synchronous queue; a queue with a shorter slice is due later
    /// by the difference.
    pub(super) fn longest_slice(&self) -> Nanos {
        self.slice(true, Priority::BestEffort(0))
    }
}

/// Level of best effort whose slice is the base; the default of a process under Linux.
const MIDDLE_LEVEL: u8 = 4;
/// Number of levels of best effort.
const LEVEL_COUNT: u8 = Priority::LEVEL_MAX + 1;

/// Returns the level that a slice is computed from; other classes than best effort count as the
/// middle.
fn level_of(class: Priority) -> u8 {
    match class {
        Priority::BestEffort(level) => level,
        Priority::RealTime | Priority::Idle => MIDDLE_LEVEL,
    }
}

/// Returns whether these parameters, where a composition has them, ignore the priority of
/// objectives of VMs, or with `background` of background processes.
pub(crate) fn waives_priority(params: &Params, background: bool) -> bool {
    // `find` gives `None` for compositions with another dispatcher, which has no such parameter.
    let class = params.find("background_class").filter(|_| background);
    let named = |word| BackgroundClass::from_word(word) == BackgroundClass::AsNamed;
    class.is_some_and(|word| !named(word)) || params.find("priorities") == Some(0)
}

/// Registry entry of the `cfq` dispatcher.
pub(crate) static DESCRIPTOR: PartDescriptor<dyn Dispatcher> = PartDescriptor {
    name: "cfq",
    summary: "time slices by I/O priority class and level",
    params: PARAMS,
    enforces: Enforces {
        priority: true,
        ..Enforces::NONE
    },
    build: |params, capacity| {
        let duration = |name| Nanos(params.get(name));
        let params = CfqParams {
            slice_sync: duration("slice_sync"),
            slice_async: duration("slice_async"),
            slice_idle: duration("slice_idle"),
            // Casts are exact: each parameter's `max` below fits 32 bits.
            quantum: params.get("slice_depth") as u32,
            slice_async_rq: params.get("slice_async_rq") as u32,
            group_seekers: params.get("group_seekers") == 1,
            low_latency: params.get("low_latency") == 1,
            target_latency: duration("target_latency"),
            fifo_expire: ["fifo_expire_sync", "fifo_expire_async"].map(duration),
            back_seek_max: params.get("back_seek_max"),
            back_seek_penalty: params.get("back_seek_penalty"),
            priorities: params.get("priorities") == 1,
            async_writes: params.get("async_writes") == 1,
            shared_async: params.get("shared_async") == 1,
            async_vm_writes: params.get("async_vm_writes") == 1,
            preemption: params.get("preemption") == 1,
            background_class: BackgroundClass::from_word(params.get("background_class")),
            idle_grace: duration("idle_class_grace"),
            idle_overdue: duration("idle_class_overdue"),
        };
        Box::new(Cfq::new(params, capacity))
    },
};

/// Parameters under Linux's names, except `slice_depth` (Linux's `quantum`, which means another
/// thing in deficit round robin) and the last eight.
static PARAMS: &[ParamInfo] = &[
    ParamInfo {
        min: 1_000_000,
        max: 10_000_000_000,
        ..ParamInfo::span("slice_sync", 100_000_000, "time slice of a VM at level 4")
    },
    ParamInfo {
        min: 1_000_000,
        max: 10_000_000_000,
        ..ParamInfo::span(
            "slice_async",
            40_000_000,
            "time slice of asynchronous writes",
        )
    },
    ParamInfo {
        max: 100_000_000,
        ..ParamInfo::span(
            "slice_idle",
            8_000_000,
            "idle time in which a VM's next request is awaited; 0: none",
        )
    },
    ParamInfo {
        name: "slice_depth",
        kind: ParamKind::Count,
        default: 8,
        min: 1,
        max: 4096,
        help: "maximum I/Os of one VM in flight while others wait",
    },
    ParamInfo {
        name: "slice_async_rq",
        kind: ParamKind::Count,
        default: 2,
        min: 1,
        max: 100_000_000,
        help: "I/Os of asynchronous writes in a slice: twice this for each level from 7 up",
    },
    ParamInfo::flag(
        "group_seekers",
        "idles for all seeking VMs together, not for each",
    ),
    ParamInfo::flag(
        "low_latency",
        "shortens slices so that all VMs get their turn within target_latency",
    ),
    ParamInfo {
        min: 1_000_000,
        max: 10_000_000_000,
        ..ParamInfo::span(
            "target_latency",
            300_000_000,
            "time within which all VMs of a class should get a turn",
        )
    },
    ParamInfo::span(
        "fifo_expire_sync",
        125_000_000,
        "age from which a synchronous request is served first in a slice",
    ),
    ParamInfo::span(
        "fifo_expire_async",
        250_000_000,
        "age from which an asynchronous write is served first in a slice",
    ),
    ParamInfo {
        name: "back_seek_max",
        kind: ParamKind::Bytes,
        default: 16 << 20,
        min: 0,
        max: 1 << 50,
        help: "maximum backward seek",
    },
    ParamInfo {
        name: "back_seek_penalty",
        kind: ParamKind::Count,
        default: 2,
        min: 1,
        max: 1000,
        help: "cost of a backward seek, relative to a forward one",
    },
    ParamInfo::flag(
        "priorities",
        "uses priority classes; off: all VMs are best effort, level 4",
    ),
    ParamInfo {
        default: 0,
        ..ParamInfo::flag(
            "async_writes",
            "queues writes separately, served after synchronous \
                                           requests",
        )
    },
    ParamInfo {
        default: 0,
        ..ParamInfo::flag(
            "shared_async",
            "puts asynchronous writes of all VMs into one queue of best effort, level 4",
        )
    },
    ParamInfo::flag(
        "async_vm_writes",
        "with async_writes, VMs write asynchronously; off: only background processes do",
    ),
    ParamInfo::flag(
        "preemption",
        "ends turns early for higher classes, reads and close requests; off: the idle class's only",
    ),
    ParamInfo::choice(
        "background_class",
        BackgroundClass::WORDS,
        "class of background processes",
    ),
    ParamInfo {
        max: 1_000_000_000,
        ..ParamInfo::span(
            "idle_class_grace",
            100_000_000,
            "time without other requests before the idle class is served",
        )
    },
    ParamInfo::span(
        "idle_class_overdue",
        5_000_000_000,
        "wait after which a VM of the idle class gets one I/O; 0: never",
    ),
];
