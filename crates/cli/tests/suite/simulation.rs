//! `tidegate sim` and `tidegate sweep` as their users meet them.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::common::tidegate;

mod exports;
mod formats;
mod page;
mod shards;
mod sweep_files;

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Runs a command that must succeed and returns its standard output.
fn printed(args: &[&str]) -> String {
    let output = tidegate(args);
    assert!(
        output.status.success(),
        "{args:?}: {}",
        text(&output.stderr)
    );
    text(&output.stdout)
}

/// Runs a command that must fail and returns its standard error.
fn refused(args: &[&str]) -> String {
    let output = tidegate(args);
    assert_eq!(output.status.code(), Some(1), "{args:?}");
    text(&output.stderr)
}

fn example(name: &str) -> String {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    examples.join(name).display().to_string()
}

/// Every scenario of `examples/`: what says how long it lasts.
fn scenarios() -> Vec<PathBuf> {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let files = std::fs::read_dir(examples).expect("examples are there");
    let files = files.map(|entry| entry.expect("readable").path());
    let text = |path: &PathBuf| std::fs::read_to_string(path).unwrap_or_default();
    let mut scenarios: Vec<_> = files
        .filter(|f| text(f).contains("\nduration = "))
        .collect();
    scenarios.sort();
    scenarios
}

const SMALL: &str = "
duration = \"5 s\"
[[device]]
name = \"disk\"
model = \"hdd-7200-1tb\"
policy = \"mclock\"
[[vm]]
name = \"a\"
disk = [{ size = \"1 GiB\" }]
objective = { reservation = \"5 IOPS\" }
[[vm.workload]]
rw = \"randread\"
iodepth = 2
[[vm]]
name = \"b\"
disk = [{ size = \"1 GiB\" }]
[[vm.workload]]
rw = \"write\"
bs = \"64 KiB\"
";

fn small(dir: &tempfile::TempDir) -> String {
    let path = dir.path().join("small.toml");
    std::fs::write(&path, SMALL).expect("writable");
    path.display().to_string()
}

#[test]
fn every_scenario_gives_the_same_bytes_twice() {
    let scenarios = scenarios();
    assert!(scenarios.len() >= 5, "{scenarios:?}");
    for path in scenarios {
        let path = path.display().to_string();
        let run = || printed(&["sim", &path, "--interval", "10 s", "-o", "json"]);
        assert_eq!(run(), run(), "{path}");
    }
}

#[test]
fn a_table_says_who_got_what_and_whether_promises_were_kept() {
    let table = printed(&["sim", &example("noisy-neighbour.toml")]);
    for part in [
        "120 s simulated",
        "hdd-7200-1tb",
        "oltp",
        "bulk",
        "reservation 40 IOPS",
    ] {
        assert!(table.contains(part), "{part}:\n{table}");
    }
}

#[test]
fn json_is_a_report_and_with_an_interval_rows_come_before_it() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = small(&dir);
    let report: Value =
        serde_json::from_str(&printed(&["sim", &file, "-o", "json"])).expect("JSON");
    assert_eq!(report["vms"].as_array().map(Vec::len), Some(2));
    assert_eq!(report["vms"][0]["promises"][0]["kept"], true);
    let lines = printed(&["sim", &file, "--interval", "1 s", "-o", "json"]);
    let lines: Vec<Value> = (lines.lines())
        .map(|line| serde_json::from_str(line).expect("a line of JSON"))
        .collect();
    assert_eq!(lines.len(), 5 * 2 + 1);
    assert_eq!(lines[0]["time_s"], 1.0);
    assert_eq!(lines[10], report);
}

#[test]
fn csv_has_a_heading_and_cells_for_all_of_it() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = small(&dir);
    for (args, rows, first) in [
        (vec!["sim", &file, "-o", "csv"], 2, "duration_s,vm,iops,"),
        (
            vec!["sim", &file, "-o", "csv", "--interval", "1 s"],
            10,
            "time_s,vm,iops,",
        ),
    ] {
        let csv = printed(&args);
        assert!(csv.starts_with(first), "{csv}");
        assert_eq!(csv.lines().count(), 1 + rows, "{csv}");
        let cells: Vec<usize> = csv.lines().map(|line| line.split(',').count()).collect();
        assert!(cells.iter().all(|&n| n == cells[0]), "{csv}");
    }
    let output = tidegate(&["policy", "list", "-o", "csv"]);
    assert_eq!(output.status.code(), Some(2));
    let message = text(&output.stderr);
    assert!(message.contains("no CSV"), "{message}");
}

#[test]
fn the_command_line_changes_policy_seed_device_and_duration() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = small(&dir);
    let args = [
        "sim", &file, "-o", "json", "--policy", "fifo", "--seed", "9",
    ];
    let more = ["--duration", "2 s", "--device", "hdd-7200-1tb"];
    let report = printed(&[&args[..], &more[..]].concat());
    let report: Value = serde_json::from_str(&report).expect("JSON");
    assert_eq!(report["devices"][0]["policy"], "fifo");
    assert_eq!(
        (&report["seed"], &report["duration_s"]),
        (&9.into(), &2.0.into())
    );
    let message = refused(&["sim", &file, "--device", "hdd-7200"]);
    assert!(message.contains("hdd-7200-1tb"), "{message}");
}

/// A scenario that replays a trace beside it, with deadlines, in a folder of its own.
fn replay(dir: &tempfile::TempDir) -> String {
    let trace = "0 0 0 16 1\n5 0 800000 64 0\n9 0 64 64 1\n";
    std::fs::create_dir(dir.path().join("traces")).expect("writable");
    std::fs::write(dir.path().join("traces/t.disksim"), trace).expect("writable");
    let job =
        "replay = { file = \"traces/t.disksim\", mode = \"next-when-done\" }\ndeadline = \"1 ns\"";
    let text = SMALL.replacen("rw = \"randread\"\niodepth = 2", job, 1);
    let path = dir.path().join("replay.toml");
    std::fs::write(&path, text).expect("writable");
    path.display().to_string()
}

#[test]
fn responses_are_in_every_kind_of_output_and_each_in_a_file() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = replay(&dir);
    let log = dir.path().join("log.csv");
    let log_path = log.display().to_string();
    let table = printed(&["sim", &file, "--responses", &log_path]);
    assert!(
        table.contains("MISSED %") && table.contains("100.0"),
        "{table}"
    );
    let lines = std::fs::read_to_string(&log).expect("it is written");
    let lines: Vec<Vec<&str>> = lines
        .lines()
        .map(|line| line.split(',').collect())
        .collect();
    assert_eq!(lines[0][..3], ["vm", "index", "bytes"]);
    let of_log: Vec<_> = lines[1..].iter().map(|line| line[..3].to_vec()).collect();
    let bytes = ["8192", "32768", "32768"];
    let expected: Vec<_> = bytes
        .iter()
        .zip(["0", "1", "2"])
        .map(|(b, i)| vec!["a", i, b])
        .collect();
    assert_eq!(of_log, expected);
    for line in &lines[1..] {
        let ns = |at: usize| line[at].parse::<u64>().expect("a number");
        assert_eq!((ns(5), ns(6)), (1, ns(4) - 1), "{line:?}");
    }
    let report: Value =
        serde_json::from_str(&printed(&["sim", &file, "-o", "json"])).expect("JSON");
    let found = &report["vms"][0]["responses"];
    assert_eq!(
        (&found["done"], &found["deadlines"]["missed"]),
        (&3.into(), &3.into())
    );
    assert!(report["vms"][1].get("responses").is_none());
    for interval in [&[][..], &["--interval", "1 s"]] {
        let csv = printed(&[&["sim", &file, "-o", "csv"], interval].concat());
        let cells: Vec<usize> = csv.lines().map(|line| line.split(',').count()).collect();
        assert!(cells.iter().all(|&n| n == 2 + 12 + 9), "{csv}");
        assert!(
            csv.lines()
                .next()
                .is_some_and(|line| line.ends_with("late_max_ns"))
        );
        let missed = |line: &str| line.split(',').nth(19).and_then(|n| n.parse::<u64>().ok());
        assert_eq!(csv.lines().filter_map(missed).sum::<u64>(), 3, "{csv}");
    }
    let message = refused(&["sim", &file, "--responses", "/dev/full"]);
    assert!(message.contains("a character device"), "{message}");
}

#[test]
fn a_sweep_says_how_many_deadlines_were_missed() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = replay(&dir);
    let results = dir.path().join("r.jsonl").display().to_string();
    let args = [
        "sweep",
        &file,
        "--policy",
        "fifo,pridyn",
        "--seeds",
        "1..2",
        "--results",
        &results,
    ];
    let table = printed(&args);
    assert!(
        table.contains("MISSED") && table.contains("100.0 %"),
        "{table}"
    );
    let csv = printed(&[&args[..], &["-o", "csv"]].concat());
    let ends = [
        ",missed_percent,missed_percent_min,missed_percent_max",
        ",100,100,100",
        ",,,",
    ];
    let lines: Vec<&str> = csv.lines().collect();
    assert_eq!(lines.len(), 1 + 2 * 2);
    for (line, end) in lines
        .iter()
        .zip([ends[0], ends[1], ends[2], ends[1], ends[2]])
    {
        assert!(line.ends_with(end), "{end}: {line}");
    }
    // Another trace is another scenario.
    let trace = dir.path().join("traces/t.disksim");
    std::fs::write(&trace, "0 0 0 16 1\n").expect("writable");
    let output = tidegate(&args);
    let again = text(&output.stderr);
    assert!(
        output.status.success() && !again.contains("already"),
        "{again}"
    );
}

#[test]
fn a_broken_scenario_is_located() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("broken.toml");
    std::fs::write(&path, SMALL.replace("randread", "randraed")).expect("writable");
    let path = path.display().to_string();
    for command in ["sim", "sweep", "check"] {
        let message = refused(&[command, &path]);
        assert!(message.contains("broken.toml:12:6"), "{message}");
        assert!(message.contains("did you mean \"randread\"?"), "{message}");
    }
    let message = refused(&["sim", "nowhere.toml"]);
    assert!(message.contains("cannot read nowhere.toml"), "{message}");
}

#[test]
fn a_file_of_another_kind_is_told_to_be_one() {
    let model = example("../devices/nvme-1tb.toml");
    for (args, shown) in [
        (
            ["sim", &example("vcpu/mixed.toml")],
            "this is a scenario of vCPUs, not a scenario",
        ),
        (
            ["serve", &example("noisy-neighbour.toml")],
            "this is a scenario, not a configuration of the daemon",
        ),
        (["sim", &model], "this is a device model, not a scenario"),
        (["sweep", &model], "this is a device model, not a scenario"),
        (
            ["serve", &model],
            "this is a device model, not a configuration of the daemon",
        ),
    ] {
        let message = refused(&args);
        assert!(
            message.contains(shown) && message.contains("help: "),
            "{message}"
        );
    }
}

#[test]
fn check_knows_a_device_model() {
    let model = example("../devices/nvme-1tb.toml");
    let table = printed(&["check", &model]);
    assert!(
        table.contains("nvme-1tb") && table.contains("CAPACITY"),
        "{table}"
    );
    let json: Value =
        serde_json::from_str(&printed(&["check", &model, "-o", "json"])).expect("JSON");
    assert_eq!(
        (&json["good"], &json["model"]["name"]),
        (&true.into(), &"nvme-1tb".into())
    );
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("broken.toml");
    let text = std::fs::read_to_string(&model).expect("readable");
    std::fs::write(&path, text.replace("queue_depth = ", "queue_deep = ")).expect("writable");
    let path = path.display().to_string();
    let shown = refused(&["check", &path]);
    assert!(
        shown.contains("broken.toml") && shown.contains("queue_deep"),
        "{shown}"
    );
    assert!(!shown.contains("listen"), "{shown}");
}

#[test]
fn check_knows_a_scenario() {
    let table = printed(&["check", &example("noisy-neighbour.toml")]);
    assert!(table.contains("at least 40 IOPS"), "{table}");
    let json = printed(&["check", &example("noisy-neighbour.toml"), "-o", "json"]);
    let json: Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(
        (&json["good"], &json["vms"][0]["name"]),
        (&true.into(), &"oltp".into())
    );
}

#[test]
fn a_sweep_goes_on_where_it_was_stopped_and_leaves_the_same_file() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = small(&dir);
    let results = dir.path().join("r.jsonl");
    let path = results.display().to_string();
    let args = [
        "sweep",
        &file,
        "--policy",
        "fifo,mclock",
        "--seeds",
        "1..3",
        "--results",
        &path,
    ];
    let table = printed(&args);
    assert!(
        table.contains("mclock") && table.contains("fifo"),
        "{table}"
    );
    let whole = std::fs::read_to_string(&results).expect("results are kept");
    assert_eq!(whole.lines().count(), 6);

    // Killed after two results and in the middle of the third.
    let cut = whole
        .lines()
        .take(2)
        .map(|line| line.len() + 1)
        .sum::<usize>()
        + 40;
    std::fs::write(&results, &whole[..cut]).expect("writable");
    let output = tidegate(&args);
    let shown = text(&output.stderr);
    assert!(shown.contains("2 of 6 results are already in"), "{shown}");
    assert_eq!(text(&output.stdout), table);
    assert_eq!(std::fs::read_to_string(&results).expect("kept"), whole);

    // Another text is another scenario.
    std::fs::write(&file, SMALL.replace("iodepth = 2", "iodepth = 3")).expect("writable");
    let shown = text(&tidegate(&args).stderr);
    assert!(!shown.contains("results are already in"), "{shown}");
}

#[test]
fn a_sweep_sums_up_over_its_seeds() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = small(&dir);
    let path = dir.path().join("r.jsonl").display().to_string();
    let sweep = [
        "sweep",
        &file,
        "--seeds",
        "1,2,3",
        "--results",
        &path,
        "-o",
        "json",
    ];
    let summary: Value = serde_json::from_str(&printed(&sweep)).expect("JSON");
    let a = &summary[0];
    assert_eq!((&a["vm"], &a["seeds"]), (&"a".into(), &3.into()));
    assert_eq!(
        (&a["promises"], &a["promises_kept"]),
        (&3.into(), &3.into())
    );
    let figure = |of: &Value| of.as_f64().expect("a number");
    let alone = |seed: u32| -> Value {
        let seed = seed.to_string();
        let report = printed(&["sim", &file, "--seed", &seed, "-o", "json"]);
        serde_json::from_str(&report).expect("JSON")
    };
    let reports: Vec<Value> = (1..=3).map(alone).collect();
    let mean = |figures: &dyn Fn(&Value) -> f64| reports.iter().map(figures).sum::<f64>() / 3.0;
    let iops = mean(&|report| figure(&report["vms"][0]["iops"]));
    assert!((figure(&a["iops"]["mean"]) - iops).abs() < 1e-9);
    let v = mean(&|report| figure(&report["vms"][0]["precision"]["variability_percent"]));
    assert!((figure(&a["variability_percent"]["mean"]) - v).abs() < 1e-9);
    assert!(a["absolute_error_percent"].is_null(), "no VM has a target");
    assert!(figure(&a["iops"]["min"]) <= figure(&a["iops"]["max"]));
}

#[test]
fn a_file_that_holds_no_results_is_not_overwritten() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = small(&dir);
    let path = dir.path().join("precious.txt");
    std::fs::write(&path, "dear diary\nand more\n").expect("writable");
    let message = refused(&["sweep", &file, "--results", &path.display().to_string()]);
    assert!(message.contains("not a result of a sweep"), "{message}");
    assert!(message.contains("precious.txt, line 1"), "{message}");
    let kept = std::fs::read_to_string(&path).expect("there");
    assert_eq!(kept, "dear diary\nand more\n");
}

#[test]
fn a_fio_job_file_is_simulated_as_it_is() {
    let file = example("mixed.fio");
    let output = tidegate(&["sim", &file, "-o", "json"]);
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let vms = report["vms"].as_array().expect("a list");
    let names: Vec<_> = vms.iter().map(|vm| vm["name"].as_str()).collect();
    assert_eq!(names, [Some("database"), Some("mail"), Some("backup")]);
    // It ends with its jobs, just after their minute.
    let duration = report["duration_s"].as_f64().expect("a number");
    assert!((60.0..62.0).contains(&duration), "{duration}");
    let shown = text(&output.stderr);
    assert!(
        shown.contains("mixed.fio:8: [global] ioengine: ignored"),
        "{shown}"
    );
}

#[test]
fn what_is_not_understood_of_a_job_file_is_refused_unless_lenient() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("odd.fio");
    let job = "[a]\nrw=randread\nsize=1g\nruntime=2\ntime_based\niodepht=4\n";
    std::fs::write(&path, job).expect("writable");
    let path = path.display().to_string();
    let message = refused(&["sim", &path]);
    assert!(message.contains("odd.fio:6:1"), "{message}");
    assert!(message.contains("iodepth"), "{message}");
    let output = tidegate(&["sim", &path, "--lenient"]);
    assert!(output.status.success());
    let shown = text(&output.stderr);
    assert!(shown.contains("warning: [a] iodepht"), "{shown}");
}

#[test]
fn a_job_file_is_simulated_until_its_jobs_end_or_as_long_as_was_said() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("short.fio");
    std::fs::write(&path, "[a]\nrw=randread\nnumber_ios=100\n").expect("writable");
    let path = path.display().to_string();
    let run = |more: &[&str]| -> Value {
        let report = printed(&[&["sim", &path, "-o", "json"], more].concat());
        serde_json::from_str(&report).expect("JSON")
    };
    assert_eq!(run(&[])["requests"], 100);
    assert_eq!(run(&["--duration", "100 ms"])["duration_s"], 0.1);
}

#[test]
fn a_result_with_other_figures_of_the_device_is_another_result() {
    let dir = tempfile::tempdir().expect("a directory");
    let devices = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../devices");
    let figures = std::fs::read_to_string(devices.join("hdd-7200-1tb.toml")).expect("there");
    let model = dir.path().join("mine.toml");
    std::fs::write(&model, &figures).expect("writable");
    let file = dir.path().join("small.toml");
    let scenario = SMALL.replace("hdd-7200-1tb", "mine.toml");
    std::fs::write(&file, scenario).expect("writable");
    let (file, results) = (file.display().to_string(), dir.path().join("r.jsonl"));
    let results = results.display().to_string();
    let sweep = ["sweep", &file, "--seeds", "1", "--results", &results];
    let shown = || text(&tidegate(&sweep).stderr);
    assert!(!shown().contains("results are already in"));
    assert!(shown().contains("1 of 1 results are already in"));
    let slower = figures.replace("rotation = \"7200 rpm\"", "rotation = \"5400 rpm\"");
    assert!(slower != figures);
    std::fs::write(&model, slower).expect("writable");
    assert!(!shown().contains("results are already in"));
}

#[test]
fn what_is_named_twice_is_swept_once() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = small(&dir);
    let path = dir.path().join("r.jsonl").display().to_string();
    let twice = [
        "sweep",
        &file,
        &file,
        "--policy",
        "fifo,fifo",
        "--seeds",
        "1",
    ];
    let summary = printed(&[&twice[..], &["--results", &path, "-o", "json"]].concat());
    let summary: Value = serde_json::from_str(&summary).expect("JSON");
    assert_eq!(summary.as_array().map(Vec::len), Some(2));
    assert_eq!(summary[0]["seeds"], 1);
}

#[test]
fn check_knows_a_scenario_that_lacks_its_duration_and_a_job_file() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("endless.toml");
    let endless = SMALL.replace("duration = \"5 s\"", "seed = 3");
    std::fs::write(&path, endless).expect("writable");
    let shown = refused(&["check", &path.display().to_string()]);
    assert!(shown.contains("the simulated time"), "{shown}");
    let table = printed(&["check", &example("mixed.fio")]);
    assert!(table.contains("database"), "{table}");
}

#[test]
fn what_keeps_a_run_from_starting_comes_with_a_remedy() {
    let file = example("noisy-neighbour.toml");
    let nowhere = "/nonexistent/here/sweep.jsonl";
    for (args, part) in [
        (
            &["sim", &file, "--duration", "2 s"][..],
            "shorten warm_up, or lengthen the duration",
        ),
        (
            &["sweep", &file, "--seeds", "1", "--results", nowhere],
            "help: directory /nonexistent/here does not exist: create it",
        ),
        (
            &["torture", "--seeds", "1", "--resume", nowhere],
            "help: directory /nonexistent/here does not exist: create it",
        ),
        (
            &["sim", &file, "--device", "nvme"],
            "help: give a model of the catalogue or the path of a .toml file",
        ),
    ] {
        let message = refused(args);
        assert!(message.contains(part), "{part}: {message}");
        // Devices there are, told once.
        assert!(message.matches("ssd-sata-300gb").count() <= 1, "{message}");
    }
}

#[test]
fn processors_are_put_under_another_scheduler_or_left_out() {
    let file = example("host-cpu.toml");
    let with = |more: &[&str]| {
        let words = ["sim", &file, "--duration", "3 s"];
        let words: Vec<&str> = words.iter().chain(more).copied().collect();
        printed(&words)
    };
    let report = |scheduler: &str| -> Value {
        let text = with(&["--scheduler", scheduler, "-o", "json"]);
        serde_json::from_str(&text).expect("JSON")
    };
    for scheduler in ["credit", "credit2", "isacs", "io-turns"] {
        let report = report(scheduler);
        assert_eq!(report["cpu"]["scheduler"], scheduler);
        let cpus = report["vms"].as_array().expect("a list").iter();
        let cpus: f64 = cpus.filter_map(|vm| vm["cpu"]["cpus"].as_f64()).sum();
        // Three pCPUs have four VMs with hogs.
        assert!((2.5..=3.0).contains(&cpus), "{scheduler}: {cpus}");
    }
    let none = report("none");
    assert!(none["cpu"].is_null() && none["vms"][0]["cpu"].is_null());
    let table = with(&[]);
    for part in ["credit2: ", " of 4 pCPUs busy", "EVENTS/S", "compute-2"] {
        assert!(table.contains(part), "{part}:\n{table}");
    }
    let checked = printed(&["check", &file]);
    assert!(checked.contains("credit2 on 4 pCPUs"), "{checked}");
    let other = example("noisy-neighbour.toml");
    let why = refused(&["sim", &other, "--scheduler", "credit2"]);
    assert!(why.contains("add [host.cpu]"), "{why}");
}

#[test]
fn a_sweep_says_under_which_scheduler_of_vcpus_each_vm_was() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("r.jsonl").display().to_string();
    let file = example("host-cpu.toml");
    let sweep = |format: &str| {
        let words = [
            "sweep",
            &file,
            "--duration",
            "3 s",
            "--seeds",
            "1",
            "--results",
            &path,
        ];
        let words = words.iter().copied();
        let more = [
            "--scheduler",
            "none,credit2",
            "--policy",
            "mclock,vfair",
            "-o",
            format,
        ];
        printed(&words.chain(more).collect::<Vec<_>>())
    };
    let all: Value = serde_json::from_str(&sweep("json")).expect("JSON");
    let of = |n: usize| (all[n]["vm"].as_str(), all[n]["scheduler"].as_str());
    let all_vms = all.as_array().expect("a list").len();
    assert_eq!(all_vms, 4 * 6, "two policies, two schedulers, six VMs");
    assert_eq!(
        (of(0), of(6)),
        ((Some("io"), None), (Some("io"), Some("credit2")))
    );
    assert!(all[0]["cpus"].is_null() && all[6]["cpu_wait_p99_ns"]["mean"].as_f64() > Some(0.0));
    let csv = sweep("csv");
    let heading = csv.lines().next().expect("a heading");
    assert!(heading.ends_with(",cpu_wait_p99_ns_max"), "{heading}");
    let fields = |line: &str| line.split(',').count();
    assert!(
        csv.lines().all(|line| fields(line) >= fields(heading)),
        "{csv}"
    );
}
