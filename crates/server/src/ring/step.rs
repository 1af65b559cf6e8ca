//! System calls on a disk's file, as the state machine of an I/O asks for them.

use tidegate_core::request::Outcome;

/// The next system call. Its memory is in the vector that
/// [`FileIo::step`](crate::backing::file_io::FileIo::step) filled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// A bounce buffer of this many bytes is needed:
    /// [`FileIo::give_bounce`](crate::backing::file_io::FileIo::give_bounce), then ask again.
    Bounce(usize),
    /// Read at this offset.
    Read(u64),
    /// Write at this offset.
    Write {
        /// Where.
        offset: u64,
        /// Durable when it ends.
        dsync: bool,
    },
    /// `fdatasync`.
    Sync,
    /// `fallocate`.
    Allocate {
        /// Its mode.
        mode: i32,
        /// Where.
        offset: u64,
        /// Bytes.
        len: u64,
    },
    /// It has ended.
    Done(Outcome),
}
