//! One Rust file of the workspace.

use crate::parse::Facts;

/// A Rust file and what was extracted from it.
pub(crate) struct Source {
    /// Path relative to the workspace's root, with `/`.
    pub(crate) path: String,
    pub(crate) text: String,
    pub(crate) facts: Facts,
}
