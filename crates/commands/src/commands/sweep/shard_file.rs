//! Shard of a sweep: a file with the results of every N-th simulation.
//!
//! ```text
//!   {"tidegate_sweep_shard":1,"shard":"3/10","results":6,"sha256":"...","sweep":{...}}
//!   {"scenario":"a.toml","digest":"...","policy":"fifo","seed":3,"report":{...}}
//!   ... a line for each simulation, in the order of the sweep
//! ```
//!
//! The first line names the whole sweep, so that a merge knows what is missing. Its SHA-256 is that
//! of the shard, the sweep and all other lines. The `digest` of a line is the SHA-256 of everything
//! that determines the result: scenario with all of its files, policy with its parameters, vCPU
//! scheduler, seed and build.

use std::fmt;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use anyhow::{Context, Result};
use ring::digest::{Context as Sha256, Digest, SHA256};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::grid::{Grid, Series};
use crate::args::{Seeds, Shard};
use crate::atomic_file;
use crate::problem::Problem;
use crate::results::{Key, Line};
use crate::seeds;

/// Version of the format.
const FORMAT: u32 = 1;
/// Beginning of every shard.
const BEGINNING: &[u8] = b"{\"tidegate_sweep_shard\":";

/// Build of Tidegate, which may simulate otherwise than another build.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Build {
    pub(super) version: String,
    /// Hash of the program's file.
    hash: String,
}

impl Build {
    /// Returns the build of this program.
    ///
    /// # Errors
    /// If the program's file cannot be read.
    pub(super) fn this() -> Result<Build> {
        let hash = seeds::build().context("cannot read this program to identify its build")?;
        Ok(Build {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            hash: format!("{hash:016x}"),
        })
    }
}

impl fmt::Display for Build {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "tidegate {}, build {}", self.version, self.hash)
    }
}

/// Scenario under one policy and vCPU scheduler.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SeriesKey {
    pub(super) scenario: String,
    pub(super) policy: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) scheduler: Option<String>,
    /// Digest of its results in a results file.
    digest: String,
    /// SHA-256 of the scenario as read, with its devices, policies and traces.
    pub(super) content: String,
}

impl SeriesKey {
    fn new(series: &Series) -> SeriesKey {
        let Key {
            scenario,
            policy,
            scheduler,
            digest,
            seed: _,
        } = series.key.clone();
        SeriesKey {
            scenario,
            policy,
            scheduler,
            digest,
            // Times are exact in this format alone.
            content: sha256([format!("{:#?}", series.ready.scenario).as_str()]),
        }
    }
}

impl fmt::Display for SeriesKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} under {}", self.scenario, self.policy)?;
        match &self.scheduler {
            Some(scheduler) => write!(f, " and {scheduler}"),
            None => Ok(()),
        }
    }
}

/// Whole sweep that a shard is a part of.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Sweep {
    pub(super) build: Build,
    /// Words of the command, without the options of a shard.
    pub(super) command: Vec<String>,
    pub(super) seeds: Seeds,
    pub(super) series: Vec<SeriesKey>,
}

impl Sweep {
    /// Describes a sweep by this build.
    ///
    /// # Errors
    /// If the program's file cannot be read.
    pub(super) fn new(grid: &Grid, command: Vec<String>) -> Result<Sweep> {
        Ok(Sweep {
            build: Build::this()?,
            command,
            seeds: grid.seeds.clone(),
            series: grid.all.iter().map(SeriesKey::new).collect(),
        })
    }

    /// Number of simulations.
    pub(super) fn len(&self) -> usize {
        self.series.len().saturating_mul(self.seeds.0.len())
    }

    /// Returns the series and the seed at a position below [`Self::len`].
    pub(super) fn place(&self, position: usize) -> (&SeriesKey, u64) {
        let seeds = &self.seeds.0;
        let series = &self.series[position / seeds.len()];
        (series, seeds[position % seeds.len()])
    }

    /// Returns the key that a result has in a results file.
    pub(super) fn key(&self, position: usize) -> Key {
        let (series, seed) = self.place(position);
        Key {
            scenario: series.scenario.clone(),
            digest: series.digest.clone(),
            policy: series.policy.clone(),
            scheduler: series.scheduler.clone(),
            seed,
        }
    }

    /// Returns the key that a result has in a shard: its digest covers everything that determines
    /// the result.
    pub(super) fn shard_key(&self, position: usize) -> Key {
        let key = self.key(position);
        let (series, _) = self.place(position);
        let digest = sha256([
            self.build.version.as_str(),
            &self.build.hash,
            &series.content,
            &key.policy,
            key.scheduler.as_deref().unwrap_or_default(),
            &key.seed.to_string(),
        ]);
        Key { digest, ..key }
    }
}

/// First line of a shard.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Header {
    /// Version of the format. Must be the first field; see [`BEGINNING`].
    tidegate_sweep_shard: u32,
    shard: Shard,
    /// Number of further lines.
    results: usize,
    /// [`checksum`] of the rest.
    sha256: String,
    sweep: Sweep,
}

/// Shard with its results.
#[derive(Debug)]
pub(super) struct ShardFile {
    pub(super) path: PathBuf,
    pub(super) shard: Shard,
    pub(super) sweep: Rc<Sweep>,
    /// In the order of [`Shard::positions`].
    pub(super) reports: Vec<Value>,
}

/// Returns the name of a shard's file; names sort as the shards do.
pub(super) fn name(shard: Shard) -> String {
    let count = shard.count().to_string();
    let width = count.len();
    format!("shard-{:0width$}-of-{count}.jsonl", shard.index())
}

/// Returns the name of the file that an unfinished shard is in.
pub(super) fn part_name(shard: Shard) -> String {
    name(shard) + ".part"
}

/// Returns the shard that a file is by its name, and true if it is finished.
pub(super) fn by_name(name: &str) -> Option<(Shard, bool)> {
    let (numbers, finished) = match name.strip_suffix(".part") {
        Some(name) => (name, false),
        None => (name, true),
    };
    let numbers = numbers.strip_prefix("shard-")?.strip_suffix(".jsonl")?;
    let (index, count) = numbers.split_once("-of-")?;
    let shard = Shard::new(index.parse().ok()?, count.parse().ok()?)?;
    Some((shard, finished))
}

/// Writes a shard, whole or not at all.
///
/// # Errors
/// If the file cannot be written.
pub(super) fn write(path: &Path, sweep: Sweep, shard: Shard, lines: &[Line]) -> Result<()> {
    let mut body = Vec::new();
    for line in lines {
        line.write_to(&mut body)?;
    }
    let header = Header {
        tidegate_sweep_shard: FORMAT,
        shard,
        results: lines.len(),
        sha256: checksum(shard, &sweep, &body)?,
        sweep,
    };
    let mut bytes = serde_json::to_vec(&header)?;
    bytes.push(b'\n');
    bytes.append(&mut body);
    atomic_file::write(path, &bytes)
}

/// Returns the sweep that a shard's first line names, without a look at its results.
///
/// # Errors
/// If the line cannot be read, or is not that of a shard.
pub(super) fn read_sweep(path: &Path) -> Result<Sweep> {
    let file = File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
    let mut first = Vec::new();
    BufReader::new(file).read_until(b'\n', &mut first)?;
    Ok(read_header(path, &first)?.sweep)
}

impl ShardFile {
    /// Reads a shard.
    ///
    /// # Errors
    /// If it cannot be read, is no shard, or not as it was written.
    pub(super) fn read(path: &Path) -> Result<ShardFile> {
        atomic_file::regular(path)?;
        let bytes = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        let header = bytes.split_inclusive(|&byte| byte == b'\n').next();
        let header = header.filter(|line| line.starts_with(BEGINNING));
        let Some(first) = header else {
            return Err(foreign(path, "not a shard of a sweep"));
        };
        let header = read_header(path, first)?;
        let body = &bytes[first.len()..];
        let is_whole = checksum(header.shard, &header.sweep, body)? == header.sha256;
        let Some(reports) = is_whole.then(|| reports(&header, body)).flatten() else {
            let what = "truncated or changed: these are not the results that were written";
            return Err(damaged(path, what));
        };
        Ok(ShardFile {
            path: path.to_owned(),
            shard: header.shard,
            sweep: Rc::new(header.sweep),
            reports,
        })
    }
}

fn read_header(path: &Path, line: &[u8]) -> Result<Header> {
    let value: Value = match serde_json::from_slice(line) {
        Ok(value) => value,
        Err(_) => return Err(damaged(path, "truncated or changed in its first line")),
    };
    let format = &value["tidegate_sweep_shard"];
    if format.as_u64() != Some(FORMAT.into()) {
        let what = format!("a shard in format {format}, and this build reads format {FORMAT}");
        return Err(foreign(path, &what));
    }
    serde_json::from_value(value).map_err(|error| {
        let what = format!("changed in its first line: {error}");
        damaged(path, &what)
    })
}

/// Returns the results, if they are those of the shard that the header names.
fn reports(header: &Header, body: &[u8]) -> Option<Vec<Value>> {
    let mut lines = body.split_inclusive(|&byte| byte == b'\n');
    let mut reports = Vec::new();
    for position in header.shard.positions(header.sweep.len()) {
        let line: Line = serde_json::from_slice(lines.next()?).ok()?;
        if line.key != header.sweep.shard_key(position) {
            return None;
        }
        reports.push(line.report);
    }
    (lines.next().is_none() && reports.len() == header.results).then_some(reports)
}

fn foreign(path: &Path, what: &str) -> anyhow::Error {
    Problem::new(what)
        .at(path.display().to_string())
        .help("give files that `tidegate sweep --out DIR` wrote, or directories with them")
        .into()
}

fn damaged(path: &Path, what: &str) -> anyhow::Error {
    Problem::new(what)
        .at(path.display().to_string())
        .help("remove the file, or simulate the shard again with --fresh")
        .into()
}

/// Returns the SHA-256 of everything in a shard that results depend on.
fn checksum(shard: Shard, sweep: &Sweep, body: &[u8]) -> serde_json::Result<String> {
    let mut sum = Sha256::new(&SHA256);
    sum.update(&serde_json::to_vec(&(shard, sweep))?);
    sum.update(body);
    Ok(hex(sum.finish()))
}

/// Returns the SHA-256 of fields, each with its length before it.
fn sha256<'a>(fields: impl IntoIterator<Item = &'a str>) -> String {
    let mut sum = Sha256::new(&SHA256);
    for field in fields {
        sum.update(&(field.len() as u64).to_le_bytes());
        sum.update(field.as_bytes());
    }
    hex(sum.finish())
}

fn hex(digest: Digest) -> String {
    let bytes = digest.as_ref().iter();
    bytes.map(|byte| format!("{byte:02x}")).collect()
}

/// Sweep for tests.
#[cfg(test)]
pub(super) mod fixture {
    use super::*;

    /// Sweep of a scenario under two policies.
    pub(in crate::commands::sweep) fn sweep(seeds: Seeds) -> Sweep {
        let series = |policy: &str| SeriesKey {
            scenario: "größe.toml".to_owned(),
            policy: policy.to_owned(),
            scheduler: None,
            digest: "00ff".to_owned(),
            content: sha256([policy]),
        };
        Sweep {
            build: Build {
                version: "1.0.0".to_owned(),
                hash: "ab".to_owned(),
            },
            command: vec!["sweep".to_owned(), "größe.toml".to_owned()],
            seeds,
            series: vec![series("fifo"), series("mclock")],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shard(text: &str) -> Shard {
        text.parse().expect("a shard")
    }

    fn sweep() -> Sweep {
        fixture::sweep(Seeds(vec![1, 2, 5]))
    }

    fn lines(sweep: &Sweep, shard: Shard) -> Vec<Line> {
        let line = |position| Line {
            key: sweep.shard_key(position),
            report: serde_json::json!({ "vms": [0.1, position] }),
        };
        shard.positions(sweep.len()).map(line).collect()
    }

    #[test]
    fn names_of_files_say_which_shards_they_are() {
        assert_eq!(name(shard("3/10")), "shard-03-of-10.jsonl");
        for text in ["1/1", "3/10", "10/10", "7/1000"] {
            let shard = shard(text);
            assert_eq!(by_name(&name(shard)), Some((shard, true)));
            assert_eq!(by_name(&part_name(shard)), Some((shard, false)));
        }
        for other in ["shard-4-of-3.jsonl", "shard-1-of-3.json", "sweep.jsonl"] {
            assert_eq!(by_name(other), None, "{other}");
        }
    }

    #[test]
    fn a_shard_is_read_as_it_was_written_and_nothing_else_is() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("s.jsonl");
        let (sweep, shard) = (sweep(), shard("2/4"));
        write(&path, sweep.clone(), shard, &lines(&sweep, shard)).expect("written");
        let found = ShardFile::read(&path).expect("a shard");
        assert_eq!((found.shard, &*found.sweep), (shard, &sweep));
        let places: Vec<_> = found
            .reports
            .iter()
            .map(|it| it["vms"][1].clone())
            .collect();
        assert_eq!(places, [1, 5]);

        let bytes = fs::read(&path).expect("there");
        for cut in 0..bytes.len() {
            fs::write(&path, &bytes[..cut]).expect("writable");
            assert!(ShardFile::read(&path).is_err(), "cut at {cut}");
        }
        for (n, byte) in bytes.iter().enumerate() {
            let mut changed = bytes.clone();
            changed[n] = if *byte == b'1' { b'2' } else { b'1' };
            fs::write(&path, &changed).expect("writable");
            let text = String::from_utf8_lossy(&changed);
            assert!(ShardFile::read(&path).is_err(), "byte {n}: {text}");
        }
    }

    #[test]
    fn a_shard_with_lines_of_another_one_is_refused() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("s.jsonl");
        let sweep = sweep();
        let refused = |lines: &[Line]| {
            write(&path, sweep.clone(), shard("1/3"), lines).expect("written");
            let error = ShardFile::read(&path).expect_err("refused").to_string();
            assert!(error.contains("truncated or changed"), "{error}");
        };
        let own = lines(&sweep, shard("1/3"));
        refused(&own[..1]);
        refused(&lines(&sweep, shard("2/3")));
        refused(&[own.as_slice(), &own[..1]].concat());
        let mut other_build = sweep.clone();
        other_build.build.hash = "cd".to_owned();
        refused(&lines(&other_build, shard("1/3")));
        write(&path, sweep.clone(), shard("1/3"), &own).expect("written");
        assert!(ShardFile::read(&path).is_ok());
    }

    #[test]
    fn the_key_of_a_result_covers_everything_that_determines_it() {
        let digest = |sweep: &Sweep, position| sweep.shard_key(position).digest;
        let mut digests: Vec<String> = (0..6).map(|n| digest(&sweep(), n)).collect();
        for change in [
            |it: &mut Sweep| it.build.hash.push('0'),
            |it: &mut Sweep| it.build.version.push('0'),
            |it: &mut Sweep| it.series[0].content.push('0'),
            |it: &mut Sweep| it.series[0].policy.push('0'),
            |it: &mut Sweep| it.series[0].scheduler = Some("credit2".to_owned()),
            |it: &mut Sweep| it.seeds.0[0] = 0,
        ] {
            let mut other = sweep();
            change(&mut other);
            digests.push(digest(&other, 0));
        }
        digests.sort_unstable();
        digests.dedup();
        assert_eq!(digests.len(), 12);
    }
}
