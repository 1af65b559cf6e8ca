//! Event loop of one device: one thread that owns the device's engine, its io_uring, its disks and
//! the connections of its VMs.
//!
//! ```text
//!            +--> completions --> frontends: events of connections
//!   turn  ---+                    device:    I/Os that ended, models that are due
//!    ^       +--> commands        control
//!    |
//!    |   frontends: serve ready connections, a budget each; requests to the engine
//!    |   device:    dispatch what the engine chooses until it chooses nothing
//!    |   frontends: answer, send replies, receive more
//!    +-- submit everything at once and wait: for a completion, a timer, a wake
//! ```
//!
//! The clock is read once a turn, so all events of a turn have the same time. The channel and the
//! eventfd of commands are all that another thread can reach. After warm-up no allocation is made
//! for a request.

#[cfg(test)]
mod command_tests;
mod control;
mod despite_panics;
mod device;
mod device_alerts;
#[cfg(test)]
mod fault_injection_tests;
#[cfg(test)]
mod fault_tests;
mod faults;
mod frontends;
mod hand_over;
#[cfg(test)]
mod hand_over_tests;
#[cfg(test)]
mod hung_tests;
mod learnt_state;
mod limit_changes;
mod limit_use;
#[cfg(test)]
mod merge_tests;
#[cfg(test)]
mod panic_tests;
mod recording;
mod removal;
#[cfg(test)]
mod reply_tests;
mod sampler;
mod setup;
mod slab;
#[cfg(test)]
mod stall_tests;
mod target_alerts;
mod transfers;
#[cfg(test)]
mod vhost_hung_tests;
mod vm_changes;
mod vms;

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};
use std::time::Duration;

use tidegate_config::device::LARGEST_PAYLOAD;
use tidegate_core::engine::Engine;
use tidegate_core::interference::VmTimes;
use tidegate_core::request::VmId;
use tidegate_core::stats::Histogram;
use tidegate_core::time::Nanos;
use tokio::sync::{Notify, oneshot};

use crate::backing::interface::Operation;
use crate::buffer::{Buffer, Pool};
use crate::command::Command;
use crate::connections::{DeviceConnections, VmConnections};
use crate::exchange::ExchangeLink;
use crate::frontend::interface::{Event, SENT};
use crate::frontend::request_table::Requests;
use crate::ring::{Completion, FileId, Ring, Wake, clock};
use crate::timekeeping;
use crate::transfer::PersistedTransfers;
use device::{Device, LoopParts};
use frontends::{FrontendContext, Frontends};
use hand_over::HandOver;
use removal::Removal;
use sampler::{Sampled, Sampler};
use target_alerts::TargetAlert;
use transfers::Transfers;
use vm_changes::PendingResize;
use vms::Vms;

pub(crate) use frontends::DRAIN_PROGRESS_TIMEOUT;
pub use setup::{DiskFile, Files, Prepared, SetupError, open_disk};

/// Longest request that carries data, in bytes, as advertised.
const PAYLOAD_MAX: u32 = LARGEST_PAYLOAD;
const _: () = assert!(PAYLOAD_MAX as usize == Pool::BUFFER_MAX);

/// Sender of commands to an event loop; usable from any thread.
#[derive(Clone, Debug)]
pub struct LoopHandle {
    commands: Sender<Command>,
    wake: Arc<Wake>,
}

impl LoopHandle {
    /// Sends a command and ends the loop's wait, so that the command runs in the next turn.
    ///
    /// # Errors
    /// Returns the command if the loop has ended.
    pub fn send(&self, command: Command) -> Result<(), Command> {
        self.commands.send(command).map_err(|e| e.0)?;
        self.wake.wake();
        Ok(())
    }

    /// Makes the handle of a loop that the receiver of its commands stands for.
    #[cfg(test)]
    pub(crate) fn for_test() -> (LoopHandle, std::sync::mpsc::Receiver<Command>) {
        let (commands, received) = std::sync::mpsc::channel();
        let wake = Arc::new(Wake::new().expect("an eventfd"));
        (LoopHandle { commands, wake }, received)
    }
}

/// Final state of a loop, returned when its thread ends.
#[derive(Debug, Default)]
pub struct Remains {
    /// True if the loop drained in order: every request was answered and every disk flushed.
    pub flushed: bool,
    /// Deadline transfers that were running and placements that have begun, by the name of their
    /// VM, in the form in which the store persists them.
    pub transfers: Vec<(String, PersistedTransfers)>,
}

/// Origin of a ring operation, encoded in the 64 bits of io_uring's `user_data`. The top byte tells
/// the kinds apart: [`Event`] and [`Operation`] have theirs, `Wake` is 4 and `Tick` is 5.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Token {
    /// Receive, send or close of a connection.
    Connection(Event),
    /// Read, write, sync or the like of a disk's backing.
    Backing(Operation),
    /// Read of the eventfd that other threads signal.
    Wake,
    /// Timer of the housekeeping that runs once a second.
    Tick,
}

impl Token {
    fn encode(self) -> u64 {
        match self {
            Token::Connection(event) => event.encode(),
            Token::Backing(operation) => operation.encode(),
            Token::Wake => 4 << 56,
            Token::Tick => 5 << 56,
        }
    }

    fn decode(bits: u64) -> Token {
        if let Some(event) = Event::decode(bits) {
            return Token::Connection(event);
        }
        if let Some(operation) = Operation::decode(bits) {
            return Token::Backing(operation);
        }
        match bits >> 56 {
            4 => Token::Wake,
            5 => Token::Tick,
            other => panic!("a completion of kind {other}, which was never submitted"),
        }
    }
}

/// VM served by this loop.
#[derive(Debug)]
struct Vm {
    name: String,
    id: VmId,
    /// Indices into `Device::disks`.
    disks: Vec<usize>,
    /// Connections that have stopped reading until they get a request slot or payload memory, in
    /// the order in which they stopped: with a write (index 0), with anything else (index 1).
    stalled: [VecDeque<u32>; 2],
    /// True once the VM was removed but still has requests or I/Os in flight.
    is_removed: bool,
    /// Last log message on whether the device delivers the VM's target.
    target_alert: TargetAlert,
    transfers: Transfers,
    connections: Arc<VmConnections>,
    /// Times from the parse of a request until its reply was sent, indexed by lane.
    reply_time: Box<[Histogram; 2]>,
    /// Part of the reply times of requests that succeeded for which the engine does not account:
    /// until the engine took them, and from their end there until their reply was sent.
    reply_delay: Nanos,
    /// Counters at its last sample for the history.
    sampled: Sampled,
}

impl Vm {
    /// Returns the time of the VM's requests by cause.
    fn times(&self, engine: &Engine) -> VmTimes {
        VmTimes {
            reply: self.reply_delay,
            ..engine.vms().times(self.id)
        }
    }
}

/// State of one event loop; the module's documentation describes a turn.
struct Loop {
    name: String,
    ring: Ring,
    engine: Engine,
    device: Device,
    vms: Vms,
    /// VMs and disks that were removed and still have I/Os in flight, requests or connections.
    removals: Vec<Removal>,
    /// Resizes that begin once nothing in flight stands in their way.
    pending_resizes: Vec<PendingResize>,
    frontends: Frontends,
    /// Number of connections of the device and its VMs, shared with the control thread, which
    /// admits half-open connections through it.
    admission: Arc<DeviceConnections>,
    requests: Requests,
    /// Receive buffers, reply headers and bounce buffers. The number of connections and the
    /// device's depth bound its size.
    plumbing: Pool,
    commands: Receiver<Command>,
    /// Commands may wait that this turn has left to the next one.
    commands_wait: bool,
    wake: Arc<Wake>,
    wake_file: FileId,
    wake_buffer: Buffer,
    now: Nanos,
    completions: Vec<Completion>,
    /// Last log message on whether the promises fit the device by learnt costs.
    feasibility_alert: device_alerts::FeasibilityAlert,
    /// Promises that had given way when that was logged last.
    given_way_alert: device_alerts::GivenWayAlert,
    /// Number of deadline transfers that run.
    running_transfers: u32,
    /// Notified when a deadline transfer has ended, so that the control thread deletes it from the
    /// store.
    transfer_ended: Arc<Notify>,
    /// Samples for the history; `None` if there is none.
    sampler: Option<Sampler>,
    /// Exchange with the hosts that share the device; `None`: no other does.
    exchange: Option<ExchangeLink>,
    /// True while the timer of the housekeeping is armed.
    ticking: bool,
    /// Time at which the timer of the housekeeping ends.
    tick_due: Nanos,
    upkeep_due: bool,
    phase: Phase,
    hand_over: HandOver,
    /// Becomes [`Remains::flushed`].
    flushed: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    Running,
    /// Reads no more requests and answers those that were read.
    Draining,
    /// Reads no more requests; connections go to another daemon once their I/O has ended.
    HandingOver,
    /// Leaves [`Loop::run`] after this turn.
    Ended,
}

impl Loop {
    /// Makes one turn after the other until the loop is drained or aborted.
    fn run(&mut self) -> io::Result<Remains> {
        self.await_wake();
        while self.phase != Phase::Ended {
            // Armed only on demand, so that a loop without work sleeps.
            if !self.ticking && self.needs_upkeep() {
                self.ticking = true;
                // By the clock as this turn began, so that a turn that took long makes it late.
                self.tick_due = self.now + Nanos::SECOND;
                self.ring.tick(Token::Tick.encode());
            }
            self.ring.turn(self.timeout())?;
            self.now = clock();
            self.take_completions();
            let (frontends, mut ctx) = self.frontends_and_context();
            frontends.serve(&mut ctx);
            frontends.begin_dispatch();
            // Before dispatch, because the outcome bounds the adapted depth.
            self.engine.device_mut().check_feasibility(self.now);
            self.dispatch();
            let (frontends, mut ctx) = self.frontends_and_context();
            frontends.exchange(&mut ctx);
            // The replies just sent have returned slots and memory that stalled connections wait
            // for.
            frontends.serve_unblocked(&mut ctx);
            self.take_ended_transfers();
            self.finish_removals();
            self.begin_resizes();
            self.device.answer_deactivations();
            hand_over::go_on(self);
            self.upkeep();
            if let Some(exchange) = &self.exchange {
                exchange.report(&mut self.engine);
            }
            sampler::sample(self);
        }
        sampler::sample_last(self);
        Ok(Remains {
            flushed: self.flushed,
            transfers: self.export_transfers(),
        })
    }

    /// Returns the longest time that the next turn may wait; `None` waits for a completion without
    /// limit.
    fn timeout(&self) -> Option<Duration> {
        let samples = self.sampler.as_ref().is_some_and(Sampler::is_sweeping);
        if self.frontends.is_busy() || samples || self.commands_wait {
            return Some(Duration::ZERO);
        }
        let mut next = self.engine.next_timeout().unwrap_or(Nanos::MAX);
        next = next.min(self.device.next_completion().unwrap_or(Nanos::MAX));
        // The clock is read again, because the turn itself took time.
        (next != Nanos::MAX).then(|| Duration::from_nanos(next.since(clock()).0))
    }

    fn take_completions(&mut self) {
        let mut completions = std::mem::take(&mut self.completions);
        self.ring.take(&mut completions);
        // Failed sends of a chain come first, then the end of their submission, and only then
        // anything that could prepare a new send: a reply queued in between would go out of order.
        let caught_up = self.ring.is_caught_up();
        let mut takes_commands = std::mem::take(&mut self.commands_wait);
        let (frontends, mut ctx) = self.frontends_and_context();
        for completion in &completions {
            if let Token::Connection(event) = Token::decode(completion.token)
                && event.event == SENT
            {
                frontends.handle_event(&mut ctx, event, *completion);
            }
        }
        if caught_up {
            frontends.submissions_ended(&mut ctx);
        }
        for completion in completions.drain(..) {
            match Token::decode(completion.token) {
                Token::Connection(event) if event.event == SENT => {} // Handled above.
                Token::Connection(event) => {
                    let (frontends, mut ctx) = self.frontends_and_context();
                    frontends.handle_event(&mut ctx, event, completion);
                }
                Token::Backing(operation) => {
                    let (device, mut parts) = self.device_and_parts();
                    device.operation_ended(&mut parts, operation, completion);
                }
                Token::Tick => {
                    self.ticking = false;
                    self.upkeep_due = true;
                }
                Token::Wake => {
                    takes_commands = true;
                    self.await_wake();
                }
            }
        }
        self.completions = completions;
        if takes_commands {
            self.take_commands();
        }
        if let Some(exchange) = &self.exchange {
            exchange.deliver(&mut self.engine, self.now);
        }
        if self.engine.next_timeout().is_some_and(|t| t <= self.now) {
            self.engine.handle_timeout(self.now);
        }
        let (device, mut parts) = self.device_and_parts();
        device.take_due(&mut parts);
        if self.device.has_extent_answers() {
            let (frontends, mut ctx) = self.frontends_and_context();
            frontends.take_extents(&mut ctx);
        }
    }

    /// Splits the loop into the device driver and the parts that it borrows.
    #[inline]
    fn device_and_parts(&mut self) -> (&mut Device, LoopParts<'_>) {
        let parts = LoopParts {
            engine: &mut self.engine,
            requests: &mut self.requests,
            ring: &mut self.ring,
            plumbing: &mut self.plumbing,
            now: self.now,
            wake: &self.wake,
            may_stall: self.phase == Phase::Running,
        };
        (&mut self.device, parts)
    }

    /// Splits the loop into its connections and the parts that they borrow.
    #[inline]
    fn frontends_and_context(&mut self) -> (&mut Frontends, FrontendContext<'_>) {
        let parts = LoopParts {
            engine: &mut self.engine,
            requests: &mut self.requests,
            ring: &mut self.ring,
            plumbing: &mut self.plumbing,
            now: self.now,
            wake: &self.wake,
            may_stall: self.phase == Phase::Running,
        };
        let ctx = FrontendContext {
            parts,
            vms: &mut self.vms,
            device: &mut self.device,
        };
        (&mut self.frontends, ctx)
    }

    /// Releases requests that fault rules stall, of one disk or, with `None`, of all.
    fn end_stalls(&mut self, of: Option<usize>) {
        let (device, mut parts) = self.device_and_parts();
        device.end_stalls(&mut parts, of);
    }

    /// Starts I/Os that the engine picks and takes requests that it has finished, until there are
    /// none. I/Os that end at once never fill the device, so that after many bytes of them the next
    /// turn goes on.
    fn dispatch(&mut self) {
        self.device.begin_dispatch();
        loop {
            let (device, mut parts) = self.device_and_parts();
            while !device.has_copied_enough()
                && let Some(io) = parts.engine.poll_dispatch(parts.now)
            {
                device.start(&mut parts, io);
            }
            // An answered request frees a slot of the engine, which may make another I/O possible.
            let mut idle = true;
            let (frontends, mut ctx) = self.frontends_and_context();
            while let Some(done) = ctx.parts.engine.poll_done() {
                idle = false;
                frontends.handle_done(&mut ctx, &done);
            }
            let (device, mut parts) = self.device_and_parts();
            if idle && !device.send_queued(&mut parts) {
                break;
            }
        }
        if self.device.has_copied_enough() {
            self.frontends.go_on();
        }
    }

    /// Updates the set of disks that hang and dispatches I/Os of the others. Called once a second.
    fn detect_hung_disks(&mut self) {
        if self.engine.device_mut().detect_hung_disks(self.now) {
            let (device, mut parts) = self.device_and_parts();
            device.adjust_workers(&mut parts);
            self.dispatch();
            // The exchange of this turn is over.
            self.frontends.go_on();
        }
        let (device, mut parts) = self.device_and_parts();
        device.log_hung_disks(&mut parts);
    }

    fn await_wake(&mut self) {
        self.ring
            .await_wake(self.wake_file, self.wake_buffer.mem(), Token::Wake.encode());
    }

    fn needs_upkeep(&self) -> bool {
        // `plumbing` counts too, because the receive buffers of closed connections stay in it until
        // they are trimmed.
        let warm = self.requests.warm() + self.plumbing.warm();
        let reckons = self.engine.device().is_feasibility_check_due();
        let busy = self.requests.len() > 0 || warm > 0 || self.running_transfers > 0 || reckons;
        let samples = self.sampler.as_ref().is_some_and(Sampler::needs_tick);
        busy || samples || self.phase == Phase::Draining
    }

    /// Housekeeping, once a second while there is something to do.
    fn upkeep(&mut self) {
        if self.phase == Phase::Draining {
            self.finish_drain_if_idle();
        }
        if !std::mem::take(&mut self.upkeep_due) {
            return;
        }
        timekeeping::loop_ticked(&self.name, self.now.since(self.tick_due));
        // At most 4096 buffers a second, because returning pages is a system call for each buffer.
        self.requests.trim(4096);
        self.plumbing.trim(4096);
        let drains = self.phase == Phase::Draining;
        let (frontends, mut ctx) = self.frontends_and_context();
        // Not while another daemon takes over: what a client has yet to send or take goes over.
        if drains {
            frontends.disconnect_stuck(&mut ctx);
        }
        frontends.close_overdue(&mut ctx);
        self.detect_hung_disks();
        device_alerts::log_alerts(&mut self.engine, &self.name);
        self.given_way_alert.log_change(&self.engine, &self.name);
        self.feasibility_alert
            .log_change(self.now, &self.engine, &self.name);
        self.log_target_alerts();
        self.log_missed_transfers();
    }
}

/// Answers a command. An answer whose receiver has gone is dropped, which is harmless.
fn respond<T>(reply: oneshot::Sender<T>, answer: T) {
    drop(reply.send(answer));
}
