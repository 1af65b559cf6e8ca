//! Connections of a loop: served by turns, answered, closed. What they speak is behind the
//! [door](crate::frontend::door).
//!
//! ```text
//!   ready connections --turns--> intake: poll, claim, hand in to the engine
//!   requests that the engine has finished --> answer --> exchange: send, receive
//! ```

mod adopt;
mod answer;
mod close;
mod connection;
mod extents;
mod intake;
mod turns;

use super::device::{Device, Tools};
use super::vms::Vms;

pub(super) use connection::CONNECTIONS_MAX;
use connection::{Connection, Connections, State};
use turns::Turns;

/// Connections of a loop, and whose turn it is.
#[derive(Default)]
pub(super) struct Frontends {
    connections: Connections,
    turns: Turns,
    /// True if requests were handed in after this turn's dispatch, so that the next turn must not
    /// wait.
    handed_in_late: bool,
}

/// Parts of the loop that its connections work with.
pub(super) struct Hall<'a> {
    pub(super) tools: Tools<'a>,
    pub(super) vms: &'a mut Vms,
    pub(super) device: &'a mut Device,
}

impl Frontends {
    /// Returns true if a connection is to be served, or the engine asked, without waiting.
    #[inline]
    pub(super) fn is_busy(&self) -> bool {
        self.turns.waiting() > 0 || self.handed_in_late
    }

    /// Notes that all requests handed in so far will be dispatched.
    #[inline]
    pub(super) fn begin_dispatch(&mut self) {
        self.handed_in_late = false;
    }

    /// Connections, those that are being closed included.
    pub(super) fn len(&self) -> usize {
        self.connections.len()
    }

    /// Number of connections to one of these disks.
    pub(super) fn count_of(&self, disks: &[usize]) -> usize {
        let theirs = self.connections.iter().filter(|c| disks.contains(&c.disk));
        theirs.count()
    }

    /// Peers that are connected to one of these disks, each with its disk.
    pub(super) fn peers_of(&self, disks: &[usize]) -> impl Iterator<Item = (&str, usize)> {
        let theirs = move |c: &&Connection| disks.contains(&c.disk) && c.state != State::Gone;
        let connections = self.connections.iter().filter(theirs);
        connections.map(|connection| (connection.peer.as_str(), connection.disk))
    }

    /// Has every connection answered and closed; none is read from any more.
    pub(super) fn begin_drain(&mut self, hall: &mut Hall<'_>) {
        for index in self.connections.indices() {
            let connection = self.connections.get(index).expect("it is there");
            if connection.state == State::Open {
                connection.state = State::Leaving;
            }
            self.settle(hall, index);
        }
    }

    /// Closes the connections to these disks at once.
    pub(super) fn cut_off(&mut self, hall: &mut Hall<'_>, disks: &[usize], why: &str) {
        for index in self.connections.indices() {
            let connection = self.connections.get(index).expect("it is there");
            if !disks.contains(&connection.disk) || connection.state == State::Gone {
                continue;
            }
            let export = &hall.device.disks[connection.disk].disk.export;
            tracing::info!(%export, peer = %connection.peer, "client cut off: {why}");
            self.close(hall, index);
        }
    }
}
