//! Reading the processors of the host: `[host.cpu]`, and the tables that it was once.

use super::{host, pcpus, scheduler, table};
use crate::machine::CpuSet;
use crate::scenario::{Driver, Host, SchedulerSpec, keys};
use tidegate_config::{Field, Section};

/// What to add where nothing says how vCPUs are scheduled.
const SCHEDULER: &str = "[host.cpu] with scheduler = \"credit2\"";

/// The processors of the host; `None` of a part: it was wrong or is missing, which has been
/// reported.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Processors {
    pub(super) machine: Option<Host>,
    pub(super) scheduler: Option<SchedulerSpec>,
    pub(super) driver: Option<Driver>,
}

/// Reads `[host.cpu]`, or `[host]`, `[scheduler]` and `[driver]`, its old spelling.
pub(super) fn read(section: &mut Section<'_>) -> Processors {
    let old = [
        section.take_old("scheduler", "`scheduler` in [host.cpu]"),
        section.take_old("driver", "[host.cpu.driver]"),
    ];
    match section.find("host").and_then(|field| field.find("cpu")) {
        Some(cpu) => {
            for field in old.iter().flatten() {
                field.error(
                    "the old place of a part of [host.cpu], which is given, too",
                    SCHEDULER,
                );
            }
            new(section, &cpu).unwrap_or_default()
        }
        None => {
            if let Some(field) = section.find("host") {
                field.note_old_spelling("[host.cpu]");
            }
            let [own, driver] = &old;
            let machine = table(section, "host", None, host);
            if own.is_none() {
                section.error("`scheduler` is missing", SCHEDULER);
            }
            Processors {
                machine,
                scheduler: own.as_ref().and_then(scheduler),
                driver: driver_of(driver.as_ref(), all(machine)),
            }
        }
    }
}

fn new(section: &mut Section<'_>, cpu: &Field<'_>) -> Option<Processors> {
    let mut outer = Section::with_keys(&section.take("host")?, &keys::HOST)?;
    outer.take("cpu");
    outer.finish();
    let mut section = Section::with_keys(cpu, &keys::HOST_CPU)?;
    let machine = host(Some(&mut section));
    let scheduler = section
        .field(&keys::SCHEDULER)
        .and_then(|field| scheduler(&field));
    let driver = driver_of(section.take("driver").as_ref(), all(machine));
    section.finish();
    Some(Processors {
        machine,
        scheduler,
        driver,
    })
}

/// The pCPUs of a machine; all there may be where it was wrong.
fn all(machine: Option<Host>) -> CpuSet {
    CpuSet::first_n(machine.map_or(CpuSet::MOST, |machine| machine.pcpus))
}

/// The driver domain of the table that says so; one vCPU on any of `all` where there is none.
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
