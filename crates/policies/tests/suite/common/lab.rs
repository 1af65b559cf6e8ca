//! Test bed that compares a dispatcher with a slow, obvious model on random histories: arrivals,
//! sizes, merging, splitting, gates, weights, failures, disconnects, removed VMs, changes of
//! policy.
//!
//! The lab passes every event on to the model. Before each dispatch the model names the unit that
//! must be started next, and the engine's choice is compared with it. A *guest* is one of
//! [`GUESTS`] places, each with a VM, its disk and its client; a *unit* is a request, or several
//! merged ones, that waits in the dispatcher.

use super::{Driver, costs};
use proptest::prelude::*;
use std::sync::Arc;
use tidegate_core::engine::{DeviceSpec, EngineConfig};
use tidegate_core::objective::{Limit, Objective, Priority, Rate};
use tidegate_core::part::Capacity;
use tidegate_core::request::{
    ClientId, DeviceIo, DiskId, IoError, IoId, Lane, Op, ReqId, Request, Segment, VmId,
};
use tidegate_core::roles::{Dispatcher, Event, Knob, Pick};
use tidegate_core::splitting::MaxIoShared;
use tidegate_core::starvation::DeadlineFrom;
use tidegate_core::time::Nanos;
use tidegate_core::view::Unit;
use tidegate_policies::policy::PolicySpec;

/// Physical block of the device in bytes.
pub const BLOCK: u32 = 4096;
/// Largest I/O in bytes.
pub const MAX_IO: u32 = 16 * BLOCK;
/// Merge limit in bytes, where merging is enabled.
const MERGE_LIMIT: u32 = 8 * BLOCK;
/// Number of guests.
pub const GUESTS: usize = 6;
/// Size of each guest's disk in blocks.
const DISK_BLOCKS: u64 = 256;

/// Step of a history. `guest` is a number below [`GUESTS`].
#[derive(Clone, Debug)]
pub enum Step {
    /// A guest submits a request.
    Request {
        guest: usize,
        op: Op,
        /// Block of the guest's disk at which the request begins.
        first_block: u64,
        blocks: u32,
    },
    /// A guest submits a read next to its last request: directly before or behind it.
    Adjacent {
        guest: usize,
        before: bool,
        blocks: u32,
    },
    /// The device starts as many I/Os as it may.
    Dispatch,
    /// An I/O in flight ends, by its number modulo their number.
    Complete { io: usize, fails: bool },
    /// Time passes.
    Wait { micros: u64 },
    /// A guest's client disconnects for the rest of the history.
    Disconnect { guest: usize },
    /// A guest's VM is removed, and a new one takes its place.
    Replace { guest: usize, weight: u32 },
    /// A guest's objective changes.
    SetWeight { guest: usize, weight: u32 },
    /// The policy changes to the one with a regulator that gates at dispatch, or without.
    SetPolicy { gated: bool },
}

/// Generates both points from which a deadline may count.
pub fn deadline_starts() -> impl Strategy<Value = DeadlineFrom> {
    prop_oneof![Just(DeadlineFrom::Arrival), Just(DeadlineFrom::Admission)]
}

/// Generates steps; `weight` generates the weights of objectives.
pub fn step(weight: impl Strategy<Value = u32> + Clone) -> impl Strategy<Value = Step> {
    let op = prop_oneof![5 => Just(Op::Read), 4 => Just(Op::Write), 1 => Just(Op::Discard)];
    let blocks = || prop_oneof![6 => 1u32..=4, 2 => 1u32..=16, 1 => 17u32..=60];
    let guest = || 0..GUESTS;
    prop_oneof![
        24 => (guest(), op, 0..DISK_BLOCKS - 60, blocks()).prop_map(
            |(guest, op, first_block, blocks)| Step::Request { guest, op, first_block, blocks },
        ),
        8 => (guest(), any::<bool>(), 1u32..=4)
            .prop_map(|(guest, before, blocks)| Step::Adjacent { guest, before, blocks }),
        20 => Just(Step::Dispatch),
        16 => (0usize..8, prop::bool::weighted(0.1))
            .prop_map(|(io, fails)| Step::Complete { io, fails }),
        6 => (0u64..30_000).prop_map(|micros| Step::Wait { micros }),
        1 => guest().prop_map(|guest| Step::Disconnect { guest }),
        1 => (guest(), weight.clone()).prop_map(|(guest, weight)| Step::Replace { guest, weight }),
        2 => (guest(), weight).prop_map(|(guest, weight)| Step::SetWeight { guest, weight }),
        1 => any::<bool>().prop_map(|gated| Step::SetPolicy { gated }),
    ]
}

/// Model of a dispatcher that applies its rules literally. The methods report events of the lab.
pub trait Model {
    /// The policy was set: the model starts without state and learns the VMs and units of the lab.
    fn reset(&mut self, lab: &Lab);
    /// A new VM has taken the place of a guest's former one.
    fn added(&mut self, lab: &Lab, guest: usize);
    /// A guest's objective changed, and with it the weight.
    fn weight_changed(&mut self, lab: &Lab, guest: usize);
    /// The first waiting unit of any VM, or the state of any gate, may have changed.
    fn refresh(&mut self, lab: &Lab);
    /// Returns the unit that must be started next; `None`: none may start now.
    fn next(&mut self, lab: &Lab) -> Option<ReqId>;
    /// An I/O was started: a unit, or a part of a split one.
    fn started(&mut self, lab: &Lab, guest: usize, io: &DeviceIo);
    /// No I/O was started, although the device has room.
    fn idle(&mut self, _lab: &Lab) {}
    /// The engine kept its room free without asking the dispatcher, so the last [`Model::next`] had
    /// no counterpart. Models whose state changes with a query take the change back here.
    fn not_asked(&mut self) {}
    /// A guest's request became a unit of its own, as it was not merged.
    fn arrived(&mut self, _lab: &Lab, _guest: usize) {}
    /// An I/O is about to complete.
    fn ending(&mut self, _lab: &Lab, _io: &DeviceIo) {}
    /// A guest's VM was removed; it keeps its slot until its I/Os in flight have ended.
    fn removed(&mut self, _lab: &Lab, _vm: VmId) {}
}

/// Configuration of a lab: its device and guests.
#[derive(Clone, Copy)]
pub struct LabConfig<'a> {
    /// Queue depth of the device.
    pub depth: u32,
    /// `true` to merge adjacent requests.
    pub merge: bool,
    /// Positioning time of the device; zero: it does not seek.
    pub positioning: Nanos,
    /// Bandwidth of the device in bytes per second; 0: unknown.
    pub bytes_per_s: u64,
    /// Initial weight of each guest.
    pub weights: &'a [u32],
    /// `true` to split large requests, so that VMs share the device I/O by I/O, and to reserve a
    /// place in its queue for a VM whose next request is expected. `false` for models whose state
    /// changes with a query, since the engine reserves a place without one.
    pub shared: bool,
    /// Latency bound of a guest of the given weight.
    pub latency: fn(u32) -> Option<Nanos>,
    /// Priority of a guest of the given weight.
    pub priority: fn(u32) -> Priority,
    /// Selects the guests that are background processes.
    pub background: fn(usize) -> bool,
}

impl<'a> LabConfig<'a> {
    /// Creates a configuration without latency bounds and background processes.
    pub fn new(depth: u32, merge: bool, weights: &'a [u32]) -> LabConfig<'a> {
        LabConfig {
            depth,
            merge,
            positioning: Nanos::ZERO,
            bytes_per_s: 0,
            weights,
            shared: !merge,
            latency: |_| None,
            priority: |_| Priority::DEFAULT,
            background: |_| false,
        }
    }
}

/// Guest of a lab.
pub struct LabGuest {
    pub vm: VmId,
    /// Client of the VM's disk; `None` once it has disconnected.
    pub client: Option<ClientId>,
    pub objective: Objective,
    /// Address of the disk on the device in bytes.
    base: u64,
    /// First byte of the last request on the disk, and the byte behind it.
    last: (u64, u64),
}

/// Engine with its driver, and the guests that submit requests.
pub struct Lab {
    pub driver: Driver,
    pub guests: Vec<LabGuest>,
    /// Units that wait, with their guests.
    pub waiting: Vec<(ReqId, usize)>,
    /// Policies without and with a regulator that gates at dispatch.
    policies: [PolicySpec; 2],
    latency: fn(u32) -> Option<Nanos>,
    priority: fn(u32) -> Priority,
    background: fn(usize) -> bool,
    /// Requests of a merged I/O that failed, which are repeated alone once they have no I/O in
    /// flight.
    to_repeat: Vec<ReqId>,
    /// Requests that failed with an I/O of their own, and are not repeated.
    failed: Vec<ReqId>,
}

/// Returns the limit of a guest: none, in requests per second, or by direction.
fn limit(guest: usize) -> Limit {
    match guest % 4 {
        1 => Limit::of_all(Rate::iops(300)),
        2 => Limit {
            read: Rate::iops(150),
            write: Rate::bytes(8_000_000),
            ..Limit::NONE
        },
        _ => Limit::NONE,
    }
}

impl Lab {
    /// Returns a waiting unit.
    pub fn unit(&self, id: ReqId) -> Unit {
        self.driver.engine.view().queued(id).unit()
    }

    /// Returns the time from which a unit's deadline counts: its arrival, or its arrival plus the
    /// time for which limits held it.
    pub fn deadline_start(&self, unit: &Unit, from: DeadlineFrom) -> Nanos {
        match from {
            DeadlineFrom::Arrival => unit.arrived,
            DeadlineFrom::Admission => {
                unit.arrived + self.driver.engine.view().queued(unit.id).held()
            }
        }
    }

    /// Returns the first waiting unit of a guest.
    pub fn head(&self, guest: usize) -> Option<ReqId> {
        self.driver.engine.view().head(self.guests[guest].vm)
    }

    /// Returns `true` if the gate of a guest's lane is open.
    pub fn open(&self, guest: usize, lane: Lane) -> bool {
        self.driver
            .engine
            .view()
            .gate_open(self.guests[guest].vm, lane)
    }

    /// Returns the guests in the order of their VMs' slots, in which gates due at one time open.
    pub fn in_order(&self) -> Vec<usize> {
        let mut all: Vec<usize> = (0..self.guests.len()).collect();
        all.sort_by_key(|&g| self.guests[g].vm.index());
        all
    }

    /// Returns the I/Os in flight, in the order of their slots.
    pub fn in_flight(&self) -> Vec<DeviceIo> {
        let mut all: Vec<DeviceIo> = self.driver.in_flight.iter().copied().collect();
        all.sort_by_key(|io| io.id.index());
        all
    }

    fn new(config: &LabConfig, policies: [PolicySpec; 2]) -> Lab {
        let engine = EngineConfig {
            device: DeviceSpec {
                depth: config.depth,
                physical_block: BLOCK,
                max_io: MAX_IO,
                zeroes_are_writes: false,
                positioning: config.positioning,
                bytes_per_s: config.bytes_per_s,
            },
            max_requests: 8192,
            max_pending_per_vm: 256,
            merge_limit: if config.merge { MERGE_LIMIT } else { 0 },
            max_vms: 2 * GUESTS as u32,
        };
        let mut lab = Lab {
            driver: Driver::new(engine, &policies[1]).with_clock_at(Nanos::SECOND),
            guests: Vec::new(),
            waiting: Vec::new(),
            policies,
            latency: config.latency,
            priority: config.priority,
            background: config.background,
            to_repeat: Vec::new(),
            failed: Vec::new(),
        };
        lab.driver
            .engine
            .device_mut()
            .set_profile(Some(Arc::new(costs::profile())));
        if config.shared {
            lab.driver
                .engine
                .device_mut()
                .set_max_io_shared(MaxIoShared::Bytes(2 * BLOCK));
        }
        for (guest, &weight) in config.weights.iter().enumerate() {
            let guest = lab.add_guest(guest, weight);
            lab.guests.push(guest);
        }
        lab
    }

    /// Adds a VM with a disk and a client for the guest with this number.
    fn add_guest(&mut self, guest: usize, weight: u32) -> LabGuest {
        let objective = Objective {
            weight,
            limit: limit(guest),
            latency: (self.latency)(weight),
            priority: (self.priority)(weight),
            ..Objective::default()
        };
        let vm = if (self.background)(guest) {
            self.driver.try_background(&objective)
        } else {
            self.driver.try_vm(&objective)
        };
        let vm = vm.expect("room");
        let base = self.driver.tallies.len() as u64 * DISK_BLOCKS * BLOCK as u64;
        let size = DISK_BLOCKS * BLOCK as u64;
        let client = self.driver.guest_at(vm, base, size).client;
        LabGuest {
            vm,
            client: Some(client),
            objective,
            base,
            last: (0, 0),
        }
    }

    fn apply(&mut self, model: &mut impl Model, step: Step) {
        match step {
            Step::Request {
                guest,
                op,
                first_block,
                blocks,
            } => {
                let offset = first_block * u64::from(BLOCK);
                self.request(model, guest, op, offset, blocks * BLOCK);
            }
            Step::Adjacent {
                guest,
                before,
                blocks,
            } => {
                let (begin, end) = self.guests[guest].last;
                let len = blocks * BLOCK;
                let offset = if before {
                    begin.saturating_sub(len as u64)
                } else {
                    end
                };
                if offset + (len as u64) < DISK_BLOCKS * BLOCK as u64 {
                    self.request(model, guest, Op::Read, offset, len);
                }
            }
            Step::Dispatch => self.dispatch(model),
            Step::Complete { io, fails } => self.complete(model, io, fails),
            Step::Wait { micros } => self.advance(model, Nanos::from_micros(micros)),
            Step::Disconnect { guest } => {
                if let Some(client) = self.guests[guest].client.take() {
                    self.driver.disconnect(client);
                    self.waiting.retain(|w| w.1 != guest);
                }
            }
            Step::Replace { guest, weight } => {
                let vm = self.guests[guest].vm;
                // The leaving VM and the new one need a slot each. Without a free one the guest
                // stays.
                let stays_in_slot = self.driver.engine.vms().in_flight(vm) > 0;
                if self.driver.engine.view().vm_slots() >= 2 * GUESTS && stays_in_slot {
                    return;
                }
                self.driver.remove_vm(vm);
                model.removed(self, vm);
                self.waiting.retain(|w| w.1 != guest);
                model.refresh(self);
                self.guests[guest] = self.add_guest(guest, weight);
                model.added(self, guest);
            }
            Step::SetWeight { guest, weight } => {
                self.guests[guest].objective.weight = weight;
                self.guests[guest].objective.latency = (self.latency)(weight);
                self.guests[guest].objective.priority = (self.priority)(weight);
                let LabGuest { vm, objective, .. } = &self.guests[guest];
                self.driver.set_objective(*vm, objective);
                model.weight_changed(self, guest);
            }
            Step::SetPolicy { gated } => {
                let policy = self.policies[usize::from(gated)].clone();
                self.driver.set_policy(&policy);
                model.reset(self);
            }
        }
        model.refresh(self);
    }

    fn request(&mut self, model: &mut impl Model, guest: usize, op: Op, offset: u64, len: u32) {
        let state = &mut self.guests[guest];
        let Some(client) = state.client else { return };
        let merged = self.driver.engine.vms().vm_stats(state.vm).merged;
        let request = Request {
            op,
            ..Request::read(offset, len, 0)
        };
        let Ok(id) = self.driver.request(client, request) else {
            return;
        };
        state.last = (offset, offset + len as u64);
        if self.driver.engine.vms().vm_stats(state.vm).merged == merged {
            self.waiting.push((id, guest));
            model.arrived(self, guest);
        }
    }

    /// Advances the time, one wake-up after the other.
    fn advance(&mut self, model: &mut impl Model, span: Nanos) {
        let end = self.driver.now + span;
        while let Some(due) = self.driver.engine.next_timeout().filter(|&due| due <= end) {
            self.driver.now = self.driver.now.max(due);
            self.driver.engine.handle_timeout(self.driver.now);
            model.refresh(self);
            // A time-out that is still due is the dispatcher's, which has to be asked.
            if self.driver.engine.next_timeout() == Some(due) {
                self.start(model);
                assert_ne!(
                    self.driver.engine.next_timeout(),
                    Some(due),
                    "the time-out is due, and starting an I/O did not change it"
                );
            }
        }
        self.driver.now = end;
    }

    fn dispatch(&mut self, model: &mut impl Model) {
        self.advance(model, Nanos::ZERO);
        self.start(model);
    }

    fn start(&mut self, model: &mut impl Model) {
        while self.driver.engine.device_stats().in_flight < self.driver.engine.config().device.depth
        {
            let expected = model.next(self);
            let left = expected.map(|id| (self.unit(id).addr, self.unit(id).len));
            let io = self.driver.start();
            if io.is_none() && self.driver.engine.device().is_dispatch_blocked() {
                return model.not_asked();
            }
            assert_eq!(io.is_some(), expected.is_some(), "{expected:?}, not {io:?}");
            let (Some(io), Some(id), Some((addr, len))) = (io, expected, left) else {
                return model.idle(self);
            };
            let segments: Vec<Segment> = self.driver.engine.io_segments(io.id).collect();
            let reqs: Vec<ReqId> = segments.iter().map(|s| s.req).collect();
            assert!(reqs.contains(&id), "{id:?}, not {io:?} of {reqs:?}");
            assert_eq!(io.addr, addr);
            if io.len > len {
                check_merged_io(&io, &segments, len);
            }
            if io.len >= len {
                self.waiting.retain(|w| !reqs.contains(&w.0));
            }
            let guest = self.guests.iter().position(|g| g.vm == io.vm);
            let guest = guest.expect("the I/O is of a guest's VM");
            model.started(self, guest, &io);
            model.refresh(self);
        }
    }

    fn complete(&mut self, model: &mut impl Model, nth: usize, fails: bool) {
        let in_flight = self.driver.in_flight.len();
        if in_flight == 0 {
            return;
        }
        let nth = nth % in_flight;
        let io = self.driver.in_flight[nth];
        let reqs = self.requests_of(&io);
        let outcome = if fails { Err(IoError::Io) } else { Ok(()) };
        model.ending(self, &io);
        self.driver.end_nth(nth, outcome);
        let guest = self.guests.iter().position(|guest| guest.vm == io.vm);
        let connected = guest.filter(|&guest| self.guests[guest].client.is_some());
        // The requests of a merged I/O that failed are repeated one by one; a request that failed
        // alone is not.
        match reqs.as_slice() {
            [alone] if fails => {
                self.waiting.retain(|w| w.0 != *alone);
                self.to_repeat.retain(|req| req != alone);
                self.failed.push(*alone);
            }
            all if fails && connected.is_some() => {
                let failed = &self.failed;
                let own = all.iter().filter(|req| !failed.contains(req));
                self.to_repeat.extend(own);
            }
            _ => {}
        }
        for req in reqs {
            let mut others = self.driver.in_flight.iter();
            let is_in_flight = others.any(|io| self.requests_of(io).contains(&req));
            if self.to_repeat.contains(&req) && !is_in_flight {
                self.to_repeat.retain(|&other| other != req);
                self.waiting.extend(connected.map(|guest| (req, guest)));
            }
        }
    }

    /// Returns the requests that an I/O in flight has a part of.
    fn requests_of(&self, io: &DeviceIo) -> Vec<ReqId> {
        let segments = self.driver.engine.io_segments(io.id);
        segments.map(|segment| segment.req).collect()
    }

    /// Ends the history: completes all I/Os without errors until nothing waits.
    fn drain(mut self, model: &mut impl Model) {
        for _ in 0..100_000 {
            self.dispatch(model);
            while !self.driver.in_flight.is_empty() {
                self.complete(model, 0, false);
                model.refresh(&self);
            }
            if self.driver.engine.is_idle() {
                assert!(self.waiting.is_empty());
                return;
            }
            let due = self.driver.engine.next_timeout().unwrap_or(self.driver.now);
            self.advance(model, due - self.driver.now);
        }
        panic!("requests still wait after 100,000 rounds");
    }
}

/// Asserts that a merged I/O carries whole requests beyond the unit's own bytes, within the merge
/// limit.
fn check_merged_io(io: &DeviceIo, segments: &[Segment], len: u32) {
    assert!(io.len <= MERGE_LIMIT, "{io:?}");
    let mut at = 0;
    for segment in segments {
        let own = at < len;
        at += segment.len;
        assert!(own || segment.offset == 0, "{segment:?} of {io:?}");
        assert!(!own || at <= len, "{segment:?} of {io:?}");
    }
}

/// Runs a history. `policies`: without and with a regulator that gates at dispatch.
pub fn run(
    depth: u32,
    merge: bool,
    weights: &[u32],
    policies: [PolicySpec; 2],
    model: &mut impl Model,
    steps: Vec<Step>,
) {
    run_on(
        &LabConfig::new(depth, merge, weights),
        policies,
        model,
        steps,
    );
}

/// Runs a history as [`run`] does, with the given device and guests.
pub fn run_on(
    config: &LabConfig,
    policies: [PolicySpec; 2],
    model: &mut impl Model,
    steps: Vec<Step>,
) {
    let mut lab = Lab::new(config, policies);
    model.reset(&lab);
    for step in steps {
        lab.apply(model, step);
    }
    lab.drain(model);
}

/// Model without expectations.
struct NoModel;

impl Model for NoModel {
    fn reset(&mut self, _lab: &Lab) {}
    fn added(&mut self, _lab: &Lab, _guest: usize) {}
    fn weight_changed(&mut self, _lab: &Lab, _guest: usize) {}
    fn refresh(&mut self, _lab: &Lab) {}
    fn next(&mut self, _lab: &Lab) -> Option<ReqId> {
        None
    }
    fn started(&mut self, _lab: &Lab, _guest: usize, _io: &DeviceIo) {}
}

/// Returns how often a dispatcher picks each of two VMs with four waiting requests, as if each I/O
/// were followed by the next, in each half of the picks. Between the halves a controller sets the
/// second VM's weight to `weight`.
pub fn picks_with_a_knob(
    make: impl Fn(&Capacity) -> Box<dyn Dispatcher>,
    picks: usize,
    weight: u32,
) -> [[usize; 2]; 2] {
    picks_with_knobs(make, false, picks, [&[], &[(1, Knob::Weight(weight))]])
}

/// Returns picks as [`picks_with_a_knob`] does, with `knobs` set at the beginning and after half of
/// the picks, under a controller that allocates rates (`allocated`) or one that does not.
pub fn picks_with_knobs(
    make: impl Fn(&Capacity) -> Box<dyn Dispatcher>,
    allocated: bool,
    picks: usize,
    knobs: [&[(usize, Knob)]; 2],
) -> [[usize; 2]; 2] {
    let config = LabConfig::new(1, false, &[100, 100]);
    let mut lab = Lab::new(&config, [(); 2].map(|()| super::policy("fifo")));
    for guest in 0..2 {
        for n in 0..4 {
            lab.request(
                &mut NoModel,
                guest,
                Op::Read,
                n * 64 * BLOCK as u64,
                4 * BLOCK,
            );
        }
    }
    let mut dispatcher = make(&Capacity {
        vms: 8,
        requests: 1024,
        limits_kept: false,
        allocated,
        shared: false,
    });
    let view = lab.driver.engine.view();
    for guest in &lab.guests {
        dispatcher.on_event(view, &Event::VmAdded(guest.vm));
    }
    lab.waiting
        .iter()
        .for_each(|w| dispatcher.insert(view, w.0));
    let mut got = [[0; 2]; 2];
    for (half, got) in got.iter_mut().enumerate() {
        for &(guest, knob) in knobs[half] {
            dispatcher.set(view, lab.guests[guest].vm, knob);
        }
        for _ in 0..picks / 2 {
            let Pick::Start { head, .. } = dispatcher.pick(view) else {
                panic!("both VMs wait");
            };
            let unit = view.queued(head).unit();
            let io = DeviceIo {
                id: IoId::from_bits(0),
                vm: unit.vm,
                disk: DiskId::from_bits(0),
                op: unit.op,
                addr: unit.addr,
                offset: 0,
                len: unit.len,
                fua: false,
                keep_allocated: false,
                first_ops: 1,
                first_bytes: unit.len as u64,
                whole_len: unit.len,
                arrived: unit.arrived,
            };
            dispatcher.on_event(view, &Event::Started(&io));
            got[usize::from(unit.vm == lab.guests[1].vm)] += 1;
        }
    }
    got
}
