//! `tidegate place`: PCOS on the command line, and in a simulated data centre.
//!
//! The commands parse and print; `tidegate-cluster` decides and stores.

mod daemons;
mod data_centre;
pub(super) mod errors;
pub(super) mod events;
pub(super) mod host;
pub(super) mod hosts;
mod jobs;
mod priority_database;
pub(super) mod session;
mod show;
pub(super) mod stores;
mod times;

use anyhow::Result;
use tidegate_core::time::Nanos;
use tidegate_place::{Outcome, Refusal, Request, RequestError};
use tidegate_units::human::duration;

use crate::args::{PlaceCommand, PlaceJobArgs, StoreArgs};
use crate::output::Output;
use crate::problem::Problem;
use errors::problem;

pub(super) fn run(command: &PlaceCommand, out: Output) -> Result<()> {
    match command {
        PlaceCommand::Job(args) => job(args, out),
        PlaceCommand::Jobs(args) => jobs::run(args, out),
        PlaceCommand::List { store } => list(store, out),
        PlaceCommand::Moved { moved, store } => moved_on(moved, store, out),
        PlaceCommand::End { name, store } => end(name, store, out),
        PlaceCommand::RepairTimes { store } => times::repair(store, out),
        PlaceCommand::Host(command) => host::run(command, out),
        PlaceCommand::Db { file: None, store } => priority_database::run(store, out),
        PlaceCommand::Db {
            file: Some(file), ..
        } => {
            let store = StoreArgs {
                path: file.clone(),
                etcd: None,
            };
            priority_database::run(&store, out)
        }
        PlaceCommand::Sim(args) => data_centre::run(args, out),
    }
}

/// Requests a host for a job and shows the decision.
fn job(args: &PlaceJobArgs, out: Output) -> Result<()> {
    let hosts = args.cluster.hosts.as_deref().map(hosts::read).transpose()?;
    let request = request(args.size, args.deadline, args.limit, "--limit")?;
    session::with_hosts(
        &args.cluster.store,
        hosts,
        args.cluster.dry_run,
        |cluster| {
            let name = cluster.name_for(args.name.as_deref()).map_err(problem)?;
            // Waiting jobs go first, so that a new job does not overtake them.
            cluster.retry_waiting();
            if args.start {
                cluster.only_where_served(&name).map_err(problem)?;
            }
            let why = show::Candidates::collect(cluster, &request);
            let outcome = cluster.request(&name, request, args.start);
            cluster.save().map_err(problem)?;
            if let Outcome::Refused(refusal) = &outcome {
                return Err(refused(refusal, &request).into());
            }
            show::answer(cluster, &name, &outcome, &why, args.cluster.dry_run, out)
        },
    )
}

/// Returns the request for a job. An error about its limit names the place `at`.
fn request(size: u64, deadline: Nanos, limit: Option<u64>, at: &str) -> Result<Request> {
    let problem = |error: RequestError| Problem::new(error.to_string());
    let request = Request::new(size, deadline).map_err(problem)?;
    let Some(limit) = limit else {
        return Ok(request);
    };
    request.limited(limit).map_err(|_| {
        let least = Nanos(
            (u128::from(size) * u128::from(Nanos::SECOND.0))
                .div_ceil(limit.into())
                .try_into()
                .unwrap_or(u64::MAX),
        );
        let needs = tidegate_units::human::bytes_per_s(request.rate() as f64);
        Problem::new(format!(
            "the job cannot meet its deadline: it needs {needs}"
        ))
        .at(at)
        .help(format!(
            "the shortest deadline with this limit is {}",
            exact(least)
        ))
        .into()
    })
}

/// Returns the error for a refused request.
fn refused(refusal: &Refusal, request: &Request) -> Problem {
    match refusal {
        Refusal::Impossible { nearest } => {
            let what = format!(
                "even an empty host could not do this in {}",
                duration(request.deadline().0)
            );
            let problem = Problem::new(what).at("--deadline");
            match nearest {
                Some(nearest) => problem.help(format!(
                    "the shortest deadline that a host could meet is {}",
                    exact(*nearest)
                )),
                None => problem.help("there are no hosts"),
            }
        }
        Refusal::TooManyWait { most } => {
            Problem::new(format!("{most} jobs are waiting already, the maximum"))
                .help("try again when some have been placed or discarded")
        }
    }
}

/// Returns a deadline in the notation of the options, rounded up to milliseconds.
fn exact(deadline: Nanos) -> String {
    let ms = deadline.0.div_ceil(1_000_000);
    tidegate_units::format_duration(Nanos::from_millis(ms))
}

fn list(store: &StoreArgs, out: Output) -> Result<()> {
    session::with_hosts(store, None, true, |cluster| {
        cluster.discard_overdue();
        show::list(cluster, out)
    })
}

/// Reports the progress of jobs.
fn moved_on(moved: &[(String, u64)], store: &StoreArgs, out: Output) -> Result<()> {
    session::with_hosts(store, None, false, |cluster| {
        cluster.report_moved(moved).map_err(problem)?;
        show::list(cluster, out)
    })
}

/// Ends a running job, or withdraws a waiting one.
fn end(name: &str, store: &StoreArgs, out: Output) -> Result<()> {
    session::with_hosts(store, None, false, |cluster| {
        cluster.end(name).map_err(problem)?;
        show::list(cluster, out)
    })
}
