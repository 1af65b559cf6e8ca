//! Default dispatcher, which keeps all objectives: floors and latency bounds by deadline, then
//! shares, then the background.
//!
//! ```text
//!   pick:  1. a background part that its rate allows, while nothing promised is due
//!          2. what is promised and due, the earliest deadline first          (`promises`)
//!          3. latency bounds without a rate, within the share of their VM    (`promises`)
//!          4. shares: classes, then groups and weights by device time        (`shares`)
//!          5. the background, once the VMs are quiet                          (`background`)
//! ```
//!
//! The regulator ([`limit_target`](crate::regulate::limit_target)) enforces limits and the caps of
//! targets. They take precedence over all queues here, because a lane whose gate is shut is in none
//! of them.
//!
//! - **Promises** (reservation, target, deadline transfer, latency) are in one queue by deadline.
//!   Service by promise counts against the VM's share, service by share never against a promise
//!   (mClock's rule; Gulati, Merchant, Varman, OSDI 2010). All promises together are to fit the
//!   device; where it is slower, they step down one by one (`overload`).
//! - **Shares** are of device time: an I/O's cost comes from the device's profile, or from costs
//!   learnt at run time. Until one of these is there, an I/O costs its bytes, at least those that
//!   the device moves in the time of a positioning (`CostModel`).
//! - **Stay.** On a disk that seeks, an I/O that continues the last one goes at once, for up to
//!   eight positionings' worth of cost, unless a deadline is near: streams of several VMs
//!   would break each other at every I/O (BD-EDF's batch; Jin et al., "Flubber", 2013).
//! - **On a disk that seeks, no promised I/O is passed over.** While a promised I/O has been with
//!   the disk for longer than its promise leaves, nothing more goes, for up to a second
//!   (`at_disk`).
//! - **Nor is a VM without a promise**, for long. One that fell a turn of eight positionings behind
//!   while all its requests were with the disk is favoured until it has its share again, and the
//!   upper half of the queue is for VMs that are not ahead of such an absent one (`turns`). Without
//!   that, VMs would share the disk by their depths, and a random reader beside a stream had one
//!   I/O a second.
//! - **Background** processes have a rate that grows while VMs do not lose by it (`background`).
//! - **On a device that other hosts share** the host has a part of its time, which a controller
//!   sets: what goes by share and in the background keeps to it (`device_time`).
//!
//! Starvation bound, where promises leave room: from the moment a VM waits until it is served, each
//! other VM of its class is served at most its own weight's share of (32 of the smallest I/Os + the
//! largest cost), two I/Os and a stay; on a disk that seeks also by favour (`costs`). On a device
//! that other hosts share, a VM of this host is served by share at least once in eight times the
//! device time of the last such I/O, by the host's part.

mod absent;
mod acceptance;
mod at_disk;
mod background;
mod changes;
mod charges;
mod costs;
mod device_time;
mod dither;
mod overload;
mod picks;
mod promises;
mod shared_device;
mod shares;
mod stay;
mod turns;
mod window_average;
mod write_pace;

use super::cost::CostModel;
use acceptance::Acceptance;
use at_disk::AtDisk;
use background::BackgroundRate;
use costs::{
    BACKGROUND_IO_MIN, BACKGROUND_IO_UNPROFILED, COST_BY_BYTES, MAX_LEAD_IOS, STAY_IOS,
    background_io_ps, random_ps, starvation_bound,
};
use device_time::DeviceTime;
use dither::Dither;
use overload::{Change, Overload, Part};
pub(crate) use promises::is_promised;
use promises::{Head, Promises};
use shares::Shares;
use stay::{Stay, Stream};
use tidegate_base::device::{DeviceSpec, DeviceTimeUse};
use tidegate_base::objective::Objective;
use tidegate_base::request::{DeviceIo, Lane, Op, ReqId, VmId};
use tidegate_base::time::Nanos;
use tidegate_capacity::profile::{Access, Direction, Profile};
use tidegate_core::part::{Capacity, Enforces, PartDescriptor};
use tidegate_core::roles::{Dispatcher, Event, Footprint, Interests, Knob, Pick, SteppedDown};
use tidegate_core::starvation::Bound;
use tidegate_core::view::View;
use turns::{TurnCosts, Turns};
use write_pace::WritePace;

/// Description in the registry of parts.
pub(crate) static DESCRIPTOR: PartDescriptor<dyn Dispatcher> = PartDescriptor {
    name: "slo",
    summary: "promises by deadline, then shares of device time, then background processes",
    params: &[],
    enforces: Enforces {
        reservation: true,
        weight: true,
        group: true,
        latency: true,
        priority: true,
        ..Enforces::NONE
    },
    build: |_, capacity| Box::new(Slo::new(capacity)),
};

/// Room for promised I/Os that are watched at a disk that seeks.
const WATCHED_IOS_MAX: usize = 32;
/// Longest request, in bytes, that goes beyond the adapted depth; a longer one would delay all
/// others in the device's queue.
const BEYOND_DEPTH_BYTES_MAX: u32 = 32 << 10;

/// Reason of the last pick.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum PickReason {
    Promise,
    Share,
}

/// Dispatcher of promises by deadline, then shares of device time, then the background.
pub struct Slo {
    vms: usize,
    cost: CostModel,
    /// Costs are in picoseconds of device time, by profile or learnt; else in bytes.
    by_time: bool,
    promises: Promises,
    overload: Overload,
    acceptance: Acceptance,
    /// Buffer for the promises that step down or come back, so that a step allocates nothing.
    stepping: Vec<(usize, Part)>,
    shares: Shares,
    background: BackgroundRate,
    /// Background processes with something that may go.
    background_waiting: u32,
    /// VMs of which something waits that may go, by slot.
    active: Vec<bool>,
    stay: Stay,
    last_pick: PickReason,
    /// Deadline of the last pick by promise.
    promised_deadline: Nanos,
    /// The last pick by promise was early: its deadline is that of the VM's latency bound.
    is_early: bool,
    /// Largest cost by which promises bring a VM ahead of its share.
    max_lead: u64,
    /// Largest background I/O beside VMs, in bytes.
    background_io_size: u32,
    /// Promised I/Os in flight at a disk that seeks.
    at_disk: AtDisk,
    /// Turns of VMs at a disk that seeks.
    turns: Turns,
    /// Variation of charges while costs are learnt.
    dither: Dither,
    /// Pace of writes by share on flash.
    write_pace: WritePace,
    /// Bound on this host's device time; `None`: no other host shares the device.
    device_time: Option<Box<DeviceTime>>,
}

impl Slo {
    /// Creates the dispatcher with room for all that the engine can hold.
    pub fn new(capacity: &Capacity) -> Slo {
        let vms = capacity.vms as usize;
        let mut slo = Slo {
            vms,
            cost: CostModel::following(COST_BY_BYTES, vms),
            by_time: false,
            promises: Promises::with_capacity(vms),
            overload: Overload::with_capacity(vms),
            acceptance: Acceptance::with_capacity(vms),
            stepping: Vec::with_capacity(vms),
            shares: Shares::with_capacity(vms),
            background: BackgroundRate::new(),
            background_waiting: 0,
            active: vec![false; vms],
            stay: Stay::NONE,
            last_pick: PickReason::Share,
            promised_deadline: Nanos::ZERO,
            is_early: false,
            max_lead: 0,
            background_io_size: BACKGROUND_IO_UNPROFILED,
            at_disk: AtDisk::with_capacity(WATCHED_IOS_MAX),
            turns: Turns::with_capacity(vms),
            dither: Dither::default(),
            write_pace: WritePace::new(),
            device_time: (capacity.shared).then(|| Box::new(DeviceTime::new())),
        };
        slo.max_lead = MAX_LEAD_IOS * slo.cost.flush();
        slo
    }

    /// Picks once promises have stepped down or come back. Ends: a step sets the time from which
    /// the next one counts.
    #[cold]
    #[inline(never)]
    fn pick_after_step(&mut self, view: &View, change: Change) -> Pick {
        self.step(view, change);
        self.pick(view)
    }

    /// Makes promises step down, or come back.
    #[cold]
    fn step(&mut self, view: &View, change: Change) {
        let (promises, acceptance) = (&self.promises, &self.acceptance);
        // Sort key of a promise within its kind; the largest steps down first.
        let key = |part, slot: usize| match part {
            Part::Transfer => {
                let transfer = view.predictor().and_then(|book| book.transfer(slot));
                transfer.map_or(0, |transfer| transfer.due_time().since(view.now()).0)
            }
            Part::Target => acceptance.numbers(slot)[0],
            Part::Latency => acceptance.numbers(slot)[1],
        };
        let candidates = |part, found: &mut dyn FnMut(usize, u64)| {
            for vm in view.vms().filter(|&vm| !view.is_background(vm)) {
                if promises.can_step_down(vm.index(), view.objective(vm), part) {
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
            let vm = view.vm_at(slot);
            self.set_promise(view, vm);
            self.refresh(view, vm);
        }
    }

    /// Puts a VM or background process into its queues, once something of it waits that may go.
    fn wake(&mut self, view: &View, vm: VmId) {
        let slot = vm.index();
        self.active[slot] = true;
        let was_absent = self.turns.record_return(view, slot);
        if view.is_background(vm) {
            if self.background_waiting == 0 {
                self.background.begin_wait(view.now());
            }
            self.background_waiting += 1;
        } else {
            // A think time ends with the first request after none was inside; without waiting
            // background it decides nothing.
            if self.background_waiting > 0 && view.requests(vm) == 1 {
                let since = view.quiet_since(vm).min(view.now());
                self.background.record_think_time(view.now().since(since));
            }
            if self.promises.has(slot) {
                self.promises.wake(view.now(), slot);
            }
        }
        if let Some(time) = &mut self.device_time
            && !self.shares.any_waits()
        {
            time.begin_wait(view.now());
        }
        // Time in which the disk passed a VM over is no pause of the VM.
        let behind = if was_absent { self.turn_cost() } else { 0 };
        (self.shares).activate_now(view.now(), slot, self.max_lead, behind);
        self.place(view, vm);
    }

    #[inline(always)]
    fn sleep(&mut self, view: &View, vm: VmId) {
        let slot = vm.index();
        if core::mem::replace(&mut self.active[slot], false) {
            self.background_waiting -= u32::from(view.is_background(vm));
            self.promises.sleep(slot);
            self.shares.deactivate(slot);
            if view.device().seeks && view.in_flight(vm) > 0 && !view.is_background(vm) {
                self.turns.record_absence(view, slot);
            }
        }
    }

    /// Updates the place among promises of a VM of which something waits that may go.
    #[inline]
    fn place(&mut self, view: &View, vm: VmId) {
        let slot = vm.index();
        if !self.promises.has(slot) {
            return;
        }
        let mut head = Head {
            arrived: Nanos::ZERO,
            len: 0,
            within_share: true,
        };
        if self.promises.needs_head(slot)
            && let Some(unit) = view.head(vm)
        {
            self.promises.end_rest(slot, unit);
            let waiting = view.queued(unit).unit();
            (head.arrived, head.len) = (waiting.arrived, waiting.len);
            head.within_share =
                self.promises.has_rate(slot) || self.shares.is_within(slot, self.max_lead);
        }
        self.promises.place(view.now(), slot, head);
    }

    /// Updates a VM's queues after its head, rates or gates changed otherwise than by a service.
    fn refresh(&mut self, view: &View, vm: VmId) {
        match (self.active[vm.index()], view.has_head(vm)) {
            (true, true) => self.place(view, vm),
            (true, false) => self.sleep(view, vm),
            (false, true) => self.wake(view, vm),
            (false, false) => {}
        }
    }

    /// Moves VMs whose tag has come to the promises that are due.
    #[inline]
    fn release(&mut self, view: &View) {
        while let Some(slot) = self.promises.poll_coming(view.now()) {
            self.place(view, view.vm_at(slot));
        }
    }

    /// Returns the cost for which a disk that seeks serves one VM before others have their turn.
    fn turn_cost(&self) -> u64 {
        STAY_IOS * self.cost.flush()
    }

    /// Returns the costs by which turns at a disk that seeks are measured.
    fn turn_costs(&self, view: &View) -> TurnCosts {
        let smallest_io = self.cost.flush();
        // Device time is counted in picoseconds.
        let by_time = Nanos(smallest_io / 1000);
        TurnCosts {
            turn: self.turn_cost(),
            smallest_io,
            smallest_io_time: if self.by_time {
                by_time
            } else {
                view.device().spec.positioning
            },
        }
    }

    /// Records the end of an I/O for turns, and charges a favoured VM for which others waited.
    fn end_turn(&mut self, view: &View, slot: usize) {
        self.turns.record_end(view, slot);
        if self.turns.has_favoured() {
            self.charge_favoured(view, slot);
        }
    }

    #[cold]
    fn charge_favoured(&mut self, view: &View, slot: usize) {
        let cost = self.turns.charge_hold(view, slot, self.turn_costs(view));
        if cost > 0 {
            self.shares.charge(view.now(), slot, cost, None);
        }
    }

    /// Takes in the end of an I/O, which was at the device for `took`. Out of line, so that other
    /// events pay nothing for it.
    #[inline(never)]
    fn end(&mut self, view: &View, io: &DeviceIo, took: Nanos) {
        if view.is_background(io.vm) {
            return self.background.ended();
        }
        if view.device().seeks {
            self.end_at_seeking_disk(view, io, took);
        } else {
            self.write_pace.ended(view.now(), io.id);
        }
        self.background.vm_ended(view.now());
    }

    #[inline(never)]
    fn end_at_seeking_disk(&mut self, view: &View, io: &DeviceIo, took: Nanos) {
        let slot = io.vm.index();
        self.at_disk.ended(io.id);
        if io.op == Op::Write && view.in_flight(io.vm) == 0 {
            self.turns.record_lone_write(view, slot, took);
        }
        self.end_turn(view, slot);
    }
}

impl Dispatcher for Slo {
    fn interests(&self) -> Interests {
        (Interests::STARTED.union(Interests::ENDED))
            .union(Interests::INHERITED)
            .union(Interests::VMS)
            .union(Interests::PROFILE)
    }

    fn by_lane(&self) -> bool {
        true
    }

    fn insert(&mut self, view: &View, unit: ReqId) {
        let (vm, _) = view.queued(unit).vm_lane();
        if !self.active[vm.index()] && view.has_head(vm) {
            self.wake(view, vm);
        }
    }

    fn remove(&mut self, view: &View, unit: ReqId) {
        let (vm, _) = view.queued(unit).vm_lane();
        // After a service, `charge` has done this already; here only units that are taken back need
        // it.
        if self.active[vm.index()] && !view.has_head(vm) {
            self.sleep(view, vm);
        }
    }

    fn gate(&mut self, view: &View, vm: VmId, _lane: Lane, _open: bool) {
        self.refresh(view, vm);
    }

    fn on_event(&mut self, view: &View, event: &Event) {
        match *event {
            Event::Started(io) => self.charge(view, io),
            Event::Ended { io, took, .. } => self.end(view, io, took),
            _ => self.on_rare_event(view, event),
        }
    }

    fn set(&mut self, view: &View, vm: VmId, knob: Knob) {
        match knob {
            Knob::Weight(weight) => {
                let weight = weight.clamp(1, Objective::MAX_WEIGHT);
                (self.shares).set_weight(view.now(), vm.index(), 4 * weight);
            }
            Knob::Floor(bytes_per_s) => {
                self.promises.set_transfer(vm.index(), bytes_per_s);
                self.set_promise(view, vm);
            }
            Knob::GroupPart(part) => return self.shares.set_group_part(vm.index(), part),
            _ => return,
        }
        self.refresh(view, vm);
    }

    fn serves_background(&self) -> bool {
        true
    }

    fn background_part(&self, profile: &Profile) -> Option<Nanos> {
        let least = random_ps(profile, BACKGROUND_IO_MIN);
        Some(Nanos(background_io_ps(profile).max(least).div_ceil(1000)))
    }

    fn uses_costs(&self) -> bool {
        true
    }

    fn charged_access(&self, direction: Direction) -> Option<Access> {
        self.cost.charged_access(direction)
    }

    fn starvation(&self, device: &DeviceSpec, profile: Option<&Profile>) -> Bound {
        starvation_bound(device, profile)
    }

    fn may_hold(&self) -> bool {
        true
    }

    fn stepped_down(&self) -> SteppedDown {
        self.overload.stepped_down()
    }

    fn write_pace(&self) -> Option<u64> {
        self.write_pace.bytes_per_s()
    }

    fn is_due_beyond_depth(&mut self, view: &View) -> bool {
        // A disk that seeks serves I/Os one by one, in an order of its own, so an I/O beyond the
        // depth gains nothing. In overload it would only lengthen the queue.
        if view.device().seeks || self.overload.is_late() {
            return false;
        }
        self.release(view);
        let Some((_, slot)) = self.promises.first() else {
            return false;
        };
        let head = view.head(view.vm_at(slot));
        let len = head.map(|head| view.queued(head).unit().len);
        len.is_some_and(|len| len <= BEYOND_DEPTH_BYTES_MAX)
    }

    fn pick(&mut self, view: &View) -> Pick {
        let now = view.now();
        self.release(view);
        let earliest = self.promises.first();
        let deadline = earliest.map(|(deadline, _)| deadline);
        if let Some(change) = self.overload.update(now, deadline) {
            return self.pick_after_step(view, change);
        }
        let may_wait = view.device().seeks
            || self.background_waiting > 0
            || self.stay.budget_left > 0
            || !self.at_disk.is_empty()
            || self.device_time.is_some();
        if may_wait {
            return self.pick_with_care(view, earliest);
        }
        self.pick_next(view, earliest, Nanos::MAX)
    }

    fn bound_device_time(&mut self, view: &View, rate_ppm: Option<u64>) {
        if let Some(time) = &mut self.device_time {
            time.set_rate(view.now(), rate_ppm, view.device().spec.depth);
        }
    }

    fn device_time_use(&self, view: &View) -> Option<DeviceTimeUse> {
        let time = self.device_time.as_ref()?;
        Some(time.usage(view.now(), self.shares.any_waits()))
    }

    fn footprint(&self) -> Footprint {
        Footprint {
            vm: self.promises.bytes_per_vm() + self.shares.bytes_per_vm() + size_of::<bool>(),
            // Touched only when promises change, but for the cost model.
            vm_cold: self.cost.bytes_per_vm()
                + Overload::bytes_per_vm()
                + size_of::<([u64; 2], (usize, Part), Stream)>(),
            ..Footprint::default()
        }
    }
}
