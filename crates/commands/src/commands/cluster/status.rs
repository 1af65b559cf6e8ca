//! `tidegate cluster status`: a cluster in figures.

use anyhow::Result;
use serde::Serialize;
use tidegate_cluster::Cluster;
use tidegate_core::time::Nanos;
use tidegate_report::{Align, Cell, Table, Tone};
use tidegate_units::human::bytes_per_s;

use super::super::place::{session, stores};
use super::daemons::{self, JoinedDaemon};
use crate::args::StoreArgs;
use crate::output::Output;

/// Figures of a cluster.
#[derive(Serialize)]
pub(super) struct Status {
    store: String,
    /// Number of the last commit.
    revision: u64,
    hosts: usize,
    hosts_drained: usize,
    jobs_running: usize,
    /// Running jobs that are forecast to miss their deadlines.
    jobs_late: usize,
    jobs_waiting: usize,
    free_bytes_per_s: u64,
    /// Members of etcd; absent for a file.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    members: Vec<Member>,
    /// Daemons that have joined.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    daemons: Vec<JoinedDaemon>,
}

/// Member of etcd.
#[derive(Serialize)]
struct Member {
    url: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<String>,
    leader: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    database_bytes: Option<u64>,
    /// Reason why it does not answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

/// Shows the status once.
pub(super) fn run(at: &StoreArgs, out: Output) -> Result<()> {
    #[cfg(feature = "cluster")]
    if at.is_etcd() {
        return in_etcd(at, out);
    }
    let store = stores::open(at, true)?;
    let status = session::read(&*store, |cluster| Ok(Status::new(cluster, at)))?;
    status.print(out)
}

#[cfg(feature = "cluster")]
fn in_etcd(at: &StoreArgs, out: Output) -> Result<()> {
    use crate::problem::Problem;

    let store = stores::etcd::open(at)?;
    let mut status = session::read(&store, |cluster| Ok(Status::new(cluster, at)))?;
    for (url, answer) in store.members() {
        status.members.push(match answer {
            Ok(member) => Member {
                url,
                version: Some(member.version),
                leader: member.is_leader,
                database_bytes: Some(member.database_bytes),
                error: None,
            },
            Err(error) => Member {
                url,
                version: None,
                leader: false,
                database_bytes: None,
                error: Some(error),
            },
        });
    }
    status.print(out)?;
    let away = status
        .members
        .iter()
        .filter(|member| member.error.is_some());
    match away.count() {
        0 => Ok(()),
        away => {
            let all = status.members.len();
            let problem = Problem::new(format!("{away} of {all} members of etcd do not answer"));
            let help = "the others serve the cluster while they are a majority; start it again, or \
                        replace it with `etcdctl member`";
            Err(problem.at("--etcd").help(help).into())
        }
    }
}

impl Status {
    pub(super) fn new(cluster: &Cluster<'_>, at: &StoreArgs) -> Status {
        let (state, now) = (cluster.state(), cluster.now());
        let (mut late, mut free) = (0, 0_u64);
        for view in cluster.pcos().hosts() {
            let is_late = |forecast: Option<tidegate_core::transfers::Forecast>| {
                forecast.is_none_or(|forecast| {
                    forecast.late > Nanos::ZERO || forecast.done == Nanos::MAX
                })
            };
            let running = view.running().iter();
            late += running
                .filter(|running| is_late(view.forecast(now, running)))
                .count();
            free = free.saturating_add(view.acceptance().free());
        }
        Status {
            store: at.place(),
            revision: cluster.revision().0,
            hosts: state.hosts.len(),
            hosts_drained: state.hosts.iter().filter(|host| host.drained).count(),
            jobs_running: state.running.len(),
            jobs_late: late,
            jobs_waiting: state.waiting.len(),
            free_bytes_per_s: free,
            members: Vec::new(),
            daemons: daemons::all(state),
        }
    }

    pub(super) fn print(&self, out: Output) -> Result<()> {
        if out.is_json() {
            return out.json(self);
        }
        out.text(&self.text(out))?;
        Ok(())
    }

    /// Returns the status as tables.
    pub(super) fn text(&self, out: Output) -> String {
        let mut table = Table::new([
            ("REVISION", Align::Right),
            ("HOSTS", Align::Right),
            ("DRAINED", Align::Right),
            ("JOBS", Align::Right),
            ("LATE", Align::Right),
            ("WAITING", Align::Right),
            ("FREE", Align::Right),
        ]);
        let warn = |number: usize| {
            let tone = if number > 0 { Tone::Warn } else { Tone::Normal };
            Cell::from(number.to_string()).tone(tone)
        };
        table.row([
            Cell::from(self.revision.to_string()),
            self.hosts.to_string().into(),
            warn(self.hosts_drained),
            self.jobs_running.to_string().into(),
            warn(self.jobs_late),
            self.jobs_waiting.to_string().into(),
            bytes_per_s(self.free_bytes_per_s as f64).into(),
        ]);
        let mut text = format!("cluster in {}\n", self.store) + &table.render(out.style());
        if !self.daemons.is_empty() {
            text.push('\n');
            text.push_str(&daemons::table(&self.daemons).render(out.style()));
        }
        if !self.members.is_empty() {
            text.push('\n');
            text.push_str(&members(&self.members).render(out.style()));
        }
        text
    }
}

fn members(members: &[Member]) -> Table {
    let mut table = Table::new([
        ("MEMBER OF ETCD", Align::Left),
        ("VERSION", Align::Left),
        ("DATABASE", Align::Right),
        ("ANSWERS", Align::Left),
    ]);
    for member in members {
        let answers = match (&member.error, member.leader) {
            (Some(error), _) => Cell::from(format!("no: {error}")).tone(Tone::Bad),
            (None, true) => "yes, leader".into(),
            (None, false) => "yes".into(),
        };
        let database = member.database_bytes.map(tidegate_units::human::bytes);
        table.row([
            Cell::from(member.url.as_str()).tone(Tone::Strong),
            member.version.clone().unwrap_or_default().into(),
            database.unwrap_or_default().into(),
            answers,
        ]);
    }
    table
}
