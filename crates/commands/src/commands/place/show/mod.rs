//! Output of `tidegate place`: hosts, jobs and decisions.

mod candidates;
mod decision;
mod list;

use serde::Serialize;
use tidegate_cluster::Cluster;
use tidegate_core::time::Nanos;
use tidegate_core::transfers::Forecast;
use tidegate_place::{HostId, HostView, Running};
use tidegate_report::{Align, Cell, Table, Tone};
use tidegate_units::human::{bytes, bytes_per_s, duration, percent};

pub(super) use candidates::Candidates;
pub(super) use decision::answer;
pub(super) use list::list;

/// Job, for tables and JSON.
#[derive(Serialize)]
pub(in crate::commands::place) struct JobView {
    name: String,
    class: &'static str,
    size_bytes: u64,
    moved_bytes: u64,
    due_in_s: f64,
    /// Seconds until the forecast end; absent: never at the present rate.
    done_in_s: Option<f64>,
    /// Seconds from the forecast end to the deadline; negative: late.
    early_s: Option<f64>,
    bytes_per_s: u64,
    #[serde(skip)]
    forecast: String,
}

/// Host with its jobs.
#[derive(Serialize)]
pub(in crate::commands::place) struct HostJobs {
    pub(super) host: String,
    /// Largest bandwidth, in bytes a second, that a further job may need.
    pub(super) takes_up_to: u64,
    pub(super) free: u64,
    /// True if the host gets no more jobs.
    pub(super) drained: bool,
    pub(super) jobs: Vec<JobView>,
}

impl HostJobs {
    pub(super) fn on_host(cluster: &Cluster<'_>, host: HostId) -> Option<HostJobs> {
        let view = cluster.pcos().host(host)?;
        Some(HostJobs {
            host: cluster.state().hosts[host.0].name.clone(),
            takes_up_to: view.acceptance().max_rate(),
            free: view.acceptance().free(),
            drained: cluster.state().hosts[host.0].drained,
            jobs: view
                .running()
                .iter()
                .map(|running| JobView::new(cluster, &view, running))
                .collect(),
        })
    }
}

impl JobView {
    fn new(cluster: &Cluster<'_>, view: &HostView<'_>, running: &Running) -> JobView {
        let (now, job) = (cluster.now(), running.vm.transfer);
        let forecast = view.forecast(now, running);
        let done = forecast
            .map(|forecast| forecast.done)
            .filter(|done| *done < Nanos::MAX);
        let due = job.map_or(Nanos::MAX, |job| job.due_time());
        let seconds = |from: Nanos, to: Nanos| (i128::from(to.0) - i128::from(from.0)) as f64 / 1e9;
        JobView {
            name: cluster.name_of(running.id).to_owned(),
            class: running.vm.class.name(),
            size_bytes: job.map_or(0, |job| job.bytes),
            moved_bytes: job.map_or(0, |job| job.moved),
            due_in_s: seconds(now, due),
            done_in_s: done.map(|done| seconds(now, done)),
            early_s: done.map(|done| seconds(done, due)),
            bytes_per_s: view.rate(running),
            forecast: forecast.map_or(String::new(), |forecast| in_words(forecast, now)),
        }
    }
}

/// Returns a forecast as text.
fn in_words(forecast: Forecast, now: Nanos) -> String {
    match (forecast.done, forecast.late) {
        (Nanos::MAX, _) => "never at this rate".to_owned(),
        (done, Nanos::ZERO) => format!(
            "done in {}, {} early",
            duration(done.since(now).0),
            duration(forecast.early.0)
        ),
        (done, late) => format!(
            "done in {}, {} late",
            duration(done.since(now).0),
            duration(late.0)
        ),
    }
}

/// Returns the table of a host's jobs.
fn jobs(host: &HostJobs) -> Table {
    let mut table = Table::new([
        ("JOB", Align::Left),
        ("I/O CLASS", Align::Left),
        ("SIZE", Align::Right),
        ("MOVED", Align::Right),
        ("RATE", Align::Right),
        ("FORECAST", Align::Left),
    ]);
    for job in &host.jobs {
        let late = job.early_s.is_none_or(|early| early < 0.0);
        let tone = if late { Tone::Bad } else { Tone::Normal };
        table.row([
            Cell::from(job.name.as_str()).tone(Tone::Strong),
            job.class.into(),
            bytes(job.size_bytes).into(),
            percent(job.moved_bytes as f64, job.size_bytes as f64).into(),
            bytes_per_s(job.bytes_per_s as f64).into(),
            Cell::from(job.forecast.as_str()).tone(tone),
        ]);
    }
    table
}
