//! Reading parts over those there were.

use crate::field::Field;
use crate::keys::{KeyInfo, KeyKind};
use crate::node::Value;
use crate::section::Section;

/// Word that takes a part away.
pub(crate) const NONE: KeyKind = KeyKind::Choice(&["none"]);

/// Puts what was read in its place; `false`: it was wrong, and nothing is changed.
pub(super) fn put<T>(read: Option<T>, to: &mut T) -> bool {
    match read {
        Some(value) => {
            *to = value;
            true
        }
        None => false,
    }
}

/// Reads one key into `to`, which stays as it is where the key is left out.
pub(super) fn set<'a, T>(
    section: &mut Section<'a>,
    key: &KeyInfo,
    read: impl Fn(&Field<'a>) -> Option<T>,
    to: &mut T,
) -> bool {
    match section.field(key) {
        Some(field) => put(read(&field), to),
        None => true,
    }
}

/// Returns whether the value is nothing, in JSON's words or in ours.
pub(crate) fn is_none(field: &Field<'_>) -> bool {
    field.is_null()
        || matches!(&field.node.value, Value::Text(text) if text.eq_ignore_ascii_case("none"))
}

/// Reads a value that may be nothing.
pub(super) fn unless_none<'a, T>(
    field: &Field<'a>,
    read: impl Fn(&Field<'a>) -> Option<T>,
) -> Option<Option<T>> {
    if is_none(field) {
        return Some(None);
    }
    read(field).map(Some)
}
