//! Access to what a document refers to: device models, profiles and data files.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path as FilePath;

use tidegate_core::profile::Profile;
use tidegate_device::catalogue::Entry;

use crate::field::Field;
use crate::{model, profile};

/// Source of the models, profiles and files that a document refers to.
///
/// The reader of a document gets one: [`Beside`] where files may be opened, or a function that
/// finds models, such as [`model::built_in`], where no file may be opened.
pub trait Library {
    /// Returns a device model by its name or path in the document.
    ///
    /// # Errors
    /// The reason why the model cannot be had.
    fn model(&self, name: &str) -> Result<Entry, String>;

    /// Returns a saturation profile by its path, or by the name of a catalogue model.
    ///
    /// # Errors
    /// The reason why the profile cannot be had.
    fn profile(&self, path: &str) -> Result<Profile, String>;

    /// Opens a data file, such as a trace, by its path.
    ///
    /// # Errors
    /// The reason why the file cannot be opened. The default implementation always fails.
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

/// Library of the built-in catalogue, and of files with paths relative to a directory.
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

/// Reads the name or path of a model. `None`: no such model, which has been reported.
pub fn model_from(field: &Field<'_>, library: &dyn Library) -> Option<Entry> {
    let allowed = "a model's name in the catalogue, or the path of a .toml file";
    report(field, library.model(field.text()?), allowed)
}

/// Reads the name or path of a profile. `None`: no such profile, which has been reported.
pub fn profile_from(field: &Field<'_>, library: &dyn Library) -> Option<Profile> {
    let allowed = "the path of a file that `tidegate profile` wrote, or a model of the catalogue";
    report(field, library.profile(field.text()?), allowed)
}

/// Returns the value of a successful lookup, and reports an error at `field`.
fn report<T>(field: &Field<'_>, lookup: Result<T, String>, allowed: &str) -> Option<T> {
    match lookup {
        Ok(found) => Some(found),
        Err(error) => {
            field.error(error, allowed);
            None
        }
    }
}
