//! What runs inside a vCPU: interrupts, and under them the processes that the guest's own scheduler
//! takes turns with.
//!
//! Interrupts go first, in the order they came. Processes are shared fairly by virtual run-time, as
//! Linux's CFS does: the one that has run least goes next, for a slice; one that wakes is behind
//! the others by at most half a latency, and preempts one that is ahead of it by more than the
//! wake-up granularity. The three times are Linux's for a guest of four processors.

use std::collections::VecDeque;
use tidegate_core::time::Nanos;

/// In which time each process runs once.
const LATENCY: u64 = 18_000_000;
/// The shortest slice.
const MIN_GRANULARITY: u64 = 2_250_000;
/// By how much a process must be ahead to be preempted by one that wakes.
const WAKEUP_GRANULARITY: u64 = 3_000_000;

/// What a piece of work is told apart by when it is done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Token {
    /// Whose it is.
    pub flow: u32,
    /// What it is to its owner.
    pub stage: u32,
    /// What its owner wants to know of it.
    pub data: u64,
}

/// A process on a vCPU, by its number there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TaskId(pub u16);

#[derive(Clone, Debug)]
struct Interrupt {
    left: u64,
    token: Token,
}

#[derive(Clone, Debug)]
struct Task {
    /// Work that is left, in nanoseconds; `u64::MAX`: without end.
    left: u64,
    /// What to say once it is done; `None`: it sleeps.
    token: Option<Token>,
    /// How long it has run, apart from what it slept.
    runtime: u64,
}

impl Task {
    fn is_ready(&self) -> bool {
        self.token.is_some()
    }
}

/// The inside of one vCPU.
#[derive(Clone, Default, Debug)]
pub struct GuestCpu {
    interrupts: VecDeque<Interrupt>,
    tasks: Vec<Task>,
    current: Option<usize>,
    /// How long the current one has run in its slice.
    in_slice: u64,
    /// What those who sleep are compared with when they wake; never goes back.
    least: u64,
    done: VecDeque<Token>,
}

impl GuestCpu {
    /// A further process, asleep.
    pub fn add_task(&mut self) -> TaskId {
        self.tasks.push(Task {
            left: 0,
            token: None,
            runtime: self.least,
        });
        TaskId((self.tasks.len() - 1) as u16)
    }

    /// Whether there is nothing to do.
    pub fn is_idle(&self) -> bool {
        self.interrupts.is_empty() && !self.tasks.iter().any(Task::is_ready)
    }

    /// Whether there are interrupts to be served: a guest that is about to look asks for no further
    /// notification.
    pub fn has_interrupts(&self) -> bool {
        !self.interrupts.is_empty()
    }

    /// An interrupt, to be served in `cost`.
    pub fn interrupt(&mut self, cost: Nanos, token: Token) {
        self.interrupts.push_back(Interrupt {
            left: cost.0,
            token,
        });
    }

    /// Gives a process that sleeps work of `cost`, without end where that is [`Nanos::MAX`].
    ///
    /// # Panics
    /// When it has some already.
    pub fn wake(&mut self, id: TaskId, cost: Nanos, token: Token) {
        let task = &mut self.tasks[usize::from(id.0)];
        assert!(!task.is_ready(), "{token:?}: the process has work already");
        task.left = cost.0;
        task.token = Some(token);
        task.runtime = task.runtime.max(self.least.saturating_sub(LATENCY / 2));
        let runtime = task.runtime;
        let ahead = |current: usize| self.tasks[current].runtime.saturating_sub(runtime);
        if self.current.is_some_and(|c| ahead(c) > WAKEUP_GRANULARITY) {
            self.current = None;
        }
    }

    /// A process leaves the rest of its work undone, and says nothing of it.
    pub fn stop(&mut self, id: TaskId) {
        let task = &mut self.tasks[usize::from(id.0)];
        (task.left, task.token) = (0, None);
        if self.current == Some(id.0.into()) {
            self.current = None;
        }
    }

    /// How long it can run before it wants to be looked at; `None`: it has nothing to do.
    pub fn horizon(&mut self) -> Option<Nanos> {
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

    /// Whether something ends though no time passes: what was started without any work, or a slice
    /// that became shorter.
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

    /// Lets it run for `time`, at most up to its [`GuestCpu::horizon`].
    pub fn run(&mut self, time: Nanos) {
        if let Some(first) = self.interrupts.front_mut() {
            first.left = first.left.saturating_sub(time.0);
        } else if let Some(current) = self.pick() {
            let task = &mut self.tasks[current];
            task.runtime += time.0;
            if task.left != u64::MAX {
                task.left = task.left.saturating_sub(time.0);
            }
            self.in_slice += time.0;
            self.advance_least();
        }
        self.settle();
    }

    /// The next piece of work that is done.
    pub fn take_done(&mut self) -> Option<Token> {
        self.done.pop_front()
    }

    /// Ends what has no work left.
    fn settle(&mut self) {
        while self.interrupts.front().is_some_and(|first| first.left == 0) {
            self.done
                .extend(self.interrupts.pop_front().map(|i| i.token));
        }
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
            self.current = None;
        }
    }

    /// The process that runs, chosen if none does.
    fn pick(&mut self) -> Option<usize> {
        if self.current.is_none() {
            let ready = self.tasks.iter().enumerate().filter(|(_, t)| t.is_ready());
            let least = ready.min_by_key(|(_, task)| task.runtime);
            self.current = least.map(|(place, _)| place);
            self.in_slice = 0;
        }
        self.current
    }

    /// How long a process runs before the next; `None`: there is no other.
    fn slice(&self) -> Option<u64> {
        let ready = self.tasks.iter().filter(|task| task.is_ready()).count() as u64;
        (ready > 1).then(|| (LATENCY / ready).max(MIN_GRANULARITY))
    }

    fn advance_least(&mut self) {
        let ready = self.tasks.iter().filter(|task| task.is_ready());
        let least = ready.map(|task| task.runtime).min();
        self.least = self.least.max(least.unwrap_or(self.least));
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

    /// Runs for `time`; what was done, and when.
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
    fn hogs_share_evenly() {
        let mut cpu = GuestCpu::default();
        for n in 0..3 {
            let task = cpu.add_task();
            cpu.wake(task, Nanos::MAX, token(n));
        }
        run(&mut cpu, 300_000_000);
        for task in &cpu.tasks {
            assert!(task.runtime.abs_diff(100_000_000) <= LATENCY / 3, "{cpu:?}");
        }
    }

    #[test]
    fn who_slept_long_preempts_a_hog_and_gets_no_more_than_its_share() {
        let mut cpu = GuestCpu::default();
        let (hog, other) = (cpu.add_task(), cpu.add_task());
        cpu.wake(hog, Nanos::MAX, token(0));
        run(&mut cpu, 1_000_000_000);
        cpu.wake(other, Nanos(1_000), token(1));
        assert_eq!(run(&mut cpu, 1_000), [(1_000, 1)]);
        // From here on both want all of it: the sleeper's lead is half a latency.
        cpu.wake(other, Nanos::MAX, token(1));
        let before = cpu.tasks[0].runtime;
        run(&mut cpu, 1_000_000_000);
        let hogged = cpu.tasks[0].runtime - before;
        assert!(hogged.abs_diff(500_000_000) <= LATENCY, "{hogged}");
    }
}
