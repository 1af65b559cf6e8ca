//! Calibration of the array: the size of its chunks, fitted to the throughput of several sequential
//! readers under FQ (figure 11). No run of V-Cup is used.

use super::capacity::{READERS, key};
use super::setup::{ARRAY, scenario};
use super::{PAPER, PAPER_TOML, Run};
use crate::fit::{self, Residual, distance};
use crate::{ExperimentError, Progress, Reference, Wanted, folder, pool};
use tidegate_core::time::Nanos;

/// Chunk sizes to try, in KiB: what arrays offer.
const TRIED_KIB: &[u64] = &[16, 32, 64, 128, 256, 512, 1024, 2048, 4096];
/// Warm-up of a calibration run, shorter than that of reported runs.
const WARM_UP: Nanos = Nanos::from_secs(10);
/// Duration of a calibration run, warm-up included.
const DURATION: Nanos = Nanos::from_secs(40);

/// Total throughput of these readers under FQ with chunks of `kib` KiB, in MB/s.
fn total(readers: (usize, u64), kib: u64) -> Result<f64, ExperimentError> {
    let mut scenario = scenario(&key("fq", readers))?;
    let chunk = (&["raid0", "chunk"][..], format!("{kib} KiB"));
    let array = folder::model_with(ARRAY, &[chunk])?;
    for device in &mut scenario.devices {
        device.model = array.clone();
    }
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

/// Tries all sizes; returns the text of `calibration.toml` with the best fit.
pub(super) fn calibrate(
    wanted: &Wanted,
    progress: Progress<'_>,
) -> Result<String, ExperimentError> {
    let theirs = theirs(&Reference::parse(PAPER_TOML)?)?;
    let tried = TRIED_KIB
        .iter()
        .flat_map(|kib| READERS.map(|readers| (*kib, readers)));
    let tried: Vec<_> = tried.collect();
    let found = pool::map_parallel(&tried, wanted.threads, progress, |(kib, readers)| {
        total(*readers, *kib)
    });
    let found = found.into_iter().collect::<Result<Vec<f64>, _>>()?;
    // Results are in the order of `tried`: all readers of a size are adjacent.
    let rows = TRIED_KIB.iter().zip(found.chunks_exact(READERS.len()));
    let rows = rows.map(|(kib, ours)| {
        let residuals = residuals(&theirs, ours);
        (distance(&residuals), *kib, residuals)
    });
    let best = rows.min_by(|a, b| a.0.total_cmp(&b.0));
    let (off, kib, residuals) = best.expect("something is tried");
    let mut text = format!(
        "# Written by `tidegate reproduce vcup --calibrate`: the best of {} by the root of the \
         mean square of\n\
         # ln(ours / theirs) over what 4 to 7 sequential readers have together under FQ.\n\n\
         [array]\nchunk = \"{kib} KiB\"\nrms_log_ratio = {off:.4}\n",
        TRIED_KIB.len()
    );
    fit::append_residuals(&mut text, &residuals, 1);
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vcup::setup::{self, Case, Key};

    #[test]
    fn the_array_has_the_chunk_that_the_calibration_found() {
        let parse = |text: &str| -> toml::Table { text.parse().expect("TOML") };
        let calibration = parse(folder::embedded!("vcup", "calibration.toml"));
        let array = parse(ARRAY.1);
        let found = calibration["array"]["chunk"].as_str().expect("a size");
        assert_eq!(array["raid0"]["chunk"].as_str(), Some(found));
        assert!(TRIED_KIB.contains(&found.trim_end_matches(" KiB").parse().expect("KiB")));
    }

    #[test]
    fn every_scenario_but_those_of_two_disks_has_the_calibrated_array() {
        let array = folder::model_with(ARRAY, &[]).expect("an array");
        for case in Case::ALL {
            let scenario = setup::scenario(&Key::new(case, "fq")).expect("a scenario");
            let two_disks = matches!(case, Case::Merging | Case::Single);
            let is_it = scenario.devices[0].model.spec() == array.spec();
            assert_eq!(is_it, !two_disks, "{case:?}");
        }
    }
}
