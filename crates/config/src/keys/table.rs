//! Tables of keys in the documentation.

use std::fmt::Write as _;

use super::{KeyDefault, KeyInfo, KeyKind, SectionInfo};

impl KeyKind {
    /// Returns the kind as the documentation describes it; `range` is the key's range, or empty.
    fn in_words(self, range: &str) -> String {
        let with_range = |what: &str| match range {
            "" => what.to_owned(),
            _ => format!("{what}, {range}"),
        };
        match self {
            KeyKind::Flag => "`true` or `false`".to_owned(),
            KeyKind::Count if range.is_empty() => "number".to_owned(),
            KeyKind::Count => range.to_owned(),
            KeyKind::Decimal { min, max } => format!("{min} to {max}, with decimals"),
            KeyKind::Bytes => with_range("size"),
            KeyKind::Duration => with_range("time"),
            KeyKind::Bandwidth => with_range("bandwidth"),
            KeyKind::Rate => "rate".to_owned(),
            KeyKind::Percent => "`\"0 %\"` to `\"100 %\"`".to_owned(),
            KeyKind::Name => "name".to_owned(),
            KeyKind::Text => "text".to_owned(),
            KeyKind::Form(form) => form.what.to_owned(),
            KeyKind::Path => "path".to_owned(),
            KeyKind::Mode => "file mode".to_owned(),
            KeyKind::Choice(words) => {
                join_with_or(words.iter().map(|word| format!("`\"{word}\"`")).collect())
            }
            KeyKind::OneOf(kinds) => {
                let words = kinds.iter().map(|kind| match kind {
                    // Avoids "name or list of name" where a key takes one or several.
                    KeyKind::List(inner) if kinds.contains(inner) => "a list of them".to_owned(),
                    kind => kind.in_words(range),
                });
                join_with_or(words.collect())
            }
            KeyKind::List(kind) => format!("list of {}", kind.in_words(range)),
            KeyKind::Table(section) => format!("table `[{}]`", section.name),
            KeyKind::Tables(section) => format!("tables `[[{}]]`", section.name),
            KeyKind::Policy | KeyKind::Registered(_) => "name or table".to_owned(),
        }
    }
}

/// Joins parts as `a, b or c`.
fn join_with_or(mut parts: Vec<String>) -> String {
    let last = parts.pop().unwrap_or_default();
    if parts.is_empty() {
        last
    } else {
        format!("{} or {last}", parts.join(", "))
    }
}

impl KeyInfo {
    /// Returns the key's row in the documentation.
    fn row(&self) -> String {
        let value = self.kind.in_words(&self.range());
        let default = match (self.default, self.kind) {
            (KeyDefault::Required(_), _) => "required".to_owned(),
            // Numbers without a unit stand without quotes, as in the document.
            (KeyDefault::Value(value), KeyKind::Count) => value.to_string(),
            (KeyDefault::Value(value), _) => format!("`\"{}\"`", self.written(value)),
            (KeyDefault::Decimal(value), _) => value.to_string(),
            (KeyDefault::Flag(value), _) => format!("`{value}`"),
            (KeyDefault::Text(text), _) => format!("`\"{text}\"`"),
            (KeyDefault::Unset(words), _) => words.to_owned(),
        };
        format!("| `{}` | {value} | {default} | {} |", self.name, self.help)
    }
}

impl SectionInfo {
    /// Returns `text`, a page of the documentation, with the section's table written anew between
    /// its markers, `<!-- keys of [store] -->` and `<!-- end of keys -->`. `None`: no markers.
    pub fn refill(&self, text: &str) -> Option<String> {
        let begin = format!("<!-- keys of [{}] -->\n", self.name);
        let (before, rest) = text.split_once(&begin)?;
        let (_, after) = rest.split_once("<!-- end of keys -->")?;
        let head = "| key | value | default | |\n|---|---|---|---|\n";
        let mut page = format!("{before}{begin}\n{head}");
        for key in self.keys {
            // Writing to a string cannot fail.
            _ = writeln!(page, "{}", key.row());
        }
        Some(format!("{page}\n<!-- end of keys -->{after}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::TextForm;

    fn row(kind: KeyKind, default: KeyDefault) -> String {
        KeyInfo::new("k", kind, default, "help").within(1, 3).row()
    }

    #[test]
    fn a_row_says_which_values_go_and_which_one_is_the_default() {
        for (kind, default, words) in [
            (KeyKind::Count, KeyDefault::Value(2), "1 to 3 | 2"),
            (
                KeyKind::Bytes,
                KeyDefault::Value(2),
                "size, 1 B to 3 B | `\"2 B\"`",
            ),
            (
                KeyKind::Flag,
                KeyDefault::Flag(true),
                "`true` or `false` | `true`",
            ),
            (
                KeyKind::Mode,
                KeyDefault::Value(0o600),
                "file mode | `\"0600\"`",
            ),
            (
                KeyKind::Choice(&["a", "b", "c"]),
                KeyDefault::Text("a"),
                "`\"a\"`, `\"b\"` or `\"c\"` | `\"a\"`",
            ),
            (
                KeyKind::List(&KeyKind::Form(&TextForm {
                    what: "day",
                    pattern: "",
                })),
                KeyDefault::Unset("all"),
                "list of day | all",
            ),
            (
                KeyKind::OneOf(&[KeyKind::Rate, KeyKind::List(&KeyKind::Rate)]),
                KeyDefault::Unset(""),
                "rate or a list of them | ",
            ),
            (
                KeyKind::Path,
                KeyDefault::Required("path = \"p\""),
                "path | required",
            ),
        ] {
            assert_eq!(row(kind, default), format!("| `k` | {words} | help |"));
        }
    }

    #[test]
    fn a_page_without_markers_cannot_be_refilled() {
        let section = SectionInfo {
            name: "store",
            keys: &[],
        };
        assert_eq!(section.refill("no table\n"), None);
        let page = "a\n<!-- keys of [store] -->\nold\n<!-- end of keys -->\nb\n";
        let fresh = section.refill(page).expect("it has markers");
        assert!(!fresh.contains("old") && fresh.ends_with("<!-- end of keys -->\nb\n"));
        assert_eq!(section.refill(&fresh), Some(fresh.clone()));
    }
}
