//! Keys of `[[vm.disk.fault]]`.

use tidegate_config::keys::{KeyDefault, KeyInfo, KeyKind, SectionInfo, TextForm, words};
use tidegate_core::request::{IoError, Op, Outcome};
use tidegate_core::time::Nanos;

use crate::fault::Ops;

/// Maximum of `after` and `duration`, a year.
const TIME_MAX: Nanos = Nanos::from_secs(365 * 86_400);
/// Maximum stall. A stalled request occupies a slot of the device's queue for as long.
const STALL_MAX: Nanos = Nanos::from_secs(3600);

/// Words of `operations` with the operations that they select.
pub(in crate::config) const OPERATION_WORDS: [(&str, Ops); 6] = [
    ("read", Ops::only(Op::Read)),
    ("write", Ops::only(Op::Write)),
    ("flush", Ops::only(Op::Flush)),
    ("discard", Ops::only(Op::Discard)),
    ("write-zeroes", Ops::only(Op::WriteZeroes)),
    ("any", Ops::ANY),
];
/// Words of `error`: outcomes that NBD can express, which has no error for a time-out.
pub(in crate::config) const ERRORS: [(&str, Outcome); 5] = [
    ("EIO", Err(IoError::Io)),
    ("ENOSPC", Err(IoError::NoSpace)),
    ("EPERM", Err(IoError::ReadOnly)),
    ("EINVAL", Err(IoError::Unsupported)),
    ("none", Ok(())),
];
const OPERATION: KeyKind = KeyKind::Choice(&words(&OPERATION_WORDS));

/// Operations that a rule applies to.
pub(in crate::config) const OPERATIONS: KeyInfo = KeyInfo::new(
    "operations",
    KeyKind::OneOf(&[OPERATION, KeyKind::List(&OPERATION)]),
    KeyDefault::Text("any"),
    "operations that the rule applies to",
);
/// First byte of the range that a rule applies to.
pub(in crate::config) const FROM: KeyInfo = KeyInfo::number(
    "from",
    KeyKind::Bytes,
    0,
    (0, u64::MAX - 1),
    "first byte of the range: the rule applies to requests that touch it",
);
/// Length of the range that a rule applies to.
pub(in crate::config) const LENGTH: KeyInfo = KeyInfo::new(
    "length",
    KeyKind::Bytes,
    KeyDefault::Unset("to the disk's end"),
    "length of the range; a flush has no range, so only rules without one apply to it",
)
.within(1, u64::MAX);
/// Period of a rule: it strikes every n-th request that it applies to.
pub(in crate::config) const EVERY: KeyInfo = KeyInfo::number(
    "every",
    KeyKind::Count,
    1,
    (1, 1 << 32),
    "strikes every n-th request that the rule applies to",
);
/// Probability with which a rule strikes a request that it applies to.
pub(in crate::config) const PROBABILITY: KeyInfo = KeyInfo::new(
    "probability",
    KeyKind::Form(&TextForm {
        what: "`\"0.0001 %\"` to `\"100 %\"`",
        pattern: "^[0-9]{1,3}(\\.[0-9]{1,4})?\\s*%$",
    }),
    KeyDefault::Text("100 %"),
    "strikes each request with this probability",
);
/// Seed of the random numbers for `probability`.
pub(in crate::config) const SEED: KeyInfo = KeyInfo::number(
    "seed",
    KeyKind::Count,
    0,
    (0, u64::MAX),
    "seed of the random numbers: the same order of requests gives the same faults",
);
/// Time before a rule takes effect.
pub(in crate::config) const AFTER: KeyInfo = KeyInfo::number(
    "after",
    KeyKind::Duration,
    0,
    (0, TIME_MAX.0),
    "time until the rule takes effect, from the daemon's start or from when it was set",
);
/// Time for which a rule is in effect.
pub(in crate::config) const DURATION: KeyInfo = KeyInfo::new(
    "duration",
    KeyKind::Duration,
    KeyDefault::Unset("without end"),
    "time for which it is in effect",
)
.within(1, TIME_MAX.0);
/// Maximum number of requests that a rule strikes.
pub(in crate::config) const COUNT: KeyInfo = KeyInfo::new(
    "count",
    KeyKind::Count,
    KeyDefault::Unset("without end"),
    "maximum number of requests that it strikes",
)
.within(1, u64::MAX);
/// Additional delay of a struck request.
pub(in crate::config) const STALL: KeyInfo = KeyInfo::new(
    "stall",
    KeyKind::Duration,
    KeyDefault::Unset(""),
    "delay added to the request; alone or with `error` or `torn`",
)
.within(1, STALL_MAX.0);
/// Error of a struck request.
pub(in crate::config) const ERROR: KeyInfo = KeyInfo::new(
    "error",
    KeyKind::Choice(&words(&ERRORS)),
    KeyDefault::Unset(""),
    "the request fails with this error and has no effect on the disk. NBD has no error for a \
     time-out: use `\"EIO\"` with a `stall`. `\"none\"` requires `torn`",
);
/// Bytes of a struck request that are written before it fails.
pub(in crate::config) const TORN: KeyInfo = KeyInfo::new(
    "torn",
    KeyKind::Bytes,
    KeyDefault::Unset(""),
    "only the first bytes of a write, discard or write of zeroes reach the medium, in whole \
     sectors of 512 B (`\"0 B\"`: none), and it fails with `error`, or `\"EIO\"`. With `error = \
     \"none\"` it reports success, as a disk with a volatile cache that loses power",
);

/// `[[vm.disk.fault]]`
pub(in crate::config) const FAULT: SectionInfo = SectionInfo {
    name: "vm.disk.fault",
    keys: &[
        OPERATIONS,
        FROM,
        LENGTH,
        EVERY,
        PROBABILITY,
        SEED,
        AFTER,
        DURATION,
        COUNT,
        STALL,
        ERROR,
        TORN,
    ],
};
