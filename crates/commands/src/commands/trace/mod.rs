//! `tidegate trace`: statistics, checks and changes of block traces.

mod info;
mod lint;
mod plots;
mod rewrite;
mod source;

use anyhow::Result;

use crate::args::TraceCommand;
use crate::output::Output;

pub(super) fn run(command: TraceCommand, out: Output) -> Result<()> {
    match command {
        TraceCommand::Info(args) => info::run(&args, out),
        TraceCommand::Lint(args) => lint::run(&args, out),
        TraceCommand::Convert(args) => rewrite::convert(&args, out),
        TraceCommand::Cut(args) => rewrite::cut(&args, out),
        TraceCommand::Scale(args) => rewrite::scale(&args, out),
    }
}
