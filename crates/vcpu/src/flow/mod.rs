//! What guests are busy with: each a small state machine that hands out work and hears when it is
//! done.

pub mod cpu;
pub mod disk;
pub mod ping;
pub mod stream;

use crate::guest::{TaskId, Token};
use crate::machine::VcpuId;
use std::collections::VecDeque;
use tidegate_core::time::Nanos;

/// Work for a vCPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    /// An event, and what it costs to handle it.
    Event {
        /// Whom it is for.
        vcpu: VcpuId,
        /// What handling it takes.
        cost: Nanos,
        /// What is said when it is handled.
        token: Token,
        /// Whether it is the driver domain's answer to an I/O, which ISACS counts.
        answers: bool,
    },
    /// Work for a process, which must be asleep.
    Work {
        /// Where it runs.
        vcpu: VcpuId,
        /// Which process.
        task: TaskId,
        /// How much; [`Nanos::MAX`]: without end.
        cost: Nanos,
        /// What is said when it is done.
        token: Token,
    },
    /// A process leaves its work undone.
    Stop {
        /// Where it runs.
        vcpu: VcpuId,
        /// Which process.
        task: TaskId,
    },
}

/// Orders that are still to be carried out.
pub type Orders = VecDeque<Order>;

/// Something guests are busy with.
pub trait Flow {
    /// Time begins.
    fn start(&mut self, now: Nanos, orders: &mut Orders);

    /// Work it had ordered is done.
    fn done(&mut self, now: Nanos, token: Token, orders: &mut Orders);

    /// When it wants [`Flow::on_timer`] called.
    fn next_timer(&self) -> Option<Nanos> {
        None
    }

    /// Its time has come.
    fn on_timer(&mut self, _now: Nanos, _orders: &mut Orders) {}

    /// Whether it has an end and has come to it.
    fn is_over(&self) -> bool {
        false
    }

    /// What came of it until `now`.
    fn found(&self, now: Nanos) -> Found;
}

/// What came of a flow.
#[derive(Clone, PartialEq, Debug)]
pub enum Found {
    /// Nothing that is counted: how long its vCPUs ran says it all.
    Nothing,
    /// A fixed piece of work took so long; `None`: it is not done.
    Work(Option<Nanos>),
    /// Round trips, in the order in which they were sent, and how many were sent.
    RoundTrips(Vec<Nanos>, u64),
    /// So many bytes were received.
    Received(u64),
    /// Files were written: for each the bytes so far, and how long that took.
    Written(Vec<(u64, Nanos)>),
}

/// The way of I/O between two virtual machines, or of one and a device, through the driver domain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hop {
    /// Who handles it.
    pub vcpu: VcpuId,
    /// What that takes.
    pub cost: Nanos,
}

impl Hop {
    /// This hop as an event; `answers`: it comes from the driver domain.
    pub fn order(self, token: Token, answers: bool) -> Order {
        Order::Event {
            vcpu: self.vcpu,
            cost: self.cost,
            token,
            answers,
        }
    }
}
