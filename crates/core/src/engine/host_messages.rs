//! Messages among hosts that share a device.

use super::Engine;
use crate::roles::{Event, PeerShare};
use tidegate_base::time::Nanos;

impl Engine {
    /// Takes a message of another host that shares the device, as its [`Engine::poll_share`]
    /// returned it; messages may be late or lost. `host`: a number that identifies the sender in
    /// all its messages.
    pub fn handle_peer(&mut self, now: Nanos, host: u32, share: &PeerShare) {
        self.view.queues.advance(now);
        self.active
            .emit(&mut self.view, &Event::Peer { host, share });
    }

    /// Returns the next message for the other hosts that share the device; to be called after every
    /// event, until `None`. Not needed on a device of one host.
    pub fn poll_share(&mut self) -> Option<PeerShare> {
        self.active.roles.controller.as_mut()?.poll_share()
    }
}
