//! A VM that waits with its gate open is passed over no longer than its dispatcher's bound.
//!
//! The bounds are those that each dispatcher's own documentation states, here in one table; a
//! dispatcher that has none in it is not tortured, and a test says so.
//!
//! | dispatcher | bound |
//! |---|---|
//! | `fifo` | what goes is what arrived first, among the lanes whose gate is open; nothing is left waiting while the device has room |
//! | `mclock` | while a VM waits, each other one gets at most its own weight's share of (32 I/Os of `cost_size`, or two of its own, and its own cost), plus two I/Os |
//! | `sfq` | ... at most an I/O, and its own weight's share of the waiting one's last I/O, or of 32 flushes |
//! | `drr` | ... at most an I/O, and (R + 1) of its quanta, where R are the waiting one's turns until its head is covered; twice that, for the turns in which the scale of the quanta changes |
//! | `edf` | what goes is what is due first, each VM's first unit by its arrival, latency and margin; nothing is left waiting while the device has room |
//! | `bd-edf` | the same from one transfer of `max_size` before the earliest deadline on, but for one promoted background unit each `promote_background_after`; and the device may be left alone while it has an I/O in flight; without promotion no background I/O goes while a VM has one that may |
//! | `deadline` | a head that has expired is started within so many I/Os as `fifo_batch`, `writes_starved` and the I/Os before it allow |
//! | `cfq` | within a class, with n other queues: n + 3 longest slices until all that come enter behind it, and n + 1 turns, each a longest slice, `slice_idle` and eight of the longest I/Os; an idle VM that and `idle_class_overdue`; none beneath a class that is served, nor for idle VMs without `idle_class_overdue` |
//! | all that leave the background to the engine | a background I/O goes before a VM that may go only when none went for `background_after`; then it does |
//!
//! What a VM has been passed over is forgotten whenever an objective or the policy changes, or
//! a VM comes or goes.

mod age;
mod arrival;
mod background;
mod due;
mod shares;
mod slices;

pub use age::Expiry;
pub use arrival::Promise;
pub use due::Deadlines;
pub use shares::{Cost, Lead, Shares};
pub use slices::Slices;

use super::Verdict;
use super::ledger::Ledger;
use age::Ages;
use background::Leftover;
use shares::Passed;
use slices::Turns;
use tidegate_core::engine::{DeviceSpec, Engine};
use tidegate_core::objective::Priority;
use tidegate_core::policy::PolicySpec;
use tidegate_core::request::{DeviceIo, Op};
use tidegate_core::time::Nanos;

/// How long a dispatcher may pass over a VM.
#[derive(Clone, Copy, Debug)]
pub enum Bound {
    /// Not at all: first come, first served, and the device is never left idle.
    Arrival,
    /// By deadline: what is due first goes first.
    Deadline(fn(&PolicySpec, &DeviceSpec) -> Deadlines),
    /// By weight: while a VM waits, another gets at most so much.
    Shares(fn(&PolicySpec, &DeviceSpec) -> Shares),
    /// By age: once it has expired, at most so many I/Os go before it.
    Age(fn(&PolicySpec) -> Expiry),
    /// By time slices within a class of priority.
    Slices(fn(&PolicySpec) -> Slices),
}

/// The bound of each dispatcher.
pub const BOUNDS: &[(&str, Bound)] = &[
    ("fifo", Bound::Arrival),
    ("mclock", Bound::Shares(mclock)),
    ("sfq", Bound::Shares(sfq)),
    ("drr", Bound::Shares(drr)),
    ("deadline", Bound::Age(deadline)),
    ("edf", Bound::Deadline(edf)),
    ("bd-edf", Bound::Deadline(bd_edf)),
    ("cfq", Bound::Slices(cfq)),
];

fn edf(policy: &PolicySpec, _: &DeviceSpec) -> Deadlines {
    Deadlines {
        // By the places of the parameter's words: arrival, admission.
        from_admission: param(policy, "deadline_from") == 1,
        margin: Nanos(param(policy, "margin")),
        default_latency: Nanos(param(policy, "default_latency")),
        best_effort_latency: Nanos(param(policy, "best_effort_latency")),
        background_latency: Some(Nanos(param(policy, "background_latency"))),
        before: None,
        promotes: false,
        may_drain: false,
    }
}

fn bd_edf(policy: &PolicySpec, device: &DeviceSpec) -> Deadlines {
    let rates = [param(policy, "transfer_rate"), device.bytes_per_s];
    let rate = rates.into_iter().find(|&rate| rate > 0);
    let bytes = param(policy, "max_size") * 1_000_000_000;
    Deadlines {
        before: Some(Nanos(bytes.div_ceil(rate.unwrap_or(100_000_000)))),
        background_latency: None,
        promotes: param(policy, "promote_background_after") > 0,
        may_drain: true,
        ..edf(policy, device)
    }
}

fn mclock(policy: &PolicySpec, device: &DeviceSpec) -> Shares {
    let cost = Cost::Bytes {
        least: param(policy, "cost_size"),
    };
    let largest = cost.largest(device);
    Shares {
        cost,
        largest,
        lead: Lead::Ahead {
            ahead: (32 * cost.least()).max(2 * largest) + largest,
            once: 2 * largest,
        },
    }
}

fn sfq(policy: &PolicySpec, device: &DeviceSpec) -> Shares {
    let size = param(policy, "cost_size");
    // By the places of the parameter's words: bytes, requests, size-classes.
    let cost = match param(policy, "cost") {
        0 => Cost::Bytes { least: size },
        1 => Cost::Requests,
        _ => Cost::Classes { size },
    };
    let largest = cost.largest(device);
    Shares {
        cost,
        largest,
        lead: Lead::Ahead {
            ahead: largest.max(32 * cost.least()),
            once: largest,
        },
    }
}

fn drr(policy: &PolicySpec, device: &DeviceSpec) -> Shares {
    let cost = Cost::Bytes {
        least: param(policy, "cost_size"),
    };
    Shares {
        cost,
        largest: cost.largest(device),
        lead: Lead::Turns {
            quantum: param(policy, "quantum"),
        },
    }
}

fn deadline(policy: &PolicySpec) -> Expiry {
    Expiry {
        after: ["read_expire", "write_expire"].map(|name| Nanos(param(policy, name))),
        batch: param(policy, "fifo_batch"),
        writes_starved: param(policy, "writes_starved"),
    }
}

fn cfq(policy: &PolicySpec) -> Slices {
    let by_lane = param(policy, "async_writes") == 1;
    let base = match by_lane {
        true => param(policy, "slice_sync").max(param(policy, "slice_async")),
        false => param(policy, "slice_sync"),
    };
    Slices {
        longest: Nanos(base / 5 * 9),
        idle: Nanos(param(policy, "slice_idle")),
        overdue: Nanos(param(policy, "idle_class_overdue")),
        priorities: param(policy, "priorities") == 1,
        // By the places of the parameter's words: idle, best-effort, as-named.
        background: match param(policy, "background_class") {
            0 => Some(Priority::Idle),
            1 => Some(Priority::DEFAULT),
            _ => None,
        },
        by_lane,
    }
}

fn param(policy: &PolicySpec, name: &str) -> u64 {
    let mut params = policy.params();
    let found = params.find(|(info, _)| info.name == name);
    found.map_or(0, |(_, value)| value)
}

/// The bound of a policy's dispatcher, where the table has one.
pub fn bound_of(policy: &PolicySpec) -> Option<Bound> {
    let (_, _, dispatcher) = policy.parts();
    let known = BOUNDS.iter().find(|(name, _)| *name == dispatcher);
    known.map(|(_, bound)| *bound)
}

/// The checker.
#[derive(Debug)]
pub struct Starvation {
    bound: Option<Bound>,
    passed: Passed,
    ages: Ages,
    turns: Turns,
    leftover: Leftover,
    deadlines: Option<Deadlines>,
}

impl Starvation {
    /// For an engine with room for so many VMs.
    pub fn new(slots: usize) -> Starvation {
        Starvation {
            bound: None,
            passed: Passed::new(slots),
            ages: Ages::new(slots),
            turns: Turns::new(slots),
            leftover: Leftover::new(slots),
            deadlines: None,
        }
    }

    /// An objective or the policy has changed, a VM has come or gone.
    pub fn forget(&mut self, engine: &Engine) {
        let policy = engine.policy();
        self.bound = bound_of(policy);
        self.leftover.forget(engine);
        self.deadlines = None;
        match self.bound {
            Some(Bound::Shares(shares)) => {
                let shares = shares(policy, &engine.config().device);
                self.passed.forget(engine, shares);
            }
            Some(Bound::Age(expiry)) => self.ages.forget(expiry(policy)),
            Some(Bound::Deadline(deadlines)) => {
                self.deadlines = Some(deadlines(policy, &engine.config().device));
            }
            Some(Bound::Slices(slices)) => self.turns.forget(slices(policy)),
            Some(Bound::Arrival) | None => {}
        }
    }

    /// What the next pick must be, where the bound says so. To be asked with everything that is
    /// due done.
    pub fn promise(&self, engine: &Engine) -> Option<Promise> {
        match self.bound {
            Some(Bound::Arrival) => arrival::first(engine),
            Some(Bound::Deadline(_)) => self.deadlines.and_then(|d| d.first(engine)),
            _ => None,
        }
    }

    /// A device I/O has started, whose unit arrived as number `first`, after a promise of what
    /// would.
    ///
    /// # Errors
    /// When it should have been another, or somebody was passed over too long.
    pub fn started(
        &mut self,
        engine: &Engine,
        ledger: &Ledger,
        io: &DeviceIo,
        first: u64,
        promise: Option<Promise>,
    ) -> Verdict {
        self.leftover.started(engine, io)?;
        if engine.view().is_background(io.vm) && self.leftover.is_of_the_engine() {
            return Ok(());
        }
        if let Some(deadlines) = self.deadlines {
            deadlines.background_kept(engine, io)?;
        }
        if io.op != Op::Flush
            && let Some(promise) = promise
        {
            match self.deadlines {
                None => promise.kept(io, first)?,
                Some(d) if d.promotes && engine.view().is_background(io.vm) => {}
                Some(_) => promise.kept_exactly(io)?,
            }
        }
        match self.bound {
            Some(Bound::Shares(_)) => self.passed.started(engine, io),
            Some(Bound::Age(_)) if io.op != Op::Flush => self.ages.started(engine, ledger),
            Some(Bound::Slices(_)) => self.turns.started(engine, io),
            _ => Ok(()),
        }
    }

    /// Nothing goes now, while the device has room: whether something should have.
    ///
    /// # Errors
    /// When it should.
    pub fn idle(&mut self, engine: &Engine) -> Verdict {
        if self.deadlines.is_some_and(|d| d.may_drain) && engine.facts().in_flight > 0 {
            return Ok(());
        }
        match (self.bound, self.promise(engine)) {
            (Some(Bound::Slices(_)), _) => self.turns.look(engine),
            (_, Some(promise)) => promise.broken(),
            (_, None) => Ok(()),
        }
    }
}
