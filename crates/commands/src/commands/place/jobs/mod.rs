//! `tidegate place jobs`: places the jobs of a file on a cluster in memory.

mod read;

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::Result;
use serde::Serialize;
use tidegate_cluster::store::StoreError;
use tidegate_cluster::{Cluster, Error};
use tidegate_place::Outcome;

use super::errors::problem;
use super::{hosts, refused, session};
use crate::args::{PlaceJobsArgs, PlacementArgs};
use crate::output::{Output, tell};
use crate::problem::{Problem, sentence};
use crate::progress::DelayedBar;
use read::Job;

/// Longest time for which the cluster goes on without a look at the store and the daemons.
const REFRESH_INTERVAL: Duration = Duration::from_secs(3);

/// Result of a job.
#[derive(Serialize)]
struct Answer {
    job: String,
    /// `placed`, `waiting` or `refused`.
    outcome: &'static str,
    dry_run: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    host: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    class: Option<&'static str>,
    /// Jobs of the host whose class is lowered for the new one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    lowered: Vec<String>,
    /// Reason of a refusal.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

pub(super) fn run(args: &PlaceJobsArgs, out: Output) -> Result<()> {
    let PlacementArgs {
        hosts,
        dry_run,
        store,
    } = &args.cluster;
    let list = hosts.as_deref().map(hosts::read).transpose()?;
    let jobs = read::read(&args.file)?;
    session::with_hosts(store, list, *dry_run, |cluster| {
        // Hosts of a file are stored, and jobs that wait go first.
        cluster.retry_and_save().map_err(problem)?;
        place_all(cluster, &jobs, *dry_run, out)
    })
}

/// Places all jobs, and prints a line for each.
fn place_all(cluster: &mut Cluster<'_>, jobs: &[Job], dry_run: bool, out: Output) -> Result<()> {
    let named: BTreeSet<_> = jobs.iter().filter_map(|job| job.name.as_deref()).collect();
    let mut bar = DelayedBar::new(jobs.len() as u64, "placing");
    let mut refreshed = Instant::now();
    let mut refused = 0;
    for (done, job) in (1..).zip(jobs) {
        // The decisions of a dry run are in the cluster alone.
        if refreshed.elapsed() >= REFRESH_INTERVAL && !dry_run {
            cluster.refresh(session::now()).map_err(problem)?;
            refreshed = Instant::now();
        }
        let answer = place(cluster, job, &named, dry_run).inspect_err(|_| {
            tell(format!(
                "stopped at job {done} of {}; those after it were not placed: run them again",
                jobs.len()
            ));
        })?;
        refused += usize::from(answer.outcome == "refused");
        if out.is_json() {
            out.json_line(&answer)?;
        } else {
            out.text(&answer.text())?;
        }
        bar.set(done, String::new);
    }
    match refused {
        0 => Ok(()),
        _ => {
            let problem = Problem::new(format!("refused: {refused} of {} jobs", jobs.len()));
            Err(problem.help("their lines have the reasons").into())
        }
    }
}

/// Returns the name of a job. A generated one is none of `named`, the names of lines that may still
/// follow.
fn name_for(
    cluster: &mut Cluster<'_>,
    job: &Job,
    named: &BTreeSet<&str>,
) -> std::result::Result<String, Error> {
    loop {
        let name = cluster.name_for(job.name.as_deref())?;
        if job.name.is_some() || !named.contains(&*name) {
            return Ok(name);
        }
    }
}

/// Places a job; again for up to 30 s if other writers are faster. A refusal is decided on the
/// state of now.
fn place(
    cluster: &mut Cluster<'_>,
    job: &Job,
    named: &BTreeSet<&str>,
    dry_run: bool,
) -> Result<Answer> {
    let end = Instant::now() + session::RETRY_LIMIT;
    let mut pause = session::FIRST_PAUSE;
    // The decisions of a dry run are in the cluster alone.
    let mut is_present = dry_run;
    loop {
        cluster.continue_at(session::now());
        let name = match name_for(cluster, job, named) {
            Ok(name) => name,
            Err(Error::NameTaken { .. }) if !is_present => {
                cluster.refresh(session::now()).map_err(problem)?;
                is_present = true;
                continue;
            }
            Err(error @ Error::NameTaken { .. }) => {
                let name = job.name.clone().unwrap_or_default();
                return Ok(Answer::refused(name, &problem(error), dry_run));
            }
            Err(error) => return Err(problem(error)),
        };
        if job.start {
            match cluster.only_where_served(&name) {
                Err(error @ (Error::NotServed { .. } | Error::Daemon(_))) => {
                    return Ok(Answer::refused(name, &problem(error), dry_run));
                }
                served => served.map_err(problem)?,
            }
        }
        let outcome = cluster.request(&name, job.request, job.start);
        if matches!(outcome, Outcome::Refused(_)) && !is_present {
            cluster.refresh(session::now()).map_err(problem)?;
            is_present = true;
            continue;
        }
        match cluster.save() {
            Ok(()) => return Ok(Answer::new(cluster, name, &outcome, job, dry_run)),
            Err(error) if cluster.lost_race() => {
                if Instant::now() >= end {
                    // Up to date, so that the caller does not begin with the first job again.
                    cluster.refresh(session::now()).map_err(problem)?;
                    return Err(problem(error));
                }
                std::thread::sleep(session::jittered(pause));
                pause = (pause * 2).min(session::LONGEST_PAUSE);
            }
            Err(Error::Daemon(error)) => {
                // The placement was removed again.
                cluster.refresh(session::now()).map_err(problem)?;
                return Ok(Answer::refused(name, &problem(error), dry_run));
            }
            // An attempt may still arrive, so a second one could place the job twice.
            Err(Error::Store(error @ StoreError::OutcomeUnknown(_))) => {
                return Err(unknown(&error, &name));
            }
            Err(error) => return Err(problem(error)),
        }
        cluster.refresh(session::now()).map_err(problem)?;
        is_present = true;
    }
}

/// Returns the error for a job of which etcd did not say whether it was stored.
fn unknown(error: &StoreError, job: &str) -> anyhow::Error {
    let problem = Problem::new(format!("job {job:?}: {error}")).at("--etcd");
    let help = "`tidegate place list` shows whether it was; if so, one with start is started by \
                the daemon of a host that has joined the cluster, and by no other one";
    problem.help(help).into()
}

impl Answer {
    fn new(
        cluster: &Cluster<'_>,
        job: String,
        outcome: &Outcome,
        of: &Job,
        dry_run: bool,
    ) -> Answer {
        match outcome {
            Outcome::Placed(placement) => Answer {
                job,
                outcome: "placed",
                dry_run,
                host: Some(cluster.state().hosts[placement.host.0].name.clone()),
                class: Some(placement.class.name()),
                lowered: (placement.lowered.iter())
                    .map(|(id, _)| cluster.name_of(*id).to_owned())
                    .collect(),
                reason: None,
            },
            Outcome::Waiting => Answer {
                job,
                outcome: "waiting",
                dry_run,
                host: None,
                class: None,
                lowered: Vec::new(),
                reason: None,
            },
            Outcome::Refused(refusal) => {
                Answer::refused(job, &refused(refusal, &of.request).into(), dry_run)
            }
        }
    }

    /// Creates the answer for a job that is refused because of an error.
    fn refused(job: String, error: &anyhow::Error, dry_run: bool) -> Answer {
        Answer {
            job,
            outcome: "refused",
            dry_run,
            host: None,
            class: None,
            lowered: Vec::new(),
            reason: Some(sentence(error)),
        }
    }

    fn text(&self) -> String {
        let job = &self.job;
        let verb = |does: &str, would: &str| {
            if self.dry_run {
                format!("would {would}")
            } else {
                does.to_owned()
            }
        };
        if let Some(host) = &self.host {
            let class = self.class.unwrap_or_default();
            let lowered = match self.lowered.as_slice() {
                [] => String::new(),
                names => format!("; lowered until it ends: {}", names.join(", ")),
            };
            return format!(
                "{job} {} to host {host}, I/O class {class}{lowered}\n",
                verb("goes", "go")
            );
        }
        match &self.reason {
            Some(reason) => format!("{job} {} refused: {reason}\n", verb("is", "be")),
            None => format!(
                "{job} {}: no host has room for it now\n",
                verb("waits", "wait")
            ),
        }
    }
}
