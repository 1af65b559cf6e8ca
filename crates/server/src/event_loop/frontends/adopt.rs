//! Connections whose handshake is done, taken over from the reception.

use std::time::Instant;

use super::connection::{Connection, State};
use super::{Frontends, Hall};
use crate::command::Adopted;
use crate::event_loop::device::DiskState;
use crate::frontend::Transport;
use crate::frontend::door::Port;
use crate::log_limit;

impl Frontends {
    /// Takes a connection over from the reception.
    pub(in crate::event_loop) fn adopt(&mut self, hall: &mut Hall<'_>, adopted: Adopted) {
        let Adopted {
            opening,
            serial,
            disk: export,
            peer,
            permit,
        } = adopted;
        if !hall.tools.may_stall {
            return;
        }
        // It may have gone since the client chose it, and another one have taken its place.
        let chosen = |(_, state): &(usize, &DiskState)| {
            state.serial == serial && !hall.vms[state.vm].leaving
        };
        let Some(disk) = hall.device.disks.iter().find(chosen).map(|(at, _)| at) else {
            return refused(&export, &peer, &"the export has gone");
        };
        let Some(who) = self.connections.vacant() else {
            return refused(&export, &peer, &"too many on this device");
        };
        let memory = opening.memory();
        let client = hall
            .tools
            .engine
            .connect_with(hall.device.disks[disk].id, memory);
        let engine = match client {
            Ok(engine) => engine,
            Err(error) => return refused(&export, &peer, &error),
        };
        let opened = Transport::open(
            opening,
            &mut Port {
                ring: hall.tools.ring,
                requests: hall.tools.requests,
                plumbing: hall.tools.plumbing,
                now: hall.tools.now,
                who,
                stalled: false,
            },
        );
        let transport = match opened {
            Ok(transport) => transport,
            Err(error) => {
                hall.tools.engine.handle_disconnect(hall.tools.now, engine);
                return refused(&export, &peer, &error);
            }
        };
        self.connections.insert(Connection {
            generation: who.generation,
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
            _permit: permit,
        });
        tracing::debug!(%export, "client connected");
        self.turns.add(who.index);
        self.turns.make_ready(who.index);
    }
}

fn refused(export: &str, peer: &str, why: &dyn std::fmt::Display) {
    if log_limit::REFUSED.allows(Instant::now()) {
        tracing::warn!(%export, %peer, "client refused: {why}");
    }
}
