//! Schedules: objectives that change at times of day or dates, and the routes that edit them.
//!
//! ```text
//!   clock --> objective due by each schedule --differs from the present--> admission --> in force
//!     ^                                                                        |
//!     +--- at the next change, after 60 s at most <----------------------------+ does not fit:
//!                                                                                unchanged, logged
//! ```
//!
//! The objective due is a function of the time alone, so checking the clock is enough, whether it
//! was set, the host slept, or a change was made meanwhile. The check is repeated every 60 s at
//! least, because nothing reports that the clock was set.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
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
use super::handlers::{Body, change_query, in_time, ok, parse_body};
use super::path::Path;
use super::plane::Plane;
use super::view;
use crate::command::VmSnapshot;
use crate::config::{self, Schedule, VmConfig};
use crate::feasibility::format_local;
use crate::metrics::Scheduled;

/// Maximum time between two checks of the clock.
const CHECK_INTERVAL_MAX: Duration = Duration::from_secs(60);
/// Time after which due changes are tried again if another change held the lock for too long.
const RETRY_AFTER_BUSY: Duration = Duration::from_secs(1);
/// Example of an entry of a schedule, for messages about a body that is none.
pub(super) const ENTRY_EXAMPLE: &str =
    "{\"from\": \"18:00\", \"until\": \"23:00\", \"target\": \"50 MB/s\"}";

/// Wall clock and the time zone of times for people; tests substitute both.
#[derive(Clone)]
pub(crate) struct Clock {
    now: Arc<dyn Fn() -> Timestamp + Send + Sync>,
    /// Time zone; `None` for the system's, which may be changed while the daemon runs.
    zone: Option<TimeZone>,
}

impl Clock {
    /// Returns the system's clock and time zone.
    pub(super) fn system() -> Clock {
        Clock {
            now: Arc::new(Timestamp::now),
            zone: None,
        }
    }

    /// Returns a clock that shows what `now` returns.
    #[cfg(test)]
    pub(super) fn from_fn(now: impl Fn() -> Timestamp + Send + Sync + 'static) -> Clock {
        Clock {
            now: Arc::new(now),
            zone: None,
        }
    }

    /// Replaces the time zone.
    #[cfg(test)]
    pub(super) fn in_zone(self, zone: TimeZone) -> Clock {
        Clock {
            zone: Some(zone),
            ..self
        }
    }

    /// Returns the present time.
    pub(super) fn now(&self) -> Timestamp {
        (self.now)()
    }

    /// Returns the time zone of times that are shown to people.
    pub(super) fn zone(&self) -> TimeZone {
        self.zone.clone().unwrap_or_else(TimeZone::system)
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Clock").field(&self.now()).finish()
    }
}

/// VMs whose due objective is not in force, with the reason.
pub(super) type Held = BTreeMap<String, String>;

/// State of one pass over the VMs with due changes.
#[derive(Default)]
struct DuePass {
    /// Devices that can keep all objectives that are due.
    fits: BTreeSet<usize>,
    /// Devices whose event loop did not answer, with the error: further VMs of the device are
    /// skipped, because each would wait for the whole deadline.
    silent: BTreeMap<usize, String>,
}

impl<P: Plane> Api<P> {
    /// Applies schedules until the future is dropped.
    pub(super) async fn follow_schedules(self) {
        loop {
            let wait = self.apply_due_changes().await;
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = self.rescheduled.notified() => {}
            }
        }
    }

    /// Applies the changes that are due. Returns the time until the next one, at most
    /// [`CHECK_INTERVAL_MAX`].
    pub(super) async fn apply_due_changes(&self) -> Duration {
        // Taken before the changes, so that an entry that begins during them is seen by the next
        // check.
        let began = self.clock.now();
        if self.due().is_empty() {
            // Nothing is due, so whatever was held back is in force or was changed.
            self.held().clear();
        } else if self.apply_all_due().await.is_err() {
            return RETRY_AFTER_BUSY;
        }
        let scheduled = self.plane.scheduled();
        let schedules = scheduled.iter().filter_map(|vm| vm.schedule.as_deref());
        let bounds = schedules.filter_map(|schedule| schedule.next_bound(began));
        bounds.min().map_or(CHECK_INTERVAL_MAX, |at| {
            let left = Duration::try_from(self.clock.now().duration_until(at));
            // A time that has passed meanwhile becomes 0.
            left.unwrap_or_default().min(CHECK_INTERVAL_MAX)
        })
    }

    /// Returns the VMs whose schedules give another objective than the one in force.
    fn due(&self) -> Vec<VmConfig> {
        let now = self.clock.now();
        let mut scheduled = self.plane.scheduled();
        scheduled.retain(|vm| vm.promised_at(now) != &vm.objective);
        scheduled
    }

    /// Applies the changes that are due, under the lock on changes. Repeats the pass while it makes
    /// progress, because a change that does not fit may fit once another VM has given something
    /// back.
    async fn apply_all_due(&self) -> ApiResult<()> {
        let _one_at_a_time = self.lock_changes("schedule").await?;
        let mut pass = DuePass::default();
        let mut held = Held::new();
        pass.fits = self.fits_together(&self.due());
        loop {
            let due = self.due();
            let before = due.len();
            held.clear();
            for vm in due {
                if let Err(why) = self.apply_due_to(&vm, &mut pass).await {
                    held.insert(vm.name, why);
                }
            }
            // No progress: what is left does not fit.
            if held.is_empty() || held.len() == before {
                break;
            }
        }
        let mut known = self.held();
        for (vm, why) in held.iter().filter(|(vm, why)| known.get(*vm) != Some(*why)) {
            tracing::warn!(
                vm,
                "the objective that its schedule gives is not in force: {why}"
            );
        }
        *known = held;
        Ok(())
    }

    /// Returns the devices that can keep all objectives that are due. One computation per device
    /// replaces one per VM if many schedules change at the same time.
    fn fits_together(&self, due: &[VmConfig]) -> BTreeSet<usize> {
        let now = self.clock.now();
        let devices: BTreeSet<usize> = due.iter().map(|vm| vm.device).collect();
        let configs = self.plane.device_configs();
        let fits = |index: &usize| {
            let vms = self.plane.vms_of(*index);
            (configs.get(*index)).is_some_and(|device| admit::fits_at(device, &vms, now))
        };
        devices.into_iter().filter(fits).collect()
    }

    /// Applies the objective that a VM's schedule gives now. Returns the reason if it cannot.
    async fn apply_due_to(&self, vm: &VmConfig, pass: &mut DuePass) -> Result<(), String> {
        if let Some(why) = pass.silent.get(&vm.device) {
            return Err(why.clone());
        }
        let promised = vm.promised();
        let due = promised.in_force_at(self.clock.now());
        let entry = due.entry.map(|index| &promised.entries()[index]);
        // Outside of all entries the VM returns to its base objective, which was admitted when it
        // was set.
        if entry.is_some_and(|entry| !entry.force)
            && !pass.fits.contains(&vm.device)
            && let Some(refusal) = self.refusal_now(vm, due.objective)
        {
            return Err(refusal);
        }
        let set = self.plane.set_objective(&vm.name, *due.objective);
        let snapshot = in_time(&vm.name, set).await;
        let snapshot = snapshot.map_err(|error| {
            let why = error.body.error.what;
            // Other errors concern this VM alone.
            if error.status == StatusCode::SERVICE_UNAVAILABLE {
                pass.silent.insert(vm.device, why.clone());
            }
            why
        })?;
        let view = view::objective(&snapshot.objective);
        let objective = serde_json::to_string(&view).unwrap_or_default();
        let by = entry.map_or("the end of an entry".to_owned(), |entry| {
            entry.when.to_string()
        });
        tracing::info!(vm = vm.name, by, %objective, "objective changed by its schedule");
        Ok(())
    }

    /// Returns the reason why an objective of a VM does not fit beside those in force; `None` if it
    /// fits, or the device is unknown.
    fn refusal_now(&self, vm: &VmConfig, objective: &Objective) -> Option<String> {
        let configs = self.plane.device_configs();
        let proposal = Proposal {
            device: configs.get(vm.device)?,
            vms: &self.plane.vms_of(vm.device),
            // The entry was admitted beside the transfers of that time, and later ones beside the
            // entry. One that has fallen behind, or was forced, does not hold the entry back.
            running: &[],
            vm: &vm.name,
            background: vm.background,
        };
        let refusal = proposal.refusal_now(objective)?;
        Some(format!("it does not fit: {}", refusal.why))
    }

    /// Returns the VMs that have a schedule, for the metrics.
    pub(super) fn scheduled(&self) -> Vec<Scheduled> {
        let devices = self.plane.devices();
        let vms = self.plane.scheduled().into_iter();
        // Locked once for all VMs, so that all figures are of one state.
        let held = self.held();
        let scheduled = |vm: VmConfig| {
            let (device, _) = devices.get(vm.device)?;
            Some(Scheduled {
                held: held.contains_key(&vm.name),
                vm: vm.name,
                device: device.clone(),
            })
        };
        vms.filter_map(scheduled).collect()
    }

    /// Returns a VM's view with its schedule and its deadline transfer.
    pub(super) fn view(&self, snapshot: &VmSnapshot) -> VmView {
        let config = self.plane.vm(&snapshot.name);
        self.view_with(
            snapshot,
            config.and_then(|config| config.schedule).as_deref(),
        )
    }

    /// Returns the views of VMs with their schedules and deadline transfers.
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
        view.transfer = view::transfer(snapshot, &self.display_time());
        view
    }

    /// Returns the view of a VM after a change of its objective from `before` to `after`, with a
    /// note if an entry of the schedule hides a part of the change for now.
    pub(super) fn view_of_change(
        &self,
        snapshot: &VmSnapshot,
        before: &Schedule,
        after: &Schedule,
    ) -> VmView {
        let mut view = self.view(snapshot);
        let now = self.clock.now();
        // A change of the schedule alone hides nothing, so it needs no note.
        if let Some(index) = after.in_force_at(now).entry
            && after.base() != before.base()
        {
            let entry = &after.entries()[index].when;
            let end = after
                .next(now)
                .map(|next| format_local(next.at, after.zone()));
            let end = end.map_or(String::new(), |end| {
                format!(", until {end} as things stand")
            });
            view.notes.push(format!(
                "entry {} of its schedule is in force ({entry}){end}: the values that it sets \
                 stay until then",
                // Entries are numbered from 1, as GET shows them.
                index + 1
            ));
        }
        view
    }

    /// Replaces the schedule of a VM, after admission. `change` computes the changed keys of the
    /// objective from the present schedule.
    async fn change_schedule(
        &self,
        name: &str,
        query: ChangeQuery,
        change: impl FnOnce(&Schedule) -> ApiResult<Value> + Send + 'static,
    ) -> ApiResult<Response> {
        let (api, vm) = (self.clone(), name.to_owned());
        self.change(name, async move {
            let (config, _) = api.existing_vm(&vm).await?;
            let before = config.promised();
            let after = config::schedule::merge(&before, &change(&before)?)?;
            api.admit(&vm, None, config.background, &after, query)
                .await?;
            let snapshot = api.promise(&vm, after, before, query).await?;
            Ok(ok(&api.view(&snapshot)))
        })
        .await
    }
}

/// Handles `POST /v1/vms/NAME/schedule`: adds an entry.
pub(super) async fn add<P: Plane>(
    State(api): State<Api<P>>,
    Path(name): Path<String>,
    uri: Uri,
    body: Body,
) -> ApiResult<Response> {
    let query = change_query(&uri)?;
    let mut entry = parse_body(body, ENTRY_EXAMPLE)?;
    // The time zone is a key of the whole schedule, but comes with an entry for convenience.
    let zone = entry
        .as_object_mut()
        .and_then(|entry| entry.remove("timezone"));
    api.change_schedule(&name, query, move |schedule| {
        let mut entries = schedule.entries_to_json();
        entries.push(entry);
        let mut change = json!({ "schedule": entries });
        if let Some(zone) = zone {
            change["timezone"] = zone;
        }
        Ok(change)
    })
    .await
}

/// Handles `DELETE /v1/vms/NAME/schedule`: removes all entries.
pub(super) async fn clear<P: Plane>(
    State(api): State<Api<P>>,
    Path(name): Path<String>,
    uri: Uri,
) -> ApiResult<Response> {
    let query = change_query(&uri)?;
    let nothing = json!({ "schedule": null, "timezone": null });
    api.change_schedule(&name, query, |_| Ok(nothing)).await
}

/// Handles `DELETE /v1/vms/NAME/schedule/NUMBER`: removes an entry, by its number from 1.
pub(super) async fn remove<P: Plane>(
    State(api): State<Api<P>>,
    Path((name, number)): Path<(String, String)>,
    uri: Uri,
) -> ApiResult<Response> {
    let query = change_query(&uri)?;
    api.change_schedule(&name, query, move |schedule| {
        let mut entries = schedule.entries_to_json();
        let index = number
            .parse()
            .ok()
            // Entries are numbered from 1, as GET shows them.
            .and_then(|number: usize| number.checked_sub(1));
        let Some(index) = index.filter(|index| *index < entries.len()) else {
            let what = format!("its schedule has no entry {number}");
            let error = ApiError::new(StatusCode::NOT_FOUND, what, "schedule");
            return Err(error.allowing(match entries.len() {
                0 => "the schedule has no entries".to_owned(),
                n => format!("1 to {n}, as GET shows them"),
            }));
        };
        entries.remove(index);
        Ok(json!({ "schedule": entries }))
    })
    .await
}
