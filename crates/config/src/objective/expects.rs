//! Expected workload of a VM (`expects`), used by plans only.

use serde_json::json;
use tidegate_core::expected_workload::{ExpectedWorkload, THOUSAND};
use tidegate_units::{Rate, Thousandths, exact_bytes};

use super::part::FlagInfo;
use super::read::{NONE, is_none, read_into, read_or_none};
use crate::field::Field;
use crate::keys::{KeyDefault, KeyInfo, KeyKind, SectionInfo, TextForm};
use crate::node::Value;
use crate::section::Section;

const READS: KeyInfo = KeyInfo::new(
    "reads",
    KeyKind::OneOf(&[KeyKind::Percent, NONE]),
    KeyDefault::Unset("the more expensive direction"),
    "share of reads among the VM's requests",
);
const ACCESS: KeyInfo = KeyInfo::new(
    "access",
    KeyKind::Form(&TextForm {
        what: "`\"random\"`, `\"sequential\"` or `\"40 % sequential\"`",
        pattern: "^\\s*(none|random|([0-9]{1,3}(\\.[0-9])?\\s*%\\s*)?sequential)\\s*$",
    }),
    KeyDefault::Unset("random"),
    "access pattern of the VM's requests",
);
/// Size of requests, at most the largest NBD request (32 MiB).
const SIZE: KeyInfo = KeyInfo::new(
    "size",
    KeyKind::OneOf(&[KeyKind::Bytes, NONE]),
    KeyDefault::Unset("the size in the rate"),
    "size of the VM's requests",
)
.within(1, 32 << 20);
const IOPS: KeyInfo = KeyInfo::new(
    "iops",
    KeyKind::OneOf(&[KeyKind::Count, NONE]),
    KeyDefault::Unset("the target, or else the reservation"),
    "requests per second up to which `latency` is promised",
)
.within(1, Rate::MAX);
const BURST: KeyInfo = KeyInfo::new(
    "burst",
    KeyKind::OneOf(&[KeyKind::Count, NONE]),
    KeyDefault::Unset("1"),
    "requests that may arrive at once within the rate `iops`",
)
.within(1, ExpectedWorkload::BURST_MAX as u64);

/// `[vm.objective.expects]`
pub(super) const EXPECTS: SectionInfo = SectionInfo {
    name: "vm.objective.expects",
    keys: &[READS, ACCESS, SIZE, IOPS, BURST],
};

/// Command-line options of the expected workload.
pub(super) const FLAGS: [FlagInfo; 5] = [
    FlagInfo::new(
        "expect-reads",
        &["expects", "reads"],
        "PERCENT",
        "Expected share of reads, such as \"70 %\" (for feasibility checks and plans)",
    ),
    FlagInfo::new(
        "expect-access",
        &["expects", "access"],
        "ACCESS",
        "Expected access pattern: random, sequential or \"40 % sequential\"",
    ),
    FlagInfo::new(
        "expect-size",
        &["expects", "size"],
        "SIZE",
        "Expected request size, such as \"16 KiB\"",
    ),
    FlagInfo::new(
        "expect-iops",
        &["expects", "iops"],
        "NUMBER",
        "Requests per second up to which --latency is promised",
    ),
    FlagInfo::new(
        "expect-burst",
        &["expects", "burst"],
        "NUMBER",
        "Requests that may arrive at once within --expect-iops",
    ),
];

/// Returns the expected workload in the document's notation; `null` if nothing is expected.
pub(super) fn view(expects: &ExpectedWorkload) -> serde_json::Value {
    // One `null` instead of a table of them, so that the table can be left out as a whole.
    if expects.is_nothing() {
        return serde_json::Value::Null;
    }
    json!({
        "reads": expects.reads.map(|part| Thousandths(part).to_string()),
        "access": expects.sequential.map(access_word),
        "size": expects.size.map(|size| exact_bytes(size.into())),
        "iops": expects.iops,
        "burst": expects.burst,
    })
}

/// Reads a table and merges it into `base`.
pub(super) fn read(field: &Field<'_>, base: &ExpectedWorkload) -> Option<ExpectedWorkload> {
    if is_none(field) {
        return Some(ExpectedWorkload::NOTHING);
    }
    let mut section = Section::with_keys(field, &EXPECTS)?;
    let mut new = *base;
    let reads = |field: &Field<'_>| read_or_none(field, Field::thousandths);
    let access = |field: &Field<'_>| read_or_none(field, access);
    let size = |field: &Field<'_>| read_or_none(field, size);
    let iops = |field: &Field<'_>| read_or_none(field, |field| field.number(&IOPS));
    let burst = |field: &Field<'_>| {
        read_or_none(field, |field| {
            let burst = field.number(&BURST)?;
            u32::try_from(burst).ok()
        })
    };
    let good = [
        read_into(&mut section, &READS, reads, &mut new.reads),
        read_into(&mut section, &ACCESS, access, &mut new.sequential),
        read_into(&mut section, &SIZE, size, &mut new.size),
        read_into(&mut section, &IOPS, iops, &mut new.iops),
        read_into(&mut section, &BURST, burst, &mut new.burst),
    ];
    section.finish();
    good.iter().all(|good| *good).then_some(new)
}

/// Reads an access pattern (`random`, `sequential`, `40 % sequential`) as the share of sequential
/// requests in thousandths.
fn access(field: &Field<'_>) -> Option<u32> {
    let part = match &field.node.value {
        Value::Text(text) => match text.trim() {
            "random" => Some(0),
            "sequential" => Some(THOUSAND),
            text => (text.strip_suffix("sequential"))
                .and_then(|part| part.parse().ok())
                .map(|Thousandths(part)| part),
        },
        _ => None,
    };
    if part.is_none() {
        field.refuse(
            "an access pattern",
            "\"random\", \"sequential\" or \"40 % sequential\"",
        );
    }
    part
}

fn size(field: &Field<'_>) -> Option<u32> {
    (field.number(&SIZE)).and_then(|bytes| u32::try_from(bytes).ok())
}

/// Returns an access pattern, given as thousandths of sequential requests, in the notation of
/// `expects.access`.
pub fn access_word(sequential: u32) -> String {
    match sequential {
        0 => "random".to_owned(),
        THOUSAND => "sequential".to_owned(),
        part => format!("{} sequential", Thousandths(part)),
    }
}
