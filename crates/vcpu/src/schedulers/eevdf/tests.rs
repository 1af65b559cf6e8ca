//! Tests of EEVDF against schedules computed by hand, and the bound on lag.

use super::*;
use crate::flow::cpu::Cpu;
use crate::guest::{GuestCpu, Token};
use crate::world::VcpuWorld;
use proptest::prelude::*;

const MS: fn(u64) -> Nanos = Nanos::from_millis;

/// EEVDF with requests of `slice` and a tick of 1 ms.
fn params(slice: Nanos) -> Params {
    Params {
        slice,
        tick: MS(1),
        run_to_parity: true,
    }
}

/// One pCPU with a vCPU for each weight, all of which compute without end from time 0.
fn computing(params: Params, weights: &[u32]) -> VcpuWorld {
    let mut machine = Machine::new(1, 1);
    let all = machine.all_pcpus();
    for (n, &weight) in weights.iter().enumerate() {
        machine.add_vm(&format!("vm{n}"), 1, all, weight, 0);
    }
    let mut guests = vec![GuestCpu::default(); weights.len()];
    let tasks = guests.iter_mut().enumerate();
    let tasks = tasks.map(|(v, guest)| (VcpuId(v as u32), guest.add_task(), Nanos::ZERO));
    let flow = Cpu::new(0, tasks.collect(), Nanos::MAX);
    let scheduler = Box::new(Eevdf::new(params, &machine));
    VcpuWorld::new(
        machine,
        guests,
        vec![Box::new(flow)],
        scheduler,
        Nanos::ZERO,
    )
}

/// Numbers of the vCPUs that run in each millisecond up to `until`.
fn schedule(world: &mut VcpuWorld, until: u64) -> Vec<u32> {
    let at = |ms: u64, world: &mut VcpuWorld| {
        world.run_until(Nanos::from_micros(1_000 * ms + 500));
        world.machine().pcpus[0]
            .running
            .expect("somebody computes")
            .0
    };
    (0..until).map(|ms| at(ms, world)).collect()
}

/// Equal weights and requests of 3 ms: each runs up to its deadline, although it is not eligible
/// after the first tick. At 3 ms A is at 3, B and C at 0 with deadline 3; and so on.
#[test]
fn equal_vcpus_take_turns_of_a_request() {
    let mut world = computing(params(MS(3)), &[256; 3]);
    let expected = [0, 0, 0, 1, 1, 1, 2, 2, 2, 0, 0, 0, 1];
    assert_eq!(schedule(&mut world, 13), expected);
}

/// Weights 1 : 4, requests of 3 ms, which are 3 and 0.75 ms of virtual time. B's deadline is first.
/// At 3 ms B is at 0.75, the average 0.6: A's turn. At 6 ms A is at 3. At 9, 12 and 15 ms B is at
/// 1.5, 2.25 and 3 and the average 1.8, 2.4 and 3: B is eligible, and its deadline of 3.75 at 15 ms
/// is before A's of 6. At 18 ms B is at 3.75 and the average 3.6: A's turn, and so on every 15 ms.
#[test]
fn weights_divide_requests_by_hand() {
    let mut world = computing(params(MS(3)), &[256, 1_024]);
    let (a, b) = ([0; 3], [1; 12]);
    let expected: Vec<u32> = [&[1; 3][..], &a, &b, &a, &b, &a].concat();
    assert_eq!(schedule(&mut world, 36), expected);
}

/// A tick of 4 ms lets a request of 2.8 ms last until 4 ms.
#[test]
fn a_request_ends_at_a_tick() {
    let params = Params {
        tick: MS(4),
        ..params(Nanos::from_micros(2_800))
    };
    let mut world = computing(params, &[256; 2]);
    let expected = [0, 0, 0, 0, 1, 1, 1, 1, 0];
    assert_eq!(schedule(&mut world, 9), expected);
}

/// Two vCPUs of weight 256, of which the first has run for 3 ms: the average is 1.5 ms.
fn two_in_a_queue() -> Queues {
    let entity = Entity::new(256, MS(3), PcpuId(0));
    let mut queues = Queues::new(vec![entity; 2], 1, MS(4));
    for v in [0, 1].map(VcpuId) {
        queues.place(v, PcpuId(0));
    }
    queues.charge(VcpuId(0), MS(3));
    queues
}

#[test]
fn a_vcpu_comes_back_with_the_lag_that_it_left_with() {
    let mut queues = two_in_a_queue();
    let (ahead, behind) = (VcpuId(0), VcpuId(1));
    assert_eq!(queues.lag_ns(ahead), -1_500_000);
    assert_eq!(queues.lag_ns(behind), 1_500_000);
    assert!(queues.is_eligible(behind) && !queues.is_eligible(ahead));
    queues.block(behind);
    assert_eq!(queues.lag_ns(behind), 1_500_000);
    // Alone, the other defines the average, whatever it runs.
    assert_eq!(queues.lag_ns(ahead), 0);
    queues.charge(ahead, MS(50));
    queues.place(behind, PcpuId(0));
    assert_eq!(queues.lag_ns(behind), 1_500_000);
    assert_eq!(queues.lag_ns(ahead), -1_500_000);
}

#[test]
fn a_vcpu_that_blocks_ahead_of_the_average_stays_until_its_lag_is_0() {
    let mut queues = two_in_a_queue();
    let (ahead, behind) = (VcpuId(0), VcpuId(1));
    queues.block(ahead);
    assert!(queues.entity(ahead).delayed);
    assert_eq!(queues.load(PcpuId(0)), 256, "it is no load");
    queues.entity_mut(behind).start = MS(3);
    // Both deadlines are 3 ms of virtual time ahead of 3 and 0.
    assert_eq!(queues.earliest_eligible(PcpuId(0), None), Some(behind));
    queues.charge(behind, MS(10));
    assert_eq!(queues.earliest_eligible(PcpuId(0), None), Some(ahead));
    // The average is 5 ms, so its lag is 2 ms: not earned, because it was asleep.
    queues.remove_delayed(ahead);
    assert_eq!(queues.lag_ns(ahead), 0);
}

#[test]
fn lag_that_is_kept_is_at_most_a_slice_and_a_tick() {
    let mut queues = two_in_a_queue();
    queues.charge(VcpuId(0), MS(100));
    queues.remove(VcpuId(1));
    assert_eq!(queues.lag_ns(VcpuId(1)), 4_000_000);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Theorem 1 of the paper while the set of vCPUs stays the same. Requests end at ticks: no
    /// vCPU is ahead by more than a request and a tick, or behind by more than that and the tick by
    /// which the request before was late.
    #[test]
    fn lag_is_bounded_by_a_request_and_ticks(
        weights in prop::collection::vec(16_u32..4_096, 2..9),
        slice_us in 100_u64..6_000,
        tick_us in prop::sample::select(vec![250_u64, 1_000, 4_000]),
        run_to_parity in any::<bool>(),
    ) {
        let params = Params {
            slice: Nanos::from_micros(slice_us),
            tick: Nanos::from_micros(tick_us),
            run_to_parity,
        };
        let mut world = computing(params, &weights);
        let ahead = (params.slice + params.tick).0 as i64;
        let behind = ahead + params.tick.0 as i64;
        let mut largest = 0;
        while world.now() < MS(1_500) {
            world.step();
            for v in 0..weights.len() {
                let lag = world.scheduler().credit(VcpuId(v as u32));
                // 1 ns of rounding.
                prop_assert!((-ahead - 1..=behind + 1).contains(&lag), "{v}: {lag} of {behind}");
                largest = largest.max(lag.abs());
            }
        }
        prop_assert!(largest > behind / 20, "the bound is far off: {largest} of {behind}");
    }

    /// Lags weighted by their vCPUs sum up to 0, whoever joins, leaves, blocks and runs.
    #[test]
    fn lags_of_a_queue_sum_up_to_zero(
        steps in prop::collection::vec((0_u32..5, 0_u8..4, 0_u64..5_000), 1..120),
    ) {
        let weights = [64, 256, 256, 1_024, 40];
        let entity = |&weight: &u32| Entity::new(weight, MS(3), PcpuId(0));
        let mut queues = Queues::new(weights.iter().map(entity).collect(), 1, MS(4));
        let mut now = Nanos::ZERO;
        for (v, what, ran) in steps {
            let v = VcpuId(v);
            let is_queued = queues.is_queued_on(v, PcpuId(0));
            match what {
                0 if !is_queued => queues.place(v, PcpuId(0)),
                1 if is_queued => queues.block(v),
                2 if is_queued && queues.entity(v).delayed => queues.resume_delayed(v),
                _ if is_queued => {
                    queues.entity_mut(v).start = now;
                    now += Nanos::from_micros(ran);
                    queues.charge(v, now);
                }
                _ => {}
            }
            let sum: i64 = queues.members(PcpuId(0)).iter().map(|&v| queues.lag_ns(v)).sum();
            prop_assert!(sum.abs() <= 8, "{sum}");
        }
    }
}

#[test]
fn a_cap_is_cpu_time_per_100_ms() {
    let mut machine = Machine::new(1, 1);
    let all = machine.all_pcpus();
    machine.add_vm("capped", 1, all, 256, 20);
    machine.add_vm("other", 1, all, 256, 0);
    let mut guests = vec![GuestCpu::default(); 2];
    for (v, guest) in guests.iter_mut().enumerate() {
        let task = guest.add_task();
        let token = Token {
            flow: 0,
            stage: v as u32,
            data: 0,
        };
        guest.wake(task, Nanos::MAX, token);
    }
    let scheduler = Box::new(Eevdf::new(params(MS(3)), &machine));
    let mut world = VcpuWorld::new(machine, guests, Vec::new(), scheduler, Nanos::ZERO);
    for v in [0, 1].map(VcpuId) {
        world.deliver(v, Nanos(1_000), 0, false);
    }
    world.run_until(Nanos::from_secs(2));
    let capped = world.ran(VcpuId(0)).as_secs_f64() / 2.0;
    assert!((0.19..=0.202).contains(&capped), "{capped}");
    let both = capped + world.ran(VcpuId(1)).as_secs_f64() / 2.0;
    assert!(both > 0.999, "{both}");
}
