//! SFQ(D): start-time fair queueing with up to D I/Os outstanding (Goyal, Vin, Cheng, SIGCOMM
//! 1996; Jin, Chase, Kaur: Interposed proportional sharing, SIGMETRICS 2004).
//!
//! Each VM has one tag in virtual time: the start tag of its head while the VM waits, else the
//! finish tag of its last service.
//!
//! ```text
//!  head comes:    tag = max(v, tag)              v: start tag of the last I/O dispatched
//!  pick:          the smallest tag, while fewer than D I/Os are outstanding
//!  dispatched:    v = tag;  tag += cost / weight
//!  nothing waits and nothing is outstanding: v = the largest finish tag given out
//! ```
//!
//! The papers tag each request at its arrival. For a VM that already waits this gives the
//! finish tag of the request before it, for v never passes the tag of a VM that waits. So one
//! tag for the head is the same order, and a service is what moves it: a start tag does not
//! depend on its own request's size, so nothing is recomputed when the head grows by merging,
//! leaves in parts or is split, and each part is charged when it starts.
//!
//! Decisions where the papers leave room:
//! - The cost of an I/O is, by the parameter `cost`: `bytes`, at least `cost_size`; `requests`:
//!   one for each guest request at its first service; `size-classes`: one for every `cost_size`
//!   begun; `device-time`: the device's time for one of its kind (see [`cost`](super::cost)). What
//!   moves no data costs as the smallest I/O does.
//! - D counts everything outstanding, flushes and what another policy left in flight included.
//! - A flush does not wait for its turn (the engine's express lane). It moves its VM's tag as a
//!   small I/O would, to at most 32 of them ahead of v: a bounded debt.
//! - A weight that changes scales what its VM is ahead of v, so that it counts at once.
//! - Where a controller allocates rates to VMs (vFair), a VM's weight is its allocation and not its
//!   objective's, so that the cost of a request weighs 1 / allocation. One that is counted out
//!   (allocation 0) keeps the last it had.
//! - A VM whose gates are shut counts as one with nothing waiting: it saves nothing up.
//!
//! Bounds, with c the largest cost of an I/O of a VM and w its weight:
//! - Fairness: over any interval in which both wait, the costs dispatched for VMs i and j, each
//!   by weight, differ by less than c(i)/w(i) + c(j)/w(j) + 2, and the costs completed by less than
//!   (D + 1) times that. The 2 is not the papers', whose tags are real numbers: a tag here is a
//!   whole number, up to one unit of virtual time (a point of cost at weight 1) below its VM's
//!   costs by weight. The remainder counts in the next service, so it does not add up.
//! - Starvation: from the moment a VM i waits until it is picked, another VM j is dispatched at
//!   most c(j) + w(j) a(i)/w(i), where a(i) is the cost of i's last I/O, or of 32 flushes if it
//!   flushed and that is more. While weights change, w(j)/w(i) is the largest it was meanwhile: a
//!   change leaves what a VM is ahead of v as it is, in cost.

use super::cost::{CostBy, CostModel, CostParams};
use super::virtual_time::{ByTag, Flow, Virtual};
use tidegate_base::device::DeviceSpec;
use tidegate_base::objective::Objective;
use tidegate_base::request::{DeviceIo, Lane, Op, ReqId, VmId};
use tidegate_base::time::Nanos;
use tidegate_capacity::profile::Profile;
use tidegate_core::part::{Capacity, Enforces, ParamInfo, ParamKind, PartDescriptor};
use tidegate_core::roles::{Dispatcher, Event, Footprint, Interests, Knob, Pick};
use tidegate_core::starvation::{Bound, Lead, Shares, Weights};
use tidegate_core::view::View;

/// Parameters of [`Sfq`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SfqParams {
    /// Maximum number of I/Os outstanding; 0: as many as the device takes.
    pub depth: u32,
    /// Cost of an I/O.
    pub cost: CostParams,
}

/// Registry entry of the `sfq` dispatcher.
pub(crate) static DESCRIPTOR: PartDescriptor<dyn Dispatcher> = PartDescriptor {
    name: "sfq",
    summary: "shares by weight (start-time fair queueing)",
    params: &[
        ParamInfo {
            name: "depth",
            kind: ParamKind::Count,
            default: 0,
            min: 0,
            max: 4096,
            help: "maximum I/Os in flight; 0: the device's queue depth",
        },
        CostParams::BY,
        CostParams::SIZE,
    ],
    enforces: Enforces {
        weight: true,
        ..Enforces::NONE
    },
    build: |params, capacity| {
        let params = SfqParams {
            depth: params.get("depth") as u32,
            cost: CostParams::from_params(params),
        };
        Box::new(Sfq::new(params, capacity))
    },
};

/// Maximum number of flushes by whose cost a VM's flushes move its tag ahead of v.
const MAX_FLUSHES_AHEAD: u64 = 32;

/// Largest span in virtual time by which a tag can be ahead of the clock. A tag further ahead is so
/// old that virtual time has wrapped round.
const MAX_TAG_LEAD: u64 = 1 << 50;

/// Dispatcher of start-time fair queueing with bounded depth, SFQ(D).
pub struct Sfq {
    depth: u32,
    cost: CostModel,
    by: CostBy,
    /// Weights are the controller's allocations instead of the objectives' weights.
    allocated: bool,
    /// Binary digits by which costs are finer than the points of [`CostModel`]; 0 unless
    /// `allocated`.
    extra_bits: u32,
    flows: Vec<Flow>,
    /// VMs that wait, by the start tag of their head.
    waiting: ByTag,
    /// Virtual time v: the start tag of the last I/O dispatched.
    clock: Virtual,
    /// Largest finish tag given out.
    latest: Virtual,
}

impl Sfq {
    /// Creates the dispatcher with room for every VM of the engine.
    pub fn new(params: SfqParams, capacity: &Capacity) -> Sfq {
        let vms = capacity.vms as usize;
        let flow = Flow::new(Virtual(0), Objective::DEFAULT_WEIGHT);
        Sfq {
            depth: params.depth,
            cost: CostModel::new(params.cost, vms),
            by: params.cost.by,
            allocated: capacity.allocated,
            extra_bits: if capacity.allocated {
                params.cost.by.extra_bits()
            } else {
                0
            },
            flows: vec![flow; vms],
            waiting: ByTag::with_capacity(vms),
            clock: Virtual(0),
            latest: Virtual(0),
        }
    }

    /// Puts a VM whose head has just come into the order. Idle time earns nothing, so its tag is at
    /// least v.
    fn wake(&mut self, view: &View, vm: usize) {
        if self.waiting.first().is_none() && view.device().in_flight == 0 {
            // A busy period is over; in the next one all VMs start even.
            self.set_clock(self.clock.max(self.latest));
        }
        let flow = &mut self.flows[vm];
        // A tag behind v would be a claim from idle time; one too far ahead is a wrapped old tag.
        if flow.tag < self.clock || flow.tag > self.clock.plus(MAX_TAG_LEAD) {
            flow.join(self.clock);
        }
        self.waiting.set(vm, flow.tag);
    }

    fn set_clock(&mut self, clock: Virtual) {
        self.clock = clock;
        self.waiting.follow(clock);
    }

    /// Charges an I/O to its VM's tag, and moves v to the start tag of one that is not a flush.
    fn charge(&mut self, view: &View, io: &DeviceIo) {
        let vm = io.vm.index();
        let cost = if self.allocated {
            self.cost.charge_parts(view, io, self.extra_bits)
        } else {
            self.cost.charge(view, io)
        };
        let flow = &mut self.flows[vm];
        if io.op == Op::Flush {
            // Flushes bypass `wake`, so an idle VM's tag may still be behind v.
            let before = flow.tag.max(self.clock);
            flow.tag = before;
            flow.spend(cost);
            // The bound on the debt forgives nothing that the VM was served before.
            let most = self
                .clock
                .plus(MAX_FLUSHES_AHEAD * cost / flow.weight as u64);
            flow.tag = flow.tag.min(most).max(before);
        } else {
            // v becomes the start tag, so it must be read before the VM is charged.
            let start = flow.tag;
            flow.spend(cost);
            self.set_clock(start);
        }
        let tag = self.flows[vm].tag;
        self.latest = self.latest.max(tag);
        // If this was the VM's last unit, the engine calls `remove` next.
        if self.waiting.contains(vm) {
            self.waiting.set(vm, tag);
        }
    }

    /// Updates a VM's place after its head, weight or gates changed otherwise than by a service.
    fn refresh(&mut self, view: &View, vm: VmId) {
        let index = vm.index();
        match (self.waiting.contains(index), view.has_head(vm)) {
            (true, true) => self.waiting.set(index, self.flows[index].tag),
            (true, false) => self.waiting.remove(index),
            (false, true) => self.wake(view, index),
            (false, false) => {}
        }
    }

    fn set_weight(&mut self, view: &View, vm: VmId, weight: u32) {
        self.flows[vm.index()].set_weight(weight, self.clock);
        self.refresh(view, vm);
    }
}

impl Dispatcher for Sfq {
    fn interests(&self) -> Interests {
        (Interests::STARTED.union(Interests::VMS)).union(self.cost.interests())
    }

    fn by_lane(&self) -> bool {
        true
    }

    fn insert(&mut self, view: &View, unit: ReqId) {
        let (vm, _) = view.queued(unit).vm_lane();
        // A VM that waits already has its tag; a further unit behind its head changes nothing.
        if !self.waiting.contains(vm.index()) {
            self.refresh(view, vm);
        }
    }

    fn remove(&mut self, view: &View, unit: ReqId) {
        let (vm, _) = view.queued(unit).vm_lane();
        // Other units of the VM may wait; its tag covers whichever is the head.
        if !view.has_head(vm) {
            self.waiting.remove(vm.index());
        }
    }

    fn gate(&mut self, view: &View, vm: VmId, _lane: Lane, _open: bool) {
        self.refresh(view, vm);
    }

    fn on_event(&mut self, view: &View, event: &Event) {
        self.cost.on_event(view, event);
        match *event {
            Event::Started(io) => self.charge(view, io),
            Event::VmAdded(vm) => {
                let weight = if self.allocated {
                    // Until the controller's first allocation the VM gets by with the least.
                    Knob::ALLOCATION_MIN as u32
                } else {
                    view.objective(vm).weight
                };
                self.flows[vm.index()] = Flow::new(self.clock, weight);
                self.refresh(view, vm);
            }
            Event::VmChanged(vm) if !self.allocated => {
                self.set_weight(view, vm, view.objective(vm).weight);
            }
            Event::VmRemoved(vm) => self.waiting.remove(vm.index()),
            _ => {}
        }
    }

    fn set(&mut self, view: &View, vm: VmId, knob: Knob) {
        match knob {
            Knob::Weight(weight) if !self.allocated => {
                self.set_weight(view, vm, weight.clamp(1, Objective::MAX_WEIGHT));
            }
            // Allocation 0 counts a VM out; it keeps its last weight, see the module's decisions.
            Knob::Allocation(rate @ 1..) if self.allocated => {
                let rate = rate.clamp(Knob::ALLOCATION_MIN, Knob::ALLOCATION_MAX);
                self.set_weight(view, vm, rate as u32);
            }
            _ => {}
        }
    }

    fn starvation(&self, device: &DeviceSpec, profile: Option<&Profile>) -> Bound {
        let cost = self.cost.stated(device, profile);
        let largest = cost.largest(device);
        let (weights, rounding) = if self.allocated {
            let rounding = self.by.allocated_rounding();
            (Weights::Allocations { rounding }, rounding)
        } else {
            (Weights::Objectives, cost.rounding())
        };
        Bound::Shares(Shares {
            cost,
            largest,
            weights,
            lead: Lead::Ahead {
                // A VM's debt is its last I/O or its flushes, never their sum: see `charge`.
                ahead: largest.max(MAX_FLUSHES_AHEAD * cost.flush()),
                once: largest + rounding,
            },
        })
    }

    fn may_hold(&self) -> bool {
        self.depth > 0
    }

    fn depth(&self) -> u32 {
        match self.depth {
            0 => u32::MAX,
            depth => depth,
        }
    }

    fn pick(&mut self, view: &View) -> Pick {
        // Device room beyond D does not count as held back: for this policy the device has depth D.
        let full = self.depth > 0 && view.device().in_flight >= self.depth;
        match self.waiting.first() {
            Some((_, vm)) if !full => Pick::Start {
                head: view
                    .head(view.vm_at(vm))
                    .expect("a VM that waits has a head"),
                max: u32::MAX,
                held: Nanos::ZERO,
            },
            _ => Pick::Idle(Nanos::MAX),
        }
    }

    fn footprint(&self) -> Footprint {
        let vms = self.flows.len();
        Footprint {
            vm: size_of::<Flow>() + ByTag::bytes(vms).div_ceil(vms.max(1)),
            vm_cold: self.cost.bytes_per_vm(),
            ..Footprint::default()
        }
    }
}
