//! `tidegate cluster`: the hosts of a cluster, and the store that it is kept in.

mod daemons;
mod status;
#[cfg(feature = "cluster")]
mod watch;

use anyhow::Result;

use super::place::host;
use crate::args::{ClusterCommand, ClusterStatusArgs};
use crate::output::Output;

pub(super) fn run(command: &ClusterCommand, out: Output) -> Result<()> {
    match command {
        ClusterCommand::Status(ClusterStatusArgs { watch: true, store }) => watched(store, out),
        ClusterCommand::Status(ClusterStatusArgs { store, .. }) => status::run(store, out),
        ClusterCommand::Hosts { store } => host::list_all(store, out),
        ClusterCommand::Drain { host, store } => host::set_drained(host, true, store, out),
        ClusterCommand::Resume { host, store } => host::set_drained(host, false, store, out),
    }
}

/// Shows the status on each change.
fn watched(store: &crate::args::StoreArgs, out: Output) -> Result<()> {
    if !store.is_etcd() {
        let problem = crate::problem::Problem::new("a file cannot be watched").at("--watch");
        let help = "one process at a time has it open; a cluster in etcd can be watched: --etcd";
        return Err(problem.help(help).into());
    }
    #[cfg(feature = "cluster")]
    return watch::run(store, out);
    #[cfg(not(feature = "cluster"))]
    {
        let _ = out;
        Err(super::place::stores::without_etcd().into())
    }
}
