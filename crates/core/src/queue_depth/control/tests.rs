//! Tests of the depth control on simulated devices whose rate depends on the I/Os in flight.

use super::*;
use tidegate_base::random::SplitMix64;
use tidegate_base::request::VmId;

pub(super) fn spec(depth: u32) -> DeviceSpec {
    DeviceSpec {
        depth,
        physical_block: 4096,
        max_io: 1 << 20,
        zeroes_are_writes: false,
        positioning: Nanos::ZERO,
        bytes_per_s: 0,
    }
}

fn control(depth: u32) -> DepthControl {
    DepthControl::new(&spec(depth), None, Nanos::ZERO)
}

/// Device whose rate rises with the I/Os in flight up to a knee and is constant beyond it. Single
/// I/Os take up to twice their mean time, and the rate of all sways by chance.
struct SimulatedDevice {
    /// I/Os in flight from which on the device does `full_iops`; below, less in proportion.
    knee: u32,
    /// I/Os per second at the knee and beyond.
    full_iops: f64,
    /// Largest deviation of the rate from its mean, up or down, in thousandths.
    sway_thousandths: u64,
    /// Milliseconds for which the rate keeps a deviation.
    sway_ms: u64,
    /// Size of an I/O.
    bytes: u32,
    random: SplitMix64,
    now: Nanos,
    sway_until: Nanos,
    /// Present rate by its mean.
    factor: f64,
    /// I/Os that have ended.
    ends: u64,
    /// I/Os that the load has outstanding.
    outstanding: u32,
    /// True if all I/Os take their mean time.
    regular: bool,
    /// Largest limit that the control has set.
    deepest_limit: u32,
    /// Sum over ended I/Os of the limit at their end; by `ends` it is the mean limit.
    limit_sum: u64,
}

impl SimulatedDevice {
    fn new(knee: u32, full_iops: f64, sway_thousandths: u64, seed: u64) -> SimulatedDevice {
        SimulatedDevice {
            knee,
            full_iops,
            sway_thousandths,
            sway_ms: 100,
            bytes: 4096,
            random: SplitMix64::new(seed),
            now: Nanos::ZERO,
            sway_until: Nanos::ZERO,
            factor: 1.0,
            ends: 0,
            outstanding: u32::MAX,
            regular: false,
            deepest_limit: 0,
            limit_sum: 0,
        }
    }

    /// Keeps as many I/Os in flight as control and load allow for `ms` milliseconds.
    fn run(&mut self, control: &mut DepthControl, ms: u64) {
        let until = self.now + Nanos::from_millis(ms);
        while self.now < until {
            if self.now >= self.sway_until {
                let sway = self.random.below(2 * self.sway_thousandths + 1) as f64
                    - self.sway_thousandths as f64;
                self.factor = 1.0 + sway / 1000.0;
                self.sway_until = self.now + Nanos::from_millis(self.sway_ms);
            }
            self.deepest_limit = self.deepest_limit.max(control.limit());
            let in_flight = control.limit().min(self.outstanding);
            let depth = in_flight.min(self.knee);
            let rate = self.full_iops * self.factor * f64::from(depth) / f64::from(self.knee);
            let spread = self.random.below(2001) as f64 / 1000.0;
            let gap = 1e9 / rate * if self.regular { 1.0 } else { spread };
            self.now += Nanos(gap as u64);
            self.ends += 1;
            self.limit_sum += u64::from(control.limit());
            control.dispatch_stopped(self.outstanding > in_flight);
            let end = End {
                op: Op::Read,
                bytes: self.bytes,
                in_flight,
            };
            control.ended(self.now, None, &end);
        }
    }
}

#[test]
fn the_knee_is_found_through_noise() {
    for (knee, sway) in [(1, 0), (3, 0), (4, 100), (8, 100), (16, 200), (64, 0)] {
        for seed in 0..6 {
            let mut device = SimulatedDevice::new(knee, 20_000.0, sway, seed);
            let mut control = control(64);
            device.run(&mut control, 2000);
            let before = device.ends;
            device.limit_sum = 0;
            device.run(&mut control, 10_000);
            let mean = device.limit_sum / (device.ends - before);
            let throughput = (device.ends - before) as f64 / 10.0 / 20_000.0;
            let depth = control.depth();
            assert!(
                throughput > 0.94,
                "knee {knee}, sway {sway}, seed {seed}: {throughput:.3} at {depth}"
            );
            assert!(
                mean <= u64::from(knee) * 3 + 3,
                "knee {knee}, sway {sway}, seed {seed}: {mean}"
            );
        }
    }
}

/// Reads need several in flight where writes went to a cache one at a time. The load changes while
/// depth 1 is in force, or while it is on trial.
#[test]
fn a_depth_that_has_become_too_small_is_left_within_20_ms() {
    for on_trial in [false, true] {
        for seed in 0..8 {
            let mut device = SimulatedDevice::new(1, 30_000.0, 0, seed);
            let mut control = control(64);
            let mut waited_ms = 0;
            while control.limit() > 1 || on_trial != matches!(control.phase, Phase::Descend { .. })
            {
                device.run(&mut control, 1);
                waited_ms += 1;
                assert!(waited_ms < 5000, "depth 1 is never found");
            }
            (device.knee, device.full_iops) = (8, 24_000.0);
            device.run(&mut control, 20);
            // At 3, the rate has not fallen to a third.
            let depth = control.depth();
            assert!(depth >= 3, "on trial {on_trial}, seed {seed}: {depth}");
        }
    }
}

/// A cloud disk whose rate sways by 30 %: a control that took chance for a gain would raise the
/// depth again and again, up to ten times the knee.
#[test]
fn an_unsteady_device_gets_no_more_than_it_needs() {
    for (knee, sway_ms) in [(2, 10), (2, 30), (2, 100), (3, 30)] {
        let (mut limit_sum, mut ends) = (0, 0);
        for seed in 0..12 {
            let mut device = SimulatedDevice::new(knee, 6000.0, 300, seed);
            (device.sway_ms, device.bytes) = (sway_ms, 128 << 10);
            let mut control = control(32);
            device.run(&mut control, 4000);
            (device.limit_sum, device.ends) = (0, 0);
            device.run(&mut control, 5000);
            limit_sum += device.limit_sum;
            ends += device.ends;
        }
        let mean = limit_sum as f64 / ends as f64;
        assert!(
            mean <= f64::from(knee * 3),
            "knee {knee}, {sway_ms} ms: {mean:.1}"
        );
        let throughput = ends as f64 / (12.0 * 5.0 * 6000.0);
        assert!(
            throughput > 0.97,
            "knee {knee}, {sway_ms} ms: {throughput:.3}"
        );
    }
}

#[test]
fn the_depth_starts_at_4_and_doubles_up_to_64_within_a_second() {
    let mut control = control(64);
    assert_eq!((control.depth(), control.limit()), (4, 4));
    assert_eq!(control.view().reason, DepthReason::Start);
    let mut device = SimulatedDevice::new(64, 100_000.0, 0, 1);
    device.run(&mut control, 1000);
    assert_eq!(control.depth(), 64);
    assert_eq!(control.view().reason, DepthReason::Whole);
    assert!(device.ends >= 90_000, "{}", device.ends);
}

#[test]
fn a_device_that_needs_more_gets_more() {
    for seed in 0..6 {
        let mut device = SimulatedDevice::new(2, 20_000.0, 100, seed);
        let mut control = control(64);
        device.run(&mut control, 3000);
        (device.limit_sum, device.ends) = (0, 0);
        device.run(&mut control, 5000);
        let mean = device.limit_sum / device.ends;
        assert!(mean <= 12, "{mean}");
        // At its present depth, the device now does an eighth of its rate.
        device.knee = 32;
        device.run(&mut control, 2000);
        assert!(control.depth() >= 30, "seed {seed}: {}", control.depth());
    }
}

#[test]
fn longer_ios_shorten_the_queue_within_100_ms() {
    let mut device = SimulatedDevice::new(32, 200_000.0, 0, 3);
    device.bytes = 16 << 10;
    let mut control = control(32);
    device.run(&mut control, 1000);
    assert!(control.depth() >= 30, "{}", control.depth());
    // 1 MiB at 2 GB/s, for which one in flight is enough.
    (device.bytes, device.full_iops, device.knee) = (1 << 20, 2000.0, 1);
    device.run(&mut control, 100);
    assert!(control.depth() <= 2, "{}", control.depth());
}

#[test]
fn a_few_large_ios_in_a_mixed_load_do_not_reduce_the_depth() {
    let mut device = SimulatedDevice::new(32, 200_000.0, 0, 3);
    let mut control = control(32);
    let large = |device: &mut SimulatedDevice| (device.bytes, device.full_iops) = (1 << 20, 6000.0);
    let small =
        |device: &mut SimulatedDevice| (device.bytes, device.full_iops) = (16 << 10, 200_000.0);
    // Some six large I/Os in each 1,000 small ones.
    for _ in 0..200 {
        small(&mut device);
        device.run(&mut control, 5);
        large(&mut device);
        device.run(&mut control, 1);
    }
    small(&mut device);
    device.run(&mut control, 50);
    let before = control.depth();
    assert!(before >= 16, "{before}");
    large(&mut device);
    device.run(&mut control, 3);
    assert!(control.depth() >= before / 2, "{}", control.depth());
}

#[test]
fn the_depth_does_not_grow_while_no_unit_waits() {
    let mut device = SimulatedDevice::new(64, 20_000.0, 0, 1);
    device.outstanding = 1;
    let mut control = control(64);
    device.run(&mut control, 2000);
    assert_eq!(control.depth(), 4);
    device.outstanding = u32::MAX;
    device.run(&mut control, 1000);
    assert_eq!(control.depth(), 64);
    device.outstanding = 1;
    device.run(&mut control, 10_000);
    assert_eq!(control.depth(), 4, "falls to the depth of the start");
}

#[test]
fn ios_without_data_are_not_measured() {
    let mut control = control(64);
    control.dispatch_stopped(true);
    for n in 0..100_000 {
        let end = End {
            op: Op::Discard,
            bytes: 0,
            in_flight: 4,
        };
        control.ended(Nanos(n * 10_000), None, &end);
    }
    assert_eq!(control.view().reason, DepthReason::Start);
    assert_eq!(control.depth(), 4);
}

#[test]
fn the_depth_never_exceeds_its_bound() {
    for seed in 0..40 {
        let mut random = SplitMix64::new(seed);
        let top = 1 + random.below(64) as u32;
        let mut control = control(top);
        let mut device = SimulatedDevice::new(64, 50_000.0, 100, seed);
        for _ in 0..20 {
            let bound = 1 + random.below(80) as u32;
            let given = Some(DepthBound {
                depth: bound,
                vm: None,
            });
            control.set_bound(device.now, given);
            device.knee = 1 + random.below(64) as u32;
            device.deepest_limit = 0;
            device.run(&mut control, 50);
            assert!(
                device.deepest_limit <= bound.min(top),
                "{} {bound} {top}",
                device.deepest_limit
            );
            assert!(control.depth() <= bound.min(top));
        }
        control.set_bound(device.now, None);
        device.knee = 64;
        device.run(&mut control, 3000);
        assert!(
            control.depth() * 10 >= top * 9,
            "{} of {top}",
            control.depth()
        );
    }
}

#[test]
fn a_time_budget_bounds_the_depth() {
    // 64 KiB take 50 us each once 16 are in flight: 700 us are 14 of them.
    let mut device = SimulatedDevice::new(16, 20_000.0, 0, 5);
    device.bytes = 64 << 10;
    let vm = VmId {
        index: 3,
        generation: 0,
    };
    let budget = Budget {
        time: Nanos::from_micros(700),
        vm: Some(vm),
        part: 64 << 10,
    };
    let mut control = control(32);
    control.set_budget(Some(budget), None);
    assert_eq!(control.depth(), 4, "no rate is known");
    device.run(&mut control, 1000);
    let view = control.view();
    assert!(view.depth <= 14, "{view:?}");
    let DepthReason::Bound { vm: whose, .. } = view.reason else {
        panic!("{view:?}");
    };
    assert_eq!(whose, Some(vm));
}

#[test]
fn a_disk_with_seeks_starts_at_a_depth_of_2_and_stays_there() {
    let seeks = DeviceSpec {
        positioning: Nanos::from_millis(12),
        ..spec(32)
    };
    let mut control = DepthControl::new(&seeks, None, Nanos::ZERO);
    assert_eq!(control.depth(), 2);
    let mut device = SimulatedDevice::new(1, 2000.0, 0, 1);
    device.regular = true;
    device.run(&mut control, 20_000);
    assert_eq!(control.depth(), 2);
}

#[test]
fn the_depth_is_reduced_for_a_load_that_never_fills_it() {
    for seed in 0..6 {
        let mut device = SimulatedDevice::new(4, 20_000.0, 50, seed);
        device.outstanding = 14;
        let mut control = control(64);
        device.run(&mut control, 3000);
        device.ends = 0;
        device.run(&mut control, 5000);
        let throughput = device.ends as f64 / 5.0 / 20_000.0;
        let depth = control.depth();
        assert!(depth <= 8, "seed {seed}: {depth}");
        assert!(throughput > 0.95, "seed {seed}: {throughput:.3} at {depth}");
    }
}

#[test]
fn a_depth_that_fell_with_the_load_grows_again_within_a_second() {
    for seed in 0..6 {
        let mut device = SimulatedDevice::new(32, 100_000.0, 0, seed);
        let mut control = control(64);
        device.run(&mut control, 1000);
        device.outstanding = 6;
        device.run(&mut control, 5000);
        assert!(control.depth() <= 8, "seed {seed}: {}", control.depth());
        (device.outstanding, device.ends) = (64, 0);
        device.run(&mut control, 1000);
        assert!(device.ends > 90_000, "seed {seed}: {}", device.ends);
    }
}

#[test]
fn a_depth_grows_for_a_load_that_does_not_fill_the_next_one() {
    for seed in 0..6 {
        let mut device = SimulatedDevice::new(12, 60_000.0, 0, seed);
        device.outstanding = 8;
        let mut control = control(64);
        device.run(&mut control, 3000);
        assert!(control.depth() <= 9, "seed {seed}: {}", control.depth());
        device.outstanding = 12;
        device.run(&mut control, 5000);
        device.ends = 0;
        device.run(&mut control, 2000);
        let throughput = device.ends as f64 / 2.0 / 60_000.0;
        assert!(throughput > 0.95, "seed {seed}: {throughput:.3}");
    }
}
