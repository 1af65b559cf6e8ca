//! The order that keeps every promise: floors and latency bounds by deadline, then shares, then the
//! background. The default.
//!
//! ```text
//!   pick:  1. a background part that its rate allows, while nothing promised is due
//!          2. what is promised and due, the earliest deadline first          (`promises`)
//!          3. shares: classes, then groups and weights by device time        (`shares`)
//!          4. the background, once the VMs are quiet                          (`background`)
//! ```
//!
//! Limits and the caps of targets are the regulator's
//! ([`limit_target`](crate::regulate::limit_target)): they hold over all of this, for a lane whose
//! gate is shut is in none of these queues.
//!
//! - **Promises** (reservation, target, deadline transfer, latency) are in one queue by deadline.
//!   Their service counts against their VM's share; service by share never against a promise
//!   (mClock's rule; Gulati, Merchant, Varman, OSDI 2010). Together they are to fit the device;
//!   where it is slower than that, they step down one by one (`overload`).
//! - **Shares** are of device time: an I/O costs what the device's profile says, or what was learnt
//!   of it. Until then it costs its bytes, at least those of a positioning (`CostModel`).
//! - **Stay.** On a disk that seeks, an I/O that continues the last one goes at once, for up to
//!   eight positionings' worth of cost, unless a deadline is near: streams of several VMs
//!   would break each other at every I/O (BD-EDF's batch; Jin et al., "Flubber", 2013).
//! - **A disk that seeks passes no promise over.** While a promised I/O has been with it for longer
//!   than its promise leaves, nothing more goes, for up to a second (`at_disk`).
//! - **Background** processes have a rate that grows while VMs do not miss it (`background`).
//!
//! Starvation bound: promises are to leave room. Then, from the moment a VM waits, each other of
//! its class is served at most by its own weight's share of (32 of the smallest I/Os + the largest
//! cost) before it, two I/Os and a stay.

mod at_disk;
mod background;
mod dither;
mod overload;
mod promises;
mod shares;

use super::cost::{CostBy, CostModel, CostParams};
use at_disk::AtDisk;
use background::BackgroundRate;
use dither::Dither;
use overload::{Change, Overload, Part};
use promises::{Head, Promises};
use shares::Shares;
use tidegate_base::device::DeviceSpec;
use tidegate_base::objective::Objective;
use tidegate_base::request::{DeviceIo, Lane, Op, ReqId, VmId};
use tidegate_base::time::Nanos;
use tidegate_capacity::profile::Profile;
use tidegate_core::facts::{Facts, moved};
use tidegate_core::part::{Capacity, Honours, PartInfo};
use tidegate_core::roles::{Dispatcher, Event, Footprint, Interests, Knob, Pick, SteppedDown};
use tidegate_core::starvation::{Bound, Cost, Lead, Shares as ShareBound, Weights};

/// Description in the registry of parts.
pub(crate) static PART: PartInfo<dyn Dispatcher> = PartInfo {
    name: "slo",
    summary: "promises by deadline, then shares of device time, then the background",
    params: &[],
    honours: Honours {
        reservation: true,
        weight: true,
        group: true,
        latency: true,
        priority: true,
        ..Honours::NONE
    },
    build: |_, capacity| Box::new(Slo::new(capacity)),
};

/// Returns whether an objective has a part that goes before shares.
pub(crate) fn is_promised(objective: &Objective) -> bool {
    let rates = [objective.reservation, objective.target];
    objective.latency.is_some() || rates.iter().any(|rate| !rate.is_none())
}

/// Smallest I/Os by which a VM may be ahead of its share because of what was promised to it.
const MOST_AHEAD: u64 = 32;
/// Smallest I/Os' worth of cost for which a disk that seeks stays with one stream: some 100 ms.
const STAY_IOS: u64 = 8;
/// Positionings before the earliest deadline within which nothing but promises goes.
const NEAR: u64 = 4;
/// Promised I/Os with a disk that seeks for which there is room at first.
const AT_DISK: usize = 32;
/// Longest request that goes beyond the adapted depth: a long one lengthens the queue for all.
const BEYOND_DEPTH: u32 = 32 << 10;
/// Bytes below which an I/O takes a flash disk about as long as one of so many.
const LEAST_COST: u32 = 16 << 10;
/// Largest I/O's worth that a positioning counts for where costs are bytes.
const LARGEST_LEAST_COST: u64 = 1 << 20;
/// Longest part of a background process, in picoseconds of the device's time.
const BACKGROUND_PART_PS: u64 = 1_000_000_000;
/// Shortest such part, in bytes.
const BACKGROUND_PART_LEAST: u32 = 64 << 10;
/// Time in which that part moves where the device's speed is not known: 256 MB/s.
const BACKGROUND_PART_UNKNOWN: u32 = 256 << 10;

/// A stream that the device stays with.
#[derive(Clone, Copy, Debug)]
struct Stay {
    /// Slot of its VM; `usize::MAX`: none.
    vm: usize,
    /// Cost that may go yet before others have their turn.
    left: u64,
}

impl Stay {
    const NONE: Stay = Stay {
        vm: usize::MAX,
        left: 0,
    };
}

/// Why the last pick was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum By {
    Promise,
    Share,
}

/// The dispatcher.
pub struct Slo {
    vms: usize,
    cost: CostModel,
    /// Costs are picoseconds of the device, by its profile or as they were learnt.
    by_time: bool,
    promises: Promises,
    overload: Overload,
    /// By slot: the order in which target and latency bound were accepted; 0: neither was.
    accepted: Vec<[u64; 2]>,
    /// Latest number given there.
    newest: u64,
    /// Room for the promises that step down or come back at a time.
    stepping: Vec<(usize, Part)>,
    shares: Shares,
    background: BackgroundRate,
    /// Background processes with something that may go.
    background_waiting: u32,
    /// By slot: something of the VM waits that may go.
    active: Vec<bool>,
    stay: Stay,
    last_pick: By,
    /// Most cost by which promises bring a VM ahead of its share.
    most_ahead: u64,
    /// Longest part of a background process, in bytes.
    background_part: u32,
    /// Promised I/Os with a disk that seeks.
    at_disk: AtDisk,
    /// Costs are learnt: by how much charges are varied, in which window.
    dither: Dither,
}

impl Slo {
    /// Creates the dispatcher with room for all that the engine can hold.
    pub fn new(capacity: &Capacity) -> Slo {
        let vms = capacity.vms as usize;
        let mut slo = Slo {
            vms,
            cost: CostModel::new(bytes_of(0), vms),
            by_time: false,
            promises: Promises::with_capacity(vms),
            overload: Overload::with_capacity(vms),
            accepted: vec![[0; 2]; vms],
            newest: 0,
            stepping: Vec::with_capacity(vms),
            shares: Shares::with_capacity(vms),
            background: BackgroundRate::new(),
            background_waiting: 0,
            active: vec![false; vms],
            stay: Stay::NONE,
            last_pick: By::Share,
            most_ahead: 0,
            background_part: BACKGROUND_PART_UNKNOWN,
            at_disk: AtDisk::with_capacity(AT_DISK),
            dither: Dither::default(),
        };
        slo.most_ahead = MOST_AHEAD * slo.cost.flush();
        slo
    }

    /// What an I/O costs follows from the device and its profile, which are there or other ones
    /// now.
    fn set_costs(&mut self, facts: &Facts) {
        let spec = &facts.device().spec;
        self.by_time = facts.costs().is_some();
        self.cost = CostModel::new(cost_params(spec, facts.costs()), self.vms);
        self.overload.set_positioning(spec.positioning);
        self.background.restart();
        self.reckon_costs(facts);
    }

    /// Costs were learnt, or other ones.
    fn learn_costs(&mut self, facts: &Facts) {
        match self.by_time {
            true => self.reckon_costs(facts),
            false => self.set_costs(facts),
        }
    }

    fn reckon_costs(&mut self, facts: &Facts) {
        let spec = &facts.device().spec;
        self.cost.on_event(facts, &Event::ProfileChanged);
        self.most_ahead = most_ahead(&self.cost, spec);
        self.background_part = background_part(spec, facts.costs());
        // What was charged by other costs is no measure of who is ahead.
        self.shares.restart(facts.now());
    }

    fn set_vm(&mut self, facts: &Facts, vm: VmId, newcomer: bool) {
        let (slot, objective) = (vm.index(), facts.objective(vm));
        let background = facts.is_background(vm);
        (self.shares).set_vm(facts.now(), slot, objective, background, newcomer);
        if newcomer {
            self.forget_promises(slot);
        }
        self.accept(slot, objective);
        self.set_promise(facts, vm);
        self.refresh(facts, vm);
    }

    fn set_promise(&mut self, facts: &Facts, vm: VmId) {
        // The background has what VMs leave, whatever its objective says.
        if !facts.is_background(vm) {
            (self.promises).set(facts.now(), vm.index(), facts.objective(vm));
        }
    }

    /// Notes the order in which a VM's target and latency bound were accepted: in overload the
    /// newest steps down first. A part that is changed keeps its place.
    fn accept(&mut self, slot: usize, objective: &Objective) {
        let promised = [!objective.target.is_none(), objective.latency.is_some()];
        for (accepted, is_promised) in self.accepted[slot].iter_mut().zip(promised) {
            if !is_promised {
                *accepted = 0;
            } else if *accepted == 0 {
                self.newest += 1;
                *accepted = self.newest;
            }
        }
    }

    fn forget_promises(&mut self, slot: usize) {
        self.promises.clear(slot);
        self.overload.forget_vm(slot);
        self.accepted[slot] = [0; 2];
    }

    /// Has promises step down, or come back.
    #[cold]
    fn step(&mut self, facts: &Facts, change: Change) {
        let (promises, accepted) = (&self.promises, &self.accepted);
        // What a promise is ordered by within its kind, the largest first.
        let key = |part, slot: usize| match part {
            Part::Transfer => {
                let job = facts.predictor().and_then(|book| book.job(slot));
                job.map_or(0, |job| job.due().since(facts.now()).0)
            }
            Part::Target => accepted[slot][0],
            Part::Latency => accepted[slot][1],
        };
        let candidates = |part, found: &mut dyn FnMut(usize, u64)| {
            for vm in facts.vms().filter(|&vm| !facts.is_background(vm)) {
                if promises.can_step_down(vm.index(), facts.objective(vm), part) {
                    found(vm.index(), key(part, vm.index()));
                }
            }
        };
        self.stepping.clear();
        let stepping = &mut self.stepping;
        match change {
            Change::Down => {
                (self.overload).step_down(candidates, |vm, part| stepping.push((vm, part)));
            }
            Change::Back => self
                .overload
                .step_back(|vm, part| stepping.push((vm, part))),
        }
        for at in 0..self.stepping.len() {
            let (slot, part) = self.stepping[at];
            self.promises.set_down(slot, part, change == Change::Down);
            let vm = facts.vm_at(slot);
            self.set_promise(facts, vm);
            self.refresh(facts, vm);
        }
    }

    /// Something of a VM waits that may go, after nothing did.
    fn wake(&mut self, facts: &Facts, vm: VmId) {
        let slot = vm.index();
        self.active[slot] = true;
        if facts.is_background(vm) {
            if self.background_waiting == 0 {
                self.background.wakes(facts.now());
            }
            self.background_waiting += 1;
        } else {
            if self.background_waiting > 0 && facts.requests(vm) == 1 {
                let since = facts.quiet_since(vm).min(facts.now());
                self.background.thought(facts.now().since(since));
            }
            if self.promises.has(slot) {
                self.promises.wake(facts.now(), slot);
            }
        }
        self.shares.activate(facts.now(), slot, self.most_ahead);
        self.place(facts, vm);
    }

    fn sleep(&mut self, facts: &Facts, vm: VmId) {
        let slot = vm.index();
        if core::mem::replace(&mut self.active[slot], false) {
            self.background_waiting -= u32::from(facts.is_background(vm));
            self.promises.sleep(slot);
            self.shares.deactivate(slot);
        }
    }

    /// Puts a VM, of which something waits that may go, in its place among promises.
    #[inline]
    fn place(&mut self, facts: &Facts, vm: VmId) {
        let slot = vm.index();
        if !self.promises.has(slot) {
            return;
        }
        let mut head = Head {
            arrived: Nanos::ZERO,
            within_share: true,
        };
        if self.promises.has_latency(slot)
            && let Some(unit) = facts.head(vm)
        {
            head.arrived = facts.queued(unit).unit().arrived;
            head.within_share =
                self.promises.has_rate(slot) || self.shares.is_within(slot, self.most_ahead);
        }
        self.promises.place(facts.now(), slot, head);
    }

    /// The VM's head, rates or gates changed otherwise than by a service.
    fn refresh(&mut self, facts: &Facts, vm: VmId) {
        match (self.active[vm.index()], facts.has_head(vm)) {
            (true, true) => self.place(facts, vm),
            (true, false) => self.sleep(facts, vm),
            (false, true) => self.wake(facts, vm),
            (false, false) => {}
        }
    }

    /// VMs whose tag has come go among those that are due.
    #[inline]
    fn release(&mut self, facts: &Facts) {
        while let Some(slot) = self.promises.poll_coming(facts.now()) {
            self.place(facts, facts.vm_at(slot));
        }
    }

    fn charge(&mut self, facts: &Facts, io: &DeviceIo) {
        let (now, slot) = (facts.now(), io.vm.index());
        let mut cost = self.cost.charge(facts, io);
        if self.by_time && facts.profile().is_none() {
            cost = self.dither.vary(facts, io.vm, cost);
        }
        if facts.is_background(io.vm) {
            self.background.started(now, cost);
            self.shares.charge(now, slot, cost, None);
        } else {
            self.background.vm_started(now, cost);
            self.charge_vm(facts, io, cost);
        }
        match self.active[slot] && facts.has_head(io.vm) {
            true => self.place(facts, io.vm),
            false => self.sleep(facts, io.vm),
        }
    }

    fn charge_vm(&mut self, facts: &Facts, io: &DeviceIo, cost: u64) {
        let slot = io.vm.index();
        let by_promise = self.last_pick == By::Promise && io.op != Op::Flush;
        // A bound on latency without a rate is kept within the share, so nothing is forgiven.
        let forgives = io.op == Op::Flush || (by_promise && self.promises.has_rate(slot));
        let most = self.most_ahead.max(2 * cost);
        (self.shares).charge(facts.now(), slot, cost, forgives.then_some(most));
        if by_promise {
            let bytes = moved(facts, io.op, io.len).into();
            (self.promises).spend(facts.now(), slot, bytes, io.first_served());
        }
        if io.op == Op::Flush || !facts.device().seeks {
            return;
        }
        // A bound on latency also holds for what went by its VM's share, sooner than was promised.
        let latency = self.promises.latency(slot);
        if by_promise || latency.is_some() {
            let patience = at_disk::patience(facts.device().spec.positioning, latency);
            self.at_disk.started(facts.now(), io.id, patience);
        }
        self.stay = match self.stay.vm == slot {
            true => Stay {
                vm: slot,
                left: self.stay.left.saturating_sub(cost),
            },
            false => Stay {
                vm: slot,
                left: (STAY_IOS * self.cost.flush()).saturating_sub(cost),
            },
        };
    }

    /// Returns the head that continues the last I/O, if the device is to stay with its stream.
    #[cold]
    fn stays(&self, facts: &Facts, deadline: Option<Nanos>) -> Option<ReqId> {
        let spec = &facts.device().spec;
        let near = facts.now() + Nanos(NEAR * spec.positioning.0);
        if deadline.is_some_and(|deadline| deadline < near) {
            return None;
        }
        let vm = facts.vm_at(self.stay.vm);
        let head = facts.head(vm).filter(|_| facts.is_live(vm))?;
        let continues = facts.queued(head).unit().addr == facts.device().last_addr;
        (continues && !facts.is_background(vm)).then_some(head)
    }

    /// Returns a part of the background if one is to go now, else when the next may.
    #[cold]
    fn pick_background(&mut self, facts: &Facts, promised: bool) -> Result<Pick, Nanos> {
        let (now, device) = (facts.now(), facts.device());
        self.background.look(now);
        if self.overload.is_late() {
            self.background.promise_late();
        }
        let least = self.overload.is_background_down();
        let vms_in_flight = device.in_flight - self.background.in_flight();
        let vms_wait = self.shares.any_waits();
        let at = match vms_wait {
            // What is promised and due goes before all but a part that waited for too long.
            true if promised => self.background.overdue_at(),
            true => self.background.due_at(least),
            false => self.background.allowed_at(now, vms_in_flight, least),
        };
        let Some(slot) = self.shares.first_background().filter(|_| at <= now) else {
            return Err(at.min(self.background.window_end()));
        };
        let max = match vms_wait || vms_in_flight > 0 {
            true => self.background_part,
            false => u32::MAX,
        };
        Ok(Self::start(facts, slot, max))
    }

    /// Bytes of memory that one more VM takes and that only changes of promises touch.
    fn cold_bytes_per_vm(&self) -> usize {
        Overload::bytes_per_vm() + size_of::<[u64; 2]>() + size_of::<(usize, Part)>()
    }

    fn start(facts: &Facts, slot: usize, max: u32) -> Pick {
        let head = facts
            .head(facts.vm_at(slot))
            .expect("a VM in a queue has a head");
        Pick::Start {
            head,
            max,
            held: Nanos::ZERO,
        }
    }
}

/// Costs in bytes, an I/O at least those of a positioning.
fn bytes_of(positioning_bytes: u64) -> CostParams {
    let least = positioning_bytes.clamp(LEAST_COST.into(), LARGEST_LEAST_COST);
    CostParams {
        by: CostBy::Bytes,
        size: least as u32,
    }
}

/// Cost by which one VM may be served more because its stream is stayed with.
fn stay_of(cost: Cost, device: &DeviceSpec) -> u64 {
    match device.positioning {
        Nanos::ZERO => 0,
        _ => STAY_IOS * cost.flush() + cost.largest(device),
    }
}

/// Device time where there is a profile, else bytes.
fn cost_params(spec: &DeviceSpec, profile: Option<&Profile>) -> CostParams {
    let positioning = u128::from(spec.positioning.0) * u128::from(spec.bytes_per_s);
    let bytes = u64::try_from(positioning / u128::from(Nanos::SECOND.0)).unwrap_or(u64::MAX);
    match profile {
        Some(_) => CostParams {
            by: CostBy::DeviceTime,
            size: LEAST_COST,
        },
        None => bytes_of(bytes),
    }
}

/// Most cost by which promises bring a VM ahead of its share.
fn most_ahead(cost: &CostModel, spec: &DeviceSpec) -> u64 {
    (MOST_AHEAD * cost.flush()).max(2 * cost.largest(spec))
}

/// Longest part of a background process in bytes: 1 ms of the device's time, or, where positioning
/// takes longer than that, as much as moves in the time of one.
fn background_part(spec: &DeviceSpec, profile: Option<&Profile>) -> u32 {
    let Some(profile) = profile else {
        return BACKGROUND_PART_UNKNOWN.max(spec.physical_block);
    };
    use tidegate_capacity::profile::{Access, Direction};
    let time = |bytes| {
        let of = |direction| profile.time_ps(direction, Access::Random, bytes);
        of(Direction::Read).max(of(Direction::Write))
    };
    let most = BACKGROUND_PART_PS.max(2 * time(4 << 10));
    let mut part = BACKGROUND_PART_LEAST.max(spec.physical_block);
    while part < spec.max_io && time(2 * part) <= most {
        part *= 2;
    }
    part
}

impl Dispatcher for Slo {
    fn interests(&self) -> Interests {
        (Interests::STARTED.and(Interests::ENDED))
            .and(Interests::INHERITED)
            .and(Interests::VMS)
            .and(Interests::PROFILE)
    }

    fn by_lane(&self) -> bool {
        true
    }

    fn insert(&mut self, facts: &Facts, unit: ReqId) {
        let (vm, _) = facts.queued(unit).vm_lane();
        if !self.active[vm.index()] && facts.has_head(vm) {
            self.wake(facts, vm);
        }
    }

    fn remove(&mut self, facts: &Facts, unit: ReqId) {
        let (vm, _) = facts.queued(unit).vm_lane();
        // After a service `charge` has seen to it; this is for units taken back.
        if self.active[vm.index()] && !facts.has_head(vm) {
            self.sleep(facts, vm);
        }
    }

    fn gate(&mut self, facts: &Facts, vm: VmId, _lane: Lane, _open: bool) {
        self.refresh(facts, vm);
    }

    fn on_event(&mut self, facts: &Facts, event: &Event) {
        match *event {
            Event::Started(io) => self.charge(facts, io),
            Event::Ended { io, .. } if facts.is_background(io.vm) => self.background.ended(),
            Event::Ended { io, .. } => {
                self.at_disk.ended(io.id);
                self.background.vm_ended(facts.now());
            }
            Event::Inherited(io) if facts.is_background(io.vm) => self.background.inherited(),
            Event::ProfileChanged => self.set_costs(facts),
            Event::CostsLearnt => self.learn_costs(facts),
            Event::VmAdded(vm) => {
                self.cost.on_event(facts, event);
                self.set_vm(facts, vm, true);
            }
            Event::VmChanged(vm) => self.set_vm(facts, vm, false),
            Event::VmRemoved(vm) => {
                self.sleep(facts, vm);
                self.forget_promises(vm.index());
                self.shares.remove_vm(vm.index());
                if self.stay.vm == vm.index() {
                    self.stay = Stay::NONE;
                }
            }
            _ => {}
        }
    }

    fn set(&mut self, facts: &Facts, vm: VmId, knob: Knob) {
        match knob {
            Knob::Weight(weight) => {
                let weight = weight.clamp(1, Objective::MAX_WEIGHT);
                (self.shares).set_weight(facts.now(), vm.index(), 4 * weight);
            }
            Knob::Floor(bytes_per_s) => {
                self.promises.set_transfer(vm.index(), bytes_per_s);
                self.set_promise(facts, vm);
            }
            _ => return,
        }
        self.refresh(facts, vm);
    }

    fn serves_background(&self) -> bool {
        true
    }

    fn reckons_with_costs(&self) -> bool {
        true
    }

    fn starvation(&self, device: &DeviceSpec, profile: Option<&Profile>) -> Bound {
        let model = CostModel::new(cost_params(device, profile), 0);
        let cost = model.stated(device, profile);
        let largest = cost.largest(device);
        Bound::Shares(ShareBound {
            cost,
            largest,
            weights: Weights::Objectives,
            // A third more, since charges of learnt costs are varied by a quarter.
            lead: Lead::Ahead {
                ahead: ((MOST_AHEAD * cost.flush()).max(2 * largest) + largest) * 4 / 3,
                once: (2 * largest + cost.rounding() + stay_of(cost, device)) * 4 / 3,
            },
        })
    }

    fn may_hold(&self) -> bool {
        true
    }

    fn stepped_down(&self) -> SteppedDown {
        self.overload.stepped_down()
    }

    fn is_due_beyond_depth(&mut self, facts: &Facts) -> bool {
        // One that seeks serves them one after the other, and in an order of its own.
        if facts.device().seeks || self.overload.is_late() {
            return false;
        }
        self.release(facts);
        let Some((_, slot)) = self.promises.first() else {
            return false;
        };
        let head = facts.head(facts.vm_at(slot));
        let len = head.map(|head| facts.queued(head).unit().len);
        self.promises.has_rate(slot) && len.is_some_and(|len| len <= BEYOND_DEPTH)
    }

    fn pick(&mut self, facts: &Facts) -> Pick {
        let now = facts.now();
        self.release(facts);
        let earliest = self.promises.first();
        let deadline = earliest.map(|(deadline, _)| deadline);
        if let Some(change) = self.overload.look(now, deadline) {
            self.step(facts, change);
            return self.pick(facts);
        }
        if let Some(until) = self.at_disk.held_until(now) {
            return Pick::Idle(until);
        }
        let mut part_at = Nanos::MAX;
        if self.background_waiting > 0 {
            match self.pick_background(facts, earliest.is_some()) {
                Ok(pick) => return pick,
                Err(at) => part_at = at,
            }
        }
        if self.stay.left > 0
            && let Some(head) = self.stays(facts, earliest.map(|(deadline, _)| deadline))
        {
            let promised = earliest.is_some_and(|(_, slot)| slot == self.stay.vm);
            self.last_pick = if promised { By::Promise } else { By::Share };
            return Pick::Start {
                head,
                max: u32::MAX,
                held: Nanos::ZERO,
            };
        }
        let (by, slot) = match (earliest, self.shares.first(now)) {
            (Some((_, slot)), _) => (By::Promise, slot),
            (None, Some(slot)) => (By::Share, slot),
            (None, None) => return Pick::Idle(part_at),
        };
        self.last_pick = by;
        if slot != self.stay.vm {
            self.stay = Stay::NONE;
        }
        Self::start(facts, slot, u32::MAX)
    }

    fn footprint(&self) -> Footprint {
        Footprint {
            vm: self.promises.bytes_per_vm() + self.shares.bytes_per_vm() + size_of::<bool>(),
            vm_cold: self.cost.bytes_per_vm() + self.cold_bytes_per_vm(),
            ..Footprint::default()
        }
    }
}
