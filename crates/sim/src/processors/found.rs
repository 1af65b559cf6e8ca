//! What is found out about processors.

use super::Processors;
use serde::Serialize;
use tidegate_core::time::Nanos;
use tidegate_vcpu::machine::VmId;
use tidegate_vcpu::report::CountsReport;

/// What had been counted at the end of the warm-up.
#[derive(Default)]
pub(super) struct Before {
    /// When that was.
    at: Nanos,
    /// How long each VM of the machine had run, and how often it had been notified.
    vms: Vec<(Nanos, u64)>,
    switches: u64,
}

/// The machine's processors, after the warm-up.
#[derive(Clone, Debug, Serialize)]
pub struct CpuReport {
    /// Who runs on them is up to this one.
    pub scheduler: String,
    /// How many there are.
    pub pcpus: usize,
    /// How many of them were busy on average.
    pub busy: f64,
    /// Times that one went over to another vCPU.
    pub switches: u64,
    /// What the scheduler did, from the begin of the run.
    pub counts: CountsReport,
    /// How many of them the driver domain had on average; `None`: there is none.
    pub driver_cpus: Option<f64>,
}

/// A VM's part of them, after the warm-up.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct VmCpuReport {
    /// How many pCPUs it had on average.
    pub cpus: f64,
    /// How often it was notified of an I/O that had ended, each second: once for several that ended
    /// before it looked.
    pub notified_per_s: f64,
    /// From a notification until the guest began to handle it, on average; `None`: there was none.
    pub wait_mean_ns: Option<u64>,
    /// 99 of 100 took no longer.
    pub wait_p99_ns: Option<u64>,
    /// The longest.
    pub wait_max_ns: Option<u64>,
}

impl Processors {
    /// What was before does not count.
    pub(crate) fn forget(&mut self) {
        let vms = self.world.machine().vms.len();
        let vms = (0..vms).map(|vm| self.counted(VmId(vm as u32)));
        self.before = Before {
            at: self.world.now(),
            vms: vms.collect(),
            switches: self.world.switches(),
        };
        self.guests.iter_mut().for_each(|guest| guest.waits.clear());
    }

    /// How long a VM has run, and how often it was notified, from the begin on.
    fn counted(&self, vm: VmId) -> (Nanos, u64) {
        let vcpus = &self.world.machine().vms[vm.at()].vcpus;
        let ran = vcpus.iter().map(|&v| self.world.ran(v).0).sum();
        let notified = vcpus.iter().map(|&v| self.world.notified(v)).sum();
        (Nanos(ran), notified)
    }

    /// The same since the warm-up, in pCPUs and each second.
    fn rates(&self, vm: VmId) -> (f64, f64) {
        let (ran, notified) = self.counted(vm);
        let before = self.before.vms.get(vm.at()).copied().unwrap_or_default();
        let span = self.world.now().since(self.before.at);
        let span = span.as_secs_f64().max(f64::MIN_POSITIVE);
        let ran = ran.since(before.0).as_secs_f64();
        (ran / span, (notified - before.1) as f64 / span)
    }

    /// All of them.
    pub(crate) fn report(&self) -> CpuReport {
        let machine = self.world.machine();
        let vms = (0..machine.vms.len()).map(|vm| VmId(vm as u32));
        let has_driver = self.guests.iter().any(|guest| guest.driver.is_some());
        CpuReport {
            scheduler: self.scheduler.to_owned(),
            pcpus: machine.pcpus.len(),
            busy: vms.map(|vm| self.rates(vm).0).sum(),
            switches: self.world.switches() - self.before.switches,
            counts: self.world.counts().into(),
            // It is the machine's first.
            driver_cpus: has_driver.then(|| self.rates(VmId(0)).0),
        }
    }

    /// The tenant at this place of the scenario; `None`: a process of the host.
    pub(crate) fn vm_report(&self, tenant: usize) -> Option<VmCpuReport> {
        let guest = &self.guests[tenant];
        let (cpus, notified_per_s) = self.rates(guest.vm?);
        let waits = &guest.waits;
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
