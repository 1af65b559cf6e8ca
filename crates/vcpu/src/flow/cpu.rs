//! Processor work: without end (`stress`), or a fixed amount (`sysbench`, looking for primes).

use super::{Flow, Found, Order, Orders};
use crate::guest::{TaskId, Token};
use crate::machine::VcpuId;
use tidegate_core::time::Nanos;

/// Processes that do nothing but work, one a vCPU.
#[derive(Clone, Debug)]
pub struct Cpu {
    /// What it is called in tokens.
    pub id: u32,
    /// Where its processes run, and when each begins.
    pub tasks: Vec<(VcpuId, TaskId, Nanos)>,
    /// Work of each; [`Nanos::MAX`]: without end.
    pub work: Nanos,
    /// How many of them have begun.
    begun: usize,
    /// How many of them are done, and when the last one was.
    ended: (usize, Nanos),
}

impl Cpu {
    /// Processes with so much work each, which begin at the given times.
    pub fn new(id: u32, mut tasks: Vec<(VcpuId, TaskId, Nanos)>, work: Nanos) -> Cpu {
        tasks.sort_by_key(|&(_, _, at)| at);
        Cpu {
            id,
            tasks,
            work,
            begun: 0,
            ended: (0, Nanos::ZERO),
        }
    }
}

impl Flow for Cpu {
    fn start(&mut self, now: Nanos, orders: &mut Orders) {
        self.on_timer(now, orders);
    }

    fn done(&mut self, now: Nanos, _token: Token, _orders: &mut Orders) {
        self.ended = (self.ended.0 + 1, now);
    }

    fn next_timer(&self) -> Option<Nanos> {
        self.tasks.get(self.begun).map(|&(_, _, at)| at)
    }

    fn on_timer(&mut self, now: Nanos, orders: &mut Orders) {
        while let Some(&(vcpu, task, at)) = self.tasks.get(self.begun)
            && at <= now
        {
            self.begun += 1;
            orders.push_back(Order::Work {
                vcpu,
                task,
                cost: self.work,
                token: Token {
                    flow: self.id,
                    stage: 0,
                    data: 0,
                },
            });
        }
    }

    fn is_over(&self) -> bool {
        self.ended.0 == self.tasks.len()
    }

    fn found(&self, _now: Nanos) -> Found {
        if self.work == Nanos::MAX {
            return Found::Nothing;
        }
        let began = self.tasks.first().map_or(Nanos::ZERO, |&(_, _, at)| at);
        Found::Work(self.is_over().then(|| self.ended.1.since(began)))
    }
}
