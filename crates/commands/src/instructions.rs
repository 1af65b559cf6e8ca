//! `tidegate bench engine --instructions`: instructions per request, counted by callgrind.
//!
//! ```text
//!   parent: one child for each policy and number of VMs --> Counts --> file, or compared with one
//!   child:  callgrind, this binary, `bench counted`: only `counted_turns` is counted
//! ```
//!
//! Set-up, warm-up and the end of a run are not counted, so one run is enough. The engine has no
//! clock and no random source of its own, so that two runs of one build are equal.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use tidegate_engine_bench::{SEED, build};

use crate::problem::Problem;
use crate::{atomic_file, progress};

/// Requests that each VM keeps waiting.
pub(crate) const DEPTH: u32 = 8;
/// Largest accepted ratio of a count to the recorded one.
const RATIO_MAX: f64 = 1.02;
/// Ratio below which a fall should be recorded, so that losing it again is noticed.
const FALL_RATIO: f64 = 0.98;
/// Maximum size of a file of counts in bytes, ten times that of all policies.
const FILE_BYTES_MAX: u64 = 100_000;
/// Wildcard that matches `tidegate_engine_bench::counted_turns` under its mangled and its plain
/// name.
const COUNTED: &str = "*counted_turns*";

/// Build settings of the counting binary, from the build script.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Build {
    /// Output of `rustc -V`.
    pub(crate) compiler: String,
    /// Target triple.
    pub(crate) target: String,
    /// CPU features that the compiler may use.
    pub(crate) target_features: String,
    /// Compiler flags of the environment and of cargo's configuration.
    pub(crate) flags: String,
    /// Optimisation level.
    pub(crate) opt_level: String,
}

impl Build {
    /// Returns the description of this binary.
    pub(crate) fn of_this_binary() -> Build {
        Build {
            compiler: build::COMPILER.to_owned(),
            target: build::TARGET.to_owned(),
            target_features: build::TARGET_FEATURES.to_owned(),
            flags: build::FLAGS.to_owned(),
            opt_level: build::OPT_LEVEL.to_owned(),
        }
    }
}

/// Instructions of one policy with one number of VMs.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct Row {
    /// Policy name.
    pub(crate) policy: String,
    /// Number of VMs, all backlogged.
    pub(crate) vms: u32,
    /// Instructions per answered request, rounded to a tenth.
    pub(crate) instructions: f64,
}

/// Counts of all runs, as in the file and in `-o json`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct Counts {
    /// Build settings of the binary.
    pub(crate) build: Build,
    /// Seed of the request addresses.
    pub(crate) seed: u64,
    /// Requests of the counted loop.
    pub(crate) requests: u64,
    /// Requests that each VM keeps waiting.
    pub(crate) depth: u32,
    /// Counts, by policy and number of VMs.
    pub(crate) rows: Vec<Row>,
}

/// One run to be counted.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    /// Policy name.
    pub(crate) policy: String,
    /// Number of VMs.
    pub(crate) vms: u32,
}

/// Verdict on a row compared with the recorded one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Verdict {
    /// Within the tolerance.
    Same,
    /// Above the tolerance: the comparison fails.
    Rose,
    /// Below the tolerance: should be recorded.
    Fell,
    /// Not in the file: the comparison fails, because the row would never be checked.
    New,
}

/// Row compared with the recorded one.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Compared {
    /// Count of this build.
    #[serde(flatten)]
    pub(crate) row: Row,
    /// Count in the file; `None` if the row is new.
    pub(crate) recorded: Option<f64>,
    /// Count divided by the recorded one.
    pub(crate) ratio: Option<f64>,
    /// Verdict.
    pub(crate) verdict: Verdict,
}

/// Counts all runs, `jobs` at a time, and returns them in the order given.
///
/// # Errors
/// If valgrind is missing, this is not an optimised build, or a run fails.
pub(crate) fn count(runs: &[Run], requests: u64, jobs: Option<u16>) -> Result<Counts> {
    check_build()?;
    check_valgrind()?;
    let cores = thread::available_parallelism().map_or(1, |n| n.get());
    let jobs = jobs.map_or(cores, usize::from).min(runs.len());
    let next = AtomicUsize::new(0);
    let bar = progress::bar(runs.len() as u64, "counting");
    let mut rows: Vec<(usize, Row)> = Vec::new();
    thread::scope(|scope| -> Result<()> {
        let (sender, receiver) = mpsc::channel();
        for _ in 0..jobs {
            let (sender, next) = (sender.clone(), &next);
            scope.spawn(move || {
                while let Some((index, run)) = take(runs, next) {
                    // The receiver is gone after a failure, so remaining runs are skipped.
                    if sender.send((index, run_one(run, requests))).is_err() {
                        return;
                    }
                }
            });
        }
        // The receiver ends once the last thread has dropped its sender.
        drop(sender);
        for (index, row) in receiver {
            rows.push((index, row?));
            bar.inc(1);
        }
        Ok(())
    })?;
    bar.finish_and_clear();
    // Threads finish in any order; the file keeps the order of `runs`.
    rows.sort_by_key(|(index, _)| *index);
    Ok(Counts {
        build: Build::of_this_binary(),
        seed: SEED,
        requests,
        depth: DEPTH,
        rows: rows.into_iter().map(|(_, row)| row).collect(),
    })
}

/// Takes the next run.
fn take<'a>(runs: &'a [Run], next: &AtomicUsize) -> Option<(usize, &'a Run)> {
    let index = next.fetch_add(1, Ordering::Relaxed);
    Some((index, runs.get(index)?))
}

fn check_build() -> Result<()> {
    if !cfg!(debug_assertions) {
        return Ok(());
    }
    Err(
        Problem::new("this is a debug build, whose instruction counts are not comparable")
            .help("use a release build: cargo build --release")
            .into(),
    )
}

fn check_valgrind() -> Result<()> {
    match Command::new("valgrind").arg("--version").output() {
        Ok(output) if output.status.success() => Ok(()),
        _ => Err(
            Problem::new("cannot run valgrind, which counts instructions")
                .help("apt-get install valgrind, or scripts/setup test")
                .into(),
        ),
    }
}

/// Runs this binary under callgrind once.
fn run_one(run: &Run, requests: u64) -> Result<Row> {
    let binary = std::env::current_exe().context("cannot find this binary")?;
    let dir = tempfile::tempdir().context("cannot make a temporary directory")?;
    let counts = dir.path().join("counts");
    let mut command = Command::new("valgrind");
    // The environment is on the stack, and its size would change addresses and thus counts.
    command.env_clear();
    for name in ["PATH", "VALGRIND_LIB"] {
        command.envs(std::env::var_os(name).map(|value| (name, value)));
    }
    let output = command
        .args(["--tool=callgrind", "--collect-atstart=no"])
        .arg(format!("--toggle-collect={COUNTED}"))
        .arg(format!("--callgrind-out-file={}", counts.display()))
        .arg(binary)
        .args(["bench", "counted", &run.policy])
        .args([run.vms.to_string(), requests.to_string()])
        .output()
        .context("cannot run valgrind")?;
    let failed = || {
        let log = String::from_utf8_lossy(&output.stderr);
        let what = format!("counting {} with {} VMs failed", run.policy, run.vms);
        anyhow::Error::from(Problem::new(what).help(format!("valgrind said:\n{log}")))
    };
    if !output.status.success() {
        return Err(failed());
    }
    let answered = String::from_utf8_lossy(&output.stdout).trim().parse().ok();
    let answered: u64 = answered
        .filter(|&answered| answered > 0)
        .ok_or_else(failed)?;
    let text = fs::read_to_string(&counts).map_err(|_| failed())?;
    let total = total(&text).filter(|&total| total > 0).ok_or_else(failed)?;
    Ok(Row {
        policy: run.policy.clone(),
        vms: run.vms,
        instructions: (total as f64 / answered as f64 * 10.0).round() / 10.0,
    })
}

/// Returns the total of a file that callgrind wrote.
fn total(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("totals:"))?;
    line.trim().parse().ok()
}

/// Reads counts written by [`record`].
///
/// # Errors
/// If the file does not exist or has other content.
pub(crate) fn read(path: &Path) -> Result<Counts> {
    let bad = |what: String| {
        Problem::new(what)
            .at(path.display().to_string())
            .help("give a file written by `tidegate bench engine --instructions --record FILE`")
    };
    let text =
        atomic_file::read(path, FILE_BYTES_MAX)?.ok_or_else(|| bad("no such file".to_owned()))?;
    Ok(serde_json::from_str(&text)
        .map_err(|error| bad(format!("not a file of counts: {error}")))?)
}

/// Writes counts to a file.
///
/// # Errors
/// If the file cannot be written.
pub(crate) fn record(path: &Path, counts: &Counts) -> Result<()> {
    atomic_file::write(
        path,
        (serde_json::to_string_pretty(counts)? + "\n").as_bytes(),
    )
}

/// Checks that recorded counts are comparable with this build.
///
/// # Errors
/// If compiler, flags or workload differ.
pub(crate) fn check_comparable(path: &Path, recorded: &Counts, requests: u64) -> Result<()> {
    let (build, workload) = (Build::of_this_binary(), (SEED, requests, DEPTH));
    if recorded.build == build && (recorded.seed, recorded.requests, recorded.depth) == workload {
        return Ok(());
    }
    let description = |build: &Build, (seed, requests, depth): (u64, u64, u32)| {
        format!(
            "{}, {}, opt-level {}, flags {:?}, features {}; {requests} requests, {depth} waiting \
             per VM, seed {seed}",
            build.compiler, build.target, build.opt_level, build.flags, build.target_features
        )
    };
    let before = (recorded.seed, recorded.requests, recorded.depth);
    let what = format!(
        "the counts are not comparable\n  the file:   {}\n  this build: {}",
        description(&recorded.build, before),
        description(&build, workload)
    );
    Err(Problem::new(what)
        .at(path.display().to_string())
        .help(
            "where the compiler changed on purpose, build with it the last commit that passed, run \
             `tidegate bench engine --instructions --record FILE` there, and commit the file by \
             itself with that reason",
        )
        .into())
}

/// Compares each row with the recorded one.
pub(crate) fn compare(recorded: &[Row], rows: &[Row]) -> Vec<Compared> {
    let beside = |row: &Row| {
        let same = |old: &&Row| old.policy == row.policy && old.vms == row.vms;
        let old = recorded.iter().find(same).map(|old| old.instructions);
        let ratio = old.map(|old| row.instructions / old);
        Compared {
            row: row.clone(),
            recorded: old,
            ratio,
            verdict: verdict(ratio),
        }
    };
    rows.iter().map(beside).collect()
}

fn verdict(ratio: Option<f64>) -> Verdict {
    match ratio {
        None => Verdict::New,
        Some(ratio) if ratio > RATIO_MAX => Verdict::Rose,
        Some(ratio) if ratio < FALL_RATIO => Verdict::Fell,
        Some(_) => Verdict::Same,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(rows: &[(&str, u32, f64)]) -> Vec<Row> {
        let row = |&(policy, vms, instructions): &(&str, u32, f64)| Row {
            policy: policy.to_owned(),
            vms,
            instructions,
        };
        rows.iter().map(row).collect()
    }

    fn counts() -> Counts {
        Counts {
            build: Build::of_this_binary(),
            seed: SEED,
            requests: 20_000,
            depth: DEPTH,
            rows: rows(&[("fifo", 1, 1404.3)]),
        }
    }

    #[test]
    fn a_rise_above_two_percent_and_a_row_without_a_record_are_found() {
        let recorded = rows(&[("fifo", 1, 1000.0), ("drr", 1, 1000.0), ("sfq", 1, 1000.0)]);
        let now = rows(&[
            ("fifo", 1, 1020.0),
            ("drr", 1, 1020.1),
            ("sfq", 1, 979.9),
            ("sfq", 1000, 979.9),
        ]);
        let compared = compare(&recorded, &now);
        let verdicts: Vec<Verdict> = compared.iter().map(|row| row.verdict).collect();
        let expected = [Verdict::Same, Verdict::Rose, Verdict::Fell, Verdict::New];
        assert_eq!(verdicts, expected);
    }

    #[test]
    fn counts_of_another_compiler_or_workload_are_not_compared() {
        let path = Path::new("counts.json");
        let mut older = counts();
        check_comparable(path, &older, 20_000).expect("comparable");
        older.build.compiler = "rustc 1.2.3".to_owned();
        for (recorded, requests, word) in [
            (older, 20_000, "rustc 1.2.3"),
            (counts(), 1000, "1000 requests"),
        ] {
            let error = check_comparable(path, &recorded, requests).expect_err("refused");
            let message = error.to_string();
            assert!(
                message.contains(word) && message.contains("--record"),
                "{message}"
            );
        }
    }

    #[test]
    fn a_file_comes_back_as_it_was_written() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("counts.json");
        let refused = || read(&path).expect_err("refused").to_string();
        assert!(refused().contains("no such file"));
        record(&path, &counts()).expect("written");
        assert_eq!(read(&path).expect("read"), counts());
        fs::write(&path, "{}").expect("written");
        assert!(refused().contains("not a file of counts"));
    }

    #[test]
    fn the_total_is_read_from_what_callgrind_writes() {
        assert_eq!(
            total("events: Ir\nfn=x\n1 2\ntotals: 123456\n"),
            Some(123_456)
        );
        assert_eq!(total("events: Ir\n"), None);
    }
}
