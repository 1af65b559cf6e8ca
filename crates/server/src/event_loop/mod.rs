//! One device, one thread: its engine, its io_uring, its clients.
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
//! The clock is read once a turn. Nothing here is shared with another thread but the channel
//! the commands come through. After warm-up nothing is allocated for a request.

mod adequacy;
mod control;
mod device;
#[cfg(test)]
mod fault_tests;
mod faults;
mod frontends;
#[cfg(test)]
mod hung_tests;
#[cfg(test)]
mod inject_tests;
mod jobs;
mod learnt;
mod leave;
#[cfg(test)]
mod merge_tests;
mod notices;
mod places;
#[cfg(test)]
mod reply_tests;
mod setup;
mod tenants;
mod vms;

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};
use std::time::Duration;

use tidegate_config::device::LARGEST_PAYLOAD;
use tidegate_core::engine::Engine;
use tidegate_core::request::VmId;
use tidegate_core::stats::Histogram;
use tidegate_core::time::Nanos;
use tokio::sync::{Notify, oneshot};

use crate::backing::door::Operation;
use crate::buffer::{Buffer, Pool};
use crate::command::Command;
use crate::connections::{DeviceConnections, VmConnections};
use crate::frontend::door::{Event, SENT};
use crate::frontend::table::Requests;
use crate::job::KeptJob;
use crate::ring::{Completion, FileId, Ring, Wake, clock};
use adequacy::Adequacy;
use device::{Device, Tools};
use frontends::{Frontends, Hall};
use jobs::Jobs;
use leave::Leaving;
use tenants::Shrinking;
use vms::Vms;

pub use setup::{Files, Prepared, SetupError, open_disk};

/// Longest request that carries data, in bytes, as advertised.
const PAYLOAD_MAX: u32 = LARGEST_PAYLOAD;
const _: () = assert!(PAYLOAD_MAX as usize == Pool::BUFFER_MAX);

/// The way to a loop.
#[derive(Clone, Debug)]
pub struct LoopHandle {
    commands: Sender<Command>,
    wake: Arc<Wake>,
}

impl LoopHandle {
    /// Sends a command.
    ///
    /// # Errors
    /// Gives it back when the loop has ended.
    pub fn send(&self, command: Command) -> Result<(), Command> {
        self.commands.send(command).map_err(|e| e.0)?;
        self.wake.wake();
        Ok(())
    }
}

/// What a loop leaves behind.
#[derive(Debug, Default)]
pub struct Remains {
    /// It ended with all that was asked answered, and every disk's writes are durable.
    pub flushed: bool,
    /// The jobs that ran, as they are kept.
    pub jobs: Vec<(String, KeptJob)>,
}

/// What an operation's completion is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Token {
    /// Operation of a connection.
    Connection(Event),
    /// Operation of a disk's backing.
    Backing(Operation),
    Wake,
    /// A second has passed.
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

/// A VM of this loop.
#[derive(Debug)]
struct Vm {
    name: String,
    id: VmId,
    /// Its disks, as indices into the loop's.
    disks: Vec<usize>,
    /// Stalled clients in the order in which they stopped, waiting for a request slot or payload
    /// memory: with a write (index 0), and with anything else (1).
    stalled: [VecDeque<u32>; 2],
    /// It was removed.
    leaving: bool,
    /// What was said of whether the device does its target.
    adequacy: Adequacy,
    jobs: Jobs,
    connections: Arc<VmConnections>,
    /// Times from the parse of a request until its reply is sent, indexed by lane.
    reply_time: Box<[Histogram; 2]>,
}

/// See the module's documentation.
struct Loop {
    name: String,
    ring: Ring,
    engine: Engine,
    device: Device,
    vms: Vms,
    /// What was removed and is not quite gone.
    leaving: Vec<Leaving>,
    /// Disks that become shorter, once nothing is in flight beyond their new ends.
    shrinking: Vec<Shrinking>,
    frontends: Frontends,
    /// Connections of the device's VMs; half-open clients are admitted through them.
    admission: Arc<DeviceConnections>,
    requests: Requests,
    /// Receive buffers, headers, bounce buffers: bounded by clients and depth.
    plumbing: Pool,
    commands: Receiver<Command>,
    wake: Arc<Wake>,
    wake_file: FileId,
    wake_buffer: Buffer,
    now: Nanos,
    completions: Vec<Completion>,
    /// What was said last of whether what is promised fits.
    feasible: notices::Feasible,
    given_way: notices::GivenWay,
    /// Jobs of its VMs that run.
    running_jobs: u32,
    /// Told when a job has ended, which is not to be kept any more.
    news: Arc<Notify>,
    /// A tick is on its way.
    ticking: bool,
    upkeep_due: bool,
    phase: Phase,
    /// It ended with all that was asked answered, and every disk flushed.
    flushed: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    Running,
    /// Reads nothing more, finishes what is there.
    Draining,
    /// Ends now.
    Ended,
}

impl Loop {
    /// Runs until drained or aborted.
    fn run(&mut self) -> io::Result<Remains> {
        self.await_wake();
        while self.phase != Phase::Ended {
            if !self.ticking && self.needs_upkeep() {
                self.ticking = true;
                self.ring.tick(Token::Tick.encode());
            }
            self.ring.turn(self.timeout())?;
            self.now = clock();
            self.take_completions();
            let (frontends, mut hall) = self.frontends_and_hall();
            frontends.serve(&mut hall);
            frontends.begin_dispatch();
            self.engine.device_mut().reckon_promises(self.now);
            self.dispatch();
            let (frontends, mut hall) = self.frontends_and_hall();
            frontends.exchange(&mut hall);
            frontends.serve_unblocked(&mut hall);
            self.end_jobs();
            self.leave_further();
            self.shrink_further();
            self.upkeep();
        }
        Ok(Remains {
            flushed: self.flushed,
            jobs: self.export_jobs(),
        })
    }

    /// How long the next turn may wait.
    fn timeout(&self) -> Option<Duration> {
        if self.frontends.is_busy() {
            return Some(Duration::ZERO);
        }
        let mut next = self.engine.next_timeout().unwrap_or(Nanos::MAX);
        next = next.min(self.device.next_completion().unwrap_or(Nanos::MAX));
        (next != Nanos::MAX).then(|| Duration::from_nanos(next.since(clock()).0))
    }

    fn take_completions(&mut self) {
        let mut completions = std::mem::take(&mut self.completions);
        self.ring.take(&mut completions);
        // Before anything new is prepared: what failed of the linked sends, then their end.
        let caught_up = self.ring.is_caught_up();
        let (frontends, mut hall) = self.frontends_and_hall();
        for completion in &completions {
            if let Token::Connection(event) = Token::decode(completion.token)
                && event.event == SENT
            {
                frontends.handle_event(&mut hall, event, *completion);
            }
        }
        if caught_up {
            frontends.submissions_ended(&mut hall);
        }
        for completion in completions.drain(..) {
            match Token::decode(completion.token) {
                Token::Connection(event) if event.event == SENT => {} // Above.
                Token::Connection(event) => {
                    let (frontends, mut hall) = self.frontends_and_hall();
                    frontends.handle_event(&mut hall, event, completion);
                }
                Token::Backing(operation) => {
                    let (device, mut tools) = self.device_and_tools();
                    device.operation_ended(&mut tools, operation, completion);
                }
                Token::Tick => {
                    self.ticking = false;
                    self.upkeep_due = true;
                }
                Token::Wake => {
                    self.take_commands();
                    self.await_wake();
                }
            }
        }
        self.completions = completions;
        if self.engine.next_timeout().is_some_and(|t| t <= self.now) {
            self.engine.handle_timeout(self.now);
        }
        let (device, mut tools) = self.device_and_tools();
        device.device_due(&mut tools);
        if self.device.has_statuses() {
            let (frontends, mut hall) = self.frontends_and_hall();
            frontends.take_extents(&mut hall);
        }
    }

    /// Splits the loop into the device driver and what that uses.
    #[inline]
    fn device_and_tools(&mut self) -> (&mut Device, Tools<'_>) {
        let tools = Tools {
            engine: &mut self.engine,
            requests: &mut self.requests,
            ring: &mut self.ring,
            plumbing: &mut self.plumbing,
            now: self.now,
            wake: &self.wake,
            may_stall: self.phase == Phase::Running,
        };
        (&mut self.device, tools)
    }

    /// Splits the loop into its connections and what they use.
    #[inline]
    fn frontends_and_hall(&mut self) -> (&mut Frontends, Hall<'_>) {
        let tools = Tools {
            engine: &mut self.engine,
            requests: &mut self.requests,
            ring: &mut self.ring,
            plumbing: &mut self.plumbing,
            now: self.now,
            wake: &self.wake,
            may_stall: self.phase == Phase::Running,
        };
        let hall = Hall {
            tools,
            vms: &mut self.vms,
            device: &mut self.device,
        };
        (&mut self.frontends, hall)
    }

    /// Ends what fault rules hold up, of one disk or of all.
    fn end_stalls(&mut self, of: Option<usize>) {
        let (device, mut tools) = self.device_and_tools();
        device.end_stalls(&mut tools, of);
    }

    /// Starts what the engine chooses and takes what it has finished, until there is neither.
    fn dispatch(&mut self) {
        loop {
            let (device, mut tools) = self.device_and_tools();
            while let Some(io) = tools.engine.poll_dispatch(tools.now) {
                device.start(&mut tools, io);
            }
            let mut idle = true;
            let (frontends, mut hall) = self.frontends_and_hall();
            while let Some(done) = hall.tools.engine.poll_done() {
                idle = false;
                frontends.done(&mut hall, &done);
            }
            if idle {
                break;
            }
        }
        let (device, mut tools) = self.device_and_tools();
        device.send_queued(&mut tools);
    }

    /// Updates which disks hang and dispatches I/Os of the others; called once a second.
    fn look_for_hung_disks(&mut self) {
        if self.engine.device_mut().look_for_hung_disks(self.now) {
            let (device, mut tools) = self.device_and_tools();
            device.give_workers(&mut tools);
            self.dispatch();
        }
        let (device, mut tools) = self.device_and_tools();
        device.tell_hung(&mut tools);
    }

    fn await_wake(&mut self) {
        self.ring
            .await_wake(self.wake_file, self.wake_buffer.mem(), Token::Wake.encode());
    }

    fn needs_upkeep(&self) -> bool {
        // `plumbing` counts too: it keeps the receive buffers of clients that went until they are
        // trimmed.
        let warm = self.requests.warm() + self.plumbing.warm();
        let reckons = self.engine.device().has_promises_to_reckon();
        let busy = self.requests.len() > 0 || warm > 0 || self.running_jobs > 0 || reckons;
        busy || self.phase == Phase::Draining
    }

    /// Once a second while there is something to look after.
    fn upkeep(&mut self) {
        if self.phase == Phase::Draining {
            self.drain_further();
        }
        if !std::mem::take(&mut self.upkeep_due) {
            return;
        }
        self.requests.trim(4096);
        self.plumbing.trim(4096);
        let (frontends, mut hall) = self.frontends_and_hall();
        frontends.cut_off_stuck(&mut hall);
        frontends.close_overdue(&mut hall);
        self.look_for_hung_disks();
        notices::tell_notices(&mut self.engine, &self.name);
        self.feasible.tell(self.now, &self.engine, &self.name);
        self.given_way.tell(&self.engine, &self.name);
        self.tell_adequacy();
        self.tell_jobs();
    }
}

/// A reply whose asker has gone is nobody's loss.
fn answer_ended<T>(result: Result<(), T>) {
    drop(result);
}

/// Answers a command, if whoever gave it still waits.
fn tell<T>(reply: oneshot::Sender<T>, answer: T) {
    answer_ended(reply.send(answer));
}
