//! Rates and lateness of the transfers on a host if they had other classes. Figures cited in this
//! file are those of Jain's thesis; this is the proactive agent of figure 5.9.
//!
//! A transfer is in time exactly if its rate is at least the rate it needs, the remaining bytes
//! over the remaining time. The needed rates are computed once, so the evaluation of a combination
//! compares numbers.

use tidegate_core::time::Nanos;
use tidegate_core::transfers::{Class, Forecast, Transfer};

use crate::fair_share::{FairShare, fair_share};
use crate::request::needed;
use crate::{ClassRates, Combination, Grace, HostSnapshot, VmState};

/// Latest time from which the rest of a transfer, at `bytes_per_s` without a pause, ends no later
/// than its deadline plus grace.
fn latest_start(transfer: &Transfer, bytes_per_s: u64, grace: Grace) -> Nanos {
    match transfer.bytes_left() {
        0 => Nanos::MAX,
        // At a rate of 0 it is never in time.
        _ if bytes_per_s == 0 => Nanos::ZERO,
        _ => (transfer.due_time() + grace.of_deadline(transfer.deadline))
            .since(transfer.latency(bytes_per_s)),
    }
}

/// Current rates of the transfers on a host in bytes per second, in the order of the VMs of the
/// snapshot.
pub fn rates(snapshot: &HostSnapshot<'_>) -> Vec<u64> {
    let what_if = WhatIf::without_newcomer(snapshot);
    (0..what_if.len()).map(|at| what_if.rate_of(at)).collect()
}

/// Forecasts of the transfers on a host at their current rates, in the order of the snapshot's
/// VMs; `None` for a VM without a transfer.
pub fn forecasts(snapshot: &HostSnapshot<'_>) -> Vec<Option<Forecast>> {
    let both = snapshot.vms.iter().zip(rates(snapshot));
    both.map(|(vm, rate)| Some(vm.transfer?.forecast(snapshot.now, rate)))
        .collect()
}

/// VMs of a host with tentative classes, and a newcomer.
#[derive(Debug)]
pub(crate) struct WhatIf<'a> {
    snapshot: &'a HostSnapshot<'a>,
    /// VMs with limited demand, by ascending limit.
    limited: Vec<usize>,
    /// Rate that each VM needs to meet its deadline, without grace, in bytes per second, or
    /// keeps by [`LateRule`](crate::LateRule) if it is late even without the newcomer; 0: any rate
    /// will do.
    needs: Vec<u64>,
    /// `true` for each VM that is late even without the newcomer, by more than its grace.
    late_anyway: Vec<bool>,
    classes: Vec<Class>,
    /// Lowest rate at which each VM was found in time, in bytes per second.
    lowest_sufficient: Vec<u64>,
    /// First time at which a VM that makes no progress becomes late by more than its grace, and
    /// from then on only keeps its rate.
    protected_until: Nanos,
    /// Tentative class of the newcomer.
    newcomer_class: Class,
    combination: Combination,
    /// Rate of a VM with unlimited demand, of each class.
    rates: ClassRates,
}

impl<'a> WhatIf<'a> {
    /// Analyses the running VMs without a newcomer.
    pub(crate) fn without_newcomer(snapshot: &'a HostSnapshot<'a>) -> WhatIf<'a> {
        let vms = snapshot.vms;
        let mut limited: Vec<usize> = (0..vms.len())
            .filter(|&at| snapshot.limit(at) < u64::MAX)
            .collect();
        // `fair_share` needs the limits in ascending order.
        limited.sort_by_key(|&at| snapshot.limit(at));
        let classes: Vec<Class> = vms.iter().map(|vm| vm.class).collect();
        let mut what_if = WhatIf {
            snapshot,
            limited,
            needs: Vec::with_capacity(vms.len()),
            late_anyway: Vec::with_capacity(vms.len()),
            combination: Combination::from_classes(classes.iter().copied()),
            classes,
            lowest_sufficient: Vec::with_capacity(vms.len()),
            protected_until: Nanos::MAX,
            newcomer_class: Class::default(),
            rates: ClassRates::default(),
        };
        what_if.update_rates();
        what_if
    }

    /// Analyses the running VMs with a newcomer of the default class.
    pub(crate) fn new(snapshot: &'a HostSnapshot<'a>) -> WhatIf<'a> {
        let mut what_if = WhatIf::without_newcomer(snapshot);
        for (index, vm) in snapshot.vms.iter().enumerate() {
            let rate = what_if.rate_of(index);
            let need = vm.transfer.map_or(0, |transfer| {
                needed(
                    transfer.bytes_left(),
                    transfer.due_time().since(snapshot.now),
                )
            });
            let protected_until = (vm.transfer).map_or(Nanos::MAX, |transfer| {
                latest_start(&transfer, rate, snapshot.grace)
            });
            let late_anyway = protected_until < snapshot.now;
            let need = if late_anyway {
                snapshot.late_rule.kept(rate)
            } else {
                what_if.protected_until = what_if.protected_until.min(protected_until);
                need
            };
            what_if.needs.push(need);
            what_if.late_anyway.push(late_anyway);
            what_if.lowest_sufficient.push(u64::MAX);
        }
        what_if.reset();
        what_if
    }

    /// Resets all VMs to their current classes and the newcomer to the default class.
    pub(crate) fn reset(&mut self) {
        self.classes.clear();
        (self.classes).extend(self.snapshot.vms.iter().map(|vm| vm.class));
        self.newcomer_class = Class::default();
        self.combination =
            Combination::from_classes(self.classes.iter().copied()).with(self.newcomer_class);
        self.update_rates();
    }

    /// Recomputes the rates for the tentative combination.
    fn update_rates(&mut self) {
        self.rates = if self.limited.is_empty() {
            self.snapshot.database.rates(&self.combination)
        } else {
            self.rates_with_limits()
        };
    }

    /// Rates in the presence of VMs with limited demand. The bandwidth that they do not use
    /// goes to others of their class, then to lower classes; never to higher ones, which might not
    /// get it.
    ///
    /// Bandwidth is shared among the VMs of the database entry. Each of them stands for the
    /// VM paired with it, and keeps its own class. For example, an entry for idle + real time
    /// is used for idle + best effort: the best-effort VM has the share of the real-time one,
    /// so its tentatively lower class does not make it use less (see the example in
    /// [`ClassRates::extrapolate`]).
    fn rates_with_limits(&self) -> ClassRates {
        let entry = (self.snapshot.database).entry_or_default(&self.combination);
        let pairs = self.combination.pair_counts(&entry.classes);
        let (mut unlimited_rates, mut unused) = ([0; 3], 0);
        // From the highest class down, because unused bandwidth only goes down.
        for class in Class::ALL.into_iter().rev() {
            let n = entry.classes.count(class);
            if n == 0 {
                continue;
            }
            // Where a class is paired with several of the entry, its limits cannot be attributed to
            // one of them, so its VMs count as of unlimited demand.
            let is_paired_here = |vm: &&usize| {
                let tentative = self.classes[**vm];
                let paired = pairs[tentative as usize][class as usize];
                paired == self.combination.count(tentative)
            };
            let limited = self.limited.iter().filter(is_paired_here);
            let limits: Vec<u64> = limited.map(|&at| self.snapshot.limit(at)).collect();
            let all = u128::from(entry.rates.for_class(class)) * n as u128 + unused;
            let FairShare { each, rest } = fair_share(all, n - limits.len(), limits.into_iter());
            (unlimited_rates[class as usize], unused) = (each, rest);
        }
        ClassRates(unlimited_rates).extrapolate(&entry.classes, &self.combination)
    }

    /// Rate of a running VM in bytes per second.
    pub(crate) fn rate_of(&self, vm: usize) -> u64 {
        (self.rates.for_class(self.classes[vm])).min(self.snapshot.limit(vm))
    }

    /// Number of running VMs, without the newcomer.
    pub(crate) fn len(&self) -> usize {
        self.snapshot.vms.len()
    }

    /// Tentative class of the newcomer.
    pub(crate) fn newcomer_class(&self) -> Class {
        self.newcomer_class
    }

    /// Rate of the newcomer in bytes per second.
    pub(crate) fn newcomer_rate(&self) -> u64 {
        self.rates.for_class(self.newcomer_class)
    }

    /// Changes the class of the newcomer.
    pub(crate) fn set_newcomer_class(&mut self, class: Class) {
        self.combination = self.combination.changed(self.newcomer_class, class);
        self.newcomer_class = class;
        self.update_rates();
    }

    /// Returns whether a VM is late without the newcomer, at its present rate and by more than
    /// its grace.
    pub(crate) fn is_any_late_anyway(&self) -> bool {
        self.late_anyway.contains(&true)
    }

    /// Returns whether a VM would be late because of the newcomer (figure 5.8, steps 5 to 8),
    /// or would lose a rate that it keeps.
    pub(crate) fn is_violated(&mut self) -> bool {
        let mut violated = false;
        // No early return: `valid_until` needs the lowest sufficient rate of every VM.
        for at in 0..self.needs.len() {
            let (rate, need) = (self.rate_of(at), self.needs[at]);
            if rate < need {
                violated = true;
            } else if need > 0 && !self.late_anyway[at] {
                // The rate that a late VM keeps does not change with time.
                self.lowest_sufficient[at] = rate.min(self.lowest_sufficient[at]);
            }
        }
        violated
    }

    /// Lowers the class of one running VM: the first with the most slack among those above the
    /// lowest class. Returns `false` if there is none (figure 5.10, steps 1 to 7).
    pub(crate) fn lower_one(&mut self) -> bool {
        let mut best: Option<(i128, usize)> = None;
        for (at, &class) in self.classes.iter().enumerate() {
            let slack = match self.snapshot.vms[at].transfer {
                _ if class == Class::Idle => continue,
                // Without a deadline there is unlimited slack.
                None => i128::MAX,
                // In nanoseconds; negative if it is late.
                Some(transfer) => {
                    let latency = transfer.latency(self.rate_of(at));
                    i128::from(transfer.due_time().0)
                        - i128::from(self.snapshot.now.0)
                        - i128::from(latency.0)
                }
            };
            // Among equals the first.
            if best.is_none_or(|(max, _)| slack > max) {
                best = Some((slack, at));
            }
        }
        let Some((_, lowered)) = best else {
            return false;
        };
        let (from, to) = (self.classes[lowered], self.classes[lowered].lowered(1));
        self.classes[lowered] = to;
        self.combination = self.combination.changed(from, to);
        self.update_rates();
        true
    }

    /// VMs whose tentative class differs from the current one, with that class.
    pub(crate) fn changed(&self) -> Vec<(usize, Class)> {
        let both = self.snapshot.vms.iter().zip(&self.classes).enumerate();
        both.filter(|(_, (vm, class))| vm.class != **class)
            .map(|(at, (_, class))| (at, *class))
            .collect()
    }

    /// Returns the VM with the greatest lateness because of the newcomer, with that lateness.
    /// VMs that are late anyway are none of them.
    pub(crate) fn most_late(&self) -> Option<(usize, Nanos)> {
        self.most_late_of(false)
    }

    /// Returns the VM with the greatest lateness among those that are late anyway and would
    /// lose a rate that they keep, with its present and its future rate in bytes per second.
    pub(crate) fn most_slowed(&self) -> Option<(usize, u64, u64)> {
        let (who, _) = self.most_late_of(true)?;
        let had = WhatIf::without_newcomer(self.snapshot).rate_of(who);
        Some((who, had, self.rate_of(who)))
    }

    fn most_late_of(&self, late_anyway: bool) -> Option<(usize, Nanos)> {
        let lateness = |at: usize| {
            let rate = self.rate_of(at);
            let is_one = self.late_anyway[at] == late_anyway && rate < self.needs[at];
            let transfer = (self.snapshot.vms[at].transfer).filter(|_| is_one)?;
            Some((at, transfer.forecast(self.snapshot.now, rate).late))
        };
        // Among equals the first, which `max_by_key` would not return.
        let late = (0..self.classes.len()).filter_map(lateness);
        late.reduce(|max, next| if next.1 > max.1 { next } else { max })
    }

    /// End of validity of all findings about the running VMs, if none makes progress: the first
    /// time at which a VM that was in time becomes late, or at which a VM only keeps its
    /// rate.
    pub(crate) fn valid_until(&self) -> Nanos {
        let until = |(vm, &rate): (&VmState, &u64)| {
            let transfer = vm.transfer.filter(|_| rate < u64::MAX)?;
            // Without grace, as in `is_violated`, whose answer ends here: grace decides only who is
            // protected, and `protected_until` has it. A finished transfer never becomes late.
            (transfer.bytes_left() > 0).then(|| transfer.due_time().since(transfer.latency(rate)))
        };
        let both = self.snapshot.vms.iter().zip(&self.lowest_sufficient);
        both.filter_map(until)
            .min()
            .unwrap_or(Nanos::MAX)
            .min(self.protected_until)
    }

    /// Sum of the rates that the VMs need or keep, in bytes per second.
    pub(crate) fn needed(&self) -> u64 {
        self.needs
            .iter()
            .fold(0, |sum, &need| sum.saturating_add(need))
    }

    /// Total bandwidth of the disk with the newcomer, in bytes per second: the measured rates of
    /// this combination, but at least the assumed bandwidth, because the VMs measured may have
    /// had limited demand.
    pub(crate) fn total(&self) -> u64 {
        let database = self.snapshot.database;
        let assumed = database.bandwidth().total_for(self.combination.len());
        (database.rates(&self.combination).total(&self.combination)).max(assumed)
    }
}
