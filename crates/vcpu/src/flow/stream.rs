//! Byte stream from a client to a guest with a TCP-like window (`iperf`).
//!
//! The client sends chunks while fewer than a window are in flight. A chunk passes the client, the
//! driver domain, the guest's interrupt and the receiving process; its acknowledgement passes the
//! driver domain and the client. The window starts small and grows by one chunk per
//! acknowledgement.

use super::{Flow, FlowResult, Hop, Order, Orders};
use crate::guest::{TaskId, Token};
use tidegate_core::time::Nanos;

/// Steps that a chunk, and then its acknowledgement, passes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ChunkPath {
    /// Client, which sends the chunk.
    pub send: Hop,
    /// Driver domain, for the chunk.
    pub forward: Hop,
    /// Interrupt in the guest.
    pub interrupt: Hop,
    /// Receiving process in the guest, on the vCPU of the interrupt, and its CPU time per chunk.
    pub receive: (TaskId, Nanos),
    /// Driver domain, for the acknowledgement.
    pub back: Hop,
    /// Client, for the acknowledgement.
    pub acknowledge: Hop,
}

/// Flow of one stream.
#[derive(Clone, Debug)]
pub struct Stream {
    /// Number of this flow in tokens.
    pub id: u32,
    /// Steps that a chunk passes.
    pub path: ChunkPath,
    /// Size of a chunk in bytes.
    pub chunk: u64,
    /// Largest number of chunks in flight.
    pub window: u64,
    /// Time at which the stream starts.
    pub begins: Nanos,
    has_begun: bool,
    /// Current window in chunks.
    current_window: u64,
    in_flight: u64,
    /// Chunks that the guest's interrupt has handled and the process has not.
    arrived: u64,
    is_receiving: bool,
    received: u64,
}

// Stages of tokens: the step that has just finished.
const SENT: u32 = 0;
const FORWARDED: u32 = 1;
const ARRIVED: u32 = 2;
const RECEIVED: u32 = 3;
const RETURNED: u32 = 4;
const ACKNOWLEDGED: u32 = 5;
/// Initial window in chunks.
const FIRST_WINDOW: u64 = 2;

impl Stream {
    /// Creates a stream that starts at `begins`; a window below one chunk becomes one chunk.
    pub fn new(id: u32, path: ChunkPath, chunk: u64, window: u64, begins: Nanos) -> Stream {
        Stream {
            id,
            path,
            chunk,
            window: window.max(1),
            begins,
            has_begun: false,
            current_window: FIRST_WINDOW.min(window.max(1)),
            in_flight: 0,
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

    fn send_chunks(&mut self, orders: &mut Orders) {
        while self.in_flight < self.current_window {
            self.in_flight += 1;
            orders.push_back(self.path.send.event(self.token(SENT)));
        }
    }

    fn start_receiving(&mut self, orders: &mut Orders) {
        // The process handles one chunk at a time; others stay in the guest's socket buffer.
        if self.arrived > 0 && !self.is_receiving {
            self.arrived -= 1;
            self.is_receiving = true;
            let (task, cost) = self.path.receive;
            orders.push_back(Order::Work {
                vcpu: self.path.interrupt.vcpu,
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
        let path = self.path;
        match token.stage {
            SENT => orders.push_back(path.forward.event(self.token(FORWARDED))),
            FORWARDED => orders.push_back(path.interrupt.driver_answer(self.token(ARRIVED))),
            ARRIVED => {
                self.arrived += 1;
                self.start_receiving(orders);
            }
            RECEIVED => {
                self.received += self.chunk;
                self.is_receiving = false;
                orders.push_back(path.back.event(self.token(RETURNED)));
                self.start_receiving(orders);
            }
            RETURNED => {
                orders.push_back(path.acknowledge.driver_answer(self.token(ACKNOWLEDGED)));
            }
            ACKNOWLEDGED => {
                self.in_flight -= 1;
                // Slow start without losses: the window grows by one chunk per acknowledgement.
                self.current_window = (self.current_window + 1).min(self.window);
                self.send_chunks(orders);
            }
            // Only this flow makes its tokens: another stage would corrupt the window unnoticed.
            stage => unreachable!("a stream has no stage {stage}"),
        }
    }

    fn next_timer(&self) -> Option<Nanos> {
        (!self.has_begun).then_some(self.begins)
    }

    fn on_timer(&mut self, now: Nanos, orders: &mut Orders) {
        if now >= self.begins && !self.has_begun {
            self.has_begun = true;
            self.send_chunks(orders);
        }
    }

    fn results(&self, _now: Nanos) -> FlowResult {
        FlowResult::Received(self.received)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::VcpuId;

    #[test]
    #[should_panic(expected = "a stream has no stage 6")]
    fn an_unknown_stage_is_not_an_acknowledgement() {
        let hop = Hop {
            vcpu: VcpuId(0),
            cost: Nanos(1),
        };
        let path = ChunkPath {
            send: hop,
            forward: hop,
            interrupt: hop,
            receive: (TaskId(0), Nanos(1)),
            back: hop,
            acknowledge: hop,
        };
        let mut stream = Stream::new(0, path, 1, 4, Nanos::ZERO);
        let mut orders = Orders::new();
        stream.start(Nanos::ZERO, &mut orders);
        let unknown = stream.token(ACKNOWLEDGED + 1);
        stream.done(Nanos::ZERO, unknown, &mut orders);
    }
}
