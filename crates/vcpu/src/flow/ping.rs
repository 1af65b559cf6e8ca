//! Round trips of small packets sent at fixed times, independently of earlier answers (`ping`).

use super::{Flow, FlowResult, Hop, Order, Orders};
use crate::guest::{TaskId, Token};
use std::collections::VecDeque;
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
    /// Number of packets sent at one time, at least 1.
    burst: u64,
    /// Process in the guest that answers after the interrupt, and its CPU time per packet; `None`:
    /// the interrupt answers.
    process: Option<(TaskId, Nanos)>,
    /// Packets that the guest's interrupt has handled and the process has not; the process works
    /// on the first.
    arrived: VecDeque<u64>,
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

/// Step in the guest.
const GUEST: usize = 2;
/// Stage of a token of the process that answers, beyond the steps.
const ANSWERED: u32 = 5;

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
            burst: 1,
            process: None,
            arrived: VecDeque::new(),
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

    /// Sends packets in groups of `burst` at one time; the period is that of the groups.
    #[must_use]
    pub fn in_bursts(self, burst: u64) -> Ping {
        Ping {
            burst: burst.max(1),
            ..self
        }
    }

    /// Has each packet answered by a process that needs the given CPU time.
    #[must_use]
    pub fn answered_by(self, process: Option<(TaskId, Nanos)>) -> Ping {
        Ping { process, ..self }
    }

    /// Gives the process the first packet that waits for it.
    fn start_process(&self, process: (TaskId, Nanos), orders: &mut Orders) {
        let Some(&number) = self.arrived.front() else {
            return;
        };
        let (task, cost) = process;
        orders.push_back(Order::Work {
            vcpu: self.hops[GUEST].vcpu,
            task,
            cost,
            token: Token {
                flow: self.id,
                stage: ANSWERED,
                data: number,
            },
        });
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
        if token.stage == ANSWERED {
            self.arrived.pop_front();
            self.process
                .into_iter()
                .for_each(|process| self.start_process(process, orders));
            return self.start_step(GUEST + 1, token.data, orders);
        }
        let stage = token.stage as usize + 1;
        if let Some(process) = self.process.filter(|_| stage == GUEST + 1) {
            self.arrived.push_back(token.data);
            // One packet at a time; the others stay in the guest's socket buffer.
            if self.arrived.len() == 1 {
                self.start_process(process, orders);
            }
            return;
        }
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
            let first = self.sent.len() as u64;
            let last = (first + self.burst).min(self.count);
            for number in first..last {
                self.sent.push(now);
                self.took.push(Nanos::ZERO);
                self.start_step(0, number, orders);
            }
            // The schedule advances by the period, so that jitter does not accumulate.
            self.due += self.period;
            self.next = self.due + self.random_delay();
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
