//! Answers of a daemon with a device and two VMs, for tests.

use jiff::tz::TimeZone;
use serde_json::{Value, json};
use tidegate_api::stats::{StatsView, VmStatsView};
use tidegate_api::vm::VmView;

use super::answers::Answers;
use super::app::App;
use super::model::Model;
use super::rows::Choice;

/// Time of round 0: 2026-11-28 10:00:00 UTC.
const BEGIN_MS: u64 = 1_795_860_000_000;

/// Returns a histogram in which 1 of 60 requests is slow.
fn times(requests: u64, fast_ns: u64, slow_ns: u64) -> Value {
    let slow = requests / 60;
    json!({
        "count": requests, "mean_ns": fast_ns, "p50_ns": fast_ns, "p95_ns": fast_ns,
        "p99_ns": slow_ns, "p999_ns": slow_ns, "max_ns": slow_ns,
        "buckets": [[fast_ns, requests - slow], [slow_ns, slow]],
    })
}

/// Returns the counters of a VM after `round` seconds: 120 reads/s of `oltp`, 360 of another VM.
pub(super) fn stats(vm: &str, round: u64) -> VmStatsView {
    let is_oltp = vm == "oltp";
    let (iops, size) = if is_oltp { (120, 8192) } else { (360, 131_072) };
    let reads = iops * round;
    let op = |operation: &str, requests: u64| {
        json!({ "operation": operation, "requests": requests, "bytes": requests * size,
                "errors": 0, "arrived": requests })
    };
    let none = times(0, 0, 0);
    let both = |read: Value| json!({ "read": read, "write": none });
    let device_ns = if is_oltp { 250_000_000 } else { 750_000_000 };
    let behind = if is_oltp {
        json!([{ "vm": "bulk", "ns": 300_000_000 * round }])
    } else {
        json!([])
    };
    serde_json::from_value(json!({
        "vm": vm, "device": "nvme0", "policy": "slo", "taken_at_ns": 1_000_000_000 * (round + 1),
        "clients": 1, "pending": 3, "in_flight": 2,
        "operations": [op("read", reads), op("write", 0), op("flush", 0), op("discard", 0),
                       op("write_zeroes", 0)],
        "sequential_reads": 0, "sequential_writes": 0, "merged": 0, "split": 0, "cancelled": 0,
        "queue_time": both(times(reads, 500_000, 4_000_000)),
        "service_time": both(times(reads, 1_500_000, 16_000_000)),
        "latency": if is_oltp {
            times(reads, 2_000_000, 20_000_000)
        } else {
            times(reads, 5_000_000, 70_000_000)
        },
        "reply_time": both(times(0, 0, 0)),
        "account": { "regulated_ns": 0, "queued_ns": 350_000_000 * round, "merged_wait_ns": 0,
                     "deliberate_ns": 0, "device_ns": device_ns * round },
        "think_time_ns": 0, "waited_behind": behind, "sizes": [],
        "precision": { "seconds": 0, "idle_seconds": 0, "interval_s": 30 },
    }))
    .expect("complete")
}

/// Returns a judged part of an objective.
fn part(name: &str, kept_s: u64, missed_s: u64) -> Value {
    let percent = 100.0 * kept_s as f64 / (kept_s + missed_s) as f64;
    let budget = json!({ "judged_s": kept_s + missed_s, "missed_s": missed_s, "burn_rate": 0.5 });
    json!({
        "part": name, "kept": percent >= 99.0, "kept_percent": percent,
        "detail": format!("missed in {missed_s} of {} s", kept_s + missed_s),
        "kept_s": kept_s, "missed_s": missed_s,
        "missed_by_cause": { "own_limit": 0, "others": missed_s, "device": 0, "policy": 0 },
        "stalled_s": 0, "asked_less_s": 0, "requests": 0, "late": 0, "worst_late_ns": 0,
        "last_5_minutes": budget, "last_hour": budget, "last_day": budget,
    })
}

/// Returns a running deadline transfer of `bulk`.
fn transfer() -> Value {
    json!({
        "size_bytes": 2_147_483_648_u64, "moved_bytes": 1_073_741_824_u64,
        "bytes_per_s": 47_000_000, "begun": "2026-11-28T09:59:00+00:00[UTC]",
        "due": "2026-11-28T10:01:00+00:00[UTC]", "due_in_s": 60.0,
        "done": "2026-11-28T10:00:23+00:00[UTC]", "done_in_s": 23.0, "early_s": 37.0,
        "class": "best-effort", "enforced": true, "given_up": false, "possible": true,
        "forecast": "done at 10:00:23, 37 s early",
    })
}

/// Returns a VM: `oltp` with promises that are kept, or another one whose limit is missed.
fn vm(name: &str) -> VmView {
    let is_oltp = name == "oltp";
    let objective = if is_oltp {
        json!({ "reservation": "120 IOPS", "limit": null, "target": null, "weight": 100,
                "latency": "30 ms", "priority": "best-effort 4" })
    } else {
        json!({ "reservation": null,
                "limit": { "total": "40 MB/s", "read": null, "write": null, "burst": null },
                "target": null, "weight": 50, "latency": null, "priority": "best-effort 4" })
    };
    let attainment = if is_oltp {
        json!([part("reservation", 3600, 0), part("latency", 3599, 1)])
    } else {
        json!([part("limit", 90, 10)])
    };
    let mut vm = json!({
        "name": name, "device": "nvme0", "policy": "slo", "background": false,
        "objective": objective, "not_enforced": [], "clients": 1, "pending": 3, "in_flight": 2,
        "disks": [{ "export": name, "size_bytes": 21_474_836_480_u64 }],
        "attainment": attainment,
    });
    if !is_oltp {
        vm["job"] = transfer();
    }
    serde_json::from_value(vm).expect("complete")
}

fn device(round: u64) -> Value {
    json!({
        "name": "nvme0", "backing": "emulated nvme-1tb",
        "policy": { "name": "slo", "controller": null, "regulator": "open",
                    "dispatcher": "slo", "enforces": [], "params": [] },
        "depth": 32, "max_io_bytes": 131_072, "in_flight": 12, "requests": 18, "queued": 6,
        "started": 480 * round, "ended": 480 * round, "errors": 0, "deliberate_ns": 0,
        "adapted_depth": 16, "depth_reason": "full throughput", "vms": ["oltp", "bulk"],
        "not_enforced": [], "taken_at_ns": 1_000_000_000 * (round + 1),
    })
}

/// Returns the daemon's answers `round` seconds after the first.
pub(super) fn answers(round: u64) -> Answers {
    let at_ms = BEGIN_MS + 1000 * round;
    let seconds = json!({
        "device": "nvme0", "from_ms": at_ms - 1000, "to_ms": at_ms, "step_s": 1,
        "intervals": [{ "from_ms": at_ms - 1000, "to_ms": at_ms, "observed_ms": 1000,
                        "values": { "busy_us": 750_000 } }],
        "recorded": [],
    });
    let transfers = json!([{ "vm": "bulk", "device": "nvme0", "policy": "slo",
        "job": transfer(), "ended": { "met": 0, "missed": 0, "cancelled": 0 } }]);
    let health = json!({ "status": "ok", "problems": [], "reasons": [], "version": "0.1.0",
                         "uptime_s": 7000 + round });
    Answers {
        asked_ms: at_ms - 5,
        at_ms,
        health: serde_json::from_value(health).expect("complete"),
        devices: vec![serde_json::from_value(device(round)).expect("complete")],
        vms: vec![vm("oltp"), vm("bulk")],
        stats: StatsView {
            vms: vec![stats("oltp", round), stats("bulk", round)],
            devices: Vec::new(),
        },
        transfers: serde_json::from_value(transfers).expect("complete"),
        device_seconds: [(
            "nvme0".to_owned(),
            serde_json::from_value(seconds).expect("complete"),
        )]
        .into(),
    }
}

/// Returns a model after a second.
pub(super) fn model() -> Model {
    let mut model = Model::default();
    (0..2).for_each(|round| model.update(answers(round)));
    model
}

/// Returns a screen after a second.
pub(super) fn app() -> App {
    let place = "/run/tidegate/control.sock".to_owned();
    let mut app = App::new(Choice::default(), 1000, place, TimeZone::UTC);
    (0..2).for_each(|round| app.update(Ok(answers(round))));
    app
}
