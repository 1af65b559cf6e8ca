//! `tidegate place sim`: a simulated data centre under PCOS and simpler placement strategies.

use anyhow::Result;
use serde::Serialize;
use tidegate_core::time::Nanos;
use tidegate_engine_bench::thread_cpu;
use tidegate_place::data_centre::{self, Decision, Observer, Report, Spec, Strategy};
use tidegate_report::{Align, Table};
use tidegate_units::human::{count, duration, percent};

use crate::args::DataCentreArgs;
use crate::output::Output;
use crate::progress;

/// Result of a strategy.
#[derive(Serialize)]
struct Row {
    strategy: &'static str,
    arrived: u64,
    placed: u64,
    placed_later: u64,
    discarded: u64,
    refused: u64,
    ended: u64,
    missed: u64,
    overdue: u64,
    mean_late_s: f64,
    mean_wait_s: f64,
    p99_wait_s: f64,
    longest_wait_s: f64,
    running: f64,
    waiting: f64,
    utilisation: f64,
    useful: f64,
    /// CPU time of decisions on this machine, which differs between runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    times: Option<Times>,
}

/// CPU times of decisions.
#[derive(Serialize)]
struct Times {
    arrival: Percentiles,
    update: Percentiles,
}

#[derive(Clone, Copy, Default, Serialize)]
struct Percentiles {
    decisions: usize,
    p50_ns: u64,
    p99_ns: u64,
    p999_ns: u64,
    longest_ns: u64,
}

impl Percentiles {
    fn from_times(times: &mut [u64]) -> Percentiles {
        times.sort_unstable();
        let at = |thousandths: usize| {
            // Nearest-rank percentile.
            let rank = (times.len() * thousandths).div_ceil(1000);
            times.get(rank.saturating_sub(1)).copied().unwrap_or(0)
        };
        Percentiles {
            decisions: times.len(),
            p50_ns: at(500),
            p99_ns: at(990),
            p999_ns: at(999),
            longest_ns: at(1000),
        }
    }
}

/// Clock of this thread's CPU time, which times all decisions.
struct Clock {
    begun: u64,
    counted: bool,
    arrivals: Vec<u64>,
    updates: Vec<u64>,
}

impl Observer for Clock {
    fn begin(&mut self, counted: bool) {
        self.counted = counted;
        self.begun = thread_cpu();
    }

    fn end(&mut self, decision: Decision) {
        let took = thread_cpu() - self.begun;
        match decision {
            _ if !self.counted => {}
            Decision::Arrival => self.arrivals.push(took),
            Decision::Update => self.updates.push(took),
        }
    }
}

pub(super) fn run(args: &DataCentreArgs, out: Output) -> Result<()> {
    let spec = Spec {
        hosts: args.hosts,
        arrivals_per_s: args.arrivals,
        length: args.length,
        warm_up: args.warm_up,
        limited: args.limited,
        limits_declared: args.told,
        seed: args.seed,
        ..Spec::default()
    };
    let strategies = match args.strategies.as_slice() {
        [] => Strategy::ALL.to_vec(),
        some => some.to_vec(),
    };
    let mut bar = progress::DelayedBar::new(strategies.len() as u64, "simulating");
    let mut rows = Vec::new();
    for (done, &strategy) in strategies.iter().enumerate() {
        bar.set(done as u64, || strategy.name().to_owned());
        rows.push(simulate(&spec, strategy, args.times));
    }
    drop(bar);
    if out.is_json() {
        return out.json(&rows);
    }
    Ok(out.text(&text(&rows, out))?)
}

fn simulate(spec: &Spec, strategy: Strategy, timed: bool) -> Row {
    let mut clock = Clock {
        begun: 0,
        counted: false,
        arrivals: Vec::new(),
        updates: Vec::new(),
    };
    let report = if timed {
        data_centre::simulate(spec, strategy, &mut clock)
    } else {
        data_centre::simulate(spec, strategy, &mut ())
    };
    let times = timed.then(|| Times {
        arrival: Percentiles::from_times(&mut clock.arrivals),
        update: Percentiles::from_times(&mut clock.updates),
    });
    Row::new(strategy, &report, times)
}

impl Row {
    fn new(strategy: Strategy, report: &Report, times: Option<Times>) -> Row {
        Row {
            strategy: strategy.name(),
            arrived: report.arrived,
            placed: report.placed,
            placed_later: report.placed_later,
            discarded: report.discarded,
            refused: report.refused,
            ended: report.ended,
            missed: report.missed,
            overdue: report.overdue,
            mean_late_s: report.mean_late.as_secs_f64(),
            mean_wait_s: report.mean_wait.as_secs_f64(),
            p99_wait_s: report.p99_wait.as_secs_f64(),
            longest_wait_s: report.longest_wait.as_secs_f64(),
            running: report.running,
            waiting: report.waiting,
            utilisation: report.utilisation,
            useful: report.useful,
            times,
        }
    }
}

/// Meaning of the columns.
const COLUMNS: &str = "\
ARRIVED       jobs that arrived
AT ONCE       of them, placed on a host at once
LATER         jobs placed after a wait, which took MEAN WAIT on average, and no
              more than P99 WAIT in 99 of 100 cases
DISCARDED     jobs that waited until their deadlines, or that no host could do
ENDED         jobs that ended, in time or not
MISSED        of them, ended after their deadlines, by MEAN LATE on average
OVERDUE       jobs that still run at the end and are past their deadlines
RUNNING       jobs that run at a time, on average
BUSY          bytes moved, in per cent of what the disks can move for one job
              each
BUSY IN TIME  the same for the bytes of jobs that ended in time
";

/// Says which strategy was best, by the columns that matter; empty with a single one.
fn best(rows: &[Row]) -> String {
    if rows.len() < 2 {
        return String::new();
    }
    let names = |is_best: &dyn Fn(&Row) -> bool| {
        let all: Vec<_> = (rows.iter().filter(|row| is_best(row)))
            .map(|row| row.strategy)
            .collect();
        all.join(", ")
    };
    let late = |row: &Row| row.missed + row.overdue;
    let lost = |row: &Row| row.discarded + row.refused;
    let fewest_late = rows.iter().map(late).min().unwrap_or(0);
    let fewest_lost = rows.iter().map(lost).min().unwrap_or(0);
    // As printed, so that equal figures are equal here.
    let useful = |row: &Row| percent(row.useful, 1.0);
    let most = rows.iter().max_by(|a, b| a.useful.total_cmp(&b.useful));
    let most = most.map(useful).unwrap_or_default();
    format!(
        "fewest jobs late ({}): {}\nfewest jobs discarded ({}): {}\nmost bytes in time ({most}): \
         {}\n\n",
        count(fewest_late),
        names(&|row| late(row) == fewest_late),
        count(fewest_lost),
        names(&|row| lost(row) == fewest_lost),
        names(&|row| useful(row) == most),
    )
}

fn text(rows: &[Row], out: Output) -> String {
    let columns = [
        "ARRIVED",
        "AT ONCE",
        "LATER",
        "MEAN WAIT",
        "P99 WAIT",
        "DISCARDED",
        "ENDED",
        "MISSED",
        "MEAN LATE",
        "OVERDUE",
        "RUNNING",
        "BUSY",
        "BUSY IN TIME",
    ];
    let columns = columns.map(|title| (title, Align::Right));
    let mut table = Table::new([("STRATEGY", Align::Left)].into_iter().chain(columns));
    let span = |seconds: f64| duration(Nanos::from_secs_f64(seconds).0);
    for row in rows {
        table.row([
            row.strategy.to_owned(),
            count(row.arrived),
            count(row.placed),
            count(row.placed_later),
            span(row.mean_wait_s),
            span(row.p99_wait_s),
            count(row.discarded + row.refused),
            count(row.ended),
            count(row.missed),
            span(row.mean_late_s),
            count(row.overdue),
            format!("{:.0}", row.running),
            percent(row.utilisation, 1.0),
            percent(row.useful, 1.0),
        ]);
    }
    let mut text = table.render(out.style());
    text.push('\n');
    text.push_str(&best(rows));
    text.push_str(COLUMNS);
    let columns = ["DECISIONS", "P50", "P99", "P99.9", "MAX"].map(|title| (title, Align::Right));
    let mut table = Table::new(
        [("STRATEGY", Align::Left), ("DECISION", Align::Left)]
            .into_iter()
            .chain(columns),
    );
    for row in rows {
        let Some(times) = &row.times else { continue };
        for (of, times) in [
            ("job arrives", times.arrival),
            ("host update", times.update),
        ] {
            table.row([
                row.strategy.to_owned(),
                of.to_owned(),
                count(times.decisions as u64),
                duration(times.p50_ns),
                duration(times.p99_ns),
                duration(times.p999_ns),
                duration(times.longest_ns),
            ]);
        }
    }
    if !table.is_empty() {
        text.push('\n');
        text.push_str(&table.render(out.style()));
    }
    text
}
