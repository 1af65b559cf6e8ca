//! A stream of bytes from a client to a guest, with a window as TCP has one (`iperf`).
//!
//! The client sends chunks as long as fewer than a window are on their way. A chunk is handled by
//! the client, the driver domain, the guest's interrupt and the process that receives; its
//! acknowledgement by the driver domain and the client. The window begins small and grows by a
//! chunk with each acknowledgement.

use super::{Flow, Found, Hop, Order, Orders};
use crate::guest::{TaskId, Token};
use tidegate_core::time::Nanos;

/// Where a chunk, and then its acknowledgement, is handled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Way {
    /// The client, which sends.
    pub send: Hop,
    /// The driver domain.
    pub forward: Hop,
    /// The guest's interrupt.
    pub interrupt: Hop,
    /// The guest's process, on the vCPU of the interrupt.
    pub receive: (TaskId, Nanos),
    /// The driver domain, for the acknowledgement.
    pub back: Hop,
    /// The client, for the acknowledgement.
    pub acknowledge: Hop,
}

/// A stream.
#[derive(Clone, Debug)]
pub struct Stream {
    /// What it is called in tokens.
    pub id: u32,
    /// The way of a chunk.
    pub way: Way,
    /// Bytes of a chunk.
    pub chunk: u64,
    /// The most chunks on their way at once.
    pub window: u64,
    /// When it begins.
    pub begins: Nanos,
    has_begun: bool,
    /// How many may be on their way now.
    allowed: u64,
    on_way: u64,
    /// In the guest, and not received by the process yet.
    arrived: u64,
    is_receiving: bool,
    received: u64,
}

const SENT: u32 = 0;
const FORWARDED: u32 = 1;
const ARRIVED: u32 = 2;
const RECEIVED: u32 = 3;
const RETURNED: u32 = 4;
const ACKNOWLEDGED: u32 = 5;
/// Chunks that may be on their way at the beginning.
const FIRST_WINDOW: u64 = 2;

impl Stream {
    /// A stream that begins at `begins`.
    pub fn new(id: u32, way: Way, chunk: u64, window: u64, begins: Nanos) -> Stream {
        Stream {
            id,
            way,
            chunk,
            window: window.max(1),
            begins,
            has_begun: false,
            allowed: FIRST_WINDOW.min(window.max(1)),
            on_way: 0,
            arrived: 0,
            is_receiving: false,
            received: 0,
        }
    }

    fn token(&self, stage: u32) -> Token {
        Token {
            flow: self.id,
            stage,
            data: 0,
        }
    }

    fn fill(&mut self, orders: &mut Orders) {
        while self.on_way < self.allowed {
            self.on_way += 1;
            orders.push_back(self.way.send.order(self.token(SENT), false));
        }
    }

    fn receive(&mut self, orders: &mut Orders) {
        if self.arrived > 0 && !self.is_receiving {
            self.arrived -= 1;
            self.is_receiving = true;
            let (task, cost) = self.way.receive;
            orders.push_back(Order::Work {
                vcpu: self.way.interrupt.vcpu,
                task,
                cost,
                token: self.token(RECEIVED),
            });
        }
    }
}

impl Flow for Stream {
    fn start(&mut self, now: Nanos, orders: &mut Orders) {
        self.on_timer(now, orders);
    }

    fn done(&mut self, _now: Nanos, token: Token, orders: &mut Orders) {
        let way = self.way;
        match token.stage {
            SENT => orders.push_back(way.forward.order(self.token(FORWARDED), false)),
            FORWARDED => orders.push_back(way.interrupt.order(self.token(ARRIVED), true)),
            ARRIVED => {
                self.arrived += 1;
                self.receive(orders);
            }
            RECEIVED => {
                self.received += self.chunk;
                self.is_receiving = false;
                orders.push_back(way.back.order(self.token(RETURNED), false));
                self.receive(orders);
            }
            RETURNED => {
                orders.push_back(way.acknowledge.order(self.token(ACKNOWLEDGED), true));
            }
            _ => {
                self.on_way -= 1;
                self.allowed = (self.allowed + 1).min(self.window);
                self.fill(orders);
            }
        }
    }

    fn next_timer(&self) -> Option<Nanos> {
        (!self.has_begun).then_some(self.begins)
    }

    fn on_timer(&mut self, now: Nanos, orders: &mut Orders) {
        if now >= self.begins && !self.has_begun {
            self.has_begun = true;
            self.fill(orders);
        }
    }

    fn found(&self, _now: Nanos) -> Found {
        Found::Received(self.received)
    }
}
