//! One Rust file of the workspace.

use crate::parse::ParsedFile;

/// A Rust file and what was extracted from it.
pub(crate) struct Source {
    /// Path relative to the workspace's root, with `/`.
    pub(crate) path: String,
    pub(crate) text: String,
    pub(crate) parsed: ParsedFile,
}
