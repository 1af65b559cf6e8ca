//! Lookup of device models by name in the catalogue or by path of a file.

use std::path::Path as FilePath;

use tidegate_device::catalogue::{self, Entry};

use crate::document::read_text;

/// Returns a model of the catalogue.
///
/// # Errors
/// If no model has that name; the message lists all names.
pub fn built_in(name: &str) -> Result<Entry, String> {
    catalogue::load(name).map_err(|error| error.to_string())
}

/// Returns a model of the catalogue, or the model that a file describes. A name that contains a
/// slash or ends in `.toml` is a path, relative to `base`.
///
/// # Errors
/// If no model has that name, or the file cannot be read or is wrong.
pub fn find(name: &str, base: &FilePath) -> Result<Entry, String> {
    if !name.contains('/') && !name.ends_with(".toml") {
        return built_in(name);
    }
    let path = base.join(name);
    let text = read_text(&path)?;
    catalogue::parse(&text, &path.display().to_string()).map_err(|error| error.to_string())
}
