//! Reported progress of transfers, and what a host's priority database learns from it.

use tidegate_core::time::Nanos;
use tidegate_place::{HostId, Update};

use super::Cluster;
use crate::error::Error;
use crate::record::RunningTransfer;

/// Shortest interval whose rates say something.
pub(super) const SHORTEST_INTERVAL: Nanos = Nanos::SECOND;

impl Cluster<'_> {
    /// Takes over the bytes that transfers have moved since they began, by name, and saves.
    ///
    /// # Errors
    /// If one cannot have moved so many bytes, or the store fails.
    pub fn report_moved(&mut self, moved: &[(String, u64)]) -> Result<(), Error> {
        for (name, bytes) in moved {
            self.check_moved(name, *bytes)?;
        }
        for host in (0..self.state.hosts.len()).map(HostId) {
            if self.moved_on(host, moved) {
                self.learnt.push(host);
            }
        }
        self.settle_waiting();
        self.save()
    }

    fn check_moved(&self, name: &str, bytes: u64) -> Result<(), Error> {
        self.check_own(name)?;
        let transfer = name.to_owned();
        let Some(running) = self.state.running(name) else {
            return Err(if self.state.has_transfer(name) {
                Error::Waits { transfer }
            } else {
                self.unknown(name)
            });
        };
        let allowed = (running.placement.reported, running.transfer.bytes);
        match bytes {
            bytes if bytes < allowed.0 => Err(Error::MovedBack {
                transfer,
                bytes,
                allowed,
            }),
            bytes if bytes > allowed.1 => Err(Error::MovedBeyond {
                transfer,
                bytes,
                allowed,
            }),
            _ => Ok(()),
        }
    }

    /// Takes over the progress of a host's transfers. Returns true if something was learnt: if all
    /// of them were reported at one time before and are reported now, and nothing has changed
    /// between.
    pub(super) fn moved_on(&mut self, host: HostId, moved: &[(String, u64)]) -> bool {
        let now = self.session.now;
        let report = |running: &RunningTransfer| {
            let found = moved
                .iter()
                .find(|(name, _)| *name == running.transfer.name);
            found.map(|report| report.1)
        };
        let (mut had, mut sated) = (Vec::new(), Vec::new());
        if let Some(length) = self.interval(host, |running| report(running).is_some()) {
            for running in self.on(host) {
                let before = running.placement.reported;
                let bytes = report(running).unwrap_or(before).saturating_sub(before);
                let rate = per_s(bytes, length);
                had.push((running.entitlement.class, rate));
                // Nobody knows what a transfer was given that nearly had what it takes.
                let limit = running.transfer.limit;
                let is_sated = limit.is_some_and(|most| rate >= most - most / 20);
                let id = self.names.id(running.name()).filter(|_| is_sated);
                sated.extend(id.map(|id| (id, rate)));
            }
        }
        let name = self.state.hosts[host.0].name.clone();
        let mut now_moved = Vec::new();
        let all = self.state.running.iter_mut();
        for running in all.filter(|running| running.placement.host == name) {
            if let Some(bytes) = report(running) {
                running.placement.reported = bytes;
                running.placement.reported_at = now;
                let id = self.names.id(&running.transfer.name);
                now_moved.extend(id.map(|id| (id, bytes)));
            }
        }
        let update = Update {
            moved: &now_moved,
            had: &had,
            sated: &sated,
            ..Update::default()
        };
        self.pcos.update(now, host, &update);
        !had.is_empty()
    }

    /// Returns the transfers of a host.
    fn on(&self, host: HostId) -> impl Iterator<Item = &RunningTransfer> + Clone {
        let host = self.state.hosts[host.0].name.as_str();
        let all = self.state.running.iter();
        all.filter(move |running| running.placement.host == host)
    }

    /// Returns the length of the interval over which all transfers of a host were reported, if its
    /// rates say something.
    fn interval(
        &self,
        host: HostId,
        is_reported: impl Fn(&RunningTransfer) -> bool,
    ) -> Option<Nanos> {
        let mut all = self.on(host);
        let since = all.clone().next()?.placement.reported_at;
        let length = self.session.now.since(since);
        let steady = self.state.hosts[host.0].steady_since;
        let is_whole = length >= SHORTEST_INTERVAL && since >= steady;
        let is_of_all =
            all.all(|running| running.placement.reported_at == since && is_reported(running));
        (is_whole && is_of_all).then_some(length)
    }
}

fn per_s(bytes: u64, length: Nanos) -> u64 {
    let bytes = u128::from(bytes) * u128::from(Nanos::SECOND.0);
    u64::try_from(bytes / u128::from(length.0.max(1))).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_rounded_down_and_never_beyond_what_a_number_holds() {
        assert_eq!(per_s(10, Nanos::from_secs(3)), 3);
        assert_eq!(per_s(u64::MAX, Nanos::ZERO), u64::MAX);
    }
}
