//! Means of sweeps with confidence intervals, and differences between policies seed by seed.

use std::collections::BTreeMap;

use serde_json::Value;
use tidegate_profile::statistics::t_95;

use crate::results::Key;

/// Figure of a VM's report.
#[derive(Clone, Copy, Debug)]
pub(super) struct Figure {
    /// Name with its unit.
    pub(super) name: &'static str,
    /// Name without its unit.
    pub(super) short: &'static str,
    /// Place in the report of a VM.
    pointer: &'static str,
    /// Factor from the report's unit to the shown one.
    factor: f64,
    /// True if more is better.
    pub(super) more_is_better: bool,
}

/// Figures that are compared.
pub(super) const FIGURES: [Figure; 4] = [
    Figure {
        name: "IOPS",
        short: "IOPS",
        pointer: "/iops",
        factor: 1.0,
        more_is_better: true,
    },
    Figure {
        name: "MB/s",
        short: "throughput",
        pointer: "/bytes_per_s",
        factor: 1e-6,
        more_is_better: true,
    },
    Figure {
        name: "p50 ms",
        short: "p50",
        pointer: "/latency_p50_ns",
        factor: 1e-6,
        more_is_better: false,
    },
    Figure {
        name: "p99 ms",
        short: "p99",
        pointer: "/latency_p99_ns",
        factor: 1e-6,
        more_is_better: false,
    },
];

/// Values of a figure by seed.
type BySeed = BTreeMap<u64, f64>;

/// Mean with a confidence interval.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Mean {
    pub(super) mean: f64,
    /// Half width of the 95 % interval; infinite for one value.
    pub(super) half_width: f64,
}

impl Mean {
    /// Computes the mean of values with Student's t; `None` without values.
    fn new(values: &[f64]) -> Option<Mean> {
        let n = values.len();
        if n == 0 {
            return None;
        }
        let mean = values.iter().sum::<f64>() / n as f64;
        let squares: f64 = values
            .iter()
            .map(|value| (value - mean) * (value - mean))
            .sum();
        let half_width = match n {
            1 => f64::INFINITY,
            n => t_95(n - 1) * (squares / (n - 1) as f64 / n as f64).sqrt(),
        };
        Some(Mean { mean, half_width })
    }

    /// Returns true if zero is outside of the interval.
    pub(super) fn is_clear(&self) -> bool {
        self.mean.abs() > self.half_width
    }
}

/// VM under one policy and vCPU scheduler, over all seeds.
#[derive(Clone, Debug)]
pub(super) struct Variant {
    /// Policy, with the vCPU scheduler where there is one.
    pub(super) name: String,
    /// Values by figure, in the order of [`FIGURES`].
    values: [BySeed; FIGURES.len()],
    pub(super) promises: usize,
    pub(super) promises_kept: usize,
}

impl Variant {
    /// Returns the mean of a figure over all seeds.
    pub(super) fn mean(&self, figure: usize) -> Option<Mean> {
        let values: Vec<f64> = self.values[figure].values().copied().collect();
        Mean::new(&values)
    }

    /// Returns the mean difference of a figure from another variant over the seeds that both have.
    pub(super) fn difference(&self, figure: usize, base: &Variant) -> Option<Mean> {
        let of_base = &base.values[figure];
        let pairs = self.values[figure].iter();
        let differences = pairs.filter_map(|(seed, value)| Some(value - of_base.get(seed)?));
        Mean::new(&differences.collect::<Vec<_>>())
    }

    /// Returns the mean of a figure of another variant over the seeds that both have: what
    /// [`difference`](Self::difference) differs from.
    pub(super) fn base_mean(&self, figure: usize, base: &Variant) -> Option<Mean> {
        let own = &self.values[figure];
        let of_base = base.values[figure].iter();
        let paired = of_base.filter(|(seed, _)| own.contains_key(seed));
        Mean::new(&paired.map(|(_, value)| *value).collect::<Vec<_>>())
    }

    /// Number of seeds.
    pub(super) fn seeds(&self) -> usize {
        self.values.iter().map(BTreeMap::len).max().unwrap_or(0)
    }
}

/// VM of a scenario under all policies, in the order of the command line.
#[derive(Clone, Debug)]
pub(super) struct Compared {
    pub(super) scenario: String,
    pub(super) vm: String,
    pub(super) variants: Vec<Variant>,
}

/// Returns each VM of each scenario with its results under each policy.
pub(super) fn compare(results: &[(&Key, &Value)]) -> Vec<Compared> {
    // In the order of the results, by the places of what was seen.
    let mut all: Vec<Compared> = Vec::new();
    let mut vms: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    let mut variants: BTreeMap<(usize, &str), usize> = BTreeMap::new();
    for (key, report) in results {
        for vm in report["vms"].as_array().into_iter().flatten() {
            let name = vm["name"].as_str().unwrap_or_default();
            let place = *vms.entry((&key.scenario, name)).or_insert_with(|| {
                all.push(Compared {
                    scenario: key.scenario.clone(),
                    vm: name.to_owned(),
                    variants: Vec::new(),
                });
                all.len() - 1
            });
            let compared = &mut all[place];
            // The digest covers policy and scheduler.
            let variant = *variants.entry((place, &key.digest)).or_insert_with(|| {
                compared.variants.push(Variant {
                    name: variant_name(key),
                    values: Default::default(),
                    promises: 0,
                    promises_kept: 0,
                });
                compared.variants.len() - 1
            });
            add(&mut compared.variants[variant], key.seed, vm);
        }
    }
    all
}

fn variant_name(key: &Key) -> String {
    match &key.scheduler {
        Some(scheduler) => format!("{}, {scheduler}", key.policy),
        None => key.policy.clone(),
    }
}

fn add(variant: &mut Variant, seed: u64, vm: &Value) {
    for (figure, values) in FIGURES.iter().zip(&mut variant.values) {
        if let Some(value) = vm.pointer(figure.pointer).and_then(Value::as_f64) {
            values.insert(seed, value * figure.factor);
        }
    }
    let promises = vm["promises"].as_array();
    let judged = promises.into_iter().flatten();
    let judged = judged.filter_map(|promise| promise["kept"].as_bool());
    for kept in judged {
        variant.promises += 1;
        variant.promises_kept += usize::from(kept);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn key(policy: &str, seed: u64) -> Key {
        Key {
            scenario: "s.toml".to_owned(),
            digest: policy.to_owned(),
            policy: policy.to_owned(),
            scheduler: None,
            seed,
        }
    }

    fn report(iops: f64, kept: bool) -> Value {
        json!({ "vms": [{
            "name": "a", "iops": iops, "bytes_per_s": 1e6, "latency_p99_ns": null,
            "promises": [{ "kept": kept }, { "kept": null }],
        }]})
    }

    #[test]
    fn differences_are_taken_seed_by_seed() {
        let keys: Vec<Key> = ["fifo", "slo"]
            .iter()
            .flat_map(|policy| (1..=3).map(|seed| key(policy, seed)))
            .collect();
        // The spread over seeds is large, the difference nearly the same for each.
        let iops = [100.0, 200.0, 300.0, 109.0, 210.0, 311.0];
        let reports: Vec<Value> = iops.iter().map(|&it| report(it, it > 200.0)).collect();
        let results: Vec<_> = keys.iter().zip(&reports).collect();
        let [compared] = &compare(&results)[..] else {
            panic!("one VM");
        };
        let [fifo, slo] = &compared.variants[..] else {
            panic!("two policies");
        };
        let difference = slo.difference(0, fifo).expect("pairs");
        assert_eq!(difference.mean, 10.0);
        // Differences 9, 10, 11: s = 1, t(2) = 4.303.
        assert!((difference.half_width - 4.303 / 3f64.sqrt()).abs() < 1e-9);
        assert!(difference.is_clear());
        assert!(!fifo.mean(0).expect("values").is_clear());
        assert_eq!((fifo.promises, fifo.promises_kept), (3, 1));
        assert_eq!((slo.promises_kept, slo.seeds()), (2, 3));
        assert_eq!(slo.mean(3), None, "no latency was reported");
        let one = Mean::new(&[5.0]).expect("a value");
        assert!(!one.is_clear(), "one seed shows nothing");
    }
}
