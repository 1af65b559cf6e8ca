//! How `tidegate place` shows hosts, jobs and decisions.

use anyhow::Result;
use serde::Serialize;
use tidegate_core::jobs::Forecast;
use tidegate_core::time::Nanos;
use tidegate_place::{HostId, HostView, Outcome, Rejection, Request, Running};
use tidegate_report::{Align, Cell, Table, Tone, bytes, bytes_per_s, duration, percent};

use super::exact;
use super::state::Place;
use crate::output::Output;

/// Why hosts do not take a job, and what they would take.
#[derive(Serialize)]
pub(super) struct Why {
    hosts: Vec<HostSays>,
    /// The shortest deadline with which the job would be taken now.
    nearest_deadline_s: Option<f64>,
    nearest_host: Option<String>,
    #[serde(skip)]
    nearest: Option<Nanos>,
}

/// What a host says to a job.
#[derive(Serialize)]
struct HostSays {
    host: String,
    takes: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    /// The running job that would miss, and by how much.
    #[serde(skip_serializing_if = "Option::is_none")]
    misses: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    late_s: Option<f64>,
}

impl Why {
    /// What all hosts say to a job just now.
    pub(super) fn of(place: &mut Place, request: &Request) -> Why {
        let all = (0..place.kept.hosts.len()).map(HostId);
        let hosts = all.map(|host| HostSays::of(place, host, request)).collect();
        let nearest = place.pcos.nearest(place.now, request);
        Why {
            hosts,
            nearest_deadline_s: nearest.map(|(_, deadline)| deadline.as_secs_f64()),
            nearest_host: nearest.map(|(HostId(at), _)| place.kept.hosts[at].name.clone()),
            nearest: nearest.map(|(_, deadline)| deadline),
        }
    }
}

impl HostSays {
    fn of(place: &mut Place, host: HostId, request: &Request) -> HostSays {
        let rejection = place.pcos.rejection(place.now, host, request);
        let mut says = HostSays {
            host: place.kept.hosts[host.0].name.clone(),
            takes: rejection.is_none(),
            reason: None,
            misses: None,
            late_s: None,
        };
        if let Some(rejection) = rejection {
            says.reject(place, host, &rejection);
        }
        says
    }

    fn reject(&mut self, place: &Place, host: HostId, rejection: &Rejection) {
        use tidegate_place::Why::{Full, Misses, OwnDeadline, Steps};
        let class = rejection.class.name();
        self.reason = Some(match rejection.why {
            Misses { who, late } => {
                let running = place
                    .pcos
                    .host(host)
                    .and_then(|view| view.running().get(who).copied());
                let name = running.map_or("?", |running| place.name_of(running.id));
                self.misses = Some(name.to_owned());
                self.late_s = Some(late.as_secs_f64());
                let own = match rejection.late {
                    Nanos::ZERO => String::new(),
                    late => format!(", and itself by {}", by(late)),
                };
                format!(
                    "{name} would miss its deadline by {}{own}, were it {class}",
                    by(late)
                )
            }
            OwnDeadline => {
                self.late_s = Some(rejection.late.as_secs_f64());
                format!(
                    "it would be {} late itself, even as {class}",
                    by(rejection.late)
                )
            }
            Steps => "no classes were found with which everybody is in time".to_owned(),
            Full => "as many jobs run there as may".to_owned(),
        });
    }
}

fn by(late: Nanos) -> String {
    match late {
        Nanos::MAX => "ever so much".to_owned(),
        late => duration(late.0),
    }
}

/// A job, for people and for machines.
#[derive(Serialize)]
struct JobView {
    name: String,
    class: &'static str,
    size_bytes: u64,
    moved_bytes: u64,
    due_in_s: f64,
    /// Absent: never, as things are.
    done_in_s: Option<f64>,
    /// So long before its deadline; below zero: late.
    early_s: Option<f64>,
    bytes_per_s: u64,
    #[serde(skip)]
    forecast: String,
}

/// A host with its jobs.
#[derive(Serialize)]
struct HostJobs {
    host: String,
    /// What one more might need, in bytes a second.
    takes_up_to: u64,
    free: u64,
    jobs: Vec<JobView>,
}

impl HostJobs {
    fn of(place: &Place, host: HostId) -> Option<HostJobs> {
        let view = place.pcos.host(host)?;
        Some(HostJobs {
            host: place.kept.hosts[host.0].name.clone(),
            takes_up_to: view.acceptance().most(),
            free: view.acceptance().free(),
            jobs: view
                .running()
                .iter()
                .map(|running| JobView::of(place, &view, running))
                .collect(),
        })
    }
}

impl JobView {
    fn of(place: &Place, view: &HostView<'_>, running: &Running) -> JobView {
        let (now, job) = (place.now, running.tenant.job);
        let forecast = view.forecast(now, running);
        let done = forecast
            .map(|forecast| forecast.done)
            .filter(|done| *done < Nanos::MAX);
        let due = job.map_or(Nanos::MAX, |job| job.due());
        let seconds = |from: Nanos, to: Nanos| (i128::from(to.0) - i128::from(from.0)) as f64 / 1e9;
        JobView {
            name: place.name_of(running.id).to_owned(),
            class: running.tenant.class.name(),
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

fn in_words(forecast: Forecast, now: Nanos) -> String {
    match (forecast.done, forecast.late) {
        (Nanos::MAX, _) => "never, as things are".to_owned(),
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

fn jobs(host: &HostJobs) -> Table {
    let mut table = Table::new([
        ("JOB", Align::Left),
        ("CLASS", Align::Left),
        ("SIZE", Align::Right),
        ("MOVED", Align::Right),
        ("HAS", Align::Right),
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

/// What came of a request.
#[derive(Serialize)]
struct AnswerView<'a> {
    job: &'a str,
    /// `placed` or `waiting`.
    outcome: &'static str,
    dry_run: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    host: Option<HostJobs>,
    #[serde(skip_serializing_if = "Option::is_none")]
    class: Option<&'static str>,
    /// Jobs there that have a lower class from now on.
    lowered: Vec<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<&'a Why>,
}

/// Says what came of a request that was not refused.
pub(super) fn answer(
    place: &Place,
    name: &str,
    outcome: &Outcome,
    why: &Why,
    dry_run: bool,
    out: Output,
) -> Result<()> {
    let view = match outcome {
        Outcome::Placed(placement) => AnswerView {
            job: name,
            outcome: "placed",
            dry_run,
            host: HostJobs::of(place, placement.host),
            class: Some(placement.class.name()),
            lowered: placement
                .lowered
                .iter()
                .map(|(id, _)| place.name_of(*id))
                .collect(),
            why: None,
        },
        Outcome::Waiting | Outcome::Refused(_) => AnswerView {
            job: name,
            outcome: "waiting",
            dry_run,
            host: None,
            class: None,
            lowered: Vec::new(),
            why: Some(why),
        },
    };
    match out.is_json() {
        true => out.json(&view),
        false => Ok(out.text(&view.text(out))?),
    }
}

impl AnswerView<'_> {
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
                "{} {} to host {}, class {class}\n",
                self.job,
                would("goes", "go"),
                host.host
            );
            if !self.lowered.is_empty() {
                text.push_str(&format!(
                    "lowered for it until it ends: {}\n",
                    self.lowered.join(", ")
                ));
            }
            text.push('\n');
            text.push_str(&jobs(host).render(out.style()));
            return text;
        }
        let mut text = format!(
            "{} {}: no host takes it as things are\n\n",
            self.job,
            would("waits", "wait")
        );
        let mut table = Table::new([("HOST", Align::Left), ("WHY NOT", Align::Left)]);
        let why = self.why.into_iter().flat_map(|why| &why.hosts);
        for host in why {
            table.row([
                host.host.as_str(),
                host.reason.as_deref().unwrap_or_default(),
            ]);
        }
        text.push_str(&table.render(out.style()));
        let nearest = self
            .why
            .and_then(|why| why.nearest_host.as_ref().zip(why.nearest));
        text.push_str(&match nearest {
            Some((host, deadline)) => format!(
                "\nwith a deadline of {} it would go to host {host} now\n",
                exact(deadline)
            ),
            None => "\nnow it would go nowhere, whatever its deadline\n".to_owned(),
        });
        text
    }
}

/// Everything there is.
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
    /// It is discarded then.
    discarded_in_s: f64,
}

/// Shows hosts, jobs and those that wait.
pub(super) fn list(place: &Place, out: Output) -> Result<()> {
    let all = (0..place.kept.hosts.len()).map(HostId);
    let waiting = place.pcos.waiting().map(|(id, request, arrived)| {
        let due = arrived + request.deadline();
        WaitingView {
            name: place.name_of(id).to_owned(),
            size_bytes: request.bytes(),
            waited_s: place.now.since(arrived).as_secs_f64(),
            discarded_in_s: due.since(place.now).as_secs_f64(),
        }
    });
    let whole = Whole {
        hosts: all.filter_map(|host| HostJobs::of(place, host)).collect(),
        waiting: waiting.collect(),
    };
    match out.is_json() {
        true => out.json(&whole),
        false => Ok(out.text(&whole.text(out))?),
    }
}

impl Whole {
    fn text(&self, out: Output) -> String {
        let mut text = String::new();
        for host in &self.hosts {
            let takes = match host.takes_up_to {
                0 => "takes nothing as things are".to_owned(),
                most => format!("takes a job that needs up to {}", bytes_per_s(most as f64)),
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
            ("WAITS", Align::Left),
            ("SIZE", Align::Right),
            ("FOR", Align::Right),
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
        match self.waiting.is_empty() {
            true => text.push_str("nobody waits\n"),
            false => text.push_str(&table.render(out.style())),
        }
        text
    }
}
