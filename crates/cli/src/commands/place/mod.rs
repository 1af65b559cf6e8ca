//! `tidegate place`: PCOS on the command line, and in a simulated data centre.

mod books;
mod centre;
mod db;
mod host;
mod hosts;
mod kept;
mod live;
mod show;
mod start;
mod state;

use anyhow::Result;
use tidegate_core::time::Nanos;
use tidegate_place::{Answer, HostId, Outcome, Refusal, Request, RequestError};
use tidegate_report::duration;

use crate::args::{DbArg, PlaceCommand, PlaceJobArgs};
use crate::output::{Output, tell};
use crate::problem::Problem;
use kept::KeptRequest;
use state::Place;

pub(super) fn run(command: &PlaceCommand, out: Output) -> Result<()> {
    match command {
        PlaceCommand::Job(args) => job(args, out),
        PlaceCommand::List { db } => list(db, out),
        PlaceCommand::Moved { moved, db } => told(moved, db, out),
        PlaceCommand::End { name, db } => end(name, db, out),
        PlaceCommand::Host(command) => host::run(command, out),
        PlaceCommand::Db { file, db } => db::run(file.as_ref().unwrap_or(&db.path), out),
        PlaceCommand::Sim(args) => centre::run(args, out),
    }
}

/// A job looks for a host.
fn job(args: &PlaceJobArgs, out: Output) -> Result<()> {
    let hosts = args.hosts.as_deref().map(hosts::read).transpose()?;
    let request = asked(args)?;
    let mut place = Place::open(&args.db.path, hosts, args.dry_run)?;
    let name = place.name_for(args.name.as_deref())?;
    // Hosts may have come.
    place.pcos.retry_all(place.now);
    place.take_events();
    if args.start {
        place.only_where_it_is_served(&name)?;
    }
    let why = show::Why::of(&mut place, &request);
    let Answer { id, outcome } = place.pcos.request(place.now, request);
    place.name(id, &name);
    match &outcome {
        Outcome::Placed(placement) => {
            if args.start && !args.dry_run {
                place.start(placement.host, &name, &request)?;
            }
            place.begin(&name, &request, placement);
        }
        Outcome::Waiting => place.kept.waiting.push(KeptRequest {
            name: name.clone(),
            bytes: request.bytes(),
            deadline_ns: request.deadline().0,
            arrived_ns: place.now.0,
            limit: args.limit,
            start: args.start,
        }),
        Outcome::Refused(_) => {}
    }
    let refused = match &outcome {
        Outcome::Refused(refusal) => Some(refused(refusal, &request)),
        _ => None,
    };
    place.take_events();
    if !args.dry_run {
        place.save(&[])?;
    }
    if let Some(problem) = refused {
        return Err(problem.into());
    }
    show::answer(&place, &name, &outcome, &why, args.dry_run, out)
}

/// What was typed as a request.
fn asked(args: &PlaceJobArgs) -> Result<Request> {
    let problem = |error: RequestError| Problem::new(error.to_string());
    let request = Request::new(args.size, args.deadline).map_err(problem)?;
    let Some(limit) = args.limit else {
        return Ok(request);
    };
    request.limited(limit).map_err(|_| {
        let least = Nanos(
            (u128::from(args.size) * u128::from(Nanos::SECOND.0))
                .div_ceil(limit.into())
                .try_into()
                .unwrap_or(u64::MAX),
        );
        let needs = tidegate_report::bytes_per_s(request.rate() as f64);
        Problem::new(format!(
            "the job is late whatever it is given: it needs {needs}"
        ))
        .at("--limit")
        .help(format!(
            "with that the nearest deadline is {}",
            exact(least)
        ))
        .into()
    })
}

fn refused(refusal: &Refusal, request: &Request) -> Problem {
    match refusal {
        Refusal::Impossible { nearest } => {
            let what = format!(
                "no host would do this in {}, were it empty",
                duration(request.deadline().0)
            );
            let problem = Problem::new(what).at("--deadline");
            match nearest {
                Some(nearest) => problem.help(format!(
                    "the nearest deadline that one would keep is {}",
                    exact(*nearest)
                )),
                None => problem.help("there is no host"),
            }
        }
        Refusal::TooManyWait { most } => Problem::new(format!("{most} jobs wait already"))
            .help("no more are kept; ask again when some have been placed or discarded"),
    }
}

/// A deadline that can be typed, rounded up to milliseconds.
fn exact(deadline: Nanos) -> String {
    let ms = deadline.0.div_ceil(1_000_000);
    tidegate_device::units::format_duration(Nanos::from_millis(ms))
}

fn list(db: &DbArg, out: Output) -> Result<()> {
    let mut place = Place::open(&db.path, None, true)?;
    place.pcos.handle_timeout(place.now);
    place.take_events();
    show::list(&place, out)
}

/// What has moved of jobs.
fn told(moved: &[(String, u64)], db: &DbArg, out: Output) -> Result<()> {
    let mut place = Place::open(&db.path, None, false)?;
    for (name, bytes) in moved {
        place.check_moved(name, *bytes)?;
    }
    let mut learnt = Vec::new();
    for host in (0..place.kept.hosts.len()).map(HostId) {
        if place.moved_on(host, moved) {
            learnt.push(host);
        }
    }
    place.take_events();
    place.save(&learnt)?;
    show::list(&place, out)
}

/// A job is over.
fn end(name: &str, db: &DbArg, out: Output) -> Result<()> {
    let mut place = Place::open(&db.path, None, false)?;
    let Some(id) = place.id_of(name) else {
        return Err(place.unknown(name).into());
    };
    place.check_own(name)?;
    if place.pcos.withdraw(id) {
        place.kept.waiting.retain(|job| job.name != name);
        tell(format_args!("{name} does not wait any more"));
    } else {
        place.ended(id, name);
    }
    place.take_events();
    place.save(&[])?;
    show::list(&place, out)
}
