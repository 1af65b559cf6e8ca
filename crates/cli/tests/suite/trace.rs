//! `tidegate trace` as its users meet it.

use serde_json::Value;

use crate::common::{recording, stderr, stdout, tidegate};

#[test]
fn a_trace_is_told_in_figures_and_a_bad_record_with_its_place() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("t.disksim");
    let path = file.to_str().expect("text");
    std::fs::write(&file, "0 0 0 8 1\n500000000 1 8 8 0\nthree words only\n")
        .expect("it is written");
    let bad = tidegate(&["trace", "info", path]);
    assert_eq!(bad.status.code(), Some(1));
    let message = stderr(&bad);
    assert!(
        message.contains("where: line 3") && message.contains("--skip-bad"),
        "{message}"
    );

    let text = stdout(&tidegate(&["trace", "info", path, "--skip-bad"]));
    assert!(
        text.contains("2, 50 % reads") && text.contains("line 3: 3 words"),
        "{text}"
    );
    let json = tidegate(&["trace", "info", path, "--skip-bad", "-o", "json"]);
    let json: Value = serde_json::from_slice(&json.stdout).expect("JSON");
    assert_eq!(
        (&json["format"], &json["skipped"]),
        (&"disksim".into(), &1.into())
    );
    assert_eq!(json["all"]["bytes"], 8192);
    assert_eq!(json["disks"][1]["name"], "1");

    std::fs::write(&file, "nothing of the sort\n").expect("it is written");
    let unknown = stderr(&tidegate(&["trace", "info", path]));
    assert!(unknown.contains("msr, disksim, vscsi"), "{unknown}");
    let missing = stderr(&tidegate(&["trace", "info", "no-such-file"]));
    assert!(missing.contains("no-such-file"), "{missing}");
}

/// Writes a trace of two disks, and returns the directory with its path.
fn trace_of_two_disks() -> (tempfile::TempDir, String) {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("t.csv");
    // 100 requests at intervals of 1 ms, by turns reads of disk 1 and writes of disk 2.
    let line = |n: u64| {
        let (disk, code) = if n.is_multiple_of(2) {
            (1, 'R')
        } else {
            (2, 'W')
        };
        format!("{disk},{code},{},4096,{}\n", n * 4096, n * 1000)
    };
    std::fs::write(&file, (0..100).map(line).collect::<String>()).expect("it is written");
    let path = file.to_str().expect("text").to_owned();
    (dir, path)
}

/// Runs a command that writes a trace; returns its JSON and the written text.
fn written(arguments: &[&str], out: &str) -> (Value, String) {
    let done = tidegate(&[arguments, &["-o", "json"]].concat());
    assert!(done.status.success(), "{}", stderr(&done));
    let json = serde_json::from_slice(&done.stdout).expect("JSON");
    (json, std::fs::read_to_string(out).expect("it is written"))
}

#[test]
fn a_trace_is_converted_cut_and_scaled() {
    let (dir, path) = trace_of_two_disks();
    let out = dir.path().join("out").to_str().expect("text").to_owned();
    let trace = |command, more: &[&str]| {
        written(
            &[&["trace", command, path.as_str(), out.as_str()], more].concat(),
            &out,
        )
    };
    let (json, text) = trace("convert", &["--as", "iolog", "--volume", "2"]);
    assert_eq!((&json["read"], &json["written"]), (&50.into(), &50.into()));
    assert!(text.starts_with("fio version 3 iolog\n0 2 add\n0 2 open\n0 2 write 4096 4096\n"));
    assert!(text.ends_with("98000 2 close\n"), "{text}");

    let (json, text) = trace("cut", &["--from", "10 ms", "--to", "20 ms", "--reads"]);
    assert_eq!(
        (&json["format"], &json["written"]),
        (&"alibaba".into(), &5.into())
    );
    assert!(text.starts_with("1,R,40960,4096,10000\n"), "{text}");

    let (json, text) = trace(
        "scale",
        &["--time", "2", "--count", "1/10", "--by", "request"],
    );
    assert_eq!((&json["read"], &json["written"]), (&100.into(), &10.into()));
    assert!(
        text.starts_with("1,R,0,4096,0\n1,R,40960,4096,20000\n"),
        "{text}"
    );
    let region = ["--count", "1/2", "--by", "region", "--region", "16 KiB"];
    let (first, text) = trace("scale", &region);
    assert_eq!(trace("scale", &region), (first, text));

    // A failed command leaves the file as it is.
    let before = std::fs::read_to_string(&out).expect("there");
    let beyond = tidegate(&["trace", "cut", &path, &out, "--from", "1 h"]);
    assert_eq!(beyond.status.code(), Some(1));
    assert!(
        stderr(&beyond).contains("no request is left"),
        "{}",
        stderr(&beyond)
    );
    let no_disk = tidegate(&["trace", "cut", &path, &out, "--disk", "3"]);
    assert!(
        stderr(&no_disk).contains("which has: 1, 2"),
        "{}",
        stderr(&no_disk)
    );
    let backwards = tidegate(&["trace", "cut", &path, &out, "--from", "2 s", "--to", "1 s"]);
    assert!(
        stderr(&backwards).contains("not after --from"),
        "{}",
        stderr(&backwards)
    );
    assert_eq!(std::fs::read_to_string(&out).expect("there"), before);
    let names: Vec<_> = std::fs::read_dir(dir.path())
        .expect("a directory")
        .collect();
    assert_eq!(names.len(), 2, "no part of a file stays");
}

#[test]
fn lint_exits_with_1_and_counts_what_it_found() {
    let (dir, path) = trace_of_two_disks();
    let clean = tidegate(&["trace", "lint", &path, "--block-size", "4 KiB"]);
    assert!(clean.status.success(), "{}", stderr(&clean));
    let small = tidegate(&[
        "trace",
        "lint",
        &path,
        "--disk-size",
        "390 KiB",
        "-o",
        "json",
    ]);
    assert_eq!(small.status.code(), Some(1));
    let json: Value = serde_json::from_slice(&small.stdout).expect("JSON");
    assert_eq!(json["findings"], 3);
    let check = json["checks"].as_array().expect("checks");
    let beyond = check.iter().find(|it| it["check"] == "beyond-disk");
    assert_eq!(
        beyond.expect("it is checked")["examples"][0]["place"],
        "line 98"
    );

    let bad = dir.path().join("bad.csv");
    std::fs::write(&bad, "1,R,0,0,5\n1,R,0,512,x\n1,R,0,512,7\n1,R,0,512,6\n").expect("written");
    let bad = tidegate(&["trace", "lint", bad.to_str().expect("text")]);
    let text = stdout(&bad);
    for found in [
        "line 1: a request of no bytes",
        "line 2: timestamp",
        "line 4: 1 us",
    ] {
        assert!(text.contains(found), "{text}");
    }
    assert!(stderr(&bad).contains("3 findings"), "{}", stderr(&bad));
}

#[test]
fn plots_of_a_trace_are_drawn_on_the_terminal_and_as_a_picture() {
    let (dir, path) = trace_of_two_disks();
    let svg = dir.path().join("t.svg");
    let svg = svg.to_str().expect("text");
    let drawn = tidegate(&["trace", "info", &path, "--plot", "--ascii", "--svg", svg]);
    let text = stdout(&drawn);
    for title in [
        "Requests over time",
        "Sizes of requests",
        "Heat of addresses",
    ] {
        assert!(text.contains(title), "{text}");
    }
    assert!(
        text.contains("o reads") && text.contains("x writes"),
        "{text}"
    );
    let picture = std::fs::read_to_string(svg).expect("it is written");
    assert!(picture.starts_with("<svg"), "{}", &picture[..40]);
    let one = stdout(&tidegate(&["trace", "info", &path, "--disk", "2"]));
    assert!(
        one.contains("50, 0 % reads") || one.contains("50, 0.0 % reads"),
        "{one}"
    );
}

/// Scenario in which requests end in another order than they came.
const REORDERED: &str = "
duration = \"20 s\"
[[device]]
name = \"disk\"
model = \"hdd-7200-1tb\"
policy = \"fifo\"
[[vm]]
name = \"oltp\"
disk = [{ size = \"1 GiB\" }]
[[vm.workload]]
rw = \"randrw\"
iodepth = 16
[[vm]]
name = \"log\"
disk = [{ size = \"1 GiB\" }]
[[vm.workload]]
rw = \"write\"
";

#[test]
fn a_recording_is_told_in_figures_and_checked() {
    let (_dir, path) = recording(REORDERED);
    let info = tidegate(&["trace", "info", &path, "-o", "json"]);
    let info: Value = serde_json::from_slice(&info.stdout).expect("JSON");
    assert_eq!(info["format"], "recording");
    let requests = info["all"]["requests"].as_u64().expect("a number");
    assert!(requests > 500, "{requests}");
    assert!(
        info["out_of_order"].as_u64().is_some_and(|n| n > 0),
        "the disk reorders"
    );
    let names: Vec<&str> = (info["disks"].as_array().expect("a list").iter())
        .filter_map(|disk| disk["name"].as_str())
        .collect();
    assert!(
        names.contains(&"oltp") && names.contains(&"log"),
        "{names:?}"
    );
    let plot = stdout(&tidegate(&["trace", "info", &path, "--plot", "--ascii"]));
    assert!(plot.contains("Heat of addresses"), "{plot}");

    // The order of ends is no finding.
    let clean = tidegate(&["trace", "lint", &path, "--disk-size", "1 GiB"]);
    assert!(
        clean.status.success(),
        "{}{}",
        stdout(&clean),
        stderr(&clean)
    );
    let small = tidegate(&["trace", "lint", &path, "--disk-size", "1 MiB", "-o", "json"]);
    let small: Value = serde_json::from_slice(&small.stdout).expect("JSON");
    let checks = small["checks"].as_array().expect("checks");
    let beyond = checks.iter().find(|check| check["check"] == "beyond-disk");
    let example = &beyond.expect("it is checked")["examples"][0]["place"];
    assert!(
        example
            .as_str()
            .is_some_and(|place| place.contains("request")),
        "{example}"
    );
}

#[test]
fn a_recording_is_converted_cut_and_scaled() {
    let (dir, path) = recording(REORDERED);
    let info = tidegate(&["trace", "info", &path, "-o", "json"]);
    let info: Value = serde_json::from_slice(&info.stdout).expect("JSON");
    let requests = info["all"]["requests"].as_u64().expect("a number");
    let out = dir.path().join("out").to_str().expect("text").to_owned();
    let trace = |command, more: &[&str]| {
        written(
            &[&["trace", command, path.as_str(), out.as_str()], more].concat(),
            &out,
        )
    };
    for format in ["msr", "disksim", "iolog", "alibaba"] {
        let (json, _) = trace("convert", &["--as", format]);
        assert_eq!(
            (&json["read"], &json["written"]),
            (&requests.into(), &requests.into())
        );
        let again = tidegate(&["trace", "info", &out, "-o", "json"]);
        let again: Value = serde_json::from_slice(&again.stdout).expect("JSON");
        let same = ["requests", "reads", "bytes", "footprint_bytes"];
        for figure in same {
            assert_eq!(
                again["all"][figure], info["all"][figure],
                "{format}: {figure}"
            );
        }
        // Written in the order of arrivals.
        assert_eq!(again["out_of_order"], 0, "{format}");
    }
    let (json, text) = trace("cut", &["--from", "5 s", "--to", "10 s", "--disk", "log"]);
    let kept = json["written"].as_u64().expect("a number");
    assert!((1..requests / 2).contains(&kept), "{json}");
    assert_eq!(json["format"], "msr", "a recording is not written");
    assert_eq!(text.lines().count() as u64, kept);
    let half = ["--time", "0.5", "--count", "1/2", "--by", "request"];
    let (json, _) = trace("scale", &half);
    let kept = json["written"].as_u64().expect("a number");
    assert!(kept.abs_diff(requests / 2) <= 1, "{json}");
}

#[test]
fn a_damaged_recording_is_named_with_what_is_missing() {
    let (dir, path) = recording(REORDERED);
    let mut bytes = std::fs::read(&path).expect("there");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0xff;
    std::fs::write(&path, bytes).expect("it is written");
    let found = stdout(&tidegate(&["trace", "lint", &path]));
    assert!(found.contains("requests are damaged"), "{found}");
    let out = dir.path().join("out").to_str().expect("text").to_owned();
    let convert = ["trace", "convert", &path, &out, "--as", "msr"];
    let refused = stderr(&tidegate(&convert));
    assert!(
        refused.contains("damaged") && refused.contains("--skip-bad"),
        "{refused}"
    );
    let skipped = tidegate(&[&convert[..], &["--skip-bad"]].concat());
    // With the only block damaged, nothing would be left.
    assert!(!skipped.status.success() || stdout(&skipped).contains("skipped"));
}
