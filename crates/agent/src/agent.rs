//! Agent: observes processes, decides, sets priorities, and restores them at the end.

use std::io;

use tidegate_core::time::Nanos;
use tidegate_core::transfers::{Change, PriorityManager, Transfer};

use crate::host::{Host, Process, TargetError, TaskId};
use crate::io_accounting::IoAccounting;
use crate::process_tree;
use crate::report::{Event, Report, State, TargetSpec, TransferSpec};
use crate::tracked_target::{Scan, TrackedTarget};

/// Longest time between two scans for new processes and threads.
const MAX_SCAN_INTERVAL: Nanos = Nanos::SECOND;
/// Shortest time between two scans, when a transfer is about to end.
const MIN_SCAN_INTERVAL: Nanos = Nanos(20_000_000);

/// Deadline transfer of a target, from its start to its end.
#[derive(Debug)]
struct TrackedTransfer {
    transfer: Transfer,
    state: State,
    /// [`Event::Late`] has been reported for this transfer.
    late_reported: bool,
}

impl TrackedTransfer {
    fn new(now: Nanos, spec: TransferSpec) -> TrackedTransfer {
        let transfer = Transfer {
            bytes: spec.bytes,
            begun: now,
            deadline: spec.deadline,
            moved: 0,
        };
        let state = State::Running;
        TrackedTransfer {
            transfer,
            state,
            late_reported: false,
        }
    }

    /// Marks the transfer as late if it still runs after its deadline. Returns `true` if it was not
    /// marked before.
    fn mark_late(&mut self, now: Nanos) -> bool {
        let is_late = self.state == State::Running && now > self.transfer.due_time();
        is_late && !core::mem::replace(&mut self.late_reported, true)
    }

    /// Returns the state of a transfer that ends at `now` with `unseen` bytes not observed.
    fn completed_state(&self, now: Nanos, unseen: u64) -> State {
        // With nothing left, the forecast's end is `now`, which gives how early or late it is.
        let forecast = Transfer {
            moved: self.transfer.bytes,
            ..self.transfer
        }
        .forecast(now, 0);
        State::Done {
            took: now.since(self.transfer.begun),
            early: forecast.early,
            late: forecast.late,
            unseen,
        }
    }
}

/// Configuration of an [`Agent`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AgentConfig {
    /// Time after which priorities are reconsidered; more than 0.
    pub interval: Nanos,
    /// Bandwidth of the disk in bytes per second, more than 0; `None`: the highest throughput seen.
    pub bandwidth: Option<u64>,
    /// Decide and report, but set no priority.
    pub dry_run: bool,
}

/// Bytes and rate of a target in the current and the last interval.
#[derive(Clone, Copy, Default, Debug)]
struct IntervalTally {
    /// Bytes moved in the current interval.
    bytes: u64,
    /// Rate in bytes per second over the last interval; `None` in the first one.
    last_bytes_per_s: Option<u64>,
}

/// Observes processes, and sets their I/O classes so that their transfers meet their deadlines.
#[derive(Debug)]
pub struct Agent<H: Host> {
    host: H,
    dry_run: bool,
    manager: PriorityManager,
    targets: Vec<TrackedTarget>,
    accounting: IoAccounting,
    /// Deadline transfer of each target, by its index in `targets`.
    transfers: Vec<Option<TrackedTransfer>>,
    /// Bytes and rate of each target, by its index.
    tallies: Vec<IntervalTally>,
    interval: Nanos,
    /// Start of the current interval.
    interval_start: Nanos,
    /// Time of the last scan.
    last_scan: Nanos,
    /// Take the highest throughput seen as the disk's bandwidth.
    learns_bandwidth: bool,
    /// Bandwidth of the disk in bytes per second; `None`: not known yet.
    bandwidth: Option<u64>,
    /// Targets of which a thread refused its class at the last attempt, by index.
    refused: Vec<bool>,
}

impl<H: Host> Agent<H> {
    /// Finds the processes of all targets, and starts all transfers at `now`. Returns the agent and
    /// the events of the start.
    ///
    /// # Errors
    /// A target does not exist or cannot be inspected.
    ///
    /// # Panics
    /// `config.interval` or `config.bandwidth` is 0.
    pub fn new(
        mut host: H,
        now: Nanos,
        config: AgentConfig,
        specs: Vec<TargetSpec>,
    ) -> Result<(Agent<H>, Vec<Event>), TargetError> {
        // The driver would otherwise scan without a pause.
        assert!(config.interval > Nanos::ZERO, "the interval must not be 0");
        // 0 would count as known, so that no bandwidth is learnt and every transfer is given up.
        assert!(config.bandwidth != Some(0), "the bandwidth must not be 0");
        let mut manager = PriorityManager::new(now, config.bandwidth.unwrap_or(0));
        let (mut targets, mut transfers) = (Vec::new(), Vec::new());
        for (index, spec) in specs.into_iter().enumerate() {
            manager.add(now, index);
            transfers.push(
                spec.transfer
                    .map(|transfer| TrackedTransfer::new(now, transfer)),
            );
            targets.push(TrackedTarget::new(spec.name, spec.target));
        }
        let processes = process_tree::find(&mut host, &mut targets).into_iter();
        let processes = processes.collect::<Result<Vec<_>, _>>()?;
        let mut accounting = IoAccounting::default();
        accounting.set_baseline(&mut host, processes.iter().flatten())?;
        let count = targets.len();
        let mut agent = Agent {
            host,
            dry_run: config.dry_run,
            manager,
            targets,
            accounting,
            transfers,
            tallies: vec![IntervalTally::default(); count],
            interval: config.interval,
            interval_start: now,
            last_scan: now,
            learns_bandwidth: config.bandwidth.is_none(),
            bandwidth: config.bandwidth,
            refused: vec![false; count],
        };
        let mut events = Vec::new();
        agent.account_scan(&processes, now, &mut Vec::new(), &mut events);
        agent.start_transfers(now, &mut events);
        Ok((agent, events))
    }

    /// Begins all transfers, and sets classes at once if the bandwidth of the disk is given.
    fn start_transfers(&mut self, now: Nanos, events: &mut Vec<Event>) {
        let mut changes = Vec::new();
        for index in 0..self.targets.len() {
            let Some(transfer) = &self.transfers[index] else {
                continue;
            };
            let is_feasible = (self.manager).begin(index, transfer.transfer, &mut changes);
            // The verdict needs the bandwidth, as does the decision below.
            if !is_feasible && !self.learns_bandwidth {
                let name = self.targets[index].name.clone();
                events.push(Event::GivenUp { name });
            }
        }
        if !self.learns_bandwidth {
            self.manager.cycle(now, &mut changes);
        }
        self.report_classes(&changes, events);
        self.apply_classes(events);
    }

    /// Scans all targets, and at the end of an interval reconsiders their priorities.
    pub fn step(&mut self, now: Nanos) -> Vec<Event> {
        let (mut events, mut changes) = (Vec::new(), Vec::new());
        let processes = self.find_processes();
        self.account_scan(&processes, now, &mut changes, &mut events);
        if now.since(self.interval_start) >= self.interval {
            self.measure(now, &mut changes, &mut events);
        }
        self.report_classes(&changes, &mut events);
        self.report_late(now, &mut events);
        self.apply_classes(&mut events);
        events
    }

    /// Adds an event for each transfer that has passed its deadline since the last call.
    fn report_late(&mut self, now: Nanos, events: &mut Vec<Event>) {
        for (transfer, tracked) in self.transfers.iter_mut().zip(&self.targets) {
            if let Some(transfer) = transfer
                && transfer.mark_late(now)
            {
                let (name, left) = (tracked.name.clone(), transfer.transfer.bytes_left());
                events.push(Event::Late { name, left });
            }
        }
    }

    /// Returns the time until the next scan: a second or an interval, whichever is shorter. It
    /// falls to 20 ms as a transfer approaches its end, because the last bytes of an ended process
    /// can no longer be read.
    pub fn time_to_next_scan(&self, now: Nanos) -> Nanos {
        let longest = MAX_SCAN_INTERVAL.min(self.interval);
        let running = (self.transfers.iter().enumerate())
            .filter_map(|(index, transfer)| Some((index, transfer.as_ref()?)))
            .filter(|(_, transfer)| transfer.state == State::Running);
        // A quarter of the shortest time in which a transfer may end.
        let quarter = |(index, transfer): (usize, &TrackedTransfer)| {
            Nanos(transfer.transfer.latency(self.max_rate(index, now)).0 / 4)
        };
        let shortest = MIN_SCAN_INTERVAL.min(longest);
        let soonest = running.map(quarter).min();
        soonest.map_or(longest, |soonest| soonest.clamp(shortest, longest))
    }

    /// Returns the highest possible rate of a target in bytes per second: the bandwidth of the
    /// disk, or the target's own rate if that is higher or the bandwidth unknown.
    fn max_rate(&self, index: usize, now: Nanos) -> u64 {
        let tally = self.tallies[index];
        let current = bytes_per_s(tally.bytes, now.since(self.interval_start));
        current
            .max(tally.last_bytes_per_s.unwrap_or(0))
            .max(self.bandwidth.unwrap_or(0))
    }

    /// Finds the processes of all targets. A target that is gone has none; it may reappear.
    fn find_processes(&mut self) -> Vec<Vec<Process>> {
        let processes = process_tree::find(&mut self.host, &mut self.targets);
        let processes = processes.into_iter();
        processes.map(Result::unwrap_or_default).collect()
    }

    /// Counts the bytes that all targets have moved since the last scan.
    fn account_scan(
        &mut self,
        processes: &[Vec<Process>],
        now: Nanos,
        changes: &mut Vec<Change>,
        events: &mut Vec<Event>,
    ) {
        let moved = (self.accounting).scan(&mut self.host, processes.iter().flatten());
        for (index, processes) in processes.iter().enumerate() {
            let scan = self.targets[index].scan(processes, &moved);
            self.account_target(index, scan, now, changes, events);
        }
        self.last_scan = now;
    }

    /// Counts the bytes of one target, and ends its transfer if all have moved or no process of it
    /// runs.
    fn account_target(
        &mut self,
        index: usize,
        scan: Scan,
        now: Nanos,
        changes: &mut Vec<Change>,
        events: &mut Vec<Event>,
    ) {
        let gap = now.since(self.last_scan);
        // Twice the possible amount, because rates vary.
        let max_unseen_bytes =
            bytes_in(self.max_rate(index, self.last_scan), gap).saturating_mul(2);
        let tracked = &mut self.targets[index];
        let name = || tracked.name.clone();
        let found = |process| Event::Found {
            name: name(),
            process,
        };
        events.extend(scan.new.into_iter().map(found));
        // True only in the scan that finds the last process gone.
        let has_exited = tracked.present && !tracked.has_processes();
        if has_exited {
            events.push(Event::Exited { name: name() });
        }
        tracked.present = tracked.has_processes();
        self.tallies[index].bytes += scan.moved;
        let done = self.manager.record_moved(index, scan.moved);
        let running = |transfer: &&mut TrackedTransfer| transfer.state == State::Running;
        let Some(transfer) = self.transfers[index].as_mut().filter(running) else {
            return;
        };
        transfer.transfer.moved = transfer.transfer.moved.saturating_add(scan.moved);
        let left = transfer.transfer.bytes_left();
        // Processes that have exited may have moved the rest since the last scan, if it is small.
        transfer.state = if done {
            transfer.completed_state(now, 0)
        } else if !has_exited {
            return;
        } else if left <= max_unseen_bytes {
            transfer.completed_state(now, left)
        } else {
            State::EndedEarly { left }
        };
        let (name, state) = (self.targets[index].name.clone(), transfer.state);
        events.push(Event::Ended { name, state });
        self.manager.end(index, changes);
        // A cycle needs a bandwidth; it is unknown until the first interval has passed.
        if self.bandwidth.is_some() {
            self.manager.cycle(now, changes);
        }
    }

    /// Ends an interval: measures rates, learns the disk's bandwidth, and lets the manager decide.
    fn measure(&mut self, now: Nanos, changes: &mut Vec<Change>, events: &mut Vec<Event>) {
        let length = now.since(self.interval_start);
        let total = bytes_per_s(self.tallies.iter().map(|tally| tally.bytes).sum(), length);
        for tally in &mut self.tallies {
            tally.last_bytes_per_s = Some(bytes_per_s(std::mem::take(&mut tally.bytes), length));
        }
        // Only ever raised: a quiet interval says nothing about the disk.
        if self.learns_bandwidth && total > self.bandwidth.unwrap_or(0) {
            self.bandwidth = Some(total);
            self.manager.set_capacity(total);
        }
        // As before this interval's decision, so that each give-up is reported once.
        let given_up: Vec<bool> = self.given_up().collect();
        self.manager.measure(now, changes);
        self.interval_start = now;
        for (index, was_given_up) in given_up.into_iter().enumerate() {
            if !was_given_up && self.manager.is_given_up(index) {
                let name = self.targets[index].name.clone();
                events.push(Event::GivenUp { name });
            }
        }
    }

    /// Iterates over the targets by index: true where the deadline cannot be met any more.
    fn given_up(&self) -> impl Iterator<Item = bool> {
        (0..self.targets.len()).map(|index| self.manager.is_given_up(index))
    }

    /// Reports only the final class of each target.
    fn report_classes(&self, changes: &[Change], events: &mut Vec<Event>) {
        for (position, change) in changes.iter().enumerate() {
            if changes[position + 1..]
                .iter()
                .all(|later| later.user != change.user)
            {
                let (name, class) = (self.targets[change.user].name.clone(), change.class);
                events.push(Event::Class { name, class });
            }
        }
    }

    /// Sets the decided class on the threads of every target, unless this is a dry run.
    fn apply_classes(&mut self, events: &mut Vec<Event>) {
        if self.dry_run {
            return;
        }
        self.refresh_threads();
        for index in 0..self.targets.len() {
            let class = self.manager.class(index).unwrap_or_default();
            let refused = self.targets[index].apply(&mut self.host, class);
            self.report_refusal(index, refused, events);
        }
    }

    /// Lists the threads of all targets before any class is set, because a thread that left one
    /// target may belong to another.
    fn refresh_threads(&mut self) {
        for tracked in &mut self.targets {
            tracked.refresh_threads(&mut self.host);
        }
    }

    /// Reports a failure to set the priority of a target's threads once, not in every scan.
    fn report_refusal(
        &mut self,
        index: usize,
        refused: Option<(TaskId, io::Error)>,
        events: &mut Vec<Event>,
    ) {
        let reported = std::mem::replace(&mut self.refused[index], refused.is_some());
        if let Some((thread, error)) = refused.filter(|_| !reported) {
            let name = self.targets[index].name.clone();
            events.push(Event::Refused {
                name,
                thread,
                error,
            });
        }
    }

    /// Returns the current state of all targets.
    pub fn report(&self, now: Nanos) -> Vec<Report> {
        let report = |(index, tracked): (usize, &TrackedTarget)| Report {
            name: tracked.name.clone(),
            class: self.manager.class(index).unwrap_or_default(),
            present: tracked.present,
            bytes_per_s: self.tallies[index].last_bytes_per_s,
            transfer: self.transfers[index]
                .as_ref()
                .map(|transfer| (transfer.transfer, transfer.state)),
            forecast: self
                .manager
                .forecast(index, now)
                .filter(|_| self.bandwidth.is_some()),
        };
        self.targets.iter().enumerate().map(report).collect()
    }

    /// Returns whether all transfers have ended; `false` if there are none.
    pub fn is_done(&self) -> bool {
        let mut transfers = self.transfers.iter().flatten().peekable();
        transfers.peek().is_some() && transfers.all(|transfer| transfer.state != State::Running)
    }

    /// Restores the original priority of every thread that was changed. Returns the failures.
    pub fn restore(&mut self) -> Vec<Event> {
        let mut events = Vec::new();
        let processes = self.find_processes();
        let moved = (self.accounting).scan(&mut self.host, processes.iter().flatten());
        for (tracked, processes) in self.targets.iter_mut().zip(&processes) {
            tracked.scan(processes, &moved);
        }
        self.refresh_threads();
        for index in 0..self.targets.len() {
            // A failure to restore is reported even if setting the class failed before.
            self.refused[index] = false;
            let refused = self.targets[index].restore_priorities(&mut self.host);
            self.report_refusal(index, refused, &mut events);
        }
        events
    }
}

impl<H: Host> Drop for Agent<H> {
    fn drop(&mut self) {
        self.restore();
    }
}

/// Rate in bytes per second; 0 if `time` is 0.
fn bytes_per_s(bytes: u64, time: Nanos) -> u64 {
    let per_s = (u128::from(bytes) * u128::from(Nanos::SECOND.0)).checked_div(time.0.into());
    u64::try_from(per_s.unwrap_or(0)).unwrap_or(u64::MAX)
}

/// Bytes moved in `time` at `bytes_per_s`.
fn bytes_in(bytes_per_s: u64, time: Nanos) -> u64 {
    let bytes = u128::from(bytes_per_s) * u128::from(time.0) / u128::from(Nanos::SECOND.0);
    u64::try_from(bytes).unwrap_or(u64::MAX)
}
