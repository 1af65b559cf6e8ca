//! Export of a server that may restart: which requests to send so that no acknowledged change is
//! lost.
//!
//! A server may keep acknowledged changes in a volatile cache until it answers a flush. An
//! [`Export`] logs them until then. After a cut it sends the newest content of each logged byte
//! again, then the changes without an answer, and only then serves reads and flushes:
//!
//! ```text
//!   Away --connected--> Replaying --> Resending --> Serving
//!    ^                      |             |            |
//!    +--------- cut --------+-------------+------------+
//! ```
//!
//! There may be several connections to a server whose cache they share (`NBD_FLAG_CAN_MULTI_CONN`).
//! They begin and end together: nothing is sent on one before all of them are there, and a cut of
//! one is a cut of all. So all answers come from one run of the server. Were a single connection
//! made again, answers of the run before could still arrive on the others, for changes that its
//! successor does not have.
//!
//! Rules that make this sound:
//!
//! - A change waits for every change in flight that it overlaps, so that the order of
//!   acknowledgement is the server's order, and the changes without an answer do not overlap.
//! - A flush makes durable what was acknowledged before it was *sent*; only that leaves the log.
//! - One flush at a time is on the wire: a server may report a failed write-back to one of two
//!   flushes alone. Those that come meanwhile are answered by the next one.
//! - A change with FUA is sent as a plain one, followed by the next flush, for the same reason.
//! - The error of a flush, or of a logged change that is sent again, fails the export for good:
//!   what was acknowledged may be gone.
//! - All of the log is sent again before the changes without an answer, so that one of these may
//!   fail alone. Its server may have done it already, and goes back to the old content until it
//!   is sent again; nothing is read meanwhile.
//!
//! The log is sent again in bounded steps ([`Export::is_gathering`]), because it can be long.
//!
//! The caller moves bytes: it sends what [`Export::poll_send`] returns, copies the data of
//! acknowledged writes into its ring ([`Answer::Log`]), and tells of replies and cuts. Nothing is
//! allocated for a request once as many were under way before.

mod cuts;
mod log;
mod order;
mod replay;
#[cfg(test)]
mod tests;
mod types;

use std::collections::VecDeque;
use std::ops::Range;

use crate::error::NbdError;
use crate::request::{Command, Request};
use log::Log;
use order::Order;
use replay::Replay;

pub use types::{Answer, Ask, Change, Cut, Data, Failure, Operation, Outgoing, Terms};

/// Longest write of zeroes as data, in bytes, for a server without `NBD_CMD_WRITE_ZEROES`.
pub const ZEROES_MAX: u32 = 64 << 10;
/// Low half of the cookie of a flush. Those of requests are indices, of the replay have
/// [`OF_REPLAY`].
const OF_FLUSH: u32 = u32::MAX;
const OF_REPLAY: u32 = 1 << 31;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// No connection.
    Away,
    /// Logged changes are sent again.
    Replaying,
    /// Changes without an answer are sent again.
    Resending,
    /// Requests are served.
    Serving,
}

/// Request under way.
#[derive(Clone, Copy, Debug)]
struct Entry {
    ask: Ask,
    /// Bytes of the request whose parts were answered.
    done: u32,
    /// Part on the wire.
    part: Option<Part>,
}

/// Request on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Part {
    cookie: u64,
    /// Index of the connection, and number of requests before it there.
    on: usize,
    place: u64,
    len: u32,
    /// True from the reply's head on, while data are received.
    answered: bool,
}

/// Flush on the wire.
#[derive(Clone, Copy, Debug)]
struct Flush {
    part: Part,
    /// End of the log when it was sent.
    end: u64,
}

/// Requests on a connection.
#[derive(Clone, Copy, Debug, Default)]
struct Connection {
    /// Requests that were returned by `poll_send`, and that were sent whole.
    given: u64,
    sent: u64,
    /// Requests whose replies are not complete.
    awaited: u64,
}

/// Requests to an export of a server.
#[derive(Debug)]
pub struct Export {
    terms: Terms,
    phase: Phase,
    failure: Option<Failure>,
    log: Log,
    /// Requests under way, and free places.
    entries: Vec<Option<Entry>>,
    free: Vec<u32>,
    /// Requests whose next part is to be sent.
    ready: VecDeque<u32>,
    changes: Order,
    /// Requests that the next flush answers, and those that the flush on the wire answers.
    next_synced: Vec<u32>,
    synced: Vec<u32>,
    flush: Option<Flush>,
    /// A flush is to be sent for the log's sake.
    wants_flush: bool,
    /// The first waiting change that overlaps no other one waits for room in the log.
    awaits_room: bool,
    replay: Replay,
    connections: Vec<Connection>,
    /// The server shuts down, or a connection has broken: nothing more is sent.
    is_leaving: bool,
    /// High half of the next cookie.
    next_cookie: u32,
    ended: VecDeque<(u32, Result<(), NbdError>)>,
}

impl Export {
    /// Creates an export without a connection, whose log has room for `unflushed` bytes of written
    /// data; no write may be longer.
    pub fn new(unflushed: u64) -> Export {
        Export {
            terms: Terms {
                max_payload: 1,
                can_zero: false,
                can_trim: false,
                can_flush: false,
            },
            phase: Phase::Away,
            failure: None,
            log: Log::new(unflushed),
            entries: Vec::new(),
            free: Vec::new(),
            ready: VecDeque::new(),
            changes: Order::default(),
            next_synced: Vec::new(),
            synced: Vec::new(),
            flush: None,
            wants_flush: false,
            awaits_room: false,
            replay: Replay::default(),
            connections: Vec::new(),
            is_leaving: false,
            next_cookie: 0,
            ended: VecDeque::new(),
        }
    }

    /// Reason why changes are refused; `None` while they are not.
    pub fn failure(&self) -> Option<Failure> {
        self.failure
    }

    /// Returns the number of acknowledged changes that may not be durable.
    pub fn unflushed(&self) -> usize {
        self.log.len()
    }

    /// Returns true if no request is under way and none has ended that was not polled.
    pub fn is_idle(&self) -> bool {
        self.free.len() == self.entries.len() && self.ended.is_empty()
    }

    /// Returns true if something is on the wire, or will be without a further call.
    pub fn is_busy(&self) -> bool {
        !self.is_idle() || self.wants_flush || self.flush.is_some() || !self.replay.is_over()
    }

    /// Returns true if there is a connection.
    pub fn is_connected(&self) -> bool {
        self.phase != Phase::Away
    }

    /// Asks for a flush of what was acknowledged, unless that is durable or a flush is on the wire.
    pub fn flush_log(&mut self) {
        let is_under_way = self.flush.is_some();
        self.wants_flush |= !self.log.is_empty() && !is_under_way && self.failure.is_none();
    }

    /// Submits a request, which ends by [`Export::poll_ended`].
    ///
    /// # Panics
    /// If a write is longer than the log.
    pub fn submit(&mut self, ask: Ask) {
        // Reads of a failed export go on as long as the connection that has seen its changes.
        let refused = match ask.operation {
            Operation::Read => self.failure.is_some() && self.phase == Phase::Away,
            _ => self.failure.is_some(),
        };
        if refused {
            self.ended.push_back((ask.tag, Err(NbdError::Eio)));
            return;
        }
        let entry = Entry {
            ask,
            done: 0,
            part: None,
        };
        let id = match self.free.pop() {
            Some(id) => {
                self.entries[id as usize] = Some(entry);
                id
            }
            None => {
                self.entries.push(Some(entry));
                self.entries.len() as u32 - 1
            }
        };
        match ask.operation {
            Operation::Flush => self.next_synced.push(id),
            Operation::Read if self.phase == Phase::Serving => self.ready.push_back(id),
            // Queued when serving begins.
            Operation::Read => {}
            Operation::Change(_) => {
                let unblocked = self.changes.submit(id, range_of(&ask));
                if let Some(at) = unblocked
                    && self.phase == Phase::Serving
                    && !self.awaits_room
                {
                    self.admit_from(at);
                }
            }
        }
    }

    /// Makes waiting changes from this index on active, as far as order and room allow.
    fn admit_from(&mut self, first: usize) {
        self.awaits_room = false;
        let mut from = first;
        while let Some((at, id)) = self.changes.next_unblocked(from) {
            let bytes = self.logged_bytes(id);
            if !self.log.reserve(bytes) {
                // Later ones wait as well, so that no long change waits for ever. Without a record
                // there are changes in flight, whose ends bring some.
                assert!(
                    !self.log.is_empty() || self.changes.active().len() > 0,
                    "a write of {bytes} bytes is longer than the log"
                );
                self.awaits_room = true;
                self.wants_flush |= !self.log.is_empty();
                return;
            }
            self.changes.activate(at);
            self.ready.push_back(id);
            from = at;
        }
    }

    fn entry(&self, id: u32) -> &Entry {
        self.entries[id as usize].as_ref().expect("it is under way")
    }

    fn entry_mut(&mut self, id: u32) -> &mut Entry {
        self.entries[id as usize].as_mut().expect("it is under way")
    }

    fn logged_bytes(&self, id: u32) -> u32 {
        let Ask { operation, len, .. } = self.entry(id).ask;
        match operation {
            Operation::Change(change) => change.logged_bytes(len),
            _ => 0,
        }
    }

    /// Returns a request that has ended: its tag and its result.
    pub fn poll_ended(&mut self) -> Option<(u32, Result<(), NbdError>)> {
        self.ended.pop_front()
    }

    fn end(&mut self, id: u32, result: Result<(), NbdError>) {
        let entry = self.entries[id as usize].take().expect("it is under way");
        self.free.push(id);
        self.ended.push_back((entry.ask.tag, result));
    }

    /// Returns true if [`Export::poll_send`] has more to do than it did: it is to be called again
    /// without another reason, after other work.
    pub fn is_gathering(&self) -> bool {
        self.phase == Phase::Replaying && !self.is_leaving && self.replay.is_gathering()
    }

    /// Returns the next request to send on a connection, in order; `None` if there is none until
    /// another call.
    pub fn poll_send(&mut self, on: usize) -> Option<Outgoing> {
        if self.is_leaving {
            return None;
        }
        loop {
            let phase = self.phase;
            let outgoing = match phase {
                Phase::Away => None,
                Phase::Replaying => self.send_replay(on),
                Phase::Resending => self.send_ready(on),
                // The flush comes first, so that no load delays it. Once more, because changes
                // that end without a request may want one.
                Phase::Serving => (self.send_flush(on))
                    .or_else(|| self.send_ready(on))
                    .or_else(|| self.send_flush(on)),
            };
            if outgoing.is_some() || self.phase == phase {
                return outgoing;
            }
        }
    }

    fn part(&mut self, on: usize, low: u32, len: u32) -> Part {
        let cookie = u64::from(self.next_cookie) << 32 | u64::from(low);
        self.next_cookie = self.next_cookie.wrapping_add(1);
        let connection = &mut self.connections[on];
        let place = connection.given;
        connection.given += 1;
        connection.awaited += 1;
        Part {
            cookie,
            on,
            place,
            len,
            answered: false,
        }
    }

    fn send_flush(&mut self, on: usize) -> Option<Outgoing> {
        let wanted = self.wants_flush || !self.next_synced.is_empty();
        if self.flush.is_some() || !wanted {
            return None;
        }
        debug_assert!(self.synced.is_empty(), "the flush before has not ended");
        if !self.terms.can_flush {
            self.end_flushes_unsent();
            return None;
        }
        let part = self.part(on, OF_FLUSH, 0);
        let end = self.log.end();
        self.flush = Some(Flush { part, end });
        self.wants_flush = false;
        std::mem::swap(&mut self.synced, &mut self.next_synced);
        Some(self.send(part, Command::Flush, 0, Data::None))
    }

    /// Ends flushes for a server that has none. Without a change there is nothing to make durable.
    fn end_flushes_unsent(&mut self) {
        if !self.log.is_empty() {
            return self.fail(Failure::Flush(NbdError::Enotsup));
        }
        while let Some(id) = self.next_synced.pop() {
            self.end(id, Ok(()));
        }
    }

    fn send_ready(&mut self, on: usize) -> Option<Outgoing> {
        loop {
            let id = self.ready.pop_front()?;
            let Entry { ask, done, .. } = *self.entry(id);
            let rest = u64::from(ask.len - done);
            let (command, len, data) = match ask.operation {
                Operation::Flush => unreachable!("flushes are sent for all that wait"),
                Operation::Read => {
                    let len = rest.min(self.terms.max_payload.into()) as u32;
                    (Command::Read { df: false }, len, Data::None)
                }
                Operation::Change(Change::Trim) if !self.terms.can_trim => {
                    self.change_done(id);
                    continue;
                }
                Operation::Change(change) => {
                    let from = Data::Ask {
                        tag: ask.tag,
                        from: done,
                    };
                    self.terms.part(change, rest, from)
                }
            };
            let part = self.part(on, id, len);
            self.entry_mut(id).part = Some(part);
            return Some(self.send(part, command, ask.offset + u64::from(done), data));
        }
    }

    fn send_replay(&mut self, on: usize) -> Option<Outgoing> {
        let slot = self.replay.free_slot()?;
        let next = self.replay.take_next(&self.terms, &self.log);
        let Some((command, offset, len, data)) = next else {
            // All that was left may be trims that this server does not have.
            self.begin_resending_if_replayed();
            return None;
        };
        let part = self.part(on, OF_REPLAY | slot as u32, len);
        self.replay.parts[slot] = Some(part);
        Some(self.send(part, command, offset, data))
    }

    fn send(&self, part: Part, command: Command, offset: u64, data: Data) -> Outgoing {
        let request = Request {
            cookie: part.cookie,
            command,
            fua: false,
            offset,
            len: part.len,
        };
        Outgoing { request, data }
    }

    /// Tells that the oldest `count` requests that were returned by [`Export::poll_send`] for a
    /// connection and not counted yet were sent whole.
    ///
    /// # Panics
    /// If fewer requests were returned.
    pub fn sent(&mut self, on: usize, count: u64) {
        let connection = &mut self.connections[on];
        connection.sent += count;
        assert!(
            connection.sent <= connection.given,
            "more was sent than was to be"
        );
    }

    /// Sends nothing more on any connection, because one of them has broken: answers on the others
    /// are taken until [`Export::cut`]. A server that works would otherwise carry out what it has
    /// got there beside what is sent again.
    pub fn stop(&mut self) {
        self.is_leaving = true;
    }

    /// Returns true if nothing more is sent, and the server has answered all that it was: the
    /// connections must be cut. Before, a write that it refuses to begin and one that it carries
    /// out late could change places.
    pub fn is_drained(&self) -> bool {
        self.is_leaving && self.connections.iter().all(|it| it.awaited == 0)
    }

    /// Returns the number of requests on a connection whose replies, or their data, are to come.
    pub fn awaited(&self, on: usize) -> u64 {
        self.connections[on].awaited
    }

    /// Takes the head of a reply on a connection.
    ///
    /// # Errors
    /// The connections must be cut: after the kernel works on no memory of them any more the caller
    /// calls [`Export::cut`].
    pub fn reply(
        &mut self,
        on: usize,
        cookie: u64,
        error: Option<NbdError>,
    ) -> Result<Answer, Cut> {
        let low = cookie as u32;
        let part = match low {
            OF_FLUSH => self.flush.as_ref().map(|flush| flush.part),
            _ if low & OF_REPLAY != 0 => {
                let slot = (low & !OF_REPLAY) as usize;
                self.replay.parts.get(slot).copied().flatten()
            }
            id => {
                let entry = self.entries.get(id as usize).and_then(Option::as_ref);
                entry.and_then(|entry| entry.part)
            }
        };
        let is_answered = |part: &Part| part.cookie == cookie && part.on == on && !part.answered;
        let part = part.filter(is_answered).ok_or(Cut::UnknownCookie)?;
        let connection = &mut self.connections[on];
        if part.place >= connection.sent {
            return Err(Cut::TooEarly);
        }
        connection.awaited -= 1;
        if error == Some(NbdError::Eshutdown) {
            self.refused_by_leaving(low);
            return Ok(Answer::Done);
        }
        match low {
            OF_FLUSH => self.flush_answered(error),
            _ if low & OF_REPLAY != 0 => self.replay_answered(low & !OF_REPLAY, error),
            id => self.request_answered(id, part, error),
        }
    }

    fn flush_answered(&mut self, error: Option<NbdError>) -> Result<Answer, Cut> {
        let flush = self.flush.take().expect("it was answered");
        if let Some(error) = error {
            self.fail(Failure::Flush(error));
            return Ok(Answer::Done);
        }
        self.log.drop_until(flush.end);
        while let Some(id) = self.synced.pop() {
            self.end(id, Ok(()));
        }
        self.admit_from(0);
        Ok(Answer::Done)
    }

    fn replay_answered(&mut self, slot: u32, error: Option<NbdError>) -> Result<Answer, Cut> {
        self.replay.parts[slot as usize] = None;
        if let Some(error) = error {
            self.fail(Failure::Replay(error));
            return Err(Cut::Failed);
        }
        self.begin_resending_if_replayed();
        Ok(Answer::Done)
    }

    fn request_answered(
        &mut self,
        id: u32,
        part: Part,
        error: Option<NbdError>,
    ) -> Result<Answer, Cut> {
        let Entry { ask, done, .. } = *self.entry(id);
        if ask.operation == Operation::Read {
            if let Some(error) = error {
                self.end(id, Err(error));
                return Ok(Answer::Done);
            }
            self.entry_mut(id).part = Some(Part {
                answered: true,
                ..part
            });
            self.connections[part.on].awaited += 1;
            return Ok(Answer::Data {
                tag: ask.tag,
                from: done,
                len: part.len,
            });
        }
        if let Some(error) = error {
            return Ok(self.change_refused(id, error));
        }
        let entry = self.entry_mut(id);
        entry.part = None;
        entry.done += part.len;
        if entry.done < entry.ask.len {
            self.ready.push_back(id);
            return Ok(Answer::Done);
        }
        Ok(self.change_done(id))
    }

    /// Takes the data of a read, which [`Answer::Data`] has announced.
    ///
    /// # Panics
    /// If no data were announced with this cookie.
    pub fn take_data(&mut self, cookie: u64) {
        let id = cookie as u32;
        let entry = self.entry_mut(id);
        let part = entry.part.take().expect("data were announced");
        assert!(part.answered && part.cookie == cookie, "other data");
        entry.done += part.len;
        let is_part = entry.done < entry.ask.len;
        self.connections[part.on].awaited -= 1;
        if is_part {
            self.ready.push_back(id);
        } else {
            self.end(id, Ok(()));
        }
    }

    /// Logs a change that was acknowledged, and ends it unless it waits for a flush.
    fn change_done(&mut self, id: u32) -> Answer {
        let ask = self.entry(id).ask;
        let Operation::Change(change) = ask.operation else {
            unreachable!("only changes are logged")
        };
        let unblocks = self.changes.finish(id);
        let at = self.log.push(ask.offset, ask.len, change);
        if self.failure.is_some() {
            // The range is as likely lost as others, so that only plain changes succeed.
            let result = if ask.fua { Err(NbdError::Eio) } else { Ok(()) };
            self.end(id, result);
        } else if ask.fua {
            self.next_synced.push(id);
        } else {
            self.end(id, Ok(()));
        }
        self.change_ended(unblocks);
        match change {
            Change::Write => Answer::Log { tag: ask.tag, at },
            _ => Answer::Done,
        }
    }

    fn change_refused(&mut self, id: u32, error: NbdError) -> Answer {
        let bytes = self.logged_bytes(id);
        self.log.release(bytes);
        self.changes.finish(id);
        self.end(id, Err(error));
        // There is room again, so that others may be admitted as well.
        self.change_ended(true);
        Answer::Done
    }

    /// Goes on after a change has ended; `may_admit`: others that wait may be admitted.
    fn change_ended(&mut self, may_admit: bool) {
        match self.phase {
            Phase::Resending if self.changes.active().len() == 0 => self.begin_serving(),
            Phase::Serving if may_admit => self.admit_from(0),
            // The change's record can be flushed, which brings the room.
            Phase::Serving if self.awaits_room => self.wants_flush = true,
            _ => {}
        }
    }

    /// Begins on `count` new connections, all of which were made before anything is sent. More than
    /// one need a server that shares its cache between them (`NBD_FLAG_CAN_MULTI_CONN`).
    ///
    /// # Panics
    /// If there is a connection, or there are to be none, or the export has failed.
    pub fn connected(&mut self, terms: Terms, count: usize) {
        assert_eq!(self.phase, Phase::Away, "connections begin together");
        assert!(self.failure.is_none(), "the export has failed");
        assert!(terms.max_payload > 0, "requests without bytes");
        assert!(count > 0, "no connection");
        self.terms = terms;
        self.connections.clear();
        self.connections.resize(count, Connection::default());
        self.replay = Replay::new(&self.log);
        self.phase = Phase::Replaying;
        self.begin_resending_if_replayed();
    }

    fn begin_resending_if_replayed(&mut self) {
        if self.phase != Phase::Replaying || !self.replay.is_over() {
            return;
        }
        // Its memory is large only after a replay, which is rare.
        self.replay = Replay::default();
        self.phase = Phase::Resending;
        self.ready.extend(self.changes.active());
        if self.ready.is_empty() {
            self.begin_serving();
        }
    }

    fn begin_serving(&mut self) {
        self.phase = Phase::Serving;
        let reads = (0u32..).zip(&self.entries).filter_map(|(id, entry)| {
            let is_read = entry.as_ref()?.ask.operation == Operation::Read;
            is_read.then_some(id)
        });
        self.ready.extend(reads);
        self.admit_from(0);
    }
}

/// Returns the bytes of a request.
fn range_of(ask: &Ask) -> Range<u64> {
    ask.offset..ask.offset + u64::from(ask.len)
}
