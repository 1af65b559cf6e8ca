//! Figures that claims may name: measures of an experiment, and those of the paper's tables.

use super::expression::{Call, Item, Series, series};
use crate::pattern::fits;
use crate::{Cell, ExperimentError, Reference};

/// An experiment whose runs have figures.
pub(crate) trait Subject {
    /// Results of the runs.
    type Results<'a>;
}

/// Arguments of a measure, each one of its allowed words.
pub(crate) type Arguments<'a> = &'a [&'static str];

/// A figure of an experiment's runs, or a series of them.
pub(crate) struct Measure<S: Subject> {
    pub(crate) name: &'static str,
    /// Allowed words of each argument.
    pub(crate) arguments: &'static [&'static [&'static str]],
    /// Figures; `None` where a run is missing.
    pub(crate) evaluate: fn(&S::Results<'_>, Arguments<'_>) -> Option<Series>,
}

/// Figures of a call: those of the paper, of our `cells` of a table, or of a measure.
///
/// # Errors
/// When there is no such measure, or the paper's figures are malformed.
pub(crate) fn figures<S: Subject>(
    call: &Call,
    (measures, results): (&[&[Measure<S>]], &S::Results<'_>),
    reference: &Reference,
    cells: impl FnOnce(&str) -> Result<Vec<Cell>, ExperimentError>,
) -> Result<Option<Series>, ExperimentError> {
    // Built-in measures come first: they are the same for each paper.
    match Printed::from_call(call) {
        Some(printed) => printed.series(reference, cells),
        None => {
            let (measure, arguments) = find(measures, call)?;
            Ok((measure.evaluate)(results, &arguments))
        }
    }
}

/// Measures that every paper with tables has.
const OF_CELLS: [&str; 2] = ["ours", "theirs"];
const STATED: &str = "paper";

fn unknown(what: String) -> ExperimentError {
    ExperimentError::data(super::FILE, what)
}

/// The measure of a call, with its arguments.
///
/// # Errors
/// When there is no such measure, or its arguments are not as they may be.
pub(crate) fn find<'a, S: Subject>(
    measures: &[&'a [Measure<S>]],
    call: &Call,
) -> Result<(&'a Measure<S>, Vec<&'static str>), ExperimentError> {
    let mut all = measures.iter().flat_map(|of| of.iter());
    let Some(measure) = all.find(|measure| measure.name == call.name) else {
        let all = measures.iter().flat_map(|of| of.iter());
        // Measures of the tables are built in and belong to the choice.
        let mut names: Vec<&str> = all.map(|measure| measure.name).collect();
        names.extend(OF_CELLS.into_iter().chain([STATED]));
        return Err(unknown(format!(
            "there is no measure `{}`; there are {}",
            call.name,
            names.join(", ")
        )));
    };
    if measure.arguments.len() != call.arguments.len() {
        return Err(unknown(format!(
            "{} has {} arguments where {} would be right",
            call.name,
            call.arguments.len(),
            measure.arguments.len()
        )));
    }
    let mut arguments = Vec::new();
    for (words, argument) in measure.arguments.iter().zip(&call.arguments) {
        let Some(word) = words.iter().find(|word| *word == argument) else {
            return Err(unknown(format!(
                "{} is of {}, not of `{argument}`",
                call.name,
                words.join(", ")
            )));
        };
        arguments.push(*word);
    }
    Ok((measure, arguments))
}

/// A measure of the paper's tables, or of its text.
pub(crate) enum Printed<'a> {
    /// Cells of the table, row and column; `*` stands for anything at an end of a word.
    Cells {
        theirs: bool,
        table: &'a str,
        row: &'a str,
        column: &'a str,
    },
    /// The figure at a path of `paper.toml`.
    Stated(&'a str),
}

impl<'a> Printed<'a> {
    /// Interprets a call as a printed measure; `None` if it names another one.
    pub(crate) fn from_call(call: &'a Call) -> Option<Printed<'a>> {
        match (call.name.as_str(), call.arguments.as_slice()) {
            ("ours" | "theirs", [table, row, column]) => Some(Printed::Cells {
                theirs: call.name == "theirs",
                table,
                row,
                column,
            }),
            ("paper", [path]) => Some(Printed::Stated(path)),
            _ => None,
        }
    }

    /// Returns `true` if the figures are the paper's, so that no run is needed for them.
    pub(super) fn is_theirs(&self) -> bool {
        !matches!(self, Printed::Cells { theirs: false, .. })
    }

    /// Returns `true` if `paper.toml` has such figures.
    #[cfg(test)]
    pub(crate) fn is_in(&self, reference: &Reference) -> bool {
        match self {
            Printed::Stated(path) => reference.figure(path).is_ok(),
            Printed::Cells {
                table, row, column, ..
            } => {
                let fits = |cell: &Cell| fits(row, &cell.row) && fits(column, &cell.column);
                let cells = reference.cells(table);
                cells.is_ok_and(|cells| cells.iter().any(fits))
            }
        }
    }

    /// Returns figures of the paper, or ours from `cells`, which computes the cells of a table.
    ///
    /// # Errors
    /// Fails when the paper has no such figure, or cells cannot be computed.
    pub(crate) fn series(
        &self,
        reference: &Reference,
        cells: impl FnOnce(&str) -> Result<Vec<Cell>, ExperimentError>,
    ) -> Result<Option<Series>, ExperimentError> {
        let (theirs, table, row, column) = match self {
            Printed::Stated(path) => return Ok(Some(series([reference.figure(path)?]))),
            Printed::Cells {
                theirs,
                table,
                row,
                column,
            } => (*theirs, *table, *row, *column),
        };
        let of = |cell: Cell| Item {
            label: label(&cell, row, column),
            value: if theirs { cell.theirs } else { cell.ours },
        };
        let is = |cell: &Cell| fits(row, &cell.row) && fits(column, &cell.column);
        let found = cells(table)?.into_iter().filter(is).map(of);
        Ok(Some(found.collect()))
    }
}

/// Label of a cell among others: its row, its column or both, where they differ.
fn label(cell: &Cell, row: &str, column: &str) -> String {
    match (row.contains('*'), column.contains('*')) {
        // A pattern selects several; what it leaves open is what tells the items apart.
        (true, true) => format!("{} of {}", cell.column, cell.row),
        (false, true) => cell.column.clone(),
        _ => cell.row.clone(),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::findings::tests::cell;

    #[test]
    fn cells_are_named_by_patterns_and_labelled_by_what_differs() {
        let with = |row: &str, column: &str, ours| Cell {
            row: row.to_owned(),
            column: column.to_owned(),
            ..cell(1.0, ours, false)
        };
        let all = [
            with("4/beta", "vm1", 1.0),
            with("4/beta", "vm2", 2.0),
            with("5/v", "vm1", 3.0),
        ];
        let reference = Reference::parse("[a]\nb = 7").expect("TOML");
        let of = |name: &str, arguments: &[&str]| -> Vec<(String, f64)> {
            let arguments = arguments.iter().map(|word| (*word).to_owned()).collect();
            let name = name.to_owned();
            let call = Call { name, arguments };
            let printed = Printed::from_call(&call).expect("one of these");
            let series = printed.series(&reference, |_| Ok(all.to_vec()));
            let series = series.expect("figures").expect("cells");
            series
                .into_iter()
                .map(|item| (item.label, item.value))
                .collect()
        };
        let labelled = |all: &[(&str, f64)]| -> Vec<(String, f64)> {
            all.iter()
                .map(|(label, value)| ((*label).to_owned(), *value))
                .collect()
        };
        assert_eq!(
            of("ours", &["3", "4/beta", "*"]),
            labelled(&[("vm1", 1.0), ("vm2", 2.0)])
        );
        assert_eq!(
            of("theirs", &["3", "*", "vm2"]),
            labelled(&[("4/beta", 1.0)])
        );
        assert_eq!(
            of("ours", &["3", "*bet*", "*1"]),
            labelled(&[("vm1 of 4/beta", 1.0)])
        );
        assert_eq!(of("ours", &["3", "5*", "vm1"]), labelled(&[("5/v", 3.0)]));
        assert_eq!(of("paper", &["a.b"]), labelled(&[("", 7.0)]));
        assert_eq!(of("ours", &["3", "6", "*"]), []);
    }

    struct Toy;

    impl Subject for Toy {
        type Results<'a> = f64;
    }

    #[test]
    fn a_measure_is_one_there_is_with_words_it_may_have() {
        let measures: &[Measure<Toy>] = &[Measure {
            name: "iops",
            arguments: &[&["vm1", "vm2"]],
            evaluate: |runs, arguments| Some(series([*runs * arguments.len() as f64])),
        }];
        let of = |name: &str, arguments: &[&str]| {
            let arguments = arguments.iter().map(|word| (*word).to_owned()).collect();
            let name = name.to_owned();
            let (found, arguments) = find(&[measures], &Call { name, arguments })?;
            Ok::<_, ExperimentError>((found.evaluate)(&3.0, &arguments))
        };
        assert_eq!(of("iops", &["vm2"]).expect("there"), Some(series([3.0])));
        for (name, arguments, expected) in [
            (
                "iop",
                &["vm1"][..],
                "there is no measure `iop`; there are iops, ours",
            ),
            ("iops", &["vm3"], "iops is of vm1, vm2, not of `vm3`"),
            ("iops", &[], "iops has 0 arguments where 1 would be right"),
        ] {
            let error = of(name, arguments).expect_err("none").to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
