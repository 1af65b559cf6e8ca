//! `array` of `[[device]]`: storage that other hosts share.

use std::str::FromStr;

use tidegate_config::device::Scheduling;
use tidegate_config::device::keys::LEARN_CAP;
use tidegate_config::{Field, Section};
use tidegate_exchange::Name;
use tidegate_exchange::array::PERIOD;
use tidegate_policies::policy::PolicySpec;

use super::keys::exchange as keys;

/// Reads the name of a cluster, an array or a host.
pub(super) fn name(field: &Field<'_>) -> Option<Name> {
    let text = field.text()?;
    let name = Name::from_str(text);
    if let Err(error) = &name {
        field.error(format!("{text:?} is no name"), &error.to_string());
    }
    name.ok()
}

/// Policy that does not fit a device that is an array.
#[derive(Debug)]
pub(crate) struct PolicyMisfit {
    /// Reason.
    pub(crate) what: String,
    /// Allowed policies or values.
    pub(crate) allowed: String,
}

/// Returns a policy as it divides an array among hosts, with the period that all hosts have.
///
/// # Errors
/// If it does not, or has another period.
pub(crate) fn policy_for_array(policy: &PolicySpec) -> Result<PolicySpec, PolicyMisfit> {
    let policy = policy.clone().on_shared_device();
    let name = tidegate_core::policy::Policy::name(&policy);
    if !policy.exchanges() {
        return Err(PolicyMisfit {
            what: format!("policy {name} does not divide an array among hosts"),
            allowed: format!("policy = one of: {}", exchanging_policies()),
        });
    }
    let period = policy.report_period();
    if period != PERIOD {
        let ms = PERIOD.0 / 1_000_000;
        return Err(PolicyMisfit {
            what: format!(
                "policy {name} of an array has a period of {} ms, and other hosts have {ms} ms",
                period.0 as f64 / 1e6
            ),
            allowed: format!("period = \"{ms} ms\", or none"),
        });
    }
    Ok(policy)
}

/// Returns the names of the policies that divide a device among hosts, for messages.
fn exchanging_policies() -> String {
    let all = tidegate_policies::policy::registry().iter();
    let exchanges = |policy: PolicySpec| policy.on_shared_device().exchanges();
    let names = all.map(|info| info.name);
    let exchanging = names.filter(|name| PolicySpec::named(name).is_ok_and(exchanges));
    exchanging.collect::<Vec<_>>().join(", ")
}

/// Reads `array` of a device, has its policy divide among hosts, and checks that the device has a
/// profile. No cap is learnt there: a host that keeps to its part of the array behaves as one
/// behind a cap. `None`: there was an error, which has been reported.
pub(super) fn read(
    section: &mut Section<'_>,
    scheduling: Option<&mut Scheduling>,
) -> Option<Option<Name>> {
    let Some(field) = section.field(&keys::ARRAY) else {
        return Some(None);
    };
    let array = name(&field)?;
    let scheduling = scheduling?;
    match policy_for_array(&scheduling.policy) {
        Ok(policy) => scheduling.policy = policy,
        Err(PolicyMisfit { what, allowed }) => {
            field.error(what, &allowed);
            return None;
        }
    }
    if scheduling.profile.is_none() {
        field.error(
            "an array without a profile: costs that one host learns are not those of the array",
            "profile = \"FILE\", of the array with all hosts together, the same on all hosts",
        );
        return None;
    }
    // On by default with a profile, which an array always has.
    if let Some(field) = section.field(&LEARN_CAP).filter(|_| scheduling.learn_cap) {
        field.error(
            "an array with learn_cap: a host's part of it would be taken for a cap",
            "learn_cap = false, or leave it out",
        );
        return None;
    }
    scheduling.learn_cap = false;
    Some(Some(array))
}
