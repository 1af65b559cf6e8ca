//! Seeds that have passed, and the file that remembers them.
//!
//! ```text
//!   tidegate 0.1.0, build 0123456789abcdef, policies sfq,mclock
//!   0 999
//!   1200 1207
//! ```
//!
//! The first line says whose they are: a seed that passed with another program, or with other
//! policies, was another run.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use anyhow::{Context, Result};
use tidegate_core::policy::Policy;
use tidegate_policies::policy::PolicySpec;

use crate::kept;
use crate::problem::Problem;

/// More than any file of seeds has: 64 MiB are some millions of ranges.
const MOST: u64 = 64 << 20;

/// Whose seeds they are, as the first line of the file has it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Owner(String);

impl Owner {
    /// This very program with these policies, in this order: seeds draw among them by number.
    ///
    /// # Errors
    /// When the program cannot be read.
    pub(crate) fn this(policies: &[PolicySpec]) -> Result<Owner> {
        let build = build().context("cannot read this program, which the seeds belong to")?;
        Ok(Owner::of(build, policies))
    }

    fn of(build: u64, policies: &[PolicySpec]) -> Owner {
        let names: Vec<&str> = policies.iter().map(PolicySpec::name).collect();
        let names = match names.is_empty() {
            true => "any".to_owned(),
            false => names.join(","),
        };
        let version = env!("CARGO_PKG_VERSION");
        Owner(format!(
            "tidegate {version}, build {build:016x}, policies {names}"
        ))
    }
}

/// A digest of the program that runs: its version stays while its engine is worked on, and it is
/// then that torture runs most.
pub(crate) fn build() -> std::io::Result<u64> {
    // Also where the file has been replaced by a newer one since.
    let mut program = File::open("/proc/self/exe")?;
    let mut bytes = Vec::new();
    program.read_to_end(&mut bytes)?;
    // FNV-1a by words of eight bytes.
    let (words, rest) = bytes.as_chunks::<8>();
    let rest = rest.iter().map(|&byte| u64::from(byte));
    let words = words.iter().map(|&word| u64::from_le_bytes(word));
    Ok(words.chain(rest).fold(0xcbf2_9ce4_8422_2325, |sum, word| {
        let sum: u64 = (sum ^ word).wrapping_mul(0x0100_0000_01b3);
        sum ^ (sum >> 32)
    }))
}

/// Ranges of seeds, by their first: `first` to `last`, both in it. None overlap or touch.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Seeds(BTreeMap<u64, u64>);

impl Seeds {
    /// Reads a file of `owner`'s. One that is not there, or empty, has none.
    ///
    /// # Errors
    /// When the file is somebody else's, no regular one, too large, or broken.
    pub(crate) fn read(file: &Path, owner: &Owner) -> Result<Seeds> {
        let mut seeds = Seeds::default();
        let Some(text) = kept::read(file, MOST)? else {
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
                    let what = format!("{line:?} is no range of seeds such as \"0 999\"");
                    return Err(Problem::new(what).at(at).into());
                }
            }
        }
        Ok(seeds)
    }

    /// Writes them so that a crash leaves the old file or the new one.
    ///
    /// # Errors
    /// When that cannot be, or there is something else than a regular file.
    pub(crate) fn write(&self, file: &Path, owner: &Owner) -> Result<()> {
        let ranges = self.0.iter().map(|(a, b)| format!("{a} {b}\n"));
        let text: String = [format!("{}\n", owner.0)]
            .into_iter()
            .chain(ranges)
            .collect();
        kept::write(file, text.as_bytes())
    }

    /// Adds `first` to `last`, both of them, too.
    pub(crate) fn add(&mut self, mut first: u64, mut last: u64) {
        // Those that it overlaps or touches become one with it.
        while let Some((&a, &b)) = self.0.range(..=last.saturating_add(1)).next_back()
            && b.saturating_add(1) >= first
        {
            self.0.remove(&a);
            (first, last) = (first.min(a), last.max(b));
        }
        self.0.insert(first, last);
    }

    /// The first seed from here on that is not in it, if there is any.
    pub(crate) fn first_not_in(&self, seed: u64) -> Option<u64> {
        match self.0.range(..=seed).next_back() {
            Some((_, &last)) if last >= seed => last.checked_add(1),
            _ => Some(seed),
        }
    }

    /// How many of `first` to `last` are in it; of all 2^64, one less.
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

/// Whether the file's first line is its owner's.
fn check(file: &Path, first: &str, owner: &Owner) -> Result<()> {
    if first == owner.0 {
        return Ok(());
    }
    let what = match first.starts_with("tidegate ") {
        true => format!(
            "these seeds belong to other runs, {first:?}; asked for is {:?}",
            owner.0
        ),
        false => format!(
            "this file does not say whose seeds it has: its first line is not such as \"{}\"",
            owner.0
        ),
    };
    Err(Problem::new(what)
        .at(file.display().to_string())
        .help("give each build and each --policy a file of its own; to begin anew, remove this one")
        .into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(policies: &[&str]) -> Owner {
        let named = |name: &&str| PolicySpec::named(name).expect("in the registry");
        Owner::of(7, &policies.iter().map(named).collect::<Vec<_>>())
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
            Owner::of(8, &[PolicySpec::named("sfq").expect("in the registry")]),
        ] {
            let said = refused(&other);
            assert!(said.contains(&owner(&["sfq"]).0), "{said}");
            assert!(said.contains(&other.0) && said.contains("help:"), "{said}");
        }
        std::fs::write(&file, "0 9\n").expect("written");
        assert!(refused(&owner(&[])).contains("does not say whose"));
    }

    #[test]
    fn this_program_is_the_same_one_each_time() {
        let (one, two) = (Owner::this(&[]), Owner::this(&[]));
        assert_eq!(one.expect("read"), two.expect("read"));
    }
}
