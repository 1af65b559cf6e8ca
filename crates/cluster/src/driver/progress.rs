//! Progress reports of transfers, whose rates are recorded in the host's priority database.

use std::collections::{BTreeMap, BTreeSet};

use tidegate_core::time::Nanos;

use tidegate_place::{HostId, Update};

use super::Cluster;
use super::resume::names_on;
use crate::error::Error;
use crate::record::{Entitlement, HostRecord, RunningTransfer, Transfer};
use crate::state::ClusterState;

/// Shortest interval between reports whose rates are recorded: 1 s. Over less, one large request
/// more or less changes the rate of a disk by several per cent.
pub(super) const SHORTEST_INTERVAL: Nanos = Nanos::SECOND;

/// Multiple of a host's bandwidth up to which rates of its transfers together are recorded. Bytes
/// above it did not come from its disk in that interval: they came from a cache, or were reported
/// late.
const PLAUSIBLE_TIMES_BANDWIDTH: u64 = 2;

/// Percentage of its own limit from which on a transfer's demand, not its class, decided its rate.
const DEMAND_LIMITED_PERCENT: u64 = 95;

impl Cluster<'_> {
    /// Applies progress reports (name, total bytes moved since the start), and saves.
    ///
    /// # Errors
    /// A transfer cannot have moved this number of bytes, or the store fails.
    pub fn report_moved(&mut self, moved: &[(String, u64)]) -> Result<(), Error> {
        // All reports are checked before any is applied.
        for (name, bytes) in moved {
            self.check_moved(name, *bytes)?;
        }
        // Host by host, because an interval counts only with the rates of all its transfers.
        let reported = moved
            .iter()
            .filter_map(|(name, _)| self.state.running(name));
        let hosts = reported.filter_map(|running| self.state.host(&running.placement.host));
        let hosts: BTreeSet<_> = hosts.collect();
        for host in hosts {
            if self.apply_reports(host, moved) {
                self.learnt.push(host);
            }
        }
        self.apply_events();
        self.save()
    }

    fn check_moved(&self, name: &str, bytes: u64) -> Result<(), Error> {
        self.check_not_live(name)?;
        let transfer = name.to_owned();
        let Some(running) = self.state.running(name) else {
            return Err(if self.state.has_transfer(name) {
                Error::StillWaiting { transfer }
            } else {
                self.unknown_transfer(name)
            });
        };
        let (reported, size) = (running.placement.reported, running.transfer.bytes);
        match bytes {
            bytes if bytes < reported => Err(Error::MovedBack {
                transfer,
                bytes,
                reported,
                size,
            }),
            bytes if bytes > size => Err(Error::MovedBeyond {
                transfer,
                bytes,
                reported,
                size,
            }),
            _ => Ok(()),
        }
    }

    /// Applies the progress reports of a host's transfers. Returns true if the interval's rates
    /// were recorded in its priority database: if all its transfers were reported at the same time
    /// before and again now, without a change in between, and the rates are plausible.
    pub(super) fn apply_reports(&mut self, host: HostId, moved: &[(String, u64)]) -> bool {
        let now = self.session.now;
        let mut reports = BTreeMap::new();
        for (name, bytes) in moved {
            reports.entry(name.as_str()).or_insert(*bytes);
        }
        let report = |running: &RunningTransfer| reports.get(running.name()).copied();
        let (mut measured, mut demand_limited) = (Vec::new(), Vec::new());
        if let Some(length) = self.common_interval(host, |running| report(running).is_some()) {
            for running in self.transfers_on(host) {
                let before = running.placement.reported;
                let bytes = report(running).unwrap_or(before).saturating_sub(before);
                let rate = per_s(bytes, length);
                measured.push((running.entitlement.class, rate));
                let is_limited = (running.transfer.limit)
                    .is_some_and(|limit| rate >= demand_limited_from(limit));
                let id = self.names.id(running.name()).filter(|_| is_limited);
                demand_limited.extend(id.map(|id| (id, rate)));
            }
        }
        let rates = measured.iter().map(|&(_, rate): &(_, u64)| rate);
        let together = rates.fold(0, u64::saturating_add);
        let record = &self.state.hosts[host.0];
        if together / PLAUSIBLE_TIMES_BANDWIDTH > record.bandwidth {
            measured.clear();
            demand_limited.clear();
        }
        self.touched.hosts.insert(record.name.clone());
        let mut now_moved = Vec::new();
        for name in names_on(&self.pcos, &self.names, host) {
            if self.state.running.get(name).is_none() {
                continue;
            }
            self.touched.add_transfer(name);
            let bytes = reports.get(name).copied();
            if let Some((bytes, running)) = bytes.zip(self.state.running.get_mut(name)) {
                running.placement.reported = bytes;
                running.placement.reported_at = now;
                now_moved.extend(self.names.id(name).map(|id| (id, bytes)));
            }
        }
        let update = Update {
            moved: &now_moved,
            measured: &measured,
            demand_limited: &demand_limited,
            ..Update::default()
        };
        self.pcos.update(now, host, &update);
        !measured.is_empty()
    }

    /// Returns the hosts whose progress must be stored: it was reported, their rates have changed,
    /// or their daemon may have other transfers next time. On all others the next session gets the
    /// same estimate from the stored progress, and a commit stays as small as what it changes.
    pub(super) fn changed_hosts(&self) -> Vec<HostId> {
        if self.is_kept && !self.touched.everything {
            // What is touched is known, and the rates of no other host have changed.
            return self.touched_hosts(&self.touched).into_iter().collect();
        }
        let (before, after) = (by_host(&self.stored.state), by_host(&self.state));
        let stored = self.stored.state.hosts.iter();
        let stored: BTreeMap<&str, &HostRecord> =
            stored.map(|host| (host.name.as_str(), host)).collect();
        let is_changed = |(at, host): (usize, &HostRecord)| {
            let (name, id) = (host.name.as_str(), HostId(at));
            let is_changed = self.may_report_others(host)
                || self.learnt.contains(&id)
                || stored.get(name) != Some(&host)
                || before.get(name) != after.get(name)
                || self.has_ended(id);
            is_changed.then_some(id)
        };
        let hosts = self.state.hosts.iter().enumerate();
        hosts.filter_map(is_changed).collect()
    }

    /// Returns whether the daemon of a host is asked, and may have other transfers next time.
    fn may_report_others(&self, host: &HostRecord) -> bool {
        host.socket.is_some() && !self.unreached.contains(&host.name)
    }

    /// Returns whether a transfer of a host has moved all its bytes by the estimate, and not by the
    /// stored one: others go faster from then on.
    fn has_ended(&self, host: HostId) -> bool {
        let mut all = self
            .pcos
            .host(host)
            .into_iter()
            .flat_map(|view| view.running().to_vec());
        all.any(|running| {
            let left = running
                .vm
                .transfer
                .map_or(0, |transfer| transfer.bytes_left());
            let stored = self
                .names
                .name(running.id)
                .and_then(|name| self.state.running(name));
            left == 0 && stored.is_some_and(|stored| stored.progress().bytes_left() > 0)
        })
    }

    /// Returns the transfers that run on a host.
    fn transfers_on(&self, host: HostId) -> impl Iterator<Item = &RunningTransfer> {
        let names = names_on(&self.pcos, &self.names, host);
        names.filter_map(|name| self.state.running(name))
    }

    /// Returns the interval over which all transfers of a host were reported; `None`: not all at
    /// the same times, too short, or with a change in between.
    fn common_interval(
        &self,
        host: HostId,
        is_reported: impl Fn(&RunningTransfer) -> bool,
    ) -> Option<Nanos> {
        let mut all = self.transfers_on(host);
        let since = self.transfers_on(host).next()?.placement.reported_at;
        let length = self.session.now.since(since);
        let steady = self.state.hosts[host.0].steady_since;
        // An interval counts only if nothing changed on the host within it.
        let is_whole = length >= SHORTEST_INTERVAL && since >= steady;
        let is_of_all =
            all.all(|running| running.placement.reported_at == since && is_reported(running));
        (is_whole && is_of_all).then_some(length)
    }
}

/// Returns the placed transfers by host, with all that their rates depend on, and the times of
/// their last reports.
fn by_host(state: &ClusterState) -> BTreeMap<&str, Vec<(&Transfer, &Entitlement, Nanos)>> {
    let mut hosts = BTreeMap::<_, Vec<_>>::new();
    for running in state.running.iter().filter(|running| !running.live) {
        let there = hosts.entry(running.placement.host.as_str()).or_default();
        let reported_at = running.placement.reported_at;
        there.push((&running.transfer, &running.entitlement, reported_at));
    }
    hosts
}

/// Returns the rate from which on a transfer with this limit counts as limited by its own demand.
fn demand_limited_from(limit: u64) -> u64 {
    // Divided first: the product may exceed 64 bits.
    limit - limit / (100 / (100 - DEMAND_LIMITED_PERCENT))
}

fn per_s(bytes: u64, length: Nanos) -> u64 {
    let bytes = u128::from(bytes) * u128::from(Nanos::SECOND.0);
    // The interval is at least `SHORTEST_INTERVAL`; `max` only rules out a division by zero.
    u64::try_from(bytes / u128::from(length.0.max(1))).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_rounded_down_and_saturates() {
        assert_eq!(per_s(10, Nanos::from_secs(3)), 3);
        assert_eq!(per_s(u64::MAX, Nanos::ZERO), u64::MAX);
    }
}
