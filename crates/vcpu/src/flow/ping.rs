//! Round trips of small packets sent at fixed times, independently of earlier answers (`ping`).

use super::{Flow, FlowResult, Hop, Orders};
use crate::guest::Token;
use tidegate_core::random::SplitMix64;
use tidegate_core::time::Nanos;

/// Flow of packets and their answers.
#[derive(Clone, Debug)]
pub struct Ping {
    /// Number of this flow in tokens.
    pub id: u32,
    /// Steps of a round trip in order: client (send), driver domain, guest, driver domain, client
    /// (receive).
    pub hops: [Hop; 5],
    /// Time between two packets.
    pub period: Nanos,
    /// Upper bound of the random delay of each packet, which keeps packets out of step with timers.
    pub jitter: Nanos,
    /// Number of packets to send.
    pub count: u64,
    random: SplitMix64,
    /// Nominal time of the next packet, without jitter; `next` has it added.
    due: Nanos,
    next: Nanos,
    sent: Vec<Nanos>,
    /// Round-trip times by packet number; 0 until the answer arrives.
    took: Vec<Nanos>,
    answered: u64,
}

/// Steps whose event comes from the driver domain: delivery to the guest, and the answer.
const ANSWERS: [bool; 5] = [false, false, true, false, true];

impl Ping {
    /// Creates `count` round trips over `hops`, the first at `start`.
    pub fn new(
        id: u32,
        hops: [Hop; 5],
        (start, period, jitter): (Nanos, Nanos, Nanos),
        count: u64,
        seed: u64,
    ) -> Ping {
        let mut ping = Ping {
            id,
            hops,
            // A period of 0 would send all packets at one time, without an end of `on_timer`.
            period: period.max(Nanos(1)),
            jitter,
            count,
            random: SplitMix64::new(seed),
            due: start,
            next: start,
            sent: Vec::with_capacity(count as usize),
            took: Vec::with_capacity(count as usize),
            answered: 0,
        };
        ping.next = ping.due + ping.random_delay();
        ping
    }

    fn random_delay(&mut self) -> Nanos {
        // + 1: the jitter itself can be drawn.
        Nanos(self.random.below(self.jitter.0 + 1))
    }

    fn start_step(&self, stage: usize, number: u64, orders: &mut Orders) {
        let token = Token {
            flow: self.id,
            stage: stage as u32,
            data: number,
        };
        let hop = self.hops[stage];
        orders.push_back(if ANSWERS[stage] {
            hop.driver_answer(token)
        } else {
            hop.event(token)
        });
    }
}

impl Flow for Ping {
    fn start(&mut self, now: Nanos, orders: &mut Orders) {
        self.on_timer(now, orders);
    }

    fn done(&mut self, now: Nanos, token: Token, orders: &mut Orders) {
        let stage = token.stage as usize + 1;
        // The last hop ends the round trip.
        if stage < self.hops.len() {
            return self.start_step(stage, token.data, orders);
        }
        let number = token.data as usize;
        self.took[number] = now.since(self.sent[number]);
        self.answered += 1;
    }

    fn next_timer(&self) -> Option<Nanos> {
        ((self.sent.len() as u64) < self.count).then_some(self.next)
    }

    fn on_timer(&mut self, now: Nanos, orders: &mut Orders) {
        while self.next_timer().is_some_and(|next| next <= now) {
            let number = self.sent.len() as u64;
            self.sent.push(now);
            self.took.push(Nanos::ZERO);
            // The schedule advances by the period, so that jitter does not accumulate.
            self.due += self.period;
            self.next = self.due + self.random_delay();
            self.start_step(0, number, orders);
        }
    }

    fn is_over(&self) -> bool {
        self.answered == self.count
    }

    fn results(&self, _now: Nanos) -> FlowResult {
        // A round trip takes CPU time, so 0 always means that no answer came.
        let answered = self.took.iter().copied().filter(|&took| took > Nanos::ZERO);
        FlowResult::RoundTrips {
            times: answered.collect(),
            sent: self.sent.len() as u64,
        }
    }
}
