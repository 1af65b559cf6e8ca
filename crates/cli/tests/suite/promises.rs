//! `tidegate promises` with mixes of files and random ones, from outside.

use serde_json::Value;

use crate::common::{stderr, stdout, tidegate};

const OWN: &str = r#"
[[vm]]
name = "db"
disk = [{ size = "20 GiB" }]
objective = { reservation = "{iops 5 % random read 8 KiB}" }
workload = [{ rw = "randread", bs = "8 KiB", iodepth = 4 }]

[[vm]]
name = "copy"
disk = [{ size = "20 GiB" }]
workload = [{ rw = "write", bs = "1 MiB", iodepth = 4 }]
"#;

/// Options for the shortest run of a cell.
const ONE_CELL: [&str; 13] = [
    "promises",
    "--device",
    "hdd-7200-1tb",
    "--profile",
    "yes",
    "--rtt",
    "0 us",
    "--seeds",
    "1",
    "--seconds",
    "5",
    "--requests",
    "1",
];

#[test]
fn a_mix_of_a_file_is_judged_under_its_name_and_a_bad_one_is_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    let good = dir.path().join("my-host.toml");
    std::fs::write(&good, OWN).expect("writable");
    let good = good.to_str().expect("plain");
    let judged = tidegate(&[&ONE_CELL[..], &["--mix", good, "-o", "json"]].concat());
    assert!(judged.status.success(), "{}", stderr(&judged));
    let cells: Value = serde_json::from_str(&stdout(&judged)).expect("JSON");
    assert_eq!(cells.as_array().map(Vec::len), Some(1));
    assert_eq!(cells[0]["mix"], "my-host");
    assert_eq!(cells[0]["vms"][0]["promises"][0]["part"], "floor");

    let bad = dir.path().join("bad.toml");
    std::fs::write(&bad, OWN.replace("5 % random", "5 random")).expect("writable");
    let bad = bad.to_str().expect("plain");
    // The good mix comes first and is not run either.
    let both = format!("{good},{bad}");
    let refused = tidegate(&[&ONE_CELL[..], &["--mix", &both]].concat());
    assert_eq!(refused.status.code(), Some(1));
    let message = stderr(&refused);
    for part in [
        "{iops 5 random read 8 KiB} is no figure of a mix",
        &format!("--> {bad}:5:"),
        "help: ",
    ] {
        assert!(message.contains(part), "{part}: {message}");
    }
    assert!(!message.contains("promises kept"), "{message}");

    let missing = tidegate(&[&ONE_CELL[..], &["--mix", "./no-such.toml"]].concat());
    assert_eq!(missing.status.code(), Some(1));
    let message = stderr(&missing);
    assert!(message.contains("cannot read ./no-such.toml"), "{message}");
    assert!(message.contains("help: "), "{message}");

    let twice = format!("{good},{good}");
    let refused = tidegate(&[&ONE_CELL[..], &["--mix", &twice]].concat());
    let message = stderr(&refused);
    assert!(message.contains("another mix is named"), "{message}");
}

#[test]
fn a_random_mix_is_printed_as_the_same_scenario_each_time() {
    let scenario = |more: &[&str]| {
        let printed = tidegate(&[&ONE_CELL[..], &["--scenario"], more].concat());
        assert!(printed.status.success(), "{}", stderr(&printed));
        stdout(&printed)
    };
    let first = scenario(&["--random", "3", "--mix-seed", "7"]);
    assert!(first.contains("Random mix 1 of seed 7"), "{first}");
    assert_eq!(first, scenario(&["--random", "1", "--mix-seed", "7"]));
    assert_eq!(first, scenario(&["--mix", "random-7-1"]));
    assert_ne!(first, scenario(&["--mix", "random-7-2"]));
    let both = tidegate(&["promises", "--random", "1", "--mix", "web"]);
    assert_eq!(both.status.code(), Some(2));
}
