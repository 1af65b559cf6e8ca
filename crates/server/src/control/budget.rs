//! `/v1/budget`: what each device can still promise.

use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use jiff::Timestamp;
use tidegate_api::budget::{DeviceBudgetView, PromisesView};
use tidegate_core::fit::{self, Assumed, Budget, PlannedVm};
use tokio::task::spawn_blocking;

use super::Api;
use super::error::{ApiError, ApiResult};
use super::handlers::ok;
use super::plane::Plane;
use super::schedule::Clock;
use super::transfer_rates::{TransferRate, needed_at, transfer_rates};
use crate::config::{DeviceConfig, VmConfig};
use crate::daemon::DaemonHandle;
use crate::feasibility;

/// Reason for which the budget of a device without a usable profile is not known.
const NO_PROFILE: &str = "not known without a saturation profile: measure the device by `tidegate \
                          profile` and name the file as its `profile`";

/// Time for which a budget is used, from the beginning of its computation: with a thousand VMs it
/// may take a second of a processor, and clients may ask without end.
pub(super) const REUSED_FOR: Duration = Duration::from_secs(1);

/// Inputs of a device's budget.
struct Inputs {
    device: DeviceConfig,
    vms: Vec<VmConfig>,
    /// Rates that running deadline transfers need, or the reason why they are not known.
    transfers: Result<Vec<TransferRate>, String>,
}

/// `GET /v1/budget`
pub(super) async fn list<P: Plane>(State(api): State<Api<P>>) -> ApiResult<Response> {
    let own = api.clone();
    let budgets = api.budgets.get(move || async move { own.budgets().await });
    Ok(ok(&budgets.await??))
}

/// Returns what each device of a daemon can still promise, as `GET /v1/budget` does.
///
/// # Errors
/// The reason, if the computation fails or an event loop does not answer.
pub async fn device_budgets(daemon: &DaemonHandle) -> Result<Vec<DeviceBudgetView>, String> {
    let api = Api::new(daemon.clone(), Clock::system());
    api.budgets().await.map_err(|error| error.body.error.what)
}

impl<P: Plane> Api<P> {
    /// Returns the budgets of all devices.
    ///
    /// # Errors
    /// 500 if the computation fails.
    async fn budgets(&self) -> ApiResult<Vec<DeviceBudgetView>> {
        let now = self.clock.now();
        let mut all = Vec::new();
        for (index, device) in self.plane.device_configs().into_iter().enumerate() {
            // Without a profile the answer is known, and the event loop need not be asked.
            let transfers = match feasibility::device(&device) {
                None => Ok(Vec::new()),
                Some(_) => {
                    let snapshot = self.snapshot(index, &device.name).await;
                    snapshot.map(|snapshot| transfer_rates(&snapshot))
                }
            };
            // A loop that does not answer is a finding about its device, and none about others.
            let transfers = transfers.map_err(|error| error.body.error.what);
            let vms = self.plane.vms_of(index);
            all.push(Inputs {
                device,
                vms,
                transfers,
            });
        }
        // Hundreds of fits of all VMs take too long for the thread that serves the API.
        let views = move || all.iter().map(|inputs| inputs.view(now)).collect();
        spawn_blocking(views).await.map_err(|error| {
            let what = format!("the budget could not be computed: {error}");
            ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, what, "request")
        })
    }
}

impl Inputs {
    fn view(&self, now: Timestamp) -> DeviceBudgetView {
        let name = self.device.name.clone();
        let (device, transfers) = match (feasibility::device(&self.device), &self.transfers) {
            (Some(device), Ok(transfers)) => (device, transfers),
            (known, transfers) => {
                let reason = match (known, transfers) {
                    (Some(_), Err(why)) => why.clone(),
                    _ => self.profile_problem(),
                };
                return DeviceBudgetView {
                    device: name,
                    available: None,
                    total: None,
                    used_thousandths: None,
                    reason: Some(reason),
                };
            }
        };
        let assumed = Assumed::default();
        let situations = self.situations(transfers, now);
        let at_present = &situations[0];
        let fit = fit::evaluate(&device, at_present, &assumed);
        // A device that is short now has nothing left, which need not be searched for.
        let available = if fit.fits() {
            fit::budget(&device, &situations, &assumed)
        } else {
            Budget::NONE
        };
        let alone = fit::budget(&device, &[Vec::new()], &assumed);
        // A VM that is alone has its own long I/Os in front of it, which are split beside others.
        let latency = [alone.latency, available.latency];
        let total = Budget {
            latency: latency.into_iter().flatten().min(),
            ..alone
        };
        let disk_bytes_left = device
            .capacity
            .map(|all| all.saturating_sub(fit.disk_bytes));
        // In the first case transfers may be what is in the way.
        let reason = Some(fit.reason(at_present)).filter(|reason| !reason.is_empty());
        let reason = reason.or_else(|| feasibility::shortage(&self.device, &self.vms, now));
        DeviceBudgetView {
            device: name,
            available: Some(promises(&available, disk_bytes_left)),
            total: Some(promises(&total, device.capacity)),
            used_thousandths: Some(fit.tightest().1),
            reason,
        }
    }

    /// Returns why the device cannot be planned with.
    fn profile_problem(&self) -> String {
        let profile = self.device.scheduling.profile.as_ref();
        let imprecise = profile.and_then(|profile| profile.imprecision());
        imprecise.map_or_else(
            || NO_PROFILE.to_owned(),
            |what| format!("{what}; {}", feasibility::MEASURE_AGAIN),
        )
    }

    /// Returns the VMs with the objectives of now, and of each time at which a schedule changes
    /// one, each with the transfers that run until then. Times with the same promises are one.
    fn situations(&self, transfers: &[TransferRate], now: Timestamp) -> Vec<Vec<PlannedVm<'_>>> {
        let at = |time: Option<Timestamp>| {
            let planned = self.vms.iter().map(|vm| {
                let objective = time.map_or(&vm.objective, |time| vm.promised_at(time));
                PlannedVm {
                    transfer: needed_at(transfers, &vm.name, time),
                    ..feasibility::planned_vm_with(vm, objective)
                }
            });
            planned.collect::<Vec<_>>()
        };
        let mut all = vec![at(None)];
        let schedules = self.vms.iter().filter_map(|vm| vm.schedule.as_deref());
        for time in feasibility::schedule_changes(schedules, now) {
            let then = at(Some(time));
            if all.iter().all(|known| !is_same(known, &then)) {
                all.push(then);
            }
        }
        all
    }
}

/// Returns true if the same VMs are promised the same.
fn is_same(one: &[PlannedVm<'_>], other: &[PlannedVm<'_>]) -> bool {
    one.iter()
        .zip(other)
        .all(|(one, other)| one.objective == other.objective && one.transfer == other.transfer)
}

fn promises(budget: &Budget, disk_bytes: Option<u64>) -> PromisesView {
    PromisesView {
        reservation_iops: budget.ops,
        reservation_bytes_per_s: budget.bytes_per_s,
        target_iops: budget.ops,
        target_bytes_per_s: budget.bytes_per_s,
        latency_ns: budget.latency.map(|bound| bound.0),
        transfer_bytes_per_s: budget.transfer,
        disk_bytes,
    }
}
