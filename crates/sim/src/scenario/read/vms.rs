//! Reader of VMs: VMs, and processes of the host.

use super::{device_index, disk, read_event_time, read_time_distribution};
use crate::scenario::cpu::{self, HostCpu, VmCpu};
use crate::scenario::{Copies, DEADLINE, Delay, Device, VmSpec, keys, misplaced_deadline};
use tidegate_config::library::Library;
use tidegate_config::{Field, Names, Section, enforced, objective};
use tidegate_core::objective::Objective;
use tidegate_core::time::Nanos;
use tidegate_units::format_duration;
use tidegate_vcpu::machine::CpuSet;
use tidegate_workload::read;
use tidegate_workload::spec::Workload;

/// Reader of all VMs of a scenario.
pub(super) struct Reader<'a> {
    pub(super) duration: Option<Nanos>,
    /// pCPUs of the host; the outer `None` stands for a mistake.
    pub(super) cpu: Option<Option<HostCpu>>,
    /// Devices; `None` for one with a mistake.
    pub(super) devices: &'a [Option<Device>],
    pub(super) library: &'a dyn Library,
    pub(super) names: Names,
    /// VMs read so far; `None` after a mistake in one of them.
    pub(super) vms: Option<Vec<VmSpec>>,
    pub(super) copies: Copies,
}

impl Reader<'_> {
    pub(super) fn vms(&mut self, field: &Field<'_>, key: &str, background: bool) {
        let read = self.vm(field, key, background);
        let (Some((vm, count)), Some(all)) = (read, &mut self.vms) else {
            // The list is incomplete from here on: indices of later VMs would be wrong.
            self.vms = None;
            return;
        };
        let Some(count) = count else {
            return all.push(vm);
        };
        let first = all.len();
        for n in 1..=count {
            let name = format!("{}-{n}", vm.name);
            // Another VM may be called `NAME-1` by itself.
            self.names.claim(&name, kind_name(background), field);
            all.push(VmSpec { name, ..vm.clone() });
        }
        self.copies.insert(vm.name, first..all.len());
    }

    fn vm(
        &mut self,
        field: &Field<'_>,
        key: &str,
        background: bool,
    ) -> Option<(VmSpec, Option<u64>)> {
        let field = field.labelled(key);
        let (info, name_key) = if background {
            (&keys::BACKGROUND, &keys::BACKGROUND_NAME)
        } else {
            (&keys::VM, &keys::VM_NAME)
        };
        let mut section = Section::with_keys(&field, info)?;
        let name = section.unique_name(name_key, kind_name(background), &mut self.names);
        let count = section.number_if_any(&keys::COUNT);
        let device = device_index(&mut section, self.devices);
        let host = section.number(&keys::ON_HOST);
        let on = device.and_then(|device| self.devices[device].as_ref());
        let groups = on.map_or(&[][..], |device| &device.limit_groups);
        let groups: Vec<_> = groups.iter().map(|group| group.name.clone()).collect();
        let disk = disk::read(&mut section, key, &groups);
        let disk_size = disk.as_ref().and_then(|disk| disk.size);
        let objective = self.objective(&mut section, device, background);
        let delay = if background {
            // No virtualisation lies between a process of the host and its disk.
            Some(Delay::default())
        } else {
            section.value(&keys::DELAY, Delay::default(), read_delay)
        };
        let cpu = self.cpu(&mut section, background);
        let stay = self.stay(&mut section);
        let computes = cpu.is_some_and(|cpu| cpu.cpu.busy_processes > 0);
        let workloads = self.workloads(&mut section, key, disk_size, background, computes);
        section.finish();
        // Only now: all keys above have been read, and all mistakes in them reported.
        let (arrives, leaves) = stay?;
        let disk = disk?;
        let vm = VmSpec {
            name: name?,
            device: device?,
            host: u32::try_from(host?).ok()?,
            background,
            objective: objective?,
            disk_size: disk_size?,
            disk_at: disk.at?,
            parts: disk.parts?,
            workloads: workloads?,
            delay: delay?,
            cpu: cpu?,
            arrives,
            leaves,
        };
        let machine = self.cpu.as_ref().and_then(Option::as_ref);
        if let Some((key, what)) = cpu::not_allowed_with_pcpus(machine, &vm) {
            let place = field.find(key);
            // The default of a key has no place of its own in the file.
            (place.as_ref().unwrap_or(&field)).error(what, "leave it out, or leave out [host.cpu]");
            return None;
        }
        Some((vm, count?))
    }

    /// Reads the objective, and warns of parts that the device's policy does not enforce.
    fn objective(
        &self,
        section: &mut Section<'_>,
        device: Option<usize>,
        background: bool,
    ) -> Option<Objective> {
        section.value(&keys::TO_OBJECTIVE, Objective::default(), |field| {
            let objective = objective::from_field(field, &Objective::default())?;
            if let Some(on) = device.and_then(|device| self.devices[device].as_ref()) {
                enforced::warn(field, &objective, &on.scheduling.policy, background);
            }
            Some(objective)
        })
    }

    /// Reads the times of arrival and removal.
    fn stay(&self, section: &mut Section<'_>) -> Option<(Nanos, Option<Nanos>)> {
        let arrives = section.value(&keys::ARRIVES, Nanos::ZERO, |field| {
            read_event_time(field, self.duration)
        });
        let leaves = section.number_if_any(&keys::LEAVES);
        let (arrives, leaves) = (arrives?, leaves?.map(Nanos));
        if let Some(leaves) = leaves.filter(|&leaves| leaves <= arrives) {
            let (leaves, arrives) = (format_duration(leaves), format_duration(arrives));
            let what = format!("it leaves at {leaves} and arrives at {arrives}");
            section.error(what, "leaves after arrives");
        }
        Some((arrives, leaves))
    }

    /// Reads the workloads of the table `key`: at least one, unless the VM `computes`.
    fn workloads(
        &self,
        section: &mut Section<'_>,
        key: &str,
        disk_size: Option<u64>,
        background: bool,
        computes: bool,
    ) -> Option<Vec<Workload>> {
        section.renamed("job", "workload");
        let fields = section.take_tables(keys::WORKLOADS.name);
        if fields.is_empty() && !computes {
            let add = format!("add a [[{key}.workload]] below it, with rw = \"randread\"");
            section.error("it has no workload, so it does nothing", &add);
        }
        let workloads: Vec<_> = (fields.iter().enumerate())
            .map(|(i, field)| read::workload(field, i, disk_size, self.library))
            .collect();
        let workloads: Vec<Workload> = workloads.into_iter().collect::<Option<_>>()?;
        let Some((workload, what)) = misplaced_deadline(background, &workloads) else {
            return Some(workloads);
        };
        let field = fields[workload].find("deadline");
        field
            .as_ref()
            .unwrap_or(&fields[workload])
            .error(what, DEADLINE);
        None
    }

    /// Reads a VM's vCPUs.
    fn cpu(&self, section: &mut Section<'_>, background: bool) -> Option<VmCpu> {
        if background {
            // Processes of the host run in the driver domain.
            return Some(VmCpu::default());
        }
        let all = match self.cpu {
            Some(machine) => machine.map(|machine| machine.all_pcpus()),
            // Mistakes in the host's pCPUs are reported already.
            None => Some(CpuSet::first_n(CpuSet::MAX_PCPUS)),
        };
        section.value(&keys::CPU, VmCpu::default(), |field| {
            cpu::read_vm(field, all)
        })
    }
}

/// Kind of VM in messages.
fn kind_name(background: bool) -> &'static str {
    if background {
        "background process"
    } else {
        "VM"
    }
}

fn read_delay(field: &Field<'_>) -> Option<Delay> {
    let mut section = Section::with_keys(field, &keys::DELAY_TABLE)?;
    let submit = read_time_distribution(&mut section, &keys::DELAY_SUBMIT);
    let complete = read_time_distribution(&mut section, &keys::DELAY_COMPLETE);
    let processor = read_time_distribution(&mut section, &keys::DELAY_PROCESSOR);
    section.finish();
    Some(Delay {
        submit: submit?,
        complete: complete?,
        processor: processor?,
    })
}
