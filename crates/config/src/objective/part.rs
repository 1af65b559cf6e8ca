//! Descriptions of the parts of an objective.

use serde_json::Value;
use tidegate_core::objective::Objective;
use tidegate_core::part::Enforces;

use crate::field::Field;
use crate::keys::KeyInfo;

/// Part of an objective.
#[derive(Clone, Copy, Debug)]
pub struct ObjectivePart {
    /// Key in `[vm.objective]`, from which the part's row in the documentation and its place in
    /// the schema come.
    pub key: KeyInfo,
    /// Reads the part's value into the objective. A wrong value is reported, leaves the objective
    /// unchanged and returns `false`.
    pub(super) read: fn(&Field<'_>, &mut Objective) -> bool,
    /// Returns the part's value in a document's notation; `null` where nothing is promised.
    pub(super) view: fn(&Objective) -> Value,
    /// Promises of the part, each enforced by a policy or not.
    pub promises: &'static [Promise],
    /// Command-line options that set the part.
    pub flags: &'static [FlagInfo],
}

/// Promise of an objective, which a policy enforces as a whole or not at all.
#[derive(Clone, Copy, Debug)]
pub struct Promise {
    /// Place in the objective, such as `limit.burst`.
    pub name: &'static str,
    /// Returns the promised value on one line; `None` where nothing is promised.
    pub view: fn(&Objective) -> Option<String>,
    /// Returns true if a policy enforces the promise.
    pub is_enforced: fn(&Enforces) -> bool,
}

/// Command-line option that sets a value of an objective.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FlagInfo {
    /// Name without dashes: `limit-read`.
    pub name: &'static str,
    /// Path of keys to the value in the objective.
    pub path: &'static [&'static str],
    /// Placeholder of the value in the usage: `RATE`.
    pub value: &'static str,
    /// Help text of the option.
    pub help: &'static str,
    /// Effect of `none`.
    pub none: NoneMeans,
}

/// Effect of `none` as the value of an option.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NoneMeans {
    /// Passed on, to be read as in a document.
    Value,
    /// Resets a weight to its default.
    Weight,
    /// Removes the table that contains the value, unless another option sets a value in the table.
    TableAlone,
    /// Removes the table that contains the value.
    Table,
}

impl FlagInfo {
    /// Creates an option whose value, `none` included, is read as in a document.
    pub(super) const fn new(
        name: &'static str,
        path: &'static [&'static str],
        value: &'static str,
        help: &'static str,
    ) -> FlagInfo {
        FlagInfo {
            name,
            path,
            value,
            help,
            none: NoneMeans::Value,
        }
    }

    /// Sets another effect of `none`.
    pub(super) const fn where_none_is(self, none: NoneMeans) -> FlagInfo {
        FlagInfo { none, ..self }
    }
}
