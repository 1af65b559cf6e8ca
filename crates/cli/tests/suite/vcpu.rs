//! `tidegate vcpu`, as it is typed.

use std::path::Path;
use std::process::Output;

use crate::common::tidegate;

fn example() -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    root.join("examples/vcpu/mixed.toml").display().to_string()
}

fn sim(more: &[&str]) -> Output {
    let file = example();
    let words = ["vcpu", "sim", &file];
    tidegate(&words.iter().chain(more).copied().collect::<Vec<_>>())
}

/// Names of all schedulers, as they are listed.
fn schedulers() -> Vec<String> {
    let listed = tidegate(&["vcpu", "list", "-o", "json"]);
    assert!(listed.status.success(), "{listed:?}");
    let listed: serde_json::Value = serde_json::from_slice(&listed.stdout).expect("JSON");
    let listed = listed.as_array().expect("a list");
    let name = |info: &serde_json::Value| info["name"].as_str().expect("a name").to_owned();
    listed.iter().map(name).collect()
}

#[test]
fn schedulers_are_listed_with_their_parameters() {
    let known = ["credit", "credit2", "isacs", "credit2-io"];
    assert_eq!(schedulers()[..4], known);
    let text = String::from_utf8(tidegate(&["vcpu", "list"]).stdout).expect("text");
    for what in ["credit2-io", "io_turn", "500 us", "core, socket, all"] {
        assert!(text.contains(what), "no {what}: {text}");
    }
    let help = tidegate(&["vcpu", "sim", "--help"]).stdout;
    let help = String::from_utf8(help).expect("text");
    assert!(help.contains("Xen's default"), "{help}");
}

#[test]
fn the_example_runs_under_every_scheduler_and_the_same_way_twice() {
    let mut all = Vec::new();
    for scheduler in schedulers() {
        let run = || sim(&["--scheduler", &scheduler, "-o", "json"]);
        let (once, again) = (run(), run());
        assert!(once.status.success(), "{once:?}");
        assert_eq!(once.stdout, again.stdout);
        let report: serde_json::Value = serde_json::from_slice(&once.stdout).expect("JSON");
        assert_eq!(report["scheduler"], scheduler);
        let vms = report["vms"].as_array().expect("a list");
        let cpus = vms.iter().filter_map(|vm| vm["cpus"].as_f64());
        let used: f64 = cpus.sum();
        // Three pCPUs have ten that always want to run.
        assert!((2.9..3.1).contains(&used), "{used}");
        assert!(vms[1]["round_trips"]["answered"].as_u64() > Some(200));
        all.push(once.stdout);
    }
    assert!(all[0] != all[1] && all[1] != all[2] && all[1] != all[3]);
    let seeded = sim(&["--scheduler", "isacs", "--seed", "2", "-o", "json"]);
    assert_ne!(seeded.stdout, all[2]);
}

#[test]
fn people_are_shown_a_table_and_told_what_is_wrong() {
    let shown = String::from_utf8(sim(&[]).stdout).expect("text");
    assert!(shown.contains("isacs, seed 1, 10.0 s"), "{shown}");
    assert!(shown.contains("\nmixed-3 "), "{shown}");
    let refused = |output: Output| {
        assert!(!output.status.success(), "{output:?}");
        String::from_utf8(output.stderr).expect("text")
    };
    let short = refused(sim(&["--duration", "1 s"]));
    assert!(short.contains("--duration"), "{short}");
    let unknown = refused(sim(&["--scheduler", "cfs"]));
    assert!(unknown.contains("credit2"), "{unknown}");
    let missing = refused(tidegate(&["vcpu", "sim", "no-such.toml"]));
    assert!(missing.contains("cannot read no-such.toml"), "{missing}");
}
