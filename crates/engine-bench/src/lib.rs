//! CPU cost of scheduling, without a device: what `tidegate bench engine` measures.
//!
//! A package of its own, because it must be optimised as the daemon's path of an I/O is, and other
//! commands are built for size.
//!
//! All VMs keep `depth` requests waiting. Every turn takes one request through submission,
//! dispatch, completion and reply, in virtual time. The result is the median CPU time of this
//! thread over several runs, which other load on the machine disturbs little. The split into phases
//! is measured separately, over as many requests at a time as the device's depth.

#![forbid(unsafe_code)]

pub mod build;

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

/// Workload to measure.
#[derive(Clone, Copy, Debug)]
pub struct Workload {
    /// Number of VMs, all backlogged.
    pub vms: u32,
    /// Requests that each VM keeps waiting.
    pub depth: u32,
    /// Number of runs, of which the median counts.
    pub runs: usize,
    /// Requests of a run.
    pub requests: u64,
    /// True to give the device a profile and compare it, whatever the policy.
    pub profile: bool,
}

/// Result of one measurement.
#[derive(Clone, Debug, Serialize)]
pub struct Measured {
    /// Policy with its parameters.
    pub policy: String,
    /// Number of VMs, all backlogged.
    pub vms: u32,
    /// Requests that each VM keeps waiting.
    pub depth: u32,
    /// Median CPU time in nanoseconds of submission, dispatch, completion and reply.
    pub ns_per_request: f64,
    /// Smallest and largest CPU time of the runs in nanoseconds.
    pub ns_per_request_range: [f64; 2],
    /// Part of it that the test loop takes, in nanoseconds: median, measured without an engine.
    pub loop_ns: f64,
    /// Split of the CPU time by phase.
    pub phases: Phases,
    /// Bytes of scheduling state of a VM, without histograms.
    pub bytes_per_vm: usize,
    /// Bytes of state of a waiting request.
    pub bytes_per_request: usize,
    /// Median CPU time in nanoseconds to submit the request that wakes an idle VM.
    pub wake_ns: f64,
}

/// Nanoseconds per request by phase.
#[derive(Clone, Copy, Default, Debug, Serialize)]
pub struct Phases {
    /// Completion and reply.
    pub complete_ns: f64,
    /// Submission of the next request.
    pub submit_ns: f64,
    /// Dispatch of the next I/O.
    pub dispatch_ns: f64,
}

/// Time of an I/O of the simulated device, which does a million IOPS; reservations take half.
const STEP: Nanos = Nanos(1_000);
const DEVICE_IOPS: u64 = 1_000_000;
const DEVICE_DEPTH: u32 = 32;
const DISK: u64 = 1 << 40;
/// Seed of random addresses.
pub const SEED: u64 = 1;

/// Measures one policy under one workload.
///
/// # Errors
/// If the workload does not fit the engine's bounds.
pub fn measure(
    name: &str,
    policy: &PolicySpec,
    workload: Workload,
) -> Result<Measured, EngineError> {
    let mut world = World::new(policy, workload)?;
    world.fill();
    // Warm-up: all initial requests complete once, so that slots are laid out as in a long run.
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

/// Runs one policy for callgrind, which counts only inside `counted_turns`. Returns the number of
/// requests completed there.
///
/// # Errors
/// If the workload does not fit the engine's bounds.
pub fn run_counted(policy: &PolicySpec, workload: Workload) -> Result<u64, EngineError> {
    let mut world = World::new(policy, workload)?;
    world.fill();
    // Warm-up, as in `measure`.
    world.turn(workload.requests / 2 + workload.vms as u64 * workload.depth as u64);
    world.answered = 0;
    counted_turns(&mut world, workload.requests);
    let answered = world.answered;
    world.drain();
    Ok(answered)
}

/// Runs the loop that callgrind counts. `tidegate bench engine --instructions` passes this
/// function's name to callgrind.
#[inline(never)]
fn counted_turns(world: &mut World, requests: u64) {
    // Prevents a specialised copy of this function for its only caller.
    world.turn(black_box(requests));
}

struct World {
    engine: Engine,
    clients: Vec<ClientId>,
    workload: Workload,
    now: Nanos,
    in_flight: VecDeque<IoId>,
    /// Requests completed in [`World::turn`].
    answered: u64,
    /// State of a cheap random generator, whose cost must not matter beside the engine's.
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
        // A policy that needs a profile gets one even if the workload asks for none.
        if workload.profile || policy.check_profile(false).is_err() {
            engine.device_mut().set_profile(Some(Arc::new(profile())));
        }
        let objective = objective(workload.vms as u64);
        let mut clients = Vec::new();
        for i in 0..vms as u64 {
            let vm = engine.vms_mut().add_vm(Nanos::ZERO, &objective)?;
            let spec = DiskSpec {
                base: i * DISK,
                size: DISK,
                read_only: false,
            };
            let disk = engine.vms_mut().add_disk(vm, spec)?;
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

    /// Completes `requests` one by one, each followed by the VM's next request.
    fn turn(&mut self, requests: u64) {
        for _ in 0..requests {
            self.now += STEP;
            let Some(io) = self.in_flight.pop_front() else {
                // All VMs are throttled: advance to the next time-out.
                self.now = self.engine.next_timeout().unwrap_or(self.now).max(self.now);
                self.dispatch();
                continue;
            };
            self.engine.handle_completion(self.now, io, Ok(()));
            while let Some(done) = self.engine.poll_done() {
                self.answered += 1;
                // Idle VMs answer their single request and stay idle; only backlogged VMs go on.
                if done.tag < self.workload.vms as u64 {
                    self.submit(done.tag);
                }
            }
            self.dispatch();
        }
    }

    /// Measures the phases, each for a whole device depth of requests so that reading the clock
    /// costs little. Uses the wall clock, because reading the thread's CPU clock is expensive; the
    /// median leaves out runs disturbed by other load.
    fn phases(&mut self, requests: u64, runs: usize) -> Phases {
        let mut all: [Vec<f64>; 3] = Default::default();
        let mut answered = Vec::with_capacity(DEVICE_DEPTH as usize);
        for _ in 0..runs {
            let (mut spent, mut served) = ([Duration::ZERO; 3], 0);
            while served < requests {
                let batch = self.in_flight.len() as u64;
                // All VMs are throttled: `turn` advances the time to the next time-out.
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

    /// Measures the submission of the first request of an idle VM, with new VMs each time, because
    /// used ones would take long to become idle again.
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

/// Returns a profile with common request sizes, for policies that use device time.
fn profile() -> Profile {
    let curve = |first: f64| {
        // Powers of two from 4 KiB to 1 MiB; the rate falls as the size grows, at one bandwidth.
        let points = (12..=20).map(|power| (1 << power, first / f64::from(1 << (power - 12))));
        Curve::new(&points.collect::<Vec<_>>()).expect("sizes and rates are in range")
    };
    let iops = DEVICE_IOPS as f64;
    let reads = [curve(iops), curve(iops)];
    let writes = [curve(iops / 2.0), curve(iops / 2.0)];
    Profile::new(reads, Some(writes), Vec::new(), Vec::new())
}

/// Returns a request at a random address.
fn roll(dice: &mut u64, vm: u64) -> Request {
    // Multiplier and increment of Knuth's MMIX generator; its upper bits are the random ones.
    *dice = dice
        .wrapping_mul(6364136223846793005)
        .wrapping_add(1442695040888963407);
    let offset = (*dice >> 24) % (DISK / 8192) * 8192;
    Request::read(offset, 4096, vm)
}

/// Measures the loop of [`World::turn`] without calls of the engine.
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
                // Keeps the compiler from leaving out a loop without effects.
                black_box((now, clients[tag as usize], &request));
                in_flight.push_back(black_box(io));
            }
            (thread_cpu() - start) as f64 / workload.requests as f64
        })
        .collect();
    times.sort_by(f64::total_cmp);
    median(&times)
}

/// Returns the objective of each VM: reservation, limit and weight; all reservations together are
/// half of the device.
fn objective(vms: u64) -> Objective {
    Objective {
        reservation: Rate::iops((DEVICE_IOPS / 2 / vms).max(1)),
        limit: Limit::of_all(Rate::iops((DEVICE_IOPS * 4 / vms).max(2))),
        ..Objective::default()
    }
}

/// Returns the number of measurements of waking idle VMs.
fn wakes(workload: Workload) -> u32 {
    workload.runs.max(3) as u32
}

/// Returns the number of idle VMs woken in one measurement.
fn idle_vms(vms: u32) -> u32 {
    (vms / 10).clamp(1, 100)
}

fn median(sorted: &[f64]) -> f64 {
    sorted[sorted.len() / 2]
}

/// Returns the CPU time of this thread in nanoseconds.
pub fn thread_cpu() -> u64 {
    let t = clock_gettime(ClockId::ThreadCPUTime);
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}
