//! Delays of VMs by other VMs over the last minute.

use std::collections::{BTreeMap, VecDeque};

use tidegate_api::stats::{StatsView, VmStatsView};

/// Span of the matrix.
const SPAN_MS: u64 = 60_000;
/// Least time between two remembered answers, so that their number is bounded.
const APART_MS: u64 = 1_000;

/// Counters of delays from the answers of the last minute.
#[derive(Clone, Default, Debug)]
pub(crate) struct Delays {
    answers: VecDeque<Counters>,
}

/// Counters of all VMs at a time.
#[derive(Clone, Debug)]
struct Counters {
    at_ms: u64,
    vms: BTreeMap<String, Times>,
}

/// Times of a VM's requests since the daemon started.
#[derive(Clone, Default, Debug)]
struct Times {
    /// Time of all requests, in nanoseconds.
    total_ns: u64,
    /// Time behind each other VM.
    behind: BTreeMap<String, u64>,
}

/// Row of the matrix: how a VM's requests were delayed.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Delayed {
    pub(crate) vm: String,
    /// Time of all its requests, in nanoseconds.
    pub(crate) total_ns: u64,
    /// Time behind each other VM in nanoseconds, the longest first.
    pub(crate) behind: Vec<(String, u64)>,
}

impl Delayed {
    /// Returns the time behind all other VMs, in nanoseconds.
    fn behind_ns(&self) -> u64 {
        self.behind.iter().map(|(_, ns)| ns).sum()
    }

    /// Returns the share of the VM's time that it was behind another one, 0 to 1; `None` if its
    /// requests took no time.
    pub(crate) fn share(&self, culprit: &str) -> Option<f64> {
        let ns = self.behind.iter().find(|(vm, _)| vm == culprit);
        let ns = ns.map_or(0, |(_, ns)| *ns);
        // Parts are estimates, and might exceed the whole by a little.
        (self.total_ns > 0).then(|| (ns as f64 / self.total_ns as f64).min(1.0))
    }
}

impl Delays {
    /// Adds the daemon's answer of a time.
    pub(crate) fn add(&mut self, at_ms: u64, stats: &StatsView) {
        let vms = stats.vms.iter();
        let counters = Counters {
            at_ms,
            vms: vms.map(|vm| (vm.vm.clone(), Times::of(vm))).collect(),
        };
        // The newest answer is always the one of now; the one before stays if it is apart from the
        // one before that.
        if let [.., before, last] = self.answers.make_contiguous()
            && last.at_ms < before.at_ms + APART_MS
        {
            self.answers.pop_back();
        }
        self.answers.push_back(counters);
        while self.answers.len() > 2 && self.answers[0].at_ms + SPAN_MS < at_ms {
            self.answers.pop_front();
        }
    }

    /// Returns the seconds that the matrix covers.
    pub(crate) fn seconds(&self) -> u64 {
        match (self.answers.front(), self.answers.back()) {
            (Some(first), Some(last)) => last.at_ms.saturating_sub(first.at_ms) / 1000,
            _ => 0,
        }
    }

    /// Returns a row for each VM: those with most time behind others first, equal ones in the
    /// order of their names.
    pub(crate) fn rows(&self) -> Vec<Delayed> {
        let (Some(first), Some(last)) = (self.answers.front(), self.answers.back()) else {
            return Vec::new();
        };
        let none = Times::default();
        let row = |(vm, now): (&String, &Times)| {
            // A VM that is new, or a daemon that has restarted, has counters from 0.
            let before = first.vms.get(vm).unwrap_or(&none);
            let before = if before.total_ns > now.total_ns {
                &none
            } else {
                before
            };
            let mut behind: Vec<(String, u64)> = (now.behind.iter())
                .map(|(culprit, ns)| {
                    // One that left the list of the heaviest in between has begun anew.
                    let was = before.behind.get(culprit).copied().unwrap_or(0);
                    (culprit.clone(), ns.checked_sub(was).unwrap_or(*ns))
                })
                .filter(|(_, ns)| *ns > 0)
                .collect();
            behind.sort_by_key(|(_, ns)| std::cmp::Reverse(*ns));
            Delayed {
                vm: vm.clone(),
                total_ns: now.total_ns - before.total_ns,
                behind,
            }
        };
        let mut rows: Vec<Delayed> = last.vms.iter().map(row).collect();
        // Stable: the map is in the order of names.
        rows.sort_by_key(|row| std::cmp::Reverse(row.behind_ns()));
        rows
    }

    /// Returns the VMs that others were behind, the one with the most time first.
    pub(crate) fn culprits(rows: &[Delayed]) -> Vec<String> {
        let mut sums: BTreeMap<&str, u64> = BTreeMap::new();
        for (culprit, ns) in rows.iter().flat_map(|row| &row.behind) {
            *sums.entry(culprit).or_default() += ns;
        }
        let mut culprits: Vec<(&str, u64)> = sums.into_iter().collect();
        culprits.sort_by_key(|(_, ns)| std::cmp::Reverse(*ns));
        culprits.into_iter().map(|(vm, _)| vm.to_owned()).collect()
    }
}

impl Times {
    fn of(vm: &VmStatsView) -> Times {
        let account = &vm.account;
        let stages = [
            account.regulated_ns,
            account.queued_ns,
            account.merged_wait_ns,
            account.deliberate_ns,
            account.device_ns,
        ];
        let mut behind = BTreeMap::new();
        for it in &vm.waited_behind {
            // Several VMs that were removed have one name.
            *behind.entry(it.vm.clone()).or_default() += it.ns;
        }
        Times {
            total_ns: stages.iter().sum(),
            behind,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::top::fixture;

    fn stats(total_ns: u64, behind: &[(&str, u64)]) -> StatsView {
        let mut vm = fixture::stats("oltp", 0);
        vm.account.queued_ns = total_ns - vm.account.device_ns;
        vm.waited_behind = behind
            .iter()
            .map(|(vm, ns)| tidegate_api::stats::BehindView {
                vm: (*vm).to_owned(),
                ns: *ns,
            })
            .collect();
        StatsView {
            vms: vec![vm],
            devices: Vec::new(),
        }
    }

    #[test]
    fn shares_are_those_of_the_last_minute() {
        let mut delays = Delays::default();
        delays.add(0, &stats(10_000, &[("bulk", 9_000)]));
        delays.add(30_000, &stats(20_000, &[("bulk", 9_000)]));
        delays.add(90_000, &stats(30_000, &[("bulk", 11_000), ("web", 3_000)]));
        assert_eq!(delays.seconds(), 60);
        let rows = delays.rows();
        assert_eq!(rows[0].share("web"), Some(0.3));
        assert_eq!(rows[0].share("bulk"), Some(0.2));
        assert_eq!(rows[0].share("nobody"), Some(0.0));
        assert_eq!(Delays::culprits(&rows), ["web", "bulk"]);
    }

    #[test]
    fn those_that_others_delayed_most_come_first() {
        let mut delays = Delays::default();
        let of = |vm: &str, ns: u64| {
            let mut stats = stats(90_000, &[("bulk", ns)]).vms.remove(0);
            vm.clone_into(&mut stats.vm);
            stats
        };
        let none = [of("a", 0), of("b", 0), of("c", 0), of("d", 0)];
        let some = [of("a", 0), of("b", 5), of("c", 9), of("d", 0)];
        for (at_ms, vms) in [(0, none), (1000, some)] {
            let stats = StatsView {
                vms: vms.into(),
                devices: Vec::new(),
            };
            delays.add(at_ms, &stats);
        }
        let rows = delays.rows();
        let order: Vec<&str> = rows.iter().map(|row| row.vm.as_str()).collect();
        assert_eq!(order, ["c", "b", "a", "d"]);
    }

    #[test]
    fn counters_that_begin_anew_count_as_they_are() {
        let mut delays = Delays::default();
        delays.add(0, &stats(90_000, &[("bulk", 9_000)]));
        delays.add(10_000, &stats(10_000, &[("bulk", 1_000)]));
        assert_eq!(delays.rows()[0].share("bulk"), Some(0.1), "a restart");
        let mut delays = Delays::default();
        delays.add(0, &stats(10_000, &[("bulk", 9_000)]));
        delays.add(10_000, &stats(20_000, &[("bulk", 1_000)]));
        assert_eq!(delays.rows()[0].share("bulk"), Some(0.1), "a new entry");
    }

    #[test]
    fn answers_that_come_fast_are_thinned_out() {
        let mut delays = Delays::default();
        for at in 0..2000 {
            delays.add(at * 50, &stats(10_000 + at, &[]));
        }
        assert!(delays.answers.len() <= 63, "{}", delays.answers.len());
        assert!(
            (59..=61).contains(&delays.seconds()),
            "{}",
            delays.seconds()
        );
    }
}
