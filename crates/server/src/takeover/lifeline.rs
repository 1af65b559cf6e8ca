//! Pipe that tells a new daemon when the running one, whose process has ended, can touch no disk
//! any more.
//!
//! ```text
//!   write end: in the file table of each event loop's ring, and with the running daemon
//!   read end:  with the new daemon
//!     closed everywhere        no I/O of the process is with the kernel
//!     has a byte to read       the running daemon has gone on with its clients
//! ```
//!
//! The end of a process is no such sign: the kernel frees its rings later, once the I/O of each has
//! ended, and a write to a block device may land until then. A lock of a file is none either, where
//! both daemons have the open file. What is in the file table of a ring is closed after its last
//! I/O.

use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use crate::ring::sys;

/// Pipe with both ends, in the running daemon.
#[derive(Debug)]
pub(crate) struct Lifeline {
    reader: PipeReader,
    writer: PipeWriter,
}

impl Lifeline {
    /// Makes the pipe.
    ///
    /// # Errors
    /// If the process has no free descriptor.
    pub(crate) fn new() -> io::Result<Lifeline> {
        let (reader, writer) = io::pipe()?;
        Ok(Lifeline { reader, writer })
    }

    /// Returns the end for the new daemon.
    pub(crate) fn for_new_daemon(&self) -> BorrowedFd<'_> {
        self.reader.as_fd()
    }

    /// Returns an end for the ring of an event loop.
    ///
    /// # Errors
    /// If the process has no free descriptor.
    pub(crate) fn for_ring(&self) -> io::Result<OwnedFd> {
        Ok(self.writer.try_clone()?.into())
    }

    /// Notes that the running daemon goes on, before it does.
    ///
    /// # Errors
    /// If the pipe takes no byte.
    pub(crate) fn go_on(&mut self) -> io::Result<()> {
        self.writer.write_all(&[1])
    }
}

/// End of the new daemon.
#[derive(Debug)]
pub(crate) struct LifelineEnd(PipeReader);

impl LifelineEnd {
    pub(crate) fn new(reader: OwnedFd) -> LifelineEnd {
        LifelineEnd(PipeReader::from(reader))
    }

    /// Waits until no I/O of the other daemon, whose process has ended, is with the kernel; false
    /// if some still is after that time.
    pub(crate) fn has_ended(&self, within: Duration) -> bool {
        sys::is_hung_up(self.0.as_fd(), within)
    }

    /// Returns true if the other daemon has gone on with its clients before it ended. To be called
    /// once it [has ended](LifelineEnd::has_ended); does not wait then.
    pub(crate) fn went_on(&mut self) -> bool {
        !matches!(self.0.read(&mut [0]), Ok(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Duration = Duration::from_millis(10);
    const LONG: Duration = Duration::from_secs(30);

    #[test]
    fn the_end_comes_once_the_process_and_all_its_rings_have_closed_the_pipe() {
        let line = Lifeline::new().expect("a pipe");
        let end = line.for_new_daemon().try_clone_to_owned();
        let mut end = LifelineEnd::new(end.expect("a descriptor"));
        let rings = [line.for_ring(), line.for_ring()].map(|ring| ring.expect("a descriptor"));
        assert!(!end.has_ended(SHORT));
        drop(line);
        let [one, other] = rings;
        drop(one);
        assert!(!end.has_ended(SHORT), "a ring has I/O");
        drop(other);
        assert!(end.has_ended(LONG));
        assert!(!end.went_on());
    }

    #[test]
    fn a_daemon_that_has_gone_on_has_said_so_when_it_ends() {
        let mut line = Lifeline::new().expect("a pipe");
        let end = line.for_new_daemon().try_clone_to_owned();
        let mut end = LifelineEnd::new(end.expect("a descriptor"));
        line.go_on().expect("room for a byte");
        assert!(!end.has_ended(SHORT), "a byte is no end");
        drop(line);
        assert!(end.has_ended(LONG));
        assert!(end.went_on());
    }

    #[test]
    fn a_ring_keeps_the_pipe_open_until_its_last_io_has_ended() {
        let line = Lifeline::new().expect("a pipe");
        let end = line.for_new_daemon().try_clone_to_owned();
        let end = LifelineEnd::new(end.expect("a descriptor"));
        let mut ring = crate::ring::Ring::new(8, 8).expect("a ring");
        ring.add_file(line.for_ring().expect("a descriptor"))
            .expect("room in the table");
        drop(line);
        assert!(!end.has_ended(SHORT));
        drop(ring);
        assert!(end.has_ended(LONG));
    }
}
