//! Paths of values in a document, as messages name them.

use std::fmt;

/// Path of a field: the label of its table and the keys that lead to it.
#[derive(Clone, Default, Debug)]
pub(crate) struct Path {
    /// Label of the nearest named table, such as `vm "oltp"`; may be empty.
    label: String,
    /// Keys below the label, such as `objective.limit`; may be empty.
    names: String,
    /// Heading of the table without brackets: `vm.objective.limit`.
    pub(crate) heading: String,
}

impl Path {
    /// Creates the path of a document's root with a label.
    pub(crate) fn labelled(label: impl Into<String>) -> Path {
        Path {
            label: label.into(),
            ..Path::default()
        }
    }

    /// Returns the path with a new label and no keys below it.
    pub(crate) fn relabelled(&self, label: impl Into<String>) -> Path {
        Path {
            label: label.into(),
            names: String::new(),
            heading: self.heading.clone(),
        }
    }

    /// Returns the path of a key of the table at this path.
    pub(crate) fn key(&self, key: &str) -> Path {
        let dot = |names: &str| if names.is_empty() { "" } else { "." };
        Path {
            label: self.label.clone(),
            names: format!("{}{}{key}", self.names, dot(&self.names)),
            heading: format!("{}{}{key}", self.heading, dot(&self.heading)),
        }
    }

    /// Returns the path of an element of the list at this path; `index` counts from 0.
    pub(crate) fn element(&self, index: usize) -> Path {
        Path {
            names: format!("{}[{index}]", self.names),
            ..self.clone()
        }
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.label.is_empty() && self.names.is_empty() {
            return Ok(());
        }
        let colon = if self.label.is_empty() || self.names.is_empty() {
            ""
        } else {
            ": "
        };
        write!(f, "{}{colon}{}", self.label, self.names)
    }
}
