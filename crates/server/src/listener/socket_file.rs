//! File of a unix socket between its bind and its rename, in a directory whose owner may be
//! hostile.

use std::fs::{File, Metadata, Permissions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::Path;

use crate::ring::sys;

/// File of a unix socket, held by a descriptor.
///
/// The owner of the directory may replace the file at its path at any time, for example by a
/// symbolic link to a file of root's. Mode and owner are therefore set by the descriptor.
pub(super) struct SocketFile {
    file: File,
    meta: Metadata,
}

impl SocketFile {
    /// Opens the file of a socket that was just bound.
    ///
    /// # Errors
    /// If a system call fails, or if the file is not the only link of a socket: it was replaced. A
    /// hard link of another directory's socket has two.
    pub(super) fn open(path: &Path) -> io::Result<SocketFile> {
        let file = sys::open_reference(path)?;
        let meta = file.metadata()?;
        if !meta.file_type().is_socket() || meta.nlink() != 1 {
            return Err(io::Error::other(
                "another process has replaced it: only the daemon's user and root may have write \
                 access to its directory",
            ));
        }
        Ok(SocketFile { file, meta })
    }

    /// Returns the path of the descriptor. System calls that take a descriptor of a file that is
    /// open by `O_PATH` alone are missing before Linux 6.6; by its path all can change the file.
    fn by_descriptor(&self) -> String {
        format!("/proc/self/fd/{}", self.file.as_raw_fd())
    }

    /// Returns the identity of the file: its device and inode.
    pub(super) fn identity(&self) -> (u64, u64) {
        (self.meta.dev(), self.meta.ino())
    }

    /// Sets the permissions.
    ///
    /// # Errors
    /// If the system call fails.
    pub(super) fn set_mode(&self, mode: u32) -> io::Result<()> {
        std::fs::set_permissions(self.by_descriptor(), Permissions::from_mode(mode))
    }

    /// Sets user and group; `None` leaves them as they are.
    ///
    /// # Errors
    /// If the system call fails.
    pub(super) fn set_owner(&self, user: Option<u32>, group: Option<u32>) -> io::Result<()> {
        if user.is_none() && group.is_none() {
            return Ok(());
        }
        std::os::unix::fs::chown(self.by_descriptor(), user, group)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;
    use std::path::PathBuf;

    use super::*;

    /// Owner, group and permissions of a file, whose links are not followed.
    fn access(path: &Path) -> (u32, u32, u32) {
        let meta = std::fs::symlink_metadata(path).expect("a file");
        (meta.uid(), meta.gid(), meta.mode() & 0o777)
    }

    /// Directory with a file and a socket of somebody else, and a place for a new socket.
    fn directory() -> (tempfile::TempDir, [PathBuf; 2], PathBuf) {
        let dir = tempfile::tempdir().expect("a directory");
        let victims = ["file", "socket"].map(|name| dir.path().join(name));
        std::fs::write(&victims[0], b"secret").expect("writable");
        let _bound = UnixListener::bind(&victims[1]).expect("bound");
        for victim in &victims {
            std::fs::set_permissions(victim, Permissions::from_mode(0o600)).expect("ours");
        }
        let fresh = dir.path().join("fresh");
        (dir, victims, fresh)
    }

    #[test]
    fn a_file_that_replaced_the_socket_before_it_is_opened_is_refused() {
        let (_dir, victims, fresh) = directory();
        let links: [fn(&Path, &Path) -> io::Result<()>; 2] = [
            |to, at| symlink(to, at),
            |to, at| std::fs::hard_link(to, at),
        ];
        for victim in &victims {
            for link in links {
                link(victim, &fresh).expect("linked");
                let refused = SocketFile::open(&fresh).err().expect("refused");
                assert!(refused.to_string().contains("replaced"), "{refused}");
                std::fs::remove_file(&fresh).expect("a link");
            }
        }
    }

    #[test]
    fn a_link_that_replaces_the_socket_later_has_neither_its_mode_nor_its_owner_followed() {
        let (dir, victims, fresh) = directory();
        let _bound = UnixListener::bind(&fresh).expect("bound");
        let file = SocketFile::open(&fresh).expect("a socket");
        let moved = dir.path().join("moved");
        std::fs::rename(&fresh, &moved).expect("ours");
        symlink(&victims[0], &fresh).expect("linked");
        let before = access(&victims[0]);
        file.set_mode(0o666).expect("ours");
        assert_eq!((access(&moved).2, access(&victims[0])), (0o666, before));
        // Only root may give a file away. For others the call fails, and changes no other file.
        let given = file.set_owner(Some(12_345), Some(23_456));
        let (user, group, _) = access(&moved);
        assert_eq!(given.is_ok(), (user, group) == (12_345, 23_456));
        assert_eq!(access(&victims[0]), before);
    }
}
