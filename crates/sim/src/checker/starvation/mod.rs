//! Checker of starvation. A VM that waits with its gate open is passed over no longer than its
//! dispatcher's bound.
//!
//! Bounds are those that each dispatcher states ([`Dispatcher::starvation`]). Each kind of
//! [`Bound`] is checked in a file of its own here.
//!
//! [`Dispatcher::starvation`]: tidegate_core::roles::Dispatcher::starvation
//!
//! By dispatcher; `...` stands for "while a VM waits, each other VM gets":
//!
//! - `fifo`: what goes is what arrived first, among the lanes whose gate is open; nothing is left
//!   waiting while the device has room.
//! - `mclock`: while a VM waits, each other one gets at most its own weight's share of (32 of the
//!   smallest I/Os, or two of its own, and its own cost), plus two I/Os.
//! - `slo`: as `mclock`, in device time, and a stay with one stream on a disk that seeks.
//! - `sfq`: ... at most an I/O, and its own weight's share of the waiting one's last I/O, or of
//!   32 flushes; where a controller allocates rates, weights are those, and of two of them the
//!   largest quotient counts that there was while it waited.
//! - `drr`: ... at most an I/O, and (R + 1) of its quanta, where R are the waiting one's turns
//!   until its head is covered; twice that, for the turns in which the scale of the quanta changes.
//! - `lottery`: while a VM wins no draw, the sum of its chances is at most 45: more has a
//!   probability below 2^-64.
//! - `edf`: what goes is what is due first, each VM's first unit by its arrival, latency and
//!   margin; nothing is left waiting while the device has room.
//! - `bd-edf`: the same from one transfer of `max_size` before the earliest deadline on, but for
//!   one promoted background unit each `promote_background_after`; and the device may be left alone
//!   while it has an I/O in flight; without promotion no background I/O goes while a VM has one
//!   that may.
//! - `deadline`: a head that has expired is started within so many I/Os as `fifo_batch`,
//!   `writes_starved` and the I/Os before it allow.
//! - `cfq`: within a class, with n other queues: n + 3 longest slices until all that come enter
//!   behind it, and n + 1 turns, each a longest slice, `slice_idle`, eight of the longest I/Os and
//!   with `group_seekers` `target_latency` (or the least turn of a kind, where that is longer); an
//!   idle VM that and `idle_class_overdue`; none beneath a class that is served, nor for idle VMs
//!   without `idle_class_overdue`.
//! - all that leave the background to the engine: a background I/O goes before a VM that may go
//!   only when none went for `background_after`; then it does.
//!
//! The service counted against a bound is reset whenever an objective or the policy changes, a VM
//! comes or goes, or (under `cfq`) a controller changes a class. Where I/Os cost device time, the
//! cost is computed here from the profile itself and the last 32 I/Os of each VM.

mod age;
mod arrival;
mod background;
mod draws;
mod due;
mod shares;
mod slices;

pub use arrival::Promise;

use super::Verdict;
use super::ledger::Ledger;
use age::Ages;
use background::BackgroundBound;
use draws::Chances;
use shares::ServedWhileWaiting;
use slices::Turns;
use tidegate_core::engine::Engine;
use tidegate_core::profile::Profile;
use tidegate_core::request::{DeviceIo, Lane, Op};
use tidegate_core::starvation::{Bound, Due};

/// State of the bound in force.
#[derive(Debug)]
pub struct Starvation {
    bound: Option<Bound>,
    /// Profile by which I/Os cost device time, where the bound is in device time.
    costs: Option<Box<Profile>>,
    served_while_waiting: ServedWhileWaiting,
    chances: Chances,
    ages: Ages,
    turns: Turns,
    leftover: BackgroundBound,
    due: Option<Due>,
}

/// Returns the bound of the policy in force, by what I/Os cost at present.
fn bound_of(engine: &Engine) -> Bound {
    (engine.policy()).starvation(&engine.config().device, engine.view().costs())
}

impl Starvation {
    /// Creates the checker of an engine with `slots` VM slots.
    pub fn new(slots: usize) -> Starvation {
        Starvation {
            bound: None,
            costs: None,
            served_while_waiting: ServedWhileWaiting::new(slots),
            chances: Chances::new(slots),
            ages: Ages::new(slots),
            turns: Turns::new(slots),
            leftover: BackgroundBound::new(slots),
            due: None,
        }
    }

    /// Resets the bound, after an objective or the policy has changed or a VM has come or gone.
    pub fn reset(&mut self, engine: &Engine) {
        let bound = bound_of(engine);
        self.bound = Some(bound);
        self.leftover.reset(engine);
        // Set again below where the new bound has deadlines.
        self.due = None;
        match bound {
            Bound::Shares(shares) => {
                self.costs = engine.view().costs().cloned().map(Box::new);
                self.served_while_waiting.reset(engine, shares);
            }
            Bound::Draws(draws) => self.chances.reset(engine, draws),
            Bound::Age(expiry) => self.ages.reset(expiry),
            Bound::Deadline(due) => self.due = Some(due),
            Bound::Slices(slices) => self.turns.reset(slices),
            Bound::Arrival | Bound::Unbounded => {}
        }
    }

    /// Returns the unit that the next pick must be, where the bound determines it. Call it once
    /// everything that is due is done.
    pub fn promise(&self, engine: &Engine) -> Option<Promise> {
        match self.bound {
            Some(Bound::Arrival) => arrival::earliest_unit(engine),
            Some(Bound::Deadline(_)) => self.due.and_then(|due| due::earliest_unit(&due, engine)),
            _ => None,
        }
    }

    /// Checks a device I/O that has started. `first` is the arrival number of its unit, `promise`
    /// the result of [`promise`](Self::promise) before the pick.
    ///
    /// # Errors
    /// Fails when another I/O should have started, or a VM was passed over for too long.
    pub fn started(
        &mut self,
        engine: &Engine,
        ledger: &Ledger,
        io: &DeviceIo,
        first: u64,
        promise: Option<Promise>,
    ) -> Verdict {
        // Learnt costs change while the policy works, and the bound with them.
        if let Some(Bound::Shares(_)) = self.bound
            && self.costs.as_deref() != engine.view().costs()
        {
            self.reset(engine);
        }
        self.leftover.started(engine, io)?;
        // The dispatcher had no part in this pick.
        if engine.view().is_background(io.vm) && self.leftover.engine_schedules_background() {
            return Ok(());
        }
        if let Some(due) = &self.due {
            due::background_kept(due, engine, io)?;
        }
        // A unit that was picked and found no payload memory could not go.
        let lacks = |p: &Promise| p.lane == Lane::Read && engine.view().lacks_memory(p.vm);
        let promise = promise.filter(|promise| !lacks(promise));
        if io.op != Op::Flush
            && let Some(promise) = promise
        {
            match self.due {
                // First come, first served: an earlier number is no violation, whichever lane it is
                // in.
                None => promise.kept(io, first)?,
                // A promoted background unit may go before what is due.
                Some(d) if d.promotes && engine.view().is_background(io.vm) => {}
                Some(_) => promise.kept_exactly(io)?,
            }
        }
        match self.bound {
            Some(Bound::Shares(_)) => self.served_while_waiting.started(engine, io),
            Some(Bound::Draws(_)) => self.chances.started(engine, io),
            Some(Bound::Age(_)) if io.op != Op::Flush => self.ages.started(engine, ledger),
            Some(Bound::Slices(_)) => self.turns.started(engine, io),
            _ => Ok(()),
        }
    }

    /// Records a device I/O that has started while a disk hangs. No bound is checked then, but
    /// costs that are checked later depend on the addresses of each VM's earlier I/Os.
    pub fn started_beside_hung(&mut self, engine: &Engine, io: &DeviceIo) {
        let passed_over =
            engine.view().is_background(io.vm) && self.leftover.engine_schedules_background();
        if let (Some(Bound::Shares(_)), false) = (self.bound, passed_over) {
            self.served_while_waiting.follow_unchecked(engine, io);
        }
    }

    /// Checks a device that has room while nothing goes.
    ///
    /// # Errors
    /// Fails when a unit should have gone.
    pub fn idle(&mut self, engine: &Engine) -> Verdict {
        // The dispatcher may leave the device alone, to end an I/O before one with a deadline.
        if self.due.is_some_and(|d| d.may_drain) && engine.device_stats().in_flight > 0 {
            return Ok(());
        }
        match (self.bound, self.promise(engine)) {
            (Some(Bound::Slices(_)), _) => self.turns.check_waits(engine),
            (_, Some(promise)) => promise.broken(),
            (_, None) => Ok(()),
        }
    }
}
