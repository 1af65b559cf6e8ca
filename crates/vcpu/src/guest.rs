//! Execution inside one vCPU: interrupts, and processes that the guest's own scheduler shares it
//! among.
//!
//! Interrupts go first, in order of arrival. Processes are shared fairly by virtual run-time, as in
//! Linux's CFS: the process with the least run-time goes next, for one slice. A process that wakes
//! is placed at most half a latency behind the others, and preempts one that is ahead of it by more
//! than the wake-up granularity. The three times are Linux's for a guest of four CPUs.

use std::collections::VecDeque;
use tidegate_core::time::Nanos;

/// CFS `sched_latency` in nanoseconds: period in which each runnable process runs once.
const CFS_LATENCY_NS: u64 = 18_000_000;
/// CFS `sched_min_granularity` in nanoseconds: shortest slice.
const CFS_MIN_GRANULARITY_NS: u64 = 2_250_000;
/// CFS `sched_wakeup_granularity` in nanoseconds: lead in run-time at which a waking process
/// preempts.
const CFS_WAKEUP_GRANULARITY_NS: u64 = 3_000_000;

/// Identity of a piece of work, returned to its flow when the work is done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Token {
    /// Number of the flow that ordered the work.
    pub flow: u32,
    /// Step of the flow's state machine that the work belongs to.
    pub stage: u32,
    /// Datum of the flow, such as the number of a packet.
    pub data: u64,
}

/// Process on a vCPU, by its number there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TaskId(pub u16);

#[derive(Clone, Debug)]
struct Interrupt {
    /// Remaining handling in nanoseconds.
    left: u64,
    token: Token,
}

#[derive(Clone, Debug)]
struct Task {
    /// Remaining work in nanoseconds; `u64::MAX`: unlimited.
    left: u64,
    /// Token to return when the work is done; `None`: the process sleeps.
    token: Option<Token>,
    /// Virtual run-time in nanoseconds; raised at wake-up so that sleep earns little credit.
    vruntime: u64,
}

impl Task {
    fn is_ready(&self) -> bool {
        self.token.is_some()
    }
}

/// Execution state of one vCPU.
#[derive(Clone, Default, Debug)]
pub struct GuestCpu {
    interrupts: VecDeque<Interrupt>,
    tasks: Vec<Task>,
    current: Option<usize>,
    /// Time that the current process has run in its slice, in nanoseconds.
    in_slice: u64,
    /// CFS `min_vruntime` in nanoseconds: reference for processes that wake; never decreases.
    min_vruntime: u64,
    done: VecDeque<Token>,
}

impl GuestCpu {
    /// Adds a process, asleep.
    pub fn add_task(&mut self) -> TaskId {
        self.tasks.push(Task {
            left: 0,
            token: None,
            // A new process must not catch up on the time before it existed.
            vruntime: self.min_vruntime,
        });
        TaskId((self.tasks.len() - 1) as u16)
    }

    /// Returns whether there is neither an interrupt nor a runnable process.
    pub fn is_idle(&self) -> bool {
        self.interrupts.is_empty() && !self.tasks.iter().any(Task::is_ready)
    }

    /// Returns whether interrupts are pending. A guest that will see a new event anyway requests no
    /// further notification.
    pub fn has_interrupts(&self) -> bool {
        !self.interrupts.is_empty()
    }

    /// Queues an interrupt whose handling takes `cost`.
    pub fn interrupt(&mut self, cost: Nanos, token: Token) {
        self.interrupts.push_back(Interrupt {
            left: cost.0,
            token,
        });
    }

    /// Gives a sleeping process work of `cost`; unlimited if `cost` is [`Nanos::MAX`].
    ///
    /// # Panics
    /// The process already has work.
    pub fn wake(&mut self, id: TaskId, cost: Nanos, token: Token) {
        let task = &mut self.tasks[usize::from(id.0)];
        assert!(!task.is_ready(), "{token:?}: the process already has work");
        task.left = cost.0;
        task.token = Some(token);
        task.vruntime = task
            .vruntime
            .max(self.min_vruntime.saturating_sub(CFS_LATENCY_NS / 2));
        let runtime = task.vruntime;
        let ahead = |current: usize| self.tasks[current].vruntime.saturating_sub(runtime);
        if self
            .current
            .is_some_and(|c| ahead(c) > CFS_WAKEUP_GRANULARITY_NS)
        {
            self.current = None;
        }
    }

    /// Puts a process to sleep and discards its remaining work without returning the token.
    pub fn stop(&mut self, id: TaskId) {
        let task = &mut self.tasks[usize::from(id.0)];
        (task.left, task.token) = (0, None);
        if self.current == Some(id.0.into()) {
            self.current = None;
        }
    }

    /// Time that the vCPU can run until its next boundary; `None`: there is nothing to do.
    pub fn horizon(&mut self) -> Option<Nanos> {
        // Interrupts go before all processes.
        if let Some(first) = self.interrupts.front() {
            return Some(Nanos(first.left));
        }
        let current = self.pick()?;
        let left = self.tasks[current].left;
        Some(Nanos(match self.slice() {
            Some(slice) => left.min(slice.saturating_sub(self.in_slice)),
            None => left,
        }))
    }

    /// Returns whether something ends without further run-time: work of no length, or a slice that
    /// has become shorter because another process woke.
    pub fn is_due(&self) -> bool {
        match (self.interrupts.front(), self.current) {
            (Some(first), _) => first.left == 0,
            (None, Some(current)) => {
                let is_over = |slice| self.in_slice >= slice;
                self.tasks[current].left == 0 || self.slice().is_some_and(is_over)
            }
            (None, None) => self
                .tasks
                .iter()
                .any(|task| task.is_ready() && task.left == 0),
        }
    }

    /// Runs for `time`, which must not exceed [`GuestCpu::horizon`].
    pub fn run(&mut self, time: Nanos) {
        if let Some(first) = self.interrupts.front_mut() {
            first.left = first.left.saturating_sub(time.0);
        } else if let Some(current) = self.pick() {
            let task = &mut self.tasks[current];
            task.vruntime += time.0;
            // `u64::MAX` is unlimited work, which never gets less.
            if task.left != u64::MAX {
                task.left = task.left.saturating_sub(time.0);
            }
            self.in_slice += time.0;
            self.advance_min_vruntime();
        }
        self.settle();
    }

    /// Returns the token of the next finished piece of work.
    pub fn take_done(&mut self) -> Option<Token> {
        self.done.pop_front()
    }

    /// Ends finished interrupts, finished work of the current process and its expired slice.
    fn settle(&mut self) {
        while self.interrupts.front().is_some_and(|first| first.left == 0) {
            self.done
                .extend(self.interrupts.pop_front().map(|i| i.token));
        }
        // The process did not run meanwhile, so its slice is unchanged.
        if !self.interrupts.is_empty() {
            return;
        }
        let Some(current) = self.current else {
            return;
        };
        let task = &mut self.tasks[current];
        if task.left == 0 {
            self.done.extend(task.token.take());
            self.current = None;
        } else if self.slice().is_some_and(|slice| self.in_slice >= slice) {
            // The process keeps its work; the next `pick` compares run-times again.
            self.current = None;
        }
    }

    /// Returns the current process; chooses the ready one with the least run-time if there is none.
    fn pick(&mut self) -> Option<usize> {
        if self.current.is_none() {
            let ready = self.tasks.iter().enumerate().filter(|(_, t)| t.is_ready());
            let least = ready.min_by_key(|(_, task)| task.vruntime);
            self.current = least.map(|(place, _)| place);
            self.in_slice = 0;
        }
        self.current
    }

    /// Slice of each process in nanoseconds; `None`: no other process is ready.
    fn slice(&self) -> Option<u64> {
        let ready = self.tasks.iter().filter(|task| task.is_ready()).count() as u64;
        // A process alone runs without a slice, as there is none to yield to.
        (ready > 1).then(|| (CFS_LATENCY_NS / ready).max(CFS_MIN_GRANULARITY_NS))
    }

    fn advance_min_vruntime(&mut self) {
        let ready = self.tasks.iter().filter(|task| task.is_ready());
        let least = ready.map(|task| task.vruntime).min();
        self.min_vruntime = self.min_vruntime.max(least.unwrap_or(self.min_vruntime));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(stage: u32) -> Token {
        Token {
            flow: 0,
            stage,
            data: 0,
        }
    }

    /// Runs for `time` ns; returns for each finished piece of work the time and the token's stage.
    fn run(cpu: &mut GuestCpu, time: u64) -> Vec<(u64, u32)> {
        let (mut now, mut done) = (0, Vec::new());
        while now < time {
            let Some(horizon) = cpu.horizon() else {
                break;
            };
            let step = horizon.0.min(time - now);
            cpu.run(Nanos(step));
            now += step;
            while let Some(token) = cpu.take_done() {
                done.push((now, token.stage));
            }
        }
        done
    }

    #[test]
    fn interrupts_go_before_processes_and_in_order() {
        let mut cpu = GuestCpu::default();
        let task = cpu.add_task();
        cpu.wake(task, Nanos(100), token(3));
        assert!(run(&mut cpu, 60).is_empty());
        cpu.interrupt(Nanos(10), token(1));
        cpu.interrupt(Nanos(20), token(2));
        assert_eq!(run(&mut cpu, 1000), [(10, 1), (30, 2), (70, 3)]);
        assert!(cpu.is_idle());
    }

    #[test]
    fn processes_that_never_sleep_share_the_vcpu_evenly() {
        let mut cpu = GuestCpu::default();
        for n in 0..3 {
            let task = cpu.add_task();
            cpu.wake(task, Nanos::MAX, token(n));
        }
        run(&mut cpu, 300_000_000);
        for task in &cpu.tasks {
            assert!(
                task.vruntime.abs_diff(100_000_000) <= CFS_LATENCY_NS / 3,
                "{cpu:?}"
            );
        }
    }

    #[test]
    fn a_process_that_slept_long_preempts_and_gets_no_more_than_its_share() {
        let mut cpu = GuestCpu::default();
        let (hog, other) = (cpu.add_task(), cpu.add_task());
        cpu.wake(hog, Nanos::MAX, token(0));
        run(&mut cpu, 1_000_000_000);
        cpu.wake(other, Nanos(1_000), token(1));
        assert_eq!(run(&mut cpu, 1_000), [(1_000, 1)]);
        // From here on both are always ready; the sleeper leads by half a latency.
        cpu.wake(other, Nanos::MAX, token(1));
        let before = cpu.tasks[0].vruntime;
        run(&mut cpu, 1_000_000_000);
        let hogged = cpu.tasks[0].vruntime - before;
        assert!(hogged.abs_diff(500_000_000) <= CFS_LATENCY_NS, "{hogged}");
    }
}
