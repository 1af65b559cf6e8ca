//! Surroundings of a file that is read: its folder, and the library of what comes with the program.

use std::path::{Component, Path, PathBuf};

use tidegate_config::{Field, Library};

/// What fits into `sockaddr_un`, with its terminating zero.
const SOCKET_PATH_MAX: usize = 107;

/// What a file is read against.
pub(crate) struct Context<'a> {
    /// Relative paths are relative to this.
    pub(crate) base: &'a Path,
    pub(crate) library: &'a dyn Library,
}

impl Context<'_> {
    /// A path as the file means it.
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

/// A path as a file in `base` means it.
pub(crate) fn path(base: &Path, field: &Field<'_>) -> Option<PathBuf> {
    let text = field.text()?;
    if text.is_empty() || text.contains('\0') {
        field.error(
            format!("{} is no path", field.describe()),
            "the path of a file",
        );
        return None;
    }
    // Without its "." parts, so that one file has one name here. A leading one stands even in
    // `components()`, and `base` is empty where the file itself was named without a directory.
    let path: PathBuf = (base.join(text).components())
        .filter(|part| *part != Component::CurDir)
        .collect();
    Some(match path.as_os_str().is_empty() {
        true => ".".into(),
        false => path,
    })
}
