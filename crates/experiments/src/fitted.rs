//! Fitted figures of the papers' models, and the cells that they were fitted on.
//!
//! `calibration.toml` has the fitted figures and a residual for each cell; a paper's module groups
//! them. `experiments/fitted.txt` lists both for all papers, and a test fails when it changes.

use crate::pattern::fits;
use crate::{ExperimentError, Progress, Reference, Wanted};
use std::fmt::Write as _;

/// Function that fits the free parameters of a paper's models.
pub type Calibrate = fn(&Wanted, Progress<'_>) -> Result<String, ExperimentError>;

/// Calibration of a paper's models.
#[derive(Clone, Copy, Debug)]
pub struct Calibration {
    /// Fits the free parameters again, and returns the text of `calibration.toml`.
    pub fit: Calibrate,
    /// Text of `calibration.toml` as it is in force.
    pub(crate) text: &'static str,
    /// Text of `paper.toml`.
    pub(crate) reference: &'static str,
    /// Figures that are fitted together, in the order of `calibration.toml`.
    pub(crate) groups: fn() -> Vec<Group>,
}

/// Figures that are fitted together on a set of cells, by patterns with `*` at an end.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    /// Paths of the figures in `calibration.toml`.
    figures: Vec<String>,
    /// Names of the cells' residuals.
    cells: Vec<String>,
    /// Paths in `paper.toml` of figures outside of tables that may be calibrated on.
    stated: &'static [&'static str],
}

impl Group {
    pub(crate) fn new(figures: &[&str], cells: &[&str]) -> Group {
        let owned = |all: &[&str]| all.iter().map(|word| (*word).to_owned()).collect();
        Group {
            figures: owned(figures),
            cells: owned(cells),
            stated: &[],
        }
    }

    /// Adds figures outside of tables that may be calibrated on.
    pub(crate) fn stated(self, stated: &'static [&'static str]) -> Group {
        Group { stated, ..self }
    }
}

/// Fitted figures, and the cells that they were fitted on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fitted {
    /// Path of each figure in `calibration.toml`, and its value.
    pub figures: Vec<(String, String)>,
    /// Names of the cells.
    pub cells: Vec<String>,
}

const FILE: &str = "calibration.toml";
/// Key of the quality of a fit, which is no fitted figure.
const QUALITY: &str = "rms_log_ratio";

impl Calibration {
    fn root(&self) -> Result<toml::Table, ExperimentError> {
        let root = self.text.parse();
        root.map_err(|error: toml::de::Error| ExperimentError::data(FILE, error))
    }

    /// Returns all fitted figures, each with its group's cells.
    ///
    /// # Errors
    /// Fails when `calibration.toml` is malformed, when a figure is not in exactly one group or a
    /// cell in none, and when a cell is not one that the paper's file lets models be calibrated on.
    pub fn fitted(&self) -> Result<Vec<Fitted>, ExperimentError> {
        let (root, groups) = (self.root()?, (self.groups)());
        let mut figures = Vec::new();
        figures_of(&root, "", &mut figures);
        let residuals = residuals(&root);
        self.check(&groups, &figures, &residuals)?;
        let fitted = groups.iter().map(|group| Fitted {
            figures: (figures.iter())
                .filter(|(path, _)| any_fits(&group.figures, path))
                .cloned()
                .collect(),
            cells: (residuals.iter())
                .map(|(cell, _)| cell)
                .filter(|cell| any_fits(&group.cells, cell))
                .cloned()
                .collect(),
        });
        Ok(fitted.collect())
    }

    fn check(
        &self,
        groups: &[Group],
        figures: &[(String, String)],
        residuals: &[(String, f64)],
    ) -> Result<(), ExperimentError> {
        let wrong = |what: String| Err(ExperimentError::data(FILE, what));
        for (path, _) in figures {
            let with = groups.iter().filter(|group| any_fits(&group.figures, path));
            if with.count() != 1 {
                return wrong(format!(
                    "{path} is not in exactly one group of fitted figures"
                ));
            }
        }
        let reference = Reference::parse(self.reference)?;
        let mut stated = Vec::new();
        for path in groups.iter().flat_map(|group| group.stated) {
            stated.push(reference.figure(path)?);
        }
        for (cell, theirs) in residuals {
            if !groups.iter().any(|group| any_fits(&group.cells, cell)) {
                return wrong(format!("{cell}: no figure is fitted on it"));
            }
            // Figures of the text have no table.
            let cells = reference.cells(table(cell)).unwrap_or_default();
            let allowed = cells.iter().filter(|of| of.calibrated).map(|of| of.theirs);
            if !allowed
                .chain(stated.iter().copied())
                .any(|figure| figure == *theirs)
            {
                let what = "models may not be calibrated on it by paper.toml";
                return wrong(format!("{cell}: {what}"));
            }
        }
        Ok(())
    }
}

fn any_fits(patterns: &[String], name: &str) -> bool {
    patterns.iter().any(|pattern| fits(pattern, name))
}

/// Table of `paper.toml` that a residual's cell is in, by the cell's name.
fn table(cell: &str) -> &str {
    let name = cell.split_once(',').map_or(cell, |(name, _)| name);
    name.strip_prefix("table ").unwrap_or(name)
}

/// Collects the paths and values of all fitted figures below a table.
fn figures_of(table: &toml::Table, path: &str, figures: &mut Vec<(String, String)>) {
    for (key, value) in table {
        let path = if path.is_empty() {
            key.clone()
        } else {
            format!("{path}.{key}")
        };
        match value {
            toml::Value::Table(table) => figures_of(table, &path, figures),
            // Residuals are not figures.
            toml::Value::Array(_) => (),
            _ if key == QUALITY => (),
            toml::Value::String(text) => figures.push((path, text.clone())),
            value => figures.push((path, value.to_string())),
        }
    }
}

/// Names of the residuals' cells, with the paper's figures.
fn residuals(root: &toml::Table) -> Vec<(String, f64)> {
    let all = root.get("residual").and_then(toml::Value::as_array);
    let residual = |of: &toml::Value| {
        let theirs = of.get("theirs")?;
        let whole = theirs.as_integer().map(|n| n as f64);
        let cell = of.get("cell")?.as_str()?.to_owned();
        Some((cell, theirs.as_float().or(whole)?))
    };
    let all = all.into_iter().flatten();
    all.filter_map(residual).collect()
}

/// Lists fitted figures and the cells that they were fitted on as text, with values if `values`.
pub fn list(fitted: &[Fitted], values: bool) -> String {
    let mut text = String::new();
    for group in fitted {
        for (path, value) in &group.figures {
            // Writing to a `String` cannot fail.
            let _ = match values {
                true => writeln!(text, "  {path} = {value}"),
                false => writeln!(text, "  {path}"),
            };
        }
        for cell in &group.cells {
            let _ = writeln!(text, "    fitted on {cell}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::papers;
    use std::path::Path;

    /// Text of `experiments/fitted.txt`: all papers, with names alone.
    fn list_all() -> Result<String, ExperimentError> {
        let mut text = String::from(
            "# Fitted figures of each paper's models, and the cells of the paper that they were \
             fitted on.\n# Generated: TIDEGATE_BLESS=1 cargo test -p tidegate-experiments fitted\n",
        );
        for paper in papers() {
            let _ = writeln!(text, "\n{}", paper.name);
            match paper.calibration {
                Some(calibration) => text += &list(&calibration.fitted()?, false),
                None => text += "  nothing\n",
            }
        }
        Ok(text)
    }

    #[test]
    fn nothing_is_fitted_to_predicted_cells() {
        for calibration in papers().iter().filter_map(|paper| paper.calibration) {
            let fitted = calibration.fitted().expect("calibrated cells");
            assert!(!fitted.is_empty());
            for Fitted { figures, cells } in fitted {
                assert!(
                    !figures.is_empty() && !cells.is_empty(),
                    "{figures:?} {cells:?}"
                );
            }
        }
    }

    /// Calibration with a figure or cell more than its groups have.
    fn altered(text: &'static str) -> Calibration {
        Calibration {
            fit: |_, _| Ok(String::new()),
            text,
            reference: "alone = 7\n[table3]\ncolumns = [\"vm\", \"cfq\", \"edf\"]\n\
                        calibrate = [\"cfq\"]\nrows = [[\"a\", 20, 10]]",
            groups: || vec![Group::new(&["free.*"], &["table 3*"]).stated(&["alone"])],
        }
    }

    #[test]
    fn a_figure_or_cell_more_is_noticed() {
        const GOOD: &str = "[free]\nus = 5\n[fit]\nrms_log_ratio = 0.1\n\
                            [[residual]]\ncell = \"table 3, a, cfq\"\ntheirs = 20\nours = 19\n\
                            [[residual]]\ncell = \"table 3, alone\"\ntheirs = 7\nours = 6\n";
        let fitted = altered(GOOD).fitted().expect("TOML");
        let text = "  free.us = 5\n    fitted on table 3, a, cfq\n    fitted on table 3, alone\n";
        assert_eq!(list(&fitted, true), text);
        const PREDICTED: &str = "[free]\nus = 5\n\
                                 [[residual]]\ncell = \"table 3, a, edf\"\ntheirs = 10\n";
        const UNGROUPED: &str = "[other]\nus = 5\n\
                                 [[residual]]\ncell = \"table 3, a, cfq\"\ntheirs = 20\n";
        const ELSEWHERE: &str = "[free]\nus = 5\n\
                                 [[residual]]\ncell = \"table 4, a, cfq\"\ntheirs = 20\n";
        for (text, wrong) in [
            (
                PREDICTED,
                "table 3, a, edf: models may not be calibrated on it",
            ),
            (UNGROUPED, "other.us is not in exactly one group"),
            (ELSEWHERE, "table 4, a, cfq: no figure is fitted on it"),
        ] {
            let error = altered(text).fitted().expect_err(wrong).to_string();
            assert!(error.contains(wrong), "{error}");
        }
    }

    #[test]
    fn fitted_figures_and_their_cells_are_those_of_the_list() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments/fitted.txt");
        let list = list_all().expect("TOML");
        if std::env::var_os("TIDEGATE_BLESS").is_some() {
            std::fs::write(&path, &list).expect("it can be written");
        }
        let written = std::fs::read_to_string(&path).expect("it is there");
        assert_eq!(
            written, list,
            "TIDEGATE_BLESS=1 writes the list again, if this is meant"
        );
    }
}
