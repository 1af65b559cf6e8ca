//! `tidegate place db`: the priority database of hosts.

use anyhow::Result;
use serde::Serialize;
use tidegate_cluster::{Cluster, ClusterState, DaemonSelection};
use tidegate_core::transfers::Class;
use tidegate_place::{Entry, HostId, PriorityDatabase};
use tidegate_report::{Align, Table};
use tidegate_units::human::{bytes_per_s, count};

use super::session;
use crate::args::StoreArgs;
use crate::output::Output;
use crate::problem::Problem;

#[derive(Serialize)]
struct HostKnown {
    host: String,
    max_bytes_per_s: u64,
    lost_bytes_per_s: Vec<u64>,
    entries: Vec<Combination>,
}

/// Learnt bandwidths for a combination of classes: number of jobs of each class, and the bandwidth
/// of one job of it.
#[derive(Serialize)]
struct Combination {
    jobs: usize,
    real_time: ClassRates,
    best_effort: ClassRates,
    idle: ClassRates,
    intervals: u64,
}

#[derive(Serialize)]
struct ClassRates {
    jobs: usize,
    bytes_per_s: Option<u64>,
}

impl ClassRates {
    fn new(entry: &Entry, class: Class) -> ClassRates {
        let jobs = entry.classes.count(class);
        let bytes_per_s = (jobs > 0).then(|| entry.rates.for_class(class));
        ClassRates { jobs, bytes_per_s }
    }

    fn text(&self) -> String {
        match self.bytes_per_s {
            None => "-".to_owned(),
            Some(rate) => format!("{} x {}", self.jobs, bytes_per_s(rate as f64)),
        }
    }
}

pub(super) fn run(store: &StoreArgs, out: Output) -> Result<()> {
    if !store.is_etcd() && !store.path.exists() {
        let problem = Problem::new("no such file").at(store.path.display().to_string());
        let help = "`tidegate place job` creates it; choose another file with --db";
        return Err(problem.help(help).into());
    }
    let (none, unchanged) = (DaemonSelection::None, |_: &mut ClusterState| Ok(()));
    session::with_cluster(store, true, none, unchanged, |cluster| show(cluster, out))
}

fn show(cluster: &Cluster<'_>, out: Output) -> Result<()> {
    let known: Vec<HostKnown> = (cluster.state().hosts.iter().enumerate())
        .filter_map(|(at, host)| Some(known(&host.name, &cluster.database(HostId(at))?)))
        .collect();
    if out.is_json() {
        return out.json(&known);
    }
    if known.is_empty() {
        return Ok(out.text("there are no hosts yet\n")?);
    }
    for host in &known {
        out.text(&text(host, out))?;
    }
    Ok(())
}

fn known(host: &str, database: &PriorityDatabase) -> HostKnown {
    let bandwidth = database.bandwidth();
    let entry = |entry: &Entry| Combination {
        jobs: entry.classes.len(),
        real_time: ClassRates::new(entry, Class::RealTime),
        best_effort: ClassRates::new(entry, Class::BestEffort),
        idle: ClassRates::new(entry, Class::Idle),
        intervals: entry.intervals,
    };
    HostKnown {
        host: host.to_owned(),
        max_bytes_per_s: bandwidth.max(),
        lost_bytes_per_s: bandwidth.lost().to_vec(),
        entries: database.entries().map(entry).collect(),
    }
}

fn text(host: &HostKnown, out: Output) -> String {
    let rate = |rate: u64| bytes_per_s(rate as f64);
    let lost: Vec<_> = host
        .lost_bytes_per_s
        .iter()
        .map(|lost| rate(*lost))
        .collect();
    let lost = if lost.is_empty() {
        "no loss with more".to_owned()
    } else {
        format!("loss with one, two and more jobs: {}", lost.join(", "))
    };
    let mut text = format!(
        "host {}: {} for one job, {lost}\n",
        host.host,
        rate(host.max_bytes_per_s)
    );
    if host.entries.is_empty() {
        return text
            + "  nothing is learnt yet: n jobs are assumed to share the bandwidth equally\n\n";
    }
    let mut table = Table::new([
        ("JOBS", Align::Right),
        ("REAL TIME", Align::Right),
        ("BEST EFFORT", Align::Right),
        ("IDLE", Align::Right),
        ("INTERVALS", Align::Right),
    ]);
    for entry in &host.entries {
        table.row([
            entry.jobs.to_string(),
            entry.real_time.text(),
            entry.best_effort.text(),
            entry.idle.text(),
            count(entry.intervals),
        ]);
    }
    text.push_str(&table.render(out.style()));
    text.push('\n');
    text
}
