//! Outcome of a run: what each VM had, and which promises were kept.

use serde::{Deserialize, Serialize};

/// Result of a run.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Outcome {
    /// Seconds that were judged.
    pub seconds: u64,
    /// Requests that were answered, also in the warm-up.
    pub requests: u64,
    /// Promises that the run was given up for; empty where it came to its end.
    pub given_up: Vec<String>,
    /// Device time of all requests by the profile, in seconds a second.
    pub work: f64,
    /// VMs and background processes, in the order of the mix.
    pub vms: Vec<VmOutcome>,
}

/// What a VM had.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct VmOutcome {
    /// Name.
    pub name: String,
    /// Requests a second.
    pub iops: f64,
    /// Bytes a second.
    pub bytes_per_s: f64,
    /// Half of the requests took at most this long from their arrival at Tidegate, in nanoseconds.
    pub p50_ns: u64,
    /// 99 of 100.
    pub p99_ns: u64,
    /// Part of all device time by the profile, 0 to 1.
    pub device_time: f64,
    /// Bound on its latency in nanoseconds; `None`: it has none.
    pub bound_ns: Option<u64>,
    /// Promises; none where nothing is promised.
    pub promises: Vec<Promise>,
}

/// One part of an objective, and whether it was kept.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Promise {
    /// Part: `floor`, `latency`, `limit`, `target`, `share` or `transfer`.
    pub part: String,
    /// Promised value.
    pub promised: String,
    /// Seconds that were judged; of transfers their number.
    pub seconds: u64,
    /// Seconds among them that were missed.
    pub missed: u64,
    /// Seconds that were the device's own.
    pub devices: u64,
    /// Kept in 99 % of the seconds; `None`: nothing was judged.
    pub kept: Option<bool>,
    /// Measured value that policies are compared by; `None`: there is none.
    pub measured: Option<Measured>,
}

/// Measured value of a promise.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Measured {
    /// Value.
    pub value: f64,
    /// Kind of value.
    pub unit: Unit,
}

/// Kind of a measured value.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unit {
    /// Part of the promised rate that was served, at most 1: more is better.
    Served,
    /// 99 % quantile in nanoseconds: less is better.
    P99,
    /// Distance from the share in points of device time: less is better.
    Points,
    /// Beta in percent: less is better.
    Precision,
}

impl Promise {
    /// Key of a VM's promise.
    pub fn key(vm: &str, part: &str) -> String {
        format!("{vm}.{part}")
    }

    /// Seconds that were kept in percent of those judged; `None`: nothing was judged.
    pub fn kept_percent(&self) -> Option<f64> {
        let kept = self.seconds - self.missed;
        (self.seconds > 0).then(|| 100.0 * kept as f64 / self.seconds as f64)
    }
}

impl Promise {
    /// Becomes all of these, which are of one VM and part.
    fn merge(&mut self, all: &[Promise]) {
        self.seconds = all.iter().map(|it| it.seconds).sum();
        self.missed = all.iter().map(|it| it.missed).sum();
        self.devices = all.iter().map(|it| it.devices).sum();
        let mut judged = all.iter().filter_map(|it| it.kept);
        self.kept = judged.next().map(|first| judged.all(|it| it) && first);
        let measured: Vec<Measured> = all.iter().filter_map(|it| it.measured).collect();
        if let Some(one) = measured.first() {
            let sum: f64 = measured.iter().map(|it| it.value).sum();
            self.measured = Some(Measured {
                value: sum / measured.len() as f64,
                ..*one
            });
        }
    }
}

impl Outcome {
    /// Keys of the promises that were kept.
    pub fn kept(&self) -> Vec<String> {
        self.keys(|promise| promise.kept == Some(true))
    }

    /// Keys of the promises that were missed.
    pub fn missed(&self) -> Vec<String> {
        self.keys(|promise| promise.kept == Some(false))
    }

    /// Runs of several seeds as one: a promise is kept when every run keeps it, seconds are summed,
    /// and everything else is the mean.
    ///
    /// # Panics
    /// When there is none.
    pub fn merged(runs: &[Outcome]) -> Outcome {
        let mut merged = runs.first().expect("there is a run").clone();
        if runs.len() == 1 {
            return merged;
        }
        let mean = |value: &dyn Fn(&Outcome) -> f64| {
            runs.iter().map(value).sum::<f64>() / runs.len() as f64
        };
        merged.seconds = runs.iter().map(|run| run.seconds).sum();
        merged.requests = runs.iter().map(|run| run.requests).sum();
        merged.work = mean(&|run| run.work);
        let given_up = runs.iter().flat_map(|run| run.given_up.clone());
        merged.given_up = given_up.collect();
        for (index, vm) in merged.vms.iter_mut().enumerate() {
            vm.iops = mean(&|run| run.vms[index].iops);
            vm.bytes_per_s = mean(&|run| run.vms[index].bytes_per_s);
            vm.p50_ns = mean(&|run| run.vms[index].p50_ns as f64) as u64;
            vm.p99_ns = mean(&|run| run.vms[index].p99_ns as f64) as u64;
            vm.device_time = mean(&|run| run.vms[index].device_time);
            for promise in &mut vm.promises {
                let of_runs = runs.iter().flat_map(|run| &run.vms[index].promises);
                let same = of_runs.filter(|it| it.part == promise.part);
                let all: Vec<Promise> = same.cloned().collect();
                promise.merge(&all);
            }
        }
        merged
    }

    fn keys(&self, wanted: impl Fn(&Promise) -> bool) -> Vec<String> {
        let of_vm = |vm: &VmOutcome| {
            let promises = vm.promises.iter().filter(|promise| wanted(promise));
            let keys = promises.map(|promise| Promise::key(&vm.name, &promise.part));
            keys.collect::<Vec<_>>()
        };
        self.vms.iter().flat_map(of_vm).collect()
    }
}
