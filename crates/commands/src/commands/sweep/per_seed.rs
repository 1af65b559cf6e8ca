//! Results of a sweep as a table with a row for each VM and seed.

use serde_json::Value;
use tidegate_report::csv_record;

use crate::commands::sim::RATE_COLUMNS;
use crate::results::Key;

/// Columns of what a row is about.
const KEY_COLUMNS: [&str; 6] = ["scenario", "policy", "scheduler", "seed", "vm", "device"];
/// Columns beyond rates, with the place of each in the report of a VM.
const MORE_COLUMNS: [(&str, &str); 5] = [
    (
        "absolute_error_percent",
        "/precision/absolute_error_percent",
    ),
    ("variability_percent", "/precision/variability_percent"),
    ("missed_percent", "/responses/deadlines/missed_percent"),
    ("cpus", "/cpu/cpus"),
    ("cpu_wait_p99_ns", "/cpu/wait_p99_ns"),
];
/// Columns of promises.
const PROMISE_COLUMNS: [&str; 4] = ["promises", "promises_kept", "judged_s", "missed_s"];

/// Kind of a column's values.
#[cfg(feature = "parquet")]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Word,
    /// Whole number that is not negative.
    Whole,
    Figure,
}

/// Returns the kind of a column by its name.
#[cfg(feature = "parquet")]
pub(super) fn kind_of(column: &str) -> Kind {
    let is_whole = ["seed", "errors"].contains(&column)
        || column.ends_with("_ns")
        || PROMISE_COLUMNS.contains(&column);
    if is_whole {
        Kind::Whole
    } else if KEY_COLUMNS.contains(&column) {
        Kind::Word
    } else {
        Kind::Figure
    }
}

/// VM of a simulation.
pub(super) struct Row<'a> {
    key: &'a Key,
    vm: &'a Value,
}

/// Returns a row for each VM of each result, in their order.
pub(super) fn rows<'a>(results: &'a [(&'a Key, &'a Value)]) -> impl Iterator<Item = Row<'a>> {
    results.iter().flat_map(|&(key, report)| {
        let vms = report["vms"].as_array().into_iter().flatten();
        vms.map(move |vm| Row { key, vm })
    })
}

/// Returns the names of all columns.
pub(super) fn columns() -> impl Iterator<Item = &'static str> {
    let more = MORE_COLUMNS.iter().map(|column| column.0);
    let figures = RATE_COLUMNS.into_iter().chain(PROMISE_COLUMNS).chain(more);
    KEY_COLUMNS.into_iter().chain(figures)
}

impl Row<'_> {
    /// Returns the words of the row: all of [`KEY_COLUMNS`] but the seed.
    fn words(&self) -> [&str; 5] {
        let of_vm = |name: &str| self.vm[name].as_str().unwrap_or_default();
        [
            self.key.scenario.as_str(),
            self.key.policy.as_str(),
            self.key.scheduler.as_deref().unwrap_or_default(),
            of_vm("name"),
            of_vm("device"),
        ]
    }

    /// Returns the figures of the row in the order of the columns, as the report has them.
    fn figures(&self) -> Vec<Option<&Value>> {
        let rates = RATE_COLUMNS.iter().map(|column| self.vm.get(column));
        let more = MORE_COLUMNS.iter().map(|column| self.vm.pointer(column.1));
        rates.chain(more).collect()
    }

    /// Returns the figures of [`PROMISE_COLUMNS`].
    fn promises(&self) -> [u64; 4] {
        let mut sums = [0; 4];
        for promise in self.vm["promises"].as_array().into_iter().flatten() {
            let seconds = |name: &str| promise[name].as_u64().unwrap_or(0);
            let kept = promise["kept"].as_bool();
            let of_promise = [
                u64::from(kept.is_some()),
                u64::from(kept == Some(true)),
                seconds("judged_s"),
                seconds("missed_s"),
            ];
            for (sum, value) in sums.iter_mut().zip(of_promise) {
                *sum += value;
            }
        }
        sums
    }

    /// Returns the cells of CSV; a figure that there is not is empty.
    pub(super) fn cells(&self) -> Vec<String> {
        let [scenario, policy, scheduler, vm, device] = self.words();
        let seed = self.key.seed.to_string();
        let words = [scenario, policy, scheduler, &seed, vm, device];
        let figure = |value: &Option<&Value>| match value {
            None | Some(Value::Null) => String::new(),
            Some(value) => value.to_string(),
        };
        let figures = self.figures();
        let (rates, more) = figures.split_at(RATE_COLUMNS.len());
        let promises = self.promises().map(|n| n.to_string());
        let words = words.into_iter().map(str::to_owned);
        words
            .chain(rates.iter().map(figure))
            .chain(promises)
            .chain(more.iter().map(figure))
            .collect()
    }
}

/// Returns the rows as CSV.
pub(super) fn csv(results: &[(&Key, &Value)]) -> String {
    let mut text = csv_record(columns());
    for row in rows(results) {
        text += &csv_record(row.cells());
    }
    text
}
