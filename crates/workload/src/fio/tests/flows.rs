//! Tests of depth, think times, rates and flushes.

use super::*;

#[test]
fn iodepth_is_taken_as_it_stands() {
    assert_eq!(closed(&workload("")), (1, None));
    assert_eq!(closed(&workload("iodepth=32 | ioengine=libaio")).0, 32);
    assert_eq!(closed(&workload("iodepth=32")).0, 32);
    assert!(notes("iodepth=32")[0].contains("fio needs an asynchronous `ioengine`"));
    all_wrong(&["iodepth=0", "iodepth=65537", "iodepth=deep"]);
}

#[test]
fn a_synchronous_engine_has_a_depth_of_one() {
    for engine in ["sync", "psync", "vsync", "pvsync", "pvsync2", "mmap"] {
        let lines = format!("iodepth=32 | ioengine={engine}");
        assert_eq!(closed(&workload(&lines)).0, 1);
        assert!(notes(&lines)[0].contains("`iodepth` has no effect"));
    }
}

#[test]
fn numjobs_stays_with_the_job() {
    assert_eq!(workload("numjobs=4").numjobs, 4);
    all_wrong(&["numjobs=0", "numjobs=100000"]);
}

#[test]
fn thinktime_is_in_microseconds_and_follows_each_request() {
    let think = |lines: &str| {
        closed(&workload(lines))
            .1
            .map(|think| (think.time, think.blocks))
    };
    let micros = |us| TimeDistribution::Fixed(Nanos::from_micros(us));
    assert_eq!(think("thinktime=500"), Some((micros(500), 1)));
    assert_eq!(
        think("thinktime=5ms | thinktime_blocks=16"),
        Some((micros(5000), 16))
    );
    assert_eq!(think("thinktime=0"), None);
    assert_eq!(think("thinktime_blocks=4"), None);
    all_wrong(&["thinktime=1.5", "thinktime_blocks=0"]);
}

#[test]
fn rate_iops_is_an_open_loop() {
    let (arrivals, iodepth) = open(&workload("rate_iops=1000 | iodepth=8 | ioengine=io_uring"));
    assert_eq!((arrivals.per_s, arrivals.spacing), (1000.0, Spacing::Fixed));
    assert_eq!((arrivals.bursts, iodepth), (None, 8));
    let poisson = open(&workload("rate_iops=50 | rate_process=poisson")).0;
    assert_eq!(poisson.spacing, Spacing::Poisson);
    assert_eq!(
        open(&workload("rate_iops=50 | rate_process=linear"))
            .0
            .spacing,
        Spacing::Fixed
    );
    assert_eq!(open(&workload("rate_iops=1k")).0.per_s, 1024.0, "fio's k");
    all_wrong(&["rate_iops=fast", "rate_process=bursty", "rate_iops=20m"]);
}

#[test]
fn each_operation_has_the_rate_at_its_place() {
    let rate = |lines: &str| open(&workload(lines)).0.per_s;
    assert_eq!(rate("rw=write | rate_iops=100,200"), 200.0);
    assert_eq!(rate("rw=trim | rate_iops=100,200,300"), 300.0);
    assert_eq!(
        rate("rw=trimwrite | rate_iops=100"),
        200.0,
        "with the discards"
    );
    assert_eq!(
        closed(&workload("rw=read | rate_iops=,200")).0,
        1,
        "reads have none"
    );
    assert_eq!(closed(&workload("rate_iops=0")).0, 1);
}

#[test]
fn rates_of_reads_and_writes_decide_the_mix() {
    let mixed = |lines: &str| {
        let workload = workload(&format!("rw=randrw | {lines}"));
        (open(&workload).0.per_s, workload.rw.mix)
    };
    let read = |read_percent| Mix::ReadWrite { read_percent };
    assert_eq!(mixed("rate_iops=700,300"), (1000.0, read(70)));
    // As fio 3.33 does it: 500 reads and 500 writes, whatever the mix.
    assert_eq!(mixed("rate_iops=500 | rwmixread=70"), (1000.0, read(50)));
    assert_eq!(mixed("rate_iops=1000,500"), (1500.0, read(67)));
    assert!(notes("rw=rw | rate_iops=1000,500")[0].contains("1500 requests a second in all"));
    all_wrong(&["rate_iops=500, | rw=rw", "rate_iops=,500 | rw=rw"]);
}

#[test]
fn rate_is_in_bytes_a_second() {
    let rate = |lines: &str| open(&workload(lines)).0.per_s;
    assert_eq!(rate("rate=1m | bs=64k"), 16.0);
    assert_eq!(rate("rate=1m,2m | bs=64k | rw=write"), 32.0);
    // By the mean size, so that the bandwidth is right.
    assert_eq!(rate("rate=1m | bssplit=4k/50:60k/50"), 32.0);
    assert_eq!(rate("rate=100 | bs=4k"), 100.0 / 4096.0);
    all_wrong(&["rate=1 | bs=4k", "rate_iops=5 | rate=1m"]);
}

#[test]
fn a_rate_and_a_think_time_do_not_go_together() {
    all_wrong(&["thinktime=5 | rate_iops=100"]);
}

#[test]
fn fsync_and_fdatasync_are_flushes_after_writes() {
    assert_eq!(workload("fsync=32").fsync, 32);
    assert_eq!(workload("fdatasync=1").fsync, 1);
    assert_eq!(workload("fsync=0 | fdatasync=4").fsync, 4);
    all_wrong(&["fdatasync=1 | fsync=1", "fsync=x"]);
}

#[test]
fn sync_makes_writes_durable() {
    for (value, sync) in [
        ("0", false),
        ("none", false),
        ("1", true),
        ("sync", true),
        ("dsync", true),
    ] {
        assert_eq!(workload(&format!("sync={value}")).sync, sync, "{value}");
    }
    all_wrong(&["sync=yes", "sync"]);
}
