//! Choice and order of the VMs that are shown.

use std::cmp::Ordering;

use super::model::VmRow;
use crate::args::SortColumn;
use crate::commands::attainment;
use crate::objective_line;

/// Order and choice of VMs.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(super) struct Choice {
    pub(super) sort: SortColumn,
    pub(super) reverse: bool,
    /// Text that the VM's name, device or objective contains, in any case.
    pub(super) filter: String,
    /// Device whose VMs are shown; `None`: those of all.
    pub(super) device: Option<String>,
}

impl Choice {
    /// Returns the chosen VMs in order.
    pub(super) fn rows<'a>(&self, vms: &'a [VmRow]) -> Vec<&'a VmRow> {
        let mut rows: Vec<&VmRow> = vms.iter().filter(|vm| self.has(vm)).collect();
        rows.sort_by(|a, b| {
            let order = match self.reverse {
                false => compare(self.sort, a, b),
                true => compare(self.sort, b, a),
            };
            // Unknown values stay at the end, and equal ones in the order of names.
            let unknown = is_unknown(self.sort, a).cmp(&is_unknown(self.sort, b));
            let names = a.view.name.cmp(&b.view.name);
            unknown.then(order).then(names)
        });
        rows
    }

    /// Returns true if VMs are left out.
    pub(super) fn is_limited(&self) -> bool {
        self.device.is_some() || !self.filter.is_empty()
    }

    fn has(&self, vm: &VmRow) -> bool {
        if (self.device.as_ref()).is_some_and(|device| vm.view.device != *device) {
            return false;
        }
        if self.filter.is_empty() {
            return true;
        }
        let wanted = self.filter.to_lowercase();
        let objective = objective_line::in_words(vm.view.background, &vm.view.objective);
        [&vm.view.name, &vm.view.device, &objective]
            .iter()
            .any(|text| text.to_lowercase().contains(&wanted))
    }
}

/// Number that a VM is sorted by, the highest first; `None` for columns of text.
fn number(column: SortColumn, vm: &VmRow) -> Option<f64> {
    let rates = vm.rates.as_ref();
    match column {
        SortColumn::Iops => rates.map(|rates| rates.iops),
        SortColumn::MbPerS => rates.map(|rates| rates.mb_s),
        SortColumn::P50 => rates?.p50_ms,
        SortColumn::P99 => rates?.p99_ms,
        SortColumn::Share => vm.share,
        // The least first.
        SortColumn::Kept => attainment::worst(&vm.view.attainment)?
            .kept_percent
            .map(|percent| -percent),
        SortColumn::Vm | SortColumn::Device | SortColumn::Objective => None,
    }
}

fn is_unknown(column: SortColumn, vm: &VmRow) -> bool {
    let is_text = matches!(
        column,
        SortColumn::Vm | SortColumn::Device | SortColumn::Objective
    );
    !is_text && number(column, vm).is_none()
}

fn compare(column: SortColumn, a: &VmRow, b: &VmRow) -> Ordering {
    let objective = |vm: &VmRow| objective_line::in_words(vm.view.background, &vm.view.objective);
    match column {
        SortColumn::Vm => a.view.name.cmp(&b.view.name),
        SortColumn::Device => a.view.device.cmp(&b.view.device),
        SortColumn::Objective => objective(a).cmp(&objective(b)),
        _ => match (number(column, a), number(column, b)) {
            (Some(a), Some(b)) => b.total_cmp(&a),
            _ => Ordering::Equal,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::top::fixture;
    use crate::commands::top::model::Model;
    use clap::ValueEnum as _;

    fn names(choice: &Choice, model: &Model) -> Vec<String> {
        let rows = choice.rows(&model.vms);
        rows.iter().map(|vm| vm.view.name.clone()).collect()
    }

    #[test]
    fn every_column_sorts_in_both_directions() {
        let model = fixture::model();
        for (column, first) in SortColumn::value_variants().iter().zip([
            "bulk", // VM
            "bulk", // device: the same, by name
            "oltp", // objective: "at least"
            "bulk", // kept: missed
            "bulk", "bulk", "bulk", "bulk", "bulk",
        ]) {
            let mut choice = Choice {
                sort: *column,
                ..Choice::default()
            };
            assert_eq!(names(&choice, &model)[0], first, "{column:?}");
            choice.reverse = true;
            let last = match column {
                SortColumn::Device => "bulk",
                _ if first == "bulk" => "oltp",
                _ => "bulk",
            };
            assert_eq!(names(&choice, &model)[0], last, "{column:?}");
        }
    }

    #[test]
    fn unknown_values_stay_at_the_end() {
        let mut model = fixture::model();
        model.vms[0].share = None;
        let name = model.vms[0].view.name.clone();
        for reverse in [false, true] {
            let choice = Choice {
                reverse,
                ..Choice::default()
            };
            assert_eq!(names(&choice, &model).last(), Some(&name));
        }
    }

    #[test]
    fn vms_are_chosen_by_text_and_device() {
        let model = fixture::model();
        let with = |filter: &str, device: Option<&str>| {
            let choice = Choice {
                filter: filter.to_owned(),
                device: device.map(str::to_owned),
                ..Choice::default()
            };
            names(&choice, &model)
        };
        assert_eq!(with("OLT", None), ["oltp"]);
        assert_eq!(with("120 iops", None), ["oltp"], "by the objective");
        assert_eq!(with("nvme", None).len(), 2);
        assert!(with("nobody", None).is_empty());
        assert!(with("", Some("hdd0")).is_empty());
        assert_eq!(with("", Some("nvme0")).len(), 2);
    }
}
