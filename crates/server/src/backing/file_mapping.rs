//! Mapping of a disk's file on tmpfs, from which a socket takes the bytes of long reads, or from
//! which they are copied to a guest's memory.
//!
//! A mapping that the kernel alone reads is not [guarded](sigbus::Guard): where the file was cut
//! short, the kernel is to find nothing. Bytes that are copied come from a mapping of their own.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use crate::buffer::{Mem, PAGE, copy_ranges};
use crate::sigbus;

/// Pages whose state is asked for in one system call.
const ASKED_AT_ONCE: usize = 64;

/// Read-only view of a whole file. Unlike other memory that is given to the kernel, it is unmapped
/// when it is dropped: no range of it may be in use by then.
#[derive(Debug)]
pub(super) struct FileMapping {
    base: *mut libc::c_void,
    /// Bytes that can be asked for: whole pages.
    len: usize,
    /// Entry in the table of the SIGBUS handler; `None` if only the kernel reads.
    guard: Option<sigbus::Guard>,
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
        let mapping = FileMapping {
            base,
            len,
            guard: None,
        };
        (!mapping.are_there(beyond / PAGE, 1)).then_some(mapping)
    }

    /// Maps a file as [`FileMapping::new`] does, to [copy](FileMapping::copy) from it. Returns
    /// `None` also if there are too many mappings.
    pub(super) fn guarded(file: &File, size: u64) -> Option<FileMapping> {
        let mut mapping = FileMapping::new(file, size)?;
        let len = mapping.len + PAGE;
        mapping.guard = Some(sigbus::Guard::new(mapping.base as usize, len, PAGE).ok()?);
        Some(mapping)
    }

    /// Copies the bytes at `offset` of a guarded mapping to memory. Returns false if they are not
    /// all in memory, or the file was cut short meanwhile; what was copied then means nothing.
    pub(super) fn copy(&self, offset: u64, to: &[Mem]) -> bool {
        let guard = self.guard.as_ref().expect("the mapping is guarded");
        // Zeroes have taken the place of pages since the first fault.
        if guard.has_faulted() {
            return false;
        }
        let len = to.iter().map(Mem::len).sum();
        let Some(from) = self.resident(offset, len) else {
            return false;
        };
        copy_ranges(to, &[from]);
        !guard.has_faulted()
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
        // Before the addresses can be another mapping's.
        self.guard = None;
        // SAFETY: the range was mapped by `new`, and no part of it is in use any more.
        unsafe { libc::munmap(self.base, self.len + PAGE) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffer::Region;
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

    #[test]
    fn a_copy_counts_for_nothing_once_a_page_was_gone_under_it() {
        let content: Vec<u8> = (0..8 * PAGE).map(|at| (at / 7) as u8).collect();
        let (file, _) = mapped(&content, content.len() as u64);
        let mapping = FileMapping::guarded(&file, content.len() as u64).expect("room");
        let to = Region::new(8 * PAGE).expect("address space");
        let parts = [to.mem(0, 100), to.mem(100, 5 * PAGE)];
        assert!(mapping.copy(300, &parts));
        let copied = to.mem(0, 100 + 5 * PAGE);
        assert_eq!(bytes(copied), content[300..400 + 5 * PAGE]);
        file.set_len(3 * PAGE as u64).expect("it may shrink");
        assert!(!mapping.copy(0, &parts), "pages are missing");
        assert!(mapping.copy(0, &parts[..1]), "others are there");
        // As if the file had been cut short between the question and the copy.
        let gone = Mem::of_mapping(mapping.base, 4 * PAGE, PAGE);
        assert_eq!(bytes(gone), [0; PAGE]);
        assert!(!mapping.copy(0, &parts[..1]), "zeroes may be in its place");
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
