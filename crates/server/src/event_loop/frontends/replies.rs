//! Path from the engine to the connections: finished requests are answered and their memory is
//! returned.

use tidegate_core::request::{Done, IoError};
use tidegate_core::time::Nanos;

use super::connection::{Connection, State};
use super::{FrontendContext, Frontends};
use crate::frontend::Failure;
use crate::frontend::interface::{Answer, Completed, ConnectionRef, Kind, Port};

/// Returns the answer to a request that has failed in the engine.
fn failure(error: IoError, kind: Kind) -> Answer {
    match error {
        IoError::Io => Answer::Error(Failure::Io, "the backing store failed"),
        IoError::NoSpace => Answer::Error(Failure::NoSpace, "the backing store is full"),
        IoError::ReadOnly => Answer::Error(Failure::NotPermitted, "the disk is read-only"),
        IoError::Unsupported => Answer::Error(Failure::Invalid, "not supported"),
        IoError::Cancelled => Answer::Error(Failure::ShuttingDown, "shutting down"),
        IoError::BeyondEnd => kind.beyond_end(),
    }
}

impl Frontends {
    /// Takes a request that the engine has finished, and answers it.
    pub(in crate::event_loop) fn handle_done(
        &mut self,
        ctx: &mut FrontendContext<'_>,
        done: &Done,
    ) {
        if done.outcome.is_err() && self.withdraw(ctx, done, true) {
            return;
        }
        let index = ctx.parts.requests.by_tag(done.tag);
        let slot = ctx.parts.requests.get_mut(index);
        match done.outcome {
            Ok(()) => slot.accounted = Some(done.account.total()),
            Err(error) => slot.answer = failure(error, slot.kind),
        }
        if let Some(recorder) = &mut self.recorder
            && !recorder.request(ctx.parts.now, slot, done)
        {
            self.recorder = None;
        }
        let connection_ref = slot.owner;
        if let Some(connection) = self.connections.resolve(connection_ref) {
            connection.outstanding -= 1;
        }
        self.answer(ctx, index);
    }

    /// Gives a finished request to its connection, or frees it if the connection is gone.
    pub(super) fn answer(&mut self, ctx: &mut FrontendContext<'_>, index: u32) {
        let slot = ctx.parts.requests.get(index);
        let connection_ref = slot.owner;
        if slot.answer != Answer::Ok || !slot.kind.answers_data() {
            // No payload is sent, so its memory can serve others before the reply has gone out.
            self.release(ctx, index);
        }
        let Some(connection) = self.connections.resolve(connection_ref) else {
            return self.free_slot(ctx, index);
        };
        if connection.state == State::Gone {
            self.free_slot(ctx, index);
            // The connection may have waited for this request before it could be removed.
            return self.turns.touch(connection_ref.index);
        }
        let completed = self.with_transport(ctx, connection_ref.index, |connection, port| {
            connection.transport.complete(port, index)
        });
        if completed == Completed::Now {
            self.free_answered(ctx, index, Some(ctx.parts.now));
        }
        self.turns.touch(connection_ref.index);
    }

    /// Calls a connection's transport, then frees the slots whose replies ended by that.
    #[inline]
    pub(super) fn with_transport<R>(
        &mut self,
        ctx: &mut FrontendContext<'_>,
        index: u32,
        call: impl FnOnce(&mut Connection, &mut Port<'_>) -> R,
    ) -> R {
        let connection = self.connections.get(index).expect("it is there");
        let mut port = Port {
            ring: ctx.parts.ring,
            requests: ctx.parts.requests,
            plumbing: ctx.parts.plumbing,
            now: ctx.parts.now,
            connection_ref: ConnectionRef {
                index,
                generation: connection.generation,
            },
            stalled: connection.waits_for_intake(),
        };
        let result = call(connection, &mut port);
        if ctx.parts.requests.has_ended() {
            self.free_ended(ctx);
        }
        result
    }

    /// Frees the slots whose replies were sent or dropped.
    pub(super) fn free_ended(&mut self, ctx: &mut FrontendContext<'_>) {
        let mut ended = ctx.parts.requests.take_ended();
        for (slot, sent) in ended.drain(..) {
            self.free_answered(ctx, slot, sent);
        }
        ctx.parts.requests.put_ended(ended);
    }

    /// Frees a slot whose reply has ended. `sent` is the time at which the reply was sent, for the
    /// histogram of reply times; `None` if it was dropped.
    fn free_answered(&mut self, ctx: &mut FrontendContext<'_>, index: u32, sent: Option<Nanos>) {
        if let Some(sent) = sent {
            let slot = ctx.parts.requests.get(index);
            let took = sent.since(slot.since);
            let vm = &mut ctx.vms[slot.vm as usize];
            vm.reply_time[slot.kind.lane() as usize].record(took);
            if let Some(accounted) = slot.accounted {
                vm.reply_delay += took.since(accounted);
            }
        }
        self.free_slot(ctx, index);
    }

    /// Frees a slot and returns its memory.
    fn free_slot(&mut self, ctx: &mut FrontendContext<'_>, index: u32) {
        self.release(ctx, index);
        ctx.parts.requests.remove(index);
    }

    /// Returns the memory of a slot, and its claim on an engine slot if the request never reached
    /// the engine.
    fn release(&mut self, ctx: &mut FrontendContext<'_>, index: u32) {
        let released = ctx.parts.requests.release(index);
        let (vm, now) = (ctx.vms[released.vm].id, ctx.parts.now);
        match (released.claimed, released.bytes) {
            // The engine took the request's claim over only if `claimed` is false; it then frees
            // the request slot itself and waits for the payload memory.
            (true, None) if released.is_guests => {
                ctx.parts.engine.admission_mut().return_slot(now, vm)
            }
            (true, bytes) => {
                ctx.parts.engine.admission_mut().return_claim(
                    now,
                    vm,
                    released.op,
                    bytes.unwrap_or(0),
                );
            }
            (false, Some(bytes)) => {
                ctx.parts
                    .engine
                    .admission_mut()
                    .return_payload(now, vm, released.op, bytes)
            }
            (false, None) => {}
        }
    }

    /// Sends and receives for all connections that have something to send or nothing to poll.
    pub(in crate::event_loop) fn exchange(&mut self, ctx: &mut FrontendContext<'_>) {
        let mut touched = self.turns.take_touched();
        let mut at = 0;
        while at < touched.len() {
            let index = touched[at];
            // Cleared first, so that a touch during the exchange asks for another round.
            self.turns.begin_exchange(index);
            if self.exchange_one(ctx, index) {
                self.turns.keep_touched(index);
                at += 1;
            } else {
                // The order within a turn does not matter.
                touched.swap_remove(at);
            }
        }
        self.turns.put_touched(touched);
    }

    /// Sends and receives for one connection. Returns true if it stays in the list for the next
    /// turn.
    fn exchange_one(&mut self, ctx: &mut FrontendContext<'_>, index: u32) -> bool {
        let Some(connection) = self.connections.get(index) else {
            return false;
        };
        if connection.state != State::Gone {
            // With no other request of the connection under way, no later reply could be sent
            // together with these, so that waiting for one would only delay them.
            let alone = connection.outstanding == 0 && self.wants_requests(index);
            let linked = self.with_transport(ctx, index, |connection, port| {
                let linked = connection.transport.flush(port, alone);
                linked.then_some(port.connection_ref)
            });
            if let Some(connection_ref) = linked {
                self.turns.await_submission(connection_ref);
            }
        }
        let connection = self
            .connections
            .get(index)
            .expect("sending ends no connection");
        if connection.state != State::Open || connection.transport.is_receiving() {
            self.advance_state(ctx, index);
            return false;
        }
        if ctx.device.answers_soon(connection.disk) && connection.outstanding > 0 {
            // The reply comes with the next turn, and the receive can go to the kernel with it.
            return true;
        }
        if self.wants_requests(index) {
            self.with_transport(ctx, index, |connection, port| {
                connection.transport.receive(port)
            });
        }
        false
    }

    /// Returns true if everything that the connection brought was taken and it may bring more.
    fn wants_requests(&mut self, index: u32) -> bool {
        let is_ready = self.turns.is_ready(index);
        let connection = self.connections.get(index).expect("it is there");
        connection.state == State::Open
            && connection.stall.is_none()
            && connection.held.is_none()
            && !is_ready
    }
}
