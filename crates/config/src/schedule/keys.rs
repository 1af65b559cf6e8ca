//! Keys of an objective's schedule.

use super::entry_times::DAY_NAMES;
use crate::keys::{KeyDefault, KeyInfo, KeyKind, SectionInfo, TextForm, joined};
use crate::objective;

const TIME: TextForm = TextForm {
    what: "time of day",
    pattern: "^\\s*[0-9]{2}:[0-9]{2}(:[0-9]{2})?\\s*$",
};
const MOMENT: TextForm = TextForm {
    what: "date and time",
    pattern: "^\\s*[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}(:[0-9]{2})?\\s*$",
};

/// Begin of a one-time entry.
pub(super) const AT: KeyInfo = KeyInfo::new(
    "at",
    KeyKind::Form(&MOMENT),
    KeyDefault::Unset(""),
    "date and time at which a one-time entry begins. `until` is then a date and time as well; \
     without it the entry holds for good",
);
/// Begin of a weekly entry.
pub(super) const FROM: KeyInfo = KeyInfo::new(
    "from",
    KeyKind::Form(&TIME),
    KeyDefault::Unset("midnight"),
    "time of day at which a weekly entry begins, `\"18:00\"` or `\"18:00:30\"`",
);
/// End of an entry.
pub(super) const UNTIL: KeyInfo = KeyInfo::new(
    "until",
    KeyKind::OneOf(&[KeyKind::Form(&TIME), KeyKind::Form(&MOMENT)]),
    KeyDefault::Unset("midnight"),
    "end of the entry. A time of day not after `from` is on the next day, so that an entry until \
     the same time holds all day; `\"24:00\"` is midnight",
);
/// Days on which an entry begins.
pub(super) const DAYS: KeyInfo = KeyInfo::new(
    "days",
    KeyKind::List(&KeyKind::Choice(&DAY_NAMES)),
    KeyDefault::Unset("every day"),
    "days of the week on which the entry begins",
);
/// Application of an entry even if it does not fit the device.
pub(super) const FORCE: KeyInfo = KeyInfo::flag(
    "force",
    false,
    "applies the entry even if it does not fit the device",
);
/// Time zone of a schedule's times.
pub(super) const TIMEZONE: KeyInfo = KeyInfo::new(
    "timezone",
    KeyKind::Text,
    KeyDefault::Unset("the host's"),
    "IANA time zone of the schedule's times, such as `\"Europe/Berlin\"`",
);
/// Entries of a schedule.
pub(super) const SCHEDULE: KeyInfo = KeyInfo::new(
    "schedule",
    KeyKind::OneOf(&[KeyKind::Tables(&ENTRY), objective::NONE]),
    KeyDefault::Unset("none"),
    "entries that change parts of the objective at times of day or dates (below)",
);

const PARTS: usize = objective::KEYS.len();
const WHEN_KEYS: [KeyInfo; 5] = [AT, FROM, UNTIL, DAYS, FORCE];

/// Keys of an entry's times, without those of the objective that it changes.
pub const WHEN: SectionInfo = SectionInfo {
    name: "vm.objective.schedule",
    keys: &WHEN_KEYS,
};

/// `[[vm.objective.schedule]]`
pub const ENTRY: SectionInfo = SectionInfo {
    name: "vm.objective.schedule",
    keys: &joined::<{ WHEN_KEYS.len() + PARTS }>(&WHEN_KEYS, &objective::KEYS),
};

/// `[vm.objective]`
pub const OBJECTIVE: SectionInfo = SectionInfo {
    name: "vm.objective",
    keys: &joined::<{ PARTS + 2 }>(&objective::KEYS, &[TIMEZONE, SCHEDULE]),
};
