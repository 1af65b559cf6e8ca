//! Calibration of the array: the delay between the hosts' scheduler and the disks, fitted to the
//! throughput of several sequential readers under FQ (figure 11). No run of V-Cup is used.

use super::capacity::{READERS, key};
use super::setup::scenario;
use super::{PAPER, PAPER_TOML, Run};
use crate::fit::{self, Residual, distance};
use crate::{ExperimentError, Progress, Reference, Wanted, pool};
use tidegate_core::time::Nanos;
use tidegate_sim::scenario::{Path, Scenario};
use tidegate_workload::time::TimeDistribution;

/// Delays per direction to try, in microseconds.
const TRIED_US: &[u64] = &[50, 100, 200, 300, 400, 500, 600, 800, 1000, 1500];
/// Warm-up of a calibration run, shorter than that of reported runs.
const WARM_UP: Nanos = Nanos::from_secs(10);
/// Duration of a calibration run, warm-up included.
const DURATION: Nanos = Nanos::from_secs(40);

/// Sets the delay per direction in front of every device of a scenario, in microseconds.
pub(super) fn put_path(scenario: &mut Scenario, us: u64) {
    let each = Some(TimeDistribution::Fixed(Nanos::from_micros(us)));
    for device in &mut scenario.devices {
        device.path = Path {
            submit: each,
            complete: each,
        };
    }
}

/// Total throughput of these readers under FQ with a delay of `us` microseconds per direction, in
/// MB/s.
fn total(readers: (usize, u64), us: u64) -> Result<f64, ExperimentError> {
    let mut scenario = scenario(&key("fq", readers))?;
    put_path(&mut scenario, us);
    (scenario.frame.warm_up, scenario.frame.duration) = (WARM_UP, DURATION);
    Ok(Run::simulate(scenario).total_mb_s())
}

/// Totals under FQ in the paper, in MB/s.
fn theirs(reference: &Reference) -> Result<Vec<f64>, ExperimentError> {
    let table = reference.table("figure 11", 1)?;
    let cells = table.cells(PAPER.name, |_, column| {
        // The value does not matter: only the paper's figure is used.
        (column == "total_fq_mb_s").then_some(0.0)
    });
    let free = cells.into_iter().filter(|cell| cell.calibrated);
    Ok(free.map(|cell| cell.theirs).collect())
}

/// Residuals of the totals.
fn residuals(theirs: &[f64], ours: &[f64]) -> Vec<Residual> {
    let both = theirs.iter().zip(ours);
    let of = |((readers, _), (theirs, ours)): (&(usize, u64), (&f64, &f64))| Residual {
        cell: format!("figure 11, {readers} readers, total under FQ, MB/s"),
        theirs: *theirs,
        ours: *ours,
    };
    READERS.iter().zip(both).map(of).collect()
}

/// Tries all delays; returns the text of `calibration.toml` with the best fit.
pub(super) fn calibrate(
    wanted: &Wanted,
    progress: Progress<'_>,
) -> Result<String, ExperimentError> {
    let theirs = theirs(&Reference::parse(PAPER_TOML)?)?;
    let tried = TRIED_US
        .iter()
        .flat_map(|us| READERS.map(|readers| (*us, readers)));
    let tried: Vec<_> = tried.collect();
    let found = pool::map_parallel(&tried, wanted.threads, progress, |(us, readers)| {
        total(*readers, *us)
    });
    let found = found.into_iter().collect::<Result<Vec<f64>, _>>()?;
    // Results are in the order of `tried`: all readers of a delay are adjacent.
    let rows = TRIED_US.iter().zip(found.chunks_exact(READERS.len()));
    let rows = rows.map(|(us, ours)| {
        let residuals = residuals(&theirs, ours);
        (distance(&residuals), *us, residuals)
    });
    let best = rows.min_by(|a, b| a.0.total_cmp(&b.0));
    let (off, us, residuals) = best.expect("something is tried");
    let mut text = format!(
        "# Written by `tidegate reproduce vcup --calibrate`: the best of {} by the root of the \
         mean square of\n\
         # ln(ours / theirs) over what 4 to 7 sequential readers have together under FQ.\n\n\
         [array]\npath.each_way = \"{us} us\"\nrms_log_ratio = {off:.4}\n",
        TRIED_US.len()
    );
    fit::append_residuals(&mut text, &residuals, 1);
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vcup::setup::{self, Case, Key};

    #[test]
    fn the_scenarios_have_the_path_that_the_calibration_found() {
        let text = crate::folder::embedded!("vcup", "calibration.toml");
        let root: toml::Table = text.parse().expect("TOML");
        let told = root["array"]["path"]["each_way"].as_str().expect("a time");
        let us = told.strip_suffix(" us").expect("microseconds");
        let us: u64 = us.parse().expect("a whole number");
        assert!(TRIED_US.contains(&us));
        for case in Case::ALL {
            let written = setup::scenario(&Key::new(case, "fq")).expect("a scenario");
            let mut found = written.clone();
            put_path(&mut found, us);
            assert_eq!(written.devices[0].path, found.devices[0].path, "{case:?}");
        }
    }
}
