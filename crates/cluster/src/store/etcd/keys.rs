//! Folders of keys that are no records of the state.

/// Folder of daemons that are registered, each under its lease.
pub(super) const MEMBERS: &str = "members/";
/// Folder of standing reservations, which daemons write.
pub(super) const RESERVATIONS: &str = "reservations/";

/// Folder of the clocks of registered daemons, each under the lease of its registration. No record
/// of the state: a clock is published every few seconds, and read when it is needed.
pub(super) const CLOCKS: &str = "clocks/";

/// Folder of recorded starts, by host and transfer. Commits put them with placements, and daemons
/// delete them.
pub(super) const STARTS: &str = "starts/";
