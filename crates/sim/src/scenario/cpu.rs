//! The processors of the machine that the VMs are on, and what I/O takes of them.

use super::{Delay, Tenant, keys};
use tidegate_config::node::Value;
use tidegate_config::{Field, Section};
use tidegate_core::time::Nanos;
use tidegate_vcpu::machine::CpuSet;
use tidegate_vcpu::scenario::{self as vcpu, CpuSpec, SchedulerSpec};

/// The machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HostCpu {
    /// Its pCPUs, and what going over from one vCPU to another takes.
    pub machine: vcpu::Host,
    /// Who runs on them.
    pub scheduler: SchedulerSpec,
    /// Who does the I/O of all VMs; `None`: a guest's request reaches the scheduler of I/O by
    /// itself, as on an operating system without VMs.
    pub driver: Option<Driver>,
}

/// The driver domain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Driver {
    /// Its vCPUs. Those of VM number n are handled by its vCPU n, round the end.
    pub cpu: CpuSpec,
    /// What a request takes on its way to the scheduler of I/O.
    pub submit: Nanos,
    /// What its completion takes on its way to the VM.
    pub complete: Nanos,
}

/// A VM's part of the machine, and what its requests take it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct VmCpu {
    /// Its vCPUs.
    pub cpu: CpuSpec,
    /// What issuing a request takes the process that wants it.
    pub issue: Nanos,
    /// What a completion takes the guest's interrupt, on the first vCPU.
    pub interrupt: Nanos,
    /// What an answer takes the process.
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
    /// Its pCPUs.
    pub fn all(&self) -> CpuSet {
        CpuSet::first_n(self.machine.pcpus)
    }
}

/// Why the driver domain cannot run.
pub(super) fn homeless(cpu: &HostCpu) -> Option<String> {
    let driver = cpu.driver.as_ref()?;
    let none = driver.cpu.pinned.and(cpu.all()).is_empty();
    none.then(|| format!("the driver domain: {}", no_pcpu(cpu)))
}

fn no_pcpu(cpu: &HostCpu) -> String {
    let pcpus = cpu.machine.pcpus;
    format!("none of its pCPUs is there: the machine has {pcpus}")
}

/// What of a tenant cannot be where the machine's processors are simulated: its key, and why.
pub(super) fn misplaced(cpu: Option<&HostCpu>, tenant: &Tenant) -> Option<(&'static str, String)> {
    let cpu = cpu?;
    if tenant.delay != Delay::default() {
        let what = "with [host.cpu] the way of a request is simulated, and has no delay beside it";
        return Some(("delay", what.to_owned()));
    }
    if tenant.host > 0 {
        let what = "[host.cpu] is one machine, which all VMs are on";
        return Some(("host", what.to_owned()));
    }
    if tenant.cpu.cpu.pinned.and(cpu.all()).is_empty() {
        return Some(("cpu", no_pcpu(cpu)));
    }
    None
}

/// `[host]`, which has nothing but `cpu`.
pub(super) fn host(field: &Field<'_>) -> Option<HostCpu> {
    let mut section = Section::with_keys(field, &keys::HOST)?;
    let cpu = section.field(&keys::HOST_CPUS);
    let cpu = cpu.and_then(|field| machine(&field));
    section.finish();
    cpu
}

fn machine(field: &Field<'_>) -> Option<HostCpu> {
    let mut section = Section::with_keys(field, &keys::HOST_CPU)?;
    let machine = vcpu::host(Some(&mut section));
    let scheduler = section
        .field(&vcpu::keys::SCHEDULER)
        .and_then(|field| vcpu::scheduler(&field));
    let most = machine.map_or(CpuSet::MOST, |machine| machine.pcpus);
    let driver = section.value(&keys::DRIVER, Some(Driver::default()), |field| {
        driver(field, CpuSet::first_n(most))
    });
    section.finish();
    Some(HostCpu {
        machine: machine?,
        scheduler: scheduler?,
        driver: driver?,
    })
}

/// A table, or `"none"`.
fn driver(field: &Field<'_>, all: CpuSet) -> Option<Option<Driver>> {
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

/// `[vm.cpu]`, on a machine that has pCPUs to run on.
pub(super) fn vm(field: &Field<'_>, all: Option<CpuSet>) -> Option<VmCpu> {
    let Some(all) = all else {
        let what = "there is no [host.cpu]: nothing says on what its vCPUs run";
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
