//! Path from the engine to the connections: finished requests are answered and their memory is
//! returned.

use tidegate_core::request::{Done, IoError};
use tidegate_core::time::Nanos;

use super::connection::{Connection, State};
use super::{Frontends, Hall};
use crate::frontend::Failure;
use crate::frontend::door::{Answer, Completed, ConnectionRef, Port};

impl Frontends {
    /// Takes a request that the engine has finished, and answers it.
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

    /// Gives a finished request to its connection, or frees it if the connection is gone.
    pub(super) fn answer(&mut self, hall: &mut Hall<'_>, index: u32) {
        let slot = hall.tools.requests.get(index);
        let who = slot.owner;
        if slot.answer != Answer::Ok || !slot.kind.answers_data() {
            // No payload is sent, so its memory can serve others before the reply has gone out.
            self.release(hall, index);
        }
        let Some(connection) = self.connections.resolve(who) else {
            return self.forget(hall, index);
        };
        if connection.state == State::Gone {
            self.forget(hall, index);
            // The connection may have waited for this request before it could be removed.
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

    /// Calls a connection's transport, then frees the slots whose replies ended by that.
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

    /// Frees the slots whose replies were sent or dropped.
    pub(super) fn free_ended(&mut self, hall: &mut Hall<'_>) {
        let mut ended = hall.tools.requests.take_ended();
        for (slot, sent) in ended.drain(..) {
            self.free_answered(hall, slot, sent);
        }
        hall.tools.requests.put_ended(ended);
    }

    /// Frees a slot whose reply has ended. `sent` is the time at which the reply was sent, for the
    /// histogram of reply times; `None` if it was dropped.
    fn free_answered(&mut self, hall: &mut Hall<'_>, index: u32, sent: Option<Nanos>) {
        if let Some(sent) = sent {
            let slot = hall.tools.requests.get(index);
            let took = sent.since(slot.since);
            hall.vms[slot.vm as usize].reply_time[slot.kind.lane() as usize].record(took);
        }
        self.forget(hall, index);
    }

    /// Frees a slot and returns its memory.
    fn forget(&mut self, hall: &mut Hall<'_>, index: u32) {
        self.release(hall, index);
        hall.tools.requests.remove(index);
    }

    /// Returns the memory of a slot, and its claim on an engine slot if the request never reached
    /// the engine.
    fn release(&mut self, hall: &mut Hall<'_>, index: u32) {
        let released = hall.tools.requests.release(index);
        let (vm, now) = (hall.vms[released.vm].id, hall.tools.now);
        match (released.claimed, released.bytes) {
            // The engine took the request's claim over only if `claimed` is false; it then frees
            // the request slot itself and waits for the payload memory.
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
            // Cleared first, so that a touch during the exchange asks for another round.
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

    /// Sends and receives for one connection. Returns true if it stays in the list for the next
    /// turn.
    fn exchange_one(&mut self, hall: &mut Hall<'_>, index: u32) -> bool {
        let Some(connection) = self.connections.get(index) else {
            return false;
        };
        if connection.state != State::Gone {
            // With no other request of the connection under way, no later reply could be sent
            // together with these, so that waiting for one would only delay them.
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
            // The reply comes with the next turn, and the receive can go to the kernel with it.
            return true;
        }
        if self.is_hungry(index) {
            self.with_transport(hall, index, |connection, port| {
                connection.transport.receive(port)
            });
        }
        false
    }

    /// Returns true if everything that the connection brought was taken and it may bring more.
    fn is_hungry(&mut self, index: u32) -> bool {
        let is_ready = self.turns.is_ready(index);
        let connection = self.connections.get(index).expect("it is there");
        connection.state == State::Open
            && connection.stall.is_none()
            && connection.held.is_none()
            && !is_ready
    }
}
