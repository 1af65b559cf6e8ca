//! Path from the connections to the engine: requests are polled, get a request slot and payload
//! memory, and are handed to the engine.
//!
//! A connection that stopped because its VM has no slot or memory left goes on when the engine
//! names its VM in `poll_unblocked`.

use std::time::Instant;

use tidegate_core::engine::{PayloadMemory, Refusal};
use tidegate_core::request as engine;

use super::connection::{Stall, State};
use super::{FrontendContext, Frontends};
use crate::frontend::Failure;
use crate::frontend::interface::{
    Answer, Budget, ConnectionRef, Event, Incoming, Kind, Next, Polled, Progress,
};
use crate::log_limit;
use crate::ring::Completion;

/// Longest range in bytes that is read for [`Kind::Cache`]; longer ones are answered without a
/// read, as a hint may be.
const CACHE_MAX: u32 = 4 << 20;

/// Result of serving a connection for a while.
enum Served {
    /// All was taken: receive more.
    WantsMore,
    /// The turn's budget is used up, and there is more to take.
    Again,
    /// The next request waits for something to be freed.
    Stalled(Stall),
    /// Nothing more is taken from the connection.
    Ended,
}

impl Frontends {
    /// Serves the stalled connections that may go on, then gives each ready one a turn.
    pub(in crate::event_loop) fn serve(&mut self, ctx: &mut FrontendContext<'_>) {
        self.serve_unblocked(ctx);
        // Counted before the loop, so that a connection that is ready again waits for the next turn
        // of the loop.
        for _ in 0..self.turns.waiting() {
            let index = self.turns.next_ready().expect("counted");
            self.serve_connection(ctx, index, false);
        }
    }

    /// Serves the stalled connections of VMs that have slots or memory again. The connections of a
    /// VM go in the order in which they stopped; the first that still finds too little ends the
    /// VM's turn, so that none behind it overtakes it.
    pub(in crate::event_loop) fn serve_unblocked(&mut self, ctx: &mut FrontendContext<'_>) {
        while let Some(id) = ctx.parts.engine.admission_mut().poll_unblocked() {
            let vm = ctx.vms.index(id);
            for kind in 0..ctx.vms[vm].stalled.len() {
                while let Some(index) = ctx.vms[vm].stalled[kind].pop_front() {
                    // Removed while it waited.
                    let Some(connection) = self.connections.get(index) else {
                        continue;
                    };
                    connection.stall = None;
                    self.go_on();
                    self.serve_connection(ctx, index, true);
                    // It has stalled again and is back at the head, so the VM has too little for
                    // it.
                    if ctx.vms[vm].stalled[kind].front() == Some(&index) {
                        break;
                    }
                }
            }
        }
    }

    /// Serves one connection for a turn. `first` is true if it was at the head of its VM's queue of
    /// stalled connections.
    fn serve_connection(&mut self, ctx: &mut FrontendContext<'_>, index: u32, first: bool) {
        let Some(connection) = self.connections.get(index) else {
            return;
        };
        // Woken for a reason that has passed: what it waits for will make it ready again.
        if connection.stall.is_some() || connection.transport.is_receiving() {
            return;
        }
        match self.take_requests(ctx, index, first) {
            Served::WantsMore => self.turns.touch(index),
            Served::Again => self.turns.make_ready(index),
            Served::Ended => {}
            Served::Stalled(stall) => self.stall(ctx, index, stall),
        }
    }

    fn stall(&mut self, ctx: &mut FrontendContext<'_>, index: u32, stall: Stall) {
        let connection = self.connections.get(index).expect("it was just served");
        connection.stall = Some(stall);
        let Stall::Intake { first } = stall else {
            return;
        };
        let held = connection.held.as_ref().expect("a request waits");
        let (vm, kind) = (ctx.device.vm_of(connection.disk), queue_of(held.kind));
        self.with_transport(ctx, index, |connection, port| {
            connection.transport.stall(port)
        });
        let queue = &mut ctx.vms[vm].stalled[kind];
        debug_assert!(
            !queue.contains(&index),
            "a connection waits twice for slots or memory"
        );
        // A connection that was at the head and still finds too little keeps its place.
        if first {
            queue.push_front(index);
        } else {
            queue.push_back(index);
        }
    }

    /// Handles the end of an operation of a connection.
    pub(in crate::event_loop) fn handle_event(
        &mut self,
        ctx: &mut FrontendContext<'_>,
        Event {
            connection_ref,
            event,
        }: Event,
        completion: Completion,
    ) {
        // A completion of a connection that is gone; its index may be another's by now.
        if self.connections.resolve(connection_ref).is_none() {
            return;
        }
        let progress = self.with_transport(ctx, connection_ref.index, |connection, port| {
            connection.transport.handle(port, event, completion)
        });
        self.take_progress(ctx, connection_ref.index, progress);
    }

    /// Tells connections that the kernel has taken the operations that they submitted.
    pub(in crate::event_loop) fn submissions_ended(&mut self, ctx: &mut FrontendContext<'_>) {
        while let Some(connection_ref) = self.turns.next_submitted() {
            if self.connections.resolve(connection_ref).is_some() {
                let progress =
                    self.with_transport(ctx, connection_ref.index, |connection, port| {
                        connection.transport.submitted(port)
                    });
                self.take_progress(ctx, connection_ref.index, progress);
            }
        }
    }

    fn take_progress(
        &mut self,
        ctx: &mut FrontendContext<'_>,
        index: u32,
        Progress { sent, next }: Progress,
    ) {
        let connection = self.connections.get(index).expect("it is there");
        if sent {
            if connection.stall == Some(Stall::Unsent) {
                connection.stall = None;
                self.turns.make_ready(index);
            }
            self.turns.touch(index);
        }
        let is_open = connection.state == State::Open;
        match next {
            Next::Nothing => {}
            Next::Poll | Next::Closed(_) if !is_open => self.advance_state(ctx, index),
            Next::Poll => self.turns.make_ready(index),
            Next::Exchange => self.turns.touch(index),
            Next::Closed(errno) => self.connection_lost(ctx, index, errno),
            Next::Broken(errno) => self.connection_lost(ctx, index, Some(errno)),
        }
    }

    /// Takes requests of a connection until its budget is used up, it has none left, or one lacks a
    /// slot or memory.
    fn take_requests(
        &mut self,
        ctx: &mut FrontendContext<'_>,
        index: u32,
        mut first: bool,
    ) -> Served {
        let mut budget = Budget::of_a_turn();
        loop {
            let connection = self.connections.get(index).expect("it is being served");
            if connection.state != State::Open {
                return Served::Ended;
            }
            let polled = match connection.held.take() {
                Some(held) => self.poll_held(ctx, index, held),
                None => {
                    // Requests behind the held one were not at the head of the queue.
                    first = false;
                    ctx.parts.requests.offered.clear();
                    self.with_transport(ctx, index, |connection, port| {
                        connection.transport.poll(port, &mut budget)
                    })
                }
            };
            match polled {
                Polled::Request(request) => {
                    if let Some(served) = self.take_request(ctx, index, request, first) {
                        return served;
                    }
                }
                Polled::Arrived(slot) => self.hand_in(ctx, index, slot),
                Polled::Rejected {
                    token,
                    failure,
                    message,
                } => self.reject(ctx, index, token, Answer::Error(failure, message)),
                Polled::Empty => return Served::WantsMore,
                Polled::Later => return Served::Again,
                Polled::Full => return Served::Stalled(Stall::Unsent),
                Polled::Left => {
                    let connection = self.connections.get(index).expect("it is being served");
                    connection.state = State::Leaving;
                    self.advance_state(ctx, index);
                    return Served::Ended;
                }
                Polled::Broken(why) => {
                    self.disconnect_offender(ctx, index, &why);
                    return Served::Ended;
                }
            }
        }
    }

    /// Takes the held request again, unless there is no room for its reply.
    fn poll_held(
        &mut self,
        ctx: &mut FrontendContext<'_>,
        index: u32,
        held: Incoming<u64>,
    ) -> Polled<u64> {
        let room = self.with_transport(ctx, index, |connection, port| {
            connection.transport.room(port)
        });
        let connection = self.connections.get(index).expect("it is being served");
        if !room {
            connection.held = Some(held);
            return Polled::Full;
        }
        std::mem::swap(&mut ctx.parts.requests.offered, &mut connection.held_ranges);
        Polled::Request(held)
    }

    /// Closes a connection whose peer broke a rule.
    #[cold]
    fn disconnect_offender(&mut self, ctx: &mut FrontendContext<'_>, index: u32, why: &str) {
        let connection = self.connections.get(index).expect("it is being served");
        if log_limit::CUT_OFF.allows(Instant::now()) {
            let export = &ctx.device.disks[connection.disk].disk.export;
            tracing::warn!(%export, peer = %connection.peer, "client cut off: {why}");
        }
        self.close(ctx, index);
    }

    /// Takes one request. Returns `None` if the connection can go on with its next one.
    fn take_request(
        &mut self,
        ctx: &mut FrontendContext<'_>,
        index: u32,
        request: Incoming<u64>,
        first: bool,
    ) -> Option<Served> {
        let connection = self.connections.get(index).expect("it is being served");
        let own_memory = connection.memory == PayloadMemory::Own;
        // Guest memory is checked before the claim, because a refused request needs none.
        if own_memory
            && let Some(answer) = refuse_with_own_memory(&request, &ctx.parts.requests.offered)
        {
            self.reject(ctx, index, request.token, answer);
            return None;
        }
        match self.claim(ctx, index, &request, first) {
            Ok(claimed) => self.accept(ctx, index, &request, claimed),
            Err(Refusal::Full) => {
                let connection = self.connections.get(index).expect("it is being served");
                connection.held = Some(request);
                std::mem::swap(&mut ctx.parts.requests.offered, &mut connection.held_ranges);
                return Some(Served::Stalled(Stall::Intake { first }));
            }
            Err(_) => {
                // The VM or the disk was removed.
                self.close(ctx, index);
                return Some(Served::Ended);
            }
        }
        None
    }

    /// Claims a request slot of the engine and payload memory for a request. Returns false if the
    /// loop answers the request itself and needs no slot. With `first` the connection is at the
    /// head of its VM's queue, so the queue does not hold it back. Fails with [`Refusal::Full`]
    /// while there is no slot or memory; any other error means that the VM or the disk was removed.
    fn claim(
        &mut self,
        ctx: &mut FrontendContext<'_>,
        index: u32,
        request: &Incoming<u64>,
        first: bool,
    ) -> Result<bool, Refusal> {
        let connection = self.connections.get(index).expect("it is being served");
        let (client, vm) = (connection.engine, ctx.device.vm_of(connection.disk));
        if !first && !ctx.vms[vm].stalled[queue_of(request.kind)].is_empty() {
            return Err(Refusal::Full);
        }
        let len = match request.kind {
            Kind::Read | Kind::Write => request.len,
            Kind::Cache if request.len <= CACHE_MAX => request.len,
            // A hint for a long range is answered at once.
            Kind::Cache => return Ok(false),
            // The reply's memory is taken before the backing is asked, because the answer cannot
            // wait for memory later.
            Kind::Extents { reply_len, .. } => {
                let mut admission = ctx.parts.engine.admission_mut();
                return if admission.take_reply(ctx.parts.now, client, reply_len) {
                    Ok(false)
                } else {
                    Err(Refusal::Full)
                };
            }
            Kind::Flush | Kind::Discard | Kind::WriteZeroes { .. } => 0,
        };
        let op = request
            .kind
            .op()
            .expect("the engine knows nothing of extents");
        ctx.parts
            .engine
            .admission_mut()
            .claim(ctx.parts.now, client, op, len)?;
        Ok(true)
    }

    /// Takes a slot of the request table for a connection's request.
    fn insert(
        &mut self,
        ctx: &mut FrontendContext<'_>,
        index: u32,
        request: &Incoming<u64>,
    ) -> u32 {
        let connection = self.connections.get(index).expect("it is being served");
        let connection_ref = ConnectionRef {
            index,
            generation: connection.generation,
        };
        let since = connection.transport.waits_since().unwrap_or(ctx.parts.now);
        let disk = connection.disk;
        let vm_and_disk = (ctx.device.vm_of(disk) as u32, disk as u32);
        ctx.parts
            .requests
            .insert(connection_ref, vm_and_disk, request, since)
    }

    /// Answers a request without trying it.
    fn reject(&mut self, ctx: &mut FrontendContext<'_>, index: u32, token: u64, answer: Answer) {
        // The kind stands for any request whose reply carries no data.
        let request = Incoming {
            kind: Kind::Flush,
            offset: 0,
            len: 0,
            fua: false,
            token,
        };
        let slot = self.insert(ctx, index, &request);
        ctx.parts.requests.get_mut(slot).answer = answer;
        self.answer(ctx, slot);
    }

    /// Gives a request a slot, and hands it to the engine unless its payload has yet to arrive.
    fn accept(
        &mut self,
        ctx: &mut FrontendContext<'_>,
        index: u32,
        request: &Incoming<u64>,
        claimed: bool,
    ) {
        let slot = self.insert(ctx, index, request);
        ctx.parts.requests.get_mut(slot).claimed = claimed;
        let connection = self.connections.get(index).expect("it is being served");
        let (disk, own_memory) = (connection.disk, connection.memory == PayloadMemory::Own);
        // A read gets its buffer only when it is dispatched, so that reads waiting in the engine
        // hold no memory.
        match request.kind {
            Kind::Read | Kind::Write if own_memory => ctx.parts.requests.take_offered(slot),
            Kind::Write => {
                ctx.parts.requests.give_buffer(slot, request.len as usize);
                self.with_transport(ctx, index, |connection, port| {
                    connection.transport.await_payload(port, slot);
                });
                return;
            }
            Kind::Extents { most, reply_len } => {
                ctx.parts.requests.give_buffer(slot, reply_len as usize);
                if own_memory {
                    ctx.parts.requests.keep_offered(slot);
                }
                return self.query_extents(ctx, index, slot, most);
            }
            Kind::Cache if !claimed => return self.answer(ctx, slot),
            Kind::WriteZeroes {
                only_if_fast: true,
                keep_allocated,
            } if !ctx.device.disks[disk]
                .disk
                .medium
                .zeroes_fast(keep_allocated) =>
            {
                ctx.parts.requests.get_mut(slot).answer =
                    Answer::Error(Failure::Unsupported, "zeroes would have to be written");
                return self.answer(ctx, slot);
            }
            _ => {}
        }
        self.hand_in(ctx, index, slot);
    }

    /// Hands a request to the engine. A refusal becomes an error reply.
    fn hand_in(&mut self, ctx: &mut FrontendContext<'_>, index: u32, slot: u32) {
        let entry = ctx.parts.requests.get(slot);
        debug_assert!(
            entry.claimed,
            "a request goes to the engine without a claim on a slot of its VM"
        );
        let op = entry.kind.op();
        let request = engine::Request {
            op: op.expect("the engine knows nothing of extents"),
            offset: entry.offset,
            len: entry.len,
            fua: entry.fua,
            keep_allocated: matches!(
                entry.kind,
                Kind::WriteZeroes {
                    keep_allocated: true,
                    ..
                }
            ),
            tag: ctx.parts.requests.tag(slot),
        };
        let connection = self.connections.get(index).expect("it is being served");
        let since = connection.transport.waits_since().unwrap_or(ctx.parts.now);
        let client = connection.engine;
        let taken = (ctx.parts.engine).admission_mut().handle_claimed_request(
            ctx.parts.now,
            client,
            request,
            since,
        );
        let entry = ctx.parts.requests.get_mut(slot);
        entry.answer = match taken {
            Ok(_) => {
                // The claim now belongs to the engine.
                entry.claimed = false;
                connection.outstanding += 1;
                return;
            }
            Err(Refusal::ReadOnly) => Answer::Error(Failure::NotPermitted, "the disk is read-only"),
            Err(Refusal::NotConnected | Refusal::Full) => {
                Answer::Error(Failure::ShuttingDown, "the VM was removed")
            }
            Err(Refusal::OutOfRange { .. } | Refusal::Empty) => entry.kind.beyond_end(),
        };
        self.answer(ctx, slot);
    }
}

/// Returns the answer to a request with guest memory that must not be tried: its memory is not as
/// long as its payload, or there is nothing to do. `None` lets it proceed.
#[inline]
fn refuse_with_own_memory(
    request: &Incoming<u64>,
    memory: &[crate::buffer::Mem],
) -> Option<Answer> {
    let (len, message) = match request.kind {
        Kind::Read | Kind::Write => (request.len, "the memory is not as long as the request"),
        Kind::Extents { reply_len, .. } => (reply_len, "the memory is not as long as the reply"),
        Kind::Cache => return Some(Answer::Ok),
        Kind::Flush | Kind::Discard | Kind::WriteZeroes { .. } => return None,
    };
    let offered: usize = memory.iter().map(|range| range.len()).sum();
    (offered != len as usize).then_some(Answer::Error(Failure::Invalid, message))
}

/// Returns the index into `Vm::stalled` for a request: writes have a queue of their own, because
/// reads and writes use separate payload memory.
fn queue_of(kind: Kind) -> usize {
    usize::from(kind != Kind::Write)
}
