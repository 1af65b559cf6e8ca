//! Ends of connections: one that leaves is answered first, one that vanished, broke a rule or is
//! stuck is not. See the states in [`connection`](super::connection).

use std::time::Instant;

use tidegate_core::time::Nanos;

use super::connection::{Connection, State};
use super::{Frontends, Hall};
use crate::frontend::door::{ConnectionRef, Port};
use crate::log_limit;

/// Time without progress after which a client is cut off while the daemon ends.
const STUCK_AT_END: Nanos = Nanos::from_secs(5);

impl Frontends {
    /// The connection broke, or the client closed it without a word.
    pub(super) fn vanish(&mut self, hall: &mut Hall<'_>, index: u32, errno: Option<i32>) {
        let Some(connection) = self.connections.get(index) else {
            return;
        };
        if connection.state == State::Gone {
            return self.settle(hall, index);
        }
        if log_limit::GONE.allows(Instant::now()) {
            let export = &hall.device.disks[connection.disk].disk.export;
            let why = errno.map_or("closed without a word".to_owned(), |e| {
                std::io::Error::from_raw_os_error(e).to_string()
            });
            let outstanding = connection.outstanding;
            tracing::info!(%export, peer = %connection.peer, outstanding, "client gone: {why}");
        }
        self.close(hall, index);
    }

    /// Ends a connection at once. What is in flight for it goes on without an answer.
    pub(super) fn close(&mut self, hall: &mut Hall<'_>, index: u32) {
        let connection = self.connections.get(index).expect("it is there");
        if connection.state != State::Gone {
            connection.state = State::Gone;
            let id = connection.engine;
            self.with_transport(hall, index, |connection, port| {
                connection.transport.shut_down(port);
            });
            hall.tools.engine.handle_disconnect(hall.tools.now, id);
        }
        self.settle(hall, index);
    }

    /// Lets a connection go when the time has come.
    pub(super) fn settle(&mut self, hall: &mut Hall<'_>, index: u32) {
        let Some(connection) = self.connections.get(index) else {
            return;
        };
        match connection.state {
            State::Leaving if connection.is_quiet() => self.close(hall, index),
            State::Gone if connection.is_at_rest() => self.remove(hall, index),
            State::Open | State::Leaving | State::Gone => {}
        }
    }

    fn remove(&mut self, hall: &mut Hall<'_>, index: u32) {
        let Connection {
            generation,
            transport,
            disk,
            ..
        } = self.connections.remove(index);
        let vm = hall.device.vm_of(disk);
        for queue in &mut hall.vms[vm].stalled {
            queue.retain(|&stalled| stalled != index);
        }
        transport.close(&mut Port {
            ring: hall.tools.ring,
            requests: hall.tools.requests,
            plumbing: hall.tools.plumbing,
            now: hall.tools.now,
            who: ConnectionRef { index, generation },
            stalled: false,
        });
        self.free_ended(hall);
    }

    /// While the daemon ends, cuts off clients that make no progress in a payload or in taking
    /// replies. Before that, no client is cut off for being slow with memory of its VM's guaranteed
    /// part.
    pub(in crate::event_loop) fn cut_off_stuck(&mut self, hall: &mut Hall<'_>) {
        let patience = STUCK_AT_END;
        if hall.tools.may_stall {
            return;
        }
        for index in self.connections.indices() {
            let connection = self.connections.get(index).expect("it is there");
            let Some(what) = connection.transport.stuck(hall.tools.now, patience) else {
                continue;
            };
            if connection.state != State::Gone {
                if log_limit::CUT_OFF.allows(Instant::now()) {
                    let export = &hall.device.disks[connection.disk].disk.export;
                    let peer = &connection.peer;
                    tracing::warn!(%export, %peer, "client cut off: {what} for {patience}");
                }
                self.close(hall, index);
            }
        }
    }

    /// Closes slow connections of VMs that borrow payload memory, while another VM waits for memory
    /// that was lent. Slow is a connection whose current payload or send takes longer than its
    /// frontend [allows](crate::frontend::door::Frontend::overdue). The client may reconnect; no
    /// request is answered with an error.
    pub(in crate::event_loop) fn close_overdue(&mut self, hall: &mut Hall<'_>) {
        if !hall.tools.may_stall || !hall.tools.engine.admission().is_contended() {
            return;
        }
        for index in self.connections.indices() {
            let connection = self.connections.get(index).expect("it is there");
            let vm = hall.device.vm_of(connection.disk);
            if connection.state == State::Gone
                || !hall
                    .tools
                    .engine
                    .admission()
                    .holdings(hall.vms[vm].id)
                    .borrows
            {
                continue;
            }
            let Some(what) = connection
                .transport
                .overdue(hall.tools.now, hall.tools.requests)
            else {
                continue;
            };
            let export = &hall.device.disks[connection.disk].disk.export;
            tracing::warn!(
                %export,
                peer = %connection.peer,
                "connection closed: {what} while its VM holds more than its part of the payload \
                 memory and another VM waits for some"
            );
            self.close(hall, index);
        }
    }
}
