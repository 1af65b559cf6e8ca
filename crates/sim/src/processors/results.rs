//! Results of the simulated pCPUs.

use super::Processors;
use serde::Serialize;
use tidegate_core::time::Nanos;
use tidegate_vcpu::machine::VmId;
use tidegate_vcpu::report::CountsReport;

/// Counts at the end of the warm-up, which the results leave out.
#[derive(Default)]
pub(super) struct Before {
    /// End of the warm-up.
    at: Nanos,
    /// CPU time and number of notifications of each VM of the machine.
    vms: Vec<(Nanos, u64)>,
    switches: u64,
}

/// Results of the host's pCPUs after the warm-up.
#[derive(Clone, Debug, Serialize)]
pub struct CpuReport {
    /// Name of the vCPU scheduler.
    pub scheduler: String,
    /// Number of pCPUs.
    pub pcpus: usize,
    /// Mean number of busy pCPUs.
    pub busy: f64,
    /// Number of context switches from one vCPU to another.
    pub switches: u64,
    /// Counts of the scheduler since the begin of the run.
    pub counts: CountsReport,
    /// Mean number of pCPUs that ran the driver domain; `None` without one.
    pub driver_cpus: Option<f64>,
}

/// Share of a VM after the warm-up.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct VmCpuReport {
    /// Mean number of pCPUs that ran the VM.
    pub cpus: f64,
    /// I/O notifications per second. Completions that arrive before the guest handles an earlier
    /// one share a notification.
    pub notified_per_s: f64,
    /// Mean time from a notification until the guest began to handle it; `None` without
    /// notifications.
    pub wait_mean_ns: Option<u64>,
    /// 99th percentile of that time.
    pub wait_p99_ns: Option<u64>,
    /// Longest such time.
    pub wait_max_ns: Option<u64>,
}

impl Processors {
    /// Starts the counts anew at the end of the warm-up.
    pub(crate) fn clear_counts(&mut self) {
        let vms = self.world.machine().vms.len();
        let vms = (0..vms).map(|vm| self.counted(VmId(vm as u32)));
        self.at_warm_up_end = Before {
            at: self.world.now(),
            vms: vms.collect(),
            switches: self.world.switches(),
        };
        self.guests
            .iter_mut()
            .for_each(|guest| guest.notification_waits.clear());
    }

    /// CPU time and number of notifications of a VM since the begin of the run.
    fn counted(&self, vm: VmId) -> (Nanos, u64) {
        let vcpus = &self.world.machine().vms[vm.index()].vcpus;
        let ran = vcpus.iter().map(|&v| self.world.ran(v).0).sum();
        let notified = vcpus.iter().map(|&v| self.world.notified(v)).sum();
        (Nanos(ran), notified)
    }

    /// Mean number of pCPUs, and notifications per second, of a VM since the warm-up.
    fn rates(&self, vm: VmId) -> (f64, f64) {
        let (ran, notified) = self.counted(vm);
        // Without a warm-up there is nothing to leave out.
        let before = self
            .at_warm_up_end
            .vms
            .get(vm.index())
            .copied()
            .unwrap_or_default();
        let span = self.world.now().since(self.at_warm_up_end.at);
        // A run of no time has rates of 0, not NaN.
        let span = span.as_secs_f64().max(f64::MIN_POSITIVE);
        let ran = ran.since(before.0).as_secs_f64();
        (ran / span, (notified - before.1) as f64 / span)
    }

    /// Returns the results of all pCPUs.
    pub(crate) fn report(&self) -> CpuReport {
        let machine = self.world.machine();
        let vms = (0..machine.vms.len()).map(|vm| VmId(vm as u32));
        let has_driver = self.guests.iter().any(|guest| guest.driver.is_some());
        CpuReport {
            scheduler: self.scheduler.to_owned(),
            pcpus: machine.pcpus.len(),
            busy: vms.map(|vm| self.rates(vm).0).sum(),
            switches: self.world.switches() - self.at_warm_up_end.switches,
            counts: self.world.counts().into(),
            // The driver domain is the machine's first VM.
            driver_cpus: has_driver.then(|| self.rates(VmId(0)).0),
        }
    }

    /// Returns the share of a VM, by its index in the scenario; `None` for a background
    /// process.
    pub(crate) fn vm_report(&self, vm: usize) -> Option<VmCpuReport> {
        let guest = &self.guests[vm];
        let (cpus, notified_per_s) = self.rates(guest.vm?);
        let waits = &guest.notification_waits;
        let some = |time: Nanos| (waits.count() > 0).then_some(time.0);
        Some(VmCpuReport {
            cpus,
            notified_per_s,
            wait_mean_ns: some(waits.mean()),
            wait_p99_ns: some(waits.quantile(0.99)),
            wait_max_ns: some(waits.longest()),
        })
    }
}
