//! Uniqueness of names in a document.

use std::collections::BTreeMap;

use crate::diagnostic::Span;
use crate::field::Field;

pub use crate::name_form::{NAME_FORM, is_name};

/// Names taken so far, each with its first place.
#[derive(Default, Debug)]
pub struct Names(BTreeMap<String, Span>);

impl Names {
    /// Takes `name` for a `what` (`"VM"`); reports it at `field` if it is already taken.
    pub fn claim(&mut self, name: &str, what: &str, field: &Field<'_>) {
        if let Some(first) = self.0.get(name) {
            let twice = field.diagnostic(format!("{what} {name:?} is there twice"));
            field.push(twice.after(first).allowing("each has its own"));
        } else {
            self.0.insert(name.to_owned(), field.node().span.clone());
        }
    }

    /// Returns true if `name` is taken.
    pub fn contains(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// Iterates over the taken names in alphabetical order.
    pub fn iter(&self) -> impl Iterator<Item = &str> + Clone {
        self.0.keys().map(String::as_str)
    }
}
