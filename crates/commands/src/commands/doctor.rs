//! `tidegate doctor`: what is missing or slow on this host, and how to mend it.
//!
//! Probes of the kernel are the daemon's own (`server::host_support`); the rest is read from
//! `/proc` and `/sys` below a root, which tests replace. Nothing is changed.

mod disks;
mod finding;
mod kernel;
mod limits;
mod places;

use anyhow::Result;
use serde::Serialize;
use tidegate_report::printable;
use tidegate_server::config::{self, Config};

use self::finding::{Finding, Level};
use self::kernel::Probes;
use crate::args::DoctorArgs;
use crate::host::{BlockDevice, HostRoot};
use crate::output::Output;
use crate::problem::Problem;

/// Result as JSON.
#[derive(Serialize)]
struct Report<'a> {
    good: bool,
    findings: &'a [Finding],
}

/// Prints all findings.
///
/// # Errors
/// If the configuration cannot be read, or a check fails.
pub(super) fn run(args: &DoctorArgs, out: Output) -> Result<()> {
    let config = args.config.as_deref().map(config::load).transpose()?;
    let config = config.map(|loaded| loaded.config);
    let findings = findings(
        &HostRoot::new(&args.root),
        &Probes::of_kernel(),
        config.as_ref(),
    );
    let failed = findings
        .iter()
        .filter(|finding| finding.level == Level::Fail)
        .count();
    if out.is_json() {
        let good = failed == 0;
        out.json(&Report {
            good,
            findings: &findings,
        })?;
    } else {
        let text: String = findings.iter().map(Finding::to_string).collect();
        out.text(&printable(&text))?;
    }
    match failed {
        0 => Ok(()),
        1 => Err(Problem::new("1 check failed").into()),
        failed => Err(Problem::new(format!("{failed} checks failed")).into()),
    }
}

/// Runs all checks.
fn findings(host: &HostRoot, probes: &Probes, config: Option<&Config>) -> Vec<Finding> {
    let mut all = kernel::check(host, probes);
    all.extend(limits::check(host, config));
    let devices = BlockDevice::all(host);
    all.extend(disks::schedulers(host, &devices, config));
    if let Some(config) = config {
        all.extend(disks::files(config));
        all.extend(places::check(config));
        all.extend(kernel::clock(probes, config));
        all.extend(kernel::huge_pages(host, config));
    }
    all
}

#[cfg(test)]
mod tests;
