//! Replies that hold payload memory until a client takes them.

use tidegate_core::engine::Engine;
use tidegate_core::request::{Done, Op, VmId};
use tidegate_core::time::Nanos;

/// Payload memory of answered requests. A reply is sent, and its memory returned, at once unless
/// its VM is in `deaf`.
#[derive(Default)]
pub struct Replies {
    /// VMs whose clients take no replies.
    pub deaf: Vec<VmId>,
    /// Replies that are not taken: VM, operation, bytes of payload memory.
    pub kept: Vec<(VmId, Op, u32)>,
}

impl Replies {
    /// Sends the reply to an answered request, or keeps it for a VM in `deaf`.
    pub fn take(&mut self, engine: &mut Engine, now: Nanos, done: &Done) {
        let (vm, op, bytes) = (done.vm, done.op, done.payload);
        // Without payload memory a reply holds nothing that could be kept.
        if bytes == 0 {
            return;
        }
        if self.deaf.contains(&vm) {
            self.kept.push((vm, op, bytes));
        } else {
            engine.admission_mut().return_payload(now, vm, op, bytes);
        }
    }

    /// Returns the memory of every reply that was kept.
    pub fn return_kept(&mut self, engine: &mut Engine, now: Nanos) {
        for (vm, op, bytes) in self.kept.drain(..) {
            engine.admission_mut().return_payload(now, vm, op, bytes);
        }
    }
}
