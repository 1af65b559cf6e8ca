//! The engine: requests in, device I/Os out, and every request answered exactly once.
//!
//! ```text
//! handle_request --> [ lane of its VM: units in order of arrival, merging ]
//!                        | regulator (admission): pending --> admitted
//!                        v
//!                    [ dispatcher's index ] -- regulator (dispatch): lane gates
//!                        v
//! poll_dispatch  <-- device I/O: a whole unit, or a part of one large request
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
//! The modules: `arrive` (checks, merging, admission), `start` (dispatch, splitting), `finish`
//! (completions, cancelling), `answers` (finished requests that wait to be taken), `control` (VMs,
//! disks, clients, policies), `queue` (the slab and the lanes).

mod answers;
mod arrive;
mod control;
mod finish;
mod queue;
mod start;

#[cfg(test)]
mod tests;

pub use crate::facts::{DeviceFacts, DeviceSpec};
pub use control::DiskSpec;

use crate::facts::{Cold, Facts, Hot, Life, NIL, Vm};
use crate::heap::IndexedHeap;
use crate::objective::{Objective, ObjectiveError};
use crate::policy::{PolicySpec, Roles};
use crate::request::{ClientId, DeviceIo, DiskId, Done, IoId, Lane, Segment, VmId};
use crate::roles::{Event, Interests, Knob, Knobs, Reopened, Stage, Waits};
use crate::stats::{Ledger, VmStats};
use crate::time::Nanos;
use answers::Answers;
use control::{Client, Disk};
use core::cell::Ref;
use std::collections::VecDeque;

/// What an engine is made for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EngineConfig {
    /// The device.
    pub device: DeviceSpec,
    /// Guest requests inside the engine at most, waiting or in flight, over all VMs.
    pub max_requests: u32,
    /// Guest requests one VM may have inside the engine.
    pub max_pending_per_vm: u32,
    /// Adjacent requests are merged up to this many bytes; 0: never.
    pub merge_limit: u32,
    /// VMs at most.
    pub max_vms: u32,
}

impl Default for EngineConfig {
    fn default() -> Self {
        EngineConfig {
            device: DeviceSpec {
                depth: 32,
                physical_block: 4096,
                max_io: 1 << 20,
                zeroes_are_writes: false,
                positioning: Nanos::ZERO,
                bytes_per_s: 0,
            },
            max_requests: 16_384,
            max_pending_per_vm: 1024,
            merge_limit: 128 << 10,
            max_vms: 4096,
        }
    }
}

/// Why a request was not taken. Nothing has changed; the frontend answers it or waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refusal {
    /// `max_requests` or `max_pending_per_vm` is reached: try again after the next
    /// [`Done`]. [`Engine::room`] tells beforehand.
    #[error("no room: the queue is full")]
    Full,
    /// The client was disconnected, or its VM removed.
    #[error("the client is not connected")]
    NotConnected,
    /// The request lies beyond the end of the disk.
    #[error("bytes {offset}..{end} lie beyond the disk's end at {size}")]
    OutOfRange {
        /// First byte.
        offset: u64,
        /// One past the last byte.
        end: u64,
        /// The disk's size.
        size: u64,
    },
    /// A request other than a flush of no bytes.
    #[error("a request of no bytes")]
    Empty,
    /// A change of a read-only disk.
    #[error("the disk is read-only")]
    ReadOnly,
}

/// Why a control call was refused. Nothing has changed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum EngineError {
    /// A figure of [`EngineConfig`] out of range.
    #[error("{what} is {value}; allowed is {allowed}")]
    Config {
        /// The field.
        what: &'static str,
        /// What it says.
        value: u64,
        /// What it may say.
        allowed: &'static str,
    },
    /// The objective contradicts itself.
    #[error(transparent)]
    Objective(#[from] ObjectiveError),
    /// All slots are taken.
    #[error("no room for another {what}: there are {max}")]
    Full {
        /// VM, disk or client.
        what: &'static str,
        /// How many there may be.
        max: u64,
    },
    /// The handle names nothing that is there.
    #[error("{what} is not there (any more)")]
    Unknown {
        /// VM, disk or client.
        what: &'static str,
    },
    /// A disk's range is empty or overflows.
    #[error("a disk of {size} bytes at {base} does not fit 64 bits, or is empty")]
    DiskRange {
        /// First byte on the device.
        base: u64,
        /// Bytes.
        size: u64,
    },
}

/// Memory in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Footprint {
    /// Scheduling state a VM.
    pub vm: usize,
    /// Objective, statistics and histograms a VM.
    pub vm_cold: usize,
    /// A guest request, with its place in the queues and its account.
    pub request: usize,
}

/// An I/O in flight.
struct InFlight {
    io: DeviceIo,
    generation: u32,
    live: bool,
    /// The first guest request, where in it the I/O starts, and over how many it reaches.
    first: u32,
    first_offset: u32,
    reqs: u32,
    started: Nanos,
    next_free: u32,
}

/// See the [module](self).
pub struct Engine {
    config: EngineConfig,
    policy: PolicySpec,
    facts: Facts,
    roles: Roles,
    stage: Stage,
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
}

/// Which roles hear of what, and what they asked for while they were told.
struct Ears {
    regulator: Interests,
    dispatcher: Interests,
    controller: Interests,
    any: Interests,
    /// Regulator or controller have timers of their own.
    timers: bool,
    /// See [`Dispatcher::by_lane`](crate::roles::Dispatcher::by_lane).
    by_lane: bool,
    reopened: Reopened,
    /// The gates of those are being asked.
    asking: bool,
    knobs: Knobs,
}

/// Puts something around the parts of a policy.
type WrapRoles = Box<dyn Fn(Roles) -> Roles + Send>;

impl Ears {
    /// `vms`: how many slots of VMs there are. All of them may be reopened at once.
    fn new(roles: &Roles, vms: usize) -> Ears {
        let regulator = roles.regulator.interests();
        let dispatcher = roles.dispatcher.interests();
        let controller = roles
            .controller
            .as_ref()
            .map_or(Interests::NONE, |c| c.interests());
        Ears {
            regulator,
            dispatcher,
            controller,
            any: regulator.and(dispatcher).and(controller),
            timers: regulator.has(Interests::TIMERS) || roles.controller.is_some(),
            by_lane: roles.dispatcher.by_lane(),
            reopened: Reopened(Vec::with_capacity(vms.max(64))),
            asking: false,
            knobs: Knobs(Vec::with_capacity(vms.max(64))),
        }
    }

    /// Room for every VM among so many.
    fn reserve(&mut self, vms: usize) {
        self.reopened.0.reserve(vms);
        self.knobs.0.reserve(vms);
    }

    /// Tells the roles that asked to hear of it. [`Engine::follow_up`] does what they ask for.
    #[inline(always)]
    fn tell(&mut self, roles: &mut Roles, facts: &Facts, event: &Event) {
        let interest = event.interest();
        if self.regulator.has(interest) {
            roles.regulator.on_event(facts, event, &mut self.reopened);
        }
        if self.dispatcher.has(interest) {
            roles.dispatcher.on_event(facts, event);
        }
        if self.controller.has(interest)
            && let Some(controller) = &mut roles.controller
        {
            controller.on_event(facts, event, &mut self.knobs);
        }
    }
}

impl Engine {
    /// An engine with no VMs.
    ///
    /// # Errors
    /// When a figure of the configuration is out of range.
    pub fn new(config: EngineConfig, policy: &PolicySpec) -> Result<Engine, EngineError> {
        config.check()?;
        let roles = policy.build(config.max_vms, config.max_requests);
        let mut engine = Engine {
            facts: config.empty_facts(),
            stage: roles.regulator.stage(),
            ears: Ears::new(&roles, 0),
            roles,
            policy: policy.clone(),
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
            config,
        };
        engine.fill_slabs();
        engine.make_gates();
        Ok(engine)
    }

    /// The next guest request that is finished; to be called until `None` after every batch
    /// of completions, disconnects and removals.
    #[inline]
    pub fn poll_done(&mut self) -> Option<Done> {
        self.done.pop()
    }

    /// When [`Engine::handle_timeout`] and [`Engine::poll_dispatch`] want to be called next,
    /// if nothing else happens before.
    pub fn next_timeout(&self) -> Option<Nanos> {
        let mut next = self.next_timer();
        if self.facts.device.in_flight < self.config.device.depth {
            next = next.min(self.pick_at);
        }
        (next != Nanos::MAX).then_some(next)
    }

    /// Time has come to [`Engine::next_timeout`]. Calling it early or late is harmless:
    /// what is due is done, and [`Engine::poll_dispatch`] does it itself when it is late.
    pub fn handle_timeout(&mut self, now: Nanos) {
        self.advance(now);
        let now = self.facts.now;
        while has_come(self.regulator_timer(), now) {
            let ended = self
                .roles
                .regulator
                .on_timer(&self.facts, &mut self.ears.reopened);
            // First the controller, so that the new interval begins with what it says.
            match ended {
                Some(interval) => self.emit(&Event::IntervalEnded(interval)),
                None => break,
            }
        }
        self.ask_reopened();
        if has_come(self.controller_timer(), now)
            && let Some(controller) = &mut self.roles.controller
        {
            controller.on_timer(&self.facts, &mut self.ears.knobs);
            self.apply_knobs();
        }
        while let Some((due, lane)) = self.gates.peek() {
            if due > now {
                break;
            }
            self.gates.remove(lane);
            self.ask_gate((lane / 2) as u32, Lane::ALL[lane % 2]);
        }
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

    /// How many requests this client may hand in now; 0 also for one that is gone.
    pub fn room(&self, client: ClientId) -> u32 {
        let Ok(client) = self.client(client) else {
            return 0;
        };
        let vm = &self.facts.vms[client.vm as usize];
        if vm.life != Life::Live {
            return 0;
        }
        let of_vm =
            self.config.max_pending_per_vm - vm.requests.min(self.config.max_pending_per_vm);
        of_vm.min(self.config.max_requests - self.facts.device.requests)
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

    /// What the engine was made for.
    pub fn config(&self) -> &EngineConfig {
        &self.config
    }

    /// The policy in force.
    pub fn policy(&self) -> &PolicySpec {
        &self.policy
    }

    /// A VM's statistics, complete. Panics on a handle that was never given out.
    pub fn vm_stats(&self, vm: VmId) -> Ref<'_, VmStats> {
        self.facts.stats(vm)
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

    #[inline]
    fn next_timer(&self) -> Nanos {
        let gate = self.gates.peek().map_or(Nanos::MAX, |(due, _)| due);
        if !self.ears.timers {
            return gate;
        }
        gate.min(self.regulator_timer())
            .min(self.controller_timer())
    }

    fn regulator_timer(&self) -> Nanos {
        if !self.ears.regulator.has(Interests::TIMERS) {
            return Nanos::MAX;
        }
        self.roles.regulator.next_timer()
    }

    fn controller_timer(&self) -> Nanos {
        self.roles
            .controller
            .as_ref()
            .map_or(Nanos::MAX, |c| c.next_timer())
    }

    fn emit(&mut self, event: &Event) {
        self.ears.tell(&mut self.roles, &self.facts, event);
        self.follow_up();
    }

    /// What roles asked for while they were told of an event: mostly nothing.
    #[inline]
    fn follow_up(&mut self) {
        if !self.ears.knobs.0.is_empty() || !self.ears.reopened.0.is_empty() {
            self.apply_knobs();
            self.ask_reopened();
        }
    }

    fn apply_knobs(&mut self) {
        while let Some((vm, knob)) = self.ears.knobs.0.pop() {
            if let Knob::MergeLimit(bytes) = knob {
                let bytes = bytes.clamp(1, self.config.device.max_io);
                self.facts.vms[vm.index()].merge_limit = bytes;
                self.facts.vms[vm.index()].largest_io = bytes;
            }
            self.roles.regulator.set(&self.facts, vm, knob);
            self.roles.dispatcher.set(&self.facts, vm, knob);
        }
    }

    fn ask_reopened(&mut self) {
        // Letting a unit in is an event, after which this is called again: with as many calls
        // inside each other as VMs were reopened, the stack would not hold them.
        if core::mem::replace(&mut self.ears.asking, true) {
            return;
        }
        while let Some(vm) = self.ears.reopened.0.pop() {
            for lane in Lane::ALL {
                self.ask_gate(vm.index, lane);
            }
        }
        self.ears.asking = false;
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

/// Whether a timer is due. [`Nanos::MAX`] is never, also to a clock that has come that far.
fn has_come(due: Nanos, now: Nanos) -> bool {
    due <= now && due != Nanos::MAX
}

impl EngineConfig {
    fn check(&self) -> Result<(), EngineError> {
        let device = &self.device;
        let check = |ok: bool, what, value: u32, allowed| {
            if ok {
                Ok(())
            } else {
                Err(EngineError::Config {
                    what,
                    value: value as u64,
                    allowed,
                })
            }
        };
        check(
            (1..=DeviceSpec::MAX_DEPTH).contains(&device.depth),
            "depth",
            device.depth,
            "1 to 4096",
        )?;
        let block = device.physical_block;
        let block_fits = block.is_power_of_two() && (512..=1 << 20).contains(&block);
        check(
            block_fits,
            "physical_block",
            block,
            "a power of two, 512 to 1 MiB",
        )?;
        let max_io = device.max_io;
        let io_fits = max_io >= block && max_io.is_multiple_of(block) && max_io <= 1 << 30;
        check(
            io_fits,
            "max_io",
            max_io,
            "a multiple of physical_block, up to 1 GiB",
        )?;
        check(
            (1..=1 << 24).contains(&self.max_vms),
            "max_vms",
            self.max_vms,
            "1 to 2^24",
        )?;
        let requests = self.max_requests;
        check(
            (1..=1 << 26).contains(&requests),
            "max_requests",
            requests,
            "1 to 2^26",
        )?;
        check(
            self.max_pending_per_vm > 0,
            "max_pending_per_vm",
            0,
            "at least 1",
        )
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
