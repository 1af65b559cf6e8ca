//! `tidegate transfer start --wait`: until the job is over.

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

/// How often the daemon is asked.
const LOOK: Duration = Duration::from_millis(250);

/// What is known of the job that is waited for.
enum Now {
    Runs(Box<TransferView>),
    Over(EndedTransferView),
    Unknown,
}

/// Waits for the job that was just begun, which `begun` tells of, and says what came of it: a
/// failure unless it was done in time.
pub(super) fn until_its_end(
    path: &str,
    begun: VmTransfersView,
    client: &Client,
    out: Output,
) -> Result<()> {
    let Some(job) = &begun.job else {
        return Err(Problem::new("the daemon's answer has no job: is it another version?").into());
    };
    if !out.is_json() {
        out.table(&describe(&begun))?;
    }
    let bar = progress::bar(job.size_bytes, "moving");
    let ended = watch(path, &job.begun, &bar, client);
    bar.finish_and_clear();
    let (answer, ended) = ended?;
    if out.is_json() {
        out.json(&answer)?;
    } else {
        out.text(&format!("{}: {}\n", begun.vm, ended.said))?;
    }
    match ended.outcome.as_str() {
        "met" => Ok(()),
        _ => Err(Problem::new(format!("not in time: {}", ended.said)).into()),
    }
}

fn watch(
    path: &str,
    begun: &str,
    bar: &ProgressBar,
    client: &Client,
) -> Result<(VmTransfersView, EndedTransferView)> {
    loop {
        let answer: VmTransfersView = read(client.get(path)?)?;
        match now(&answer, begun) {
            Now::Runs(job) => {
                bar.set_position(job.moved_bytes);
                bar.set_message(job.forecast);
            }
            Now::Over(ended) => return Ok((answer, ended)),
            Now::Unknown => {
                let problem = Problem::new("the daemon knows nothing of the job any more");
                return Err(problem
                    .help("it was restarted without a [store], or another job came and went")
                    .into());
            }
        }
        sleep(LOOK);
    }
}

/// How the job that began then stands.
fn now(answer: &VmTransfersView, begun: &str) -> Now {
    let running = answer.job.as_ref().filter(|job| job.begun == begun);
    let last = answer.last.as_ref().filter(|job| job.begun == begun);
    match (running, last) {
        (Some(job), _) => Now::Runs(Box::new(job.clone())),
        (None, Some(job)) => Now::Over(job.clone()),
        (None, None) => Now::Unknown,
    }
}
