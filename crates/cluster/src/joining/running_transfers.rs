//! Running transfers of the daemon, as they are published for placers that do not reach it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::{self, JoinHandle};

use super::MemberSource;
use crate::membership::PublishedTransfer;

/// Interval at which the event loops are asked which transfers run.
const ASK_INTERVAL: Duration = Duration::from_secs(10);
/// Shortest such interval, after a transfer of a placer has begun.
const ASK_MIN: Duration = Duration::from_secs(1);
/// Time after which progress alone is published: each publication is a write to etcd, and placers
/// estimate the progress in between.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(60);

/// Running transfers by device.
pub(super) type ByDevice = BTreeMap<String, Vec<PublishedTransfer>>;

/// Running transfers to be published, and the question that is under way.
#[derive(Default)]
pub(super) struct RunningTransfers {
    current: ByDevice,
    /// Time at which `current` was taken.
    taken: Option<Instant>,
    asked: Option<Instant>,
    /// Question to the event loops that is under way.
    pub(super) task: Option<JoinHandle<ByDevice>>,
    /// True if a transfer has begun since the last question.
    pub(super) is_outdated: bool,
}

impl RunningTransfers {
    /// Returns the transfers of a device; `None`: it has not answered.
    pub(super) fn on_device(&self, device: &str) -> Option<&[PublishedTransfer]> {
        self.current.get(device).map(Vec::as_slice)
    }

    /// Asks the event loops, if it is due.
    pub(super) fn begin(&mut self, source: &Arc<impl MemberSource>) {
        let interval = if self.is_outdated {
            ASK_MIN
        } else {
            ASK_INTERVAL
        };
        let is_due = self.asked.is_none_or(|asked| asked.elapsed() >= interval);
        if !is_due || self.task.is_some() {
            return;
        }
        self.is_outdated = false;
        self.asked = Some(Instant::now());
        let source = source.clone();
        self.task = Some(task::spawn(async move { source.transfers().await }));
    }

    /// Takes an answer: at once if other transfers run than before, else from time to time.
    pub(super) fn finish(&mut self, answer: ByDevice, now: Instant) {
        self.task = None;
        let age = self.taken.map(|taken| now.saturating_duration_since(taken));
        let is_old = age.is_none_or(|age| age >= PROGRESS_INTERVAL);
        if is_old || identities(&self.current) != identities(&answer) {
            (self.current, self.taken) = (answer, Some(now));
        }
    }
}

/// Returns the transfers without what changes as they go on.
fn identities(all: &ByDevice) -> Vec<(&str, &str, u64, u64)> {
    let devices = all.iter();
    let transfers = devices.flat_map(|(device, there)| {
        let there = there.iter();
        there.map(|it| (device.as_str(), it.vm.as_str(), it.bytes, it.due.0))
    });
    transfers.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_core::time::Nanos;
    use tidegate_core::transfers::Class;

    fn answer(transfers: &[(&str, u64)]) -> ByDevice {
        let transfer = |&(vm, moved): &(&str, u64)| PublishedTransfer {
            vm: vm.to_owned(),
            bytes: 900,
            moved,
            due: Nanos(7),
            class: Class::BestEffort,
            as_of: Nanos(moved),
        };
        let transfers = transfers.iter().map(transfer).collect();
        [("sda".to_owned(), transfers)].into()
    }

    #[test]
    fn other_transfers_are_taken_at_once_and_progress_once_in_a_while() {
        let mut all = RunningTransfers::default();
        let begun = Instant::now();
        let after = |seconds| begun + Duration::from_secs(seconds);
        assert_eq!(all.on_device("sda"), None);
        let none = answer(&[]);
        all.finish(none, begun);
        assert_eq!(all.on_device("sda"), Some(&[][..]));
        let moved = |all: &RunningTransfers| {
            let there = all.on_device("sda").expect("answered");
            there.iter().map(|it| it.moved).collect::<Vec<_>>()
        };
        all.finish(answer(&[("x", 1)]), after(10));
        assert_eq!(moved(&all), [1]);
        all.finish(answer(&[("x", 2)]), after(69));
        assert_eq!(moved(&all), [1], "progress of less than a minute");
        all.finish(answer(&[("x", 3)]), after(70));
        assert_eq!(moved(&all), [3]);
        all.finish(answer(&[("y", 4)]), after(71));
        assert_eq!(moved(&all), [4]);
        all.finish(answer(&[]), after(72));
        assert_eq!(moved(&all), [0; 0]);
    }
}
