//! Passed seeds of torture tests, and the file that records them.
//!
//! ```text
//!   tidegate 0.1.0, build 0123456789abcdef, policies sfq,mclock
//!   0 999
//!   1200 1207
//! ```
//!
//! The first line identifies the program and policies; a seed means another run with others.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use anyhow::{Context, Result};
use tidegate_core::policy::Policy;
use tidegate_policies::policy::PolicySpec;

use crate::atomic_file;
use crate::problem::Problem;

/// Maximum size of the file in bytes: 64 MiB, some millions of ranges.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// Bytes of the program read at once: a multiple of eight, so that each piece has whole words.
const PIECE_BYTES: u64 = 1 << 20;

/// Program and policies to which seeds belong, as in the first line of the file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Owner(String);

impl Owner {
    /// Returns the owner for this program and policies, in this order because seeds select policies
    /// by index.
    ///
    /// # Errors
    /// If the program's file cannot be read.
    pub(crate) fn this(policies: &[PolicySpec]) -> Result<Owner> {
        let build = build().context("cannot read this program, which the seeds belong to")?;
        Ok(Owner::new(build, policies))
    }

    fn new(build: u64, policies: &[PolicySpec]) -> Owner {
        let names: Vec<&str> = policies.iter().map(PolicySpec::name).collect();
        let names = if names.is_empty() {
            "any".to_owned()
        } else {
            names.join(",")
        };
        let version = env!("CARGO_PKG_VERSION");
        Owner(format!(
            "tidegate {version}, build {build:016x}, policies {names}"
        ))
    }
}

/// Returns a hash of the running program's file. The version alone is not enough, because it stays
/// the same during development, when torture tests run most.
pub(crate) fn build() -> std::io::Result<u64> {
    // /proc/self/exe also works if the file has been replaced since the start.
    let mut program = File::open("/proc/self/exe")?;
    let mut piece = Vec::with_capacity(PIECE_BYTES as usize);
    let mut sum = 0xcbf2_9ce4_8422_2325;
    loop {
        piece.clear();
        if program.by_ref().take(PIECE_BYTES).read_to_end(&mut piece)? == 0 {
            return Ok(sum);
        }
        // FNV-1a over words of eight bytes, which is fast enough for a binary of 100 MB. Only the
        // last piece may have a rest, because the others are whole words.
        let (words, rest) = piece.as_chunks::<8>();
        let rest = rest.iter().map(|&byte| u64::from(byte));
        let words = words.iter().map(|&word| u64::from_le_bytes(word));
        sum = words.chain(rest).fold(sum, |sum, word| {
            let sum: u64 = (sum ^ word).wrapping_mul(0x0100_0000_01b3);
            sum ^ (sum >> 32)
        });
    }
}

/// Set of seeds as ranges `first` to `last`, both included, which neither overlap nor touch.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Seeds(BTreeMap<u64, u64>);

impl Seeds {
    /// Reads a file of seeds that must belong to `owner`. A missing or empty file has none.
    ///
    /// # Errors
    /// If the file belongs to another owner, is not a regular file, too large, or damaged.
    pub(crate) fn read(file: &Path, owner: &Owner) -> Result<Seeds> {
        let mut seeds = Seeds::default();
        let Some(text) = atomic_file::read(file, FILE_BYTES_MAX)? else {
            return Ok(seeds);
        };
        let mut lines = text.lines().enumerate();
        if let Some((_, first)) = lines.next() {
            check(file, first, owner)?;
        }
        for (number, line) in lines {
            let mut words = line.split_whitespace().map(str::parse::<u64>);
            match (words.next(), words.next(), words.next()) {
                (Some(Ok(first)), Some(Ok(last)), None) if first <= last => {
                    seeds.add(first, last);
                }
                _ => {
                    let at = format!("{}, line {}", file.display(), number + 1);
                    let what = format!("{line:?} is not a range of seeds such as \"0 999\"");
                    return Err(Problem::new(what).at(at).into());
                }
            }
        }
        Ok(seeds)
    }

    /// Replaces the file atomically.
    ///
    /// # Errors
    /// If the path is not a regular file, or cannot be written.
    pub(crate) fn write(&self, file: &Path, owner: &Owner) -> Result<()> {
        let ranges = self.0.iter().map(|(a, b)| format!("{a} {b}\n"));
        let text: String = [format!("{}\n", owner.0)]
            .into_iter()
            .chain(ranges)
            .collect();
        atomic_file::write(file, text.as_bytes())
    }

    /// Adds the seeds from `first` to `last`, both included.
    pub(crate) fn add(&mut self, mut first: u64, mut last: u64) {
        // Ranges that overlap or touch the new one are joined with it; the range that begins right
        // behind `last` touches.
        while let Some((&a, &b)) = self.0.range(..=last.saturating_add(1)).next_back()
            && b.saturating_add(1) >= first
        {
            self.0.remove(&a);
            (first, last) = (first.min(a), last.max(b));
        }
        self.0.insert(first, last);
    }

    /// Returns the first seed at or after `seed` that is not in the set, if any.
    pub(crate) fn first_not_in(&self, seed: u64) -> Option<u64> {
        match self.0.range(..=seed).next_back() {
            Some((_, &last)) if last >= seed => last.checked_add(1),
            _ => Some(seed),
        }
    }

    /// Returns the number of seeds from `first` to `last` in the set, at most `u64::MAX`.
    pub(crate) fn within(&self, first: u64, last: u64) -> u64 {
        let overlap = |(&a, &b): (&u64, &u64)| {
            let (from, to) = (a.max(first), b.min(last));
            if from > to {
                0
            } else {
                (to - from).saturating_add(1)
            }
        };
        self.0.iter().map(overlap).sum()
    }
}

/// Checks that the file's first line names `owner`.
fn check(file: &Path, first: &str, owner: &Owner) -> Result<()> {
    if first == owner.0 {
        return Ok(());
    }
    let what = if first.starts_with("tidegate ") {
        format!(
            "these seeds belong to another run, {first:?}; this run is {:?}",
            owner.0
        )
    } else {
        format!(
            "not a file of seeds: the first line is not such as \"{}\"",
            owner.0
        )
    };
    Err(Problem::new(what)
        .at(file.display().to_string())
        .help("use a file for each build and choice of --policy; to start again, remove this file")
        .into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(policies: &[&str]) -> Owner {
        let named = |name: &&str| PolicySpec::named(name).expect("in the registry");
        Owner::new(7, &policies.iter().map(named).collect::<Vec<_>>())
    }

    #[test]
    fn seeds_that_passed_are_kept_as_ranges_and_left_out() {
        let mut seeds = Seeds::default();
        for seed in [5, 3, 4, 9, 0] {
            seeds.add(seed, seed);
        }
        assert_eq!(seeds.0, BTreeMap::from([(0, 0), (3, 5), (9, 9)]));
        assert_eq!(seeds.first_not_in(0), Some(1));
        assert_eq!(seeds.first_not_in(3), Some(6));
        assert_eq!(seeds.within(4, 99), 3);
        seeds.add(4, 4);
        assert_eq!(seeds.within(0, 99), 5);
        seeds.add(1, 8);
        assert_eq!(seeds.0, BTreeMap::from([(0, 9)]));
    }

    #[test]
    fn the_last_seed_there_is_counts_like_any() {
        let mut seeds = Seeds::default();
        seeds.add(u64::MAX, u64::MAX);
        assert_eq!(seeds.first_not_in(u64::MAX), None);
        assert_eq!(seeds.first_not_in(u64::MAX - 1), Some(u64::MAX - 1));
        assert_eq!(seeds.within(u64::MAX - 1, u64::MAX), 1);
        seeds.add(u64::MAX - 1, u64::MAX - 1);
        assert_eq!(seeds.0, BTreeMap::from([(u64::MAX - 1, u64::MAX)]));
        seeds.add(0, u64::MAX - 2);
        assert_eq!(seeds.0, BTreeMap::from([(0, u64::MAX)]));
        assert_eq!(seeds.within(0, u64::MAX), u64::MAX);
    }

    #[test]
    fn a_file_of_seeds_survives_writing_and_reading() {
        let folder = tempfile::tempdir().expect("a directory");
        let file = folder.path().join("seeds");
        let any = owner(&[]);
        assert_eq!(
            Seeds::read(&file, &any).expect("none yet"),
            Seeds::default()
        );
        let mut seeds = Seeds::default();
        seeds.add(0, 99);
        seeds.add(200, 200);
        seeds.write(&file, &any).expect("written");
        assert_eq!(Seeds::read(&file, &any).expect("read"), seeds);
        let broken = format!("{}\n0 99\n7 to 9\n", any.0);
        std::fs::write(&file, broken).expect("written");
        let error = Seeds::read(&file, &any).expect_err("no range").to_string();
        assert!(error.contains("line 3"), "{error}");
    }

    #[test]
    fn ranges_that_overlap_in_a_file_count_once() {
        let folder = tempfile::tempdir().expect("a directory");
        let file = folder.path().join("seeds");
        let any = owner(&[]);
        std::fs::write(&file, format!("{}\n0 9\n0 3\n5 12\n", any.0)).expect("written");
        let seeds = Seeds::read(&file, &any).expect("read");
        assert_eq!(seeds.0, BTreeMap::from([(0, 12)]));
    }

    #[test]
    fn seeds_of_other_policies_another_build_or_nobody_are_refused() {
        let folder = tempfile::tempdir().expect("a directory");
        let file = folder.path().join("seeds");
        let mut seeds = Seeds::default();
        seeds.add(0, 9);
        seeds.write(&file, &owner(&["sfq"])).expect("written");
        let refused = |owner: &Owner| {
            let error = Seeds::read(&file, owner).expect_err("refused");
            format!("{error:#}")
        };
        for other in [
            owner(&[]),
            owner(&["mclock"]),
            owner(&["sfq", "mclock"]),
            Owner::new(8, &[PolicySpec::named("sfq").expect("in the registry")]),
        ] {
            let message = refused(&other);
            assert!(message.contains(&owner(&["sfq"]).0), "{message}");
            assert!(
                message.contains(&other.0) && message.contains("help:"),
                "{message}"
            );
        }
        std::fs::write(&file, "0 9\n").expect("written");
        assert!(refused(&owner(&[])).contains("not a file of seeds"));
    }

    #[test]
    fn this_program_is_the_same_one_each_time() {
        let (one, two) = (Owner::this(&[]), Owner::this(&[]));
        assert_eq!(one.expect("read"), two.expect("read"));
    }
}
