//! Tests of start, end and groups of jobs.

use super::*;

const S: Nanos = Nanos::SECOND;

#[test]
fn times_are_in_seconds_unless_they_say_otherwise() {
    assert_eq!(workload("runtime=60").runtime, Some(Nanos::from_secs(60)));
    assert_eq!(workload("timeout=5m").runtime, Some(Nanos::from_secs(300)));
    assert_eq!(
        workload("runtime=500ms").runtime,
        Some(Nanos::from_millis(500))
    );
    assert_eq!(workload("runtime=0").runtime, None);
    assert_eq!(workload("startdelay=3").start, Nanos::from_secs(3));
    assert_eq!(workload("startdelay=20ms").start, Nanos::from_millis(20));
    all_wrong(&[
        "runtime=1min",
        "runtime=1.5",
        "startdelay=5-10",
        "ramp_time=x",
    ]);
}

#[test]
fn the_ramp_comes_on_top_of_the_runtime() {
    let file = parse("[job]\nruntime=10\nramp_time=2\n", "f", false).unwrap();
    assert_eq!(file.sections[0].ramp_time, Nanos::from_secs(2));
    let workload = file.sections[0].workload(GIB).unwrap();
    assert_eq!(workload.runtime, Some(Nanos::from_secs(12)));
}

fn starts(text: &str) -> Vec<Nanos> {
    let file = parse(text, "f", false).unwrap_or_else(|errors| panic!("{errors}"));
    let start = |section: &Section| section.workload(GIB).unwrap().start;
    file.sections.iter().map(start).collect()
}

#[test]
fn a_stonewall_waits_for_all_sections_before_it() {
    let text = "[global]\ntime_based\nruntime=10\n[a]\nramp_time=5\n[b]\nstartdelay=2\n\
                [c]\nstonewall\nstartdelay=1\n[d]\n[e]\nwait_for_previous\n";
    let seconds = [0, 2, 16, 15, 26];
    assert_eq!(starts(text), seconds.map(Nanos::from_secs));
}

#[test]
fn a_first_stonewall_waits_for_nothing() {
    assert_eq!(
        starts("[a]\nstonewall\n[b]\nstonewall=0\n"),
        [Nanos::ZERO; 2]
    );
}

#[test]
fn a_stonewall_behind_an_end_that_is_not_known_is_refused() {
    for own in ["runtime=0", "size=1m", "time_based"] {
        let text = format!("[a]\n{own}\n[b]\nstonewall\n");
        let errors = parse(&text, "f", false).unwrap_err().0;
        assert_eq!(errors.len(), 1);
        assert_eq!(errors[0].what, "waits for [a], whose end is not known");
        assert_eq!(errors[0].place.line, 4);
    }
    // At the latest: it may be through earlier.
    assert_eq!(starts("[a]\nsize=1m\nruntime=1\n[b]\nstonewall\n")[1], S);
}
