//! `tidegate transfer start --wait`: waits for the end of a transfer.

use std::thread::sleep;
use std::time::Duration;

use anyhow::Result;
use indicatif::ProgressBar;
use tidegate_api::transfer::{EndedTransferView, TransferView, VmTransfersView};

use super::describe;
use crate::client::{Client, read};
use crate::output::Output;
use crate::problem::Problem;
use crate::progress;

/// Interval between requests to the daemon.
const POLL: Duration = Duration::from_millis(250);

/// State of the awaited transfer.
enum State {
    Running(Box<TransferView>),
    Ended(EndedTransferView),
    Unknown,
}

/// Waits for the end of the running transfer in `begun` and prints its result. Fails unless the
/// transfer met its deadline.
pub(super) fn until_end(
    path: &str,
    begun: VmTransfersView,
    client: &Client,
    out: Output,
) -> Result<()> {
    let Some(transfer) = &begun.transfer else {
        return Err(
            Problem::new("the daemon's answer has no transfer: is it another version?").into(),
        );
    };
    if !out.is_json() {
        out.table(&describe(&begun))?;
    }
    let bar = progress::bar(transfer.size_bytes, "moving");
    let ended = watch(path, &transfer.begun, &bar, client);
    bar.finish_and_clear();
    let (answer, ended) = ended?;
    if out.is_json() {
        out.json(&answer)?;
    } else {
        out.text(&format!("{}: {}\n", begun.vm, ended.result))?;
    }
    match ended.outcome.as_str() {
        "met" => Ok(()),
        _ => Err(Problem::new(format!("deadline not met: {}", ended.result)).into()),
    }
}

/// Polls the daemon until the transfer ends, and shows its progress.
fn watch(
    path: &str,
    begun: &str,
    bar: &ProgressBar,
    client: &Client,
) -> Result<(VmTransfersView, EndedTransferView)> {
    loop {
        let answer: VmTransfersView = read(client.get(path)?)?;
        match state(&answer, begun) {
            State::Running(transfer) => {
                bar.set_position(transfer.moved_bytes);
                bar.set_message(transfer.forecast);
            }
            State::Ended(ended) => return Ok((answer, ended)),
            State::Unknown => {
                let problem = Problem::new("the daemon no longer knows the transfer");
                return Err(problem
                    .help("it was restarted without a [store], or another transfer has replaced it")
                    .into());
            }
        }
        sleep(POLL);
    }
}

/// Returns the state of the transfer that began at `begun`, which identifies it.
fn state(answer: &VmTransfersView, begun: &str) -> State {
    let running = answer
        .transfer
        .as_ref()
        .filter(|transfer| transfer.begun == begun);
    let last = answer
        .last
        .as_ref()
        .filter(|transfer| transfer.begun == begun);
    match (running, last) {
        (Some(transfer), _) => State::Running(Box::new(transfer.clone())),
        (None, Some(transfer)) => State::Ended(transfer.clone()),
        (None, None) => State::Unknown,
    }
}
