//! Reads without the ring: a turn whose only operation is a read of a file that never waits makes
//! it by `pread(2)`, which saves the ring's part of the call.

use std::os::fd::AsRawFd;

use io_uring::types::Fixed;
use io_uring::{opcode, squeue};

use super::{Completion, FileId, Ring};
use crate::buffer::Mem;

/// Read that was prepared first after a turn.
#[derive(Clone, Copy, Debug)]
pub(super) struct LoneRead {
    pub(super) file: FileId,
    pub(super) to: Mem,
    pub(super) offset: u64,
    pub(super) token: u64,
}

impl LoneRead {
    /// Returns the ring's entry for the read.
    pub(super) fn entry(self) -> squeue::Entry {
        let (to, len) = (self.to.addr() as *mut u8, self.to.len() as u32);
        opcode::Read::new(Fixed(self.file.0), to, len)
            .offset(self.offset)
            .build()
    }
}

impl Ring {
    /// Returns true if the next operation is the first one since the last turn.
    pub(super) fn is_nothing_prepared(&mut self) -> bool {
        self.lone_read.is_none() && self.ring.submission().is_empty()
    }

    /// Prepares the lone read as an operation of the ring, because it is no longer alone.
    #[inline]
    pub(super) fn push_lone_read(&mut self) {
        if let Some(read) = self.lone_read.take() {
            self.push_io(read.file, read.entry(), read.token);
        }
    }

    /// Makes the lone read and notes its completion. Returns false if there is none.
    pub(super) fn make_lone_read(&mut self) -> bool {
        let Some(read) = self.lone_read.take() else {
            return false;
        };
        let fd = self.files[read.file.0 as usize]
            .as_ref()
            .expect("a file is removed only without prepared operations");
        let (to, len) = (read.to.addr() as *mut libc::c_void, read.to.len());
        // SAFETY: `Mem` is mapped until the process ends, and nothing borrows it.
        let n = unsafe { libc::pread(fd.as_raw_fd(), to, len, read.offset as i64) };
        self.completions.push(Completion {
            token: read.token,
            result: if n < 0 {
                let error = std::io::Error::last_os_error();
                Err(error.raw_os_error().unwrap_or(libc::EIO))
            } else {
                Ok(n as u32)
            },
            more: false,
            goes_on: false,
        });
        true
    }
}
