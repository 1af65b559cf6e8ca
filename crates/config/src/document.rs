//! Reading of whole documents: from a file's bytes to a checked configuration.

use std::fmt::Display;
use std::io::Read;
use std::path::Path as FilePath;

use crate::diagnostic::{ConfigErrors, Diagnostic, Issues, Severity};
use crate::field::Field;
use crate::node::Node;
use crate::path::Path;

/// Maximum size of a configuration file in bytes; a larger file is rather a disk image.
const FILE_MAX: u64 = 16 << 20;
/// Reason for refusing a file above [`FILE_MAX`].
const TOO_LARGE: &str = "larger than 16 MiB, the maximum for a configuration file";

/// Configuration that was read, with warnings and notes.
#[derive(Clone, Debug)]
pub struct Loaded<T> {
    /// Complete and checked configuration.
    pub config: T,
    /// Settings that are accepted but have no effect.
    pub warnings: Vec<Diagnostic>,
    /// Old spellings in the document, to be printed on standard error.
    pub notes: Vec<Diagnostic>,
}

/// Reads a TOML text. `file` is its name in messages; `reader` turns the root table into a
/// configuration, or reports mistakes and returns `None`.
///
/// # Errors
/// All mistakes and warnings, in the order of the text.
pub fn read<T>(
    text: &str,
    file: &str,
    reader: impl FnOnce(&Field<'_>) -> Option<T>,
) -> Result<Loaded<T>, ConfigErrors> {
    let issues = Issues::for_text(file, text);
    let node = Node::from_toml(text, &issues);
    let config = node.and_then(|node| reader(&Field::root(&node, Path::default(), &issues)));
    // Taken before `into_list`, which consumes the collection.
    let notes = issues.take_notes();
    let found = issues.into_list();
    // A reader may return a configuration although it reported errors, such as unknown keys.
    match config {
        Some(config) if found.iter().all(|d| d.severity == Severity::Warning) => Ok(Loaded {
            config,
            warnings: found,
            notes,
        }),
        _ => Err(ConfigErrors(found)),
    }
}

/// Reads a JSON value; messages name the field but no line. `label` is the name of the whole value
/// in messages, such as `policy`, or empty.
///
/// # Errors
/// All mistakes. A warning is an error too, because JSON has no place to show it.
pub fn read_json<T>(
    json: &serde_json::Value,
    label: &str,
    reader: impl FnOnce(&Field<'_>) -> Option<T>,
) -> Result<T, ConfigErrors> {
    let issues = Issues::default();
    let node = Node::from_json(json);
    let read = reader(&Field::root(&node, Path::labelled(label), &issues));
    match (read, issues.into_list()) {
        (Some(read), list) if list.is_empty() => Ok(read),
        (_, list) => Err(ConfigErrors(list)),
    }
}

/// Returns the text of a configuration file.
///
/// # Errors
/// If the file cannot be read, is larger than 16 MiB, contains NUL bytes or is not UTF-8; the
/// message names the file and the reason.
pub fn read_text(path: &FilePath) -> Result<String, String> {
    let fail = |error: &dyn Display| format!("cannot read {}: {error}", path.display());
    let length = std::fs::metadata(path).map_err(|error| fail(&error))?.len();
    // Refused by its length first, so that a disk image given by mistake is not read.
    if length > FILE_MAX {
        return Err(fail(&TOO_LARGE));
    }
    // Pipes and devices have no length, so the read is bounded as well.
    let mut bytes = Vec::new();
    let mut file = std::fs::File::open(path)
        .map_err(|error| fail(&error))?
        // One byte more than allowed, to tell a file of the maximum size from a longer one.
        .take(FILE_MAX + 1);
    file.read_to_end(&mut bytes).map_err(|error| fail(&error))?;
    if bytes.len() as u64 > FILE_MAX {
        return Err(fail(&TOO_LARGE));
    }
    if let Some(at) = bytes.iter().position(|&byte| byte == 0) {
        // From 1, as editors count bytes.
        let at = at + 1;
        return Err(fail(&format!("not a text file (byte {at} is NUL)")));
    }
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to() + 1;
        fail(&format!("not a text file (byte {at} is not UTF-8)"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::section::Section;

    #[test]
    fn warnings_are_returned_with_the_config_or_the_errors() {
        let reader = |root: &Field<'_>| {
            root.warn("looks odd", "another");
            let mut section = Section::open(root)?;
            let n = section.need("n", "n = 1")?.count(1..=9);
            section.finish();
            n
        };
        let loaded = read("n = 3", "f.toml", reader).expect("good");
        assert_eq!((loaded.config, loaded.warnings.len()), (3, 1));
        let refused = read("n = 30", "f.toml", reader).map(|_| ()).unwrap_err();
        assert_eq!(refused.0.len(), 2);
        assert!(read_json(&serde_json::json!({ "n": 3 }), "", reader).is_err());
    }

    #[test]
    fn every_mistake_of_syntax_is_reported_with_its_line() {
        let refused = read("a = \nb = 1\nc = [", "f.toml", |_| Some(()));
        let lines: Vec<_> = (refused.map(|_| ()).unwrap_err().0.iter())
            .map(|d| d.place.as_ref().map(|place| place.line))
            .collect();
        assert_eq!(lines, [Some(1), Some(3)]);
    }

    #[test]
    fn non_text_files_are_refused_with_reason() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("f.toml");
        let read_error = |bytes: &[u8]| {
            std::fs::write(&path, bytes).expect("writable");
            read_text(&path).map_err(|what| what.replace(&path.display().to_string(), "F"))
        };
        let no = |what: &str| Err(format!("cannot read F: {what}"));
        assert_eq!(read_error(b"a = 1"), Ok("a = 1".to_owned()));
        assert_eq!(read_error(b"a\0"), no("not a text file (byte 2 is NUL)"));
        assert_eq!(
            read_error(b"# \xff"),
            no("not a text file (byte 3 is not UTF-8)")
        );
        let endless = read_text(FilePath::new("/dev/zero"));
        assert_eq!(
            endless,
            Err(
                "cannot read /dev/zero: larger than 16 MiB, the maximum for a configuration file"
                    .to_owned()
            )
        );
        let file = std::fs::File::create(&path).expect("writable");
        file.set_len(FILE_MAX + 1).expect("sparse");
        let what = "larger than 16 MiB, the maximum for a configuration file";
        assert_eq!(
            read_text(&path).map_err(|w| w.replace(&path.display().to_string(), "F")),
            no(what)
        );
    }
}
