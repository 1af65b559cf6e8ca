//! A hypervisor's side of the dirty log: the bitmap in shared memory, and a copy of guest memory
//! that is brought up to date by it, as migration does.

use std::collections::BTreeSet;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU8, Ordering};

use vhost::{VhostBackend, VhostUserDirtyLogRegion};

use super::vhost_guest::{GUEST, Guest, PAGE};

/// Stops the queue of a guest that migrates, and what is in flight with it.
pub fn migrate_away(guest: &mut Guest) {
    let log = Log::of(guest);
    log.set(guest).expect("a log");
    guest.set_logged(true);
    guest.stop_queue(0);
    guest.take_answers(0);
    assert_eq!(guest.in_flight(0), 0, "all was answered");
}

/// Log in shared memory.
pub struct Log {
    file: File,
    bits: *mut u8,
    len: usize,
}

impl Log {
    /// Makes a log of `len` bytes, one for each eight pages of guest physical addresses.
    pub fn new(len: u64) -> Log {
        let file = tempfile::tempfile_in("/dev/shm").expect("a tmpfs");
        file.set_len(len).expect("room");
        let len = len as usize;
        // SAFETY: a new mapping at an address of the kernel's choosing touches nothing that exists.
        let bits = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        assert_ne!(bits, libc::MAP_FAILED, "a mapping");
        let bits = bits.cast();
        Log { file, bits, len }
    }

    /// Makes a log that covers the memory of a guest.
    pub fn of(guest: &Guest) -> Log {
        let end = GUEST + guest.memory.metadata().expect("a file").len();
        Log::new(end.div_ceil(8 * PAGE))
    }

    /// Returns the file behind the log.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Passes the log to the device of a guest.
    pub fn set(&self, guest: &Guest) -> vhost::Result<()> {
        self.set_part(guest, 0, self.len as u64)
    }

    /// Passes `len` bytes at an offset as the log.
    pub fn set_part(&self, guest: &Guest, offset: u64, len: u64) -> vhost::Result<()> {
        let region = VhostUserDirtyLogRegion {
            mmap_size: len,
            mmap_offset: offset,
            mmap_handle: self.file.as_raw_fd(),
        };
        guest.frontend.set_log_base(0, Some(region))
    }

    /// Takes the marks: returns the pages of the guest's memory file and clears their bits.
    pub fn take(&self) -> BTreeSet<u64> {
        let mut pages = BTreeSet::new();
        for at in 0..self.len {
            // SAFETY: a byte inside the mapping, which both sides access atomically.
            let byte = unsafe { AtomicU8::from_ptr(self.bits.add(at)) };
            let bits = byte.swap(0, Ordering::AcqRel);
            let marked = (0..8u64).filter(|bit| bits >> bit & 1 != 0);
            pages.extend(marked.map(|bit| {
                let address = (at as u64 * 8 + bit) * PAGE;
                let from = address.checked_sub(GUEST);
                from.expect("a page of the guest is marked") / PAGE
            }));
        }
        pages
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        // SAFETY: the range was mapped by `new`, and nothing refers to it any more.
        unsafe { libc::munmap(self.bits.cast(), self.len) };
    }
}

/// Copy of guest memory at a destination, by pages that the driver wrote and pages in the log.
pub struct Copy {
    pages: Vec<u8>,
}

impl Copy {
    /// Copies all memory of a guest, whose device logs by now.
    pub fn begin(guest: &Guest) -> Copy {
        let len = guest.memory.metadata().expect("a file").len();
        let mut copy = Copy {
            pages: vec![0; len as usize],
        };
        guest.written.borrow_mut().clear();
        copy.bring(guest, (0..len / PAGE).collect());
        copy
    }

    /// Copies the pages that were written since.
    pub fn update(&mut self, guest: &Guest, log: &Log) {
        let mut pages = log.take();
        pages.append(&mut guest.written.borrow_mut());
        self.bring(guest, pages);
    }

    fn bring(&mut self, guest: &Guest, pages: BTreeSet<u64>) {
        for page in pages {
            let at = page * PAGE;
            let bytes = &mut self.pages[at as usize..][..PAGE as usize];
            guest.memory.read_exact_at(bytes, at).expect("inside");
        }
    }

    /// Returns the first byte at which the copy differs from the memory; `None` if it is whole.
    pub fn differs_at(&self, guest: &Guest) -> Option<u64> {
        let mut memory = vec![0; self.pages.len()];
        guest.memory.read_exact_at(&mut memory, 0).expect("inside");
        let differs = memory.iter().zip(&self.pages).position(|(a, b)| a != b);
        differs.map(|at| at as u64)
    }
}
