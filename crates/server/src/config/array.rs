//! `array` of `[[device]]`: storage that other hosts share.

use std::str::FromStr;

use tidegate_config::device::Scheduling;
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

/// Checks that a policy divides an array among hosts, with the period that all hosts have.
///
/// # Errors
/// If it does not, or has another period.
pub(crate) fn check_policy(policy: &PolicySpec) -> Result<(), PolicyMisfit> {
    let name = tidegate_core::policy::Policy::name(policy);
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
    Ok(())
}

/// Returns the names of the policies that divide a device among hosts, for messages.
fn exchanging_policies() -> String {
    let all = tidegate_policies::policy::registry().iter();
    let names = all.map(|info| info.name);
    let exchanging =
        names.filter(|name| PolicySpec::named(name).is_ok_and(|policy| policy.exchanges()));
    exchanging.collect::<Vec<_>>().join(", ")
}

/// Reads `array` of a device, and checks that its policy divides among hosts and that it has a
/// profile. `None`: there was an error, which has been reported.
pub(super) fn read(
    section: &mut Section<'_>,
    scheduling: Option<&Scheduling>,
) -> Option<Option<Name>> {
    let Some(field) = section.field(&keys::ARRAY) else {
        return Some(None);
    };
    let array = name(&field)?;
    let scheduling = scheduling?;
    if let Err(PolicyMisfit { what, allowed }) = check_policy(&scheduling.policy) {
        field.error(what, &allowed);
        return None;
    }
    if scheduling.profile.is_none() {
        field.error(
            "an array without a profile: costs that one host learns are not those of the array",
            "profile = \"FILE\", of the array with all hosts together, the same on all hosts",
        );
        return None;
    }
    Some(Some(array))
}
