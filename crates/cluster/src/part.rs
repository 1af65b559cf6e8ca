//! Part of a state: the records that some changes touch, in place of all.

use std::collections::BTreeSet;

/// Records that were changed, or are to be.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Touched {
    /// Names of transfers, with placements and entitlements.
    pub transfers: BTreeSet<String>,
    /// Names of hosts.
    pub hosts: BTreeSet<String>,
    /// True if any record may have been changed, and hosts may have come, gone or moved.
    pub everything: bool,
}

impl Touched {
    pub(crate) fn add_transfer(&mut self, name: &str) {
        if !self.transfers.contains(name) {
            self.transfers.insert(name.to_owned());
        }
    }

    /// Returns whether nothing was changed.
    #[cfg(feature = "etcd")]
    pub(crate) fn is_empty(&self) -> bool {
        !self.everything && self.transfers.is_empty() && self.hosts.is_empty()
    }
}
