//! Limits and bursts.

use serde_json::json;
use tidegate_core::objective::{Burst, Limit, Objective, Rate};
use tidegate_core::time::Nanos;
use tidegate_units::exact_duration;

use super::part::{FlagInfo, NoneMeans, Promise};
use super::rate;
use super::read::{NONE, is_none, read_into};
use crate::field::Field;
use crate::keys::{KeyDefault, KeyInfo, KeyKind, SectionInfo};
use crate::node::Value;
use crate::section::Section;

const HOUR: Nanos = Nanos::from_secs(3600);

/// Creates an optional key of a rate.
const fn rate_of(name: &'static str, help: &'static str) -> KeyInfo {
    KeyInfo::new(name, KeyKind::Rate, KeyDefault::Unset("none"), help)
}

const TOTAL: KeyInfo = rate_of("total", "maximum rate of reads and writes together");
const READ: KeyInfo = rate_of("read", "maximum rate of reads");
const WRITE: KeyInfo = rate_of("write", "maximum rate of writes");
const BURST: KeyInfo = KeyInfo::new(
    "burst",
    KeyKind::OneOf(&[NONE, KeyKind::Table(&BURSTS)]),
    KeyDefault::Unset("none"),
    "higher rates that may be used for a time after the VM was idle",
);

/// `[vm.objective.limit]`
pub(crate) const LIMIT: SectionInfo = SectionInfo {
    name: "vm.objective.limit",
    keys: &[TOTAL, READ, WRITE, BURST],
};

const BURST_TOTAL: KeyInfo = rate_of(
    "total",
    "burst rate of reads and writes together, above `limit.total`",
);
const BURST_READ: KeyInfo = rate_of("read", "burst rate of reads, above `limit.read`");
const BURST_WRITE: KeyInfo = rate_of("write", "burst rate of writes, above `limit.write`");
/// Time for which a burst lasts; the default is that of QEMU's `*-max-length` (1 s).
const LENGTH: KeyInfo = KeyInfo::number(
    "length",
    KeyKind::Duration,
    Nanos::SECOND.0,
    (Nanos::from_millis(1).0, HOUR.0),
    "time for which a VM that was idle may use the burst rates",
);

/// `[vm.objective.limit.burst]`
pub(super) const BURSTS: SectionInfo = SectionInfo {
    name: "vm.objective.limit.burst",
    keys: &[BURST_TOTAL, BURST_READ, BURST_WRITE, LENGTH],
};

/// Promises of a limit, for warnings and tables.
pub(super) const PROMISES: [Promise; 4] = [
    Promise {
        name: "limit",
        view: |objective| rate::text(&objective.limit.total),
        is_enforced: |policy| policy.limit,
    },
    Promise {
        name: "limit.read",
        view: |objective| rate::text(&objective.limit.read),
        is_enforced: |policy| policy.limit_by_direction,
    },
    Promise {
        name: "limit.write",
        view: |objective| rate::text(&objective.limit.write),
        is_enforced: |policy| policy.limit_by_direction,
    },
    Promise {
        name: "limit.burst",
        view: burst_in_a_line,
        is_enforced: |policy| policy.burst,
    },
];

/// Command-line options of a limit.
pub(super) const FLAGS: [FlagInfo; 7] = [
    FlagInfo::new(
        "limit",
        &["limit", "total"],
        "RATE",
        "Maximum rate of reads and writes together; \"none\" removes all limits",
    )
    .where_none_is(NoneMeans::TableAlone),
    FlagInfo::new(
        "limit-read",
        &["limit", "read"],
        "RATE",
        "Maximum rate of reads",
    ),
    FlagInfo::new(
        "limit-write",
        &["limit", "write"],
        "RATE",
        "Maximum rate of writes",
    ),
    FlagInfo::new(
        "burst",
        &["limit", "burst", "total"],
        "RATE",
        "Rate allowed above --limit for --burst-length; \"none\" removes all bursts",
    )
    .where_none_is(NoneMeans::TableAlone),
    FlagInfo::new(
        "burst-read",
        &["limit", "burst", "read"],
        "RATE",
        "Burst rate of reads",
    ),
    FlagInfo::new(
        "burst-write",
        &["limit", "burst", "write"],
        "RATE",
        "Burst rate of writes",
    ),
    FlagInfo::new(
        "burst-length",
        &["limit", "burst", "length"],
        "TIME",
        "Time for which a burst may last, such as \"10 s\"",
    ),
];

/// Key of a limit, as its value is spelled: a rate of reads and writes together, or a table.
pub const VALUE: KeyKind = KeyKind::OneOf(&[KeyKind::Rate, KeyKind::Table(&LIMIT)]);

/// Reads a limit by itself, such as that of a disk. `None`: something was wrong, which has been
/// reported.
pub fn alone(field: &Field<'_>) -> Option<Limit> {
    merged(field, &Limit::NONE)
}

/// Reads a change of a limit by itself, and merges it into the limit `was`. `None`: something was
/// wrong, which has been reported.
pub fn merged(field: &Field<'_>, was: &Limit) -> Option<Limit> {
    let limit = read(field, was)?;
    let objective = Objective {
        limit,
        ..Objective::default()
    };
    Some(super::validated(field, objective)?.limit)
}

/// Returns a limit in the document's notation; `null` for none.
pub fn view(limit: &Limit) -> serde_json::Value {
    if limit.is_none() {
        return serde_json::Value::Null;
    }
    let burst = limit.burst.as_ref().map(|burst| {
        json!({
            "total": rate::view(&burst.total),
            "read": rate::view(&burst.read),
            "write": rate::view(&burst.write),
            "length": exact_duration(burst.length),
        })
    });
    json!({
        "total": rate::view(&limit.total),
        "read": rate::view(&limit.read),
        "write": rate::view(&limit.write),
        "burst": burst,
    })
}

/// Returns the command-line options that set the rates of a limit, in a shell's notation:
/// `--limit "500 IOPS" --burst "900 IOPS" --burst-length "1 s"`; `--limit "none"` for none.
pub fn options(limit: &Limit) -> String {
    if limit.is_none() {
        return format!("--{} \"none\"", FLAGS[0].name);
    }
    let words = view(limit);
    let value = |flag: &FlagInfo| {
        let (_, path) = flag.path.split_first()?;
        let mut inner = &words;
        for key in path {
            inner = inner.get(key)?;
        }
        Some(format!("--{} {:?}", flag.name, inner.as_str()?))
    };
    let options: Vec<_> = FLAGS.iter().filter_map(value).collect();
    options.join(" ")
}

/// Returns a limit on one line: `500 IOPS; reads 60 MB/s`, or `none`.
pub fn in_a_line(limit: &Limit) -> String {
    let rates = [
        ("", &limit.total),
        ("reads ", &limit.read),
        ("writes ", &limit.write),
    ];
    let of = |(what, rate): (&str, &Rate)| Some(format!("{what}{}", rate::text(rate)?));
    let mut all: Vec<String> = rates.into_iter().filter_map(of).collect();
    let objective = Objective {
        limit: *limit,
        ..Objective::default()
    };
    all.extend(burst_in_a_line(&objective).map(|burst| format!("burst {burst}")));
    if all.is_empty() {
        return "none".to_owned();
    }
    all.join("; ")
}

/// Returns a burst on one line: `1000 IOPS; 50 MB/s for 10 s`.
fn burst_in_a_line(objective: &Objective) -> Option<String> {
    let burst = objective.limit.burst.as_ref()?;
    let rates = [&burst.total, &burst.read, &burst.write];
    let rates: Vec<_> = rates.into_iter().filter_map(rate::text).collect();
    let length = exact_duration(burst.length);
    Some(format!("{} for {length}", rates.join("; ")))
}

/// Reads a rate of reads and writes together, which replaces `base`, or a table, which is merged
/// into it.
pub(super) fn read(field: &Field<'_>, base: &Limit) -> Option<Limit> {
    if is_none(field) {
        return Some(Limit::NONE);
    }
    if !matches!(field.node.value, Value::Table(_)) {
        // A plain rate replaces the whole table, as a value of another type does in RFC 7396.
        return Some(Limit::of_all(field.rate()?));
    }
    let mut section = Section::with_keys(field, &LIMIT)?;
    let mut new = *base;
    let burst = |field: &Field<'_>| burst(field, base.burst);
    let good = [
        read_into(&mut section, &TOTAL, Field::rate, &mut new.total),
        read_into(&mut section, &READ, Field::rate, &mut new.read),
        read_into(&mut section, &WRITE, Field::rate, &mut new.write),
        read_into(&mut section, &BURST, burst, &mut new.burst),
    ];
    section.finish();
    good.iter().all(|good| *good).then_some(new)
}

fn burst(field: &Field<'_>, base: Option<Burst>) -> Option<Option<Burst>> {
    if is_none(field) {
        return Some(None);
    }
    let nothing = Burst {
        total: Rate::NONE,
        read: Rate::NONE,
        write: Rate::NONE,
        length: Nanos(LENGTH.default_number()),
    };
    let mut section = Section::with_keys(field, &BURSTS)?;
    let mut new = base.unwrap_or(nothing);
    let length = |field: &Field<'_>| field.number(&LENGTH).map(Nanos);
    let good = [
        read_into(&mut section, &BURST_TOTAL, Field::rate, &mut new.total),
        read_into(&mut section, &BURST_READ, Field::rate, &mut new.read),
        read_into(&mut section, &BURST_WRITE, Field::rate, &mut new.write),
        read_into(&mut section, &LENGTH, length, &mut new.length),
    ];
    section.finish();
    if good.contains(&false) {
        return None;
    }
    // Only the length is left, which would promise nothing.
    if new.total.is_none() && new.read.is_none() && new.write.is_none() {
        field.error(
            "a burst without a rate",
            "add total, read or write: total = \"2000 IOPS\"",
        );
        return None;
    }
    Some(Some(new))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tidegate_core::expected_workload::ExpectedWorkload;
    use tidegate_core::objective::OpsRate;

    use super::super::{merge, to_json};
    use super::*;

    fn rates() -> impl Strategy<Value = Rate> {
        let per_s = (1..10_000_000_u64, proptest::option::of(1..1_000_000_u32));
        let ops = per_s.prop_map(|(per_s, norm)| OpsRate { per_s, norm });
        let bytes = 1..1_000_000_000_000_u64;
        (proptest::option::of(ops), proptest::option::of(bytes))
            .prop_map(|(ops, bytes_per_s)| Rate { ops, bytes_per_s })
    }

    proptest! {
        /// Takeovers and the store have objectives as text.
        #[test]
        fn limits_latencies_and_sizes_that_are_shown_are_read_back_as_they_are(
            [total, read, write] in [rates(), rates(), rates()],
            length in 1_000_000..=HOUR.0,
            zeroes in 0_u32..7,
            latency in 1_000..HOUR.0,
            size in 1..=32_u32 << 20,
        ) {
            let length = Nanos(length / 10_u64.pow(zeroes) * 10_u64.pow(zeroes));
            let twice = |rate: Rate| Rate {
                ops: rate.ops.map(|ops| OpsRate { per_s: 2 * ops.per_s, ..ops }),
                bytes_per_s: rate.bytes_per_s.map(|bytes| 2 * bytes),
            };
            let bursting = |total, read, write| Limit {
                total,
                read,
                write,
                burst: Some(Burst {
                    total: twice(total),
                    read: twice(read),
                    write: twice(write),
                    length,
                }),
            };
            let limits = [
                Limit { read, ..Limit::NONE },
                bursting(total, Rate::NONE, Rate::NONE),
                bursting(Rate::NONE, read, write),
            ];
            for mut limit in limits {
                // A burst without a rate is none.
                let rates = [limit.total, limit.read, limit.write];
                limit.burst = limit.burst.filter(|_| rates.iter().any(|rate| !rate.is_none()));
                let latency = Some(Nanos(latency));
                let expects = ExpectedWorkload { size: Some(size), ..Default::default() };
                let objective = Objective { limit, latency, expects, ..Objective::default() };
                let shown = to_json(&objective);
                let read = merge(&Objective::default(), &shown).map_err(|error| error.to_string());
                prop_assert_eq!(read, Ok(objective), "{}", shown);
            }
        }
    }
}
