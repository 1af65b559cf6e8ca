//! Recordings of requests as commands read them: whole, without gaps unless these are allowed, and
//! ready to be replayed on a device model.

use std::fmt::Display;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use anyhow::Result;
use tidegate_config::profile;
use tidegate_core::profile::Profile;
use tidegate_device::catalogue;
use tidegate_recording::{DeviceFacts, Recording};
use tidegate_sim::what_if::{WhatIf, WhatIfError};
use tidegate_units::human::duration;

use crate::output;
use crate::problem::Problem;
use crate::simulate::find_model;

/// Requests of a recording that are read into memory, some 100 bytes each with their replay.
const REQUESTS_MAX: usize = 20_000_000;
/// Requests that are simulated for each second of a budget: about what a core of an ordinary
/// machine does.
pub(crate) const REQUESTS_PER_S: u64 = 250_000;

/// Reads a recording; one with gaps only if that is allowed.
pub(crate) fn read(path: &Path, allow_gaps: bool) -> Result<Recording> {
    let name = path.display();
    let file =
        File::open(path).map_err(|error| Problem::new(format!("cannot read {name}: {error}")))?;
    read_from(file, path, allow_gaps)
}

/// Reads a recording from `from`; one with gaps only if that is allowed. `path` is its name.
pub(crate) fn read_from(from: impl Read, path: &Path, allow_gaps: bool) -> Result<Recording> {
    let name = path.display();
    let recording = Recording::read(from, REQUESTS_MAX)
        .map_err(|error| Problem::new(format!("{name}: {error}")))?;
    if !allow_gaps {
        refuse_gaps(name, &recording)?;
    }
    Ok(recording)
}

/// Refuses a recording with gaps.
pub(crate) fn refuse_gaps(name: impl Display, recording: &Recording) -> Result<()> {
    let Some(first) = recording.gaps.first() else {
        return Ok(());
    };
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

/// Device of a replay, as options name it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReplayDevice<'a> {
    /// Model, by name or file; `None`: the recording's.
    pub(crate) model: Option<&'a str>,
    /// Saturation profile, by name or file; `None`: the recording's, if it is of the catalogue.
    pub(crate) profile: Option<&'a str>,
}

/// Prepares a recording for its replay on a device. Returns it with the model of the device.
pub(crate) fn replay(
    name: impl Display,
    recording: &Recording,
    device: ReplayDevice,
) -> Result<(WhatIf, catalogue::Entry)> {
    let facts = &recording.header.device;
    let Some(model) = device.find_model(facts) else {
        return Err(Problem::new(format!("{name}: {}", no_model(facts)))
            .help("name one with --device: a model of the catalogue, or the path of a .toml file")
            .into());
    };
    if device.model.or(facts.model.as_deref()).is_none() {
        let no_model = no_model(facts);
        output::tell(format_args!(
            "note: {no_model}: {model} stands in for it, whose profile it has"
        ));
    }
    let model = find_model(model)?;
    let profile = device.find_profile(facts)?;
    let what_if = WhatIf::new(recording, &model, profile);
    let what_if = what_if.map_err(|error| replay_problem(name, error))?;
    Ok((what_if, model))
}

/// Returns that a recorded device has no model, in words.
pub(crate) fn no_model(facts: &DeviceFacts) -> String {
    format!(
        "the device {} of kind {} has no model that could be simulated",
        facts.name, facts.kind
    )
}

/// Returns the message of a recording that cannot be replayed.
pub(crate) fn replay_problem(name: impl Display, error: WhatIfError) -> Problem {
    let problem = Problem::new(format!("{name}: {error}"));
    match error {
        WhatIfError::NoProfile(_) => problem.help(
            "give the device's profile with --profile: a file of `tidegate profile`, or the name \
             of a model of the catalogue",
        ),
        _ => problem,
    }
}

impl<'a> ReplayDevice<'a> {
    /// Returns the model: the one that was asked for, that of the recorded device or, if it has
    /// none, the one of the catalogue whose profile the recording was made with.
    pub(crate) fn find_model(self, facts: &'a DeviceFacts) -> Option<&'a str> {
        let named = self.model.or(facts.model.as_deref());
        let of_profile = || Some(built_in(facts.profile_digest.as_deref()?)?.0);
        named.or_else(of_profile)
    }

    /// Returns the saturation profile: the one that was asked for, or that of the catalogue with
    /// which the recording was made.
    fn find_profile(self, facts: &DeviceFacts) -> Result<Option<Arc<Profile>>> {
        let recorded = facts.profile_digest.as_deref();
        if let Some(name) = self.profile {
            let profile = profile::find(name, Path::new(""))
                .and_then(|measured| {
                    measured
                        .profile()
                        .map_err(|error| format!("{name}: {error}"))
                })
                .map_err(|what| Problem::new(what).at("--profile"))?;
            if self.model.is_none() && recorded.is_some_and(|digest| digest != digest_of(&profile))
            {
                output::tell(format_args!(
                    "note: the recording was made with another profile than {name}"
                ));
            }
            return Ok(Some(Arc::new(profile)));
        }
        // The profile of the recorded device says nothing about another one.
        let (Some(recorded), None) = (recorded, self.model) else {
            return Ok(None);
        };
        let found = built_in(recorded);
        if found.is_none() {
            output::tell(format_args!(
                "note: the recording was made with a profile that is not of the catalogue: give \
                 it with --profile"
            ));
        }
        Ok(found.map(|(_, profile)| Arc::new(profile)))
    }
}

/// Returns the model of the catalogue whose profile has a digest, with that profile.
fn built_in(digest: &str) -> Option<(&'static str, Profile)> {
    let mut all = catalogue::names().filter_map(|name| {
        let profile = profile::built_in(name)?.profile().ok()?;
        Some((name, profile))
    });
    all.find(|(_, profile)| digest_of(profile) == digest)
}

/// Returns the digest of a profile as recordings have it.
fn digest_of(profile: &Profile) -> String {
    DeviceFacts::digest(format!("{profile:?}").as_bytes())
}
