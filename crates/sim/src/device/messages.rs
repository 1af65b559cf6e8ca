//! Messages between the hosts that share a device.
//!
//! A host's message goes to every other host, each copy with its own delay; a fraction is lost.

use super::slab::Slab;
use crate::scenario::Exchange;
use crate::seed::generator;
use rand::Rng;
use rand_pcg::Pcg64Mcg;
use tidegate_core::roles::PeerShare;
use tidegate_core::time::Nanos;

/// Message from one host to another.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Message {
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) share: PeerShare,
}

/// Messages that are on their way.
pub(super) struct Messages {
    exchange: Exchange,
    rng: Pcg64Mcg,
    on_the_way: Slab<Message>,
}

impl Messages {
    /// No messages yet, between the hosts of a device.
    pub(super) fn new(exchange: Exchange, seed: u64, device: &str) -> Messages {
        Messages {
            exchange,
            // A VM may have the device's name, and none has this part.
            rng: generator(seed, device, u64::MAX),
            on_the_way: Slab::default(),
        }
    }

    /// Sends a message. Returns the time of its arrival and its number until then; `None` if it is
    /// lost.
    pub(super) fn send(&mut self, now: Nanos, message: Message) -> Option<(Nanos, u32)> {
        let at = self.arrival(now)?;
        Some((at, self.on_the_way.put(message)))
    }

    /// Time at which a message arrives that is sent now; `None` if it is lost.
    fn arrival(&mut self, now: Nanos) -> Option<Nanos> {
        // Without loss nothing is drawn, so delays alone depend on the seed.
        if self.exchange.loss > 0 && self.rng.next_u64() % 1000 < u64::from(self.exchange.loss) {
            return None;
        }
        let delay = self.exchange.delay.as_ref();
        Some(now + delay.map_or(Nanos::ZERO, |delay| delay.draw(&mut self.rng)))
    }

    /// Message that arrives, by its number.
    pub(super) fn arrive(&mut self, number: u32) -> Message {
        self.on_the_way.take(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_workload::time::TimeDistribution;

    fn message(from: usize, to: usize) -> Message {
        let share = PeerShare {
            number: 1,
            ..PeerShare::IDLE
        };
        Message { from, to, share }
    }

    #[test]
    fn a_message_arrives_as_it_was_sent_once_its_delay_is_over() {
        let exchange = Exchange {
            delay: Some(TimeDistribution::Fixed(Nanos(30))),
            loss: 0,
        };
        let mut messages = Messages::new(exchange, 1, "disk");
        let sent = [message(0, 1), message(1, 0)];
        let there = sent.map(|message| messages.send(Nanos(5), message).expect("not lost"));
        assert_eq!(there.map(|it| it.0), [Nanos(35); 2]);
        assert_eq!(there.map(|it| messages.arrive(it.1)), sent);
    }

    #[test]
    fn of_a_thousand_messages_about_as_many_are_lost_as_is_said() {
        let exchange = Exchange {
            delay: None,
            loss: 300,
        };
        let mut messages = Messages::new(exchange, 1, "disk");
        let lost = (0..1000).filter(|_| messages.send(Nanos(5), message(0, 1)).is_none());
        let lost = lost.count();
        assert!((250..=350).contains(&lost), "{lost}");
    }
}
