//! Hand-over of connections to another daemon.
//!
//! ```text
//!   Open, Leaving --begin: no more is received, waiting requests are withdrawn--> HandingOver
//!   HandingOver --its I/O has ended, its operations have ended--> Handed, removed from here
//! ```
//!
//! Closed are connections over TLS, and of vhost-user front-ends whose sessions do not rest: their
//! clients connect again. Requests of a session that rests stay in its record of requests in flight
//! when they are withdrawn.

use tidegate_core::request::{Done, IoError};

use super::connection::{State, Withdrawn};
use super::{FrontendContext, Frontends};
use crate::command::{HandedConnection, HandedOver};
use crate::frontend::interface::{ConnectionRef, Port};
use crate::frontend::{AnyFrontend, nbd};

impl Frontends {
    /// Has connections over TLS answered and closed.
    pub(in crate::event_loop) fn close_tunnelled(&mut self, ctx: &mut FrontendContext<'_>) {
        for index in self.connections.indices() {
            let connection = self.connections.get(index).expect("it is there");
            if connection.is_tunnelled() && connection.state == State::Open {
                connection.state = State::Leaving;
            }
            self.advance_state(ctx, index);
        }
    }

    /// Returns true if there is a connection over TLS.
    pub(in crate::event_loop) fn has_tunnelled(&self) -> bool {
        self.connections
            .iter()
            .any(|connection| connection.is_tunnelled())
    }

    /// Receives nothing more from all connections, and withdraws their requests that wait.
    pub(in crate::event_loop) fn begin_hand_over(&mut self, ctx: &mut FrontendContext<'_>) {
        for index in self.connections.indices() {
            let connection = self.connections.get(index).expect("it is there");
            match connection.state {
                State::Gone | State::HandingOver { .. } => continue,
                State::Open | State::Leaving => {}
            }
            let has_left = connection.state == State::Leaving;
            if !self.begin_one(ctx, index, has_left) {
                self.close(ctx, index);
                continue;
            }
            let connection = self.connections.get(index).expect("it is there");
            connection.state = State::HandingOver { has_left };
            connection.stall = None;
            let (client, disk) = (connection.engine, connection.disk);
            for queue in &mut ctx.vms[ctx.device.vm_of(disk)].stalled {
                queue.retain(|&stalled| stalled != index);
            }
            ctx.parts.engine.handle_disconnect(ctx.parts.now, client);
        }
        self.take_withdrawn(ctx, false);
    }

    /// Receives nothing more from a connection; returns false if it cannot be handed over.
    fn begin_one(&mut self, ctx: &mut FrontendContext<'_>, index: u32, has_left: bool) -> bool {
        self.with_transport(ctx, index, |connection, port| {
            match &mut connection.transport {
                AnyFrontend::Nbd(connection) if connection.is_tunnelled() => return false,
                AnyFrontend::Nbd(connection) => connection.begin_hand_over(port),
                AnyFrontend::VhostUser(connection) => {
                    return !has_left && connection.begin_hand_over(port);
                }
                #[cfg(test)]
                AnyFrontend::Queue(_) => return false,
            }
            true
        })
    }

    /// Takes the requests that the engine has given back.
    fn take_withdrawn(&mut self, ctx: &mut FrontendContext<'_>, is_partial: bool) {
        while let Some(done) = ctx.parts.engine.poll_done() {
            if !self.withdraw(ctx, &done, is_partial) {
                self.handle_done(ctx, &done);
            }
        }
    }

    /// Keeps a request that was withdrawn from the engine for the daemon that goes on with its
    /// connection. Returns false if it is to be answered here.
    #[cold]
    pub(super) fn withdraw(
        &mut self,
        ctx: &mut FrontendContext<'_>,
        done: &Done,
        is_partial: bool,
    ) -> bool {
        if done.outcome != Err(IoError::Cancelled) {
            return false;
        }
        let slot = ctx.parts.requests.by_tag(done.tag);
        let owner = ctx.parts.requests.get(slot).owner;
        let Some(connection) = self.connections.resolve(owner) else {
            return false;
        };
        if !matches!(connection.state, State::HandingOver { .. }) {
            return false;
        }
        connection.outstanding -= 1;
        connection.withdrawn.push(Withdrawn { slot, is_partial });
        true
    }

    /// Takes out the connections that are to be handed over and are at rest. Returns true if none
    /// is left that is not.
    pub(in crate::event_loop) fn hand_over_rested(
        &mut self,
        ctx: &mut FrontendContext<'_>,
        mut take: impl FnMut(HandedOver),
    ) -> bool {
        let mut all = true;
        for index in self.connections.indices() {
            let connection = self.connections.get(index).expect("it is there");
            let State::HandingOver { has_left } = connection.state else {
                continue;
            };
            if connection.outstanding == 0 && connection.is_at_rest() {
                take(self.take_out(ctx, index, has_left));
                continue;
            }
            all = false;
            if connection.outstanding == 0 {
                self.with_transport(ctx, index, |connection, port| {
                    if let AnyFrontend::Nbd(connection) = &mut connection.transport {
                        connection.stop_sending(port);
                    }
                });
            }
        }
        all
    }

    fn take_out(
        &mut self,
        ctx: &mut FrontendContext<'_>,
        index: u32,
        has_left: bool,
    ) -> HandedOver {
        // Its index is another connection's from now on.
        let connection = self.connections.take_out(index);
        let mut withdrawn = connection.withdrawn;
        // In the order of arrival. The engine has given back each lane in its order.
        withdrawn.sort_by_key(|it| (ctx.parts.requests.get(it.slot).since, !it.is_partial));
        let withdrawn = withdrawn.iter().map(|it| it.slot);
        let port = &mut Port {
            ring: ctx.parts.ring,
            requests: ctx.parts.requests,
            plumbing: ctx.parts.plumbing,
            now: ctx.parts.now,
            connection_ref: ConnectionRef {
                index,
                generation: connection.generation,
            },
            stalled: false,
        };
        let disk = &ctx.device.disks[connection.disk];
        let out = HandedConnection {
            disk: disk.disk.export.clone(),
            serial: disk.serial,
            peer: connection.peer,
            permit: connection.permit,
            handed: (),
        };
        let taken = match connection.transport {
            AnyFrontend::Nbd(transport) => {
                let kept = nbd::Kept {
                    withdrawn: withdrawn.collect(),
                    held: connection.held,
                    has_left,
                };
                HandedOver::Connection(out.with(transport.hand_over(port, kept)))
            }
            AnyFrontend::VhostUser(transport) => {
                HandedOver::Session(out.with(transport.hand_over(port, withdrawn)))
            }
            #[cfg(test)]
            AnyFrontend::Queue(_) => unreachable!("queues for tests are closed"),
        };
        self.free_ended(ctx);
        taken
    }
}
