//! Reasons why hosts do not take a job.

use serde::Serialize;
use tidegate_cluster::Cluster;
use tidegate_core::time::Nanos;
use tidegate_place::{HostId, Rejection, Request};
use tidegate_units::human::duration;

/// Reasons why hosts do not take a job, and the nearest deadline that they would take.
#[derive(Serialize)]
pub(in crate::commands::place) struct Rejections {
    pub(super) hosts: Vec<HostRejection>,
    /// Shortest deadline, in seconds, with which the job would be placed now.
    nearest_deadline_s: Option<f64>,
    pub(super) nearest_host: Option<String>,
    #[serde(skip)]
    pub(super) nearest: Option<Nanos>,
}

/// Decision of one host on a job.
#[derive(Serialize)]
pub(super) struct HostRejection {
    pub(super) host: String,
    takes: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reason: Option<String>,
    /// Running job that would miss its deadline.
    #[serde(skip_serializing_if = "Option::is_none")]
    misses: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    late_s: Option<f64>,
}

impl Rejections {
    /// Returns the present decisions of all hosts on a job.
    pub(in crate::commands::place) fn collect(
        cluster: &mut Cluster<'_>,
        request: &Request,
    ) -> Rejections {
        let all = (0..cluster.state().hosts.len()).map(HostId);
        let hosts = all
            .map(|host| HostRejection::collect(cluster, host, request))
            .collect();
        let nearest = cluster.nearest(request);
        Rejections {
            hosts,
            nearest_deadline_s: nearest.map(|(_, deadline)| deadline.as_secs_f64()),
            nearest_host: nearest.map(|(HostId(at), _)| cluster.state().hosts[at].name.clone()),
            nearest: nearest.map(|(_, deadline)| deadline),
        }
    }
}

impl HostRejection {
    fn collect(cluster: &mut Cluster<'_>, host: HostId, request: &Request) -> HostRejection {
        let rejection = cluster.rejection(host, request);
        let mut says = HostRejection {
            host: cluster.state().hosts[host.0].name.clone(),
            takes: rejection.is_none(),
            reason: None,
            misses: None,
            late_s: None,
        };
        if let Some(rejection) = rejection {
            says.reject(cluster, host, &rejection);
        }
        says
    }

    fn reject(&mut self, cluster: &Cluster<'_>, host: HostId, rejection: &Rejection) {
        use tidegate_place::RejectionReason::{Full, Misses, OwnDeadline, Steps};
        let class = rejection.class.name();
        self.reason = Some(match rejection.why {
            Misses { who, late } => {
                let running = cluster
                    .pcos()
                    .host(host)
                    .and_then(|view| view.running().get(who).copied());
                let name = running.map_or("?", |running| cluster.name_of(running.id));
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
            OwnDeadline => {
                self.late_s = Some(rejection.late.as_secs_f64());
                format!(
                    "it would be {} late itself, even as {class}",
                    lateness(rejection.late)
                )
            }
            Steps => "no I/O classes were found with which all jobs are in time".to_owned(),
            Full => full(cluster, host),
        });
    }
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
