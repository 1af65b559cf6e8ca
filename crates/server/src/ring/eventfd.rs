//! Eventfd by which another thread wakes a loop that waits in its ring.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// Waker of one event loop.
#[derive(Debug)]
pub struct Wake {
    fd: OwnedFd,
}

impl Wake {
    /// Creates an eventfd with a count of zero.
    ///
    /// # Errors
    /// Fails if the process has no free descriptor.
    pub fn new() -> io::Result<Wake> {
        // Blocking, because io_uring would otherwise answer a read at once with "try again".
        // SAFETY: takes no memory; the result is checked before it is owned.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a valid descriptor with no other owner.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Wake { fd })
    }

    /// Returns a descriptor for the loop to read from.
    ///
    /// # Errors
    /// Fails if the process has no free descriptor.
    pub fn receiver(&self) -> io::Result<OwnedFd> {
        self.fd.try_clone()
    }

    /// Wakes the loop, now or when it waits next.
    pub fn wake(&self) {
        let one = 1u64.to_ne_bytes();
        // SAFETY: reads eight bytes that are ours. It would block only after 2^64 - 1 wakes without
        // a read.
        unsafe { libc::write(self.fd.as_raw_fd(), one.as_ptr().cast(), one.len()) };
    }

    /// Forgets all wakes so far; blocks until there is one.
    pub fn take(&self) {
        let mut count = [0; 8];
        // SAFETY: writes eight bytes that are ours.
        unsafe { libc::read(self.fd.as_raw_fd(), count.as_mut_ptr().cast(), count.len()) };
    }
}

impl AsFd for Wake {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
