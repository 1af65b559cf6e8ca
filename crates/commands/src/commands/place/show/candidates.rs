//! Decisions of all hosts on a job, with their figures.

use serde::Serialize;
use tidegate_cluster::Cluster;
use tidegate_core::time::Nanos;
use tidegate_core::transfers::Class;
use tidegate_place::{Explanation, HostId, Rejection, Request};
use tidegate_report::{Align, Table};
use tidegate_units::human::{bytes_per_s, duration};

/// Decisions of all hosts on a job, and the nearest deadline that they would take.
#[derive(Serialize)]
pub(in crate::commands::place) struct Candidates {
    pub(super) hosts: Vec<Candidate>,
    /// Rate that the job needs, in bytes per second.
    needs_bytes_per_s: u64,
    /// Shortest deadline, in seconds, with which the job would be placed now.
    nearest_deadline_s: Option<f64>,
    pub(super) nearest_host: Option<String>,
    #[serde(skip)]
    pub(super) nearest: Option<Nanos>,
}

/// Decision of one host on a job.
#[derive(Serialize)]
pub(super) struct Candidate {
    host: String,
    /// True if the job would be in time there and make no other job late.
    takes: bool,
    /// True if the job goes there.
    chosen: bool,
    /// Class of the job, the last one that was tried if the host does not take it.
    class: &'static str,
    /// Rate of the job with that class, in bytes per second.
    gets_bytes_per_s: u64,
    /// Free bandwidth in bytes per second: that of the disk with one more job, less the rates that
    /// the running ones need.
    free_bytes_per_s: u64,
    /// Jobs of the host whose class would be lowered.
    lowered: Vec<String>,
    /// Reason for which the job goes there, or does not.
    reason: String,
    /// Running job that would miss its deadline or be slowed.
    #[serde(skip_serializing_if = "Option::is_none")]
    misses: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    late_s: Option<f64>,
}

impl Candidates {
    /// Returns the present decisions of all hosts on a job.
    pub(in crate::commands::place) fn collect(
        cluster: &mut Cluster<'_>,
        request: &Request,
    ) -> Candidates {
        let all = (0..cluster.state().hosts.len()).map(HostId);
        let mut hosts: Vec<Candidate> = all
            .filter_map(|host| {
                let explanation = cluster.explain(host, request)?;
                Some(Candidate::new(cluster, host, &explanation))
            })
            .collect();
        choose(&mut hosts);
        let nearest = cluster.nearest(request);
        Candidates {
            hosts,
            needs_bytes_per_s: request.rate(),
            nearest_deadline_s: nearest.map(|(_, deadline)| deadline.as_secs_f64()),
            nearest_host: nearest.map(|(HostId(at), _)| cluster.state().hosts[at].name.clone()),
            nearest: nearest.map(|(_, deadline)| deadline),
        }
    }

    /// Returns the decisions as text.
    pub(super) fn table(&self) -> Table {
        let mut table = Table::new([
            ("HOST", Align::Left),
            ("FREE", Align::Right),
            ("NEEDS", Align::Right),
            ("GETS", Align::Right),
            ("REASON", Align::Left),
        ]);
        for host in &self.hosts {
            table.row([
                host.host.clone(),
                bytes_per_s(host.free_bytes_per_s as f64),
                bytes_per_s(self.needs_bytes_per_s as f64),
                bytes_per_s(host.gets_bytes_per_s as f64),
                host.reason.clone(),
            ]);
        }
        table
    }
}

/// Marks the host that the job goes to, which is the first with most free bandwidth of those that
/// take it, and gives the reason for each that takes it.
fn choose(hosts: &mut [Candidate]) {
    let takers = || hosts.iter().enumerate().filter(|(_, host)| host.takes);
    let most = takers().map(|(_, host)| host.free_bytes_per_s).max();
    let Some((chosen, free)) = takers()
        .map(|(at, host)| (at, host.free_bytes_per_s))
        .find(|(_, free)| Some(*free) == most)
    else {
        return;
    };
    let name = hosts[chosen].host.clone();
    let count = takers().count();
    for (at, host) in hosts.iter_mut().enumerate().filter(|(_, host)| host.takes) {
        host.chosen = at == chosen;
        host.reason = if host.chosen && count == 1 {
            format!("chosen: as {}, it is in time, here alone", host.class)
        } else if host.chosen {
            format!(
                "chosen: as {}, it is in time, and most bandwidth is free",
                host.class
            )
        } else if host.free_bytes_per_s == free {
            format!("it would be in time; {name} comes first and has as much free")
        } else {
            format!("it would be in time; {name} has more free")
        };
    }
}

impl Candidate {
    fn new(cluster: &Cluster<'_>, host: HostId, explanation: &Explanation) -> Candidate {
        let (class, lowered) = match &explanation.decision {
            Ok(terms) => (terms.class, terms.lowered.as_slice()),
            Err(rejection) => (rejection.class, &[][..]),
        };
        let lowered = lowered.iter();
        let mut candidate = Candidate {
            host: cluster.state().hosts[host.0].name.clone(),
            takes: explanation.decision.is_ok(),
            chosen: false,
            class: class.name(),
            gets_bytes_per_s: explanation.rate,
            free_bytes_per_s: explanation.free,
            lowered: lowered
                .map(|(who, _)| job_name(cluster, host, *who).to_owned())
                .collect(),
            reason: String::new(),
            misses: None,
            late_s: None,
        };
        if let Err(rejection) = &explanation.decision {
            candidate.reject(cluster, host, rejection, class);
        }
        candidate
    }

    fn reject(&mut self, cluster: &Cluster<'_>, host: HostId, rejection: &Rejection, class: Class) {
        use tidegate_place::RejectionReason::{Full, Misses, OwnDeadline, Slows, Steps};
        let class = class.name();
        self.reason = match rejection.why {
            Misses { who, late } => {
                let name = job_name(cluster, host, who);
                self.misses = Some(name.to_owned());
                self.late_s = Some(late.as_secs_f64());
                let own = match rejection.late {
                    Nanos::ZERO => String::new(),
                    late => format!(", and be {} late itself", lateness(late)),
                };
                format!(
                    "as {class}, it would make {name} miss its deadline by {}{own}",
                    lateness(late)
                )
            }
            Slows { who, from, to } => {
                let name = job_name(cluster, host, who);
                self.misses = Some(name.to_owned());
                format!(
                    "as {class}, it would leave {name}, which is late already, {} of its {}",
                    bytes_per_s(to as f64),
                    bytes_per_s(from as f64)
                )
            }
            OwnDeadline => {
                self.late_s = Some(rejection.late.as_secs_f64());
                format!(
                    "it would be {} late itself, even as {class}",
                    lateness(rejection.late)
                )
            }
            Steps => "no I/O classes were found with which all jobs are in time".to_owned(),
            Full => full(cluster, host),
        };
    }
}

/// Name of the job with this index on a host.
fn job_name<'a>(cluster: &'a Cluster<'_>, host: HostId, who: usize) -> &'a str {
    let view = cluster.pcos().host(host);
    let running = view.and_then(|view| view.running().get(who).copied());
    running.map_or("?", |running| cluster.name_of(running.id))
}

/// Returns a lateness as text.
fn lateness(late: Nanos) -> String {
    match late {
        Nanos::MAX => "an unlimited time".to_owned(),
        late => duration(late.0),
    }
}

/// Returns the reason why a host takes no job at all.
fn full(cluster: &Cluster<'_>, host: HostId) -> String {
    let is_open = cluster.pcos().host(host).is_some_and(|view| view.is_open());
    if cluster.state().hosts[host.0].drained {
        "it is drained".to_owned()
    } else if is_open {
        "it runs its maximum number of jobs".to_owned()
    } else {
        "its daemon has no VM of that name".to_owned()
    }
}
