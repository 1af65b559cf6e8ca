//! Searches for settings that keep the promises of a recording.

use crate::common::what_if::{prepared, recorded};
use tidegate_config::objective;
use tidegate_core::policy::Policy as _;
use tidegate_core::time::Nanos;
use tidegate_policies::policy::PolicySpec;
use tidegate_sim::what_if::choose::{Choice, FindingKind, Options, Settings, choose};
use tidegate_sim::what_if::{WhatIf, WhatIfError};

/// Disk with a VM that has a promise, one without limit, and one with a limit that is far away.
const HOST: &str = r#"
duration = "50 s"
[[device]]
name = "disk0"
model = "hdd-7200-1tb"
policy = "limit"
[[vm]]
name = "etcd"
disk = [{ size = "4 GiB" }]
objective = { latency = "150 ms" }
[[vm.workload]]
rw = "randwrite"
rate_iops = "12 IOPS"
[[vm]]
name = "backup"
disk = [{ size = "100 GiB" }]
[[vm.workload]]
rw = "randread"
bs = "256 KiB"
iodepth = 24
[[vm]]
name = "web"
disk = [{ size = "4 GiB" }]
objective = { limit = "400 IOPS" }
[[vm.workload]]
rw = "randread"
thinktime = { distribution = "exponential", mean = "200 ms" }
"#;

/// Searches within 120 replays of a whole slice.
fn chosen(what_if: &WhatIf, before: &Settings, policies: &[&str]) -> Choice {
    choose(what_if, before, &options(what_if, policies), &mut |_| {}).expect("it can be replayed")
}

fn options(what_if: &WhatIf, policies: &[&str]) -> Options {
    let policy = |name: &&str| PolicySpec::named(name).expect("registered");
    Options {
        budget: what_if.requests() * 120,
        policies: policies.iter().map(policy).collect(),
        fixed: vec![false; what_if.vms.len()],
        jobs: 2,
    }
}

/// Returns the names of the VMs with a finding.
fn found(what_if: &WhatIf, choice: &Choice, is: fn(&FindingKind) -> bool) -> Vec<String> {
    let all = choice.findings.iter().filter(|finding| is(&finding.kind));
    all.map(|finding| what_if.vms[finding.vm].name.clone())
        .collect()
}

/// Runs the VMs themselves, not their recording, under chosen settings; returns the promises that
/// are missed.
fn truth(text: &str, choice: &Choice) -> Vec<String> {
    let changes = choice
        .after
        .objectives
        .iter()
        .zip(["etcd", "backup", "web"]);
    let events: String = changes
        .map(|(objective, vm)| {
            let limit = objective.limit.total;
            format!(
                "[[event]]\nat = \"0 s\"\nvm = \"{vm}\"\nobjective = {{ limit = \"{limit}\" }}\n"
            )
        })
        .collect();
    let policy = format!("policy = {:?}", choice.after.policy.name());
    let report = recorded(&(text.replace("policy = \"limit\"", &policy) + &events)).1;
    let missed = report.vms.iter().flat_map(|vm| {
        let missed = vm
            .promises
            .iter()
            .filter(|promise| promise.kept == Some(false));
        missed.map(|promise| format!("{}: {}", vm.name, promise.what))
    });
    missed.collect()
}

#[test]
fn the_noisy_neighbour_without_a_limit_is_found_and_limited() {
    let what_if = prepared(&recorded(HOST).0);
    let before = Settings::in_force(&what_if);
    let choice = chosen(&what_if, &before, &["limit"]);
    assert!(
        choice.on_judged[0].missed().next().is_some(),
        "etcd suffers"
    );
    let noisy = found(&what_if, &choice, |kind| {
        matches!(
            kind,
            FindingKind::NoisyWithoutLimit {
                device_share: 0.5..,
                ..
            }
        )
    });
    assert_eq!(noisy, ["backup"]);
    let idle = found(&what_if, &choice, |kind| {
        *kind == FindingKind::LimitNeverBinds
    });
    assert_eq!(idle, ["web"]);
    // Only limits can help here, and only the backup's is worth one.
    assert_eq!(choice.after.policy, before.policy);
    let limited: Vec<bool> = (choice.after.objectives.iter().zip(&before.objectives))
        .map(|(is, was)| is.limit != was.limit)
        .collect();
    assert_eq!(limited, [false, true, false]);
    assert_eq!(
        choice.on_judged[1].missed().count(),
        0,
        "{:?}",
        choice.on_judged[1]
    );
    assert_eq!(truth(HOST, &choice), Vec::<String>::new());
}

#[test]
fn a_limit_that_hurts_is_raised_or_taken_away() {
    let text = HOST.replace(
        "latency = \"150 ms\"",
        "latency = \"900 ms\", limit = \"6 IOPS\"",
    );
    let what_if = prepared(&recorded(&text).0);
    let before = Settings::in_force(&what_if);
    let choice = chosen(&what_if, &before, &["limit"]);
    let hurt = found(&what_if, &choice, |kind| {
        matches!(kind, FindingKind::LimitHurts { missed_with, missed_without }
            if missed_without < missed_with)
    });
    assert_eq!(hurt, ["etcd"]);
    let (was, is) = (
        &before.objectives[0].limit,
        &choice.after.objectives[0].limit,
    );
    let rate = |limit: &tidegate_core::objective::Limit| limit.total.ops.map(|ops| ops.per_s);
    assert!(rate(is).is_none_or(|is| Some(is) > rate(was)), "{is:?}");
    assert_eq!(choice.on_judged[1].missed().count(), 0);
    assert_eq!(truth(&text, &choice), Vec::<String>::new());
}

#[test]
fn a_policy_is_chosen_where_limits_are_not_allowed() {
    let what_if = prepared(&recorded(HOST).0);
    let before = Settings::in_force(&what_if);
    let fixed = Options {
        fixed: vec![true; what_if.vms.len()],
        ..options(&what_if, &["limit", "mclock", "slo"])
    };
    let choice = choose(&what_if, &before, &fixed, &mut |_| {}).expect("it can be replayed");
    assert_ne!(choice.after.policy.name(), "limit");
    assert_eq!(choice.after.objectives, before.objectives);
    assert!(choice.on_judged[1].missed().count() < choice.on_judged[0].missed().count());
}

/// Demands objectives of the VMs, by name.
fn demanding(what_if: &WhatIf, demands: &[(&str, serde_json::Value)]) -> Settings {
    let mut before = Settings::in_force(what_if);
    for (vm, change) in demands {
        let place = what_if
            .vms
            .iter()
            .position(|it| it.name == *vm)
            .expect("recorded");
        let objective = &mut before.objectives[place];
        *objective = objective::merge(objective, change).expect("right");
    }
    before
}

#[test]
fn promises_that_cannot_be_kept_are_named() {
    let what_if = prepared(&recorded(HOST).0);
    // No arm and platter are so fast, whoever else is there.
    let impossible = demanding(
        &what_if,
        &[("etcd", serde_json::json!({ "latency": "1 ms" }))],
    );
    let choice = chosen(&what_if, &impossible, &["mclock", "limit"]);
    assert_eq!(choice.hopeless, [(0, "latency")]);
    assert_eq!(choice.conflict, []);
    // Each alone can be had: the disk does some 130 random I/Os a second with a queue, 75 without.
    let both = demanding(
        &what_if,
        &[
            ("etcd", serde_json::json!({ "latency": "60 ms" })),
            ("backup", serde_json::json!({ "reservation": "110 IOPS" })),
        ],
    );
    let choice = chosen(&what_if, &both, &["mclock", "limit"]);
    assert_eq!(choice.hopeless, []);
    assert!(choice.on_slice[1].missed().next().is_some());
    let conflict: Vec<_> = choice
        .conflict
        .iter()
        .filter(|(_, part)| *part != "limit")
        .collect();
    assert_eq!(conflict, [&(0, "latency"), &(1, "reservation")]);
}

#[test]
fn what_is_kept_is_left_as_it_is() {
    let calm = HOST.replace("iodepth = 24", "rate_iops = \"5 IOPS\"");
    let what_if = prepared(&recorded(&calm).0);
    let before = Settings::in_force(&what_if);
    let choice = chosen(&what_if, &before, &[]);
    assert_eq!(choice.after, before);
    assert_eq!((choice.conflict, choice.hopeless), (Vec::new(), Vec::new()));
}

#[test]
fn the_same_search_has_the_same_result_within_its_budget() {
    let what_if = prepared(&recorded(HOST).0);
    let before = Settings::in_force(&what_if);
    let mut options = options(&what_if, &[]);
    // Some twenty replays of the shortest slice.
    options.budget = what_if.requests() * 2;
    let mut last = 0;
    let one = choose(&what_if, &before, &options, &mut |progress| {
        assert!(progress.replays > last);
        last = progress.replays;
    });
    let one = one.expect("it can be replayed");
    assert_eq!(one.replays, last);
    assert!(one.exhausted, "{} replays", one.replays);
    // What is judged, and what says whether a promise can be kept at all, come on top.
    let most = options.budget + 2 * what_if.requests();
    assert!(one.requests < most, "{} of {most}", one.requests);
    options.jobs = 1;
    let other = choose(&what_if, &before, &options, &mut |_| {}).expect("it can be replayed");
    assert_eq!(one, other);
}

#[test]
fn a_short_recording_is_refused() {
    let short = HOST.replace("50 s", "9 s");
    let what_if = prepared(&recorded(&short).0);
    let before = Settings::in_force(&what_if);
    let refused = choose(&what_if, &before, &options(&what_if, &[]), &mut |_| {});
    let error = refused.expect_err("there is no room for two parts");
    assert!(matches!(error, WhatIfError::TooShort(length) if length == Nanos::from_secs(9)));
    assert!(error.to_string().contains("at least 10 s"), "{error}");
}

#[test]
fn a_part_is_replayed_as_it_was() {
    let text = HOST.to_owned()
        + "[[event]]\nat = \"20 s\"\nvm = \"web\"\nobjective = { limit = \"3 IOPS\" }\n";
    let what_if = prepared(&recorded(&text).0);
    let part = what_if.part(Nanos::from_secs(30), Nanos::from_secs(50));
    assert_eq!(
        (part.what_if.duration, part.vms.len()),
        (Nanos::from_secs(20), 3)
    );
    let web = &part.what_if.vms[2];
    assert_eq!(web.objective.limit.total.to_string(), "3 IOPS");
    let whole = &what_if.vms[2].inference;
    assert_eq!(
        (web.inference.closed, web.inference.evidence),
        (whole.closed, whole.evidence)
    );
    let both = [
        (Nanos::ZERO, Nanos::from_secs(20)),
        (Nanos::from_secs(20), what_if.duration),
    ];
    let sum = both.map(|(from, to)| what_if.part(from, to).what_if.requests());
    assert_eq!(sum[0] + sum[1], what_if.requests());
}
