//! `tidegate place host`: hosts one by one.

use anyhow::Result;
use serde::Serialize;
use tidegate_core::time::Nanos;
use tidegate_place::{Answer, Bandwidth, HostId, Outcome, Request, Running};
use tidegate_report::{Align, Cell, Table, Tone, bytes, bytes_per_s};

use super::hosts::from_anywhere;
use super::kept::{Kept, KeptHost, KeptRequest};
use super::live::Ask;
use super::state::Place;
use crate::args::{AddHostArgs, DbArg, PlaceHostCommand, RemoveHostArgs};
use crate::output::{Output, tell};
use crate::problem::Problem;

pub(super) fn run(command: &PlaceHostCommand, out: Output) -> Result<()> {
    match command {
        PlaceHostCommand::List { db } => {
            let place = Place::open_after(&db.path, true, Ask::All, |_| Ok(()))?;
            list(&place, out)
        }
        PlaceHostCommand::Add(args) => add(args, out),
        PlaceHostCommand::Drain { name, db } => set_drained(name, true, db, out),
        PlaceHostCommand::Resume { name, db } => set_drained(name, false, db, out),
        PlaceHostCommand::Remove(args) => remove(args, out),
    }
}

/// A host, in short.
#[derive(Serialize)]
struct HostLine {
    host: String,
    bandwidth_bytes_per_s: u64,
    jobs: usize,
    jobs_at_most: usize,
    free_bytes_per_s: u64,
    /// What one more might need.
    takes_up_to_bytes_per_s: u64,
    drained: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    socket: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    device: Option<String>,
}

fn list(place: &Place, out: Output) -> Result<()> {
    let line = |(at, host): (usize, &KeptHost)| {
        let view = place.pcos.host(HostId(at))?;
        Some(HostLine {
            host: host.name.clone(),
            bandwidth_bytes_per_s: host.bandwidth,
            jobs: view.running().len(),
            jobs_at_most: host.jobs,
            free_bytes_per_s: view.acceptance().free(),
            takes_up_to_bytes_per_s: view.acceptance().most(),
            drained: host.drained,
            socket: host.socket.clone(),
            device: host.device.clone(),
        })
    };
    let lines: Vec<_> = place
        .kept
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
    let mut table = Table::new([
        ("HOST", Align::Left),
        ("BANDWIDTH", Align::Right),
        ("JOBS", Align::Right),
        ("FREE", Align::Right),
        ("TAKES UP TO", Align::Right),
        ("DAEMON", Align::Left),
    ]);
    let rate = |rate: u64| bytes_per_s(rate as f64);
    for line in lines {
        let takes = match (line.drained, line.takes_up_to_bytes_per_s) {
            (true, _) => Cell::from("drained").tone(Tone::Warn),
            (false, 0) => "nothing now".into(),
            (false, most) => rate(most).into(),
        };
        let daemon = match (&line.socket, &line.device) {
            (Some(socket), Some(device)) => format!("{socket}, {device}"),
            (socket, _) => socket.clone().unwrap_or_default(),
        };
        table.row([
            Cell::from(line.host.as_str()).tone(Tone::Strong),
            rate(line.bandwidth_bytes_per_s).into(),
            format!("{} of {}", line.jobs, line.jobs_at_most).into(),
            rate(line.free_bytes_per_s).into(),
            takes,
            daemon.into(),
        ]);
    }
    table
}

fn add(args: &AddHostArgs, out: Output) -> Result<()> {
    let wrong = |error: tidegate_place::BandwidthError| {
        let help = "what is lost with one job on it, with two, and so on";
        Problem::new(error.to_string()).at("--loss").help(help)
    };
    Bandwidth::new(args.bandwidth, &args.loss).map_err(wrong)?;
    let socket = args.daemon.as_deref().map(from_anywhere).transpose()?;
    let host = KeptHost {
        socket,
        device: args.device.clone(),
        ..KeptHost::new(
            args.name.clone(),
            args.bandwidth,
            args.loss.clone(),
            args.jobs,
        )
    };
    let add = |kept: &mut Kept| match kept.host(&host.name) {
        Some(_) => {
            let what = format!("there is a host {:?} already", host.name);
            let help =
                "a file of all hosts (`tidegate place job --hosts`) changes one that is there";
            Err(Problem::new(what).at("NAME").help(help).into())
        }
        None => {
            kept.hosts.push(host);
            Ok(())
        }
    };
    let mut place = Place::open_after(&args.db.path, false, Ask::All, add)?;
    finish(&mut place, out)
}

/// Those that wait are tried, all of it is kept, and hosts are shown.
fn finish(place: &mut Place, out: Output) -> Result<()> {
    place.pcos.retry_all(place.now);
    place.take_events();
    place.save(&[])?;
    list(place, out)
}

fn set_drained(name: &str, drained: bool, db: &DbArg, out: Output) -> Result<()> {
    let set = |kept: &mut Kept| {
        let HostId(at) = find(kept, name)?;
        kept.hosts[at].drained = drained;
        Ok(())
    };
    let mut place = Place::open_after(&db.path, false, Ask::All, set)?;
    finish(&mut place, out)
}

fn find(kept: &Kept, name: &str) -> Result<HostId> {
    kept.host(name).ok_or_else(|| {
        let names: Vec<_> = kept.hosts.iter().map(|host| host.name.as_str()).collect();
        let problem = Problem::new(format!("there is no host {name:?}")).at("NAME");
        let problem = match names.is_empty() {
            true => problem.help("there is none at all"),
            false => problem.help(format!("there are: {}", names.join(", "))),
        };
        problem.into()
    })
}

fn remove(args: &RemoveHostArgs, out: Output) -> Result<()> {
    let name = args.name.as_str();
    let check = |kept: &mut Kept| {
        find(kept, name)?;
        let there = kept.running.iter().filter(|job| job.host == name);
        let there: Vec<_> = there.map(|job| job.name.as_str()).collect();
        if there.is_empty() || args.requeue || args.lose {
            return Ok(());
        }
        let what = format!(
            "{} on host {name:?}: {}",
            running(there.len()),
            there.join(", ")
        );
        let help = "--requeue has them wait for another host, --lose gives them up; or drain it, and remove it when \
                    they have ended";
        Err(Problem::new(what).help(help).into())
    };
    let mut place = Place::open_after(&args.db.path, false, Ask::AllBut(name), check)?;
    // What daemons have taught is not in what the state machine is made of again.
    place.save(&[])?;
    let host = find(&place.kept, name)?;
    let lost = place.pcos.remove_host(place.now, host);
    let lost: Vec<_> = (lost.iter())
        .map(|running| (place.name_of(running.id).to_owned(), *running))
        .collect();
    place.kept.hosts.remove(host.0);
    let limit = |place: &Place, name: &str| {
        let job = place.kept.running.iter().find(|job| job.name == name);
        job.and_then(|job| job.limit)
    };
    let limits: Vec<_> = lost.iter().map(|(name, _)| limit(&place, name)).collect();
    place.kept.running.retain(|job| job.host != name);
    place.rebuild()?;
    for ((job, running), limit) in lost.into_iter().zip(limits) {
        match args.requeue {
            true => requeue(&mut place, &job, &running, limit),
            false => tell(format_args!("{job} is lost with its host")),
        }
    }
    finish(&mut place, out)
}

fn running(n: usize) -> String {
    match n {
        1 => "a job runs".to_owned(),
        n => format!("{n} jobs run"),
    }
}

/// A job whose host is gone looks for another one: for what is left of it, in the time that is left.
fn requeue(place: &mut Place, name: &str, running: &Running, limit: Option<u64>) {
    let Some(job) = running.tenant.job else {
        return;
    };
    let Ok(request) = Request::new(job.left(), job.due().since(place.now)) else {
        let why = match job.left() {
            0 => "is taken to have moved all of its bytes, and has ended",
            _ => "was past its deadline, and is lost with its host",
        };
        tell(format_args!("{name} {why}"));
        return;
    };
    // Too slow for what is left is late anyway: it is asked for without.
    let request = limit
        .and_then(|limit| request.limited(limit).ok())
        .unwrap_or(request);
    let Answer { id, outcome } = place.pcos.request(place.now, request);
    place.name(id, name);
    let left = bytes(request.bytes());
    match outcome {
        Outcome::Placed(placement) => {
            place.begin(name, &request, &placement);
            let host = &place.kept.hosts[placement.host.0].name;
            let class = placement.class.name();
            tell(format_args!(
                "{name} goes to host {host} with the {left} that are left, class {class}"
            ));
        }
        Outcome::Waiting => {
            tell(format_args!(
                "{name} waits for a host with the {left} that are left"
            ));
            let Nanos(arrived_ns) = place.now;
            place.kept.waiting.push(KeptRequest {
                name: name.to_owned(),
                bytes: request.bytes(),
                deadline_ns: request.deadline().0,
                arrived_ns,
                limit: (request.limit() < u64::MAX).then(|| request.limit()),
                start: false,
            });
        }
        Outcome::Refused(_) => tell(format_args!(
            "{name} is lost with its host: no other one would do the {left} that are left in time"
        )),
    }
}
