//! Folders of keys that daemons write, and values by key.

use std::collections::BTreeMap;

/// Folder of daemons that are registered, each under its lease.
pub(super) const MEMBERS: &str = "members/";
/// Folder of standing reservations, which daemons write.
pub(super) const RESERVATIONS: &str = "reservations/";

/// Values by key, without the prefix of the store.
pub(super) type Values = BTreeMap<String, Vec<u8>>;
