//! Connections of a disk in the ring. They begin and end together, see
//! [`recovery`](tidegate_nbd::client::recovery).

use std::io;
use std::os::fd::OwnedFd;

use tidegate_core::time::Nanos;
use tidegate_nbd::client::recovery::Export;

use super::NbdIos;
use super::connector::Spare;
use super::memory::Buffers;
use super::wire::{Broken, Wire};
use crate::backing::interface::Port;
use crate::ring::Ring;

/// Time for answers on the other connections once one has broken. Those of a server that was killed
/// break at once, so that only slow storage needs it. Longer than storage mostly takes, because
/// what is not answered by then is sent again beside what the server may still carry out.
const DRAIN_WITHIN: Nanos = Nanos::from_millis(10_000);

/// Connections to one server.
#[derive(Debug)]
pub(super) struct Connections {
    wires: Vec<Wire>,
    /// Other descriptor and transport of each.
    spares: Vec<Spare>,
    /// Loop time at which the first one broke; `None` while all work.
    broken_since: Option<Nanos>,
    /// Loop time of the last timer for a step of the replay.
    step_at: Nanos,
}

impl Connections {
    /// Adds the sockets to the ring, as many as there is room for.
    ///
    /// # Errors
    /// If there is no room for any.
    pub(super) fn add(ring: &mut Ring, sockets: Vec<(OwnedFd, Spare)>) -> io::Result<Connections> {
        let mut all = Connections {
            wires: Vec::with_capacity(sockets.len()),
            spares: Vec::with_capacity(sockets.len()),
            broken_since: None,
            step_at: Nanos::ZERO,
        };
        for (on, (socket, spare)) in sockets.into_iter().enumerate() {
            match ring.add_file(socket) {
                Ok(entry) => {
                    all.wires.push(Wire::new(on, entry));
                    all.spares.push(spare);
                }
                Err(error) if on == 0 => return Err(error),
                // Nothing was sent on any of them, so that the others do as well.
                Err(_) => break,
            }
        }
        Ok(all)
    }

    /// Returns the number of connections.
    pub(super) fn len(&self) -> usize {
        self.wires.len()
    }

    /// Returns a connection.
    pub(super) fn wire(&mut self, on: usize) -> &mut Wire {
        &mut self.wires[on]
    }

    /// Returns true if one has broken, so that all of them end.
    pub(super) fn are_broken(&self) -> bool {
        self.broken_since.is_some()
    }

    /// Returns true if no operation of any is with the kernel.
    pub(super) fn are_at_rest(&self) -> bool {
        self.wires.iter().all(Wire::is_at_rest)
    }

    /// Returns true if the server has got whole requests only, on all of them.
    pub(super) fn are_between_requests(&self) -> bool {
        !self.are_broken() && self.wires.iter().all(Wire::is_between_requests)
    }

    /// Sends and receives as far as there is something to.
    pub(super) fn exchange(
        &mut self,
        export: &mut Export,
        buffers: &Buffers,
        ios: &NbdIos,
        port: &mut Port<'_>,
    ) {
        // Each request goes where the fewest are under way, so that a server that works on one
        // request of a connection at a time has something to do on all.
        let room = |wires: &[Wire], export: &Export| {
            let with_room = wires.iter().filter(|wire| wire.has_room());
            let least = with_room.min_by_key(|wire| export.awaited(wire.on));
            least.map(|wire| wire.on)
        };
        while let Some(on) = room(&self.wires, export)
            && let Some(outgoing) = export.poll_send(on)
        {
            self.wires[on].put(outgoing, buffers, ios);
        }
        // One timer at a time: each would cause the next one.
        let is_due = self.step_at <= port.now;
        if is_due && export.is_gathering() && room(&self.wires, export).is_some() {
            // In the next turn, so that other disks have theirs.
            self.step_at = port.now + Nanos(1);
            port.wake_at(self.step_at);
        }
        for wire in &mut self.wires {
            wire.start(export, buffers, ios, port);
        }
    }

    /// Breaks one off, and has the others take the answers that are under way: a server that works
    /// would otherwise go on with what it has got, beside what is sent again. Returns true if it is
    /// the first that has broken.
    pub(super) fn break_one(
        &mut self,
        on: usize,
        why: &Broken,
        export: &mut Export,
        port: &mut Port<'_>,
    ) -> bool {
        let is_first = self.broken_since.is_none();
        self.wires[on].break_off(port);
        self.broken_since.get_or_insert(port.now);
        export.stop();
        if !why.leaves_others() {
            self.break_all(port);
        }
        port.wake_at(port.now + DRAIN_WITHIN);
        is_first
    }

    /// Breaks all of them off.
    pub(super) fn break_all(&mut self, port: &mut Port<'_>) {
        self.broken_since.get_or_insert(port.now);
        for wire in &mut self.wires {
            wire.break_off(port);
        }
    }

    /// Returns true if all have ended, and the kernel works on no memory of them.
    pub(super) fn have_ended(&mut self, export: &Export, port: &mut Port<'_>) -> bool {
        let Some(since) = self.broken_since else {
            return false;
        };
        let is_drained =
            |wire: &Wire| wire.broken || (wire.is_sent() && export.awaited(wire.on) == 0);
        if self.wires.iter().all(is_drained) || port.now >= since + DRAIN_WITHIN {
            self.break_all(port);
        }
        self.wires.iter().all(|wire| wire.broken) && self.are_at_rest()
    }

    /// Removes the sockets from the ring.
    pub(super) fn remove(self, ring: &mut Ring) -> Vec<Spare> {
        for wire in &self.wires {
            // Closing a socket does not block.
            drop(ring.remove_file(wire.entry));
        }
        self.spares
    }

    /// Returns what each has beside its socket, once the ring is gone.
    pub(super) fn into_spares(self) -> Vec<Spare> {
        self.spares
    }
}
