//! Simulated host: its disk as a fluid, and its PriDyn.

use tidegate_core::time::Nanos;
use tidegate_core::transfers::{Change, Class, PriorityManager, Transfer};

use super::arrivals::Arrival;
use crate::fair_share::{FairShare, fair_share};
use crate::{Bandwidth, Placement, RequestId};

// Nanoseconds of a second.
const SECOND: u128 = Nanos::SECOND.0 as u128;

/// Transfer on the disk.
#[derive(Clone, Copy, Debug)]
struct FluidTransfer {
    id: RequestId,
    /// Number of the transfer in PriDyn.
    who: usize,
    transfer: Transfer,
    class: Class,
    /// Largest rate that the transfer uses, in bytes per second.
    limit: u64,
    /// Current rate in bytes per second.
    rate: u64,
    /// Fraction of a byte moved beyond `transfer.moved`, in bytes per second times nanoseconds.
    rest: u128,
}

/// Transfer that has ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ended {
    pub(super) transfer: Transfer,
    pub(super) at: Nanos,
}

/// Report of a host to the meta-scheduler.
#[derive(Default, Debug)]
pub(super) struct HostReport {
    pub(super) ended: Vec<RequestId>,
    pub(super) classes: Vec<(RequestId, Class)>,
    pub(super) moved: Vec<(RequestId, u64)>,
    pub(super) measured: Vec<(Class, u64)>,
    pub(super) demand_limited: Vec<(RequestId, u64)>,
}

/// Simulated host.
#[derive(Debug)]
pub(super) struct SimHost {
    bandwidth: Bandwidth,
    transfers: Vec<FluidTransfer>,
    manager: PriorityManager,
    interval: Nanos,
    next_interval: Nanos,
    /// Time up to which progress is accounted.
    settled: Nanos,
    /// Start of the current interval without arrival, end or change of class whose rates were not
    /// reported yet.
    steady_since: Nanos,
    /// Bytes moved on this host.
    pub(super) moved: u64,
}

impl SimHost {
    pub(super) fn new(bandwidth: &Bandwidth, interval: Nanos, first: Nanos) -> SimHost {
        SimHost {
            bandwidth: bandwidth.clone(),
            transfers: Vec::new(),
            manager: PriorityManager::new(Nanos::ZERO, bandwidth.max()),
            interval,
            next_interval: first,
            settled: Nanos::ZERO,
            steady_since: Nanos::ZERO,
            moved: 0,
        }
    }

    /// Number of running transfers that are past their deadlines.
    pub(super) fn overdue(&self, now: Nanos) -> usize {
        let late = self
            .transfers
            .iter()
            .filter(|transfer| transfer.transfer.due_time() < now);
        late.count()
    }

    /// Time of the next event.
    pub(super) fn next(&self) -> Nanos {
        let ends = self
            .transfers
            .iter()
            .map(|transfer| transfer.ends(self.settled));
        ends.min().unwrap_or(Nanos::MAX).min(self.next_interval)
    }

    /// Processes what is due: ends of transfers, the end of an interval.
    pub(super) fn process_events(&mut self, now: Nanos, ended: &mut Vec<Ended>) -> HostReport {
        self.settle(now);
        let mut report = HostReport::default();
        let mut changes = Vec::new();
        let done: Vec<FluidTransfer> = (self.transfers.iter().copied())
            .filter(|transfer| transfer.transfer.bytes_left() == 0)
            .collect();
        if !done.is_empty() {
            // Before transfers leave: the rates belong to the old combination.
            self.report_rates(now, &mut report);
        }
        for transfer in done {
            self.manager.remove(transfer.who, &mut changes);
            self.transfers.retain(|other| other.id != transfer.id);
            report.ended.push(transfer.id);
            let (transfer, at) = (transfer.transfer, now);
            ended.push(Ended { transfer, at });
        }
        if !report.ended.is_empty() {
            self.manager
                .set_capacity(self.bandwidth.total_for(self.transfers.len()));
            self.manager.cycle(now, &mut changes);
        }
        if now >= self.next_interval {
            self.next_interval = now + self.interval;
            self.report_rates(now, &mut report);
            self.manager.measure(now, &mut changes);
        }
        self.apply_changes(now, &changes, &mut report);
        self.with_moved(report)
    }

    /// Starts a transfer. `looked_at`: the strategy has considered the VMs' classes; otherwise
    /// PriDyn does now.
    pub(super) fn begin(
        &mut self,
        now: Nanos,
        arrival: &Arrival,
        placement: &Placement,
        looked_at: bool,
    ) -> HostReport {
        self.settle(now);
        let (mut report, mut changes) = (HostReport::default(), Vec::new());
        self.report_rates(now, &mut report);
        let is_free = |who: &usize| self.transfers.iter().all(|transfer| transfer.who != *who);
        // PriDyn addresses transfers by small numbers, which are reused.
        let who = (0..).find(is_free).unwrap_or_default();
        let transfer = arrival.request.start_at(now);
        self.manager
            .set_capacity(self.bandwidth.total_for(self.transfers.len() + 1));
        self.manager.add(now, who);
        self.manager.begin(who, transfer, &mut changes);
        let number = |&(id, class): &(RequestId, Class)| {
            let transfer = self.transfers.iter().find(|transfer| transfer.id == id)?;
            Some((transfer.who, class))
        };
        let lowered: Vec<_> = placement.lowered.iter().filter_map(number).collect();
        self.manager
            .apply_admission(now, who, placement.class, &lowered, &mut changes);
        self.transfers.push(FluidTransfer {
            id: placement.id,
            who,
            transfer,
            class: Class::default(),
            limit: arrival.limit,
            rate: 0,
            rest: 0,
        });
        if !looked_at {
            self.manager.cycle(now, &mut changes);
        }
        self.apply_changes(now, &changes, &mut report);
        self.with_moved(report)
    }

    /// Adds the progress of all transfers to the report.
    fn with_moved(&self, report: HostReport) -> HostReport {
        let moved = self.transfers.iter();
        let moved = moved
            .map(|transfer| (transfer.id, transfer.transfer.moved))
            .collect();
        HostReport { moved, ..report }
    }

    /// Accounts progress up to `now`.
    pub(super) fn settle(&mut self, now: Nanos) {
        let time = u128::from(now.since(self.settled).0);
        for transfer in &mut self.transfers {
            let before = transfer.transfer.moved;
            let amount = transfer.rest + u128::from(transfer.rate) * time;
            let whole = u64::try_from(amount / SECOND).unwrap_or(u64::MAX);
            // The remainder is kept, so that no byte is lost to rounding.
            transfer.rest = amount % SECOND;
            transfer.transfer.moved = before.saturating_add(whole).min(transfer.transfer.bytes);
            let moved = transfer.transfer.moved - before;
            self.moved += moved;
            self.manager.record_moved(transfer.who, moved);
        }
        self.settled = now;
    }

    /// Reports the rates since the last change if they lasted for a third of an interval, PriDyn's
    /// minimum.
    fn report_rates(&mut self, now: Nanos, report: &mut HostReport) {
        let steady = now.since(self.steady_since).0;
        if steady.saturating_mul(3) >= self.interval.0 && !self.transfers.is_empty() {
            let measured = self
                .transfers
                .iter()
                .map(|transfer| (transfer.class, transfer.rate));
            report.measured = measured.collect();
            let is_limited = |transfer: &&FluidTransfer| transfer.rate == transfer.limit;
            let limited = self.transfers.iter().filter(is_limited);
            report.demand_limited = limited
                .map(|transfer| (transfer.id, transfer.rate))
                .collect();
            for transfer in self.transfers.iter().filter(is_limited) {
                self.manager.set_limit(transfer.who, Some(transfer.rate));
            }
            self.steady_since = now;
        }
    }

    /// Applies PriDyn's class changes and redistributes the bandwidth.
    fn apply_changes(&mut self, now: Nanos, changes: &[Change], report: &mut HostReport) {
        let before: Vec<Class> = self
            .transfers
            .iter()
            .map(|transfer| transfer.class)
            .collect();
        for change in changes {
            let mut all = self.transfers.iter_mut();
            if let Some(transfer) = all.find(|transfer| transfer.who == change.user) {
                transfer.class = change.class;
            }
        }
        for (transfer, before) in self.transfers.iter().zip(before) {
            if transfer.class != before {
                report.classes.push((transfer.id, transfer.class));
            }
        }
        self.share_disk();
        // A transfer that starts has no rate yet.
        if !report.classes.is_empty() || !report.ended.is_empty() || self.has_begun(now) {
            self.steady_since = now;
        }
    }

    fn has_begun(&self, now: Nanos) -> bool {
        self.transfers
            .iter()
            .any(|transfer| transfer.transfer.begun == now)
    }

    /// Distributes the bandwidth: the highest class gets all of it in equal parts, the unused rest
    /// goes to the next class.
    fn share_disk(&mut self) {
        let mut left = u128::from(self.bandwidth.total_for(self.transfers.len()));
        for class in Class::ALL.into_iter().rev() {
            let of_class = || {
                self.transfers
                    .iter()
                    .filter(|transfer| transfer.class == class)
            };
            let mut limits: Vec<u64> = of_class()
                .map(|transfer| transfer.limit)
                .filter(|limit| *limit < u64::MAX)
                .collect();
            // `fair_share` serves the smallest limits first.
            limits.sort_unstable();
            let greedy = of_class().count() - limits.len();
            if greedy + limits.len() == 0 {
                continue;
            }
            let FairShare { each, rest } = fair_share(left, greedy, limits.into_iter());
            left = rest;
            for transfer in self
                .transfers
                .iter_mut()
                .filter(|transfer| transfer.class == class)
            {
                transfer.rate = each.min(transfer.limit);
            }
        }
    }
}

impl FluidTransfer {
    /// Time at which the transfer ends at its current rate.
    fn ends(&self, settled: Nanos) -> Nanos {
        let left = (u128::from(self.transfer.bytes_left()) * SECOND).saturating_sub(self.rest);
        match self.rate {
            _ if self.transfer.bytes_left() == 0 => settled,
            // Until the next change of rates the transfer stands still.
            0 => Nanos::MAX,
            rate => {
                let time = u64::try_from(left.div_ceil(rate.into())).unwrap_or(u64::MAX);
                settled + Nanos(time)
            }
        }
    }
}
