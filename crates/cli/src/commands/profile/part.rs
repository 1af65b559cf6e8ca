//! What a measurement that is not finished yet has learnt, kept beside where its profile will be.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use tidegate_profile::{Outcome, Plan};
use tidegate_server::profile::Findings;
use tidegate_sim::seed::fnv1a;

use crate::kept;
use crate::problem::Problem;

/// More is none of ours: a thousand steps of a hundred runs are less.
const LARGEST: u64 = 16 << 20;

/// Of which device and plan, and what came of its first steps.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Part {
    /// The build that measured it: another may mean something else by the same plan.
    version: String,
    /// What tells the device from others.
    pub(super) device: String,
    /// The file that was made to be measured, if one was.
    pub(super) scratch: bool,
    /// When that was written to last, once nothing of this measurement writes to it any more.
    #[serde(default)]
    pub(super) at_rest: Option<String>,
    /// A hash of the plan.
    plan: String,
    pub(super) outcomes: Vec<Outcome>,
}

/// Where it is kept.
pub(super) fn path(results: &Path) -> PathBuf {
    let mut name = OsString::from(results);
    name.push(".part");
    PathBuf::from(name)
}

/// What was kept, if anything was.
///
/// # Errors
/// When there is something else.
pub(super) fn read(results: &Path) -> Result<Option<Part>> {
    let path = path(results);
    let Some(text) = kept::read(&path, LARGEST)? else {
        return Ok(None);
    };
    match serde_json::from_str(&text) {
        Ok(part) => Ok(Some(part)),
        Err(error) => {
            let problem = Problem::new(format!("this is no measurement that was stopped: {error}"));
            Err(problem.at(path.display().to_string()).help(HELP).into())
        }
    }
}

/// Removes it: all is measured.
pub(super) fn forget(results: &Path) -> Result<()> {
    let path = path(results);
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", path.display()))
        }
        _ => Ok(()),
    }
}

const HELP: &str = "--fresh measures anew in its place; --results FILE keeps both";

impl Part {
    pub(super) fn new(device: String, scratch: bool, plan: &Plan) -> Part {
        Part {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            device,
            scratch,
            at_rest: None,
            plan: format!("{:016x}", fnv1a(format!("{plan:?}").as_bytes())),
            outcomes: Vec::new(),
        }
    }

    /// Takes over what another has learnt of the same.
    ///
    /// # Errors
    /// When it is not the same: says what differs.
    pub(super) fn go_on(&mut self, kept: Part, results: &Path) -> Result<()> {
        if kept.device != self.device {
            return Err(kept.differs("another device", results));
        }
        if (&kept.plan, &kept.version) != (&self.plan, &self.version) {
            let what = "another plan, by other options or another version of tidegate";
            return Err(kept.differs(what, results));
        }
        self.outcomes = kept.outcomes;
        Ok(())
    }

    /// Whether this is the file that was made to be measured, and nobody else has written to it
    /// since.
    pub(super) fn is_of(&self, found: &Findings) -> bool {
        let rest = self.at_rest.is_none() || self.at_rest == found.modified;
        self.scratch && !found.mistakable && self.device == found.identity && rest
    }

    /// Why it cannot be gone on with.
    pub(super) fn differs(&self, what: &str, results: &Path) -> anyhow::Error {
        let problem = Problem::new(format!(
            "a measurement was stopped here, of {what} ({})",
            self.device
        ));
        let at = path(results).display().to_string();
        problem.at(at).help(HELP).into()
    }

    pub(super) fn write(&self, results: &Path) -> Result<()> {
        kept::write(&path(results), &serde_json::to_vec(self)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_profile::{Options, Target};

    fn plan(seed: u64) -> Plan {
        let target = Target {
            name: "disk".to_owned(),
            span: 1 << 30,
            block: 512,
            max_io: 1 << 20,
            depth_max: 32,
            writes: true,
            fill: true,
            condition: false,
        };
        let options = Options {
            quick: true,
            in_virtual_time: false,
            depth: None,
            seed,
        };
        Plan::new(target, options).expect("large enough")
    }

    #[test]
    fn only_the_same_is_gone_on_with() {
        let dir = tempfile::tempdir().expect("a directory");
        let results = dir.path().join("disk.profile.toml");
        assert_eq!(read(&results).expect("none"), None);
        let mut part = Part::new("a".to_owned(), false, &plan(1));
        part.outcomes.push(Outcome {
            step: 0,
            taken: tidegate_profile::Taken::Wrote { bytes: 7 },
        });
        part.write(&results).expect("written");
        let read = |results| read(results).expect("readable").expect("there");
        let mut again = Part::new("a".to_owned(), false, &plan(1));
        again.go_on(read(&results), &results).expect("the same");
        assert_eq!(again, part);
        let said = |device: &str, seed| {
            let mut other = Part::new(device.to_owned(), false, &plan(seed));
            let error = other.go_on(read(&results), &results).expect_err("another");
            error.to_string()
        };
        assert!(said("b", 1).contains("another device (a)"));
        assert!(said("a", 2).contains("another plan"));
        assert!(said("a", 2).contains("--fresh"));
    }

    #[test]
    fn what_is_no_part_is_refused() {
        let dir = tempfile::tempdir().expect("a directory");
        let results = dir.path().join("p");
        std::fs::write(path(&results), "{\"version\": 1}").expect("written");
        let said = read(&results).expect_err("no part").to_string();
        assert!(said.contains("no measurement that was stopped"), "{said}");
    }
}
