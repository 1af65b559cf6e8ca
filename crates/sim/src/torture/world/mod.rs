//! One run: the engine between guests and a device, and all checkers around it.
//!
//! ```text
//!   guests --handle_request--> engine --poll_dispatch--> device
//!      ^                         |  ^                      |
//!      +------- poll_done -------+  +- handle_completion --+
//! ```
//!
//! A turn is a batch of what is due (requests, ends of I/Os, faults), then the timeouts, then
//! all that goes to the device and all answers, as the daemon's loop does it.

mod control;
mod device;
mod disks;
mod dispatch;
mod end;
mod faults;
mod guests;
mod hung;
mod jobs;
mod payload;
mod requests;

use super::fickle::Fickle;
use super::journal::{Journal, What};
use super::swarm::Swarm;
use super::{Dice, Plant, Window};
use crate::checker::budgets::Budgets;
use crate::checker::charges::Charges;
use crate::checker::credits::Credits;
use crate::checker::jobs::Jobs;
use crate::checker::ledger::Ledger;
use crate::checker::limits::Limits;
use crate::checker::starvation::Starvation;
use crate::checker::{Verdict, answers};
use crate::fault::Kind;
use core::cmp::Reverse;
use device::{Device, Flight};
use guests::{Client, Disk, Guest};
use hung::Hung;
use std::collections::BinaryHeap;
use std::sync::Arc;
use tidegate_core::engine::Engine;
use tidegate_core::profile::{Curve, Profile};
use tidegate_core::request::{Done, Segment};
use tidegate_core::time::Nanos;

/// Something that is due at a time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Event {
    /// A client may ask for something.
    Ask(u32),
    /// The device is done with the I/O in this slot.
    End(u32),
    /// Word of its end arrives.
    Deliver(u32),
    /// Word of an end arrives once more.
    Again(u64),
    /// A fault comes.
    Fault(Kind),
    /// A client comes back.
    Back(u32),
    /// A VM comes in place of a removed one.
    NewVm,
    /// A VM's job begins, or is cancelled.
    Job,
    /// A reply in this place has reached its client.
    Sent(u32),
    /// The driver has the engine look for disks that hang.
    Look,
}

/// See the [module](self).
pub(super) struct World<'a, 'j> {
    swarm: Swarm,
    engine: Engine,
    now: Nanos,
    events: BinaryHeap<Reverse<(Nanos, u64, Event)>>,
    order: u64,
    /// The engine's timeout that was seen last, and when the driver will come to it.
    wake: (Nanos, Nanos),
    journal: &'a mut Journal<'j>,
    plant: &'a mut dyn Plant,

    guests: Vec<Guest>,
    disks: Vec<Disk>,
    /// The disk's number by the slot of its handle.
    by_slot: Vec<u32>,
    clients: Vec<Client>,
    /// By request: its client here, and the floors a read took along.
    askers: Vec<u32>,
    floors: Vec<Vec<u64>>,
    spare_floors: Vec<Vec<u64>>,
    /// By request: it holds, or held, payload memory.
    fed: Vec<bool>,
    replies: Vec<Option<payload::Reply>>,
    budgets: Budgets,
    /// Memory was given back since the device was last given work.
    memory_came_back: bool,
    next_base: u64,
    running: bool,

    device: Device,
    flights: Vec<Flight>,
    segments: Vec<Segment>,

    ledger: Ledger,
    charges: Charges,
    limits: Limits,
    credits: Credits,
    jobs: Jobs,
    starvation: Starvation,
    hung: Hung,
    /// Requests that are to be answered by the end of this turn.
    over: Vec<u32>,
    dones: Vec<Done>,

    load: Dice,
    chance: Dice,
    fresh: Dice,
    policies: Dice,
    profiles: Dice,
    resizes: Dice,
    job_dice: Dice,
    reply_dice: Dice,
    /// How much it was.
    pub(super) tally: Tally,
}

/// How much a run was.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Tally {
    /// Guest requests accepted.
    pub requests: u64,
    /// I/Os that went to the device.
    pub ios: u64,
    /// Faults that struck.
    pub faults: u64,
}

impl<'a, 'j> World<'a, 'j> {
    pub(super) fn new(
        seed: u64,
        swarm: Swarm,
        journal: &'a mut Journal<'j>,
        plant: &'a mut dyn Plant,
    ) -> World<'a, 'j> {
        let config = swarm.config;
        let mut engine = Engine::new(config, &swarm.policy).expect("the configuration is sound");
        if let Some(payload) = &swarm.payload {
            engine.bound_payload(payload);
        }
        if !plant.divides() {
            engine.leave_undivided();
        }
        engine.set_profile(swarm.profile.clone());
        engine.learn_costs(seed.is_multiple_of(2));
        let (window, fickle, wrap) = (swarm.window, swarm.fickle, plant.roles());
        let credits = Credits::default();
        credits.announce(&swarm.policy);
        let audit = credits.wrapper();
        engine.wrap_roles(Nanos::ZERO, move |roles| {
            let roles = match window {
                Some(most) => Window::instead_of_open(most, roles),
                None => roles,
            };
            let roles = match fickle {
                true => Fickle::in_front(seed, roles),
                false => roles,
            };
            audit(match wrap {
                Some(wrap) => wrap(roles),
                None => roles,
            })
        });
        let now = Nanos(1 + seed % 1000);
        if let Some(cap) = &swarm.cap {
            engine.set_profile(cap.profile.map(|iops| Arc::new(profile(iops))));
            engine.learn_cap(true);
            engine.assume_cap(now, cap.assumed.0, cap.assumed.1);
        }
        engine.adapt_depth(now, swarm.adapts_depth);
        engine.share_io(swarm.shared_io);
        let hung = Hung::new(&swarm, Dice::new(seed, 18));
        let mut slots = config.device.depth;
        if let Some(patience) = hung.patience() {
            engine.set_hung_disks_aside(now, patience);
            slots = config.device.io_slots();
        }
        World {
            engine,
            now,
            events: BinaryHeap::with_capacity(1024),
            order: 0,
            wake: (Nanos::MAX, Nanos::MAX),
            journal,
            plant,
            guests: Vec::new(),
            disks: Vec::new(),
            by_slot: Vec::new(),
            clients: Vec::new(),
            askers: Vec::new(),
            floors: Vec::new(),
            spare_floors: Vec::new(),
            fed: Vec::new(),
            replies: Vec::new(),
            budgets: Budgets::new(swarm.payload),
            memory_came_back: false,
            next_base: swarm.base,
            running: true,
            device: Device::new(&swarm, Dice::new(seed, 3)),
            flights: (0..slots).map(|_| Flight::default()).collect(),
            segments: Vec::new(),
            ledger: Ledger::new(config),
            charges: Charges::default(),
            limits: Limits::default(),
            credits,
            jobs: Jobs::default(),
            starvation: Starvation::new(config.max_vms as usize),
            hung,
            over: Vec::new(),
            dones: Vec::new(),
            load: Dice::new(seed, 4),
            chance: Dice::new(seed, 5),
            fresh: Dice::new(seed, 6),
            policies: Dice::new(seed, 7),
            profiles: Dice::new(seed, 10),
            resizes: Dice::new(seed, 12),
            job_dice: Dice::new(seed, 17),
            reply_dice: Dice::new(seed, 19),
            tally: Tally::default(),
            swarm,
        }
    }

    /// The whole run.
    pub(super) fn run(&mut self) -> Verdict {
        for plan in std::mem::take(&mut self.swarm.vms) {
            self.add_vm(&plan)?;
        }
        self.begin_faults();
        self.schedule_job();
        let last = Nanos(self.now.0 + self.swarm.span.0 * 20 + Nanos::SECOND.0);
        let turns = self.swarm.requests as u64 * 50;
        for _ in 0..turns {
            let enough = self.tally.requests >= self.swarm.requests as u64;
            if enough || self.now > last || !self.turn()? {
                break;
            }
        }
        self.stop_faults();
        self.drain()?;
        self.settled()?;
        self.slots_are_free()
    }

    /// What is left after a failure: an engine with open requests must not be dropped.
    pub(super) fn abandon(self) {
        core::mem::forget(self.engine);
    }

    fn at(&mut self, time: Nanos, event: Event) {
        self.order += 1;
        self.events.push(Reverse((time, self.order, event)));
    }

    /// What the driver says the time is.
    fn clock(&mut self) -> Nanos {
        if self.strikes(Kind::ClockBack) {
            let back = self.swarm.plan.how_long(&mut self.chance);
            return self.now - back;
        }
        self.now
    }

    fn write(&mut self, what: What, figures: [u64; 5]) {
        self.journal.write(self.now, what, figures);
    }

    /// When something is due next.
    fn next(&mut self) -> Option<Nanos> {
        let event = self.events.peek().map_or(Nanos::MAX, |e| e.0.0);
        let device = self.device.next_completion().unwrap_or(Nanos::MAX);
        let due = self.engine.next_timeout().unwrap_or(Nanos::MAX);
        if due != self.wake.0 {
            let late = match self.strikes(Kind::LateTimeout) {
                true => self.swarm.plan.how_long(&mut self.chance),
                false => Nanos::ZERO,
            };
            self.wake = (due, due + late);
        }
        let next = event.min(device).min(self.wake.1);
        (next != Nanos::MAX).then_some(next)
    }

    /// One turn of the driver. False when nothing is due ever.
    fn turn(&mut self) -> Result<bool, crate::checker::Broken> {
        let Some(next) = self.next() else {
            return Ok(false);
        };
        self.now = self.now.max(next);
        let (in_flight, waiting) = (self.engine.facts().in_flight, self.ledger.open.len());
        self.write(What::Wake, [in_flight.into(), waiting as u64, 0, 0, 0]);
        for slot in self.device.completed(self.now) {
            self.io_ended(slot)?;
        }
        for _ in 0..1 + self.chance.below(8) {
            match self.events.peek() {
                Some(&Reverse((at, _, event))) if at <= self.now => {
                    self.events.pop();
                    self.happen(event)?;
                }
                _ => break,
            }
        }
        // Answers hold memory that reads wait for, until they are taken.
        if self.chance.chance(300) || self.budgets.is_bounded() {
            self.take_answers()?;
        }
        self.dispatch()?;
        self.take_answers()?;
        if core::mem::take(&mut self.memory_came_back) {
            self.dispatch()?;
        }
        Ok(true)
    }

    fn happen(&mut self, event: Event) -> Verdict {
        match event {
            Event::Ask(client) => self.ask(client),
            Event::End(slot) => self.io_ended(slot),
            Event::Deliver(slot) => self.deliver(slot),
            Event::Again(io) => self.deliver_again(io),
            Event::Fault(kind) => self.fault(kind),
            Event::Back(client) => self.come_back(client),
            Event::NewVm => {
                let plan = self.swarm.vm(&mut self.fresh);
                self.add_vm(&plan)
            }
            Event::Job => self.change_job(),
            Event::Sent(place) => self.sent(place),
            Event::Look => self.look_for_hung_disks(),
        }
    }

    fn take_answers(&mut self) -> Verdict {
        let mut any = false;
        while let Some(done) = self.engine.poll_done() {
            any = true;
            self.reply(&done)?;
            let mut dones = std::mem::take(&mut self.dones);
            dones.clear();
            self.plant.answers(done, &mut dones);
            for done in &dones {
                self.answer(done)?;
            }
            self.dones = dones;
        }
        answers::none_missing(&self.ledger, &mut self.over)?;
        if any {
            self.room_again();
        }
        self.hear_of_jobs()
    }
}

/// A device that does so many I/Os a second of 4 KiB, and 16 times as long for a mebibyte.
fn profile(iops: u64) -> Profile {
    let points = [(4096, iops as f64), (1 << 20, iops as f64 / 16.0)];
    let curve = Curve::new(&points).expect("rates are positive");
    let both = [curve.clone(), curve];
    Profile::new(both.clone(), Some(both), Vec::new(), Vec::new())
}

/// The journal's number of how something ended.
fn figure(outcome: tidegate_core::request::Outcome) -> u64 {
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
