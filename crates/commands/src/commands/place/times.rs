//! `tidegate place repair-times`: makes stored times that are ahead of this machine's clock those
//! of now.

use std::cell::RefCell;
use std::collections::BTreeSet;

use anyhow::Result;
use serde::Serialize;
use tidegate_cluster::{ClusterState, DaemonSelection};

use super::errors::problem;
use super::session;
use crate::args::StoreArgs;
use crate::output::Output;

/// Records whose times were ahead.
#[derive(Serialize)]
struct Repaired {
    /// Names of hosts and jobs.
    repaired: BTreeSet<String>,
}

pub(super) fn repair(store: &StoreArgs, out: Output) -> Result<()> {
    let repaired = RefCell::new(BTreeSet::new());
    let change = |state: &mut ClusterState| {
        // Again on the state as it is then if another command was faster.
        *repaired.borrow_mut() = state.repair_times(session::now());
        Ok(())
    };
    session::with_cluster(store, false, DaemonSelection::None, change, |cluster| {
        cluster.save().map_err(problem)
    })?;
    let repaired = repaired.into_inner();
    if out.is_json() {
        return out.json(&Repaired { repaired });
    }
    let names: Vec<_> = repaired.iter().map(String::as_str).collect();
    let text = match names.as_slice() {
        [] => "no stored time was ahead of the clock of this machine\n".to_owned(),
        names => format!(
            "times set to now: {}; report the progress of jobs without a daemon with `tidegate \
             place moved`\n",
            names.join(", ")
        ),
    };
    Ok(out.text(&text)?)
}
