//! Objectives that change by the clock.
//!
//! ```text
//!   clock --look--> what each schedule says now --differs--> admit --fits--> in force
//!     ^                                                        |
//!     +------ at the next beginning or end, a minute at most <-+- does not: as it was, said
//! ```
//!
//! What is to be in force follows from the time alone, so a look at the clock is all there is:
//! whether it was set, went on while the host slept, or a change was made in between. A look sleeps
//! for a minute at most, for a clock that is set tells nobody.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Path, State};
use axum::http::{StatusCode, Uri};
use axum::response::Response;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde_json::{Value, json};
use tidegate_api::query::ChangeQuery;
use tidegate_api::vm::VmView;
use tidegate_core::objective::Objective;

use super::Api;
use super::admit::{self, Proposal};
use super::error::{ApiError, ApiResult};
use super::handlers::{Body, change_query, in_time, ok, parse};
use super::plane::Plane;
use super::view;
use crate::command::VmSnapshot;
use crate::config::{self, Schedule, VmConfig};
use crate::fitting::written;
use crate::metrics::Scheduled;

/// How long a look at the clock may be ago.
const LOOK_WITHIN: Duration = Duration::from_secs(60);
/// What is due and could not be done, because another change took long, is tried again after this.
const AGAIN_AFTER: Duration = Duration::from_secs(1);
const ENTRY: &str = "{\"from\": \"18:00\", \"until\": \"23:00\", \"target\": \"50 MB/s\"}";

/// Time of day, and the time zone in which people read it.
#[derive(Clone)]
pub(crate) struct Clock {
    now: Arc<dyn Fn() -> Timestamp + Send + Sync>,
    /// `None`: the system's, which may be set while the daemon runs.
    zone: Option<TimeZone>,
}

impl Clock {
    /// The system's.
    pub(super) fn system() -> Clock {
        Clock {
            now: Arc::new(Timestamp::now),
            zone: None,
        }
    }

    /// One of a test's own.
    #[cfg(test)]
    pub(super) fn of(now: impl Fn() -> Timestamp + Send + Sync + 'static) -> Clock {
        Clock {
            now: Arc::new(now),
            zone: None,
        }
    }

    /// Sets the time zone.
    #[cfg(test)]
    pub(super) fn in_zone(self, zone: TimeZone) -> Clock {
        Clock {
            zone: Some(zone),
            ..self
        }
    }

    /// What it shows.
    pub(super) fn now(&self) -> Timestamp {
        (self.now)()
    }

    /// Time zone of the times of day that people are shown.
    pub(super) fn zone(&self) -> TimeZone {
        self.zone.clone().unwrap_or_else(TimeZone::system)
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Clock").field(&self.now()).finish()
    }
}

/// By VM, why what its schedule says is not in force.
pub(super) type Held = BTreeMap<String, String>;

/// What is known of devices while what is due is changed.
#[derive(Default)]
struct Round {
    /// Those that can keep all of it.
    fits: BTreeSet<usize>,
    /// Those that do not do what they are told, and why: a thousand VMs shall not wait for the same
    /// one.
    silent: BTreeMap<usize, String>,
}

impl<P: Plane> Api<P> {
    /// Puts in force what schedules say, each at its time, until it is dropped.
    pub(super) async fn follow_schedules(self) {
        loop {
            let wait = self.look_at_the_clock().await;
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = self.rescheduled.notified() => {}
            }
        }
    }

    /// Puts in force what is due; how long nothing will be.
    pub(super) async fn look_at_the_clock(&self) -> Duration {
        // What begins while something is changed is looked at once that is done.
        let began = self.clock.now();
        match self.due().is_empty() {
            true => self.held().clear(),
            false => {
                if self.change_what_is_due().await.is_err() {
                    return AGAIN_AFTER;
                }
            }
        }
        let scheduled = self.plane.scheduled();
        let schedules = scheduled.iter().filter_map(|vm| vm.schedule.as_deref());
        let bounds = schedules.filter_map(|schedule| schedule.next_bound(began));
        bounds.min().map_or(LOOK_WITHIN, |at| {
            let left = Duration::try_from(self.clock.now().duration_until(at));
            // Before now is at once.
            left.unwrap_or_default().min(LOOK_WITHIN)
        })
    }

    /// The VMs whose schedules say something else than is in force.
    fn due(&self) -> Vec<VmConfig> {
        let now = self.clock.now();
        let mut scheduled = self.plane.scheduled();
        scheduled.retain(|vm| vm.promised_at(now) != &vm.objective);
        scheduled
    }

    /// As a change, which nobody else changes anything beside. What does not fit yet may do so once
    /// another has given something back.
    async fn change_what_is_due(&self) -> ApiResult<()> {
        let _one_at_a_time = self.alone("schedule").await?;
        let mut round = Round::default();
        let mut held = Held::new();
        round.fits = self.fits_together(&self.due());
        loop {
            let due = self.due();
            let before = due.len();
            held.clear();
            for vm in due {
                if let Err(why) = self.change_by_the_clock(&vm, &mut round).await {
                    held.insert(vm.name, why);
                }
            }
            if held.is_empty() || held.len() == before {
                break;
            }
        }
        let mut known = self.held();
        for (vm, why) in held.iter().filter(|(vm, why)| known.get(*vm) != Some(*why)) {
            tracing::warn!(vm, "what its schedule says is not in force: {why}");
        }
        *known = held;
        Ok(())
    }

    /// The devices that can keep all that is due together. A thousand VMs whose evening begins at
    /// the same time are not reckoned one by one.
    fn fits_together(&self, due: &[VmConfig]) -> BTreeSet<usize> {
        let now = self.clock.now();
        let devices: BTreeSet<usize> = due.iter().map(|vm| vm.device).collect();
        let configs = self.plane.device_configs();
        let fits = |at: &usize| {
            let vms = self.plane.vms_of(*at);
            (configs.get(*at)).is_some_and(|device| admit::fits_at(device, &vms, now))
        };
        devices.into_iter().filter(fits).collect()
    }

    /// Puts in force what a VM's schedule says now; or why that is not to be.
    async fn change_by_the_clock(&self, vm: &VmConfig, round: &mut Round) -> Result<(), String> {
        if let Some(why) = round.silent.get(&vm.device) {
            return Err(why.clone());
        }
        let promised = vm.promised();
        let then = promised.at(self.clock.now());
        let entry = then.entry.map(|at| &promised.entries()[at]);
        // Without any of them it has what it was promised first, and keeps no more than that.
        if entry.is_some_and(|entry| !entry.force)
            && !round.fits.contains(&vm.device)
            && let Some(refusal) = self.refusal_now(vm, then.objective)
        {
            return Err(refusal);
        }
        let set = self.plane.set_objective(&vm.name, *then.objective);
        let now = in_time(&vm.name, set).await;
        let now = now.map_err(|error| {
            let why = error.body.error.what;
            if error.status == StatusCode::SERVICE_UNAVAILABLE {
                round.silent.insert(vm.device, why.clone());
            }
            why
        })?;
        let view = view::objective(&now.objective);
        let objective = serde_json::to_string(&view).unwrap_or_default();
        let by = entry.map_or("the end of an entry".to_owned(), |entry| {
            entry.when.to_string()
        });
        tracing::info!(vm = vm.name, by, %objective, "objective changed by its schedule");
        Ok(())
    }

    fn refusal_now(&self, vm: &VmConfig, objective: &Objective) -> Option<String> {
        let configs = self.plane.device_configs();
        let proposal = Proposal {
            device: configs.get(vm.device)?,
            vms: &self.plane.vms_of(vm.device),
            vm: &vm.name,
            background: vm.background,
        };
        let refusal = proposal.refusal_now(objective)?;
        Some(format!("it does not fit: {}", refusal.why))
    }

    /// The VMs that have schedules, and whether what these say is in force.
    pub(super) fn scheduled(&self) -> Vec<Scheduled> {
        let devices = self.plane.devices();
        let all = self.plane.scheduled().into_iter();
        let held = self.held();
        let one = |vm: VmConfig| {
            let (device, _) = devices.get(vm.device)?;
            Some(Scheduled {
                held: held.contains_key(&vm.name),
                vm: vm.name,
                device: device.clone(),
            })
        };
        all.filter_map(one).collect()
    }

    /// A VM as it stands, with its schedule and its job.
    pub(super) fn view(&self, snapshot: &VmSnapshot) -> VmView {
        let config = self.plane.vm(&snapshot.name);
        self.view_with(
            snapshot,
            config.and_then(|config| config.schedule).as_deref(),
        )
    }

    /// VMs as they stand, with their schedules and jobs.
    pub(super) fn views<'a>(&self, all: impl Iterator<Item = &'a VmSnapshot>) -> Vec<VmView> {
        let scheduled = self.plane.scheduled().into_iter();
        let schedules: BTreeMap<_, _> = scheduled.map(|vm| (vm.name, vm.schedule)).collect();
        let schedule = |vm: &VmSnapshot| schedules.get(&vm.name).and_then(Option::as_deref);
        all.map(|vm| self.view_with(vm, schedule(vm))).collect()
    }

    fn view_with(&self, snapshot: &VmSnapshot, schedule: Option<&Schedule>) -> VmView {
        let mut view = view::vm(snapshot);
        view.schedule = schedule.map(|schedule| {
            let held = self.held().get(&snapshot.name).cloned();
            view::schedule(schedule, self.clock.now(), held)
        });
        view.job = view::transfer(snapshot, &self.at());
        view
    }

    /// A VM whose objective was changed; what of the change shows later is noted.
    pub(super) fn changed(&self, snapshot: &VmSnapshot, was: &Schedule, is: &Schedule) -> VmView {
        let mut view = self.view(snapshot);
        let now = self.clock.now();
        if let Some(at) = is.at(now).entry
            && is.base() != was.base()
        {
            let entry = &is.entries()[at].when;
            let end = is.next(now).map(|next| written(next.at, is.zone()));
            let end = end.map_or(String::new(), |end| {
                format!(", until {end} as things stand")
            });
            view.notes.push(format!(
                "entry {} of its schedule is in force ({entry}){end}: what it changes itself is \
                 as it says until then",
                at + 1
            ));
        }
        view
    }

    async fn reschedule(
        &self,
        name: &str,
        wish: ChangeQuery,
        change: impl FnOnce(&Schedule) -> ApiResult<Value> + Send + 'static,
    ) -> ApiResult<Response> {
        let (own, vm) = (self.clone(), name.to_owned());
        self.change(name, async move {
            let (config, _) = own.there(&vm).await?;
            let was = config.promised();
            let promised = config::schedule::merge(&was, &change(&was)?)?;
            own.admit(&vm, None, config.background, &promised, wish)?;
            let now = own.promise(&vm, promised, was, wish).await?;
            Ok(ok(&own.view(&now)))
        })
        .await
    }
}

pub(super) async fn add<P: Plane>(
    State(api): State<Api<P>>,
    Path(name): Path<String>,
    uri: Uri,
    body: Body,
) -> ApiResult<Response> {
    let wish = change_query(&uri)?;
    let mut entry = parse(body, ENTRY)?;
    let zone = entry
        .as_object_mut()
        .and_then(|entry| entry.remove("timezone"));
    api.reschedule(&name, wish, move |was| {
        let mut entries = was.words();
        entries.push(entry);
        let mut change = json!({ "schedule": entries });
        if let Some(zone) = zone {
            change["timezone"] = zone;
        }
        Ok(change)
    })
    .await
}

pub(super) async fn clear<P: Plane>(
    State(api): State<Api<P>>,
    Path(name): Path<String>,
    uri: Uri,
) -> ApiResult<Response> {
    let wish = change_query(&uri)?;
    let nothing = json!({ "schedule": null, "timezone": null });
    api.reschedule(&name, wish, |_| Ok(nothing)).await
}

pub(super) async fn remove<P: Plane>(
    State(api): State<Api<P>>,
    Path((name, number)): Path<(String, String)>,
    uri: Uri,
) -> ApiResult<Response> {
    let wish = change_query(&uri)?;
    api.reschedule(&name, wish, move |was| {
        let mut entries = was.words();
        let place = number
            .parse()
            .ok()
            .and_then(|number: usize| number.checked_sub(1));
        let Some(place) = place.filter(|place| *place < entries.len()) else {
            let what = format!("its schedule has no entry {number}");
            let error = ApiError::new(StatusCode::NOT_FOUND, what, "schedule");
            return Err(error.allowing(match entries.len() {
                0 => "it has none at all".to_owned(),
                n => format!("1 to {n}, as GET shows them"),
            }));
        };
        entries.remove(place);
        Ok(json!({ "schedule": entries }))
    })
    .await
}
