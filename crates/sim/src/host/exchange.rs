//! Several hosts in front of one device: whose an I/O is, and what the hosts tell each other.
//!
//! Each has an engine of its own, which knows nothing of the others' requests. What an engine has
//! to say goes to every other one, each time by itself: with a delay, and some of it never.

use super::events::Event;
use super::{Host, Slots};
use crate::scenario::Exchange;
use crate::seed::generator;
use rand::Rng;
use rand_pcg::Pcg64Mcg;
use tidegate_core::engine::DeviceSpec;
use tidegate_core::request::IoId;
use tidegate_core::roles::PeerShare;
use tidegate_core::time::Nanos;

/// An engine numbers its I/Os below this in the lower half of a handle: what lies above is free for
/// the host's number.
const SHIFT: u32 = 16;
const _: () = assert!(DeviceSpec::MAX_DEPTH <= 1 << SHIFT);

/// What the device calls a host's I/O. The only host's are called as its engine calls them.
pub(super) fn tag(host: usize, io: IoId) -> u64 {
    io.to_bits() | (host as u64) << SHIFT
}

/// Whose an I/O of the device is, and what its engine calls it.
pub(super) fn sender(tag: u64) -> (usize, IoId) {
    let host = tag as u32 >> SHIFT;
    let id = tag & !(u64::from(u32::MAX >> SHIFT) << SHIFT);
    (host as usize, IoId::from_bits(id))
}

/// Something that is on its way.
struct Message {
    from: u32,
    to: usize,
    share: PeerShare,
}

/// What hosts tell each other.
pub(super) struct Messages {
    exchange: Exchange,
    rng: Pcg64Mcg,
    on_the_way: Slots<Message>,
}

impl Messages {
    pub(super) fn new(exchange: Exchange, seed: u64, device: &str) -> Messages {
        Messages {
            exchange,
            // A tenant may have the device's name, and none has this part.
            rng: generator(seed, device, u64::MAX),
            on_the_way: Slots::default(),
        }
    }

    /// When a message arrives that is sent now; `None`: never.
    fn arrives(&mut self, now: Nanos) -> Option<Nanos> {
        if self.exchange.loss > 0 && self.rng.next_u64() % 1000 < u64::from(self.exchange.loss) {
            return None;
        }
        let delay = self.exchange.delay.as_ref();
        Some(now + delay.map_or(Nanos::ZERO, |delay| delay.draw(&mut self.rng)))
    }
}

impl Host {
    /// Engines that have something to say tell all others.
    pub(super) fn tell(&mut self) {
        for from in 0..self.engines.len() {
            while let Some(share) = self.engines[from].poll_share() {
                for to in (0..self.engines.len()).filter(|&to| to != from) {
                    let Some(at) = self.exchange.arrives(self.now) else {
                        continue;
                    };
                    let from = from as u32;
                    let slot = self.exchange.on_the_way.put(Message { from, to, share });
                    self.events.plan(at, Event::Message(slot));
                }
            }
        }
    }

    /// A message arrives.
    pub(super) fn deliver(&mut self, slot: u32) {
        let Message { from, to, share } = self.exchange.on_the_way.take(slot);
        self.engines[to].handle_peer(self.now, from, &share);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_io_is_known_by_its_host_and_its_engines_name() {
        for host in [0, 1, 63] {
            for (generation, index) in [(0, 0), (7, 4095), (u64::from(u32::MAX), 1)] {
                let io = IoId::from_bits(generation << 32 | index);
                assert_eq!(sender(tag(host, io)), (host, io));
            }
        }
        let io = IoId::from_bits(9 << 32 | 5);
        assert_eq!(tag(0, io), io.to_bits());
    }
}
