//! System calls that the state machine of a file I/O makes next.

use tidegate_core::request::Outcome;

/// Next system call of a [`FileIo`](crate::backing::file_io::FileIo). Its memory is in the vector
/// that [`FileIo::step`](crate::backing::file_io::FileIo::step) filled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// Needs a bounce buffer of this many bytes: pass one to
    /// [`FileIo::give_bounce`](crate::backing::file_io::FileIo::give_bounce) and ask for the step
    /// again.
    Bounce(usize),
    /// Read at this offset of the file.
    Read(u64),
    /// Write to the file.
    Write {
        /// Offset in the file.
        offset: u64,
        /// True if the data must be durable when the write completes.
        dsync: bool,
    },
    /// `fdatasync`.
    Sync,
    /// `fallocate`.
    Allocate {
        /// `mode` of `fallocate(2)`.
        mode: i32,
        /// Offset in the file.
        offset: u64,
        /// Length in bytes.
        len: u64,
    },
    /// The I/O has ended with this outcome.
    Done(Outcome),
}
