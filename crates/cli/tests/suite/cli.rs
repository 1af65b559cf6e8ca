//! The `tidegate` binary as its users meet it: commands without a daemon.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::common::page::{assert_loads_nothing, body};
use crate::common::{CONFIG, examples, stderr, stdout, tidegate};
use serde_json::Value;

#[test]
fn the_old_name_of_transfers_is_accepted_with_a_note() {
    let asked = |command| stderr(&tidegate(&["--socket", "/nowhere.sock", command, "list"]));
    let (old, new) = (asked("job"), asked("transfer"));
    let note = "note: `job` is the old name of `transfer`, accepted for one release\n";
    assert!(new.contains("/nowhere.sock"), "{new}");
    assert_eq!(old, format!("{note}{new}"));
}

#[test]
fn a_plan_as_a_page_has_what_the_text_has_whether_it_fits_or_not() {
    let file = examples().join("planned.toml");
    let file = file.to_str().expect("plain");
    let dir = tempfile::tempdir().expect("a directory");
    let page = dir.path().join("plan.html");
    let page_name = page.to_str().expect("plain");
    let html = |more: &[&str]| {
        let output = tidegate(&[&["plan", file, "--report", page_name], more].concat());
        let html = std::fs::read_to_string(&page).expect("it is written");
        roxmltree::Document::parse(body(&html)).expect("well-formed");
        assert_loads_nothing(&html);
        (output.status.success(), html)
    };
    let (fits, text) = html(&[]);
    assert!(fits && text.contains("all promises fit"), "{text}");
    assert!(text.contains("Device time promised") && text.contains(">all together</text>"));
    let (fits, text) = html(&["--headroom", "1 %"]);
    assert!(!fits && text.contains("the promises do not fit"), "{text}");
    assert!(text.contains("What would fit"), "{text}");
}

#[test]
fn a_plan_says_what_fits_and_what_would() {
    let file = examples().join("planned.toml");
    let file = file.to_str().expect("plain");
    let fits = tidegate(&["plan", file]);
    assert!(fits.status.success(), "{}", stderr(&fits));
    let shown = stdout(&fits);
    assert!(
        shown.contains("17.5 reads/s and 7.5 writes/s, random, 16 KiB"),
        "{shown}"
    );
    let what_if = [
        "plan",
        file,
        "--vm",
        "backup",
        "--reservation",
        "10 MB/s",
        "-o",
        "json",
    ];
    let too_much = tidegate(&what_if);
    assert_eq!(too_much.status.code(), Some(1));
    assert!(
        stderr(&too_much).contains("at most 80 % may be promised"),
        "{}",
        stderr(&too_much)
    );
    let plan: serde_json::Value = serde_json::from_str(&stdout(&too_much)).expect("JSON");
    let device = &plan["devices"][0];
    assert_eq!(
        (&plan["fits"], &device["short_of"]),
        (&false.into(), &"device time".into())
    );
    // The objective that is said to fit does.
    let near = device["nearest"]["objective"]["reservation"]
        .as_str()
        .expect("one does");
    assert_eq!(device["nearest"]["vm"], "backup");
    let instead = tidegate(&["plan", file, "--vm", "backup", "--reservation", near]);
    assert!(instead.status.success(), "{}", stderr(&instead));
    // All of the device may be promised, if that is wanted, but no more.
    let beyond = tidegate(&["plan", file, "--headroom", "100.1 %"]);
    assert_eq!(beyond.status.code(), Some(2));
    let whole = tidegate(&["plan", file, "--headroom", "100 %"]);
    assert!(whole.status.success(), "{}", stderr(&whole));
    let nowhere = tidegate(&["plan", file, "--device", "nope"]);
    assert!(
        stderr(&nowhere).contains("there are: disk0"),
        "{}",
        stderr(&nowhere)
    );
}

/// Returns the text of a scenario with this many servers of 20 IOPS beside a file server, with more
/// keys of their objective.
fn servers(count: u32, more: &str) -> String {
    format!(
        "duration = \"1 s\"\n[[device]]\nname = \"d\"\nmodel = \"hdd-7200-1tb\"\n\
         profile = \"hdd-7200-1tb\"\n[[vm]]\nname = \"files\"\n\
         objective = {{ reservation = \"30 IOPS\" }}\ndisk = [{{ size = \"20 GiB\" }}]\n\
         workload = [{{ rw = \"randread\" }}]\n[[vm]]\nname = \"web\"\ncount = {count}\n\
         objective = {{ reservation = \"20 IOPS\"{more} }}\ndisk = [{{ size = \"20 GiB\" }}]\n\
         workload = [{{ rw = \"randread\" }}]\n"
    )
}

#[test]
fn what_a_plan_says_would_fit_fits_for_tables_with_a_count_as_well() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("s.toml");
    let plan = |text: &str| -> (bool, serde_json::Value, String) {
        std::fs::write(&file, text).expect("writable");
        let output = tidegate(&["plan", file.to_str().expect("plain"), "-o", "json"]);
        let plan = serde_json::from_str(&stdout(&output)).expect("JSON");
        (output.status.success(), plan, stderr(&output))
    };
    let (fits, planned, message) = plan(&servers(8, ""));
    assert!(!fits && message.contains("as shown above"), "{message}");
    let device = &planned["devices"][0];
    assert_eq!(device["nearest_counts"][0]["vm"], "web");
    let count = device["nearest_counts"][0]["count"].as_u64();
    let count = u32::try_from(count.expect("some fit")).expect("few");
    assert!(plan(&servers(count, "")).0, "{count}");
    assert!(!plan(&servers(count + 1, "")).0, "{count}");
    // One section of the file stands for all of them.
    let text = stdout(&tidegate(&["plan", file.to_str().expect("plain")]));
    assert!(text.contains("    # web\n"), "{text}");
    assert!(
        !text.contains("# web-1") && !text.contains("of web-"),
        "{text}"
    );

    // No rate makes these bounds hold; longer ones do.
    let (fits, planned, message) = plan(&servers(2, ", latency = \"5 ms\""));
    assert!(
        !fits && message.contains("latency bound of 5 ms of VM web-1"),
        "{message}"
    );
    let all = &planned["devices"][0]["nearest_of_all"];
    assert_eq!(all["percent"], 100.0);
    let latency = all["vms"][1]["objective"]["latency"]
        .as_str()
        .expect("a bound");
    let (fits, _, message) = plan(&servers(2, &format!(", latency = \"{latency}\"")));
    assert!(fits, "{latency}: {message}");
}

#[test]
fn a_plan_without_anything_that_would_fit_points_at_nothing() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("s.toml");
    // The envelope is no reservation, and takes more than the device.
    let objective = "{ latency = \"1 s\", expects = { iops = 5000 } }";
    let text = servers(2, "").replace("{ reservation = \"20 IOPS\" }", objective);
    std::fs::write(&file, text).expect("writable");
    let output = tidegate(&["plan", file.to_str().expect("plain")]);
    let message = stderr(&output);
    assert!(message.contains("lower expects.iops"), "{message}");
    assert!(!message.contains("as shown above"), "{message}");
}

#[test]
fn what_cannot_be_planned_says_what_to_do_and_what_does_not_fit_is_warned_of() {
    let scenario = examples().join("noisy-neighbour.toml");
    let unknown = tidegate(&["plan", scenario.to_str().expect("plain")]);
    assert_eq!(unknown.status.code(), Some(1));
    let message = stderr(&unknown);
    let help =
        "add profile = \"hdd-7200-1tb\" to its [[device]]: the built-in profile of its model";
    assert!(message.contains(help), "{message}");
    let dir = tempfile::tempdir().expect("a directory");
    let planned = std::fs::read_to_string(examples().join("planned.toml")).expect("readable");
    let too_much = planned.replace("25 IOPS", "250 IOPS");
    let file = dir.path().join("much.toml");
    std::fs::write(&file, too_much).expect("writable");
    let checked = tidegate(&["check", file.to_str().expect("plain")]);
    assert!(checked.status.success(), "{}", stderr(&checked));
    let message = stderr(&checked);
    assert!(
        message.contains("warning: device \"disk0\": the promises need"),
        "{message}"
    );
    assert!(
        message.contains("`tidegate plan` says what would fit"),
        "{message}"
    );
}

#[test]
fn a_plan_refuses_an_imprecise_profile_and_says_what_to_do() {
    let dir = tempfile::tempdir().expect("a directory");
    let busy = include_str!("../../../config/tests/data/busy.profile.toml");
    std::fs::write(dir.path().join("busy.toml"), busy).expect("writable");
    let planned = std::fs::read_to_string(examples().join("planned.toml")).expect("readable");
    let named = planned.replace("profile = \"hdd-7200-1tb\"", "profile = \"busy.toml\"");
    assert_ne!(planned, named);
    let file = dir.path().join("planned.toml");
    std::fs::write(&file, named).expect("writable");
    let file = file.to_str().expect("plain");
    let refused = tidegate(&["plan", file]);
    assert_eq!(refused.status.code(), Some(1));
    let message = stderr(&refused);
    assert!(
        message.contains("4 KiB random reads (±330 %)")
            && message.contains("measure the device again"),
        "{message}"
    );
    let json = tidegate(&["plan", file, "-o", "json"]);
    let plan: serde_json::Value = serde_json::from_str(&stdout(&json)).expect("JSON");
    let device = &plan["devices"][0];
    assert!(plan["fits"] == false && device["fits"].is_null() && device["imprecise"].is_string());
    let profile = dir.path().join("busy.toml");
    let shown = tidegate(&["profile", "show", profile.to_str().expect("plain")]);
    let shown = stdout(&shown);
    assert!(shown.contains("330.1 % !"), "{shown}");
}

#[test]
fn every_example_is_accepted_without_a_warning_but_for_the_demo_and_the_host() {
    let mut checked = 0;
    for entry in std::fs::read_dir(examples()).expect("examples are there") {
        let path = entry.expect("readable").path();
        if path.extension().is_none_or(|extension| extension != "toml") {
            continue;
        }
        let output = tidegate(&["check", path.to_str().expect("plain")]);
        let name = path
            .file_name()
            .expect("a file")
            .to_string_lossy()
            .into_owned();
        assert!(output.status.success(), "{name}: {}", stderr(&output));
        // A configuration is shown with its objectives, a device model with its capacity.
        let shown = stdout(&output);
        let known = shown.contains("OBJECTIVE") || shown.contains("CAPACITY");
        assert!(known, "{name}: {shown}");
        // The demo's disks are larger than the host's memory, and the simulated one has a
        // database that wants a latency, which mClock, that its file names, does not enforce.
        // Nor does the policy of the nine VMs, which is what `whatif --choose` finds out.
        let quiet = stderr(&output).is_empty();
        assert!(
            quiet || name.starts_with("demo") || name == "nine-vms.toml",
            "{name}: {}",
            stderr(&output)
        );
        checked += 1;
    }
    assert!(checked >= 3);
}

#[test]
fn a_schedule_is_shown_by_check_which_warns_of_what_is_over() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("t.toml");
    let entries = "timezone = \"Europe/Berlin\"\n\
                   [[vm.objective.schedule]]\nfrom = \"18:00\"\nreservation = \"200 IOPS\"\n\
                   [[vm.objective.schedule]]\nat = \"2020-01-01T00:00\"\n\
                   until = \"2020-01-02T00:00\"\nreservation = \"300 IOPS\"\n";
    let config = CONFIG.replace("latency = \"30 ms\"\n", entries);
    std::fs::write(&path, config).expect("writable");
    let path = path.to_str().expect("plain");
    let checked = tidegate(&["check", path]);
    let shown = stdout(&checked);
    assert!(
        shown.contains("at least 120 IOPS; 2 schedule entries"),
        "{shown}"
    );
    let warned = stderr(&checked);
    let over = "entry 2 (2020-01-01 00:00 to 2020-01-02 00:00) is in the past";
    assert!(warned.contains(over), "{warned}");
    let json = tidegate(&["check", path, "-o", "json"]);
    let report: Value = serde_json::from_str(&stdout(&json)).expect("JSON");
    let vm = &report["vms"][0];
    assert_eq!(vm["timezone"], "Europe/Berlin", "{vm}");
    assert_eq!(vm["schedule"][0]["reservation"], "200 IOPS", "{vm}");
}

#[test]
fn a_broken_configuration_is_located_and_ends_with_one() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("broken.toml");
    std::fs::write(&path, CONFIG.replace("\"120 IOPS\"", "120")).expect("writable");
    let path = path.to_str().expect("plain");
    for command in ["check", "serve"] {
        let output = tidegate(&[command, path]);
        assert_eq!(output.status.code(), Some(1), "{command}");
        let message = stderr(&output);
        assert!(message.contains("broken.toml:12:15"), "{message}");
        assert!(message.contains("help: \"120 IOPS\""), "{message}");
    }
    let output = tidegate(&["check", path, "-o", "json"]);
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(report["good"], false);
    assert_eq!(report["errors"][0]["place"]["line"], 12);
}

#[test]
fn a_configuration_may_come_through_a_pipe() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(["check", "/dev/stdin"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    let mut stdin = child.stdin.take().expect("piped");
    stdin.write_all(CONFIG.as_bytes()).expect("it reads");
    drop(stdin);
    let output = child.wait_with_output().expect("it ends");
    assert!(output.status.success(), "{}", stdout(&output));
    assert!(stdout(&output).contains("oltp"), "{}", stdout(&output));
}

#[test]
fn what_is_not_there_yet_is_a_warning() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("t.toml");
    let text = CONFIG
        .replace("\"nbd.sock\"", "\"no-run/nbd.sock\"")
        .replace("\"memory\"", "\"file\"")
        .replacen(
            "size",
            "path = \"no-disks/a.raw\"\ncreate = \"sparse\"\nsize",
            1,
        )
        .replacen("size = \"8 MiB\"\n", "SIZE", 1)
        .replace("size = \"8 MiB\"", "path = \"b.raw\"")
        .replace("SIZE", "size = \"8 MiB\"\n");
    std::fs::write(&path, text).expect("writable");
    let path = path.to_str().expect("plain");
    let output = tidegate(&["check", path]);
    let message = stderr(&output);
    assert!(output.status.success(), "{message}");
    for part in [
        "warning: listen[0].unix: ",
        "no-run does not exist: create it (mkdir -p)",
        "warning: vm \"oltp\": ",
        "no-disks does not exist: create it (mkdir -p)",
        "b.raw does not exist yet",
        "t.toml:5:8\n",
        "t.toml:21:8\n",
    ] {
        assert!(message.contains(part), "{part}: {message}");
    }
    assert!(!message.contains("control"), "{message}");
    let output = tidegate(&["check", path, "-o", "json"]);
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let warnings = report["warnings"].as_array().expect("a list");
    assert_eq!(warnings.len(), 3, "{report}");
    // Parts that only the default policy enforces are listed.
    let newly = &report["default_policy"][0]["newly_enforced"];
    assert_eq!(newly[0]["part"], "latency", "{report}");
}

#[test]
fn an_encrypted_disk_is_accepted_with_a_warning() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("t.toml");
    let mut content = vec![0; 1 << 20];
    content[..8].copy_from_slice(b"LUKS\xba\xbe\0\x02");
    std::fs::write(dir.path().join("luks"), content).expect("writable");
    for (format, warns) in [("", true), ("format = \"raw\"\n", false)] {
        let text = format!(
            "[[listen]]\nunix = \"s\"\n[[device]]\nname = \"d\"\nkind = \"file\"\n\
             [[vm]]\nname = \"a\"\n[[vm.disk]]\npath = \"luks\"\n{format}"
        );
        std::fs::write(&path, text).expect("writable");
        let output = tidegate(&["check", path.to_str().expect("plain")]);
        let message = stderr(&output);
        assert!(output.status.success(), "{message}");
        assert_eq!(
            message.contains("begins with a LUKS header"),
            warns,
            "{message}"
        );
    }
}

#[test]
fn check_refuses_the_disks_that_serve_would_refuse() {
    let dir = tempfile::tempdir().expect("a directory");
    let at = |name: &str| dir.path().join(name);
    let mut image = vec![0; 1 << 20];
    image[..4].copy_from_slice(b"QFI\xfb");
    std::fs::write(at("image"), image).expect("writable");
    std::fs::create_dir(at("directory")).expect("writable");
    std::fs::write(at("short"), [0; 4096]).expect("writable");
    let made = std::process::Command::new("mkfifo")
        .arg(at("fifo"))
        .status();
    assert!(made.expect("coreutils").success());
    let vms = ["image", "directory", "short", "fifo", "new"].map(|name| {
        format!(
            "[[vm]]\nname = \"{name}\"\n[[vm.disk]]\npath = \"{name}\"\nsize = \"1 MiB\"\n\
             create = \"sparse\"\n"
        )
    });
    let device = "[[listen]]\nunix = \"s\"\n[[device]]\nname = \"d\"\nkind = \"file\"\n";
    let path = at("t.toml");
    std::fs::write(&path, format!("{device}{}", vms.concat())).expect("writable");
    let path = path.to_str().expect("plain");
    let output = tidegate(&["check", path]);
    let message = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{message}");
    for part in [
        "looks like a qcow2 image",
        "directory: is a directory; a disk needs a regular file",
        "is 4 KiB long, but size says 1 MiB",
        "fifo: is a FIFO; a disk needs a regular file",
        "vm \"image\": export \"image\"",
        "t.toml:9:8",
        "help: size = \"4 KiB\", or leave it out",
    ] {
        assert!(message.contains(part), "{part}: {message}");
    }
    assert!(!message.contains("\"new\""), "{message}");
    assert!(!at("new").exists(), "it is not for check to make it");
}

#[test]
fn check_and_serve_name_a_group_that_is_not_there_at_its_line() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("t.toml");
    let text = "[control]\nsocket = \"c\"\n\
                [[listen]]\nunix = \"s\"\nmode = \"0660\"\ngroup = \"no-such-group\"\n\
                [[device]]\nname = \"d\"\nkind = \"memory\"\n\
                [[vm]]\nname = \"a\"\n[[vm.disk]]\nsize = \"1 MiB\"\n";
    std::fs::write(&path, text).expect("writable");
    for command in ["check", "serve"] {
        let output = tidegate(&[command, path.to_str().expect("plain")]);
        let message = stderr(&output);
        assert_eq!(output.status.code(), Some(1), "{command}: {message}");
        for part in [
            "there is no group \"no-such-group\"",
            "t.toml:6:",
            "getent group",
        ] {
            assert!(message.contains(part), "{command}: {part}: {message}");
        }
    }
}

#[test]
fn files_of_other_commands_are_named_with_the_command() {
    let dir = tempfile::tempdir().expect("a directory");
    for (command, name, what, instead) in [
        (
            "plan",
            "x.fio",
            "a fio job file promises nothing",
            "`tidegate sim`",
        ),
        ("sim", "x.tgrec", "this is a recording", "`tidegate whatif`"),
    ] {
        let file = dir.path().join(name);
        std::fs::write(&file, "[a]\nrw=randread\n").expect("writable");
        let message = stderr(&tidegate(&[command, file.to_str().expect("plain")]));
        for part in [what, instead, name] {
            assert!(message.contains(part), "{part}: {message}");
        }
    }
}

#[test]
fn wrong_arguments_end_with_two_and_help_teaches() {
    for args in [
        &["vm", "set", "oltp"][..],
        &["frobnicate"],
        &["demo", "--policy", "mclok"],
    ] {
        assert_eq!(tidegate(args).status.code(), Some(2), "{args:?}");
    }
    for (interval, part) in [("2", "without a unit"), ("1 ms", "50 ms to 1 h")] {
        let output = tidegate(&["stats", "--follow", "--interval", interval]);
        assert_eq!(output.status.code(), Some(2), "{interval}");
        assert!(stderr(&output).contains(part), "{}", stderr(&output));
    }
    let message = stderr(&tidegate(&["top"]));
    assert!(message.contains("needs a terminal"), "{message}");
    assert!(message.contains("tidegate stats"), "{message}");
    let message = stderr(&tidegate(&["demo", "--policy", "mclok"]));
    assert!(message.contains("mclock"), "{message}");
    let short = tidegate(&["demo", "--seconds", "8"]);
    assert_eq!(short.status.code(), Some(1));
    let message = stderr(&short);
    assert!(
        message.contains("8 s are too short for 3 policies on 2 devices"),
        "{message}"
    );
    assert!(message.contains("--seconds 23 or more"), "{message}");
    for args in [
        &["--help"][..],
        &["vm", "set", "--help"],
        &["policy", "set", "--help"],
    ] {
        let output = tidegate(args);
        assert!(output.status.success());
        assert!(
            stdout(&output).contains("Example"),
            "{args:?}: {}",
            stdout(&output)
        );
    }
}

#[test]
fn policies_are_shown_without_a_daemon() {
    let output = tidegate(&["policy", "list"]);
    assert!(output.status.success(), "{}", stderr(&output));
    for name in ["fifo", "limit", "mclock", "token-bucket"] {
        assert!(stdout(&output).contains(name), "{}", stdout(&output));
    }
    let output = tidegate(&["policy", "show", "sfq"]);
    let message = stdout(&output);
    assert!(
        message.contains("bytes, requests, size-classes"),
        "{message}"
    );
    let output = tidegate(&["policy", "show", "mclock"]);
    assert!(stdout(&output).contains("cost_size"), "{}", stdout(&output));
    let output = tidegate(&["policy", "show", "token-bucket"]);
    let message = stdout(&output);
    assert!(
        message.contains("regulator") && message.contains("slack"),
        "{message}"
    );
    let output = tidegate(&["policy", "show", "token-bucket+mclock"]);
    let message = stdout(&output);
    assert!(
        message.contains("cost of an I/O that is charged to its VM"),
        "{message}"
    );
    let output = tidegate(&["policy", "show", "mclok"]);
    assert_eq!(output.status.code(), Some(1));
    let message = stderr(&output);
    assert!(message.contains("did you mean \"mclock\""), "{message}");
    assert!(message.contains("credit-feedback"), "{message}");
    let output = tidegate(&["completions", "bash"]);
    assert!(
        stdout(&output).contains("tidegate"),
        "completions are empty"
    );
}

#[test]
fn torture_does_the_same_on_one_processor_and_on_many_and_remembers_it() {
    let dir = tempfile::tempdir().expect("a directory");
    let resume = dir.path().join("seeds");
    let resume = resume.to_str().expect("a path in UTF-8");
    let torture = |args: &[&str]| {
        let output = tidegate(&[&["torture", "-o", "json", "--seeds"], args].concat());
        assert!(output.status.success(), "{}", stderr(&output));
        serde_json::from_str::<Value>(&stdout(&output)).expect("JSON")
    };
    let (one, many) = (
        torture(&["6", "--jobs", "1"]),
        torture(&["6", "--jobs", "4", "--resume", resume]),
    );
    assert_eq!(one["passed"], 6);
    assert_eq!(one["digest"], many["digest"]);
    assert!(one["requests"].as_u64() > Some(100), "{one}");
    let more = torture(&["8", "--resume", resume]);
    assert_eq!((&more["passed"], &more["left_out"]), (&2.into(), &6.into()));
}

#[test]
fn torture_refuses_seeds_that_passed_with_other_policies() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("seeds");
    let resume = file.to_str().expect("a path in UTF-8");
    let torture = |args: &[&str]| {
        tidegate(&[&["torture", "--seeds", "3", "--resume", resume], args].concat())
    };
    let output = torture(&[]);
    assert!(output.status.success(), "{}", stderr(&output));
    let held = std::fs::read(&file).expect("written");
    let output = torture(&["--policy", "sfq"]);
    assert_eq!(output.status.code(), Some(1));
    let message = stderr(&output);
    for part in ["policies any", "policies sfq", resume, "help:"] {
        assert!(message.contains(part), "{message}");
    }
    assert_eq!(std::fs::read(&file).expect("still there"), held);
    let output = torture(&[]);
    assert!(stdout(&output).contains("passed earlier"), "{output:?}");
}

#[test]
fn torture_resumes_from_a_regular_file_only() {
    let dir = tempfile::tempdir().expect("a directory");
    let fifo = dir.path().join("fifo");
    let made = Command::new("mkfifo").arg(&fifo).status();
    assert!(made.expect("mkfifo runs").success());
    let nowhere = dir.path().join("none/seeds");
    for (path, what) in [
        (fifo.as_path(), "a FIFO"),
        (dir.path(), "a directory"),
        (Path::new("/dev/zero"), "a character device"),
        (&nowhere, "cannot write"),
    ] {
        let path = path.to_str().expect("a path in UTF-8");
        let output = tidegate(&["torture", "--seeds", "1", "--resume", path]);
        assert_eq!(output.status.code(), Some(1), "{path}");
        let message = stderr(&output);
        assert!(
            message.contains(what) && message.contains(path),
            "{message}"
        );
        assert!(stdout(&output).is_empty(), "it ran: {}", stdout(&output));
    }
    let (file, link) = (dir.path().join("file"), dir.path().join("link"));
    std::os::unix::fs::symlink(&file, &link).expect("a link");
    let resume = link.to_str().expect("a path in UTF-8");
    let output = tidegate(&["torture", "--seeds", "1", "--resume", resume]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(link.is_symlink() && file.is_file());
}

#[test]
fn torture_counts_up_to_the_largest_seed_and_no_further() {
    let torture = |start: &str, seeds: &str| {
        let args = ["--start-seed", start, "--seeds", seeds];
        tidegate(&[&["torture", "-o", "json"], &args[..]].concat())
    };
    for (start, seeds) in [("18446744073709551615", 1), ("18446744073709551614", 2)] {
        let output = torture(start, &seeds.to_string());
        assert!(output.status.success(), "{}", stderr(&output));
        let message: Value = serde_json::from_str(&stdout(&output)).expect("JSON");
        assert_eq!(message["passed"], seeds);
    }
    let output = torture("18446744073709551615", "3");
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("at most --seeds 1"), "{output:?}");
}
