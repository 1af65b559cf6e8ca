//! Registry of the parts of an objective.
//!
//! A new part needs a field of [`Objective`] and an entry here. The entry gives its reader and
//! merge rule, its JSON view, its command-line options, its row in the documentation and the
//! schema, and the warning where a policy does not enforce it.

use crate::other_systems;
use serde_json::{Map, Value, json};
use tidegate_core::objective::{Objective, Priority};
use tidegate_core::time::Nanos;
use tidegate_units::exact_duration;

use super::expects::{self, EXPECTS};
use super::group::{self, GROUP, GROUP_NAME};
use super::limit;
use super::part::{FlagInfo, NoneMeans, ObjectivePart, Promise};
use super::rate;
use super::read::{NONE, is_none, read_or_none, store_if_valid};
use crate::field::Field;
use crate::keys::{KeyDefault, KeyInfo, KeyKind, TextForm};
use crate::node::Value as Written;
use crate::section::Section;

/// Priority classes, for messages.
pub(super) const PRIORITY_EXAMPLES: &str =
    "\"realtime\", \"best-effort\", \"best-effort 0\" (highest) to \"best-effort 7\", or \"idle\"";
/// Largest latency bound; guests give up a request long before (Linux after 30 s).
const LATENCY_MAX: Nanos = Nanos::from_secs(3600);

/// All parts, in the order of messages and documentation.
pub const PARTS: [ObjectivePart; 8] = [
    ObjectivePart {
        key: KeyInfo::new(
            "reservation",
            KeyKind::Rate,
            KeyDefault::Unset("none"),
            "minimum rate while the VM has requests",
        ),
        read: |field, new| store_if_valid(field.rate(), &mut new.reservation),
        view: |objective| rate::view(&objective.reservation),
        promises: &[Promise {
            name: "reservation",
            view: |objective| rate::text(&objective.reservation),
            is_enforced: |policy| policy.reservation,
        }],
        flags: &[FlagInfo::new(
            "reservation",
            &["reservation"],
            "RATE",
            "Minimum rate while the VM has requests",
        )],
    },
    ObjectivePart {
        key: KeyInfo::new(
            "limit",
            limit::VALUE,
            KeyDefault::Unset("none"),
            "maximum rate of reads and writes together, or a table (below)",
        ),
        read: |field, new| store_if_valid(limit::read(field, &new.limit), &mut new.limit),
        view: |objective| limit::view(&objective.limit),
        promises: &limit::PROMISES,
        flags: &limit::FLAGS,
    },
    ObjectivePart {
        key: KeyInfo::new(
            "target",
            KeyKind::Rate,
            KeyDefault::Unset("none"),
            "rate that is held precisely, by [`vcup`](policies/vcup.md) and related policies",
        ),
        read: |field, new| store_if_valid(field.rate(), &mut new.target),
        view: |objective| rate::view(&objective.target),
        promises: &[Promise {
            name: "target",
            view: |objective| rate::text(&objective.target),
            is_enforced: |policy| policy.target,
        }],
        flags: &[FlagInfo::new(
            "target",
            &["target"],
            "RATE",
            "Rate that is held precisely, neither less nor more",
        )],
    },
    ObjectivePart {
        key: WEIGHT,
        read: |field, new| store_if_valid(group::weight(field, &WEIGHT), &mut new.weight),
        view: |objective| objective.weight.into(),
        promises: &[Promise {
            name: "weight",
            view: |objective| {
                let weight = objective.weight;
                (weight != Objective::DEFAULT_WEIGHT).then(|| weight.to_string())
            },
            is_enforced: |policy| policy.weight,
        }],
        flags: &[FlagInfo::new(
            "weight",
            &["weight"],
            "N",
            "Share of the remaining throughput, 1 to 10000; \"none\" resets it to the default",
        )
        .where_none_is(NoneMeans::Weight)],
    },
    ObjectivePart {
        key: KeyInfo::new(
            "group",
            KeyKind::OneOf(&[KeyKind::Form(&GROUP_NAME), KeyKind::Table(&GROUP)]),
            KeyDefault::Unset("none"),
            "VMs that share one weight: `\"qfs\"`, or `{ name = \"qfs\", weight = 200 }`; \
             see below",
        ),
        read: |field, new| store_if_valid(group::read(field, new.group), &mut new.group),
        view: |objective| group::view(objective.group.as_ref()),
        promises: &[Promise {
            name: "group",
            view: |objective| objective.group.map(|group| group.name.to_string()),
            is_enforced: |policy| policy.group,
        }],
        flags: &group::FLAGS,
    },
    ObjectivePart {
        key: LATENCY,
        read: |field, new| {
            let latency = read_or_none(field, |field| field.number(&LATENCY).map(Nanos));
            store_if_valid(latency, &mut new.latency)
        },
        view: |objective| objective.latency.map(exact_duration).into(),
        promises: &[Promise {
            name: "latency",
            view: |objective| objective.latency.map(exact_duration),
            is_enforced: |policy| policy.latency,
        }],
        flags: &[FlagInfo::new(
            "latency",
            &["latency"],
            "TIME",
            "Maximum latency of each request, such as \"30 ms\"",
        )],
    },
    ObjectivePart {
        key: KeyInfo::new(
            "priority",
            KeyKind::Form(&PRIORITY_CLASS),
            KeyDefault::Text("best-effort"),
            "I/O priority class, as in `ionice`, for policies that use it: `\"realtime\"`, \
             `\"best-effort 0\"` (highest) to `\"best-effort 7\"`, `\"idle\"`; `\"best-effort\"` \
             is 4",
        ),
        read: |field, new| store_if_valid(priority(field), &mut new.priority),
        view: |objective| objective.priority.to_string().into(),
        promises: &[Promise {
            name: "priority",
            view: |objective| {
                let named = objective.priority != Priority::DEFAULT;
                named.then(|| objective.priority.to_string())
            },
            is_enforced: |policy| policy.priority,
        }],
        flags: &[FlagInfo::new(
            "priority",
            &["priority"],
            "CLASS",
            "I/O priority class: realtime, \"best-effort 0\" to \"best-effort 7\", or idle",
        )],
    },
    ObjectivePart {
        key: KeyInfo::new(
            "expects",
            KeyKind::OneOf(&[NONE, KeyKind::Table(&EXPECTS)]),
            KeyDefault::Unset("nothing"),
            "expected workload: `iops` and `burst` say for which requests `latency` holds, all \
             keys are used by feasibility checks and plans (below)",
        ),
        read: |field, new| store_if_valid(expects::read(field, &new.expects), &mut new.expects),
        view: |objective| expects::view(&objective.expects),
        promises: &[],
        flags: &expects::FLAGS,
    },
];

/// Share of the throughput that reservations leave.
const WEIGHT: KeyInfo = KeyInfo::number(
    "weight",
    KeyKind::Count,
    Objective::DEFAULT_WEIGHT as u64,
    (1, Objective::MAX_WEIGHT as u64),
    "share of the throughput that reservations leave, relative to other VMs",
);

/// Bound on each request's latency.
const LATENCY: KeyInfo = KeyInfo::new(
    "latency",
    KeyKind::OneOf(&[KeyKind::Duration, NONE]),
    KeyDefault::Unset("none"),
    "maximum time from a request's arrival to its reply",
)
.within(1, LATENCY_MAX.0);

const PRIORITY_CLASS: TextForm = TextForm {
    what: "class",
    pattern: "^(realtime|best-effort( [0-7])?|idle|none)$",
};

/// Keys of all parts.
pub const KEYS: [KeyInfo; PARTS.len()] = {
    let mut keys = [PARTS[0].key; PARTS.len()];
    // `while`, because `for` is not allowed in constant functions.
    let mut at = 0;
    while at < PARTS.len() {
        keys[at] = PARTS[at].key;
        at += 1;
    }
    keys
};

/// Reads the parts of an objective and merges them into `base`, without checking them against each
/// other.
pub(crate) fn read(section: &mut Section<'_>, base: &Objective) -> Option<Objective> {
    let mut new = *base;
    let mut good = true;
    for part in &PARTS {
        // Goes on after a wrong part, so that the mistakes of all parts are reported.
        if let Some(field) = section.field(&part.key) {
            good &= (part.read)(&field, &mut new);
        }
    }
    good.then_some(new)
}

/// Iterates over the promises of all parts.
pub fn promises() -> impl Iterator<Item = &'static Promise> {
    PARTS.iter().flat_map(|part| part.promises)
}

/// Iterates over the options of all parts.
pub fn flags() -> impl Iterator<Item = &'static FlagInfo> {
    PARTS.iter().flat_map(|part| part.flags)
}

/// Returns the option for a throttling option of another system, such as `--limit-read` for
/// `iops-rd`; `None` if the name is no such option.
pub fn flag_for_foreign(name: &str) -> Option<&'static FlagInfo> {
    let place = other_systems::objective_path(name)?;
    flags().find(|flag| flag.path.join(".") == place)
}

/// Returns an objective in the notation that [`merge`](super::merge) takes: every part, `null`
/// where nothing is promised.
pub fn to_json(objective: &Objective) -> Value {
    let view = |part: &ObjectivePart| (part.key.name.to_owned(), (part.view)(objective));
    Value::Object(PARTS.iter().map(view).collect())
}

/// Returns the change that command-line options make, each with its value, in the notation that
/// [`merge`](super::merge) takes.
pub fn change<'a>(options: impl IntoIterator<Item = (&'static FlagInfo, &'a Value)>) -> Value {
    let mut change = Map::new();
    let mut removed = Vec::new();
    for (flag, value) in options {
        let is_none = value
            .as_str()
            .is_some_and(|text| text.trim().eq_ignore_ascii_case("none"));
        match flag.none {
            NoneMeans::Table | NoneMeans::TableAlone if is_none => removed.push(flag),
            _ => put_at(&mut change, flag.path, value.clone()),
        }
    }
    // Inner tables first: removing one sets a key of the outer table, which then counts as set.
    removed.sort_by_key(|flag| std::cmp::Reverse(flag.path.len()));
    for flag in removed {
        let Some((_, table)) = flag.path.split_last() else {
            continue;
        };
        let pointer = format!("/{}", table.join("/"));
        // Another option sets a value in this table, so only this option's own value is removed.
        let named = Value::Object(change.clone()).pointer(&pointer).is_some();
        if named && flag.none == NoneMeans::TableAlone {
            put_at(&mut change, flag.path, json!("none"));
        } else {
            put_at(&mut change, table, Value::Null);
        }
    }
    change.into()
}

/// Sets the value at a path of keys, creating tables on the way.
fn put_at(table: &mut Map<String, Value>, path: &[&str], value: Value) {
    match path {
        [] => {}
        [key] => _ = table.insert((*key).to_owned(), value),
        [key, rest @ ..] => {
            let inner = table.entry(*key).or_insert_with(|| json!({}));
            if let Value::Object(inner) = inner {
                put_at(inner, rest, value);
            }
        }
    }
}

fn priority(field: &Field<'_>) -> Option<Priority> {
    if is_none(field) {
        return Some(Priority::DEFAULT);
    }
    match &field.node.value {
        Written::Text(text) if text.parse::<Priority>().is_ok() => text.parse().ok(),
        _ => {
            field.refuse("a priority class", PRIORITY_EXAMPLES);
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_other_systems_have_one_here() {
        for (name, flag) in [
            ("iops-total", "limit"),
            ("bps_rd", "limit-read"),
            ("total-iops-sec-max", "burst"),
            ("iops-wr-max-length", "burst-length"),
            ("min-iops", "reservation"),
        ] {
            assert_eq!(
                flag_for_foreign(name).map(|flag| flag.name),
                Some(flag),
                "{name}"
            );
        }
        assert_eq!(flag_for_foreign("colour"), None);
    }

    #[test]
    fn every_option_is_of_its_part_and_has_a_name_of_its_own() {
        let mut names: Vec<_> = flags().map(|flag| flag.name).collect();
        for part in &PARTS {
            for flag in part.flags {
                assert_eq!(flag.path.first(), Some(&part.key.name), "--{}", flag.name);
            }
        }
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count, "{names:?}");
    }

    #[test]
    fn none_takes_a_table_away_or_a_value_in_it() {
        let typed = |options: &[(&str, &str)]| {
            let named = options.iter().map(|(name, value)| {
                let flag = flags().find(|flag| flag.name == *name);
                (flag.expect("an option"), Value::from(*value))
            });
            let named: Vec<_> = named.collect();
            change(named.iter().map(|(flag, value)| (*flag, value)))
        };
        assert_eq!(typed(&[("limit", "none")]), json!({ "limit": null }));
        let both = typed(&[("limit", "none"), ("limit-read", "5 MB/s")]);
        assert_eq!(
            both,
            json!({ "limit": { "total": "none", "read": "5 MB/s" } })
        );
        let all = typed(&[("limit", " NONE "), ("burst", "none")]);
        assert_eq!(all, json!({ "limit": { "total": "none", "burst": null } }));
        let group = typed(&[("group-weight", "3"), ("group", "none")]);
        assert_eq!(group, json!({ "group": null }));
        let rate = typed(&[("reservation", "none")]);
        assert_eq!(rate, json!({ "reservation": "none" }));
    }
}
