//! Built-in profiles equal those that measuring the models gives.

use std::ops::ControlFlow;

use tidegate_config::profile::built_in;
use tidegate_core::profile::Access;
use tidegate_device::catalogue;
use tidegate_profile::plan::{Depth, Step};
use tidegate_profile::{Options, Plan, virtual_time};

fn measured(name: &str, quick: bool) -> tidegate_config::profile::Measured {
    let entry = catalogue::load(name).expect("built in");
    let options = Options {
        quick,
        in_virtual_time: true,
        depth: None,
        seed: 1,
    };
    let target = virtual_time::target(&entry);
    let measured = virtual_time::measure(&entry, target, options, |_| ControlFlow::Continue(()));
    measured.expect("large enough").expect("not stopped")
}

/// Zones of a hard disk count equally, although outer ones are twice as fast: a run timed by the
/// clock, as on a real disk, finds the same rate as a run of a number of requests.
#[test]
fn zones_count_the_same_by_time_and_by_requests() {
    let entry = catalogue::load("hdd-7200-1tb").expect("built in");
    let sequential = |in_virtual_time| {
        let options = Options {
            quick: false,
            in_virtual_time,
            depth: Some(32),
            seed: 1,
        };
        let mut plan = Plan::new(virtual_time::target(&entry), options).expect("large enough");
        plan.steps.retain(|step| match step {
            Step::Measure(point) => {
                let saturated = point.depth == Depth::Saturating && !point.writes();
                saturated && point.access == Access::Sequential && point.size == 1 << 16
            }
            _ => false,
        });
        assert_eq!(plan.steps.len(), 1);
        let measured = virtual_time::measure_plan(&entry, plan, |_| ControlFlow::Continue(()));
        measured.expect("not stopped").curves[0].points[0].iops
    };
    let (by_requests, by_time) = (sequential(true), sequential(false));
    let off = by_time / by_requests - 1.0;
    assert!(
        off.abs() < 0.025,
        "{by_time} by time, {by_requests} by requests"
    );
}

#[test]
fn every_model_has_a_complete_built_in_profile() {
    for name in catalogue::names() {
        let profile = built_in(name).expect("there").profile().expect("complete");
        assert!(profile.has_writes() && profile.mixes().len() == 5, "{name}");
        // This profile predates the step of reads under writes.
        let early = name == "raid0-16x250gb";
        assert!(early || !profile.beside_writes().is_empty(), "{name}");
    }
}

/// A model's quick profile is its full one with fewer points and wider intervals.
#[test]
fn full_and_quick_profiles_of_a_hard_disk_agree() {
    let name = "hdd-7200-1tb";
    let (full, quick) = (built_in(name).expect("there"), measured(name, true));
    let mut compared = 0;
    for curve in &quick.curves {
        let same = |other: &&tidegate_config::profile::MeasuredCurve| {
            (other.mix, other.access) == (curve.mix, curve.access)
        };
        let Some(other) = full.curves.iter().find(same) else {
            continue;
        };
        for point in &curve.points {
            let other = other.points.iter().find(|p| p.size == point.size);
            let other = other.expect("all sizes");
            // The two intervals may miss the common mean on opposite sides; 3 % for narrow ones.
            let slack = (point.within_percent + other.within_percent) * 1.5;
            let off = 100.0 * (point.iops / other.iops - 1.0);
            assert!(
                off.abs() <= slack.max(3.0),
                "{}: {point:?} {other:?}",
                curve.name()
            );
            compared += 1;
        }
    }
    // Points of a quick plan: 5 sizes of four pure kinds, and 3 sizes of one mix that both plans
    // have.
    assert_eq!(compared, 23);
    assert_eq!(quick, measured(name, true), "the same every time");
}

/// Checks the built-in profiles. To write them: `tidegate profile NAME --results
/// devices/profiles/NAME.toml`, or this test with `TIDEGATE_BLESS=1` for all of them.
#[test]
#[ignore = "more than seven minutes; in a release build one and a half"]
fn built_in_profiles_equal_measurements() {
    for name in catalogue::names() {
        let text = measured(name, false).to_toml();
        let path = format!(
            "{}/../../devices/profiles/{name}.toml",
            env!("CARGO_MANIFEST_DIR")
        );
        if std::env::var_os("TIDEGATE_BLESS").is_some() {
            std::fs::write(&path, &text).expect("writable");
        }
        let kept = std::fs::read_to_string(&path).expect("there");
        assert!(
            text == kept,
            "{path} is not what `tidegate profile {name}` writes"
        );
    }
}
