//! Weights, and groups of VMs that share one.

use serde_json::json;
use tidegate_core::objective::{Group, GroupName, Objective};

use super::part::{FlagInfo, NoneMeans};
use super::read::{is_none, read_into};
use crate::field::Field;
use crate::keys::{KeyDefault, KeyInfo, KeyKind, SectionInfo, TextForm};
use crate::node::Value;
use crate::section::Section;

const EXAMPLES: &str = "1 to 31 bytes of text: \"qfs\", or { name = \"qfs\", weight = 200 }";

/// Name of a group.
pub(super) const GROUP_NAME: TextForm = TextForm {
    what: "text of 1 to 31 bytes",
    pattern: "^.{1,31}$",
};

const NAME: KeyInfo = KeyInfo::new(
    "name",
    KeyKind::Form(&GROUP_NAME),
    KeyDefault::Unset("required"),
    "name of the group, the same for all of its VMs",
);
const WEIGHT: KeyInfo = KeyInfo::number(
    "weight",
    KeyKind::Count,
    Objective::DEFAULT_WEIGHT as u64,
    (1, Objective::MAX_WEIGHT as u64),
    "weight of all VMs of the group together",
);

/// `[vm.objective.group]`
pub(super) const GROUP: SectionInfo = SectionInfo {
    name: "vm.objective.group",
    keys: &[NAME, WEIGHT],
};

/// Command-line options of a group.
pub(super) const FLAGS: [FlagInfo; 2] = [
    FlagInfo::new(
        "group",
        &["group", "name"],
        "NAME",
        "Group of VMs that share one weight; \"none\" removes the VM from its group",
    )
    .where_none_is(NoneMeans::Table),
    FlagInfo::new(
        "group-weight",
        &["group", "weight"],
        "N",
        "Weight of the group, 1 to 10000; \"none\" resets it to the default",
    )
    .where_none_is(NoneMeans::Weight),
];

/// Returns a group in the document's notation; `null` for none.
pub(super) fn view(group: Option<&Group>) -> serde_json::Value {
    let view = |group: &Group| json!({ "name": group.name.to_string(), "weight": group.weight });
    group.map(view).into()
}

/// Reads a weight; JSON's `null` is the default.
pub(super) fn weight(field: &Field<'_>, key: &KeyInfo) -> Option<u32> {
    if field.is_null() {
        return Some(Objective::DEFAULT_WEIGHT);
    }
    (field.number(key)).and_then(|weight| u32::try_from(weight).ok())
}

/// Reads `"NAME"`, or a table of name and weight that is merged into `base`.
pub(super) fn read(field: &Field<'_>, base: Option<Group>) -> Option<Option<Group>> {
    if is_none(field) {
        return Some(None);
    }
    let name = |field: &Field<'_>| match &field.node.value {
        Value::Text(text) if text.parse::<GroupName>().is_ok() => text.parse().ok(),
        _ => {
            field.refuse("a group's name", EXAMPLES);
            None
        }
    };
    let Value::Table(_) = &field.node.value else {
        let named = Group::named(name(field)?);
        // Naming the present group again keeps its weight.
        return Some(base.filter(|base| base.name == named.name).or(Some(named)));
    };
    let mut section = Section::with_keys(field, &GROUP)?;
    let mut new = (base.map(|base| base.name), base.map(|base| base.weight));
    let some_name = |field: &Field<'_>| name(field).map(Some);
    let some_weight = |field: &Field<'_>| weight(field, &WEIGHT).map(Some);
    let good = [
        read_into(&mut section, &NAME, some_name, &mut new.0),
        read_into(&mut section, &WEIGHT, some_weight, &mut new.1),
    ];
    section.finish();
    if good.contains(&false) {
        return None;
    }
    let Some(name) = new.0 else {
        field.error("a group without a name", EXAMPLES);
        return None;
    };
    let weight = new.1.unwrap_or(Objective::DEFAULT_WEIGHT);
    Some(Some(Group { name, weight }))
}
