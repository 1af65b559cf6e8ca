//! Entitlements: which hosts share an array, and how much weight each may claim.

use std::collections::BTreeMap;

use crate::name::Name;

/// Source of entitlements that survive a restart, such as a configuration file.
pub trait Entitlements: Send {
    /// Returns the hosts that share an array, each with the largest sum of weights that it may
    /// claim, ordered by name; empty for an unknown array.
    fn of_array(&self, array: &Name) -> BTreeMap<Name, u32>;
}

/// Entitlements that do not change.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct FixedEntitlements(BTreeMap<Name, BTreeMap<Name, u32>>);

impl FixedEntitlements {
    /// Entitles a host to a weight on an array. Returns `false`, and changes nothing, if it has an
    /// entitlement there already.
    pub fn add(&mut self, array: Name, host: Name, weight_max: u32) -> bool {
        let hosts = self.0.entry(array).or_default();
        let is_new = !hosts.contains_key(&host);
        if is_new {
            hosts.insert(host, weight_max);
        }
        is_new
    }
}

impl Entitlements for FixedEntitlements {
    fn of_array(&self, array: &Name) -> BTreeMap<Name, u32> {
        self.0.get(array).cloned().unwrap_or_default()
    }
}
