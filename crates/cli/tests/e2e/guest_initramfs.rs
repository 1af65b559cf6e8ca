//! Initramfs of a Linux guest: a cpio archive, in the format that the kernel calls `newc`.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

const DIRECTORY: u32 = 0o040_000;
const FILE: u32 = 0o100_000;

/// Archive that the kernel unpacks into its first file system.
#[derive(Debug, Default)]
pub(crate) struct Initramfs {
    bytes: Vec<u8>,
    /// Number of entries so far, which serves as inode number.
    entries: u32,
}

impl Initramfs {
    /// Adds everything below a directory of the host, with its permissions.
    pub(crate) fn tree(&mut self, root: &Path) -> &mut Initramfs {
        self.tree_at(root, "");
        self
    }

    fn tree_at(&mut self, directory: &Path, prefix: &str) {
        let entries = fs::read_dir(directory).expect("setup made it");
        let mut paths: Vec<_> = entries
            .map(|entry| entry.expect("it lists").path())
            .collect();
        paths.sort();
        for path in paths {
            let name = path.file_name().and_then(|name| name.to_str());
            let name = format!("{prefix}{}", name.expect("plain names only"));
            if path.is_dir() {
                self.directory(&name);
                self.tree_at(&path, &format!("{name}/"));
            } else {
                let bytes = fs::read(&path).expect("setup made it");
                let mode = path.metadata().expect("it was just read").permissions();
                self.file(&name, mode.mode() & 0o777, &bytes);
            }
        }
    }

    /// Adds a directory; its parents must have been added before.
    pub(crate) fn directory(&mut self, name: &str) -> &mut Initramfs {
        self.entry(name, DIRECTORY | 0o755, &[]);
        self
    }

    /// Adds a file; its directories must have been added before.
    pub(crate) fn file(&mut self, name: &str, permissions: u32, bytes: &[u8]) -> &mut Initramfs {
        self.entry(name, FILE | permissions, bytes);
        self
    }

    /// Returns the archive with the entry that ends it.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, &[]);
        self.bytes
    }

    fn entry(&mut self, name: &str, mode: u32, bytes: &[u8]) {
        self.entries += 1;
        let len = |len: usize| u32::try_from(len).expect("far less than 4 GiB");
        let fields = [
            self.entries, // inode number
            mode,
            0, // owner
            0, // group
            1, // links
            0, // time of modification
            len(bytes.len()),
            0, // device that holds the file: major number
            0, // ... minor number
            0, // device that the file is, if any: major number
            0, // ... minor number
            len(name.len() + 1),
            0, // checksum: none in this format
        ];
        self.bytes.extend_from_slice(b"070701");
        for field in fields {
            self.bytes
                .extend_from_slice(format!("{field:08x}").as_bytes());
        }
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(0);
        self.align();
        self.bytes.extend_from_slice(bytes);
        self.align();
    }

    /// Pads to the next multiple of four bytes, at which headers and contents begin.
    fn align(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}
