//! Tables and JSON of judged cells.

use anyhow::Result;
use serde::Serialize;
use tidegate_experiments::promises::{Outcome, Promise, Unit, VmOutcome};
use tidegate_report::{Align, Cell, Table, Tone};
use tidegate_units::human::duration;

use super::judge::Judged;
use crate::output::Output;

/// Judged cell as JSON.
#[derive(Serialize)]
struct Line<'a> {
    device: &'a str,
    profile: bool,
    mix: &'a str,
    rtt_us: u32,
    policy: &'a str,
    #[serde(flatten)]
    outcome: &'a Outcome,
    missed: &'a [String],
    /// Number of other policies; absent without --compare.
    #[serde(skip_serializing_if = "Option::is_none")]
    compared_with: Option<usize>,
    peers: &'a [String],
    failures: &'a [String],
}

pub(super) fn show(judged: &[Judged], compared: bool, out: Output) -> Result<()> {
    if out.is_json() {
        let lines: Vec<Line<'_>> = judged.iter().map(|one| line(one, compared)).collect();
        return out.json(&lines);
    }
    if !compared || judged.len() == 1 {
        out.table(&vms(judged))?;
    }
    if compared {
        out.table(&verdicts(judged))?;
    }
    Ok(out.text(&format!("\n{}\n", totals(judged)))?)
}

/// Returns the numbers of cells that keep every promise, among all and among feasible ones.
fn totals(judged: &[Judged]) -> String {
    let keeps = |one: &&Judged| one.verdict.missed.is_empty();
    let feasible = || {
        let cells = judged.iter();
        cells.filter(|one| one.outcome.infeasible.is_empty())
    };
    format!(
        "every promise kept in {} of {} cells, and in {} of the {} whose promises fit the device \
         together (`tidegate plan`)",
        judged.iter().filter(keeps).count(),
        judged.len(),
        feasible().filter(keeps).count(),
        feasible().count(),
    )
}

fn line(judged: &Judged, compared: bool) -> Line<'_> {
    let cell = &judged.place.cell;
    Line {
        device: &cell.device.model,
        profile: cell.profiled,
        mix: &judged.place.mix.name,
        rtt_us: cell.rtt_us,
        policy: &judged.policy,
        outcome: &judged.outcome,
        missed: &judged.verdict.missed,
        compared_with: compared.then_some(judged.others),
        peers: &judged.verdict.peers,
        failures: &judged.verdict.failures,
    }
}

/// Returns a line that summarises a cell.
pub(super) fn summary(judged: &Judged) -> String {
    let (kept, missed) = (judged.outcome.kept().len(), &judged.verdict.missed);
    let of = kept + missed.len();
    let mut text = format!("{}: {kept} of {of} promises kept", judged.place.name());
    if !missed.is_empty() {
        text += &format!(" (missed: {})", missed.join(", "));
        if !judged.outcome.infeasible.is_empty() {
            text += ", not all fit the device";
        }
    }
    if judged.others > 0 {
        text += &match judged.verdict.peers.len() {
            0 => ", no other policy keeps as many".to_owned(),
            n => format!(", {n} of {} others keep as many", judged.others),
        };
    }
    for failure in &judged.verdict.failures {
        text += "; ";
        text += failure;
    }
    text
}

/// Returns the table of VMs of all cells, with a row for each promise.
fn vms(judged: &[Judged]) -> Table {
    let mut table = Table::new([
        ("VM", Align::Left),
        ("IOPS", Align::Right),
        ("MB/S", Align::Right),
        ("P50", Align::Right),
        ("P99", Align::Right),
        ("DEVICE", Align::Right),
        ("PROMISE", Align::Left),
        ("PROMISED", Align::Right),
        ("MEASURED", Align::Right),
        ("SECONDS", Align::Right),
        ("KEPT", Align::Right),
    ]);
    for one in judged {
        let outcome = &one.outcome;
        let fit = if outcome.infeasible.is_empty() {
            ""
        } else {
            ", promises do not all fit the device"
        };
        let heading = format!(
            "{}: {}, {} requests in {} s, device busy {:.1} %{fit}",
            one.place.name(),
            one.policy,
            outcome.requests,
            outcome.seconds,
            100.0 * outcome.work,
        );
        table.line(Cell::from(heading).tone(Tone::Strong));
        for vm in &outcome.vms {
            rows(&mut table, vm);
        }
    }
    table
}

fn rows(table: &mut Table, vm: &VmOutcome) {
    let own = || {
        [
            Cell::from(vm.name.as_str()),
            format!("{:.0}", vm.iops).into(),
            format!("{:.1}", vm.bytes_per_s / 1e6).into(),
            duration(vm.p50_ns).into(),
            duration(vm.p99_ns).into(),
            format!("{:.1} %", 100.0 * vm.device_time).into(),
        ]
    };
    if vm.promises.is_empty() {
        let none = [Cell::from("-"), "".into(), "".into(), "".into(), "".into()];
        table.row(own().into_iter().chain(none));
    }
    for (n, promise) in vm.promises.iter().enumerate() {
        let first = match n {
            0 => own(),
            _ => core::array::from_fn(|_| Cell::from("")),
        };
        table.row(first.into_iter().chain(of_promise(promise)));
    }
}

fn of_promise(promise: &Promise) -> [Cell; 5] {
    let measured = promise.measured.map(|measured| match measured.unit {
        Unit::Served => format!("{:.1} %", 100.0 * measured.value),
        Unit::P99 => duration(measured.value as u64),
        Unit::Points => format!("{:.1} points off", measured.value),
        Unit::Precision => format!("{:.2} % off", measured.value),
    });
    let tone = match promise.kept {
        Some(true) => Tone::Good,
        Some(false) => Tone::Bad,
        None => Tone::Faint,
    };
    let kept = match (promise.kept, promise.kept_percent()) {
        (Some(false), Some(_)) if promise.part == "share" => "MISSED".to_owned(),
        (Some(true), Some(_)) if promise.part == "share" => "kept".to_owned(),
        (None, Some(_)) if promise.part == "share" => "not judged".to_owned(),
        (_, Some(percent)) => format!("{percent:.1} %"),
        (_, None) => "-".to_owned(),
    };
    [
        promise.part.as_str().into(),
        promise.promised.as_str().into(),
        measured.unwrap_or_default().into(),
        promise.seconds.to_string().into(),
        Cell::from(kept).tone(tone),
    ]
}

/// Returns failing cells, those with the most missed promises first, and the number of passing
/// ones.
fn verdicts(judged: &[Judged]) -> Table {
    let mut failing: Vec<&Judged> = judged.iter().filter(|it| !it.verdict.is_good()).collect();
    failing.sort_by_key(|it| {
        let verdict = &it.verdict;
        core::cmp::Reverse((verdict.missed.len(), verdict.failures.len()))
    });
    let mut table = Table::new([("CELL", Align::Left)]);
    for one in &failing {
        table.line(Cell::from(summary(one)).tone(Tone::Bad));
    }
    let good = judged.len() - failing.len();
    let tone = if failing.is_empty() {
        Tone::Good
    } else {
        Tone::Strong
    };
    let text = format!("{good} of {} cells pass", judged.len());
    table.line(Cell::from(text).tone(tone));
    table
}
