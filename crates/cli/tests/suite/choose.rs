//! `tidegate whatif --choose` as its users meet it, and the files and profiles of `whatif`.

use serde_json::Value;
use tidegate_core::time::Nanos;
use tidegate_recording::{Change, Encoder, Recording};

use crate::common::{recording, stderr, stdout, tidegate};

const SCENARIO: &str = "
duration = \"40 s\"
[[device]]
name = \"disk0\"
model = \"hdd-7200-1tb\"
policy = \"limit\"
[[vm]]
name = \"etcd\"
disk = [{ size = \"1 GiB\" }]
[[vm.workload]]
rw = \"randwrite\"
rate_iops = \"10 IOPS\"
[[vm]]
name = \"backup\"
disk = [{ size = \"100 GiB\" }]
[[vm.workload]]
rw = \"randread\"
bs = \"256 KiB\"
iodepth = 16
[[vm]]
name = \"web\"
disk = [{ size = \"1 GiB\" }]
objective.limit = \"400 IOPS\"
[[vm.workload]]
rw = \"randread\"
thinktime = \"100 ms\"
";

const CHOOSE: [&str; 6] = [
    "--choose",
    "--objective",
    "etcd=latency=150 ms",
    "--policy",
    "limit",
    "--budget",
];

#[test]
fn settings_are_chosen_judged_and_given_as_commands() {
    let (dir, path) = recording(SCENARIO);
    let log = dir.path().join("fio.json");
    let log = log.to_str().expect("text");
    let arguments = [&["whatif", path.as_str()], &CHOOSE[..], &["5 s"]].concat();
    let json = tidegate(&[&arguments[..], &["-o", "json", "--fio-json", log]].concat());
    assert!(json.status.success(), "{}", stderr(&json));
    let json: Value = serde_json::from_slice(&json.stdout).expect("JSON");
    assert_eq!(
        (&json["searched_s"][1], &json["judged_s"][0]),
        (&24.0.into(), &24.0.into())
    );
    assert_eq!(
        (&json["all_kept"], &json["unchanged"]),
        (&true.into(), &false.into())
    );
    let found = |vm: &str| {
        let findings = json["findings"].as_array().expect("a list");
        let found = findings.iter().find(|finding| finding["vm"] == vm);
        found.map_or("none".to_owned(), |it| {
            it["finding"].as_str().expect("text").to_owned()
        })
    };
    assert_eq!(found("backup"), "noisy_without_limit");
    assert_eq!(found("web"), "limit_never_binds");
    let kept = |when: &str| &json["vms"][0]["judged"][when]["promises"][0]["kept"];
    assert_eq!(
        (kept("before"), kept("after")),
        (&false.into(), &true.into())
    );
    let commands = json["commands"].as_array().expect("a list");
    let commands: Vec<&str> = commands.iter().filter_map(Value::as_str).collect();
    // The promise that was asked for is put in force, too.
    assert_eq!(commands[0], "tidegate vm set etcd --latency '150 ms'");
    assert!(
        commands[1].starts_with("tidegate vm set backup --limit "),
        "{commands:?}"
    );
    assert_eq!(commands.len(), 2);
    let exported = std::fs::read_to_string(log).expect("it is written");
    let exported: Value = serde_json::from_str(&exported).expect("JSON");
    assert_eq!(exported["jobs"].as_array().map(Vec::len), Some(3));

    let text = stdout(&tidegate(&arguments));
    for part in [
        "Searched 4 s to 24 s; judged on 24 s to 40 s, which the search did not see.",
        "backup: has no limit",
        "web: its limit never held back",
        "All promises are kept.",
        "To put it in force:\n  tidegate vm set etcd --latency '150 ms'\n",
        "To remove limits that do nothing:\n  tidegate vm set web --limit none\n",
        "Under its own policy (limit)",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    for jobs in ["1", "3"] {
        let again = [&arguments[..], &["--jobs", jobs]].concat();
        assert_eq!(text, stdout(&tidegate(&again)), "{jobs} at once");
    }
}

#[test]
fn a_policy_is_put_in_force_by_its_command() {
    let (_dir, path) = recording(&SCENARIO.replace("policy = \"limit\"", "policy = \"fifo\""));
    let choose = [
        "--choose",
        "--objective",
        "etcd=latency=150 ms",
        "-o",
        "json",
    ];
    let only = ["--policy", "limit"];
    let json = tidegate(&[&["whatif", path.as_str()], &choose[..], &only[..]].concat());
    assert!(json.status.success(), "{}", stderr(&json));
    let json: Value = serde_json::from_slice(&json.stdout).expect("JSON");
    let policy = (&json["policy"]["before"], &json["policy"]["after"]);
    assert_eq!(policy, (&"fifo".into(), &"limit".into()));
    assert_eq!(json["commands"][0], "tidegate policy set disk0 limit");
    // The policy enforces no limit, so none can be said to do nothing.
    let findings = json["findings"].as_array().expect("a list");
    let web = findings.iter().find(|it| it["vm"] == "web");
    assert_eq!(
        web.expect("it has a limit")["finding"],
        "limit_not_enforced"
    );
}

#[test]
fn nothing_to_keep_and_too_little_to_judge_are_refused() {
    let (_dir, path) = recording(&SCENARIO.replace("objective.limit = \"400 IOPS\"\n", ""));
    let none = tidegate(&["whatif", &path, "--choose"]);
    assert_eq!(none.status.code(), Some(1));
    assert!(stderr(&none).contains("--objective"), "{}", stderr(&none));
    let (_dir, path) = recording(&SCENARIO.replace("40 s", "9 s"));
    let short = tidegate(&["whatif", &path, "--choose"]);
    assert!(
        stderr(&short).contains("at least 10 s"),
        "{}",
        stderr(&short)
    );
    let alone = tidegate(&["whatif", &path, "--budget", "5 s"]);
    assert!(stderr(&alone).contains("--choose"), "{}", stderr(&alone));
}

#[test]
fn results_are_exported_for_every_policy() {
    let (dir, path) = recording(&SCENARIO.replace("40 s", "5 s"));
    let file = |name: &str| dir.path().join(name).to_str().expect("text").to_owned();
    let run = |more: &[&str]| {
        let (json, log) = (file("out.json"), file("out.hlog"));
        let exports = ["--fio-json", &json, "--hdr-log", &log];
        let done = tidegate(&[&["whatif", path.as_str()], more, &exports[..]].concat());
        assert!(done.status.success(), "{}", stderr(&done));
    };
    let iops = |name: &str| {
        let text = std::fs::read_to_string(file(name)).expect("it is written");
        let json: Value = serde_json::from_str(&text).expect("JSON");
        json["jobs"][1]["read"]["iops"].as_f64().expect("a rate")
    };
    run(&["--policy", "mclock,slo"]);
    let [mclock, slo] = ["out-mclock.json", "out-slo.json"].map(iops);
    assert!(mclock > 0.0 && slo > 0.0 && mclock != slo, "{mclock} {slo}");
    assert!(file("out-slo.hlog").ends_with("out-slo.hlog"));
    let log = std::fs::read_to_string(file("out-slo.hlog")).expect("it is written");
    assert!(log.contains("Tag=backup,0.000,1.000,"), "{log}");
    // One policy, or the recording alone, has the file as it was named.
    run(&["--policy", "slo"]);
    assert_eq!(iops("out.json"), slo);
    run(&[]);
    assert_ne!(iops("out.json"), slo);
}

#[test]
fn a_policy_that_needs_a_profile_has_it_by_option_or_by_the_recording() {
    let with = SCENARIO.replace("40 s", "5 s").replace(
        "policy = \"limit\"",
        "policy = { name = \"mclock\", cost = \"device-time\" }\nprofile = \"hdd-7200-1tb\"",
    );
    let (_dir, path) = recording(&with);
    // A recording made with a profile of the catalogue needs no option.
    let own = tidegate(&["whatif", &path]);
    assert!(own.status.success(), "{}", stderr(&own));
    assert_eq!(stderr(&own), "");
    let other = ["whatif", &path, "--profile", "hdd-7200-250gb"];
    let other = tidegate(&other);
    assert!(other.status.success(), "{}", stderr(&other));
    assert!(
        stderr(&other).contains("another profile"),
        "{}",
        stderr(&other)
    );
    // On another device the profile is another one.
    let moved = ["whatif", &path, "--device", "nvme-1tb"];
    let refused = tidegate(&moved);
    assert_eq!(refused.status.code(), Some(1));
    let message = stderr(&refused);
    assert!(
        message.contains("help: give the device's profile with --profile"),
        "{message}"
    );
    let given = tidegate(&[&moved[..], &["--profile", "nvme-1tb"]].concat());
    assert!(given.status.success(), "{}", stderr(&given));
    let wrong = tidegate(&["whatif", &path, "--profile", "no-such"]);
    assert!(
        stderr(&wrong).contains("where: --profile"),
        "{}",
        stderr(&wrong)
    );
}

/// A served disk has no model, and may be served with a profile that is one's.
#[test]
fn a_device_without_a_model_is_replayed_on_the_one_of_its_profile() {
    let with = SCENARIO.replace("40 s", "5 s").replace(
        "policy = \"limit\"",
        "policy = \"limit\"\nprofile = \"hdd-7200-1tb\"",
    );
    let (_dir, path) = recording(&with);
    let own = tidegate(&["whatif", &path]);
    assert_eq!(stderr(&own), "");
    rewrite(&path, |recording| recording.header.device.model = None);
    let replayed = tidegate(&["whatif", &path]);
    assert!(replayed.status.success(), "{}", stderr(&replayed));
    assert!(
        stderr(&replayed).contains("hdd-7200-1tb stands in for it"),
        "{}",
        stderr(&replayed)
    );
    assert_eq!(stdout(&replayed), stdout(&own));
    rewrite(&path, |recording| {
        recording.header.device.profile_digest = None;
    });
    let refused = tidegate(&["whatif", &path]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(
        stderr(&refused).contains("has no model"),
        "{}",
        stderr(&refused)
    );
}

/// Returns the words of a command whose words have no quotes inside.
pub(crate) fn words(command: &str) -> Vec<String> {
    let parts = command.split('\'').enumerate();
    let words = parts.flat_map(|(index, part)| match index % 2 {
        // Inside quotes.
        1 => vec![part.to_owned()],
        _ => part.split_whitespace().map(str::to_owned).collect(),
    });
    words.collect()
}

/// Puts commands in force in a scenario: the policy of its device, and objectives from the start.
fn in_force(scenario: &str, commands: &[&str]) -> String {
    let mut changed = scenario.to_owned();
    for command in commands {
        let words = words(command);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        match words[1..] {
            ["policy", "set", "disk0", policy] => {
                changed = changed.replace("policy = \"limit\"", &format!("policy = {policy:?}"));
            }
            ["vm", "set", vm, ref parts @ ..] => {
                let parts = parts.chunks(2).map(|part| {
                    let (name, value) = (part[0].trim_start_matches("--"), part[1]);
                    match value.parse::<u64>() {
                        Ok(number) => format!("{name} = {number}"),
                        Err(_) => format!("{name} = {value:?}"),
                    }
                });
                let parts = parts.collect::<Vec<_>>().join(", ");
                changed +=
                    &format!("\n[[event]]\nat = \"0 s\"\nvm = {vm:?}\nobjective = {{ {parts} }}\n");
            }
            _ => panic!("{command}"),
        }
    }
    changed
}

/// The story of `examples/nine-vms.toml`: limits that do nothing, one that hurts, and what is
/// chosen keeps the promise when the VMs themselves run under it.
#[test]
fn nine_vms_on_one_spindle_get_what_they_need() {
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/nine-vms.toml");
    let scenario = std::fs::read_to_string(example).expect("an example");
    let (dir, path) = recording(&scenario);
    let json = tidegate(&[
        "whatif", &path, "--choose", "--budget", "30 s", "-o", "json",
    ]);
    assert!(json.status.success(), "{}", stderr(&json));
    let json: Value = serde_json::from_slice(&json.stdout).expect("JSON");
    let findings = json["findings"].as_array().expect("a list");
    let found = |kind: &str| -> Vec<&str> {
        let of_kind = findings.iter().filter(|finding| finding["finding"] == kind);
        of_kind
            .filter_map(|finding| finding["vm"].as_str())
            .collect()
    };
    assert_eq!(found("limit_hurts"), ["etcd"]);
    let idle = ["mail", "web1", "web2", "web3", "web4", "web5", "web6"];
    assert_eq!(found("limit_never_binds"), idle);
    assert_eq!(json["all_kept"], true, "{json}");
    let commands = json["commands"].as_array().expect("a list");
    let commands: Vec<&str> = commands.iter().filter_map(Value::as_str).collect();
    assert!(
        commands
            .iter()
            .any(|it| it.starts_with("tidegate vm set etcd ")),
        "{commands:?}"
    );

    let file = dir.path().join("after.toml");
    std::fs::write(&file, in_force(&scenario, &commands)).expect("it is written");
    let kept = |file: &str| {
        let report = tidegate(&["sim", file, "-o", "json"]);
        let report: Value = serde_json::from_slice(&report.stdout).expect("JSON");
        let promises = report["vms"][0]["promises"]
            .as_array()
            .expect("etcd is first")
            .clone();
        let latency = promises.iter().find(|promise| promise["part"] == "latency");
        latency.expect("it is promised")["kept"].clone()
    };
    assert_eq!(kept(example), false);
    assert_eq!(kept(file.to_str().expect("text")), true, "{commands:?}");
}

/// A recording says nothing of a limit that its VM did not have.
#[test]
fn a_limit_that_was_not_recorded_is_not_said_to_do_nothing() {
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/nine-vms.toml");
    let scenario = std::fs::read_to_string(example).expect("an example");
    let (_dir, path) = recording(&scenario);
    let answer = tidegate(&[
        "whatif",
        &path,
        "--choose",
        "--budget",
        "30 s",
        "--objective",
        "mail=limit=9000 IOPS",
        "-o",
        "json",
    ]);
    assert!(answer.status.success(), "{}", stderr(&answer));
    let json: Value = serde_json::from_slice(&answer.stdout).expect("JSON");
    let findings = json["findings"].as_array().expect("a list");
    let idle = findings
        .iter()
        .filter(|it| it["finding"] == "limit_never_binds");
    let idle: Vec<&str> = idle.filter_map(|it| it["vm"].as_str()).collect();
    assert_eq!(idle, ["web1", "web2", "web3", "web4", "web5", "web6"]);
    let commands = findings.iter().filter_map(|it| it["command"].as_str());
    assert!(!commands.into_iter().any(|it| it.contains(" mail ")));
}

/// Returns the answer of a search that keeps the latency of `etcd` under the policy `limit`.
fn chosen(path: &str, etcd: &str) -> Value {
    let promise = format!("{etcd}=latency=150 ms");
    let choose = ["whatif", path, "--choose", "--budget", "5 s", "-o", "json"];
    let more = ["--objective", &promise, "--policy", "limit"];
    let answer = tidegate(&[&choose[..], &more[..]].concat());
    assert!(answer.status.success(), "{}", stderr(&answer));
    serde_json::from_slice(&answer.stdout).expect("JSON")
}

fn texts<'a>(answer: &'a Value, key: &str) -> Vec<&'a str> {
    let list = answer[key].as_array().expect("a list");
    list.iter().filter_map(Value::as_str).collect()
}

/// A limit that never bound, and that the search has lowered, must not be taken away as well.
#[test]
fn a_loose_limit_that_is_lowered_is_not_taken_away() {
    let backup = "name = \"backup\"\n";
    let loose = format!("{backup}objective.limit = \"1 GB/s\"\n");
    let (_dir, path) = recording(&SCENARIO.replace(backup, &loose));
    let answer = chosen(&path, "etcd");
    let commands = texts(&answer, "commands");
    let lowered = |it: &&&str| it.starts_with("tidegate vm set backup --limit ");
    assert_eq!(commands.iter().filter(lowered).count(), 1, "{commands:?}");
    let findings = answer["findings"].as_array().expect("a list");
    let idle = findings.iter().filter_map(|it| it["command"].as_str());
    let idle: Vec<&str> = idle.collect();
    assert_eq!(idle, ["tidegate vm set web --limit none"]);
}

/// Writes a recording again after a change of its facts.
fn rewrite(path: &str, change: impl FnOnce(&mut Recording)) {
    let bytes = std::fs::read(path).expect("it is there");
    let mut recording = Recording::read(&bytes[..], usize::MAX).expect("a recording");
    change(&mut recording);
    let mut bytes = Vec::new();
    let mut encoder = Encoder::new(&recording.header, &mut bytes);
    for (at, change) in &recording.changes {
        encoder.change(*at, change, &mut bytes);
    }
    for request in &recording.requests {
        encoder.push(request, &mut bytes);
    }
    encoder.end(recording.summary.last, &mut bytes);
    std::fs::write(path, bytes).expect("it is written");
}

/// Commands address a VM by the name that it has in the end, and say what a schedule does to them.
#[test]
fn commands_follow_names_and_schedules() {
    let (_dir, path) = recording(SCENARIO);
    let later = Nanos::from_secs(1);
    let renamed = |vm: u32, name: &str| {
        let name = name.to_owned();
        (later, Change::VmRenamed { vm, name })
    };
    rewrite(&path, |recording| {
        recording.changes = vec![renamed(0, "postgres"), renamed(2, "etcd")];
        recording.header.vms[1].scheduled = true;
    });
    let answer = chosen(&path, "postgres");
    let commands = texts(&answer, "commands");
    assert_eq!(commands[0], "tidegate vm set postgres --latency '150 ms'");
    assert!(
        commands[1].starts_with("tidegate vm set backup --limit "),
        "{commands:?}"
    );
    let cautions = texts(&answer, "cautions");
    assert_eq!(cautions.len(), 1);
    assert!(
        cautions[0].starts_with("backup has a schedule: the command changes its base objective"),
        "{cautions:?}"
    );
    // A limit that a schedule may bring back is not said to be of no use.
    let idle = |answer: &Value| {
        let findings = answer["findings"].as_array().expect("a list");
        findings.iter().any(|it| it["command"].is_string())
    };
    assert!(idle(&answer), "the limit of web, which is etcd now");
    rewrite(&path, |recording| recording.header.vms[2].scheduled = true);
    assert!(!idle(&chosen(&path, "postgres")));

    // Two VMs with one name: one is gone, so that the command means the other.
    rewrite(&path, |recording| {
        recording.changes = vec![
            renamed(2, "backup"),
            (Nanos::from_secs(39), Change::VmRemoved { vm: 2 }),
        ];
    });
    let answer = chosen(&path, "etcd");
    let commands = texts(&answer, "commands");
    assert!(
        commands[1].starts_with("tidegate vm set backup --limit "),
        "{commands:?}"
    );
    assert_eq!(answer["vms"][1]["name"], "backup-1");
    // Both are there: no command can tell them apart.
    rewrite(&path, |recording| {
        recording.changes.pop();
    });
    let answer = chosen(&path, "etcd");
    assert_eq!(texts(&answer, "commands").len(), 1);
    let cautions = texts(&answer, "cautions");
    assert!(
        cautions[0].starts_with("No command for backup-1: several VMs"),
        "{cautions:?}"
    );
}

/// A VM that is not there in the judged part has kept nothing in it.
#[test]
fn promises_that_nothing_judged_are_not_said_to_be_kept() {
    let short = SCENARIO.replace(
        "rate_iops = \"10 IOPS\"",
        "rate_iops = \"10 IOPS\"\nruntime = \"20 s\"",
    );
    let (_dir, path) = recording(&short);
    let answer = chosen(&path, "etcd");
    assert_eq!(answer["all_kept"], false);
    assert_eq!(answer["unjudged"][0]["vm"], "etcd");
    assert_eq!(answer["unjudged"][0]["part"], "latency");
    let arguments = [&["whatif", path.as_str()], &CHOOSE[..], &["5 s"]].concat();
    let text = stdout(&tidegate(&arguments));
    for part in [
        "All promises that the judged slice shows are kept; of the others nothing is known.",
        "Not judged, for want of requests in its slice: latency of etcd.",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}
