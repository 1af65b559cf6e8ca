//! What a document names and does not hold itself: device models, profiles and files of data.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path as FilePath;

use tidegate_core::profile::Profile;
use tidegate_device::catalogue::Entry;

use crate::field::Field;
use crate::{model, profile};

/// Finds what a document names; otherwise says why there is none.
///
/// Whoever reads a document passes one in: [`Beside`] where files may be opened; a function that
/// finds models, such as [`model::built_in`], where they may not.
pub trait Library {
    /// A device model by what the document calls it.
    ///
    /// # Errors
    /// Why there is none.
    fn model(&self, name: &str) -> Result<Entry, String>;

    /// A saturation profile by its path, or by the model of the catalogue that it is of.
    ///
    /// # Errors
    /// Why there is none.
    fn profile(&self, path: &str) -> Result<Profile, String>;

    /// Opens a file of data, such as a trace, by its path.
    ///
    /// # Errors
    /// Why that is not possible; always, unless files may be opened.
    fn open(&self, path: &str) -> Result<Box<dyn BufRead>, String> {
        Err(format!("{path:?} cannot be opened from here"))
    }
}

impl<F: Fn(&str) -> Result<Entry, String>> Library for F {
    fn model(&self, name: &str) -> Result<Entry, String> {
        self(name)
    }

    fn profile(&self, path: &str) -> Result<Profile, String> {
        match profile::built_in(path) {
            Some(measured) => (measured.profile()).map_err(|error| format!("{path}: {error}")),
            None => Err(format!("{path:?} cannot be opened from here")),
        }
    }
}

/// The catalogue, and files whose paths are relative to a directory.
#[derive(Clone, Copy, Debug)]
pub struct Beside<'a>(pub &'a FilePath);

impl Library for Beside<'_> {
    fn model(&self, name: &str) -> Result<Entry, String> {
        model::find(name, self.0)
    }

    fn profile(&self, path: &str) -> Result<Profile, String> {
        let measured = profile::find(path, self.0)?;
        measured
            .profile()
            .map_err(|error| format!("{path}: {error}"))
    }

    fn open(&self, path: &str) -> Result<Box<dyn BufRead>, String> {
        let path = self.0.join(path);
        let file = File::open(&path);
        let file = file.map_err(|error| format!("cannot read {}: {error}", path.display()))?;
        Ok(Box::new(BufReader::with_capacity(1 << 20, file)))
    }
}

/// Reads the name of a model. `None`: there is none, which has been reported.
pub fn model_from(field: &Field<'_>, library: &dyn Library) -> Option<Entry> {
    let allowed = "a model's name in the catalogue, or the path of a .toml file";
    found(field, library.model(field.text()?), allowed)
}

/// Reads the name of a profile. `None`: there is none, which has been reported.
pub fn profile_from(field: &Field<'_>, library: &dyn Library) -> Option<Profile> {
    let allowed = "the path of a file that `tidegate profile` wrote, or a model of the catalogue";
    found(field, library.profile(field.text()?), allowed)
}

fn found<T>(field: &Field<'_>, found: Result<T, String>, allowed: &str) -> Option<T> {
    match found {
        Ok(found) => Some(found),
        Err(error) => {
            field.error(error, allowed);
            None
        }
    }
}
