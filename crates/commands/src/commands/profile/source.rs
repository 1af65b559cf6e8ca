//! Interpretation of the DEVICE argument of `tidegate profile`.

use std::path::{Path, PathBuf};

use anyhow::Result;
use tidegate_config::{document, model};
use tidegate_device::catalogue::{self, Entry};

use crate::file_kind::FileKind;
use crate::problem::Problem;

/// Device to measure.
pub(super) enum Source {
    /// Disk model.
    Model(Box<Entry>),
    /// File, block device or directory, which may not exist yet.
    Disk(PathBuf),
}

/// Interprets a name: a model of the catalogue, a model in a .toml file, or a path.
pub(super) fn find(name: &str) -> Result<Source> {
    if catalogue::names().any(|known| known == name) {
        let entry = model::built_in(name).map_err(Problem::new)?;
        return Ok(Source::Model(Box::new(entry)));
    }
    let path = Path::new(name);
    if name.ends_with(".toml") && path.is_file() {
        let text = document::read_text(path).map_err(Problem::new)?;
        if let Some(kind) = FileKind::detect(&text).filter(|kind| *kind != FileKind::Model) {
            return Err(kind.instead_of(FileKind::Model, path).into());
        }
        let entry =
            catalogue::parse(&text, name).map_err(|error| Problem::new(error.to_string()))?;
        return Ok(Source::Model(Box::new(entry)));
    }
    match model::built_in(name) {
        // Rather a mistyped model than a file to create.
        Err(error) if !path.exists() && !name.contains(['/', '.']) => Err(Problem::new(error)
            .help("a disk is named by its path: /dev/NAME, or ./NAME for a file here")
            .into()),
        _ => Ok(Source::Disk(path.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_models_and_paths_are_disks() {
        for (name, disk) in [
            ("nvme-1tb", false),
            ("./nvme-1tb", true),
            ("/dev/null", true),
            ("no/such/disk.raw", true),
            ("disk.raw", true),
            (".", true),
        ] {
            let found = find(name).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(matches!(found, Source::Disk(_)), disk, "{name}");
        }
        let Err(error) = find("nvme-2tb") else {
            panic!("there is no such model");
        };
        let message = error.to_string();
        assert!(message.contains("did you mean \"nvme-1tb\""), "{message}");
        assert!(message.contains("./NAME"), "{message}");
    }
}
