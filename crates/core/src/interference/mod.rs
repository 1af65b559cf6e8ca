//! Ledger of interference: the time of each VM's requests by cause, and the VMs behind which they
//! were.
//!
//! The stages of a request's [`Account`] are exact. They do not tell whose I/Os a request waited
//! for, before the device and inside of it; that is found for a *sample* of the requests:
//!
//! ```text
//!   arrives          goes to the device        answered
//!      |--- wait ----------|--- inside ------------|
//!      a                   b                       c      positions in the trail of ended I/Os
//! ```
//!
//! Every I/O that ends is one entry of the `trail`. When a sampled request is answered, its wait is
//! divided among the VMs whose I/Os ended from *a* to *b*, in proportion to their estimated device
//! time (`costs`), and its time inside among those from *b* to *c* (`split`). Time in which the
//! device did far less than it usually does is the device's own. The parts go to the VM's `row`,
//! times the number of requests for which the sample stands (`sampler`); [`Interval`] scales them
//! to the exact time.
//!
//! A request costs a comparison at its arrival, an I/O a store at its end, and a request that is
//! not sampled nothing else. After start nothing is allocated. `docs/interference.md` describes
//! what is assumed.

mod costs;
mod row;
mod sampler;
mod split;
mod times;
mod trail;

pub use costs::CostSource;
pub use row::{Attribution, CULPRITS, Culprit, PhaseTimes};
pub use times::{CLASSES, Class, CulpritTime, Interval, VmTimes, WaitTimes};

use crate::view::View;
use costs::Costs;
use row::Row;
use sampler::Sampler;
use split::{Cached, Parts, UsualTimes};
use tidegate_base::device::DeviceSpec;
use tidegate_base::request::{Account, Op, VmId};
use tidegate_base::time::Nanos;
use trail::{Composition, POSITIONS, Trail};

/// Requests that are sampled at a time, at most.
const SAMPLES: usize = 64;
/// Requests of one VM that are sampled at a time, at most: others find room beside it.
const SAMPLES_OF_VM: usize = SAMPLES / 4;
/// I/Os after which the sampler follows the VMs' rates.
const CATCH_UP_IOS: u32 = 16;
/// Distance of the two moments of [`Moments`]: writes since the older one count as recent.
const RECENT: Nanos = Nanos::from_millis(500);
/// Time after which the table of costs is renewed.
const COSTS_AGE: Nanos = Nanos::SECOND;

/// Request that is sampled.
struct Sample {
    /// Slot of the request.
    request: u32,
    /// Slot of its VM.
    vm: u32,
    /// Requests for which it stands.
    weight: u32,
    /// Time at which the engine took it, or up to which its wait is known already. All before
    /// that is no part of what the trail is asked for.
    from: Nanos,
    /// Position of the trail at that time.
    position: u32,
    /// Position of the trail some time before, from which on writes may still be in a cache.
    recent: u32,
    /// The device was idle for most of the time since then.
    is_quiet: bool,
    /// Total idle time of the device at that time.
    idle: Nanos,
    /// Nanoseconds of its wait for a flush of its own disk.
    own: u64,
    /// Nanoseconds of its wait for a disk that hung.
    slow: u64,
    /// The disk of the request hung meanwhile.
    hung: bool,
}

/// Time, with the position of the trail and the total idle time of the device then.
#[derive(Clone, Copy, Default)]
struct Moment {
    at: Nanos,
    position: u32,
    idle: Nanos,
}

/// Two moments, of which the older is [`RECENT`] to four times that ago.
#[derive(Clone, Copy, Default)]
struct Moments {
    older: Moment,
    newer: Moment,
}

impl Moments {
    /// Returns the older moment.
    fn older(&mut self, now: Moment) -> Moment {
        let elapsed = now.at.since(self.newer.at);
        if elapsed >= RECENT {
            // After a pause nothing is recent.
            let is_recent = elapsed < Nanos(4 * RECENT.0);
            self.older = if is_recent { self.newer } else { now };
            self.newer = now;
        }
        self.older
    }
}

impl Sample {
    /// Divides the time before the device.
    fn divide_wait(&self, wait: u64, idle: u64, ended: &Ended, costs: &Costs) -> [Parts; 2] {
        let own = self.own.min(wait);
        let slow = self.slow.min(wait - own);
        let (ios, cached) = (&ended.waited_for, &ended.cached);
        let wait = wait - own - slow;
        let [mut parts, in_cache] = split::of_wait(wait, idle, ios, cached, self.vm, costs);
        parts.own += own;
        parts.slow += slow;
        [parts, in_cache]
    }
}

/// I/Os by which the time of a sample is divided.
struct Ended {
    /// I/Os that ended during its wait.
    waited_for: Composition,
    /// I/Os that ended while it was with the device, its own among them.
    after: Composition,
    /// Writes that had ended shortly before it went to the device, which may still have a part of
    /// them in its cache.
    cached: Cached,
}

/// Cause of a wait that needs no I/Os of the trail to be known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum KnownWait {
    /// For the flush of the request's own disk that was in flight.
    OwnFlush,
    /// For a disk that hung.
    HungDisk,
}

/// Answered request, as its slot and its account describe it.
pub(crate) struct Answered<'a> {
    /// Slot of the request.
    pub request: u32,
    pub op: Op,
    pub len: u32,
    /// Slot of its VM.
    pub vm: u32,
    pub account: &'a Account,
    /// Position of the trail when it first went to the device.
    pub served: u32,
    pub succeeded: bool,
}

/// Ledger of interference of a device.
pub(crate) struct Interference {
    trail: Trail,
    sampler: Sampler,
    samples: Vec<Sample>,
    rows: Vec<Row>,
    /// Generation of the VM in each slot.
    generations: Vec<u32>,
    costs: Costs,
    usual: UsualTimes,
    moments: Moments,
    /// Time from which on the table of costs is renewed.
    renew_costs_at: Nanos,
    /// Time before admission of each request that has some, by slot.
    admission: Vec<u64>,
}

impl Interference {
    /// Memory in bytes of a VM, and of a request slot.
    pub(crate) const BYTES_PER_VM: usize =
        size_of::<Row>() + size_of::<u32>() + Sampler::BYTES_PER_VM;
    pub(crate) const BYTES_PER_REQUEST: usize = size_of::<u64>();

    /// Creates the ledger of a device without VMs.
    pub(crate) fn new(device: &DeviceSpec, requests: u32) -> Interference {
        Interference {
            trail: Trail::new(),
            sampler: Sampler::new(),
            samples: Vec::with_capacity(SAMPLES),
            rows: Vec::new(),
            generations: Vec::new(),
            costs: Costs::assumed(device),
            usual: UsualTimes::new(),
            moments: Moments::default(),
            renew_costs_at: Nanos::ZERO,
            admission: vec![0; requests as usize],
        }
    }

    /// Begins with a VM that was added.
    pub(crate) fn add(&mut self, vm: usize, generation: u32) {
        if self.rows.len() <= vm {
            self.rows.resize(vm + 1, Row::default());
            self.generations.resize(vm + 1, 0);
        }
        self.generations[vm] = generation;
        self.rows[vm] = Row::default();
        self.sampler.add(vm);
    }

    /// Forgets the I/Os of a VM whose slot becomes free: they are none of the slot's next VM.
    pub(crate) fn remove(&mut self, vm: u32) {
        self.trail.forget(vm);
    }

    /// Origin of the estimated device times.
    pub(crate) fn cost_source(&self) -> CostSource {
        self.costs.source()
    }

    /// Times of a VM's sampled requests.
    pub(crate) fn attribution(&self, vm: usize) -> &Attribution {
        &self.rows[vm].attribution
    }

    /// Returns whether request number `arrived` of a VM is to be sampled.
    #[inline(always)]
    pub(crate) fn is_due(&self, vm: u32, arrived: u32) -> bool {
        self.sampler.is_due(vm, arrived)
    }

    /// Begins to sample the request in a slot, number `arrived` of its VM. `idle`: total idle time
    /// of the device up to now. Returns whether there was room for the sample.
    #[cold]
    #[inline(never)]
    pub(crate) fn begin(
        &mut self,
        [now, idle]: [Nanos; 2],
        [vm, arrived, request]: [u32; 3],
    ) -> bool {
        let samples = &self.samples;
        let of_vm = || samples.iter().filter(|it| it.vm == vm).count();
        let has_room = || samples.len() < SAMPLES && of_vm() < SAMPLES_OF_VM;
        let Some(weight) = self
            .sampler
            .take(now, vm, arrived, self.trail.position(), has_room)
        else {
            return false;
        };
        let position = self.position();
        let moment = Moment {
            at: now,
            position,
            idle,
        };
        let recent = self.moments.older(moment);
        let busy = now.since(recent.at).since(idle.since(recent.idle));
        self.samples.push(Sample {
            request,
            vm,
            weight,
            from: now,
            position,
            recent: recent.position,
            is_quiet: busy.0 < idle.since(recent.idle).0,
            idle,
            own: 0,
            slow: 0,
            hung: false,
        });
        true
    }

    /// Records the time that the request in a slot waited before it was taken.
    #[cold]
    #[inline(never)]
    pub(crate) fn waited_for_admission(&mut self, request: u32, time: Nanos) {
        self.admission[request as usize] = time.0;
    }

    /// Time that the request in a slot waited before it was taken, as recorded.
    pub(crate) fn admission(&self, request: u32) -> Nanos {
        Nanos(self.admission[request as usize])
    }

    /// Position of the trail now, modulo 2^31.
    #[inline(always)]
    pub(crate) fn position(&self) -> u32 {
        self.trail.position() & POSITIONS
    }

    /// Records that an I/O has ended. Returns whether [`Interference::catch_up`] is due. `took`:
    /// time since the I/O before it ended, or since its own start if that was later.
    #[inline(always)]
    pub(crate) fn io_ended(
        &mut self,
        vm: u32,
        (op, addr, len): (Op, u64, u32),
        took: impl FnOnce() -> Nanos,
    ) -> bool {
        if op.merges() {
            self.trail.data_ended(vm, op == Op::Write, addr, len);
        } else {
            self.trail.other_ended(vm, took());
        }
        self.trail.position().is_multiple_of(CATCH_UP_IOS)
    }

    /// Follows the VMs' rates, and what is known of costs.
    #[cold]
    #[inline(never)]
    pub(crate) fn catch_up(&mut self, view: &View) {
        let now = view.queues.now;
        let arrived = |vm: usize| view.queues.vms[vm].arrived;
        self.sampler.catch_up(now, self.trail.position(), arrived);
        self.moments.older(Moment {
            at: now,
            position: self.position(),
            idle: view.queues.device.idle_time(now),
        });
        if now >= self.renew_costs_at {
            self.renew_costs_at = now + COSTS_AGE;
            self.costs
                .update(view.profile.as_deref(), view.estimator.as_deref());
        }
    }

    /// Records that the disk of the request in a slot hangs, if the request is sampled.
    #[cold]
    pub(crate) fn hangs(&mut self, request: u32) {
        let sample = self.samples.iter_mut().find(|it| it.request == request);
        if let Some(sample) = sample {
            sample.hung = true;
        }
    }

    /// Records the cause of the wait so far of the request in a slot, if the request is sampled.
    /// The cause of its further wait is found as usual.
    #[cold]
    pub(crate) fn has_waited(&mut self, request: u32, cause: KnownWait, [now, idle]: [Nanos; 2]) {
        let position = self.position();
        let sample = self.samples.iter_mut().find(|it| it.request == request);
        let Some(sample) = sample else {
            return;
        };
        let known = match cause {
            KnownWait::OwnFlush => &mut sample.own,
            KnownWait::HungDisk => &mut sample.slow,
        };
        *known += now.since(sample.from).0;
        (sample.from, sample.position, sample.idle) = (now, position, idle);
    }

    /// Ends the sample of a request that was answered. `idle`: total idle time of the device up to
    /// now.
    #[cold]
    #[inline(never)]
    pub(crate) fn end(&mut self, [now, idle]: [Nanos; 2], serial: bool, of: &Answered) {
        let place = self.samples.iter().position(|it| it.request == of.request);
        let Some(place) = place else {
            return;
        };
        let sample = self.samples.swap_remove(place);
        if !of.succeeded {
            // Accounts of failed requests are not summed either.
            return;
        }
        let (trail, costs) = (&self.trail, &self.costs);
        let before = trail.composition(sample.position, of.served, costs);
        let after = trail.composition(of.served, self.position(), costs);
        let cached = Cached {
            writes: trail.writes(sample.recent, of.served, costs),
            all: trail.composition(sample.recent, of.served, costs).total,
        };
        let whole = before.with(&after);
        // A request that was split waits between its parts as well.
        let waited_for = if before.total == 0 { whole } else { before };
        let ended = Ended {
            waited_for,
            after,
            cached,
        };
        let Account { queued, device, .. } = *of.account;
        let parts = if sample.hung {
            let slow = |time: Nanos| Parts {
                slow: time.0,
                ..Parts::default()
            };
            [
                [slow(queued), Parts::default()],
                [slow(device), Parts::default()],
            ]
        } else {
            let idle = idle.since(sample.idle).0;
            let deliberate = of.account.deliberate;
            // A time that a limit of the VM's own or the dispatcher's choice took says nothing of
            // the device's pace.
            if of.account.regulated + deliberate == Nanos::ZERO {
                let busy = now.since(sample.from).0.saturating_sub(idle);
                let learns = (busy, whole.total, whole.ios);
                self.costs.learn_pace(now, sample.from, learns);
            }
            // The device is idle while the dispatcher waits on purpose, which is not queueing.
            let idle = idle.saturating_sub(deliberate.0);
            [
                sample.divide_wait(queued.0, idle, &ended, &self.costs),
                self.divide_inside(now, (serial, sample.is_quiet), of, &ended),
            ]
        };
        self.add_to_row(of.vm, sample.weight, &ended, parts);
    }

    /// Divides the time inside the device of a request, and learns from it. `is_quiet`: the device
    /// had little to do when the request came.
    fn divide_inside(
        &mut self,
        now: Nanos,
        (serial, is_quiet): (bool, bool),
        of: &Answered,
        ended: &Ended,
    ) -> [Parts; 2] {
        let what = (of.op, of.len, of.vm);
        let time = of.account.device.0;
        let (ios, cached) = (&ended.after, &ended.cached);
        let parts = (self.usual).divide(what, time, ios, cached, serial, &self.costs);
        self.usual.learn(now, (of.op, of.len), time, is_quiet);
        parts
    }

    /// Adds the parts of a sample's wait and of its time inside the device to its VM's row: of each
    /// those by the I/Os that ended meanwhile, and those behind cached writes.
    fn add_to_row(&mut self, vm: u32, weight: u32, ended: &Ended, parts: [[Parts; 2]; 2]) {
        let weigh = |time: u64| time.saturating_mul(u64::from(weight));
        let row = &mut self.rows[vm as usize];
        let Ended {
            waited_for,
            after,
            cached,
        } = ended;
        let cached = &cached.writes;
        // Each VM's part of the others' time, by its part of their I/Os.
        let share = |ios: &Composition, parts: &Parts, of: u32| {
            let others = ios.total - ios.of(vm);
            let part = u128::from(parts.others) * u128::from(ios.of(of));
            part.checked_div(u128::from(others)).unwrap_or(0) as u64
        };
        let mut left = parts.map(|parts| parts[0].others + parts[1].others);
        let all = waited_for.with(after).with(cached);
        for (other, _) in all.each().filter(|&(other, _)| other != vm) {
            let time = |ios, parts: &[Parts; 2]| {
                share(ios, &parts[0], other) + share(cached, &parts[1], other)
            };
            let [waited, inside] = [time(waited_for, &parts[0]), time(after, &parts[1])];
            left = [left[0] - waited, left[1] - inside];
            let id = VmId {
                index: other,
                generation: self.generations[other as usize],
            };
            row.add(id, weigh(waited), weigh(inside));
        }
        let Attribution { waited, inside, .. } = &mut row.attribution;
        for ((phase, parts), left) in [waited, inside].into_iter().zip(parts).zip(left) {
            let sum = |part: fn(&Parts) -> u64| Nanos(weigh(part(&parts[0]) + part(&parts[1])));
            phase.own += sum(|it| it.own);
            phase.others += Nanos(weigh(left));
            phase.slow += sum(|it| it.slow);
            phase.rest += sum(|it| it.rest);
        }
        row.end_sample();
    }
}
