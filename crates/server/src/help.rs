//! What would help where something failed, for kinds of failure that files and sockets share.

use std::path::Path;

/// What would help where a file or a socket cannot be made: its directory is missing.
pub fn missing_directory(path: &Path) -> Option<String> {
    let directory = path.parent().filter(|d| !d.as_os_str().is_empty())?;
    (!directory.exists()).then(|| {
        format!(
            "there is no directory {}: make it (mkdir -p), or choose another place",
            directory.display()
        )
    })
}
