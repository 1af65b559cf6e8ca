//! `tidegate device`: what disks lie on.

use anyhow::Result;
use tidegate_api::device::{CapView, CostView, CostsView, DeviceView, DriftView, SteppedDownView};
use tidegate_report::{Align, Cell, Table, Tone};
use tidegate_units::format_bandwidth;
use tidegate_units::human::{bytes, count, duration, exact_bytes};

use super::show;
use crate::args::DeviceCommand;
use crate::client::{Client, escape, read};
use crate::output::Output;

pub(super) fn run(command: DeviceCommand, client: &Client, out: Output) -> Result<()> {
    match command {
        DeviceCommand::List => list(client, out),
        DeviceCommand::Show { name } => {
            let answer = client.get(&format!("/v1/devices/{}", escape(&name)))?;
            if out.is_json() {
                return out.json(&answer);
            }
            Ok(out.table(&describe(&read(answer)?))?)
        }
    }
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
        ("QUEUED", Align::Right),
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

pub(super) fn describe(device: &DeviceView) -> Table {
    let mut table = Table::facts();
    table
        .fact(
            "device",
            Cell::from(device.name.as_str()).tone(Tone::Strong),
        )
        .fact("backing", device.backing.as_str())
        .fact("policy", show::with_parts(&device.policy))
        .fact("enforces", show::enforces(&device.policy.enforces));
    for (i, param) in device.policy.params.iter().enumerate() {
        let name = if i == 0 { "parameters" } else { "" };
        table.fact(name, format!("{} = {}", param.name, param.value));
    }
    table
        .fact("depth", depth(device))
        .fact("largest I/O", exact_bytes(device.max_io_bytes.into()))
        .fact(
            "now",
            format!(
                "{} in flight, {} units queued, {} requests inside",
                device.in_flight, device.queued, device.requests
            ),
        )
        .fact(
            "I/Os",
            format!(
                "{} started, {} ended, {} failed",
                count(device.started),
                count(device.ended),
                count(device.errors)
            ),
        )
        .fact("idle on purpose", idle(device));
    if let Some(age) = device.oldest_io_ns {
        table.fact("oldest I/O", duration(age));
    }
    if device.uncounted > 0 {
        let ios = count(u64::from(device.uncounted));
        let text = format!("{ios} I/Os of disks that hang do not count against the depth");
        table.fact("", Cell::from(text).tone(Tone::Bad));
    }
    promises(&mut table, device);
    if let Some(drift) = &device.drift {
        table.fact("profile", compared(drift));
    }
    if let Some(cap) = &device.learnt_cap {
        table.fact("learnt cap", capped(cap));
    }
    if let Some(costs) = &device.learnt_costs {
        for (i, line) in learnt(costs).into_iter().enumerate() {
            table.fact(if i == 0 { "learnt costs" } else { "" }, line);
        }
    }
    table.fact("VMs", device.vms.join(", "));
    if !device.disks_with_faults.is_empty() {
        let disks = device.disks_with_faults.join(", ");
        let text = format!("disks that misbehave on purpose: {disks}");
        table.fact("fault rules", Cell::from(text).tone(Tone::Warn));
    }
    for (i, part) in device.not_enforced.iter().enumerate() {
        let name = if i == 0 { "not enforced" } else { "" };
        let cell = show::not_enforced(&device.policy.name, &part.part);
        table.fact(name, Cell::new(format!("vm {}: ", part.vm)).append(cell));
    }
    table
}

/// Configured depth, and the one in force with its reason.
fn depth(device: &DeviceView) -> String {
    match device.adapted_depth {
        None => device.depth.to_string(),
        Some(adapted) => {
            let reason = device.depth_reason.as_deref().unwrap_or("adapted");
            format!("{adapted} of {}: {reason}", device.depth)
        }
    }
}

/// What follows for the device from all that is promised on it.
fn promises(table: &mut Table, device: &DeviceView) {
    table.fact("promises", feasible(device));
    if let Some(bound) = bound(device) {
        table.fact("", format!("at most {bound} in flight, for the bounds"));
    }
    if let Some(down) = &device.stepped_down {
        table.fact("given way", Cell::from(given_way(down)).tone(Tone::Bad));
    }
    // Daemons of earlier versions do not say it.
    if device.blocking_ns > 0 {
        let blocking = duration(device.blocking_ns);
        let text = format!("{blocking}, by which a floor may be late");
        table.fact("blocking", text);
    }
}

/// Returns the promises that have given way, such as "background, 2 latency bounds: the device is
/// slower than promised".
fn given_way(down: &SteppedDownView) -> String {
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
    format!("{}: the device is slower than promised", kinds.join(", "))
}

/// Whether everything that is promised fits the device.
fn feasible(device: &DeviceView) -> Cell {
    let Some(found) = &device.feasibility else {
        let text = "not yet known whether they fit: it takes a profile, or costs that were learnt";
        return Cell::from(text).tone(Tone::Warn);
    };
    let costs = match found.learnt {
        true => "by learnt costs",
        false => "by the profile",
    };
    match found.fits {
        true => Cell::from(format!("fit, {costs}")).tone(Tone::Good),
        false => Cell::from(format!("do not fit, {costs}")).tone(Tone::Bad),
    }
}

/// I/Os in flight that latency bounds leave; `None`: as many as are configured.
fn bound(device: &DeviceView) -> Option<u32> {
    let bound = device.feasibility?.depth_bound;
    (bound < device.depth).then_some(bound)
}

/// How the device compares with its profile.
fn compared(drift: &DriftView) -> Cell {
    let DriftView { ratio, spread, .. } = drift;
    let judged = match drift.seconds_judged {
        0 if drift.too_shallow => format!(
            "nothing to compare: it takes {} in flight, more than its depth",
            drift.enough_in_flight
        ),
        0 => format!(
            "nothing to compare yet: it takes a second with {} in flight",
            drift.enough_in_flight
        ),
        seconds => format!(
            "{} s judged, an I/O takes {ratio:.2} times as long as it says (+-{spread:.2})",
            count(seconds)
        ),
    };
    match drift.parted.as_deref() {
        None => Cell::new(judged),
        Some(side) => Cell::from(format!("{side} than its profile"))
            .tone(Tone::Bad)
            .append(Cell::new(format!(": {judged}"))),
    }
}

/// What I/Os cost, a kind a line, and how sure that is.
fn learnt(costs: &CostsView) -> Vec<Cell> {
    if costs.kinds.is_empty() {
        let text = "nothing yet: it takes a device that is full for some seconds";
        return vec![Cell::from(text).tone(Tone::Warn)];
    }
    let line = |cost: &CostView| {
        let text = format!(
            "{} of {}: {} of the device +-{:.0} %, from {} I/Os",
            cost.kind,
            bytes(cost.size_bytes.into()),
            duration(cost.time_ns as u64),
            cost.within * 100.0,
            count(cost.ios)
        );
        match cost.known {
            true => Cell::new(text),
            false => Cell::new(text).append(Cell::from(", not known well").tone(Tone::Warn)),
        }
    };
    costs.kinds.iter().map(line).collect()
}

/// The cap that I/Os are held to.
fn capped(cap: &CapView) -> String {
    let iops = cap.iops.map(|iops| format!("{iops:.0} IOPS"));
    let bytes = cap.bytes_per_s.map(format_bandwidth);
    let all: Vec<String> = iops.into_iter().chain(bytes).collect();
    let all = all.join(if cap.either { " or " } else { " and " });
    format!("{all} let pass by something in front of the device; I/Os go at 97 % of it")
}

/// How long the device was left idle on purpose, and whether what was waited for came.
fn idle(device: &DeviceView) -> String {
    let time = duration(device.deliberate_ns);
    match device.waits {
        None => time,
        Some(waits) => format!(
            "{time}; under this policy {} waits, of which {} for a request that came",
            count(waits.begun),
            count(waits.succeeded)
        ),
    }
}
