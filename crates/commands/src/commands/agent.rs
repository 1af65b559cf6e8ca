//! `tidegate agent`: sets I/O classes of the host's processes so that transfers meet deadlines.

use std::collections::BTreeSet;
use std::io;
use std::time::{Duration, Instant};

use anyhow::Result;
use serde::Serialize;
use tidegate_agent::{
    Agent, AgentConfig, Event, LinuxHost, Report, Scheduler, State, TargetSpec, TransferSpec,
    scheduler_of,
};
use tidegate_core::time::Nanos;
use tidegate_core::transfers::{Class, Transfer};
use tidegate_report::{Align, Table};
use tidegate_units::human::{bytes, bytes_per_s, duration, percent};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::args::{AgentArgs, TransferArg};
use crate::output::{Output, tell};
use crate::problem::Problem;

pub(super) fn run(args: &AgentArgs, out: Output) -> Result<()> {
    let specs = target_specs(args)?;
    check_scheduler(args)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    // Handlers are installed before the agent sets the first I/O class, so that a signal never
    // leaves a changed class behind.
    let signals = {
        let _context = runtime.enter();
        Signals::install()?
    };
    let (mut run, events) = AgentRun::new(args, specs, out)?;
    let end = runtime.block_on(run.drive(&events, args.interval, signals));
    // Original I/O classes are restored even after an error, such as a closed pipe.
    let restored = run.agent.restore();
    run.print_events(&restored)?;
    run.verdict(end?)
}

/// Handlers of the signals that stop the agent.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
    /// Sent when the terminal is closed.
    hangup: Signal,
}

impl Signals {
    /// Installs the handlers; needs the context of a tokio runtime.
    fn install() -> io::Result<Signals> {
        Ok(Signals {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    /// Waits for any of the signals.
    async fn recv(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
            _ = self.hangup.recv() => {}
        }
    }
}

/// Reason for which the agent's loop ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    /// All transfers have ended.
    TransfersEnded,
    /// A signal arrived.
    Signalled,
}

/// Returns the VMs with their transfers, after checking the options against each other.
fn target_specs(args: &AgentArgs) -> Result<Vec<TargetSpec>> {
    let mut names = BTreeSet::new();
    if let Some((name, _)) = args.vms.iter().find(|(name, _)| !names.insert(name)) {
        let problem = Problem::new(format!(
            "VM name {name} is given twice; names must be unique"
        ));
        return Err(problem.at("--vm").into());
    }
    for (n, (name, target)) in args.vms.iter().enumerate() {
        // Two VMs with one process would set its I/O class alternately. Only equal targets are
        // detected: a process ID inside another VM's cgroup is not.
        let equal = args.vms[..n].iter().find(|(_, earlier)| earlier == target);
        if let Some((other, _)) = equal {
            let problem = Problem::new(format!(
                "VMs {other} and {name} are both {target}; each VM needs processes of its own"
            ));
            return Err(problem.at("--vm").into());
        }
    }
    let mut with_transfers = BTreeSet::new();
    for TransferArg { vm: name, .. } in &args.transfers {
        if !names.contains(name) {
            let names: Vec<_> = names.iter().map(|name| name.as_str()).collect();
            let problem = Problem::new(format!("no such VM: {name:?}")).at("--job");
            return Err(problem
                .help(format!("there are: {}", names.join(", ")))
                .into());
        }
        if !with_transfers.insert(name) {
            let problem = Problem::new(format!(
                "VM {name} has two deadline transfers; one is allowed"
            ));
            return Err(problem.at("--job").into());
        }
    }
    let spec = |(name, target): &(String, _)| TargetSpec {
        name: name.clone(),
        target: Clone::clone(target),
        transfer: args
            .transfers
            .iter()
            .find(|transfer| transfer.vm == *name)
            .map(
                |&TransferArg {
                     bytes, deadline, ..
                 }| TransferSpec { bytes, deadline },
            ),
    };
    Ok(args.vms.iter().map(spec).collect())
}

/// Fails, or warns with --dry-run, if the disk's Linux I/O scheduler ignores I/O classes.
fn check_scheduler(args: &AgentArgs) -> Result<()> {
    let scheduler =
        scheduler_of(&args.disk).map_err(|error| Problem::new(error.to_string()).at("--disk"))?;
    if scheduler.enforces_classes() {
        return Ok(());
    }
    let what = format!(
        "the I/O scheduler of {} is {}, which ignores I/O classes",
        scheduler.disk, scheduler.active
    );
    let possible = Scheduler::ENFORCING_SCHEDULERS.iter().find(|name| {
        scheduler
            .available
            .iter()
            .any(|available| available == *name)
    });
    let help = match possible {
        Some(name) => format!(
            "echo {name} > /sys/block/{}/queue/scheduler",
            scheduler.disk
        ),
        None => format!(
            "the kernel offers neither {}",
            Scheduler::ENFORCING_SCHEDULERS.join(" nor ")
        ),
    };
    if args.dry_run {
        tell(format_args!("warning: {what}; {help}"));
        return Ok(());
    }
    Err(Problem::new(what).at("--disk").help(help).into())
}

/// Agent with its output.
struct AgentRun {
    agent: Agent<LinuxHost>,
    out: Output,
    dry_run: bool,
    began: Instant,
    /// Figures of the table printed last, to skip tables without changes.
    printed: Vec<RowFigures>,
}

impl AgentRun {
    /// Creates the agent, which sets the first I/O classes, and returns its first events. They are
    /// not printed here: an error in between would leave the classes set.
    fn new(
        args: &AgentArgs,
        specs: Vec<TargetSpec>,
        out: Output,
    ) -> Result<(AgentRun, Vec<Event>)> {
        let host = LinuxHost::default();
        if !host.lists_children() {
            tell(format_args!(
                "warning: the kernel lacks CONFIG_PROC_CHILDREN, so child processes are not found"
            ));
        }
        let config = AgentConfig {
            interval: Nanos(args.interval.as_nanos() as u64),
            bandwidth: args.bandwidth,
            dry_run: args.dry_run,
        };
        let (agent, events) = Agent::new(host, Nanos::ZERO, config, specs)
            .map_err(|error| Problem::new(error.to_string()).at("--vm"))?;
        let run = AgentRun {
            agent,
            out,
            dry_run: args.dry_run,
            began: Instant::now(),
            printed: Vec::new(),
        };
        Ok((run, events))
    }

    fn now(&self) -> Nanos {
        Nanos::from_secs_f64(self.began.elapsed().as_secs_f64())
    }

    /// Prints the first events, and runs the agent until all transfers have ended or a signal stops
    /// it.
    async fn drive(
        &mut self,
        events: &[Event],
        interval: Duration,
        mut signals: Signals,
    ) -> Result<End> {
        self.print_events(events)?;
        let (interval, mut last_table) = (Nanos(interval.as_nanos() as u64), Nanos::ZERO);
        loop {
            let pause = Duration::from_nanos(self.agent.time_to_next_scan(self.now()).0);
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = signals.recv() => return Ok(End::Signalled),
            }
            let now = self.now();
            let events = self.agent.step(now);
            self.print_events(&events)?;
            // The agent also scans between two tables, so that a process that ends is noticed at
            // once.
            if now.since(last_table) >= interval {
                last_table = now;
                self.show_if_changed(now)?;
            }
            if self.agent.is_done() {
                return Ok(End::TransfersEnded);
            }
        }
    }

    fn print_events(&self, events: &[Event]) -> io::Result<()> {
        for event in events {
            let view = EventView::new(event, self.dry_run);
            let at = self.began.elapsed().as_secs_f64();
            if self.out.is_json() {
                let line = EventLine {
                    at_s: at,
                    event: &view,
                };
                self.out.json_line(&line).map_err(io::Error::other)?;
            } else {
                self.out.text(&format!("{at:>6.1} s  {}\n", view.text))?;
            }
        }
        Ok(())
    }

    /// Prints the table of all VMs and processes if it differs from the last one.
    fn show_if_changed(&mut self, now: Nanos) -> Result<()> {
        let reports = self.agent.report(now);
        let figures = reports.iter().map(|report| RowFigures::new(report, now));
        let figures: Vec<RowFigures> = figures.collect();
        if figures == self.printed {
            return Ok(());
        }
        self.printed = figures;
        self.show(&reports, now)
    }

    /// Prints the table of all VMs, or its JSON line.
    fn show(&self, reports: &[Report], now: Nanos) -> Result<()> {
        let rows: Vec<Row> = reports.iter().map(|report| Row::new(report, now)).collect();
        if self.out.is_json() {
            return self.out.json_line(&VmsLine {
                at_s: now.as_secs_f64(),
                vms: &rows,
            });
        }
        let columns = [
            ("VM", Align::Left),
            ("I/O CLASS", Align::Left),
            ("RATE", Align::Right),
            ("DONE", Align::Right),
            ("FORECAST", Align::Left),
        ];
        let mut table = Table::new(columns);
        for row in &rows {
            let rate = row
                .bytes_per_s
                .map_or("-".to_owned(), |rate| bytes_per_s(rate as f64));
            let done = row.done.map_or(String::new(), |done| percent(done, 1.0));
            table.row([
                row.name.clone(),
                row.class.to_owned(),
                rate,
                done,
                row.forecast.clone(),
            ]);
        }
        Ok(self.out.table(&table)?)
    }

    /// Fails if a transfer missed its deadline; see [`has_missed`].
    fn verdict(&self, end: End) -> Result<()> {
        let now = self.now();
        let reports = self.agent.report(now);
        let missed: Vec<_> = reports
            .iter()
            .filter(|report| {
                (report.transfer).is_some_and(|(transfer, state)| has_missed(transfer, state, now))
            })
            .map(|report| report.name.as_str())
            .collect();
        if end == End::Signalled {
            tell("stopped; the original I/O classes are restored");
        }
        if missed.is_empty() {
            return Ok(());
        }
        Err(Problem::new(format!("deadline not met: {}", missed.join(", "))).into())
    }
}

/// Returns true if a transfer ended late or incomplete, or still runs after its deadline. One that
/// was stopped before its deadline has missed nothing yet.
fn has_missed(transfer: Transfer, state: State, now: Nanos) -> bool {
    match state {
        State::Done { late, .. } => late > Nanos::ZERO,
        State::EndedEarly { .. } => true,
        State::Running => now > transfer.due_time(),
    }
}

#[derive(Serialize)]
struct EventLine<'a> {
    at_s: f64,
    event: &'a EventView,
}

#[derive(Serialize)]
struct VmsLine<'a> {
    at_s: f64,
    vms: &'a [Row],
}

/// Event as JSON, with its text.
#[derive(Serialize)]
struct EventView {
    kind: &'static str,
    vm: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    class: Option<&'static str>,
    text: String,
}

impl EventView {
    fn new(event: &Event, dry_run: bool) -> EventView {
        let (kind, vm, class, text) = match event {
            Event::Found { name, process } => {
                ("found", name, None, format!("process {}", process.id))
            }
            Event::Exited { name } => ("left", name, None, "all processes have ended".to_owned()),
            Event::Class { name, class } => {
                let (class, would) = (class.name(), if dry_run { "would be" } else { "is" });
                (
                    "class",
                    name,
                    Some(class),
                    format!("I/O class {would} {class} from now on"),
                )
            }
            Event::GivenUp { name } => {
                let text = "the transfer cannot meet its deadline, even with all others lowered"
                    .to_owned();
                ("cannot-be-met", name, None, text)
            }
            Event::Late { name, left } => {
                let left = bytes(*left);
                let text =
                    format!("the transfer is late: its deadline has passed with {left} left");
                ("late", name, None, text)
            }
            Event::Ended { name, state } => ("ended", name, None, state_text(*state)),
            Event::Refused {
                name,
                thread,
                error,
            } => {
                let text = format!("cannot set the I/O class of thread {}: {error}", thread.id);
                ("refused", name, None, text)
            }
        };
        EventView {
            kind,
            vm: vm.clone(),
            class,
            text: format!("{vm}: {text}"),
        }
    }
}

/// Returns the state of a transfer as text.
fn state_text(state: State) -> String {
    match state {
        State::Running => "the transfer is running".to_owned(),
        State::Done {
            took,
            early,
            late,
            unseen,
        } => {
            let (by, word) = match late {
                Nanos::ZERO => (early, "early"),
                late => (late, "late"),
            };
            let unseen = match unseen {
                0 => String::new(),
                _ => format!(
                    " (the process ended before its last {} were counted)",
                    bytes(unseen)
                ),
            };
            let (took, by) = (duration(took.0), duration(by.0));
            format!("the transfer is done after {took}, {by} {word}{unseen}")
        }
        State::EndedEarly { left } => {
            format!(
                "all processes ended with {} of the transfer left",
                bytes(left)
            )
        }
    }
}

/// Figures of a [`Report`] whose change makes a new table worth printing. Elapsed time, and figures
/// that change with time only, are left out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct RowFigures {
    class: Class,
    present: bool,
    /// Throughput in bytes per second; `None` where there is a transfer, whose progress `transfer`
    /// shows.
    bytes_per_s: Option<u64>,
    /// Bytes left of the transfer, and its state.
    transfer: Option<(u64, State)>,
    outlook: Outlook,
}

/// Forecast of a transfer against its deadline, without the time by which it is early or late.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Outlook {
    Unknown,
    Early,
    Late,
    Never,
}

impl RowFigures {
    fn new(report: &Report, now: Nanos) -> RowFigures {
        // A transfer past its deadline is late whatever the forecast of its remaining part.
        let outlook = match report.forecast {
            _ if report
                .transfer
                .is_some_and(|(transfer, _)| now > transfer.due_time()) =>
            {
                Outlook::Late
            }
            None => Outlook::Unknown,
            // The agent's value for a transfer that never ends at the present rate.
            Some(forecast) if forecast.done == Nanos::MAX => Outlook::Never,
            Some(forecast) if forecast.late > Nanos::ZERO => Outlook::Late,
            Some(_) => Outlook::Early,
        };
        RowFigures {
            class: report.class,
            present: report.present,
            // The rate changes in every interval, and would print a table each time.
            bytes_per_s: report.bytes_per_s.filter(|_| report.transfer.is_none()),
            transfer: report
                .transfer
                .map(|(transfer, state)| (transfer.bytes_left(), state)),
            outlook,
        }
    }
}

/// State of a VM: as JSON, and with `forecast` as a row of the table.
#[derive(Serialize)]
struct Row {
    name: String,
    class: &'static str,
    bytes_per_s: Option<u64>,
    /// Part of the transfer that is done, 0 to 1.
    done: Option<f64>,
    done_in_s: Option<f64>,
    early_s: Option<f64>,
    #[serde(skip)]
    forecast: String,
}

impl Row {
    fn new(report: &Report, now: Nanos) -> Row {
        let ahead = |at: Nanos| (at < Nanos::MAX).then(|| at.since(now));
        let done_in = report.forecast.and_then(|forecast| ahead(forecast.done));
        let early = report
            .forecast
            .map(|forecast| forecast.early.as_secs_f64() - forecast.late.as_secs_f64());
        let forecast = match (report.transfer, report.forecast, done_in) {
            (None, ..) => String::new(),
            (Some((_, state @ (State::Done { .. } | State::EndedEarly { .. }))), ..) => {
                state_text(state)
            }
            (_, None, _) => "not known yet".to_owned(),
            (Some((transfer, _)), Some(_), None) if now > transfer.due_time() => {
                "late, and never done at this rate".to_owned()
            }
            (_, Some(_), None) => "never at this rate".to_owned(),
            (_, Some(forecast), Some(time_left)) => {
                let (by, word) = match forecast.late {
                    Nanos::ZERO => (forecast.early, "early"),
                    late => (late, "late"),
                };
                format!(
                    "done in {}, {} {word}",
                    duration(time_left.0),
                    duration(by.0)
                )
            }
        };
        Row {
            name: report.name.clone(),
            class: report.class.name(),
            bytes_per_s: report.bytes_per_s,
            done: report
                .transfer
                // A transfer of 0 bytes counts as done instead of being undefined.
                .map(|(transfer, _)| {
                    1.0 - transfer.bytes_left() as f64 / transfer.bytes.max(1) as f64
                }),
            done_in_s: done_in.map(Nanos::as_secs_f64),
            // Against a transfer that never ends the difference would be a meaningless maximum.
            early_s: early.filter(|_| done_in.is_some()),
            forecast,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transfer_that_still_runs_after_its_deadline_has_missed_it() {
        let due = Nanos::from_secs(60);
        let transfer = Transfer {
            bytes: 1 << 30,
            begun: Nanos::ZERO,
            deadline: due,
            moved: 0,
        };
        let done = |late| State::Done {
            took: due,
            early: Nanos::ZERO,
            late,
            unseen: 0,
        };
        for (state, now, missed) in [
            (State::Running, Nanos::from_secs(59), false),
            (State::Running, Nanos::from_secs(61), true),
            (State::EndedEarly { left: 1 }, Nanos::from_secs(1), true),
            (done(Nanos::ZERO), Nanos::from_secs(70), false),
            (done(Nanos(1)), Nanos::from_secs(70), true),
        ] {
            assert_eq!(has_missed(transfer, state, now), missed, "{state:?}");
        }
    }
}
