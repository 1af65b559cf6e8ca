//! Bodies of requests: read by a handler, then discarded, within a deadline.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::BoxError;
use axum::body::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use tokio::time::{Instant, Sleep, sleep_until, timeout};

/// Deadline for a client to send the whole body of a request that a handler reads.
pub(super) const BODY_TIMEOUT: Duration = Duration::from_secs(10);
/// Most bytes of a request's body that are read and discarded.
const DISCARDED_MAX: u64 = 16 << 20;
/// Deadline for discarding a request's body.
const DISCARD_TIMEOUT: Duration = Duration::from_secs(5);

/// Request body that a handler and the connection share: the handler reads any part of it, the
/// connection discards the rest.
#[derive(Clone)]
pub(super) struct RequestBody(Arc<Mutex<Unread>>);

struct Unread {
    body: Incoming,
    deadline: Instant,
    /// Timer of the deadline, once a part of the body was waited for.
    timer: Option<Pin<Box<Sleep>>>,
    asked_for: bool,
    ended: bool,
    /// True if a handler read the body and its deadline passed.
    late: bool,
}

impl RequestBody {
    /// Makes the body of a request whose head has just been read.
    pub(super) fn new(body: Incoming) -> RequestBody {
        RequestBody(Arc::new(Mutex::new(Unread {
            body,
            deadline: Instant::now() + BODY_TIMEOUT,
            timer: None,
            asked_for: false,
            ended: false,
            late: false,
        })))
    }

    /// Returns true if any part of the body was asked for.
    pub(super) fn was_asked_for(&self) -> bool {
        self.lock().asked_for
    }

    /// Returns true if the handler did not get the whole body before its deadline.
    pub(super) fn is_late(&self) -> bool {
        self.lock().late
    }

    /// Reads and discards what the handler has not read, up to [`DISCARDED_MAX`] bytes. After the
    /// deadline, the connection is closed once the answer is sent.
    pub(super) async fn discard(&self) {
        let discard = async {
            let mut left = DISCARDED_MAX;
            while left > 0 {
                let frame = std::future::poll_fn(|cx| self.lock().poll_frame(cx)).await;
                let Some(Ok(frame)) = frame else { return };
                let len = frame.data_ref().map_or(0, |data| data.len() as u64);
                left = left.saturating_sub(len);
            }
        };
        let _ = timeout(DISCARD_TIMEOUT, discard).await;
    }

    fn lock(&self) -> MutexGuard<'_, Unread> {
        // `poll_frame` cannot leave the body half read: a panic there is one of hyper's own state.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Unread {
    fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        self.asked_for = true;
        if self.ended {
            return Poll::Ready(None);
        }
        let frame = Pin::new(&mut self.body).poll_frame(cx);
        // After an error or the end hyper must not be polled again.
        self.ended = matches!(frame, Poll::Ready(None | Some(Err(_))));
        frame
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let mut unread = self.lock();
        if let Poll::Ready(frame) = unread.poll_frame(cx) {
            return Poll::Ready(frame.map(|frame| frame.map_err(BoxError::from)));
        }
        let deadline = unread.deadline;
        let timer = (unread.timer).get_or_insert_with(|| Box::pin(sleep_until(deadline)));
        timer.as_mut().poll(cx).map(|()| {
            (unread.ended, unread.late) = (true, true);
            Some(Err("the body did not arrive in time".into()))
        })
    }

    fn is_end_stream(&self) -> bool {
        let unread = self.lock();
        unread.ended || unread.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.lock().body.size_hint()
    }
}
