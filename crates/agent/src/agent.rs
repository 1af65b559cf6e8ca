//! Agent: observes processes, decides, sets priorities, and restores them at the end.

use tidegate_core::time::Nanos;
use tidegate_core::transfers::{Change, Class, PriorityManager, Transfer};

use crate::host::{Host, Process, TargetError};
use crate::io_accounting::IoAccounting;
use crate::process_tree;
use crate::report::{Event, Plan, Report, State};
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
    fn new(now: Nanos, (bytes, deadline): (u64, Nanos)) -> TrackedTransfer {
        let transfer = Transfer {
            bytes,
            begun: now,
            deadline,
            moved: 0,
        };
        let state = State::Running;
        TrackedTransfer {
            transfer,
            state,
            late_reported: false,
        }
    }

    /// Returns `true` once per transfer: on the first call after its deadline while it still runs.
    fn becomes_late(&mut self, now: Nanos) -> bool {
        let is_late = self.state == State::Running && now > self.transfer.due();
        is_late && !core::mem::replace(&mut self.late_reported, true)
    }

    /// State of a transfer that ends at `now` with `unseen` bytes not observed.
    fn done(&self, now: Nanos, unseen: u64) -> State {
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

/// Observes processes, and sets their I/O classes so that their transfers meet their deadlines.
#[derive(Debug)]
pub struct Agent<H: Host> {
    host: H,
    dry_run: bool,
    manager: PriorityManager,
    targets: Vec<TrackedTarget>,
    accounting: IoAccounting,
    transfers: Vec<Option<TrackedTransfer>>,
    /// Bytes moved in the current interval, and rate in bytes per second over the last one, by
    /// target.
    moved: Vec<(u64, Option<u64>)>,
    interval: Nanos,
    /// Start of the current interval.
    interval_start: Nanos,
    /// Time of the last scan.
    last_scan: Nanos,
    /// Take the highest throughput seen as the device's bandwidth.
    learns_capacity: bool,
    capacity: u64,
    refused: Vec<bool>,
}

impl<H: Host> Agent<H> {
    /// Starts all transfers now.
    ///
    /// `capacity` is the bandwidth of the disk in bytes per second; `None`: the highest throughput
    /// seen. Priorities are reconsidered every `interval`. With `dry_run` no priority is set.
    ///
    /// # Errors
    /// A target does not exist or cannot be inspected.
    ///
    /// # Panics
    /// `interval` is 0.
    pub fn new(
        mut host: H,
        now: Nanos,
        (interval, capacity, dry_run): (Nanos, Option<u64>, bool),
        plans: Vec<Plan>,
    ) -> Result<(Agent<H>, Vec<Event>), TargetError> {
        // The driver would otherwise scan without a pause.
        assert!(interval > Nanos::ZERO, "the interval must not be 0");
        let mut manager = PriorityManager::new(now, capacity.unwrap_or(0));
        let (mut targets, mut transfers) = (Vec::new(), Vec::new());
        for (who, plan) in plans.into_iter().enumerate() {
            manager.add(now, who);
            transfers.push(
                plan.transfer
                    .map(|transfer| TrackedTransfer::new(now, transfer)),
            );
            targets.push(TrackedTarget::new(plan.name, plan.target));
        }
        let found = process_tree::find(&mut host, &mut targets).into_iter();
        let found = found.collect::<Result<Vec<_>, _>>()?;
        let mut accounting = IoAccounting::default();
        accounting.open(&mut host, found.iter().flatten())?;
        let count = targets.len();
        let mut agent = Agent {
            host,
            dry_run,
            manager,
            targets,
            accounting,
            transfers,
            moved: vec![(0, None); count],
            interval,
            interval_start: now,
            last_scan: now,
            learns_capacity: capacity.is_none(),
            capacity: capacity.unwrap_or(0),
            refused: vec![false; count],
        };
        let mut events = Vec::new();
        agent.account_scan(found, now, &mut Vec::new(), &mut events);
        agent.start_transfers(now, &mut events);
        Ok((agent, events))
    }

    fn start_transfers(&mut self, now: Nanos, events: &mut Vec<Event>) {
        let mut changes = Vec::new();
        for who in 0..self.targets.len() {
            let Some(transfer) = &self.transfers[who] else {
                continue;
            };
            let can_be = self.manager.begin(who, transfer.transfer, &mut changes);
            // Without a known bandwidth the verdict means nothing.
            if !can_be && !self.learns_capacity {
                let name = self.targets[who].name.clone();
                events.push(Event::GivenUp { name });
            }
        }
        // Without a known bandwidth no decision is possible yet.
        if !self.learns_capacity {
            self.manager.cycle(now, &mut changes);
        }
        self.report_classes(&changes, events);
        self.apply_classes(events);
    }

    /// Scans all targets, and at the end of an interval reconsiders their priorities.
    pub fn step(&mut self, now: Nanos) -> Vec<Event> {
        let (mut events, mut changes) = (Vec::new(), Vec::new());
        let found = self.find_processes();
        self.account_scan(found, now, &mut changes, &mut events);
        if now.since(self.interval_start) >= self.interval {
            self.measure(now, &mut changes, &mut events);
        }
        self.report_classes(&changes, &mut events);
        self.report_late(now, &mut events);
        self.apply_classes(&mut events);
        events
    }

    fn report_late(&mut self, now: Nanos, events: &mut Vec<Event>) {
        for (transfer, tracked) in self.transfers.iter_mut().zip(&self.targets) {
            if let Some(transfer) = transfer
                && transfer.becomes_late(now)
            {
                let (name, left) = (tracked.name.clone(), transfer.transfer.left());
                events.push(Event::Late { name, left });
            }
        }
    }

    /// Time until the next scan: a second, or an interval if that is shorter. Shorter when a
    /// transfer is about to end, because the last bytes of an ended process can no longer be read.
    pub fn next_look(&self, now: Nanos) -> Nanos {
        let most = MAX_SCAN_INTERVAL.min(self.interval);
        let running = (self.transfers.iter().enumerate())
            .filter_map(|(who, transfer)| Some((who, transfer.as_ref()?)))
            .filter(|(_, transfer)| transfer.state == State::Running);
        // A quarter of the shortest time in which it may end.
        let quarter = |(who, transfer): (usize, &TrackedTransfer)| {
            Nanos(transfer.transfer.latency(self.max_rate(who, now)).0 / 4)
        };
        let soon = running.map(quarter).min();
        soon.map_or(most, |soon| soon.clamp(MIN_SCAN_INTERVAL.min(most), most))
    }

    /// Highest rate of a target in bytes per second: the bandwidth of the disk, or the target's own
    /// rate if that is higher or the bandwidth unknown.
    fn max_rate(&self, who: usize, now: Nanos) -> u64 {
        let (bytes, last) = self.moved[who];
        let own = per_s(bytes, now.since(self.interval_start)).max(last.unwrap_or(0));
        own.max(self.capacity)
    }

    /// Finds the processes of all targets. A target that is gone has none; it may reappear.
    fn find_processes(&mut self) -> Vec<Vec<Process>> {
        let found = process_tree::find(&mut self.host, &mut self.targets);
        found.into_iter().map(Result::unwrap_or_default).collect()
    }

    fn account_scan(
        &mut self,
        found: Vec<Vec<Process>>,
        now: Nanos,
        changes: &mut Vec<Change>,
        events: &mut Vec<Event>,
    ) {
        let moved = self.accounting.scan(&mut self.host, found.iter().flatten());
        for (who, found) in found.iter().enumerate() {
            let scan = self.targets[who].scan(found, &moved);
            self.account_target(who, scan, now, changes, events);
        }
        self.last_scan = now;
    }

    fn account_target(
        &mut self,
        who: usize,
        scan: Scan,
        now: Nanos,
        changes: &mut Vec<Change>,
        events: &mut Vec<Event>,
    ) {
        // Twice the possible amount, because rates vary.
        let gap = now.since(self.last_scan);
        let unseen_most = in_time(self.max_rate(who, self.last_scan), gap).saturating_mul(2);
        let tracked = &mut self.targets[who];
        let name = || tracked.name.clone();
        let found = |process| Event::Found {
            name: name(),
            process,
        };
        events.extend(scan.new.into_iter().map(found));
        // True only in the scan that finds the last process gone.
        let left = tracked.present && !tracked.has_processes();
        if left {
            events.push(Event::Left { name: name() });
        }
        tracked.present = tracked.has_processes();
        self.moved[who].0 += scan.moved;
        let done = self.manager.moved(who, scan.moved);
        let running = |transfer: &&mut TrackedTransfer| transfer.state == State::Running;
        let Some(transfer) = self.transfers[who].as_mut().filter(running) else {
            return;
        };
        transfer.transfer.moved = transfer.transfer.moved.saturating_add(scan.moved);
        transfer.state = match transfer.transfer.left() {
            _ if done => transfer.done(now, 0),
            rest if left && rest <= unseen_most => transfer.done(now, rest),
            rest if left => State::Gone { left: rest },
            _ => return,
        };
        let (name, state) = (self.targets[who].name.clone(), transfer.state);
        events.push(Event::Ended { name, state });
        self.manager.end(who, changes);
        // A cycle needs a bandwidth; it is 0 until the first interval has passed.
        if self.capacity > 0 {
            self.manager.cycle(now, changes);
        }
    }

    fn measure(&mut self, now: Nanos, changes: &mut Vec<Change>, events: &mut Vec<Event>) {
        let length = now.since(self.interval_start);
        let all = per_s(self.moved.iter().map(|moved| moved.0).sum(), length);
        for (bytes, last) in &mut self.moved {
            *last = Some(per_s(std::mem::take(bytes), length));
        }
        if self.learns_capacity && all > self.capacity {
            self.capacity = all;
            self.manager.set_capacity(all);
        }
        // Compared with the state after `measure`, to report each give-up once.
        let given_up: Vec<bool> = self.given_up().collect();
        self.manager.measure(now, changes);
        self.interval_start = now;
        for (who, was) in given_up.into_iter().enumerate() {
            if !was && self.manager.is_given_up(who) {
                let name = self.targets[who].name.clone();
                events.push(Event::GivenUp { name });
            }
        }
    }

    fn given_up(&self) -> impl Iterator<Item = bool> {
        (0..self.targets.len()).map(|who| self.manager.is_given_up(who))
    }

    /// Reports only the final class of each target.
    fn report_classes(&self, changes: &[Change], events: &mut Vec<Event>) {
        for (at, change) in changes.iter().enumerate() {
            if changes[at + 1..]
                .iter()
                .all(|later| later.who != change.who)
            {
                let (name, class) = (self.targets[change.who].name.clone(), change.class);
                events.push(Event::Class { name, class });
            }
        }
    }

    fn apply_classes(&mut self, events: &mut Vec<Event>) {
        if self.dry_run {
            return;
        }
        self.list_threads();
        for who in 0..self.targets.len() {
            let class = self.manager.class(who).unwrap_or_default();
            self.set_class(who, class, events);
        }
    }

    /// Runs before any class is set, because a thread that left one target may belong to another.
    fn list_threads(&mut self) {
        for tracked in &mut self.targets {
            tracked.list_threads(&mut self.host);
        }
    }

    fn set_class(&mut self, who: usize, class: Class, events: &mut Vec<Event>) {
        let tracked = &mut self.targets[who];
        let refused = tracked.apply(&mut self.host, class);
        // Reported once, not in every scan.
        let reported = std::mem::replace(&mut self.refused[who], refused.is_some());
        if let Some((thread, error)) = refused.filter(|_| !reported) {
            let name = tracked.name.clone();
            events.push(Event::Refused {
                name,
                thread,
                error,
            });
        }
    }

    /// Current state of all targets.
    pub fn report(&self, now: Nanos) -> Vec<Report> {
        let report = |(who, tracked): (usize, &TrackedTarget)| Report {
            name: tracked.name.clone(),
            class: self.manager.class(who).unwrap_or_default(),
            present: tracked.present,
            bytes_per_s: self.moved[who].1,
            transfer: self.transfers[who]
                .as_ref()
                .map(|transfer| (transfer.transfer, transfer.state)),
            forecast: self
                .manager
                .forecast(who, now)
                .filter(|_| self.capacity > 0),
        };
        self.targets.iter().enumerate().map(report).collect()
    }

    /// Returns whether all transfers have ended; `false` if there are none.
    pub fn is_done(&self) -> bool {
        let mut transfers = self.transfers.iter().flatten().peekable();
        transfers.peek().is_some() && transfers.all(|transfer| transfer.state != State::Running)
    }

    /// Restores the original priority of every thread that was changed.
    pub fn restore(&mut self) -> Vec<Event> {
        let mut events = Vec::new();
        let found = self.find_processes();
        let moved = self.accounting.scan(&mut self.host, found.iter().flatten());
        for (tracked, found) in self.targets.iter_mut().zip(&found) {
            tracked.scan(found, &moved);
        }
        self.list_threads();
        for who in 0..self.targets.len() {
            self.refused[who] = false;
            self.set_class(who, Class::BestEffort, &mut events);
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
fn per_s(bytes: u64, time: Nanos) -> u64 {
    let per_s = (u128::from(bytes) * u128::from(Nanos::SECOND.0)).checked_div(time.0.into());
    u64::try_from(per_s.unwrap_or(0)).unwrap_or(u64::MAX)
}

/// Bytes moved in `time` at `bytes_per_s`.
fn in_time(bytes_per_s: u64, time: Nanos) -> u64 {
    let bytes = u128::from(bytes_per_s) * u128::from(time.0) / u128::from(Nanos::SECOND.0);
    u64::try_from(bytes).unwrap_or(u64::MAX)
}
