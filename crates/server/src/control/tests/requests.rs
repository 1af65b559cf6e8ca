//! Request types of [`tidegate_api`]: the daemon accepts every field of each under the same name.

use std::collections::BTreeMap;

use serde::Serialize;
use tidegate_api::change::{
    BurstChange, Change, ExpectsChange, GroupChange, LimitChange, LimitValue, ObjectiveChange,
    ScheduleEntry,
};
use tidegate_api::disk::{DiskRequest, SizeRequest};
use tidegate_api::fault::FaultRequest;
use tidegate_api::policy::PolicyRequest;
use tidegate_api::query::{
    BUCKETS_OF_MAX, ChangeQuery, HistoriesQuery, LearntQuery, StatsQuery, TransferQuery,
};
use tidegate_api::stats::{StatsView, TimeView};
use tidegate_api::transfer::TransferRequest;
use tidegate_api::vm::{DEFAULT_MAX_CONNECTIONS, VmRequest};
use tidegate_core::request::Lane;
use tidegate_core::stats::VmStats;

use super::*;
use crate::common::{Server, single, wait};
use crate::config::{self, DeviceKind, PathsConfig};

fn text(text: &str) -> Option<String> {
    Some(text.to_owned())
}

fn set(text: &str) -> Change<String> {
    Change::Set(text.to_owned())
}

fn json(request: &impl Serialize) -> Value {
    serde_json::to_value(request).expect("plain data")
}

/// Returns an objective with all parts set.
fn objective() -> ObjectiveChange {
    ObjectiveChange {
        reservation: set("120 IOPS @ 16 KiB"),
        limit: Change::Set(LimitChange {
            total: set("500 IOPS"),
            read: set("40 MB/s"),
            write: set("20 MB/s"),
            burst: Change::Set(BurstChange {
                total: set("2000 IOPS"),
                read: set("80 MB/s"),
                write: set("40 MB/s"),
                length: set("10 s"),
            }),
        }),
        target: set("300 IOPS"),
        weight: Change::Set(30),
        group: Change::Set(GroupChange {
            name: set("servers"),
            weight: Change::Set(200),
        }),
        latency: set("12.5 ms"),
        priority: set("idle"),
        expects: Change::Set(ExpectsChange {
            reads: set("70 %"),
            access: set("random"),
            size: set("16 KiB"),
            iops: Change::Set(500),
            burst: Change::Set(8),
        }),
        schedule: Change::Set(vec![ScheduleEntry {
            at: text("2036-12-01T18:00"),
            until: text("2036-12-02T06:00"),
            parts: ObjectiveChange {
                weight: Change::Set(7),
                ..ObjectiveChange::default()
            },
            ..ScheduleEntry::default()
        }]),
        timezone: set("UTC"),
    }
}

fn fault() -> FaultRequest {
    FaultRequest {
        on: vec!["write".to_owned()],
        from: text("0 B"),
        length: text("64 KiB"),
        every: Some(100),
        probability: text("1 %"),
        seed: Some(7),
        after: text("10 s"),
        lasts: text("5 s"),
        count: Some(3),
        stall: text("2 s"),
        error: text("EIO"),
        torn: text("512 B"),
    }
}

#[tokio::test]
async fn every_part_of_an_objective_is_taken_and_shown_again() {
    let plane = Pretended::new();
    let body = json(&objective()).to_string();
    let query = ChangeQuery {
        force: true,
        persist: true,
    };
    let path = format!("/v1/vms/oltp/objective{query}");
    let (status, vm) = ask(&plane, "PATCH", &path, &body).await;
    assert_eq!(status, StatusCode::OK, "{vm}");
    let shown: tidegate_api::vm::VmView = serde_json::from_value(vm).expect("a VM");
    let limit = shown.objective.limit.expect("it is set");
    assert_eq!(limit.burst.expect("it is set").length, "10 s");
    assert_eq!(shown.objective.group.expect("it is set").weight, 200);
    assert_eq!(shown.schedule.expect("it is set").entries.len(), 1);
    // Everything is removed again.
    let nothing = ObjectiveChange {
        reservation: Change::Remove,
        limit: Change::Remove,
        target: Change::Remove,
        weight: Change::Remove,
        group: Change::Remove,
        latency: Change::Remove,
        priority: Change::Remove,
        expects: Change::Remove,
        schedule: Change::Remove,
        timezone: Change::Remove,
    };
    let body = json(&nothing).to_string();
    let (status, vm) = ask(&plane, "PATCH", &path, &body).await;
    assert_eq!(status, StatusCode::OK, "{vm}");
    let (_, plain) = ask(&plane, "GET", "/v1/vms/bulk", "").await;
    assert_eq!(vm["objective"], plain["objective"]);
}

#[tokio::test]
async fn every_field_of_an_entry_is_taken() {
    let plane = Pretended::new();
    let entry = ScheduleEntry {
        from: text("18:00"),
        until: text("23:00"),
        days: vec!["mon".to_owned(), "fri".to_owned()],
        force: true,
        parts: ObjectiveChange {
            target: set("50 MB/s"),
            timezone: set("UTC"),
            ..ObjectiveChange::default()
        },
        ..ScheduleEntry::default()
    };
    let body = json(&entry).to_string();
    let (status, vm) = ask(&plane, "POST", "/v1/vms/oltp/schedule", &body).await;
    assert_eq!(status, StatusCode::OK, "{vm}");
    let shown = vm["schedule"]["entries"][0].clone();
    let shown: ScheduleEntry = serde_json::from_value(shown).expect("it reads as an entry");
    let parts = ObjectiveChange {
        timezone: Change::Keep,
        ..entry.parts.clone()
    };
    assert_eq!(shown, ScheduleEntry { parts, ..entry });
    assert_eq!(vm["schedule"]["timezone"], "UTC");
}

#[test]
fn every_field_of_a_vm_and_its_disks_is_taken() {
    let device = "[[listen]]\nunix = \"s\"\n[[device]]\nname = \"disk0\"\nkind = \"file\"\n\
                  [[device.limit_group]]\nname = \"logs\"\nlimit = \"1000 IOPS\"\n";
    let devices = config::parse(device, "t", Path::new("/")).expect("good");
    let disk = DiskRequest {
        export: text("logs"),
        path: text("logs.raw"),
        size: text("20 GiB"),
        create: text("sparse"),
        format: text("raw"),
        read_only: Some(false),
        incoming: Some(false),
        block_size: text("4 KiB"),
        limit: Some(LimitValue::Total("300 IOPS".to_owned())),
        limit_group: text("logs"),
        fault: vec![fault()],
        other: BTreeMap::new(),
    };
    let mut vm = VmRequest {
        name: text("oltp"),
        device: text("disk0"),
        background: false,
        max_connections: Some(7),
        objective: objective(),
        disk: vec![disk],
    };
    let read = |vm: &VmRequest| {
        let paths = PathsConfig::of_directory(Path::new("/vm"));
        config::vm::from_json(&json(vm), &devices.config.devices, &paths)
    };
    let config = read(&vm).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!((config.max_connections, config.objective.weight), (7, 30));
    let disk = &config.disks[0];
    assert_eq!((disk.export.as_str(), disk.block_size), ("logs", 4096));
    assert_eq!(disk.path.as_deref(), Some(Path::new("/vm/logs.raw")));
    assert_eq!(disk.faults.len(), 1);
    (vm.background, vm.max_connections) = (true, None);
    vm.objective = ObjectiveChange::default();
    let config = read(&vm).unwrap_or_else(|error| panic!("{error}"));
    assert!(config.background);
    assert_eq!(config.max_connections, DEFAULT_MAX_CONNECTIONS);
    vm.disk[0].other.insert("colour".to_owned(), json!("red"));
    let refused = read(&vm).expect_err("no such key").to_string();
    assert!(refused.contains("unknown key `colour`"), "{refused}");
}

#[tokio::test]
async fn every_field_of_a_transfer_a_fault_rule_and_a_policy_is_taken() {
    let plane = Pretended::new();
    let query = TransferQuery {
        replace: true,
        force: true,
    };
    let path = format!("/v1/vms/oltp/job{query}");
    for (deadline, by) in [(text("60 s"), None), (None, text("14:03"))] {
        let request = TransferRequest {
            size: "2 GiB".to_owned(),
            deadline,
            by,
            ..TransferRequest::default()
        };
        let (status, transfer) = ask(&plane, "PUT", &path, &json(&request).to_string()).await;
        assert_eq!(status, StatusCode::CREATED, "{transfer}");
    }
    let request = TransferRequest {
        size: "2 GiB".to_owned(),
        tolerance: Some(0.3),
        ..TransferRequest::default()
    };
    // The simulated devices are not measured, so the request is refused, but it was parsed.
    let (status, refused) = ask(&plane, "PUT", &path, &json(&request).to_string()).await;
    assert_eq!(status, StatusCode::CONFLICT, "{refused}");

    let body = json(&fault()).to_string();
    let (status, disk) = ask(&plane, "POST", "/v1/disks/oltp/faults", &body).await;
    assert_eq!(status, StatusCode::OK, "{disk}");
    assert_eq!(disk["rules"][0]["for"], "5 s");

    let mut policy = PolicyRequest {
        name: text("mclock"),
        ..PolicyRequest::default()
    };
    policy
        .params
        .insert("cost_size".to_owned(), json!("64 KiB"));
    let path = "/v1/devices/disk0/policy";
    let (status, device) = ask(&plane, "PUT", path, &json(&policy).to_string()).await;
    assert_eq!(
        (status, &device["policy"]["name"]),
        (StatusCode::OK, &json!("mclock"))
    );
    let parts = PolicyRequest {
        regulator: text("token-bucket"),
        dispatcher: text("mclock"),
        ..PolicyRequest::default()
    };
    let (status, device) = ask(&plane, "PUT", path, &json(&parts).to_string()).await;
    assert_eq!(status, StatusCode::OK, "{device}");
    assert_eq!(device["policy"]["regulator"], "token-bucket");
}

#[tokio::test]
async fn histories_of_several_vms_are_one_answer_with_those_that_are_missing() {
    let settings = crate::history::Settings::new(None, 1 << 20);
    let history = crate::history::History::start(&settings, |_| Vec::new()).expect("threads");
    let mut plane = Pretended::new();
    plane.history = Some(history.clone());
    let query = HistoriesQuery {
        vm: ["dss", "ghost", "oltp"].map(str::to_owned).to_vec(),
        from: text("-5m"),
        step: text("10s"),
        ..HistoriesQuery::default()
    };
    let (status, found) = ask(&plane, "GET", &format!("/v1/history/vms{query}"), "").await;
    assert_eq!(status, StatusCode::OK, "{found}");
    let names: Vec<&Value> = found["vms"].as_array().into_iter().flatten().collect();
    let names: Vec<&Value> = names.iter().map(|vm| &vm["vm"]).collect();
    assert_eq!(names, ["dss", "oltp"]);
    assert_eq!(found["missing"], json!(["ghost"]));
    let many = HistoriesQuery {
        vm: (0..32).map(|i| format!("vm{i}")).collect(),
        from: text("-10h"),
        step: text("60s"),
        ..HistoriesQuery::default()
    };
    let (status, refused) = ask(&plane, "GET", &format!("/v1/history/vms{many}"), "").await;
    assert_eq!(status, StatusCode::BAD_REQUEST, "{refused}");
    assert!(refused.to_string().contains("fewer VMs"), "{refused}");
    history.stop();
}

#[tokio::test]
async fn a_size_and_every_query_are_taken() {
    let plane = Pretended::new();
    let size = SizeRequest {
        size: "2 GiB".to_owned(),
    };
    let path = "/v1/vms/oltp/disks/oltp";
    let (status, vm) = ask(&plane, "PATCH", path, &json(&size).to_string()).await;
    assert_eq!(
        (status, &vm["disks"][0]["size_bytes"]),
        (StatusCode::OK, &json!(2_u64 << 30))
    );
    let query = StatsQuery {
        buckets: true,
        interval: text("10s"),
        ..StatsQuery::default()
    };
    let (status, stats) = ask(&plane, "GET", &format!("/v1/stats{query}"), "").await;
    assert_eq!(
        (status, &stats["vms"][0]["precision"]["interval_s"]),
        (StatusCode::OK, &json!(10))
    );
    for (vm, device, status, names) in [
        (None, Some("disk0"), StatusCode::OK, &["oltp", "bulk"][..]),
        (Some("bulk"), None, StatusCode::OK, &["bulk"]),
        (Some("dss"), Some("disk1"), StatusCode::OK, &["dss"]),
        (Some("dss"), Some("disk0"), StatusCode::NOT_FOUND, &[]),
        (Some("none"), None, StatusCode::NOT_FOUND, &[]),
        (None, Some("none"), StatusCode::NOT_FOUND, &[]),
    ] {
        let query = StatsQuery {
            vm: vm.map(str::to_owned),
            device: device.map(str::to_owned),
            ..StatsQuery::default()
        };
        let before = plane.asked();
        let path = format!("/v1/stats{query}");
        let (is, stats) = ask(&plane, "GET", &path, "").await;
        assert_eq!(is, status, "{path}: {stats}");
        let vms = stats["vms"].as_array().into_iter().flatten();
        assert_eq!(vms.map(|vm| &vm["vm"]).collect::<Vec<_>>(), names);
        assert!(plane.asked() <= before + 1, "{path}: one device alone");
    }
    let (_, file) = ask(&plane, "GET", "/v1/vms/oltp/learnt", "").await;
    for (disks, note) in [
        (LearntDisks::Detect, "Detect"),
        (LearntDisks::Same, "Same"),
        (LearntDisks::Different, "Different"),
    ] {
        let path = format!("/v1/vms/dss/learnt{}", LearntQuery { disks });
        let (_, vm) = ask(&plane, "PUT", &path, &file.to_string()).await;
        assert_eq!(vm["notes"], json!([note]));
    }
}

/// Returns the counters of a VM that a daemon has served reads and writes for.
fn served() -> Box<VmStats> {
    let dir = tempfile::tempdir().expect("a directory");
    let server = Server::start(single(dir.path(), DeviceKind::Memory, None, 1 << 20));
    let mut client = server.connect("disk");
    for i in 0..8 {
        client.write(i * 4096, &[1; 4096]);
        client.read(i * 4096, 4096);
    }
    let stats = wait(server.handle.snapshot(0)).expect("the loop runs").vms[0]
        .stats
        .clone();
    server.stop().expect("every disk is flushed");
    stats
}

/// Adds up histograms bucket by bucket.
fn sum_of<'a>(times: impl Iterator<Item = &'a TimeView>) -> (u64, BTreeMap<u64, u64>) {
    let mut buckets = BTreeMap::new();
    let mut count = 0;
    for time in times {
        count += time.count;
        for &(upper_ns, requests) in &time.buckets {
            *buckets.entry(upper_ns).or_default() += requests;
        }
    }
    (count, buckets)
}

#[tokio::test]
async fn times_of_a_device_are_those_of_all_its_vms_in_both_directions() {
    let plane = Pretended::new();
    // The daemon's handle waits on a thread that is no runtime's.
    let stats = std::thread::spawn(served).join().expect("it is served");
    for lane in [Lane::Read, Lane::Write] {
        assert!(stats.service_time(lane).count() > 0, "{lane:?}");
    }
    plane.with(|devices| {
        for vm in devices.iter_mut().flat_map(|device| &mut device.vms) {
            vm.stats = stats.clone();
        }
    });
    let names = ["oltp", "bulk", "dss"].map(str::to_owned);
    let query = StatsQuery {
        buckets_of: names.into(),
        ..StatsQuery::default()
    };
    let (_, answer) = ask(&plane, "GET", &format!("/v1/stats{query}"), "").await;
    let answer: StatsView = serde_json::from_value(answer).expect("counters");
    assert_eq!(answer.devices.len(), 2);
    for device in &answer.devices {
        let vms = answer.vms.iter().filter(|vm| vm.device == device.device);
        let lanes = vms.flat_map(|vm| [&vm.service_time.read, &vm.service_time.write]);
        let found = sum_of(std::iter::once(&device.service_time));
        assert_eq!(found, sum_of(lanes), "{}", device.device);
    }
}

#[tokio::test]
async fn buckets_of_some_vms_are_an_answer_that_is_not_that_of_all() {
    let plane = Pretended::new();
    plane.with(|devices| {
        for device in devices.iter_mut() {
            for vm in &mut device.vms {
                // A bucket each.
                for bits in 10..30 {
                    vm.stats.latency.record(Nanos(1 << bits));
                }
            }
        }
    });
    let ask_for = |query: StatsQuery| {
        let path = format!("/v1/stats{query}");
        let plane = plane.clone();
        async move { ask(&plane, "GET", &path, "").await }
    };
    let of = |names: &[&str]| StatsQuery {
        buckets_of: names.iter().map(|&name| name.to_owned()).collect(),
        ..StatsQuery::default()
    };
    let (_, none) = ask_for(StatsQuery::default()).await;
    let all = StatsQuery {
        buckets: true,
        ..StatsQuery::default()
    };
    let (_, all) = ask_for(all).await;
    let (status, two) = ask_for(of(&["oltp", "dss", "removed by now"])).await;
    assert_eq!(status, StatusCode::OK, "{two}");
    assert_eq!(
        two["vms"].as_array().map(Vec::len),
        Some(3),
        "counters of all"
    );
    for (i, name) in ["oltp", "bulk", "dss"].into_iter().enumerate() {
        assert_eq!(two["vms"][i]["vm"], *name);
        let is_wanted = name != "bulk";
        let buckets = |stats: &Value| stats["vms"][i]["latency"]["buckets"].clone();
        assert_eq!(buckets(&none), Value::Null);
        let expected = if is_wanted {
            buckets(&all)
        } else {
            Value::Null
        };
        assert_eq!(buckets(&two), expected, "{name}");
        assert_eq!(buckets(&all).as_array().map(Vec::len), Some(20));
    }
    let devices = two["devices"].as_array().expect("times of devices");
    let names: Vec<&Value> = devices.iter().map(|it| &it["device"]).collect();
    assert_eq!(names, ["disk0", "disk1"]);
    assert_eq!(all["devices"], Value::Null);
    let one = StatsQuery {
        device: text("disk0"),
        ..of(&["oltp"])
    };
    let (_, one) = ask_for(one).await;
    assert_eq!(one["vms"].as_array().map(Vec::len), Some(2));
    assert_eq!(one["devices"].as_array().map(Vec::len), Some(1));
    let many: Vec<String> = (0..=BUCKETS_OF_MAX).map(|i| format!("vm{i}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let (status, refused) = ask_for(of(&many)).await;
    assert_eq!(status, StatusCode::BAD_REQUEST, "{refused}");
    assert!(refused.to_string().contains("?buckets=true"), "{refused}");
    let (status, _) = ask_for(of(&many[1..])).await;
    assert_eq!(status, StatusCode::OK);
}
