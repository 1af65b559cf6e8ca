//! Replies that hold payload memory until a client takes them.

use tidegate_core::engine::Engine;
use tidegate_core::request::{Done, Op, VmId};
use tidegate_core::time::Nanos;

/// Payload memory of answered requests. A reply is sent, and its memory returned, at once unless
/// its VM is in `unread_by`.
#[derive(Default)]
pub struct Replies {
    /// VMs whose clients take no replies.
    pub unread_by: Vec<VmId>,
    /// Replies that are not taken: VM, operation, bytes of payload memory.
    pub held: Vec<(VmId, Op, u32)>,
}

impl Replies {
    /// Sends the reply to an answered request, or keeps it for a VM in `unread_by`.
    pub fn take(&mut self, engine: &mut Engine, now: Nanos, done: &Done) {
        let (vm, op, bytes) = (done.vm, done.op, done.payload);
        // Without payload memory a reply holds nothing that could be held.
        if bytes == 0 {
            return;
        }
        if self.unread_by.contains(&vm) {
            self.held.push((vm, op, bytes));
        } else {
            engine.admission_mut().return_payload(now, vm, op, bytes);
        }
    }

    /// Returns the memory of every reply that is held.
    pub fn return_held(&mut self, engine: &mut Engine, now: Nanos) {
        for (vm, op, bytes) in self.held.drain(..) {
            engine.admission_mut().return_payload(now, vm, op, bytes);
        }
    }
}
