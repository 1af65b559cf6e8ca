//! Response times of replayed requests and of workloads with deadlines.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use tidegate_report::{Align, Cell, Table, Tone, csv_record};
use tidegate_sim::report::{Response, Responses, VmReport};
use tidegate_sim::scenario::Scenario;

use super::{latency, shown};
use crate::atomic_file;
use crate::problem;

/// Columns of CSV beside the rates; their names carry the unit.
pub(super) const COLUMNS: [&str; 9] = [
    "responses",
    "unfinished",
    "response_mean_ns",
    "response_max_ns",
    "met",
    "missed",
    "missed_percent",
    "late_mean_ns",
    "late_max_ns",
];

/// Returns true if a VM of the scenario has response times to report.
pub(super) fn expected(scenario: &Scenario) -> bool {
    let mut workloads = scenario.vms.iter().flat_map(|vm| &vm.workloads);
    workloads.any(|workload| workload.replay.is_some() || workload.deadline.is_some())
}

/// Returns the cells of [`COLUMNS`]; empty where there is nothing to report.
pub(super) fn cells(responses: Option<&Responses>) -> [String; 9] {
    let Some(found) = responses else {
        return Default::default();
    };
    let deadlines = found.deadlines.as_ref();
    let count = |n: Option<u64>| n.map_or(String::new(), |n| n.to_string());
    let percent = deadlines.and_then(|it| it.missed_percent);
    [
        found.done.to_string(),
        found.unfinished.to_string(),
        latency(found.mean_ns),
        latency(found.max_ns),
        count(deadlines.map(|it| it.met)),
        count(deadlines.map(|it| it.missed)),
        percent.map_or(String::new(), |percent| percent.to_string()),
        latency(deadlines.and_then(|it| it.late_mean_ns)),
        latency(deadlines.and_then(|it| it.late_max_ns)),
    ]
}

/// Returns the table of response times; empty if no VM has any.
pub(super) fn table(vms: &[VmReport]) -> Table {
    let mut table = Table::new([
        ("VM", Align::Left),
        ("RESPONSES", Align::Right),
        ("UNFINISHED", Align::Right),
        ("MEAN", Align::Right),
        ("MAX", Align::Right),
        ("MET", Align::Right),
        ("MISSED", Align::Right),
        ("MISSED %", Align::Right),
        ("LATE (MEAN)", Align::Right),
        ("LATE (MAX)", Align::Right),
    ]);
    let with = vms
        .iter()
        .filter_map(|vm| Some((vm, vm.responses.as_ref()?)));
    for (vm, found) in with {
        let deadlines = found.deadlines.as_ref();
        let count = |n: Option<u64>| n.map_or("-".to_owned(), |n| n.to_string());
        let missed = deadlines.and_then(|it| it.missed_percent);
        let missed = match missed {
            None => Cell::from("-"),
            Some(0.0) => Cell::from("0.0").tone(Tone::Good),
            Some(percent) => Cell::from(format!("{percent:.1}")).tone(Tone::Bad),
        };
        table.row([
            Cell::from(vm.name.as_str()).tone(Tone::Strong),
            found.done.to_string().into(),
            found.unfinished.to_string().into(),
            shown(found.mean_ns).into(),
            shown(found.max_ns).into(),
            count(deadlines.map(|it| it.met)).into(),
            count(deadlines.map(|it| it.missed)).into(),
            missed,
            shown(deadlines.and_then(|it| it.late_mean_ns)).into(),
            shown(deadlines.and_then(|it| it.late_max_ns)).into(),
        ]);
    }
    table
}

/// CSV file with a line for each response.
pub(super) struct Log {
    path: PathBuf,
    file: BufWriter<File>,
}

impl Log {
    /// Creates the file, replacing an existing one, and writes the heading.
    pub(super) fn create(path: &Path) -> Result<Log> {
        atomic_file::regular(path)?;
        let file = File::create(path).map_err(|error| problem::cannot_write(path, &error))?;
        let mut log = Log {
            path: path.to_owned(),
            file: BufWriter::new(file),
        };
        log.line([
            "vm",
            "index",
            "bytes",
            "begun_s",
            "response_ns",
            "deadline_ns",
            "late_ns",
        ])?;
        Ok(log)
    }

    /// Appends a line for each response.
    pub(super) fn add(&mut self, responses: &[Response]) -> Result<()> {
        responses.iter().try_for_each(|it| {
            self.line([
                it.vm.as_str(),
                &it.index.to_string(),
                &it.bytes.to_string(),
                &it.begun_s.to_string(),
                &it.response_ns.to_string(),
                &latency(it.deadline_ns),
                &latency(it.late_ns),
            ])
        })
    }

    /// Flushes the file.
    pub(super) fn finish(mut self) -> Result<()> {
        let done = self.file.flush();
        done.with_context(|| format!("cannot write {}", self.path.display()))
    }

    fn line(&mut self, cells: [&str; 7]) -> Result<()> {
        let written = self.file.write_all(csv_record(cells).as_bytes());
        written.with_context(|| format!("cannot write {}", self.path.display()))
    }
}
