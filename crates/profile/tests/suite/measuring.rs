//! Measurement of a device whose rates are known exactly, also if it is interrupted and resumed.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use tidegate_config::profile::{Mix, parse};
use tidegate_core::profile::{Access, Direction};
use tidegate_core::random::SplitMix64;
use tidegate_core::time::Nanos;
use tidegate_profile::outcome::build_profile;
use tidegate_profile::plan::Step;
use tidegate_profile::{Io, Next, Options, Outcome, Plan, Profiler, Target, virtual_time};

/// Device that serves [`SERVERS`] requests at a time, each for a time that depends on its direction
/// and size; further requests wait in order.
struct FixedRateDevice {
    /// Time at which each server is free.
    servers: Vec<Nanos>,
    /// Ids of the I/Os in flight, by the time at which each ends and its number.
    in_flight: BTreeMap<(Nanos, u64), u32>,
    /// Number of I/Os submitted.
    sequence: u64,
    /// Generator of a factor for service times; `None`: they are fixed.
    jitter: Option<SplitMix64>,
}

/// Number of requests that the device serves at a time.
const SERVERS: u32 = 8;
/// Size of the device in bytes.
const SPAN: u64 = 1 << 30;

/// Returns the service time of a request of `size` bytes in nanoseconds.
fn service(direction: Direction, size: u32) -> u64 {
    let per_kib = match direction {
        Direction::Read => 10_000,
        Direction::Write => 30_000,
    };
    1_000_000 + per_kib * u64::from(size / 1024)
}

impl FixedRateDevice {
    fn new(jitter: Option<u64>) -> FixedRateDevice {
        FixedRateDevice {
            servers: vec![Nanos::ZERO; SERVERS as usize],
            in_flight: BTreeMap::new(),
            sequence: 0,
            jitter: jitter.map(SplitMix64::new),
        }
    }

    fn submit(&mut self, now: Nanos, io: Io) {
        assert!(io.addr + u64::from(io.len) <= SPAN, "{io:?}");
        assert_eq!(io.addr % 4096, 0);
        let server = (self.servers.iter_mut().min()).expect("there are some");
        let mut time = service(io.direction, io.len);
        if let Some(jitter) = &mut self.jitter {
            // A factor from 0.5 to 1.5, which leaves the mean unchanged.
            time = time / 2 + jitter.below(time);
        }
        *server = (*server).max(now) + Nanos(time);
        self.sequence += 1;
        self.in_flight.insert((*server, self.sequence), io.id);
    }
}

fn plan(in_virtual_time: bool, quick: bool) -> Plan {
    let target = Target {
        name: "made up".to_owned(),
        span: SPAN,
        block: 4096,
        max_io: 1 << 20,
        depth_max: 32,
        writes: true,
        fill: true,
        condition: true,
    };
    let options = Options {
        quick,
        in_virtual_time,
        depth: None,
        seed: 3,
    };
    Plan::new(target, options).expect("large enough")
}

/// Measures until `stop` I/Os were submitted; returns their number and the time.
fn drive(profiler: &mut Profiler, device: &mut FixedRateDevice, stop: u64) -> (u64, Nanos) {
    let (mut now, mut submitted) = (Nanos::ZERO, 0);
    while submitted < stop {
        match profiler.next_io(now) {
            Next::Io(io) => {
                device.submit(now, io);
                submitted += 1;
            }
            Next::Finished => break,
            Next::Wait => {
                let ((at, _), id) = device.in_flight.pop_first().expect("one is in flight");
                now = at;
                profiler.completed(now, id);
            }
        }
    }
    (submitted, now)
}

#[test]
fn fill_writes_every_byte_once_and_conditioning_as_many() {
    let plan = plan(true, true);
    let depth = plan.bulk_depth() as usize;
    for conditions in [false, true] {
        let mut plan = plan.clone();
        let wanted = if conditions {
            Step::Condition
        } else {
            Step::Fill
        };
        plan.steps.retain(|step| *step == wanted);
        let mut profiler = Profiler::new(plan, Vec::new());
        let (mut now, mut written, mut bytes) = (Nanos::ZERO, BTreeMap::new(), 0);
        let mut queue: std::collections::VecDeque<u32> = Default::default();
        loop {
            match profiler.next_io(now) {
                Next::Io(io) => {
                    written.insert(io.addr, io.len);
                    bytes += u64::from(io.len);
                    queue.push_back(io.id);
                    assert!(queue.len() <= depth);
                }
                Next::Finished => break,
                Next::Wait => {
                    now += Nanos::from_millis(1);
                    profiler.completed(now, queue.pop_front().expect("in flight"));
                }
            }
        }
        assert_eq!(bytes, SPAN);
        if !conditions {
            let end = (written.iter()).fold(0, |end, (&addr, &len)| {
                assert_eq!(addr, end, "a gap or an overlap");
                end + u64::from(len)
            });
            assert_eq!(end, SPAN);
        }
    }
}

#[test]
fn measured_rates_are_those_of_the_device() {
    let mut profiler = Profiler::new(plan(true, true), Vec::new());
    drive(&mut profiler, &mut FixedRateDevice::new(None), u64::MAX);
    let result = build_profile(profiler.plan(), profiler.outcomes(), "");
    assert_eq!(
        result.depth, 16,
        "quick plans test 1, 4, 16 and 32; 16 is the first that occupies all servers"
    );
    let mut kinds = 0;
    for curve in &result.curves {
        for point in &curve.points {
            let time = |direction| service(direction, point.size) as f64;
            let truth = match curve.mix {
                Mix::All(direction) => time(direction),
                Mix::Reads(thousandths) => {
                    let reads = f64::from(thousandths) / 1000.0;
                    reads * time(Direction::Read) + (1.0 - reads) * time(Direction::Write)
                }
            };
            let truth = f64::from(SERVERS) * 1e9 / truth;
            // A mix is a draw of requests, and so known as well as its interval says.
            let slack = match curve.mix {
                Mix::All(_) => 0.001,
                Mix::Reads(_) => 0.002 + point.within_percent / 100.0,
            };
            let off = point.iops / truth - 1.0;
            assert!(off.abs() <= slack, "{} {point:?}: {off}", curve.name());
        }
        kinds += 1;
    }
    // Reads and writes, sequential and random, and a quick plan's three mixes.
    assert_eq!(kinds, 4 + 3);
    for point in result.latency.iter().map(|at| &at.point) {
        let (depth, servers) = (f64::from(point.depth), f64::from(SERVERS));
        let time = service(point.direction, point.size) as f64;
        let rate = depth.min(servers) * 1e9 / time;
        assert!((point.iops / rate - 1.0).abs() < 0.001, "{point:?}");
        // Little's law.
        let mean = depth.max(servers) / servers * time;
        assert!(
            (point.mean.0 as f64 / mean - 1.0).abs() < 0.001,
            "{point:?}"
        );
        assert!((point.p99.0 as f64 / mean - 1.0).abs() < 0.01, "{point:?}");
    }
}

#[test]
fn confidence_intervals_cover_the_true_rate() {
    let mut plan = plan(true, false);
    // The device has no buffers to fill.
    plan.pace.warm_up_bytes = 0;
    let mut profiler = Profiler::new(plan, Vec::new());
    drive(&mut profiler, &mut FixedRateDevice::new(Some(5)), u64::MAX);
    let result = build_profile(profiler.plan(), profiler.outcomes(), "");
    let (mut inside, mut all) = (0, 0);
    for curve in &result.curves {
        let Mix::All(direction) = curve.mix else {
            continue;
        };
        for point in &curve.points {
            let truth = f64::from(SERVERS) * 1e9 / service(direction, point.size) as f64;
            let off = 100.0 * (point.iops / truth - 1.0).abs();
            assert!(off < 3.0, "{point:?}: {off}");
            assert!(point.within_percent <= 1.0 || point.runs >= 15, "{point:?}");
            inside += u32::from(off <= point.within_percent);
            all += 1;
        }
    }
    // 95 % of the intervals should cover the rate; 29 or fewer of 36 has probability 1/10000.
    assert!(all == 36 && inside >= 30, "{inside} of {all}");
}

#[test]
fn a_depth_of_0_in_the_options_is_measured_as_1() {
    let mut plan = plan(true, true);
    plan.options.depth = Some(0);
    let mut profiler = Profiler::new(plan, Vec::new());
    drive(&mut profiler, &mut FixedRateDevice::new(None), u64::MAX);
    let result = build_profile(profiler.plan(), profiler.outcomes(), "");
    assert_eq!(result.depth, 1);
}

#[test]
fn a_resumed_measurement_gives_the_same_profile() {
    let mut profiler = Profiler::new(plan(true, true), Vec::new());
    let (ios, _) = drive(&mut profiler, &mut FixedRateDevice::new(None), u64::MAX);
    let uninterrupted = build_profile(profiler.plan(), profiler.outcomes(), "").to_toml();
    parse(&uninterrupted, "p.toml").expect("the profile can be read again");
    let mut random = SplitMix64::new(11);
    for _ in 0..6 {
        let mut outcomes: Vec<Outcome> = Vec::new();
        // Killed twice, each time with requests in flight; outcomes are persisted as JSON.
        for stop in [random.below(ios), random.below(ios), u64::MAX] {
            let json = serde_json::to_string(&outcomes).expect("plain data");
            let restored = serde_json::from_str(&json).expect("what was written");
            let mut profiler = Profiler::new(plan(true, true), restored);
            drive(&mut profiler, &mut FixedRateDevice::new(None), stop);
            outcomes = profiler.outcomes().to_vec();
        }
        let text = build_profile(&plan(true, true), &outcomes, "").to_toml();
        assert_eq!(text, uninterrupted);
    }
}

#[test]
fn real_time_measurement_takes_the_predicted_time() {
    for (quick, most) in [(true, 60.0), (false, 900.0)] {
        let mut profiler = Profiler::new(plan(false, quick), Vec::new());
        let expected = profiler.progress(Nanos::ZERO).remaining.as_secs_f64();
        let (_, end) = drive(&mut profiler, &mut FixedRateDevice::new(Some(9)), u64::MAX);
        let took = end.as_secs_f64();
        assert!(took < most && expected < most, "{took} s, {expected} s");
        assert!(
            (0.5..2.0).contains(&(took / expected)),
            "{took} s, {expected} s"
        );
        assert_eq!(profiler.progress(end).remaining, Nanos::ZERO);
    }
}

#[test]
fn measuring_a_slow_disk_ends_in_bounded_time() {
    // Serves one request at a time; each takes 50 ms whatever its size.
    let mut profiler = Profiler::new(plan(false, true), Vec::new());
    let mut now = Nanos::ZERO;
    let mut queue: std::collections::VecDeque<u32> = Default::default();
    loop {
        match profiler.next_io(now) {
            Next::Io(io) => queue.push_back(io.id),
            Next::Finished => break,
            Next::Wait => {
                now += Nanos::from_millis(50);
                profiler.completed(now, queue.pop_front().expect("in flight"));
            }
        }
    }
    let result = build_profile(profiler.plan(), profiler.outcomes(), "");
    assert!(now < Nanos::from_secs(120), "{now}");
    assert!(result.span < SPAN && !result.notes.is_empty());
    for curve in &result.curves {
        assert!(
            curve
                .points
                .iter()
                .all(|p| (p.iops / 20.0 - 1.0).abs() < 0.01)
        );
    }
}

#[test]
fn a_read_only_profile_is_complete() {
    let mut target = plan(true, true).target;
    (target.writes, target.fill, target.condition) = (false, false, false);
    let options = plan(true, true).options;
    let plan = Plan::new(target, options).expect("large enough");
    let mut profiler = Profiler::new(plan, Vec::new());
    drive(&mut profiler, &mut FixedRateDevice::new(None), u64::MAX);
    let result = build_profile(profiler.plan(), profiler.outcomes(), "");
    let profile = result.profile().expect("reads are enough");
    assert!(!profile.has_writes());
    let kinds: Vec<_> = result.curves.iter().map(|c| (c.mix, c.access)).collect();
    let read = Mix::All(Direction::Read);
    assert_eq!(kinds, [(read, Access::Sequential), (read, Access::Random)]);
}

/// Measures a simulated device that serves one request at a time. A request takes 1 ms; while the
/// device is disturbed, it takes 20 ms in every second span of 200 ms. `disturbed` is the time from
/// the beginning of each point for which the device is disturbed.
fn measure_disturbed(disturbed: Nanos) -> tidegate_config::profile::Measured {
    let mut plan = plan(false, true);
    (plan.target.writes, plan.target.fill) = (false, false);
    let plan = Plan::new(plan.target, plan.options).expect("large enough");
    let mut profiler = Profiler::new(plan, Vec::new());
    let mut now = Nanos::ZERO;
    // Step that is measured, and the time at which it began.
    let (mut step, mut step_began) = (0, Nanos::ZERO);
    let mut queue: std::collections::VecDeque<u32> = Default::default();
    loop {
        match profiler.next_io(now) {
            Next::Io(io) => queue.push_back(io.id),
            Next::Finished => break,
            Next::Wait => {
                if step != profiler.outcomes().len() {
                    (step, step_began) = (profiler.outcomes().len(), now);
                }
                let elapsed = now.since(step_began);
                let slow = elapsed < disturbed && (elapsed.0 / 200_000_000) % 2 == 1;
                now += Nanos::from_millis(if slow { 20 } else { 1 });
                profiler.completed(now, queue.pop_front().expect("in flight"));
            }
        }
    }
    build_profile(profiler.plan(), profiler.outcomes(), "")
}

#[test]
fn imprecise_points_get_more_runs() {
    let result = measure_disturbed(Nanos::from_millis(700));
    assert_eq!(result.imprecise(), [""; 0], "{result:?}");
    assert_eq!(result.profile().expect("complete").imprecision(), None);
    for curve in &result.curves {
        for point in &curve.points {
            assert!((point.iops / 1000.0 - 1.0).abs() < 0.25, "{point:?}");
        }
    }
}

#[test]
fn points_that_stay_imprecise_are_marked() {
    let result = measure_disturbed(Nanos::MAX);
    // Not all points are wide: slow and fast spans may average out within a run.
    let wide = result.curves.iter().flat_map(|curve| &curve.points);
    let wide: Vec<_> = wide.filter(|point| point.within_percent > 25.0).collect();
    assert!(!wide.is_empty());
    // A quick measurement has at most 5 runs a point, and 15 of a point that is too uncertain, of
    // which at least half are kept.
    assert!(wide.iter().all(|point| point.runs > 5), "{wide:?}");
    assert!(result.imprecise().len() >= wide.len());
    // The file marks such points, too.
    let read = parse(&result.to_toml(), "p.toml").expect("readable");
    let message = read.profile().expect("complete").imprecision();
    assert!(message.is_some_and(|message| message.contains("more")));
}

#[test]
fn reads_under_writes_take_longer_than_alone() {
    for name in [
        "hdd-7200-1tb",
        "hdd-7200-1tb-cached",
        "ssd-sata-300gb",
        "nvme-1tb",
    ] {
        let entry = tidegate_device::catalogue::load(name).expect("built in");
        let options = Options {
            quick: true,
            in_virtual_time: true,
            depth: Some(32),
            seed: 1,
        };
        let mut plan = Plan::new(virtual_time::target(&entry), options).expect("large enough");
        plan.steps
            .retain(|step| matches!(step, Step::ReadsUnderWrites(_)));
        let measured = virtual_time::measure_plan(&entry, plan, |_| ControlFlow::Continue(()));
        let under_writes = measured.expect("not stopped").beside_writes;
        let depths: Vec<_> = under_writes.iter().map(|at| at.point.depth).collect();
        assert!(
            depths.starts_with(&[1, 16]) && depths.is_sorted(),
            "{name}: {depths:?}"
        );
        let alone = tidegate_config::profile::built_in(name).expect("measured");
        let alone = alone.latency.iter().map(|at| at.point).find(|point| {
            (point.direction, point.access) == (Direction::Read, Access::Random)
                && (point.size, point.depth) == (4096, 1)
        });
        let alone = alone.expect("measured").p99;
        for at in under_writes {
            assert!(at.reads >= 500, "{name}: {at:?}");
            assert!(
                at.point.p99.0 > alone.0 * 5 / 4,
                "{name}: {at:?}, {alone} alone"
            );
        }
    }
}
