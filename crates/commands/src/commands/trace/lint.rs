//! `tidegate trace lint`: records of a trace that hint at a mistake.

use anyhow::Result;
use serde::Serialize;
use tidegate_report::{Align, Cell, Table, Tone};
use tidegate_units::human::count;
use tidegate_workload::trace::{Lint, LintFindings, LintOptions};

use super::source;
use crate::args::TraceLintArgs;
use crate::output::Output;
use crate::problem::Problem;

pub(super) fn run(args: &TraceLintArgs, out: Output) -> Result<()> {
    let mut reader = source::open(&args.file, &args.read())?;
    let mut lint = Lint::new(
        reader.format(),
        LintOptions {
            disk_size: args.disk_size,
            block_size: args.block_size,
            gap: args.gap,
        },
    );
    let error = |error| source::problem(&args.file, error);
    while let Some(record) = reader.next().map_err(error)? {
        lint.check(&record, reader.place());
    }
    let format = reader.format().name();
    let (tally, _) = reader.finish().map_err(error)?;
    let checks: Vec<Check> = (lint.finish(&tally).iter())
        .map(Check::from_findings)
        .collect();
    let findings = checks.iter().map(|check| check.count).sum();
    let report = Report {
        format,
        requests: tally.requests,
        findings,
        checks,
    };
    if out.is_json() {
        out.json(&report)?;
    } else {
        out.table(&report.table())?;
    }
    if findings == 0 {
        return Ok(());
    }
    let what = match findings {
        1 => "1 finding".to_owned(),
        n => format!("{} findings", count(n)),
    };
    Err(Problem::new(format!("{}: {what}", args.file.display())).into())
}

/// Result of all checks.
#[derive(Serialize)]
struct Report {
    format: &'static str,
    requests: u64,
    findings: u64,
    checks: Vec<Check>,
}

#[derive(Serialize)]
struct Check {
    check: &'static str,
    count: u64,
    examples: Vec<Example>,
}

#[derive(Serialize)]
struct Example {
    place: String,
    what: String,
}

impl Check {
    fn from_findings(found: &LintFindings) -> Check {
        let example = |(place, what): &(tidegate_workload::trace::Place, String)| Example {
            place: place.to_string(),
            what: what.clone(),
        };
        Check {
            check: found.kind.name(),
            count: found.count,
            examples: found.examples.iter().map(example).collect(),
        }
    }
}

impl Report {
    fn table(&self) -> Table {
        let mut table = Table::new([
            ("CHECK", Align::Left),
            ("FINDINGS", Align::Right),
            ("FIRST", Align::Left),
        ]);
        for check in &self.checks {
            let tone = if check.count == 0 {
                Tone::Good
            } else {
                Tone::Bad
            };
            let first = |i: usize| {
                let example = check.examples.get(i);
                example.map_or(String::new(), |it| format!("{}: {}", it.place, it.what))
            };
            table.row([
                Cell::from(check.check),
                Cell::from(count(check.count)).tone(tone),
                Cell::from(first(0)),
            ]);
            for i in 1..check.examples.len() {
                table.row([String::new(), String::new(), first(i)]);
            }
        }
        table
    }
}
