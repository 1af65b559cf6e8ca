//! Streams of the control API's connections: what a client does, and deadlines for it.
//!
//! A client that has sent the first byte of a request has [`HEAD_TIMEOUT`] for the rest of its
//! head; one that is sent an answer has to take some of it every [`WRITE_TIMEOUT`]. The connection
//! ends otherwise, because it has a place that others may need. An idle connection has no deadline
//! here: it makes room.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Notify;
use tokio::time::{Instant, Sleep, sleep_until};

/// Deadline for a client to send the head of a request, from its first byte.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest time for which a client may take no byte of an answer.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);

/// Current phase of a connection, shared between the connection and the accepting task.
#[derive(Debug)]
pub(super) struct Activity {
    phase: Mutex<Phase>,
    opened: Instant,
    /// The client needs a token, and its last request has shown no valid one.
    is_stranger: AtomicBool,
    /// Signal to close the connection if it gives way.
    leave: Notify,
    /// The signal was sent, and the connection has not stayed nevertheless.
    is_leaving: AtomicBool,
}

/// Phases in the diagram of [`connections`](super::connections).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    Idle { since: Instant },
    Reading { since: Instant },
    Serving,
    Answering,
}

impl Activity {
    /// Makes the activity of a connection that has just been accepted.
    pub(super) fn new(is_stranger: bool) -> Activity {
        let opened = Instant::now();
        Activity {
            phase: Mutex::new(Phase::Idle { since: opened }),
            opened,
            is_stranger: AtomicBool::new(is_stranger),
            leave: Notify::new(),
            is_leaving: AtomicBool::new(false),
        }
    }

    /// Asks the connection to close if it gives way.
    pub(super) fn ask_to_leave(&self) {
        self.is_leaving.store(true, Ordering::Relaxed);
        self.leave.notify_one();
    }

    /// Returns true if the connection was asked to close and has not stayed nevertheless.
    pub(super) fn is_leaving(&self) -> bool {
        self.is_leaving.load(Ordering::Relaxed)
    }

    /// Waits until the connection is asked to close.
    pub(super) async fn asked_to_leave(&self) {
        self.leave.notified().await;
    }

    /// Records that the connection stays although it was asked to close, so that it can be asked
    /// again.
    pub(super) fn stays(&self) {
        self.is_leaving.store(false, Ordering::Relaxed);
    }

    /// Returns the time since which the connection is idle; `None` if it is not.
    pub(super) fn idle_since(&self) -> Option<Instant> {
        match *self.phase() {
            Phase::Idle { since } => Some(since),
            Phase::Reading { .. } | Phase::Serving | Phase::Answering => None,
        }
    }

    /// Records whether a request has shown a valid token.
    pub(super) fn showed_token(&self, is_valid: bool) {
        // The task of the connection and the one that accepts run on one thread.
        self.is_stranger.store(!is_valid, Ordering::Relaxed);
    }

    /// Returns the time of the connection's beginning if it is a stranger's.
    pub(super) fn stranger_since(&self) -> Option<Instant> {
        let is_stranger = self.is_stranger.load(Ordering::Relaxed);
        is_stranger.then_some(self.opened)
    }

    /// Returns true if the connection may be closed for another one.
    pub(super) fn gives_way(&self) -> bool {
        self.idle_since().is_some() || self.stranger_since().is_some()
    }

    /// Records that a request has been read up to its body.
    pub(super) fn serving(&self) {
        *self.phase() = Phase::Serving;
    }

    /// Records that the whole answer to a request was taken and is being sent.
    pub(super) fn answering(&self) {
        *self.phase() = Phase::Answering;
    }

    /// Returns the time by which the head of a request has to be complete; `None` if none has
    /// begun.
    fn head_deadline(&self) -> Option<Instant> {
        match *self.phase() {
            Phase::Reading { since } => Some(since + HEAD_TIMEOUT),
            Phase::Idle { .. } | Phase::Serving | Phase::Answering => None,
        }
    }

    fn received(&self) {
        let mut phase = self.phase();
        if matches!(*phase, Phase::Idle { .. }) {
            *phase = Phase::Reading {
                since: Instant::now(),
            };
        }
    }

    fn sent_all(&self) {
        let mut phase = self.phase();
        if *phase == Phase::Answering {
            *phase = Phase::Idle {
                since: Instant::now(),
            };
        }
    }

    fn phase(&self) -> MutexGuard<'_, Phase> {
        // Every phase is a valid state, so a panic elsewhere does no harm.
        self.phase.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Timer of a wait, which exists only while there is something to wait for.
#[derive(Default)]
struct Timer(Option<Pin<Box<Sleep>>>);

impl Timer {
    /// Begins to wait until `deadline`, unless there is a wait already.
    fn begin(&mut self, deadline: impl FnOnce() -> Instant) {
        self.0
            .get_or_insert_with(|| Box::pin(sleep_until(deadline())));
    }

    fn stop(&mut self) {
        self.0 = None;
    }

    /// Fails once the deadline of the wait has passed; pending before that, and without a wait.
    fn poll_expired<T>(&mut self, cx: &mut Context<'_>, what: &str) -> Poll<io::Result<T>> {
        match &mut self.0 {
            Some(sleep) => sleep
                .as_mut()
                .poll(cx)
                .map(|()| Err(io::Error::new(io::ErrorKind::TimedOut, what))),
            None => Poll::Pending,
        }
    }
}

/// Stream that records in [`Activity`] when bytes are received and when all were sent, and that
/// fails when its client misses a deadline.
pub(super) struct WatchedStream<S> {
    stream: S,
    activity: Arc<Activity>,
    head: Timer,
    write: Timer,
}

impl<S> WatchedStream<S> {
    /// Watches a stream that was accepted.
    pub(super) fn new(stream: S, activity: Arc<Activity>) -> WatchedStream<S> {
        WatchedStream {
            stream,
            activity,
            head: Timer::default(),
            write: Timer::default(),
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for WatchedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        if let Poll::Ready(read) = Pin::new(&mut self.stream).poll_read(cx, buf) {
            // The next wait may be for the head of another request.
            self.head.stop();
            // A read of no bytes is the end of the stream, not the beginning of a request.
            if buf.filled().len() > before {
                self.activity.received();
            }
            return Poll::Ready(read);
        }
        match self.activity.head_deadline() {
            Some(deadline) => self.head.begin(|| deadline),
            None => self.head.stop(),
        }
        self.head
            .poll_expired(cx, "the head of a request did not arrive in time")
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for WatchedStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        if let Poll::Ready(written) = Pin::new(&mut self.stream).poll_write(cx, buf) {
            self.write.stop();
            return Poll::Ready(written);
        }
        self.write.begin(|| Instant::now() + WRITE_TIMEOUT);
        self.write.poll_expired(cx, "the client takes no answer")
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // hyper flushes the stream once its own buffer is empty.
        ready!(Pin::new(&mut self.stream).poll_flush(cx))?;
        // hyper flushes while reading, too; `sent_all` counts only after an answer.
        self.activity.sent_all();
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
