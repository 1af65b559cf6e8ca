//! `array` of `[[device]]`: storage that other hosts share.

use std::str::FromStr;

use tidegate_config::device::Scheduling;
use tidegate_config::{Field, Section};
use tidegate_exchange::Name;
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

/// Names of the policies that divide a device among hosts, for messages.
pub(crate) fn exchanging_policies() -> String {
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
    if !scheduling.policy.exchanges() {
        let policy = tidegate_core::policy::Policy::name(&scheduling.policy);
        field.error(
            format!("policy {policy} does not divide an array among hosts"),
            &format!("policy = one of: {}", exchanging_policies()),
        );
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
