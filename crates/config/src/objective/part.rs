//! Descriptions of the parts of an objective.

use serde_json::Value;
use tidegate_core::objective::Objective;
use tidegate_core::part::Honours;

use crate::field::Field;
use crate::keys::KeyInfo;

/// Part of an objective.
#[derive(Clone, Copy, Debug)]
pub struct ObjectivePart {
    /// Key in `[vm.objective]`, from which the part's row in the documentation and its place in
    /// the schema come.
    pub key: KeyInfo,
    /// Reads its value over that of the objective, which stays where the value is wrong; that is
    /// reported and `false`.
    pub(super) read: fn(&Field<'_>, &mut Objective) -> bool,
    /// Shows it as a document has it; `null` where nothing is promised.
    pub(super) view: fn(&Objective) -> Value,
    /// Promises in it that a policy enforces or does not.
    pub promises: &'static [Promise],
    /// Options of commands that change it.
    pub flags: &'static [FlagInfo],
}

/// Promise that a policy enforces as a whole or not at all.
#[derive(Clone, Copy, Debug)]
pub struct Promise {
    /// Place in the objective, such as `limit.burst`.
    pub name: &'static str,
    /// Shows it in one line; `None` where it is not given.
    pub view: fn(&Objective) -> Option<String>,
    /// Tells whether it is among what a policy enforces.
    pub is_enforced: fn(&Honours) -> bool,
}

/// Option of a command that changes a value of an objective.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FlagInfo {
    /// Name without dashes: `limit-read`.
    pub name: &'static str,
    /// Keys that lead to the value in the objective.
    pub path: &'static [&'static str],
    /// Value in the usage: `RATE`.
    pub value: &'static str,
    /// Effect of the option, in a line.
    pub help: &'static str,
    /// Effect of `none`.
    pub none: NoneMeans,
}

/// Effect of `none` as the value of an option.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NoneMeans {
    /// The value is handed on, to be read as one in a document.
    Value,
    /// The value is a weight, and goes back to its default.
    Weight,
    /// The table is taken away in which the value is, unless another option names a value in it.
    TableAlone,
    /// The table is taken away in which the value is.
    Table,
}

impl FlagInfo {
    /// An option whose value is read as one in a document, `none` and all.
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

    /// The option with another effect of `none`.
    pub(super) const fn where_none_is(self, none: NoneMeans) -> FlagInfo {
        FlagInfo { none, ..self }
    }
}
