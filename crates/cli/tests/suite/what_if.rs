//! `tidegate whatif` as its users meet it.

use serde_json::Value;

use crate::common::page::{assert_loads_nothing, body, sections, titles};
use crate::common::{recording, stderr, stdout, tidegate};

const SCENARIO: &str = "
duration = \"20 s\"
[[device]]
name = \"disk\"
model = \"hdd-7200-1tb\"
policy = \"fifo\"
[[vm]]
name = \"etcd\"
disk = [{ size = \"1 GiB\" }]
[[vm.workload]]
rw = \"randwrite\"
[[vm]]
name = \"backup\"
disk = [{ size = \"1 GiB\" }]
[[vm.workload]]
rw = \"read\"
bs = \"256 KiB\"
iodepth = 8
";

#[test]
fn a_policy_and_a_limit_are_tried_on_a_recording() {
    let (_dir, path) = recording(SCENARIO);
    let limit = ["--objective", "backup=limit=5 MB/s", "--policy", "mclock"];
    let arguments = [&["whatif", path.as_str()], &limit[..]].concat();
    let json = tidegate(&[&arguments[..], &["-o", "json"]].concat());
    assert!(json.status.success(), "{}", stderr(&json));
    let json: Value = serde_json::from_slice(&json.stdout).expect("JSON");
    for error in ["throughput_error", "latency_error"] {
        let error = json["reproduction"][error].as_f64().expect("an error");
        assert!(error <= 0.1, "{error}");
    }
    let [etcd, backup] = [0, 1].map(|index| &json["vms"][index]);
    assert_eq!(
        (&etcd["name"], &etcd["closed"]),
        (&"etcd".into(), &true.into())
    );
    assert_eq!((&etcd["depth"], &backup["depth"]), (&1.into(), &8.into()));
    let number = |value: &Value| value.as_f64().expect("a figure");
    let policies = etcd["policies"].as_array().expect("two runs");
    assert_eq!(policies.len(), 2);
    assert_eq!(
        (&policies[0]["own"], &policies[1]["own"]),
        (&true.into(), &false.into())
    );
    let [before, after] = [0, 1].map(|run| number(&policies[run]["p50_ns"]));
    assert!(after < before / 2.0, "{after} of {before}");
    let limited = number(&backup["policies"][1]["bytes_per_s"]);
    assert!((4.5e6..5.3e6).contains(&limited), "{limited}");
    let kept = &backup["policies"][1]["promises"][0];
    assert_eq!(
        (&kept["part"], &kept["kept"]),
        (&"limit".into(), &true.into())
    );

    let text = stdout(&tidegate(&arguments));
    for part in [
        "when answered",
        "fifo, own",
        "mclock",
        "1 of 1",
        "differs from the recording",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert_eq!(text, stdout(&tidegate(&arguments)));
}

#[test]
fn limits_of_disks_that_are_not_replayed_are_named_once() {
    let limited = SCENARIO.replacen(
        "size = \"1 GiB\"",
        "size = \"1 GiB\", limit = \"30 IOPS\"",
        1,
    );
    let note = "Disks of etcd have limits, which are not replayed";
    let choose = [
        "--choose",
        "--budget",
        "1 s",
        "--objective",
        "etcd=latency=1 s",
    ];
    for arguments in [&["--policy", "mclock,drr"][..], &choose] {
        for (scenario, notes) in [(SCENARIO, 0), (&limited, 1)] {
            let (_dir, path) = recording(scenario);
            let arguments = [&["whatif", path.as_str()], arguments].concat();
            let done = tidegate(&arguments);
            assert!(done.status.success(), "{}", stderr(&done));
            let text = stdout(&done);
            assert_eq!(text.matches(note).count(), notes, "{text}");
        }
    }
}

#[test]
fn a_recording_that_is_damaged_is_refused_unless_gaps_are_allowed() {
    let (_dir, path) = recording(SCENARIO);
    let mut bytes = std::fs::read(&path).expect("there");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0xff;
    std::fs::write(&path, bytes).expect("it is written");
    let refused = tidegate(&["whatif", &path]);
    assert_eq!(refused.status.code(), Some(1));
    let message = stderr(&refused);
    assert!(
        message.contains("1 gap") && message.contains("--allow-gaps"),
        "{message}"
    );
    let allowed = stdout(&tidegate(&["whatif", &path, "--allow-gaps"]));
    assert!(allowed.contains("The recording has 1 gap"), "{allowed}");
}

#[test]
fn mistakes_are_named_with_what_would_be_right() {
    let (_dir, path) = recording(SCENARIO);
    for (arguments, part) in [
        (
            &["--objective", "mail=weight=5"][..],
            "it has: etcd, backup",
        ),
        (&["--objective", "etcd=latency"], "VM=PART=VALUE"),
        (&["--objective", "etcd=latency=soon"], "latency"),
        (&["--device", "none"], "model"),
        (&["--policy", "none"], "none"),
    ] {
        let refused = tidegate(&[&["whatif", path.as_str()], arguments].concat());
        assert!(!refused.status.success());
        let message = stderr(&refused);
        assert!(message.contains(part), "{arguments:?}: {message}");
    }
    let other = tidegate(&["whatif", "Cargo.toml"]);
    assert!(
        stderr(&other).contains("not a recording"),
        "{}",
        stderr(&other)
    );
}

#[test]
fn a_page_shows_each_vm_under_each_policy_and_changes_no_result() {
    let (dir, path) = recording(SCENARIO);
    let page = dir.path().join("out.html");
    let page_name = page.to_str().expect("text");
    let arguments = ["whatif", &path, "--policy", "mclock,slo", "-o", "json"];
    let without = tidegate(&arguments);
    let with = tidegate(&[&arguments[..], &["--report", page_name]].concat());
    assert!(with.status.success(), "{}", stderr(&with));
    assert_eq!(stdout(&with), stdout(&without));
    let html = std::fs::read_to_string(&page).expect("it is written");
    let document = roxmltree::Document::parse(body(&html)).expect("well-formed");
    assert_eq!(
        sections(&document),
        ["summary", "results", "replay", "each-vm"]
    );
    assert_loads_nothing(&html);
    let of_vm = [
        "Requests per second",
        "Latency, 99th percentile",
        "Distribution of latency",
    ];
    // Of `etcd`, then of `backup`, whose requests are large.
    let second = ["Throughput", of_vm[1], of_vm[2]];
    assert_eq!(titles(&document), [of_vm, second].concat());
    for run in ["fifo, own", "mclock", "slo"] {
        assert!(html.contains(&format!(">{run}</text>")), "{run}");
    }
}
