//! Results in the JSON of `fio --output-format=json+`, a job for each VM, for tools that read it.
//!
//! The keys are those of fio 3.33 (stat.c, `show_thread_status_json`). What a simulation does not
//! have, such as CPU times, is 0, as in fio where it is not measured. fio splits a latency into
//! submission and completion; a simulated submission takes no time, so `clat_ns` and `lat_ns` are
//! equal and `slat_ns` is empty.

use std::path::Path;

use anyhow::Result;
use serde_json::{Map, Value, json};
use tidegate_sim::report::{OperationReport, Report, Times, VmReport};

use crate::atomic_file;

/// Percentiles that fio lists by default.
const PERCENTILES: [f64; 17] = [
    1.0, 5.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0, 95.0, 99.0, 99.5, 99.9, 99.95,
    99.99,
];
/// Upper bounds of fio's distribution of latencies in one unit.
const BOUNDS: [u64; 10] = [2, 4, 10, 20, 50, 100, 250, 500, 750, 1000];

/// Writes the report to a file.
///
/// # Errors
/// If the file cannot be written.
pub(super) fn write(report: &Report, path: &Path) -> Result<()> {
    let text = serde_json::to_string_pretty(&document(report))? + "\n";
    atomic_file::write(path, text.as_bytes())
}

fn document(report: &Report) -> Value {
    let jobs: Vec<Value> = (report.vms.iter().enumerate())
        .map(|(index, vm)| job(index, vm))
        .collect();
    json!({
        "fio version": concat!("tidegate-", env!("CARGO_PKG_VERSION")),
        // Virtual time begins at zero; a clock would make equal runs differ.
        "timestamp": 0,
        "timestamp_ms": 0,
        "time": "Thu Jan  1 00:00:00 1970",
        "jobs": jobs,
        "disk_util": [],
    })
}

fn job(index: usize, vm: &VmReport) -> Value {
    let operations = vm.operations.as_ref().expect("they were kept");
    let all = [&operations.read, &operations.write, &operations.discard];
    let mut times = Times::default();
    all.iter()
        .for_each(|operation| times.add(&operation.latency));
    let runtime_ms = (vm.time_s * 1e3).round() as u64;
    json!({
        "jobname": vm.name,
        "groupid": index,
        "error": 0,
        "eta": 0,
        "elapsed": vm.time_s.ceil() as u64,
        "job options": { "name": vm.name, "filename": vm.device },
        "read": data(all[0], vm.time_s),
        "write": data(all[1], vm.time_s),
        "trim": data(all[2], vm.time_s),
        "sync": {
            "total_ios": operations.flush.requests,
            "lat_ns": summary(&operations.flush.latency, false),
        },
        "job_runtime": runtime_ms,
        "usr_cpu": 0.0,
        "sys_cpu": 0.0,
        "ctx": 0,
        "majf": 0,
        "minf": 0,
        "iodepth_level": zeroes(&["1", "2", "4", "8", "16", "32", ">=64"]),
        "iodepth_submit": zeroes(&["0", "4", "8", "16", "32", "64", ">=64"]),
        "iodepth_complete": zeroes(&["0", "4", "8", "16", "32", "64", ">=64"]),
        "latency_ns": distribution(&times, 1, 0),
        "latency_us": distribution(&times, 1_000, 1_000),
        "latency_ms": distribution(&times, 1_000_000, 1_000_000),
        "latency_depth": 0,
        "latency_target": 0,
        "latency_percentile": 100.0,
        "latency_window": 0,
    })
}

/// Returns the section of an operation that moves or discards bytes, over `time_s` seconds.
fn data(operation: &OperationReport, time_s: f64) -> Value {
    let per_s = |amount: u64| {
        if time_s > 0.0 {
            amount as f64 / time_s
        } else {
            0.0
        }
    };
    let bytes_per_s = per_s(operation.bytes);
    let runtime_ms = match operation.requests {
        0 => 0,
        _ => (time_s * 1e3).round() as u64,
    };
    let mut section = json!({
        "io_bytes": operation.bytes,
        "io_kbytes": operation.bytes / 1024,
        "bw_bytes": bytes_per_s as u64,
        "bw": (bytes_per_s / 1024.0) as u64,
        "iops": per_s(operation.requests),
        "runtime": runtime_ms,
        "total_ios": operation.requests,
        "short_ios": 0,
        "drop_ios": 0,
        "slat_ns": summary(&Times::default(), false),
        "clat_ns": summary(&operation.latency, true),
        "lat_ns": summary(&operation.latency, false),
    });
    // Samples of fio's own thread, which a simulation has not.
    for key in [
        "bw_min",
        "bw_max",
        "bw_samples",
        "iops_min",
        "iops_max",
        "iops_samples",
    ] {
        section[key] = json!(0);
    }
    for key in ["bw_agg", "bw_mean", "bw_dev", "iops_mean", "iops_stddev"] {
        section[key] = json!(0.0);
    }
    section
}

/// Returns the figures of a latency; `whole` adds percentiles and buckets.
fn summary(times: &Times, whole: bool) -> Value {
    let mut summary = json!({
        "min": times.shortest().0,
        "max": times.longest().0,
        "mean": times.mean().0 as f64,
        "stddev": times.deviation(),
        "N": times.count(),
    });
    if whole && times.count() > 0 {
        let percentile = |p: f64| (format!("{p:.6}"), json!(times.quantile(p / 100.0).0));
        summary["percentile"] = PERCENTILES.into_iter().map(percentile).collect();
        let bucket =
            |(upper, count): (tidegate_core::time::Nanos, u64)| (upper.0.to_string(), json!(count));
        summary["bins"] = times.buckets().map(bucket).collect();
    }
    summary
}

/// Returns the percentages of requests by upper bounds in `unit` nanoseconds, of latencies above
/// `from` nanoseconds.
fn distribution(times: &Times, unit: u64, from: u64) -> Value {
    let mut counts = [0u64; BOUNDS.len() + 2];
    for (upper, count) in times.buckets().filter(|(upper, _)| upper.0 > from) {
        let at = BOUNDS.iter().position(|bound| upper.0 <= bound * unit);
        let beyond = || BOUNDS.len() + usize::from(upper.0 > 2_000 * unit);
        counts[at.unwrap_or_else(beyond)] += count;
    }
    let share = |count: u64| json!(count as f64 * 100.0 / times.count().max(1) as f64);
    let mut named: Map<String, Value> = (BOUNDS.iter().zip(counts))
        .map(|(bound, count)| (bound.to_string(), share(count)))
        .collect();
    // Only the largest unit has what lies beyond its bounds; smaller ones leave it to the next.
    if unit == 1_000_000 {
        named.insert("2000".to_owned(), share(counts[BOUNDS.len()]));
        named.insert(">=2000".to_owned(), share(counts[BOUNDS.len() + 1]));
    }
    Value::Object(named)
}

fn zeroes(names: &[&str]) -> Value {
    names
        .iter()
        .map(|name| ((*name).to_owned(), json!(0.0)))
        .collect()
}
