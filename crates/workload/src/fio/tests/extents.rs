//! Tests of regions and amounts of data.

use super::*;

fn extent(lines: &str) -> (u64, Option<u64>, Option<u64>) {
    let workload = workload(lines);
    (workload.offset, workload.size, workload.io_size)
}

#[test]
fn a_job_does_its_region_once_by_default() {
    assert_eq!(extent(""), (0, None, Some(GIB)));
    assert_eq!(extent("size=100m"), (0, Some(100 << 20), Some(100 << 20)));
    assert_eq!(extent("offset=1m"), (1 << 20, None, Some(GIB - (1 << 20))));
    assert_eq!(extent("size=0"), (0, None, Some(GIB)), "0 is not set");
}

#[test]
fn the_rest_past_the_last_whole_request_is_not_counted() {
    assert_eq!(extent("size=10000"), (0, Some(9728), Some(8192)));
}

#[test]
fn time_based_jobs_have_no_other_end() {
    let lines = "size=1m | io_size=2m | number_ios=7 | loops=2 | time_based | runtime=10";
    let (workload, notes) = read(&format!("[job]\n{}\n", lines.replace(" | ", "\n")));
    assert_eq!((workload.io_size, workload.number_ios), (None, None));
    assert_eq!(workload.runtime, Some(Nanos::from_secs(10)));
    assert_eq!(notes.len(), 3, "{notes:?}");
    assert!(
        notes
            .iter()
            .all(|note| note.contains("of no effect with `time_based`"))
    );
}

#[test]
fn time_based_without_a_runtime_is_dropped() {
    assert_eq!(workload("time_based | size=1m").io_size, Some(1 << 20));
    assert!(notes("time_based")[0].contains("of no effect without `runtime`"));
    assert_eq!(
        workload("time_based=0 | runtime=1 | size=1m").io_size,
        Some(1 << 20)
    );
}

#[test]
fn io_size_is_more_or_less_than_the_region() {
    assert_eq!(extent("size=1m | io_size=10m").2, Some(10 << 20));
    assert_eq!(extent("size=1m | io_limit=4k").2, Some(4096));
    assert_eq!(extent("size=1m | io_size=50%").2, Some(1 << 19));
    all_wrong(&["io_size=101%", "io_size=x"]);
}

#[test]
fn loops_repeat_the_bytes_and_the_requests() {
    assert_eq!(extent("size=1m | loops=3").2, Some(3 << 20));
    assert_eq!(workload("number_ios=5 | loops=3").number_ios, Some(15));
    all_wrong(&["loops=0"]);
}

#[test]
fn number_ios_counts_requests() {
    assert_eq!(workload("number_ios=100").number_ios, Some(100));
    assert_eq!(workload("number_ios=1k").number_ios, Some(1024), "fio's k");
    assert_eq!(workload("number_ios=0").number_ios, None);
}

#[test]
fn percentages_are_of_the_disk() {
    assert_eq!(extent("size=50%").1, Some(GIB / 2));
    assert_eq!(
        extent("bs=4k | size=33%").1,
        Some(GIB / 100 * 33 / 4096 * 4096)
    );
    let third = (GIB * 33 / 100).next_multiple_of(4096);
    assert_eq!(extent("bs=4k | offset=33%").0, third);
    assert_eq!(
        extent("fileoffset=50% | size=100%").1,
        Some(GIB / 2),
        "up to its end"
    );
    assert_eq!(workload("offset_increment=25%").offset_increment, GIB / 4);
    all_wrong(&["size=101%", "offset=200%"]);
}

#[test]
fn offsets_begin_sectors() {
    assert_eq!(
        workload("offset=1m | offset_increment=64k").offset_increment,
        65536
    );
    all_wrong(&["offset=100", "offset_increment=1000"]);
}

#[test]
fn a_region_holds_a_request() {
    all_wrong(&["size=2k", "size=4k | bs=8k"]);
    workload("size=4k | rw=read | bs=4k,8k");
}

#[test]
fn a_region_off_the_disk_is_told_when_the_disk_is_known() {
    let file = parse("[job]\nsize=2g\n", "f", false).unwrap();
    let error = file.sections[0].workload(GIB).unwrap_err();
    assert_eq!((error.to, error.disk_size), (2 * GIB, GIB));
    assert!(file.sections[0].workload(2 * GIB).is_ok());
    let all = parse("[job]\noffset=100%\n", "f", false).unwrap();
    assert!(all.sections[0].workload(GIB).is_err());
    assert!(all.sections[0].workload(0).is_err());
}
