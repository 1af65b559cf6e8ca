//! Searches for settings that keep the promises of a recording.

use crate::common::what_if::{prepared, recorded, replayed};
use std::collections::BTreeMap;
use tidegate_config::objective;
use tidegate_core::objective::{Limit, Objective};
use tidegate_core::policy::Policy as _;
use tidegate_core::time::Nanos;
use tidegate_policies::policy::PolicySpec;
use tidegate_recording::{Change, Recording};
use tidegate_sim::what_if::choose::{
    Choice, FindingKind, Options, Settings, Trial, Trialed, choose,
};
use tidegate_sim::what_if::{LONGEST, WhatIf, WhatIfError};

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

/// Runs replays one by one.
fn in_turn(trials: &[Trial<'_>]) -> Vec<Trialed> {
    trials.iter().map(Trial::run).collect()
}

/// Searches within 120 replays of a whole slice.
fn chosen(what_if: &WhatIf, before: &Settings, policies: &[&str]) -> Choice {
    let options = options(what_if, policies);
    choose(what_if, before, &options, &mut in_turn).expect("it can be replayed")
}

fn options(what_if: &WhatIf, policies: &[&str]) -> Options {
    let policy = |name: &&str| PolicySpec::named(name).expect("registered");
    Options {
        budget: what_if.requests() * 120,
        policies: policies.iter().map(policy).collect(),
        fixed: vec![false; what_if.vms.len()],
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
    let choice = choose(&what_if, &before, &fixed, &mut in_turn).expect("it can be replayed");
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
    options.budget = what_if.requests() * 3;
    let (mut batches, mut spent) = (Vec::new(), 0);
    let one = choose(&what_if, &before, &options, &mut |trials| {
        let ends = in_turn(trials);
        batches.push(trials.len());
        spent += ends.iter().map(Trialed::cost).sum::<u64>();
        ends
    });
    let one = one.expect("it can be replayed");
    assert_eq!(one.replays, batches.iter().sum::<usize>() as u64);
    assert!(batches.iter().any(|&count| count > 2), "{batches:?}");
    assert!(one.exhausted, "{} replays", one.replays);
    // What is judged comes on top.
    assert!(spent <= 2 * options.budget, "{spent} of {}", options.budget);
    let other = choose(&what_if, &before, &options, &mut |trials| {
        let mut backwards: Vec<Trialed> = trials.iter().rev().map(Trial::run).collect();
        backwards.reverse();
        backwards
    });
    assert_eq!(one, other.expect("it can be replayed"));
}

/// On a device that is far faster, a VM that waits for answers sends as many more requests: the
/// budget counts those, and no replay is longer than it.
#[test]
fn a_faster_device_takes_no_more_than_the_budget() {
    let text = HOST
        .replace("iodepth = 24", "iodepth = 4")
        .replace("bs = \"256 KiB\"", "bs = \"4 KiB\"")
        .replace("latency = \"150 ms\"", "latency = \"1 us\"");
    let (recording, _) = recorded(&text);
    let model = tidegate_config::model::built_in("ssd-sata-300gb").expect("of the catalogue");
    let what_if = WhatIf::new(&recording, &model, None).expect("it can be replayed");
    let before = Settings::in_force(&what_if);
    // Requests in the shortest slice, and in the second at whose end a replay may stop.
    let slice: f64 = requests_of_part(&what_if, 0, 5)
        .iter()
        .map(|(_, count)| count)
        .sum();
    let (slice, second) = (slice as u64, slice as u64 / 4);
    assert!(slice > what_if.requests(), "{slice}: the device is faster");
    let search = |budget: u64| {
        let options = Options {
            budget,
            ..options(&what_if, &["limit", "mclock"])
        };
        let (mut spent, mut most) = (0, 0);
        let choice = choose(&what_if, &before, &options, &mut |trials| {
            let ends = in_turn(trials);
            let costs = ends.iter().map(Trialed::cost);
            spent += costs.clone().sum::<u64>();
            most = most.max(costs.max().unwrap_or(0));
            ends
        });
        (choice, spent, most)
    };
    // A fourth of it is for one replay of the shortest slice, which is not enough.
    let small = slice * 3;
    let (refused, spent, _) = search(small);
    let error = refused.expect_err("nothing could be compared");
    assert!(
        matches!(error, WhatIfError::Budget(most) if most == small / 4),
        "{error}"
    );
    assert!(error.to_string().contains("a replay of 5 s"), "{error}");
    assert!(spent <= small / 4 + second, "{spent} of {small}");
    let budget = slice * 5;
    let (choice, spent, most) = search(budget);
    let choice = choice.expect("it can be replayed");
    assert!(choice.exhausted && most <= budget + second, "{most}");
    assert!(spent <= 2 * budget + second, "{spent} of {budget}");
    // What is judged is a slice of what the search did not see.
    let (judged, held_out) = (choice.judged, choice.held_out);
    assert!(
        judged.1.since(judged.0) < held_out.1.since(held_out.0),
        "{judged:?}"
    );
    assert!(
        judged.0 >= held_out.0 && judged.1 <= held_out.1,
        "{judged:?}"
    );
}

/// Changes the end of a recording's first request.
fn with_end_of_first(recording: &Recording, end: Nanos) -> Recording {
    let mut changed = recording.clone();
    changed.requests[0].done = end;
    changed
}

#[test]
fn a_time_far_away_is_refused_and_one_that_is_far_is_bounded() {
    let (recording, _) = recorded(HOST);
    let model = tidegate_config::model::built_in("hdd-7200-1tb").expect("of the catalogue");
    let prepare = |end| WhatIf::new(&with_end_of_first(&recording, end), &model, None);
    for end in [LONGEST + Nanos(1), Nanos(u64::MAX)] {
        let refused = prepare(end).expect_err("no such replay would end");
        assert!(matches!(refused, WhatIfError::TooLong(_)), "{refused}");
        assert!(refused.to_string().contains("at most 31 days"), "{refused}");
    }
    let what_if = prepare(LONGEST).expect("it can be replayed");
    let before = Settings::in_force(&what_if);
    let options = options(&what_if, &["limit"]);
    let mut spent = 0;
    let choice = choose(&what_if, &before, &options, &mut |trials| {
        let ends = in_turn(trials);
        spent += ends.iter().map(Trialed::cost).sum::<u64>();
        ends
    });
    let choice = choice.expect("it can be replayed");
    assert!(spent <= 2 * options.budget, "{spent} of {}", options.budget);
    // All requests are in the first minute, and nothing judges what is found there.
    assert!(
        choice.slice.1 <= Nanos::from_secs(100),
        "{:?}",
        choice.slice
    );
    assert_eq!(choice.unsearched, []);
    assert_eq!(choice.unjudged, [(0, "latency")]);
}

#[test]
fn a_promise_that_nothing_judges_is_named_and_its_vm_is_looked_for() {
    // The VM with the promise is there in 10 s of the 30 s that are searched, and the load is
    // higher in others.
    let text = HOST.replace(
        "rate_iops = \"12 IOPS\"",
        "rate_iops = \"12 IOPS\"\nstartdelay = \"10 s\"\nruntime = \"10 s\"",
    );
    let what_if = prepared(&recorded(&text).0);
    let before = Settings::in_force(&what_if);
    let options = Options {
        // A slice is as short as it can be.
        budget: what_if.requests() * 12,
        ..options(&what_if, &["limit"])
    };
    let choice = choose(&what_if, &before, &options, &mut in_turn).expect("it can be replayed");
    let (from, to) = choice.slice;
    assert_eq!(to.since(from), Nanos::from_secs(5));
    assert!(
        from >= Nanos::from_secs(8) && to <= Nanos::from_secs(22),
        "{from} to {to}"
    );
    assert_eq!(choice.unsearched, []);
    assert!(
        choice.on_slice[0].missed().next().is_some(),
        "it suffers there"
    );
    assert_eq!(
        choice.unjudged,
        [(0, "latency")],
        "it is not there any more"
    );
}

/// A limit that was in force for a part of the recording, or under a policy that does not enforce
/// it, did nothing that the recording shows.
#[test]
fn a_limit_is_said_to_do_nothing_only_if_the_recording_shows_it() {
    let idle = |text: &str| {
        let what_if = prepared(&recorded(text).0);
        let choice = chosen(&what_if, &Settings::in_force(&what_if), &["limit"]);
        found(&what_if, &choice, |kind| {
            *kind == FindingKind::LimitNeverBinds
        })
    };
    assert_eq!(idle(HOST), ["web"]);
    let late = "[[event]]\nat = \"49 s\"\nvm = \"web\"\nobjective = { limit = \"390 IOPS\" }\n";
    assert_eq!(idle(&(HOST.to_owned() + late)), Vec::<String>::new());
    let leaves = HOST.replace("name = \"web\"\n", "name = \"web\"\nleaves = \"45 s\"\n");
    assert_eq!(idle(&leaves), Vec::<String>::new());
    let enforced = "[[event]]\nat = \"49 s\"\ndevice = \"disk0\"\npolicy = \"limit\"\n";
    let fifo = HOST.replace("policy = \"limit\"", "policy = \"fifo\"");
    assert_eq!(idle(&(fifo + enforced)), Vec::<String>::new());
}

/// Under a policy that enforces no limit, a VM exceeds its own. Taking the limit away changes
/// nothing, and keeps no promise more.
#[test]
fn a_limit_that_is_taken_away_is_no_promise_kept() {
    let text = HOST
        .replace("policy = \"limit\"", "policy = \"fifo\"")
        .replace(
            "latency = \"150 ms\"",
            "latency = \"1 ms\", limit = \"6 IOPS\"",
        );
    let what_if = prepared(&recorded(&text).0);
    let before = Settings::in_force(&what_if);
    let choice = chosen(&what_if, &before, &["fifo"]);
    let missed = |outcome: usize| -> Vec<&str> {
        let missed = choice.on_judged[outcome].missed();
        missed.map(|(_, promise)| promise.part).collect()
    };
    assert_eq!(missed(0), ["latency", "limit"]);
    assert_eq!(choice.after, before, "{:?}", missed(1));
}

/// A limit of an operator stays where the search adds another.
#[test]
fn a_neighbour_keeps_the_limit_that_it_has() {
    let text = HOST.replace(
        "name = \"backup\"\n",
        "name = \"backup\"\nobjective = { limit = { write = \"15 MB/s\" } }\n",
    );
    let what_if = prepared(&recorded(&text).0);
    let before = Settings::in_force(&what_if);
    let choice = chosen(&what_if, &before, &["limit"]);
    let limit = choice.after.objectives[1].limit;
    assert!(!limit.total.is_none(), "{limit:?}");
    let write = limit.write.bytes_per_s.expect("it has a limit on writes");
    assert!(write <= 15_000_000, "{limit:?}");
}

#[test]
fn only_the_policies_that_are_asked_for_are_chosen() {
    let what_if = prepared(&recorded(HOST).0);
    let before = Settings::in_force(&what_if);
    // A limit on the neighbour helps under `limit`, which is in force, and does nothing under
    // `fifo`: nothing that may be chosen is better.
    let choice = chosen(&what_if, &before, &["fifo"]);
    assert!(choice.on_slice[0].missed().next().is_some());
    assert_eq!(choice.after, before);
}

#[test]
fn a_vm_has_its_last_name_and_one_that_came_again_is_told_apart() {
    let (mut recording, _) = recorded(HOST);
    let name = "postgres".to_owned();
    let second = Nanos::from_secs(1);
    (recording.changes).push((second, Change::VmRenamed { vm: 0, name }));
    // The name that is free now is taken by another.
    let name = "etcd".to_owned();
    (recording.changes).push((second, Change::VmRenamed { vm: 2, name }));
    let names = |recording: &Recording| -> Vec<(String, String)> {
        let vms = prepared(recording).vms;
        let names = vms.into_iter().map(|vm| (vm.name, vm.last_name));
        names.collect()
    };
    let pair = |name: &str, last: &str| (name.to_owned(), last.to_owned());
    let expected = [
        pair("postgres", "postgres"),
        pair("backup", "backup"),
        pair("etcd", "etcd"),
    ];
    assert_eq!(names(&recording), expected);
    let name = "backup".to_owned();
    (recording.changes).push((second, Change::VmRenamed { vm: 0, name }));
    let expected = [
        pair("backup-0", "backup"),
        pair("backup-1", "backup"),
        pair("etcd", "etcd"),
    ];
    assert_eq!(names(&recording), expected);
}

/// Replays a part under its own settings; returns the requests of every VM.
fn requests_of_part(what_if: &WhatIf, from: u64, to: u64) -> Vec<(String, f64)> {
    let part = what_if.part(Nanos::from_secs(from), Nanos::from_secs(to));
    let report = replayed(&part.what_if, None, &BTreeMap::new());
    let vms = report.vms.into_iter();
    vms.map(|vm| (vm.name, vm.rates.iops * vm.time_s)).collect()
}

/// A backup that ends soon after the begin of a part is not there for the rest of it.
#[test]
fn a_vm_that_was_done_stays_done() {
    let text = HOST.replace("iodepth = 24\n", "iodepth = 24\nruntime = \"33 s\"\n");
    let what_if = prepared(&recorded(&text).0);
    let backup = &what_if.vms[1];
    assert!(backup.inference.closed);
    let part = what_if.part(Nanos::from_secs(30), Nanos::from_secs(50));
    let recorded = part.what_if.vms[1].recorded.iops * 20.0;
    let replayed = requests_of_part(&what_if, 30, 50);
    let (name, requests) = &replayed[1];
    assert_eq!(name, "backup");
    assert!(
        *requests <= recorded * 1.5,
        "{requests}, recorded {recorded}"
    );
    assert!(
        *requests >= recorded * 0.9,
        "{requests}, recorded {recorded}"
    );
}

#[test]
fn a_short_recording_is_refused() {
    let short = HOST.replace("50 s", "9 s");
    let what_if = prepared(&recorded(&short).0);
    let before = Settings::in_force(&what_if);
    let refused = choose(&what_if, &before, &options(&what_if, &[]), &mut in_turn);
    let error = refused.expect_err("there is no room for two parts");
    assert!(matches!(error, WhatIfError::TooShort(length) if length == Nanos::from_secs(9)));
    assert!(error.to_string().contains("at least 10 s"), "{error}");
}

#[test]
fn a_part_is_replayed_as_it_was() {
    let text = HOST.to_owned()
        + "[[event]]\nat = \"20 s\"\nvm = \"web\"\nobjective = { limit = \"3 IOPS\" }\n";
    let recording = recorded(&text).0;
    let what_if = prepared(&recording);
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
    // Requests under way at the boundary are in both parts.
    let boundary = Nanos::from_secs(20);
    let all = recording.requests.iter();
    let both = all.filter(|it| it.arrived < boundary && it.done > boundary);
    let both = both.count() as u64;
    assert!(both >= 24, "{both}: the backup's are");
    assert_eq!(sum[0] + sum[1], what_if.requests() + both);
}

/// Host whose first VM is held back by its own limit, so that requests pile up.
fn with_a_backlog() -> String {
    let promise = "latency = \"150 ms\"";
    let limited = format!("{promise}, limit = \"9 IOPS\"");
    let text = HOST.replace(promise, &limited);
    text.replace("rw = \"randwrite\"", "rw = \"write\"")
}

/// A change of settings has to serve what waits for it, as it does live.
#[test]
fn a_part_begins_with_the_requests_that_wait() {
    let what_if = prepared(&recorded(&with_a_backlog()).0);
    let etcd = &what_if.part(Nanos::from_secs(20), Nanos::from_secs(40));
    let etcd = &etcd.what_if.vms[0];
    assert_eq!(etcd.name, "etcd");
    // 12 a second arrive, and 9 are answered.
    let recorded = etcd.recorded.iops * 20.0;
    assert!(recorded > 12.0 * 20.0 + 8.0, "{recorded}");
    let unlimited = |objective: &Objective| Objective {
        limit: Limit::NONE,
        ..*objective
    };
    let objectives = BTreeMap::from([(0, unlimited(&etcd.objective))]);
    let part = what_if.part(Nanos::from_secs(20), Nanos::from_secs(40));
    let report = replayed(&part.what_if, Some("slo"), &objectives);
    let etcd = &report.vms[0];
    let answered = etcd.rates.iops * etcd.time_s;
    assert!(answered > recorded * 0.95, "{answered} of {recorded}");
}

/// A policy that enforces a promise is chosen before another one under which it is kept as well.
#[test]
fn a_policy_that_enforces_what_is_promised_is_preferred() {
    let what_if = prepared(&recorded(&with_a_backlog()).0);
    let before = Settings::in_force(&what_if);
    for policies in [["slo", "vcup-drr"], ["vcup-drr", "slo"]] {
        let choice = chosen(&what_if, &before, &policies);
        assert_eq!(choice.after.policy.name(), "slo");
        assert_eq!(choice.on_judged[1].missed().count(), 0);
    }
}
