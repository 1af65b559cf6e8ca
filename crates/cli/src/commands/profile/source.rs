//! What the DEVICE of `tidegate profile` names.

use std::path::Path;

use anyhow::Result;
use tidegate_config::{document, model};
use tidegate_device::catalogue::{self, Entry};

use crate::file_kind::FileKind;
use crate::problem::Problem;

/// What is measured.
pub(super) enum Source {
    /// A disk model.
    Model(Entry),
}

/// What a name is: a model of the catalogue, then whatever is there of that path.
pub(super) fn find(name: &str) -> Result<Source> {
    if catalogue::names().any(|known| known == name) {
        return Ok(Source::Model(model::built_in(name).map_err(Problem::new)?));
    }
    let path = Path::new(name);
    if name.ends_with(".toml") && path.is_file() {
        let text = document::read_text(path).map_err(Problem::new)?;
        if let Some(kind @ (FileKind::Configuration | FileKind::Scenario)) = FileKind::of(&text) {
            return Err(kind.instead_of(FileKind::Model, path).into());
        }
        let entry =
            catalogue::parse(&text, name).map_err(|error| Problem::new(error.to_string()))?;
        return Ok(Source::Model(entry));
    }
    let problem = match model::built_in(name) {
        Err(error) => Problem::new(error),
        Ok(_) => unreachable!("the catalogue was asked first"),
    };
    Err(problem.into())
}
