//! Directory of the sockets of a daemon without a configuration file.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::problem::Problem;
use anyhow::Result;

/// Name of the directory below that of the user.
const NAME: &str = "tidegate";
/// Mode of the directory: sockets have modes of their own, but nobody else has to find them.
const MODE: u32 = 0o700;

/// Directory of sockets, which is removed again where it was created and is empty.
#[derive(Debug)]
pub(in crate::commands) struct RuntimeDirectory {
    path: PathBuf,
    is_ours: bool,
}

impl RuntimeDirectory {
    /// Returns the path of the directory, which may not exist: `/run/tidegate` for root, else in
    /// the user's runtime directory, else in that for temporary files.
    pub(in crate::commands) fn path() -> PathBuf {
        let user = rustix::process::geteuid();
        if user.is_root() {
            return Path::new("/run").join(NAME);
        }
        let by_session = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
        let by_user = PathBuf::from(format!("/run/user/{}", user.as_raw()));
        let runtime = by_session.into_iter().chain([by_user]);
        let mut usable = runtime.filter(|path| path.is_absolute() && path.is_dir());
        match usable.next() {
            Some(path) => path.join(NAME),
            None => std::env::temp_dir().join(format!("{NAME}-{}", user.as_raw())),
        }
    }

    /// Creates a directory for sockets if it does not exist.
    ///
    /// # Errors
    /// If it cannot be created, or belongs to another user, who could replace the sockets.
    pub(in crate::commands) fn create(path: PathBuf) -> Result<RuntimeDirectory> {
        let failed = |what: String| {
            let problem = Problem::new(format!("{}: {what}", path.display()));
            let help = "put the sockets elsewhere: --listen PATH and --control-socket PATH";
            anyhow::Error::from(problem.help(help))
        };
        let is_ours = match DirBuilder::new().mode(MODE).create(&path) {
            Ok(()) => true,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => false,
            Err(error) => return Err(failed(format!("cannot create the directory: {error}"))),
        };
        // Without following a link: another user may have put one there.
        let found = fs::symlink_metadata(&path).map_err(|error| failed(error.to_string()))?;
        let user = rustix::process::geteuid().as_raw();
        if !found.is_dir() || found.uid() != user {
            return Err(failed("not a directory of this user".to_owned()));
        }
        Ok(RuntimeDirectory { path, is_ours })
    }
}

impl Drop for RuntimeDirectory {
    fn drop(&mut self) {
        if self.is_ours {
            // Fails if another daemon has a socket in it, which then needs the directory.
            let _ = fs::remove_dir(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_was_created_goes_once_it_is_empty() {
        let outer = tempfile::tempdir().expect("a directory");
        let path = outer.path().join("t");
        let make = || RuntimeDirectory::create(path.clone()).expect("created");
        let first = make();
        let second = make();
        fs::write(path.join("socket"), "").expect("writable");
        drop(first);
        assert!(path.exists(), "somebody uses it");
        fs::remove_file(path.join("socket")).expect("there");
        drop(second);
        assert!(path.exists(), "it was there before");
        drop(RuntimeDirectory {
            path: path.clone(),
            is_ours: true,
        });
        assert!(!path.exists());
    }

    #[test]
    fn a_link_in_its_place_is_refused() {
        let outer = tempfile::tempdir().expect("a directory");
        let link = outer.path().join("t");
        std::os::unix::fs::symlink(outer.path(), &link).expect("writable");
        let error = RuntimeDirectory::create(link).expect_err("refused");
        assert!(error.to_string().contains("not a directory of this user"));
    }
}
