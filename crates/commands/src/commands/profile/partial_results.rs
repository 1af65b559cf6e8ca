//! Results of an interrupted measurement, in a file beside the future profile.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use tidegate_profile::{Outcome, Plan};
use tidegate_server::profile::Findings;
use tidegate_sim::seed::fnv1a;

use crate::atomic_file;
use crate::problem::Problem;

/// Maximum size in bytes of the file; a thousand steps of a hundred runs need less.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// Device and plan of an interrupted measurement, with the outcomes of its first steps.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Part {
    /// Version of the program; another one may interpret the same plan differently.
    version: String,
    /// Identity of the device.
    pub(super) device: String,
    /// True if the measured file was created for the measurement.
    pub(super) scratch: bool,
    /// Modification time of that file once the measurement stopped writing to it.
    #[serde(default)]
    pub(super) at_rest: Option<String>,
    /// Hash of the plan.
    plan: String,
    pub(super) outcomes: Vec<Outcome>,
}

/// Returns the path of the file.
pub(super) fn path(results: &Path) -> PathBuf {
    let mut name = OsString::from(results);
    name.push(".part");
    PathBuf::from(name)
}

/// Reads the results of an interrupted measurement, if there are any.
///
/// # Errors
/// If the file is something else.
pub(super) fn read(results: &Path) -> Result<Option<Part>> {
    let path = path(results);
    let Some(text) = atomic_file::read(&path, FILE_BYTES_MAX)? else {
        return Ok(None);
    };
    match serde_json::from_str(&text) {
        Ok(part) => Ok(Some(part)),
        Err(error) => {
            let problem = Problem::new(format!(
                "not the results of an interrupted measurement: {error}"
            ));
            Err(problem.at(path.display().to_string()).help(HELP).into())
        }
    }
}

/// Removes the file once the measurement is complete.
pub(super) fn remove(results: &Path) -> Result<()> {
    let path = path(results);
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", path.display()))
        }
        _ => Ok(()),
    }
}

const HELP: &str = "--fresh starts again and replaces it; --results FILE keeps both";

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

    /// Takes over the outcomes of an earlier measurement of the same device and plan.
    ///
    /// # Errors
    /// If device, plan or version differ.
    pub(super) fn resume(&mut self, kept: Part, results: &Path) -> Result<()> {
        if kept.device != self.device {
            return Err(kept.differs("another device", results));
        }
        if (&kept.plan, &kept.version) != (&self.plan, &self.version) {
            let what = "another plan, with other options or another version of tidegate";
            return Err(kept.differs(what, results));
        }
        self.outcomes = kept.outcomes;
        Ok(())
    }

    /// Returns true if `found` is the file created for the measurement and no other program has
    /// written to it since.
    pub(super) fn is_of(&self, found: &Findings) -> bool {
        let rest = self.at_rest.is_none() || self.at_rest == found.modified;
        self.scratch && !found.mistakable && self.device == found.identity && rest
    }

    /// Returns the error for a measurement that cannot be resumed because of `what`.
    pub(super) fn differs(&self, what: &str, results: &Path) -> anyhow::Error {
        let problem = Problem::new(format!(
            "there are results of an interrupted measurement of {what} ({})",
            self.device
        ));
        let at = path(results).display().to_string();
        problem.at(at).help(HELP).into()
    }

    pub(super) fn write(&self, results: &Path) -> Result<()> {
        atomic_file::write(&path(results), &serde_json::to_vec(self)?)
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
            result: tidegate_profile::StepResult::Wrote { bytes: 7 },
        });
        part.write(&results).expect("written");
        let read = |results| read(results).expect("readable").expect("there");
        let mut again = Part::new("a".to_owned(), false, &plan(1));
        again.resume(read(&results), &results).expect("the same");
        assert_eq!(again, part);
        let message = |device: &str, seed| {
            let mut other = Part::new(device.to_owned(), false, &plan(seed));
            let error = other.resume(read(&results), &results).expect_err("another");
            error.to_string()
        };
        assert!(message("b", 1).contains("another device (a)"));
        assert!(message("a", 2).contains("another plan"));
        assert!(message("a", 2).contains("--fresh"));
    }

    #[test]
    fn what_is_no_part_is_refused() {
        let dir = tempfile::tempdir().expect("a directory");
        let results = dir.path().join("p");
        std::fs::write(path(&results), "{\"version\": 1}").expect("written");
        let message = read(&results).expect_err("no part").to_string();
        assert!(
            message.contains("not the results of an interrupted"),
            "{message}"
        );
    }
}
