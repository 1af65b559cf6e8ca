//! Hints for failures that files and sockets have in common.

use std::path::Path;

/// Returns a hint if the directory that is to hold a file or socket does not exist.
pub fn missing_directory(path: &Path) -> Option<String> {
    let directory = path.parent().filter(|d| !d.as_os_str().is_empty())?;
    (!directory.exists()).then(|| {
        format!(
            "directory {} does not exist: create it (mkdir -p), or choose another path",
            directory.display()
        )
    })
}
