//! What the store makes of a configuration.

use std::collections::BTreeSet;

use serde::Serialize;
use tidegate_server::config::{Config, Diagnostic};
use tidegate_server::kept::{How, Said, foresee};
use tidegate_server::store::Store;

use super::warning;

/// What of the VMs is kept.
pub(super) struct Kept {
    /// VMs of which something is kept that will be served.
    vms: BTreeSet<String>,
    /// VMs that are in the configuration.
    configured: BTreeSet<String>,
}

/// What of a VM is kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Part {
    /// All of it.
    Vm,
    /// The objective of one that the configuration names.
    Objective,
}

impl Kept {
    /// Makes the configuration what would be served, and warns of what would not be. Where there is
    /// no store, or it cannot be read, it stays as it is.
    pub(super) fn of(config: &mut Config, warnings: &mut Vec<Diagnostic>) -> Kept {
        let mut kept = Kept {
            vms: BTreeSet::new(),
            configured: config.vms.iter().map(|vm| vm.name.clone()).collect(),
        };
        let Some(store) = config.store.clone() else {
            return kept;
        };
        let records = match Store::look(&store.path) {
            Ok(records) => records,
            Err(error) => {
                let what = format!("what is persisted is not known: {error}");
                let help = (error.help())
                    .unwrap_or_else(|| "run this as who runs `tidegate serve`".to_owned());
                warnings.push(warning("store".to_owned(), what, help, &store.place));
                return kept;
            }
        };
        for Said { vm, how, what } in foresee(&records, config) {
            let help = match (how, kept.configured.contains(&vm)) {
                (How::Well, _) => {
                    kept.vms.insert(vm);
                    continue;
                }
                (How::PassedOver, true) => {
                    "take it out of the configuration to have the one that is kept".to_owned()
                }
                (How::Lost, true) => format!("set it anew: `tidegate vm set {vm} ... --persist`"),
                (_, false) => format!("`tidegate vm remove {vm} --persist` forgets it"),
            };
            warnings.push(warning(format!("vm {vm:?}"), what, help, &store.place));
        }
        kept
    }

    /// What of a VM that will be served is kept.
    pub(super) fn part(&self, vm: &str) -> Option<Part> {
        let part = match self.configured.contains(vm) {
            true => Part::Objective,
            false => Part::Vm,
        };
        self.vms.contains(vm).then_some(part)
    }
}
