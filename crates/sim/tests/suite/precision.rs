//! Precision of bandwidth in the report, compared with the rows of every second.

use crate::common::{DISK, run, run_with_rows, vm};
use tidegate_config::stat_views;
use tidegate_core::precision::Precision;
use tidegate_sim::report::Row;

/// Scenario of a VM with this target and one workload with these keys, under V-Cup, after a warm-up
/// of 5 s.
fn tuned(target: &str, workload: &str) -> String {
    let disk = DISK.replace("\"fifo\"", "\"vcup\"");
    let disk = disk.replace("depth = 1", "depth = 8");
    format!(
        "warm_up = \"5 s\"\n{disk}[[vm]]\nname = \"a\"\ndisk = [{{ size = \"10 GiB\" }}]\n\
         objective = {{ target = \"{target}\" }}\n[[vm.workload]]\n{workload}\n"
    )
}

/// Bytes that a VM moved in each second whose end is in this range, in seconds.
fn moved(rows: &[Row], from: f64, to: f64) -> Vec<u64> {
    let counted = rows
        .iter()
        .filter(|row| row.time_s > from && row.time_s <= to);
    counted.map(|row| row.rates.bytes_per_s as u64).collect()
}

#[test]
fn precision_is_that_of_the_seconds_after_the_warm_up() {
    let (report, rows) = run_with_rows(&tuned("1 MB/s", "rw = \"read\"\nbs = \"16 KiB\""));
    let samples = moved(&rows, 5.0, 60.0);
    assert_eq!(samples.len(), 55);
    let expected = Precision::from_samples(&samples, 0, Some(1_000_000), 30);
    assert_eq!(vm(&report, "a").precision, stat_views::precision(&expected));
    let tuning = vm(&report, "a").tuning.expect("it has a target");
    assert_eq!(tuning.inadequate, None);
    assert!(tuning.aim_bytes_per_s.is_some());
}

#[test]
fn what_the_device_does_not_do_is_said_with_what_it_does() {
    let report = run(&tuned("90 MB/s", "rw = \"randread\"\niodepth = 4"));
    let a = vm(&report, "a");
    let short = a.tuning.expect("it has a target").inadequate;
    let had = short.expect("a hard disk does not do that").bytes_per_s as f64;
    assert!((had / a.rates.bytes_per_s - 1.0).abs() < 0.2, "{had}");
    assert!(a.precision.error_percent.expect("it has a target") < -90.0);
}

#[test]
fn idle_seconds_and_those_that_are_not_whole_do_not_count_and_without_a_target_v_is_all() {
    let text = format!(
        "{DISK}[[vm]]\nname = \"a\"\ndisk = [{{ size = \"10 GiB\" }}]\narrives = \"10.5 s\"\n\
         [[vm.workload]]\n\
         rw = \"read\"\nstartdelay = \"10 s\"\nruntime = \"20 s\"\n"
    );
    let (report, rows) = run_with_rows(&text);
    let found = vm(&report, "a").precision;
    // It comes in the eleventh second and asks from the middle of the 21st to that of the 41st.
    let samples = moved(&rows, 20.0, 40.0);
    let expected = Precision::from_samples(&samples, 9, None, 30);
    assert_eq!(found, stat_views::precision(&expected));
    assert_eq!(
        (found.error_percent, found.target_bytes_per_s),
        (None, None)
    );
    assert_eq!(vm(&report, "a").tuning, None);
}

#[test]
fn a_change_of_target_begins_anew() {
    let text = tuned("1 MB/s", "rw = \"read\"\nbs = \"16 KiB\"");
    let change = "[[event]]\nat = \"40.2 s\"\nvm = \"a\"\nobjective = { target = \"2 MB/s\" }\n";
    let (report, rows) = run_with_rows(&(text + change));
    let samples = moved(&rows, 41.0, 60.0);
    let expected = Precision::from_samples(&samples, 0, Some(2_000_000), 30);
    assert_eq!(vm(&report, "a").precision, stat_views::precision(&expected));
}
