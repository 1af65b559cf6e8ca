//! Context of a configuration file: its directory, and the library of catalogue files.

use std::path::{Component, Path, PathBuf};

use tidegate_config::{Field, Library};

/// Longest path of a unix socket in bytes: `sun_path` of `sockaddr_un`, less the terminating NUL.
const SOCKET_PATH_MAX: usize = 107;

/// Directory and library against which a file's values are resolved.
pub(crate) struct Context<'a> {
    /// Directory that relative paths are relative to.
    pub(crate) base: &'a Path,
    pub(crate) library: &'a dyn Library,
}

impl Context<'_> {
    /// Returns the path that a field names, resolved against the base directory.
    pub(crate) fn path(&self, field: &Field<'_>) -> Option<PathBuf> {
        path(self.base, field)
    }

    pub(crate) fn socket_path(&self, field: &Field<'_>) -> Option<PathBuf> {
        let path = self.path(field)?;
        check_length(&path, field).then_some(path)
    }
}

/// Reports a path of a socket that is too long at its field; returns true if it is not.
pub(crate) fn check_length(path: &Path, field: &Field<'_>) -> bool {
    let length = path.as_os_str().len();
    if length > SOCKET_PATH_MAX {
        field.error(
            format!("{} is {length} bytes long", path.display()),
            &format!("a unix socket's path has at most {SOCKET_PATH_MAX} bytes"),
        );
    }
    length <= SOCKET_PATH_MAX
}

/// Returns the path that a field names, resolved against `base`.
pub(crate) fn path(base: &Path, field: &Field<'_>) -> Option<PathBuf> {
    let text = field.text()?;
    if text.is_empty() || text.contains('\0') {
        field.error(
            format!("{} is no path", field.describe()),
            "the path of a file",
        );
        return None;
    }
    // "." components are removed, so that one file has one name in checks for duplicates. The join
    // may keep a leading one, because `base` is empty for a file named without a directory.
    let path: PathBuf = (base.join(text).components())
        .filter(|part| *part != Component::CurDir)
        .collect();
    Some(if path.as_os_str().is_empty() {
        ".".into()
    } else {
        path
    })
}
