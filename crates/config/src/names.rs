//! Names: what is one, and that they are unique.

use std::collections::BTreeMap;

use crate::diagnose::Span;
use crate::field::Field;

pub use crate::figure::{NAMES, is_name};

/// Names that must be unique, and where each was seen first.
#[derive(Default, Debug)]
pub struct Names(BTreeMap<String, Span>);

impl Names {
    /// Takes `name` for the `what` (`"VM"`) that `field` is; reports it where it is taken.
    pub fn claim(&mut self, name: &str, what: &str, field: &Field<'_>) {
        if let Some(first) = self.0.get(name) {
            let twice = field.diagnostic(format!("{what} {name:?} is there twice"));
            field.push(twice.after(first).allowing("each has its own"));
        } else {
            self.0.insert(name.to_owned(), field.node().span.clone());
        }
    }

    /// Whether it is taken.
    pub fn contains(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// Those taken, in the order of the alphabet.
    pub fn iter(&self) -> impl Iterator<Item = &str> + Clone {
        self.0.keys().map(String::as_str)
    }
}
