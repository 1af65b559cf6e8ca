//! Figures of a paper, from its `paper.toml`.
//!
//! ```toml
//! [table3]                  # [figure9] for what is told of a figure
//! columns = ["workload", "cfq", "flubber"]
//! calibrate = ["cfq"]     # columns or row labels: models may be calibrated on these, on no others
//! # "": the paper has none
//! rows = [["read/seq_read", 64.42, 54.16], ["read/rnd_read", 62.11, ""]]
//! ```

use crate::ExperimentError;
use crate::findings::Cell;

/// Figures of a paper.
#[derive(Clone, Debug)]
pub struct Reference {
    root: toml::Table,
}

/// Table of a paper.
#[derive(Clone, PartialEq, Debug)]
pub struct Table {
    /// Name in the paper, such as `3` or `figure 9`.
    name: String,
    /// Names of the columns with figures.
    columns: Vec<String>,
    /// Labels and figures of each row.
    rows: Vec<Row>,
    /// Columns and labels that models may be calibrated on.
    calibrate: Vec<String>,
}

/// Labels of a row, and its figures; `None` where the paper has none.
type Row = (Vec<String>, Vec<Option<f64>>);

fn wrong(what: impl Into<String>) -> ExperimentError {
    ExperimentError::data("paper.toml", what.into())
}

impl Reference {
    /// Reads `paper.toml`.
    ///
    /// # Errors
    /// Fails when the text is not TOML.
    pub fn parse(text: &str) -> Result<Reference, ExperimentError> {
        let root = text
            .parse()
            .map_err(|e: toml::de::Error| wrong(e.to_string()))?;
        Ok(Reference { root })
    }

    /// Returns the table `table{name}`, whose first `labels` columns label the rows. The table of a
    /// figure has the figure's name without the space: `figure9`.
    ///
    /// Fails when it is missing or malformed.
    pub fn table(&self, name: &str, labels: usize) -> Result<Table, ExperimentError> {
        // TOML keys have no blanks: table 3 is `table3`, figure 9 `figure9`.
        let key = if name.starts_with(|c: char| c.is_ascii_digit()) {
            format!("table{name}")
        } else {
            name.replace(' ', "")
        };
        let fail = |what: &str| wrong(format!("{key}: {what}"));
        let table = self.root.get(&key).and_then(|t| t.as_table());
        let table = table.ok_or_else(|| fail("there is no such table"))?;
        let words = |key: &str| -> Option<Vec<String>> {
            let list = table.get(key)?.as_array()?;
            list.iter()
                .map(|word| word.as_str().map(str::to_owned))
                .collect()
        };
        // At least one column has figures.
        let columns = words("columns").filter(|columns| columns.len() > labels);
        let columns = columns.ok_or_else(|| fail("columns are a list of names"))?;
        let row = |row: &toml::Value| -> Option<Row> {
            let row = row.as_array().filter(|row| row.len() == columns.len())?;
            let (before, figures) = row.split_at(labels);
            let figures = figures.iter().map(number_or_none).collect::<Option<_>>()?;
            Some((before.iter().map(label).collect(), figures))
        };
        let rows = table.get("rows").and_then(|rows| rows.as_array());
        let rows: Option<Vec<_>> = rows.into_iter().flatten().map(row).collect();
        Ok(Table {
            name: name.to_owned(),
            rows: rows.ok_or_else(|| fail("a row is labels and a figure for each column"))?,
            columns: columns[labels..].to_vec(),
            calibrate: words("calibrate").unwrap_or_default(),
        })
    }

    /// Returns all cells of a table, with 0 in place of our figures.
    ///
    /// # Errors
    /// Fails when the table is missing or malformed.
    pub(crate) fn cells(&self, table: &str) -> Result<Vec<Cell>, ExperimentError> {
        // Tables have one or two columns of labels. Only the right number leaves figures alone.
        let found = self.table(table, 1).or_else(|_| self.table(table, 2));
        Ok(found?.cells("", |_, _| Some(0.0)))
    }

    /// Returns the figure at a path such as `claims_pct.vs_cfq.seq_read`.
    ///
    /// # Errors
    /// Fails when there is none.
    pub fn figure(&self, path: &str) -> Result<f64, ExperimentError> {
        let mut keys = path.split('.');
        let first = keys.next().and_then(|key| self.root.get(key));
        // `Value::get` of what is no table is `None`.
        let found = keys.fold(first, |value, key| value?.get(key));
        let figure = found.and_then(number);
        figure.ok_or_else(|| wrong(format!("{path} is no figure")))
    }
}

fn number(value: &toml::Value) -> Option<f64> {
    value
        .as_float()
        .or_else(|| value.as_integer().map(|n| n as f64))
}

/// Reads a figure; an empty text stands for none.
fn number_or_none(value: &toml::Value) -> Option<Option<f64>> {
    match value.as_str() {
        Some("") => Some(None),
        _ => number(value).map(Some),
    }
}

fn label(value: &toml::Value) -> String {
    value
        .as_str()
        // Labels may be numbers, such as a factor.
        .map_or_else(|| value.to_string(), str::to_owned)
}

impl Table {
    /// Pairs every figure of the table with ours, which `ours` returns for the labels of a row and
    /// a column. Figures are left out where `ours` returns `None`, because the run was not wanted,
    /// and where the paper has none.
    pub fn cells(
        &self,
        paper: &'static str,
        mut ours: impl FnMut(&[String], &str) -> Option<f64>,
    ) -> Vec<Cell> {
        let mut cells = Vec::new();
        for (labels, figures) in &self.rows {
            for (column, &theirs) in self.columns.iter().zip(figures) {
                // `ours` is called even where the paper has no figure, as some callers collect the
                // cells.
                let theirs_and_ours = theirs.zip(ours(labels, column));
                let Some((theirs, ours)) = theirs_and_ours else {
                    continue;
                };
                let free = |word: &String| word == column || labels.contains(word);
                cells.push(Cell {
                    paper,
                    table: self.name.clone(),
                    row: labels.join("/"),
                    column: column.clone(),
                    theirs,
                    ours,
                    calibrated: self.calibrate.iter().any(free),
                    cannot_hold: None,
                    ordering: None,
                    uncomparable: Vec::new(),
                });
            }
        }
        cells
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "
        [table3]
        columns = [\"workload\", \"cfq\", \"flubber\"]
        calibrate = [\"cfq\"]
        rows = [[\"read\", 64.42, 54], [\"write\", 65.1, 57.7]]
        [table6]
        columns = [\"case\", \"scheduler\", \"near\"]
        calibrate = [\"cfq\"]
        rows = [[\"read\", \"cfq\", 97], [\"read\", \"flubber\", 99]]
        [figure9]
        columns = [\"vm\", \"cfq\", \"vfair\"]
        rows = [[\"vm1\", 60, 2721], [\"vm2\", \"\", 1220]]
        [claims]
        vs_cfq = { read = 17 }
    ";

    #[test]
    fn figures_stand_beside_ours_and_say_whether_they_may_be_calibrated_on() {
        let reference = Reference::parse(TEXT).unwrap();
        let cells = reference.table("3", 1).unwrap().cells("p", |row, column| {
            (row != ["write"] || column == "cfq").then_some(1.0)
        });
        let found: Vec<_> = cells
            .iter()
            .map(|c| (c.row.as_str(), c.column.as_str(), c.theirs, c.calibrated))
            .collect();
        let expected = [
            ("read", "cfq", 64.42, true),
            ("read", "flubber", 54.0, false),
            ("write", "cfq", 65.1, true),
        ];
        assert_eq!(found, expected);
        let cells = reference
            .table("6", 2)
            .unwrap()
            .cells("p", |_, _| Some(0.0));
        assert_eq!(cells[0].row, "read/cfq");
        assert_eq!([cells[0].calibrated, cells[1].calibrated], [true, false]);
    }

    #[test]
    fn a_figure_is_a_table_that_may_have_holes() {
        let reference = Reference::parse(TEXT).unwrap();
        let table = reference.table("figure 9", 1).unwrap();
        let cells = table.cells("p", |_, _| Some(0.0));
        let found: Vec<_> = cells
            .iter()
            .map(|c| (c.row.as_str(), c.column.as_str()))
            .collect();
        let expected = [("vm1", "cfq"), ("vm1", "vfair"), ("vm2", "vfair")];
        assert_eq!(found, expected);
        assert_eq!(cells[0].table, "figure 9");
    }

    #[test]
    fn what_is_not_there_is_told() {
        let reference = Reference::parse(TEXT).unwrap();
        assert_eq!(reference.figure("claims.vs_cfq.read").unwrap(), 17.0);
        let missing = reference.figure("claims.vs_cfq.write").unwrap_err();
        assert_eq!(
            missing.to_string(),
            "paper.toml: claims.vs_cfq.write is no figure"
        );
        assert!(reference.table("4", 1).is_err());
        // A label for a figure.
        assert!(reference.table("6", 1).is_err());
        assert!(Reference::parse("[").is_err());
    }
}
