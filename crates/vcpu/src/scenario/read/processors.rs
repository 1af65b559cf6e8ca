//! Reader of the host's pCPUs: `[host.cpu]`, and the older tables that it replaces.

use super::{host, pcpus, scheduler, table};
use crate::machine::CpuSet;
use crate::scenario::{Driver, Host, SchedulerSpec, keys};
use tidegate_config::{Field, Section};

/// Suggestion for a scenario that names no vCPU scheduler.
const SCHEDULER: &str = "[host.cpu] with scheduler = \"credit2\"";

/// pCPUs of the host, the scheduler and the driver domain. `None`: missing or wrong, which has been
/// reported.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Processors {
    pub(super) machine: Option<Host>,
    pub(super) scheduler: Option<SchedulerSpec>,
    pub(super) driver: Option<Driver>,
}

/// Reads `[host.cpu]`, or its old spelling `[host]`, `[scheduler]` and `[driver]`.
pub(super) fn read(section: &mut Section<'_>) -> Processors {
    let old = [
        section.take_old("scheduler", "`scheduler` in [host.cpu]"),
        section.take_old("driver", "[host.cpu.driver]"),
    ];
    match section.find("host").and_then(|field| field.find("cpu")) {
        Some(cpu) => {
            for field in old.iter().flatten() {
                field.error(
                    "old section, although [host.cpu] is given as well",
                    SCHEDULER,
                );
            }
            host_cpu(section, &cpu).unwrap_or_default()
        }
        None => {
            if let Some(field) = section.find("host") {
                field.note_old_spelling("[host.cpu]");
            }
            let [own, driver] = &old;
            let machine = table(section, "host", None, host);
            // Reported here, because the old spelling has no table that requires it.
            if own.is_none() {
                section.error("`scheduler` is missing", SCHEDULER);
            }
            Processors {
                machine,
                scheduler: own.as_ref().and_then(scheduler),
                driver: driver_of(driver.as_ref(), all_pcpus(machine)),
            }
        }
    }
}

fn host_cpu(section: &mut Section<'_>, cpu: &Field<'_>) -> Option<Processors> {
    let mut outer = Section::with_keys(&section.take("host")?, &keys::HOST)?;
    // Read below; taken here only so that it is no unknown key.
    outer.take("cpu");
    outer.finish();
    let mut section = Section::with_keys(cpu, &keys::HOST_CPU)?;
    let machine = host(Some(&mut section));
    let scheduler = section
        .field(&keys::SCHEDULER)
        .and_then(|field| scheduler(&field));
    let driver = driver_of(section.take("driver").as_ref(), all_pcpus(machine));
    section.finish();
    Some(Processors {
        machine,
        scheduler,
        driver,
    })
}

/// pCPUs of the host; all possible ones if its number was wrong.
fn all_pcpus(machine: Option<Host>) -> CpuSet {
    CpuSet::first_n(machine.map_or(CpuSet::MAX_PCPUS, |machine| machine.pcpus))
}

/// Reads the driver domain; without a table it has one vCPU on any of `all`.
fn driver_of(field: Option<&Field<'_>>, all: CpuSet) -> Option<Driver> {
    let Some(field) = field else {
        return Some(Driver {
            vcpus: 1,
            pinned: all,
        });
    };
    let mut section = Section::with_keys(field, &keys::DRIVER_TABLE)?;
    let vcpus = section.number(&keys::VCPUS);
    let pinned = section.value(&keys::PINNED, all, |field| pcpus(field, all));
    section.finish();
    Some(Driver {
        vcpus: vcpus? as usize,
        pinned: pinned?,
    })
}
