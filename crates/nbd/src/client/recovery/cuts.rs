//! Ends of connections and of exports: what becomes of requests without an answer.

use super::{Export, Failure, OF_FLUSH, OF_REPLAY, Phase, Replay};
use crate::error::NbdError;

impl Export {
    /// Takes the reply of a server that shuts down: the request has no answer, and is sent again on
    /// the next connection.
    pub(super) fn refused_by_leaving(&mut self, low: u32) {
        self.is_leaving = true;
        match low {
            OF_FLUSH => self.flush_unanswered(),
            // The next replay begins anew.
            _ if low & OF_REPLAY != 0 => {
                self.replay.parts[(low & !OF_REPLAY) as usize] = None;
            }
            id => self.entry_mut(id).part = None,
        }
    }

    /// Has the next flush answer what the one on the wire would have answered.
    fn flush_unanswered(&mut self) {
        if self.flush.take().is_some() {
            self.wants_flush |= self.synced.is_empty() && !self.log.is_empty();
            self.next_synced.append(&mut self.synced);
        }
    }

    /// Forgets the connections: the kernel works on no memory of them any more. Requests without an
    /// answer wait for the next ones; those of an export that has failed end.
    pub fn cut(&mut self) {
        self.phase = Phase::Away;
        self.connections.clear();
        self.is_leaving = false;
        self.ready.clear();
        self.replay = Replay::default();
        for entry in self.entries.iter_mut().flatten() {
            // The server may have forgotten also the parts that it has answered.
            (entry.part, entry.done) = (None, 0);
        }
        self.flush_unanswered();
        if self.failure.is_some() {
            self.end_all();
        }
    }

    /// Ends all requests with an error, now and later.
    ///
    /// # Panics
    /// If there is a connection.
    pub fn give_up(&mut self) {
        assert_eq!(self.phase, Phase::Away, "the kernel may work on memory");
        self.failure.get_or_insert(Failure::GivenUp);
        self.end_all();
    }

    /// Ends all requests with an error, because memory of one is gone; later ones are taken, and
    /// acknowledged changes stay in the log.
    ///
    /// # Panics
    /// If there is a connection.
    pub fn end_requests(&mut self) {
        assert_eq!(self.phase, Phase::Away, "the kernel may work on memory");
        self.end_all();
    }

    fn end_all(&mut self) {
        let reserved = self.changes.active().map(|id| self.logged_bytes(id));
        let reserved: Vec<u32> = reserved.collect();
        for bytes in reserved {
            self.log.release(bytes);
        }
        for id in 0..self.entries.len() as u32 {
            if self.entries[id as usize].is_some() {
                self.end(id, Err(NbdError::Eio));
            }
        }
        self.changes.clear();
        self.awaits_room = false;
        self.next_synced.clear();
        self.wants_flush = false;
    }

    /// Refuses changes and flushes from now on, and ends those that are not on the wire.
    pub(super) fn fail(&mut self, failure: Failure) {
        if self.failure.is_some() {
            return;
        }
        self.failure = Some(failure);
        self.wants_flush = false;
        self.awaits_room = false;
        for id in self.changes.take_waiting() {
            self.end(id, Err(NbdError::Eio));
        }
        while let Some(id) = self.synced.pop().or_else(|| self.next_synced.pop()) {
            self.end(id, Err(NbdError::Eio));
        }
    }
}
