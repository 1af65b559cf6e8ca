//! An eventfd: how another thread wakes a loop that waits in its ring.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Wakes one loop.
#[derive(Debug)]
pub struct Wake {
    fd: OwnedFd,
}

impl Wake {
    /// A new one.
    ///
    /// # Errors
    /// When the process has no descriptors left.
    pub fn new() -> io::Result<Wake> {
        // Blocking, because io_uring would otherwise answer a read at once with "try again".
        // SAFETY: takes no memory; the result is checked before it is owned.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a valid descriptor that nobody else owns.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Wake { fd })
    }

    /// The descriptor the loop reads from.
    ///
    /// # Errors
    /// When the process has no descriptors left.
    pub fn receiver(&self) -> io::Result<OwnedFd> {
        self.fd.try_clone()
    }

    /// Wakes the loop, now or when it next waits.
    pub fn wake(&self) {
        let one = 1u64.to_ne_bytes();
        // SAFETY: reads eight bytes that are ours. It would wait only once 2^64 wakes were missed.
        unsafe { libc::write(self.fd.as_raw_fd(), one.as_ptr().cast(), one.len()) };
    }
}
