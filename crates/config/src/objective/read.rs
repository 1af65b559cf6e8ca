//! Helpers that read one key of an objective into the value it changes.

use crate::field::Field;
use crate::keys::{KeyInfo, KeyKind};
use crate::node::Value;
use crate::section::Section;

/// Word `none`, which removes a part.
pub(crate) const NONE: KeyKind = KeyKind::Choice(&["none"]);

/// Stores a value that was read in `target`. Returns `false` if it was wrong (`None`); `target`
/// then stays.
pub(super) fn store_if_valid<T>(read: Option<T>, target: &mut T) -> bool {
    match read {
        Some(value) => {
            *target = value;
            true
        }
        None => false,
    }
}

/// Reads one key into `target`, which stays unchanged where the key is left out. Returns `false` if
/// the value was wrong.
pub(super) fn read_into<'a, T>(
    section: &mut Section<'a>,
    key: &KeyInfo,
    read: impl Fn(&Field<'a>) -> Option<T>,
    target: &mut T,
) -> bool {
    match section.field(key) {
        Some(field) => store_if_valid(read(&field), target),
        None => true,
    }
}

/// Returns true for JSON's `null` and for the text `none`.
pub(crate) fn is_none(field: &Field<'_>) -> bool {
    field.is_null()
        || matches!(&field.node.value, Value::Text(text) if text.eq_ignore_ascii_case("none"))
}

/// Reads a value that may be `none`: `Some(None)` for none, `None` for a wrong value.
pub(super) fn read_or_none<'a, T>(
    field: &Field<'a>,
    read: impl Fn(&Field<'a>) -> Option<T>,
) -> Option<Option<T>> {
    if is_none(field) {
        return Some(None);
    }
    read(field).map(Some)
}
