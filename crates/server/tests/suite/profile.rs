//! Profiling of a file by real I/O: the file is filled completely, and errors name the place.

use std::fs::{self, File};
use std::ops::ControlFlow;
use std::path::Path;

use tidegate_config::profile::{MeasuredCurve, Mix, built_in};
use tidegate_core::time::Nanos;
use tidegate_device::catalogue;
use tidegate_profile::outcome::build_profile;
use tidegate_profile::plan::{Depth, Step};
use tidegate_profile::{Options, Outcome, Plan, Profiler, StepResult, Target, virtual_time};
use tidegate_server::profile::{Disk, DriveError, Ended, examine, measure_emulated};

const SIZE: u64 = 32 << 20;

/// Returns the plan of a real disk with runs of a few milliseconds; the results are not checked.
fn plan(disk: &Disk) -> Plan {
    let target = Target {
        name: "file".to_owned(),
        span: disk.size(),
        block: disk.block(),
        max_io: 1 << 20,
        depth_max: 16,
        writes: true,
        fill: true,
        condition: false,
    };
    hasty(target)
}

fn hasty(target: Target) -> Plan {
    let options = Options {
        quick: true,
        in_virtual_time: false,
        depth: None,
        seed: 1,
    };
    let mut plan = Plan::new(target, options).expect("large enough");
    let pace = &mut plan.pace;
    (pace.warm_up, pace.run) = (Nanos::from_millis(1), Nanos::from_millis(1));
    (pace.run_max, pace.fill_max) = (Nanos::from_millis(5), Nanos::MAX);
    plan
}

fn made(dir: &Path) -> Disk {
    Disk::open(&dir.join("disk"), true, Some(SIZE)).expect("room for it")
}

fn go_on(profiler: &Profiler) -> ControlFlow<()> {
    // Ids of ended I/Os are free again, so no more are in flight than there are ids.
    assert!(profiler.in_flight() <= 16);
    ControlFlow::Continue(())
}

#[test]
fn a_file_is_filled_and_measured() {
    let dir = tempfile::tempdir().expect("a directory");
    let disk = made(dir.path());
    let mut profiler = Profiler::new(plan(&disk), Vec::new());
    let ended = disk.measure(&mut profiler, |profiler, _| go_on(profiler));
    assert_eq!(ended.expect("nothing fails"), Ended::Finished);
    let result = build_profile(profiler.plan(), profiler.outcomes(), "");
    assert_eq!(result.span, SIZE);
    assert!(result.profile().expect("complete").has_writes());
    drop(disk);
    let path = dir.path().join("disk");
    assert_eq!(
        examine(&path).expect("readable").unwritten,
        Some((0, SIZE)),
        "nothing is left unwritten"
    );
    let bytes = fs::read(&path).expect("readable");
    assert!(
        bytes
            .chunks(4096)
            .all(|page| page.iter().any(|byte| *byte != 0))
    );
}

#[test]
fn what_was_measured_before_an_error_is_kept() {
    let dir = tempfile::tempdir().expect("a directory");
    let disk = made(dir.path());
    let mut profiler = Profiler::new(plan(&disk), Vec::new());
    // Another process truncates the file once a few steps are done.
    let file = File::options().write(true).open(dir.path().join("disk"));
    let file = file.expect("there");
    let ended = disk.measure(&mut profiler, |profiler, _| {
        if profiler.outcomes().len() == 4 {
            file.set_len(4096).expect("cut");
        }
        go_on(profiler)
    });
    let error = ended.expect_err("reads come short");
    assert!(
        matches!(error, DriveError::Io { what: "read", .. }),
        "{error}"
    );
    assert!(error.to_string().contains("cannot read"), "{error}");
    let outcomes = profiler.outcomes().to_vec();
    assert!(outcomes.len() >= 4);
    // After the repair the profiler continues behind the completed steps and does not fill again.
    file.set_len(SIZE).expect("as long as before");
    let mut profiler = Profiler::new(plan(&disk), outcomes.clone());
    let ended = disk.measure(&mut profiler, |profiler, _| go_on(profiler));
    assert_eq!(ended.expect("mended"), Ended::Finished);
    assert_eq!(profiler.outcomes()[..outcomes.len()], outcomes);
    let is_fill = |outcome: &Outcome| matches!(outcome.result, StepResult::Wrote { .. });
    let fills = profiler.outcomes().iter().filter(|o| is_fill(o)).count();
    assert_eq!(fills, 1);
}

#[test]
fn it_stops_when_it_is_told() {
    let dir = tempfile::tempdir().expect("a directory");
    let disk = made(dir.path());
    let mut profiler = Profiler::new(plan(&disk), Vec::new());
    let ended = disk.measure(&mut profiler, |profiler, _| {
        match profiler.outcomes().len() {
            3 => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        }
    });
    assert_eq!(ended.expect("nothing fails"), Ended::Stopped);
    assert_eq!(profiler.outcomes().len(), 3);
}

#[test]
fn a_disk_that_is_served_is_not_measured() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("disk");
    let _served = made(dir.path());
    for writes in [true, false] {
        let error = Disk::open(&path, writes, None).expect_err("locked");
        assert!(error.to_string().contains("in use"), "{error}");
    }
}

#[test]
fn reading_alone_leaves_every_byte() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("disk");
    let bytes: Vec<u8> = (0..SIZE as u32 / 4).flat_map(u32::to_le_bytes).collect();
    fs::write(&path, &bytes).expect("written");
    let disk = Disk::open(&path, false, None).expect("there");
    let mut target = plan(&disk).target;
    (target.writes, target.fill) = (false, false);
    let mut profiler = Profiler::new(hasty(target), Vec::new());
    let ended = disk.measure(&mut profiler, |profiler, _| go_on(profiler));
    assert_eq!(ended.expect("nothing fails"), Ended::Finished);
    assert!(fs::read(&path).expect("readable") == bytes);
}

#[test]
fn a_model_is_measured_in_real_time() {
    let entry = catalogue::load("nvme-1tb").expect("built in");
    let mut target = virtual_time::target(&entry);
    (target.depth_max, target.max_io) = (16, 1 << 20);
    let mut profiler = Profiler::new(hasty(target), Vec::new());
    let ended = measure_emulated(&entry, &mut profiler, |profiler, _| go_on(profiler));
    assert_eq!(ended.expect("nothing fails"), Ended::Finished);
    let result = build_profile(profiler.plan(), profiler.outcomes(), "");
    result.profile().expect("complete");
    // Timers may be late, but never early: a read at depth 1 takes at least the model's time.
    let first = result.latency[0].point;
    assert!(
        first.depth == 1 && first.p50 >= Nanos::from_micros(52),
        "{first:?}"
    );
}

/// Compares a model in real time with the same model in virtual time. Needs a machine without other
/// load.
#[test]
#[ignore = "four minutes, and says something on a quiet machine alone"]
fn real_and_virtual_time_agree_within_a_twentieth() {
    let name = "hdd-7200-1tb";
    let entry = catalogue::load(name).expect("built in");
    let known = built_in(name).expect("built in");
    let options = Options {
        quick: false,
        in_virtual_time: false,
        depth: Some(known.depth),
        seed: 1,
    };
    let mut plan = Plan::new(virtual_time::target(&entry), options).expect("large enough");
    plan.steps.retain(|step| match step {
        Step::Measure(point) => {
            point.depth == Depth::Saturating
                && matches!(point.mix, Mix::All(_) | Mix::Reads(500))
                && [1 << 12, 1 << 16, 1 << 20].contains(&point.size)
        }
        _ => false,
    });
    let mut profiler = Profiler::new(plan, Vec::new());
    let ended = measure_emulated(&entry, &mut profiler, |_, _| ControlFlow::Continue(()));
    assert_eq!(ended.expect("nothing fails"), Ended::Finished);
    let mut compared = 0;
    for curve in build_profile(profiler.plan(), profiler.outcomes(), "").curves {
        let same = |of: &&MeasuredCurve| (of.mix, of.access) == (curve.mix, curve.access);
        let truth = known.curves.iter().find(same).expect("all kinds");
        for point in &curve.points {
            let truth = truth.points.iter().find(|of| of.size == point.size);
            let off = point.iops / truth.expect("all sizes").iops - 1.0;
            println!(
                "{} of {} bytes: {:+.1} %",
                curve.name(),
                point.size,
                100.0 * off
            );
            assert!(off.abs() <= 0.05, "{point:?} for {truth:?}");
            compared += 1;
        }
    }
    assert_eq!(compared, 15);
}

#[test]
fn a_file_is_made_only_where_there_is_none() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("disk");
    for bytes in [Vec::new(), vec![7; SIZE as usize]] {
        fs::write(&path, &bytes).expect("written");
        let error = Disk::make(&path, SIZE).expect_err("it is there");
        assert!(error.to_string().contains("cannot create"), "{error}");
        assert!(fs::read(&path).expect("it stays") == bytes);
    }
    fs::remove_file(&path).expect("there");
    assert!(Disk::make(&path, 1 << 60).is_err(), "there is no room");
    assert!(!path.exists(), "nothing stays");
    let disk = Disk::make(&path, SIZE).expect("room for it");
    assert_eq!(disk.size(), SIZE);
    assert!(disk.is_at(&path));
    fs::rename(&path, dir.path().join("other")).expect("renamed");
    assert!(!disk.is_at(&path));
}
