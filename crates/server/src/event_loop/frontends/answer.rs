//! From the engine to the frontends: what has ended is answered, and its memory given back.

use tidegate_core::request::{Done, IoError};
use tidegate_core::time::Nanos;

use super::connection::{Connection, State};
use super::{Frontends, Hall};
use crate::frontend::Failure;
use crate::frontend::door::{Answer, Completed, ConnectionRef, Port};

impl Frontends {
    /// A request left the engine.
    pub(in crate::event_loop) fn done(&mut self, hall: &mut Hall<'_>, done: &Done) {
        let index = hall.tools.requests.by_tag(done.tag);
        let slot = hall.tools.requests.get_mut(index);
        if let Err(error) = done.outcome {
            slot.answer = match error {
                IoError::Io => Answer::Error(Failure::Io, "the backing store failed"),
                IoError::NoSpace => Answer::Error(Failure::NoSpace, "the backing store is full"),
                IoError::ReadOnly => Answer::Error(Failure::NotPermitted, "the disk is read-only"),
                IoError::Unsupported => Answer::Error(Failure::Invalid, "not supported"),
                IoError::Cancelled => Answer::Error(Failure::ShuttingDown, "shutting down"),
                IoError::BeyondEnd => slot.kind.beyond_end(),
            };
        }
        let who = slot.owner;
        if let Some(connection) = self.connections.resolve(who) {
            connection.outstanding -= 1;
        }
        self.answer(hall, index);
    }

    /// Gives a request's answer to its connection, or forgets it where nobody waits for it.
    pub(super) fn answer(&mut self, hall: &mut Hall<'_>, index: u32) {
        let slot = hall.tools.requests.get(index);
        let who = slot.owner;
        if slot.answer != Answer::Ok || !slot.kind.answers_data() {
            // Nothing of its payload is sent.
            self.release(hall, index);
        }
        let Some(connection) = self.connections.resolve(who) else {
            return self.forget(hall, index);
        };
        if connection.state == State::Gone {
            self.forget(hall, index);
            // It may have waited for this request.
            return self.turns.touch(who.index);
        }
        let completed = self.with_transport(hall, who.index, |connection, port| {
            connection.transport.complete(port, index)
        });
        if completed == Completed::Now {
            self.free_answered(hall, index, Some(hall.tools.now));
        }
        self.turns.touch(who.index);
    }

    /// Calls a connection's transport, and frees the slots that it is done with.
    #[inline]
    pub(super) fn with_transport<R>(
        &mut self,
        hall: &mut Hall<'_>,
        index: u32,
        call: impl FnOnce(&mut Connection, &mut Port<'_>) -> R,
    ) -> R {
        let connection = self.connections.get(index).expect("it is there");
        let mut port = Port {
            ring: hall.tools.ring,
            requests: hall.tools.requests,
            plumbing: hall.tools.plumbing,
            now: hall.tools.now,
            who: ConnectionRef {
                index,
                generation: connection.generation,
            },
            stalled: connection.waits_for_intake(),
        };
        let result = call(connection, &mut port);
        if hall.tools.requests.has_ended() {
            self.free_ended(hall);
        }
        result
    }

    /// Frees the slots whose replies have ended.
    pub(super) fn free_ended(&mut self, hall: &mut Hall<'_>) {
        let mut ended = hall.tools.requests.take_ended();
        for (slot, sent) in ended.drain(..) {
            self.free_answered(hall, slot, sent);
        }
        hall.tools.requests.put_ended(ended);
    }

    /// Frees a slot whose reply has ended, and counts the reply if it was `sent`, at this time.
    fn free_answered(&mut self, hall: &mut Hall<'_>, index: u32, sent: Option<Nanos>) {
        if let Some(sent) = sent {
            let slot = hall.tools.requests.get(index);
            let took = sent.since(slot.since);
            hall.vms[slot.vm as usize].reply_time[slot.kind.lane() as usize].record(took);
        }
        self.forget(hall, index);
    }

    /// Gives a slot and its memory back.
    fn forget(&mut self, hall: &mut Hall<'_>, index: u32) {
        self.release(hall, index);
        hall.tools.requests.remove(index);
    }

    /// Gives back the memory of a slot, and its claim on an engine slot if that was not used.
    fn release(&mut self, hall: &mut Hall<'_>, index: u32) {
        let released = hall.tools.requests.release(index);
        let (vm, now) = (hall.vms[released.vm].id, hall.tools.now);
        match (released.claimed, released.bytes) {
            (true, None) if released.is_guests => {
                hall.tools.engine.admission_mut().return_slot(now, vm)
            }
            (true, bytes) => {
                hall.tools.engine.admission_mut().return_claim(
                    now,
                    vm,
                    released.op,
                    bytes.unwrap_or(0),
                );
            }
            (false, Some(bytes)) => {
                hall.tools
                    .engine
                    .admission_mut()
                    .return_payload(now, vm, released.op, bytes)
            }
            (false, None) => {}
        }
    }

    /// Sends and receives for all connections that have something to send or nothing to poll.
    pub(in crate::event_loop) fn exchange(&mut self, hall: &mut Hall<'_>) {
        let mut touched = self.turns.take_touched();
        let mut at = 0;
        while at < touched.len() {
            let index = touched[at];
            self.turns.look(index);
            if self.exchange_one(hall, index) {
                self.turns.keep(index);
                at += 1;
            } else {
                touched.swap_remove(at);
            }
        }
        self.turns.put_touched(touched);
    }

    /// Sends and receives for one connection. Returns true if it is to be looked at again in the
    /// next turn.
    fn exchange_one(&mut self, hall: &mut Hall<'_>, index: u32) -> bool {
        let Some(connection) = self.connections.get(index) else {
            return false;
        };
        if connection.state != State::Gone {
            let alone = connection.outstanding == 0 && self.is_hungry(index);
            let linked = self.with_transport(hall, index, |connection, port| {
                let linked = connection.transport.flush(port, alone);
                linked.then_some(port.who)
            });
            if let Some(who) = linked {
                self.turns.await_submission(who);
            }
        }
        let connection = self.connections.get(index).expect("sending ends nobody");
        if connection.state != State::Open || connection.transport.is_receiving() {
            self.settle(hall, index);
            return false;
        }
        if hall.device.answers_soon(connection.disk) && connection.outstanding > 0 {
            // Its reply comes with the next turn, and the receive can go with that.
            return true;
        }
        if self.is_hungry(index) {
            self.with_transport(hall, index, |connection, port| {
                connection.transport.receive(port)
            });
        }
        false
    }

    /// Returns true if all that the connection brought was taken, and it may bring more.
    fn is_hungry(&mut self, index: u32) -> bool {
        let is_ready = self.turns.is_ready(index);
        let connection = self.connections.get(index).expect("it is there");
        connection.state == State::Open
            && connection.stall.is_none()
            && connection.held.is_none()
            && !is_ready
    }
}
