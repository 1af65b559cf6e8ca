//! Invariants of every world, whatever runs in it, and worlds driven by another simulation.

use crate::common::{answering, credit, credit2, credit2_shared, every_scheduler, hog, receiving};
use crate::common::{scenario, seeded, vm};
use proptest::prelude::*;
use tidegate_core::time::Nanos;
use tidegate_vcpu::flow::cpu::Cpu;
use tidegate_vcpu::guest::{GuestCpu, TaskId};
use tidegate_vcpu::machine::{CpuSet, Machine, PcpuId, State, VcpuId};
use tidegate_vcpu::scenario::{CpuSpec, SchedulerSpec, Simulation, VmSpec};
use tidegate_vcpu::world::VcpuWorld;

fn any_scheduler() -> impl Strategy<Value = SchedulerSpec> {
    prop::sample::select(every_scheduler())
}

/// VMs on a machine of `pcpus`, with the driver domain on the first pCPU and the client on the
/// last.
fn any_vms(pcpus: u8) -> impl Strategy<Value = Vec<VmSpec>> {
    let one = (
        1..pcpus,
        1..pcpus,
        1_usize..4,
        0_usize..4,
        0_u32..3,
        64_u32..1024,
    );
    let vm_of = move |(a, b, vcpus, hogs, does, weight): (u8, u8, usize, usize, u32, u32)| {
        let mut spec = vm("vm", CpuSet::range(a.min(b), a.max(b)));
        spec.cpu = CpuSpec {
            vcpus,
            busy_processes: hogs,
            weight,
            ..spec.cpu
        };
        match does {
            0 => spec,
            1 => answering(spec, 0, 1_500, 300),
            _ => receiving(spec, 0),
        }
    };
    prop::collection::vec(one.prop_map(vm_of), 1..6).prop_map(move |mut vms| {
        for (n, vm) in vms.iter_mut().enumerate() {
            vm.name = format!("vm{n}");
        }
        vms.insert(0, vm("client", CpuSet::range(pcpus - 1, pcpus - 1)));
        vms
    })
}

/// Checks the invariants that hold after every event.
fn check(world: &VcpuWorld) {
    let machine = world.machine();
    let mut running = vec![0; machine.vcpus.len()];
    for p in machine.all_pcpus().iter() {
        if let Some(v) = machine.pcpu(p).running {
            running[v.index()] += 1;
            assert!(machine.vcpu(v).affinity.has(p), "{v:?} runs on {p:?}");
        }
    }
    for (v, vcpu) in machine.vcpus.iter().enumerate() {
        let runs = usize::from(vcpu.state == State::Running);
        assert_eq!(running[v], runs, "{v} is {:?}", vcpu.state);
    }
}

/// pCPUs that idle although a vCPU that may run there waits.
fn wasted(machine: &Machine) -> Vec<(PcpuId, VcpuId)> {
    let idle = machine.all_pcpus().iter();
    let idle = idle.filter(|&p| machine.pcpu(p).running.is_none());
    idle.flat_map(|p| {
        let waits = (0..machine.vcpus.len()).map(|v| VcpuId(v as u32));
        let waits = waits.filter(move |&v| {
            let vcpu = machine.vcpu(v);
            vcpu.state == State::Waiting && vcpu.affinity.has(p)
        });
        waits.map(move |v| (p, v)).collect::<Vec<_>>()
    })
    .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn a_vcpu_runs_in_one_place_at_a_time_and_only_where_it_may(
        vms in any_vms(5), scheduler in any_scheduler(), seed in 0_u64..1000,
    ) {
        let scenario = seeded(seed, scenario(scheduler, 5, vms));
        let mut simulation = Simulation::new(scenario);
        let mut before = Nanos::ZERO;
        while let Some(next) = simulation.world().next_event()
            && next < Nanos::from_millis(400)
        {
            prop_assert!(next >= before);
            before = simulation.world().now();
            simulation.step_event();
            check(simulation.world());
        }
        let ran = |v: usize| simulation.world().ran(VcpuId(v as u32)).0;
        let all: u64 = (0..simulation.world().machine().vcpus.len()).map(ran).sum();
        prop_assert!(all <= 5 * simulation.world().now().0);
    }

    /// With one run-queue for all pCPUs, and with Credit's stealing, no pCPU idles while a vCPU
    /// could run there. (With one run-queue per pCPU that is left to load balancing, which takes
    /// time.)
    #[test]
    fn no_pcpu_idles_while_somebody_could_run_there(
        vms in any_vms(5), seed in 0_u64..1000, first in any::<bool>(),
    ) {
        let scheduler = if first { credit() } else { credit2_shared() };
        let mut simulation = Simulation::new(seeded(seed, scenario(scheduler, 5, vms)));
        while let Some(next) = simulation.world().next_event()
            && next < Nanos::from_millis(300)
        {
            simulation.step_event();
            let wasted = wasted(simulation.world().machine());
            prop_assert!(wasted.is_empty(), "{:?} at {}", wasted, simulation.world().now());
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_results(
        vms in any_vms(4), scheduler in any_scheduler(), seed in 0_u64..1000,
    ) {
        let run = || {
            let scenario = seeded(seed, scenario(scheduler, 4, vms.clone()));
            Simulation::new(scenario).run()
        };
        prop_assert_eq!(run(), run());
    }
}

#[test]
fn another_seed_gives_other_results() {
    let run = |seed| {
        let vms = vec![
            vm("client", CpuSet::range(2, 2)),
            answering(hog("a", CpuSet::range(1, 1)), 0, 2_000, 300),
            hog("b", CpuSet::range(1, 1)),
        ];
        let scenario = seeded(seed, scenario(credit2(), 3, vms));
        let report = Simulation::new(scenario).run();
        report.vms[2].round_trips.clone().expect("it answers")
    };
    assert_ne!(run(1).counted, run(2).counted);
}

#[test]
fn a_switch_costs_whoever_comes() {
    let both = |switch_cost| {
        let here = CpuSet::range(1, 1);
        let mut scenario = scenario(credit2(), 2, vec![hog("a", here), hog("b", here)]);
        scenario.host.switch_cost = switch_cost;
        scenario.frame.warm_up = Nanos::from_millis(100);
        let report = Simulation::new(scenario).run();
        let cpus: f64 = report.vms.iter().map(|vm| vm.cpus).sum();
        (cpus, report.switches)
    };
    let (free, _) = both(Nanos::ZERO);
    assert!((free - 1.0).abs() < 1e-9, "{free}");
    let (cpus, switches) = both(Nanos::from_micros(100));
    let lost = (1.0 - cpus) * 0.9 / 100e-6;
    // Packets of the warm-up do not count as lost.
    assert!(
        (0.85..=0.95).contains(&(lost / switches as f64)),
        "{lost} of {switches}"
    );
}

/// A hog's VM beside one that receives external events.
#[test]
fn another_world_delivers_events_and_hears_when_they_were_handled() {
    let mut machine = Machine::new(1, 1);
    let all = machine.all_pcpus();
    machine.add_vm("io", 1, all, 256, 0);
    let guests = vec![GuestCpu::default()];
    let scheduler = credit2().build(&machine);
    let mut world = VcpuWorld::new(machine, guests, Vec::new(), scheduler, Nanos::ZERO);
    let v = VcpuId(0);
    assert_eq!(world.next_event(), None);
    world.run_until(Nanos::from_micros(100));
    world.deliver(v, Nanos::from_micros(20), 7, true);
    world.deliver(v, Nanos::from_micros(30), 8, true);
    assert_eq!(world.poll_handled(), None);
    assert_eq!(world.next_event(), Some(Nanos::from_micros(120)));
    world.run_until(Nanos::from_millis(1));
    let handled = std::iter::from_fn(|| world.poll_handled());
    let handled: Vec<_> = handled.map(|h| (h.tag, h.at)).collect();
    assert_eq!(
        handled,
        [(7, Nanos::from_micros(120)), (8, Nanos::from_micros(150))]
    );
    // The second event came while the first was being handled: no notification was needed.
    assert_eq!(world.notified(v), 1);
    assert_eq!(world.machine().vcpu(v).state, State::Blocked);
    assert_eq!(world.ran(v), Nanos::from_micros(50));
}

/// VM with a process that gets external work, on a pCPU with a process that computes until 50 ms.
fn driven() -> (VcpuWorld, VcpuId, TaskId) {
    let mut machine = Machine::new(1, 1);
    let all = machine.all_pcpus();
    machine.add_vm("io", 1, all, 256, 0);
    machine.add_vm("hog", 1, all, 256, 0);
    let mut guests = vec![GuestCpu::default(); 2];
    let (process, hog) = (guests[0].add_task(), guests[1].add_task());
    let hog = vec![(VcpuId(1), hog, Nanos::from_millis(2))];
    let hog = Cpu::new(0, hog, Nanos::MAX).until(Some(Nanos::from_millis(50)));
    let scheduler = credit2().build(&machine);
    let world = VcpuWorld::new(machine, guests, vec![Box::new(hog)], scheduler, Nanos::ZERO);
    (world.driven(), VcpuId(0), process)
}

#[test]
fn what_follows_from_what_was_handled_finds_the_vcpu_where_it_was() {
    let us = Nanos::from_micros;
    let handled = |follows: bool| {
        let (mut world, v, process) = driven();
        assert_eq!(world.run_to_handled(us(1_500)), None);
        world.work(v, process, us(900), 1);
        assert_eq!(world.next_event(), Some(us(1_500)), "it is to be seen to");
        let first = world.run_to_handled(us(40_000)).expect("it was");
        assert_eq!(
            (first.tag, first.at, world.now()),
            (1, us(2_400), us(2_400))
        );
        if follows {
            world.work(v, process, us(10), 2);
        }
        let second = world.run_to_handled(us(40_000)).map(|handled| handled.at);
        (second, world.switches())
    };
    // The vCPU keeps running: the hog, which waits from 2 ms on, comes after it.
    assert_eq!(handled(true), (Some(us(2_410)), 1));
    assert_eq!(handled(false), (None, 2));
}

#[test]
fn a_process_that_is_stopped_leaves_its_vcpu() {
    let (mut world, ..) = driven();
    assert_eq!(world.run_to_handled(Nanos::from_millis(100)), None);
    assert_eq!(world.ran(VcpuId(1)), Nanos::from_millis(48));
    assert_eq!(world.machine().vcpu(VcpuId(1)).state, State::Blocked);
    assert_eq!(world.next_event(), None);
}
