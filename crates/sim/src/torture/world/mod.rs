//! Torture run: the engine between guests and a device, with all checkers around it.
//!
//! ```text
//!   guests --handle_request--> engine --poll_dispatch--> device
//!      ^                         |  ^                      |
//!      +------- poll_done -------+  +- handle_completion --+
//! ```
//!
//! This driver and ledger are separate from those of `tidegate_testkit`, because they are part of
//! `tidegate torture`: their checkers return verdicts instead of panicking, and they also check
//! contents, replies and schedules.
//!
//! A turn is a batch of due events (requests, ends of I/Os, faults), then the timeouts, then all
//! dispatches and all answers, in the order of the daemon's loop.

mod checks;
mod control;
mod device;
mod disk_limits;
mod disks;
mod dispatch;
mod faults;
mod final_checks;
mod hung;
mod in_flight;
mod inventory;
mod load;
mod payload;
mod replies;
mod request_table;
mod requests;
mod schedule;
mod setup;
mod transfers;
mod vms;

use super::journal::{EventKind, Journal};
use super::swarm::Swarm;
use super::{Plant, TortureRng};
use crate::checker::{Verdict, answers};
use crate::fault::Kind;
use checks::Checks;
use device::Device;
use disk_limits::DiskLimits;
use faults::Faults;
use hung::HungDisk;
use in_flight::Flights;
use inventory::Inventory;
use load::Load;
use replies::Replies;
use request_table::RequestTable;
use schedule::{Event, Schedule};
use tidegate_core::engine::Engine;
use tidegate_core::request::{Done, Segment};
use tidegate_core::time::Nanos;

/// Most due events that one turn handles; a turn draws their number, as a driver's batches vary.
const TURN_EVENTS_MAX: u64 = 8;
/// Thousandths of the turns that take answers before they dispatch.
const ANSWERS_FIRST_PER_MILLE: u32 = 300;
/// Longest run, as a multiple of the planned span: stalls and limits stretch a run.
const SPAN_FACTOR: u64 = 20;
/// Most turns of a run for each planned request.
const TURNS_PER_REQUEST: u64 = 50;

/// Torture run. See the [module](self).
pub(super) struct TortureWorld<'a, 'j> {
    /// Random choice of the features that this run uses (swarm testing, Groce et al., ISSTA 2012).
    swarm: Swarm,
    engine: Engine,
    now: Nanos,
    /// `true` while guests submit requests and faults strike.
    running: bool,
    schedule: Schedule,
    faults: Faults,
    load: Load,
    draws: Draws,
    inventory: Inventory,
    requests: RequestTable,
    replies: Replies,
    device: Device,
    flights: Flights,
    hung: HungDisk,
    disk_limits: DiskLimits,
    checks: Checks,
    journal: &'a mut Journal<'j>,
    /// Bug that is planted to test the checkers; none in a normal run.
    plant: &'a mut dyn Plant,
    /// Guest requests accepted.
    accepted: u64,
    /// I/Os that went to the device.
    ios: u64,
    /// `true` if memory was returned since the device was last given work.
    memory_came_back: bool,
    /// Segments of the I/O that is being started; reused, to avoid an allocation for each I/O.
    segments: Vec<Segment>,
    /// Answers that are being handled; reused likewise.
    dones: Vec<Done>,
}

/// Generators of changes in a run, a stream for each kind.
struct Draws {
    /// Objectives, VMs and disks that are added.
    fresh: TortureRng,
    policies: TortureRng,
    profiles: TortureRng,
    resizes: TortureRng,
    transfers: TortureRng,
}

/// Size of a run.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Tally {
    /// Guest requests accepted.
    pub requests: u64,
    /// I/Os that went to the device.
    pub ios: u64,
    /// Faults that struck.
    pub faults: u64,
}

impl<'a, 'j> TortureWorld<'a, 'j> {
    /// Runs from begin to end.
    pub(super) fn run(&mut self) -> Verdict {
        self.add_shared_limits();
        // Taken out of the swarm, which `add_vm` borrows.
        for plan in std::mem::take(&mut self.swarm.vms) {
            self.add_vm(&plan)?;
        }
        self.begin_faults();
        self.schedule_transfer();
        // Beyond these bounds the run drains with fewer requests.
        let last = Nanos(self.now.0 + self.swarm.span.0 * SPAN_FACTOR + Nanos::SECOND.0);
        let turns = self.swarm.requests as u64 * TURNS_PER_REQUEST;
        for _ in 0..turns {
            let enough = self.accepted >= self.swarm.requests as u64;
            if enough || self.now > last || !self.turn()? {
                break;
            }
        }
        self.stop_faults();
        self.drain()?;
        self.check_settled()?;
        self.check_slots_free()
    }

    /// Leaks the engine after a failure, because an engine must not be dropped with open requests.
    pub(super) fn abandon(self) {
        core::mem::forget(self.engine);
    }

    /// Size of the run so far.
    pub(super) fn tally(&self) -> Tally {
        Tally {
            requests: self.accepted,
            ios: self.ios,
            faults: self.faults.struck(),
        }
    }

    /// Adds an event at the current time to the journal.
    fn record(&mut self, kind: EventKind, figures: [u64; 5]) {
        self.journal.record(self.now, kind, figures);
    }

    /// Time at which something is due next; `None` if nothing ever is.
    fn next(&mut self) -> Option<Nanos> {
        let device = self.device.next_completion().unwrap_or(Nanos::MAX);
        let timeout = self.engine.next_timeout();
        let faults = &mut self.faults;
        let due = (self.schedule).next(timeout, || faults.lateness(Kind::LateTimeout));
        let next = due.min(device);
        (next != Nanos::MAX).then_some(next)
    }

    /// Runs one turn of the driver. Returns `false` when nothing will ever be due.
    fn turn(&mut self) -> Result<bool, crate::checker::Broken> {
        let Some(next) = self.next() else {
            return Ok(false);
        };
        // Events that were due in a stall of the driver are handled now, late.
        self.now = self.now.max(next);
        let (in_flight, waiting) = (
            self.engine.device_stats().in_flight,
            self.checks.ledger.open.len(),
        );
        self.record(EventKind::Wake, [in_flight.into(), waiting as u64, 0, 0, 0]);
        for slot in self.device.completed(self.now) {
            self.io_ended(slot)?;
        }
        // A driver's loop handles events in batches of varying size.
        for _ in 0..1 + self.faults.rng.below(TURN_EVENTS_MAX) {
            let Some(event) = self.schedule.due(self.now) else {
                break;
            };
            self.handle_event(event)?;
        }
        // Answers hold memory that reads wait for, until they are taken.
        if self.faults.rng.chance(ANSWERS_FIRST_PER_MILLE) || self.checks.budgets.is_bounded() {
            self.process_completions()?;
        }
        self.dispatch()?;
        self.process_completions()?;
        // Reads that lacked memory go in the same turn, as in the daemon's loop.
        if core::mem::take(&mut self.memory_came_back) {
            self.dispatch()?;
        }
        Ok(true)
    }

    fn handle_event(&mut self, event: Event) -> Verdict {
        match event {
            Event::SubmitRequest(client) => self.submit_request(client),
            Event::IoEnded(slot) => self.io_ended(slot),
            Event::Deliver(slot) => self.deliver(slot),
            Event::DuplicateCompletion(io) => self.deliver_again(io),
            Event::Fault(kind) => self.fault(kind),
            Event::Reconnect(client) => self.reconnect(client),
            Event::NewVm => {
                let plan = self.swarm.vm(&mut self.draws.fresh);
                self.add_vm(&plan)
            }
            Event::Transfer => self.change_transfer(),
            Event::ReplySent(place) => self.reply_sent_at(place),
            Event::CheckHungDisks => self.detect_hung_disks(),
        }
    }

    /// Takes all answers of the engine, and checks and delivers them.
    fn process_completions(&mut self) -> Verdict {
        let mut any = false;
        while let Some(done) = self.engine.poll_done() {
            any = true;
            // Before a planted bug may drop or repeat the answer: memory is the engine's concern.
            self.reply(&done)?;
            let mut dones = std::mem::take(&mut self.dones);
            dones.clear();
            self.plant.answers(done, &mut dones);
            for done in &dones {
                self.answer(done)?;
            }
            self.dones = dones;
        }
        answers::none_missing(&self.checks.ledger, &mut self.checks.over)?;
        if any {
            self.inventory
                .schedule_refused_clients(&mut self.schedule, self.now, self.running);
        }
        self.process_transfer_ends()
    }
}

/// Returns the journal's code of an outcome. Codes never change: recorded journals are compared.
fn outcome_code(outcome: tidegate_core::request::Outcome) -> u64 {
    use tidegate_core::request::IoError;
    match outcome {
        Ok(()) => 0,
        Err(IoError::Io) => 1,
        Err(IoError::NoSpace) => 2,
        Err(IoError::ReadOnly) => 3,
        Err(IoError::Unsupported) => 4,
        Err(IoError::Cancelled) => 5,
        Err(IoError::BeyondEnd) => 6,
    }
}
