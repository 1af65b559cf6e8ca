//! What a TOML file is: a configuration, a scenario, a device model and a profile look alike, and a
//! command that is given another one than its own should say so.

use std::path::Path;

use tidegate_config::{Section, document};

use crate::problem::Problem;

/// What a TOML file is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FileKind {
    /// What `serve` serves.
    Configuration,
    /// What `sim` and `sweep` simulate.
    Scenario,
    /// A device, as in the catalogue.
    Model,
    /// A saturation profile, as `tidegate profile` writes it.
    Profile,
    /// vCPUs of a host, which `vcpu sim` simulates.
    Vcpus,
}

/// Keys of the top level that only one kind of file has.
const WORDS: [(FileKind, &[&str]); 5] = [
    // Old spellings; before scenarios of disks, which have a duration, too.
    (FileKind::Vcpus, &["scheduler", "driver"]),
    (FileKind::Configuration, &["listen", "control"]),
    (
        FileKind::Scenario,
        &["duration", "warm_up", "seed", "event", "background"],
    ),
    (FileKind::Model, &["hdd", "ssd", "raid0", "cap"]),
    (FileKind::Profile, &["curve", "latency"]),
];

impl FileKind {
    /// What a text is. `None`: it is not TOML, or has no word that tells.
    pub(crate) fn of(text: &str) -> Option<FileKind> {
        let kind = document::read(text, "", |root| {
            let section = Section::of(root)?;
            // Scenarios of disks may have processors, too.
            if section.has("host") && !section.has("device") && !section.has("listen") {
                return Some(FileKind::Vcpus);
            }
            let told = WORDS
                .iter()
                .find(|(_, words)| words.iter().any(|word| section.has(word)));
            told.map(|(kind, _)| *kind)
        });
        kind.ok().map(|loaded| loaded.config)
    }

    /// Refuses a `file` of this kind where `wanted` is.
    pub(crate) fn instead_of(self, wanted: FileKind, file: &Path) -> Problem {
        let help = match self {
            FileKind::Configuration => {
                "`tidegate serve` serves it; docs/simulation.md says what a scenario is"
            }
            FileKind::Scenario => {
                "`tidegate sim` simulates it; docs/configuration.md says what a configuration is"
            }
            FileKind::Model => {
                "name it as the `model` of a [[device]], or `tidegate sim SCENARIO --device FILE`"
            }
            FileKind::Vcpus => {
                "`tidegate vcpu sim` simulates it; docs/simulation.md says what a scenario of \
                 disks is"
            }
            FileKind::Profile => {
                "name it as the `profile` of a [[device]]; `tidegate profile show` draws it"
            }
        };
        let what = format!("this is {}, not {}", self.in_words(), wanted.in_words());
        Problem::new(what).at(file.display().to_string()).help(help)
    }

    fn in_words(self) -> &'static str {
        match self {
            FileKind::Configuration => "a configuration of the daemon",
            FileKind::Scenario => "a scenario",
            FileKind::Model => "a device model",
            FileKind::Profile => "a saturation profile",
            FileKind::Vcpus => "a scenario of vCPUs",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_told_by_words_that_no_other_kind_has() {
        for (text, kind) in [
            ("[[listen]]\nunix = \"s\"", Some(FileKind::Configuration)),
            ("duration = 1\n[[listen]]", Some(FileKind::Configuration)),
            ("[[vm]]\n[[event]]", Some(FileKind::Scenario)),
            ("name = \"d\"\n[ssd]", Some(FileKind::Model)),
            ("version = 1\n[[curve]]", Some(FileKind::Profile)),
            ("duration = 1\n[scheduler]", Some(FileKind::Vcpus)),
            ("duration = 1\n[host.cpu]", Some(FileKind::Vcpus)),
            (
                "duration = 1\n[host.cpu]\n[[device]]",
                Some(FileKind::Scenario),
            ),
            ("[[device]]\n[[vm]]", None),
            ("", None),
            ("hdd", None),
        ] {
            assert_eq!(FileKind::of(text), kind, "{text}");
        }
    }
}
