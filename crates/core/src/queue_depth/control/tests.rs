//! Tests of the depth control on simulated devices whose rate depends on the I/Os in flight.

use super::*;
use tidegate_base::random::SplitMix64;
use tidegate_base::request::VmId;

fn spec(depth: u32) -> DeviceSpec {
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

/// Device that does `most` I/Os a second from `knee` in flight on, and less in proportion
/// below. Single I/Os take up to twice their mean, and all of them are slower and faster by
/// `sway` thousandths for `sways_ms` at a time.
struct Noisy {
    knee: u32,
    most: f64,
    sway: u64,
    /// Milliseconds for which they stay as slow or fast.
    sways_ms: u64,
    bytes: u32,
    random: SplitMix64,
    now: Nanos,
    swayed_until: Nanos,
    factor: f64,
    ends: u64,
    /// I/Os that the load has outstanding.
    outstanding: u32,
    /// All I/Os take their mean.
    regular: bool,
    deepest: u32,
    /// Sum over I/Os that ended of the depth then.
    depths: u64,
}

impl Noisy {
    fn new(knee: u32, most: f64, sway: u64, seed: u64) -> Noisy {
        Noisy {
            knee,
            most,
            sway,
            sways_ms: 100,
            bytes: 4096,
            random: SplitMix64::new(seed),
            now: Nanos::ZERO,
            swayed_until: Nanos::ZERO,
            factor: 1.0,
            ends: 0,
            outstanding: u32::MAX,
            regular: false,
            deepest: 0,
            depths: 0,
        }
    }

    fn run(&mut self, control: &mut DepthControl, ms: u64) {
        let until = self.now + Nanos::from_millis(ms);
        while self.now < until {
            if self.now >= self.swayed_until {
                let sway = self.random.below(2 * self.sway + 1) as f64 - self.sway as f64;
                self.factor = 1.0 + sway / 1000.0;
                self.swayed_until = self.now + Nanos::from_millis(self.sways_ms);
            }
            self.deepest = self.deepest.max(control.limit());
            let in_flight = control.limit().min(self.outstanding);
            let depth = in_flight.min(self.knee);
            let rate = self.most * self.factor * f64::from(depth) / f64::from(self.knee);
            let spread = self.random.below(2001) as f64 / 1000.0;
            let gap = 1e9 / rate * if self.regular { 1.0 } else { spread };
            self.now += Nanos(gap as u64);
            self.ends += 1;
            self.depths += u64::from(control.limit());
            control.nothing_goes(self.outstanding > in_flight);
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
            let mut device = Noisy::new(knee, 20_000.0, sway, seed);
            let mut control = control(64);
            device.run(&mut control, 2000);
            let before = device.ends;
            device.depths = 0;
            device.run(&mut control, 10_000);
            let mean = device.depths / (device.ends - before);
            let kept = (device.ends - before) as f64 / 10.0 / 20_000.0;
            let depth = control.depth();
            assert!(
                kept > 0.94,
                "knee {knee}, sway {sway}, seed {seed}: {kept:.3} at {depth}"
            );
            assert!(
                mean <= u64::from(knee) * 3 + 3,
                "knee {knee}, sway {sway}, seed {seed}: {mean}"
            );
        }
    }
}

/// A cloud disk whose rate goes up and down by a third: were chance taken for a gain, the depth
/// would be raised now and then, and 10 times the knee would be as likely as the knee.
#[test]
fn a_device_that_is_unsteady_gets_no_more_than_it_needs() {
    for (knee, sways_ms) in [(2, 10), (2, 30), (2, 100), (3, 30)] {
        let (mut depths, mut ends) = (0, 0);
        for seed in 0..12 {
            let mut device = Noisy::new(knee, 6000.0, 300, seed);
            (device.sways_ms, device.bytes) = (sways_ms, 128 << 10);
            let mut control = control(32);
            device.run(&mut control, 4000);
            (device.depths, device.ends) = (0, 0);
            device.run(&mut control, 5000);
            depths += device.depths;
            ends += device.ends;
        }
        let mean = depths as f64 / ends as f64;
        assert!(
            mean <= f64::from(knee * 3),
            "knee {knee}, {sways_ms} ms: {mean:.1}"
        );
        let kept = ends as f64 / (12.0 * 5.0 * 6000.0);
        assert!(kept > 0.97, "knee {knee}, {sways_ms} ms: {kept:.3}");
    }
}

#[test]
fn depths_begin_small_and_double_within_a_second() {
    let mut control = control(64);
    assert_eq!((control.depth(), control.limit()), (4, 4));
    assert_eq!(control.view().reason, DepthReason::Start);
    let mut device = Noisy::new(64, 100_000.0, 0, 1);
    device.run(&mut control, 1000);
    assert_eq!(control.depth(), 64);
    assert_eq!(control.view().reason, DepthReason::Whole);
    assert!(device.ends >= 90_000, "{}", device.ends);
}

#[test]
fn a_device_that_needs_more_gets_more() {
    for seed in 0..6 {
        let mut device = Noisy::new(2, 20_000.0, 100, seed);
        let mut control = control(64);
        device.run(&mut control, 3000);
        (device.depths, device.ends) = (0, 0);
        device.run(&mut control, 5000);
        let mean = device.depths / device.ends;
        assert!(mean <= 12, "{mean}");
        // At its present depth, the device now does an eighth of its rate.
        device.knee = 32;
        device.run(&mut control, 2000);
        assert!(control.depth() >= 30, "seed {seed}: {}", control.depth());
    }
}

#[test]
fn longer_ios_shorten_the_queue_within_100_ms() {
    let mut device = Noisy::new(32, 200_000.0, 0, 3);
    device.bytes = 16 << 10;
    let mut control = control(32);
    device.run(&mut control, 1000);
    assert!(control.depth() >= 30, "{}", control.depth());
    // 1 MiB at 2 GB/s, for which one in flight is enough.
    (device.bytes, device.most, device.knee) = (1 << 20, 2000.0, 1);
    device.run(&mut control, 100);
    assert!(control.depth() <= 2, "{}", control.depth());
}

#[test]
fn a_dozen_large_ios_in_a_mixed_load_are_not_another_load() {
    let mut device = Noisy::new(32, 200_000.0, 0, 3);
    let mut control = control(32);
    let large = |device: &mut Noisy| (device.bytes, device.most) = (1 << 20, 6000.0);
    let small = |device: &mut Noisy| (device.bytes, device.most) = (16 << 10, 200_000.0);
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
fn a_depth_that_nothing_waits_for_does_not_grow() {
    let mut device = Noisy::new(64, 20_000.0, 0, 1);
    device.outstanding = 1;
    let mut control = control(64);
    device.run(&mut control, 2000);
    assert_eq!(control.depth(), 4);
    device.outstanding = u32::MAX;
    device.run(&mut control, 1000);
    assert_eq!(control.depth(), 64);
    device.outstanding = 1;
    device.run(&mut control, 10_000);
    assert_eq!(control.depth(), 4, "and falls to what it began with");
}

#[test]
fn what_moves_no_data_is_no_work() {
    let mut control = control(64);
    control.nothing_goes(true);
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
fn no_bound_is_ever_exceeded() {
    for seed in 0..40 {
        let mut random = SplitMix64::new(seed);
        let top = 1 + random.below(64) as u32;
        let mut control = control(top);
        let mut device = Noisy::new(64, 50_000.0, 100, seed);
        for _ in 0..20 {
            let bound = 1 + random.below(80) as u32;
            control.set_bound(Some(DepthBound {
                depth: bound,
                vm: None,
            }));
            device.knee = 1 + random.below(64) as u32;
            device.deepest = 0;
            device.run(&mut control, 50);
            assert!(
                device.deepest <= bound.min(top),
                "{} {bound} {top}",
                device.deepest
            );
            assert!(control.depth() <= bound.min(top));
        }
        control.set_bound(None);
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
fn a_budget_of_time_bounds_what_is_in_flight() {
    // 64 KiB take 50 us each once 16 are in flight: half of 1 ms is 10 of them.
    let mut device = Noisy::new(16, 20_000.0, 0, 5);
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
fn a_disk_with_seeks_begins_at_two_and_keeps_two() {
    let seeks = DeviceSpec {
        positioning: Nanos::from_millis(12),
        ..spec(32)
    };
    let mut control = DepthControl::new(&seeks, None, Nanos::ZERO);
    assert_eq!(control.depth(), 2);
    let mut device = Noisy::new(1, 2000.0, 0, 1);
    device.regular = true;
    device.run(&mut control, 20_000);
    assert_eq!(control.depth(), 2);
}

#[test]
fn a_load_that_never_fills_the_depth_is_kept_short_as_well() {
    for seed in 0..6 {
        let mut device = Noisy::new(4, 20_000.0, 50, seed);
        device.outstanding = 14;
        let mut control = control(64);
        device.run(&mut control, 3000);
        device.ends = 0;
        device.run(&mut control, 5000);
        let kept = device.ends as f64 / 5.0 / 20_000.0;
        let depth = control.depth();
        assert!(depth <= 8, "seed {seed}: {depth}");
        assert!(kept > 0.95, "seed {seed}: {kept:.3} at {depth}");
    }
}

#[test]
fn a_depth_that_fell_with_the_load_grows_again_at_once() {
    for seed in 0..6 {
        let mut device = Noisy::new(32, 100_000.0, 0, seed);
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
