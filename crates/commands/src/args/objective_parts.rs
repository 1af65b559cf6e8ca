//! Options for the parts of an objective, made from the registry of parts.

use clap::error::Error;
use clap::{Arg, ArgGroup, ArgMatches, Args, Command, FromArgMatches, Id, value_parser};
use serde_json::Value;
use tidegate_api::objective::ObjectiveView;
use tidegate_config::objective::{self, FlagInfo, NoneMeans};
use tidegate_core::objective::Objective;

use super::value::parse_weight;

/// Name of clap's group of all these options.
const GROUP: &str = "PartArgs";

/// Placeholder of values that are numbers in a document.
const NUMBER: &str = "NUMBER";

/// Options given, each with its value.
#[derive(Clone, Debug, Default)]
pub(crate) struct PartArgs(Vec<(&'static FlagInfo, Value)>);

impl PartArgs {
    /// Iterates over the names of all options.
    pub(crate) fn names() -> impl Iterator<Item = &'static str> {
        objective::flags().map(|flag| flag.name)
    }

    /// Returns the options that give an objective, without those at their defaults.
    pub(crate) fn of(objective: &ObjectiveView) -> PartArgs {
        let document = serde_json::to_value(objective).expect("plain data");
        let default = objective::to_json(&Objective::default());
        let value = |flag: &'static FlagInfo| {
            let pointer = format!("/{}", flag.path.join("/"));
            let value = document.pointer(&pointer)?;
            let is_default = value.is_null() || default.pointer(&pointer) == Some(value);
            (!is_default).then(|| (flag, value.clone()))
        };
        PartArgs(objective::flags().filter_map(value).collect())
    }

    /// Returns the options as words of a command line: `--reservation`, `120 IOPS`.
    pub(crate) fn words(&self) -> Vec<String> {
        let text = |value: &Value| match value {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        let words = self.0.iter();
        words
            .flat_map(|(flag, value)| [format!("--{}", flag.name), text(value)])
            .collect()
    }

    /// Returns the change that makes the objective of `before` the one of these options, in the
    /// notation of the control API: parts that only `before` has are removed. `null` if both are
    /// the same.
    pub(crate) fn change_from(&self, before: &PartArgs) -> Value {
        let is_in = |options: &PartArgs, flag: &FlagInfo| {
            options.0.iter().any(|(other, _)| other.name == flag.name)
        };
        let missing: Vec<&'static FlagInfo> = (before.0.iter())
            .map(|(flag, _)| *flag)
            .filter(|flag| !is_in(self, flag))
            .collect();
        // With a table, all its values are removed: naming them as well would keep the table.
        let goes_with_table = |flag: &FlagInfo| {
            missing.iter().any(|other| {
                let table = &other.path[..other.path.len() - 1];
                let removes = matches!(other.none, NoneMeans::Table | NoneMeans::TableAlone);
                let is_empty = !self.0.iter().any(|(flag, _)| flag.path.starts_with(table));
                removes && other.name != flag.name && flag.path.starts_with(table) && is_empty
            })
        };
        let removed = missing.iter().filter(|flag| !goes_with_table(flag));
        let removed = removed.map(|flag| {
            let none = match flag.none {
                NoneMeans::Weight => Objective::DEFAULT_WEIGHT.into(),
                _ => "none".into(),
            };
            (*flag, none)
        });
        let changed = self.0.iter().filter(|option| !before.0.contains(option));
        let all: Vec<(&FlagInfo, Value)> = changed.cloned().chain(removed).collect();
        if all.is_empty() {
            return Value::Null;
        }
        PartArgs(all).change()
    }

    /// Returns the change of an objective in the notation of the control API.
    pub(crate) fn change(&self) -> Value {
        objective::change(self.0.iter().map(|(flag, value)| (*flag, value)))
    }
}

/// Returns a value as a document has it: a number where the flag takes one.
fn typed(flag: &FlagInfo, text: &str) -> Value {
    match text.trim().parse::<u64>() {
        Ok(number) if flag.value == NUMBER => number.into(),
        _ => text.into(),
    }
}

/// Returns the value that was given for a flag.
pub(super) fn value_of(flag: &FlagInfo, matches: &ArgMatches) -> Option<Value> {
    match flag.none {
        NoneMeans::Weight => matches.get_one::<u32>(flag.name).map(|n| (*n).into()),
        _ => matches
            .get_one::<String>(flag.name)
            .map(|text| typed(flag, text)),
    }
}

/// Converts a flag of the registry into clap's argument.
pub(super) fn arg(flag: &'static FlagInfo) -> Arg {
    let arg = Arg::new(flag.name).long(flag.name);
    let arg = arg.value_name(flag.value).help(flag.help);
    match flag.none {
        NoneMeans::Weight => arg.value_parser(parse_weight),
        _ => arg.value_parser(value_parser!(String)),
    }
}

impl Args for PartArgs {
    fn group_id() -> Option<Id> {
        Some(Id::from(GROUP))
    }

    fn augment_args(command: Command) -> Command {
        let group = ArgGroup::new(GROUP).multiple(true).args(PartArgs::names());
        command.group(group).args(objective::flags().map(arg))
    }

    fn augment_args_for_update(command: Command) -> Command {
        PartArgs::augment_args(command)
    }
}

impl FromArgMatches for PartArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<PartArgs, Error> {
        let typed = objective::flags().filter_map(|flag| Some((flag, value_of(flag, matches)?)));
        Ok(PartArgs(typed.collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = PartArgs::from_arg_matches(matches)?;
        Ok(())
    }
}
