//! `tidegate sweep merge`: the results of all shards together, as if one process had simulated
//! them.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use anyhow::{Context, Result};
use serde_json::Value;

use super::command_line::{of_merge, of_shard};
use super::shard_file::{self, Build, SeriesKey, ShardFile, Sweep};
use super::{ResultFiles, summary, tell_written};
use crate::args::{MergeArgs, Shard};
use crate::output::{self, Output};
use crate::problem::Problem;
use crate::results::{ANOTHER_FILE, Key, Results};

/// Maximum number of lines of each kind in an error.
const LINES_MAX: usize = 10;

/// Shard by the name of its file.
pub(super) struct NamedShard {
    pub(super) path: PathBuf,
    pub(super) shard: Shard,
    pub(super) is_finished: bool,
}

pub(super) fn run(args: &MergeArgs, out: Output) -> Result<()> {
    let result_files = ResultFiles::create(&args.files_of_results)?;
    let sources = Sources::find(&args.shards)?;
    let shards = read_shards(&sources.files)?;
    let sweep = &shards.first().expect("an error without files").sweep;
    let reports = by_position(&shards)?;
    let missing = reports.iter().enumerate();
    let missing = missing.filter_map(|(position, report)| report.is_none().then_some(position));
    let missing: Vec<usize> = missing.collect();
    if !missing.is_empty() {
        return Err(incomplete(&shards, &missing, &sources)?.into());
    }
    for part in sources.parts_beside_shards() {
        let part = part.display();
        output::tell(format_args!(
            "note: {part} is a run that has not ended, of a shard that is whole: not counted"
        ));
    }
    let this = Build::this()?;
    if this != sweep.build {
        let build = &sweep.build;
        output::tell(format_args!("note: simulated by {build}; this is {this}"));
    }
    let keys: Vec<Key> = (0..sweep.len()).map(|it| sweep.key(it)).collect();
    let results = keys
        .iter()
        .zip(reports.iter().filter_map(|it| it.as_deref()));
    let results: Vec<(&Key, &Value)> = results.collect();
    if let Some(path) = &args.results {
        write_results(path, &results, &shards)?;
    }
    result_files.finish(&results, &sweep.seeds.to_string(), &sweep.build.version)?;
    summary::show(&results, out)
}

/// Reads shards of one sweep. They share its description, of which each file has a copy: a list of
/// thousands of shards of thousands of simulations would not fit the memory otherwise.
///
/// # Errors
/// If a file cannot be read, is no shard, or is one of another sweep.
fn read_shards(files: &[PathBuf]) -> Result<Vec<ShardFile>> {
    let mut shards: Vec<ShardFile> = Vec::with_capacity(files.len());
    for path in files {
        let mut file = ShardFile::read(path)?;
        if let Some(first) = shards.first() {
            refuse_another_sweep(first, &file)?;
            file.sweep = Rc::clone(&first.sweep);
        }
        shards.push(file);
    }
    Ok(shards)
}

/// Adds results to a results file, as a sweep does; `shards` are where they come from.
///
/// # Errors
/// If the file has another result of a simulation. Then it is not changed.
fn write_results(path: &Path, all: &[(&Key, &Value)], shards: &[ShardFile]) -> Result<()> {
    let mut results = Results::open(path, false, ANOTHER_FILE)?;
    results.respell(all.iter().map(|&(key, _)| key));
    let differs = |&(key, report): &(&Key, &Value)| {
        let known = results.get(key);
        known.is_some_and(|(_, known)| known != report)
    };
    if let Some(position) = all.iter().position(differs) {
        return Err(other_result(&results, position, shards).into());
    }
    let mut added = 0;
    for &(key, report) in all {
        if results.get(key).is_none() {
            results.append(key.clone(), report.clone())?;
            added += 1;
        }
    }
    results.finish()?;
    tell_written(added, results.path());
    Ok(())
}

/// Creates the error for a results file whose result at a position of the sweep is not that of the
/// shard.
fn other_result(results: &Results, position: usize, shards: &[ShardFile]) -> Problem {
    let sweep = &shards[0].sweep;
    let (series, seed) = sweep.place(position);
    let has_it = |file: &&ShardFile| file.shard.has(position);
    let shard = shards.iter().find(has_it).map(|file| file.path.display());
    let shard = shard.expect("every result is of a shard");
    let what = format!("the file and a shard have different results of {series} with seed {seed}");
    let help = format!("another build may have written the file: use {ANOTHER_FILE}");
    let at = format!("{} and {shard}", results.path().display());
    Problem::new(what).at(at).help(help)
}

/// Files to merge.
struct Sources {
    files: Vec<PathBuf>,
    /// Files of shards that are not finished.
    parts: Vec<PathBuf>,
    /// Directory of the first file.
    directory: PathBuf,
    /// Directories and files as given.
    paths: Vec<PathBuf>,
}

impl Sources {
    /// Looks for shards in directories; files are taken as they are.
    ///
    /// # Errors
    /// If there is none.
    fn find(paths: &[PathBuf]) -> Result<Sources> {
        let (mut files, mut parts) = (Vec::new(), Vec::new());
        for path in paths {
            if !path.is_dir() {
                files.push(path.clone());
                continue;
            }
            for named in shards_in(path)? {
                let list = if named.is_finished {
                    &mut files
                } else {
                    &mut parts
                };
                list.push(named.path);
            }
        }
        // A file that is named twice, or by its directory too, is one file.
        let mut seen = BTreeSet::new();
        files.retain(|file| seen.insert(fs::canonicalize(file).unwrap_or_else(|_| file.clone())));
        let Some(first) = files.first() else {
            let all: Vec<_> = paths.iter().map(|it| it.display().to_string()).collect();
            let what = match parts.len() {
                0 => "no shard of a sweep is there".to_owned(),
                n => format!("none of {n} shards is finished"),
            };
            let help = "`tidegate sweep FILE... --shard I/N --out DIR` writes a shard into DIR";
            let problem = Problem::new(what).at(all.join(", ")).help(help);
            return Err(problem.into());
        };
        let directory = match first.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        Ok(Sources {
            directory: directory.to_owned(),
            files,
            parts,
            paths: paths.to_vec(),
        })
    }
}

impl Sources {
    /// Returns the unfinished shards that are whole in the same directory.
    fn parts_beside_shards(&self) -> impl Iterator<Item = &PathBuf> {
        let is_whole = move |part: &&PathBuf| self.files.contains(&part.with_extension(""));
        self.parts.iter().filter(is_whole)
    }
}

/// Returns the shards in a directory by the names of their files, in their order.
pub(super) fn shards_in(directory: &Path) -> Result<Vec<NamedShard>> {
    let cannot = || format!("cannot read {}", directory.display());
    let mut all = Vec::new();
    for entry in fs::read_dir(directory).with_context(cannot)? {
        let name = entry.with_context(cannot)?.file_name();
        let named = name.to_str().and_then(shard_file::by_name);
        all.extend(named.map(|(shard, is_finished)| NamedShard {
            path: directory.join(&name),
            shard,
            is_finished,
        }));
    }
    all.sort_by_key(|it| (it.shard.count(), it.shard.index()));
    Ok(all)
}

fn refuse_another_sweep(first: &ShardFile, other: &ShardFile) -> Result<()> {
    let names = [first, other].map(|file| file.path.display().to_string());
    let [first_name, other_name] = &names;
    let difference = difference(first_name, &first.sweep, other_name, &other.sweep);
    let Some(difference) = difference else {
        return Ok(());
    };
    let what = format!("shards of different sweeps: {difference}");
    let help = "give the shards of one sweep by one build; --fresh simulates a shard again";
    Err(Problem::new(what).at(names.join(", ")).help(help).into())
}

/// Returns the first difference between two sweeps, by the names of where they come from.
pub(super) fn difference(name: &str, one: &Sweep, other_name: &str, two: &Sweep) -> Option<String> {
    let differ = |what: &str, one: &str, two: &str| {
        Some(format!("{what} of {name}: {one}; of {other_name}: {two}"))
    };
    if one.build != two.build {
        return differ("build", &one.build.to_string(), &two.build.to_string());
    }
    if one.seeds != two.seeds {
        return differ("seeds", &one.seeds.as_argument(), &two.seeds.as_argument());
    }
    let names = |sweep: &Sweep| {
        let names = sweep.series.iter().map(SeriesKey::to_string);
        names.collect::<Vec<String>>()
    };
    if names(one) != names(two) {
        let [one, two] = [one, two].map(|it| names(it).join(", "));
        return differ("scenarios and policies", &one, &two);
    }
    let mut pairs = one.series.iter().zip(&two.series);
    let (series, _) = pairs.find(|(one, two)| one != two)?;
    Some(format!(
        "{series} is not the same for {name} and {other_name}: its file, a file that it names, or \
         an option such as --duration"
    ))
}

/// Returns the result at each position, if a shard has it.
///
/// # Errors
/// If two shards have the same simulation.
fn by_position(shards: &[ShardFile]) -> Result<Vec<Option<&Value>>> {
    let sweep = &shards[0].sweep;
    let mut reports: Vec<Option<(usize, &Value)>> = vec![None; sweep.len()];
    for (n, file) in shards.iter().enumerate() {
        let positions = file.shard.positions(sweep.len());
        // Common simulations with one earlier file, which is reported.
        let mut overlap: Option<Overlap> = None;
        for (position, report) in positions.zip(&file.reports) {
            match &mut reports[position] {
                slot @ None => *slot = Some((n, report)),
                Some((other, known)) => {
                    let overlap = overlap.get_or_insert(Overlap::new(*other, position));
                    overlap.add(*other, position, *known == report);
                }
            }
        }
        if let Some(overlap) = overlap {
            return Err(overlap.problem(&shards[overlap.other], file).into());
        }
    }
    Ok(reports.into_iter().map(|it| Some(it?.1)).collect())
}

/// Simulations that a shard has in common with an earlier one.
struct Overlap {
    /// Index of the earlier file.
    other: usize,
    simulations: usize,
    /// Position of one of them, if possible one with different results.
    example: usize,
    differs: bool,
}

impl Overlap {
    fn new(other: usize, example: usize) -> Overlap {
        Overlap {
            other,
            simulations: 0,
            example,
            differs: false,
        }
    }

    fn add(&mut self, other: usize, position: usize, is_same: bool) {
        if other != self.other {
            return;
        }
        self.simulations += 1;
        if !is_same && !self.differs {
            (self.differs, self.example) = (true, position);
        }
    }

    fn problem(&self, other: &ShardFile, file: &ShardFile) -> Problem {
        let (series, seed) = file.sweep.place(self.example);
        let example = format!("{series} with seed {seed}");
        let what = if self.differs {
            format!("two shards have different results for the same simulation, {example}")
        } else {
            let all = file.sweep.len();
            let common = self.simulations;
            format!("two shards overlap in {common} of {all} simulations, such as {example}")
        };
        let help = if self.differs {
            "one build gives one result, so a file was changed or a machine is faulty: simulate \
             both again with --fresh"
        } else {
            "leave out one of them"
        };
        let both = [other, file].map(|it| format!("{} (shard {})", it.path.display(), it.shard));
        Problem::new(what).at(both.join(" and ")).help(help)
    }
}

/// Creates the error for missing simulations, with the commands that simulate them.
fn incomplete(shards: &[ShardFile], missing: &[usize], sources: &Sources) -> Result<Problem> {
    let sweep = &shards[0].sweep;
    let count = common_count(shards, sweep);
    let mut numbers: Vec<u32> = (missing.iter())
        .filter_map(|position| u32::try_from(position % count as usize).ok())
        .map(|place| place + 1)
        .collect();
    numbers.sort_unstable();
    numbers.dedup();
    let mut what = format!(
        "{} of {} simulations are missing:",
        missing.len(),
        sweep.len()
    );
    let by_series = missing.chunk_by(|a, b| sweep.place(*a).0 == sweep.place(*b).0);
    let lines = by_series.map(|positions| {
        let seeds = positions.iter().map(|it| sweep.place(*it).1.to_string());
        format!(
            "{}, seeds {}",
            sweep.place(positions[0]).0,
            some(seeds, ", ")
        )
    });
    write!(what, "\n    {}", some(lines, "\n    "))?;
    let directory = directory_for(&sources.directory, count);
    let commands = numbers.iter().filter_map(|&index| Shard::new(index, count));
    let commands = commands.map(|shard| of_shard(&sweep.command, shard, &directory));
    let commands = commands.collect::<Result<Vec<String>>>()?;
    let mut help = match sources.parts.as_slice() {
        [] => "simulate them, and merge again:".to_owned(),
        parts => {
            let parts = parts.iter().map(|part| part.display().to_string());
            let parts = some(parts, ", ");
            format!("simulate them, and merge again; begun and not finished: {parts}:")
        }
    };
    write!(help, "\n    {}", some(commands.into_iter(), "\n    "))?;
    if directory != sources.directory {
        let mut paths = sources.paths.clone();
        paths.push(directory);
        write!(help, "\n    {}", of_merge(&paths)?)?;
    }
    Ok(Problem::new(what).help(help))
}

/// Returns a directory that takes shards of a number of shards: the given one, or else a new one
/// in it, because there is one number of shards to a directory.
fn directory_for(directory: &Path, count: u32) -> PathBuf {
    let takes = |directory: &PathBuf| {
        // One that is not there is created.
        let there = shards_in(directory).unwrap_or_default();
        there.iter().all(|it| it.shard.count() == count)
    };
    let new = |n: u32| directory.join(format!("missing-{n}"));
    let mut all = std::iter::once(directory.to_owned()).chain((1..).map(new));
    all.find(takes).expect("one of them is not there")
}

/// Returns a number of shards of which some are missing as a whole, and the others not at all.
fn common_count(shards: &[ShardFile], sweep: &Sweep) -> u32 {
    let counts = || shards.iter().map(|it| it.shard.count());
    let most = counts().max().unwrap_or(1);
    if counts().all(|count| most.is_multiple_of(count)) {
        most
    } else {
        // A shard for each simulation.
        u32::try_from(sweep.len()).unwrap_or(u32::MAX)
    }
}

/// Joins the first items, and names the number of the others.
fn some(mut items: impl Iterator<Item = String>, separator: &str) -> String {
    let mut shown: Vec<String> = items.by_ref().take(LINES_MAX).collect();
    let rest = items.count();
    if rest > 0 {
        shown.push(format!("and {rest} more"));
    }
    shown.join(separator)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Seeds;

    /// Shard of a sweep of six simulations; each has its position as its result.
    fn shard(text: &str) -> ShardFile {
        let sweep = shard_file::fixture::sweep(Seeds(vec![1, 2, 5]));
        let shard: Shard = text.parse().expect("a shard");
        ShardFile {
            path: PathBuf::from(shard_file::name(shard)),
            shard,
            reports: shard.positions(sweep.len()).map(Value::from).collect(),
            sweep: Rc::new(sweep),
        }
    }

    fn overlap(shards: &[ShardFile]) -> String {
        by_position(shards).expect_err("refused").to_string()
    }

    #[test]
    fn shards_of_any_numbers_are_put_together_by_position() {
        for texts in [&["1/1"][..], &["2/3", "1/3", "3/3"], &["1/2", "4/4", "2/4"]] {
            let shards: Vec<ShardFile> = texts.iter().map(|text| shard(text)).collect();
            let reports = by_position(&shards).expect("no overlap");
            let all: Vec<_> = (0..6).map(Value::from).collect();
            assert!(reports.into_iter().flatten().eq(&all), "{texts:?}");
        }
    }

    #[test]
    fn an_overlap_is_refused_and_different_results_are_said_to_be_so() {
        let text = overlap(&[shard("2/2"), shard("1/2"), shard("1/3")]);
        // Positions 0 and 3: the first is in 1/2, which is not the first file.
        assert!(text.contains("overlap in 1 of 6 simulations"), "{text}");
        assert!(text.contains("größe.toml under fifo with seed 1"), "{text}");
        assert!(text.contains("shard-1-of-2.jsonl (shard 1/2)"), "{text}");
        assert!(text.contains("shard-1-of-3.jsonl (shard 1/3)"), "{text}");
        let mut other = shard("1/2");
        other.reports[1] = Value::from(7);
        let text = overlap(&[shard("1/2"), other]);
        assert!(text.contains("different results"), "{text}");
        assert!(text.contains("under fifo with seed 5"), "{text}");
    }

    #[test]
    fn what_is_missing_is_named_with_its_commands() {
        let sources = |parts: &[&str]| Sources {
            files: Vec::new(),
            parts: parts.iter().map(PathBuf::from).collect(),
            directory: PathBuf::from("a b"),
            paths: Vec::new(),
        };
        let shards = [shard("1/2"), shard("2/4")];
        let text = incomplete(&shards, &[3], &sources(&["x.part"]))
            .expect("text")
            .to_string();
        assert!(text.contains("1 of 6 simulations are missing"), "{text}");
        assert!(
            text.contains("größe.toml under mclock, seeds 1\n"),
            "{text}"
        );
        assert!(text.contains("not finished: x.part"), "{text}");
        let command = "    tidegate sweep --shard 4/4 --out 'a b' 'größe.toml'";
        assert!(text.ends_with(command), "{text}");
        // No number of shards fits both, so each simulation is a shard.
        let shards = [shard("1/2"), shard("2/3")];
        let text = incomplete(&shards, &[3, 5], &sources(&[]))
            .expect("text")
            .to_string();
        assert!(
            text.contains("--shard 4/6") && text.contains("--shard 6/6"),
            "{text}"
        );
        assert!(!text.contains("not finished"), "{text}");
    }

    #[test]
    fn a_list_of_many_is_cut() {
        let numbers = |n: usize| some((1..=n).map(|n| n.to_string()), " ");
        assert_eq!(numbers(10), "1 2 3 4 5 6 7 8 9 10");
        assert_eq!(numbers(12), "1 2 3 4 5 6 7 8 9 10 and 2 more");
    }

    #[test]
    fn the_difference_between_two_sweeps_is_named() {
        let named = |change: &dyn Fn(&mut Sweep)| {
            let one = shard("1/1").sweep;
            let mut two = Sweep::clone(&one);
            change(&mut two);
            difference("A", &one, "B", &two).unwrap_or_default()
        };
        assert_eq!(named(&|_| {}), "");
        assert_eq!(named(&|it| it.command.clear()), "", "words may differ");
        for (change, parts) in [
            (
                &(|it: &mut Sweep| it.build.version = "2".to_owned()) as &dyn Fn(&mut Sweep),
                ["build of A: tidegate 1.0.0", "of B: tidegate 2"],
            ),
            (
                &|it| it.seeds = Seeds(vec![1, 2]),
                ["seeds of A: 1,2,5", "of B: 1..2"],
            ),
            (
                &|it| _ = it.series.pop(),
                ["scenarios and policies of A", "of B: größe.toml under fifo"],
            ),
            (
                &|it| it.series[1].content.clear(),
                ["größe.toml under mclock is not the same", "for A and B"],
            ),
        ] {
            let text = named(change);
            assert!(parts.iter().all(|part| text.contains(part)), "{text}");
        }
    }
}
