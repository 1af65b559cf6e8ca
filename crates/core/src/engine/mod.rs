//! The engine: requests in, device I/Os out, and every request answered exactly once.
//!
//! ```text
//! handle_request --> [ lane of its VM: units in order of arrival, merging ]
//!                        | regulator (admission): pending --> admitted
//!                        v
//!                    [ dispatcher's index ] -- regulator (dispatch): lane gates
//!                        v
//! poll_dispatch  <-- device I/O: a whole unit, with what continues it, or a part of one large request
//! handle_completion --> part of its requests done --> poll_done
//! ```
//!
//! A guest request is in one of these states:
//!
//! ```text
//! PENDING --admit--> ADMITTED --last byte handed out--> STARTED --last part ended--> answered
//!    |                  |  ^                               |
//!    +---- merged ------+--|--> PASSENGER --unit started---+
//!    |                  |  +---- failed in company: again, alone
//!    +---- client gone -+--> answered as cancelled
//! EXPRESS (a flush) --its disk's turn--> STARTED
//! ```
//!
//! The modules, in the order of a request's way: `intake` (slots and payload memory), `arrive` (checks,
//! merging, admission), `start`
//! (dispatch, splitting), `company` (what goes along), `finish` (completions, cancelling), `answers` (finished requests that wait
//! to be taken). Beside it: `control` (VMs, disks, clients, policies), `jobs`, `timers`, `ears` (what roles
//! are told, and what they ask for), `queue` (the slab and the lanes), `watching` (the device held
//! against its profile, and to a cap that was learnt), `steering` (how deep its queue is kept, and how
//! long an I/O may be while VMs share it), `hung` (disks that hang leave the depth count), `config`, `error`.

mod answers;
mod arrive;
mod company;
mod config;
mod control;
mod disks;
mod ears;
mod error;
mod finish;
mod hung;
mod intake;
mod jobs;
mod queue;
mod start;
mod steering;
mod timers;
mod watching;

#[cfg(test)]
mod tests;

pub use config::EngineConfig;
pub use disks::DiskSpec;
pub use error::{EngineError, Refusal};
pub use hung::{Patience, SILENCE, SILENCE_WITHOUT_DATA};
pub use intake::{Holdings, PayloadBounds};
pub use tidegate_base::device::{DeviceFacts, DeviceSpec};

use crate::facts::{Cold, Facts, Hot, NIL, Vm};
use crate::limit_accounts::LimitAccounts;
use crate::policy::Policy;
use crate::roles::{Footprint, Roles, Stage, Waits};
use crate::stats::{Ledger, VmStats};
use crate::steer::depth::DepthControl;
use crate::steer::sharing::Sharing;
use crate::tuning::Tuning;
use crate::watch::Watch;
use crate::watch::meter::Kind;
use answers::Answers;
use core::cell::Ref;
use disks::{Client, Disk};
use ears::Ears;
use hung::HungDisks;
use intake::Intake;
use std::collections::VecDeque;
use std::sync::Arc;
use tidegate_base::heap::IndexedHeap;
use tidegate_base::objective::Objective;
use tidegate_base::request::{ClientId, DeviceIo, DiskId, Done, IoId, Lane, Segment, VmId};
use tidegate_base::seconds::Seconds;
use tidegate_base::time::Nanos;

/// An I/O in flight.
struct InFlight {
    io: DeviceIo,
    generation: u32,
    live: bool,
    /// The first guest request, where in it the I/O starts, and over how many it reaches.
    first: u32,
    first_offset: u32,
    reqs: u32,
    /// More of a VM's unit is to come.
    part: bool,
    /// Whether the I/O counts against the device's depth: not one that was started on a disk that hangs.
    counted: bool,
    started: Nanos,
    /// What the watch has made of it.
    kind: Kind,
    next_free: u32,
}

/// See the [module](self).
pub struct Engine {
    config: EngineConfig,
    policy: Arc<dyn Policy>,
    facts: Facts,
    roles: Roles,
    /// What limits had let go when a policy came that does not keep them: it stays spent, for the
    /// next one that does. Nothing is charged here.
    spent_before: LimitAccounts,
    stage: Stage,
    intake: Intake,
    /// Reads that lack memory while another one of their lane holds it; see [`intake`].
    shelf: Vec<u32>,
    /// VMs whose reads lack memory.
    starved: u32,
    /// Whether one of the VMs counted in `starved` may wait in vain: looked for when the device is idle.
    asks_starved: bool,
    /// The next read that lacks memory goes beyond the bounds.
    overdraws: bool,
    /// Roles were told that reads lack memory since the device was last asked for.
    told_of_memory: bool,
    ears: Ears,
    disks: Vec<Disk>,
    clients: Vec<Client>,
    free_disk: u32,
    free_client: u32,
    free_vm: Vec<u32>,
    free_req: u32,
    in_flight: Vec<InFlight>,
    free_io: u32,
    next_seq: u64,
    /// When a shut gate is to be asked again: lanes (dispatch) or VMs' first lanes (admission).
    /// No room for any while the regulator holds nothing back.
    gates: IndexedHeap<Nanos>,
    /// Disks with waiting flushes and none in flight, in the order of their turn.
    express: VecDeque<u32>,
    express_went_last: bool,
    /// When the dispatcher wants to be asked again, and since when it waits on purpose.
    pick_at: Nanos,
    waiting_since: Option<Nanos>,
    /// The VM that was served last; `NIL`: none was.
    last_vm: u32,
    done: Answers,
    /// What stands around the roles of every policy; see [`Engine::wrap_roles`].
    wrap: Option<WrapRoles>,
    /// What holds the device against its profile, and to a cap below it.
    watch: Option<Box<Watch>>,
    learns_cap: bool,
    learns_costs: bool,
    /// Since when the learnt cap has held back what the device had room for.
    held_since: Option<Nanos>,
    /// I/Os in flight at most: the device's depth, or as many as are found to be enough.
    limit: u32,
    depth_control: Option<Box<DepthControl>>,
    /// What VMs do that use the device at the same time.
    sharing: Option<Box<Sharing>>,
    /// The last place was kept for one of them when the dispatcher would have been asked last.
    keeps_place: bool,
    /// When what VMs have is measured next, for their jobs; never while nobody has one.
    measure_at: Nanos,
    /// What one VM is said to have of the device at best; 0: nothing is said.
    best_bandwidth: u64,
    hung: Option<Box<HungDisks>>,
    /// A disk hangs.
    any_hung: bool,
}

/// Puts something around the parts of a policy.
type WrapRoles = Box<dyn Fn(Roles) -> Roles + Send>;

impl Engine {
    /// An engine with no VMs.
    ///
    /// # Errors
    /// When a figure of the configuration is out of range.
    pub fn new(config: EngineConfig, policy: &dyn Policy) -> Result<Engine, EngineError> {
        config.check()?;
        let roles = policy.build(config.max_vms, config.max_requests);
        let mut engine = Engine {
            facts: config.empty_facts(),
            stage: roles.regulator.stage(),
            intake: Intake::new(
                config.max_requests,
                config.max_pending_per_vm,
                config.max_vms,
            ),
            shelf: Vec::new(),
            starved: 0,
            asks_starved: false,
            overdraws: false,
            told_of_memory: false,
            ears: Ears::new(&roles, 0),
            roles,
            spent_before: LimitAccounts::default(),
            policy: policy.to_shared(),
            disks: Vec::new(),
            clients: Vec::new(),
            free_disk: NIL,
            free_client: NIL,
            free_vm: (0..config.max_vms).rev().collect(),
            free_req: NIL,
            in_flight: Vec::new(),
            free_io: NIL,
            next_seq: 0,
            gates: IndexedHeap::with_capacity(0),
            express: VecDeque::new(),
            express_went_last: false,
            pick_at: Nanos::MAX,
            waiting_since: None,
            last_vm: NIL,
            done: Answers::with_capacity(config.max_requests as usize),
            wrap: None,
            watch: None,
            learns_cap: false,
            learns_costs: false,
            held_since: None,
            limit: config.device.depth,
            depth_control: None,
            sharing: None,
            keeps_place: false,
            measure_at: Nanos::MAX,
            best_bandwidth: 0,
            hung: None,
            any_hung: false,
            config,
        };
        engine.fill_slabs();
        engine.make_gates();
        engine.estimate_costs();
        Ok(engine)
    }

    /// The next guest request that is finished; to be called until `None` after every batch
    /// of completions, disconnects and removals.
    #[inline]
    pub fn poll_done(&mut self) -> Option<Done> {
        self.done.pop()
    }

    /// The memory of an I/O: pieces of guest requests in the order of their addresses. Valid
    /// from the I/O's [`Engine::poll_dispatch`] to its completion; empty for other handles.
    pub fn io_segments(&self, io: IoId) -> impl Iterator<Item = Segment> + '_ {
        let io = self
            .in_flight
            .get(io.index())
            .filter(|f| f.live && f.generation == io.generation);
        let (mut slot, mut left, mut offset) =
            io.map_or((NIL, 0, 0), |f| (f.first, f.io.len, f.first_offset));
        core::iter::from_fn(move || {
            if left == 0 {
                return None;
            }
            let (hot, cold) = (
                &self.facts.hot[slot as usize],
                &self.facts.cold[slot as usize],
            );
            let segment = Segment {
                req: self.facts.req_id(slot),
                tag: cold.tag,
                client: self.clients[cold.client as usize].id(cold.client),
                offset,
                len: (hot.len - offset).min(left),
            };
            (slot, left, offset) = (hot.chain_next, left - segment.len, 0);
            Some(segment)
        })
    }

    /// Whether the device still owes the end of this I/O. A driver whose device may report one
    /// twice asks before [`Engine::handle_completion`], which panics on the second.
    pub fn is_in_flight(&self, io: IoId) -> bool {
        let slot = self.in_flight.get(io.index());
        slot.is_some_and(|f| f.live && f.generation == io.generation)
    }

    /// What every role may read.
    pub fn view(&self) -> &Facts {
        &self.facts
    }

    /// The device as it stands.
    pub fn facts(&self) -> DeviceFacts {
        self.facts.device
    }

    /// Waits on purpose of the dispatcher in force; `None`: it never waits for what may come.
    pub fn waits(&self) -> Option<Waits> {
        self.roles.dispatcher.waits()
    }

    /// How the policy's controller tunes a VM to its target just now; `None`: it does not, or there is no
    /// such VM.
    pub fn tuning(&self, vm: VmId) -> Option<Tuning> {
        self.check_vm(vm).ok()?;
        self.roles.controller.as_ref()?.tuning(&self.facts, vm)
    }

    /// What the engine was made for.
    pub fn config(&self) -> &EngineConfig {
        &self.config
    }

    /// The policy in force.
    pub fn policy(&self) -> &Arc<dyn Policy> {
        &self.policy
    }

    /// A VM's statistics, complete. Panics on a handle that was never given out, or of a VM that
    /// has gone.
    pub fn vm_stats(&self, vm: VmId) -> Ref<'_, VmStats> {
        self.facts.stats(vm)
    }

    /// What a VM moved in each of the last seconds up to `now`, for its precision. Begins anew when its
    /// `target` in bytes a second is another one. Panics as [`Engine::vm_stats`].
    pub fn vm_seconds(&self, now: Nanos, vm: VmId) -> Seconds {
        self.facts.seconds(now, vm)
    }

    /// The objective in force.
    pub fn objective(&self, vm: VmId) -> &Objective {
        self.facts.objective(vm)
    }

    /// Guest requests of a VM that wait.
    pub fn pending(&self, vm: VmId) -> u32 {
        self.facts.waiting(vm)
    }

    /// Device I/Os of a VM in flight.
    pub fn in_flight(&self, vm: VmId) -> u32 {
        self.facts.in_flight(vm)
    }

    /// What one more VM and one more queued request take.
    pub fn footprint(&self) -> Footprint {
        use core::mem::size_of;
        let [regulator, dispatcher] = [
            self.roles.regulator.footprint(),
            self.roles.dispatcher.footprint(),
        ];
        let gates = match self.stage {
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
                + regulator.vm_cold
                + dispatcher.vm_cold,
            request: size_of::<Hot>() + size_of::<Cold>() + regulator.request + dispatcher.request,
        }
    }

    /// Timers for all gates that the regulator may shut.
    fn make_gates(&mut self) {
        let lanes = match self.stage {
            Stage::Open => 0,
            Stage::Admission | Stage::Dispatch => self.config.max_vms as usize * Lane::ALL.len(),
        };
        self.gates = IndexedHeap::with_capacity(lanes);
    }

    /// Time never runs backwards, even if a driver's does.
    #[inline]
    fn advance(&mut self, now: Nanos) {
        self.facts.now = self.facts.now.max(now);
    }

    fn client(&self, id: ClientId) -> Result<&Client, EngineError> {
        let client = self
            .clients
            .get(id.index())
            .filter(|c| c.generation == id.generation);
        client
            .filter(|c| c.connected)
            .ok_or(EngineError::Unknown { what: "the client" })
    }

    fn disk(&self, id: DiskId) -> Result<&Disk, EngineError> {
        let disk = self
            .disks
            .get(id.index())
            .filter(|d| d.generation == id.generation && d.live);
        disk.ok_or(EngineError::Unknown { what: "the disk" })
    }
}

#[cfg(debug_assertions)]
impl Drop for Engine {
    fn drop(&mut self) {
        let left = self.facts.device.requests;
        if left > 0 && !std::thread::panicking() {
            panic!("an engine was dropped with {left} requests that nobody answered");
        }
    }
}
