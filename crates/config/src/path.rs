//! The place of a value in a document, as messages name it.

use std::fmt;

/// Where a field is: what its table is called and the names that lead to it.
#[derive(Clone, Default, Debug)]
pub(crate) struct Path {
    /// `vm "oltp"`, or nothing.
    label: String,
    /// `objective.limit`, or nothing.
    names: String,
    /// What stands between the brackets of its table's heading: `vm.objective.limit`.
    pub(crate) heading: String,
}

impl Path {
    /// The root of a tree that is called `label`.
    pub(crate) fn labelled(label: impl Into<String>) -> Path {
        Path {
            label: label.into(),
            ..Path::default()
        }
    }

    /// This place, called `label` from here on.
    pub(crate) fn relabelled(&self, label: impl Into<String>) -> Path {
        Path {
            label: label.into(),
            names: String::new(),
            heading: self.heading.clone(),
        }
    }

    /// The field `key` of the table that is here.
    pub(crate) fn key(&self, key: &str) -> Path {
        let dot = |names: &str| if names.is_empty() { "" } else { "." };
        Path {
            label: self.label.clone(),
            names: format!("{}{}{key}", self.names, dot(&self.names)),
            heading: format!("{}{}{key}", self.heading, dot(&self.heading)),
        }
    }

    /// Element `index`, from zero, of the list that is here.
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
