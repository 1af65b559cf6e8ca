//! Disks that a command line names, not a configuration: why one is refused, in options.

use std::io::ErrorKind;

use tidegate_server::backing::OpenError;

use crate::problem::Problem;

/// Returns the error for a disk that cannot be served. `option` named the disk; `missing` is the
/// advice for one whose file does not exist.
pub(super) fn refused(error: &OpenError, option: &str, missing: &str) -> Problem {
    let problem = |what: String| Problem::new(what).at(option);
    match error {
        OpenError::Format { path, format } => {
            let path = path.display();
            problem(format!(
                "{path}: looks like a {format} image, not like a raw disk"
            ))
            .help(format!(
                "convert it (`qemu-img convert -O raw {path} NEW`), or add --format raw if \
                 it is a raw disk"
            ))
        }
        OpenError::Io { source: io, .. } => match io.kind() {
            ErrorKind::NotFound => problem(error.to_string()).help(missing),
            ErrorKind::PermissionDenied => problem(error.to_string()).help(
                "this user must be able to read and write it, or to read it with --read-only",
            ),
            _ => problem(error.to_string()),
        },
        _ => match error.help() {
            Some(help) => problem(error.to_string()).help(help),
            None => problem(error.to_string()),
        },
    }
}
