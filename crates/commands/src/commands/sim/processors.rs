//! Tables of the simulated host CPU: use by VMs and their waits for it.

use tidegate_report::{Align, Cell, Table, Tone};
use tidegate_sim::report::{CpuReport, VmReport};
use tidegate_units::human::count;

use super::shown;

/// Returns a line on the whole CPU.
pub(super) fn line(cpu: &CpuReport) -> String {
    let mut text = format!(
        "{}: {:.2} of {} pCPUs busy",
        cpu.scheduler, cpu.busy, cpu.pcpus
    );
    if let Some(driver) = cpu.driver_cpus {
        text += &format!(", {driver:.2} of them by the driver domain");
    }
    text + &format!("; {} context switches\n", count(cpu.switches))
}

/// Returns the table of each VM's use of the CPU.
pub(super) fn table(vms: &[VmReport]) -> Table {
    let mut table = Table::new([
        ("VM", Align::Left),
        ("PCPUS", Align::Right),
        ("EVENTS/S", Align::Right),
        ("WAIT", Align::Right),
        ("P99", Align::Right),
        ("MAX", Align::Right),
    ]);
    for (vm, cpu) in vms.iter().filter_map(|vm| Some((vm, vm.cpu.as_ref()?))) {
        table.row([
            Cell::from(vm.name.as_str()).tone(Tone::Strong),
            format!("{:.3}", cpu.cpus).into(),
            format!("{:.0}", cpu.notified_per_s).into(),
            shown(cpu.wait_mean_ns).into(),
            shown(cpu.wait_p99_ns).into(),
            shown(cpu.wait_max_ns).into(),
        ]);
    }
    table
}
