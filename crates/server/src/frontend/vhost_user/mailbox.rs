//! Changes that a session's thread asks of the loop, one at a time.
//!
//! ```text
//!   session (blocking thread)                      connection (event loop)
//!   request(change) ---- change, eventfd --------> take; requests in flight end
//!        waits <-------- outcome ----------------- answer
//!          every 500 ms: eventfd ----------------> note_waits_for
//!   leave() ------------ eventfd ----------------> closes
//!        waits <-------- closed ------------------ LoopEnd is dropped
//! ```
//!
//! For a daemon that takes over, the session rests between two messages, and asks for no change:
//!
//! ```text
//!   Working --ask_to_rest--> Asked --session: rest(state)--> Resting --loop: claim--> Claimed
//!      ^                       |                                |                        |
//!      +------------ go_on ----+--------------------------------+      Restarts <--------+
//!      +------------------------------- queues are started again -------- |    restart
//! ```
//!
//! The lock is taken for changes, when a session rests and when a connection ends, never for a
//! request.

use std::fs::File;
use std::net::Shutdown;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::dirty_log::{DirtyLog, UsedAddress};
use super::guest_memory::GuestMemory;
use super::inflight::QueueRecord;
use super::session_state::SessionState;
use super::virtqueue::{QueueSetup, Rings};
use crate::ownership::Ownership;
use crate::ring::{Wake, sys};

/// Time for which a change waits although none of the requests that it waits for ends: the disk
/// hangs then, and the hypervisor, whose guest stands still meanwhile, is to go on. Shorter in unit
/// tests.
const SILENCE_MAX: Duration = Duration::from_secs(if cfg!(test) { 2 } else { 30 });
/// Time after which the loop is asked again how many requests a change waits for.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(500);

/// Change of a device's state.
#[derive(Debug)]
pub(super) enum Change {
    /// New memory table, with the rings of the queues that run, by their index. Made once nothing
    /// is in flight.
    Memory {
        memory: Arc<GuestMemory>,
        rings: Vec<(usize, Rings)>,
    },
    /// Starts a queue, which must be stopped. The outcome is the number of requests that an earlier
    /// session left in flight.
    Start {
        queue: usize,
        setup: QueueSetup,
        /// Record of the queue's requests in flight, if the front-end keeps one.
        record: Option<QueueRecord>,
        /// File that locks the record until all I/O of the ring has ended.
        lock: Option<File>,
        /// Eventfd that the driver kicks.
        kick: File,
        /// Eventfd by which the driver is notified; `None` if it polls.
        call: Option<File>,
        enabled: bool,
    },
    /// Stops a queue once its requests are answered. The outcome is the index of its next available
    /// entry.
    Stop { queue: usize },
    /// Enables or disables a queue.
    Enable { queue: usize, enabled: bool },
    /// Replaces the eventfd by which the driver is notified.
    Call { queue: usize, call: Option<File> },
    /// Sets the log in which pages that are written are marked from now on, or none.
    Log { log: Option<Arc<DirtyLog>> },
    /// Sets the place of a queue's used ring in the log.
    LogUsed {
        queue: usize,
        logged_at: UsedAddress,
    },
}

/// Outcome of a change: a number that only some changes have, or a message.
pub(super) type Outcome = Result<u16, String>;

/// State that the session's thread and the loop share.
#[derive(Debug)]
pub(super) struct Mailbox {
    state: Mutex<State>,
    /// Signalled by the loop after each outcome and when it has closed.
    changed: Condvar,
    /// Signalled by the session after each change and when it leaves.
    bell: Wake,
    /// Signalled when the session is asked to rest, which may wait for a message.
    summons: Wake,
    /// True if each write must be durable when it is answered.
    stable_writes: AtomicBool,
    /// The session's socket, shut down when the loop has closed.
    socket: UnixStream,
}

#[derive(Default, Debug)]
struct State {
    change: Option<Change>,
    outcome: Option<Outcome>,
    /// Number of requests that the change waits for, when the loop was last asked.
    waits_for: Option<u32>,
    /// True once the session has ended.
    left: bool,
    /// True once the loop has let go of guest memory and files.
    closed: bool,
    rest: Rest,
}

/// Rest of a session, for a hand-over to another daemon.
#[derive(Default, Debug)]
enum Rest {
    /// The session handles messages.
    #[default]
    Working,
    /// The session is to rest before it handles the next message. Holds the key of the listening
    /// socket that its front-end has connected to.
    Asked(String),
    Resting(Box<Resting>),
    /// The loop hands the session over.
    Claimed,
    /// The session is to start its queues again, in a loop that has none of them.
    Restarts,
}

/// State of a session that rests, for another daemon.
#[derive(Debug)]
pub(super) struct Resting {
    /// `None` once it was sent.
    pub(super) state: Option<SessionState<OwnedFd>>,
    /// Ownership of the lock on the record of requests in flight.
    pub(super) lock: Ownership,
}

/// End of a session's rest.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RestEnd {
    /// The queues run as before.
    GoesOn,
    /// The loop has let go of the queues, which are to be started again.
    Restarts,
    /// The loop has closed the connection.
    Closed,
}

impl Mailbox {
    /// Makes the mailbox of a session on a socket.
    ///
    /// # Errors
    /// If the process has no free descriptor.
    pub(super) fn new(socket: &UnixStream) -> std::io::Result<Arc<Mailbox>> {
        Ok(Arc::new(Mailbox {
            state: Mutex::default(),
            changed: Condvar::new(),
            bell: Wake::new()?,
            summons: Wake::new()?,
            stable_writes: AtomicBool::new(true),
            socket: socket.try_clone()?,
        }))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic cannot leave the state half changed: each change is one assignment.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has the loop make a change, and waits for it.
    ///
    /// # Errors
    /// A message if the change cannot be made, none of the requests that it waits for has ended for
    /// [`SILENCE_MAX`], or the loop has closed the connection. The session must end then.
    pub(super) fn request(&self, change: Change) -> Outcome {
        let mut state = self.lock();
        state.change = Some(change);
        self.bell.wake();
        let (mut fewest, mut since) = (u32::MAX, Instant::now());
        loop {
            if let Some(outcome) = state.outcome.take() {
                return outcome;
            }
            if state.closed {
                return Err("the disk is no longer served".to_owned());
            }
            let changed = self.changed.wait_timeout(state, PROGRESS_INTERVAL);
            let (next, waited) = changed.unwrap_or_else(PoisonError::into_inner);
            state = next;
            if !waited.timed_out() {
                continue;
            }
            match state.waits_for.take() {
                Some(requests) if requests < fewest => {
                    (fewest, since) = (requests, Instant::now());
                }
                _ if since.elapsed() >= SILENCE_MAX => {
                    return Err(format!(
                        "none of its requests in flight has ended for {} s: the disk hangs",
                        SILENCE_MAX.as_secs()
                    ));
                }
                _ => {}
            }
            self.bell.wake();
        }
    }

    /// Waits until the front-end has sent something or the session is asked to rest. Returns the
    /// key of its listening socket in the latter case, whatever the front-end has sent.
    ///
    /// # Errors
    /// If the system cannot wait.
    pub(super) fn await_message(&self) -> std::io::Result<Option<String>> {
        while sys::wait_for_either(self.socket.as_fd(), self.summons.as_fd())? {
            self.summons.take();
            if let Rest::Asked(listener) = &self.lock().rest {
                return Ok(Some(listener.clone()));
            }
            // The takeover was given up meanwhile.
        }
        Ok(None)
    }

    /// Rests until the session may go on; returns at once if it is not asked to any more. Without
    /// a `state` it cannot rest, and is closed where others are handed over.
    pub(super) fn rest(&self, resting: Option<Resting>) -> RestEnd {
        let mut state = self.lock();
        if !matches!(state.rest, Rest::Asked(_)) {
            return RestEnd::GoesOn;
        }
        state.rest = resting.map_or(Rest::Working, |resting| Rest::Resting(Box::new(resting)));
        self.changed.notify_all();
        loop {
            if state.closed {
                return RestEnd::Closed;
            }
            match state.rest {
                Rest::Resting(_) | Rest::Claimed => {}
                Rest::Restarts => {
                    state.rest = Rest::Working;
                    return RestEnd::Restarts;
                }
                Rest::Working | Rest::Asked(_) => return RestEnd::GoesOn,
            }
            state = (self.changed.wait(state)).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Returns the session's socket.
    pub(super) fn socket(&self) -> &UnixStream {
        &self.socket
    }

    /// Ends the connection, and waits until the loop has let go of guest memory. The front-end is
    /// not kept waiting: its socket is closed before that.
    pub(super) fn leave(&self) {
        // The front-end may have gone already.
        let _ = self.socket.shutdown(Shutdown::Both);
        let mut state = self.lock();
        state.left = true;
        self.bell.wake();
        while !state.closed {
            state = (self.changed.wait(state)).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Ends the connection, without waiting for the loop.
    pub(super) fn abandon(&self) {
        self.lock().left = true;
        self.bell.wake();
    }

    /// Sets whether each write must be durable when it is answered.
    pub(super) fn set_stable_writes(&self, stable: bool) {
        self.stable_writes.store(stable, Ordering::Release);
    }
}

/// Means to have a session rest between two messages, for a hand-over to another daemon.
#[derive(Clone, Debug)]
pub(crate) struct Summons(Arc<Mailbox>);

impl Summons {
    /// Returns those of the session with a mailbox.
    pub(super) fn new(mailbox: Arc<Mailbox>) -> Summons {
        Summons(mailbox)
    }

    /// Asks the session to rest before it handles the next message. `listener` is the key of the
    /// socket that its front-end has connected to.
    pub(crate) fn ask_to_rest(&self, listener: &str) {
        let mut state = self.0.lock();
        if matches!(state.rest, Rest::Working) {
            state.rest = Rest::Asked(listener.to_owned());
            self.0.summons.wake();
        }
    }

    /// Waits until the session rests, has said that it cannot, or has ended; not beyond `until`.
    pub(crate) fn await_rest(&self, until: Instant) {
        let mut state = self.0.lock();
        while matches!(state.rest, Rest::Asked(_)) && !state.left && !state.closed {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            let changed = self.0.changed.wait_timeout(state, left);
            state = changed.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Ends the rest of a session, or the wish for one, unless its loop has claimed it for the
    /// hand-over.
    pub(crate) fn go_on(&self) {
        let mut state = self.0.lock();
        if matches!(state.rest, Rest::Asked(_) | Rest::Resting(_)) {
            state.rest = Rest::Working;
            self.0.changed.notify_all();
        }
    }
}

/// The loop's end of a mailbox. Dropping it tells the session that the loop has let go.
#[derive(Debug)]
pub(super) struct LoopEnd(Arc<Mailbox>);

impl LoopEnd {
    /// Makes the loop's end; there is one of a mailbox.
    pub(super) fn new(mailbox: Arc<Mailbox>) -> LoopEnd {
        LoopEnd(mailbox)
    }

    /// Returns a descriptor from which the bell is read.
    ///
    /// # Errors
    /// If the process has no free descriptor.
    pub(super) fn bell(&self) -> std::io::Result<OwnedFd> {
        self.0.bell.receiver()
    }

    /// Ends the session's read of its next message, and with it the session. The front-end may have
    /// gone already.
    pub(super) fn hang_up(&self) {
        let _ = self.0.socket.shutdown(Shutdown::Both);
    }

    /// Rings the bell, so that a read of it ends.
    pub(super) fn ring(&self) {
        self.0.bell.wake();
    }

    /// Takes the change that the session waits for.
    pub(super) fn take(&self) -> Option<Change> {
        self.0.lock().change.take()
    }

    /// Returns true once the session has ended.
    pub(super) fn has_left(&self) -> bool {
        self.0.lock().left
    }

    /// Notes how many requests the change that was taken waits for.
    pub(super) fn note_waits_for(&self, requests: u32) {
        self.0.lock().waits_for = Some(requests);
    }

    /// Returns what another daemon needs of the session if it rests. It asks for nothing from then
    /// on until [`LoopEnd::restart`].
    pub(super) fn claim(&self) -> Option<Box<Resting>> {
        let mut state = self.0.lock();
        match std::mem::replace(&mut state.rest, Rest::Claimed) {
            Rest::Resting(resting) => Some(resting),
            other => {
                state.rest = other;
                None
            }
        }
    }

    /// Has a session that was claimed start its queues again.
    pub(super) fn restart(&self) {
        let mut state = self.0.lock();
        if matches!(state.rest, Rest::Claimed) {
            state.rest = Rest::Restarts;
            self.0.changed.notify_all();
        }
    }

    /// Answers the change that was taken.
    pub(super) fn answer(&self, outcome: Outcome) {
        self.0.lock().outcome = Some(outcome);
        self.0.changed.notify_all();
    }

    /// Returns true if each write must be durable when it is answered.
    #[inline]
    pub(super) fn stable_writes(&self) -> bool {
        self.0.stable_writes.load(Ordering::Acquire)
    }
}

impl Drop for LoopEnd {
    fn drop(&mut self) {
        self.0.lock().closed = true;
        self.0.changed.notify_all();
        self.hang_up();
    }
}
