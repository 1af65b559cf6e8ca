//! Requests of the explained time as the daemon has recorded them: fetched without being asked, so
//! within bounds.

use std::fs::File;
use std::io::{Seek, Write};
use std::ops::ControlFlow;
use std::time::Duration;

use anyhow::{Context, Result};
use jiff::Timestamp;
use tidegate_api::explain::{ExplainView, Gap};
use tidegate_api::history::SpanView;
use tidegate_api::query::RecordingQuery;
use tidegate_recording::{DeviceFacts, Recording};
use tidegate_units::human::{bytes, duration};

use super::super::record;
use super::counterfactual::{self, Tried};
use super::simulated_device;
use super::source::{Bounds, Source, replay_of};
use crate::args::ExplainArgs;
use crate::client::Client;
use crate::problem::{self, Problem, Problems};
use crate::progress::DelayedBar;
use crate::recording_file::{self, REQUESTS_PER_S, gaps_text};
use crate::shell;

/// Requests that are replayed: the first of the explained time.
const REQUESTS_MAX: usize = 500_000;
/// Bytes that are fetched: those of [`REQUESTS_MAX`] requests, each with columns that gain nothing.
const BYTES_MAX: u64 = 32 << 20;
/// Longest wait for a piece of the recording.
const PIECE_TIMEOUT: Duration = Duration::from_secs(10);
/// Cost of all replays, as `choose::cost` counts it: about twenty seconds of a core.
const BUDGET: u64 = 20 * REQUESTS_PER_S;
/// Part of the explained time that must be recorded, in percent.
const RECORDED_PERCENT: u64 = 50;

/// Result of the attempt to try changes on the daemon's recording.
pub(super) enum Attempt {
    /// Changes were tried.
    Tried(Box<Tried>),
    /// No change was tried, for the reason that the sentence says.
    Lacking(String),
    /// There is nothing to try, or the explanation says already that nothing was recorded.
    Nothing,
}

/// Tries what may help on the daemon's recording of the explained time, if there is one.
pub(super) fn attempt(args: &ExplainArgs, view: &ExplainView, client: &Client) -> Attempt {
    let is_recorded = !view.diagnosis.gaps.contains(&Gap::NoRecording);
    let Some(device) = view.device.as_deref().filter(|_| is_recorded) else {
        return Attempt::Nothing;
    };
    if !counterfactual::has_candidates(&view.diagnosis) {
        return Attempt::Nothing;
    }
    match tried(args, view, device, client) {
        Ok(tried) => Attempt::Tried(Box::new(tried)),
        Err(error) => Attempt::Lacking(sentence(&error)),
    }
}

fn tried(args: &ExplainArgs, view: &ExplainView, device: &str, client: &Client) -> Result<Tried> {
    let hand = ByHand {
        vm: &args.vm,
        device,
        span: view.explained,
    };
    let mut file = tempfile::tempfile().context("no temporary file for the recording")?;
    let is_whole = fetch(device, view.explained, client, &mut file)?;
    file.rewind()
        .context("the temporary file of the recording")?;
    let (recording, has_more) = Recording::read_first(file, REQUESTS_MAX)
        .map_err(|error| Problem::new(format!("the recording: {error}")))?;
    if !args.allow_gaps && !recording.gaps.is_empty() {
        let gaps = gaps_text(recording.gaps.len());
        let what = format!("the recording of that time has {gaps}");
        let help = "--allow-gaps replays what is there; a replay misses what delayed the rest";
        return Err(Problem::new(what).help(help).into());
    }
    let (simulated, facts) = (simulated_device(args), &recording.header.device);
    if simulated.find_model(facts).is_none() {
        return Err(Problem::new(recording_file::no_model(facts))
            .help(hand.with_a_model(facts))
            .into());
    }
    let source = Source {
        name: "the recording".to_owned(),
        recording,
        bounds: Some(Bounds {
            is_cut: has_more || !is_whole,
            budget: BUDGET,
            by_hand: hand.with_a_recording(),
        }),
    };
    let replay = replay_of(&source, simulated, view.explained)?;
    let (replayed, missing) = (replay.what_if.duration.0, replay.missing.0);
    let least = (replayed + missing) * RECORDED_PERCENT / 100;
    if replayed < least && source.bounds.as_ref().is_some_and(|it| !it.is_cut) {
        let what = format!(
            "only {} of the explained {} are recorded",
            duration(replayed),
            duration(replayed + missing)
        );
        let help = "`tidegate record on` records from now on";
        return Err(Problem::new(what).help(help).into());
    }
    counterfactual::tried(&source, replay, view)
}

/// Writes the daemon's recording of a time to a file. Returns false if there is more than
/// [`BYTES_MAX`], of which the file has the beginning.
fn fetch(device: &str, span: SpanView, client: &Client, file: &mut File) -> Result<bool> {
    let [from, to] = times(span);
    let query = RecordingQuery {
        vm: None,
        from: Some(from),
        to: Some(to),
    };
    let mut progress = DelayedBar::without_total("fetching the recording");
    let (mut fetched, mut is_whole) = (0, true);
    client.download(
        &record::path(device, Some(&query)),
        PIECE_TIMEOUT,
        |piece| {
            file.write_all(piece).context("cannot keep the recording")?;
            fetched += piece.len() as u64;
            progress.set(fetched, || bytes(fetched));
            if fetched >= BYTES_MAX {
                is_whole = false;
                return Ok(ControlFlow::Break(()));
            }
            Ok(ControlFlow::Continue(()))
        },
    )?;
    Ok(is_whole)
}

/// Returns the times of a span as commands and the API take them.
fn times(span: SpanView) -> [String; 2] {
    [span.from_ms, span.to_ms].map(|ms| {
        let time = i64::try_from(ms).ok();
        let time = time.and_then(|ms| Timestamp::from_millisecond(ms).ok());
        time.unwrap_or(Timestamp::MAX).to_string()
    })
}

/// Says why nothing was tried.
fn sentence(error: &anyhow::Error) -> String {
    let of_daemon: Option<&Problems> = error.downcast_ref();
    if of_daemon.is_some_and(|problems| problems.is_about("role")) {
        return "Changes were not tried: the recording of that time is for clients with the role \
                `operate`."
            .to_owned();
    }
    format!("Changes were not tried: {}.", problem::sentence(error))
}

/// Commands that try changes on all of a recording, or on another device.
struct ByHand<'a> {
    vm: &'a str,
    device: &'a str,
    span: SpanView,
}

impl ByHand<'_> {
    fn dump(&self) -> String {
        let [from, to] = times(self.span);
        let device = shell::quoted(self.device);
        format!("`tidegate record dump --device {device} --from {from} --to {to} slow.tgrec`")
    }

    fn explain(&self, option: &str) -> String {
        let [from, to] = times(self.span);
        let vm = shell::quoted(self.vm);
        format!("`tidegate explain {vm} --from {from} --to {to} {option}`")
    }

    fn with_a_recording(&self) -> String {
        let explain = self.explain("--recording slow.tgrec");
        format!("{}, then {explain}", self.dump())
    }

    /// Returns the commands that make a model of the device and use it.
    fn with_a_model(&self, facts: &DeviceFacts) -> String {
        let file = shell::quoted(&format!("./{}.toml", facts.name));
        let explain = self.explain(&format!("--device {file}"));
        format!(
            "name one with --device, or make one: {}, `tidegate profile fit slow.tgrec --results \
             {file}`, then {explain}",
            self.dump()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_name_the_time_and_quote_what_a_shell_would_read() {
        let hand = ByHand {
            vm: "my db",
            device: "disk0",
            span: SpanView {
                from_ms: 1_795_865_310_000,
                to_ms: 1_795_865_350_000,
            },
        };
        assert_eq!(
            hand.with_a_recording(),
            "`tidegate record dump --device disk0 --from 2026-11-28T11:28:30Z \
             --to 2026-11-28T11:29:10Z slow.tgrec`, then `tidegate explain 'my db' \
             --from 2026-11-28T11:28:30Z --to 2026-11-28T11:29:10Z --recording slow.tgrec`"
        );
        let facts = DeviceFacts {
            name: "disk0".to_owned(),
            ..DeviceFacts::default()
        };
        let text = hand.with_a_model(&facts);
        assert!(
            text.contains("profile fit slow.tgrec --results ./disk0.toml`")
                && text.ends_with("--device ./disk0.toml`"),
            "{text}"
        );
    }

    #[test]
    fn a_reason_is_one_sentence() {
        let problem = Problem::new("the recording of that time has 1 gap");
        let error = problem.help("--allow-gaps replays what is there").into();
        assert_eq!(
            sentence(&error),
            "Changes were not tried: the recording of that time has 1 gap (--allow-gaps replays \
             what is there)."
        );
    }
}
