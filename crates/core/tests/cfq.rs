//! CFQ against its rules in linear scans, its bound on starvation, and its behaviours.

mod common;

use common::lab::{self, GUESTS, Lab, Model, Terms};
use common::*;
use proptest::prelude::*;
use std::collections::VecDeque;
use tidegate_core::engine::{DiskSpec, Engine};
use tidegate_core::facts::Facts;
use tidegate_core::objective::{Objective, Priority};
use tidegate_core::policy::{PolicySpec, Roles};
use tidegate_core::request::{ClientId, DeviceIo, Lane, Op, ReqId, Request, VmId};
use tidegate_core::roles::{Controller, Event, Interests, Knob, Knobs};
use tidegate_core::time::Nanos;

#[derive(Clone, Copy, Debug)]
struct Params {
    slice: [u64; 2],
    idle: u64,
    depth: u32,
    expire: [u64; 2],
    back: (u64, u64),
    priorities: bool,
    async_writes: bool,
    grace: u64,
    overdue: u64,
    positioning: u64,
    /// Of background tenants: idle, best effort, their objective's.
    background: u64,
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
            ("background_class", self.background),
            ("idle_class_grace", self.grace),
            ("idle_class_overdue", self.overdue),
        ] {
            spec.set(name, value).expect("in range");
        }
        spec
    }
}

/// A queue by the rules: times as signed numbers, whatever they are.
#[derive(Clone, Debug)]
struct Queue {
    vm: VmId,
    /// 1: a VM's asynchronous writes.
    kind: usize,
    class: Priority,
    /// In the tree, due then.
    due: Option<i128>,
    left: i128,
    position: u64,
    last_end: Option<u64>,
    thoughts: Vec<u64>,
    in_flight: u32,
    /// Of the idle class, and waits since then.
    idle_since: Option<u64>,
}

/// A unit as the model last saw it.
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
    started: bool,
}

/// Scans everything, each time.
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
        }
    }

    fn kind(&self, lane: Lane) -> usize {
        if self.params.async_writes {
            lane.index()
        } else {
            0
        }
    }

    fn queue_of(&self, vm: VmId, lane: Lane) -> usize {
        let kind = self.kind(lane);
        let found = self
            .queues
            .iter()
            .position(|q| (q.vm, q.kind) == (vm, kind));
        found.expect("it was added")
    }

    fn class(&self, lab: &Lab, vm: VmId) -> Priority {
        let facts = lab.engine.view();
        match (facts.is_background(vm), self.params.background) {
            _ if !self.params.priorities => Priority::DEFAULT,
            (true, 0) => Priority::Idle,
            (true, 1) => Priority::DEFAULT,
            _ => facts.objective(vm).priority,
        }
    }

    fn add_queues(&mut self, lab: &Lab, vm: VmId) {
        for kind in 0..=usize::from(self.params.async_writes) {
            self.queues.push(Queue {
                vm,
                kind,
                class: self.class(lab, vm),
                due: None,
                left: 0,
                position: 0,
                last_end: None,
                thoughts: Vec::new(),
                in_flight: 0,
                idle_since: None,
            });
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
        let Queue { vm, kind, .. } = self.queues[queue];
        let of_queue = self
            .seen
            .iter()
            .filter(|s| s.vm == vm && self.kind(s.lane) == kind);
        let open = of_queue.filter(|s| {
            let guest = Scan::guest(lab, s.vm).expect("it is there");
            self.open[guest][s.lane.index()]
        });
        open.copied().collect()
    }

    fn rank(&mut self, lab: &Lab, queue: usize) {
        let now = lab.now.0;
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
            started: false,
        });
    }

    fn left(&self, lab: &Lab, active: Active) -> i128 {
        let left = |ends: u64| ends as i128 - lab.now.0 as i128;
        active.ends.map_or(self.slice(active.queue), left)
    }

    fn thinks(&self, queue: usize) -> u64 {
        let (mut sum, mut weight) = (0, 0);
        for thought in &self.queues[queue].thoughts {
            sum = sum - sum / 8 + 32 * thought;
            weight = weight - weight / 8 + 32;
        }
        if weight > 80 { sum / weight } else { 0 }
    }

    fn waited_for(&self, lab: &Lab, queue: usize) -> bool {
        let Queue {
            vm, kind, class, ..
        } = self.queues[queue];
        let Some(guest) = Scan::guest(lab, vm) else {
            return false;
        };
        let lanes = Lane::ALL.iter().filter(|&&lane| self.kind(lane) == kind);
        let open = lanes.into_iter().all(|l| self.open[guest][l.index()]);
        let seeks = self.params.positioning > 0 || self.depth == 1;
        let thinks = self.thinks(queue) < self.params.idle;
        open && seeks && thinks && kind == 0 && class != Priority::Idle
    }

    /// Until when the active one is waited for, with nothing in flight.
    fn idles_until(&self, lab: &Lab, active: Active) -> Option<u64> {
        let last_end = self.queues[active.queue].last_end?;
        let fits = self.thinks(active.queue) as i128;
        let fits = active
            .ends
            .is_none_or(|e| lab.now.0 as i128 + fits <= e as i128);
        let until = (last_end + self.params.idle).min(active.ends.unwrap_or(u64::MAX));
        (fits && self.waited_for(lab, active.queue)).then_some(until)
    }

    /// The tree's first.
    fn first(&self) -> Option<usize> {
        let waiting = (0..self.queues.len()).filter(|&q| self.queues[q].due.is_some());
        waiting.min_by_key(|&q| {
            let Queue { vm, kind, .. } = self.queues[q];
            let due = self.queues[q].due;
            (rank(self.queues[q].class), due, vm.index(), kind)
        })
    }

    fn choose(&self, lab: &Lab) -> Option<(usize, bool)> {
        let (first, now) = (self.first()?, lab.now.0);
        let idlers = (0..self.queues.len()).filter(|&q| self.queues[q].idle_since.is_some());
        let longest = idlers.min_by_key(|&q| {
            let Queue { vm, kind, .. } = self.queues[q];
            (self.queues[q].idle_since, vm.index(), kind)
        });
        let since = |q: usize| self.queues[q].idle_since.expect("it waits");
        let overdue = longest.filter(|&q| since(q) + self.params.overdue <= now);
        if self.params.overdue > 0 && !self.favoured && overdue.is_some() {
            return overdue.map(|queue| (queue, true));
        }
        if rank(self.queues[first].class) < 2 {
            return Some((first, false));
        }
        let quiet = self
            .asked
            .is_none_or(|asked| asked + self.params.grace <= now);
        (quiet && lab.in_flight().is_empty()).then_some((first, false))
    }

    fn pick(&self, lab: &Lab, active: Active) -> ReqId {
        let ready = self.ready(lab, active.queue);
        let vm = self.queues[active.queue].vm;
        let heads = Lane::ALL.map(|lane| lab.engine.view().lane_head(vm, lane));
        let heads = ready.iter().filter(|s| heads.contains(&Some(s.id)));
        let oldest = heads.min_by_key(|s| lab.unit(s.id).seq);
        let oldest = oldest.expect("it has something");
        let kind = self.queues[active.queue].kind;
        if !active.started && oldest.entered + self.params.expire[kind] <= lab.now.0 {
            return oldest.id;
        }
        let position = self.queues[active.queue].position;
        let (max, penalty) = self.params.back;
        let cost = |s: &Seen| {
            let addr = lab.unit(s.id).addr;
            let back = position.saturating_sub(addr);
            match addr >= position {
                true => Some((addr - position, 0)),
                false if back <= max => Some((back * penalty, 1)),
                false => None,
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
        if of_new.kind == 1 || below || of_active.class == Priority::Idle {
            return;
        }
        let left = Some(self.left(lab, active));
        if of_active.kind == 1 {
            self.expire(lab, left);
            self.activate(queue, None);
            return;
        }
        let dry = of_active.in_flight == 0 && self.ready(lab, active.queue).is_empty();
        let idles = self.idles_until(lab, active).is_some_and(|u| u > lab.now.0);
        if dry && idles && addr.abs_diff(lab.engine.facts().last_addr) <= 4 << 20 {
            self.expire(lab, left);
            self.activate(queue, active.ends);
        }
    }

    /// A unit comes into sight.
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
            entered: lab.now.0,
        });
        let queue = self.queue_of(vm, lane);
        self.rank(lab, queue);
        if self.open[guest][lane.index()] {
            if self.queues[queue].class != Priority::Idle {
                self.asked = Some(lab.now.0);
            }
            self.preempt(lab, queue, unit.addr);
        }
    }

    /// A removed VM whose last I/O has ended is not active any more.
    fn forget_the_gone(&mut self, lab: &Lab) {
        if let Some(Active { queue, .. }) = self.active {
            let vm = self.queues[queue].vm;
            let busy = self.queues.iter().any(|q| q.vm == vm && q.in_flight > 0);
            if Scan::guest(lab, vm).is_none() && !busy {
                self.active = None;
            }
        }
    }

    fn note_gates(&mut self, lab: &Lab) {
        for guest in lab.in_order() {
            for lane in Lane::ALL {
                let open = lab.open(guest, lane);
                if self.open[guest][lane.index()] != open {
                    self.open[guest][lane.index()] = open;
                    let queue = self.queue_of(lab.guests[guest].vm, lane);
                    self.rank(lab, queue);
                }
            }
        }
    }
}

impl Model for Scan {
    fn reset(&mut self, lab: &Lab) {
        *self = Scan::new(self.params, self.depth);
        (0..GUESTS).for_each(|guest| self.added(lab, guest));
        for io in &lab.in_flight() {
            if Scan::guest(lab, io.vm).is_none() && self.queues.iter().all(|q| q.vm != io.vm) {
                self.add_queues(lab, io.vm);
            }
            let queue = self.queue_of(io.vm, io.op.lane());
            self.queues[queue].in_flight += 1;
        }
        // Everything comes with all gates open; then gates are asked.
        self.open = [[true; 2]; GUESTS];
        let mut order = lab.waiting.clone();
        order.sort_by_key(|w| lab.unit(w.0).seq);
        order.into_iter().for_each(|unit| self.learn(lab, unit));
        self.note_gates(lab);
    }

    fn added(&mut self, lab: &Lab, guest: usize) {
        let member = &lab.guests[guest];
        self.add_queues(lab, member.vm);
        self.open[guest] = Lane::ALL.map(|lane| lab.open(guest, lane));
    }

    fn weighed(&mut self, lab: &Lab, guest: usize) {
        let member = &lab.guests[guest];
        for kind in 0..=usize::from(self.params.async_writes) {
            let lane = Lane::ALL[kind];
            let queue = self.queue_of(member.vm, lane);
            self.queues[queue].class = self.class(lab, member.vm);
            self.rank(lab, queue);
        }
    }

    fn look(&mut self, lab: &Lab) {
        let gone = |s: &Seen| lab.waiting.iter().all(|w| w.0 != s.id);
        while let Some(place) = self.seen.iter().position(gone) {
            let gone = self.seen.remove(place);
            let queue = self.queue_of(gone.vm, gone.lane);
            self.rank(lab, queue);
        }
        self.forget_the_gone(lab);
        self.note_gates(lab);
        lab.waiting.iter().for_each(|&unit| self.learn(lab, unit));
    }

    fn next(&mut self, lab: &Lab) -> Option<ReqId> {
        if self.seen.is_empty() {
            return None;
        }
        let now = lab.now.0;
        if let Some(active) = self.active {
            let queue = active.queue;
            let first = self.first().map(|q| rank(self.queues[q].class));
            let Queue {
                class, in_flight, ..
            } = self.queues[queue];
            let idle = class == Priority::Idle;
            if first.is_some_and(|first| first < rank(class)) {
                let left = (!idle).then(|| self.left(lab, active));
                self.expire(lab, left);
            } else if active.ends.is_some_and(|ends| ends <= now) {
                self.expire(lab, None);
            } else if !self.ready(lab, queue).is_empty() {
                let most = match first {
                    _ if idle => 1,
                    None => u32::MAX,
                    Some(_) => self.params.depth,
                };
                return (in_flight < most).then(|| self.pick(lab, active));
            } else if first.is_none() {
                return None;
            } else if in_flight > 0 {
                if idle || self.waited_for(lab, queue) {
                    return None;
                }
                self.expire(lab, None);
            } else {
                match self.idles_until(lab, active) {
                    Some(until) if until > now => return None,
                    Some(_) => self.expire(lab, Some(self.left(lab, active))),
                    None => self.expire(lab, None),
                }
            }
        }
        let (queue, favoured) = self.choose(lab)?;
        self.favoured = favoured;
        self.activate(queue, None);
        Some(self.pick(lab, self.active.expect("just so")))
    }

    fn started(&mut self, lab: &Lab, _guest: usize, io: &DeviceIo) {
        let queue = self.queue_of(io.vm, io.op.lane());
        self.queues[queue].in_flight += 1;
        self.queues[queue].position = io.addr + io.len as u64;
        if let Some(active) = self.active.as_mut().filter(|a| a.queue == queue) {
            active.started = true;
        }
        if self.queues[queue].idle_since.is_some() {
            self.queues[queue].idle_since = Some(lab.now.0);
        }
    }

    fn arrived(&mut self, lab: &Lab, guest: usize) {
        let &(id, _) = lab.waiting.last().expect("it waits");
        let lane = lab.unit(id).op.lane();
        let queue = self.queue_of(lab.guests[guest].vm, lane);
        if let Some(last_end) = self.queues[queue].last_end {
            let thought = (lab.now.0 - last_end).min(2 * self.params.idle);
            self.queues[queue].thoughts.push(thought);
        }
    }

    fn ending(&mut self, lab: &Lab, io: &DeviceIo) {
        let queue = self.queue_of(io.vm, io.op.lane());
        if self.queues[queue].class != Priority::Idle {
            self.asked = Some(lab.now.0);
        }
        self.queues[queue].in_flight -= 1;
        self.queues[queue].last_end = Some(lab.now.0);
        let Some(active) = self.active.filter(|a| a.queue == queue) else {
            return;
        };
        let fresh = lab.now.0 + self.slice(queue) as u64;
        self.active = Some(Active {
            ends: active.ends.or(Some(fresh)),
            ..active
        });
        if self.queues[queue].class == Priority::Idle {
            self.expire(lab, None);
        } else if let Some(ends) = active.ends
            && ends <= lab.now.0
        {
            self.expire(lab, Some(ends as i128 - lab.now.0 as i128));
        }
    }
}

fn params() -> impl Strategy<Value = Params> {
    let ms = |most: u64| (0..=most).prop_map(|ms| ms * MS);
    let slice = || (1u64..60).prop_map(|ms| ms * MS);
    let back = (0u64..200, 1u64..4).prop_map(|(blocks, penalty)| (blocks * 4096, penalty));
    let overdue = prop_oneof![Just(0), (1u64..300).prop_map(|ms| ms * MS)];
    let often = || prop::bool::weighted(0.7);
    let times = (slice(), slice(), ms(20), ms(100), ms(200));
    let rest = (
        1u32..=4,
        back,
        often(),
        any::<bool>(),
        ms(40),
        overdue,
        often(),
    );
    (times, rest, 0u64..3).prop_map(|(times, rest, background)| Params {
        background,
        slice: [times.0, times.1],
        idle: times.2,
        expire: [times.3, times.4],
        depth: rest.0,
        back: rest.1,
        priorities: rest.2,
        async_writes: rest.3,
        grace: rest.4,
        overdue: rest.5,
        positioning: u64::from(rest.6) * 8 * MS,
    })
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: (ProptestConfig::default().cases / 2).max(64),
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn picks_are_those_of_the_rules(
        depth in 1u32..=5,
        merge in any::<bool>(),
        params in params(),
        classes in prop::collection::vec(1u32..=10, GUESTS),
        steps in prop::collection::vec(lab::step(1u32..=10), 0..600),
    ) {
        let policies = ["cfq", "token-bucket+cfq"].map(|name| params.spec(name));
        let terms = Terms {
            positioning: Nanos(params.positioning),
            priority,
            background: |guest| guest == 0,
            ..Terms::new(depth, merge, &classes)
        };
        lab::run_on(&terms, policies, &mut Scan::new(params, depth), steps);
    }
}

/// A guest of the little disk below.
#[derive(Clone, Copy, Debug)]
struct Habit {
    /// Requests it keeps open.
    depth: u32,
    /// From an answer to its next request.
    think: u64,
    /// It reads one thing after the other; else all over its disk.
    sequential: bool,
}

const READER: Habit = Habit {
    depth: 1,
    think: 0,
    sequential: true,
};
const SEEKER: Habit = Habit {
    depth: 4,
    think: 0,
    sequential: false,
};

struct Patron {
    client: ClientId,
    vm: VmId,
    habit: Habit,
    place: u64,
    /// When it asks next, as far as it knows.
    asks: Vec<u64>,
    served: u64,
    /// The device's time that went to it.
    busy: u64,
    turns: u64,
    longest_wait: u64,
}

/// One I/O at a time, or several in order: 500 us where the last one ended, 8 ms elsewhere.
struct Disk {
    engine: Engine,
    now: u64,
    patrons: Vec<Patron>,
    flights: VecDeque<(u64, DeviceIo)>,
    head: u64,
    free_at: u64,
    dice: u64,
    most_in_flight: u32,
    last: usize,
}

const NEAR: u64 = 500_000;
const FAR: u64 = 8 * MS;

impl Disk {
    fn new(depth: u32, positioning: u64, spec: &PolicySpec) -> Disk {
        let mut config = config(depth, 0);
        config.device.positioning = Nanos(positioning);
        Disk {
            engine: Engine::new(config, spec).expect("sound"),
            now: 0,
            patrons: Vec::new(),
            flights: VecDeque::new(),
            head: 0,
            free_at: 0,
            dice: 1,
            most_in_flight: 0,
            last: usize::MAX,
        }
    }

    fn default(depth: u32) -> Disk {
        Disk::new(depth, FAR, &policy("cfq"))
    }

    fn settle(&mut self, vm: VmId, habit: Habit) -> usize {
        let number = self.patrons.len() as u64;
        let disk = DiskSpec {
            base: number << 36,
            size: 1 << 36,
            read_only: false,
        };
        let disk = self.engine.add_disk(vm, disk).expect("fits");
        self.patrons.push(Patron {
            client: self.engine.connect(disk).expect("there"),
            vm,
            habit,
            place: 0,
            asks: vec![self.now; habit.depth as usize],
            served: 0,
            busy: 0,
            turns: 0,
            longest_wait: 0,
        });
        number as usize
    }

    fn vm(&mut self, priority: Priority, habit: Habit) -> usize {
        let objective = Objective {
            priority,
            ..Objective::default()
        };
        let vm = self.engine.add_vm(Nanos(self.now), &objective);
        self.settle(vm.expect("room"), habit)
    }

    fn run(&mut self, span: u64) {
        let end = self.now + span;
        while self.now < end {
            while self.flights.front().is_some_and(|f| f.0 <= self.now) {
                let (_, io) = self.flights.pop_front().expect("just seen");
                self.engine
                    .handle_completion(Nanos(self.now), io.id, Ok(()));
            }
            while let Some(done) = self.engine.poll_done() {
                let patron = &mut self.patrons[done.tag as usize];
                patron.asks.push(self.now + patron.habit.think);
                patron.longest_wait = patron.longest_wait.max(done.account.waited().0);
                patron.served += 1;
            }
            self.ask();
            self.start();
            let next = [
                self.flights.front().map(|f| f.0),
                self.engine.next_timeout().map(|t| t.0),
                self.patrons
                    .iter()
                    .flat_map(|p| p.asks.iter().copied())
                    .min(),
            ];
            let next = next.into_iter().flatten().min().unwrap_or(end);
            assert!(next > self.now, "nothing is left undone at {}", self.now);
            self.now = next.min(end);
        }
    }

    fn ask(&mut self) {
        for (number, patron) in self.patrons.iter_mut().enumerate() {
            let due = patron.asks.iter().filter(|&&at| at <= self.now).count();
            patron.asks.retain(|&at| at > self.now);
            for _ in 0..due {
                self.dice = self.dice.wrapping_mul(6364136223846793005).wrapping_add(1);
                if !patron.habit.sequential {
                    patron.place = (self.dice >> 33) % (1 << 23) * 8192;
                }
                let request = Request::read(patron.place, 4096, number as u64);
                patron.place += 4096;
                let taken = self
                    .engine
                    .handle_request(Nanos(self.now), patron.client, request);
                taken.expect("there is room");
            }
        }
    }

    fn start(&mut self) {
        if self.engine.next_timeout().is_some_and(|t| t.0 <= self.now) {
            self.engine.handle_timeout(Nanos(self.now));
        }
        while let Some(io) = self.engine.poll_dispatch(Nanos(self.now)) {
            let took = if io.addr == self.head { NEAR } else { FAR };
            self.head = io.addr + io.len as u64;
            self.free_at = self.free_at.max(self.now) + took;
            self.flights.push_back((self.free_at, io));
            let whose = self.patrons.iter().position(|p| p.vm == io.vm);
            let whose = whose.expect("a patron's");
            self.patrons[whose].busy += took;
            self.patrons[whose].turns += u64::from(self.last != whose);
            self.last = whose;
            let in_flight = self.engine.in_flight(io.vm);
            self.most_in_flight = self.most_in_flight.max(in_flight);
        }
    }

    fn shares(&self) -> Vec<f64> {
        let all: u64 = self.patrons.iter().map(|p| p.busy).sum();
        self.patrons
            .iter()
            .map(|p| p.busy as f64 / all as f64)
            .collect()
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        for patron in &self.patrons {
            self.engine
                .handle_disconnect(Nanos(self.now), patron.client);
        }
        for (_, io) in self.flights.drain(..) {
            self.engine
                .handle_completion(Nanos(self.now), io.id, Ok(()));
        }
        while self.engine.poll_done().is_some() {}
        assert!(self.engine.is_idle());
    }
}

const MIDDLE: Priority = Priority::DEFAULT;

fn with(params: &[(&str, u64)]) -> PolicySpec {
    let mut spec = policy("cfq");
    for (name, value) in params {
        spec.set(name, *value).expect("in range");
    }
    spec
}

#[test]
fn equals_have_equal_time_whatever_they_read() {
    let mut disk = Disk::default(1);
    for habit in [READER, SEEKER, SEEKER, READER] {
        disk.vm(MIDDLE, habit);
    }
    disk.run(60 * SECOND);
    for share in disk.shares() {
        assert!((share - 0.25).abs() < 0.02, "{:?}", disk.shares());
    }
    let [reader, seeker] = [0, 1].map(|p: usize| disk.patrons[p].served);
    assert!(reader > 12 * seeker, "{reader} and {seeker}");
}

#[test]
fn levels_share_the_time_as_their_slices_do() {
    let mut disk = Disk::default(1);
    for level in [0, 4, 7] {
        disk.vm(Priority::BestEffort(level), READER);
    }
    disk.run(60 * SECOND);
    for (patron, slice) in disk.patrons.iter().zip([180, 100, 40]) {
        // Behind the way there, which is not the slice's.
        let turn = patron.busy / patron.turns;
        assert!(turn.abs_diff(slice * MS + FAR) <= MS, "{turn}");
    }
    // The longer the slice, the sooner it is due again.
    let shares = disk.shares();
    for (share, slice) in shares.iter().zip([180.0, 100.0, 40.0]) {
        assert!((share - slice / 320.0).abs() < 0.05, "{shares:?}");
    }
    assert!(disk.patrons[2].turns < disk.patrons[0].turns);
}

#[test]
fn without_priorities_all_levels_are_equal() {
    let mut disk = Disk::new(1, FAR, &with(&[("priorities", 0)]));
    for priority in [Priority::RealTime, Priority::BestEffort(0), Priority::Idle] {
        disk.vm(priority, READER);
    }
    disk.run(60 * SECOND);
    for share in disk.shares() {
        assert!((share - 1.0 / 3.0).abs() < 0.02, "{:?}", disk.shares());
    }
}

#[test]
fn real_time_starves_best_effort_and_preempts_it() {
    let mut disk = Disk::default(1);
    let plain = disk.vm(Priority::BestEffort(0), SEEKER);
    let urgent = Habit {
        depth: 1,
        think: 300 * MS,
        sequential: false,
    };
    let urgent = disk.vm(Priority::RealTime, urgent);
    disk.run(20 * SECOND);
    // It waits for the I/O in flight, never for a slice.
    assert!(disk.patrons[urgent].longest_wait <= FAR);
    assert!(disk.patrons[urgent].served > 55);
    let before = disk.patrons[plain].served;
    assert!(before > 1000, "{before}");
    disk.vm(Priority::RealTime, READER);
    disk.run(SECOND);
    let during = disk.patrons[plain].served;
    disk.run(20 * SECOND);
    assert_eq!(disk.patrons[plain].served, during);
}

#[test]
fn idle_waits_until_nobody_asks_and_then_for_its_grace() {
    let mut disk = Disk::new(1, FAR, &with(&[("idle_class_overdue", 0)]));
    let idle = disk.vm(Priority::Idle, READER);
    // Nobody asks from its answer on for 90 ms: less than the grace.
    let now_and_then = Habit {
        think: 90 * MS,
        ..READER
    };
    let other = disk.vm(MIDDLE, now_and_then);
    disk.run(10 * SECOND);
    assert_eq!(disk.patrons[idle].served, 0);
    assert!(disk.patrons[other].served > 100);
    disk.patrons[other].habit.think = 150 * MS;
    disk.run(10 * SECOND);
    let served = disk.patrons[idle].served;
    // A third of the time is its own.
    assert!((4_000..7_000).contains(&served), "{served}");
}

#[test]
fn an_idle_vm_that_is_overdue_has_one_io() {
    let mut disk = Disk::default(1);
    let idle = disk.vm(Priority::Idle, READER);
    disk.vm(MIDDLE, SEEKER);
    disk.vm(Priority::RealTime, SEEKER);
    disk.run(61 * SECOND);
    let served = disk.patrons[idle].served;
    assert!((11..=12).contains(&served), "{served}");
    assert!(disk.patrons[idle].longest_wait <= 5 * SECOND + 200 * MS);
}

#[test]
fn a_background_tenant_has_the_class_it_is_given() {
    for (word, share) in [("idle", 0.0), ("best-effort", 0.5), ("as-named", 0.64)] {
        let words = ["idle", "best-effort", "as-named"];
        let place = words.iter().position(|w| *w == word).expect("known") as u64;
        let spec = with(&[("background_class", place), ("idle_class_overdue", 0)]);
        let mut disk = Disk::new(1, FAR, &spec);
        let objective = Objective {
            priority: Priority::BestEffort(0),
            ..Objective::default()
        };
        let backup = disk.engine.add_background(Nanos::ZERO, &objective);
        let backup = disk.settle(backup.expect("room"), READER);
        disk.vm(MIDDLE, READER);
        disk.run(60 * SECOND);
        let had = disk.shares()[backup];
        assert!((had - share).abs() < 0.05, "{word}: {had}");
    }
}

#[test]
fn idling_keeps_a_reader_together_beside_a_seeker() {
    let reads = |idle: u64| {
        let mut disk = Disk::new(1, FAR, &with(&[("slice_idle", idle)]));
        let thoughtful = Habit {
            think: MS,
            ..READER
        };
        let reader = disk.vm(MIDDLE, thoughtful);
        disk.vm(MIDDLE, SEEKER);
        disk.run(30 * SECOND);
        disk.patrons[reader].served
    };
    let (with, without) = (reads(8 * MS), reads(0));
    assert!(with > 8 * without, "{with} with idling, {without} without");
}

#[test]
fn nobody_waits_for_one_that_thinks_long() {
    let deliberate = |think: u64| {
        let mut disk = Disk::default(1);
        disk.vm(MIDDLE, Habit { think, ..READER });
        disk.vm(MIDDLE, SEEKER);
        disk.run(SECOND);
        let before = disk.engine.facts().deliberate.0;
        disk.run(20 * SECOND);
        disk.engine.facts().deliberate.0 - before
    };
    assert!(deliberate(2 * MS) > SECOND);
    assert_eq!(deliberate(12 * MS), 0);
}

#[test]
fn flash_is_not_left_idle() {
    let thoughtful = Habit {
        think: MS,
        ..READER
    };
    for (depth, positioning, idles) in [(1, 0, true), (4, 0, false), (4, FAR, true)] {
        let mut disk = Disk::new(depth, positioning, &policy("cfq"));
        disk.vm(MIDDLE, thoughtful);
        disk.vm(MIDDLE, SEEKER);
        disk.run(20 * SECOND);
        let deliberate = disk.engine.facts().deliberate;
        assert_eq!(deliberate > Nanos::SECOND, idles, "{depth}, {positioning}");
    }
}

#[test]
fn a_vm_has_its_depth_in_flight_while_others_wait() {
    let greedy = Habit {
        depth: 32,
        ..SEEKER
    };
    let mut disk = Disk::default(32);
    disk.vm(MIDDLE, greedy);
    disk.run(SECOND);
    assert_eq!(disk.most_in_flight, 32, "alone it has all");
    for patron in 1..3 {
        disk.vm(MIDDLE, greedy);
        disk.run(SECOND);
        disk.most_in_flight = 0;
        disk.run(10 * SECOND);
        assert_eq!(disk.most_in_flight, 8, "{patron}");
    }
}

/// One VM's disk whose I/Os take what the test says.
struct Bench {
    engine: Engine,
    client: ClientId,
    now: u64,
}

impl Bench {
    fn new(spec: &PolicySpec) -> Bench {
        let mut engine = Engine::new(config(1, 0), spec).expect("sound");
        let vm = engine.add_vm(Nanos::ZERO, &Objective::default());
        let disk = DiskSpec {
            base: 0,
            size: 1 << 40,
            read_only: false,
        };
        let disk = engine.add_disk(vm.expect("room"), disk).expect("fits");
        Bench {
            client: engine.connect(disk).expect("there"),
            engine,
            now: SECOND,
        }
    }

    fn ask(&mut self, blocks: &[u64]) {
        for block in blocks {
            let request = Request::read(block * 4096, 4096, 0);
            let taken = self
                .engine
                .handle_request(Nanos(self.now), self.client, request);
            taken.expect("room");
        }
    }

    fn serve(&mut self, took: u64) -> u64 {
        let io = self
            .engine
            .poll_dispatch(Nanos(self.now))
            .expect("it waits");
        self.now += took;
        self.engine
            .handle_completion(Nanos(self.now), io.id, Ok(()));
        while self.engine.poll_done().is_some() {}
        io.addr / 4096
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        self.engine.handle_disconnect(Nanos(self.now), self.client);
        while self.engine.poll_done().is_some() {}
    }
}

#[test]
fn the_elevator_goes_up_and_back_a_little() {
    let mut bench = Bench::new(&with(&[("back_seek_max", 10 * 4096)]));
    bench.ask(&[1000]);
    assert_eq!(bench.serve(MS), 1000);
    // Two blocks back count as four ahead: less than five, but not less than three.
    bench.ask(&[999, 1006]);
    assert_eq!(bench.serve(MS), 999);
    bench.ask(&[998, 1003]);
    assert_eq!(bench.serve(MS), 1003);
    assert_eq!(bench.serve(MS), 1006);
    // Nothing ahead: what is within reach behind, else the lowest of all.
    bench.ask(&[5, 3]);
    assert_eq!(bench.serve(MS), 998);
    assert_eq!([(); 2].map(|()| bench.serve(MS)), [3, 5]);
}

#[test]
fn a_slice_begins_with_what_has_expired() {
    let mut bench = Bench::new(&with(&[("fifo_expire_sync", 200 * MS)]));
    bench.ask(&[9000, 1, 2, 3, 4, 5]);
    assert_eq!([(); 3].map(|()| bench.serve(MS)), [1, 2, 3]);
    // The slice runs from the first end; it is over with this I/O.
    assert_eq!(bench.serve(100 * MS), 4);
    bench.ask(&[6, 7]);
    assert_eq!(
        bench.serve(97 * MS),
        5,
        "the oldest has waited for 103 ms only"
    );
    assert_eq!(
        bench.serve(3 * MS),
        6,
        "it has expired, but the slice goes on"
    );
    assert_eq!(bench.serve(100 * MS), 7);
    bench.ask(&[8, 9]);
    assert_eq!(bench.serve(MS), 9000);
    assert_eq!(bench.serve(MS), 8);
}

/// Three VMs on a disk of depth 1, and whose I/O goes when; each takes a millisecond.
struct Duel {
    engine: Engine,
    clients: [ClientId; 3],
    vms: [VmId; 3],
    now: u64,
}

impl Duel {
    /// The first two disks begin so far apart, the third a long way behind.
    fn new(spec: &PolicySpec, apart: u64) -> Duel {
        let mut engine = Engine::new(config(1, 0), spec).expect("sound");
        let vms = [(); 3].map(|()| {
            let vm = engine.add_vm(Nanos::ZERO, &Objective::default());
            vm.expect("room")
        });
        let clients = [0, 1, 2].map(|n| {
            let disk = DiskSpec {
                base: [0, apart, 1 << 40][n],
                size: apart,
                read_only: false,
            };
            let disk = engine.add_disk(vms[n], disk).expect("fits");
            engine.connect(disk).expect("there")
        });
        Duel {
            engine,
            clients,
            vms,
            now: SECOND,
        }
    }

    fn ask(&mut self, whose: usize, op: Op, block: u64) {
        let request = Request {
            op,
            ..Request::read(block * 4096, 4096, 0)
        };
        let taken = self
            .engine
            .handle_request(Nanos(self.now), self.clients[whose], request);
        taken.expect("room");
    }

    /// Whose I/O goes next, and what it does; none within a second: nobody's.
    fn serve(&mut self) -> Option<(usize, Op)> {
        let end = self.now + SECOND;
        let io = loop {
            if let Some(io) = self.engine.poll_dispatch(Nanos(self.now)) {
                break io;
            }
            let next = self.engine.next_timeout().filter(|next| next.0 <= end)?;
            assert!(next.0 > self.now);
            self.now = next.0;
        };
        self.now += MS;
        self.engine
            .handle_completion(Nanos(self.now), io.id, Ok(()));
        while self.engine.poll_done().is_some() {}
        let whose = self.vms.iter().position(|&vm| vm == io.vm);
        Some((whose.expect("one of them"), io.op))
    }
}

impl Drop for Duel {
    fn drop(&mut self) {
        for client in self.clients {
            self.engine.handle_disconnect(Nanos(self.now), client);
        }
        while self.engine.poll_done().is_some() {}
    }
}

#[test]
fn a_neighbours_request_preempts_for_the_rest_of_the_slice() {
    // The first VM's disk ends where the second's begins.
    for (apart, near) in [(16 << 20, true), (1 << 30, false)] {
        let mut duel = Duel::new(&policy("cfq"), apart);
        let last = apart / 4096 - 1;
        duel.ask(0, Op::Read, last);
        assert_eq!(duel.serve(), Some((0, Op::Read)));
        // While the first is idled for; from far away it waits until that is over.
        let asked = duel.now;
        duel.ask(1, Op::Read, if near { 0 } else { 5000 });
        assert_eq!(duel.serve(), Some((1, Op::Read)));
        let waited = duel.now - MS - asked;
        assert_eq!(waited, if near { 0 } else { 8 * MS });
    }
}

#[test]
fn neighbours_that_take_turns_have_one_slice_together() {
    let mut duel = Duel::new(&policy("cfq"), 16 << 20);
    let last = (16 << 20) / 4096 - 1;
    duel.ask(0, Op::Read, last);
    assert_eq!(duel.serve(), Some((0, Op::Read)));
    let begun = duel.now;
    duel.ask(2, Op::Read, 0);
    let mut turn = 0;
    loop {
        turn += 1;
        assert!(turn < 1000, "the third is left out");
        let own = turn % 2;
        duel.ask(own, Op::Read, if own == 0 { last } else { 0 });
        match duel.serve().expect("somebody's").0 {
            2 => break,
            whose => assert_eq!(whose, own),
        }
    }
    // The third was due from the start, and the slice of the first ends after 100 ms.
    assert_eq!(duel.now - MS - begun, 100 * MS);
    assert_eq!(turn, 101);
}

#[test]
fn asynchronous_writes_give_way() {
    let spec = with(&[("async_writes", 1), ("slice_idle", 0)]);
    let mut duel = Duel::new(&spec, 1 << 30);
    for block in 0..50 {
        duel.ask(0, Op::Write, block * 10);
    }
    assert_eq!(duel.serve(), Some((0, Op::Write)));
    for vm in [1, 0] {
        duel.ask(vm, Op::Read, 700);
        assert_eq!(duel.serve(), Some((vm, Op::Read)));
        assert_eq!(duel.serve(), Some((0, Op::Write)));
    }
    // Synchronous, they go on for their slice.
    let mut duel = Duel::new(&with(&[("slice_idle", 0)]), 1 << 30);
    for block in 0..50 {
        duel.ask(0, Op::Write, block * 10);
    }
    assert_eq!(duel.serve(), Some((0, Op::Write)));
    duel.ask(1, Op::Read, 700);
    assert_eq!(duel.serve(), Some((0, Op::Write)));
}

/// Turns the second VM's class when told to.
struct Turner(std::sync::mpsc::Receiver<Priority>);

impl Controller for Turner {
    fn interests(&self) -> Interests {
        Interests::ENDED
    }
    fn on_event(&mut self, facts: &Facts, _: &Event, out: &mut Knobs) {
        if let Ok(class) = self.0.try_recv() {
            let second = facts.vms().nth(1).expect("there are three");
            out.turn(second, Knob::Class(class));
        }
    }
    fn next_timer(&self) -> Nanos {
        Nanos::MAX
    }
    fn on_timer(&mut self, _: &Facts, _: &mut Knobs) {}
}

#[test]
fn a_controller_changes_a_vms_class() {
    let mut duel = Duel::new(&policy("cfq"), 1 << 30);
    let (turn, turned) = std::sync::mpsc::channel();
    let turned = std::sync::Mutex::new(Some(turned));
    duel.engine.wrap_roles(Nanos(SECOND), move |roles| {
        let turned = turned.lock().expect("alone").take();
        Roles {
            controller: turned.map(|turned| Box::new(Turner(turned)) as Box<dyn Controller>),
            ..roles
        }
    });
    for block in 0..50 {
        duel.ask(0, Op::Read, block * 10);
        duel.ask(1, Op::Read, block * 10);
    }
    assert_eq!(duel.serve().map(|s| s.0), Some(0));
    turn.send(Priority::RealTime).expect("heard");
    assert_eq!(duel.serve().map(|s| s.0), Some(0), "its own slice");
    assert_eq!(duel.serve().map(|s| s.0), Some(1), "preempted");
    turn.send(Priority::Idle).expect("heard");
    assert_eq!(duel.serve().map(|s| s.0), Some(1));
    assert_eq!(duel.serve().map(|s| s.0), Some(0));
    // The objective does not undo what a controller said.
    let plain = Objective::default();
    let set = duel
        .engine
        .set_objective(Nanos(duel.now), duel.vms[1], &plain);
    set.expect("sound");
    let rest: Vec<usize> = (0..96).map_while(|_| duel.serve()).map(|s| s.0).collect();
    assert_eq!(rest.iter().position(|&v| v == 1), Some(47));
    assert_eq!(rest.len(), 95);
}
