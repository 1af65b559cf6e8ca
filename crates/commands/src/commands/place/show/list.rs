//! Output of `tidegate place list`.

use anyhow::Result;
use serde::Serialize;
use tidegate_cluster::Cluster;
use tidegate_core::time::Nanos;
use tidegate_place::HostId;
use tidegate_report::{Align, Table};
use tidegate_units::human::{bytes, bytes_per_s, duration};

use super::{HostJobs, jobs};
use crate::output::Output;

/// Hosts and waiting jobs.
#[derive(Serialize)]
struct Whole {
    hosts: Vec<HostJobs>,
    waiting: Vec<WaitingView>,
}

#[derive(Serialize)]
struct WaitingView {
    name: String,
    size_bytes: u64,
    waited_s: f64,
    /// Seconds until the job is discarded.
    discarded_in_s: f64,
}

/// Prints hosts with their jobs, and the waiting jobs.
pub(in crate::commands::place) fn list(cluster: &Cluster<'_>, out: Output) -> Result<()> {
    let all = (0..cluster.state().hosts.len()).map(HostId);
    let waiting = cluster.pcos().waiting().map(|(id, request, arrived)| {
        let due = arrived + request.deadline();
        WaitingView {
            name: cluster.name_of(id).to_owned(),
            size_bytes: request.bytes(),
            waited_s: cluster.now().since(arrived).as_secs_f64(),
            discarded_in_s: due.since(cluster.now()).as_secs_f64(),
        }
    });
    let whole = Whole {
        hosts: all
            .filter_map(|host| HostJobs::on_host(cluster, host))
            .collect(),
        waiting: waiting.collect(),
    };
    if out.is_json() {
        return out.json(&whole);
    }
    Ok(out.text(&whole.text(out))?)
}

impl Whole {
    fn text(&self, out: Output) -> String {
        let mut text = String::new();
        for host in &self.hosts {
            let takes = match host.takes_up_to {
                _ if host.drained => "drained".to_owned(),
                0 => "no room for a job".to_owned(),
                most => format!("room for a job of up to {}", bytes_per_s(most as f64)),
            };
            text.push_str(&format!(
                "host {}: {} free, {takes}\n",
                host.host,
                bytes_per_s(host.free as f64)
            ));
            if !host.jobs.is_empty() {
                text.push_str(&jobs(host).render(out.style()));
            }
            text.push('\n');
        }
        let mut table = Table::new([
            ("WAITING JOB", Align::Left),
            ("SIZE", Align::Right),
            ("WAITED", Align::Right),
            ("DISCARDED IN", Align::Right),
        ]);
        let span = |seconds: f64| duration(Nanos::from_secs_f64(seconds).0);
        for job in &self.waiting {
            table.row([
                job.name.clone(),
                bytes(job.size_bytes),
                span(job.waited_s),
                span(job.discarded_in_s),
            ]);
        }
        if self.waiting.is_empty() {
            text.push_str("no waiting jobs\n");
        } else {
            text.push_str(&table.render(out.style()));
        }
        text
    }
}
