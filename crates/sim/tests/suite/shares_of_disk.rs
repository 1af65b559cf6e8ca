//! Shares under the default policy on a hard disk that orders its queue by itself: such a disk
//! prefers streams, and would serve a VM of one request at a time once a second.

use crate::common::{run, vm};

/// A hard disk of a model under the default policy, with a VM for each objective and workload, 60 s
/// after 10 s of warm-up.
fn disk_with(model: &str, vms: &[(&str, &str, &str)]) -> String {
    let mut text = format!(
        "duration = \"70 s\"\nwarm_up = \"10 s\"\n[[device]]\nname = \"disk\"\n\
         model = \"{model}\"\n"
    );
    for (name, objective, workload) in vms {
        text += &format!(
            "[[vm]]\nname = \"{name}\"\ndisk = [{{ size = \"100 GiB\" }}]\nobjective = {{ \
             {objective} }}\nworkload = [{{ {workload} }}]\n"
        );
    }
    text
}

/// Returns the IOPS of each VM on a disk without a write cache.
fn iops<const N: usize>(vms: [(&str, &str, &str); N]) -> [f64; N] {
    iops_on("hdd-7200-1tb", vms)
}

/// Returns the IOPS of each VM on a disk of a model.
fn iops_on<const N: usize>(model: &str, vms: [(&str, &str, &str); N]) -> [f64; N] {
    let report = run(&disk_with(model, &vms));
    vms.map(|(name, ..)| vm(&report, name).rates.iops)
}

#[test]
fn a_random_reader_is_served_beside_a_stream() {
    let reader = "rw = \"randread\", bs = \"16 KiB\", iodepth = 1";
    let stream = "rw = \"read\", bs = \"1 MiB\", iodepth = 4";
    let [read, streamed] = iops([("db", "", reader), ("scan", "", stream)]);
    // A random read takes 12 ms of the disk and 1 MiB of the stream 5.5 ms, so half of the disk are
    // 41 and 90 IOPS.
    assert!(read >= 35.0, "{read} IOPS");
    assert!(streamed >= 80.0, "{streamed} IOPS");
}

#[test]
fn streams_of_any_depth_and_size_have_shares_by_weight() {
    let [small, heavy, large] = iops([
        ("small", "", "rw = \"read\", bs = \"128 KiB\", iodepth = 2"),
        (
            "heavy",
            "weight = 200",
            "rw = \"read\", bs = \"512 KiB\", iodepth = 4",
        ),
        ("large", "", "rw = \"read\", bs = \"1 MiB\", iodepth = 1"),
    ]);
    let [small, heavy, large] = [small / 8.0, heavy / 2.0, large];
    let all = small + heavy + large;
    // MiB/s; the disk streams 170 to 180.
    assert!(all >= 120.0, "{all} MiB/s");
    for (share, due) in [(small, 0.25), (heavy, 0.5), (large, 0.25)] {
        let part = share / all;
        assert!((part - due).abs() <= 0.05, "{part} of the work, due {due}");
    }
}

#[test]
fn a_reader_that_pauses_is_served_and_not_waited_for() {
    let stream = "rw = \"read\", bs = \"1 MiB\", iodepth = 4";
    let paused = "rw = \"read\", bs = \"128 KiB\", iodepth = 1, thinktime = \"20 ms\"";
    let [read, beside] = iops([("viewer", "", paused), ("scan", "", stream)]);
    // 50 reads a second at most, of which each costs two seeks and is behind what the disk holds.
    assert!(read >= 20.0, "{read} IOPS");
    assert!(beside >= 120.0, "{beside} IOPS");
}

#[test]
fn a_log_that_waits_for_rotations_does_not_keep_the_disk_to_itself() {
    let log = "rw = \"write\", bs = \"16 KiB\", iodepth = 1";
    let noisy = "rw = \"randwrite\", bs = \"4 KiB\", iodepth = 64";
    let [logged, written] = iops([("log", "", log), ("noisy", "", noisy)]);
    // Each write of the log takes a rotation of 8.3 ms, and a random write 4 to 12 ms: half of the
    // disk are 60 and at least 40 IOPS.
    assert!(logged >= 25.0, "{logged} IOPS");
    assert!(written >= 40.0, "{written} IOPS");
}

/// Four logs and a random writer of the same weight.
const LOGS_BESIDE_A_WRITER: [(&str, &str, &str); 5] = {
    let log = "rw = \"write\", bs = \"16 KiB\", iodepth = 1";
    [
        ("log1", "", log),
        ("log2", "", log),
        ("log3", "", log),
        ("log4", "", log),
        (
            "writer",
            "",
            "rw = \"randwrite\", bs = \"16 KiB\", iodepth = 32",
        ),
    ]
};

#[test]
fn logs_that_wait_for_rotations_are_charged_for_them() {
    let [logs @ .., written] = iops(LOGS_BESIDE_A_WRITER);
    // A fifth of the disk is some 20 writes of 8 to 12 ms, for each of them.
    assert!(logs.iter().all(|&log| log >= 10.0), "{logs:?} IOPS");
    assert!(written >= 15.0, "{written} IOPS");
}

#[test]
fn logs_that_a_cache_takes_are_not_charged_for_rotations() {
    let [logs @ .., written] = iops_on("hdd-7200-1tb-cached", LOGS_BESIDE_A_WRITER);
    assert!(logs.iter().all(|&log| log >= 150.0), "{logs:?} IOPS");
    assert!(written >= 50.0, "{written} IOPS");
}

#[test]
fn a_latency_objective_costs_a_disk_of_unknown_costs_no_more_than_it_needs() {
    let etcd = "rw = \"write\", bs = \"4 KiB\", fsync = 1, rate_iops = \"2 IOPS\"";
    let worker = "rw = \"randrw\", rwmixread = 50, bs = \"64 KiB\", iodepth = 16";
    let report = run(&disk_with(
        "hdd-7200-1tb",
        &[
            (
                "etcd",
                "reservation = \"6 IOPS\", latency = \"300 ms\"",
                etcd,
            ),
            ("worker", "", worker),
        ],
    ));
    let p99_ns = vm(&report, "etcd").rates.latency_p99_ns;
    assert!(p99_ns.is_some_and(|p99| p99 <= 300_000_000), "{p99_ns:?}");
    // 133 with one I/O in flight.
    let work = vm(&report, "worker").rates.iops;
    assert!(work >= 200.0, "{work} IOPS");
}
