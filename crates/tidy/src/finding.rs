//! One place where a rule does not hold.

use std::fmt;

/// A place where a rule does not hold, with how far it is off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Name of the rule, as in `debts.txt`.
    pub rule: &'static str,
    /// File or folder, relative to the workspace's root.
    pub place: String,
    /// Type, function or other item of the file, if the rule is about one.
    pub item: Option<String>,
    /// Line in the file, counted from 1; 0 for a folder or a whole file.
    pub line: usize,
    /// Size of what was found, in the unit of the rule: lines, methods, imports.
    pub figure: usize,
    /// Description of what was found, without the place.
    pub what: String,
}

impl Finding {
    /// Identity of the finding in `debts.txt`: rule, place and item, without the line number, which
    /// other changes move.
    pub(crate) fn key(&self) -> Key {
        Key {
            place: self.place.clone(),
            rule: self.rule.to_owned(),
            // A field of `debts.txt` cannot be empty.
            item: self.item.clone().unwrap_or_else(|| "-".to_owned()),
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.place, self.what),
            line => write!(f, "{}:{line}: {}", self.place, self.what),
        }
    }
}

/// Identity of a finding or of a debt. The order is that of `debts.txt`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) place: String,
    pub(crate) rule: String,
    pub(crate) item: String,
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}  {}  {}", self.place, self.rule, self.item)
    }
}
