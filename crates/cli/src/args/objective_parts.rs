//! Options for the parts of an objective, made from the registry of parts.

use clap::error::Error;
use clap::{Arg, ArgGroup, ArgMatches, Args, Command, FromArgMatches, Id, value_parser};
use serde_json::Value;
use tidegate_config::objective::{self, FlagInfo, NoneMeans};

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

/// Converts a flag of the registry into clap's argument.
fn arg(flag: &'static FlagInfo) -> Arg {
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
        let value = |flag: &FlagInfo| -> Option<Value> {
            match flag.none {
                NoneMeans::Weight => matches.get_one::<u32>(flag.name).map(|n| (*n).into()),
                _ => matches
                    .get_one::<String>(flag.name)
                    .map(|text| typed(flag, text)),
            }
        };
        let typed = objective::flags().filter_map(|flag| Some((flag, value(flag)?)));
        Ok(PartArgs(typed.collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = PartArgs::from_arg_matches(matches)?;
        Ok(())
    }
}
