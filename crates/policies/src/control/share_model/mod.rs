//! vFair's share model: allocates each VM a rate by its weight and by what its requests
//! cost. Lu, Saltaformaggio, Kompella and Xu, "vFair: Latency-Aware Fair Storage Scheduling via
//! Per-IO Cost-Based Differentiation", SoCC 2015, sections 4.1 to 4.3.
//!
//! Every period, for each of the VMs that compete:
//!
//! ```text
//!   pattern t, t' ──▶ P, P': requests a second of it that saturate the device    (saturation.rs)
//!                        │
//!   weights ────────────▶ allocation = w / sum(w) * P, less what is lost by blending (strategy.rs)
//!                        │
//!   latency, credits ───▶ * own scale: what the profile gets wrong                  (feedback.rs)
//!                        ▼
//!            Knob::Allocation: the regulator grants it, the dispatcher weighs by it
//! ```
//!
//! Where the dispatcher orders VMs by their objectives itself, the model divides the device among
//! hosts alone: it sets this host's part of the device (module `host_part`) and no allocations.
//!
//! A period is the regulator's ([`IntervalEnd::Period`]). Under a regulator without periods the
//! model has its own of `period`, or 30 ms without that parameter.
//!
//! Readings, where the paper leaves room:
//! - A VM competes while it has requests inside, and for [`COMPETES`] periods after its last
//!   request. A VM that does not compete is allocated 0, and its allocation goes to the others at
//!   the next period.
//! - A new VM gets its share at once, as if it competed. With requests of its own it counts among
//!   the others from the next period on, at the latest.
//! - The weight of a *group* of VMs is divided among its competing VMs by their own weights, on all
//!   hosts that share the device.
//! - Allocations are between 1 and 4,000,000 requests a second, whatever the weights: at a fraction
//!   of a request a second a VM would wait for ever.
//! - Unused allocation goes to VMs that want more at the next period (`lend`); a VM keeps twice its
//!   recent use, and an eighth of its part at least. The regulator passes on the rest credit for
//!   credit, whatever a request of either VM costs. Alone, that would turn the thousands of unused
//!   credits of a sequential reader into as many large random requests of its neighbours, and the
//!   feedback would swing between too many of them and none.
//! - Nothing is exported: a pattern is learnt again in five windows, and the scale in a second or
//!   two.

mod evaluation;
pub mod feedback;
mod groups;
mod host_part;
mod params;
pub mod peers;
pub mod saturation;
pub mod strategy;
mod vm;

use crate::pattern::Patterns;
use evaluation::ClaimSums;
use feedback::Feedback;
use groups::Groups;
use host_part::HostPart;
pub use params::ShareModelParams;
use params::{CORRECTION, LATENCY_BY, LATENCY_OVER, LATENCY_TARGET, LEND, STRATEGY};
use peers::Peers;
use saturation::{Estimates, Saturation};
use strategy::Claim;
use tidegate_base::request::{Done, IoError, Op, ReqId, VmId};
use tidegate_base::time::Nanos;
use tidegate_capacity::profile::Estimation;
use tidegate_core::part::{Capacity, Enforces, PartDescriptor};
use tidegate_core::roles::{
    Controller, Event, HostWeight, Interests, IntervalEnd, Knob, Knobs, PeerShare,
};
use tidegate_core::view::View;
use vm::{VACANT, Vm};

/// Periods after its last request for which a VM still competes.
pub const COMPETES: u64 = 4;
/// Multiple of its use that a VM with credits left is allocated, ...
const USES: f64 = 2.0;
/// ... which is never below this part of its proportional allocation.
const KEEPS: f64 = 0.125;

/// Description for the registry of policy parts.
pub(crate) static DESCRIPTOR: PartDescriptor<dyn Controller> = PartDescriptor {
    name: "share-model",
    summary: "allocates rates by weight and by the device time of each VM's requests",
    params: &[
        STRATEGY,
        saturation::ESTIMATION,
        LEND,
        LATENCY_TARGET,
        LATENCY_BY,
        CORRECTION,
        LATENCY_OVER,
    ],
    enforces: Enforces {
        group: true,
        ..Enforces::NONE
    },
    build: |params, capacity| {
        let saturation = Saturation::from_params(params);
        let params = ShareModelParams::from_params(params);
        Box::new(ShareModel::new(params, saturation, capacity))
    },
};

/// Controller that allocates rates by weight, request cost and measured latency.
#[derive(Debug)]
pub struct ShareModel {
    params: ShareModelParams,
    saturation: Saturation,
    patterns: Patterns,
    vms: Vec<Vm>,
    estimates: Estimates,
    /// Slots of VMs that compete, including idle ones that are not yet removed.
    listed: Vec<u32>,
    /// Sum of the listed VMs' own weights, whatever their groups.
    weights: u64,
    groups: Groups,
    /// Claims of the listed VMs in the last evaluation, and sums over them.
    claims: Vec<Claim>,
    sums: ClaimSums,
    feedback: Feedback,
    /// Other hosts that share the device, and the message that is due to them.
    peers: Peers,
    share: Option<PeerShare>,
    /// Rule for the sum of the VMs' weights beside those of other hosts.
    host_weight: HostWeight,
    /// Part of the device that this host has; `None`: VMs have allocations.
    host_part: Option<HostPart>,
    /// Number of the current period.
    periods: u64,
    /// Time at which the last period ended.
    ended_at: Nanos,
    /// Values at that time: VMs' requests admitted and not done, and completed I/Os of VMs.
    inside: f64,
    ended: u64,
    /// Sum over requests answered in this period of the time since their admission.
    time_inside: Nanos,
    /// VMs, weights or the profile have changed since the last allocation.
    changed: bool,
}

impl ShareModel {
    /// Creates a controller without VMs, with room for those of `capacity`.
    pub fn new(
        params: ShareModelParams,
        saturation: Saturation,
        capacity: &Capacity,
    ) -> ShareModel {
        let vms = capacity.vms as usize;
        ShareModel {
            params,
            saturation,
            patterns: Patterns::new(vms),
            vms: vec![VACANT; vms],
            estimates: Estimates::new(vms),
            listed: Vec::with_capacity(vms),
            weights: 0,
            groups: Groups::with_capacity(vms),
            claims: Vec::with_capacity(vms),
            sums: ClaimSums::default(),
            feedback: Feedback::NEW,
            peers: Peers::new(),
            share: None,
            host_weight: HostWeight::Sum,
            host_part: None,
            periods: COMPETES + 1,
            ended_at: Nanos::ZERO,
            inside: 0.0,
            ended: 0,
            time_inside: Nanos::ZERO,
            changed: false,
        }
    }

    /// Creates a model that divides the device among hosts and allocates nothing to VMs, with room
    /// for those of `capacity`.
    pub(super) fn among_hosts(capacity: &Capacity) -> ShareModel {
        let saturation = Saturation::new(Estimation::ThreeD);
        ShareModel {
            host_part: Some(HostPart::new()),
            ..ShareModel::new(ShareModelParams::AMONG_HOSTS, saturation, capacity)
        }
    }

    /// Returns the common factor for the profile's figures; see [`Feedback::scale`].
    pub fn scale(&self) -> f64 {
        self.feedback.scale()
    }

    fn added(&mut self, view: &View, vm: VmId, out: &mut Knobs) {
        if view.is_background(vm) {
            return;
        }
        let weight = view.objective(vm).weight;
        self.vms[vm.index()] = Vm {
            present: true,
            weight,
            ..VACANT
        };
        self.wake(view, vm);
        self.changed = true;
        // The timer fires at once and allocates exactly. This provisional value bridges the time
        // until then.
        self.set_provisional_allocation(view, vm, out);
    }

    /// Sets a provisional allocation: the VM's part beside those that compete, without regard to
    /// groups.
    fn set_provisional_allocation(&mut self, view: &View, vm: VmId, out: &mut Knobs) {
        let weight = self.vms[vm.index()].weight;
        let own = self.weights as f64;
        let factor = self.host_weight.factor(own);
        let all = own * factor + self.peers.others().weight;
        if let Some(host_part) = &mut self.host_part {
            // Beside others this VM changes the part by little, and the end of the period by all.
            if !host_part.has_rate() {
                host_part.set(own * factor / all * self.feedback.scale(), out);
                self.changed = true;
            }
            return;
        }
        let alone = (self.saturation).iops(view, &self.patterns.own(view.now(), vm));
        let part = f64::from(weight) * factor / all;
        let scale = self.vms[vm.index()].scale_beside(self.feedback.scale());
        self.set_allocation(vm, alone * part * scale, out);
    }

    fn changed(&mut self, view: &View, vm: VmId) {
        let weight = view.objective(vm).weight;
        let of_vm = &mut self.vms[vm.index()];
        // The VM may have another group now, or the first VM in a group's class of priority.
        of_vm.group_part = 0;
        let old = core::mem::replace(&mut of_vm.weight, weight);
        if of_vm.listed {
            // Only listed VMs are part of the sum.
            self.weights = self.weights - u64::from(old) + u64::from(weight);
        }
        self.changed = true;
    }

    fn removed(&mut self, vm: VmId) {
        let left = core::mem::replace(&mut self.vms[vm.index()], VACANT);
        if left.listed {
            self.weights -= u64::from(left.weight);
            self.listed.retain(|&slot| slot != vm.index);
        }
        self.changed = true;
    }

    /// Adds a VM to the list of competitors, unless it is there.
    fn wake(&mut self, view: &View, vm: VmId) {
        if self.listed.is_empty() {
            // With an empty list no periods ended, so the counts of the last one are stale.
            self.begin_period(view);
        }
        let of_vm = &mut self.vms[vm.index()];
        if !of_vm.listed {
            of_vm.listed = true;
            self.weights += u64::from(of_vm.weight);
            self.listed.push(vm.index);
        }
    }

    /// Returns what the part of a host without VMs that compete depends on: whether VMs of other
    /// hosts do, and its part beside silent hosts. `None` for other hosts, whose periods end.
    fn idle_inputs(&self) -> Option<(bool, Option<f64>)> {
        let is_idle = self.host_part.is_some() && self.listed.is_empty();
        let beside_silent = || self.peers.part_beside_silent(self.host_weight);
        is_idle.then(|| (self.peers.compete(), beside_silent()))
    }

    fn begin_period(&mut self, view: &View) {
        self.ended_at = view.now();
        self.inside = self.inside_now(view);
        self.ended = view.device().ended_of_vms();
        self.time_inside = Nanos::ZERO;
    }

    /// Returns the VMs' requests that were let in and are not done.
    fn inside_now(&self, view: &View) -> f64 {
        match &self.host_part {
            Some(host_part) => host_part.inside(view),
            None => view.device().inside().into(),
        }
    }

    fn record_arrival(&mut self, view: &View, request: ReqId, out: &mut Knobs) {
        let (vm, _) = view.queued(request).vm_lane();
        if self.vms[vm.index()].present {
            self.vms[vm.index()].asked_in = self.periods;
            let counted_out = !self.vms[vm.index()].listed;
            self.wake(view, vm);
            if counted_out {
                // The allocation of its last active time is stale: other VMs have come and gone.
                self.set_provisional_allocation(view, vm, out);
            }
        }
    }

    fn answered(&mut self, done: &Done) {
        // Neither reached the device; a request that failed there was served all the same.
        let never_served = matches!(done.outcome, Err(IoError::Cancelled | IoError::BeyondEnd));
        let of_vm = &mut self.vms[done.vm.index()];
        if done.op != Op::Flush && !never_served && of_vm.present {
            of_vm.answered += 1;
            of_vm.device += done.account.device;
            let inside = match self.host_part {
                // The bound lets I/Os in one by one, as they go to the device.
                Some(_) => done.account.device,
                None => done.account.queued + done.account.device,
            };
            of_vm.time_inside += inside;
            self.time_inside += inside;
        }
    }

    /// Sets a VM's allocation to `rate` requests a second by the profile as corrected.
    fn set_allocation(&mut self, vm: VmId, rate: f64, out: &mut Knobs) {
        let [least, most] = [Knob::ALLOCATION_MIN, Knob::ALLOCATION_MAX];
        // From a float that is no number or out of range, `as` makes the nearest that is.
        let rate = ((rate * 1000.0 + 0.5) as u64).clamp(least, most);
        let of_vm = &mut self.vms[vm.index()];
        if of_vm.allocated != Some(rate) {
            of_vm.allocated = Some(rate);
            out.set(vm, Knob::Allocation(rate));
        }
    }
}

impl Controller for ShareModel {
    fn interests(&self) -> Interests {
        Patterns::INTERESTS
            .union(Interests::ANSWERED)
            .union(Interests::INTERVALS)
            .union(Interests::PROFILE)
            .union(Interests::PEERS)
    }

    fn on_event(&mut self, view: &View, event: &Event, out: &mut Knobs) {
        self.patterns.on_event(view, event);
        match *event {
            Event::Arrived(request) | Event::Merged { by: request, .. } => {
                self.record_arrival(view, request, out);
            }
            Event::Answered(done) => self.answered(done),
            // Use of the device's time is known when the own timer runs.
            Event::IntervalEnded(interval)
                if interval.end == IntervalEnd::Period && self.host_part.is_none() =>
            {
                self.period_ended(view, out);
            }
            Event::VmAdded(vm) => self.added(view, vm, out),
            Event::VmChanged(vm) if self.vms[vm.index()].present => self.changed(view, vm),
            Event::VmRemoved(vm) => self.removed(vm),
            Event::Peer { host, share } => {
                let (inputs, scale) = (self.idle_inputs(), self.feedback.scale());
                self.peers.take_message(view.now(), host, share, scale);
                self.changed |= self.idle_inputs() != inputs;
            }
            Event::PeerSilent { host, weight } => {
                let inputs = self.idle_inputs();
                self.peers.assume(host, weight, self.feedback.scale());
                self.changed |= self.idle_inputs() != inputs;
            }
            Event::HostWeight(weight) => {
                let inputs = self.idle_inputs();
                self.host_weight = weight;
                self.changed |= self.idle_inputs() != inputs;
            }
            Event::ProfileChanged => {
                // The scale corrects the former profile, so it starts anew.
                self.feedback = Feedback::NEW;
                self.vms.iter_mut().for_each(|of_vm| of_vm.scale = None);
                self.estimates.forget_all();
                self.changed = true;
            }
            _ => {}
        }
    }

    fn next_timer(&self) -> Nanos {
        match (self.changed, self.listed.is_empty()) {
            (true, _) => Nanos::ZERO,
            (false, false) => self.ended_at + self.params.period,
            // No period ends that would drop hosts from which no report came any more.
            (false, true) if self.host_part.is_some() && self.host_weight == HostWeight::Sum => {
                self.peers.first_dropped(self.params.period)
            }
            (false, true) => Nanos::MAX,
        }
    }

    fn on_timer(&mut self, view: &View, out: &mut Knobs) {
        if self.ended_at + self.params.period <= view.now() && !self.listed.is_empty() {
            return self.period_ended(view, out);
        }
        if self.listed.is_empty() && self.host_weight == HostWeight::Sum {
            self.peers.drop_silent(view.now(), self.params.period);
        }
        self.evaluate(view, None, out);
    }

    fn allocates(&self) -> bool {
        self.host_part.is_none()
    }

    fn poll_share(&mut self) -> Option<PeerShare> {
        self.share.take()
    }

    fn uses_costs(&self) -> bool {
        true
    }
}
