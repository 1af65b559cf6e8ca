//! Files of `tidegate place` that earlier builds wrote.

use serde_json::json;

use super::Site;

/// Two hosts, one of them drained, three jobs that run, one that waits, and intervals learnt of
/// both hosts: written by commit dd01865 with `place job`, `place moved` and `place host drain`.
const VERSION_1: &[u8] = include_bytes!("../../fixtures/place-v1.redb");

fn site() -> Site {
    let site = Site::new();
    std::fs::write(site.0.path().join("tidegate-place.redb"), VERSION_1).expect("writable");
    site
}

#[test]
fn a_file_of_version_1_keeps_its_hosts_and_jobs() {
    let site = site();
    let list = site.json(&["list"]);
    let hosts = list["hosts"].as_array().expect("a list");
    let found: Vec<_> = hosts
        .iter()
        .map(|host| {
            let jobs = host["jobs"].as_array().expect("a list");
            let jobs: Vec<_> = jobs.iter().map(|job| &job["name"]).collect();
            json!([host["host"], host["drained"], jobs])
        })
        .collect();
    assert_eq!(
        found,
        [
            json!(["a", false, ["scan", "index"]]),
            json!(["b", true, ["backup"]]),
        ]
    );
    // For machines whose clocks are behind that of the one that wrote the file.
    site.good(&["repair-times"]);
    let text = site.good(&["end", "index"]);
    assert!(text.contains("scan"), "{text}");
    let left = site.json(&["list"]);
    let jobs = left["hosts"][0]["jobs"].as_array().expect("a list");
    assert!(jobs.iter().all(|job| job["name"] != "index"), "{left}");
}

#[test]
fn a_file_of_version_1_keeps_what_was_learnt() {
    let learnt = site().json(&["db"]);
    let rates: Vec<_> = [0, 1]
        .map(|host| {
            let known = &learnt[host]["entries"][0];
            json!([known["best_effort"], known["intervals"]])
        })
        .into();
    assert_eq!(
        rates,
        [
            json!([{"jobs": 2, "bytes_per_s": 19_021_055}, 1]),
            json!([{"jobs": 1, "bytes_per_s": 68_763_184}, 2]),
        ]
    );
}
