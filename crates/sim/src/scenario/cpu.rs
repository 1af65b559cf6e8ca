//! pCPUs of the host that runs the VMs, and the CPU time of I/O on them.

use super::{Delay, VmSpec, keys};
use tidegate_config::node::Value;
use tidegate_config::{Field, Section};
use tidegate_core::time::Nanos;
use tidegate_vcpu::machine::CpuSet;
use tidegate_vcpu::scenario::{self as vcpu, CpuSpec, SchedulerSpec};

/// Host with simulated pCPUs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HostCpu {
    /// pCPUs, and the cost of a context switch.
    pub machine: vcpu::Host,
    /// vCPU scheduler.
    pub scheduler: SchedulerSpec,
    /// Driver domain that carries the I/O of all VMs. `None`: a guest's request reaches the I/O
    /// scheduler directly, as on an operating system without VMs.
    pub driver: Option<Driver>,
}

/// Driver domain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Driver {
    /// vCPUs of the driver domain. VM number n is served by vCPU n, modulo their number.
    pub cpu: CpuSpec,
    /// CPU time of a request on its way to the I/O scheduler.
    pub submit: Nanos,
    /// CPU time of a completion on its way to the VM.
    pub complete: Nanos,
}

/// vCPUs of a VM, and the CPU time of its requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct VmCpu {
    /// vCPUs of the VM.
    pub cpu: CpuSpec,
    /// CPU time of the process that issues a request.
    pub issue: Nanos,
    /// CPU time of a completion's interrupt on the first vCPU.
    pub interrupt: Nanos,
    /// CPU time of the process that takes an answer.
    pub complete: Nanos,
}

impl Default for VmCpu {
    fn default() -> VmCpu {
        VmCpu {
            cpu: CpuSpec::default(),
            issue: keys::STEP,
            interrupt: keys::STEP,
            complete: keys::STEP,
        }
    }
}

impl Default for Driver {
    fn default() -> Driver {
        Driver {
            cpu: CpuSpec::default(),
            submit: keys::DRIVER_STEP,
            complete: keys::DRIVER_STEP,
        }
    }
}

impl HostCpu {
    /// All pCPUs of the host.
    pub fn all_pcpus(&self) -> CpuSet {
        CpuSet::first_n(self.machine.pcpus)
    }
}

/// Returns the error of a driver domain that has no pCPU to run on.
pub(super) fn driver_without_pcpu(cpu: &HostCpu) -> Option<String> {
    let driver = cpu.driver.as_ref()?;
    // An affinity may name pCPUs that the host does not have; one that it has is enough.
    let none = driver.cpu.pinned.and(cpu.all_pcpus()).is_empty();
    none.then(|| format!("the driver domain: {}", no_pcpu(cpu)))
}

fn no_pcpu(cpu: &HostCpu) -> String {
    let pcpus = cpu.machine.pcpus;
    format!("none of its pCPUs is there: the machine has {pcpus}")
}

/// Returns the key and the error of a VM's setting that is not allowed with simulated pCPUs.
pub(super) fn not_allowed_with_pcpus(
    cpu: Option<&HostCpu>,
    vm: &VmSpec,
) -> Option<(&'static str, String)> {
    let cpu = cpu?;
    if vm.delay != Delay::default() {
        let what = "with [host.cpu] the way of a request is simulated, and has no delay beside it";
        return Some(("delay", what.to_owned()));
    }
    if vm.host > 0 {
        let what = "[host.cpu] is one machine, which all VMs are on";
        return Some(("host", what.to_owned()));
    }
    if vm.cpu.cpu.pinned.and(cpu.all_pcpus()).is_empty() {
        return Some(("cpu", no_pcpu(cpu)));
    }
    None
}

/// Reads `[host]`, whose only key is `cpu`.
pub(super) fn read_host(field: &Field<'_>) -> Option<HostCpu> {
    let mut section = Section::with_keys(field, &keys::HOST)?;
    let cpu = section.field(&keys::HOST_CPUS);
    let cpu = cpu.and_then(|field| read_host_cpu(&field));
    section.finish();
    cpu
}

fn read_host_cpu(field: &Field<'_>) -> Option<HostCpu> {
    let mut section = Section::with_keys(field, &keys::HOST_CPU)?;
    let machine = vcpu::host(Some(&mut section));
    let scheduler = section
        .field(&vcpu::keys::SCHEDULER)
        .and_then(|field| vcpu::scheduler(&field));
    // With a wrong machine every pCPU is accepted, so that one mistake is reported once.
    let most = machine.map_or(CpuSet::MAX_PCPUS, |machine| machine.pcpus);
    let driver = section.value(&keys::DRIVER, Some(Driver::default()), |field| {
        read_driver(field, CpuSet::first_n(most))
    });
    section.finish();
    Some(HostCpu {
        machine: machine?,
        scheduler: scheduler?,
        driver: driver?,
    })
}

/// Reads a driver domain: a table, or `"none"`.
fn read_driver(field: &Field<'_>, all: CpuSet) -> Option<Option<Driver>> {
    if let Value::Text(_) = field.node().value {
        return field.choice(&[("none", None)]);
    }
    let mut section = Section::with_keys(field, &keys::DRIVER_TABLE)?;
    let cpu = vcpu::cpu(&mut section, all);
    let submit = section.number(&keys::DRIVER_SUBMIT);
    let complete = section.number(&keys::DRIVER_COMPLETE);
    section.finish();
    Some(Some(Driver {
        cpu: cpu?,
        submit: Nanos(submit?),
        complete: Nanos(complete?),
    }))
}

/// Reads `[vm.cpu]`; `all` are the host's pCPUs, `None` if it has none.
pub(super) fn read_vm(field: &Field<'_>, all: Option<CpuSet>) -> Option<VmCpu> {
    let Some(all) = all else {
        let what = "no [host.cpu] section: vCPUs need the host's pCPUs";
        field.error(what, "add [host.cpu] with scheduler = \"credit2\"");
        return None;
    };
    let mut section = Section::with_keys(field, &keys::CPU_TABLE)?;
    let cpu = vcpu::cpu(&mut section, all);
    let issue = section.number(&keys::ISSUE);
    let interrupt = section.number(&keys::INTERRUPT);
    let complete = section.number(&keys::COMPLETE);
    section.finish();
    Some(VmCpu {
        cpu: cpu?,
        issue: Nanos(issue?),
        interrupt: Nanos(interrupt?),
        complete: Nanos(complete?),
    })
}
