//! BD-EDF, batch and delay with earliest deadline first: Flubber's latency control (Jin et al.,
//! 2013, sections 3.3 and 3.4, algorithms 1 and 2).
//!
//! Classification (algorithm 1): a VM's unit enters the VM-EDF queue with the deadline start +
//! objective - margin, where its start is its arrival, or with `deadline_from` its admission; a
//! background process's unit enters the background queue, in the order of arrival; both also enter
//! the sorted queue, by address.
//!
//! Batch and delay (algorithm 2), once the device can take an I/O. `latest` is the deadline of
//! VM-EDF's head less the time of one transfer (`max_size` / `transfer_rate`); a unit is
//! *suitable* that begins where the last I/O ended, else the nearest of the VM that had it, or with
//! `batch_order = "next"` the VM's that is next in the sorted queue:
//!
//! ```text
//!            VM-EDF empty          now >= latest             wait over
//!   room --+--------------> background    |                     |
//!          |                batch         v                     |
//!          +------------------------> VM-EDF's head <-----------+
//!          |  now < latest                                      |
//!          +---- a suitable unit waits -----> it goes           |
//!          |                                   ^  comes         |
//!          +---- none does: wait for one ------+----------------+
//! ```
//!
//! A wait begins when an I/O ends, with VM-EDF not empty and nothing else in flight. It is for the
//! VM whose I/O went last: one that may still enter, is there, is no background process, and whose
//! lane of that I/O is open. It lasts until `latest` of whatever is VM-EDF's head then, and at most
//! `max_wait`, where that is set. A flush of that VM in between begins the wait anew.
//!
//! Background units go while VM-EDF is empty, in batches of up to 16: the oldest, then each the
//! next by address behind the one before. With `promote_background_after` the oldest goes before
//! VMs once it has waited so long, and none went in that time: one I/O each such span. With
//! `bound_waits` it goes at a time that makes no VM miss its deadline, or else after twice that.
//!
//! Beyond the paper, each by a parameter of its own:
//! - `bound_waits`: what a wait can save is one positioning, so none lasts longer than that takes
//!   on average, and none is begun for a VM whose mean think time is above it. The mean is a moving
//!   one of 1/8 of the newest, over the times from the end of a VM's I/O to its next request that
//!   came while none of its own waited; one not observed yet is waited for. Where positioning costs
//!   nothing (flash, or a device without a description), a batch gains nothing either: units go by
//!   their deadlines alone. And `latest` is earlier by what positioning may take beyond the margin:
//!   twice its average, so that a promise holds for the 99th percentile, too.
//! - `deep_queue`: more than one I/O in flight. A disk that reorders may serve what is due first
//!   last of all, so a further I/O goes only if all those in flight and it, at one positioning and
//!   their transfer each, would be done by the earliest deadline in flight or waiting. When
//!   deadlines are near or past, this is a depth of one, in the order of deadlines. Background
//!   units go one at a time there, and beside nothing else, for a VM's request that comes next
//!   would have all of them before it. Where positioning costs nothing, the device's own order
//!   costs nothing either, so its whole depth is used. Without the parameter one I/O goes at a
//!   time, because the paper's disk does not reorder.
//!
//! - `batch_order`: the paper looks at the next unit in the sorted queue alone, and if that is
//!   another VM's, or none is ahead, waits for a new request of the last VM, wherever that begins
//!   (`"next"`). A VM that seeks then has the device wait for its next request while several of its
//!   own wait behind the head; the nearest unit of the VM is served at once (`"nearest"`).
//!
//! Decisions where the paper leaves room:
//! - Its line that compares the wait's end with the time holds for units that are there already,
//!   too: what is suitable goes ahead until `latest`, not until the deadline itself.
//! - A VM without a latency is due after `default_latency`, and one without a reservation either
//!   after `best_effort_latency`, as with `edf`.
//! - `max_size` stands for the size of a request that has not come yet. A larger suitable request
//!   that waits goes ahead only as long as its own transfer would end before the deadline.
//! - The last request is the one that was dispatched last; flushes are none.
//! - A unit that was chosen does not grow by merging: its time was computed for its size.
//! - A unit is in its VM's order of arrival, and competes for VM-EDF's head as its VM's first.
//!
//! Starvation bound: from `latest` on a unit waits only for those in flight, those with an earlier
//! deadline, flushes, and one promoted background unit each `promote_background_after`. Before it,
//! others may pass, or the device wait. Background units have a bound only if they are promoted.

mod background;
mod descriptor;
mod device;
mod sorted;

use super::deadline_order::{DeadlineOrder, head_of, leads};
use background::Background;
pub(crate) use descriptor::DESCRIPTOR;
use device::{InFlight, Thinking};
use sorted::Sorted;
use tidegate_base::device::DeviceSpec;
use tidegate_base::request::{DeviceIo, Lane, Op, ReqId, VmId};
use tidegate_base::time::Nanos;
use tidegate_capacity::profile::Profile;
use tidegate_core::part::Capacity;
use tidegate_core::roles::{Dispatcher, Event, Footprint, Interests, Pick, Waits};
use tidegate_core::starvation::{Bound, Deadlines, Due};
use tidegate_core::view::{Unit, View};

/// Choice among the last VM's waiting units of the one that continues its batch, where none begins
/// at the end of the last I/O.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BatchOrder {
    /// The unit nearest to the end of the last I/O, ahead or behind.
    Nearest,
    /// The next unit of the sorted queue, if it is the VM's; else the first of the VM that comes
    /// while the device waits (algorithm 2).
    Next,
}

impl BatchOrder {
    /// Words of the configuration, in the order of the variants.
    pub const WORDS: &[&str] = &["nearest", "next"];

    /// Returns the variant of the word at this index of [`BatchOrder::WORDS`].
    pub(crate) fn from_word(place: u64) -> BatchOrder {
        match place {
            0 => BatchOrder::Nearest,
            _ => BatchOrder::Next,
        }
    }
}

/// Parameters of [`BdEdf`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BdEdfParams {
    /// Choice of the unit that continues a batch.
    pub batch_order: BatchOrder,
    /// Rules by which VMs' units get their deadlines.
    pub deadlines: Deadlines,
    /// Size in bytes of the largest request; the time of its transfer is left before a deadline.
    pub max_size: u32,
    /// Transfer rate in bytes per second; 0: as the device says, else 100 MB/s.
    pub transfer_rate: u64,
    /// Longest wait for a unit that continues the last I/O; zero: until the deadline.
    pub max_wait: Nanos,
    /// Time for which a background unit may be passed over; zero: for ever.
    pub promote_background_after: Nanos,
    /// Waits last no longer than positioning takes, and none begins for a VM that thinks longer.
    pub bound_waits: bool,
    /// Several I/Os may be in flight as far as deadlines allow; else one.
    pub deep_queue: bool,
}

/// I/O that was dispatched last, flushes excepted.
#[derive(Clone, Copy, Debug)]
struct Last {
    vm: VmId,
    lane: Lane,
    /// Address one past the I/O's last byte.
    end: u64,
}

/// Unit that was picked, kept until the engine reports its start.
#[derive(Clone, Copy, Debug)]
struct Picked {
    unit: ReqId,
    /// Address one past the unit's last byte.
    end: u64,
    /// Deadline of the unit; [`Nanos::MAX`] for background units.
    due: Nanos,
    /// The unit continues the last I/O's stream, and was not chosen by its deadline.
    suitable: bool,
    /// Place of a background unit in its batch, from 1; 0: a VM's unit.
    batch: u32,
}

/// Dispatcher of BD-EDF: batches and waits between deadlines, for disks that seek.
pub struct BdEdf {
    params: BdEdfParams,
    vm_edf: DeadlineOrder,
    sorted: Sorted,
    background: Background,
    last: Option<Last>,
    /// Time from which a wait counts, if one may begin or goes on.
    idle_since: Option<Nanos>,
    waiting: bool,
    /// First unit of the last VM that came during the present wait, with [`BatchOrder::Next`].
    came: Option<ReqId>,
    waits: Waits,
    in_flight: InFlight,
    thinking: Thinking,
    picked: Option<Picked>,
}

impl BdEdf {
    /// Creates the dispatcher with room for every VM and request of the engine.
    pub fn new(params: BdEdfParams, capacity: &Capacity) -> BdEdf {
        BdEdf {
            params,
            vm_edf: DeadlineOrder::new(capacity.vms, params.deadlines.from),
            sorted: Sorted::new(capacity.requests),
            background: Background::new(capacity.vms),
            last: None,
            idle_since: None,
            waiting: false,
            came: None,
            waits: Waits::default(),
            in_flight: InFlight::new(),
            thinking: Thinking::new(capacity.vms),
            picked: None,
        }
    }

    /// Updates a VM's place after its head, gates or objective may have changed.
    fn rank(&mut self, view: &View, vm: VmId) {
        if view.is_background(vm) {
            // Background processes have no deadlines: they are ordered by arrival.
            return self.background.rank(view, vm);
        }
        let deadlines = self.params.deadlines;
        self.vm_edf
            .rank(view, vm, |start| deadlines.due(view.objective(vm), start));
        if self.vm_edf.is_empty() {
            // No VM has a deadline that waits, so a wait has no purpose and no end.
            self.end_wait();
        }
    }

    /// Ends a wait, if there is one.
    fn end_wait(&mut self) {
        (self.waiting, self.idle_since, self.came) = (false, None, None);
    }

    /// Returns whether the device takes time for positioning.
    fn seeks(&self, view: &View) -> bool {
        view.device().spec.positioning > Nanos::ZERO
    }

    /// Returns whether the order of addresses matters; if not, the sorted queue stays empty.
    fn batches(&self, view: &View) -> bool {
        // On flash an order of addresses gains nothing; `bound_waits` off keeps the paper's rule.
        self.seeks(view) || !self.params.bound_waits
    }

    /// Picks a VM's unit if deadlines allow one more I/O in flight. `due`: the earliest deadline
    /// that waits.
    fn start(&mut self, view: &View, head: ReqId, due: Nanos, suitable: bool) -> Pick {
        let unit = view.queued(head).unit();
        if view.device().in_flight > 0
            && self.seeks(view)
            && !self
                .in_flight
                .leaves_room(&self.params, view, due, unit.len)
        {
            return Pick::Idle(Nanos::MAX);
        }
        let deadlines = self.params.deadlines;
        let own = if suitable {
            deadlines.due(view.objective(unit.vm), self.vm_edf.start(view, &unit))
        } else {
            due
        };
        self.pick_unit(&unit, own, suitable, 0)
    }

    /// Keeps the picked unit until its start and returns the pick.
    fn pick_unit(&mut self, unit: &Unit, due: Nanos, suitable: bool, batch: u32) -> Pick {
        self.picked = Some(Picked {
            unit: unit.id,
            end: unit.addr + unit.len as u64,
            due,
            suitable,
            batch,
        });
        Pick::Start {
            head: unit.id,
            // A longer I/O than the unit could miss the deadlines that this pick was checked
            // against.
            max: unit.len,
            held: Nanos::ZERO,
        }
    }

    /// Returns the time at which the oldest background unit goes before VMs: `at`, if it can be
    /// done before the unit that is due at `due` has to go; else one `promote_background_after`
    /// later.
    fn promotion_time(&self, view: &View, due: Nanos, at: Nanos) -> Nanos {
        if !self.params.bound_waits || !self.seeks(view) {
            return at;
        }
        let there = Nanos(2 * view.device().spec.positioning.0);
        let largest = view.device().spec.max_io;
        if view.now() + there < self.latest_start(view, due, largest) {
            at
        } else {
            at + self.params.promote_background_after
        }
    }

    /// Picks a background unit: the oldest if it is promoted, else the next of the batch.
    fn pick_background(&mut self, view: &View, promoted: bool) -> Pick {
        // A VM's request that comes next would have all background I/Os in flight before it.
        if view.device().in_flight > 0 && self.seeks(view) {
            return Pick::Idle(Nanos::MAX);
        }
        let on_from = self.last.filter(|_| !promoted).map(|last| last.end);
        match self.background.next_unit(view, &mut self.sorted, on_from) {
            Some((next, batch)) => {
                self.pick_unit(&view.queued(next).unit(), Nanos::MAX, false, batch)
            }
            None => Pick::Idle(Nanos::MAX),
        }
    }

    /// Returns the latest time at which a transfer of `bytes` may start and still leave the unit
    /// that is due at `due` in time.
    fn latest_start(&self, view: &View, due: Nanos, bytes: u32) -> Nanos {
        let rare = if self.params.bound_waits {
            2 * view.device().spec.positioning.0
        } else {
            0
        };
        // The margin already covers part of the positioning time. Twice the average positioning
        // holds for the 99th percentile, too.
        let more = Nanos(rare).since(self.params.deadlines.margin);
        due - self.params.transfer(view, bytes.into()) - more
    }

    /// Picks a suitable unit, or a wait for one, while the earliest deadline leaves time; `None` if
    /// neither applies.
    fn batch_or_delay(&mut self, view: &View, due: Nanos, latest: Nanos) -> Option<Pick> {
        let last = self.last.filter(|_| view.now() < latest)?;
        if let Some(unit) = self.suitable(view, last) {
            let bytes = view.queued(unit).unit().len.max(self.params.max_size);
            let fits = view.now() < self.latest_start(view, due, bytes);
            // The unit may be longer than `max_size`, for which `latest` was computed.
            return fits.then(|| self.start(view, unit, due, true));
        }
        let until = self.wait_until(view, last, latest)?;
        // A wait that goes on is counted once.
        self.waits.begun += u64::from(!self.waiting);
        self.waiting = true;
        Some(Pick::Wait(until))
    }

    /// Returns the unit that best continues the last I/O.
    fn suitable(&mut self, view: &View, last: Last) -> Option<ReqId> {
        match self.params.batch_order {
            BatchOrder::Nearest => self.sorted.nearest(view, last.vm, last.end),
            BatchOrder::Next => {
                let came = self.came.filter(|&unit| {
                    let (vm, lane) = view.queued(unit).vm_lane();
                    view.gate_open(vm, lane)
                });
                came.or_else(|| self.sorted.next_of(view, last.vm, last.end))
            }
        }
    }

    /// Returns the time until which to wait for a suitable unit; `None` if no wait pays.
    fn wait_until(&self, view: &View, last: Last, latest: Nanos) -> Option<Nanos> {
        let since = self.idle_since?;
        let may_come = view.may_enter(last.vm) && view.gate_open(last.vm, last.lane);
        if !may_come || view.is_background(last.vm) || view.device().in_flight > 0 {
            return None;
        }
        let mut until = latest;
        if self.params.max_wait > Nanos::ZERO {
            until = until.min(since + self.params.max_wait);
        }
        if self.params.bound_waits {
            // A wait saves one positioning at most, so longer ones do not pay.
            let saves = view.device().spec.positioning;
            if self.thinking.exceeds(last.vm, saves) {
                return None;
            }
            until = until.min(since + saves);
        }
        (until > view.now()).then_some(until)
    }

    /// Books the start of an I/O; one that was not a flush ends a wait.
    fn started(&mut self, view: &View, io: &DeviceIo) {
        if io.op == Op::Flush {
            self.in_flight.started(view, io, Nanos::MAX);
            return;
        }
        let picked = self.picked.take().expect("only what was picked starts");
        self.in_flight.started(view, io, picked.due);
        self.waits.succeeded += u64::from(self.waiting && picked.suitable);
        self.end_wait();
        self.background.started(view.now(), picked.batch);
        self.follow(io);
        // A partial start leaves the rest of the unit at a higher address.
        if io.addr + io.len as u64 != picked.end {
            self.sorted.update_address(view, picked.unit);
        }
    }

    /// Makes an I/O the one that suitable units are to follow.
    fn follow(&mut self, io: &DeviceIo) {
        self.last = Some(Last {
            vm: io.vm,
            lane: io.op.lane(),
            end: io.addr + io.len as u64,
        });
    }

    /// Books the end of an I/O, from which a wait may count. A flush of another VM leaves the wait
    /// as it is.
    fn ended(&mut self, view: &View, io: &DeviceIo) {
        self.in_flight.ended(view, io);
        self.thinking.ended(io.vm, view.now());
        if io.op != Op::Flush || self.last.is_some_and(|last| last.vm == io.vm) {
            // Without a waiting deadline a wait would have no end.
            self.idle_since = (!self.vm_edf.is_empty()).then_some(view.now());
        }
    }

    /// Takes over an I/O that was in flight before this dispatcher, as if its request had arrived
    /// now.
    fn inherited(&mut self, view: &View, io: &DeviceIo) {
        let due = if io.op == Op::Flush || view.is_background(io.vm) {
            Nanos::MAX
        } else {
            self.params.deadlines.due(view.objective(io.vm), view.now())
        };
        self.in_flight.started(view, io, due);
        if io.op != Op::Flush {
            self.follow(io);
        }
    }
}

impl Dispatcher for BdEdf {
    fn interests(&self) -> Interests {
        let thinking = if self.params.bound_waits {
            Interests::ARRIVED
        } else {
            Interests::NONE
        };
        Interests::STARTED
            .union(Interests::ENDED)
            .union(Interests::INHERITED)
            .union(Interests::MERGED)
            .union(Interests::VMS)
            .union(thinking)
    }

    fn insert(&mut self, view: &View, unit: ReqId) {
        if self.batches(view) {
            self.sorted.insert(view, unit);
        }
        let vm = view.queued(unit).vm_lane().0;
        if self.waiting
            && self.params.batch_order == BatchOrder::Next
            && self.last.is_some_and(|last| last.vm == vm)
        {
            // Algorithm 2 takes whatever comes first of the VM, wherever it begins.
            self.came.get_or_insert(unit);
        }
        if leads(view, unit) {
            self.rank(view, view.queued(unit).vm_lane().0);
        }
    }

    fn remove(&mut self, view: &View, unit: ReqId) {
        self.came.take_if(|came| *came == unit);
        if self.batches(view) {
            self.sorted.remove(view, unit);
        }
        self.rank(view, view.queued(unit).vm_lane().0);
    }

    fn gate(&mut self, view: &View, vm: VmId, _lane: Lane, _open: bool) {
        self.rank(view, vm);
    }

    fn on_event(&mut self, view: &View, event: &Event) {
        match *event {
            Event::Arrived(unit) => {
                // Twice the longest wait, as `most` is twice `slice_idle` in Linux's CFQ.
                let most = Nanos(view.device().spec.positioning.0.saturating_mul(2));
                if most > Nanos::ZERO {
                    self.thinking
                        .arrived(view, view.queued(unit).vm_lane().0, most);
                }
            }
            Event::Started(io) => self.started(view, io),
            Event::Ended { io, .. } => self.ended(view, io),
            Event::Inherited(io) => self.inherited(view, io),
            Event::Merged { into, .. } => self.sorted.update_address(view, into),
            Event::VmAdded(vm) => self.thinking.reset_vm(vm),
            Event::VmChanged(vm) => self.rank(view, vm),
            Event::VmRemoved(vm) => {
                self.vm_edf.remove(vm);
                self.background.remove(vm);
                // Another VM may take the slot, and its units do not continue this stream.
                self.last = self.last.filter(|last| last.vm != vm);
            }
            _ => {}
        }
    }

    fn serves_background(&self) -> bool {
        true
    }

    fn starvation(&self, device: &DeviceSpec, _: Option<&Profile>) -> Bound {
        let rates = [self.params.transfer_rate, device.bytes_per_s];
        let rate = rates.into_iter().find(|&rate| rate > 0);
        let bytes = self.params.max_size as u64 * 1_000_000_000;
        Bound::Deadline(Due {
            deadlines: self.params.deadlines,
            background_latency: None,
            before: Some(Nanos(bytes.div_ceil(rate.unwrap_or(100_000_000)))),
            promotes: self.params.promote_background_after > Nanos::ZERO,
            may_drain: true,
        })
    }

    fn pick(&mut self, view: &View) -> Pick {
        if view.device().in_flight > 0 && !self.params.deep_queue {
            return Pick::Idle(Nanos::MAX);
        }
        let promote_after = self.params.promote_background_after;
        let promotion = self.background.promotion(view, promote_after);
        let Some((due, vm)) = self.vm_edf.first(view) else {
            return self.pick_background(view, promotion.is_some_and(|at| at <= view.now()));
        };
        let promotion = promotion.map(|at| self.promotion_time(view, due, at));
        if promotion.is_some_and(|at| at <= view.now()) {
            return self.pick_background(view, true);
        }
        if self.batches(view) {
            let latest = self.latest_start(view, due, self.params.max_size);
            if let Some(pick) = self.batch_or_delay(view, due, latest) {
                return match pick {
                    // The engine must ask again when a background unit is promoted.
                    Pick::Wait(until) => Pick::Wait(promotion.map_or(until, |at| until.min(at))),
                    other => other,
                };
            }
        }
        self.start(view, head_of(view, vm), due, false)
    }

    fn waits(&self) -> Option<Waits> {
        Some(self.waits)
    }

    fn footprint(&self) -> Footprint {
        Footprint {
            vm: DeadlineOrder::FOOTPRINT.vm + Background::BYTES_PER_VM + Thinking::BYTES_PER_VM,
            request: Sorted::BYTES_PER_REQUEST,
            ..Footprint::default()
        }
    }
}
