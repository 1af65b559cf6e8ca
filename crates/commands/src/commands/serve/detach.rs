//! `tidegate serve --takeover --detach`: the new daemon serves in the background, and the command
//! returns its outcome.
//!
//! ```text
//!   command --fork--> daemon in the background: starts, takes over
//!     |<----pipe---------  word: has taken over, or something failed and it has said why
//!     exit status
//! ```
//!
//! systemd runs the command for `systemctl reload`. The daemon is in the control group of the
//! service, as the command is, and stays when that ends.

use std::io::{BufRead, BufReader, PipeWriter, Write};
use std::sync::Arc;

use anyhow::{Context, Result};
use tidegate_server::ring::sys::background::{Side, fork_detached};
use tidegate_server::takeover::TakeoverError;

use crate::problem::{self, Logged, Problem};

/// Line for a daemon that is about to take over.
const READY: &str = "ready";
/// Line for a daemon that has taken over.
const TAKEN: &str = "taken over";
/// Line for a daemon that ends, or that systemd may not know, and has said why.
const FAILED: &str = "failed";

/// End of the pipe on which the daemon answers the command.
#[derive(Clone, Debug)]
pub(super) struct Word(Arc<PipeWriter>);

impl Word {
    /// Checks that the command still waits for the outcome.
    ///
    /// # Errors
    /// If it has ended.
    pub(super) fn check_awaited(&self) -> Result<(), TakeoverError> {
        writeln!(&*self.0, "{READY}").map_err(|_| TakeoverError::Refused {
            what: "the command that has started the new daemon has ended".to_owned(),
            help: "run it again, and let it wait for as long as the disks take to be opened"
                .to_owned(),
        })
    }

    /// Says that the daemon has taken over, or what failed if the service manager may not know it.
    pub(super) fn taken_over(self, known: Result<(), TakeoverError>) {
        let Err(error) = known else {
            return self.say(TAKEN);
        };
        let what = format!("the new daemon serves, and systemd may end it: {error}");
        let problem = Problem::new(what).help(error.help().unwrap_or_default());
        problem::report(&problem.into());
        self.say(FAILED);
    }

    /// Answers the command, which may be gone.
    fn say(self, line: &str) {
        let _ = writeln!(&*self.0, "{line}");
    }
}

/// Runs `serve` in the background, and returns once the daemon has taken over. Returns its result
/// in the process in the background.
///
/// # Errors
/// If the daemon does not take over, or systemd may not know it. It has printed the reason.
pub(super) fn run(serve: impl FnOnce(Word) -> Result<()>) -> Result<()> {
    let forked = fork_detached().context("cannot start a daemon in the background")?;
    let writer = match forked {
        Side::Starter(reader) => return outcome(BufReader::new(reader)),
        Side::Background(writer) => writer,
    };
    let word = Word(Arc::new(writer));
    serve(word.clone()).map_err(|error| {
        // Before the command ends, so that the reason is there when it returns.
        problem::report(&error);
        word.say(FAILED);
        Logged.into()
    })
}

/// Returns the outcome that the daemon has written.
fn outcome(said: impl BufRead) -> Result<()> {
    for line in said.lines() {
        match line.context("the new daemon cannot be heard")?.as_str() {
            TAKEN => return Ok(()),
            FAILED => return Err(Logged.into()),
            _ => {}
        }
    }
    let lost = "not taken over: the new daemon has ended without a reason";
    let help = "the log of the running daemon says what it knows of it";
    Err(Problem::new(lost).help(help).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_daemon_knows_that_its_command_has_ended_before_it_has_clients_paused() {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        let word = Word(Arc::new(writer));
        assert!(word.check_awaited().is_ok());
        drop(reader);
        let gone = word.check_awaited().expect_err("the command has ended");
        assert!(gone.to_string().contains("has ended"), "{gone}");
    }

    #[test]
    fn an_outcome_is_the_last_word_or_the_lack_of_one() {
        assert!(outcome(&b"ready\ntaken over\n"[..]).is_ok());
        let failed = outcome(&b"ready\nfailed\n"[..]).expect_err("failed");
        assert!(failed.is::<Logged>(), "{failed}");
        for lost in ["", "ready\n"] {
            let lost = outcome(lost.as_bytes()).expect_err("it is gone");
            assert!(lost.to_string().contains("without a reason"), "{lost}");
        }
    }
}
