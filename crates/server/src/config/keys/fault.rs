//! Keys of `[[vm.disk.fault]]`.

use tidegate_config::keys::{KeyDefault, KeyInfo, KeyKind, SectionInfo, TextForm, words};
use tidegate_core::request::{IoError, Op, Outcome};
use tidegate_core::time::Nanos;

use crate::fault::Ops;

/// Maximum time before and of a rule, one year: longer than a daemon runs between two drills.
const TIME_MAX: Nanos = Nanos::from_secs(365 * 86_400);
/// Maximum delay of a request, one hour: longer than any drill. The request occupies one of the
/// device's slots meanwhile.
const STALL_MAX: Nanos = Nanos::from_secs(3600);

/// Words of `operations`.
pub(in crate::config) const OPERATION_WORDS: [(&str, Ops); 6] = [
    ("read", Ops::only(Op::Read)),
    ("write", Ops::only(Op::Write)),
    ("flush", Ops::only(Op::Flush)),
    ("discard", Ops::only(Op::Discard)),
    ("write-zeroes", Ops::only(Op::WriteZeroes)),
    ("any", Ops::ANY),
];
/// Words of `error`: outcomes that NBD can transmit, which has no error for a time-out.
pub(in crate::config) const ERRORS: [(&str, Outcome); 5] = [
    ("EIO", Err(IoError::Io)),
    ("ENOSPC", Err(IoError::NoSpace)),
    ("EPERM", Err(IoError::ReadOnly)),
    ("EINVAL", Err(IoError::Unsupported)),
    ("none", Ok(())),
];
const OPERATION: KeyKind = KeyKind::Choice(&words(&OPERATION_WORDS));

/// Key `operations`.
pub(in crate::config) const OPERATIONS: KeyInfo = KeyInfo::new(
    "operations",
    KeyKind::OneOf(&[OPERATION, KeyKind::List(&OPERATION)]),
    KeyDefault::Text("any"),
    "operations that the rule applies to",
);
/// Key `from`.
pub(in crate::config) const FROM: KeyInfo = KeyInfo::number(
    "from",
    KeyKind::Bytes,
    0,
    (0, u64::MAX - 1),
    "first byte of the range; the rule applies to requests that touch it",
);
/// Key `length`.
pub(in crate::config) const LENGTH: KeyInfo = KeyInfo::new(
    "length",
    KeyKind::Bytes,
    KeyDefault::Unset("to the disk's end"),
    "length of that range. A flush has no position: only rules without a range apply to it",
)
.within(1, u64::MAX);
/// Key `every`.
pub(in crate::config) const EVERY: KeyInfo = KeyInfo::number(
    "every",
    KeyKind::Count,
    1,
    (1, 1 << 32),
    "strikes every n-th of the requests that it applies to",
);
/// Key `probability`.
pub(in crate::config) const PROBABILITY: KeyInfo = KeyInfo::new(
    "probability",
    KeyKind::Form(&TextForm {
        what: "`\"0.0001 %\"` to `\"100 %\"`",
        pattern: "^[0-9]{1,3}(\\.[0-9]{1,4})?\\s*%$",
    }),
    KeyDefault::Text("100 %"),
    "strikes with this probability",
);
/// Key `seed`.
pub(in crate::config) const SEED: KeyInfo = KeyInfo::number(
    "seed",
    KeyKind::Count,
    0,
    (0, u64::MAX),
    "seed of the draws: the same requests in the same order are struck",
);
/// Key `after`.
pub(in crate::config) const AFTER: KeyInfo = KeyInfo::number(
    "after",
    KeyKind::Duration,
    0,
    (0, TIME_MAX.0),
    "time from the daemon's start, or from setting the rule, until it holds",
);
/// Key `duration`.
pub(in crate::config) const DURATION: KeyInfo = KeyInfo::new(
    "duration",
    KeyKind::Duration,
    KeyDefault::Unset("without end"),
    "time for which the rule holds from then on",
)
.within(1, TIME_MAX.0);
/// Key `count`.
pub(in crate::config) const COUNT: KeyInfo = KeyInfo::new(
    "count",
    KeyKind::Count,
    KeyDefault::Unset("without end"),
    "maximum number of requests that the rule strikes",
)
.within(1, u64::MAX);
/// Key `stall`.
pub(in crate::config) const STALL: KeyInfo = KeyInfo::new(
    "stall",
    KeyKind::Duration,
    KeyDefault::Unset(""),
    "delay of a struck request; alone, or with `error` or `torn`",
)
.within(1, STALL_MAX.0);
/// Key `error`.
pub(in crate::config) const ERROR: KeyInfo = KeyInfo::new(
    "error",
    KeyKind::Choice(&words(&ERRORS)),
    KeyDefault::Unset(""),
    "a struck request has no effect and fails with this error, one that NBD can transmit. NBD has \
     no error for a time-out: use `\"EIO\"` with a `stall`. `\"none\"` is for `torn` only",
);
/// Key `torn`.
pub(in crate::config) const TORN: KeyInfo = KeyInfo::new(
    "torn",
    KeyKind::Bytes,
    KeyDefault::Unset(""),
    "only the first bytes of a struck write, discard or write of zeroes reach the medium, in \
     whole sectors of 512 B (`\"0 B\"`: none), and it fails with `error`, by default `\"EIO\"`. \
     With `error = \"none\"` it is reported as successful, as by a disk that lies",
);

/// Section `[[vm.disk.fault]]`.
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
