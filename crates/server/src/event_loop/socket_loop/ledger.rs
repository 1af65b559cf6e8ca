//! Requests of a socket loop, and which slots of the device's loop are lent to it.

use tidegate_core::time::Nanos;

use crate::frontend::handover::ToDevice;
use crate::frontend::interface::{ConnectionRef, Incoming};
use crate::frontend::request_table::{Payload, Requests};

/// Request table of a socket loop with the slots of the device's loop.
pub(super) struct Ledger {
    /// Requests of the clients, with payloads that are lent.
    pub(super) requests: Requests,
    /// Slot of the device's loop that a request has, by the index of its slot here; `None` until
    /// the device's loop has named it, and while the device's loop has it in its hands.
    lent: Vec<Option<u32>>,
}

impl Ledger {
    /// Creates a ledger on an empty table.
    pub(super) fn new(requests: Requests) -> Ledger {
        Ledger {
            requests,
            lent: Vec::new(),
        }
    }

    /// Takes a slot of the table for a request of a client.
    pub(super) fn insert(
        &mut self,
        owner: ConnectionRef,
        request: &Incoming<u64>,
        since: Nanos,
    ) -> u32 {
        // A table of a socket loop knows neither VMs nor disks.
        let index = self.requests.insert(owner, (0, 0), request, since);
        if self.lent.len() <= index as usize {
            self.lent.resize(index as usize + 1, None);
        }
        index
    }

    /// Notes that a slot of the device's loop, with memory for a payload or a reply, is lent for
    /// the request with this tag.
    ///
    /// # Errors
    /// Returns the message that gives the slot back if the request has left with its client.
    pub(super) fn borrow(
        &mut self,
        tag: u64,
        slot: u32,
        payload: Payload,
    ) -> Result<u32, ToDevice> {
        let Some(index) = self.requests.find(tag) else {
            return Err(ToDevice::Ended { slot, sent: None });
        };
        let lent = self.lent[index as usize].replace(slot);
        debug_assert!(lent.is_none(), "two slots are lent for one request");
        self.requests.get_mut(index).payload = payload;
        Ok(index)
    }

    /// Takes back what is lent for a request that goes to the device's loop, and returns the slot.
    pub(super) fn hand_back(&mut self, index: u32) -> u32 {
        self.requests.get_mut(index).payload = Payload::None;
        let lent = self.lent[index as usize].take();
        lent.expect("memory that was lent")
    }

    /// Frees a request. Returns the message that gives its slot back, if it has one.
    pub(super) fn end(&mut self, index: u32, sent: Option<Nanos>) -> Option<ToDevice> {
        self.requests.release(index);
        self.requests.remove(index);
        let slot = self.lent[index as usize].take()?;
        Some(ToDevice::Ended { slot, sent })
    }

    /// Frees the requests of a client whose transport has ended: those that the device's loop has
    /// in its hands. It gives them up by itself, and what it still says of them meets no request.
    pub(super) fn forget(&mut self, owner: ConnectionRef) {
        for index in self.requests.slots_of(owner) {
            let lent = self.end(index, None);
            debug_assert!(
                lent.is_none(),
                "memory that was lent is not given back: {lent:?}"
            );
        }
    }
}
