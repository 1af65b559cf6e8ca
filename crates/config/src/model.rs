//! Finding the model of an emulated device: by its name in the catalogue, or in a file.

use std::path::Path as FilePath;

use tidegate_device::catalogue::{self, Entry};

use crate::document::read_text;

/// A model of the catalogue.
///
/// # Errors
/// When there is none of that name: lists those there are.
pub fn built_in(name: &str) -> Result<Entry, String> {
    catalogue::load(name).map_err(|error| error.to_string())
}

/// A model of the catalogue, or the one that a file describes: what holds a slash or ends in
/// `.toml` is a path, relative to `base`.
///
/// # Errors
/// When there is none of that name, or the file cannot be read or is wrong.
pub fn find(name: &str, base: &FilePath) -> Result<Entry, String> {
    if !name.contains('/') && !name.ends_with(".toml") {
        return built_in(name);
    }
    let path = base.join(name);
    let text = read_text(&path)?;
    catalogue::parse(&text, &path.display().to_string()).map_err(|error| error.to_string())
}
