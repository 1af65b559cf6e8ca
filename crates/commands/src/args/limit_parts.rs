//! Options for a limit by itself: those of an objective that are parts of its limit.

use clap::error::Error;
use clap::{ArgMatches, Args, Command, FromArgMatches, Id};
use serde_json::Value;
use tidegate_config::objective::{self, FlagInfo};

use super::objective_parts::{arg, value_of};

/// Options given, each with its value.
#[derive(Clone, Debug, Default)]
pub(crate) struct LimitArgs(Vec<(&'static FlagInfo, Value)>);

impl LimitArgs {
    /// Iterates over the names of all options.
    pub(crate) fn names() -> impl Iterator<Item = &'static str> {
        flags().map(|flag| flag.name)
    }

    /// Returns the change in the notation of the control API: `{"limit": ...}`, or an empty table
    /// without options.
    pub(crate) fn change(&self) -> Value {
        objective::change(self.0.iter().map(|(flag, value)| (*flag, value)))
    }
}

/// Iterates over the options of a limit.
fn flags() -> impl Iterator<Item = &'static FlagInfo> {
    objective::flags().filter(|flag| flag.path.first() == Some(&"limit"))
}

impl Args for LimitArgs {
    fn group_id() -> Option<Id> {
        None
    }

    fn augment_args(command: Command) -> Command {
        command.args(flags().map(arg))
    }

    fn augment_args_for_update(command: Command) -> Command {
        LimitArgs::augment_args(command)
    }
}

impl FromArgMatches for LimitArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<LimitArgs, Error> {
        let typed = flags().filter_map(|flag| Some((flag, value_of(flag, matches)?)));
        Ok(LimitArgs(typed.collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = LimitArgs::from_arg_matches(matches)?;
        Ok(())
    }
}
