//! `tidegate bench engine`: what scheduling costs, without any device.
//!
//! All VMs keep `depth` requests waiting; every turn takes one request through submit,
//! dispatch, completion and answer, in virtual time. Measured in CPU time of this thread, so
//! that a busy machine disturbs it as little as can be; the median of repeated runs. Where the
//! time goes is measured apart, a device's depth of requests at a time.

pub(crate) mod instructions;

use std::collections::VecDeque;
use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;
use tidegate_core::engine::{DeviceSpec, DiskSpec, Engine, EngineConfig, EngineError};
use tidegate_core::objective::{Limit, Objective, Rate};
use tidegate_core::profile::{Curve, Profile};
use tidegate_core::request::{ClientId, IoId, Request};
use tidegate_core::time::Nanos;
use tidegate_policies::policy::PolicySpec;

/// What to measure.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Workload {
    /// VMs, all of them backlogged.
    pub(crate) vms: u32,
    /// Requests each of them keeps waiting.
    pub(crate) depth: u32,
    /// Repeated runs, of which the median counts.
    pub(crate) runs: usize,
    /// Requests in a run.
    pub(crate) requests: u64,
    /// The device has a profile and is watched, whatever the policy.
    pub(crate) profile: bool,
}

/// One measurement.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Measured {
    /// The policy, and the parameters it was given.
    pub(crate) policy: String,
    /// VMs, all backlogged.
    pub(crate) vms: u32,
    /// Requests waiting a VM.
    pub(crate) depth: u32,
    /// CPU time of submit, dispatch, completion and answer together, median.
    pub(crate) ns_per_request: f64,
    /// The same, smallest and largest of the runs.
    pub(crate) ns_per_request_range: [f64; 2],
    /// What of it is the loop around the engine, which makes up requests and keeps the I/Os in
    /// flight: measured without an engine, median.
    pub(crate) loop_ns: f64,
    /// The parts of it.
    pub(crate) phases: Phases,
    /// Scheduling state a VM, histograms apart.
    pub(crate) bytes_per_vm: usize,
    /// State a queued request.
    pub(crate) bytes_per_request: usize,
    /// CPU time to hand in the request that wakes an idle VM among all the others, median.
    pub(crate) wake_ns: f64,
}

/// Nanoseconds a request, by what the engine is called for.
#[derive(Clone, Copy, Default, Debug, Serialize)]
pub(crate) struct Phases {
    /// Completion, and taking the answer.
    pub(crate) complete_ns: f64,
    /// Handing in the next request.
    pub(crate) submit_ns: f64,
    /// Choosing what the device does next.
    pub(crate) dispatch_ns: f64,
}

/// The simulated device does a million I/Os a second: reservations take half of it.
const STEP: Nanos = Nanos(1_000);
const DEVICE_IOPS: u64 = 1_000_000;
const DEVICE_DEPTH: u32 = 32;
const DISK: u64 = 1 << 40;
/// Seed of the request addresses.
const SEED: u64 = 1;

/// Measures one policy under one workload.
///
/// # Errors
/// When the workload does not fit the engine's bounds.
pub(crate) fn measure(
    name: &str,
    policy: &PolicySpec,
    workload: Workload,
) -> Result<Measured, EngineError> {
    let mut world = World::new(policy, workload)?;
    world.fill();
    // Everything that was queued at first has gone once, so slots lie as a long run leaves them.
    world.turn(workload.requests + workload.vms as u64 * workload.depth as u64);
    let mut runs: Vec<f64> = (0..workload.runs)
        .map(|_| {
            let start = thread_cpu();
            world.turn(workload.requests);
            (thread_cpu() - start) as f64 / workload.requests as f64
        })
        .collect();
    runs.sort_by(f64::total_cmp);
    let phases = world.phases(workload.requests / 4, workload.runs);
    let footprint = world.engine.footprint();
    let wake_ns = world.wake();
    world.drain();
    Ok(Measured {
        policy: name.to_owned(),
        vms: workload.vms,
        depth: workload.depth,
        ns_per_request: median(&runs),
        ns_per_request_range: [runs[0], runs[runs.len() - 1]],
        loop_ns: loop_alone(workload),
        phases,
        bytes_per_vm: footprint.vm,
        bytes_per_request: footprint.request,
        wake_ns,
    })
}

/// Runs one policy for callgrind: counts are taken inside of [`counted_turns`] alone. Returns how
/// many requests were answered there.
///
/// # Errors
/// When the workload does not fit the engine's bounds.
pub(crate) fn run_counted(policy: &PolicySpec, workload: Workload) -> Result<u64, EngineError> {
    let mut world = World::new(policy, workload)?;
    world.fill();
    // Everything that was queued at first has gone once, as in `measure`.
    world.turn(workload.requests / 2 + workload.vms as u64 * workload.depth as u64);
    world.answered = 0;
    counted_turns(&mut world, workload.requests);
    let answered = world.answered;
    world.drain();
    Ok(answered)
}

/// The loop that callgrind counts, found by its name: [`instructions`] passes it to callgrind.
#[inline(never)]
fn counted_turns(world: &mut World, requests: u64) {
    // Opaque, so that no copy of this function is made for its only caller's arguments.
    world.turn(black_box(requests));
}

struct World {
    engine: Engine,
    clients: Vec<ClientId>,
    workload: Workload,
    now: Nanos,
    in_flight: VecDeque<IoId>,
    /// Requests answered in [`World::turn`].
    answered: u64,
    /// A cheap generator of addresses: the engine is measured, not the dice.
    dice: u64,
}

impl World {
    fn new(policy: &PolicySpec, workload: Workload) -> Result<World, EngineError> {
        let vms = workload.vms + idle_vms(workload.vms) * wakes(workload);
        let config = EngineConfig {
            device: DeviceSpec {
                depth: DEVICE_DEPTH,
                ..EngineConfig::default().device
            },
            // Only half of the slots are guaranteed, an equal part to each VM: twice the sum of all
            // depths guarantees each VM as many slots as it keeps requests outstanding.
            max_requests: vms.saturating_mul(workload.depth).saturating_mul(2).max(64),
            max_pending_per_vm: workload.depth,
            max_vms: vms,
            ..EngineConfig::default()
        };
        let mut engine = Engine::new(config, policy)?;
        if workload.profile || policy.check_profile(false).is_err() {
            engine.device_mut().set_profile(Some(Arc::new(profile())));
        }
        let objective = objective(workload.vms as u64);
        let mut clients = Vec::new();
        for i in 0..vms as u64 {
            let vm = engine.tenants_mut().add_vm(Nanos::ZERO, &objective)?;
            let spec = DiskSpec {
                base: i * DISK,
                size: DISK,
                read_only: false,
            };
            let disk = engine.tenants_mut().add_disk(vm, spec)?;
            clients.push(engine.connect(disk)?);
        }
        let in_flight = VecDeque::with_capacity(DEVICE_DEPTH as usize);
        Ok(World {
            engine,
            clients,
            workload,
            now: Nanos::ZERO,
            in_flight,
            answered: 0,
            dice: SEED,
        })
    }

    fn submit(&mut self, vm: u64) {
        let request = roll(&mut self.dice, vm);
        self.engine
            .handle_request(self.now, self.clients[vm as usize], request)
            .expect("an answered request left room for one more");
    }

    fn fill(&mut self) {
        for _ in 0..self.workload.depth {
            for vm in 0..self.workload.vms as u64 {
                self.submit(vm);
            }
        }
        self.dispatch();
    }

    fn dispatch(&mut self) {
        while let Some(io) = self.engine.poll_dispatch(self.now) {
            self.in_flight.push_back(io.id);
        }
    }

    /// One request after the other ends, is answered, and is followed by the VM's next.
    fn turn(&mut self, requests: u64) {
        for _ in 0..requests {
            self.now += STEP;
            let Some(io) = self.in_flight.pop_front() else {
                // Everyone is at the limit: time passes.
                self.now = self.engine.next_timeout().unwrap_or(self.now).max(self.now);
                self.dispatch();
                continue;
            };
            self.engine.handle_completion(self.now, io, Ok(()));
            while let Some(done) = self.engine.poll_done() {
                self.answered += 1;
                if done.tag < self.workload.vms as u64 {
                    self.submit(done.tag);
                }
            }
            self.dispatch();
        }
    }

    /// The parts of a turn, each for all that the device has in flight: reading the clock three
    /// times for a whole depth costs little. The clock of the wall, for a thread's own is dear;
    /// the median of the runs leaves out those in which the machine did something else.
    fn phases(&mut self, requests: u64, runs: usize) -> Phases {
        let mut all: [Vec<f64>; 3] = Default::default();
        let mut answered = Vec::with_capacity(DEVICE_DEPTH as usize);
        for _ in 0..runs {
            let (mut spent, mut served) = ([Duration::ZERO; 3], 0);
            while served < requests {
                let batch = self.in_flight.len() as u64;
                if batch == 0 {
                    self.turn(1);
                    served += 1;
                    continue;
                }
                self.now += Nanos(STEP.0 * batch);
                let start = Instant::now();
                while let Some(io) = self.in_flight.pop_front() {
                    self.engine.handle_completion(self.now, io, Ok(()));
                }
                while let Some(done) = self.engine.poll_done() {
                    answered.push(done.tag);
                }
                let completed = Instant::now();
                answered.drain(..).for_each(|vm| self.submit(vm));
                let submitted = Instant::now();
                self.dispatch();
                spent[0] += completed - start;
                spent[1] += submitted - completed;
                spent[2] += submitted.elapsed();
                served += batch;
            }
            for (all, spent) in all.iter_mut().zip(spent) {
                all.push(spent.as_nanos() as f64 / served as f64);
            }
        }
        let [complete_ns, submit_ns, dispatch_ns] = all.map(|mut of| {
            of.sort_by(f64::total_cmp);
            median(&of)
        });
        Phases {
            complete_ns,
            submit_ns,
            dispatch_ns,
        }
    }

    /// What the first request of a VM takes that was idle so far. Each time others: to have the
    /// same ones idle again would take as long as their policy lets them wait.
    fn wake(&mut self) -> f64 {
        let count = idle_vms(self.workload.vms) as usize;
        let mut times: Vec<f64> = (0..wakes(self.workload) as usize)
            .map(|n| {
                let first = self.workload.vms as usize + n * count;
                let start = thread_cpu();
                (first..first + count).for_each(|vm| self.submit(vm as u64));
                (thread_cpu() - start) as f64 / count as f64
            })
            .collect();
        times.sort_by(f64::total_cmp);
        median(&times)
    }

    fn drain(&mut self) {
        for client in &self.clients {
            self.engine.handle_disconnect(self.now, *client);
        }
        while let Some(io) = self.in_flight.pop_front() {
            self.engine.handle_completion(self.now, io, Ok(()));
        }
    }
}

/// A profile of the usual sizes, for policies that cost the device's time.
fn profile() -> Profile {
    let curve = |first: f64| {
        let points = (12..=20).map(|power| (1 << power, first / f64::from(1 << (power - 12))));
        Curve::new(&points.collect::<Vec<_>>()).expect("sizes and rates are in range")
    };
    let iops = DEVICE_IOPS as f64;
    let reads = [curve(iops), curve(iops)];
    let writes = [curve(iops / 2.0), curve(iops / 2.0)];
    Profile::new(reads, Some(writes), Vec::new(), Vec::new())
}

/// A request at a random place.
fn roll(dice: &mut u64, vm: u64) -> Request {
    *dice = dice
        .wrapping_mul(6364136223846793005)
        .wrapping_add(1442695040888963407);
    let offset = (*dice >> 24) % (DISK / 8192) * 8192;
    Request::read(offset, 4096, vm)
}

/// [`World::turn`] with every call of the engine left out: what it is given is made up and
/// thrown away.
fn loop_alone(workload: Workload) -> f64 {
    let clients: Vec<u64> = (0..workload.vms as u64).collect();
    let mut in_flight: VecDeque<IoId> = (0..DEVICE_DEPTH as u64).map(IoId::from_bits).collect();
    let (mut now, mut dice, mut vm) = (Nanos::ZERO, SEED, 0);
    let mut times: Vec<f64> = (0..workload.runs)
        .map(|_| {
            let start = thread_cpu();
            for _ in 0..workload.requests {
                now += STEP;
                let Some(io) = in_flight.pop_front() else {
                    break;
                };
                vm = (vm + 1) % clients.len();
                let tag = black_box(vm as u64);
                let request = roll(&mut dice, tag);
                black_box((now, clients[tag as usize], &request));
                in_flight.push_back(black_box(io));
            }
            (thread_cpu() - start) as f64 / workload.requests as f64
        })
        .collect();
    times.sort_by(f64::total_cmp);
    median(&times)
}

/// Reservation, limit and weight for everyone, the reservations half of the device together.
fn objective(vms: u64) -> Objective {
    Objective {
        reservation: Rate::iops((DEVICE_IOPS / 2 / vms).max(1)),
        limit: Limit {
            total: Rate::iops((DEVICE_IOPS * 4 / vms).max(2)),
            ..Limit::NONE
        },
        ..Objective::default()
    }
}

/// How often idle VMs are woken.
fn wakes(workload: Workload) -> u32 {
    workload.runs.max(3) as u32
}

/// How many idle VMs are woken at a time.
fn idle_vms(vms: u32) -> u32 {
    (vms / 10).clamp(1, 100)
}

fn median(sorted: &[f64]) -> f64 {
    sorted[sorted.len() / 2]
}

/// CPU time of this thread in nanoseconds.
pub(crate) fn thread_cpu() -> u64 {
    let t = clock_gettime(ClockId::ThreadCPUTime);
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}
