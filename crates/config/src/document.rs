//! A document as a whole: from a file's bytes to what a reader makes of it.

use std::fmt::Display;
use std::io::Read;
use std::path::Path as FilePath;

use crate::diagnose::{ConfigErrors, Diagnostic, Issues, Severity};
use crate::field::Field;
use crate::node::Node;
use crate::path::Path;

/// A configuration file larger than this is somebody's disk image.
const FILE_MAX: u64 = 16 << 20;

/// What a document says, and what is to be said about it.
#[derive(Clone, Debug)]
pub struct Loaded<T> {
    /// Complete and checked.
    pub config: T,
    /// What it seems to say and does not do.
    pub warnings: Vec<Diagnostic>,
    /// Old spellings in it, for standard error.
    pub notes: Vec<Diagnostic>,
}

/// Reads a text in TOML. `file` is its name in messages; `reader` makes something of the root
/// table, or reports what is wrong and returns `None`.
///
/// # Errors
/// Everything that is wrong with it, in the order of the text, the warnings among it.
pub fn read<T>(
    text: &str,
    file: &str,
    reader: impl FnOnce(&Field<'_>) -> Option<T>,
) -> Result<Loaded<T>, ConfigErrors> {
    let issues = Issues::of(file, text);
    let node = Node::from_toml(text, &issues);
    let config = node.and_then(|node| reader(&Field::root(&node, Path::default(), &issues)));
    let notes = issues.take_notes();
    let found = issues.into_list();
    match config {
        Some(config) if found.iter().all(|d| d.severity == Severity::Warning) => Ok(Loaded {
            config,
            warnings: found,
            notes,
        }),
        _ => Err(ConfigErrors(found)),
    }
}

/// Reads a value in JSON, from which messages have no place but the field. `label` is what they
/// call the value as a whole, such as `policy`; empty for nothing.
///
/// # Errors
/// Everything that is wrong with it. There is nowhere to show a warning: it refuses, too.
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

/// The text of a configuration file.
///
/// # Errors
/// When it cannot be read, has more than 16 MiB, holds NUL bytes or is not UTF-8: says which
/// file, and why.
pub fn read_text(path: &FilePath) -> Result<String, String> {
    let fail = |error: &dyn Display| format!("cannot read {}: {error}", path.display());
    let length = std::fs::metadata(path).map_err(|error| fail(&error))?.len();
    if length > FILE_MAX {
        return Err(fail(&format!(
            "{length} bytes are too many for a configuration"
        )));
    }
    // Neither a pipe nor a device tells how much it will give.
    let mut bytes = Vec::new();
    let mut file = std::fs::File::open(path)
        .map_err(|error| fail(&error))?
        .take(FILE_MAX + 1);
    file.read_to_end(&mut bytes).map_err(|error| fail(&error))?;
    if bytes.len() as u64 > FILE_MAX {
        return Err(fail(&"too many bytes for a configuration"));
    }
    if let Some(at) = bytes.iter().position(|&byte| byte == 0) {
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
    fn warnings_do_not_refuse_a_document_but_go_with_its_errors() {
        let reader = |root: &Field<'_>| {
            root.warn("looks odd", "another");
            let mut section = Section::of(root)?;
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
    fn what_is_no_text_is_said_to_be_none() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("f.toml");
        let said = |bytes: &[u8]| {
            std::fs::write(&path, bytes).expect("writable");
            read_text(&path).map_err(|what| what.replace(&path.display().to_string(), "F"))
        };
        let no = |what: &str| Err(format!("cannot read F: {what}"));
        assert_eq!(said(b"a = 1"), Ok("a = 1".to_owned()));
        assert_eq!(said(b"a\0"), no("not a text file (byte 2 is NUL)"));
        assert_eq!(said(b"# \xff"), no("not a text file (byte 3 is not UTF-8)"));
        let endless = read_text(FilePath::new("/dev/zero"));
        assert_eq!(
            endless,
            Err("cannot read /dev/zero: too many bytes for a configuration".to_owned())
        );
        let file = std::fs::File::create(&path).expect("writable");
        file.set_len(FILE_MAX + 1).expect("sparse");
        let what = "16777217 bytes are too many for a configuration";
        assert_eq!(
            read_text(&path).map_err(|w| w.replace(&path.display().to_string(), "F")),
            no(what)
        );
    }
}
