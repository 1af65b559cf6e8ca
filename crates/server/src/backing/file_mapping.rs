//! Mapping of a disk's file on tmpfs, from which a socket takes the bytes of long reads.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use crate::buffer::{Mem, PAGE};

/// Pages whose state is asked for in one system call.
const ASKED_AT_ONCE: usize = 64;

/// Read-only view of a whole file. Unlike other memory that is given to the kernel, it is unmapped
/// when it is dropped: no range of it may be in use by then.
#[derive(Debug)]
pub(super) struct FileMapping {
    base: *mut libc::c_void,
    /// Bytes that can be asked for: whole pages.
    len: usize,
}

// SAFETY: plain process memory without thread affinity; `base` is only an address.
unsafe impl Send for FileMapping {}

impl FileMapping {
    /// Maps the first `size` bytes of a file. Returns `None` if that cannot be of use: the kernel
    /// tells only those who may write a file, and its owner, which of its pages are in memory, and
    /// says of all of them that they are to everybody else; or the address space is exhausted.
    pub(super) fn new(file: &File, size: u64) -> Option<FileMapping> {
        let len = (size as usize).next_multiple_of(PAGE);
        // One page more, which no file of this size has.
        let (mapped, beyond) = (len + PAGE, len);
        // SAFETY: a new mapping at an address of the kernel's choosing touches nothing that exists.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                mapped,
                libc::PROT_READ,
                libc::MAP_SHARED | libc::MAP_NORESERVE,
                file.as_raw_fd(),
                0,
            )
        };
        if base == libc::MAP_FAILED {
            let error = io::Error::last_os_error();
            tracing::info!(%error, "cannot map a file in memory: its long reads are copied twice");
            return None;
        }
        let mapping = FileMapping { base, len };
        (!mapping.are_there(beyond / PAGE, 1)).then_some(mapping)
    }

    /// Returns a range of the file if all its pages are in memory, so that reading them waits for
    /// nothing. Holes and pages that were swapped out are not. A page may go at any time: a later
    /// read of it takes a page fault, or fails with `EFAULT` where the file was truncated.
    pub(super) fn resident(&self, offset: u64, len: usize) -> Option<Mem> {
        let offset = usize::try_from(offset).ok()?;
        let end = offset.checked_add(len).filter(|&end| end <= self.len)?;
        let (mut page, last) = (offset / PAGE, end.div_ceil(PAGE));
        while page < last {
            let pages = (last - page).min(ASKED_AT_ONCE);
            if !self.are_there(page, pages) {
                return None;
            }
            page += pages;
        }
        Some(Mem::of_mapping(self.base, offset, len))
    }

    /// Returns true if the kernel says of all these pages, at most [`ASKED_AT_ONCE`], that they are
    /// in memory.
    fn are_there(&self, first: usize, pages: usize) -> bool {
        assert!(
            pages <= ASKED_AT_ONCE && first + pages <= self.len / PAGE + 1,
            "pages outside of the mapping"
        );
        let mut state = [0u8; ASKED_AT_ONCE];
        // SAFETY: the pages lie within the mapping, which has one page more than `len`, and `state`
        // has a byte for each of them.
        let failed = unsafe {
            let at = self.base.byte_add(first * PAGE);
            libc::mincore(at, pages * PAGE, state.as_mut_ptr())
        };
        // The lowest bit says whether a page is in memory.
        failed == 0 && state[..pages].iter().all(|state| state & 1 == 1)
    }
}

impl Drop for FileMapping {
    fn drop(&mut self) {
        // SAFETY: the range was mapped by `new`, and no part of it is in use any more.
        unsafe { libc::munmap(self.base, self.len + PAGE) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::fs::FileExt;

    /// File on tmpfs with `len` bytes, and its mapping.
    fn mapped(bytes: &[u8], size: u64) -> (File, FileMapping) {
        let mut file = tempfile::tempfile_in("/dev/shm").expect("tmpfs");
        file.write_all(bytes).expect("room");
        file.set_len(size).expect("it may grow");
        let mapping = FileMapping::new(&file, size).expect("address space");
        (file, mapping)
    }

    fn bytes(mem: Mem) -> Vec<u8> {
        let mut bytes = vec![0; mem.len()];
        mem.read(&mut bytes);
        bytes
    }

    #[test]
    fn what_was_written_is_there_also_when_it_is_written_again() {
        let content: Vec<u8> = (0..300 * PAGE).map(|at| (at / 7) as u8).collect();
        let (file, mapping) = mapped(&content, content.len() as u64);
        // Over several questions, and not at the borders of pages.
        let part = mapping.resident(100, 299 * PAGE).expect("all was written");
        assert_eq!(bytes(part), content[100..100 + 299 * PAGE]);
        file.write_all_at(&[255; 10], 200).expect("room");
        assert_eq!(bytes(part.slice(100, 10)), [255; 10]);
    }

    #[test]
    fn holes_and_what_lies_past_the_end_are_not_there() {
        let (file, mapping) = mapped(&[1; 10 * PAGE], 200 * PAGE as u64);
        assert!(mapping.resident(0, 10 * PAGE).is_some());
        assert!(
            mapping.resident(9 * PAGE as u64, PAGE + 1).is_none(),
            "a hole"
        );
        assert!(mapping.resident(199 * PAGE as u64, 2 * PAGE).is_none());
        assert!(mapping.resident(u64::MAX, 2).is_none());
        file.set_len(5 * PAGE as u64).expect("it may shrink");
        assert!(mapping.resident(0, 5 * PAGE).is_some());
        assert!(mapping.resident(0, 6 * PAGE).is_none(), "truncated");
    }
}
