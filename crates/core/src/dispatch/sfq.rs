//! SFQ(D): start-time fair queueing with up to D I/Os outstanding (Goyal, Vin, Cheng, SIGCOMM
//! 1996; Jin, Chase, Kaur: Interposed proportional sharing, SIGMETRICS 2004).
//!
//! Each VM carries one tag in virtual time. While it waits that is its head's start tag; while
//! it does not, the finish tag of what it was served last.
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
//! Readings, where the papers leave room:
//! - The cost of an I/O is, by the parameter `cost`: `bytes`, at least `cost_size`; `requests`:
//!   one for each guest request at its first service; `size-classes`: one for every `cost_size`
//!   begun. What moves no data costs as the smallest I/O does.
//! - D counts everything outstanding, flushes and what another policy left in flight included.
//! - A flush does not wait for its turn (the engine's express lane). It moves its VM's tag as a
//!   small I/O would, to at most 32 of them ahead of v: a debt, but not one without end.
//! - A weight that changes scales what its VM is ahead of v, so that it counts at once.
//! - A VM whose gates are shut is as one with nothing waiting: it saves nothing up.
//!
//! Bounds, with c the largest cost of an I/O of a VM and w its weight:
//! - Fairness: over any interval in which both wait, the costs dispatched for VMs i and j, each
//!   by weight, differ by at most c(i)/w(i) + c(j)/w(j), and the costs completed by at most
//!   (D + 1) times that.
//! - Starvation: from the moment a VM i waits until it is picked, another VM j is dispatched at
//!   most c(j) + w(j) a(i)/w(i), where a(i) is the cost of i's last I/O, or of 32 flushes if it
//!   flushed and that is more.

use super::moved;
use super::virtual_time::{ByTag, Virtual};
use crate::engine::Footprint;
use crate::facts::{DeviceSpec, Facts};
use crate::objective::Objective;
use crate::policy::{COST_SIZE, Capacity, Honours, ParamInfo, ParamKind, PartInfo};
use crate::request::{DeviceIo, Lane, Op, ReqId, VmId};
use crate::roles::{Dispatcher, Event, Interests, Knob, Pick};
use crate::starvation::{Bound, Cost, Lead, Shares};
use crate::time::Nanos;

/// What an I/O costs its VM.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CostBy {
    /// Its bytes, at least `cost_size`.
    Bytes,
    /// The guest requests it serves first.
    Requests,
    /// The multiples of `cost_size` it begins.
    SizeClasses,
}

impl CostBy {
    /// The configuration's words, in the order of the variants.
    pub const WORDS: &[&str] = &["bytes", "requests", "size-classes"];

    /// By its place among the words.
    pub(crate) fn from_word(place: u64) -> CostBy {
        [CostBy::Bytes, CostBy::Requests, CostBy::SizeClasses][place as usize]
    }
}

/// SFQ(D)'s parameters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SfqParams {
    /// I/Os outstanding at most; 0: as many as the device takes.
    pub depth: u32,
    /// What an I/O costs.
    pub cost: CostBy,
    /// The smallest cost in bytes, and the size of a size class.
    pub cost_size: u32,
}

/// What the registry knows of it.
pub(crate) static PART: PartInfo<dyn Dispatcher> = PartInfo {
    name: "sfq",
    summary: "shares by weight, fair from one request to the next",
    params: &[
        ParamInfo {
            name: "depth",
            kind: ParamKind::Count,
            default: 0,
            min: 0,
            max: 4096,
            help: "I/Os outstanding at most; 0: as many as the device takes",
        },
        ParamInfo::choice("cost", CostBy::WORDS, "what an I/O costs its VM"),
        COST_SIZE,
    ],
    honours: Honours {
        weight: true,
        ..Honours::NONE
    },
    build: |params, capacity| {
        let params = SfqParams {
            depth: params.get("depth") as u32,
            cost: CostBy::from_word(params.get("cost")),
            cost_size: params.get("cost_size") as u32,
        };
        Box::new(Sfq::new(params, capacity))
    },
};

/// Virtual time is cost x 256 / weight for bytes.
const BYTE_SHIFT: u32 = 8;

/// What one request costs: enough that 10,000 VMs of weight 10,000 keep an order.
const REQUEST: u64 = 1 << 20;

/// A VM's flushes take its tag so many of their cost ahead of v at most.
const FLUSHES_AHEAD: u64 = 32;

/// No I/O costs as much: a tag further ahead is so old that virtual time has gone round.
const BEYOND: u64 = 1 << 42;

#[derive(Clone, Copy, Debug)]
struct Flow {
    tag: Virtual,
    weight: u32,
    /// What the last division left over.
    carry: u32,
}

impl Flow {
    fn spend(&mut self, cost: u64) {
        let cost = cost + self.carry as u64;
        let weight = self.weight as u64;
        self.tag = self.tag.plus(cost / weight);
        self.carry = (cost % weight) as u32;
    }

    fn set_weight(&mut self, weight: u32, clock: Virtual) {
        if weight == self.weight {
            return;
        }
        self.tag = self.tag.reweighed(clock, self.weight, weight);
        self.weight = weight;
        self.carry = 0;
    }
}

/// The dispatcher.
pub struct Sfq {
    params: SfqParams,
    flows: Vec<Flow>,
    /// VMs that wait, by their heads' start tags.
    waiting: ByTag,
    /// v.
    clock: Virtual,
    /// The largest finish tag given out.
    latest: Virtual,
}

impl Sfq {
    /// Room for all the engine can hold.
    pub fn new(params: SfqParams, capacity: &Capacity) -> Sfq {
        let vms = capacity.vms as usize;
        let flow = Flow {
            tag: Virtual(0),
            weight: Objective::DEFAULT_WEIGHT,
            carry: 0,
        };
        Sfq {
            params,
            flows: vec![flow; vms],
            waiting: ByTag::with_capacity(vms),
            clock: Virtual(0),
            latest: Virtual(0),
        }
    }

    fn cost(&self, facts: &Facts, io: &DeviceIo) -> u64 {
        let SfqParams { cost_size, .. } = self.params;
        let bytes = moved(facts, io.op, io.len);
        match self.params.cost {
            CostBy::Bytes => (bytes.max(cost_size) as u64) << BYTE_SHIFT,
            // Flushes that joined go as one.
            CostBy::Requests if io.op == Op::Flush => REQUEST,
            CostBy::Requests => io.first_ops as u64 * REQUEST,
            CostBy::SizeClasses if bytes <= cost_size => REQUEST,
            CostBy::SizeClasses => bytes.div_ceil(cost_size) as u64 * REQUEST,
        }
    }

    /// A VM's head came: idle time earned it nothing.
    fn wake(&mut self, facts: &Facts, vm: usize) {
        if self.waiting.first().is_none() && facts.device().in_flight == 0 {
            // A busy period is over; in the next one everybody starts even.
            self.set_clock(self.clock.max(self.latest));
        }
        let flow = &mut self.flows[vm];
        if flow.tag < self.clock || flow.tag > self.clock.plus(BEYOND) {
            flow.tag = self.clock;
            flow.carry = 0;
        }
        self.waiting.set(vm, flow.tag);
    }

    fn set_clock(&mut self, clock: Virtual) {
        self.clock = clock;
        self.waiting.follow(clock);
    }

    fn charge(&mut self, facts: &Facts, io: &DeviceIo) {
        let vm = io.vm.index();
        let cost = self.cost(facts, io);
        let flow = &mut self.flows[vm];
        if io.op == Op::Flush {
            let before = flow.tag.max(self.clock);
            flow.tag = before;
            flow.spend(cost);
            let most = self.clock.plus(FLUSHES_AHEAD * cost / flow.weight as u64);
            flow.tag = flow.tag.min(most).max(before);
        } else {
            let start = flow.tag;
            flow.spend(cost);
            self.set_clock(start);
        }
        let tag = self.flows[vm].tag;
        self.latest = self.latest.max(tag);
        // Where that was its last unit, `remove` comes next.
        if self.waiting.contains(vm) {
            self.waiting.set(vm, tag);
        }
    }

    /// The VM's head, weight or gates changed otherwise than by a service.
    fn refresh(&mut self, facts: &Facts, vm: VmId) {
        let index = vm.index();
        match (self.waiting.contains(index), facts.head(vm).is_some()) {
            (true, true) => self.waiting.set(index, self.flows[index].tag),
            (true, false) => self.waiting.remove(index),
            (false, true) => self.wake(facts, index),
            (false, false) => {}
        }
    }

    fn set_weight(&mut self, facts: &Facts, vm: VmId, weight: u32) {
        self.flows[vm.index()].set_weight(weight, self.clock);
        self.refresh(facts, vm);
    }
}

impl Dispatcher for Sfq {
    fn interests(&self) -> Interests {
        Interests::STARTED.and(Interests::VMS)
    }

    fn by_lane(&self) -> bool {
        true
    }

    fn insert(&mut self, facts: &Facts, unit: ReqId) {
        let (vm, _) = facts.vm_lane(unit);
        if !self.waiting.contains(vm.index()) {
            self.refresh(facts, vm);
        }
    }

    fn remove(&mut self, facts: &Facts, unit: ReqId) {
        let (vm, _) = facts.vm_lane(unit);
        if facts.head(vm).is_none() {
            self.waiting.remove(vm.index());
        }
    }

    fn gate(&mut self, facts: &Facts, vm: VmId, _lane: Lane, _open: bool) {
        self.refresh(facts, vm);
    }

    fn on_event(&mut self, facts: &Facts, event: &Event) {
        match *event {
            Event::Started(io) => self.charge(facts, io),
            Event::VmAdded(vm) => {
                self.flows[vm.index()] = Flow {
                    tag: self.clock,
                    weight: facts.objective(vm).weight,
                    carry: 0,
                };
                self.refresh(facts, vm);
            }
            Event::VmChanged(vm) => self.set_weight(facts, vm, facts.objective(vm).weight),
            Event::VmRemoved(vm) => self.waiting.remove(vm.index()),
            _ => {}
        }
    }

    fn set(&mut self, facts: &Facts, vm: VmId, knob: Knob) {
        if let Knob::Weight(weight) = knob {
            self.set_weight(facts, vm, weight.clamp(1, Objective::MAX_WEIGHT));
        }
    }

    fn starvation(&self, device: &DeviceSpec) -> Bound {
        let size = self.params.cost_size.into();
        let cost = match self.params.cost {
            CostBy::Bytes => Cost::Bytes { least: size },
            CostBy::Requests => Cost::Requests,
            CostBy::SizeClasses => Cost::Classes { size },
        };
        let largest = cost.largest(device);
        Bound::Shares(Shares {
            cost,
            largest,
            lead: Lead::Ahead {
                ahead: largest.max(FLUSHES_AHEAD * cost.least()),
                once: largest,
            },
        })
    }

    fn may_hold(&self) -> bool {
        self.params.depth > 0
    }

    fn pick(&mut self, facts: &Facts) -> Pick {
        // Room beyond D is not left on purpose: to this policy the device is so deep.
        let full = self.params.depth > 0 && facts.device().in_flight >= self.params.depth;
        match self.waiting.first() {
            Some((_, vm)) if !full => Pick::Start {
                head: facts
                    .head(facts.vm_at(vm))
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
            ..Footprint::default()
        }
    }
}
