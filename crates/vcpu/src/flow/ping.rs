//! Round trips of small packets: sent at fixed times, whatever became of the last one (`ping`).

use super::{Flow, Found, Hop, Orders};
use crate::guest::Token;
use tidegate_core::random::SplitMix64;
use tidegate_core::time::Nanos;

/// The way of a packet and its answer.
#[derive(Clone, Debug)]
pub struct Ping {
    /// What it is called in tokens.
    pub id: u32,
    /// Who handles it one after the other: the client that sends, the driver domain, the guest, the
    /// driver domain, the client that receives.
    pub hops: [Hop; 5],
    /// How far apart they are sent.
    pub period: Nanos,
    /// Up to how much later each is sent, by chance, so that they keep no step with anything.
    pub jitter: Nanos,
    /// How many are sent.
    pub count: u64,
    random: SplitMix64,
    /// When the next would be sent without the jitter, and with it.
    due: Nanos,
    next: Nanos,
    sent: Vec<Nanos>,
    /// By number; zero until the answer is there.
    took: Vec<Nanos>,
    answered: u64,
}

/// The hops whose event comes from the driver domain: what the guest is sent, and the answer.
const ANSWERS: [bool; 5] = [false, false, true, false, true];

impl Ping {
    /// `count` round trips over these hops, from `start` on.
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
        ping.next = ping.due + ping.late();
        ping
    }

    fn late(&mut self) -> Nanos {
        Nanos(self.random.below(self.jitter.0 + 1))
    }

    fn pass(&self, stage: usize, number: u64, orders: &mut Orders) {
        let token = Token {
            flow: self.id,
            stage: stage as u32,
            data: number,
        };
        orders.push_back(self.hops[stage].order(token, ANSWERS[stage]));
    }
}

impl Flow for Ping {
    fn start(&mut self, now: Nanos, orders: &mut Orders) {
        self.on_timer(now, orders);
    }

    fn done(&mut self, now: Nanos, token: Token, orders: &mut Orders) {
        let stage = token.stage as usize + 1;
        if stage < self.hops.len() {
            return self.pass(stage, token.data, orders);
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
            self.due += self.period;
            self.next = self.due + self.late();
            self.pass(0, number, orders);
        }
    }

    fn is_over(&self) -> bool {
        self.answered == self.count
    }

    fn found(&self, _now: Nanos) -> Found {
        let answered = self.took.iter().copied().filter(|&took| took > Nanos::ZERO);
        Found::RoundTrips(answered.collect(), self.sent.len() as u64)
    }
}
