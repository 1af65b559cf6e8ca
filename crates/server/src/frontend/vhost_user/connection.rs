//! Device of a guest inside a loop: its queues, polled in turn.
//!
//! ```text
//!   kick (multishot poll) --> poll: chains of each queue in turn --> loop, engine
//!   flush: used indices, notifications <-- complete: status bytes, used entries
//!   bell --> change --> made as soon as what it waits for has ended --> answer
//! ```
//!
//! While all queues are [armed](Connection::armed), nothing but a kick brings requests. Otherwise
//! the loop polls them, and drivers are asked for no kicks.

mod hand_over;

use std::fs::File;
use std::io;
use std::sync::Arc;

use tidegate_core::engine::PayloadMemory;
use tidegate_core::time::Nanos;

pub use self::hand_over::Handed;
use super::dirty_log::DirtyLog;
use super::guest_memory::GuestMemory;
use super::mailbox::{Change, LoopEnd, Resting};
use super::request::{self, Limits, Request, Task};
use super::token::Token;
use super::virtqueue::{Chain, Fault, Virtqueue};
use crate::buffer::{Buffer, Mem};
use crate::frontend::interface::{
    Answer, Budget, Completed, EVENT_MAX, Frontend, Incoming, Kind, Next, Polled, Port, Progress,
    Word,
};
use crate::frontend::{Failure, Volume};
use crate::ring::{Completion, FileId, Ring};
use crate::sigbus;

/// Most queues of a device.
pub(super) const QUEUES_MAX: usize = 64;

/// Events: one for the kicks of each queue, from here on.
const KICK: u8 = 1;
/// Read of the bell.
const BELL: u8 = 120;
/// Nothing but a reason to poll.
const AGAIN: u8 = 121;
/// Failed notification or cancellation.
const FAILED: u8 = 122;
const _: () = assert!(KICK as usize + QUEUES_MAX <= BELL as usize && FAILED <= EVENT_MAX);
// Queues are the bits of a word, which is rotated to look at them in turn.
const _: () = assert!(QUEUES_MAX == u64::BITS as usize);

/// Connection of a hypervisor on its way to a loop.
#[derive(Debug)]
pub struct Opening {
    pub(super) mailbox: LoopEnd,
    pub(super) volume: Volume,
}

/// Queue with its files.
#[derive(Debug)]
struct Queue {
    ring: Virtqueue,
    kick: FileId,
    /// True while the poll of the kicks is with the kernel.
    polled: bool,
    call: Option<FileId>,
    enabled: bool,
    /// True once the queue is to be stopped, so that nothing more is taken from it.
    stopping: bool,
}

impl Queue {
    /// Returns true if requests are taken from the queue. One that is stopping takes only those
    /// again that an earlier session left. They are in flight, so that it takes them although the
    /// front-end may have disabled it before: the index at which it stops counts them as taken.
    fn is_active(&self) -> bool {
        if self.stopping {
            self.ring.left() > 0
        } else {
            self.enabled
        }
    }
}

/// Device inside a loop.
#[derive(Debug)]
pub(crate) struct Connection {
    mailbox: LoopEnd,
    bell: FileId,
    rung: Buffer,
    /// True while a read of the bell is with the kernel.
    awaits_bell: bool,
    volume: Volume,
    limits: Limits,
    memory: Arc<GuestMemory>,
    /// Log in which pages of guest memory are marked when they were written; `None` unless the
    /// guest is being migrated.
    log: Option<Arc<DirtyLog>>,
    queues: Vec<Option<Queue>>,
    /// File that locks the record of requests in flight, while a queue with a record runs.
    lock: Option<FileId>,
    /// Queues that run, as bits, so that the places of others are not looked at.
    running: u64,
    /// Queue that is looked at first.
    next: usize,
    /// Queues with answers that the driver does not see yet, as bits.
    unpublished: u64,
    /// Requests that were taken and not answered.
    in_flight: u32,
    /// Change that waits for something to end.
    change: Option<Change>,
    /// True if all queues were found empty and their drivers were asked for kicks.
    armed: bool,
    /// True once the front-end has left in order.
    leaves: bool,
    /// True once the connection is shut down.
    is_shut: bool,
    /// State for another daemon that is to go on with the device: nothing more is taken.
    handed: Option<Box<Resting>>,
    /// Loop time since which the next request has waited to be admitted.
    waits_since: Option<Nanos>,
    /// Number of [faults](sigbus::faults) when guest memory was last found whole.
    faults: usize,
    chain: Chain,
}

impl Connection {
    /// Takes a device over.
    ///
    /// # Errors
    /// Fails if the ring's table of files is full.
    pub(crate) fn open(opening: Opening, port: &mut Port<'_>) -> io::Result<Connection> {
        let Opening { mailbox, volume } = opening;
        let bell = port.ring.add_file(mailbox.bell()?)?;
        let mut connection = Connection {
            mailbox,
            bell,
            // An eventfd is read as one counter of 8 bytes.
            rung: port.plumbing.get(8),
            awaits_bell: false,
            limits: Limits {
                block: volume.block_size.max(request::SECTOR),
                payload: volume.payload_max,
            },
            volume,
            memory: Arc::default(),
            log: None,
            queues: (0..QUEUES_MAX).map(|_| None).collect(),
            lock: None,
            running: 0,
            next: 0,
            unpublished: 0,
            in_flight: 0,
            change: None,
            armed: false,
            leaves: false,
            is_shut: false,
            handed: None,
            waits_since: None,
            faults: sigbus::faults(),
            chain: Chain::default(),
        };
        connection.await_bell(port);
        Ok(connection)
    }

    fn await_bell(&mut self, port: &mut Port<'_>) {
        self.awaits_bell = true;
        let token = port.token(BELL);
        port.ring.await_wake(self.bell, self.rung.mem(), token);
    }

    fn queue(&mut self, index: usize) -> &mut Queue {
        self.queues[index].as_mut().expect("the queue runs")
    }

    /// Takes the next chain of any queue: the queue's index and the head.
    fn take(&mut self) -> Result<Option<(usize, u16)>, Fault> {
        // A change of the memory table waits for everything in flight.
        if self.handed.is_some() || matches!(self.change, Some(Change::Memory { .. })) {
            return Ok(None);
        }
        let mut rest = self.running.rotate_right(self.next as u32);
        while rest != 0 {
            let index = (self.next + rest.trailing_zeros() as usize) % QUEUES_MAX;
            rest &= rest - 1;
            let queue = self.queues[index].as_mut().expect("the queue runs");
            if !queue.is_active() {
                continue;
            }
            queue.ring.suppress_kicks(self.log.as_deref());
            if let Some(head) = queue.ring.take(&self.memory, &mut self.chain)? {
                self.next = (index + 1) % QUEUES_MAX;
                return Ok(Some((index, head)));
            }
        }
        Ok(None)
    }

    /// Returns true if part of guest memory, or of the log, is gone, so that what was read of it
    /// are zeroes.
    #[inline]
    fn is_truncated(&mut self) -> bool {
        let faults = sigbus::faults();
        if faults == self.faults {
            return false;
        }
        let lost_marks = self.log.as_ref().is_some_and(|log| log.is_truncated());
        let mut rings = self.queues.iter().flatten().map(|queue| &queue.ring);
        let lost_record = rings.any(Virtqueue::has_lost_record);
        let is_truncated = self.memory.is_truncated() || lost_marks || lost_record;
        if !is_truncated {
            self.faults = faults;
        }
        is_truncated
    }

    /// Shows drivers their answers, but none if guest memory is gone: what they wrote may have been
    /// read as zeroes.
    fn publish(&mut self, port: &mut Port<'_>) {
        if self.is_truncated() {
            self.unpublished = 0;
            // `poll` reports it, which an idle driver would not cause.
            return port.ring.complete_soon(port.token(AGAIN));
        }
        while self.unpublished != 0 {
            let index = self.unpublished.trailing_zeros() as usize;
            self.unpublished &= self.unpublished - 1;
            let queue = self.queues[index].as_mut().expect("the queue runs");
            if queue.ring.publish(self.log.as_deref())
                && let Some(call) = queue.call
            {
                port.ring.signal(call, port.token(FAILED));
            }
        }
        if self.log.is_some() && self.is_truncated() {
            port.ring.complete_soon(port.token(AGAIN));
        }
    }

    /// Marks guest memory that was written.
    #[inline]
    fn mark(&self, written: &[Mem]) {
        if let Some(log) = &self.log {
            log.mark_memory(&self.memory, written);
        }
    }

    /// Marks the first `len` bytes of memory, which were written. The rest may be as long as a
    /// driver likes, and would take as long to mark.
    fn mark_front(&self, memory: &[Mem], len: u32) {
        let mut left = len as usize;
        for mem in memory {
            let written = mem.slice(0, left.min(mem.len()));
            self.mark(&[written]);
            left -= written.len();
            if left == 0 {
                return;
            }
        }
    }

    /// Answers a request; the driver sees it after the next [`Connection::publish`].
    fn end(&mut self, token: Token, status: u8, written: u32) {
        let index = usize::from(token.queue);
        // The status byte is written memory, too.
        let status = (self.queue(index).ring).end(token.head, status, written + 1);
        self.mark(&[status]);
        self.unpublished |= 1 << index;
        self.in_flight -= 1;
    }

    /// Returns the number of requests in flight that a change waits for.
    fn waits_for(&self, change: &Change) -> u32 {
        match *change {
            Change::Memory { .. } => self.in_flight,
            Change::Stop { queue } => {
                let queue = self.queues[queue].as_ref();
                // Requests of an earlier session are taken again before the queue stops.
                u32::from(queue.map_or(0, |queue| queue.ring.in_flight() + queue.ring.left()))
            }
            _ => 0,
        }
    }

    /// Makes the change that the session waits for, if nothing that it waits for is under way.
    fn make_change(&mut self, port: &mut Port<'_>) {
        let Some(change) = self.change.take() else {
            return;
        };
        // Whatever changes, queues are looked at anew, and armed anew.
        self.armed = false;
        let outcome = match change {
            Change::Memory { memory, rings } => {
                // By the rings: where memory is gone, `unpublished` is given up, and the device
                // about to close.
                let mut queues = self.queues.iter().flatten();
                if !queues.all(|queue| queue.ring.is_drained()) {
                    self.change = Some(Change::Memory { memory, rings });
                    return;
                }
                for (queue, rings) in rings {
                    self.queue(queue).ring.move_rings(rings);
                }
                self.memory = memory;
                Ok(0)
            }
            Change::Start {
                queue,
                setup,
                record,
                lock,
                kick,
                call,
                enabled,
            } => {
                let mut ring = Virtqueue::new(&setup);
                let recovered = record.map_or(Ok(()), |record| ring.recover(record));
                let left = ring.left();
                (recovered.map_err(|fault| format!("queue {queue}: {fault}")))
                    .and_then(|()| self.add_lock(port, lock))
                    .and_then(|()| self.start(port, queue, ring, (kick, call), enabled))
                    .map(|()| left)
            }
            Change::Stop { queue } => match self.stop(port, queue) {
                Some(base) => Ok(base),
                None => {
                    self.change = Some(Change::Stop { queue });
                    return;
                }
            },
            Change::Enable { queue, enabled } => {
                self.queue(queue).enabled = enabled;
                Ok(0)
            }
            Change::Call { queue, call } => self.set_call(port, queue, call),
            Change::Log { log } => {
                // The session has the old one, which is unmapped there.
                self.log = log;
                Ok(0)
            }
            Change::LogUsed { queue, logged_at } => {
                self.queue(queue).ring.log_at(logged_at);
                Ok(0)
            }
        };
        self.mailbox.answer(outcome);
    }

    /// Starts a queue, or changes nothing if that fails.
    fn start(
        &mut self,
        port: &mut Port<'_>,
        index: usize,
        ring: Virtqueue,
        (kick, call): (File, Option<File>),
        enabled: bool,
    ) -> Result<(), String> {
        assert!(self.queues[index].is_none(), "a queue is started twice");
        let failed = |error: io::Error| format!("no queue can be added: {error}");
        let kick = port.ring.add_file(kick.into()).map_err(failed)?;
        let call = call.map(|call| port.ring.add_file(call.into()));
        let call = call.transpose().map_err(|error| {
            drop(port.ring.remove_file(kick));
            failed(error)
        })?;
        self.queues[index] = Some(Queue {
            ring,
            kick,
            polled: true,
            call,
            enabled,
            stopping: false,
        });
        self.running |= 1 << index;
        (port.ring).await_signals(kick, port.token(KICK + index as u8));
        if let Some(call) = call {
            port.ring.signal(call, port.token(FAILED));
        }
        Ok(())
    }

    fn set_call(
        &mut self,
        port: &mut Port<'_>,
        index: usize,
        call: Option<File>,
    ) -> Result<u16, String> {
        let added = call.map(|call| port.ring.add_file(call.into()));
        let queue = self.queue(index);
        if let Some(old) = queue.call.take() {
            drop(port.ring.remove_file(old));
        }
        if let Some(added) = added {
            let call = added.map_err(|error| format!("no eventfd can be added: {error}"))?;
            queue.call = Some(call);
            // Notifications by the old eventfd may not have reached the driver.
            port.ring.signal(call, port.token(FAILED));
        }
        Ok(0)
    }

    /// Stops a queue and returns the index of its next available entry; `None` while it has
    /// requests in flight or the kernel its poll.
    fn stop(&mut self, port: &mut Port<'_>, index: usize) -> Option<u16> {
        let queue = self.queue(index);
        let first = !std::mem::replace(&mut queue.stopping, true);
        if first && queue.polled {
            let (poll, failed) = (port.token(KICK + index as u8), port.token(FAILED));
            port.ring.cancel(poll, failed);
        }
        let queue = self.queue(index);
        if !queue.ring.is_drained() || queue.ring.left() > 0 || queue.polled {
            return None;
        }
        let base = queue.ring.next_available();
        self.remove_queue(port, index);
        Some(base)
    }

    /// Lets go of everything but the session.
    fn take_apart(mut self, port: &mut Port<'_>) -> Handed {
        for index in 0..self.queues.len() {
            if self.queues[index].is_some() {
                self.remove_queue(port, index);
            }
        }
        self.remove_lock(port);
        port.plumbing.put(self.rung);
        drop(port.ring.remove_file(self.bell));
        // Before the mailbox: the session's thread is to be the last that has the memory.
        drop(self.change.take());
        drop((self.memory, self.log));
        Handed::new(self.mailbox, self.volume, self.handed)
    }

    fn remove_queue(&mut self, port: &mut Port<'_>, index: usize) {
        let queue = self.queues[index].take().expect("the queue runs");
        self.running &= !(1 << index);
        for file in [Some(queue.kick), queue.call].into_iter().flatten() {
            drop(port.ring.remove_file(file));
        }
        // The front-end may pass another record once no queue runs.
        if self.queues.iter().all(Option::is_none) {
            self.remove_lock(port);
        }
    }

    /// Has the ring keep the lock on the record of requests in flight.
    fn add_lock(&mut self, port: &mut Port<'_>, lock: Option<File>) -> Result<(), String> {
        if self.lock.is_none()
            && let Some(lock) = lock
        {
            let added = port.ring.add_file(lock.into());
            self.lock = Some(added.map_err(|error| format!("no lock can be added: {error}"))?);
        }
        Ok(())
    }

    fn remove_lock(&mut self, port: &mut Port<'_>) {
        if let Some(lock) = self.lock.take() {
            drop(port.ring.remove_file(lock));
        }
    }

    /// Handles a completion of the poll of a queue's kicks.
    ///
    /// # Errors
    /// The error number if the queue cannot be polled any more.
    fn kicked(
        &mut self,
        port: &mut Port<'_>,
        index: usize,
        completion: Completion,
    ) -> Result<(), i32> {
        if completion.goes_on {
            return Ok(());
        }
        let Some(queue) = self.queues[index].as_mut() else {
            return Ok(());
        };
        queue.polled = false;
        if queue.stopping {
            self.make_change(port);
        } else if !self.is_shut && self.handed.is_none() {
            completion.result?;
            // The kernel ends polls that its queue of completions has no room for.
            queue.polled = true;
            (port.ring).await_signals(queue.kick, port.token(KICK + index as u8));
        }
        Ok(())
    }
}

impl Frontend for Connection {
    type Token = Token;

    const MEMORY: PayloadMemory = PayloadMemory::Own;

    fn poll(&mut self, port: &mut Port<'_>, budget: &mut Budget) -> Polled<Token> {
        self.waits_since = None;
        if self.leaves {
            return Polled::Left;
        }
        loop {
            // The turn is over; the queues are polled again in the next one.
            if !budget.may_take_request() {
                // Answers that were made here wait for no other's.
                self.publish(port);
                return Polled::Later;
            }
            let taken = self.take();
            if self.is_truncated() {
                return Polled::Broken("part of its memory is gone".to_owned());
            }
            let taken = match taken {
                Ok(Some(taken)) => taken,
                Ok(None) => return Polled::Empty,
                Err(fault) => return Polled::Broken(fault.to_owned()),
            };
            budget.take_request();
            budget.read_parts(self.chain.readable.len() + self.chain.writable.len());
            let (index, head) = taken;
            let request = match Request::read(&mut self.chain, &self.limits) {
                Ok(request) => request,
                Err(fault) => return Polled::Broken(fault.to_owned()),
            };
            let token = Token {
                queue: index as u16,
                head,
            };
            self.queue(index).ring.begin(head, request.status);
            self.in_flight += 1;
            let (kind, offset, len) = match request.task {
                Task::Disk { kind, offset, len } => (kind, offset, len),
                Task::Identify => {
                    let (status, n) = request::identify(&self.volume.name, &self.chain.writable);
                    self.mark_front(&self.chain.writable, n);
                    self.end(token, status, n);
                    continue;
                }
                Task::Refuse(status) => {
                    self.end(token, status, 0);
                    continue;
                }
            };
            let data = match kind {
                Kind::Read => &self.chain.writable,
                _ => &self.chain.readable,
            };
            if matches!(kind, Kind::Read | Kind::Write) {
                port.requests.offered.extend_from_slice(data);
            }
            let changes = matches!(kind, Kind::Write | Kind::WriteZeroes { .. });
            return Polled::Request(Incoming {
                kind,
                offset,
                len,
                fua: changes && self.mailbox.stable_writes(),
                token,
            });
        }
    }

    fn complete(&mut self, port: &mut Port<'_>, slot: u32) -> Completed {
        let entry = port.requests.get(slot);
        let (token, kind, len) = (Token::from_word(entry.token), entry.kind, entry.len);
        let (status, written) = match entry.answer {
            Answer::Ok if kind == Kind::Read => (request::OK, len),
            Answer::Ok => (request::OK, 0),
            Answer::Error(Failure::Unsupported, _) => (request::UNSUPPORTED, 0),
            Answer::Error(..) => (request::IO_ERROR, 0),
        };
        // Also of a read that failed: the kernel may have written part of it.
        if kind == Kind::Read {
            self.mark(port.requests.guest_memory(slot));
        }
        self.end(token, status, written);
        Completed::Now
    }

    /// The used ring has a place for each request in flight.
    fn room(&mut self, _: &mut Port<'_>) -> bool {
        true
    }

    fn handle(&mut self, port: &mut Port<'_>, event: u8, completion: Completion) -> Progress {
        let poll = Progress {
            sent: false,
            next: Next::Poll,
        };
        // Whatever it is, the queues are looked at again.
        self.armed &= event == FAILED;
        match event {
            BELL => {
                self.awaits_bell = false;
                if self.is_shut || self.handed.is_some() {
                    return poll;
                }
                if self.mailbox.has_left() {
                    // A front-end stops its queues before it leaves in order. Otherwise nothing
                    // more is answered: it may have counted the answers already.
                    self.leaves = self.queues.iter().all(Option::is_none);
                    let lost = Next::Closed(None);
                    let next = if self.leaves { Next::Poll } else { lost };
                    return Progress { sent: false, next };
                }
                if let Some(change) = self.mailbox.take() {
                    debug_assert!(self.change.is_none(), "the session waits for its changes");
                    self.change = Some(change);
                    self.make_change(port);
                } else if let Some(change) = &self.change {
                    self.mailbox.note_waits_for(self.waits_for(change));
                }
                self.await_bell(port);
            }
            AGAIN => {}
            FAILED => return Progress::default(),
            kick => {
                if let Err(errno) = self.kicked(port, usize::from(kick - KICK), completion) {
                    let next = Next::Closed(Some(errno));
                    return Progress { sent: false, next };
                }
            }
        }
        poll
    }

    /// Wakes what the kernel waits for, so that the connection is soon at rest.
    fn shut_down(&mut self, port: &mut Port<'_>) {
        self.is_shut = true;
        self.end_polls(port);
    }

    fn hang_up(&self, _: &Ring) {
        self.mailbox.hang_up();
    }

    fn close(self, port: &mut Port<'_>) {
        drop(self.take_apart(port));
    }

    fn waits_since(&self) -> Option<Nanos> {
        self.waits_since
    }

    fn stall(&mut self, port: &mut Port<'_>) {
        self.waits_since.get_or_insert(port.now);
    }

    fn flush(&mut self, port: &mut Port<'_>, _: bool) -> bool {
        if self.unpublished != 0 {
            self.publish(port);
        }
        self.make_change(port);
        false
    }

    fn receive(&mut self, port: &mut Port<'_>) {
        let mut more = false;
        for queue in self.queues.iter_mut().flatten() {
            if queue.is_active() {
                // `poll` finds the fault and reports it.
                let log = self.log.as_deref();
                more |= queue.ring.want_kicks(log).unwrap_or(true);
            }
        }
        // `poll` reports it.
        more |= self.log.is_some() && self.is_truncated();
        if more && !matches!(self.change, Some(Change::Memory { .. })) {
            let token = port.token(AGAIN);
            port.ring.complete_soon(token);
        }
        self.armed = true;
    }

    fn is_receiving(&self) -> bool {
        self.armed
    }

    fn is_quiet(&self) -> bool {
        self.unpublished == 0
    }

    fn is_at_rest(&self) -> bool {
        !self.awaits_bell && self.queues.iter().flatten().all(|queue| !queue.polled)
    }
}
