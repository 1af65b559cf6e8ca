//! Hand-over of a device, whose session rests, to another daemon or back to this loop.
//!
//! ```text
//!   begin: nothing more is taken, polls end --> requests in flight answered, others withdrawn
//!       --> hand_over: out of the loop; the record has the requests that were not answered
//! ```

use std::os::fd::OwnedFd;

use super::{Connection, FAILED, KICK, Opening};
use crate::frontend::Volume;
use crate::frontend::interface::Port;
use crate::frontend::vhost_user::mailbox::{LoopEnd, Resting};
use crate::frontend::vhost_user::session_state::SessionState;
use crate::ownership::Ownership;

/// Device of a session that rests, out of its loop. Dropping it ends the session.
#[derive(Debug)]
pub struct Handed {
    mailbox: LoopEnd,
    volume: Volume,
    resting: Option<Box<Resting>>,
}

impl Handed {
    pub(super) fn new(mailbox: LoopEnd, volume: Volume, resting: Option<Box<Resting>>) -> Handed {
        Handed {
            mailbox,
            volume,
            resting,
        }
    }

    /// Returns the ownership of the lock on the record of requests in flight.
    pub(crate) fn lock(&self) -> Option<&Ownership> {
        self.resting.as_ref().map(|resting| &resting.lock)
    }

    /// Returns the state for another daemon, once.
    pub(crate) fn take_state(&mut self) -> Option<SessionState<OwnedFd>> {
        self.resting.as_mut()?.state.take()
    }

    /// Returns the device on its way to a loop of this daemon, where its session starts the queues
    /// again.
    pub(crate) fn reopen(self) -> Opening {
        self.mailbox.restart();
        Opening {
            mailbox: self.mailbox,
            volume: self.volume,
        }
    }
}

impl Connection {
    /// Takes nothing more from the queues, if the session rests; returns false if it does not.
    pub(crate) fn begin_hand_over(&mut self, port: &mut Port<'_>) -> bool {
        // A session that rests waits for no change.
        self.handed = self.mailbox.claim();
        if self.handed.is_some() {
            self.end_polls(port);
        }
        self.handed.is_some()
    }

    /// Ends what the kernel waits for: the read of the bell, and the polls of kicks.
    pub(super) fn end_polls(&mut self, port: &mut Port<'_>) {
        self.mailbox.ring();
        for (index, queue) in self.queues.iter().enumerate() {
            if queue.as_ref().is_some_and(|queue| queue.polled) {
                let (poll, failed) = (port.token(KICK + index as u8), port.token(FAILED));
                port.ring.cancel(poll, failed);
            }
        }
    }

    /// Takes the device, which is at rest, out of the loop. `withdrawn` are the slots of requests
    /// that the engine has given back; the record of requests in flight has them.
    pub(crate) fn hand_over(
        mut self,
        port: &mut Port<'_>,
        withdrawn: impl Iterator<Item = u32>,
    ) -> Handed {
        assert!(self.handed.is_some(), "a session that works is handed over");
        if self.unpublished != 0 {
            self.publish(port);
        }
        port.requests.end(withdrawn, None);
        self.take_apart(port)
    }
}
