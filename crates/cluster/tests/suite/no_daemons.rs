//! Daemons of hosts that have none, for tests and benchmarks of placement alone.

use tidegate_api::cluster::PlacementClaim;
use tidegate_cluster::{DaemonError, Daemons, ServedVm, VmTransfer};
use tidegate_place::Request;

/// Daemons that run nothing and start everything.
pub(crate) struct NoDaemons;

impl Daemons for NoDaemons {
    fn host(&self, _: &str) -> Result<Option<String>, DaemonError> {
        Ok(None)
    }

    fn transfers(&self, _: &str) -> Result<Vec<VmTransfer>, DaemonError> {
        Ok(Vec::new())
    }

    fn vms(&self, _: &str) -> Result<Vec<ServedVm>, DaemonError> {
        Ok(Vec::new())
    }

    fn start(
        &self,
        _: Option<&str>,
        _: &str,
        _: &Request,
        _: Option<&PlacementClaim>,
    ) -> Result<(), DaemonError> {
        Ok(())
    }
}
