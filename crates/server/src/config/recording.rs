//! Section `[recording]`: where recordings of requests are written.

use std::path::PathBuf;

use tidegate_config::{Field, Section};

use super::context::Context;
use super::{StoreConfig, keys};

/// Section `[recording]`, or its defaults beside a store.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RecordingConfig {
    /// Directory of the files, created when a recording is switched on.
    pub directory: PathBuf,
    /// Maximum size of all files in bytes, 16 MiB to 1 PiB.
    pub max_bytes: u64,
    /// Indices of the devices that are recorded from the start on.
    pub devices: Vec<usize>,
}

/// Name of the directory beside the store.
const BESIDE_STORE: &str = "recordings";

impl RecordingConfig {
    /// Returns the configuration without a section: recordings beside the store are possible, and
    /// off. `None` without a store.
    pub(super) fn beside(store: Option<&StoreConfig>) -> Option<RecordingConfig> {
        store.map(|store| RecordingConfig {
            directory: store.path.with_file_name(BESIDE_STORE),
            max_bytes: keys::MAX_SIZE.default_number(),
            devices: Vec::new(),
        })
    }
}

/// Reads the section. `devices` are the names of the devices, `None` for one with an error. `None`:
/// there was an error, which has been reported.
pub(super) fn read(
    field: &Field<'_>,
    store: Option<&StoreConfig>,
    devices: &[Option<&str>],
    context: &Context<'_>,
) -> Option<RecordingConfig> {
    let mut section = Section::with_keys(field, &keys::RECORDING)?;
    let default = RecordingConfig::beside(store);
    let directory = match section.field(&keys::RECORDING_DIRECTORY) {
        Some(field) => context.path(&field),
        None => {
            let beside = default.map(|it| it.directory);
            if beside.is_none() {
                let what = "no directory for recordings, and no [store] beside which it could be";
                section.error(what, "directory = \"/var/lib/tidegate/recordings\"");
            }
            beside
        }
    };
    let max_bytes = section.number(&keys::MAX_SIZE);
    let recorded = section.value(&keys::RECORDED_DEVICES, Vec::new(), |field| {
        let fields = field.elements()?;
        fields.iter().map(|field| device(field, devices)).collect()
    });
    section.finish();
    Some(RecordingConfig {
        directory: directory?,
        max_bytes: max_bytes?,
        devices: recorded?,
    })
}

/// Returns the index of the device that a field names.
fn device(field: &Field<'_>, devices: &[Option<&str>]) -> Option<usize> {
    let name = field.text()?;
    let found = devices.iter().position(|device| *device == Some(name));
    // The device of that name may have an error, which is reported by itself.
    if found.is_none() && devices.iter().all(Option::is_some) {
        let known: Vec<&str> = devices.iter().flatten().copied().collect();
        let what = format!("there is no device {name:?}");
        field.error(what, &format!("one of: {}", known.join(", ")));
    }
    found
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use crate::config::tests::{errors, parts, with_template};

    fn with(sections: &str) -> String {
        with_template("unix = \"nbd.sock\"") + sections
    }

    const STORE: &str = "[store]\npath = \"state/tidegate.redb\"\n";

    #[test]
    fn recordings_are_beside_the_store_unless_a_directory_is_named() {
        let (config, _) = parts(&with(""));
        assert_eq!(config.recording, None);
        let (config, _) = parts(&with(STORE));
        let beside = config.recording.expect("there is a store");
        assert_eq!(
            beside.directory,
            Path::new("/etc/tidegate/state/recordings")
        );
        assert_eq!((beside.max_bytes, beside.devices), (1 << 30, vec![]));
        let section = "[recording]\ndirectory = \"r\"\nmax_size = \"32 MiB\"\n";
        let (config, _) = parts(&with(section));
        let named = config.recording.expect("there is a section");
        assert_eq!(named.directory, Path::new("/etc/tidegate/r"));
        assert_eq!(named.max_bytes, 32 << 20);
    }

    #[test]
    fn a_recording_needs_a_directory_and_devices_that_there_are() {
        for (text, expected) in [
            (
                "[recording]\nmax_size = \"1 GiB\"\n",
                "no directory for recordings",
            ),
            (
                "[recording]\ndirectory = \"r\"\ndevices = [\"disk7\"]\n",
                "there is no device \"disk7\"",
            ),
            (
                "[recording]\ndirectory = \"r\"\nmax_size = \"1 MiB\"\n",
                "16 MiB",
            ),
            (
                "[recording]\ndirectory = \"r\"\non = true\n",
                "unknown key `on`",
            ),
        ] {
            let said = errors(&with(text));
            assert!(said.contains(expected), "{text}: {said}");
        }
    }
}
