//! Cache mode of a guest's driver, kept with the file of a disk that is handed over.
//!
//! A driver that has turned its write cache off sends no flushes, and counts on each write that was
//! answered. Hypervisors do not tell the mode to the daemon that a guest migrates to (QEMU sends
//! `SET_CONFIG` only when the driver writes the field), so the daemon that hands the disk over
//! leaves the mode in an extended attribute. The next daemon removes it, and no later guest is
//! taken to have the mode. Without attributes (block devices, some file systems) the mode is
//! unknown.

use std::ffi::CStr;
use std::fs::File;
use std::io;

use crate::ring::sys;

/// Extended attribute of a file that was handed over.
const ATTRIBUTE: &CStr = c"user.tidegate.cache-mode";
const WRITE_BACK: &[u8] = b"writeback";
const WRITE_THROUGH: &[u8] = b"writethrough";

/// Leaves the mode with a file, durably: true for a write-back cache, `None` if it is unknown.
///
/// # Errors
/// If another mode stays with the file, or the change may not be durable.
pub(super) fn put(file: &File, writeback: Option<bool>) -> io::Result<()> {
    let set = |writeback| {
        let mode = if writeback { WRITE_BACK } else { WRITE_THROUGH };
        sys::set_extended_attribute(file, ATTRIBUTE, mode).is_ok()
    };
    if writeback.is_some_and(set) {
        return file.sync_all();
    }
    if sys::extended_attribute(file, ATTRIBUTE).is_none() {
        return Ok(());
    }
    sys::remove_extended_attribute(file, ATTRIBUTE)?;
    file.sync_all()
}

/// Takes the mode that was left with a file; `None` if none was, or it cannot be removed.
pub(super) fn take(file: &File) -> Option<bool> {
    let left = sys::extended_attribute(file, ATTRIBUTE)?;
    sys::remove_extended_attribute(file, ATTRIBUTE).ok()?;
    match &left[..] {
        WRITE_BACK => Some(true),
        WRITE_THROUGH => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mode_is_taken_once_and_an_unknown_one_replaces_one_that_is_known() {
        let file = tempfile::tempfile().expect("a file");
        if sys::set_extended_attribute(&file, c"user.tidegate.test", b"1").is_err() {
            // A file system without attributes: nothing is kept, and nothing fails.
            put(&file, Some(true)).expect("no error");
            return assert_eq!(take(&file), None);
        }
        for mode in [Some(true), Some(false), None] {
            put(&file, mode).expect("durable");
            assert_eq!(take(&file), mode);
            assert_eq!(take(&file), None, "it was removed");
        }
        put(&file, Some(true)).expect("durable");
        put(&file, Some(false)).expect("durable");
        assert_eq!(take(&file), Some(false));
        put(&file, Some(true)).expect("durable");
        put(&file, None).expect("durable");
        assert_eq!(take(&file), None);
        sys::set_extended_attribute(&file, ATTRIBUTE, b"later").expect("a word");
        assert_eq!(take(&file), None, "a word of another version");
    }
}
