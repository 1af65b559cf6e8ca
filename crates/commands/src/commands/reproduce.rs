//! `tidegate reproduce`: repeats a paper's experiments and compares with its figures.

mod distributed;
mod process;
mod testbed;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, ErrorKind};
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Instant;

use anyhow::Result;
use tidegate_experiments::{
    Findings, Paper, Wanted, claims, contradictions, counts, list_fitted, page, papers, reasons,
    summary, tables, verdicts,
};
use tidegate_report::{Align, Table};

use crate::args::{Format, ReproduceArgs};
use crate::atomic_file;
use crate::output::{self, Output};
use crate::plot_output;
use crate::problem::Problem;
use crate::progress::DelayedBar;

pub(super) fn run(args: &ReproduceArgs, out: Output) -> Result<()> {
    let Some(name) = &args.paper else {
        return match args.plots.svg {
            None => list(out),
            Some(_) => Err(Problem::new("no paper given to draw curves of")
                .at("--svg")
                .help("name one: tidegate reproduce flubber --svg curves.svg")
                .into()),
        };
    };
    let paper = find_paper(name)?;
    if args.distributed {
        return distributed::run(paper.name, args, out);
    }
    let wanted = Wanted {
        table: wanted_table(paper, args)?,
        threads: threads(args.jobs),
        traces: match &args.traces {
            Some(folder) => traces(paper, folder)?,
            None => BTreeMap::new(),
        },
    };
    // Checked before simulating, which may take minutes.
    check_curves(paper, &wanted, args, out)?;
    let began = Instant::now();
    let mut progress = DelayedBar::new(1, "simulating");
    let mut report_progress = |done: usize, all: usize| {
        progress.set_total(all as u64);
        progress.set(done as u64, String::new);
    };
    if args.calibrate {
        let Some(calibration) = paper.calibration else {
            let problem = Problem::new(format!("{name} has no calibration"));
            return Err(problem.at("--calibrate").into());
        };
        let text = (calibration.fit)(&wanted, &mut report_progress)?;
        return Ok(out.text(&text)?);
    }
    let findings = (paper.reproduce)(&wanted, &mut report_progress)?;
    drop(progress);
    if let Some(file) = &args.report {
        let page = page(paper, &findings, wanted.table.as_deref())?;
        atomic_file::write(file, page.as_bytes())?;
        output::tell(format_args!("wrote {}", file.display()));
    }
    if out.is_json() {
        out.json(&findings.entries())?;
        return plot_output::write_svg(&findings.plots, &args.plots);
    }
    // A subtitle goes to a line of its own, so that no line is wider than a terminal.
    let title = paper.title.replacen(": ", ":\n", 1);
    out.text(&format!("{title}\n\n"))?;
    if args.details {
        print_details(paper, &findings, out)?;
    } else {
        print_summary(paper, &findings, out)?;
    }
    if args.plot {
        out.text("\n")?;
        plot_output::draw(out, &findings.plots, args.plots.ascii)?;
    }
    plot_output::write_svg(&findings.plots, &args.plots)?;
    output::tell(format_args!(
        "{}; {:.1} s",
        summary(&findings),
        began.elapsed().as_secs_f64()
    ));
    Ok(())
}

/// Prints one screen: counts, verdicts in short lines, and where to look further.
fn print_summary(paper: &Paper, findings: &Findings, out: Output) -> Result<()> {
    out.table(&counts(findings))?;
    out.text("\n")?;
    out.table(&verdicts(findings, paper.tables))?;
    let contradictions = contradictions(findings);
    let blank_line = if contradictions.is_empty() { "" } else { "\n" };
    Ok(out.text(&format!(
        "\n{contradictions}{blank_line}Every figure, reasons and ablations: --details; as a page: \
         --report FILE\n\
         The models and what is missed: experiments/{}/README.md\n",
        paper.name
    ))?)
}

/// Prints every figure and claim with its reasons.
fn print_details(paper: &Paper, findings: &Findings, out: Output) -> Result<()> {
    out.table(&tables(findings))?;
    out.text("\n")?;
    out.table(&claims(findings))?;
    if !(findings.impossible.is_empty() && findings.notes.is_empty()) {
        out.text("\n")?;
        out.table(&reasons(findings))?;
    }
    if let Some(calibration) = paper.calibration {
        let fitted = list_fitted(&calibration.fitted()?, true);
        out.text(&format!(
            "\nFitted figures, and the paper's cells that they were fitted on:\n{fitted}"
        ))?;
    }
    out.text("\n")?;
    Ok(out.table(&counts(findings))?)
}

/// Returns the number of threads: as asked, or one per CPU.
fn threads(asked: Option<u16>) -> usize {
    let cores = || thread::available_parallelism().map_or(1, |n| n.get());
    asked.map_or_else(cores, usize::from)
}

/// Requests read of each trace; no experiment replays more.
const REQUESTS_PER_TRACE: usize = 20_000;

/// Reads the paper's original traces from a folder, and reports missing ones.
fn traces(paper: &Paper, folder: &Path) -> Result<BTreeMap<&'static str, Arc<[u8]>>> {
    if paper.traces.is_empty() {
        let problem = Problem::new(format!("{} replays no traces", paper.name));
        return Err(problem.at("--traces").into());
    }
    let mut found = BTreeMap::new();
    let mut missing: Vec<&str> = Vec::new();
    for trace in paper.traces {
        let path = folder.join(trace.file);
        match read_requests(&path) {
            Ok(bytes) => drop(found.insert(trace.stream, bytes)),
            Err(error) if error.kind() == ErrorKind::NotFound => missing.push(trace.file),
            Err(error) => {
                let problem = Problem::new(format!("cannot be read: {error}"));
                return Err(problem.at(path.display().to_string()).into());
            }
        }
    }
    // One file may serve several streams, which follow each other in the paper's list.
    missing.dedup();
    let missing = missing.join(", ");
    if found.is_empty() {
        let problem = Problem::new("none of the paper's original traces is here");
        let help = format!("expected: {missing}; without --traces built-in ones are used");
        return Err(problem.at(folder.display().to_string()).help(help).into());
    }
    if !missing.is_empty() {
        output::tell(format_args!(
            "not in {}: {missing}; built-in traces are used instead",
            folder.display()
        ));
    }
    Ok(found)
}

/// Reads the first [`REQUESTS_PER_TRACE`] lines of a trace.
fn read_requests(path: &Path) -> io::Result<Arc<[u8]>> {
    let mut input = BufReader::new(File::open(path)?);
    let mut bytes = Vec::new();
    for _ in 0..REQUESTS_PER_TRACE {
        if input.read_until(b'\n', &mut bytes)? == 0 {
            break;
        }
    }
    Ok(bytes.into())
}

/// Refuses options for drawing where there are no curves, or with JSON output.
fn check_curves(paper: &Paper, wanted: &Wanted, args: &ReproduceArgs, out: Output) -> Result<()> {
    let option = match (args.plot, &args.plots.svg) {
        (true, _) => "--plot",
        (false, Some(_)) => "--svg",
        (false, None) if args.plots.ascii => {
            let problem = Problem::new("--ascii without --plot has no effect").at("--ascii");
            return Err(problem.help("add --plot").into());
        }
        (false, None) => return Ok(()),
    };
    if args.plot && out.is_json() {
        let problem = Problem::new("curves cannot be drawn with -o json").at("--plot");
        return Err(problem.help("use --svg FILE with -o json").into());
    }
    if !paper.plots.iter().any(|table| wanted.wants(table)) {
        let problem = Problem::new("no curves for this table or figure").at(option);
        let help = match paper.plots {
            [] => format!("{} has no curves", paper.name),
            curves => format!("there are curves of: {}", curves.join(", ")),
        };
        return Err(problem.help(help).into());
    }
    Ok(())
}

/// Returns the paper of a name, or an error that lists all names.
fn find_paper(name: &str) -> Result<&'static Paper> {
    let found = papers().iter().find(|paper| paper.name == name);
    found.ok_or_else(|| {
        let names: Vec<&str> = papers().iter().map(|paper| paper.name).collect();
        let problem = Problem::new(format!("no such paper: {name:?}")).at("PAPER");
        problem
            .help(format!("there are: {}", names.join(", ")))
            .into()
    })
}

/// Returns the table or figure that is asked for; `None`: all.
fn wanted_table(paper: &Paper, args: &ReproduceArgs) -> Result<Option<String>> {
    let (at, what, name) = match (&args.table, &args.figure) {
        (Some(table), _) => ("--table", format!("table {table:?}"), table.clone()),
        (None, Some(figure)) => {
            let name = format!("figure {figure}");
            ("--figure", name.clone(), name)
        }
        (None, None) => return Ok(None),
    };
    if paper.tables.contains(&name.as_str()) {
        return Ok(Some(name));
    }
    let problem = Problem::new(format!("{} has no {what}", paper.name));
    let help = format!("there are: {}", paper.tables.join(", "));
    Err(problem.at(at).help(help).into())
}

fn list(out: Output) -> Result<()> {
    if out.format() == Format::Json {
        let names: Vec<&str> = papers().iter().map(|paper| paper.name).collect();
        return out.json(&names);
    }
    let columns = [
        ("PAPER", Align::Left),
        ("TITLE", Align::Left),
        ("TABLES", Align::Left),
    ];
    let mut table = Table::new(columns);
    for paper in papers() {
        table.row([
            paper.name.to_owned(),
            paper.title.to_owned(),
            paper.tables.join(", "),
        ]);
    }
    Ok(out.table(&table)?)
}
