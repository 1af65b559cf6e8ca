//! Effect of the store's persisted VMs and objectives on a configuration.

use std::collections::BTreeSet;

use serde::Serialize;
use tidegate_server::config::{Config, Diagnostic};
use tidegate_server::persisted_vms::{RecordOutcome, RecordReport, preview_start};
use tidegate_server::store::Store;

use super::warning;

/// VMs with persisted parts.
pub(super) struct PersistedVms {
    /// VMs that will be served with a persisted part.
    vms: BTreeSet<String>,
    /// VMs in the configuration.
    configured: BTreeSet<String>,
}

/// Persisted part of a VM.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Part {
    /// Whole VM.
    Vm,
    /// Objective of a VM in the configuration.
    Objective,
}

impl PersistedVms {
    /// Changes the configuration into what would be served, and warns of persisted VMs that would
    /// not be. Without a readable store the configuration stays unchanged.
    pub(super) fn apply_store(config: &mut Config, warnings: &mut Vec<Diagnostic>) -> PersistedVms {
        let mut persisted = PersistedVms {
            vms: BTreeSet::new(),
            configured: config.vms.iter().map(|vm| vm.name.clone()).collect(),
        };
        let Some(store) = config.store.clone() else {
            return persisted;
        };
        let records = match Store::read_vms(&store.path) {
            Ok(records) => records,
            Err(error) => {
                let what = format!("persisted VMs and objectives are not known: {error}");
                let help = (error.help())
                    .unwrap_or_else(|| "run this as the user of `tidegate serve`".to_owned());
                warnings.push(warning("store".to_owned(), what, help, &store.place));
                return persisted;
            }
        };
        for RecordReport { vm, outcome, what } in preview_start(&records, config) {
            let help = match (outcome, persisted.configured.contains(&vm)) {
                (RecordOutcome::Applied, _) => {
                    persisted.vms.insert(vm);
                    continue;
                }
                (RecordOutcome::Ignored, true) => {
                    "remove it from the configuration to use the persisted one".to_owned()
                }
                (RecordOutcome::Failed, true) => {
                    format!("set it again: `tidegate vm set {vm} ... --persist`")
                }
                (_, false) => {
                    format!("`tidegate vm remove {vm} --persist` removes it from the store")
                }
            };
            warnings.push(warning(format!("vm {vm:?}"), what, help, &store.place));
        }
        persisted
    }

    /// Returns the persisted part of a VM that will be served.
    pub(super) fn part(&self, vm: &str) -> Option<Part> {
        let part = if self.configured.contains(vm) {
            Part::Objective
        } else {
            Part::Vm
        };
        self.vms.contains(vm).then_some(part)
    }
}
