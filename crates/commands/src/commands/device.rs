//! `tidegate device`: the devices that store disks.

use anyhow::Result;
use hyper::Method;
use tidegate_api::budget::{DeviceBudgetView, PromisesView};
use tidegate_api::device::{
    CapView, CostView, CostsView, DeviceView, DriftView, ExchangeView, SteppedDownView,
};
use tidegate_api::query::percent_encode;
use tidegate_api::recording::RecordingsView;
use tidegate_report::{Align, Cell, Table, Tone};
use tidegate_units::format_bandwidth;
use tidegate_units::human::{bytes, count, duration, exact_bytes, percent};

use super::wording;
use crate::args::DeviceCommand;
use crate::client::{Client, read};
use crate::objective_line;
use crate::output::Output;
use crate::problem::Problem;

pub(super) fn run(command: DeviceCommand, client: &Client, out: Output) -> Result<()> {
    match command {
        DeviceCommand::List => list(client, out),
        DeviceCommand::Show { name } => {
            let answer = client.get(&format!("/v1/devices/{}", percent_encode(&name)))?;
            if out.is_json() {
                return out.json(&answer);
            }
            Ok(out.table(&describe(&read(answer)?))?)
        }
        DeviceCommand::Budget => {
            let answer = client.get("/v1/budget")?;
            if out.is_json() {
                return out.json(&answer);
            }
            Ok(out.table(&budget_table(&read::<Vec<DeviceBudgetView>>(answer)?))?)
        }
        DeviceCommand::Limit(args) => {
            let (device, group) = (percent_encode(&args.device), percent_encode(&args.group));
            let path = format!("/v1/devices/{device}/limit_groups/{group}");
            let answer = client.change(Method::PATCH, &path, &args.limit.change())?;
            if out.is_json() {
                return out.json(&answer);
            }
            let keep = format!(
                "set the limit of [[device.limit_group]] {:?} in the configuration to keep it",
                args.group
            );
            Ok(out.table(&describe_change(&read(answer)?, &keep))?)
        }
    }
}

/// Returns the table of a device that was just changed, with a note that a restart of the daemon
/// would lose the change. `keep`: the way to keep it.
pub(super) fn describe_change(device: &DeviceView, keep: &str) -> Table {
    let mut table = describe(device);
    let note = format!("a restart of the daemon would lose this change: {keep}");
    table.property("note", Cell::from(note).tone(Tone::Warn));
    table
}

/// Returns the device that is meant where none is named: the only one. `command`: what the name is
/// to be added to, as in `tidegate record on`.
pub(super) fn only(command: &str, client: &Client) -> Result<String> {
    // The daemon answers it without its devices, of which one may hang.
    let all: RecordingsView = read(client.get("/v1/recordings")?)?;
    match &all.devices[..] {
        [one] => Ok(one.device.clone()),
        devices => {
            let names: Vec<&str> = devices.iter().map(|it| it.device.as_str()).collect();
            Err(several(command, &names).into())
        }
    }
}

/// Returns the error for a command that names none of several devices.
fn several(command: &str, names: &[&str]) -> Problem {
    let example = names.first().map_or(String::new(), |name| {
        format!("`{command} {name}`; one of: ")
    });
    Problem::new("there are several devices: name one")
        .help(format!("{example}{}", names.join(", ")))
}

fn list(client: &Client, out: Output) -> Result<()> {
    let answer = client.get("/v1/devices")?;
    if out.is_json() {
        return out.json(&answer);
    }
    let devices: Vec<DeviceView> = read(answer)?;
    let mut table = Table::new([
        ("DEVICE", Align::Left),
        ("BACKING", Align::Left),
        ("POLICY", Align::Left),
        ("IN FLIGHT", Align::Right),
        ("WAITING", Align::Right),
        ("I/OS", Align::Right),
        ("FAILED", Align::Right),
        ("VMS", Align::Left),
    ]);
    for device in &devices {
        let failed = Cell::from(count(device.errors));
        table.row([
            Cell::from(device.name.as_str()).tone(Tone::Strong),
            device.backing.as_str().into(),
            device.policy.name.as_str().into(),
            format!("{} / {}", device.in_flight, device.depth).into(),
            device.queued.to_string().into(),
            count(device.ended).into(),
            if device.errors > 0 {
                failed.tone(Tone::Bad)
            } else {
                failed
            },
            device.vms.join(", ").into(),
        ]);
    }
    Ok(out.table(&table)?)
}

/// Returns a row for each device with what it can still promise.
fn budget_table(budgets: &[DeviceBudgetView]) -> Table {
    let mut table = Table::new([
        ("DEVICE", Align::Left),
        ("PROMISED", Align::Right),
        ("RESERVATION", Align::Right),
        ("BANDWIDTH", Align::Right),
        ("LATENCY", Align::Right),
        ("TRANSFER", Align::Right),
        ("DISKS", Align::Right),
        ("REASON", Align::Left),
    ]);
    for budget in budgets {
        let unknown = || "-".to_owned();
        let with = |figure: fn(&PromisesView) -> Option<String>| {
            let figure = budget.available.as_ref().and_then(figure);
            Cell::from(figure.unwrap_or_else(unknown))
        };
        let used = budget.used_thousandths.map(f64::from);
        table.row([
            Cell::from(budget.device.as_str()).tone(Tone::Strong),
            used.map_or_else(unknown, |used| percent(used, 1000.0))
                .into(),
            with(|it| Some(format!("{} IOPS", it.reservation_iops))),
            with(|it| Some(format_bandwidth(it.reservation_bytes_per_s))),
            with(|it| it.latency_ns.map(duration)),
            with(|it| Some(format_bandwidth(it.transfer_bytes_per_s))),
            with(|it| it.disk_bytes.map(bytes)),
            budget.reason.as_deref().unwrap_or_default().into(),
        ]);
    }
    table
}

/// Adds the VMs of a device, and the limits that their disks share.
fn vm_properties(table: &mut Table, device: &DeviceView) {
    table.property("VMs", device.vms.join(", "));
    for group in &device.limit_groups {
        let limit = group.limit.as_ref();
        let limit = limit.map_or("none".into(), objective_line::limit);
        table.property("limit group", format!("{}: {limit}", group.name));
    }
}

/// Returns the table of a device's configuration and state.
pub(super) fn describe(device: &DeviceView) -> Table {
    let mut table = Table::properties();
    table
        .property(
            "device",
            Cell::from(device.name.as_str()).tone(Tone::Strong),
        )
        .property("backing", device.backing.as_str())
        .property("policy", wording::with_parts(&device.policy))
        .property("enforces", wording::enforces(&device.policy.enforces));
    for (i, param) in device.policy.params.iter().enumerate() {
        let name = if i == 0 { "parameters" } else { "" };
        table.property(name, format!("{} = {}", param.name, param.value));
    }
    table
        .property("queue depth", depth(device))
        .property("largest I/O", exact_bytes(device.max_io_bytes.into()))
        .property(
            "requests",
            format!(
                "{} waiting (after merging), {} I/Os in flight; {} guest requests not yet answered",
                device.queued, device.in_flight, device.requests
            ),
        )
        .property(
            "I/Os",
            format!(
                "{} started, {} completed, {} failed",
                count(device.started),
                count(device.ended),
                count(device.errors)
            ),
        )
        .property("anticipation", anticipation(device));
    if let Some(age) = device.oldest_io_ns {
        table.property("oldest I/O", duration(age));
    }
    if device.uncounted > 0 {
        let ios = count(u64::from(device.uncounted));
        let text = format!("{ios} I/Os of hung disks, not counted against the queue depth");
        table.property("", Cell::from(text).tone(Tone::Bad));
    }
    promise_properties(&mut table, device);
    if let Some(drift) = &device.drift {
        table.property("profile", drift_text(drift));
    }
    if let Some(cap) = &device.learnt_cap {
        table.property("learnt cap", cap_text(cap));
    }
    if let Some(costs) = &device.learnt_costs {
        for (i, line) in cost_lines(costs).into_iter().enumerate() {
            table.property(if i == 0 { "learnt costs" } else { "" }, line);
        }
    }
    vm_properties(&mut table, device);
    if !device.disks_with_faults.is_empty() {
        let disks = device.disks_with_faults.join(", ");
        let text = format!("active for disks: {disks}");
        table.property("fault injection", Cell::from(text).tone(Tone::Warn));
    }
    if let Some(exchange) = &device.exchange {
        exchange_properties(&mut table, exchange);
    }
    for (i, part) in device.not_enforced.iter().enumerate() {
        let name = if i == 0 { "not enforced" } else { "" };
        let cell = wording::not_enforced(&device.policy.name, &part.part);
        table.property(name, Cell::new(format!("vm {}: ", part.vm)).append(cell));
    }
    table
}

/// Adds the hosts that share the device.
fn exchange_properties(table: &mut Table, exchange: &ExchangeView) {
    let ExchangeView { cluster, array, .. } = exchange;
    let server = match (exchange.connected, &exchange.last_error) {
        (true, _) => "connected".to_owned(),
        (false, None) => "the NATS server is away".to_owned(),
        (false, Some(error)) => format!("the NATS server is away: {error}"),
    };
    let tone = if exchange.connected && !exchange.cut_off {
        Tone::Good
    } else {
        Tone::Bad
    };
    let text = format!("array {array} of cluster {cluster}: {server}");
    table.property("exchange", Cell::from(text).tone(tone));
    let (weight, most) = (exchange.weight, exchange.weight_max);
    let host = &exchange.host;
    let own = if exchange.cut_off {
        format!("{host}: no other host is heard, so it holds to {most}")
    } else {
        format!("{host}: weight {weight:.0} of at most {most}")
    };
    table.property("", own);
    for peer in &exchange.peers {
        let (host, weight, most) = (&peer.host, peer.weight, peer.weight_max);
        table.property(
            "",
            match peer.presence.as_str() {
                "live" => Cell::from(format!("{host}: weight {weight:.0} of at most {most}")),
                "silent" => Cell::from(format!("{host}: silent, weight {most} is left to it"))
                    .tone(Tone::Warn),
                presence => Cell::from(format!("{host}: {presence}")),
            },
        );
    }
    let ignored = exchange.ignored.iter();
    let ignored: Vec<String> = ignored
        .map(|(why, count)| format!("{count} {why}"))
        .collect();
    if !ignored.is_empty() {
        table.property("ignored messages", ignored.join(", "));
    }
}

/// Returns the configured queue depth, and the adapted one with its reason.
fn depth(device: &DeviceView) -> String {
    match device.adapted_depth {
        None => device.depth.to_string(),
        Some(adapted) => {
            let reason = device.depth_reason.as_deref().unwrap_or("adapted");
            format!("{adapted} (maximum {}): {reason}", device.depth)
        }
    }
}

/// Adds the feasibility of all promises on the device, and its consequences.
fn promise_properties(table: &mut Table, device: &DeviceView) {
    table.property("feasibility", feasibility_text(device));
    if let Some(bound) = latency_depth_bound(device) {
        table.property(
            "",
            format!("at most {bound} I/Os in flight, because of latency bounds"),
        );
    }
    if let Some(down) = &device.stepped_down {
        table.property(
            "reduced promises",
            Cell::from(reduced_promises(down)).tone(Tone::Bad),
        );
    }
    if let Some(rate) = device.write_pace_bytes_per_s {
        let rate = format!("{}/s", bytes(rate));
        let text = format!("writes beyond promises have {rate}, for promised requests' sake");
        table.property("write pace", text);
    }
    // Older daemons do not report it: 0.
    if device.blocking_ns > 0 {
        let blocking = duration(device.blocking_ns);
        let text = format!("a request within its reservation may be up to {blocking} late");
        table.property("blocking", text);
    }
}

/// Returns in one cell what is wrong with a device's promises, or with the device; empty if nothing
/// is.
pub(super) fn warning(device: &DeviceView) -> Cell {
    if let Some(down) = &device.stepped_down {
        return Cell::from(reduced_promises(down)).tone(Tone::Bad);
    }
    match (device.feasibility, &device.drift) {
        (Some(feasibility), _) if !feasibility.fits => feasibility_text(device),
        (_, Some(drift)) if drift.direction.is_some() => drift_text(drift),
        _ => Cell::default(),
    }
}

/// Returns the promises that are reduced because the device is slow, such as "background, 2 latency
/// bounds: the device is slower than promised".
fn reduced_promises(down: &SteppedDownView) -> String {
    let counted = |count: u32, one: &str| {
        let plural = if count == 1 { "" } else { "s" };
        (count > 0).then(|| format!("{count} {one}{plural}"))
    };
    let kinds = [
        down.background.then(|| "background".to_owned()),
        counted(down.transfers, "deadline transfer"),
        counted(down.targets, "target"),
        counted(down.latencies, "latency bound"),
    ];
    let kinds: Vec<String> = kinds.into_iter().flatten().collect();
    // A daemon of another version may name kinds that this one does not know.
    if kinds.is_empty() {
        return "the device is slower than promised".to_owned();
    }
    format!("{}: the device is slower than promised", kinds.join(", "))
}

/// Returns the feasibility of all promises on the device as text.
fn feasibility_text(device: &DeviceView) -> Cell {
    let Some(feasibility) = &device.feasibility else {
        let text = "not yet known: needs a profile, or more learnt costs";
        return Cell::from(text).tone(Tone::Warn);
    };
    // A profile, where there is one, takes precedence over learnt costs.
    let costs = if feasibility.learnt {
        "by learnt costs"
    } else {
        "by the profile"
    };
    if feasibility.fits {
        Cell::from(format!("all promises fit, {costs}")).tone(Tone::Good)
    } else {
        Cell::from(format!("the promises do not fit, {costs}")).tone(Tone::Bad)
    }
}

/// Returns the queue depth that latency bounds allow, if it is below the configured depth.
fn latency_depth_bound(device: &DeviceView) -> Option<u32> {
    let bound = device.feasibility?.depth_bound;
    (bound < device.depth).then_some(bound)
}

/// Returns the comparison of the device with its profile.
fn drift_text(drift: &DriftView) -> Cell {
    let DriftView { ratio, spread, .. } = drift;
    let judged = match drift.seconds_judged {
        // No second will ever have enough I/Os in flight, so waiting does not help.
        0 if drift.too_shallow => format!(
            "cannot be compared: needs {} I/Os in flight, more than the queue depth",
            drift.enough_in_flight
        ),
        0 => format!(
            "not compared yet: needs a second with {} I/Os in flight",
            drift.enough_in_flight
        ),
        seconds => format!(
            "over {} s I/Os took {ratio:.2} +- {spread:.2} times as long as in the profile",
            count(seconds)
        ),
    };
    match drift.direction.as_deref() {
        None => Cell::new(judged),
        Some(side) => Cell::from(format!("{side} than its profile"))
            .tone(Tone::Bad)
            .append(Cell::new(format!(": {judged}"))),
    }
}

/// Returns the learnt cost of each kind of I/O with its uncertainty.
fn cost_lines(costs: &CostsView) -> Vec<Cell> {
    if costs.kinds.is_empty() {
        let text = "none yet: needs some seconds with the device saturated";
        return vec![Cell::from(text).tone(Tone::Warn)];
    }
    let line = |cost: &CostView| {
        let text = format!(
            "{} of {}: {} of device time +-{:.0} %, from {} I/Os",
            cost.kind,
            bytes(cost.size_bytes.into()),
            duration(cost.time_ns as u64),
            cost.relative_half_width * 100.0,
            count(cost.ios)
        );
        if cost.known {
            Cell::new(text)
        } else {
            Cell::new(text).append(Cell::from(", still imprecise").tone(Tone::Warn))
        }
    };
    costs.kinds.iter().map(line).collect()
}

/// Part of a learnt cap at which the daemon issues I/Os, in per cent: the engine paces them at
/// 62/64 of the cap (`PACE_64THS`).
const CAP_PACE_PERCENT: u32 = 97;

/// Returns the learnt cap with the pace of I/Os below it, as text.
fn cap_text(cap: &CapView) -> String {
    let iops = cap.iops.map(|iops| format!("{iops:.0} IOPS"));
    let bytes = cap.bytes_per_s.map(format_bandwidth);
    let all: Vec<String> = iops.into_iter().chain(bytes).collect();
    let all = all.join(if cap.either { " or " } else { " and " });
    format!("{all}, imposed below this device; I/Os are issued at {CAP_PACE_PERCENT} % of it")
}

/// Returns the time for which the policy kept the device idle for expected requests, and how often
/// such a request arrived.
fn anticipation(device: &DeviceView) -> String {
    let time = match device.deliberate_ns {
        0 => "none".to_owned(),
        ns => format!("device kept idle for {}", duration(ns)),
    };
    match device.waits {
        None => time,
        Some(waits) => format!(
            "{time}; {} waits under this policy, {} successful",
            count(waits.begun),
            count(waits.succeeded)
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_names_no_device_is_shown_with_one() {
        let text = several("tidegate record on", &["ssd", "hdd"]).to_string();
        let help = "`tidegate record on ssd`; one of: ssd, hdd";
        assert!(text.contains(help), "{text}");
    }

    #[test]
    fn reduced_promises_are_counted_by_kind() {
        let none = SteppedDownView {
            background: false,
            transfers: 0,
            targets: 0,
            latencies: 0,
        };
        let text = "the device is slower than promised";
        assert_eq!(reduced_promises(&none), text);
        let some = SteppedDownView {
            background: true,
            targets: 1,
            latencies: 2,
            ..none
        };
        assert_eq!(
            reduced_promises(&some),
            format!("background, 1 target, 2 latency bounds: {text}")
        );
    }
}
