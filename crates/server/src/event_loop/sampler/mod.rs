//! Samples for the history: about once a second, what each active VM and the device did.
//!
//! ```text
//!   every second: a sweep over the slots of VMs, some in each turn
//!     VM with requests since its last sample --> difference of its counters --> batch
//!     last slot --> difference of the device's counters ---------------------> batch
//!   batch --try_send--> history thread
//! ```
//!
//! A turn visits [`SLOTS_PER_TURN`] slots and makes [`SAMPLES_PER_TURN`] samples at most, so no
//! turn takes long, and a VM's samples lie up to the length of a sweep behind those of others. An
//! idle VM costs the comparison of two numbers, and nothing while the loop sleeps. Requests cost
//! nothing.
//!
//! While the history thread does not take a batch, no VM is visited: its next sample is of a longer
//! interval, and nothing is missing in the sums.

mod counters;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::TrySendError;

use tidegate_core::attainment::PartSeconds;
use tidegate_core::engine::Engine;
use tidegate_core::time::Nanos;
use tidegate_history::column::{Column, Values};
use tidegate_history::latency::{BUCKETS, Latency};
use tidegate_history::recorder;
use tidegate_history::sample::{Key, Sample};

use super::vms::Vms;
use super::{Loop, Vm};
use crate::history::{Batch, Recording};
use counters::Counters;

/// Slots of VMs that are looked at in one turn, some 5 ns each.
const SLOTS_PER_TURN: usize = 512;
/// Samples that are made in one turn.
const SAMPLES_PER_TURN: usize = 16;
/// Time between two sweeps.
const EVERY: Nanos = Nanos::SECOND;
/// Time after which a batch is offered again to a history thread that did not take it.
const RETRY: Nanos = Nanos::from_millis(100);

/// Counters of a VM at its last sample.
#[derive(Debug, Default)]
pub(super) struct Sampled {
    /// [`Vms::request_numbers`](tidegate_core::engine::Vms::request_numbers) at the last visit.
    numbers: [u32; 2],
    /// Time of the last visit.
    at: Nanos,
    /// The last visit found it active: the last second of its attainment is closed only after it.
    was_active: bool,
    /// `None` until it was active.
    counters: Option<Box<Counters>>,
}

impl Sampled {
    /// Leaves seconds that were judged before out of the next sample.
    pub(super) fn skip_attainment(&mut self, judged: Option<[PartSeconds; 5]>) {
        let counters = self.counters.get_or_insert_default();
        counters.skip_attainment(judged.unwrap_or_default());
    }
}

/// Counters of the device at its last sample.
#[derive(Default)]
struct DeviceCounters {
    ended: u64,
    errors: u64,
    idle: Nanos,
    deliberate: Nanos,
    stalled: Nanos,
}

/// Sampler of one event loop.
pub(super) struct Sampler {
    recording: Recording,
    /// Time of the next sweep, or of the next turn of the present one.
    next_at: Nanos,
    /// Next slot to look at; `None` between two sweeps.
    cursor: Option<usize>,
    began: Nanos,
    /// Time since which the loop has been awake; before, all VMs were idle.
    awake_since: Nanos,
    /// The last sweep found no VM active.
    is_quiet: bool,
    found_active: bool,
    /// Samples that the history thread has not taken.
    batch: Batch,
    /// Sums of the VMs' samples since the device's last sample, with their latencies by bucket.
    sums: Values,
    latency: Box<[u64; BUCKETS as usize]>,
    device: DeviceCounters,
    device_at: Nanos,
    device_key: Key,
}

impl std::fmt::Debug for Sampler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sampler").finish_non_exhaustive()
    }
}

impl Sampler {
    /// Creates the sampler of a device's loop, whose first interval begins at `now`.
    pub(super) fn new(recording: Recording, device: &str, now: Nanos) -> Sampler {
        Sampler {
            recording,
            next_at: now + EVERY,
            cursor: None,
            began: now,
            awake_since: now,
            is_quiet: true,
            found_active: false,
            batch: Batch::new(),
            sums: Values::default(),
            latency: Box::new([0; BUCKETS as usize]),
            device: DeviceCounters::default(),
            device_at: now,
            device_key: recorder::device(device),
        }
    }

    /// Returns true while a sweep goes on that the next turn is to continue.
    pub(super) fn is_sweeping(&self) -> bool {
        self.cursor.is_some() && self.batch.is_empty()
    }

    /// Returns true if the loop must make a turn in a second, although it may have no work.
    pub(super) fn needs_tick(&self) -> bool {
        !self.is_quiet || self.cursor.is_some() || !self.batch.is_empty()
    }

    /// Sends the batch. Returns false if it has to be sent later.
    fn send(&mut self) -> bool {
        if self.batch.is_empty() {
            return true;
        }
        match self
            .recording
            .samples
            .try_send(std::mem::take(&mut self.batch))
        {
            Ok(()) => true,
            Err(TrySendError::Full(batch)) => {
                self.recording.delayed.fetch_add(1, Ordering::Relaxed);
                self.batch = batch;
                false
            }
            // The thread has ended by a panic, which was logged.
            Err(TrySendError::Disconnected(_)) => {
                self.recording.delayed.fetch_add(1, Ordering::Relaxed);
                true
            }
        }
    }

    /// Adds the sample of a VM to the batch and to the sums of the device.
    fn take(&mut self, key: Key, sample: Sample) {
        self.sums.merge(&sample.values);
        for &(bucket, count) in sample.latency.cells() {
            self.latency[usize::from(bucket)] += count;
        }
        self.batch.push((key, sample));
    }
}

/// Interval of a sample: its end and its length, in milliseconds.
fn interval(now: Nanos, since: Nanos) -> (u64, u64) {
    const MS: u64 = 1_000_000;
    // Rounded apart, so that successive intervals adjoin.
    (now.0 / MS, (now.0 / MS).saturating_sub(since.0 / MS))
}

/// State of a loop that samples are made of.
struct Sources<'a> {
    engine: &'a mut Engine,
    vms: &'a mut Vms,
    now: Nanos,
}

/// Takes a loop apart into its sampler and what samples are made of; `None` without a history.
fn parts(event_loop: &mut Loop) -> Option<(&mut Sampler, Sources<'_>)> {
    let sources = Sources {
        engine: &mut event_loop.engine,
        vms: &mut event_loop.vms,
        now: event_loop.now,
    };
    Some((event_loop.sampler.as_mut()?, sources))
}

/// Begins or continues a sweep, if one is due.
#[inline]
pub(super) fn sample(event_loop: &mut Loop) {
    let now = event_loop.now;
    if event_loop
        .sampler
        .as_ref()
        .is_some_and(|sampler| now >= sampler.next_at)
        && let Some((sampler, mut sources)) = parts(event_loop)
    {
        sampler.sweep(&mut sources);
    }
}

/// Samples a VM for the last time, before the engine removes it. Requests that end after that are
/// in no sample.
pub(super) fn sample_removed(event_loop: &mut Loop, at: usize) {
    if let Some((sampler, mut sources)) = parts(event_loop) {
        sampler.sample_vm(&mut sources, at);
    }
}

/// Samples all VMs and the device for the last time, before the loop ends.
pub(super) fn sample_last(event_loop: &mut Loop) {
    let Some((sampler, mut sources)) = parts(event_loop) else {
        return;
    };
    for at in 0..sources.vms.slots() {
        let numbers = |vm: &Vm| sources.engine.vms().request_numbers(vm.id);
        let changed = |vm: &Vm| {
            !vm.is_removed && (vm.sampled.was_active || vm.sampled.numbers != numbers(vm))
        };
        if sources.vms.get(at).is_some_and(changed) {
            sampler.sample_vm(&mut sources, at);
        }
    }
    sampler.sample_device(&sources);
    let last = std::mem::take(&mut sampler.batch);
    // An empty batch would end the thread.
    if !last.is_empty() {
        // The thread takes samples at all times, so this waits for no disk.
        let _ = sampler.recording.samples.send(last);
    }
}

impl Sampler {
    #[inline(never)]
    fn sweep(&mut self, sources: &mut Sources<'_>) {
        let now = sources.now;
        if self.is_quiet && self.cursor.is_none() {
            // The loop has slept: the intervals begin now.
            self.awake_since = now;
            self.is_quiet = false;
            self.next_at = now + EVERY;
            return;
        }
        if !self.send() {
            self.next_at = now + RETRY;
            return;
        }
        if self.cursor.is_none() {
            self.began = now;
            self.found_active = false;
        }
        let slots = sources.vms.slots();
        let mut next = self.cursor.unwrap_or(0);
        let to = slots.min(next + SLOTS_PER_TURN);
        while next < to && self.batch.len() < SAMPLES_PER_TURN {
            self.visit(sources, next);
            next += 1;
        }
        self.cursor = (next < slots).then_some(next);
        if self.cursor.is_none() {
            self.sample_device(sources);
            self.is_quiet = !self.found_active;
            self.next_at = self.began + EVERY;
        }
        if !self.send() {
            self.next_at = now + RETRY;
        }
    }

    /// Samples the VM in a slot, if it was active since its last sample.
    fn visit(&mut self, sources: &mut Sources<'_>, at: usize) {
        // The engine forgets a VM that is removed before the table does.
        let Some(Vm { id, sampled, .. }) = sources.vms.get(at).filter(|vm| !vm.is_removed) else {
            return;
        };
        let vms = sources.engine.vms();
        let numbers = vms.request_numbers(*id);
        // A request that hangs moves no number.
        let has_requests = vms.pending(*id) > 0 || vms.in_flight(*id) > 0;
        let active = numbers != sampled.numbers || has_requests;
        if active || sampled.was_active {
            self.found_active = true;
            self.sample_vm(sources, at);
        }
        let sampled = &mut sources.vms[at].sampled;
        (sampled.numbers, sampled.at, sampled.was_active) = (numbers, sources.now, active);
    }

    /// Makes the sample of a VM, which is left out if it is empty.
    fn sample_vm(&mut self, sources: &mut Sources<'_>, at: usize) {
        let Sources { engine, vms, now } = sources;
        let id = vms[at].id;
        let judged = engine.vms_mut().close_attainment(*now, id);
        let mut counters = vms[at].sampled.counters.take().unwrap_or_default();
        let times = vms[at].times(engine);
        let of_engine = engine.vms();
        let stats = of_engine.vm_stats(id);
        let mut sample = counters.difference((&stats, &times), judged, |vm| vms.name_of(vm));
        sample.values[Column::Pending] = of_engine.pending(id).into();
        sample.values[Column::InFlight] = of_engine.in_flight(id).into();
        let vm = &mut vms[at];
        let since = vm.sampled.at.max(self.awake_since).min(*now);
        (sample.end_ms, sample.span_ms) = interval(*now, since);
        let key = counters.key(&vm.name);
        vm.sampled.counters = Some(counters);
        if !sample.values.is_zero() {
            self.take(key, sample);
        }
    }

    /// Makes the sample of the device at the end of a sweep, if it did something.
    fn sample_device(&mut self, sources: &Sources<'_>) {
        let now = sources.now;
        let stats = sources.engine.device_stats();
        let device = sources.engine.device();
        let counters = DeviceCounters {
            ended: stats.ended,
            errors: stats.errors,
            idle: stats.idle_time(now),
            deliberate: stats.deliberate,
            stalled: device.stalled(),
        };
        let before = std::mem::replace(&mut self.device, counters);
        let counters = &self.device;
        let since = std::mem::replace(&mut self.device_at, now);
        let since = since.max(self.awake_since).min(now);
        let mut values = std::mem::take(&mut self.sums);
        let in_flight = stats.in_flight + device.uncounted();
        if counters.ended == before.ended && in_flight == 0 && values.is_zero() {
            return;
        }
        let idle = counters.idle.since(before.idle).min(now.since(since));
        values[Column::Busy] = micros(now.since(since).since(idle));
        values[Column::Ios] = counters.ended.saturating_sub(before.ended);
        values[Column::IoErrors] = counters.errors.saturating_sub(before.errors);
        let since_before = |now, before| micros(now).saturating_sub(micros(before));
        values[Column::Stalled] = since_before(counters.stalled, before.stalled);
        values[Column::IdleOnPurpose] = since_before(counters.deliberate, before.deliberate);
        values[Column::Depth] = device.adapted_depth().unwrap_or(stats.spec.depth).into();
        values[Column::Pending] = stats.queued.into();
        values[Column::InFlight] = in_flight.into();
        let started = device.ios_in_flight().map(|(_, started)| started).min();
        let oldest = started.map_or(Nanos::ZERO, |started| now.since(started));
        values[Column::OldestIo] = micros(oldest);
        let (end_ms, span_ms) = interval(now, since);
        let sample = Sample {
            end_ms,
            span_ms,
            values,
            latency: take_latency(&mut self.latency),
            behind: Vec::new(),
        };
        self.batch.push((self.device_key.clone(), sample));
        self.found_active = true;
    }
}

fn micros(span: Nanos) -> u64 {
    span.0 / 1000
}

/// Returns the histogram of counts by bucket, which are cleared.
fn take_latency(counts: &mut [u64; BUCKETS as usize]) -> Latency {
    let cells = counts.iter().enumerate().filter(|(_, count)| **count > 0);
    let cells = cells
        .map(|(bucket, count)| (bucket as u16, *count))
        .collect();
    counts.fill(0);
    Latency::new(cells)
}

/// Name of a VM in the history that has left the table.
fn removed() -> Arc<str> {
    "(removed)".into()
}
