//! The profiles that are built in are those that measuring the models gives.

use std::ops::ControlFlow;

use tidegate_config::profile::built_in;
use tidegate_device::catalogue;
use tidegate_profile::{Options, virtual_time};

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

#[test]
fn every_model_has_one() {
    for name in catalogue::names() {
        let profile = built_in(name).expect("there").profile().expect("complete");
        assert!(profile.has_writes() && profile.mixes().len() == 5, "{name}");
    }
}

/// A model's quick profile is its full one with fewer points and wider intervals.
#[test]
fn a_hard_disks_agrees_with_a_quick_one() {
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
    assert_eq!(compared, 23);
    assert_eq!(quick, measured(name, true), "the same every time");
}

/// How they are made: `tidegate profile NAME --results devices/profiles/NAME.toml`.
#[test]
#[ignore = "more than seven minutes; in a release build one and a half"]
fn they_are_what_is_measured() {
    for name in catalogue::names() {
        let text = measured(name, false).to_toml();
        let path = format!(
            "{}/../../devices/profiles/{name}.toml",
            env!("CARGO_MANIFEST_DIR")
        );
        let kept = std::fs::read_to_string(&path).expect("there");
        assert!(
            text == kept,
            "{path} is not what `tidegate profile {name}` writes"
        );
    }
}
