//! Findings about limits, and about promises that cannot be kept together.

use super::moves::{is_plain, with, with_limit};
use super::settings::{LIMIT, Outcome, Promises, Settings};
use super::{Search, Tried};
use serde::Serialize;
use tidegate_core::objective::{Limit, Objective};
use tidegate_core::policy::Policy as _;
use tidegate_policies::policy::PolicySpec;

/// Policy under which limits are tried if the one in force enforces none: the same order of
/// requests, with limits.
const LIMITS_ALONE: &str = "limit";
/// Part of its throughput to which a neighbour is limited for a diagnosis.
const CAP: f64 = 0.25;
/// Neighbours that are limited for a diagnosis: those that use the device most.
const NEIGHBOURS_MAX: usize = 4;
/// Part of the missed seconds that a change must save to count.
const HELPS: f64 = 0.1;
/// Part of a VM's requests that its limit holds back, below which it does not bind.
const BINDS: f64 = 0.001;
/// Part of their throughput that the other VMs keep while a promise is tried alone.
const NEARLY_IDLE: f64 = 0.05;

/// Finding about a VM.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Finding {
    /// Place of the VM.
    #[serde(skip)]
    pub vm: usize,
    /// Finding.
    #[serde(flatten)]
    pub kind: FindingKind,
}

/// Kind of a finding.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
#[serde(tag = "finding", rename_all = "snake_case")]
pub enum FindingKind {
    /// The VM misses promises because of its own limit.
    LimitHurts {
        /// Sum over all promises of the part of the seconds that is missed with the limit.
        missed_with: f64,
        /// Sum over all promises of the part of the seconds that is missed without the limit.
        missed_without: f64,
    },
    /// The VM's limit never held a request back.
    LimitNeverBinds,
    /// The policy does not enforce the VM's limit.
    LimitNotEnforced,
    /// The VM has no limit, and others miss promises because of it.
    NoisyWithoutLimit {
        /// Part of the device's time that its requests take.
        device_share: f64,
        /// Sum over the promises of others of the part of the seconds that is missed.
        missed_with: f64,
        /// Sum over the promises of others while the VM has a quarter of its throughput.
        missed_without: f64,
    },
}

impl Search<'_> {
    /// Tries each limit of a VM that suffers, and each neighbour without one, by itself. Returns
    /// the settings in which all that helped is changed.
    pub(super) fn diagnose(&mut self) -> Settings {
        let (base, outcome) = self.diagnosed_under();
        let suffering: Vec<usize> = (0..base.objectives.len())
            .filter(|&vm| outcome.suffers(vm))
            .collect();
        let mut all = base.clone();
        for change in self.single_changes(&base, &outcome, &suffering) {
            let Some((settings, after)) = self.tried_or_try(change.settings) else {
                continue;
            };
            let of = change.eases.then_some(change.vm);
            let missed = [&outcome, &after].map(|outcome| outcome.shortfall(of));
            if missed[0] - missed[1] < HELPS * missed[0] || missed[0] <= 0.0 {
                continue;
            }
            all.objectives[change.vm].limit = settings.objectives[change.vm].limit;
            let [missed_with, missed_without] = missed;
            let kind = if change.eases {
                FindingKind::LimitHurts {
                    missed_with,
                    missed_without,
                }
            } else {
                FindingKind::NoisyWithoutLimit {
                    device_share: self.moves.share(&outcome, change.vm),
                    missed_with,
                    missed_without,
                }
            };
            self.found.push(Finding {
                vm: change.vm,
                kind,
            });
        }
        Settings {
            policy: self.moves.in_force.policy.clone(),
            ..all
        }
    }

    /// Returns the settings in force, under a policy that enforces limits, with their outcome.
    fn diagnosed_under(&mut self) -> Tried {
        let in_force = self.moves.in_force.clone();
        if !in_force.policy.enforces().limit {
            let policy = PolicySpec::named(LIMITS_ALONE).expect("registered");
            let limited = Settings {
                policy,
                ..in_force.clone()
            };
            if let Some(tried) = self.tried_or_try(limited) {
                return tried;
            }
        }
        (in_force, self.first.clone())
    }

    /// Returns the changes to try one by one.
    fn single_changes(
        &self,
        base: &Settings,
        outcome: &Outcome,
        suffering: &[usize],
    ) -> Vec<Change> {
        if suffering.is_empty() {
            return Vec::new();
        }
        let limited = |vm: usize| !base.objectives[vm].limit.is_none();
        let hurt = suffering.iter().copied();
        let hurt = hurt.filter(|&vm| limited(vm) && !self.moves.fixed[vm]);
        let eased = hurt.map(|vm| Change {
            vm,
            eases: true,
            settings: with_limit(base, vm, Limit::NONE),
        });
        let free = self.moves.neighbours(outcome, suffering).into_iter();
        let free = free.filter(|&vm| !limited(vm)).take(NEIGHBOURS_MAX);
        let capped = free.filter_map(|vm| {
            Some(Change {
                vm,
                eases: false,
                settings: self.moves.capped(base, outcome, &[vm], CAP)?,
            })
        });
        eased.chain(capped).collect()
    }

    fn tried_or_try(&mut self, settings: Settings) -> Option<Tried> {
        let known = self.tried.iter().find(|(known, _)| *known == settings);
        match known {
            Some(known) => Some(known.clone()),
            None => self.best_of(vec![settings]),
        }
    }

    /// Returns all findings: those of the diagnosis, and limits that do nothing.
    pub(super) fn findings(&self) -> Vec<Finding> {
        let (what_if, in_force) = (self.moves.what_if, self.moves.in_force);
        let enforced = in_force.policy.enforces().limit;
        // A limit of which the recording shows what it does, and that may be changed.
        let is_known = |vm: usize| {
            let limit = &in_force.objectives[vm].limit;
            what_if.vms[vm].always_had(limit)
                && what_if.always_enforced_limits()
                && !self.moves.fixed[vm]
        };
        let vms = what_if.vms.iter().enumerate();
        let limited = vms
            .filter(|(vm, recorded)| recorded.stays() && !in_force.objectives[*vm].limit.is_none());
        let idle = limited.filter_map(|(vm, recorded)| {
            let kind = if !enforced {
                FindingKind::LimitNotEnforced
            } else if is_known(vm) && recorded.held_back < BINDS {
                FindingKind::LimitNeverBinds
            } else {
                return None;
            };
            Some(Finding { vm, kind })
        });
        let mut all = self.found.clone();
        all.extend(idle);
        all
    }

    /// Returns the promises that nothing that was tried keeps together, and those among the missed
    /// ones that are missed even while all other VMs are nearly idle; both empty if `outcome`
    /// misses none.
    pub(super) fn conflict(&mut self, (settings, outcome): &Tried) -> (Promises, Promises) {
        let missed: Promises = keys(outcome.missed());
        let all = keys(
            outcome
                .promises()
                .filter(|(_, promise)| promise.kept.is_some()),
        );
        let mut hopeless = Promises::new();
        for &(vm, part) in missed.iter().filter(|(_, part)| *part != LIMIT) {
            let Some(alone) = self.alone(settings, outcome, vm) else {
                continue;
            };
            let tried = self.tried_or_try(alone);
            let is_missed = |(_, outcome): &Tried| keys(outcome.missed()).contains(&(vm, part));
            if tried.as_ref().is_some_and(is_missed) {
                hopeless.push((vm, part));
            }
        }
        // What cannot be kept even alone is in conflict with the device, not with other promises.
        let rest = |promise: &&(usize, &'static str)| !hopeless.contains(promise);
        let mut together: Promises = all.iter().filter(rest).copied().collect();
        if missed.iter().all(|promise| hopeless.contains(promise)) {
            return (Promises::new(), hopeless);
        }
        // Promises are left out one after the other, those that are kept first, as long as the rest
        // cannot be kept: what stays is a smallest set that nothing keeps.
        let mut order = together.clone();
        order.sort_by_key(|promise| missed.contains(promise));
        for promise in order {
            let without: Promises = (together.iter().copied())
                .filter(|other| *other != promise)
                .collect();
            if !self.is_kept_by_any(&without) {
                together = without;
            }
        }
        (together, hopeless)
    }

    /// Returns true if something that was tried keeps all of these promises.
    fn is_kept_by_any(&self, promises: &[(usize, &'static str)]) -> bool {
        self.tried.iter().any(|(_, outcome)| {
            let kept = outcome
                .promises()
                .filter(|(_, promise)| promise.kept == Some(true));
            let kept = keys(kept);
            promises.iter().all(|promise| kept.contains(promise))
        })
    }

    /// Returns settings in which a VM is alone as nearly as limits allow: it has none, and all
    /// others have no promises and hardly any throughput.
    fn alone(&self, settings: &Settings, outcome: &Outcome, vm: usize) -> Option<Settings> {
        let mut alone = with(settings, vm, |objective| objective.limit = Limit::NONE);
        if !alone.policy.enforces().limit {
            alone.policy = PolicySpec::named(LIMITS_ALONE).expect("registered");
        }
        let others = (0..alone.objectives.len()).filter(|&other| other != vm);
        let others: Vec<usize> = others
            .filter(|&other| outcome.vms[other].is_some())
            .collect();
        for &other in &others {
            let objective = &mut alone.objectives[other];
            if !is_plain(objective) {
                *objective = Objective {
                    weight: objective.weight,
                    ..Objective::default()
                };
            }
        }
        self.moves.capped(&alone, outcome, &others, NEARLY_IDLE)
    }
}

fn keys<'a>(promises: impl Iterator<Item = (usize, &'a crate::report::Promise)>) -> Promises {
    promises.map(|(vm, promise)| (vm, promise.part)).collect()
}

/// Change that is tried by itself.
struct Change {
    vm: usize,
    /// True if it takes the VM's own limit away; false if it limits the VM for the sake of others.
    eases: bool,
    settings: Settings,
}
