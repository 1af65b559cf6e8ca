//! `tidegate transfer`: deadline transfers of VMs, with progress and forecast.

mod wait;

use anyhow::Result;
use hyper::Method;
use serde_json::Value;
use tidegate_api::query::{TransferQuery, percent_encode};
use tidegate_api::transfer::{EndedTransferView, TransferRequest, TransferView, VmTransfersView};
use tidegate_report::{Align, Cell, Table, Tone};
use tidegate_units::human::{bytes, bytes_per_s, percent};

use crate::args::{StartTransferArgs, TransferCommand};
use crate::client::{Client, read};
use crate::output::Output;

pub(super) fn run(command: &TransferCommand, client: &Client, out: Output) -> Result<()> {
    match command {
        TransferCommand::Start(args) => start(args, client, out),
        TransferCommand::List => list(client, out),
        TransferCommand::Show { vm } => show(client.get(&path(vm))?, out),
        TransferCommand::Cancel { vm } => show(client.change(Method::DELETE, &path(vm), &())?, out),
    }
}

/// Returns the API's path of a VM's transfers.
fn path(vm: &str) -> String {
    format!("/v1/vms/{}/job", percent_encode(vm))
}

fn start(args: &StartTransferArgs, client: &Client, out: Output) -> Result<()> {
    let query = TransferQuery {
        replace: args.replace,
        force: args.force,
    };
    let place = format!("{}{query}", path(&args.vm));
    let answer = client.change(Method::PUT, &place, &request(args))?;
    if args.wait {
        wait::until_end(&path(&args.vm), read(answer)?, client, out)
    } else {
        show(answer, out)
    }
}

/// Returns the deadline transfer that the options describe.
fn request(args: &StartTransferArgs) -> TransferRequest {
    TransferRequest {
        size: args.size.clone(),
        deadline: args.deadline.clone(),
        by: args.by.clone(),
        tolerance: args.tolerance,
        placement: None,
    }
}

fn list(client: &Client, out: Output) -> Result<()> {
    let answer = client.get("/v1/jobs")?;
    if out.is_json() {
        return out.json(&answer);
    }
    let all: Vec<VmTransfersView> = read(answer)?;
    if all.is_empty() {
        let text = "no transfers since the daemon started\n";
        return Ok(out.text(text)?);
    }
    let mut table = Table::new([
        ("VM", Align::Left),
        ("DEVICE", Align::Left),
        ("SIZE", Align::Right),
        ("DONE", Align::Right),
        ("RATE", Align::Right),
        ("DEADLINE", Align::Left),
        ("I/O CLASS", Align::Left),
        ("FORECAST", Align::Left),
    ]);
    for row in all.iter().filter_map(row) {
        table.row(row);
    }
    Ok(out.table(&table)?)
}

/// Returns the row of a VM: its running transfer or the last one, so that each VM has one row;
/// `None` if it has had no transfer.
pub(super) fn row(vm: &VmTransfersView) -> Option<[Cell; 8]> {
    match (&vm.transfer, &vm.last) {
        (Some(transfer), _) => Some(running_row(vm, transfer)),
        (None, Some(transfer)) => Some(ended_row(vm, transfer)),
        (None, None) => None,
    }
}

/// Returns the row of a running transfer.
fn running_row(vm: &VmTransfersView, transfer: &TransferView) -> [Cell; 8] {
    [
        Cell::from(vm.vm.as_str()).tone(Tone::Strong),
        vm.device.as_str().into(),
        bytes(transfer.size_bytes).into(),
        percent(transfer.moved_bytes as f64, transfer.size_bytes as f64).into(),
        rate(transfer).into(),
        clock(&transfer.due).into(),
        transfer.class.as_str().into(),
        forecast(transfer),
    ]
}

/// Returns the row of a VM's last transfer.
fn ended_row(vm: &VmTransfersView, transfer: &EndedTransferView) -> [Cell; 8] {
    [
        Cell::from(vm.vm.as_str()).tone(Tone::Strong),
        vm.device.as_str().into(),
        bytes(transfer.size_bytes).into(),
        percent(transfer.moved_bytes as f64, transfer.size_bytes as f64).into(),
        "".into(),
        clock(&transfer.due).into(),
        "".into(),
        ended(transfer),
    ]
}

/// Prints the transfers of a VM.
fn show(answer: Value, out: Output) -> Result<()> {
    if out.is_json() {
        return out.json(&answer);
    }
    Ok(out.table(&describe(&read(answer)?))?)
}

fn describe(vm: &VmTransfersView) -> Table {
    let mut table = Table::properties();
    let place = format!("{}, policy {}", vm.device, vm.policy);
    table
        .property("VM", Cell::from(vm.vm.as_str()).tone(Tone::Strong))
        .property("device", place);
    match &vm.transfer {
        Some(transfer) => add_properties(&mut table, transfer),
        None => _ = table.property("transfer", "none"),
    }
    if let Some(last) = &vm.last {
        let text = format!("{} by {}: ", bytes(last.size_bytes), clock(&last.due));
        table.property("last transfer", ended_after(&text, last));
    }
    let over = &vm.ended;
    if over.met + over.missed + over.cancelled > 0 {
        let [met, missed, cancelled] = [over.met, over.missed, over.cancelled];
        let text =
            format!("{met} met, {missed} missed, {cancelled} cancelled since the daemon started");
        table.property("ended", text);
    }
    table
}

fn add_properties(table: &mut Table, transfer: &TransferView) {
    let done = percent(transfer.moved_bytes as f64, transfer.size_bytes as f64);
    let (moved, size) = (bytes(transfer.moved_bytes), bytes(transfer.size_bytes));
    table
        .property("transfer", format!("{size} by {}", clock(&transfer.due)))
        .property("started", clock(&transfer.begun))
        .property("done", format!("{moved}, {done}"))
        .property("rate", rate(transfer))
        .property("I/O class", transfer.class.as_str())
        .property("forecast", forecast(transfer));
    for note in &transfer.notes {
        table.property("note", Cell::from(note.as_str()).tone(Tone::Warn));
    }
}

/// Returns a transfer on one line, for `vm show`.
pub(super) fn in_line(transfer: &TransferView) -> Cell {
    let done = percent(transfer.moved_bytes as f64, transfer.size_bytes as f64);
    let (size, due) = (bytes(transfer.size_bytes), clock(&transfer.due));
    let text = format!("{size} by {due}, {done} done: {}", transfer.forecast);
    Cell::from(text).tone(tone(transfer))
}

fn rate(transfer: &TransferView) -> String {
    match transfer.bytes_per_s {
        Some(rate) => bytes_per_s(rate as f64),
        None => "not measured yet".to_owned(),
    }
}

fn forecast(transfer: &TransferView) -> Cell {
    Cell::from(transfer.forecast.as_str()).tone(tone(transfer))
}

/// Returns the tone of a forecast: good if in time, bad if late.
fn tone(transfer: &TransferView) -> Tone {
    match transfer.early_s {
        Some(early) if early >= 0.0 => Tone::Good,
        // Without a measured rate there is no forecast yet, so the missing end is no bad news.
        None if transfer.bytes_per_s.is_none() => Tone::Normal,
        _ => Tone::Bad,
    }
}

fn ended(transfer: &EndedTransferView) -> Cell {
    ended_after("", transfer)
}

fn ended_after(before: &str, transfer: &EndedTransferView) -> Cell {
    let tone = match transfer.outcome.as_str() {
        "met" => Tone::Good,
        "missed" => Tone::Bad,
        _ => Tone::Warn,
    };
    Cell::from(format!("{before}{}", transfer.result)).tone(tone)
}

/// Shortens `2026-11-22T14:03:10.25+01:00[Europe/Berlin]` to `2026-11-22 14:03:10`.
fn clock(text: &str) -> String {
    // Date and time of ISO 8601 to the second, without fraction, offset and zone.
    match text.get(..19) {
        Some(clock) => clock.replacen('T', " ", 1),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Args, Command};
    use clap::Parser;
    use serde_json::json;

    #[test]
    fn what_is_typed_becomes_a_transfer() {
        let typed = |more: &[&str]| {
            let line = ["tidegate", "transfer", "start", "dss", "--size", "2 GiB"].iter();
            let args = Args::try_parse_from(line.chain(more)).expect("good");
            match args.command {
                Command::Transfer(TransferCommand::Start(args)) => {
                    serde_json::to_value(request(&args)).expect("plain data")
                }
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(
            typed(&["--deadline", "60 s"]),
            json!({ "size": "2 GiB", "deadline": "60 s" })
        );
        assert_eq!(
            typed(&["--by", "14:03", "--wait"]),
            json!({ "size": "2 GiB", "by": "14:03" })
        );
        assert_eq!(
            typed(&["--tolerance", "0.3"]),
            json!({ "size": "2 GiB", "tolerance": 0.3 })
        );
    }

    #[test]
    fn times_are_shown_to_the_second() {
        let shown = clock("2026-11-22T14:03:10.25+01:00[Europe/Berlin]");
        assert_eq!(shown, "2026-11-22 14:03:10");
        assert_eq!(clock("soon"), "soon");
    }
}
