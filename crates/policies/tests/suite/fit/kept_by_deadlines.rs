//! Feasible objectives are kept: a plain server holds all objectives that `fit::evaluate` accepts.
//! It serves requests one after the other, each as long as the profile says, and takes up to the
//! depth bound of them at once. Due requests come first, by deadline; the rest of the time goes to
//! parts of a VM that always has requests.

use proptest::prelude::*;
use tidegate_core::expected_workload::ExpectedWorkload;
use tidegate_core::fit::{Assumed, Device, Fit, PlannedVm, Queueing, evaluate};
use tidegate_core::objective::{Objective, Rate};
use tidegate_core::profile::{Access, Curve, DepthPoint, Direction, Profile};
use tidegate_core::random::mix;
use tidegate_core::time::Nanos;

/// Largest I/O in bytes of the VM that always has requests.
const PART_BYTES: u32 = 64 << 10;
/// Simulated requests of a run.
const REQUESTS: usize = 3000;

/// Promise to one VM.
#[derive(Clone, Copy, Debug)]
struct Promise {
    /// Requests a second.
    iops: u64,
    /// The rate is reserved; otherwise it is the envelope of a bound.
    floor: bool,
    /// Burst of the envelope in requests; 0: no bound, and the VM always has requests.
    burst: u32,
    size: u32,
}

/// Returns the profile of a device that serves one request at a time: `base` each, and `mib` a
/// mebibyte.
fn server(base: Nanos, mib: Nanos) -> Profile {
    let time = |bytes: u32| base.0 + mib.0 * u64::from(bytes) / (1 << 20);
    let iops = |bytes| 1e9 / time(bytes) as f64;
    let sizes = [4096, 1 << 20];
    let curve = Curve::new(&sizes.map(|size| (size, iops(size)))).expect("a curve");
    let point = |depth: u32| {
        let all = Nanos(time(4096) * u64::from(depth));
        DepthPoint {
            direction: Direction::Read,
            access: Access::Random,
            size: 4096,
            depth,
            iops: iops(4096),
            mean: all,
            p50: all,
            p99: all,
        }
    };
    let points = [1, 4, 32].map(point).to_vec();
    Profile::new([curve.clone(), curve], None, Vec::new(), points)
}

fn objective(promise: &Promise, bound: Nanos) -> Objective {
    let rate = Rate::iops(promise.iops);
    Objective {
        reservation: if promise.floor { rate } else { Rate::NONE },
        latency: (promise.burst > 0).then_some(bound),
        expects: ExpectedWorkload {
            reads: Some(1000),
            sequential: Some(0),
            size: Some(promise.size),
            iops: (!promise.floor).then_some(promise.iops),
            burst: (promise.burst > 0).then_some(promise.burst),
        },
        ..Objective::default()
    }
}

fn bulk() -> Objective {
    Objective {
        expects: ExpectedWorkload {
            reads: Some(1000),
            sequential: Some(0),
            size: Some(1 << 20),
            ..ExpectedWorkload::NOTHING
        },
        ..Objective::default()
    }
}

fn judge(profile: &Profile, depth: u32, promises: &[Promise], bound: Nanos, headroom: u32) -> Fit {
    let mut objectives: Vec<_> = promises.iter().map(|p| objective(p, bound)).collect();
    objectives.push(bulk());
    let vms: Vec<_> = objectives
        .iter()
        .map(|it| PlannedVm::new("vm", it))
        .collect();
    let device = Device {
        profile,
        depth,
        max_io: 1 << 20,
        merge_limit: 0,
        capacity: None,
        queueing: Queueing {
            least_depth: Some(1),
            part: Some(PART_BYTES),
            background_part: None,
        },
    };
    let assumed = Assumed {
        headroom,
        ..Assumed::default()
    };
    evaluate(&device, &vms, &assumed)
}

/// Request: its VM, its arrival, the deadline of its bound, and the deadline of its floor.
#[derive(Clone, Copy, Debug)]
struct Request {
    vm: usize,
    came: u64,
    due: u64,
    floor_by: Option<u64>,
}

/// Requests of a VM, one after the other; times in nanoseconds.
struct Source {
    promise: Promise,
    period: u64,
    tag: Option<u64>,
    /// Time at which the envelope's bucket is full again.
    full_at: u64,
    came: u64,
    seed: u64,
}

impl Source {
    fn new(promise: Promise, seed: u64) -> Source {
        Source {
            promise,
            period: Nanos::SECOND.0.div_ceil(promise.iops),
            tag: None,
            full_at: 0,
            came: 0,
            seed,
        }
    }

    /// Returns the next request, at the earliest time that its envelope allows, or a while later.
    fn next(&mut self, vm: usize, bound: Nanos, blocking: Nanos) -> Request {
        self.seed = mix(self.seed);
        if self.promise.burst > 0 {
            let whole = self.period * u64::from(self.promise.burst);
            let earliest = (self.full_at + self.period).saturating_sub(whole);
            // Most come as densely as they may; some wait until the bucket is fuller.
            let pause = match self.seed % 8 {
                0 => self.seed / 8 % (whole + self.period),
                _ => 0,
            };
            self.came = self.came.max(earliest) + pause;
            self.full_at = self.full_at.max(self.came) + self.period;
        }
        let paced = self.tag.map_or(0, |tag| tag + self.period);
        let tag = self.came.max(paced);
        self.tag = Some(tag);
        let floor = self.promise.floor.then_some(tag + self.period);
        let by_bound = (self.promise.burst > 0).then_some(self.came + bound.0);
        // Something of a floor alone is there at any time, and becomes due by its tag.
        let came = if by_bound.is_none() { tag } else { self.came };
        Request {
            vm,
            came,
            due: by_bound
                .into_iter()
                .chain(floor)
                .min()
                .expect("one of both"),
            floor_by: floor.map(|floor| floor + blocking.0),
        }
    }
}

/// Returns the largest part of its bound that a request took, and the lateness of the latest floor.
fn serve(
    profile: &Profile,
    promises: &[Promise],
    fit: &Fit,
    bound: Nanos,
    seed: u64,
) -> (f64, i128) {
    let time = |size| {
        let ps = profile.time_ps(Direction::Read, Access::Random, size);
        ps.div_ceil(1000)
    };
    let mut sources: Vec<_> = (promises.iter().enumerate())
        .map(|(at, &promise)| Source::new(promise, mix(seed + at as u64)))
        .collect();
    let next = |sources: &mut Vec<Source>, vm: usize| sources[vm].next(vm, bound, fit.blocking);
    let mut waiting: Vec<Request> = (0..sources.len())
        .map(|vm| next(&mut sources, vm))
        .collect();
    let mut queue: Vec<Request> = Vec::new();
    let mut with_device = std::collections::VecDeque::new();
    let (mut now, mut busy_until) = (0, 0);
    let (mut worst, mut late) = (0.0, i128::MIN);
    let mut served = 0;
    while served < REQUESTS {
        for (at, waiting) in waiting.iter_mut().enumerate() {
            while waiting.came <= now {
                queue.push(*waiting);
                *waiting = next(&mut sources, at);
            }
        }
        while with_device.front().is_some_and(|&end| end <= now) {
            with_device.pop_front();
        }
        if with_device.len() as u32 >= fit.depth_bound {
            now = with_device[0];
            continue;
        }
        let first = (0..queue.len()).min_by_key(|&at| (queue[at].due, at));
        let taken = first.map(|at| queue.remove(at));
        let size = taken.map_or(PART_BYTES, |request| promises[request.vm].size);
        busy_until = now.max(busy_until) + time(size);
        with_device.push_back(busy_until);
        let Some(request) = taken else { continue };
        served += 1;
        if promises[request.vm].burst > 0 {
            let took = (busy_until - request.came) as f64 / bound.0 as f64;
            worst = f64::max(worst, took);
        }
        if let Some(by) = request.floor_by {
            late = late.max(i128::from(busy_until) - i128::from(by));
        }
    }
    (worst, late)
}

/// Returns the shortest bound that fits, to a thousandth; `None` if none does.
fn shortest(profile: &Profile, depth: u32, promises: &[Promise], headroom: u32) -> Option<Nanos> {
    let fits = |ns| judge(profile, depth, promises, Nanos(ns), headroom).fits();
    let (mut too_short, mut enough) = (0, Nanos::from_secs(10).0);
    if !fits(enough) {
        return None;
    }
    while enough - too_short > 1 + enough / 1000 {
        let middle = too_short + (enough - too_short) / 2;
        if fits(middle) {
            enough = middle;
        } else {
            too_short = middle;
        }
    }
    Some(Nanos(enough))
}

fn promises() -> impl Strategy<Value = Vec<Promise>> {
    let size = prop::sample::select(vec![4096u32, 16384, PART_BYTES]);
    let one =
        (20u64..2000, any::<bool>(), 0u32..12, size).prop_map(|(iops, reserved, burst, size)| {
            Promise {
                iops,
                floor: reserved || burst == 0,
                burst,
                size,
            }
        });
    prop::collection::vec(one, 1..6)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_feasible_is_kept_in_the_order_of_deadlines(
        promises in promises(),
        base_us in 10u64..400,
        mib_us in 100u64..4000,
        depth in 1u32..33,
        headroom in prop::sample::select(vec![800u32, 1000]),
        seed in any::<u32>(),
    ) {
        let profile = server(Nanos::from_micros(base_us), Nanos::from_micros(mib_us));
        let Some(bound) = shortest(&profile, depth, &promises, headroom) else {
            return Ok(());
        };
        let fit = judge(&profile, depth, &promises, bound, headroom);
        prop_assert!(fit.fits());
        let (worst, late) = serve(&profile, &promises, &fit, bound, seed.into());
        prop_assert!(worst <= 1.0, "{worst} of {bound:?}: {fit:?}");
        prop_assert!(late <= 0, "a floor was {late} ns late: {fit:?}");
    }
}

#[test]
fn bounds_and_floors_are_not_granted_by_far_too_much() {
    let profile = server(Nanos::from_micros(100), Nanos::from_micros(1000));
    let promises = [
        Promise {
            iops: 2000,
            floor: true,
            burst: 0,
            size: 4096,
        },
        Promise {
            iops: 500,
            floor: false,
            burst: 8,
            size: 4096,
        },
        Promise {
            iops: 300,
            floor: true,
            burst: 4,
            size: 16384,
        },
    ];
    let bound = shortest(&profile, 8, &promises, 1000).expect("there is room");
    let fit = judge(&profile, 8, &promises, bound, 1000);
    let (worst, late) = serve(&profile, &promises, &fit, bound, 7);
    assert!((0.7..=1.0).contains(&worst), "{worst} of {bound:?}");
    assert!(late <= 0, "{late} of {:?}", fit.blocking);
    // With a deeper queue than fits bound and floors are missed: the simulation tells.
    let deeper = Fit {
        depth_bound: fit.depth_bound * 16,
        ..fit
    };
    let (worst, late) = serve(&profile, &promises, &deeper, bound, 7);
    assert!(worst > 1.0 && late > 0, "{worst} {late}");
}
