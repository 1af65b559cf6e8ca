//! CPU-bound processes: endless (`stress`) or with a fixed amount of work (`sysbench` primes).

use super::{Flow, FlowResult, Order, Orders};
use crate::guest::{TaskId, Token};
use crate::machine::VcpuId;
use tidegate_core::time::Nanos;

/// Processes that only compute, one per vCPU.
#[derive(Clone, Debug)]
pub struct Cpu {
    /// Number of this flow in tokens.
    pub id: u32,
    /// vCPU, process and start time of each process.
    pub tasks: Vec<(VcpuId, TaskId, Nanos)>,
    /// CPU time that each process needs; [`Nanos::MAX`]: unlimited.
    pub work: Nanos,
    /// Number of processes that have started.
    begun: usize,
    /// Number of processes that have finished, and the time at which the last one did.
    ended: (usize, Nanos),
    /// Time at which all processes are stopped.
    stops: Option<Nanos>,
}

impl Cpu {
    /// Creates processes with `work` each, which start at the given times.
    pub fn new(id: u32, mut tasks: Vec<(VcpuId, TaskId, Nanos)>, work: Nanos) -> Cpu {
        // `on_timer` takes them in this order.
        tasks.sort_by_key(|&(_, _, at)| at);
        Cpu {
            id,
            tasks,
            work,
            begun: 0,
            ended: (0, Nanos::ZERO),
            stops: None,
        }
    }

    /// Stops all processes at `stops`: running ones discard their remaining work, others never
    /// start.
    #[must_use]
    pub fn until(self, stops: Option<Nanos>) -> Cpu {
        Cpu { stops, ..self }
    }

    fn stop(&mut self, orders: &mut Orders) {
        self.stops = None;
        // Draining also removes processes that have not started.
        let begun = self.tasks.drain(..).take(self.begun);
        orders.extend(begun.map(|(vcpu, task, _)| Order::Stop { vcpu, task }));
        self.begun = 0;
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
        let begins = self.tasks.get(self.begun).map(|&(_, _, at)| at);
        begins.into_iter().chain(self.stops).min()
    }

    fn on_timer(&mut self, now: Nanos, orders: &mut Orders) {
        if self.stops.is_some_and(|at| at <= now) {
            return self.stop(orders);
        }
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

    fn results(&self, _now: Nanos) -> FlowResult {
        // Endless work has no duration to report.
        if self.work == Nanos::MAX {
            return FlowResult::Nothing;
        }
        // Sorted, so the first to start.
        let began = self.tasks.first().map_or(Nanos::ZERO, |&(_, _, at)| at);
        FlowResult::Work(self.is_over().then(|| self.ended.1.since(began)))
    }
}
