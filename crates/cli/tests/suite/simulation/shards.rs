//! Sweeps in shards, as on several machines, and their merge.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use super::{SMALL, text};
use crate::common::page::{sections, titles};

mod recipes;

/// Options of a sweep of six simulations.
const OPTIONS: [&str; 4] = ["--policy", "fifo,mclock", "--seeds", "1..3"];

/// Variables by which a shard may be chosen.
const VARIABLES: [&str; 7] = [
    "TIDEGATE_SHARDS",
    "JOB_COMPLETION_INDEX",
    "SLURM_ARRAY_TASK_ID",
    "SLURM_ARRAY_TASK_MIN",
    "SLURM_ARRAY_TASK_MAX",
    "SLURM_ARRAY_TASK_STEP",
    "SLURM_ARRAY_TASK_COUNT",
];

/// Directory with a scenario `s.toml`, in which commands run.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Place {
        let place = Place(tempfile::tempdir().expect("a directory"));
        place.write("s.toml", SMALL);
        place
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn write(&self, name: &str, content: &str) {
        fs::write(self.path().join(name), content).expect("writable");
    }

    fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.path().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    fn command(&self, program: &Path, args: &[&str]) -> Command {
        let mut command = Command::new(program);
        command.args(args).current_dir(self.path());
        VARIABLES
            .iter()
            .for_each(|name| _ = command.env_remove(name));
        command
    }

    fn tidegate(&self, args: &[&str]) -> Output {
        let program = Path::new(env!("CARGO_BIN_EXE_tidegate"));
        let mut command = self.command(program, args);
        command.output().expect("the binary runs")
    }

    /// Runs a command that must succeed; returns its standard output and error.
    fn done(&self, args: &[&str]) -> (String, String) {
        let output = self.tidegate(args);
        let said = text(&output.stderr);
        assert!(output.status.success(), "{args:?}: {said}");
        (text(&output.stdout), said)
    }

    /// Runs a command that must fail, and print nothing but errors.
    fn refused(&self, args: &[&str]) -> String {
        let output = self.tidegate(args);
        assert_eq!(output.status.code(), Some(1), "{args:?}");
        assert_eq!(text(&output.stdout), "", "{args:?}");
        text(&output.stderr)
    }

    /// Simulates a shard of the sweep with [`OPTIONS`].
    fn shard(&self, shard: &str, more: &[&str]) -> String {
        self.done(&shard_args(shard, more)).1
    }

    fn shard_refused(&self, shard: &str, more: &[&str]) -> String {
        self.refused(&shard_args(shard, more))
    }

    /// Simulates all shards into `out`.
    fn all_shards(&self, count: u32) {
        for index in 1..=count {
            self.shard(&format!("{index}/{count}"), &[]);
        }
    }

    /// Returns the names of the files in `out`.
    fn out(&self) -> Vec<String> {
        let entries = fs::read_dir(self.path().join("out")).expect("a directory");
        let name = |entry: std::io::Result<fs::DirEntry>| entry.expect("an entry").file_name();
        let names = entries.map(|entry| name(entry).to_string_lossy().into_owned());
        let mut names: Vec<String> = names.collect();
        names.sort();
        names
    }
}

fn shard_args<'a>(shard: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let args = ["sweep", "s.toml", "--shard", shard, "--out", "out"];
    [&args[..], &OPTIONS, more].concat()
}

/// Runs the whole sweep in one process.
fn unsharded<'a>(more: &[&'a str]) -> Vec<&'a str> {
    [&["sweep", "s.toml"], &OPTIONS[..], more].concat()
}

#[test]
fn merged_shards_are_byte_for_byte_the_sweep_of_one_machine() {
    let place = Place::new();
    let files = |name: &str| ["jsonl", "csv", "html"].map(|kind| format!("{name}.{kind}"));
    let one = files("one");
    let to = |[results, per_seed, report]: &[String; 3]| {
        let args = [
            "--results",
            results,
            "--per-seed",
            per_seed,
            "--report",
            report,
        ];
        args.map(str::to_owned)
    };
    let to_one = to(&one);
    let to_one: Vec<&str> = to_one.iter().map(String::as_str).collect();
    let formats = ["table", "json", "csv"];
    let shown = formats.map(|format| {
        let format = ["-o", format];
        place.done(&unsharded(&[&to_one[..], &format].concat())).0
    });
    let html = text(&place.read("one.html"));
    let html = roxmltree::Document::parse(crate::common::page::body(&html)).expect("well-formed");
    assert_eq!(sections(&html), ["summary", "scenario-1"]);
    assert_eq!(titles(&html).len(), 4);
    // Eight are more than there are simulations.
    for count in [2, 8] {
        place.all_shards(count);
        assert_eq!(place.out().len(), count as usize, "{:?}", place.out());
        for (format, shown) in formats.iter().zip(&shown) {
            let merged = files(&format!("merged-{count}-{format}"));
            let to_merged = to(&merged);
            let to_merged: Vec<&str> = to_merged.iter().map(String::as_str).collect();
            let args = [&["sweep", "merge", "out", "-o", format], &to_merged[..]].concat();
            assert_eq!(place.done(&args).0, *shown, "{count} shards, {format}");
            for (merged, one) in merged.iter().zip(&one) {
                assert!(
                    place.read(merged) == place.read(one),
                    "{merged} is not {one}"
                );
            }
        }
        fs::remove_dir_all(place.path().join("out")).expect("removed");
    }
}

#[test]
fn a_shard_says_what_it_wrote_and_is_simulated_once() {
    let place = Place::new();
    let said = place.shard("2/4", &[]);
    let wrote = "shard 2/4: wrote 2 of 6 results to out/shard-2-of-4.jsonl";
    assert!(said.contains(wrote), "{said}");
    assert_eq!(place.out(), ["shard-2-of-4.jsonl"]);
    let file = place.path().join("out/shard-2-of-4.jsonl");
    let written = |file: &Path| {
        let metadata = fs::metadata(file).expect("there");
        metadata.modified().expect("known")
    };
    let (first, bytes) = (written(&file), place.read("out/shard-2-of-4.jsonl"));
    let (json, _) = place.done(&shard_args("2/4", &["-o", "json"]));
    let json: Value = serde_json::from_str(&json).expect("JSON");
    let expected = serde_json::json!({
        "file": "out/shard-2-of-4.jsonl", "shard": "2/4", "results": 2, "simulated": 0, "of": 6,
    });
    assert_eq!(json, expected);
    assert_eq!(written(&file), first, "not written again");
    let said = place.shard("2/4", &["--fresh"]);
    assert!(said.contains(wrote), "{said}");
    assert!(place.read("out/shard-2-of-4.jsonl") == bytes);
}

#[test]
fn a_stopped_shard_goes_on_and_leaves_the_same_file() {
    let place = Place::new();
    place.shard("1/1", &[]);
    let (file, part) = ("out/shard-1-of-1.jsonl", "out/shard-1-of-1.jsonl.part");
    let whole = place.read(file);
    let lines = text(&whole);
    // Killed after two results and in the middle of the third.
    let lines: Vec<&str> = lines.lines().skip(1).take(3).collect();
    let torn = format!("{}\n{}\n{}", lines[0], lines[1], &lines[2][..40]);
    fs::remove_file(place.path().join(file)).expect("removed");
    place.write(part, &torn);
    let message = place.refused(&["sweep", "merge", "out"]);
    assert!(
        message.contains("none of 1 shards is finished"),
        "{message}"
    );
    let said = place.shard("1/1", &[]);
    assert!(said.contains("2 of 6 results are already in"), "{said}");
    assert!(place.read(file) == whole);
    assert_eq!(place.out(), ["shard-1-of-1.jsonl"]);

    // Results of another scenario are simulated again.
    fs::remove_file(place.path().join(file)).expect("removed");
    place.write(part, &torn);
    place.write("s.toml", &SMALL.replace("iodepth = 2", "iodepth = 3"));
    let said = place.shard("1/1", &[]);
    assert!(!said.contains("already in"), "{said}");
    let lines = text(&place.read(file));
    assert_eq!(lines.lines().count(), 1 + 6);
}

#[test]
fn a_fresh_shard_begins_once_and_goes_on() {
    let place = Place::new();
    place.shard("1/1", &[]);
    let (file, part) = ("out/shard-1-of-1.jsonl", "out/shard-1-of-1.jsonl.part");
    let whole = place.read(file);
    let lines = text(&whole);
    let begun: Vec<&str> = lines.lines().skip(1).take(2).collect();
    let begun = format!("{}\n", begun.join("\n"));
    place.write(part, &begun);
    let (_, said) = place.done(&["sweep", "merge", "out"]);
    assert!(
        said.contains("out/shard-1-of-1.jsonl.part is a run that has not ended"),
        "{said}"
    );
    let said = place.shard("1/1", &["--fresh"]);
    assert!(!said.contains("already in"), "{said}");
    assert!(place.read(file) == whole);

    // Stopped in the middle of it, and started with the same words.
    fs::remove_file(place.path().join(file)).expect("there");
    place.write(part, &begun);
    let said = place.shard("1/1", &["--fresh"]);
    assert!(said.contains("2 of 6 results are already in"), "{said}");
    assert!(place.read(file) == whole);
    fs::remove_file(place.path().join(file)).expect("there");
    place.write(part, "no result\n");
    place.shard("1/1", &["--fresh"]);
    assert!(place.read(file) == whole);

    // A run that is stopped does not leave the old shard as its result.
    let program = Path::new(env!("CARGO_BIN_EXE_tidegate"));
    let args = shard_args("1/1", &["--fresh", "--duration", "100 h"]);
    let mut long = place.command(program, &args);
    let mut long = long
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("it runs");
    while place.path().join(file).exists() {
        assert!(
            long.try_wait().expect("a child").is_none(),
            "the old shard stayed"
        );
        std::thread::yield_now();
    }
    long.kill().expect("stopped");
    long.wait().expect("a child");
    let message = place.refused(&["sweep", "merge", "out"]);
    assert!(
        message.contains("none of 1 shards is finished"),
        "{message}"
    );
}

#[test]
fn a_merge_names_what_is_missing_and_the_commands_do_it() {
    let place = Place::new();
    place.shard("2/4", &[]);
    place.shard("4/4", &[]);
    place.write("out/shard-3-of-4.jsonl.part", "");
    let message = place.refused(&["sweep", "merge", "out"]);
    for part in [
        "3 of 6 simulations are missing",
        "s.toml under fifo, seeds 1, 3\n",
        "s.toml under mclock, seeds 2\n",
        "not finished: out/shard-3-of-4.jsonl.part",
    ] {
        assert!(message.contains(part), "{part}: {message}");
    }
    let commands: Vec<&str> = (message.lines().map(str::trim))
        .filter(|line| line.starts_with("tidegate sweep "))
        .collect();
    assert_eq!(commands.len(), 2, "{message}");
    for command in commands {
        let args: Vec<&str> = command.split(' ').skip(1).collect();
        place.done(&args);
    }
    let (merged, _) = place.done(&["sweep", "merge", "out"]);
    assert_eq!(merged, place.done(&unsharded(&[])).0);
}

#[test]
fn with_shards_of_several_numbers_the_commands_have_a_directory_of_their_own() {
    let place = Place::new();
    place.shard("1/2", &[]);
    let shard = [
        &["sweep", "s.toml", "--shard", "2/6", "--out", "more"],
        &OPTIONS[..],
    ]
    .concat();
    place.done(&shard);
    let message = place.refused(&["sweep", "merge", "out", "more"]);
    assert!(
        message.contains("2 of 6 simulations are missing"),
        "{message}"
    );
    let commands: Vec<&str> = (message.lines().map(str::trim))
        .filter(|line| line.starts_with("tidegate sweep "))
        .collect();
    assert_eq!(commands.len(), 3, "{message}");
    let run = |command: &str| {
        let args: Vec<&str> = command.split(' ').skip(1).collect();
        place.done(&args).0
    };
    let (merge, simulate) = commands.split_last().expect("three");
    simulate.iter().for_each(|command| _ = run(command));
    assert_eq!(run(merge), place.done(&unsharded(&[])).0);
}

#[test]
fn shards_that_overlap_are_refused() {
    let place = Place::new();
    place.all_shards(2);
    let copy = place.read("out/shard-2-of-2.jsonl");
    place.write("copy.jsonl", &text(&copy));
    let message = place.refused(&["sweep", "merge", "out", "copy.jsonl"]);
    for part in ["overlap in 3 of 6", "out/shard-2-of-2.jsonl", "copy.jsonl"] {
        assert!(message.contains(part), "{part}: {message}");
    }
    // A file that is named twice is one file.
    place.done(&["sweep", "merge", "out", "out/shard-2-of-2.jsonl", "./out"]);
    // Another number of shards is refused before anything is simulated.
    let message = place.shard_refused("1/3", &[]);
    assert!(message.contains("shard 1 of 2 is there"), "{message}");
    assert_eq!(place.out().len(), 2);
}

#[test]
fn shards_whose_durations_differ_in_a_nanosecond_are_refused() {
    let place = Place::new();
    place.shard("1/2", &["--duration", "2.5 s"]);
    place.shard("2/2", &["--duration", "2500000001 ns", "--fresh"]);
    let message = place.refused(&["sweep", "merge", "out"]);
    assert!(
        message.contains("s.toml under fifo is not the same"),
        "{message}"
    );

    // Nor is a result in a results file that of the other.
    let seed = ["sweep", "s.toml", "--seeds", "1", "--duration"];
    place.done(&[&seed[..], &["2.5 s"]].concat());
    let (_, said) = place.done(&[&seed[..], &["2500000001 ns"]].concat());
    assert!(!said.contains("already in"), "{said}");
    let (_, said) = place.done(&[&seed[..], &["2500 ms"]].concat());
    assert!(said.contains("1 of 1 results are already in"), "{said}");
}

#[test]
fn a_merge_never_keeps_another_result_of_a_results_file() {
    let place = Place::new();
    place.shard("1/1", &[]);
    let merge = ["sweep", "merge", "out", "--results", "all.jsonl"];
    place.done(&merge);
    let all = text(&place.read("all.jsonl"));
    // Earlier builds wrote parameters of policies, in keys of results.
    let key = r#""policy":"fifo","seed""#;
    let old = all.replace(key, r#""policy":"fifo{\"x\": 1}","seed""#);
    assert_ne!(old, all);
    place.write("all.jsonl", &old);
    place.done(&merge);
    assert!(text(&place.read("all.jsonl")) == all);

    let digits = old.rfind("\"iops\":").expect("a rate") + "\"iops\":".len();
    let other = format!("{}9{}", &old[..digits], &old[digits..]);
    place.write("all.jsonl", &other);
    let message = place.refused(&merge);
    for part in [
        "different results of s.toml under ",
        "with seed 3",
        "all.jsonl and out/shard-1-of-1.jsonl",
        "--results FILE",
    ] {
        assert!(message.contains(part), "{part}: {message}");
    }
    assert!(text(&place.read("all.jsonl")) == other);
}

#[test]
fn shards_of_other_scenarios_seeds_and_policies_are_refused() {
    let place = Place::new();
    place.all_shards(2);
    place.write("s.toml", &SMALL.replace("iodepth = 2", "iodepth = 3"));
    let message = place.shard_refused("2/2", &[]);
    for part in [
        "another sweep",
        "s.toml under fifo is not the same",
        "--fresh",
    ] {
        assert!(message.contains(part), "{part}: {message}");
    }
    // A shard that is not there yet is not begun beside one of another sweep.
    fs::rename(
        place.path().join("out/shard-2-of-2.jsonl"),
        place.path().join("old"),
    )
    .expect("renamed");
    let message = place.shard_refused("2/2", &[]);
    assert!(
        message.contains("s.toml under fifo is not the same"),
        "{message}"
    );
    assert_eq!(place.out(), ["shard-1-of-2.jsonl"]);
    place.shard("2/2", &["--fresh"]);
    let message = place.refused(&["sweep", "merge", "out"]);
    for part in [
        "different sweeps",
        "s.toml under fifo is not the same",
        "shard-1-of-2",
    ] {
        assert!(message.contains(part), "{part}: {message}");
    }
    place.shard("1/2", &["--fresh"]);
    place.done(&["sweep", "merge", "out"]);

    let shard = [
        "sweep", "s.toml", "--out", "out", "--fresh", "--shard", "2/2",
    ];
    for (options, part) in [
        (["--policy", "fifo,mclock", "--seeds", "1..4"], "1..4"),
        (
            ["--policy", "fifo", "--seeds", "1..3"],
            "s.toml under fifo;",
        ),
        (
            ["--policy", "mclock,fifo", "--seeds", "1..3"],
            "s.toml under mclock, s.toml under fifo",
        ),
    ] {
        place.done(&[&shard[..], &options].concat());
        let message = place.refused(&["sweep", "merge", "out"]);
        assert!(message.contains("different sweeps"), "{message}");
        let flipped = place.refused(&["sweep", "merge", "out/shard-2-of-2.jsonl", "out"]);
        assert!(
            flipped.contains(part) || message.contains(part),
            "{message}{flipped}"
        );
    }
}

#[test]
fn shards_of_another_build_are_refused() {
    let place = Place::new();
    place.shard("1/2", &[]);
    // Trailing bytes change nothing but the hash of the program.
    let other = place.path().join("other-build");
    fs::copy(env!("CARGO_BIN_EXE_tidegate"), &other).expect("copied");
    let mut file = fs::OpenOptions::new()
        .append(true)
        .open(&other)
        .expect("opened");
    std::io::Write::write_all(&mut file, b"another build").expect("written");
    drop(file);
    let run = |args: &[&str]| {
        let output = place.command(&other, args).output().expect("it runs");
        (output.status.success(), text(&output.stderr))
    };
    let (done, message) = run(&shard_args("1/2", &[]));
    assert!(
        !done && message.contains("build of the file: tidegate"),
        "{message}"
    );
    let (done, message) = run(&shard_args("2/2", &[]));
    assert!(
        !done && message.contains("build of the file: tidegate"),
        "{message}"
    );
    let (done, message) = run(&shard_args("2/2", &["--fresh"]));
    assert!(done, "{message}");
    let message = place.refused(&["sweep", "merge", "out"]);
    assert!(message.contains("different sweeps: build of"), "{message}");
    let (done, message) = run(&shard_args("1/2", &["--fresh"]));
    assert!(done, "{message}");
    let (_, said) = place.done(&["sweep", "merge", "out"]);
    assert!(said.contains("note: simulated by tidegate"), "{said}");
}

#[test]
fn what_is_no_shard_or_damaged_is_never_counted() {
    let place = Place::new();
    place.shard("1/2", &[]);
    let whole = text(&place.read("out/shard-1-of-2.jsonl"));
    let digits = whole.rfind("\"iops\":").expect("a rate") + "\"iops\":".len();
    let changed = format!("{}9{}", &whole[..digits], &whole[digits + 1..]);
    let lines: Vec<&str> = whole.lines().collect();
    for damaged in [
        &whole[..whole.len() - 1],
        &format!("{}\n{}\n", lines[0], lines[1]),
        &changed,
        &whole.replace("\"shard\":\"1/2\"", "\"shard\":\"2/2\""),
        "{\"tidegate_sweep_shard\":1,",
    ] {
        place.write("out/shard-1-of-2.jsonl", damaged);
        let message = place.refused(&["sweep", "merge", "out"]);
        assert!(message.contains("truncated or changed"), "{message}");
        assert!(message.contains("--fresh"), "{message}");
    }
    let message = place.shard_refused("1/2", &[]);
    assert!(message.contains("truncated or changed"), "{message}");
    place.shard("1/2", &["--fresh"]);
    assert_eq!(text(&place.read("out/shard-1-of-2.jsonl")), whole);

    place.write("out/shard-2-of-2.jsonl", "Dear diary\n");
    let message = place.shard_refused("2/2", &[]);
    assert!(message.contains("not a shard of a sweep"), "{message}");
    let message = place.refused(&["sweep", "merge", "out"]);
    assert!(message.contains("not a shard of a sweep"), "{message}");
    let newer = whole.replace(
        "{\"tidegate_sweep_shard\":1,",
        "{\"tidegate_sweep_shard\":2,",
    );
    place.write("out/shard-2-of-2.jsonl", &newer);
    let message = place.refused(&["sweep", "merge", "out"]);
    assert!(message.contains("in format 2"), "{message}");
    fs::create_dir(place.path().join("empty")).expect("created");
    let message = place.refused(&["sweep", "merge", "empty"]);
    assert!(
        message.contains("no shard of a sweep is there"),
        "{message}"
    );
}

#[test]
fn the_shard_is_that_of_a_slurm_task_or_a_kubernetes_pod() {
    let place = Place::new();
    let program = Path::new(env!("CARGO_BIN_EXE_tidegate"));
    let run = |variables: &[(&str, &str)]| {
        let mut command = place.command(program, &shard_args("auto", &[]));
        command.envs(variables.iter().copied());
        command.output().expect("the binary runs")
    };
    let slurm = |id| {
        [
            ("SLURM_ARRAY_TASK_ID", id),
            ("SLURM_ARRAY_TASK_MIN", "0"),
            ("SLURM_ARRAY_TASK_MAX", "2"),
            ("SLURM_ARRAY_TASK_STEP", "1"),
            ("SLURM_ARRAY_TASK_COUNT", "3"),
        ]
    };
    let done = run(&slurm("0"));
    assert!(done.status.success(), "{}", text(&done.stderr));
    let done = run(&[("JOB_COMPLETION_INDEX", "1"), ("TIDEGATE_SHARDS", "3")]);
    assert!(done.status.success(), "{}", text(&done.stderr));
    // The last task alone once more.
    let done = run(&[("SLURM_ARRAY_TASK_ID", "3"), ("TIDEGATE_SHARDS", "3")]);
    assert!(done.status.success(), "{}", text(&done.stderr));
    let names = [
        "shard-1-of-3.jsonl",
        "shard-2-of-3.jsonl",
        "shard-3-of-3.jsonl",
    ];
    assert_eq!(place.out(), names);
    place.done(&["sweep", "merge", "out"]);
    let message = run(&[("JOB_COMPLETION_INDEX", "1")]);
    assert_eq!(message.status.code(), Some(1));
    let message = text(&message.stderr);
    assert!(message.contains("TIDEGATE_SHARDS is not set"), "{message}");
}

/// Runs the lines of a list as `xargs` does for the words behind `-d '\n'`.
fn run_lines(place: &Place, lines: &str) {
    place.write("lines", lines);
    let xargs = ["-d", "\\n", "-P", "2", "-I", "LINE", "sh", "-c", "LINE"];
    let list = fs::File::open(place.path().join("lines")).expect("there");
    let mut command = place.command(Path::new("xargs"), &xargs);
    let done = command
        .stdin(Stdio::from(list))
        .output()
        .expect("xargs runs");
    assert!(done.status.success(), "{}", text(&done.stderr));
}

#[test]
fn the_lines_of_a_list_run_side_by_side_and_give_the_same_sweep() {
    let place = Place::new();
    // Nothing in a name is to be run, replaced or split by a shell.
    let odd = "it's $HOME `a` \"ß\".toml";
    place.write(odd, SMALL);
    let sweep = [&["sweep", odd, "--duration", "2500 ms"], &OPTIONS[..]].concat();
    let (one, _) = place.done(&[&sweep[..], &["-o", "json"]].concat());
    let listed = |list| {
        let args = [&sweep[..], &["--out", "out of lines", list]].concat();
        place.done(&args).0
    };
    assert_eq!(listed("--list=4").lines().count(), 4);
    let lines = listed("--list");
    assert_eq!(lines.lines().count(), 6, "{lines}");
    assert_eq!(listed("--list=100"), lines, "no shard without a simulation");
    assert!(
        !place.path().join("out of lines").exists(),
        "nothing is simulated"
    );
    run_lines(&place, &lines);
    let (merged, _) = place.done(&["sweep", "merge", "out of lines", "-o", "json"]);
    assert_eq!(merged, one);
    // As words, for engines without a shell.
    let args = [&sweep[..], &["--out", "words", "--list=2", "-o", "json"]].concat();
    let listed: Value = serde_json::from_str(&place.done(&args).0).expect("JSON");
    let listed = listed.as_array().expect("a list");
    assert_eq!(listed.len(), 2);
    for command in listed {
        let argv = command["argv"].as_array().expect("words").iter();
        let argv: Vec<&str> = argv.filter_map(Value::as_str).collect();
        let mut command = place.command(Path::new(argv[0]), &argv[1..]);
        let done = command.output().expect("it runs");
        assert!(done.status.success(), "{}", text(&done.stderr));
    }
    let (merged, _) = place.done(&["sweep", "merge", "words", "-o", "json"]);
    assert_eq!(merged, one);
}

#[test]
fn files_named_like_options_and_subcommands_are_files_in_a_list() {
    let place = Place::new();
    place.write("merge", "[a]\nrw=randread\nnumber_ios=50\n");
    place.write("-x.fio", "[a]\nrw=randread\nnumber_ios=60\n");
    let sweep = ["--seeds", "1..2", "--", "merge", "-x.fio"];
    let args = [&["sweep", "--out", "out", "--list"], &sweep[..]].concat();
    let (listed, _) = place.done(&args);
    assert_eq!(listed.lines().count(), 4, "{listed}");
    run_lines(&place, &listed);
    let (merged, _) = place.done(&["sweep", "merge", "out"]);
    assert_eq!(merged, place.done(&[&["sweep"], &sweep[..]].concat()).0);
}

#[test]
fn what_a_shard_or_a_list_cannot_do_is_refused() {
    let place = Place::new();
    let message = place.shard_refused("1/2", &["-o", "csv"]);
    assert!(message.contains("sweep merge DIR -o csv"), "{message}");
    let list = ["sweep", "s.toml", "--out", "out", "--list"];
    let message = place.refused(&[&list[..], &["-o", "csv"]].concat());
    assert!(message.contains("sweep merge DIR -o csv"), "{message}");
    place.write("two\nlines.toml", SMALL);
    let message = place.refused(&["sweep", "two\nlines.toml", "--out", "out", "--list"]);
    assert!(message.contains("control characters"), "{message}");
    let message =
        place.refused(&[&list[..], &["--seeds", "0..999999", "--policy", "fifo,slo"]].concat());
    assert!(
        message.contains("2000000 simulations are too many"),
        "{message}"
    );
    assert!(!place.path().join("out").exists());
    let message = place.refused(&["sweep", "-o", "json", "merge", "results"]);
    assert!(message.contains("`sweep merge DIR -o json`"), "{message}");
}
