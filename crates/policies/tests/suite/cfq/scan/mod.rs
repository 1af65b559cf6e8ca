//! CFQ's rules as linear scans: a slow model of the dispatcher.

mod events;
mod picks;
mod trees;

use crate::common::lab::{GUESTS, Lab};
use crate::common::policy;
use std::collections::HashMap;
use tidegate_core::objective::Priority;
use tidegate_core::request::{DeviceIo, Lane, ReqId, VmId};
use tidegate_policies::policy::PolicySpec;

#[derive(Clone, Copy, Debug)]
struct Params {
    slice: [u64; 2],
    idle: u64,
    depth: u32,
    expire: [u64; 2],
    back: (u64, u64),
    priorities: bool,
    async_writes: bool,
    shared_async: bool,
    async_vm_writes: bool,
    preemption: bool,
    grace: u64,
    overdue: u64,
    positioning: u64,
    /// Class of background processes: 0 idle, 1 best effort, 2 their objective's.
    background: u64,
    async_rq: u64,
    group: bool,
    low_latency: bool,
    target: u64,
}

impl Params {
    fn spec(&self, name: &str) -> PolicySpec {
        let mut spec = policy(name);
        for (name, value) in [
            ("slice_sync", self.slice[0]),
            ("slice_async", self.slice[1]),
            ("slice_idle", self.idle),
            ("slice_depth", self.depth.into()),
            ("fifo_expire_sync", self.expire[0]),
            ("fifo_expire_async", self.expire[1]),
            ("back_seek_max", self.back.0),
            ("back_seek_penalty", self.back.1),
            ("priorities", self.priorities.into()),
            ("async_writes", self.async_writes.into()),
            ("shared_async", self.shared_async.into()),
            ("async_vm_writes", self.async_vm_writes.into()),
            ("preemption", self.preemption.into()),
            ("background_class", self.background),
            ("idle_class_grace", self.grace),
            ("idle_class_overdue", self.overdue),
            ("slice_async_rq", self.async_rq),
            ("group_seekers", self.group.into()),
            ("low_latency", self.low_latency.into()),
            ("target_latency", self.target),
        ] {
            spec.set(name, value).expect("in range");
        }
        spec
    }
}

/// Queue of the model; times are signed numbers without bounds.
#[derive(Clone, Debug)]
struct Queue {
    /// VM that the queue serves; `None` for the queue that asynchronous writes share.
    vm: Option<VmId>,
    /// 1 for a queue of asynchronous writes, else 0.
    kind: usize,
    class: Priority,
    /// Due time while the queue is in the tree.
    due: Option<i128>,
    left: i128,
    position: u64,
    last_end: Option<u64>,
    thoughts: Vec<u64>,
    in_flight: u32,
    /// Time since which a queue of the idle class waits.
    idle_since: Option<u64>,
    /// Service tree in which the queue began to wait: asynchronous, seekers, others.
    tree: usize,
    asked_to: Option<u64>,
    /// Marks of the latest requests: `true` for a seek.
    history: Vec<bool>,
    deep: bool,
    window: bool,
}

impl Queue {
    fn new(vm: Option<VmId>, kind: usize, class: Priority) -> Queue {
        Queue {
            vm,
            kind,
            class,
            due: None,
            left: 0,
            position: 0,
            last_end: None,
            thoughts: Vec::new(),
            in_flight: 0,
            idle_since: None,
            tree: 2,
            asked_to: None,
            history: Vec::new(),
            deep: false,
            window: true,
        }
    }
}

/// Unit as the model last saw it.
#[derive(Clone, Copy, Debug)]
struct Seen {
    id: ReqId,
    vm: VmId,
    lane: Lane,
    entered: u64,
}

#[derive(Clone, Copy, Debug)]
struct Active {
    queue: usize,
    ends: Option<u64>,
    began: u64,
    started: u64,
    gives_way_to: Option<usize>,
}

/// Model that scans all queues for each pick.
#[derive(Clone, Debug)]
struct Scan {
    params: Params,
    depth: u32,
    seen: Vec<Seen>,
    queues: Vec<Queue>,
    active: Option<Active>,
    asked: Option<u64>,
    favoured: bool,
    open: [[bool; 2]; GUESTS],
    /// Class and tree whose turn it is, and the end of the turn.
    serving: Option<(u8, usize, u64)>,
    busy: [u64; 3],
    /// Think times of a class's tree, and the end of its last I/O.
    thoughts: HashMap<(u8, usize), Vec<u64>>,
    tree_ends: HashMap<(u8, usize), u64>,
}

/// Returns the mean with weight 1/8 for each value, or `None` for fewer than three.
fn mean(thoughts: &[u64]) -> Option<u64> {
    let (mut sum, mut weight) = (0, 0);
    for thought in thoughts {
        sum = sum - sum / 8 + 32 * thought;
        weight = weight - weight / 8 + 32;
    }
    (weight > 80).then(|| sum / weight)
}

fn rank(class: Priority) -> u8 {
    match class {
        Priority::RealTime => 0,
        Priority::BestEffort(_) => 1,
        Priority::Idle => 2,
    }
}

fn priority(weight: u32) -> Priority {
    match weight {
        1 => Priority::RealTime,
        10 => Priority::Idle,
        weight => Priority::BestEffort(weight as u8 % 8),
    }
}

impl Scan {
    fn new(params: Params, depth: u32) -> Scan {
        Scan {
            params,
            depth,
            seen: Vec::new(),
            queues: Vec::new(),
            active: None,
            asked: None,
            favoured: false,
            open: [[true; 2]; GUESTS],
            serving: None,
            busy: [0; 3],
            thoughts: HashMap::new(),
            tree_ends: HashMap::new(),
        }
    }

    fn kind(&self, lab: &Lab, vm: VmId, lane: Lane) -> usize {
        let of_vm = self.params.async_vm_writes || lab.driver.engine.view().is_background(vm);
        usize::from(self.params.async_writes && of_vm && lane == Lane::Write)
    }

    fn queue_of(&self, lab: &Lab, vm: VmId, lane: Lane) -> usize {
        let kind = self.kind(lab, vm, lane);
        let shared = self.params.shared_async && kind == 1;
        let whose = (!shared).then_some(vm);
        let found = self
            .queues
            .iter()
            .position(|q| (q.vm, q.kind) == (whose, kind));
        found.expect("it was added")
    }

    /// Returns the place of a queue among those that are equal: its VM's, then its kind; the shared
    /// one comes last.
    fn place(&self, queue: usize) -> (usize, usize) {
        let Queue { vm, kind, .. } = self.queues[queue];
        (vm.map_or(usize::MAX, |vm| vm.index()), kind)
    }

    fn class(&self, lab: &Lab, vm: VmId) -> Priority {
        let view = lab.driver.engine.view();
        match (view.is_background(vm), self.params.background) {
            _ if !self.params.priorities => Priority::DEFAULT,
            (true, 0) => Priority::Idle,
            (true, 1) => Priority::DEFAULT,
            _ => view.objective(vm).priority,
        }
    }

    fn add_queues(&mut self, lab: &Lab, vm: VmId) {
        let own_writes = self.params.async_writes && !self.params.shared_async;
        for kind in 0..=usize::from(own_writes) {
            let class = self.class(lab, vm);
            self.queues.push(Queue::new(Some(vm), kind, class));
        }
    }

    /// Adds the queue that asynchronous writes share, whatever becomes of the VMs.
    fn add_shared_queue(&mut self) {
        if self.params.async_writes && self.params.shared_async {
            self.queues.push(Queue::new(None, 1, Priority::DEFAULT));
        }
    }

    fn slice(&self, queue: usize) -> i128 {
        let fifths = match self.queues[queue].class {
            Priority::BestEffort(level) => 9 - level as u64,
            _ => 5,
        };
        (self.params.slice[self.queues[queue].kind] / 5 * fifths) as i128
    }

    fn longest(&self) -> i128 {
        (self.params.slice[0] / 5 * 9) as i128
    }

    fn guest(lab: &Lab, vm: VmId) -> Option<usize> {
        lab.guests.iter().position(|g| g.vm == vm)
    }

    /// Units of a queue that may go.
    fn ready(&self, lab: &Lab, queue: usize) -> Vec<Seen> {
        let of_queue = self
            .seen
            .iter()
            .filter(|s| self.queue_of(lab, s.vm, s.lane) == queue);
        let open = of_queue.filter(|s| {
            let guest = Scan::guest(lab, s.vm).expect("it is there");
            self.open[guest][s.lane.index()]
        });
        open.copied().collect()
    }

    fn rank(&mut self, lab: &Lab, queue: usize) {
        let now = lab.driver.now.0;
        let any = !self.ready(lab, queue).is_empty();
        let idle = self.queues[queue].class == Priority::Idle;
        self.queues[queue].idle_since = match (any && idle, self.queues[queue].idle_since) {
            (true, since) => since.or(Some(now)),
            (false, _) => None,
        };
        if self.active.is_some_and(|a| a.queue == queue) {
            return;
        }
        if !any {
            self.queues[queue].due = None;
        } else if self.queues[queue].due.is_none() {
            let others = self.queues.iter().filter(|q| q.due.is_some()).count();
            let others = (others + usize::from(self.active.is_some())) as i128;
            let behind = others * (self.longest() - self.slice(queue)).max(0);
            let due = now as i128 + behind - self.queues[queue].left;
            self.queues[queue].tree = self.tree_of(queue);
            self.queues[queue].due = Some(due);
            self.queues[queue].left = 0;
        }
    }

    fn expire(&mut self, lab: &Lab, left: Option<i128>) {
        let Some(active) = self.active.take() else {
            return;
        };
        let slice = self.slice(active.queue);
        if let Some(left) = left {
            self.queues[active.queue].left = left.max(-slice).min(slice);
        }
        self.rank(lab, active.queue);
    }

    fn activate(&mut self, queue: usize, ends: Option<u64>) {
        self.queues[queue].due = None;
        self.active = Some(Active {
            queue,
            ends,
            began: 0,
            started: 0,
            gives_way_to: None,
        });
    }

    fn left(&self, lab: &Lab, active: Active) -> i128 {
        let left = |ends: u64| ends as i128 - lab.driver.now.0 as i128;
        active.ends.map_or(self.slice(active.queue), left)
    }

    fn thinks(&self, queue: usize) -> u64 {
        mean(&self.queues[queue].thoughts).unwrap_or(0)
    }

    fn waited_for(&self, lab: &Lab, queue: usize) -> bool {
        let Queue {
            vm, kind, class, ..
        } = self.queues[queue];
        let Some(guest) = vm.and_then(|vm| Scan::guest(lab, vm)) else {
            return false;
        };
        let of_guest = lab.guests[guest].vm;
        let lanes = Lane::ALL
            .iter()
            .filter(|&&lane| self.kind(lab, of_guest, lane) == kind);
        let open = lanes.into_iter().all(|l| self.open[guest][l.index()]);
        let seeks = self.params.positioning > 0 || self.depth == 1;
        let soon = self.params.idle > 0 && self.asks_soon(queue);
        open && seeks && soon && kind == 0 && class != Priority::Idle
    }

    /// Returns the time until which the device is kept idle for the active queue with nothing in
    /// flight.
    fn idles_until(&self, lab: &Lab, active: Active) -> Option<u64> {
        let last_end = self.queues[active.queue].last_end?;
        let fits = self.thinks(active.queue) as i128;
        let fits = active
            .ends
            .is_none_or(|e| lab.driver.now.0 as i128 + fits <= e as i128);
        let until = (last_end + self.params.idle).min(active.ends.unwrap_or(u64::MAX));
        (fits && self.waited_for(lab, active.queue)).then_some(until)
    }

    /// Returns the queue that is first in the tree.
    fn first(&self) -> Option<usize> {
        let waiting = (0..self.queues.len()).filter(|&q| self.queues[q].due.is_some());
        waiting.min_by_key(|&q| {
            let due = self.queues[q].due;
            (rank(self.queues[q].class), due, self.place(q))
        })
    }

    fn choose(&mut self, lab: &Lab) -> Option<(usize, bool)> {
        let (first, now) = (self.first()?, lab.driver.now.0);
        let idlers = (0..self.queues.len()).filter(|&q| self.queues[q].idle_since.is_some());
        let longest = idlers.min_by_key(|&q| (self.queues[q].idle_since, self.place(q)));
        let since = |q: usize| self.queues[q].idle_since.expect("it waits");
        let overdue = longest.filter(|&q| since(q) + self.params.overdue <= now);
        if self.params.overdue > 0 && !self.favoured && overdue.is_some() {
            return overdue.map(|queue| (queue, true));
        }
        if rank(self.queues[first].class) < 2 {
            return Some((self.next_by_tree(lab, first), false));
        }
        let quiet = self
            .asked
            .is_none_or(|asked| asked + self.params.grace <= now);
        (quiet && lab.in_flight().is_empty()).then_some((first, false))
    }

    fn pick(&self, lab: &Lab, active: Active) -> ReqId {
        let ready = self.ready(lab, active.queue);
        let view = lab.driver.engine.view();
        let heads = ready
            .iter()
            .filter(|s| view.lane_head(s.vm, s.lane) == Some(s.id));
        let oldest = heads.min_by_key(|s| lab.unit(s.id).seq);
        let oldest = oldest.expect("it has something");
        let kind = self.queues[active.queue].kind;
        if active.started == 0 && oldest.entered + self.params.expire[kind] <= lab.driver.now.0 {
            return oldest.id;
        }
        let position = self.queues[active.queue].position;
        let (max, penalty) = self.params.back;
        let cost = |s: &Seen| {
            let addr = lab.unit(s.id).addr;
            let back = position.saturating_sub(addr);
            if addr >= position {
                Some((addr - position, 0))
            } else {
                (back <= max).then_some((back * penalty, 1))
            }
        };
        // Of those at one address, first the last slot behind the head, or the first ahead.
        let reachable = ready.iter().filter_map(|s| {
            let (cost, behind) = cost(s)?;
            let slot = s.id.index() as i64;
            let lane = s.lane.index();
            let slot = if behind == 1 { -slot } else { slot };
            Some((cost, behind, lane, slot, s.id))
        });
        let nearest =
            reachable.min_by_key(|&(cost, behind, lane, slot, _)| (cost, behind, lane, slot));
        nearest.map(|n| n.4).unwrap_or_else(|| {
            let lowest = ready
                .iter()
                .min_by_key(|s| (lab.unit(s.id).addr, s.id.index()));
            lowest.expect("it has something").id
        })
    }

    fn preempt(&mut self, lab: &Lab, queue: usize, addr: u64) {
        let Some(active) = self.active.filter(|a| a.queue != queue) else {
            return;
        };
        let (of_active, of_new) = (&self.queues[active.queue], &self.queues[queue]);
        let below = rank(of_new.class) > rank(of_active.class);
        if !self.params.preemption || of_new.kind == 1 || below || of_active.class == Priority::Idle
        {
            return;
        }
        let left = Some(self.left(lab, active));
        if of_active.kind == 1 {
            let active = self.active.as_mut().expect("just seen");
            active.gives_way_to = active.gives_way_to.or(Some(queue));
            return self.give_way(lab);
        }
        let dry = of_active.in_flight == 0 && self.ready(lab, active.queue).is_empty();
        let idles = self
            .idles_until(lab, active)
            .is_some_and(|u| u > lab.driver.now.0);
        if dry && idles && addr.abs_diff(lab.driver.engine.device_stats().last_addr) <= 4 << 20 {
            self.expire(lab, left);
            self.preempted(lab, queue);
            self.activate(queue, active.ends);
        }
    }

    /// Asynchronous writes that were preempted have one I/O all the same.
    fn give_way(&mut self, lab: &Lab) {
        if let Some(active) = self.active.filter(|active| active.started > 0)
            && let Some(queue) = active.gives_way_to
        {
            self.expire(lab, Some(self.left(lab, active)));
            if self.queues[queue].due.is_some() {
                self.preempted(lab, queue);
                self.activate(queue, None);
            }
        }
    }

    /// Takes in a unit that the model has not seen yet.
    fn learn(&mut self, lab: &Lab, (id, guest): (ReqId, usize)) {
        if self.seen.iter().any(|s| s.id == id) {
            return;
        }
        let unit = lab.unit(id);
        let (vm, lane) = (lab.guests[guest].vm, unit.op.lane());
        self.seen.push(Seen {
            id,
            vm,
            lane,
            entered: lab.driver.now.0,
        });
        let queue = self.queue_of(lab, vm, lane);
        self.rank(lab, queue);
        if self.open[guest][lane.index()] {
            if self.queues[queue].class != Priority::Idle {
                self.asked = Some(lab.driver.now.0);
            }
            self.preempt(lab, queue, unit.addr);
        }
    }

    /// Ends the active state of a removed VM whose last I/O has ended, and preemptions in its
    /// favour.
    fn forget_the_gone(&mut self, lab: &Lab) {
        let gone = |scan: &Scan, queue: usize| {
            let vm = scan.queues[queue].vm;
            let of_vm = |io: &DeviceIo| Some(io.vm) == vm;
            let busy = lab.in_flight().iter().any(of_vm);
            vm.is_some_and(|vm| Scan::guest(lab, vm).is_none()) && !busy
        };
        if let Some(mut active) = self.active {
            let to = active.gives_way_to.filter(|&to| !gone(self, to));
            active.gives_way_to = to;
            self.active = (!gone(self, active.queue)).then_some(active);
        }
    }

    fn note_gates(&mut self, lab: &Lab) {
        for guest in lab.in_order() {
            for lane in Lane::ALL {
                let open = lab.open(guest, lane);
                if self.open[guest][lane.index()] != open {
                    self.open[guest][lane.index()] = open;
                    let queue = self.queue_of(lab, lab.guests[guest].vm, lane);
                    self.rank(lab, queue);
                }
            }
        }
    }
}
