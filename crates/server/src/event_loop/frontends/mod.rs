//! Connections of a loop: served in turn, answered, closed. Their protocol is behind the traits of
//! [`interface`](crate::frontend::interface).
//!
//! ```text
//!   ready connections --turns--> intake: poll, claim, hand in to the engine
//!   requests that the engine has finished --> answer --> exchange: send, receive
//! ```

mod connection;
mod hand_over;
mod replies;
mod round_robin;
mod submission;

use std::time::Instant;

use tidegate_core::objective::Objective;
use tidegate_core::stats::Histogram;
use tidegate_core::time::Nanos;

use super::despite_panics::for_each_despite_panics;
use super::device::{Device, DiskState, LoopParts};
use super::vms::Vms;
use crate::backing::extents::{ExtentQuery, QueryError};
use crate::command::NewConnection;
use crate::frontend::interface::{Answer, ConnectionRef, Port};
use crate::frontend::{AnyFrontend, Failure};
use crate::log_limit;
use crate::recording::Producer;
use crate::ring::{Pause, Ring};

pub(super) use connection::CONNECTIONS_MAX;
use connection::{Connection, Connections, State};
use round_robin::RoundRobin;

/// Connections of a loop and the order in which they are served.
#[derive(Default)]
pub(super) struct Frontends {
    connections: Connections,
    turns: RoundRobin,
    /// True if the next turn must not wait: requests were handed in after this turn's dispatch, or
    /// it left some, or answered some after the exchange.
    goes_on: bool,
    /// Recording of finished requests; `None` while it is off.
    pub(super) recorder: Option<Box<Producer>>,
}

/// Parts of the loop that connections borrow for one call.
pub(super) struct FrontendContext<'a> {
    pub(super) parts: LoopParts<'a>,
    pub(super) vms: &'a mut Vms,
    pub(super) device: &'a mut Device,
}

impl FrontendContext<'_> {
    /// Returns the objective of the VM that has a disk.
    fn objective(&self, disk: usize) -> &Objective {
        let vm = self.vms[self.device.vm_of(disk)].id;
        self.parts.engine.vms().objective(vm)
    }
}

impl Frontends {
    /// Returns true if the next turn must not wait, because a connection is ready or this turn left
    /// something to do.
    #[inline]
    pub(super) fn is_busy(&self) -> bool {
        self.turns.waiting() > 0 || self.goes_on
    }

    /// Notes that the dispatch that follows sees all requests handed in so far.
    #[inline]
    pub(super) fn begin_dispatch(&mut self) {
        self.goes_on = false;
    }

    /// Has the next turn follow at once.
    #[inline]
    pub(super) fn go_on(&mut self) {
        self.goes_on = true;
    }

    /// Returns the number of connections, including those that are being closed.
    pub(super) fn len(&self) -> usize {
        self.connections.len()
    }

    /// Returns the number of connections to one of these disks.
    pub(super) fn count_on(&self, disks: &[usize]) -> usize {
        let on_disks = self.connections.iter().filter(|c| disks.contains(&c.disk));
        on_disks.count()
    }

    /// Iterates over the peers that are connected to one of these disks, each with its disk.
    pub(super) fn peers_on(&self, disks: &[usize]) -> impl Iterator<Item = (&str, usize)> {
        let on_disks = move |c: &&Connection| disks.contains(&c.disk) && c.state != State::Gone;
        let connections = self.connections.iter().filter(on_disks);
        connections.map(|connection| (connection.peer.as_str(), connection.disk))
    }

    /// Stops reading from all connections; each is closed once its requests are answered.
    pub(super) fn begin_drain(&mut self, ctx: &mut FrontendContext<'_>) {
        for index in self.connections.indices() {
            let connection = self.connections.get(index).expect("it is there");
            if connection.state == State::Open {
                connection.state = State::Leaving;
            }
            self.advance_state(ctx, index);
        }
    }

    /// Bounds the pauses of a VM's connections by its objective, which has changed. `disks` are the
    /// VM's.
    pub(super) fn bound_pauses(&mut self, disks: &[usize], objective: &Objective) {
        for index in self.connections.indices() {
            let connection = self.connections.get(index).expect("it is there");
            if disks.contains(&connection.disk) {
                connection.transport.bound_pause(longest_pause(objective));
            }
        }
    }

    /// Lets all clients know that their connections have ended, for a loop that is lost.
    pub(super) fn hang_up(&self, ring: &Ring) {
        for_each_despite_panics(self.connections.iter(), |connection| {
            connection.transport.hang_up(ring);
        });
    }

    /// Closes the connections to these disks at once.
    pub(super) fn disconnect(&mut self, ctx: &mut FrontendContext<'_>, disks: &[usize], why: &str) {
        for index in self.connections.indices() {
            let connection = self.connections.get(index).expect("it is there");
            if !disks.contains(&connection.disk) || connection.state == State::Gone {
                continue;
            }
            let export = &ctx.device.disks[connection.disk].disk.export;
            tracing::info!(%export, peer = %connection.peer, "client cut off: {why}");
            self.close(ctx, index);
        }
    }
}

// Connections whose handshake is done, taken over from the control thread.

impl Frontends {
    /// Takes over a connection from the control thread, or refuses it by dropping it. Not to be
    /// called once the loop drains.
    pub(super) fn add_connection(&mut self, ctx: &mut FrontendContext<'_>, new: NewConnection) {
        let NewConnection {
            opening,
            serial,
            disk: export,
            peer,
            permit,
        } = new;
        // The serial number decides, not the name: the disk that the client chose may have been
        // removed meanwhile, and another may have its name.
        let chosen = |(_, state): &(usize, &DiskState)| {
            state.serial == serial && !ctx.vms[state.vm].is_removed
        };
        let Some(disk) = ctx.device.disks.iter().find(chosen).map(|(at, _)| at) else {
            return log_refusal(&export, &peer, &"the export was removed");
        };
        let Some(connection_ref) = self.connections.vacant() else {
            return log_refusal(&export, &peer, &"the device has its maximum of connections");
        };
        let memory = opening.memory();
        let id = ctx.device.disks[disk].id;
        let client = ctx.parts.engine.connect_with(id, memory);
        let engine = match client {
            Ok(engine) => engine,
            Err(error) => return log_refusal(&export, &peer, &error),
        };
        let opened = AnyFrontend::open(
            opening,
            &mut Port {
                ring: ctx.parts.ring,
                requests: ctx.parts.requests,
                plumbing: ctx.parts.plumbing,
                now: ctx.parts.now,
                connection_ref,
                stalled: false,
            },
        );
        let mut transport = match opened {
            Ok(transport) => transport,
            Err(error) => {
                // The engine was told of the client above and must forget it again.
                ctx.parts.engine.handle_disconnect(ctx.parts.now, engine);
                return log_refusal(&export, &peer, &error);
            }
        };
        transport.bound_pause(longest_pause(ctx.objective(disk)));
        let vm = &mut ctx.vms[ctx.device.disks[disk].vm];
        vm.reply_time.iter_mut().for_each(Histogram::reserve);
        self.connections.insert(Connection {
            generation: connection_ref.generation,
            transport,
            memory,
            disk,
            engine,
            peer,
            state: State::Open,
            outstanding: 0,
            stall: None,
            held: None,
            held_ranges: Vec::new(),
            withdrawn: Vec::new(),
            permit,
        });
        tracing::debug!(%export, "client connected");
        self.turns.add(connection_ref.index);
        self.turns.make_ready(connection_ref.index);
    }
}

/// Longest pause before a receive: 1 / [`LATENCY_PARTS`] of the VM's latency bound.
const LATENCY_PARTS: u64 = 100;

/// Returns the longest pause before a receive of a VM with this objective.
fn longest_pause(objective: &Objective) -> Pause {
    let bound = |latency: Nanos| Pause::at_most(Nanos(latency.0 / LATENCY_PARTS));
    objective.latency.map_or(Pause::LONGEST, bound)
}

fn log_refusal(export: &str, peer: &str, why: &dyn std::fmt::Display) {
    if log_limit::REFUSED.allows(Instant::now()) {
        tracing::warn!(%export, %peer, "client refused: {why}");
    }
}

// Queries for a disk's extents. They bypass the engine: the disk's backing answers them, possibly
// on another thread and much later.

impl Frontends {
    /// Queries the extents of a disk's range, at most `most` of them. The reply follows now or in a
    /// later turn.
    fn query_extents(
        &mut self,
        ctx: &mut FrontendContext<'_>,
        connection: u32,
        slot: u32,
        most: u32,
    ) {
        let token = ctx.parts.requests.tag(slot);
        let entry = ctx.parts.requests.get(slot);
        let (offset, len) = (entry.offset, entry.len);
        let connection = self.connections.get(connection).expect("it asks");
        let disk = connection.disk;
        if offset + u64::from(len) > ctx.device.disks[disk].disk.size {
            // The disk has been shrunk since the client's handshake.
            let entry = ctx.parts.requests.get_mut(slot);
            entry.answer = entry.kind.beyond_end();
            return self.answer(ctx, slot);
        }
        connection.outstanding += 1;
        let query = ExtentQuery {
            token,
            offset,
            len,
            most,
            extents: ctx.parts.requests.take_extents(slot),
        };
        ctx.device.query_extents(&mut ctx.parts, disk, query);
        // Backings without extents have answered already.
        self.take_extents(ctx);
    }

    /// Answers the extent queries that backings have finished.
    pub(super) fn take_extents(&mut self, ctx: &mut FrontendContext<'_>) {
        let mut extent_answers = ctx.device.take_extent_answers();
        for answer in extent_answers.drain(..) {
            let slot = ctx.parts.requests.by_tag(answer.token);
            ctx.parts.requests.put_extents(slot, answer.extents);
            let entry = ctx.parts.requests.get_mut(slot);
            match answer.result {
                Ok(()) => {}
                Err(QueryError::TryAgain) => {
                    entry.answer = Answer::Error(Failure::NoMemory, "try again");
                }
                Err(QueryError::Failed) => {
                    entry.answer = Answer::Error(Failure::Io, "the file system reports no extents");
                }
            }
            let connection_ref = entry.owner;
            if let Some(connection) = self.connections.resolve(connection_ref) {
                connection.outstanding -= 1;
            }
            self.answer(ctx, slot);
        }
        ctx.device.put_extent_answers(extent_answers);
    }
}

// Ends of connections. One that disconnects is answered first; one that vanished, broke a rule or
// is stuck is not. The states are described in `connection`.

/// Time without progress after which a client is disconnected during a stop of the daemon.
pub(crate) const DRAIN_PROGRESS_TIMEOUT: Nanos = Nanos::from_secs(5);

impl Frontends {
    /// Ends a connection whose socket broke or was closed without a disconnect request. `errno` is
    /// the error of the socket, `None` for an end of file.
    fn connection_lost(&mut self, ctx: &mut FrontendContext<'_>, index: u32, errno: Option<i32>) {
        let Some(connection) = self.connections.get(index) else {
            return;
        };
        if connection.state == State::Gone {
            return self.advance_state(ctx, index);
        }
        if log_limit::GONE.allows(Instant::now()) {
            let export = &ctx.device.disks[connection.disk].disk.export;
            let why = errno.map_or("closed without a disconnect request".to_owned(), |e| {
                std::io::Error::from_raw_os_error(e).to_string()
            });
            let outstanding = connection.outstanding;
            tracing::info!(%export, peer = %connection.peer, outstanding, "client gone: {why}");
        }
        self.close(ctx, index);
    }

    /// Ends a connection at once. Its requests in flight are finished, but not answered.
    fn close(&mut self, ctx: &mut FrontendContext<'_>, index: u32) {
        let connection = self.connections.get(index).expect("it is there");
        if connection.state != State::Gone {
            connection.state = State::Gone;
            let id = connection.engine;
            self.with_transport(ctx, index, |connection, port| {
                connection.transport.shut_down(port);
            });
            ctx.parts.engine.handle_disconnect(ctx.parts.now, id);
        }
        self.advance_state(ctx, index);
    }

    /// Makes the transition that the connection's state allows now: to `Gone` once all is answered,
    /// to removal once no operation uses its memory.
    fn advance_state(&mut self, ctx: &mut FrontendContext<'_>, index: u32) {
        let Some(connection) = self.connections.get(index) else {
            return;
        };
        match connection.state {
            State::Leaving if connection.is_quiet() => self.close(ctx, index),
            State::Gone if connection.is_at_rest() => self.remove(ctx, index),
            State::Open | State::Leaving | State::Gone | State::HandingOver { .. } => {}
        }
    }

    fn remove(&mut self, ctx: &mut FrontendContext<'_>, index: u32) {
        let Connection {
            generation,
            transport,
            disk,
            withdrawn,
            ..
        } = self.connections.remove(index);
        // Of a connection that was to be handed over and broke.
        let slots = withdrawn.iter().map(|withdrawn| withdrawn.slot);
        ctx.parts.requests.end(slots, None);
        let vm = ctx.device.vm_of(disk);
        for queue in &mut ctx.vms[vm].stalled {
            // The index may be another connection's from now on.
            queue.retain(|&stalled| stalled != index);
        }
        transport.close(&mut Port {
            ring: ctx.parts.ring,
            requests: ctx.parts.requests,
            plumbing: ctx.parts.plumbing,
            now: ctx.parts.now,
            connection_ref: ConnectionRef { index, generation },
            stalled: false,
        });
        self.free_ended(ctx);
    }

    /// Disconnects clients that make no progress in sending a payload or in taking replies, while
    /// the daemon stops. Before that, a slow client only holds memory of its own VM's guaranteed
    /// part, so it may take its time.
    pub(super) fn disconnect_stuck(&mut self, ctx: &mut FrontendContext<'_>) {
        let patience = DRAIN_PROGRESS_TIMEOUT;
        for index in self.connections.indices() {
            let connection = self.connections.get(index).expect("it is there");
            let Some(what) = connection.transport.stuck(ctx.parts.now, patience) else {
                continue;
            };
            if connection.state != State::Gone {
                if log_limit::CUT_OFF.allows(Instant::now()) {
                    let export = &ctx.device.disks[connection.disk].disk.export;
                    let peer = &connection.peer;
                    tracing::warn!(%export, %peer, "client cut off: {what} for {patience}");
                }
                self.close(ctx, index);
            }
        }
    }

    /// Closes slow connections of VMs that borrow payload memory, while another VM waits for lent
    /// memory. A connection is slow if its current payload or send takes longer than its frontend
    /// [allows](crate::frontend::interface::Frontend::overdue). The client may reconnect; no
    /// request is answered with an error.
    pub(super) fn close_overdue(&mut self, ctx: &mut FrontendContext<'_>) {
        if !ctx.parts.may_stall || !ctx.parts.engine.admission().is_contended() {
            return;
        }
        for index in self.connections.indices() {
            let connection = self.connections.get(index).expect("it is there");
            let vm = ctx.device.vm_of(connection.disk);
            if connection.state == State::Gone
                || !ctx
                    .parts
                    .engine
                    .admission()
                    .holdings(ctx.vms[vm].id)
                    .borrows
            {
                continue;
            }
            let Some(what) = connection
                .transport
                .overdue(ctx.parts.now, ctx.parts.requests)
            else {
                continue;
            };
            let export = &ctx.device.disks[connection.disk].disk.export;
            tracing::warn!(
                %export,
                peer = %connection.peer,
                "connection closed: {what} while its VM holds more than its part of the payload \
                 memory and another VM waits for some"
            );
            self.close(ctx, index);
        }
    }
}
