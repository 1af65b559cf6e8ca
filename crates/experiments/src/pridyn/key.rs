//! The keys of runs: who runs beside whom, under which scheduler, and what is changed about it.

use crate::folder::{File, named};
use crate::frame::Variant;

/// Who runs beside whom.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Case {
    /// Figures 1.2 and 1.3.
    Records,
    /// Figures 1.4 and 1.5.
    Operations,
    /// Tables 4.1a and 4.1b, figure 3.4.
    UseCase(UseCase),
    /// Figures 4.4, 4.5 and 4.7.
    Web,
    /// Figure 4.6.
    WebResearch,
    /// Figures 5.2 to 5.4.
    Media,
}

/// The two use cases of section 4.1.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum UseCase {
    /// Two writers.
    One,
    /// A reader and two writers.
    Two,
}

impl Case {
    /// Its guests replay streams of requests.
    #[cfg(test)]
    pub(super) fn has_streams(self) -> bool {
        matches!(self, Case::Web | Case::WebResearch | Case::Media)
    }

    #[cfg(test)]
    pub(super) const ALL: [Case; 7] = [
        Case::Records,
        Case::Operations,
        Case::UseCase(UseCase::One),
        Case::UseCase(UseCase::Two),
        Case::Web,
        Case::WebResearch,
        Case::Media,
    ];

    /// Its file, and what it says.
    pub(super) fn file(self) -> File {
        match self {
            Case::Records => named!("pridyn/scenarios", "records.toml"),
            Case::Operations => named!("pridyn/scenarios", "operations.toml"),
            Case::UseCase(UseCase::One) => {
                named!("pridyn/scenarios", "use-case-1.toml")
            }
            Case::UseCase(UseCase::Two) => {
                named!("pridyn/scenarios", "use-case-2.toml")
            }
            Case::Web => named!("pridyn/scenarios", "web.toml"),
            Case::WebResearch => named!("pridyn/scenarios", "web-research.toml"),
            Case::Media => named!("pridyn/scenarios", "media.toml"),
        }
    }
}

/// What is changed about a scenario.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Change {
    /// It is as written.
    #[cfg(test)]
    Nothing,
    /// So many writers of records of so many KiB; natively: without a hypervisor.
    Records { vms: usize, kib: u32, native: bool },
    /// A VM for each, which reads (`R`) or writes (`W`).
    Operations(&'static str),
    /// Nobody has a deadline.
    Default,
    /// Nobody has one, and who would have the earliest is real time, the others idle.
    Best,
    /// The first VM's deadline is that of an experiment of figure 4.1, from 1 on.
    Experiment(usize),
    /// The first so many streams, without deadlines.
    Streams(usize),
    /// Deadlines by size: the first so many streams with such a delta, in tenths.
    Tolerance { vms: usize, tenths: u32 },
    /// The third application is the one of this name.
    Third(&'static str),
}

/// What a run is, to show what a claim hangs on.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Reading {
    /// That of the README.
    Ours,
    /// Figure 3.3 as it is printed.
    Literal,
    /// Equation 4.1 as it is printed.
    Printed,
    /// PriDyn as Tidegate has it unless told otherwise.
    Added,
    /// PriDyn is told what the disk does for so many, as section 4.2.1 has it, instead of learning
    /// it.
    Given,
    /// Low priority as the lowest level of best effort, not as the idle class.
    Level,
}

impl Variant for Reading {
    const NOTHING: Reading = Reading::Ours;
    const ALL: &'static [Reading] = &[
        Reading::Literal,
        Reading::Printed,
        Reading::Added,
        Reading::Given,
        Reading::Level,
    ];

    fn phrase(self) -> String {
        match self {
            Reading::Ours => "As it is",
            Reading::Literal => "With figure 3.3 as printed",
            Reading::Printed => "With equation 4.1 as printed",
            Reading::Added => "With PriDyn and CFQ as Tidegate has them",
            Reading::Given => "With what the disk does given",
            Reading::Level => "With the lowest level of best effort for low priority",
        }
        .to_owned()
    }
}

/// A run.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Key {
    pub(super) case: Case,
    /// One of `schedulers.toml`.
    pub(super) scheduler: &'static str,
    pub(super) change: Change,
    pub(super) reading: Reading,
}

impl Key {
    pub(crate) fn new(case: Case, scheduler: &'static str, change: Change) -> Key {
        Key {
            case,
            scheduler,
            change,
            reading: Reading::Ours,
        }
    }

    /// The same read otherwise; as it is where that makes no difference.
    pub(super) fn read(self, reading: Reading) -> Key {
        let sized = matches!(self.change, Change::Tolerance { .. } | Change::Third(_));
        let reading = match reading {
            Reading::Literal | Reading::Added | Reading::Given
                if self.scheduler.starts_with("pridyn") =>
            {
                reading
            }
            Reading::Printed if sized => reading,
            Reading::Level if matches!(self.change, Change::Third(_)) => reading,
            _ => Reading::Ours,
        };
        Key { reading, ..self }
    }
}
