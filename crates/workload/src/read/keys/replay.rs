//! Keys of a trace that is replayed, and of deadlines.

use tidegate_config::keys::{KeyDefault, KeyInfo, KeyKind, SectionInfo, words};
use tidegate_core::objective::Rate;

use crate::replay::Factor;
use crate::trace::Format;

/// Words of `mode`: times at which the requests of a trace are issued.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::read) enum Pace {
    /// Times of the trace.
    Timed,
    /// Times of the trace, each multiplied by a factor.
    Scaled,
    /// Each request comes when the one before it is done.
    NextWhenDone,
}

/// Words of `mode`.
pub(in crate::read) const MODES: [(&str, Pace); 3] = [
    ("timed", Pace::Timed),
    ("scaled", Pace::Scaled),
    ("next-when-done", Pace::NextWhenDone),
];
/// Words of `format`.
pub(in crate::read) const FORMATS: [(&str, Format); Format::ALL.len()] = {
    let mut words = [("", Format::Msr); Format::ALL.len()];
    let mut i = 0;
    // A loop, because a constant cannot be mapped.
    while i < words.len() {
        words[i] = (Format::ALL[i].name(), Format::ALL[i]);
        i += 1;
    }
    words
};

const FACTOR: KeyKind = KeyKind::Decimal {
    min: *Factor::RANGE.start(),
    max: *Factor::RANGE.end(),
};

/// Path of a trace.
pub(in crate::read) const FILE: KeyInfo = KeyInfo::new(
    "file",
    KeyKind::Path,
    KeyDefault::Required("the trace's path: file = \"web.csv\""),
    "the trace, in one of [these formats](workloads.md#block-traces); a path is relative to the \
     scenario",
);
/// Format of a trace.
pub(in crate::read) const FORMAT: KeyInfo = KeyInfo::new(
    "format",
    KeyKind::Choice(&words(&FORMATS)),
    KeyDefault::Unset("detected from its beginning"),
    "format of the trace",
);
/// Leniency towards bad records.
pub(in crate::read) const SKIP_BAD: KeyInfo = KeyInfo::flag(
    "skip_bad",
    false,
    "pass over records that cannot be right; else they are errors, with their lines",
);
/// Times at which requests come.
pub(in crate::read) const MODE: KeyInfo = KeyInfo::new(
    "mode",
    KeyKind::Choice(&words(&MODES)),
    KeyDefault::Required("when requests come: mode = \"timed\", \"scaled\" or \"next-when-done\""),
    "when requests come",
);
/// Factor of a trace's times.
pub(in crate::read) const TIME_FACTOR: KeyInfo = KeyInfo::new(
    "time_factor",
    FACTOR,
    KeyDefault::Unset("required with `scaled`"),
    "with `scaled`: factor of the trace's times",
);
/// Factor of a trace's sizes.
pub(in crate::read) const SIZE_FACTOR: KeyInfo = KeyInfo::new(
    "size_factor",
    FACTOR,
    KeyDefault::Decimal(1.0),
    "factor of sizes and addresses",
);
/// Disk of a trace.
pub(in crate::read) const TRACE_DISK: KeyInfo = KeyInfo::new(
    "trace_disk",
    KeyKind::Text,
    KeyDefault::Unset("all"),
    "only this disk of the trace, by its name (`tidegate trace info`); MSR's are `HOST.NUMBER`",
);
/// Requests of a trace.
pub(in crate::read) const LIMIT: KeyInfo = KeyInfo::new(
    "limit",
    KeyKind::Count,
    KeyDefault::Unset("all"),
    "only so many requests, the first",
)
.within(1, u64::MAX);
/// Repetition of a trace.
pub(in crate::read) const LOOP: KeyInfo = KeyInfo::flag(
    "loop",
    false,
    "after the last request the first comes again",
);

/// `[vm.workload.replay]`
pub(in crate::read) const REPLAY_TABLE: SectionInfo = SectionInfo {
    name: "vm.workload.replay",
    keys: &[
        FILE,
        FORMAT,
        SKIP_BAD,
        MODE,
        TIME_FACTOR,
        SIZE_FACTOR,
        TRACE_DISK,
        LIMIT,
        LOOP,
    ],
};

/// Largest tolerance; a larger one would hardly be a deadline.
const TOLERANCE_MAX: f64 = 1000.0;
/// Largest number of VMs that share a device.
const VMS_MAX: u64 = 4096;

/// Part of the best duration that may pass on top of it.
pub(in crate::read) const TOLERANCE: KeyInfo = KeyInfo::new(
    "tolerance",
    KeyKind::Decimal {
        min: 0.0,
        max: TOLERANCE_MAX,
    },
    KeyDefault::Required("how much longer than at best it may take: tolerance = 0.3"),
    "part of the best possible duration that may pass on top of it",
);
/// Bandwidth of one VM alone.
pub(in crate::read) const MAX_BANDWIDTH: KeyInfo = KeyInfo::new(
    "max_bandwidth",
    KeyKind::Bandwidth,
    KeyDefault::Required("what one VM gets: max_bandwidth = \"54 MB/s\""),
    "bytes a second that the device does for one VM alone",
)
.within(1, Rate::MAX);
/// Bandwidth that is lost while several VMs use the device.
pub(in crate::read) const BANDWIDTH_LOSS: KeyInfo = KeyInfo::number(
    "bandwidth_loss",
    KeyKind::Bandwidth,
    0,
    (0, Rate::MAX),
    "bytes a second that it does less for so many VMs as there are",
);
/// VMs that share the device.
pub(in crate::read) const VMS: KeyInfo = KeyInfo::number(
    "vms",
    KeyKind::Count,
    1,
    (1, VMS_MAX),
    "VMs that `as_printed` divides by",
);
/// The equation as it is printed.
pub(in crate::read) const AS_PRINTED: KeyInfo = KeyInfo::flag(
    "as_printed",
    false,
    "divide by `vms` once more, as the equation is printed",
);

/// `[vm.workload.deadline]`
pub(in crate::read) const DEADLINE_TABLE: SectionInfo = SectionInfo {
    name: "vm.workload.deadline",
    keys: &[TOLERANCE, MAX_BANDWIDTH, BANDWIDTH_LOSS, VMS, AS_PRINTED],
};
