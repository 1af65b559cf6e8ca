//! Detection of the kind of a TOML file (configuration, scenario, device model, profile, hosts), so
//! that a command given the wrong kind can say so.

use std::path::Path;

use tidegate_config::node::Value;
use tidegate_config::{Section, document};

use crate::problem::Problem;

/// Kind of a TOML file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FileKind {
    /// Configuration of `serve`.
    Configuration,
    /// Scenario of `sim` and `sweep`.
    Scenario,
    /// Device model, as in the catalogue.
    Model,
    /// Saturation profile, as `tidegate profile` writes it.
    Profile,
    /// Scenario of `vcpu sim`.
    Vcpus,
    /// Hosts of `place`, its `--hosts`.
    PlaceHosts,
}

/// Top-level keys that identify a kind; the first kind with a match counts.
const WORDS: [(FileKind, &[&str]); 5] = [
    // Old spellings. Checked before scenarios of disks, because both have a duration.
    (FileKind::Vcpus, &["scheduler", "driver"]),
    (FileKind::Configuration, &["listen", "control"]),
    (
        FileKind::Scenario,
        &["duration", "warm_up", "seed", "event", "background"],
    ),
    (
        FileKind::Model,
        &["hdd", "ssd", "raid0", "model", "cap", "controller"],
    ),
    (FileKind::Profile, &["curve", "latency"]),
];

impl FileKind {
    /// Detects the kind of a text. `None`: not TOML, or no identifying key.
    pub(crate) fn detect(text: &str) -> Option<FileKind> {
        let kind = document::read(text, "", |root| {
            let section = Section::open(root)?;
            // Only the file of hosts has several of them: elsewhere `host` is a table.
            let host = section.find("host").map(|host| &host.node().value);
            if matches!(host, Some(Value::List(_))) {
                return Some(FileKind::PlaceHosts);
            }
            // `host` alone is not enough: scenarios of disks may have a host CPU as well.
            if section.has("host") && !section.has("device") && !section.has("listen") {
                return Some(FileKind::Vcpus);
            }
            let found = WORDS
                .iter()
                .find(|(_, words)| words.iter().any(|word| section.has(word)));
            found.map(|(kind, _)| *kind)
        });
        kind.ok().map(|loaded| loaded.config)
    }

    /// Returns the error for a `file` of this kind where `wanted` is expected.
    pub(crate) fn instead_of(self, wanted: FileKind, file: &Path) -> Problem {
        let help = match self {
            FileKind::Configuration => {
                "use it with `tidegate serve`; docs/simulation.md describes scenarios"
            }
            FileKind::Scenario => {
                "use it with `tidegate sim`; docs/configuration.md describes configurations"
            }
            FileKind::Model => {
                "use it as `model` of a [[device]], or with `tidegate sim SCENARIO --device FILE`"
            }
            FileKind::Vcpus => {
                "use it with `tidegate vcpu sim`; docs/simulation.md describes scenarios of disks"
            }
            FileKind::PlaceHosts => {
                "use it with `tidegate place job ... --hosts FILE`; docs/placement.md describes it"
            }
            FileKind::Profile => {
                "use it as `profile` of a [[device]]; `tidegate profile show` draws it"
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
            FileKind::PlaceHosts => "a file of hosts for `tidegate place`",
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
            (
                "model = \"raid0-16x250gb\"\n[controller]",
                Some(FileKind::Model),
            ),
            ("version = 1\n[[curve]]", Some(FileKind::Profile)),
            ("duration = 1\n[scheduler]", Some(FileKind::Vcpus)),
            ("duration = 1\n[host.cpu]", Some(FileKind::Vcpus)),
            (
                "duration = 1\n[host.cpu]\n[[device]]",
                Some(FileKind::Scenario),
            ),
            ("grace = \"1 %\"\n[[host]]", Some(FileKind::PlaceHosts)),
            ("[[device]]\n[[vm]]", None),
            ("", None),
            ("hdd", None),
        ] {
            assert_eq!(FileKind::detect(text), kind, "{text}");
        }
    }
}
