//! Calibration of the disk and the guests, by the CFQ runs alone.
//!
//! Parameters of the testbed that neither the paper nor a drive's manual states are searched on a
//! grid for the best fit to the cells that `paper.toml` allows for calibration. The scenarios and
//! the disk contain the result, so that they run by themselves; `calibration.toml` repeats it with
//! the residuals, and a test compares both.

use super::PAPER_TOML;
use super::setup::{self, Case, DISK, Key, Run};
use crate::fit::{self, Residual, distance};
use crate::{Cell, ExperimentError, Progress, Reference, Wanted, folder, pool};
use tidegate_core::time::Nanos;
use tidegate_sim::scenario::Scenario;
use tidegate_workload::spec::Mix;
use tidegate_workload::time::TimeDistribution;

/// Free parameters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct FreeParameters {
    /// CPU time of a request in the guest and the driver domain, serialised, in microseconds.
    pub(super) processor_us: u64,
    /// Time of a command in the drive's controller and in the driver domain on the way to it, in
    /// microseconds.
    pub(super) command_overhead_us: u64,
    /// Time for which a commit of a guest's journal waits for others, in microseconds: a tick of
    /// kernels of that time.
    pub(super) journal_pause_us: u64,
    /// Requests of a journal commit per file.
    pub(super) journal_requests: u32,
    /// Page cache hits, in percent of reads, in a guest that also writes.
    pub(super) rw_hit_percent: u8,
}

const PROCESSOR_US: &[u64] = &[300, 350, 400, 450, 500, 550];
const OVERHEADS_US: &[u64] = &[100, 150, 200, 250];
const PAUSES_US: &[u64] = &[0, 1000, 4000];
const JOURNAL_REQUESTS: &[u32] = &[2, 3, 4];
const RW_HITS: &[u8] = &[0, 36];

fn grid() -> Vec<FreeParameters> {
    let mut all = Vec::new();
    for &processor_us in PROCESSOR_US {
        for &command_overhead_us in OVERHEADS_US {
            for &journal_pause_us in PAUSES_US {
                for &journal_requests in JOURNAL_REQUESTS {
                    all.extend(RW_HITS.iter().map(|&rw_hit_percent| FreeParameters {
                        processor_us,
                        command_overhead_us,
                        journal_pause_us,
                        journal_requests,
                        rw_hit_percent,
                    }));
                }
            }
        }
    }
    all
}

impl FreeParameters {
    /// Applies the parameters to a scenario.
    fn apply(self, scenario: &mut Scenario) -> Result<(), ExperimentError> {
        let overhead = format!("{} us", self.command_overhead_us);
        let entry = folder::model_with(DISK, &[(&["hdd", "command_overhead"], overhead)])?;
        for device in &mut scenario.devices {
            device.model = entry.clone();
        }
        for vm in &mut scenario.vms {
            if let Some(processor) = &mut vm.delay.processor {
                *processor = TimeDistribution::Fixed(Nanos::from_micros(self.processor_us));
            }
            for workload in &mut vm.workloads {
                let both = matches!(workload.rw.mix, Mix::ReadWrite { .. });
                let Some(cache) = &mut workload.page_cache else {
                    continue;
                };
                if both {
                    cache.hit_percent = self.rw_hit_percent;
                }
                if let Some(journal) = &mut cache.journal {
                    journal.requests = self.journal_requests;
                    journal.pause = Nanos::from_micros(self.journal_pause_us);
                }
            }
        }
        Ok(())
    }
}

/// Searches the grid; returns the text of `calibration.toml` with the best fit.
pub(super) fn calibrate(
    wanted: &Wanted,
    progress: Progress<'_>,
) -> Result<String, ExperimentError> {
    let reference = Reference::parse(PAPER_TOML)?;
    let grid = grid();
    let mut scenarios = Vec::new();
    for free in &grid {
        // CFQ runs only: what the paper's own scheduler does is predicted, not fitted.
        for case in [Case::Read, Case::Write, Case::Mixed] {
            let mut scenario = setup::scenario(&Key::new(case, "cfq"))?;
            free.apply(&mut scenario)?;
            scenarios.push((case, scenario));
        }
    }
    let runs = pool::map_parallel(&scenarios, wanted.threads, progress, |(case, scenario)| {
        (*case, Run::simulate(scenario.clone()))
    });
    let mut best: Option<(f64, FreeParameters, Vec<Residual>)> = None;
    // The three cases of each point of the grid, in the order above.
    for (free, runs) in grid.iter().zip(runs.chunks(3)) {
        let residuals = times(&reference, runs)?;
        let off = distance(&residuals);
        // Strictly less: of equal points the first one stays, so that the result does not depend on
        // threads.
        if best.as_ref().is_none_or(|(least, ..)| off < *least) {
            best = Some((off, *free, residuals));
        }
    }
    let (off, free, residuals) = best.expect("a grid is not empty");
    Ok(text(off, &free, &residuals))
}

/// Execution times of the CFQ runs, where the reference allows calibration on them.
fn times(reference: &Reference, runs: &[(Case, Run)]) -> Result<Vec<Residual>, ExperimentError> {
    let of = |case: Case| runs.iter().find(|(of, _)| *of == case).map(|(_, run)| run);
    let mut cells = reference.table("3", 1)?.cells("flubber", |labels, column| {
        let (case, vm) = labels.first()?.split_once('/')?;
        (column == "cfq").then(|| of(Case::named(case)?)?.time(vm))?
    });
    cells.extend(reference.table("4", 1)?.cells("flubber", |labels, column| {
        let vm = column.strip_suffix("_s")?;
        (labels == ["cfq"]).then(|| of(Case::Mixed)?.time(vm))?
    }));
    let free = cells.into_iter().filter(|cell| cell.calibrated);
    let residual = |cell: Cell| Residual {
        cell: format!("table {}, {}, {}", cell.table, cell.row, cell.column),
        theirs: cell.theirs,
        ours: cell.ours,
    };
    Ok(free.map(residual).collect())
}

fn text(off: f64, free: &FreeParameters, residuals: &[Residual]) -> String {
    let tried = grid().len();
    let FreeParameters {
        processor_us,
        command_overhead_us,
        journal_pause_us,
        journal_requests,
        rw_hit_percent,
    } = free;
    let mut text = format!(
        "# Written by `tidegate reproduce flubber --calibrate`: the best of a grid of {tried} \
         by the\n\
         # root of the mean square of ln(ours / theirs), over the CFQ runs of tables 3 and 4.\n\n\
         [free]\n\
         processor_us = {processor_us}\n\
         command_overhead_us = {command_overhead_us}\n\
         journal_pause_us = {journal_pause_us}\n\
         journal_requests = {journal_requests}\n\
         rw_hit_percent = {rw_hit_percent}\n\n\
         [fit]\n\
         rms_log_ratio = {off:.4}\n"
    );
    fit::append_residuals(&mut text, residuals, 2);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_carry_what_the_calibration_found() {
        let text = folder::embedded!("flubber", "calibration.toml");
        let found: toml::Table = text.parse().unwrap();
        let figure = |key: &str| found["free"][key].as_integer().unwrap() as u64;
        let free = FreeParameters {
            processor_us: figure("processor_us"),
            command_overhead_us: figure("command_overhead_us"),
            journal_pause_us: figure("journal_pause_us"),
            journal_requests: figure("journal_requests") as u32,
            rw_hit_percent: figure("rw_hit_percent") as u8,
        };
        assert!(grid().contains(&free));
        for case in [
            Case::Read,
            Case::Write,
            Case::Mixed,
            Case::ReadBackup,
            Case::WriteBackup,
        ] {
            let written = setup::scenario(&Key::new(case, "cfq")).unwrap();
            let mut applied = written.clone();
            free.apply(&mut applied).unwrap();
            assert_eq!(format!("{written:?}"), format!("{applied:?}"), "{case:?}");
        }
    }
}
