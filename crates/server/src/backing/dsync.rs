//! Durability of writes with FUA, chosen by the file system of the disk's file.
//!
//! `RWF_DSYNC` is the cheapest way: one system call, and on a disk that supports FUA no flush of
//! its whole cache. A file system that completes direct I/O asynchronously has to remember the flag
//! until the write ends, and not all do. FUSE drops it: the write then completes without error and
//! sits in a volatile cache. The flag is therefore used only on file systems that are known to
//! honour it ([`HONOURS_DSYNC`], reasons in `docs/durability.md`). On all others the write goes
//! without the flag, and `fdatasync` follows before the reply.

use std::collections::BTreeSet;
use std::fs::File;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use crate::ring::sys;

/// Method that makes a write with FUA durable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Durably {
    /// `RWF_DSYNC` on the write itself.
    Flag,
    /// `fdatasync` after the write has ended.
    Sync,
}

/// File systems whose asynchronous direct writes are durable with `RWF_DSYNC`: `f_type` of
/// `statfs(2)`, and name.
pub const HONOURS_DSYNC: [(i64, &str); 4] = [
    (0xEF53, "ext2/ext3/ext4"),
    (0x5846_5342, "xfs"),
    (0x9123_683E, "btrfs"),
    // On tmpfs nothing is ever durable, so there is nothing to wait for.
    (sys::TMPFS_MAGIC, "tmpfs"),
];

/// Common file systems on which `RWF_DSYNC` is not trusted, named for the log: `f_type` of
/// `statfs(2)`, and name.
const OTHERS: [(i64, &str); 11] = [
    (0x6573_5546, "fuse"),
    (0x6969, "nfs"),
    (0x0102_1997, "9p"),
    (0xFF53_4D42, "cifs"),
    (0xFE53_4D42, "smb2"),
    (0x00C3_6400, "ceph"),
    (0x794C_7630, "overlayfs"),
    (0xF2F5_2010, "f2fs"),
    (0x2FC1_2FC1, "zfs"),
    (0xCA45_1A4E, "bcachefs"),
    (0x0116_1970, "gfs2"),
];

impl Durably {
    /// Returns the method for a file system with this `f_type`; `None` if it is unknown.
    pub fn on_filesystem(magic: Option<i64>) -> Durably {
        match magic.and_then(honours) {
            Some(_) => Durably::Flag,
            None => Durably::Sync,
        }
    }

    /// Returns the method for an open file or block device, and logs it once for each kind of file
    /// system.
    pub fn for_file(file: &File, path: &Path, block_device: bool) -> Durably {
        if block_device {
            // A block device's node lies on devtmpfs, whose `f_type` tells nothing about the
            // device.
            say_once(None, || {
                "block devices: a FUA write is one write with RWF_DSYNC".to_owned()
            });
            return Durably::Flag;
        }
        let magic = sys::filesystem(file).ok();
        let chosen = Durably::on_filesystem(magic);
        say_once(Some(magic.unwrap_or(0)), || {
            let name = magic.map_or_else(|| "an unknown file system".to_owned(), name);
            let first = path.display();
            match chosen {
                Durably::Flag => {
                    format!("{name} ({first}): a FUA write is one write with RWF_DSYNC")
                }
                Durably::Sync => format!(
                    "{name} ({first}): fdatasync follows each FUA write, because this file system \
                     is not known to honour RWF_DSYNC"
                ),
            }
        });
        chosen
    }
}

/// Returns the name of a file system that honours `RWF_DSYNC`; `None` for all others.
fn honours(magic: i64) -> Option<&'static str> {
    let known = HONOURS_DSYNC.iter().find(|(known, _)| *known == magic);
    known.map(|(_, name)| *name)
}

/// Returns the name of a file system, or its `f_type` in hexadecimal if it is in neither list.
fn name(magic: i64) -> String {
    let other = || OTHERS.iter().find(|(known, _)| *known == magic);
    match honours(magic).or_else(|| other().map(|(_, name)| *name)) {
        Some(name) => name.to_owned(),
        None => format!("file system {magic:#x}"),
    }
}

/// Logs `line` the first time this process meets a kind of file system, given by its `f_type`
/// (`None` for block devices). A host with a thousand disks has one or two kinds.
fn say_once(kind: Option<i64>, line: impl FnOnce() -> String) {
    static SAID: Mutex<BTreeSet<Option<i64>>> = Mutex::new(BTreeSet::new());
    let mut logged = SAID.lock().unwrap_or_else(PoisonError::into_inner);
    if logged.insert(kind) {
        tracing::info!("{}", line());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_flag_is_trusted_only_where_the_filesystem_is_known_to_honour_it() {
        for (magic, _) in HONOURS_DSYNC {
            assert_eq!(Durably::on_filesystem(Some(magic)), Durably::Flag);
        }
        for (magic, name) in OTHERS {
            assert_eq!(Durably::on_filesystem(Some(magic)), Durably::Sync, "{name}");
        }
        assert_eq!(Durably::on_filesystem(Some(0x1234)), Durably::Sync);
        assert_eq!(Durably::on_filesystem(None), Durably::Sync);
    }

    #[test]
    fn the_guide_lists_every_file_system_that_is_trusted() {
        let guide = include_str!("../../../../docs/durability.md");
        for (magic, name) in HONOURS_DSYNC {
            let row = format!("| {name} | `{magic:#X}` |").replace("0X", "0x");
            assert!(guide.contains(&row), "docs/durability.md has no row {row}");
        }
    }
}
