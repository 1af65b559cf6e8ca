//! Commands that simulate the shards of a sweep.

use std::path::{Path, PathBuf};

use anyhow::Result;
use serde::Serialize;
use tidegate_core::policy::Policy;
use tidegate_units::exact_duration;

use super::grid::Grid;
use crate::args::{Format, GridArgs, Processors, Shard};
use crate::output::Output;
use crate::problem::Problem;
use crate::shell;

/// Command of a list.
#[derive(Serialize)]
struct Listed {
    shard: Shard,
    /// Program and arguments, for engines without a shell.
    argv: Vec<String>,
    /// Line for a shell.
    command: String,
}

/// Prints a command for each of `most` shards, or for each simulation.
pub(super) fn list(
    args: &GridArgs,
    directory: &Path,
    most: Option<u32>,
    out: Output,
) -> Result<()> {
    refuse_csv(out)?;
    let words = words(args)?;
    let simulations = Grid::load(args)?.len();
    let count = most.map_or(simulations, |most| simulations.min(most as usize));
    let Some(last) = u32::try_from(count).ok().and_then(|n| Shard::new(n, n)) else {
        let what = format!("{count} simulations are too many for a command each");
        let help = "list fewer commands of several simulations: --list=1000";
        return Err(Problem::new(what).at("--list").help(help).into());
    };
    // The engine decides how many commands run at once.
    let mut options = vec!["--jobs".to_owned(), args.jobs.unwrap_or(1).to_string()];
    if args.fresh {
        options.push("--fresh".to_owned());
    }
    let program = program();
    let mut all = Vec::new();
    for index in 1..=last.count() {
        let shard = Shard::new(index, last.count()).expect("no more than the last");
        let argv = argv(&program, &words, shard, directory, &options)?;
        let command = line(&argv);
        all.push(Listed {
            shard,
            argv,
            command,
        });
    }
    if out.is_json() {
        return out.json(&all);
    }
    let lines: String = all.iter().map(|it| format!("{}\n", it.command)).collect();
    Ok(out.verbatim(&lines)?)
}

/// Refuses CSV, which the commands for shards do not have.
pub(super) fn refuse_csv(out: Output) -> Result<()> {
    if out.format() != Format::Csv {
        return Ok(());
    }
    let problem = Problem::new("with --out there is no CSV output");
    let help = "`tidegate sweep merge DIR -o csv` prints the results of all shards";
    Err(problem.at("-o csv").help(help).into())
}

/// Returns the program as it was called, so that a listed command runs the same build.
fn program() -> String {
    let called = std::env::args().next();
    called.unwrap_or_else(|| "tidegate".to_owned())
}

/// Returns the words of a command without those of a shard: `sweep`, options, files.
///
/// # Errors
/// If a path is no text, or has characters that a line of a list cannot have.
pub(super) fn words(args: &GridArgs) -> Result<Vec<String>> {
    let mut words = vec!["sweep".to_owned()];
    let mut option = |name: &str, value: String| words.extend(option_words(name, value));
    let policies: Vec<&str> = args.policies.iter().map(Policy::name).collect();
    if !policies.is_empty() {
        option("--policy", policies.join(","));
    }
    let scheduler = |processors: &Processors| match processors {
        Processors::None => "none",
        Processors::Under(spec) => spec.name(),
    };
    let schedulers: Vec<&str> = args.schedulers.iter().map(scheduler).collect();
    if !schedulers.is_empty() {
        option("--scheduler", schedulers.join(","));
    }
    option("--seeds", args.seeds.as_argument());
    if let Some(model) = &args.changes.device {
        option("--device", text(Path::new(model))?);
    }
    if let Some(duration) = args.changes.duration {
        option("--duration", exact_duration(duration));
    }
    if args.changes.lenient {
        words.push("--lenient".to_owned());
    }
    let files = args.files.iter().map(|file| text(file));
    let files = files.collect::<Result<Vec<String>>>()?;
    // A file with the name of a subcommand or an option is a file behind the dashes only.
    let is_plain = |file: &String| !file.starts_with('-') && file != "merge" && file != "help";
    if !files.iter().all(is_plain) {
        words.push("--".to_owned());
    }
    words.extend(files);
    Ok(words)
}

/// Returns an option with its value as words. A value that looks like an option is in one word with
/// its name.
fn option_words(name: &str, value: String) -> Vec<String> {
    if value.starts_with('-') {
        return vec![format!("{name}={value}")];
    }
    vec![name.to_owned(), value]
}

/// Returns a path as text for one line.
fn text(path: &Path) -> Result<String> {
    let text = path
        .to_str()
        .filter(|text| !text.contains(char::is_control));
    let text = text.ok_or_else(|| {
        let problem = Problem::new("the name has characters that a command cannot have");
        let help = "give the file a name without control characters, in UTF-8";
        problem.at(format!("{path:?}")).help(help)
    })?;
    Ok(text.to_owned())
}

/// Returns the words of the command that simulates a shard; `words` are of [`words`].
fn argv(
    program: &str,
    words: &[String],
    shard: Shard,
    directory: &Path,
    options: &[String],
) -> Result<Vec<String>> {
    let mut argv = vec![program.to_owned()];
    argv.extend(words.first().cloned());
    // Before the files, which may stand behind dashes.
    argv.extend(["--shard".to_owned(), shard.to_string()]);
    argv.extend(option_words("--out", text(directory)?));
    argv.extend_from_slice(options);
    argv.extend(words.iter().skip(1).cloned());
    Ok(argv)
}

fn line(argv: &[String]) -> String {
    let words: Vec<String> = argv.iter().map(|word| shell::quoted(word)).collect();
    words.join(" ")
}

/// Returns the line that simulates a shard of a sweep.
///
/// # Errors
/// As [`words`].
pub(super) fn of_shard(words: &[String], shard: Shard, directory: &Path) -> Result<String> {
    Ok(line(&argv("tidegate", words, shard, directory, &[])?))
}

/// Returns the line that merges shards.
///
/// # Errors
/// If a path is no text, or has characters that a line cannot have.
pub(super) fn of_merge(paths: &[PathBuf]) -> Result<String> {
    let mut words = ["tidegate", "sweep", "merge"].map(str::to_owned).to_vec();
    for path in paths {
        words.push(text(path)?);
    }
    Ok(line(&words))
}
