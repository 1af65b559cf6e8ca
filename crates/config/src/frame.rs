//! Frame of a simulated run: the top-level keys that scenarios of disks and of vCPUs share.

use tidegate_core::time::Nanos;
use tidegate_units::format_duration;

use crate::field::Field;
use crate::keys::{KeyDefault, KeyInfo, KeyKind};
use crate::section::Section;

/// Shortest run; a shorter one completes too few requests to report.
const DURATION_MIN: Nanos = Nanos::from_millis(1);

/// Title of a run.
const TITLE: KeyInfo = KeyInfo::new(
    "title",
    KeyKind::Text,
    KeyDefault::Unset("none"),
    "the title of the report, in a line",
);
/// Early end of a run.
const UNTIL_DONE: KeyInfo = KeyInfo::flag(
    "until_done",
    false,
    "ends the run early, once every workload that has an end has reached it",
);
/// Seed of a run.
const SEED: KeyInfo = KeyInfo::number(
    "seed",
    KeyKind::Count,
    1,
    (0, u64::MAX),
    "seed of all random choices",
);

/// Number of keys of a frame.
pub const KEYS: usize = 5;

/// Returns the keys of a frame whose duration is at most `longest`; `example` is a duration in the
/// document's notation.
pub const fn keys(longest: Nanos, example: &'static str) -> [KeyInfo; KEYS] {
    let duration = KeyInfo::new(
        "duration",
        KeyKind::Duration,
        KeyDefault::Required(example),
        "time after which the run ends",
    );
    let warm_up = KeyInfo::number(
        "warm_up",
        KeyKind::Duration,
        0,
        (0, longest.0),
        "time at the beginning that the report leaves out, below `duration`",
    );
    let duration = duration.within(DURATION_MIN.0, longest.0);
    [TITLE, duration, warm_up, UNTIL_DONE, SEED]
}

/// Frame of a run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Frame {
    /// Title of the report, in a line; may be empty.
    pub title: String,
    /// Time after which the run ends.
    pub duration: Nanos,
    /// Ends the run early, once every workload that has an end has reached it.
    pub until_done: bool,
    /// Time at the beginning that the report leaves out; below `duration`.
    pub warm_up: Nanos,
    /// Seed of everything random.
    pub seed: u64,
}

impl Frame {
    /// Returns the frame of a run of `duration`, with every other key at its default.
    pub fn lasting(duration: Nanos) -> Frame {
        Frame {
            title: String::new(),
            duration,
            until_done: false,
            warm_up: Nanos::ZERO,
            seed: SEED.default_number(),
        }
    }
}

/// Frame being read; a part is `None` if it was wrong or missing, which has been reported.
#[derive(Clone, Debug)]
pub struct FrameDraft {
    title: Option<String>,
    /// Time after which the run ends.
    pub duration: Option<Nanos>,
    until_done: Option<bool>,
    warm_up: Option<Nanos>,
    seed: Option<u64>,
}

impl FrameDraft {
    /// Reads the frame from the top level of a scenario; `keys` come from [`keys()`](keys).
    pub fn read(section: &mut Section<'_>, keys: &[KeyInfo; KEYS]) -> FrameDraft {
        let [title, duration, warm_up, until_done, seed] = keys;
        let title = section.value(title, String::new(), |field| {
            field.text().map(str::to_owned)
        });
        let duration = section.number(duration).map(Nanos);
        let warm_up = section.value(warm_up, Nanos::ZERO, |field| {
            let warm_up = field.number(warm_up).map(Nanos)?;
            is_below(field, warm_up, duration).then_some(warm_up)
        });
        FrameDraft {
            title,
            duration,
            until_done: section.flag(until_done),
            warm_up,
            seed: section.number(seed),
        }
    }

    /// Returns the frame if all of its parts were read.
    pub fn complete(self) -> Option<Frame> {
        Some(Frame {
            title: self.title?,
            duration: self.duration?,
            until_done: self.until_done?,
            warm_up: self.warm_up?,
            seed: self.seed?,
        })
    }
}

/// Returns true if the warm-up is shorter than the duration; reports it otherwise.
fn is_below(field: &Field<'_>, warm_up: Nanos, duration: Option<Nanos>) -> bool {
    let Some(duration) = duration.filter(|&duration| warm_up >= duration) else {
        return true;
    };
    let (warm_up, duration) = (format_duration(warm_up), format_duration(duration));
    let what = format!("a warm-up of {warm_up} leaves nothing of a duration of {duration}");
    field.error(what, "a shorter warm_up, or a longer duration");
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document;
    use crate::keys::SectionInfo;

    const RUN: [KeyInfo; KEYS] = keys(Nanos::from_secs(60), "duration = \"10 s\"");
    const SCENARIO: SectionInfo = SectionInfo {
        name: "run",
        keys: &RUN,
    };

    fn read(text: &str) -> Result<Frame, String> {
        let loaded = document::read(text, "s.toml", |root| {
            let mut section = Section::with_keys(root, &SCENARIO)?;
            let frame = FrameDraft::read(&mut section, &RUN);
            section.finish();
            frame.complete()
        });
        (loaded.map(|loaded| loaded.config)).map_err(|refused| refused.to_string())
    }

    #[test]
    fn a_duration_is_enough() {
        let usual = Frame::lasting(Nanos::from_secs(10));
        assert_eq!((usual.warm_up, usual.seed), (Nanos::ZERO, 1));
        assert_eq!(read("duration = \"10 s\""), Ok(usual.clone()));
        let all = "title = \"t\"\nduration = \"10 s\"\nwarm_up = \"9.999 s\"\nuntil_done = true\n\
                   seed = 0\n";
        let whole = Frame {
            title: "t".to_owned(),
            until_done: true,
            warm_up: Nanos::from_millis(9_999),
            seed: 0,
            ..usual
        };
        assert_eq!(read(all), Ok(whole));
    }

    #[test]
    fn a_run_that_shows_nothing_is_refused() {
        for (text, why) in [
            ("", "`duration` is missing"),
            ("duration = \"1 us\"", "out of range"),
            ("duration = \"2 min\"", "from 1 ms to 60 s"),
            (
                "duration = \"5 s\"\nwarm_up = \"5 s\"",
                "a warm-up of 5 s leaves nothing of a duration of 5 s",
            ),
            ("warm_up = \"61 s\"", "out of range"),
        ] {
            let said = read(text).unwrap_err();
            assert!(said.contains(why), "{text}: {said}");
        }
    }
}
