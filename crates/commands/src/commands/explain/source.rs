//! Recordings on which changes are tried, and the part of one that is the explained time.

use std::path::Path;

use anyhow::Result;
use jiff::Timestamp;
use tidegate_api::history::SpanView;
use tidegate_core::time::Nanos;
use tidegate_recording::Recording;
use tidegate_sim::what_if::WhatIf;

use crate::problem::Problem;
use crate::recording_file::{self, ReplayDevice};

/// Recording on which changes are tried.
pub(super) struct Source {
    /// Name for messages.
    pub(super) name: String,
    /// Requests, with what lies between them.
    pub(super) recording: Recording,
    /// Bounds of a simulation that the user did not ask for; `None`: without bounds.
    pub(super) bounds: Option<Bounds>,
}

/// Bounds of a simulation.
pub(super) struct Bounds {
    /// True if the recording was cut off to keep them.
    pub(super) is_cut: bool,
    /// Cost of all replays, as [`choose::cost`] counts it.
    pub(super) budget: u64,
    /// Commands that try all changes on all of the recording.
    pub(super) by_hand: String,
}

impl Source {
    /// Reads the recording that the user has named.
    pub(super) fn of_file(file: &Path, allow_gaps: bool) -> Result<Source> {
        Ok(Source {
            name: file.display().to_string(),
            recording: recording_file::read(file, allow_gaps)?,
            bounds: None,
        })
    }
}

/// Part of a recording that belongs to the explained time.
pub(super) struct Replayed {
    pub(super) what_if: WhatIf,
    /// Name of the device model.
    pub(super) model: String,
    /// Length of the explained time that the recording lacks.
    pub(super) missing: Nanos,
}

/// Returns the replay of what a recording has of the explained time.
pub(super) fn replay_of(
    source: &Source,
    device: ReplayDevice<'_>,
    explained: SpanView,
) -> Result<Replayed> {
    let Source {
        name, recording, ..
    } = source;
    let (whole, model) = recording_file::replay(name, recording, device)?;
    let started = recording.header.started_unix_ns;
    let [from, to] = [explained.from_ms, explained.to_ms].map(|ms| ms.saturating_mul(1_000_000));
    // The last step of the explained time may be under way.
    let now = u64::try_from(Timestamp::now().as_nanosecond()).unwrap_or(u64::MAX);
    let to = to.min(now);
    let covered = (
        Nanos(from.saturating_sub(started)),
        Nanos(to.saturating_sub(started)).min(whole.duration),
    );
    if covered.0 >= covered.1 {
        let time = |ns: u64| {
            let time = i64::try_from(ns / 1_000_000_000).ok();
            let time = time.and_then(|s| Timestamp::from_second(s).ok());
            time.map_or("an unknown time".to_owned(), |time| time.to_string())
        };
        let what = format!(
            "{name}: recorded from {} to {}, and the explained time is from {} to {}",
            time(started),
            time(started.saturating_add(whole.duration.0)),
            time(from),
            time(to)
        );
        return Err(Problem::new(what)
            .help("`tidegate record dump --from TIME --to TIME FILE` writes another time")
            .into());
    }
    let length = covered.1.since(covered.0);
    Ok(Replayed {
        what_if: whole.part(covered.0, covered.1).what_if,
        model: model.name,
        missing: Nanos(to.saturating_sub(from)).since(length),
    })
}
