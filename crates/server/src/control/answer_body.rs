//! Bodies of answers, which tell when all of an answer was taken to be sent.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes, HttpBody};
use hyper::body::{Frame, SizeHint};

use super::watched_stream::Activity;

/// Body of an answer on a connection.
///
/// Pieces of a body may come one by one, such as those of a recording. Between two of them all that
/// there is has been sent, but the connection is not idle: it is so only after hyper has dropped
/// the body, at its end.
pub(super) struct AnswerBody {
    body: Body,
    activity: Arc<Activity>,
}

impl AnswerBody {
    /// Makes the body of an answer to the request that a connection serves.
    pub(super) fn new(body: Body, activity: Arc<Activity>) -> AnswerBody {
        AnswerBody { body, activity }
    }
}

impl HttpBody for AnswerBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for AnswerBody {
    fn drop(&mut self) {
        self.activity.answering();
    }
}
