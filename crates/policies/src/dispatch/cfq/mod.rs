//! CFQ, completely fair queueing: time slices of the disk, by class and level of priority, as in
//! Linux from 2.6 to 4.20. Parameters and classes are those of its documentation
//! (Documentation/block/cfq-iosched.txt, ioprio.txt); the rules between them are stated here.
//!
//! A VM takes the role of a Linux process: it has a queue of its own, sorted by address. One queue
//! at a time is *active* and has the device to itself for a slice of time.
//!
//! ```text
//!   service tree: real time | best effort, by when they are due | idle
//!        | the first                                    ^
//!        v                                              | due again after the others' slices,
//!   [ active ] -- its slice is used, it has nothing ----+ sooner or later by what is left of
//!        |        more, or somebody preempts it           the slice or was overrun
//!        v
//!   first of a slice: its oldest, if expired; else the next in a one-way elevator
//! ```
//!
//! - *Slice*: `slice_sync` at level 4, a fifth more for each level above and less for each
//!   below: 180 ms at level 0, 40 ms at level 7. It runs from the first I/O of the queue that
//!   ends while it is active.
//! - *Place*: a queue that begins to wait is due at now + n (longest slice - its own), with n
//!   others that wait or are served; less what its last slice left when it was preempted or
//!   idled in vain, plus what an I/O overran it, at most one slice of its own either way.
//! - *Depth*: at most `quantum` I/Os of the active queue in flight while others wait; half of it
//!   until the first has ended, and when what is in flight, at `slice_idle` each, would outlast the
//!   slice. No bound for a queue that is alone, or the only synchronous one.
//! - *Idling*: an active queue that has nothing more keeps the device until what is in flight has
//!   ended, and then for `slice_idle`: a guest that reads in sequence asks for its next block at
//!   once, and that block lies next to the last. Not on flash (a device that takes no time to go
//!   elsewhere, and more than one I/O), not for a VM whose mean think time is above `slice_idle` or
//!   the rest of its slice, not for asynchronous writes, for the idle class, for a VM that is
//!   removed, held by a limit, or has no credit.
//! - *Preemption*: by a higher class at once. A queue that is idled for gives way to a request
//!   within 4 MiB of the head, which has only the rest of the slice: so two neighbours that take
//!   turns cannot hold the device for longer than one. Asynchronous writes give way to any
//!   synchronous request.
//! - *Asynchronous writes* begin when nothing synchronous is in flight, and a queue that is idled
//!   for begins when no asynchronous write is; in a slice they have 2 `slice_async_rq` I/Os for
//!   each level from their own to the lowest, while others wait.
//! - *Seekers*, with `group_seekers` (Linux from 2.6.33 on: the sync-noidle tree): a VM that seeks
//!   with few requests queued, or has a long think time, is not idled for by itself. Such queues,
//!   the other synchronous ones and the asynchronous ones each have a service tree a class, and
//!   turns by their numbers within `target_latency`; only the last seeker that runs dry is idled
//!   for.
//! - *Low latency*, with `low_latency` (from 2.6.32 on): slices shrink so that a class's busy
//!   queues all have one within `target_latency`, but not below two `slice_idle`.
//! - *The idle class* goes when the device is empty and no other VM has asked for
//!   `idle_class_grace`, one I/O at a time.
//!
//! Decisions where Linux's rules do not fit or say nothing:
//! - With `async_writes` each VM's writes have a queue of its own, not one a level shared by all:
//!   here the writer is known, and one VM could fill a shared queue. A guest's direct writes are
//!   synchronous to the host, and without the parameter all writes are. Synchronous requests
//!   preempt them after one I/O, not before it: else reads without end would starve them.
//! - As in Linux, with `shared_async`: all asynchronous writes are in one queue of best effort 4,
//!   whichever VM wrote them, so that classes are for reads and synchronous writes only. A pick
//!   from it takes O(VMs with asynchronous writes).
//! - With `async_vm_writes` off only background processes write asynchronously: a driver domain
//!   passes its guests' writes on as direct I/O and buffers its own.
//! - With `preemption` off, as in Linux 2.6.18, nothing but the idle class gives way before the end
//!   of its slice. `cfq_should_preempt` of 2.6.18 asks for a flag of the queue that preempts
//!   (`wait_request`) that only the active queue has.
//! - No groups, no merging of queues that work side by side. Without `group_seekers` a VM that
//!   seeks is idled for like any other, as the last of its class is there.
//! - Linux's eight levels of real time are one.
//! - An elevator continues where its queue's last I/O ended; the expiry of the oldest counts from
//!   when the scheduler got it. Overrunning counts for one slice at most.
//!
//! Starvation bound of a VM with n others of its class, that nothing above keeps from being served:
//! - VMs that begin to wait later than n (longest slice - own slice) + 2 longest slices after it
//!   come behind it.
//! - From then on each of the others has at most one slice before it.
//! - With `async_writes`, each queue that preempts its writes has one slice more.
//! - With `group_seekers`, each of these slices may be followed by a turn of one kind of workload:
//!   `target_latency`, or two `slice_idle` or 2 ms where that is longer.
//! - An idle VM that has waited for `idle_class_overdue` has an I/O between two slices of the
//!   others, of any class.
//! - None is stated with `shared_async`, where an expired write has as many older ones before it as
//!   others have written, nor with `async_vm_writes` off.
//! - Best effort has no bound beneath a real-time VM that never stops: that is what the class is
//!   for.

mod active;
mod address_order;
mod engine_events;
mod params;
mod queue;
mod shared_writers;
mod trees;

use params::AsyncQueues;
pub use params::{BackgroundClass, CfqParams};
pub(crate) use params::{DESCRIPTOR, waives_priority};

use active::{Active, Turn};
use address_order::AddressOrder;
use queue::{IDLE, Kind, Queue};
use shared_writers::SharedWriters;
use tidegate_base::device::DeviceSpec;
use tidegate_base::heap::IndexedHeap;
use tidegate_base::objective::Priority;
use tidegate_base::request::{Lane, Op, ReqId, VmId};
use tidegate_base::time::Nanos;
use tidegate_capacity::profile::Profile;
use tidegate_core::part::Capacity;
use tidegate_core::roles::{Dispatcher, Event, Footprint, Interests, Knob, Pick};
use tidegate_core::starvation::Bound;
use tidegate_core::view::View;
use trees::Trees;

/// Unit that was picked, kept until the engine reports its start.
#[derive(Clone, Copy, Debug)]
struct Picked {
    slot: u32,
    /// Address one past the unit's last byte.
    end: u64,
}

/// Decision on the next turn.
enum Choice {
    /// The turn of a queue.
    Turn {
        queue: usize,
        /// An idle VM's turn, because it has waited for longer than `idle_overdue`.
        overdue: bool,
    },
    /// No queue may go now: the answer to the engine.
    Wait(Pick),
}

/// Dispatcher of CFQ: time slices of the disk, by class and level of priority.
pub struct Cfq {
    params: CfqParams,
    /// Queues: one for each VM; two with asynchronous writes, or one more in all where these share
    /// one.
    queues: Vec<Queue>,
    order: AddressOrder,
    /// VMs with a write in the shared queue that may start; none without `shared_async`.
    shared_writers: SharedWriters,
    /// Queues that have something to start, except the active one.
    trees: Trees,
    /// I/Os in flight, synchronous and asynchronous.
    in_flight: [u32; 2],
    /// Queues of the idle class that have something to start, by the time since which they wait.
    idle_waiting: IndexedHeap<Nanos>,
    active: Option<Active>,
    /// The last turn went to an idle VM that had waited for `idle_overdue`; the next does not.
    favours_overdue: bool,
    picked: Option<Picked>,
    /// Time at which a queue above the idle class last got a request or completed one.
    last_activity: Option<Nanos>,
}

impl Cfq {
    /// Creates the dispatcher with room for every VM and request of the engine.
    ///
    /// # Panics
    /// When `quantum` is 0.
    pub fn new(params: CfqParams, capacity: &Capacity) -> Cfq {
        // With 0 the active queue would never start an I/O.
        assert!(params.quantum > 0, "a slice has room for at least one I/O");
        let vms = capacity.vms as usize;
        let queues = match params.async_queues() {
            AsyncQueues::None => vms,
            AsyncQueues::PerVm => 2 * vms,
            AsyncQueues::Shared => vms + 1,
        };
        let sharing = params.async_queues() == AsyncQueues::Shared;
        Cfq {
            params,
            queues: vec![Queue::new(Priority::DEFAULT); queues],
            order: AddressOrder::new(vms, capacity.requests as usize),
            shared_writers: SharedWriters::new(if sharing { vms } else { 0 }),
            trees: Trees::new(queues, &params),
            in_flight: [0; 2],
            idle_waiting: IndexedHeap::with_capacity(queues),
            active: None,
            favours_overdue: false,
            picked: None,
            last_activity: None,
        }
    }

    /// Returns whether a VM or background process writes asynchronously.
    fn writes_async(&self, view: &View, vm: VmId) -> bool {
        self.params.async_writes && (self.params.async_vm_writes || view.is_background(vm))
    }

    /// Returns the index of the queue that serves a VM's lane.
    fn queue_of(&self, view: &View, vm: VmId, lane: Lane) -> usize {
        let is_async = lane == Lane::Write && self.writes_async(view, vm);
        match self.params.async_queues() {
            AsyncQueues::PerVm if is_async => self.sync_queue(vm) + 1,
            AsyncQueues::Shared if is_async => self.shared_queue(),
            _ => self.sync_queue(vm),
        }
    }

    /// Returns the index of a VM's synchronous queue.
    fn sync_queue(&self, vm: VmId) -> usize {
        match self.params.async_queues() {
            AsyncQueues::PerVm => vm.index() * 2,
            AsyncQueues::None | AsyncQueues::Shared => vm.index(),
        }
    }

    /// Returns the index of the queue that all asynchronous writes share.
    fn shared_queue(&self) -> usize {
        self.queues.len() - 1
    }

    /// Returns whether all asynchronous writes share this queue.
    fn is_shared(&self, queue: usize) -> bool {
        self.params.async_queues() == AsyncQueues::Shared && queue == self.shared_queue()
    }

    /// Returns the VM that a queue serves, which must not be the shared one.
    fn vm_of(&self, view: &View, queue: usize) -> VmId {
        view.vm_at(match self.params.async_queues() {
            AsyncQueues::PerVm => queue / 2,
            AsyncQueues::None | AsyncQueues::Shared => queue,
        })
    }

    /// Returns the lanes that a queue serves. The queue of asynchronous writes of a VM that has
    /// none serves no lane.
    fn lanes(&self, view: &View, queue: usize) -> &'static [Lane] {
        if self.is_shared(queue) {
            return &[Lane::Write];
        }
        let asynchronous = self.writes_async(view, self.vm_of(view, queue));
        match (self.is_sync(queue), asynchronous) {
            (true, true) => &[Lane::Read],
            (true, false) => &[Lane::Read, Lane::Write],
            (false, true) => &[Lane::Write],
            (false, false) => &[],
        }
    }

    /// Returns whether a queue is synchronous: all are, except those of writes with `async_writes`.
    fn is_sync(&self, queue: usize) -> bool {
        match self.params.async_queues() {
            AsyncQueues::None => true,
            AsyncQueues::PerVm => queue.is_multiple_of(2),
            AsyncQueues::Shared => queue != self.shared_queue(),
        }
    }

    /// Returns the length of a queue's slice before `low_latency` shortens it.
    fn slice(&self, queue: usize) -> Nanos {
        let sync = self.is_sync(queue);
        self.params.slice(sync, self.queues[queue].class)
    }

    /// Returns whether a queue holds a unit that may start.
    fn has_any(&self, view: &View, queue: usize) -> bool {
        if self.is_shared(queue) {
            return !self.shared_writers.is_empty();
        }
        let vm = self.vm_of(view, queue);
        match self.lanes(view, queue) {
            [] => false,
            [lane] => view.gate_open(vm, *lane) && view.lane_head(vm, *lane).is_some(),
            _ => view.has_head(vm),
        }
    }

    /// Updates a queue's place after the head or the gate of this VM's lane changed.
    fn lane_changed(&mut self, view: &View, vm: VmId, lane: Lane) {
        let queue = self.queue_of(view, vm, lane);
        if self.is_shared(queue) {
            let may_start = view.gate_open(vm, lane) && view.lane_head(vm, lane).is_some();
            self.shared_writers.set(vm.index(), may_start);
        }
        self.update_place(view, queue);
    }

    /// Returns the priority of a VM or background process, as far as parameters let its objective
    /// name one.
    fn class_of(&self, view: &View, vm: VmId) -> Priority {
        use BackgroundClass::*;
        let background = view.is_background(vm);
        match self.params.background_class {
            _ if !self.params.priorities => Priority::DEFAULT,
            Idle if background => Priority::Idle,
            BestEffort if background => Priority::DEFAULT,
            Idle | BestEffort | AsNamed => view.objective(vm).priority,
        }
    }

    /// Updates a queue's place in the service tree after its head, gates or class changed.
    fn update_place(&mut self, view: &View, queue: usize) {
        let any = self.has_any(view, queue);
        if !any || self.queues[queue].class != Priority::Idle {
            self.idle_waiting.remove(queue);
        } else if !self.idle_waiting.contains(queue) {
            // Only the first unit sets the time: `idle_overdue` counts from when the VM began to
            // wait.
            self.idle_waiting.set(queue, view.now());
        }
        // The active queue stands in no tree; it returns to one in `expire`.
        if self.active.is_some_and(|active| active.queue == queue) {
            return;
        }
        match (any, self.queues[queue].in_tree) {
            (true, false) => {
                // The more queues wait, the later a queue with a short slice is due: so each has
                // its turn about once in the time of all slices, and shares follow the levels.
                let others = self.trees.waiting() + self.active.is_some() as u64;
                let behind = self.params.longest_slice() - self.slice(queue);
                let offset = Nanos(others.saturating_mul(behind.0));
                self.queues[queue].kind = self.kind_of(queue);
                self.queues[queue].schedule(view.now(), offset);
                self.put_in_tree(queue);
            }
            (false, true) => self.take_from_tree(queue),
            _ => {}
        }
    }

    /// Returns the kind of service tree that a queue belongs to by its present behaviour.
    fn kind_of(&self, queue: usize) -> Kind {
        if !self.is_sync(queue) {
            Kind::Async
        } else if self.params.group_seekers && !self.queues[queue].idle_window {
            Kind::NoIdle
        } else {
            Kind::Sync
        }
    }

    fn put_in_tree(&mut self, queue: usize) {
        let of_queue = &mut self.queues[queue];
        of_queue.in_tree = true;
        self.trees.insert(queue, of_queue.kind, of_queue.key());
    }

    fn take_from_tree(&mut self, queue: usize) {
        let of_queue = &mut self.queues[queue];
        if of_queue.in_tree {
            of_queue.in_tree = false;
            self.trees.remove(queue, of_queue.kind, of_queue.rank());
        }
    }

    /// Gives the device to a queue; `ends` is the end of its slice if it inherits another's.
    fn activate(&mut self, queue: usize, ends: Option<Nanos>) {
        self.take_from_tree(queue);
        self.active = Some(Active::new(queue, ends));
    }

    /// Ends the active queue's turn. `left`: the rest of its slice in nanoseconds (below zero, an
    /// overrun), where that counts for its next place.
    fn expire(&mut self, view: &View, left: Option<i64>) {
        let Some(Active { queue, .. }) = self.active.take() else {
            return;
        };
        if let Some(left) = left {
            // Bounded by one slice either way, so that one very long I/O cannot keep the VM out for
            // long.
            let slice = self.slice(queue).0 as i64;
            // `update_place` reads it as it puts the queue into the tree: this must come first.
            self.queues[queue].slice_left = left.clamp(-slice, slice);
        }
        self.update_place(view, queue);
    }

    /// Returns the queue whose turn is next, or the wait if none may go now.
    fn choose(&mut self, view: &View) -> Choice {
        let Some(rank) = self.trees.first_rank() else {
            return Choice::Wait(Pick::Idle(Nanos::MAX));
        };
        let now = view.now();
        let overdue = match self.params.idle_overdue {
            // Zero turns the exception off: the idle class then waits for as long as others are
            // busy.
            Nanos::ZERO => None,
            after => self
                .idle_waiting
                .peek()
                .map(|(since, q)| (since + after, q)),
        };
        let due = match overdue {
            // An overdue idle VM has one turn between two turns of the others.
            Some((due, queue)) if due <= now && !self.favours_overdue => {
                return Choice::Turn {
                    queue,
                    overdue: true,
                };
            }
            Some((due, _)) if due > now => due,
            _ => Nanos::MAX,
        };
        let quiet_from = match self.last_activity {
            Some(last_activity) if rank == IDLE => last_activity + self.params.idle_grace,
            _ => Nanos::ZERO,
        };
        // The idle class goes only on an empty device; the end of the last I/O leads to the next
        // pick.
        if rank == IDLE && view.device().in_flight > 0 {
            return Choice::Wait(Pick::Wait(due));
        }
        if quiet_from > now {
            return Choice::Wait(Pick::Wait(quiet_from.min(due)));
        }
        let next = self.trees.next_turn(&self.params, now);
        Choice::Turn {
            queue: next.expect("a class waits").1,
            overdue: false,
        }
    }
}

impl Dispatcher for Cfq {
    fn interests(&self) -> Interests {
        Interests::STARTED
            .union(Interests::ENDED)
            .union(Interests::INHERITED)
            .union(Interests::ARRIVED)
            .union(Interests::MERGED)
            .union(Interests::ADVANCED)
            .union(Interests::VMS)
    }

    fn insert(&mut self, view: &View, unit: ReqId) {
        let (vm, lane) = view.queued(unit).vm_lane();
        let addr = view.queued(unit).unit().addr;
        // Inserted behind a shut gate, too: the order is of addresses, and gates are read at the
        // pick.
        self.order.insert(view.now(), vm, lane, unit.index, addr);
        let queue = self.queue_of(view, vm, lane);
        // Counted although the gate may be shut: `waiting` tells how deep the VM's queue is.
        self.queues[queue].waiting += 1;
        self.lane_changed(view, vm, lane);
        // A unit behind a shut gate cannot start, so it neither keeps the idle class back nor
        // preempts.
        if !view.gate_open(vm, lane) {
            return;
        }
        if self.queues[queue].class != Priority::Idle {
            self.last_activity = Some(view.now());
        }
        self.preempt(view, queue, addr);
    }

    fn remove(&mut self, view: &View, unit: ReqId) {
        let (vm, lane) = view.queued(unit).vm_lane();
        self.order.remove(vm, lane, unit.index);
        let queue = self.queue_of(view, vm, lane);
        self.queues[queue].waiting -= 1;
        self.lane_changed(view, vm, lane);
    }

    fn gate(&mut self, view: &View, vm: VmId, lane: Lane, _open: bool) {
        self.lane_changed(view, vm, lane);
    }

    fn on_event(&mut self, view: &View, event: &Event) {
        match *event {
            Event::Started(io) => self.started(view, io),
            Event::Ended { io, .. } => self.ended(view, io),
            // I/Os of the former policy occupy the device, and their ends will be counted down
            // here.
            Event::Inherited(io) if io.op != Op::Flush => {
                let queue = self.queue_of(view, io.vm, io.op.lane());
                self.queues[queue].in_flight += 1;
                self.in_flight[!self.is_sync(queue) as usize] += 1;
            }
            Event::Arrived(unit) => self.arrived(view, unit),
            Event::Merged { into: unit, .. } | Event::Advanced(unit) => {
                let (vm, lane) = view.queued(unit).vm_lane();
                let addr = view.queued(unit).unit().addr;
                self.order.update_address(vm, lane, unit.index, addr);
            }
            Event::VmAdded(vm) => self.vm_added(view, vm),
            // A class that a controller has set stands until the controller sets another.
            Event::VmChanged(vm) if !self.queues[self.sync_queue(vm)].class_is_controlled => {
                let class = self.class_of(view, vm);
                self.set_class(view, vm, class, false);
            }
            Event::VmRemoved(vm) => self.vm_removed(view, vm),
            _ => {}
        }
    }

    fn set(&mut self, view: &View, vm: VmId, knob: Knob) {
        if let Knob::Class(class) = knob
            && self.params.priorities
        {
            let class = match class {
                // Only best effort has levels; a controller's level may be out of range.
                Priority::BestEffort(level) => Priority::BestEffort(level.min(Priority::LEVEL_MAX)),
                other => other,
            };
            self.set_class(view, vm, class, true);
        }
    }

    fn serves_background(&self) -> bool {
        true
    }

    fn starvation(&self, _device: &DeviceSpec, _: Option<&Profile>) -> Bound {
        self.params.starvation()
    }

    fn pick(&mut self, view: &View) -> Pick {
        // Before the active queue's own turn: a preemption may have waited for a first asynchronous
        // I/O.
        self.give_way(view);
        if let Some(active) = self.active {
            match self.continue_turn(view, active) {
                Turn::Stays(pick) => return pick,
                Turn::Over(left) => self.expire(view, left),
            }
        }
        match self.choose(view) {
            Choice::Turn { queue, overdue } => {
                self.favours_overdue = overdue;
                self.activate(queue, None);
                let active = self.active.expect("just activated");
                self.start_or_wait(view, active)
            }
            Choice::Wait(pick) => pick,
        }
    }

    fn footprint(&self) -> Footprint {
        let queue = size_of::<Queue>() + IndexedHeap::<Nanos>::BYTES_PER_ID;
        let queues = self.queues.len();
        let (queues_per_vm, writers) = match self.params.async_queues() {
            AsyncQueues::None => (1, 0),
            AsyncQueues::PerVm => (2, 0),
            AsyncQueues::Shared => (1, SharedWriters::BYTES_PER_VM),
        };
        // `max(1)`: an engine without room for VMs still asks for its footprint.
        let tree = Trees::bytes(queues, &self.params).div_ceil(queues.max(1));
        let order = AddressOrder::footprint();
        Footprint {
            vm: queues_per_vm * (queue + tree) + order.vm + writers,
            ..order
        }
    }
}
