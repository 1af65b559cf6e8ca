//! `tidegate calculate`: what-if runs and reports for a daemon, which starts this command itself.

use std::io::{self, BufRead, Write};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use tidegate_api::error::Problem;
use tidegate_server::calculation::{Line, Order, Results, bound_process};

use super::{report, what_if};
use crate::problem;

/// Shortest time between two lines of progress.
const PROGRESS_EVERY: Duration = Duration::from_millis(100);

/// Options of the command line in messages, with what clients of the API send instead.
const KEYS_OF_OPTIONS: [(&str, &str); 4] = [
    ("--allow-gaps", "\"allow_gaps\": true"),
    ("--device", "\"model\""),
    ("--objective", "objectives"),
    ("--profile", "`tidegate whatif --profile`"),
];

/// Does the work that standard input names, and writes what came of it to standard output.
pub(super) fn run() -> Result<()> {
    bound_process().context("the process cannot be bounded")?;
    let line = match calculate() {
        Ok(results) => Line::Done(results),
        Err(error) => Line::Problem(in_terms_of_the_api(problem::for_api(&error))),
    };
    Ok(tell(&line)?)
}

fn calculate() -> Result<Results> {
    let mut input = io::stdin().lock();
    let mut order = String::new();
    input.read_line(&mut order)?;
    let order = serde_json::from_str(&order).context("this command is for the daemon alone")?;
    match order {
        Order::Report(order) => report::calculate(&order),
        Order::WhatIf(order) => {
            let mut told = Instant::now();
            what_if::calculate(&order, input, |done, step| {
                if told.elapsed() >= PROGRESS_EVERY {
                    told = Instant::now();
                    if tell(&Line::Progress(done, step.to_owned())).is_err() {
                        // The daemon has ended, and no client waits for the results.
                        std::process::exit(1);
                    }
                }
            })
        }
    }
}

fn tell(line: &Line) -> io::Result<()> {
    let mut text = serde_json::to_vec(line)?;
    text.push(b'\n');
    let mut out = io::stdout().lock();
    out.write_all(&text)?;
    out.flush()
}

/// Replaces options of the command line by keys of the API.
fn in_terms_of_the_api(problem: Problem) -> Problem {
    let keys = |text: String| {
        let replace = |text: String, (option, key): &(&str, &str)| text.replace(option, key);
        KEYS_OF_OPTIONS.iter().fold(text, replace)
    };
    Problem {
        what: keys(problem.what),
        at: keys(problem.at),
        allowed: problem.allowed.map(keys),
    }
}
