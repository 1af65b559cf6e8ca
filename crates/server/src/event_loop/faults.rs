//! Changes of the fault rules of a served disk.

use tidegate_units::human::bytes_and_count;

use super::Loop;
use crate::command::{CommandError, DiskSnapshot, FaultChange};
use crate::fault::Faults;

impl Loop {
    /// Changes the fault rules of a disk. After a removal, requests that a rule stalls on the disk
    /// go on.
    pub(super) fn change_faults(
        &mut self,
        export: &str,
        change: FaultChange,
    ) -> Result<DiskSnapshot, CommandError> {
        let disks = &mut self.device.disks;
        let of_vms = self.vms.iter().flat_map(|(_, vm)| &vm.disks);
        let index = (of_vms.copied())
            .find(|&at| disks[at].disk.export == export)
            .ok_or_else(|| CommandError::UnknownExport(export.to_owned()))?;
        let state = &mut disks[index];
        match change {
            FaultChange::Add(rule) => {
                if rule.from >= state.disk.size {
                    let size = bytes_and_count(state.disk.size);
                    let what = format!("the rule begins past the disk's end, at {size}");
                    return Err(CommandError::Refused(what));
                }
                let faults = state.faults.get_or_insert_default();
                if faults.add(self.now, *rule).is_none() {
                    let max = Faults::RULES_MAX;
                    let what = format!("the disk has {max} fault rules already, the maximum");
                    return Err(CommandError::Refused(what));
                }
            }
            FaultChange::Remove(number) => {
                let faults = state.faults.as_mut();
                if !faults.is_some_and(|faults| faults.remove(number)) {
                    return Err(CommandError::UnknownFault(number));
                }
                // Without rules, requests of the disk need no verdict.
                state.faults.take_if(|faults| faults.is_empty());
                // Also those of other rules: a request does not record which rule has stalled it.
                self.end_stalls(Some(index));
            }
            FaultChange::Clear => {
                state.faults = None;
                self.end_stalls(Some(index));
            }
        }
        Ok(self.disk_snapshot(index))
    }
}
