//! Reading tenants: VMs, and processes of the host.

use super::{LONGEST, MOST_TENANTS, disk, time, which_device, within};
use crate::scenario::cpu::{self, HostCpu, VmCpu};
use crate::scenario::{DEADLINE, Delay, Device, MOST_HOSTS, Tenant, misplaced_deadline};
use core::ops::Range;
use std::collections::BTreeMap;
use tidegate_config::library::Library;
use tidegate_config::{Field, Names, Section, enforced, objective};
use tidegate_core::objective::Objective;
use tidegate_core::time::Nanos;
use tidegate_units::format_duration;
use tidegate_vcpu::machine::CpuSet;
use tidegate_workload::read;

/// Reads tenants one after the other.
pub(super) struct Reader<'a> {
    pub(super) duration: Option<Nanos>,
    /// `None`: something was wrong with it.
    pub(super) cpu: Option<Option<HostCpu>>,
    /// `None`: something was wrong with it.
    pub(super) devices: &'a [Option<Device>],
    pub(super) library: &'a dyn Library,
    pub(super) names: Names,
    /// `None`: something was wrong with one of them.
    pub(super) tenants: Option<Vec<Tenant>>,
    pub(super) groups: Groups,
}

/// The places in the scenario of all tenants that one table with a count stands for, by its name.
pub(super) type Groups = BTreeMap<String, Range<usize>>;

impl Reader<'_> {
    pub(super) fn tenants(&mut self, field: &Field<'_>, key: &str, background: bool) {
        let read = self.tenant(field, key, background);
        let (Some((tenant, count)), Some(all)) = (read, &mut self.tenants) else {
            self.tenants = None;
            return;
        };
        let Some(count) = count else {
            return all.push(tenant);
        };
        let first = all.len();
        for n in 1..=count {
            let name = format!("{}-{n}", tenant.name);
            self.names.claim(&name, noun(background), field);
            all.push(Tenant {
                name,
                ..tenant.clone()
            });
        }
        self.groups.insert(tenant.name, first..all.len());
    }

    fn tenant(
        &mut self,
        field: &Field<'_>,
        key: &str,
        background: bool,
    ) -> Option<(Tenant, Option<u64>)> {
        let field = field.labelled(key);
        let mut section = Section::of(&field)?;
        let example = if background { "backup" } else { "oltp" };
        let name = section.own_name(noun(background), example, &mut self.names);
        let most = MOST_TENANTS as u64;
        let count = section.read("count", None, |field| field.count(1..=most).map(Some));
        let device = which_device(&mut section, self.devices);
        let host = section.read("host", 0, |field| {
            field
                .count(0..=u64::from(MOST_HOSTS - 1))
                .map(|host| host as u32)
        });
        let disk = disk::read(&mut section, key);
        let disk_size = disk.and_then(|disk| disk.size);
        let objective = section.read("objective", Objective::default(), |field| {
            let objective = objective::from_field(field, &Objective::default())?;
            let on = device.and_then(|device| self.devices[device].as_ref());
            if let Some(on) = on {
                enforced::warn(field, &objective, &on.policy, background);
            }
            Some(objective)
        });
        let delay = match background {
            // Nothing virtual stands between a process of the host and its disk.
            true => Some(Delay::default()),
            false => section.read("delay", Delay::default(), delay),
        };
        let cpu = self.cpu(&mut section, background);
        let any = Nanos::ZERO..=LONGEST;
        let duration = self.duration;
        let arrives = section.read("arrives", Nanos::ZERO, |field| within(field, duration));
        let leaves = section.read("leaves", None, |field| {
            field.duration(any.clone()).map(Some)
        });
        if let (Some(arrives), Some(Some(leaves))) = (arrives, leaves)
            && leaves <= arrives
        {
            let (leaves, arrives) = (format_duration(leaves), format_duration(arrives));
            let what = format!("it leaves at {leaves} and arrives at {arrives}");
            section.error(what, "leaves after arrives");
        }
        section.renamed("job", "workload");
        let fields = section.take_tables("workload");
        let works = cpu.is_some_and(|cpu| cpu.cpu.busy_processes > 0);
        if fields.is_empty() && !works {
            let add = format!("add a [[{key}.workload]] below it, with rw = \"randread\"");
            section.error("it has no workload, so it does nothing", &add);
        }
        let jobs: Vec<_> = (fields.iter().enumerate())
            .map(|(i, field)| read::workload(field, i, disk_size, self.library))
            .collect();
        let jobs: Option<Vec<_>> = jobs.into_iter().collect();
        let alone = jobs.as_deref().is_none_or(|jobs| {
            let misplaced = misplaced_deadline(background, jobs);
            if let Some((job, what)) = misplaced {
                let field = fields[job].find("deadline");
                field.as_ref().unwrap_or(&fields[job]).error(what, DEADLINE);
            }
            misplaced.is_none()
        });
        section.finish();
        let tenant = Tenant {
            name: name?,
            device: device?,
            host: host?,
            background,
            objective: objective?,
            disk_size: disk_size?,
            disk_at: disk?.at?,
            jobs: jobs.filter(|_| alone)?,
            delay: delay?,
            cpu: cpu?,
            arrives: arrives?,
            leaves: leaves?,
        };
        let machine = self.cpu.as_ref().and_then(Option::as_ref);
        if let Some((key, what)) = cpu::misplaced(machine, &tenant) {
            let place = field.find(key);
            (place.as_ref().unwrap_or(&field)).error(what, "leave it out, or leave out [host.cpu]");
            return None;
        }
        Some((tenant, count?))
    }

    /// A VM's part of the machine.
    fn cpu(&self, section: &mut Section<'_>, background: bool) -> Option<VmCpu> {
        if background {
            // It works in the driver domain.
            return Some(VmCpu::default());
        }
        let all = match self.cpu {
            Some(machine) => machine.map(|machine| machine.all()),
            // What is wrong with the machine was said already.
            None => Some(CpuSet::first_n(CpuSet::MOST)),
        };
        section.read("cpu", VmCpu::default(), |field| cpu::vm(field, all))
    }
}

/// What people call a tenant.
fn noun(background: bool) -> &'static str {
    if background {
        "background process"
    } else {
        "VM"
    }
}

fn delay(field: &Field<'_>) -> Option<Delay> {
    let mut section = Section::of(field)?;
    let submit = time(&mut section, "submit");
    let complete = time(&mut section, "complete");
    let processor = time(&mut section, "processor");
    section.finish();
    Some(Delay {
        submit: submit?,
        complete: complete?,
        processor: processor?,
    })
}
