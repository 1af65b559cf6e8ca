//! Context of a file that is read: its directory and the library of models, profiles and traces.

use std::path::{Component, Path, PathBuf};

use tidegate_config::{Field, Library};

/// Maximum length of a socket path in bytes, without the terminating zero of `sockaddr_un`.
const SOCKET_PATH_MAX: usize = 107;

/// Context of a file that is read.
pub(crate) struct Context<'a> {
    /// Directory for relative paths.
    pub(crate) base: &'a Path,
    pub(crate) library: &'a dyn Library,
}

impl Context<'_> {
    /// Reads a path, relative to the file's directory.
    pub(crate) fn path(&self, field: &Field<'_>) -> Option<PathBuf> {
        path(self.base, field)
    }

    pub(crate) fn socket_path(&self, field: &Field<'_>) -> Option<PathBuf> {
        let path = self.path(field)?;
        let length = path.as_os_str().len();
        if length > SOCKET_PATH_MAX {
            field.error(
                format!("{} is {length} bytes long", path.display()),
                &format!("a unix socket's path has at most {SOCKET_PATH_MAX} bytes"),
            );
            return None;
        }
        Some(path)
    }
}

/// Reads a path, relative to `base`.
pub(crate) fn path(base: &Path, field: &Field<'_>) -> Option<PathBuf> {
    let text = field.text()?;
    if text.is_empty() || text.contains('\0') {
        field.error(
            format!("{} is not a path", field.describe()),
            "the path of a file",
        );
        return None;
    }
    // "." parts are removed, so that a file has one spelling. `components()` keeps a leading one,
    // and `base` is empty if the file was named without a directory.
    let path: PathBuf = (base.join(text).components())
        .filter(|part| *part != Component::CurDir)
        .collect();
    if path.as_os_str().is_empty() {
        return Some(".".into());
    }
    Some(path)
}
