//! Log of the guest pages that the device has written, for live migration.
//!
//! ```text
//!   hypervisor: copies a page <-- takes its bit      memory: bytes --> bit --> answer
//! ```
//!
//! The log is a bitmap in memory that the front-end shares, one bit for each page of 4 KiB of guest
//! physical addresses. The hypervisor clears bits and copies their pages again while the guest
//! runs. A page is marked after its bytes are in memory, by the loop's thread: for what the kernel
//! reads into guest memory, when the I/O has ended. Marks are made with the log that is set at that
//! time, so a log can be set, replaced or removed while requests are in flight.

use std::fs::File;
use std::sync::Arc;

use super::guest_memory::{GuestMemory, Mapping};
use crate::buffer::Mem;
use crate::vm_resources::VmResources;

/// Bytes of a page in the log, whatever the page size of hosts and guests (`VHOST_LOG_PAGE`).
const PAGE: u64 = 0x1000;
/// Pages that a byte of the log has bits for.
const PAGES_A_BYTE: u64 = 8;

/// Log of dirty pages, mapped.
#[derive(Debug)]
pub(super) struct DirtyLog {
    bits: Mem,
    mapping: Mapping,
}

impl DirtyLog {
    /// Maps a log of `len` bytes at `offset` of a file.
    ///
    /// # Errors
    /// A message if the range is not inside the file, the file may block, the VM has as much mapped
    /// as it may, or the kernel refuses.
    pub(super) fn map(
        file: &File,
        offset: u64,
        len: u64,
        limits: &Arc<VmResources>,
    ) -> Result<DirtyLog, String> {
        let (mapping, bits) = Mapping::of_file("the dirty log", file, offset, len, limits)?;
        Ok(DirtyLog { bits, mapping })
    }

    /// Checks that the log has bits for all guest physical addresses below `end`.
    ///
    /// # Errors
    /// A message that says how many there are.
    pub(super) fn check_covers(&self, end: u64) -> Result<(), String> {
        let pages = self.bits.len() as u64 * PAGES_A_BYTE;
        if end.div_ceil(PAGE) <= pages {
            return Ok(());
        }
        Err(format!(
            "a dirty log for {pages} pages of guest memory, which ends at {end:#x}"
        ))
    }

    /// Marks the pages of `len` bytes from a guest physical address on. The log must [cover
    /// them](DirtyLog::check_covers).
    #[inline]
    pub(super) fn mark(&self, guest: u64, len: u64) {
        assert!(len > 0, "no byte was written");
        let last = (guest + (len - 1)) / PAGE;
        debug_assert!(
            self.check_covers(guest + len).is_ok(),
            "the session checks what is logged"
        );
        // A mistake of the session must not let a hostile front-end stop the loop.
        let last = last.min(self.bits.len() as u64 * PAGES_A_BYTE - 1);
        let mut page = guest / PAGE;
        while page <= last {
            // Up to the last page of the same byte.
            let end = last.min(page | (PAGES_A_BYTE - 1));
            let (from, to) = (page % PAGES_A_BYTE, end % PAGES_A_BYTE);
            let bits = (u8::MAX << from) & (u8::MAX >> (PAGES_A_BYTE - 1 - to));
            self.bits.set_bits((page / PAGES_A_BYTE) as usize, bits);
            page = end + 1;
        }
    }

    /// Marks memory of a guest. Memory that is not in its table is of a request that the guest
    /// never gets an answer to.
    pub(super) fn mark_memory(&self, memory: &GuestMemory, written: &[Mem]) {
        for mem in written.iter().filter(|mem| !mem.is_empty()) {
            if let Some(guest) = memory.guest_address(mem) {
                self.mark(guest, mem.len() as u64);
            }
        }
    }

    /// Returns true if the log's file has become shorter, so that marks were lost.
    pub(super) fn is_truncated(&self) -> bool {
        self.mapping.is_truncated()
    }
}

/// Place of a queue's used ring in the log (`VHOST_VRING_F_LOG`): the guest physical address at
/// which the ring is logged; `None` if it is not.
pub(super) type UsedAddress = Option<u64>;

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::super::guest_memory::testing::{memfd, table};
    use super::*;

    /// Returns the numbers of the pages that are marked in the first bytes of a log.
    fn marked(file: &File, offset: u64) -> Vec<usize> {
        let mut bytes = [0; 8];
        file.read_exact_at(&mut bytes, offset).expect("inside");
        let bits = u64::from_le_bytes(bytes);
        (0..64).filter(|bit| bits >> bit & 1 != 0).collect()
    }

    #[test]
    fn each_page_that_has_a_byte_of_the_range_is_marked() {
        let ranges = [
            (0, 1),
            (4095, 2),
            (4096, 4096),
            (3 * PAGE, 20 * PAGE),
            (7 * PAGE + 1, PAGE),
            (16 * PAGE, 8 * PAGE),
            (63 * PAGE + 4095, 1),
        ];
        for (guest, len) in ranges {
            let file = memfd(PAGE);
            let log = DirtyLog::map(&file, 100, 8, &Arc::default()).expect("a log");
            log.mark(guest, len);
            let expected = (0..64).filter(|page| {
                let from = page * PAGE;
                from < guest + len && guest < from + PAGE
            });
            let expected: Vec<_> = expected.map(|page| page as usize).collect();
            assert_eq!(marked(&file, 100), expected, "{guest:#x}+{len:#x}");
        }
    }

    #[test]
    fn marks_are_added_to_those_that_are_there() {
        let file = memfd(PAGE);
        let log = DirtyLog::map(&file, 0, 8, &Arc::default()).expect("a log");
        log.mark(PAGE, PAGE);
        log.mark(3 * PAGE, 1);
        assert_eq!(marked(&file, 0), [1, 3]);
        // The hypervisor takes them.
        file.write_all_at(&[0; 8], 0).expect("inside");
        log.mark(2 * PAGE, 1);
        assert_eq!(marked(&file, 0), [2]);
    }

    #[test]
    fn memory_is_marked_by_its_guest_address() {
        let memory = table(&[(16 * PAGE, 0x50_0000, PAGE), (0, 0x10_0000, 2 * PAGE)]);
        let file = memfd(PAGE);
        let log = DirtyLog::map(&file, 0, 8, &Arc::default()).expect("a log");
        let mut written = Vec::new();
        assert!(memory.push(PAGE + 1, 2, &mut written) && memory.push(16 * PAGE, 1, &mut written));
        log.mark_memory(&memory, &written);
        assert_eq!(marked(&file, 0), [1, 16]);
        log.mark_memory(&table(&[(0, 0, PAGE)]), &written);
        assert_eq!(marked(&file, 0), [1, 16], "of another guest");
    }

    #[test]
    fn logs_that_make_no_sense_are_refused() {
        let file = memfd(2 * PAGE);
        let map = |offset, len| DirtyLog::map(&file, offset, len, &Arc::default());
        assert!(map(0, 0).is_err(), "no bytes");
        assert!(map(1, 2 * PAGE).is_err(), "beyond its file");
        assert!(map(u64::MAX, 2).is_err(), "wraps around");
        let log = map(PAGE - 1, 1).expect("inside");
        assert_eq!(log.check_covers(8 * PAGE), Ok(()));
        let refused = log.check_covers(8 * PAGE + 1).expect_err("too short");
        assert!(refused.contains("8 pages"), "{refused}");
        let of_disk = tempfile::tempfile_in(env!("CARGO_MANIFEST_DIR")).expect("a file");
        of_disk.set_len(PAGE).expect("room");
        let refused = DirtyLog::map(&of_disk, 0, PAGE, &Arc::default()).expect_err("it may block");
        assert!(refused.contains("memfd"), "{refused}");
    }

    #[test]
    fn a_log_that_is_cut_short_is_noticed_and_harms_nobody() {
        let file = memfd(2 * PAGE);
        let log = DirtyLog::map(&file, 0, 2 * PAGE, &Arc::default()).expect("a log");
        file.set_len(PAGE).expect("shorter");
        log.mark(0, 1);
        assert!(!log.is_truncated(), "its page is there");
        log.mark(PAGE * PAGE * 8, 1);
        assert!(log.is_truncated());
    }
}
