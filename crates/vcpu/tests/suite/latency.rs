//! Wake-up latency under each scheduler.

use crate::common::{
    answering, credit, credit2, credit2_shared, eevdf, every_scheduler, hog, io_turns, isacs,
    scenario, vm,
};
use tidegate_config::frame::Frame;
use tidegate_core::time::Nanos;
use tidegate_vcpu::machine::CpuSet;
use tidegate_vcpu::report::Latencies;
use tidegate_vcpu::scenario::{Scenario, SchedulerSpec, Simulation, VmSpec};
use tidegate_vcpu::schedulers::credit2::{Params as Credit2Params, RunQueues};

/// Round trips to the first of `vms` on pCPU 1; client and driver domain have pCPUs of their own.
fn round_trips(scheduler: SchedulerSpec, mut vms: Vec<VmSpec>) -> Latencies {
    vms.push(vm("client", CpuSet::range(2, 2)));
    let scenario = Scenario {
        frame: Frame {
            until_done: true,
            warm_up: Nanos::from_millis(500),
            ..Frame::lasting(Nanos::from_secs(8))
        },
        ..scenario(scheduler, 3, vms)
    };
    let report = Simulation::new(scenario).run();
    // VM 0 is the driver domain.
    report.vms[1].round_trips.clone().expect("it answers some")
}

fn pcpu1() -> CpuSet {
    CpuSet::range(1, 1)
}

#[test]
fn round_trips_without_neighbours_take_the_sum_of_their_hops() {
    for scheduler in every_scheduler() {
        let found = round_trips(scheduler, vec![answering(vm("io", pcpu1()), 1, 5_000, 500)]);
        assert_eq!((found.answered, found.sent), (500, 500));
        // Twice 5 us at the client and in the driver domain, 30 us in the guest.
        assert_eq!((found.mean_ms, found.max_ms), (0.05, 0.05), "{scheduler:?}");
    }
}

/// By hand, in us: the client and the driver domain need 5 each way, the interrupt 30, the process
/// 50. The second packet of a burst leaves the client at 10 and reaches the guest at 15. Its
/// interrupt goes before the process that answers the first one: 15 + 55 (until 70, when both
/// interrupts are done), then 50 and 50 of process, 10 back. The answers leave at 120 and 170.
#[test]
fn a_process_answers_a_burst_packet_by_packet() {
    let mut io = answering(vm("io", pcpu1()), 1, 5_000, 400);
    let ping = io.ping.as_mut().expect("it answers");
    ping.process = Some(Nanos::from_micros(50));
    ping.burst = 2;
    let found = round_trips(eevdf(), vec![io]);
    assert_eq!((found.answered, found.sent), (400, 400));
    let mut counted = found.counted.clone();
    counted.sort_unstable();
    counted.dedup();
    let us = Nanos::from_micros;
    assert_eq!(counted, [us(130), us(180)]);
}

#[test]
fn a_mostly_sleeping_vcpu_preempts_a_hog_after_the_rate_limit() {
    for scheduler in [credit(), credit2(), credit2_shared(), isacs(), io_turns()] {
        let io = answering(vm("io", pcpu1()), 2, 5_000, 1_000);
        let found = round_trips(scheduler, vec![io, hog("hog", pcpu1())]);
        assert!(found.p50_ms < 0.06, "{scheduler:?}: {found:?}");
        // Woken within the rate limit of the running vCPU, it waits, at worst for a whole slice: 30
        // ms of credit, the longest.
        assert!(found.max_ms < 32.0, "{scheduler:?}: {found:?}");
    }
}

/// A lone hog has slices of 10 ms: a vCPU that wakes during the rate limit waits for the rest of
/// the slice, unless the pCPU looks again.
#[test]
fn looks_again_bounds_wakeup_latency_by_the_rate_limit() {
    let params = |looks_again| {
        let params = Credit2Params {
            run_queues: RunQueues::Core,
            looks_again,
            ..Credit2Params::default()
        };
        params.spec()
    };
    let longest = |scheduler| {
        let io = answering(vm("io", pcpu1()), 2, 1_700, 4_000);
        round_trips(scheduler, vec![io, hog("hog", pcpu1())]).max_ms
    };
    let (xen, looks) = (longest(params(false)), longest(params(true)));
    // Half of the hog's slice.
    assert!(xen > 5.0, "{xen}");
    // The rate limit, and the round trip itself.
    assert!(looks <= 1.06, "{looks}");
}

/// A notified vCPU that also computes waits for protected vCPUs, but not for its turn by credit.
#[test]
fn turns_for_io_bound_the_latency_of_a_vcpu_that_also_computes() {
    let found = |scheduler| {
        let mut vms = vec![answering(hog("mixed", pcpu1()), 5, 7_000, 800)];
        vms.extend((0..4).map(|n| hog(&format!("hog{n}"), pcpu1())));
        round_trips(scheduler, vms)
    };
    let (plain, turns) = (found(credit2()), found(io_turns()));
    assert!(plain.max_ms > 3.5, "{plain:?}");
    assert!(turns.max_ms <= 1.1, "{turns:?}");
    assert!(turns.mean_ms < 0.4 * plain.mean_ms, "{turns:?}, {plain:?}");
}
