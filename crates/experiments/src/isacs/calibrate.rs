//! Calibration of the free parameters, each by one Credit2 cell of its experiment.
//!
//! Each parameter is found by bisection, because its cell is monotonic in it. Parameters are fitted
//! in order and kept for the later ones: table 6, for example, determines what all streams cost
//! their guests.

use super::free_parameters::Calibration;
use super::points::{POINTS, Point};
use super::policy::Policy;
use super::run;
use super::setup;
use super::tables::figure;
use crate::{ExperimentError, Progress, Reference, Wanted, pool};
use std::fmt::Write;

/// Fits all parameters; returns the text of `calibration.toml`.
pub(super) fn calibrate(
    wanted: &Wanted,
    progress: Progress<'_>,
) -> Result<String, ExperimentError> {
    let reference = Reference::parse(setup::PAPER_TOML)?;
    let mut free = Calibration::read()?;
    let mut residuals = String::new();
    for (n, point) in POINTS.iter().enumerate() {
        let theirs = theirs(&reference, point)?;
        let (mut low, mut high) = point.bounds;
        while low < high {
            let middle = low + (high - low) / 2;
            free.set(point.parameter, middle);
            // Bisection: the cell is monotonic in the parameter.
            let is_low = (ours(point, &free, wanted.threads) < theirs) == point.rises;
            if is_low {
                low = middle + 1
            } else {
                high = middle
            }
        }
        free.set(point.parameter, low);
        let ours = ours(point, &free, wanted.threads);
        // Writing to a `String` cannot fail.
        let _ = write!(
            residuals,
            "\n[[residual]]\ncell = \"table {}, {}, {}\"\ntheirs = {theirs}\nours = {ours:.2}\n",
            point.table, point.row, point.column
        );
        // Steps are parameters: the number of runs of a bisection is not known before.
        progress(n + 1, POINTS.len());
    }
    let mut text = String::from(
        "# Written by `tidegate reproduce isacs --calibrate`: each figure by the one Credit2 cell \
         below,\n\
         # in this order.\n\n[free]\n",
    );
    for point in &POINTS {
        let _ = writeln!(
            text,
            "{} = {}",
            point.parameter.key(),
            free.get(point.parameter)
        );
    }
    Ok(text + &residuals)
}

fn theirs(reference: &Reference, point: &Point) -> Result<f64, ExperimentError> {
    let table = reference.table(point.table, 1)?;
    let cells = table.cells("isacs", |_, _| Some(0.0));
    let cell = (cells.iter()).find(|c| c.row == point.row && c.column == point.column);
    cell.map(|cell| cell.theirs)
        .ok_or_else(|| ExperimentError::Data {
            file: "paper.toml".into(),
            what: format!(
                "table {} has no {}, {}",
                point.table, point.row, point.column
            ),
        })
}

/// Value of the cell in the simulation with these parameters.
fn ours(point: &Point, free: &Calibration, jobs: usize) -> f64 {
    let Some(figure) = figure(point.table, point.row, point.column) else {
        // NaN is not below any figure, so that the search ends at a bound; a test has the cells.
        return f64::NAN;
    };
    let rounds: Vec<u64> = (1..=run::ROUNDS).collect();
    let found = pool::map_parallel(&rounds, jobs, &mut |_, _| {}, |&round| {
        run::round(figure.case, Policy::CREDIT2, free, round)
    });
    figure
        .value(&run::combine_rounds(&found))
        .unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::super::free_parameters::FreeParameter;
    use super::*;

    #[test]
    fn every_figure_is_found_by_one_credit2_cell_that_may_be_used() {
        let reference = Reference::parse(setup::PAPER_TOML).expect("TOML");
        for parameter in FreeParameter::ALL {
            assert_eq!(
                POINTS
                    .iter()
                    .filter(|point| point.parameter == parameter)
                    .count(),
                1
            );
        }
        for point in &POINTS {
            assert!(theirs(&reference, point).expect("there") > 0.0);
            let found = figure(point.table, point.row, point.column).expect("a run");
            assert!(!found.is_isacs);
            let table = reference.table(point.table, 1).expect("there");
            let cells = table.cells("isacs", |_, _| Some(0.0));
            let cell = cells
                .iter()
                .find(|c| c.row == point.row && c.column == point.column);
            assert!(cell.is_some_and(|cell| cell.calibrated), "{}", point.row);
        }
    }
}
