//! Durable change of a disk file's size.

use std::fs::File;
use std::io;

use tidegate_units::format_bytes;
use tidegate_units::human::bytes_and_count;

use crate::command::ControlError;
use crate::config::Create;
use crate::ring::sys;

/// Size in bytes of a disk before and after a change.
#[derive(Clone, Copy)]
pub(super) struct Sizes {
    pub(super) before: u64,
    pub(super) size: u64,
}

/// Error of resizing a file.
#[derive(Debug)]
pub(super) struct ResizeError {
    what: String,
    /// True if the file has the new size, but not durably.
    pub(super) has_new_size: bool,
}

impl ResizeError {
    /// Creates the error for a file that has its previous size.
    pub(super) fn no(what: String) -> ResizeError {
        let has_new_size = false;
        ResizeError { what, has_new_size }
    }

    /// Returns the error for the client.
    pub(super) fn error(self, export: &str, size: u64) -> ControlError {
        let ResizeError { what, has_new_size } = self;
        let size = bytes_and_count(size);
        if has_new_size {
            ControlError::NotDurable(format!(
                "export {export:?} has {size} now, but a crash may undo that: {what}"
            ))
        } else {
            ControlError::Disk {
                what: format!("export {export:?} cannot be resized to {size}: {what}"),
                help: None,
            }
        }
    }
}

/// Sets the size of a disk's file, durably by `sync`. A file that has the size already is synced as
/// well, because an earlier attempt may not have been durable. On failure a longer file is cut back
/// to its previous size; a shorter one stays, because the data that was cut off is lost.
pub(super) fn set_file_size(
    file: &File,
    create: Create,
    read_only: bool,
    Sizes { before, size }: Sizes,
    sync: impl FnOnce(&File) -> io::Result<()>,
) -> Result<(), ResizeError> {
    assert!(size > 0, "a size of 0 would delete the disk's data");
    let failed = |what: &str, error: &io::Error| format!("cannot {what} its file: {error}");
    let no = |what: &str, error: io::Error| ResizeError::no(failed(what, &error));
    let meta = file.metadata().map_err(|error| no("inspect", error))?;
    // The size of a block device is fixed; a disk on it may be smaller.
    if !meta.is_file() {
        let has = sys::block_device_size(file).map_err(|error| no("measure", error))?;
        if has >= size {
            return Ok(());
        }
        let has = format_bytes(has);
        return Err(ResizeError::no(format!("the block device has {has}")));
    }
    let has = meta.len();
    if read_only {
        if has == size {
            // The other process that resized the file is responsible for its durability.
            return Ok(());
        }
        let has = format_bytes(has);
        let what = format!("it is served read-only, and its file has {has}");
        return Err(ResizeError::no(what));
    }
    // Another process has changed the file, and a resize would hide that.
    if has != before && has != size {
        let (has, before) = (format_bytes(has), format_bytes(before));
        let what = format!("its file has {has} where the disk has {before}");
        return Err(ResizeError::no(what));
    }
    let given = || {
        if size > has && create == Create::Preallocated {
            sys::allocate(file, 0, has, size - has)?;
        }
        // Set even if unchanged: after a failed `sync` the kernel may regard the new size as clean
        // although it is not durable. Setting it marks the inode dirty again.
        file.set_len(size)?;
        sync(file)
    };
    given().map_err(|error| {
        // Only if this call has made it longer: a longer file of another process stays.
        if size > before && has == before {
            let _ = file.set_len(before);
        }
        // The length decides, whatever could be undone. If another process had made the file longer
        // before, the new size does not count as long as a crash may undo it.
        let is_so = || file.metadata().is_ok_and(|meta| meta.len() == size);
        let has_new_size = !(size > before && has == size) && is_so();
        let what = failed("resize", &error);
        ResizeError { what, has_new_size }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a file of 8 KiB.
    fn file() -> File {
        let file = tempfile::tempfile().unwrap();
        file.set_len(8192).unwrap();
        file
    }

    /// Resizes a disk of `before` bytes with a `sync` that fails. Returns the error and the length
    /// of the file.
    fn unsynced(file: &File, before: u64, size: u64) -> (ResizeError, u64) {
        let sizes = Sizes { before, size };
        let broken = |_: &File| Err(io::Error::from_raw_os_error(libc::EIO));
        let not = set_file_size(file, Create::No, false, sizes, broken).unwrap_err();
        (not, file.metadata().unwrap().len())
    }

    #[test]
    fn a_file_that_is_shorter_is_said_to_be_so_even_if_that_is_not_durable() {
        let (not, len) = unsynced(&file(), 8192, 4096);
        assert_eq!((not.has_new_size, len), (true, 4096));
        let error = not.error("disk", 4096);
        assert!(matches!(&error, ControlError::NotDurable(_)), "{error}");
        let message = error.to_string();
        assert!(message.contains("\"disk\" has 4 KiB now"), "{message}");
        assert!(message.contains("Input/output error"), "{message}");
    }

    #[test]
    fn a_size_that_is_not_durable_is_not_made_so_by_asking_for_it_again() {
        let file = file();
        unsynced(&file, 8192, 4096);
        let (not, len) = unsynced(&file, 4096, 4096);
        assert_eq!((not.has_new_size, len), (true, 4096));
        let error = not.error("disk", 4096);
        assert!(matches!(&error, ControlError::NotDurable(_)), "{error}");
        // The disk works again; the size is unchanged, but it must be synced.
        let synced = std::cell::Cell::new(0);
        let well = |_: &File| {
            synced.set(synced.get() + 1);
            Ok(())
        };
        let (before, size) = (4096, 4096);
        set_file_size(&file, Create::No, false, Sizes { before, size }, well).unwrap();
        assert_eq!(synced.get(), 1);
    }

    #[test]
    fn a_file_that_cannot_be_made_longer_for_good_is_as_long_as_it_was() {
        let (not, len) = unsynced(&file(), 8192, 16384);
        assert_eq!((not.has_new_size, len), (false, 8192));
        let error = not.error("disk", 16384);
        assert!(matches!(&error, ControlError::Disk { .. }), "{error}");
    }

    #[test]
    fn what_somebody_else_made_longer_is_not_served_before_it_is_durable_nor_cut_off() {
        let (not, len) = unsynced(&file(), 4096, 8192);
        assert_eq!((not.has_new_size, len), (false, 8192));
    }
}
