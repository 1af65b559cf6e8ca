//! Tests of cost learning in the engine: the windows of I/Os from which the estimator learns, and
//! its distinction of VMs.

use crate::common::{Driver, Guest};
use tidegate_core::engine::EngineConfig;
use tidegate_core::objective::Objective;
use tidegate_core::random::SplitMix64;
use tidegate_core::request::{IoError, Op};
use tidegate_core::time::Nanos;
use tidegate_policies::policy::PolicySpec;

/// VMs on a device that serves one I/O after the other.
struct Serial {
    driver: Driver,
    guests: Vec<Guest>,
    random: SplitMix64,
}

impl Serial {
    fn new(vms: u64) -> Serial {
        let policy = PolicySpec::named("fifo").expect("there");
        let mut driver = Driver::new(EngineConfig::default(), &policy);
        driver.engine.device_mut().learn_costs(true);
        Serial {
            guests: (0..vms)
                .map(|_| driver.guest(&Objective::default()))
                .collect(),
            driver,
            random: SplitMix64::new(7),
        }
    }

    fn ask(&mut self, vm: usize, len: u32) {
        let place = self.random.below(1 << 12) << 20;
        let client = self.guests[vm].client;
        self.driver.ask(client, Op::Read, place, len).expect("room");
    }

    /// Serves `count` I/Os of duration `took`; as many new requests follow.
    fn serve(&mut self, count: usize, took: Nanos, outcome: Result<(), IoError>) {
        for _ in 0..count {
            self.driver.start_all();
            self.driver.now += took;
            let io = self.driver.end_nth(0, outcome);
            self.ask(io.vm.index(), io.len);
        }
    }
}

#[test]
fn only_windows_with_enough_to_do_and_no_error_say_something() {
    let took = Nanos::from_millis(1);
    for (depth, outcome, learns) in [
        (32, Ok(()), true),
        (24, Ok(()), true),
        (23, Ok(()), false),
        (32, Err(IoError::Io), false),
    ] {
        let mut serial = Serial::new(1);
        (0..depth).for_each(|_| serial.ask(0, 4096));
        serial.driver.start_all();
        serial.serve(2000, took, outcome);
        let learnt = serial
            .driver
            .engine
            .device()
            .learnt_costs()
            .expect("it learns");
        assert_eq!(
            learnt.windows > 0,
            learns,
            "{depth} {outcome:?}: {learnt:?}"
        );
        assert_eq!(learnt.relative_half_width().is_finite(), learns);
        if learns {
            let cost = learnt.kinds[1].cost;
            assert!((cost.time_ps / 1e9 - 1.0).abs() < 0.01, "{cost:?}");
            assert!(cost.is_known(), "{cost:?}");
        }
    }
}

#[test]
fn the_signals_of_vms_have_no_mean_and_are_unlike() {
    let mut serial = Serial::new(2);
    (0..40).for_each(|n| serial.ask(n % 2, 4096));
    let vms: Vec<_> = serial.driver.engine.view().vms().collect();
    let (mut sum, mut both) = ([0.0; 2], 0.0);
    let windows = 2000;
    for _ in 0..windows {
        let before = serial
            .driver
            .engine
            .device()
            .learnt_costs()
            .expect("on")
            .windows;
        let estimator = serial.driver.engine.view().estimator().expect("on");
        let dither = [0, 1].map(|vm| estimator.share_variation(vms[vm], 0.1));
        assert!(dither.iter().all(|by| (by.abs() - 0.2).abs() < 1e-12));
        (sum[0], sum[1]) = (sum[0] + dither[0], sum[1] + dither[1]);
        both += dither[0] * dither[1] / 0.04;
        while serial
            .driver
            .engine
            .device()
            .learnt_costs()
            .expect("on")
            .windows
            == before
        {
            serial.serve(1, Nanos::from_millis(1), Ok(()));
        }
    }
    assert!(sum.iter().all(|sum| sum.abs() < 0.3), "{sum:?}");
    assert!((both / f64::from(windows)).abs() < 0.1, "{both}");
}
