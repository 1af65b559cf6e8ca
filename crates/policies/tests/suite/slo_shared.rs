//! Tests of the policy `slo` on a device that other hosts share: whatever they report, every
//! request is served, and a host without peers has the whole device.

use crate::common::{config, open_disk, policy, weighted};
use proptest::prelude::*;
use std::collections::VecDeque;
use std::sync::Arc;
use tidegate_core::engine::Engine;
use tidegate_core::objective::{Group, Objective, Priority, Rate};
use tidegate_core::profile::{Curve, Profile};
use tidegate_core::request::{ClientId, IoId, Request, VmId};
use tidegate_core::roles::{HostWeight, PeerGroup, PeerGroups, PeerShare};
use tidegate_core::time::Nanos;

/// Number of VMs, the last of which is a background process.
const VMS: usize = 4;
const BLOCK: u32 = 16 << 10;
/// Time of an I/O, by the profile and in truth.
const SERVICE: Nanos = Nanos(200_000);
/// Requests in all at most.
const REQUESTS_MAX: u64 = 400;

/// Step of a history.
#[derive(Clone, Debug)]
enum Step {
    Request {
        vm: usize,
        write: bool,
    },
    Objective {
        vm: usize,
        objective: Box<Objective>,
    },
    Report {
        host: u32,
        share: Box<PeerShare>,
    },
    Silent {
        host: u32,
        weight: f64,
    },
    HostWeight(HostWeight),
    Wait {
        micros: u64,
    },
}

fn group(name: &str, weight: u32) -> Group {
    Group {
        name: name.parse().expect("short"),
        weight,
    }
}

fn objective() -> impl Strategy<Value = Objective> {
    let priority = prop_oneof![
        3 => Just(Priority::BestEffort(4)),
        1 => Just(Priority::RealTime),
        1 => Just(Priority::Idle),
    ];
    let rate = prop_oneof![2 => Just(Rate::NONE), 1 => (1u64..3000).prop_map(Rate::iops)];
    let latency = prop::option::of((1u64..50).prop_map(Nanos::from_millis));
    let group = prop::option::of((1u32..10_000).prop_map(|weight| group("chunks", weight)));
    (1u32..10_000, priority, rate, latency, group).prop_map(
        |(weight, priority, reservation, latency, group)| Objective {
            priority,
            reservation,
            latency,
            group,
            ..weighted(weight)
        },
    )
}

/// Generates figures of reports, sound or not.
fn figure() -> impl Strategy<Value = f64> {
    prop_oneof![
        4 => 0.0..1000.0,
        1 => 0.0..1e18,
        1 => Just(0.0),
        1 => Just(f64::NAN),
        1 => Just(-1.0),
    ]
}

fn report() -> impl Strategy<Value = PeerShare> {
    let figures = [(); 6].map(|()| figure());
    let competing = prop_oneof![2 => 1u64..10_000, 1 => any::<u64>()];
    (0u64..50, figures, any::<bool>(), 0.01..100.0, competing).prop_map(
        |(number, figures, ran_out, scale, competing)| {
            let [weight, lost, inside, mean_inside, ended, admitted] = figures;
            let mut groups = PeerGroups::default();
            groups.push(PeerGroup {
                group: group("chunks", 100),
                competing,
            });
            PeerShare {
                number,
                weight,
                lost,
                inside,
                mean_inside,
                ended,
                admitted,
                ran_out,
                scale,
                groups,
            }
        },
    )
}

fn step() -> impl Strategy<Value = Step> {
    let weight = prop_oneof![0.0..1000.0, 0.0..1e12, Just(0.0)];
    let rule = prop_oneof![
        Just(HostWeight::Sum),
        (1.0..1000.0).prop_map(HostWeight::AtMost),
        (1.0..1000.0).prop_map(HostWeight::Fixed),
    ];
    prop_oneof![
        20 => (0..VMS, any::<bool>()).prop_map(|(vm, write)| Step::Request { vm, write }),
        2 => (0..VMS, objective().prop_map(Box::new))
            .prop_map(|(vm, objective)| Step::Objective { vm, objective }),
        4 => (0u32..3, report().prop_map(Box::new))
            .prop_map(|(host, share)| Step::Report { host, share }),
        2 => (0u32..3, weight).prop_map(|(host, weight)| Step::Silent { host, weight }),
        1 => rule.prop_map(Step::HostWeight),
        8 => (0u64..60_000).prop_map(|micros| Step::Wait { micros }),
    ]
}

/// Engine with its device, which serves I/Os one by one.
struct Bench {
    engine: Engine,
    now: Nanos,
    vms: Vec<(VmId, ClientId)>,
    device: VecDeque<(Nanos, IoId)>,
    asked: u64,
    answered: u64,
    /// Requests of each VM that were answered.
    answered_of: [u64; VMS],
}

impl Bench {
    fn new() -> Bench {
        let policy = policy("slo").on_shared_device();
        let mut engine = Engine::new(config(8, 0), &policy).expect("in range");
        let rate = 1e9 / SERVICE.0 as f64;
        let curve = || Curve::new(&[(BLOCK, rate)]).expect("a curve");
        let profile = Profile::new([curve(), curve()], None, Vec::new(), Vec::new());
        engine.device_mut().set_profile(Some(Arc::new(profile)));
        let mut bench = Bench {
            engine,
            now: Nanos::ZERO,
            vms: Vec::new(),
            device: VecDeque::new(),
            asked: 0,
            answered: 0,
            answered_of: [0; VMS],
        };
        for at in 0..VMS {
            let mut vms = bench.engine.vms_mut();
            let added = if at + 1 == VMS {
                vms.add_background(Nanos::ZERO, &weighted(100))
            } else {
                vms.add_vm(Nanos::ZERO, &weighted(100))
            };
            let vm = added.expect("room");
            let client = open_disk(&mut bench.engine, vm, (at as u64) << 30, 1 << 30).1;
            bench.vms.push((vm, client));
        }
        bench
    }

    fn request(&mut self, vm: usize, write: bool) {
        let offset = (self.asked * 7919 % 8000) * u64::from(BLOCK);
        let request = if write {
            Request::write(offset, BLOCK, self.asked)
        } else {
            Request::read(offset, BLOCK, self.asked)
        };
        self.asked += 1;
        self.engine
            .handle_request(self.now, self.vms[vm].1, request)
            .expect("room");
    }

    fn take(&mut self, step: Step) {
        let now = self.now;
        match step {
            Step::Request { vm, write } if self.asked < REQUESTS_MAX => self.request(vm, write),
            Step::Request { .. } => {}
            Step::Objective { vm, objective } => {
                let vm = self.vms[vm].0;
                // One that does not fit the device is refused, which is as good.
                let _ = self.engine.vms_mut().set_objective(now, vm, &objective);
            }
            Step::Report { host, share } => self.engine.handle_peer(now, host, &share),
            Step::Silent { host, weight } => {
                self.engine.device_mut().assume_peer(now, host, weight);
            }
            Step::HostWeight(rule) => self.engine.device_mut().set_host_weight(now, rule),
            Step::Wait { micros } => self.run_until(now + Nanos::from_micros(micros)),
        }
    }

    /// Does what is due now.
    fn turn(&mut self) {
        while let Some((_, io)) = self.device.pop_front_if(|first| first.0 <= self.now) {
            self.engine.handle_completion(self.now, io, Ok(()));
        }
        if self.engine.next_timeout().is_some_and(|at| at <= self.now) {
            self.engine.handle_timeout(self.now);
        }
        while let Some(io) = self.engine.poll_dispatch(self.now) {
            let begin = self
                .device
                .back()
                .map_or(self.now, |last| last.0.max(self.now));
            self.device.push_back((begin + SERVICE, io.id));
        }
        while let Some(done) = self.engine.poll_done() {
            self.answered += 1;
            let vm = self.vms.iter().position(|&(vm, _)| vm == done.vm);
            self.answered_of[vm.expect("VMs stay")] += 1;
        }
        while self.engine.poll_share().is_some() {}
    }

    /// Returns the time of the next event of engine or device.
    fn next(&self) -> Option<Nanos> {
        let device = self.device.front().map(|first| first.0);
        self.engine.next_timeout().into_iter().chain(device).min()
    }

    fn run_until(&mut self, end: Nanos) {
        self.turn();
        while let Some(next) = self.next().filter(|&next| next < end) {
            self.now = next.max(self.now + Nanos(1));
            self.turn();
        }
        self.now = self.now.max(end);
        self.turn();
    }
}

impl Drop for Bench {
    /// Disconnects all clients and ends all I/Os: an engine may not be dropped with requests.
    fn drop(&mut self) {
        for &(_, client) in &self.vms {
            self.engine.handle_disconnect(self.now, client);
        }
        for (_, io) in self.device.drain(..) {
            self.engine.handle_completion(self.now, io, Ok(()));
        }
        while self.engine.poll_done().is_some() {}
    }
}

proptest! {
    // A case may last for minutes of virtual time, with a period every 30 ms.
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// A host that was told anything serves all that waits: at least an eighth of a thousandth of
    /// the device is for its VMs, and one I/O each 500 ms for background processes.
    #[test]
    fn whatever_hosts_report_every_request_is_served(
        steps in prop::collection::vec(step(), 1..300),
    ) {
        let mut bench = Bench::new();
        for step in steps {
            bench.take(step);
            bench.turn();
        }
        // At least one I/O of 200 us goes in 1.6 s by shares, and one in 500 ms in the background.
        let bound = Nanos::from_millis(2_000 * REQUESTS_MAX);
        let end = bench.now + bound;
        while bench.answered < bench.asked {
            let next = bench.next();
            prop_assert!(next.is_some(), "{} of {}", bench.answered, bench.asked);
            bench.now = next.unwrap_or(end).max(bench.now + Nanos(1));
            prop_assert!(bench.now < end, "{} of {}", bench.answered, bench.asked);
            bench.turn();
        }
    }
}

/// Runs VMs that keep 32 requests outstanding for `seconds`, and returns the number answered.
fn served(bench: &mut Bench, seconds: u64) -> u64 {
    let end = bench.now + Nanos::from_secs(seconds);
    let before = bench.answered;
    while bench.now < end {
        while bench.asked - bench.answered < 32 {
            bench.request(bench.asked as usize % (VMS - 1), false);
        }
        bench.turn();
        bench.now = bench.next().unwrap_or(end).max(bench.now + Nanos(1));
    }
    bench.answered - before
}

#[test]
fn a_host_whose_peers_are_idle_has_the_whole_device() {
    let mut bench = Bench::new();
    bench.engine.handle_peer(Nanos::ZERO, 1, &PeerShare::IDLE);
    served(&mut bench, 2);
    let part = served(&mut bench, 2) as f64 / 10_000.0;
    assert!(part > 0.98, "{part}");
    // Beside a silent host of three times its weight it has a quarter, until that withdraws.
    bench.engine.device_mut().assume_peer(bench.now, 1, 900.0);
    served(&mut bench, 1);
    let part = served(&mut bench, 2) as f64 / 10_000.0;
    assert!((0.22..0.28).contains(&part), "{part}");
    bench.engine.device_mut().assume_peer(bench.now, 1, 0.0);
    served(&mut bench, 1);
    let part = served(&mut bench, 2) as f64 / 10_000.0;
    assert!(part > 0.98, "{part}");
}

/// Weight of a group whose VMs are on several hosts, and of each VM of the test.
const GROUP_WEIGHTS: [u32; 2] = [100, 1];

/// Has the first VM and another one keep requests outstanding for 3 s, while another host reports
/// that VMs of a group with this sum of weights compete there. Returns what the first VM had of the
/// other.
fn ratio_beside_group(bench: &mut Bench, other: usize, shared: Group, elsewhere: u64) -> f64 {
    let mut before = bench.answered_of;
    let begin = bench.now;
    let mut asked = [0; 2];
    let mut number = begin.0 / 30_000_000;
    while bench.now < begin + Nanos::from_secs(3) {
        // The first second is for the means and the scale.
        if bench.now < begin + Nanos::SECOND {
            (before, asked) = (bench.answered_of, [0; 2]);
        }
        for (at, vm) in [0, other].into_iter().enumerate() {
            let inside = bench.engine.view().requests(bench.vms[vm].0);
            (inside..32).for_each(|_| bench.request(vm, false));
            asked[at] = bench.answered_of[vm] - before[vm];
        }
        if bench.now.0 / 30_000_000 > number {
            number = bench.now.0 / 30_000_000;
            let mut groups = PeerGroups::default();
            groups.push(PeerGroup {
                group: shared,
                competing: elsewhere,
            });
            let share = PeerShare {
                number,
                weight: f64::from(shared.weight),
                groups,
                ..PeerShare::IDLE
            };
            bench.engine.handle_peer(bench.now, 1, &share);
        }
        bench.turn();
        bench.now = bench.next().unwrap_or(bench.now).max(bench.now + Nanos(1));
    }
    asked[0] as f64 / asked[1] as f64
}

/// A group has the weight that its VMs elsewhere leave it beside the other VMs of the host.
#[test]
fn a_group_has_the_part_of_its_weight_that_is_of_this_host() {
    for weight in GROUP_WEIGHTS {
        let mut bench = Bench::new();
        let (alone, member) = (bench.vms[0].0, bench.vms[1].0);
        let join = |bench: &mut Bench, vm: VmId, objective: &Objective| {
            let now = bench.now;
            let mut vms = bench.engine.vms_mut();
            vms.set_objective(now, vm, objective).expect("it fits");
        };
        let of_group = |name| Objective {
            group: Some(group(name, weight)),
            ..weighted(200)
        };
        join(&mut bench, alone, &weighted(weight));
        join(&mut bench, member, &of_group("chunks"));
        let shared = group("chunks", weight);
        // The VM here weighs 200 within the group.
        for (elsewhere, ratio) in [(0, 1.0), (400, 3.0), (100, 1.5), (1800, 10.0)] {
            let got = ratio_beside_group(&mut bench, 1, shared, elsewhere);
            assert!(
                (got / ratio - 1.0).abs() < 0.03,
                "{weight}, {elsewhere}: {got}"
            );
        }
        // Another group is whole, and the first one has its part again once the VM is back.
        for (name, ratio) in [("others", 1.0), ("chunks", 3.0)] {
            join(&mut bench, member, &of_group(name));
            let got = ratio_beside_group(&mut bench, 1, shared, 400);
            assert!((got / ratio - 1.0).abs() < 0.03, "{weight}, {name}: {got}");
        }
    }
}

/// VMs of a group that take turns have the part of their own weights each time.
#[test]
fn a_group_has_the_part_of_its_member_that_competes() {
    let mut bench = Bench::new();
    let shared = group("chunks", 100);
    let objectives = [
        weighted(100),
        Objective {
            group: Some(shared),
            ..weighted(200)
        },
        Objective {
            group: Some(shared),
            ..weighted(800)
        },
    ];
    for (at, objective) in objectives.iter().enumerate() {
        let vm = bench.vms[at].0;
        let mut vms = bench.engine.vms_mut();
        vms.set_objective(Nanos::ZERO, vm, objective)
            .expect("it fits");
    }
    for (member, ratio) in [(1, 3.0), (2, 1.5), (1, 3.0), (2, 1.5)] {
        let got = ratio_beside_group(&mut bench, member, shared, 400);
        assert!((got / ratio - 1.0).abs() < 0.03, "{member}: {got}");
        // Long enough for none of them to compete any more.
        bench.run_until(bench.now + Nanos::SECOND);
    }
}

/// Runs the background process, with 32 requests outstanding, for `seconds`, and returns the number
/// answered of it.
fn served_in_background(bench: &mut Bench, seconds: u64) -> u64 {
    let end = bench.now + Nanos::from_secs(seconds);
    let before = bench.answered_of[VMS - 1];
    while bench.now < end {
        while bench.asked - bench.answered < 32 {
            bench.request(VMS - 1, false);
        }
        bench.turn();
        bench.now = bench
            .next()
            .unwrap_or(end)
            .max(bench.now + Nanos(1))
            .min(end);
    }
    bench.answered_of[VMS - 1] - before
}

#[test]
fn background_alone_has_what_the_host_is_entitled_to_beside_silent_hosts() {
    let mut bench = Bench::new();
    let competing = |number| PeerShare {
        number,
        weight: 100.0,
        scale: 1.0,
        ..PeerShare::IDLE
    };
    bench
        .engine
        .device_mut()
        .set_host_weight(Nanos::ZERO, HostWeight::AtMost(300.0));
    // Two hosts are silent: the background has 300 of 1,200.
    bench.engine.device_mut().assume_peer(Nanos::ZERO, 1, 800.0);
    bench.engine.device_mut().assume_peer(Nanos::ZERO, 2, 100.0);
    served_in_background(&mut bench, 1);
    let part = served_in_background(&mut bench, 4) as f64 / 20_000.0;
    assert!((0.22..0.28).contains(&part), "{part}");
    // One of them is heard, and has VMs that compete: they go before any background.
    bench.engine.handle_peer(bench.now, 1, &competing(1));
    served_in_background(&mut bench, 1);
    let served = served_in_background(&mut bench, 4);
    assert!((7..=9).contains(&served), "{served}");
    // VMs of the heard host are idle again: beside the silent one, 300 of 400.
    let idle = PeerShare {
        weight: 0.0,
        ..competing(2)
    };
    bench.engine.handle_peer(bench.now, 1, &idle);
    served_in_background(&mut bench, 1);
    let part = served_in_background(&mut bench, 4) as f64 / 20_000.0;
    assert!((0.70..0.80).contains(&part), "{part}");
}

#[test]
fn background_alone_is_free_once_the_last_host_that_competed_is_gone() {
    let mut bench = Bench::new();
    let last = PeerShare {
        number: 1,
        weight: 100.0,
        scale: 1.0,
        ..PeerShare::IDLE
    };
    // The host's next report, that nothing competes any more, is lost.
    bench.engine.handle_peer(Nanos::ZERO, 1, &last);
    let served = served_in_background(&mut bench, 1);
    assert!(served > 2_000, "{served}: free after 300 ms");
}
