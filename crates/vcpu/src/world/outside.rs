//! How another world drives this one: it delivers, and hears what was handled.

use super::VcpuWorld;
use crate::flow::Order;
use crate::guest::{TaskId, Token};
use crate::machine::VcpuId;
use tidegate_core::time::Nanos;

/// The flow of tokens that come from outside.
const OUTSIDE: u32 = u32::MAX;

fn token(tag: u64) -> Token {
    Token {
        flow: OUTSIDE,
        stage: 0,
        data: tag,
    }
}

/// What something was called outside; `None`: a flow's.
pub(super) fn tag(token: Token) -> Option<u64> {
    (token.flow == OUTSIDE).then_some(token.data)
}

/// Something from outside that a vCPU has handled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Handled {
    /// What it was called.
    pub tag: u64,
    /// When.
    pub at: Nanos,
}

impl VcpuWorld {
    /// From now on it is only taken on by [`VcpuWorld::run_to_handled`].
    #[must_use]
    pub fn driven(self) -> VcpuWorld {
        VcpuWorld {
            driven: true,
            ..self
        }
    }

    /// Lets time pass to the first that was handled of what came from outside, or to `until` where
    /// that is nothing. What it tells is true right now: work that is given before this is called
    /// again finds the vCPU where it was, which did not block in between.
    pub fn run_to_handled(&mut self, until: Nanos) -> Option<Handled> {
        loop {
            self.settle();
            if let Some(handled) = self.handled.pop_front() {
                return Some(handled);
            }
            match self.events.peek() {
                Some((at, id)) if at <= until => self.happen(at, id),
                _ => break,
            }
        }
        self.now = self.now.max(until);
        None
    }

    /// Gives `v` an event to handle, now, which takes it `cost`; `answers`: it is the driver
    /// domain's answer to an I/O. [`VcpuWorld::poll_handled`] says when, and calls it `tag`.
    pub fn deliver(&mut self, v: VcpuId, cost: Nanos, tag: u64, answers: bool) {
        self.order(Order::Event {
            vcpu: v,
            cost,
            token: token(tag),
            answers,
        });
    }

    /// Gives a process of `v` that sleeps work of `cost`, now. It is told of like an event.
    ///
    /// # Panics
    /// When the process has work already.
    pub fn work(&mut self, v: VcpuId, task: TaskId, cost: Nanos, tag: u64) {
        self.order(Order::Work {
            vcpu: v,
            task,
            cost,
            token: token(tag),
        });
    }

    fn order(&mut self, order: Order) {
        self.orders.push_back(order);
        if !self.driven {
            self.settle();
        }
    }

    /// The next event from outside that was handled.
    pub fn poll_handled(&mut self) -> Option<Handled> {
        self.handled.pop_front()
    }

    /// Somebody is to hear first what was handled.
    pub(super) fn pauses(&self) -> bool {
        self.driven && !self.handled.is_empty()
    }
}
