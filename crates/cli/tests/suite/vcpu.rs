//! `tidegate vcpu`, as it is typed.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Output;

use crate::common::tidegate;

fn example() -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    root.join("examples/vcpu/mixed.toml").display().to_string()
}

/// Simulates the example with further arguments.
fn run_sim(extra_args: &[&str]) -> Output {
    let file = example();
    let args = ["vcpu", "sim", &file];
    tidegate(&args.iter().chain(extra_args).copied().collect::<Vec<_>>())
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
    let known = ["credit", "credit2", "isacs", "io-turns"];
    assert_eq!(schedulers()[..4], known);
    let text = String::from_utf8(tidegate(&["vcpu", "list"]).stdout).expect("text");
    // A scheduler, one of its parameters, that parameter's default, and another one's values.
    for shown in ["io-turns", "io_turn", "500 us", "core, socket, all"] {
        assert!(text.contains(shown), "no {shown}: {text}");
    }
    let help = tidegate(&["vcpu", "sim", "--help"]).stdout;
    let help = String::from_utf8(help).expect("text");
    assert!(help.contains("Xen's default"), "{help}");
}

#[test]
fn every_scheduler_runs_the_example_reproducibly_and_differently() {
    let mut reports = BTreeMap::new();
    for scheduler in schedulers() {
        let run = || run_sim(&["--scheduler", &scheduler, "-o", "json"]);
        let (once, again) = (run(), run());
        assert!(once.status.success(), "{once:?}");
        assert_eq!(once.stdout, again.stdout);
        let report: serde_json::Value = serde_json::from_slice(&once.stdout).expect("JSON");
        assert_eq!(report["scheduler"], scheduler);
        let vms = report["vms"].as_array().expect("a list");
        let cpus = vms.iter().filter_map(|vm| vm["cpus"].as_f64());
        let used: f64 = cpus.sum();
        // The example has 3 pCPUs and 10 vCPUs that are always runnable, so all 3 are used fully.
        assert!((2.9..3.1).contains(&used), "{used}");
        let mixed = vms.iter().find(|vm| vm["name"] == "mixed-1");
        let round_trips = &mixed.expect("a VM of the example")["round_trips"];
        // The client sends one packet every 4 ms, so over 2000 in the 9 s that count.
        assert!(round_trips["answered"].as_u64() > Some(200));
        reports.insert(scheduler, once.stdout);
    }
    let distinct: BTreeSet<_> = reports.values().collect();
    assert_eq!(distinct.len(), reports.len(), "two schedulers ran alike");
    let old = run_sim(&["--scheduler", "credit2-io", "-o", "json"]);
    assert_eq!(old.stdout, reports["io-turns"], "the old name");
    let note = String::from_utf8(old.stderr).expect("text");
    assert!(
        note.contains("credit2-io is the old name of io-turns"),
        "{note}"
    );
    let seeded = run_sim(&["--scheduler", "isacs", "--seed", "2", "-o", "json"]);
    assert_ne!(seeded.stdout, reports["isacs"]);
}

#[test]
fn the_default_output_is_a_table_below_a_heading() {
    let shown = String::from_utf8(run_sim(&[]).stdout).expect("text");
    assert!(shown.contains("isacs, seed 1, 10.0 s"), "{shown}");
    assert!(shown.contains("\nmixed-3 "), "{shown}");
}

#[test]
fn wrong_arguments_are_refused_with_the_right_ones() {
    let refused = |output: Output| {
        assert!(!output.status.success(), "{output:?}");
        String::from_utf8(output.stderr).expect("text")
    };
    let short = refused(run_sim(&["--duration", "1 s"]));
    assert!(short.contains("--duration"), "{short}");
    let unknown = refused(run_sim(&["--scheduler", "cfs"]));
    assert!(unknown.contains("credit2"), "{unknown}");
    let missing = refused(tidegate(&["vcpu", "sim", "no-such.toml"]));
    assert!(missing.contains("cannot read no-such.toml"), "{missing}");
}

#[test]
fn compare_has_every_scheduler_in_each_measure_and_judges_the_goals() {
    let compared = tidegate(&["vcpu", "compare", "spare", "smp", "-o", "json"]);
    assert!(compared.status.success(), "{compared:?}");
    let compared: serde_json::Value = serde_json::from_slice(&compared.stdout).expect("JSON");
    let cells = compared["cells"].as_array().expect("a list");
    let names: Vec<_> = cells.iter().map(|cell| cell["cell"].as_str()).collect();
    assert_eq!(names, [Some("spare"), Some("smp")]);
    let own = compared["own"].as_str().expect("a name");
    for cell in cells {
        let outcomes = cell["outcomes"].as_array().expect("a list");
        let all: BTreeSet<_> = outcomes.iter().map(|o| o["scheduler"].as_str()).collect();
        for name in ["credit2", "isacs", "eevdf-250", "0.1ms-1000", own] {
            assert!(all.contains(&Some(name)), "{name}: {all:?}");
        }
    }
    // `smp` is held out, `spare` is not.
    assert_eq!(compared["tuning"]["cells"], 1);
    assert_eq!(compared["held_out"]["cells"], 1);
    let shown = tidegate(&["vcpu", "compare", "spare", "smp"]);
    let shown = String::from_utf8(shown.stdout).expect("text");
    assert_eq!(shown.matches("\nsmp * ").count(), 5, "{shown}");
    assert!(shown.contains(&format!("{own}, held out (*)")), "{shown}");
    let refused = tidegate(&["vcpu", "compare", "smpp"]);
    let refused = String::from_utf8(refused.stderr).expect("text");
    assert!(refused.contains("smp"), "{refused}");
}
