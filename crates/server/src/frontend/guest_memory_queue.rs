//! Queue inside the process whose requests name guest memory, as a guest's driver would have it.
//!
//! Shows in tests that the interface of [`interface`](super::interface) does not depend on NBD, and
//! is an example of a small frontend: requests arrive whole, payloads are in memory of the guest,
//! and replies are immediate. [`Guest`] is the other side.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

use tidegate_core::engine::PayloadMemory;
use tidegate_core::time::Nanos;

use super::Failure;
use super::interface::{
    Answer, Budget, Completed, Frontend, Incoming, Kind, Next, Polled, Port, Progress, Word,
};
use crate::buffer::{Buffer, Mem, Region, copy_ranges};
use crate::ring::{Completion, FileId, Pause, Ring, Wake};

/// Time for which a guest waits before its test fails.
const PATIENCE: Duration = Duration::from_secs(30);
/// Length of an extent in guest memory in bytes: its length, then 1 for a hole.
pub(crate) const EXTENT: usize = 8;
/// Event of the doorbell, which the guest rings.
const KICKED: u8 = 1;

/// Request of a guest, with the memory of its payload.
#[derive(Debug)]
pub(crate) struct Submission {
    pub(crate) request: Incoming<Id>,
    pub(crate) memory: Vec<Mem>,
}

/// Number that the guest gives a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Id(pub(crate) u16);

impl Word for Id {
    fn to_word(self) -> u64 {
        self.0.into()
    }

    fn from_word(word: u64) -> Id {
        Id(word as u16)
    }
}

/// Result of a request.
pub(crate) type Outcome = Result<(), Failure>;

/// Queue and the memory that its requests name.
#[derive(Debug)]
struct Queue {
    state: Mutex<State>,
    /// Signalled by the loop after each reply and when it releases the queue.
    rung: Condvar,
    /// Signalled by the guest.
    doorbell: Wake,
    memory: Region,
    /// Number of replies that the guest may leave in the queue.
    places: usize,
}

#[derive(Debug, Default)]
struct State {
    submissions: VecDeque<Submission>,
    answers: Vec<(Id, Outcome)>,
    /// True once the guest has left in order (`leaves`) or vanished (`died`).
    leaves: bool,
    died: bool,
    /// True once the loop has released queue and memory.
    closed: bool,
    /// Longest pause that the loop allows.
    longest_pause: Option<Pause>,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no side panics with the lock")
    }
}

/// Guest's side of a queue.
#[derive(Debug)]
pub(crate) struct Guest(Arc<Queue>);

impl Guest {
    /// Creates a queue with `memory` bytes of guest memory and room for `places` replies.
    pub(crate) fn new(memory: usize, places: usize) -> Guest {
        Guest(Arc::new(Queue {
            state: Mutex::default(),
            rung: Condvar::new(),
            doorbell: Wake::new().expect("an eventfd"),
            memory: Region::new(memory).expect("guest memory"),
            places,
        }))
    }

    /// Returns the side that goes to a loop.
    pub(crate) fn opening(&self) -> Opening {
        Opening(self.0.clone())
    }

    pub(crate) fn mem(&self, offset: usize, len: usize) -> Mem {
        self.0.memory.mem(offset, len)
    }

    pub(crate) fn submit(&self, submissions: impl IntoIterator<Item = Submission>) {
        self.0.lock().submissions.extend(submissions);
        self.0.doorbell.wake();
    }

    /// Waits for at least one reply and takes all there are; returns none once the loop has closed.
    pub(crate) fn answers(&self) -> Vec<(Id, Outcome)> {
        let state = self.0.lock();
        let waits = |state: &mut State| state.answers.is_empty() && !state.closed;
        let (mut state, late) = (self.0.rung)
            .wait_timeout_while(state, PATIENCE, waits)
            .expect("no side panics with the lock");
        assert!(!late.timed_out(), "no answer: {state:?}");
        let answers = std::mem::take(&mut state.answers);
        drop(state);
        // Taking replies made room, for which the loop may be waiting to poll again.
        self.0.doorbell.wake();
        answers
    }

    /// Returns the number of replies that wait in the queue.
    pub(crate) fn ready(&self) -> usize {
        self.0.lock().answers.len()
    }

    pub(crate) fn leave(&self) {
        self.0.lock().leaves = true;
        self.0.doorbell.wake();
    }

    pub(crate) fn die(&self) {
        self.0.lock().died = true;
        self.0.doorbell.wake();
    }

    /// Returns the longest pause that the loop allows; `None` before it has taken the queue over.
    pub(crate) fn longest_pause(&self) -> Option<Pause> {
        self.0.lock().longest_pause
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.0.lock().closed
    }

    /// Waits until the loop has released the queue.
    pub(crate) fn wait_until_closed(&self) {
        let waits = |state: &mut State| !state.closed;
        let (_state, late) = (self.0.rung)
            .wait_timeout_while(self.0.lock(), PATIENCE, waits)
            .expect("no side panics with the lock");
        assert!(!late.timed_out(), "the loop does not let go");
    }
}

/// Queue on its way to a loop.
#[derive(Debug)]
pub(crate) struct Opening(Arc<Queue>);

/// Queue inside a loop, which keeps the guest's memory alive until it is closed.
#[derive(Debug)]
pub(crate) struct Connection {
    queue: Arc<Queue>,
    doorbell: FileId,
    rung: Buffer,
    /// True while a read of the doorbell is with the kernel.
    armed: bool,
    /// Loop time since which the next request has waited to be admitted.
    waits_since: Option<Nanos>,
}

impl Connection {
    /// Opens a queue in a loop.
    ///
    /// # Errors
    /// Fails if the ring's table of files is full.
    pub(crate) fn open(Opening(queue): Opening, port: &mut Port<'_>) -> io::Result<Connection> {
        let doorbell = port.ring.add_file(queue.doorbell.receiver()?)?;
        Ok(Connection {
            queue,
            doorbell,
            // An eventfd is read as one counter of 8 bytes.
            rung: port.plumbing.get(8),
            armed: false,
            waits_since: None,
        })
    }

    fn arm(&mut self, port: &mut Port<'_>) {
        if !std::mem::replace(&mut self.armed, true) {
            let token = port.token(KICKED);
            port.ring.await_wake(self.doorbell, self.rung.mem(), token);
        }
    }
}

impl Frontend for Connection {
    type Token = Id;

    const MEMORY: PayloadMemory = PayloadMemory::Own;

    fn poll(&mut self, port: &mut Port<'_>, budget: &mut Budget) -> Polled<Id> {
        // No request is taken without room for its reply, so `complete` never has to wait.
        if !self.room(port) {
            return Polled::Full;
        }
        let mut state = self.queue.lock();
        if state.submissions.is_empty() {
            self.waits_since = None;
            let leaves = state.leaves;
            return if leaves { Polled::Left } else { Polled::Empty };
        }
        // The loop's turn is over; the queue is polled again in the next one.
        if !budget.may_take_request() {
            return Polled::Later;
        }
        budget.take_request();
        let Submission { request, memory } = state.submissions.pop_front().expect("not empty");
        port.requests.offered.extend(memory);
        Polled::Request(request)
    }

    fn complete(&mut self, port: &mut Port<'_>, slot: u32) -> Completed {
        let requests = &*port.requests;
        let entry = requests.get(slot);
        if matches!(entry.kind, Kind::Extents { .. }) && entry.answer == Answer::Ok {
            let buffer = requests.buffer(slot).expect("taken with the question");
            let mut n = 0;
            for extent in requests.extents(slot) {
                // Little-endian, length first: the length in the lower half, 1 for a hole in the
                // upper.
                let word = u64::from(extent.hole) << 32 | u64::from(extent.len);
                buffer.from(n).write(&word.to_le_bytes());
                n += EXTENT;
            }
            // An extent of length 0 ends the list in guest memory if there are fewer than
            // requested.
            let memory = requests.guest_memory(slot);
            memory.iter().for_each(Mem::zero);
            copy_ranges(memory, &[buffer.slice(0, n)]);
        }
        let slot = entry;
        let outcome = match slot.answer {
            Answer::Ok => Ok(()),
            Answer::Error(failure, _) => Err(failure),
        };
        let answer = (Id::from_word(slot.token), outcome);
        self.queue.lock().answers.push(answer);
        self.queue.rung.notify_all();
        Completed::Now
    }

    fn room(&mut self, port: &mut Port<'_>) -> bool {
        let room = self.queue.lock().answers.len() < self.queue.places;
        if !room {
            self.arm(port);
        }
        room
    }

    fn handle(&mut self, _: &mut Port<'_>, event: u8, _: Completion) -> Progress {
        assert_eq!(event, KICKED);
        self.armed = false;
        // A guest that leaves in order is found by `poll`, after its last requests.
        let next = if self.queue.lock().died {
            Next::Closed(None)
        } else {
            Next::Poll
        };
        Progress { sent: true, next }
    }

    fn shut_down(&mut self, _: &mut Port<'_>) {
        self.queue.doorbell.wake();
    }

    fn hang_up(&self, _: &Ring) {
        self.queue.lock().closed = true;
        self.queue.rung.notify_all();
    }

    fn close(self, port: &mut Port<'_>) {
        port.plumbing.put(self.rung);
        drop(port.ring.remove_file(self.doorbell));
        self.queue.lock().closed = true;
        self.queue.rung.notify_all();
    }

    fn waits_since(&self) -> Option<Nanos> {
        self.waits_since
    }

    fn stall(&mut self, port: &mut Port<'_>) {
        self.waits_since.get_or_insert(port.now);
    }

    fn receive(&mut self, port: &mut Port<'_>) {
        self.arm(port);
    }

    fn bound_pause(&mut self, longest: Pause) {
        self.queue.lock().longest_pause = Some(longest);
    }

    fn is_receiving(&self) -> bool {
        self.armed
    }

    fn is_at_rest(&self) -> bool {
        !self.armed
    }
}

/// Builds a request for `memory`, or for `len` bytes without a payload.
pub(crate) fn submission(
    id: u16,
    kind: Kind,
    (offset, len): (u64, u32),
    memory: Vec<Mem>,
) -> Submission {
    Submission {
        request: Incoming {
            kind,
            offset,
            len,
            fua: false,
            token: Id(id),
        },
        memory,
    }
}
