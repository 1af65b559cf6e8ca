//! First in, first out over all VMs: what a device without a scheduler does.
//!
//! One list in the order of arrival. A unit whose lane's gate is shut is moved aside when it
//! reaches the front, to its lane's own list; once the gate opens, lanes with units set aside
//! compete with the list's front by arrival. Each unit is moved at most once a shutting, so a
//! pick is O(1) while nothing is gated and O(log lanes) otherwise.
//!
//! Starvation bound: a unit waits for every unit that arrived before it, and for none other.

use crate::engine::Footprint;
use crate::facts::{Facts, NIL};
use crate::heap::IndexedHeap;
use crate::policy::Capacity;
use crate::request::{Lane, ReqId, VmId};
use crate::roles::{Dispatcher, Pick};
use crate::time::Nanos;

#[derive(Clone, Copy)]
struct Link {
    next: u32,
    prev: u32,
    generation: u32,
    aside: bool,
}

#[derive(Clone, Copy)]
struct List {
    head: u32,
    tail: u32,
}

const EMPTY: List = List {
    head: NIL,
    tail: NIL,
};

/// The dispatcher.
pub struct Fifo {
    links: Vec<Link>,
    main: List,
    aside: Vec<List>,
    shut: Vec<bool>,
    /// Lanes with units set aside whose gate is open, by the arrival of the first.
    reopened: IndexedHeap<u64>,
}

impl Fifo {
    /// Room for all the engine can hold.
    pub fn new(capacity: &Capacity) -> Fifo {
        let lanes = capacity.vms as usize * Lane::ALL.len();
        let link = Link {
            next: NIL,
            prev: NIL,
            generation: 0,
            aside: false,
        };
        Fifo {
            links: vec![link; capacity.requests as usize],
            main: EMPTY,
            aside: vec![EMPTY; lanes],
            shut: vec![false; lanes],
            reopened: IndexedHeap::with_capacity(lanes),
        }
    }

    fn id(&self, slot: u32) -> ReqId {
        ReqId {
            index: slot,
            generation: self.links[slot as usize].generation,
        }
    }

    /// Puts `slot` where its arrival belongs: almost always at the end, after a failure in
    /// company near the front.
    fn link(&mut self, facts: &Facts, mut list: List, slot: u32) -> List {
        let seq = facts.seq(self.id(slot));
        let later = |links: &Fifo, other: u32| facts.seq(links.id(other)) > seq;
        let mut next = NIL;
        if list.tail != NIL && later(self, list.tail) {
            next = list.head;
            while !later(self, next) {
                next = self.links[next as usize].next;
            }
        }
        let prev = if next == NIL {
            list.tail
        } else {
            self.links[next as usize].prev
        };
        self.links[slot as usize].next = next;
        self.links[slot as usize].prev = prev;
        match prev {
            NIL => list.head = slot,
            p => self.links[p as usize].next = slot,
        }
        match next {
            NIL => list.tail = slot,
            n => self.links[n as usize].prev = slot,
        }
        list
    }

    fn unlink(&mut self, mut list: List, slot: u32) -> List {
        let Link { next, prev, .. } = self.links[slot as usize];
        match prev {
            NIL => list.head = next,
            p => self.links[p as usize].next = next,
        }
        match next {
            NIL => list.tail = prev,
            n => self.links[n as usize].prev = prev,
        }
        list
    }

    /// Keeps the lane's place among the reopened ones true.
    fn rank_lane(&mut self, facts: &Facts, lane: usize) {
        match self.aside[lane].head {
            head if head != NIL && !self.shut[lane] => {
                let seq = facts.seq(self.id(head));
                self.reopened.set(lane, seq);
            }
            _ => {
                self.reopened.remove(lane);
            }
        }
    }
}

fn lane_of(facts: &Facts, unit: ReqId) -> usize {
    let (vm, lane) = facts.vm_lane(unit);
    vm.index() * 2 + lane.index()
}

impl Dispatcher for Fifo {
    fn insert(&mut self, facts: &Facts, unit: ReqId) {
        let slot = unit.index;
        self.links[unit.index()].generation = unit.generation;
        self.links[unit.index()].aside = false;
        self.main = self.link(facts, self.main, slot);
    }

    fn remove(&mut self, facts: &Facts, unit: ReqId) {
        if !self.links[unit.index()].aside {
            self.main = self.unlink(self.main, unit.index);
            return;
        }
        let lane = lane_of(facts, unit);
        self.aside[lane] = self.unlink(self.aside[lane], unit.index);
        self.rank_lane(facts, lane);
    }

    fn gate(&mut self, facts: &Facts, vm: VmId, lane: Lane, open: bool) {
        let lane = vm.index() * 2 + lane.index();
        self.shut[lane] = !open;
        self.rank_lane(facts, lane);
    }

    fn footprint(&self) -> Footprint {
        let lane = size_of::<List>() + size_of::<bool>() + IndexedHeap::<u64>::BYTES_PER_ID;
        Footprint {
            vm: Lane::ALL.len() * lane,
            request: size_of::<Link>(),
            ..Footprint::default()
        }
    }

    fn pick(&mut self, facts: &Facts) -> Pick {
        let aside = self.reopened.peek();
        loop {
            let front = self.main.head;
            let main = (front != NIL).then(|| facts.seq(self.id(front)));
            let head = match (main, aside) {
                (None, None) => return Pick::Idle(Nanos::MAX),
                (Some(m), Some((a, _))) if m < a => self.id(front),
                (Some(_), None) => self.id(front),
                (_, Some((_, lane))) => {
                    let head = self.id(self.aside[lane].head);
                    return Pick::Start {
                        head,
                        max: u32::MAX,
                        held: Nanos::ZERO,
                    };
                }
            };
            let lane = lane_of(facts, head);
            if !self.shut[lane] {
                return Pick::Start {
                    head,
                    max: u32::MAX,
                    held: Nanos::ZERO,
                };
            }
            self.main = self.unlink(self.main, front);
            self.links[front as usize].aside = true;
            self.aside[lane] = self.link(facts, self.aside[lane], front);
        }
    }
}
