//! Steps of the search: settings that differ from others in one respect.

use super::settings::{Outcome, Settings, is_looser};
use crate::what_if::{Figures, WhatIf};
use tidegate_core::objective::{Burst, Limit, Objective, OpsRate, Rate};
use tidegate_core::part::ParamKind;
use tidegate_core::policy::Policy as _;
use tidegate_policies::policy::PolicySpec;

/// VMs that are limited one by one at most: those that use the device most.
const NEIGHBOURS_MAX: usize = 4;
/// Parts of a neighbour's throughput to which it is limited.
const CAPS: [f64; 2] = [0.5, 0.25];
/// Factor by which a limit is raised that a VM suffers from.
const RAISE: f64 = 2.0;
/// Factor by which a limit of the search itself is raised while all promises are kept.
const RELAX: f64 = 1.5;
/// Factor of the weight of a VM that suffers.
const WEIGHT_FACTOR: u32 = 4;
/// Mean size of requests from which a limit is in bytes per second, and not in requests.
const LARGE: f64 = 32_768.0;

/// Settings that may be changed.
pub(super) struct Moves<'a> {
    pub(super) what_if: &'a WhatIf,
    /// Settings in force.
    pub(super) in_force: &'a Settings,
    /// True for VMs whose limits were given, or that are not there any more.
    pub(super) fixed: &'a [bool],
    /// Policies to choose from; empty for all.
    pub(super) policies: &'a [PolicySpec],
}

impl Moves<'_> {
    /// Returns true if a policy may be chosen.
    pub(super) fn may_choose(&self, policy: &PolicySpec) -> bool {
        let named = |other: &PolicySpec| other.name() == policy.name();
        self.policies.is_empty() || self.policies.iter().any(named)
    }

    /// Returns all settings one step from `from`, whose replay had the `outcome`.
    pub(super) fn around(&self, from: &Settings, outcome: &Outcome) -> Vec<Settings> {
        let mut all = Vec::new();
        let suffering: Vec<usize> = (0..from.objectives.len())
            .filter(|&vm| outcome.suffers(vm))
            .collect();
        for &vm in suffering.iter().filter(|&&vm| !self.fixed[vm]) {
            all.extend(self.eased(from, vm));
        }
        let enforces = from.policy.enforces();
        if !suffering.is_empty() && enforces.limit {
            let neighbours = self.neighbours(outcome, &suffering);
            for part in CAPS {
                let one = |&vm: &usize| self.capped(from, outcome, &[vm], part);
                all.extend(neighbours.iter().take(NEIGHBOURS_MAX).filter_map(one));
                // All without promises at once: each alone may not be worth much.
                let plain = neighbours
                    .iter()
                    .filter(|&&vm| is_plain(&from.objectives[vm]));
                let plain: Vec<usize> = plain.copied().collect();
                if plain.len() > 1 {
                    all.extend(self.capped(from, outcome, &plain, part));
                }
            }
        }
        if suffering.is_empty() {
            all.extend(self.relaxed(from));
        }
        all.extend(self.undone(from));
        all
    }

    /// Returns settings that leave more to a VM that suffers.
    fn eased(&self, from: &Settings, vm: usize) -> Vec<Settings> {
        let objective = &from.objectives[vm];
        let mut all = Vec::new();
        if !objective.limit.is_none() && from.policy.enforces().limit {
            let raised = scaled(&objective.limit, RAISE);
            all.extend([raised, Limit::NONE].map(|limit| with_limit(from, vm, limit)));
        }
        if from.policy.enforces().weight {
            let weight = (objective.weight * WEIGHT_FACTOR).min(Objective::MAX_WEIGHT);
            all.push(with(from, vm, |objective| objective.weight = weight));
        }
        all
    }

    /// Returns settings in which limits of the search are a little higher, but not above those in
    /// force.
    fn relaxed(&self, from: &Settings) -> Vec<Settings> {
        let pairs = from.objectives.iter().zip(&self.in_force.objectives);
        let raised = pairs.enumerate().filter_map(|(vm, (is, was))| {
            let (is, was) = (&is.limit, &was.limit);
            if is == was || is_looser(is, was) {
                return None;
            }
            let raised = lowest(&scaled(is, RELAX), was);
            Some(with_limit(from, vm, raised))
        });
        raised.collect()
    }

    /// Returns settings in which one change is taken back.
    fn undone(&self, from: &Settings) -> Vec<Settings> {
        let pairs = from.objectives.iter().zip(&self.in_force.objectives);
        let changed = pairs.enumerate().filter(|(_, (is, was))| is != was);
        let mut all: Vec<Settings> = changed
            .map(|(vm, (_, was))| with(from, vm, |objective| *objective = *was))
            .collect();
        if from.policy != self.in_force.policy && self.may_choose(&self.in_force.policy) {
            all.push(Settings {
                policy: self.in_force.policy.clone(),
                ..from.clone()
            });
        }
        all
    }

    /// Returns the VMs that may be limited for the sake of others, those that use the device most
    /// first.
    pub(super) fn neighbours(&self, outcome: &Outcome, suffering: &[usize]) -> Vec<usize> {
        let mut all: Vec<(f64, usize)> = (outcome.vms.iter().enumerate())
            .filter(|(vm, _)| !self.fixed[*vm] && !suffering.contains(vm))
            .filter_map(|(vm, found)| Some((self.device_use(&found.as_ref()?.figures), vm)))
            .collect();
        all.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        all.into_iter().map(|(_, vm)| vm).collect()
    }

    /// Returns the part of a VM's time with the device among all VMs', by the device's positioning
    /// time and bandwidth.
    pub(super) fn share(&self, outcome: &Outcome, vm: usize) -> f64 {
        let uses = outcome.vms.iter().map(|found| {
            let figures = found.as_ref().map(|found| &found.figures);
            figures.map_or(0.0, |figures| self.device_use(figures))
        });
        let uses: Vec<f64> = uses.collect();
        uses[vm] / uses.iter().sum::<f64>().max(f64::MIN_POSITIVE)
    }

    /// Returns the seconds of the device that a VM's requests of a second take.
    fn device_use(&self, figures: &Figures) -> f64 {
        let spec = self.what_if.device.model.spec();
        let bandwidth = spec.bytes_per_s.max(1) as f64;
        figures.iops * spec.positioning.as_secs_f64() + figures.bytes_per_s / bandwidth
    }

    /// Returns settings in which VMs are limited to a part of their throughput in `outcome`, and by
    /// the limits that they have; `None` if a limit would contradict the VM's promises, or is none.
    pub(super) fn capped(
        &self,
        from: &Settings,
        outcome: &Outcome,
        vms: &[usize],
        part: f64,
    ) -> Option<Settings> {
        let mut settings = from.clone();
        for &vm in vms {
            let rate = rate_of(&outcome.vms[vm].as_ref()?.figures, part)?;
            let limit = &mut settings.objectives[vm].limit;
            let new = Limit::of_all(rate);
            *limit = lowest(limit, &new);
        }
        let fine = |vm: &usize| settings.objectives[*vm].validate().is_ok();
        vms.iter().all(fine).then_some(settings)
    }

    /// Returns settings in which one parameter of the policy has another value.
    pub(super) fn params(&self, from: &Settings) -> Vec<Settings> {
        let mut all = Vec::new();
        for &(info, value) in from.policy.params() {
            let others = match info.kind {
                ParamKind::Flag => vec![1 - value],
                ParamKind::Choice(words) => (0..words.len() as u64).collect(),
                ParamKind::Bytes | ParamKind::Duration | ParamKind::Count => {
                    vec![value.saturating_mul(2), value / 2]
                }
            };
            for other in others.into_iter().filter(|&other| other != value) {
                let mut settings = from.clone();
                if settings.policy.set(info.name, other).is_ok() {
                    all.push(settings);
                }
            }
        }
        all
    }
}

/// Returns true if a VM is promised neither rate nor latency.
pub(super) fn is_plain(objective: &Objective) -> bool {
    let rates = [&objective.reservation, &objective.target];
    objective.latency.is_none() && rates.iter().all(|rate| rate.is_none())
}

/// Returns settings with another objective of a VM.
pub(super) fn with(from: &Settings, vm: usize, change: impl FnOnce(&mut Objective)) -> Settings {
    let mut settings = from.clone();
    change(&mut settings.objectives[vm]);
    settings
}

/// Returns settings with another limit of a VM.
pub(super) fn with_limit(from: &Settings, vm: usize, limit: Limit) -> Settings {
    with(from, vm, |objective| objective.limit = limit)
}

/// Returns the limit that lets through what both let through. It has a burst only if it is one of
/// them: a burst would let the VM exceed the other.
fn lowest(one: &Limit, other: &Limit) -> Limit {
    let total = lower(one.total, other.total);
    // Rates of one direction above that of both are refused.
    let direction = |one: Rate, other: Rate| {
        let rate = lower(one, other);
        Rate {
            ops: rate.ops.map(|ops| lower_ops(ops, total.ops)),
            bytes_per_s: rate.bytes_per_s.map(|it| lower_of(it, total.bytes_per_s)),
        }
    };
    let both = Limit {
        total,
        read: direction(one.read, other.read),
        write: direction(one.write, other.write),
        burst: None,
    };
    let whole = [one, other].into_iter().find(|limit| {
        let paced = Limit {
            burst: None,
            ..**limit
        };
        paced == both
    });
    whole.copied().unwrap_or(both)
}

/// Returns the rate that keeps to both rates.
fn lower(one: Rate, other: Rate) -> Rate {
    Rate {
        ops: match (one.ops, other.ops) {
            (Some(ops), other) => Some(lower_ops(ops, other)),
            (None, other) => other,
        },
        bytes_per_s: match (one.bytes_per_s, other.bytes_per_s) {
            (Some(rate), other) => Some(lower_of(rate, other)),
            (None, other) => other,
        },
    }
}

/// Returns the lower number of requests per second. Large requests count as several if they do in
/// one of both, by the smaller size.
fn lower_ops(one: OpsRate, other: Option<OpsRate>) -> OpsRate {
    let Some(other) = other else { return one };
    let norms = [one.norm, other.norm].into_iter().flatten();
    OpsRate {
        per_s: one.per_s.min(other.per_s),
        norm: norms.min(),
    }
}

fn lower_of(one: u64, other: Option<u64>) -> u64 {
    other.map_or(one, |other| one.min(other))
}

/// Returns a limit with all rates multiplied by `factor`.
fn scaled(limit: &Limit, factor: f64) -> Limit {
    let rate = |rate: Rate| Rate {
        ops: rate.ops.map(|ops| OpsRate {
            per_s: rounded(ops.per_s as f64 * factor),
            ..ops
        }),
        bytes_per_s: rate.bytes_per_s.map(|it| rounded(it as f64 * factor)),
    };
    Limit {
        total: rate(limit.total),
        read: rate(limit.read),
        write: rate(limit.write),
        burst: limit.burst.map(|burst| Burst {
            total: rate(burst.total),
            read: rate(burst.read),
            write: rate(burst.write),
            ..burst
        }),
    }
}

/// Returns a part of a VM's throughput as a rate; `None` if there is none.
fn rate_of(figures: &Figures, part: f64) -> Option<Rate> {
    if figures.iops <= 0.0 {
        return None;
    }
    if figures.bytes_per_s / figures.iops >= LARGE {
        return Some(Rate::bytes(rounded(figures.bytes_per_s * part)));
    }
    Some(Rate::iops(rounded(figures.iops * part)))
}

/// Rounds a rate to two digits, as people write them; at least 1.
fn rounded(rate: f64) -> u64 {
    let rate = rate.clamp(1.0, Rate::MAX as f64) as u64;
    let digits = rate.ilog10();
    let unit = 10u64.pow(digits.saturating_sub(1));
    rate / unit * unit
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_have_two_digits() {
        let cases = [
            (0.2, 1),
            (7.9, 7),
            (99.0, 99),
            (127.0, 120),
            (8_765_432.1, 8_700_000),
        ];
        for (rate, expected) in cases {
            assert_eq!(rounded(rate), expected, "{rate}");
        }
        assert!(rounded(f64::MAX) <= Rate::MAX);
    }

    #[test]
    fn a_tighter_limit_keeps_what_is_tighter_already() {
        let burst = Burst {
            total: Rate::iops(4000),
            read: Rate::NONE,
            write: Rate::NONE,
            length: tidegate_core::time::Nanos::from_secs(10),
        };
        let given = Limit {
            total: Rate::iops(1000),
            write: Rate::bytes(15_000_000),
            burst: Some(burst),
            ..Limit::NONE
        };
        let new = Limit::of_all(Rate::bytes(50_000_000));
        let both = lowest(&given, &new);
        let total = Rate {
            ops: Rate::iops(1000).ops,
            ..new.total
        };
        let paced = Limit {
            burst: None,
            ..given
        };
        assert_eq!(both, Limit { total, ..paced });
        assert!(!is_looser(&both, &given) && !is_looser(&both, &new));
        assert!(is_looser(&new, &given) && is_looser(&Limit::NONE, &given));
        assert!(is_looser(&given, &paced) && !is_looser(&paced, &given));
        // A rate of one direction is not above that of both.
        let low = Limit::of_all(Rate::bytes(5_000_000));
        assert_eq!(lowest(&given, &low).write, Rate::bytes(5_000_000));
        // A limit that binds more has its burst.
        let high = Limit::of_all(Rate::iops(2000));
        assert_eq!(lowest(&given, &high), given);
    }

    #[test]
    fn a_raised_limit_keeps_its_form() {
        let limit = Limit {
            total: Rate::iops(100),
            write: Rate::bytes(15_000_000),
            ..Limit::NONE
        };
        let raised = scaled(&limit, 2.0);
        assert_eq!(raised.total, Rate::iops(200));
        assert_eq!(raised.write, Rate::bytes(30_000_000));
        assert!(raised.read.is_none() && raised.burst.is_none());
    }
}
