//! Recordings of requests as commands read them: whole, and without gaps unless these are allowed.

use std::fs::File;
use std::path::Path;

use anyhow::Result;
use tidegate_recording::Recording;
use tidegate_units::human::duration;

use crate::problem::Problem;

/// Requests of a recording that are read into memory, some 100 bytes each with their replay.
const REQUESTS_MAX: usize = 20_000_000;

/// Reads a recording; one with gaps only if that is allowed.
pub(crate) fn read(path: &Path, allow_gaps: bool) -> Result<Recording> {
    let name = path.display();
    let file =
        File::open(path).map_err(|error| Problem::new(format!("cannot read {name}: {error}")))?;
    let recording = Recording::read(file, REQUESTS_MAX)
        .map_err(|error| Problem::new(format!("{name}: {error}")))?;
    if recording.is_whole() || allow_gaps {
        return Ok(recording);
    }
    let first = recording.gaps[0];
    let what = format!(
        "{name}: {}, the first after {}: a replay would miss what delayed the rest",
        gaps_text(recording.gaps.len()),
        duration(first.from.0)
    );
    Err(Problem::new(what)
        .help("--allow-gaps replays what is there")
        .into())
}

/// Returns a number of gaps in words.
pub(crate) fn gaps_text(gaps: usize) -> String {
    match gaps {
        1 => "1 gap".to_owned(),
        gaps => format!("{gaps} gaps"),
    }
}
