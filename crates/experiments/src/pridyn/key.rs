//! Keys of runs: case, scheduler and change.

use crate::folder::{File, named};
use crate::frame::Variant;

/// Workloads that run side by side.
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
    /// Returns `true` if the guests replay streams of requests.
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

    /// Scenario file of the case.
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

/// Change of a scenario.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Change {
    /// Scenario as written.
    #[cfg(test)]
    Nothing,
    /// Writers of records of `kib` KiB in `vms` VMs, or natively, without a hypervisor.
    Records { vms: usize, kib: u32, native: bool },
    /// A VM for each, which reads (`R`) or writes (`W`).
    Operations(&'static str),
    /// No deadlines.
    Default,
    /// No deadlines; the application with the earliest one is real time, the others idle.
    Best,
    /// Deadline of the first VM from an experiment of figure 4.1, counted from 1.
    Experiment(usize),
    /// Number of streams, from the first on, without deadlines.
    Streams(usize),
    /// Deadlines by size for the first `vms` streams, with this delta in tenths.
    Tolerance { vms: usize, tenths: u32 },
    /// Name of the third application.
    Third(&'static str),
}

/// Interpretation of the thesis, to show the cause of a claim's outcome.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Reading {
    /// Interpretation that the README documents.
    Ours,
    /// Figure 3.3 as printed.
    Literal,
    /// Equation 4.1 as printed.
    Printed,
    /// Tidegate's default PriDyn.
    Added,
    /// Throughput of the disk given to PriDyn, as in section 4.2.1, instead of learnt.
    Given,
    /// Low priority as the lowest level of best effort instead of the idle class.
    Level,
    /// Time of the hypervisor for a request of a bulk guest constant instead of exponential, with
    /// the parameters that were fitted so.
    Constant,
}

impl Variant for Reading {
    const NOTHING: Reading = Reading::Ours;
    const ALL: &'static [Reading] = &[
        Reading::Literal,
        Reading::Printed,
        Reading::Added,
        Reading::Given,
        Reading::Level,
        Reading::Constant,
    ];

    fn phrase(self) -> String {
        match self {
            Reading::Ours => "As it is",
            Reading::Literal => "With figure 3.3 as printed",
            Reading::Printed => "With equation 4.1 as printed",
            Reading::Added => "With PriDyn and CFQ as Tidegate has them",
            Reading::Given => "With what the disk does given",
            Reading::Level => "With the lowest level of best effort for low priority",
            Reading::Constant => "With a constant time of the hypervisor",
        }
        .to_owned()
    }
}

/// Identity of a run.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Key {
    pub(super) case: Case,
    /// Scheduler of `schedulers.toml`.
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

    /// Key of the run in another interpretation, unchanged where that makes no difference.
    pub(super) fn read(self, reading: Reading) -> Key {
        // Only deadlines by size use equation 4.1.
        let sized = matches!(self.change, Change::Tolerance { .. } | Change::Third(_));
        let reading = match reading {
            Reading::Literal | Reading::Added | Reading::Given
                if self.scheduler.starts_with("pridyn") =>
            {
                reading
            }
            Reading::Printed if sized => reading,
            Reading::Level if matches!(self.change, Change::Third(_)) => reading,
            // Experiments of figure 4.1 keep their deadlines, which follow from other runs.
            Reading::Constant if self.is_bulk_without_deadlines() => reading,
            // One key for all readings that make no difference, so that the run is made once.
            _ => Reading::Ours,
        };
        Key { reading, ..self }
    }

    fn is_bulk_without_deadlines(self) -> bool {
        matches!(
            self.change,
            Change::Records { .. } | Change::Operations(_) | Change::Default | Change::Best
        )
    }
}
