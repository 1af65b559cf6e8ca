//! Everything behind the `tidegate` command: parses its arguments, does one thing, says what went
//! wrong.

#![forbid(unsafe_code)]

mod args;
mod bench;
mod client;
mod commands;
mod demo;
mod drawing;
mod file_kind;
mod kept;
mod log;
mod output;
mod problem;
mod progress;
mod promise;
mod results;
mod seeds;
mod simulate;

use std::process::ExitCode;

/// Runs the command line of this process.
pub fn main() -> ExitCode {
    let args = args::Args::of_this_process();
    match commands::run(args) {
        Ok(()) => ExitCode::SUCCESS,
        // Whoever reads our output has enough of it: `tidegate stats | head`.
        Err(error) if output::is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            problem::report(&error);
            ExitCode::FAILURE
        }
    }
}
