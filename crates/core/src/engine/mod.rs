//! Engine: requests in, device I/Os out, and every request answered exactly once.
//!
//! ```text
//! handle_request --> [ lane of its VM: units in order of arrival, merging ]
//!                        | regulator (admission): pending --> admitted
//!                        v
//!                    [ dispatcher's index ] -- regulator (dispatch): lane gates
//!                        v
//! poll_dispatch  <-- device I/O: a whole unit, with what continues it, or a part of a request
//! handle_completion --> part of its requests done --> poll_done
//! ```
//!
//! A guest request is in one of these states:
//!
//! ```text
//! PENDING --admit--> ADMITTED --last byte handed out--> STARTED --last part ended--> answered
//!    |                  |  ^                               |
//!    +---- merged ------+--|--> MERGED -----unit started---+
//!    |                  |  +---- merged I/O failed: again, alone
//!    +---- client gone -+--> answered as cancelled
//! EXPRESS (a flush) --its disk's turn--> STARTED
//! LIMITED (beyond a limit of its disk) --the limit lets it go--> PENDING
//! ```
//!
//! The engine is a thin whole of parts that own their state: `request_budgets` (request slots and
//! payload memory), `directory` (disks and their clients), `in_flight` (I/Os with the device),
//! `flushes` (the flush lane), `disk_limits` (requests beyond a limit of their disk), `device`
//! (bounds on the use of the device whatever the policy),
//! `hung` (disks that hang leave the depth count), `active` (the policy in force: roles, event
//! fan-out, gates), and the [`View`], which roles read, with their `Queues` of VMs and requests.
//!
//! The engine's own steps, in the order of a request's path: `arrival` (checks, merging),
//! `dispatch` (start of I/Os, splitting), `back_merge` (adjacent units go along), `completion`
//! (also cancelling), `finished_requests` (wait to be taken), `timers`. Drivers control and
//! query everything beside I/O by facets: [`Admission`], [`Vms`], [`Transfers`], [`Device`].

mod active;
mod admission;
mod arrival;
mod back_merge;
mod completion;
mod config;
mod control;
mod device;
mod device_facet;
mod directory;
mod disk_limits;
mod disks;
mod dispatch;
mod error;
mod finished_requests;
mod flushes;
mod host_messages;
mod hung;
mod in_flight;
mod measured_depth;
mod moment;
mod promises;
mod request_budgets;
mod timers;
mod transfer_accounts;
mod transfers;
mod vms;

#[cfg(test)]
mod tests;

pub use admission::{Admission, AdmissionMut};
pub use config::EngineConfig;
pub use device_facet::{Device, DeviceMut};
pub use disk_limits::SharedLimitId;
pub use disks::DiskSpec;
pub use error::{EngineError, Refusal};
pub use hung::{DATA_SILENCE_TIMEOUT, OTHER_SILENCE_TIMEOUT, SilenceTimeouts};
pub use promises::Feasibility;
pub use request_budgets::{Holdings, PayloadBounds, PayloadMemory};
pub use tidegate_base::device::{DeviceSpec, DeviceStats};
pub use transfers::{Transfers, TransfersMut};
pub use vms::{LimitId, Vms, VmsMut};

use crate::attainment::{Attainments, Dues};
use crate::interference::Interference;
use crate::limit_accounts::LimitAccounts;
use crate::policy::Policy;
use crate::roles::{Footprint, Stage};
use crate::stats::{Ledger, VmStats};
use crate::view::{Cold, Hot, NIL, Queues, View, Vm};
use active::ActivePolicy;
use device::DeviceControl;
use directory::Directory;
use disk_limits::DiskLimits;
use finished_requests::FinishedRequests;
use flushes::FlushLane;
use hung::HungDisks;
use in_flight::InFlight;
use promises::Promises;
use request_budgets::RequestBudgets;
use std::sync::Arc;
use tidegate_base::heap::IndexedHeap;
use tidegate_base::objective::Objective;
use tidegate_base::request::{Done, IoId, Lane, Segment};
use tidegate_base::time::Nanos;

/// Scheduling engine of one device; see the [module](self).
pub struct Engine {
    config: EngineConfig,
    active: ActivePolicy,
    view: View,
    budgets: RequestBudgets,
    directory: Directory,
    /// Free VM slots; the last one is taken next.
    free_vm: Vec<u32>,
    in_flight: InFlight,
    flushes: FlushLane,
    /// Limits of disks; `None` until the first one.
    disk_limits: Option<Box<DiskLimits>>,
    attainment: Attainments,
    /// Ledger of interference: for each VM the time of its requests by cause.
    interference: Interference,
    /// Slot of the VM that was served last; `NIL`: none was.
    last_vm: u32,
    done: FinishedRequests,
    control: DeviceControl,
    /// State of reckoning all promises together.
    promises: Promises,
    /// Maximum bandwidth of one VM in bytes a second, as the driver has set it; 0: unknown.
    best_bandwidth: u64,
    /// Search for disks that hang; `None`: off.
    hung: Option<Box<HungDisks>>,
    /// At least one disk hangs: spares the request path a look into `hung`.
    any_hung: bool,
}

impl Engine {
    /// Creates an engine with no VMs.
    ///
    /// # Errors
    /// When a figure of the configuration is out of range.
    pub fn new(config: EngineConfig, policy: &dyn Policy) -> Result<Engine, EngineError> {
        config.check()?;
        let roles = policy.build(config.max_vms, config.max_requests);
        let mut engine = Engine {
            view: View::from(Queues::new(
                config.device,
                config.max_requests,
                config.merge_limit,
            )),
            budgets: RequestBudgets::new(
                config.max_requests,
                config.max_pending_per_vm,
                config.max_vms,
            ),
            active: ActivePolicy::new(policy, roles),
            directory: Directory::new(),
            free_vm: (0..config.max_vms).rev().collect(),
            in_flight: InFlight::new(config.device.depth),
            flushes: FlushLane::new(),
            disk_limits: None,
            attainment: Attainments::new(&config.device, config.max_requests),
            interference: Interference::new(&config.device, config.max_requests),
            last_vm: NIL,
            done: FinishedRequests::with_capacity(config.max_requests as usize),
            control: DeviceControl::new(config.device.depth),
            promises: Promises::new(),
            best_bandwidth: 0,
            hung: None,
            any_hung: false,
            config,
        };
        engine.active.make_gates(engine.config.max_vms);
        engine
            .control
            .estimate_costs(&mut engine.view, &engine.active.roles);
        Ok(engine)
    }

    /// Returns the next finished guest request; to be called until `None` after every batch of
    /// completions, disconnects and removals.
    #[inline]
    pub fn poll_done(&mut self) -> Option<Done> {
        self.done.pop()
    }

    /// Memory of an I/O: pieces of guest requests in the order of their addresses. Valid from the
    /// I/O's [`Engine::poll_dispatch`] to its completion; empty for other handles.
    pub fn io_segments(&self, io: IoId) -> impl Iterator<Item = Segment> + '_ {
        let io = self.in_flight.get(io);
        let (mut slot, mut left, mut offset) =
            io.map_or((NIL, 0, 0), |f| (f.first, f.io.len, f.first_offset));
        core::iter::from_fn(move || {
            if left == 0 {
                return None;
            }
            let (hot, cold) = (
                &self.view.queues.reqs.hot[slot as usize],
                &self.view.queues.reqs.cold[slot as usize],
            );
            let segment = Segment {
                req: self.view.req_id(slot),
                tag: cold.tag,
                client: self.directory.client_id(cold.client),
                offset,
                len: (hot.len - offset).min(left),
            };
            (slot, left, offset) = (hot.chain_next, left - segment.len, 0);
            Some(segment)
        })
    }

    /// Returns whether an I/O is in flight. A driver whose device may report an end twice asks
    /// before [`Engine::handle_completion`], which panics on the second.
    pub fn is_in_flight(&self, io: IoId) -> bool {
        self.in_flight.contains(io)
    }

    /// Read-only view that roles have of the engine.
    pub fn view(&self) -> &View {
        &self.view
    }

    /// Copy of the device's specification and counters.
    pub fn device_stats(&self) -> DeviceStats {
        self.view.queues.device
    }

    /// Configuration that the engine was created with.
    pub fn config(&self) -> &EngineConfig {
        &self.config
    }

    /// Policy in force, without the wrapper around its roles.
    pub fn policy(&self) -> &Arc<dyn Policy> {
        &self.active.policy
    }

    /// Memory in bytes that one more VM and one more queued request take.
    pub fn footprint(&self) -> Footprint {
        use core::mem::size_of;
        let [regulator, dispatcher] = [
            self.active.roles.regulator.footprint(),
            self.active.roles.dispatcher.footprint(),
        ];
        let gates = match self.active.stage {
            Stage::Open => 0,
            Stage::Admission | Stage::Dispatch => {
                Lane::ALL.len() * IndexedHeap::<Nanos>::BYTES_PER_ID
            }
        };
        Footprint {
            vm: size_of::<Vm>() + gates + regulator.vm + dispatcher.vm,
            vm_cold: size_of::<Objective>()
                + size_of::<Ledger>()
                + VmStats::HEAP_BYTES
                + LimitAccounts::BYTES_PER_VM
                + Attainments::BYTES_PER_VM
                + Interference::BYTES_PER_VM
                + regulator.vm_cold
                + dispatcher.vm_cold,
            request: size_of::<Hot>()
                + size_of::<Cold>()
                + size_of::<Dues>()
                + Interference::BYTES_PER_REQUEST
                + regulator.request
                + dispatcher.request,
        }
    }

    /// Returns the facet of questions about request slots and payload memory.
    #[inline]
    pub fn admission(&self) -> Admission<'_> {
        Admission { engine: self }
    }

    /// Returns the facet that changes request slots and payload memory.
    #[inline]
    pub fn admission_mut(&mut self) -> AdmissionMut<'_> {
        AdmissionMut { engine: self }
    }

    /// Returns the facet of questions about VMs and their disks.
    #[inline]
    pub fn vms(&self) -> Vms<'_> {
        Vms { engine: self }
    }

    /// Returns the facet that changes VMs and their disks.
    #[inline]
    pub fn vms_mut(&mut self) -> VmsMut<'_> {
        VmsMut { engine: self }
    }

    /// Returns the facet of questions about deadline transfers of VMs.
    #[inline]
    pub fn transfers(&self) -> Transfers<'_> {
        Transfers { engine: self }
    }

    /// Returns the facet that changes deadline transfers of VMs.
    #[inline]
    pub fn transfers_mut(&mut self) -> TransfersMut<'_> {
        TransfersMut { engine: self }
    }

    /// Returns the facet of questions about the device.
    #[inline]
    pub fn device(&self) -> Device<'_> {
        Device { engine: self }
    }

    /// Returns the facet that changes the use of the device.
    #[inline]
    pub fn device_mut(&mut self) -> DeviceMut<'_> {
        DeviceMut { engine: self }
    }
}

#[cfg(debug_assertions)]
impl Drop for Engine {
    fn drop(&mut self) {
        // Debug builds only: a lost request hangs its guest, and a test should fail where it is
        // lost.
        let limited = (self.disk_limits.as_ref()).map_or(0, |limits| limits.all_waiting());
        let left = self.view.queues.device.requests + limited;
        if left > 0 && !std::thread::panicking() {
            panic!("an engine was dropped with {left} unanswered requests");
        }
    }
}
