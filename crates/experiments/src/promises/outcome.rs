//! Outcome of a run: service of each VM, and promises kept.

use serde::{Deserialize, Serialize};

/// Result of a run.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Outcome {
    /// Number of judged seconds.
    pub seconds: u64,
    /// Requests answered, including those of the warm-up.
    pub requests: u64,
    /// Keys of promises for which the run was aborted; empty if it was complete.
    pub given_up: Vec<String>,
    /// Device time of all requests by the profile, in seconds per second.
    pub work: f64,
    /// Reason why the promises do not fit the device together, as `tidegate plan` evaluates them
    /// with the device's profile; empty if they fit. The evaluation knows of a VM what its
    /// objective says and assumes the worst of the rest, so promises that do not fit may still be
    /// kept.
    pub infeasible: String,
    /// VMs and background processes, in the order of the mix.
    pub vms: Vec<VmOutcome>,
}

/// Service of a VM, and its promises.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct VmOutcome {
    /// Name.
    pub name: String,
    /// Requests per second.
    pub iops: f64,
    /// Bytes per second.
    pub bytes_per_s: f64,
    /// Median latency from arrival at Tidegate, in nanoseconds.
    pub p50_ns: u64,
    /// 99th percentile of the latency, in nanoseconds.
    pub p99_ns: u64,
    /// Part of all device time by the profile, 0 to 1.
    pub device_time: f64,
    /// Latency bound in nanoseconds; `None`: not promised.
    pub bound_ns: Option<u64>,
    /// Judged promises; empty if nothing is promised.
    pub promises: Vec<Promise>,
}

/// Part of an objective, with the verdict on it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Promise {
    /// Name of the part: `floor`, `latency`, `limit`, `target`, `share` or `transfer`.
    pub part: String,
    /// Promised value, as text.
    pub promised: String,
    /// Number of judged seconds; for transfers the number of transfers.
    pub seconds: u64,
    /// Number of missed seconds, or transfers, among them.
    pub missed: u64,
    /// Number of seconds excluded because the device stalled.
    pub devices: u64,
    /// True if at least 99 % of the seconds were kept; `None`: nothing was judged.
    pub kept: Option<bool>,
    /// Measured value by which policies are compared; `None`: not compared.
    pub measured: Option<Measured>,
}

/// Measured value of a promise.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Measured {
    /// Value, in the unit beside it.
    pub value: f64,
    /// Unit and direction of comparison.
    pub unit: Unit,
}

/// Unit of a measured value.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unit {
    /// Served part of the promised rate, at most 1; more is better.
    Served,
    /// 99th percentile of the latency in nanoseconds; less is better.
    P99,
    /// Distance from the share in points of device time; less is better.
    Points,
    /// Beta in percent; less is better.
    Precision,
}

impl VmOutcome {
    /// True if the VM is promised service: any part of an objective but a limit.
    pub fn is_promised_service(&self) -> bool {
        self.promises.iter().any(|promise| promise.part != "limit")
    }
}

impl Promise {
    /// Key of a VM's promise: `VM.PART`.
    pub fn key(vm: &str, part: &str) -> String {
        format!("{vm}.{part}")
    }

    /// Kept seconds in percent of the judged ones; `None`: nothing was judged.
    pub fn kept_percent(&self) -> Option<f64> {
        let kept = self.seconds - self.missed;
        (self.seconds > 0).then(|| 100.0 * kept as f64 / self.seconds as f64)
    }
}

impl Promise {
    /// Merges promises of one VM and part, from runs with different seeds, into `self`.
    fn merge(&mut self, all: &[Promise]) {
        self.seconds = all.iter().map(|it| it.seconds).sum();
        self.missed = all.iter().map(|it| it.missed).sum();
        self.devices = all.iter().map(|it| it.devices).sum();
        let mut judged = all.iter().filter_map(|it| it.kept);
        // Nothing judged in any run stays `None`.
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
    /// Keys of kept promises.
    pub fn kept(&self) -> Vec<String> {
        self.keys(|promise| promise.kept == Some(true))
    }

    /// Keys of missed promises.
    pub fn missed(&self) -> Vec<String> {
        self.keys(|promise| promise.kept == Some(false))
    }

    /// Merges runs with different seeds: a promise is kept if every run keeps it, seconds and
    /// requests are summed, and everything else is the mean.
    ///
    /// # Panics
    /// When `runs` is empty.
    pub fn merged(runs: &[Outcome]) -> Outcome {
        let mut merged = runs.first().expect("there is a run").clone();
        if runs.len() == 1 {
            // A mean of one would still round the latencies.
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
                // By name: a run may have judged fewer parts than another.
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
