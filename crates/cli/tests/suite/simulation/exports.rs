//! Results of `tidegate sim` in formats of other tools.

use std::collections::BTreeMap;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::Deserializer;
use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};
use serde_json::Value;

use super::{SMALL, printed, refused};

/// Runs the small scenario with an export to a file; returns the report and the file's content.
fn exported(option: &str, more: &[&str]) -> (Value, String) {
    let dir = tempfile::tempdir().expect("a directory");
    let scenario = dir.path().join("s.toml");
    let out = dir.path().join("out");
    std::fs::write(&scenario, SMALL).expect("it is written");
    let [scenario, out_name] = [&scenario, &out].map(|path| path.to_str().expect("text"));
    let arguments = [&["sim", scenario, "-o", "json", option, out_name], more].concat();
    let report = serde_json::from_str(&printed(&arguments)).expect("JSON");
    (
        report,
        std::fs::read_to_string(&out).expect("it is written"),
    )
}

/// Keys of fio 3.33 that scripts read, by the section that has them.
const JOB_KEYS: &[&str] = &[
    "jobname",
    "groupid",
    "error",
    "elapsed",
    "job options",
    "read",
    "write",
    "trim",
    "sync",
    "job_runtime",
    "usr_cpu",
    "sys_cpu",
    "ctx",
    "iodepth_level",
    "latency_ns",
    "latency_us",
    "latency_ms",
];
const DATA_KEYS: &[&str] = &[
    "io_bytes",
    "io_kbytes",
    "bw_bytes",
    "bw",
    "iops",
    "runtime",
    "total_ios",
    "short_ios",
    "drop_ios",
    "slat_ns",
    "clat_ns",
    "lat_ns",
    "bw_min",
    "bw_max",
    "bw_agg",
    "bw_mean",
    "bw_dev",
    "bw_samples",
    "iops_min",
    "iops_max",
    "iops_mean",
    "iops_stddev",
    "iops_samples",
];

#[test]
fn results_are_written_as_fio_writes_them() {
    let (report, text) = exported("--fio-json", &[]);
    let fio: Value = serde_json::from_str(&text).expect("JSON");
    for key in [
        "fio version",
        "timestamp",
        "timestamp_ms",
        "time",
        "jobs",
        "disk_util",
    ] {
        assert!(fio.get(key).is_some(), "{key}");
    }
    let jobs = fio["jobs"].as_array().expect("jobs");
    let vms = report["vms"].as_array().expect("VMs");
    assert_eq!(jobs.len(), vms.len());
    for (job, vm) in jobs.iter().zip(vms) {
        assert_eq!(job["jobname"], vm["name"]);
        for key in JOB_KEYS {
            assert!(job.get(key).is_some(), "{key}");
        }
        let mut requests = 0;
        for section in ["read", "write", "trim"] {
            let data = &job[section];
            for key in DATA_KEYS {
                assert!(data.get(key).is_some(), "{section}.{key}");
            }
            let ios = data["total_ios"].as_u64().expect("a count");
            requests += ios;
            let latency = &data["clat_ns"];
            assert_eq!(latency["N"], ios, "{section}");
            if ios == 0 {
                continue;
            }
            let bins = latency["bins"].as_object().expect("buckets");
            let counted: u64 = bins.values().filter_map(Value::as_u64).sum();
            assert_eq!(counted, ios, "{section}: every request is in a bucket");
            let quantile = |p: &str| latency["percentile"][p].as_u64().expect("a time");
            assert!(quantile("50.000000") <= quantile("99.000000"));
            assert!(latency["min"].as_u64() <= Some(quantile("50.000000")));
            assert!(Some(quantile("99.990000")) <= latency["max"].as_u64());
        }
        let iops = |section: &str| job[section]["iops"].as_f64().expect("a rate");
        let close = |a: f64, b: &Value| (a - b.as_f64().expect("a rate")).abs() < 1e-6;
        assert!(close(iops("read"), &vm["read_iops"]) && close(iops("write"), &vm["write_iops"]));
        let time = vm["time_s"].as_f64().expect("a time");
        let all = (requests + job["sync"]["total_ios"].as_u64().expect("a count")) as f64;
        assert!((all / time - vm["iops"].as_f64().expect("a rate")).abs() < 1e-6);
        let shares = ["latency_ns", "latency_us", "latency_ms"];
        let shares = shares
            .iter()
            .flat_map(|unit| job[unit].as_object().expect("shares").values());
        let sum: f64 = shares.filter_map(Value::as_f64).sum();
        assert!((sum - 100.0).abs() < 1e-6, "{sum}");
    }
    // Without the export the report is the same.
    let (same, _) = exported("--responses", &[]);
    assert_eq!(same, report);
}

#[test]
fn latencies_are_written_as_a_log_of_histograms() {
    let (report, text) = exported("--hdr-log", &[]);
    assert!(
        text.starts_with("#[Histogram log format version 1.3]\n"),
        "{text}"
    );
    let mut sums: BTreeMap<String, Histogram<u64>> = BTreeMap::new();
    let mut lines = 0;
    for entry in IntervalLogIterator::new(text.as_bytes()) {
        let LogEntry::Interval(interval) = entry.expect("a right line") else {
            continue;
        };
        lines += 1;
        assert_eq!(interval.duration(), Duration::from_secs(1));
        let tag = interval.tag().expect("a VM").as_str().to_owned();
        let bytes = STANDARD
            .decode(interval.encoded_histogram())
            .expect("base64");
        let histogram: Histogram<u64> = Deserializer::new()
            .deserialize(&mut &bytes[..])
            .expect("a histogram");
        let longest = histogram.max() as f64 / 1e6;
        assert!(interval.max() <= longest && interval.max() > longest * 0.98);
        match sums.get_mut(&tag) {
            Some(sum) => sum.add(&histogram).expect("equal bounds"),
            None => drop(sums.insert(tag, histogram)),
        }
    }
    let vms = report["vms"].as_array().expect("VMs");
    assert_eq!((sums.len(), lines), (vms.len(), vms.len() * 5));
    for vm in vms {
        let sum = &sums[vm["name"].as_str().expect("a name")];
        let rate = vm["iops"].as_f64().expect("a rate");
        let time = vm["time_s"].as_f64().expect("a time");
        assert_eq!(sum.len(), (rate * time).round() as u64);
        // The report knows the longest latency exactly, the histogram the end of its bucket.
        let longest = vm["latency_max_ns"].as_u64().expect("a time");
        assert_eq!(
            vm["latency_p99_ns"],
            sum.value_at_quantile(0.99).min(longest)
        );
    }
}

#[test]
fn a_file_that_cannot_be_written_is_an_error_before_the_run() {
    let dir = tempfile::tempdir().expect("a directory");
    let scenario = dir.path().join("s.toml");
    std::fs::write(&scenario, SMALL).expect("it is written");
    let scenario = scenario.to_str().expect("text");
    let none = refused(&["sim", scenario, "--hdr-log", "no-such-directory/log"]);
    assert!(none.contains("no-such-directory"), "{none}");
}
