//! Sections of a page on where the time of requests went, and which VMs delayed which.

use tidegate_report::{Align, Bars, Cell, Matrix, Page, Table, Tone};
use tidegate_units::human::duration;

/// VMs in the chart and the matrix.
const VMS_MAX: usize = 30;
/// Time of a VM's requests in nanoseconds.
pub(crate) struct VmTimes {
    pub(crate) vm: String,
    pub(crate) requests: u64,
    /// Time by part, as many as the chart has names of parts.
    pub(crate) parts: Vec<u64>,
    /// Time behind each other VM by name, the longest first.
    pub(crate) behind: Vec<(String, u64)>,
}

impl VmTimes {
    fn total(&self) -> u64 {
        self.parts.iter().sum()
    }

    fn behind_total(&self) -> u64 {
        self.behind.iter().map(|it| it.1).sum()
    }
}

/// Writes both sections. `names` are those of the parts of the time.
pub(crate) fn sections(page: &mut Page, names: &[&'static str], mut vms: Vec<VmTimes>) {
    vms.retain(|vm| vm.total() > 0);
    let hidden = vms.len().saturating_sub(VMS_MAX);
    if hidden > 0 {
        // Stable: VMs that were behind others as long stay in their order.
        vms.sort_by_key(|vm| std::cmp::Reverse(vm.behind_total()));
        vms.truncate(VMS_MAX);
    }
    page.section("time", "Where the time went");
    if vms.is_empty() {
        page.paragraph("No request took time that was measured.");
    } else {
        page.bars(&parts(names, &vms)).paragraph(
            "Shares of the time of all requests of a VM, from their arrival to the end of their \
             I/O, and the mean of a request.",
        );
        page.folded((Tone::Faint, "in figures"), "shares of the time", |page| {
            page.table("time-shares", &shares(names, &vms));
        });
    }
    page.section("delays", "Who delayed whom");
    if vms.iter().all(|vm| vm.behind.is_empty()) {
        page.paragraph("No VM had to wait for another one.");
    } else {
        page.matrix("who-delayed-whom", &matrix(&vms));
        page.paragraph(
            "Each row is a VM that waited, each column one that it was behind, before the device \
             or inside of it: shares of the time of all requests of the row's VM. Estimated from \
             samples, for the eight heaviest.",
        );
    }
    if hidden > 0 {
        page.paragraph(&format!(
            "{hidden} more VMs are not shown; those that waited longest for others come first."
        ));
    }
}

fn parts(names: &[&'static str], vms: &[VmTimes]) -> Bars {
    let mut bars = Bars::new("Time of requests", names.iter().copied());
    for vm in vms {
        let total = vm.total() as f64;
        let shares = vm.parts.iter().map(|&part| part as f64 / total);
        let mean = vm.total() / vm.requests.max(1);
        bars.row(&vm.vm, shares, format!("{} each", duration(mean)));
    }
    bars
}

/// Returns the table of the shares that bars show by colours.
fn shares(names: &[&'static str], vms: &[VmTimes]) -> Table {
    let parts = names.iter().map(|&name| (name, Align::Right));
    let mut table = Table::new([("VM", Align::Left)].into_iter().chain(parts));
    for vm in vms {
        let total = vm.total() as f64;
        let shares = vm.parts.iter().map(|&part| {
            let percent = 100.0 * part as f64 / total;
            Cell::from(format!("{percent:.1} %"))
        });
        let name = Cell::from(vm.vm.as_str()).tone(Tone::Strong);
        table.row([name].into_iter().chain(shares));
    }
    table
}

fn matrix(vms: &[VmTimes]) -> Matrix {
    let mut culprits: Vec<(&str, u64)> = Vec::new();
    for (name, time) in vms.iter().flat_map(|vm| &vm.behind) {
        match culprits.iter_mut().find(|known| known.0 == name) {
            Some(known) => known.1 += time,
            None => culprits.push((name, *time)),
        }
    }
    culprits.sort_by_key(|culprit| std::cmp::Reverse(culprit.1));
    culprits.truncate(VMS_MAX);
    let columns = culprits.iter().map(|culprit| culprit.0);
    let mut matrix = Matrix::new("waited", columns);
    for vm in vms {
        let total = vm.total() as f64;
        let shares = culprits.iter().map(|culprit| {
            let time = vm.behind.iter().find(|it| it.0 == culprit.0);
            // A VM is never behind itself.
            let is_self = vm.vm == culprit.0;
            (!is_self).then(|| time.map_or(0.0, |it| it.1 as f64 / total))
        });
        matrix.row(&vm.vm, shares);
    }
    matrix
}
