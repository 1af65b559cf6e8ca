//! Commands of the program `tidegate`: parses arguments, runs a command, reports errors.

#![forbid(unsafe_code)]

mod args;
mod atomic_file;
mod client;
mod commands;
mod completion;
mod configuration_text;
mod demo;
mod file_kind;
mod guest;
mod host;
mod html_report;
mod instructions;
mod log;
mod objective_line;
mod output;
mod plot_output;
mod problem;
mod progress;
mod rate_table;
mod recording_file;
mod results;
mod seeds;
mod shell;
mod signals;
mod simulate;

use std::process::ExitCode;

/// Runs the command line of this process.
pub fn main() -> ExitCode {
    completion::answer_shell(args::command);
    let args = args::Args::from_process();
    match commands::run(args) {
        Ok(()) => ExitCode::SUCCESS,
        // The reader of standard output has closed it, as with `tidegate stats | head`.
        Err(error) if output::is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            problem::report(&error);
            ExitCode::FAILURE
        }
    }
}
