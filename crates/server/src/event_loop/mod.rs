//! One device, one thread: its engine, its io_uring, its clients.
//!
//! ```text
//!            +--> completions --> receive: parse, take buffers, hand in to the engine
//!   turn  ---+                    device:  I/Os that ended, models that are due
//!    ^       +--> commands        answer:  replies that were sent
//!    |
//!    |   turns:   serve ready clients, a budget each
//!    |   device:  dispatch what the engine chooses until it chooses nothing
//!    |   answer:  send replies, receive more
//!    +-- submit everything at once and wait: for a completion, a timer, a wake
//! ```
//!
//! The clock is read once a turn. Nothing here is shared with another thread but the channel
//! the commands come through. After warm-up nothing is allocated for a request.

mod adequacy;
mod answer;
mod block_status;
mod client;
mod close;
mod control;
mod device;
#[cfg(test)]
mod fault_tests;
mod hung;
#[cfg(test)]
mod hung_tests;
mod inject;
#[cfg(test)]
mod inject_tests;
mod jobs;
mod learnt;
mod leave;
#[cfg(test)]
mod merge_tests;
mod notices;
mod places;
mod receive;
#[cfg(test)]
mod reply_tests;
mod setup;
mod slots;
mod tenants;
mod turns;

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};
use std::time::Duration;

use tidegate_core::engine::Engine;
use tidegate_core::request::VmId;
use tidegate_core::stats::Histogram;
use tidegate_core::time::Nanos;
use tokio::sync::Notify;

use crate::backing::extents::Surveyor;
use crate::buffer::{Buffer, Mem, Pool, Region};
use crate::command::Command;
use crate::connections::{DeviceConnections, VmConnections};
use crate::job::KeptJob;
use crate::ring::{Completion, FileId, Ring, Wake, clock};
use adequacy::Adequacy;
use client::Clients;
use device::Device;
use jobs::Jobs;
use leave::Leaving;
use places::Places;
use slots::{ClientRef, Slots};
use tenants::Shrinking;

pub use setup::{Files, Prepared, SetupError, open_disk};

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
    Receive(slots::ClientRef),
    Send(slots::ClientRef),
    /// A device I/O.
    Device(u32),
    Wake,
    /// A second has passed.
    Tick,
    /// The socket of a stalled client has bytes to receive, or was closed.
    Readable(slots::ClientRef),
}

impl Token {
    fn encode(self) -> u64 {
        let (kind, generation, index) = match self {
            Token::Receive(c) => (1, c.generation, c.index),
            Token::Send(c) => (2, c.generation, c.index),
            Token::Device(index) => (3, 0, index),
            Token::Wake => (4, 0, 0),
            Token::Tick => (5, 0, 0),
            Token::Readable(c) => (6, c.generation, c.index),
        };
        kind << 56 | u64::from(generation) << 32 | u64::from(index)
    }

    fn decode(bits: u64) -> Token {
        let index = bits as u32;
        let client = slots::ClientRef {
            index,
            generation: (bits >> 32) as u32 & 0xff_ffff,
        };
        match bits >> 56 {
            1 => Token::Receive(client),
            2 => Token::Send(client),
            3 => Token::Device(index),
            4 => Token::Wake,
            5 => Token::Tick,
            6 => Token::Readable(client),
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
    vms: Places<Vm>,
    /// What was removed and is not quite gone.
    leaving: Vec<Leaving>,
    /// Disks that become shorter, once nothing is in flight beyond their new ends.
    shrinking: Vec<Shrinking>,
    clients: Clients,
    /// Connections of the device's VMs; half-open clients are admitted through them.
    connections: Arc<DeviceConnections>,
    slots: Slots,
    /// Index into `vms` for each of the engine's VM numbers.
    vm_by_id: Vec<usize>,
    /// Buffers for payloads, bounded by the engine's budgets.
    pool: Pool,
    /// Receive buffers, headers, bounce buffers: bounded by clients and depth.
    plumbing: Pool,
    zeroes: Region,
    commands: Receiver<Command>,
    wake: Arc<Wake>,
    wake_file: FileId,
    wake_buffer: Buffer,
    surveyor: Option<Surveyor>,
    now: Nanos,
    /// Clients with something to parse.
    ready: VecDeque<u32>,
    /// Clients with something to send or to receive.
    touched: Vec<u32>,
    /// Clients with a linked send that was prepared in this turn.
    linked: Vec<ClientRef>,
    completions: Vec<Completion>,
    scratch: Vec<Mem>,
    granted: Vec<u32>,
    /// Jobs of its VMs that run.
    running_jobs: u32,
    /// Told when a job has ended, which is not to be kept any more.
    news: Arc<Notify>,
    /// A tick is on its way.
    ticking: bool,
    upkeep_due: bool,
    /// True if requests were handed in after this turn's dispatch, so that the next turn must not
    /// wait.
    handed_in_late: bool,
    workers: hung::Workers,
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
            self.serve();
            self.handed_in_late = false;
            self.dispatch();
            self.exchange();
            self.serve_unblocked();
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
        if !self.ready.is_empty() || self.handed_in_late {
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
        for completion in &completions {
            if let Token::Send(client) = Token::decode(completion.token) {
                self.sent(client, completion.result);
            }
        }
        if caught_up {
            self.linked_sends_ended();
        }
        for completion in completions.drain(..) {
            match Token::decode(completion.token) {
                Token::Receive(client) => self.received(client, completion),
                Token::Send(_) => {} // Above.
                Token::Readable(client) => self.became_readable(client),
                Token::Device(io) => self.device_answered(io, completion.result),
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
        self.device_due();
    }

    fn await_wake(&mut self) {
        self.ring
            .await_wake(self.wake_file, self.wake_buffer.mem(), Token::Wake.encode());
    }

    fn needs_upkeep(&self) -> bool {
        // `plumbing` counts too: it keeps the receive buffers of clients that went until they are
        // trimmed.
        let warm = self.pool.warm() + self.plumbing.warm();
        let busy = self.slots.len() > 0 || warm > 0 || self.running_jobs > 0;
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
        self.pool.trim(4096);
        self.plumbing.trim(4096);
        self.cut_off_stuck();
        self.close_overdue();
        self.look_for_hung_disks();
        self.tell_notices();
        self.tell_adequacy();
        self.tell_jobs();
    }
}

/// A reply whose asker has gone is nobody's loss.
fn answer_ended<T>(result: Result<(), T>) {
    drop(result);
}
