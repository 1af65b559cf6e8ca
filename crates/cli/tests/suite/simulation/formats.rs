//! Old spellings of scenarios, and configurations of the daemon in their place.

use super::{Value, example, printed, refused, text, tidegate};
use std::path::Path;

/// Standard output and standard error of a command that succeeds.
fn both(args: &[&str]) -> (String, String) {
    let output = tidegate(args);
    let errors = text(&output.stderr);
    assert!(output.status.success(), "{args:?}: {errors}");
    (text(&output.stdout), errors)
}

#[test]
fn scenarios_of_the_first_format_give_the_same_bytes() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let old = std::fs::read_dir(root.join("tests/fixtures/scenarios-v1")).expect("it is there");
    let mut compared = 0;
    for old in old.map(|entry| entry.expect("readable").path()) {
        let name = old
            .file_name()
            .expect("a file")
            .to_string_lossy()
            .into_owned();
        let new = match name.split_once('-') {
            Some(("vcpu", name)) => format!("../../examples/vcpu/{name}"),
            // The papers' own scenarios follow the newest reading of them.
            Some(("flubber" | "vcup", _)) => format!("tests/fixtures/scenarios-v2/{name}"),
            _ => format!("../../examples/{name}"),
        };
        let command: &[&str] = if name.starts_with("vcpu-") {
            &["vcpu", "sim"]
        } else {
            &["sim"]
        };
        let run = |file: &Path| {
            let file = file.display().to_string();
            // Longer than its warm-up.
            let duration = match name.as_str() {
                "vcup-single.toml" | "flubber-mixed.toml" | "capped-disk.toml" => "61 s",
                _ => "11 s",
            };
            let rest = [file.as_str(), "--duration", duration, "-o", "json"];
            both(&[command, &rest].concat())
        };
        let ((old, notes), (new, none)) = (run(&old), run(&root.join(new)));
        assert!(old == new, "{name} gives something else");
        assert!(notes.contains("note: "), "{name}: {notes}");
        assert!(
            notes.contains("it is accepted for one release"),
            "{name}: {notes}"
        );
        assert!(!none.contains("old spelling"), "{name}: {none}");
        compared += 1;
    }
    assert_eq!(compared, 13);
}

#[test]
fn an_ordinary_host_has_all_that_it_was_promised_by_default() {
    let (json, _) = both(&[
        "sim",
        &example("host.toml"),
        "--duration",
        "20 s",
        "-o",
        "json",
    ]);
    let report: Value = serde_json::from_str(&json).expect("JSON");
    let vms = report["vms"].as_array().expect("VMs");
    let judged = vms.iter().flat_map(|vm| {
        let promises = vm["promises"].as_array().expect("promises");
        promises.iter().map(move |promise| (&vm["name"], promise))
    });
    let mut parts = Vec::new();
    for (name, promise) in judged {
        assert_eq!(promise["kept"], true, "{name}: {promise}");
        parts.push((name.as_str().expect("a name"), promise["part"].as_str()));
    }
    let kept = [
        ("db", "reservation"),
        ("db", "latency"),
        ("web", "reservation"),
    ];
    let kept = kept
        .into_iter()
        .chain([("ci", "limit"), ("files", "limit")]);
    assert_eq!(
        parts,
        kept.map(|(vm, part)| (vm, Some(part))).collect::<Vec<_>>()
    );
    assert!(json.contains("\"slo\""), "the policy is the default one");
}

#[test]
fn a_configuration_is_simulated_as_it_stands() {
    let (json, notes) = both(&["sim", &example("quickstart.toml"), "-o", "json"]);
    let report: Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(report["duration_s"], 10.0);
    let names: Vec<_> = (report["vms"].as_array().expect("VMs").iter())
        .map(|vm| vm["name"].as_str().expect("a name"))
        .collect();
    assert_eq!(names, ["scratch", "oltp"]);
    assert!(report["vms"][1]["iops"].as_f64().expect("a rate") > 120.0);
    for message in [
        "note: 10 s are simulated; change it with --duration",
        "70 % reads, iodepth 32: scratch, oltp",
        "note: device disk0: simulated as ssd-sata-300gb, the default; change it with --device",
    ] {
        assert!(notes.contains(message), "{message}: {notes}");
    }
    let hdd = [
        "sim",
        &example("quickstart.toml"),
        "--device",
        "hdd-7200-1tb",
    ];
    let (table, notes) = both(&[&hdd[..], &["--duration", "2 s"]].concat());
    assert!(table.contains("hdd-7200-1tb"), "{table}");
    assert!(!notes.contains("simulated as"), "{notes}");
    // A simulation has no wall clock, so schedules are ignored with a note.
    let (_, notes) = both(&["sim", &example("evening.toml"), "--duration", "1 s"]);
    assert!(
        notes.contains("note: dss: the schedule is ignored"),
        "{notes}"
    );
}

#[test]
fn disks_of_a_configuration_keep_their_limits() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("tidegate.toml");
    let simulate = |size: &str, workloads: &str| -> Value {
        let text = format!(
            "[[listen]]\nunix = \"nbd.sock\"\n[[device]]\nname = \"d\"\nkind = \"memory\"\n\
             profile = \"nvme-1tb\"\npolicy = \"fifo\"\n[[device.limit_group]]\n\
             name = \"logs\"\nlimit = \"300 IOPS\"\n[[vm]]\nname = \"a\"\n[[vm.disk]]\n\
             size = \"{size}\"\nlimit_group = \"logs\"\n[[vm.disk]]\nexport = \"a-data\"\n\
             size = \"{size}\"\nlimit = \"200 IOPS\"\n{workloads}[[vm]]\nname = \"b\"\n\
             disk = [{{ size = \"2 GiB\", limit_group = \"logs\" }}]\n\
             workload = [{{ rw = \"randread\", iodepth = 16 }}]\n"
        );
        std::fs::write(&file, text).expect("writable");
        let path = file.display().to_string();
        let (json, _) = both(&["sim", &path, "-o", "json", "--duration", "20 s"]);
        serde_json::from_str(&json).expect("JSON")
    };
    let assert_near = |report: &Value, vm: usize, key: &str, expected: f64| {
        let rate = report["vms"][vm][key].as_f64().expect("a rate");
        assert!((rate / expected - 1.0).abs() < 0.05, "{key}: {rate}");
    };
    let report = simulate(
        "8 GiB",
        "[[vm.workload]]\nrw = \"randread\"\niodepth = 4\nsize = \"8 GiB\"\n\
         [[vm.workload]]\nrw = \"randwrite\"\niodepth = 4\noffset = \"8 GiB\"\n",
    );
    assert_near(&report, 0, "read_iops", 150.0);
    assert_near(&report, 0, "write_iops", 200.0);
    assert_near(&report, 1, "iops", 150.0);
    // Disks that are shrunk to the model are still two: random reads go to both alike, and wait for
    // the slower one.
    let random = "[[vm.workload]]\nrw = \"randread\"\niodepth = 32\n";
    let report = simulate("4 TiB", random);
    assert_near(&report, 0, "iops", 300.0);
    assert_near(&report, 1, "iops", 150.0);
}

#[test]
fn a_configuration_may_name_its_load() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("tidegate.toml");
    let with = |workload: &str| {
        let text = format!(
            "[store]\npath = \"s.redb\"\n[daemon]\nstop_timeout = \"9 s\"\n\
             [[listen]]\nunix = \"nbd.sock\"\n[[device]]\nname = \"d\"\nkind = \"file\"\n\
             profile = \"hdd-7200-1tb\"\n[[vm]]\nname = \"a\"\n[[vm.disk]]\npath = \"a.raw\"\n\
             size = \"3 TiB\"\n[[vm.disk]]\npath = \"b.raw\"\nexport = \"b\"\n{workload}"
        );
        std::fs::write(&file, text).expect("writable");
    };
    let path = file.display().to_string();
    with("[[vm.workload]]\nrw = \"read\"\nbs = \"1 MiB\"\nsize = \"4 GiB\"\n");
    let (json, notes) = both(&["sim", &path, "-o", "json", "--duration", "3 s"]);
    let report: Value = serde_json::from_str(&json).expect("JSON");
    let rate = report["vms"][0]["bytes_per_s"].as_f64().expect("a rate");
    assert!(rate > 50e6, "{rate}");
    for message in [
        "note: device d: simulated as hdd-7200-1tb, the model of its profile",
        "note: a: the 2 disks are simulated as one",
        "note: a: the size of disk b is not known, simulated as 10 GiB",
        "% of each are simulated",
    ] {
        assert!(notes.contains(message), "{message}: {notes}");
    }
    assert!(!notes.contains("no [[vm.workload]]"), "{notes}");
    // Serving leaves it alone, but what is wrong with it is said there, too.
    printed(&["check", &path]);
    with("[[vm.workload]]\nrw = \"raed\"\n");
    for command in ["check", "sim", "serve"] {
        let message = refused(&[command, &path]);
        assert!(
            message.contains("did you mean \"read\"?"),
            "{command}: {message}"
        );
    }
}
