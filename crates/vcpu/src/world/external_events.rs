//! Interface for another simulation that drives this one: deliver events, collect those handled.

use super::VcpuWorld;
use crate::flow::Order;
use crate::guest::{TaskId, Token};
use crate::machine::VcpuId;
use tidegate_core::time::Nanos;

/// Flow number of tokens that belong to an external caller.
const EXTERNAL_FLOW: u32 = u32::MAX;

fn external_token(tag: u64) -> Token {
    Token {
        flow: EXTERNAL_FLOW,
        stage: 0,
        data: tag,
    }
}

/// Tag that the external caller gave to the work; `None`: the token belongs to a flow.
pub(super) fn external_tag(token: Token) -> Option<u64> {
    (token.flow == EXTERNAL_FLOW).then_some(token.data)
}

/// External event or work that a vCPU has handled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Handled {
    /// Tag given by the caller.
    pub tag: u64,
    /// Time at which handling ended.
    pub at: Nanos,
}

impl VcpuWorld {
    /// Makes the world advance only by [`VcpuWorld::run_to_handled`].
    #[must_use]
    pub fn driven(self) -> VcpuWorld {
        VcpuWorld {
            driven: true,
            ..self
        }
    }

    /// Advances to the next handled external event, or to `until` if there is none before.
    ///
    /// The returned event has just been handled: work given before the next call finds the vCPU
    /// where it was, without a block in between.
    pub fn run_to_handled(&mut self, until: Nanos) -> Option<Handled> {
        loop {
            self.settle();
            if let Some(handled) = self.handled.pop_front() {
                return Some(handled);
            }
            match self.events.peek() {
                Some((at, id)) if at <= until => self.process_event(at, id),
                _ => break,
            }
        }
        self.now = self.now.max(until);
        None
    }

    /// Gives `v` an external event whose handling takes `cost`, starting now. `is_driver_answer`
    /// marks the
    /// driver domain's answer to an I/O. [`VcpuWorld::poll_handled`] returns it as `tag` once
    /// handled.
    pub fn deliver(&mut self, v: VcpuId, cost: Nanos, tag: u64, is_driver_answer: bool) {
        self.order(Order::Event {
            vcpu: v,
            cost,
            token: external_token(tag),
            is_driver_answer,
        });
    }

    /// Gives a sleeping process of `v` work of `cost`, starting now. Completion is reported like
    /// that of an event.
    ///
    /// # Panics
    /// The process already has work.
    pub fn work(&mut self, v: VcpuId, task: TaskId, cost: Nanos, tag: u64) {
        self.order(Order::Work {
            vcpu: v,
            task,
            cost,
            token: external_token(tag),
        });
    }

    fn order(&mut self, order: Order) {
        self.orders.push_back(order);
        // A driven world settles in `run_to_handled`, so that its caller sees every result first.
        if !self.driven {
            self.settle();
        }
    }

    /// Returns the next handled external event.
    pub fn poll_handled(&mut self) -> Option<Handled> {
        self.handled.pop_front()
    }

    /// Returns whether the caller must take a handled event before anything else happens.
    pub(super) fn awaits_caller(&self) -> bool {
        self.driven && !self.handled.is_empty()
    }
}
