//! Agent with a simulated host: a disk of 100 MB/s whose scheduler supports classes.

mod deadlines;
mod processes;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::rc::Rc;

use tidegate_core::time::Nanos;
use tidegate_core::transfers::Class;

use crate::{
    Agent, AgentConfig, Event, Host, IoPriority, Process, State, Target, TargetError, TargetSpec,
    TaskId, TransferSpec,
};

const MB: u64 = 1_000_000;
/// Bandwidth of the disk in bytes per second.
const DISK_BYTES_PER_S: u64 = 100 * MB;
/// Interval of the agents in seconds.
const INTERVAL_S: u64 = 3;

/// Simulated process: bytes moved, and priorities of its threads.
#[derive(Clone)]
struct FakeProcess {
    parent: u32,
    moved: u64,
    /// `bytes_moved` fails with EACCES.
    unreadable: bool,
    /// Bytes per second that the process moves if the disk has them.
    demand: u64,
    threads: BTreeMap<TaskId, IoPriority>,
}

#[derive(Clone, Default)]
struct FakeHost {
    processes: Rc<RefCell<BTreeMap<TaskId, FakeProcess>>>,
    /// Processes of the only cgroup.
    cgroup: Rc<RefCell<Vec<u32>>>,
    /// `set_priority` fails with EPERM.
    refuses: Rc<RefCell<bool>>,
}

fn thread(id: u32, start_ticks: u64) -> TaskId {
    TaskId { id, start_ticks }
}

fn no_such() -> io::Error {
    io::Error::from_raw_os_error(libc::ESRCH)
}

impl FakeHost {
    /// Starts a process of two threads that has moved 7 MB before, which must not count.
    fn start(&self, id: u32, start_ticks: u64, demand: u64) {
        let threads = [id, id + 1].map(|id| (thread(id, start_ticks), IoPriority::NONE));
        let fake = FakeProcess {
            parent: 1,
            moved: 7 * MB,
            unreadable: false,
            demand,
            threads: threads.into(),
        };
        self.processes
            .borrow_mut()
            .insert(thread(id, start_ticks), fake);
    }

    /// Starts a child of one thread, which inherits its parent's priority, as in Linux.
    fn fork(&self, parent: u32, id: u32, start_ticks: u64, demand: u64) {
        let priority = self.priorities(parent)[0];
        let fake = FakeProcess {
            parent,
            moved: 0,
            unreadable: false,
            demand,
            threads: [(thread(id, start_ticks), priority)].into(),
        };
        self.processes
            .borrow_mut()
            .insert(thread(id, start_ticks), fake);
    }

    /// Ends a process. If the parent waits, it inherits the bytes; process 1 adopts the children.
    fn end(&self, id: u32, waits: bool) {
        let mut processes = self.processes.borrow_mut();
        let found = processes.keys().copied().find(|process| process.id == id);
        let ended = processes
            .remove(&found.expect("it runs"))
            .expect("just found");
        for (process, fake) in processes.iter_mut() {
            if process.id == ended.parent && waits {
                fake.moved += ended.moved;
            }
            if fake.parent == id {
                fake.parent = 1;
            }
        }
    }

    /// Changes a running process.
    fn change(&self, id: u32, change: impl FnOnce(&mut FakeProcess)) {
        let mut processes = self.processes.borrow_mut();
        let process = processes.iter_mut().find(|(process, _)| process.id == id);
        change(process.expect("it runs").1);
    }

    /// Priorities of the threads of a process.
    fn priorities(&self, id: u32) -> Vec<IoPriority> {
        let processes = self.processes.borrow();
        let found = processes.iter().filter(|(process, _)| process.id == id);
        found
            .flat_map(|(_, fake)| fake.threads.values().copied())
            .collect()
    }

    /// Advances the disk by one second.
    fn advance_second(&self) {
        let mut left = DISK_BYTES_PER_S;
        let class = |fake: &FakeProcess| fake.threads.values().next().copied().unwrap_or_default();
        let idle = IoPriority::for_class(Class::Idle);
        let real_time = IoPriority::for_class(Class::RealTime);
        let mut processes = self.processes.borrow_mut();
        for rank in 0..3 {
            let rank_of = |fake: &FakeProcess| match class(fake) {
                priority if priority == real_time => 0,
                priority if priority == idle => 2,
                _ => 1,
            };
            let count = processes
                .values()
                .filter(|fake| rank_of(fake) == rank)
                .count();
            let mut rest = count as u64;
            for fake in processes.values_mut().filter(|fake| rank_of(fake) == rank) {
                let bytes = fake.demand.min(left / rest);
                (fake.moved, left, rest) = (fake.moved + bytes, left - bytes, rest - 1);
            }
        }
    }
}

impl Host for FakeHost {
    fn processes(&mut self, target: &Target) -> Result<Vec<Process>, TargetError> {
        match target {
            Target::Pid(pid) => {
                let missing = || TargetError::Missing(target.clone());
                Ok(vec![self.process(*pid).ok_or_else(missing)?])
            }
            Target::Cgroup(_) => {
                let pids = self.cgroup.borrow().clone();
                Ok(pids
                    .into_iter()
                    .filter_map(|pid| self.process(pid))
                    .collect())
            }
            Target::Libvirt(_) => unreachable!("pids and a cgroup only"),
        }
    }

    fn process(&mut self, id: u32) -> Option<Process> {
        let processes = self.processes.borrow();
        processes.iter().find_map(|(process, fake)| {
            let mut threads = fake.threads.keys();
            let thread = *threads.find(|thread| thread.id == id)?;
            let parent = fake.parent;
            debug_assert!(process.id != id || *process == thread);
            Some(Process {
                task: thread,
                parent,
            })
        })
    }

    fn children(&mut self, process: TaskId) -> Vec<Process> {
        let processes = self.processes.borrow();
        let children = processes
            .iter()
            .filter(|(_, fake)| fake.parent == process.id);
        let child = |(&task, fake): (&TaskId, &FakeProcess)| Process {
            task,
            parent: fake.parent,
        };
        children.map(child).collect()
    }

    fn bytes_moved(&mut self, process: TaskId) -> io::Result<u64> {
        match self.processes.borrow().get(&process) {
            Some(fake) if fake.unreadable => Err(io::Error::from_raw_os_error(libc::EACCES)),
            Some(fake) => Ok(fake.moved),
            None => Err(no_such()),
        }
    }

    fn threads(&mut self, process: TaskId) -> Vec<TaskId> {
        let processes = self.processes.borrow();
        processes
            .get(&process)
            .map(|fake| fake.threads.keys().copied().collect())
            .unwrap_or_default()
    }

    fn priority(&mut self, thread: TaskId) -> io::Result<IoPriority> {
        let processes = self.processes.borrow();
        let found = processes
            .values()
            .find_map(|fake| fake.threads.get(&thread).copied());
        found.ok_or_else(no_such)
    }

    fn set_priority(&mut self, thread: TaskId, priority: IoPriority) -> io::Result<()> {
        if *self.refuses.borrow() {
            return Err(io::Error::from_raw_os_error(libc::EPERM));
        }
        let mut processes = self.processes.borrow_mut();
        let found = processes
            .values_mut()
            .find_map(|fake| fake.threads.get_mut(&thread));
        *found.ok_or_else(no_such)? = priority;
        Ok(())
    }
}

/// Processes and configuration that a test begins with: process 100, of the target `job`, has a
/// transfer; 200 and 300, of `b` and `c`, have none. Each could use the whole disk.
struct SetUp {
    transfer: TransferSpec,
    /// Number of processes without a transfer, at most 2.
    others: u32,
    /// Bandwidth of the disk in bytes per second, as the agent is told.
    bandwidth: Option<u64>,
    dry_run: bool,
    host: FakeHost,
}

impl SetUp {
    fn new(transfer: TransferSpec) -> SetUp {
        let host = FakeHost::default();
        SetUp {
            transfer,
            others: 1,
            bandwidth: Some(DISK_BYTES_PER_S),
            dry_run: false,
            host,
        }
    }

    fn start(self) -> World {
        let host = self.host;
        (1..=self.others + 1).for_each(|n| host.start(n * 100, 1, DISK_BYTES_PER_S));
        let mut specs = vec![spec("job", Target::Pid(100))];
        specs[0].transfer = Some(self.transfer);
        for (name, n) in ["b", "c"].into_iter().zip(1..=self.others) {
            specs.push(spec(name, Target::Pid((n + 1) * 100)));
        }
        let config = AgentConfig {
            bandwidth: self.bandwidth,
            dry_run: self.dry_run,
            ..config()
        };
        World::new(host, config, specs)
    }
}

/// Configuration of an agent that knows the disk's bandwidth.
fn config() -> AgentConfig {
    AgentConfig {
        interval: Nanos::from_secs(INTERVAL_S),
        bandwidth: Some(DISK_BYTES_PER_S),
        dry_run: false,
    }
}

/// Transfer of this many megabytes within this many seconds.
const fn mb_within_s(megabytes: u64, seconds: u64) -> TransferSpec {
    TransferSpec {
        bytes: megabytes * MB,
        deadline: Nanos::from_secs(seconds),
    }
}

fn spec(name: &str, target: Target) -> TargetSpec {
    let name = name.to_owned();
    let transfer = None;
    TargetSpec {
        name,
        target,
        transfer,
    }
}

/// Running agent with its simulated host.
struct World {
    host: FakeHost,
    agent: Agent<FakeHost>,
    second: u64,
    /// Events of the start.
    start_events: Vec<Event>,
}

impl World {
    fn new(host: FakeHost, config: AgentConfig, specs: Vec<TargetSpec>) -> World {
        let (agent, start_events) =
            Agent::new(host.clone(), Nanos::ZERO, config, specs).expect("all are there");
        World {
            host,
            agent,
            second: 0,
            start_events,
        }
    }

    /// Runs for `seconds`, or until all transfers are done; returns the events with their seconds.
    fn run(&mut self, seconds: u64) -> Vec<(u64, Event)> {
        let mut events = Vec::new();
        for _ in 0..seconds {
            self.host.advance_second();
            self.second += 1;
            events.extend(self.scan(0));
            if self.agent.is_done() {
                break;
            }
        }
        events
    }

    /// Scans `millis` after the last second; returns the events with that second.
    fn scan(&mut self, millis: u64) -> Vec<(u64, Event)> {
        let now = Nanos::from_secs(self.second) + Nanos::from_millis(millis);
        let events = self.agent.step(now).into_iter();
        events.map(|event| (self.second, event)).collect()
    }

    fn state(&self) -> State {
        self.report(0).transfer.expect("it has a transfer").1
    }

    /// Bytes that the transfer of a target has moved.
    fn moved(&self, index: usize) -> u64 {
        self.report(index)
            .transfer
            .expect("it has a transfer")
            .0
            .moved
    }

    fn report(&self, index: usize) -> crate::Report {
        self.agent.report(Nanos::ZERO).swap_remove(index)
    }
}

/// Returns true if `is` holds for one of the events.
fn has_event(events: &[(u64, Event)], is: impl Fn(&Event) -> bool) -> bool {
    events.iter().any(|(_, event)| is(event))
}
