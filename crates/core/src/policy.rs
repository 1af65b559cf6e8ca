//! Interface between the engine and a policy, which builds the three roles and states what it
//! enforces.

use crate::part::{Enforces, ParamInfo};
use crate::roles::Roles;
use crate::starvation::Bound;
use core::any::Any;
use core::fmt::Debug;
use std::sync::Arc;
use tidegate_base::device::DeviceSpec;
use tidegate_base::objective::Objective;
use tidegate_base::time::Nanos;
use tidegate_capacity::profile::Profile;

/// Scheduling policy: the engine builds its roles from it; drivers and checkers ask what it
/// enforces.
pub trait Policy: Any + Debug + Send + Sync {
    /// Name as the configuration spells it: `mclock`, or `token-bucket+mclock` for a composition.
    fn name(&self) -> &str;

    /// Names of the controller, the regulator and the dispatcher.
    fn parts(&self) -> (Option<&'static str>, &'static str, &'static str);

    /// Parameters with their values: bytes, nanoseconds or numbers without a unit, by
    /// [`ParamKind`](crate::part::ParamKind).
    fn params(&self) -> &[(&'static ParamInfo, u64)];

    /// Parts of an objective that the policy enforces for a VM: those of `enforces_for(false)`.
    fn enforces(&self) -> Enforces;

    /// Parts of an objective that the policy enforces for a VM or, with `background`, for a
    /// background process.
    fn enforces_for(&self, background: bool) -> Enforces;

    /// True if the policy helps deadline transfers to end in time.
    fn helps_transfers(&self) -> bool;

    /// True if a VM with this objective has a guaranteed minimum rate, served before weights apply.
    fn has_floor(&self, objective: &Objective) -> bool;

    /// True if the dispatcher may hold a VM whose gate is open
    /// ([`Dispatcher::may_hold`](crate::roles::Dispatcher::may_hold)).
    fn may_hold(&self) -> bool;

    /// Longest device time of a background I/O beside VMs, if such I/Os go one at a time
    /// ([`Dispatcher::background_part`](crate::roles::Dispatcher::background_part)).
    fn background_part(&self, profile: &Profile) -> Option<Nanos>;

    /// Bound on passing over a waiting VM, on a device with or without a profile.
    fn starvation(&self, device: &DeviceSpec, profile: Option<&Profile>) -> Bound;

    /// Builds the roles, with room for `vms` VMs and `requests` guest requests.
    fn build(&self, vms: u32, requests: u32) -> Roles;

    /// Builds the roles as [`Policy::build`] does, with a dispatcher that also serves background
    /// processes.
    fn build_with_background(&self, vms: u32, requests: u32) -> Roles;

    /// Returns a shared copy, with the parameters as they are.
    fn to_shared(&self) -> Arc<dyn Policy>;
}
