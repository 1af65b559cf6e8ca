//! `tidegate profile fit`: models made of recordings of devices that are known.

use std::path::Path;

use serde_json::Value;

use crate::common::{record, stderr, stdout, tidegate};

/// Device with VMs that read and write at random and in sequence, one request at a time and many.
fn scenario(model: &str, iodepth: u32, think: &str, duration: &str) -> String {
    format!(
        "duration = {duration:?}
[[device]]
name = \"disk0\"
model = {model:?}
policy = \"fifo\"
adaptive_depth = false
max_io_shared = \"off\"
[[vm]]
name = \"random\"
disk = [{{ size = \"100 GiB\" }}]
[[vm.workload]]
rw = \"randrw\"
iodepth = {iodepth}
thinktime = {{ distribution = \"exponential\", mean = \"{think}\" }}
[[vm]]
name = \"stream\"
disk = [{{ size = \"100 GiB\" }}]
[[vm.workload]]
rw = \"read\"
bs = \"64 KiB\"
thinktime = {{ distribution = \"exponential\", mean = \"20 ms\" }}
[[vm]]
name = \"log\"
disk = [{{ size = \"10 GiB\" }}]
[[vm.workload]]
rw = \"write\"
bs = \"16 KiB\"
fsync = 4
thinktime = {{ distribution = \"exponential\", mean = \"20 ms\" }}
"
    )
}

/// Fits a model to a recording; returns the path of the model and the answer.
fn fitted(dir: &Path, recording: &str, more: &[&str]) -> (String, Value) {
    let model = dir.join("fitted.toml").to_str().expect("text").to_owned();
    let fit = [
        "profile",
        "fit",
        recording,
        "--results",
        &model,
        "-o",
        "json",
    ];
    let done = tidegate(&[&fit[..], more].concat());
    assert!(done.status.success(), "{}", stderr(&done));
    (model, serde_json::from_slice(&done.stdout).expect("JSON"))
}

fn number(value: &Value) -> f64 {
    value
        .as_f64()
        .unwrap_or_else(|| panic!("a figure, not {value}"))
}

/// The recorded device is one of the catalogue: it is found, and what was held out is foretold.
#[test]
fn devices_of_the_catalogue_are_recognised() {
    for (model, iodepth, think, duration) in [
        ("hdd-7200-1tb", 4, "5 ms", "60 s"),
        ("nvme-1tb", 16, "500 us", "1 s"),
    ] {
        let dir = tempfile::tempdir().expect("a directory");
        let recording = record(dir.path(), &scenario(model, iodepth, think, duration));
        let (file, answer) = fitted(dir.path(), &recording, &["--budget", "2 s"]);
        assert_eq!(answer["start"], model);
        assert_eq!(answer["changed"], Value::Array(Vec::new()), "{model}");
        let after = &answer["after"];
        assert!(number(&after["close"]) > 0.95, "{model}: {after}");
        assert!(number(&after["unexplained"]) < 0.05, "{model}: {after}");
        // The file is a model for every command that takes one.
        let replayed = tidegate(&["whatif", &recording, "--device", &file, "-o", "json"]);
        let replayed: Value = serde_json::from_slice(&replayed.stdout).expect("JSON");
        assert_eq!(replayed["device"], "fitted");
        for error in ["throughput_error", "latency_error"] {
            assert!(
                number(&replayed["reproduction"][error]) < 0.1,
                "{model}: {replayed}"
            );
        }
    }
}

/// Writes a device of the catalogue with other figures as a device of its own.
fn another(dir: &Path, of: &str, figures: &[(&str, &str)]) -> String {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../devices/");
    let text = std::fs::read_to_string(format!("{root}{of}.toml")).expect("a device");
    let name = (format!("name = {of:?}"), "name = \"mine\"".to_owned());
    let figures = figures
        .iter()
        .map(|(was, is)| (format!("\n{was}"), format!("\n{is}")));
    let text = figures.chain([name]).fold(text, |text, (was, is)| {
        assert!(text.contains(&was), "{was}");
        text.replace(&was, &is)
    });
    let path = dir.join("mine.toml");
    std::fs::write(&path, text).expect("it is written");
    path.to_str().expect("text").to_owned()
}

/// The figures of a flash disk follow from the times of its I/Os, whose causes are few.
#[test]
fn a_flash_disk_of_its_own_is_foretold_io_by_io() {
    let dir = tempfile::tempdir().expect("a directory");
    let figures = [
        ("read = \"45 us\"", "read = \"70 us\""),
        ("program = \"590 us\"", "program = \"900 us\""),
        ("channels = 8", "channels = 16"),
        ("dies_per_channel = 4", "dies_per_channel = 2"),
        ("read_overhead = \"3500 ns\"", "read_overhead = \"8 us\""),
        (
            "write_overhead = \"15500 ns\"",
            "write_overhead = \"11 us\"",
        ),
        (
            "interface_rate = \"3.5 GB/s\"",
            "interface_rate = \"6 GB/s\"",
        ),
    ];
    let model = another(dir.path(), "nvme-1tb", &figures);
    let recording = record(dir.path(), &scenario(&model, 16, "300 us", "1 s"));
    let (_, answer) = fitted(dir.path(), &recording, &["--budget", "6 s"]);
    let (before, after) = (&answer["before"], &answer["after"]);
    assert!(number(&before["close"]) < 0.3, "{before}");
    assert!(number(&after["close"]) > 0.8, "{after}");
}

/// The angles at which I/Os end tell the rates of a hard disk's zones and where its platter was, so
/// that I/Os that wait for it are foretold one by one.
#[test]
fn a_hard_disk_of_its_own_is_foretold_io_by_io() {
    let dir = tempfile::tempdir().expect("a directory");
    let figures = [
        ("average = \"8.5 ms\"", "average = \"10.5 ms\""),
        ("full_stroke = \"14.7 ms\"", "full_stroke = \"20 ms\""),
        ("rotation = \"7200 rpm\"", "rotation = \"5400 rpm\""),
        ("outer_rate = \"175 MB/s\"", "outer_rate = \"130 MB/s\""),
        ("inner_rate = \"83 MB/s\"", "inner_rate = \"62 MB/s\""),
        (
            "command_overhead = \"0.3 ms\"",
            "command_overhead = \"0.7 ms\"",
        ),
    ];
    let model = another(dir.path(), "hdd-7200-1tb", &figures);
    let recording = record(dir.path(), &scenario(&model, 2, "20 ms", "60 s"));
    let (file, answer) = fitted(dir.path(), &recording, &["--budget", "6 s"]);
    let speed = std::fs::read_to_string(&file).expect("the model");
    assert!(speed.contains("rotation = \"5400 rpm\""), "{speed}");
    let after = &answer["after"];
    let ratio = number(&after["model_p50_ns"]) / number(&after["recorded_p50_ns"]);
    assert!((0.85..1.15).contains(&ratio), "{after}");
    assert!(number(&after["close"]) > 0.85, "{after}");
    for rate in ["outer_rate = \"130 MB/s\"", "inner_rate = \"62 MB/s\""] {
        assert!(speed.contains(rate), "{speed}");
    }
    let start = ["--device", &file, "--budget", "1 s"];
    let fit = ["profile", "fit", &recording, "--results", &file];
    let text = stdout(&tidegate(&[&fit[..], &start].concat()));
    assert!(text.contains("Not explained"), "{text}");
}
