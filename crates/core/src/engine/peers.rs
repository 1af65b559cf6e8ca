//! What hosts that share a device tell each other.

use super::Engine;
use crate::roles::{Event, PeerShare};
use tidegate_base::time::Nanos;

impl Engine {
    /// Another host that shares the device says how it is: what its [`Engine::poll_share`]
    /// returned, after however long, if it arrives at all. `host` is the same for all that it says,
    /// and nobody else's.
    pub fn handle_peer(&mut self, now: Nanos, host: u32, share: &PeerShare) {
        self.facts.queues.advance(now);
        self.active
            .emit(&mut self.facts, &Event::Peer { host, share });
    }

    /// What the other hosts that share the device are to be told; to be asked after every event,
    /// until `None`. Where nobody shares it, nobody need ask.
    pub fn poll_share(&mut self) -> Option<PeerShare> {
        self.active.roles.controller.as_mut()?.poll_share()
    }
}
