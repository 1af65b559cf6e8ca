//! Output of `tidegate place job`.

use anyhow::Result;
use serde::Serialize;
use tidegate_cluster::Cluster;
use tidegate_place::Outcome;

use super::{Candidates, HostJobs, jobs};
use crate::commands::place::exact;
use crate::output::Output;

/// Decision on a request.
#[derive(Serialize)]
struct DecisionView<'a> {
    job: &'a str,
    /// `placed` or `waiting`.
    outcome: &'static str,
    dry_run: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    host: Option<HostJobs>,
    #[serde(skip_serializing_if = "Option::is_none")]
    class: Option<&'static str>,
    /// Jobs of the host whose class is lowered for the new one.
    lowered: Vec<&'a str>,
    /// Decision of each host, and its figures.
    why: &'a Candidates,
}

/// Prints the decision on a request that was not refused.
pub(in crate::commands::place) fn answer(
    cluster: &Cluster<'_>,
    name: &str,
    outcome: &Outcome,
    why: &Candidates,
    dry_run: bool,
    out: Output,
) -> Result<()> {
    let view = match outcome {
        Outcome::Placed(placement) => DecisionView {
            job: name,
            outcome: "placed",
            dry_run,
            host: HostJobs::on_host(cluster, placement.host),
            class: Some(placement.class.name()),
            lowered: placement
                .lowered
                .iter()
                .map(|(id, _)| cluster.name_of(*id))
                .collect(),
            why,
        },
        Outcome::Waiting | Outcome::Refused(_) => DecisionView {
            job: name,
            outcome: "waiting",
            dry_run,
            host: None,
            class: None,
            lowered: Vec::new(),
            why,
        },
    };
    if out.is_json() {
        return out.json(&view);
    }
    Ok(out.text(&view.text(out))?)
}

impl DecisionView<'_> {
    fn text(&self, out: Output) -> String {
        let would = |does: &str, would: &str| {
            if self.dry_run {
                format!("would {would}")
            } else {
                does.to_owned()
            }
        };
        if let Some(host) = &self.host {
            let class = self.class.unwrap_or_default();
            let mut text = format!(
                "{} {} to host {}, I/O class {class}\n",
                self.job,
                would("goes", "go"),
                host.host
            );
            if !self.lowered.is_empty() {
                text.push_str(&format!(
                    "I/O class lowered until it ends: {}\n",
                    self.lowered.join(", ")
                ));
            }
            text.push('\n');
            text.push_str(&jobs(host).render(out.style()));
            // With a single host there was nothing to choose.
            if self.why.hosts.len() > 1 {
                text.push('\n');
                text.push_str(&self.why.table().render(out.style()));
            }
            return text;
        }
        let mut text = format!(
            "{} {}: no host has room for it now\n\n",
            self.job,
            would("waits", "wait")
        );
        text.push_str(&self.why.table().render(out.style()));
        let nearest = self.why.nearest_host.as_ref().zip(self.why.nearest);
        text.push_str(&match nearest {
            Some((host, deadline)) => format!(
                "\nwith a deadline of {} it would go to host {host} now\n",
                exact(deadline)
            ),
            None => "\nno deadline would place it now\n".to_owned(),
        });
        text
    }
}
