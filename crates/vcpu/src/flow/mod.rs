//! Workloads of guests: state machines that order work on vCPUs and react when it is done.

pub mod cpu;
pub mod disk;
pub mod ping;
pub mod stream;

use crate::guest::{TaskId, Token};
use crate::machine::VcpuId;
use std::collections::VecDeque;
use tidegate_core::time::Nanos;

/// Order for a vCPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    /// Event, such as an interrupt, to be handled by a vCPU.
    Event {
        /// vCPU that handles the event.
        vcpu: VcpuId,
        /// CPU time of handling it.
        cost: Nanos,
        /// Token returned when it was handled.
        token: Token,
        /// True if the event is the driver domain's answer to an I/O, which
        /// [ISACS](crate::schedulers::isacs) counts.
        is_driver_answer: bool,
    },
    /// Work for a process, which must be asleep.
    Work {
        /// vCPU on which the process runs.
        vcpu: VcpuId,
        /// Process on that vCPU.
        task: TaskId,
        /// CPU time of the work; [`Nanos::MAX`]: unlimited.
        cost: Nanos,
        /// Token returned when the work is done.
        token: Token,
    },
    /// Discards the remaining work of a process.
    Stop {
        /// vCPU on which the process runs.
        vcpu: VcpuId,
        /// Process on that vCPU.
        task: TaskId,
    },
}

/// Orders that the world has not carried out yet.
pub type Orders = VecDeque<Order>;

/// Workload of guests, as a state machine.
pub trait Flow {
    /// Starts the flow at time `now`.
    fn start(&mut self, now: Nanos, orders: &mut Orders);

    /// Handles the completion of work that this flow ordered.
    fn done(&mut self, now: Nanos, token: Token, orders: &mut Orders);

    /// Returns the time at which [`Flow::on_timer`] is to be called; `None`: no timer.
    fn next_timer(&self) -> Option<Nanos> {
        None
    }

    /// Handles the expiry of the timer.
    fn on_timer(&mut self, _now: Nanos, _orders: &mut Orders) {}

    /// Returns whether the flow is finite and has ended.
    fn is_over(&self) -> bool {
        false
    }

    /// Returns the results up to `now`.
    fn results(&self, now: Nanos) -> FlowResult;
}

/// Results of a flow.
#[derive(Clone, PartialEq, Debug)]
pub enum FlowResult {
    /// No result beyond the CPU time of its vCPUs.
    Nothing,
    /// Duration of a fixed piece of work; `None`: not finished.
    Work(Option<Nanos>),
    /// Packets that are answered.
    RoundTrips {
        /// Round-trip times in the order of sending.
        times: Vec<Nanos>,
        /// Number of packets sent.
        sent: u64,
    },
    /// Bytes received.
    Received(u64),
    /// Files written: for each, the bytes so far and the time they took.
    Written(Vec<(u64, Nanos)>),
}

/// Step of an I/O path between two VMs, or a VM and a device, through the driver domain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hop {
    /// vCPU that handles the step.
    pub vcpu: VcpuId,
    /// CPU time of the step.
    pub cost: Nanos,
}

impl Hop {
    /// Returns the order that has the step handled.
    pub fn event(self, token: Token) -> Order {
        self.order(token, false)
    }

    /// Returns the order that has the step handled as the driver domain's answer to an I/O.
    pub fn driver_answer(self, token: Token) -> Order {
        self.order(token, true)
    }

    fn order(self, token: Token, is_driver_answer: bool) -> Order {
        Order::Event {
            vcpu: self.vcpu,
            cost: self.cost,
            token,
            is_driver_answer,
        }
    }
}
