//! `tidegate place host`: lists, adds, drains, resumes and removes hosts.

use anyhow::Result;
use serde::Serialize;
use tidegate_cluster::{Cluster, ClusterState, DaemonSelection, HostRecord};
use tidegate_place::{Bandwidth, HostId};
use tidegate_report::{Align, Cell, Table, Tone};
use tidegate_units::human::bytes_per_s;

use super::errors::problem;
use super::hosts::from_anywhere;
use super::session;
use crate::args::{AddHostArgs, PlaceHostCommand, RemoveHostArgs, StoreArgs};
use crate::output::Output;
use crate::problem::Problem;

pub(super) fn run(command: &PlaceHostCommand, out: Output) -> Result<()> {
    match command {
        PlaceHostCommand::List { store } => list_all(store, out),
        PlaceHostCommand::Add(args) => add(args, out),
        PlaceHostCommand::Drain { name, store } => set_drained(name, true, store, out),
        PlaceHostCommand::Resume { name, store } => set_drained(name, false, store, out),
        PlaceHostCommand::Remove(args) => remove(args, out),
    }
}

/// Prints all hosts.
pub(in crate::commands) fn list_all(store: &StoreArgs, out: Output) -> Result<()> {
    let (all, unchanged) = (DaemonSelection::All, |_: &mut ClusterState| Ok(()));
    session::with_cluster(store, true, all, unchanged, |cluster| list(cluster, out))
}

/// Summary of a host.
#[derive(Serialize)]
struct HostLine {
    host: String,
    bandwidth_bytes_per_s: u64,
    jobs: usize,
    jobs_at_most: usize,
    free_bytes_per_s: u64,
    /// Largest bandwidth that a further job may need.
    takes_up_to_bytes_per_s: u64,
    drained: bool,
    /// Standing reservation of the VMs; absent for a host whose daemon has never joined.
    #[serde(skip_serializing_if = "Option::is_none")]
    reserved_bytes_per_s: Option<u64>,
    /// `joined` or `lost`; absent for a host whose daemon has never joined.
    #[serde(skip_serializing_if = "Option::is_none")]
    member: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    socket: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    device: Option<String>,
}

fn list(cluster: &Cluster<'_>, out: Output) -> Result<()> {
    let line = |(at, host): (usize, &HostRecord)| {
        let view = cluster.pcos().host(HostId(at))?;
        let membership = cluster.state().memberships.get(&host.name);
        Some(HostLine {
            host: host.name.clone(),
            bandwidth_bytes_per_s: host.bandwidth,
            jobs: view.running().len(),
            jobs_at_most: host.max_transfers,
            free_bytes_per_s: view.acceptance().free(),
            takes_up_to_bytes_per_s: view.acceptance().max_rate(),
            drained: host.drained,
            reserved_bytes_per_s: membership.map(|_| cluster.state().reserved(host)),
            member: membership.map(|it| {
                if it.daemon.is_some() {
                    "joined"
                } else {
                    "lost"
                }
            }),
            socket: host.socket.clone(),
            device: host.device.clone(),
        })
    };
    let lines: Vec<_> = cluster
        .state()
        .hosts
        .iter()
        .enumerate()
        .filter_map(line)
        .collect();
    if out.is_json() {
        return out.json(&lines);
    }
    if lines.is_empty() {
        return Ok(out.text("there are no hosts yet\n")?);
    }
    Ok(out.table(&table(&lines))?)
}

fn table(lines: &[HostLine]) -> Table {
    // Without members there is nothing to say about them.
    let has_members = lines.iter().any(|line| line.member.is_some());
    let of_members = [("RESERVED", Align::Right), ("MEMBER", Align::Left)];
    let mut columns = vec![
        ("HOST", Align::Left),
        ("BANDWIDTH", Align::Right),
        ("JOBS", Align::Right),
        ("FREE", Align::Right),
        ("ROOM FOR", Align::Right),
    ];
    columns.extend(of_members.into_iter().filter(|_| has_members));
    columns.push(("DAEMON", Align::Left));
    let mut table = Table::new(columns);
    let rate = |rate: u64| bytes_per_s(rate as f64);
    for line in lines {
        let takes = match (line.drained, line.takes_up_to_bytes_per_s) {
            (true, _) => Cell::from("drained").tone(Tone::Warn),
            (false, 0) => "none".into(),
            (false, most) => rate(most).into(),
        };
        let daemon = match (&line.socket, &line.device) {
            (Some(socket), Some(device)) => format!("{socket}, {device}"),
            (socket, _) => socket.clone().unwrap_or_default(),
        };
        let mut cells = vec![
            Cell::from(line.host.as_str()).tone(Tone::Strong),
            rate(line.bandwidth_bytes_per_s).into(),
            format!("{} of {}", line.jobs, line.jobs_at_most).into(),
            rate(line.free_bytes_per_s).into(),
            takes,
        ];
        if has_members {
            let is_lost = line.member == Some("lost");
            let tone = if is_lost { Tone::Bad } else { Tone::Normal };
            cells.push(
                line.reserved_bytes_per_s
                    .map(rate)
                    .unwrap_or_default()
                    .into(),
            );
            cells.push(Cell::from(line.member.unwrap_or_default()).tone(tone));
        }
        cells.push(daemon.into());
        table.row(cells);
    }
    table
}

fn add(args: &AddHostArgs, out: Output) -> Result<()> {
    let wrong = |error: tidegate_place::BandwidthError| {
        let help = "give the loss with one job, with two, and so on";
        Problem::new(error.to_string()).at("--loss").help(help)
    };
    Bandwidth::new(args.bandwidth, &args.loss).map_err(wrong)?;
    let socket = args.daemon.as_deref().map(from_anywhere).transpose()?;
    let host = HostRecord {
        socket,
        device: args.device.clone(),
        ..HostRecord::new(
            args.name.clone(),
            args.bandwidth,
            args.loss.clone(),
            args.jobs,
        )
    };
    let add = |state: &mut ClusterState| state.add_host(host.clone());
    session::with_cluster(&args.store, false, DaemonSelection::All, add, |cluster| {
        finish(cluster, out)
    })
}

/// Tries to place the waiting jobs, saves, and prints the hosts.
fn finish(cluster: &mut Cluster<'_>, out: Output) -> Result<()> {
    cluster.retry_and_save().map_err(problem)?;
    list(cluster, out)
}

/// Drains a host, or ends its draining, and prints all hosts.
pub(in crate::commands) fn set_drained(
    name: &str,
    drained: bool,
    store: &StoreArgs,
    out: Output,
) -> Result<()> {
    let set = |state: &mut ClusterState| state.set_drained(name, drained);
    session::with_cluster(store, false, DaemonSelection::All, set, |cluster| {
        finish(cluster, out)
    })
}

fn remove(args: &RemoveHostArgs, out: Output) -> Result<()> {
    let name = args.name.as_str();
    let check = |state: &mut ClusterState| {
        if state.host(name).is_none() && state.is_lost(name) {
            // Published by a daemon of that name, which has gone.
            state.memberships.remove(name);
            Ok(())
        } else if args.requeue || args.lose {
            state.known_host(name).map(drop)
        } else {
            state.check_empty(name)
        }
    };
    let others = DaemonSelection::AllExcept(name);
    session::with_cluster(&args.store, false, others, check, |cluster| {
        if cluster.state().host(name).is_none() {
            return finish(cluster, out);
        }
        cluster.remove_host(name, args.requeue).map_err(problem)?;
        list(cluster, out)
    })
}
