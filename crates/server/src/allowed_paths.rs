//! Directories and devices that disks added by the control API may be on.
//!
//! The author of the configuration file may name any file of the host. A client of the control API
//! may not: the paths of disks from the API and from the store must lead into a list, the key
//! `allow` of `[paths]`.
//!
//! ```text
//!   path --links resolved--> in the list? --> opened --> path of the open file in the list?
//! ```
//!
//! The second check is on the open file, since links may change in between.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// List of directories, files and block devices in which a path must end after its symbolic links
/// are resolved. Cheap to clone.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AllowedPaths {
    list: Arc<[PathBuf]>,
    /// Files that are never allowed: that of the configuration, which is in the default directory,
    /// and those of TLS, which mostly are.
    except: Arc<[PathBuf]>,
}

/// Reason for which a path may not be used, to follow the path and a colon.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct NotAllowed(Box<str>);

impl AllowedPaths {
    /// Makes a list of absolute paths; relative ones are relative to the working directory.
    pub fn new(paths: impl IntoIterator<Item = PathBuf>) -> AllowedPaths {
        let absolute = |path: PathBuf| std::path::absolute(&path).unwrap_or(path);
        AllowedPaths {
            list: paths.into_iter().map(absolute).collect(),
            except: Arc::default(),
        }
    }

    /// Returns the list without some files.
    pub fn except(self, files: impl IntoIterator<Item = PathBuf>) -> AllowedPaths {
        AllowedPaths {
            except: files.into_iter().collect(),
            ..self
        }
    }

    /// Checks a path that is about to be opened or created. It has to be in the list as it is
    /// written, too: links of others could be changed at any time.
    ///
    /// # Errors
    /// If it leads out of the list. A path whose directory cannot be found is not in the list.
    pub fn check(&self, path: &Path) -> Result<(), NotAllowed> {
        if !self.names(path) {
            return Err(self.refusal(path, path));
        }
        match resolve(path) {
            Ok(found) if self.has(&found) || self.has_link_to_device(path, &found) => Ok(()),
            Ok(found) => Err(self.refusal(path, &found)),
            Err(_) => Err(self.refusal(path, path)),
        }
    }

    /// Checks a file that was opened by a path.
    ///
    /// # Errors
    /// If the file is not in the list: a symbolic link was changed after [`AllowedPaths::check`].
    pub fn check_open(&self, path: &Path, file: &File) -> Result<(), NotAllowed> {
        let link = format!("/proc/self/fd/{}", file.as_raw_fd());
        match fs::read_link(link) {
            Ok(found) if self.has(&found) || self.has_link_to_device(path, &found) => Ok(()),
            Ok(found) => Err(self.refusal(path, &found)),
            Err(_) => Err(self.refusal(path, path)),
        }
    }

    /// Returns true if a path is in the list as it is written, without a look at the file system.
    pub fn names(&self, path: &Path) -> bool {
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let goes_up = path.components().any(|part| part.as_os_str() == "..");
        !goes_up && self.list.iter().any(|allowed| path.starts_with(allowed))
    }

    /// Returns true if a path without symbolic links is in the list.
    fn has(&self, path: &Path) -> bool {
        let is_in = |allowed: &PathBuf| {
            // An entry that does not exist allows nothing.
            fs::canonicalize(allowed).is_ok_and(|allowed| path.starts_with(allowed))
        };
        let is_path = |file: &PathBuf| fs::canonicalize(file).is_ok_and(|file| path == file);
        self.list.iter().any(is_in) && !self.except.iter().any(is_path)
    }

    /// Returns true if `found` is a block device and the path a symbolic link to it in a directory
    /// of the list, as those of a volume group are. Only root may have made the link.
    fn has_link_to_device(&self, path: &Path, found: &Path) -> bool {
        let is_device = fs::metadata(found).is_ok_and(|meta| meta.file_type().is_block_device());
        let leads_there = fs::canonicalize(path).is_ok_and(|target| target == found);
        let Some(directory) = directory_of(path).and_then(|path| fs::canonicalize(path).ok())
        else {
            return false;
        };
        let is_roots = |path: &Path| fs::symlink_metadata(path).is_ok_and(|meta| meta.uid() == 0);
        let is_closed = fs::metadata(&directory).is_ok_and(|meta| meta.mode() & 0o022 == 0);
        let is_safe = is_closed && is_roots(&directory) && is_roots(path);
        is_device && leads_there && is_safe && self.has(&directory)
    }

    fn refusal(&self, path: &Path, found: &Path) -> NotAllowed {
        // Where links outside of the list lead is not for those who may not read them.
        let found = if self.names(path) && found != path {
            format!("leads to {}, which is", found.display())
        } else {
            "is".to_owned()
        };
        let list: Vec<String> = self
            .list
            .iter()
            .map(|path| path.display().to_string())
            .collect();
        let list = match list.is_empty() {
            true => "an empty list".to_owned(),
            false => list.join(", "),
        };
        let what = format!(
            "{found} outside of {list}, the only place for disks of the control API; add its \
             directory to `allow` under [paths] in the configuration, or name the disk there"
        );
        NotAllowed(what.into())
    }
}

/// Returns the directory that a path names, with "." for that of a bare file name.
fn directory_of(path: &Path) -> Option<&Path> {
    let directory = path.parent()?;
    Some(if directory.as_os_str().is_empty() {
        Path::new(".")
    } else {
        directory
    })
}

/// Returns a path without symbolic links; of a file that does not exist, its directory's with the
/// file's name.
fn resolve(path: &Path) -> io::Result<PathBuf> {
    match fs::canonicalize(path) {
        // A link that leads nowhere has a file name as well, but is not created through.
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let (Some(directory), Some(name)) = (directory_of(path), path.file_name()) else {
                return Err(error);
            };
            Ok(fs::canonicalize(directory)?.join(name))
        }
        resolved => resolved,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// A directory of VMs beside one with a secret.
    struct Host {
        root: tempfile::TempDir,
        allowed: AllowedPaths,
    }

    impl Host {
        fn new() -> Host {
            let root = tempfile::tempdir().expect("a directory");
            let at = |name: &str| root.path().join(name);
            for directory in ["vms", "vms/web", "vms-of-others"] {
                fs::create_dir(at(directory)).expect("writable");
            }
            for file in [
                "vms/a.raw",
                "vms/web/b.raw",
                "secret",
                "vms-of-others/c.raw",
            ] {
                fs::write(at(file), b"bytes").expect("writable");
            }
            let allowed = AllowedPaths::new([at("vms")]);
            Host { root, allowed }
        }

        fn at(&self, name: &str) -> PathBuf {
            self.root.path().join(name)
        }

        fn allows(&self, name: &str) -> bool {
            self.allowed.check(&self.at(name)).is_ok()
        }
    }

    #[test]
    fn paths_in_the_list_are_allowed_and_others_are_not() {
        let host = Host::new();
        assert!(host.allows("vms/a.raw"));
        assert!(host.allows("vms/web/b.raw"));
        assert!(host.allows("vms/new.raw"), "about to be created");
        assert!(!host.allows("secret"));
        assert!(
            !host.allows("vms-of-others/c.raw"),
            "a name that begins alike"
        );
        assert!(!host.allows("vms/../secret"));
        assert!(
            !host.allows("vms-of-others/../vms/a.raw"),
            "not as it is written"
        );
        assert!(!host.allows("vms/none/new.raw"), "no such directory");
        assert!(!host.allows(""));
    }

    #[test]
    fn a_symbolic_link_is_followed_before_the_check() {
        let host = Host::new();
        symlink(host.at("secret"), host.at("vms/link.raw")).expect("writable");
        symlink(host.root.path(), host.at("vms/up")).expect("writable");
        symlink(host.at("vms/a.raw"), host.at("shortcut.raw")).expect("writable");
        symlink(host.at("gone"), host.at("vms/dangling.raw")).expect("writable");
        assert!(!host.allows("vms/link.raw"));
        assert!(!host.allows("vms/up/secret"));
        assert!(!host.allows("vms/up/new.raw"), "created outside");
        assert!(
            !host.allows("shortcut.raw"),
            "a link of others into the list"
        );
        let refusal = (host.allowed.check(&host.at("vms/link.raw"))).expect_err("leads out");
        let secret = fs::canonicalize(host.at("secret")).expect("there");
        assert!(
            refusal
                .to_string()
                .contains(&format!("leads to {}", secret.display()))
        );
        assert!(refusal.to_string().contains("`allow` under [paths]"));
        symlink(host.at("secret"), host.at("elsewhere")).expect("writable");
        let refusal = (host.allowed.check(&host.at("elsewhere"))).expect_err("outside");
        assert!(!refusal.to_string().contains("secret"), "{refusal}");
    }

    #[test]
    fn an_open_file_is_checked_where_it_really_is() {
        let host = Host::new();
        let link = host.at("vms/link.raw");
        symlink(host.at("vms/a.raw"), &link).expect("writable");
        let inside = File::open(&link).expect("there");
        host.allowed.check_open(&link, &inside).expect("inside");
        // The link is changed between the check and the open.
        fs::remove_file(&link).expect("there");
        symlink(host.at("secret"), &link).expect("writable");
        let outside = File::open(&link).expect("there");
        assert!(host.allowed.check_open(&link, &outside).is_err());
        host.allowed
            .check_open(&link, &inside)
            .expect("still that file");
    }

    #[test]
    fn an_entry_may_be_a_link_or_a_file_or_not_exist() {
        let host = Host::new();
        symlink(host.at("vms"), host.at("all")).expect("writable");
        let by_link = AllowedPaths::new([host.at("all")]);
        assert!(
            by_link.check(&host.at("vms/a.raw")).is_err(),
            "not as it is written"
        );
        by_link.check(&host.at("all/a.raw")).expect("by the link");
        let one = AllowedPaths::new([host.at("secret"), host.at("not-there")]);
        one.check(&host.at("secret")).expect("the file itself");
        assert!(one.check(&host.at("vms/a.raw")).is_err());
        assert!(one.check(&host.at("not-there/a.raw")).is_err());
        let none = AllowedPaths::new([]);
        let refusal = none
            .check(&host.at("secret"))
            .expect_err("nothing is allowed");
        assert!(refusal.to_string().contains("an empty list"), "{refusal}");
    }

    #[test]
    fn the_file_of_the_configuration_is_not_for_disks() {
        let host = Host::new();
        let allowed = host.allowed.clone().except([host.at("vms/a.raw")]);
        assert!(allowed.check(&host.at("vms/a.raw")).is_err());
        allowed
            .check(&host.at("vms/web/b.raw"))
            .expect("another file");
    }

    #[test]
    fn names_looks_at_the_path_alone() {
        let host = Host::new();
        assert!(host.allowed.names(&host.at("vms/none/new.raw")));
        assert!(!host.allowed.names(&host.at("vms/../secret")));
        assert!(!host.allowed.names(&host.at("vms-of-others/c.raw")));
    }
}
