//! Restrictions of a ring: the operations that the kernel accepts from it.
//!
//! Seccomp sees one `io_uring_enter(2)`, whatever the submissions ask for, so a ring is restricted
//! by itself (`IORING_REGISTER_RESTRICTIONS`). It is created disabled and enabled once it is
//! restricted, after which neither can be undone. Every entry must name a registered file
//! (`IOSQE_FIXED_FILE`), also an entry that uses no file: the kernel checks flags before it looks
//! at the operation.

use std::io;

use io_uring::register::Restriction;
use io_uring::squeue::Flags;
use io_uring::{IoUring, opcode};

/// Operations that [`Ring`](super::Ring) prepares.
const OPERATIONS: [u8; 13] = [
    opcode::Read::CODE,
    opcode::Readv::CODE,
    opcode::Write::CODE,
    opcode::Writev::CODE,
    opcode::Fsync::CODE,
    opcode::Fallocate::CODE,
    opcode::Recv::CODE,
    opcode::RecvMsg::CODE,
    opcode::Send::CODE,
    opcode::SendMsg::CODE,
    opcode::PollAdd::CODE,
    opcode::Timeout::CODE,
    opcode::AsyncCancel::CODE,
];

/// Operation of [`Ring::complete_soon`](super::Ring::complete_soon).
const NO_OPERATION: u8 = opcode::Nop::CODE;

/// Flag that every entry has: its file, if it uses one, is an index of the ring's table.
pub(super) const REQUIRED: Flags = Flags::FIXED_FILE;

/// Flags that an entry may have besides.
const ALLOWED: Flags = Flags::IO_LINK
    .union(Flags::ASYNC)
    .union(Flags::SKIP_SUCCESS);

/// `IORING_UNREGISTER_FILES`, which releases files when a ring is dropped.
const UNREGISTER_FILES: u8 = 3;
/// `IORING_REGISTER_FILES_UPDATE`, which adds and removes a file.
const UPDATE_FILES: u8 = 6;
/// `IORING_REGISTER_IOWQ_MAX_WORKERS`.
const MAX_WORKERS: u8 = 19;

/// Restricts a disabled ring to what [`Ring`](super::Ring) does, and enables it. The calling thread
/// becomes the ring's single issuer.
///
/// # Errors
/// If the kernel refuses. Linux 5.10 and later restrict rings of all set-up flags in use.
pub(super) fn restrict_and_enable(ring: &IoUring) -> io::Result<()> {
    let mut restrictions: Vec<Restriction> = OPERATIONS.map(Restriction::sqe_op).into();
    restrictions.push(Restriction::sqe_op(NO_OPERATION));
    restrictions.push(Restriction::sqe_flags_required(REQUIRED.bits()));
    restrictions.push(Restriction::sqe_flags_allowed(ALLOWED.bits()));
    let calls = [UNREGISTER_FILES, UPDATE_FILES, MAX_WORKERS];
    restrictions.extend(calls.map(Restriction::register_op));
    let submitter = ring.submitter();
    submitter.register_restrictions(&mut restrictions)?;
    submitter.register_enable_rings()
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use io_uring::types::{Fd, Fixed};
    use io_uring::{register, squeue};

    use super::super::{Completion, Ring};
    use super::*;

    /// Submits an entry as it is, past [`Ring::push`], and returns its result.
    fn result_of(ring: &mut Ring, entry: squeue::Entry) -> Result<u32, i32> {
        // SAFETY: the entries of these tests name static or no memory.
        unsafe { ring.ring.submission().push(&entry) }.expect("room");
        let mut out: Vec<Completion> = Vec::new();
        while out.is_empty() {
            ring.turn(None).expect("the kernel takes submissions");
            ring.take(&mut out);
        }
        assert_eq!(out.len(), 1, "one entry, one completion");
        out[0].result
    }

    fn ring_with_file() -> (Ring, std::fs::File) {
        let mut ring = Ring::new(8, 4).expect("a ring");
        let file = tempfile::tempfile().expect("a file");
        let first = ring.add_file(file.try_clone().expect("a handle").into());
        assert_eq!(first.expect("room").0, 0);
        (ring, file)
    }

    static BYTES: [u8; 4] = *b"abcd";

    fn write() -> opcode::Write {
        opcode::Write::new(Fixed(0), BYTES.as_ptr(), BYTES.len() as u32)
    }

    #[test]
    fn operations_that_are_not_in_use_are_refused() {
        let (mut ring, file) = ring_with_file();
        let (fd, path) = (Fd(file.as_raw_fd()), c"/etc/passwd".as_ptr());
        let at = Fd(libc::AT_FDCWD);
        let refused = [
            opcode::OpenAt::new(at, path).build(),
            opcode::UnlinkAt::new(at, c"nothing".as_ptr()).build(),
            opcode::MkDirAt::new(at, c"nothing".as_ptr()).build(),
            opcode::Socket::new(libc::AF_UNIX, libc::SOCK_STREAM, 0).build(),
            opcode::Connect::new(Fixed(0), std::ptr::null(), 0).build(),
            opcode::Accept::new(Fixed(0), std::ptr::null_mut(), std::ptr::null_mut()).build(),
            opcode::Close::new(Fixed(0)).build(),
            opcode::MsgRingData::new(fd, 0, 1, None).build(),
            opcode::Splice::new(fd, -1, fd, -1, 1).build(),
            opcode::FilesUpdate::new(std::ptr::null(), 0).build(),
            opcode::Shutdown::new(Fixed(0), libc::SHUT_RDWR).build(),
        ];
        for entry in refused {
            for flags in [squeue::Flags::empty(), REQUIRED] {
                let entry = entry.clone().flags(flags);
                let shown = format!("{entry:?}");
                assert_eq!(result_of(&mut ring, entry), Err(libc::EACCES), "{shown}");
            }
        }
        assert_eq!(file.metadata().expect("open").len(), 0);
    }

    #[test]
    fn files_that_are_not_in_the_table_are_refused() {
        let (mut ring, file) = ring_with_file();
        let fd = Fd(file.as_raw_fd());
        let by_descriptor = opcode::Write::new(fd, BYTES.as_ptr(), BYTES.len() as u32);
        assert_eq!(
            result_of(&mut ring, by_descriptor.build()),
            Err(libc::EACCES)
        );
        assert_eq!(file.metadata().expect("open").len(), 0);
        assert_eq!(result_of(&mut ring, write().build()), Ok(4));
        let elsewhere = opcode::Write::new(Fixed(1), BYTES.as_ptr(), 4).build();
        assert_eq!(result_of(&mut ring, elsewhere), Err(libc::EBADF));
        assert_eq!(file.metadata().expect("open").len(), 4);
    }

    #[test]
    fn flags_that_are_not_in_use_are_refused() {
        let (mut ring, file) = ring_with_file();
        // Writes never take a buffer of a group, which the kernel finds before it looks at flags.
        let read = opcode::Read::new(Fixed(0), std::ptr::null_mut(), 4);
        let refused = [
            write().build().flags(squeue::Flags::IO_DRAIN),
            write().build().flags(squeue::Flags::IO_HARDLINK),
            read.build().flags(squeue::Flags::BUFFER_SELECT),
        ];
        for entry in refused {
            let shown = format!("{entry:?}");
            assert_eq!(result_of(&mut ring, entry), Err(libc::EACCES), "{shown}");
        }
        assert_eq!(file.metadata().expect("open").len(), 0);
        let forced = write().build().flags(squeue::Flags::ASYNC);
        assert_eq!(result_of(&mut ring, forced), Ok(4));
    }

    #[test]
    fn registrations_that_are_not_in_use_are_refused_and_restrictions_stay() {
        let (ring, file) = ring_with_file();
        let submitter = ring.ring.submitter();
        let refused = [
            submitter.register_eventfd(file.as_raw_fd()),
            submitter.register_probe(&mut register::Probe::new()),
            submitter.register_personality().map(drop),
            submitter.register_restrictions(&mut [Restriction::sqe_op(opcode::OpenAt::CODE)]),
            submitter.register_enable_rings(),
        ];
        for result in refused {
            let error = result.expect_err("not among the calls in use");
            assert!(
                matches!(error.raw_os_error(), Some(libc::EACCES | libc::EBADFD)),
                "{error}"
            );
        }
    }

    #[test]
    fn entries_without_a_file_work_with_the_required_flag() {
        let (mut ring, _file) = ring_with_file();
        let (idle, _peer) = std::os::unix::net::UnixStream::pair().expect("sockets");
        let idle = ring.add_file(idle.into()).expect("room");
        ring.await_readable(idle, 1);
        ring.complete_soon(2);
        ring.cancel(1, 3);
        ring.tick(4);
        let mut out = Vec::new();
        while out.len() < 3 {
            ring.turn(None).expect("the kernel takes submissions");
            ring.take(&mut out);
        }
        let results: Vec<_> = out.iter().map(|done| (done.token, done.result)).collect();
        assert!(results.contains(&(2, Ok(0))), "{results:?}");
        assert!(results.contains(&(1, Err(libc::ECANCELED))), "{results:?}");
        assert!(results.contains(&(4, Err(libc::ETIME))), "{results:?}");
    }
}
