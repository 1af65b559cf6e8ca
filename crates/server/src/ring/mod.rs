//! One io_uring with a safe interface for submissions.
//!
//! The kernel works on three kinds of memory, and each is valid until the kernel is done for a
//! reason of its own:
//!
//! - Bytes are [`Mem`], which stay mapped until the process ends, or, where they are those of a
//!   disk's file, until the last reply from there has ended, or, where they are a guest's, until no
//!   I/O uses them.
//! - Vectors that list them are only read during submission (`IORING_FEAT_SUBMIT_STABLE`). They are
//!   in an arena that is emptied after submission.
//! - Files are owned by the ring's table, and the kernel holds a reference of its own while an
//!   operation runs.
//!
//! A ring must be created on the thread that uses it: it has a single issuer
//! (`IORING_SETUP_SINGLE_ISSUER`), and the kernel defers its task work to the waits of that thread
//! (`IORING_SETUP_DEFER_TASKRUN`). The kernel accepts from a ring only the operations that this
//! module prepares, on files of its table.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

use io_uring::types::{Fixed, FsyncFlags, SubmitArgs, TimeoutFlags, Timespec};
use io_uring::{IoUring, cqueue, opcode, squeue};

use crate::buffer::Mem;

mod busy_poll;
mod eventfd;
#[cfg(test)]
pub(crate) mod faults;
mod lone_read;
#[cfg(test)]
mod lone_read_tests;
mod pause;
#[cfg(test)]
mod pause_tests;
mod restrictions;
mod step;
#[cfg(test)]
mod submission_tests;
pub mod sys;

use busy_poll::BusyPoll;
use lone_read::LoneRead;

pub use eventfd::Wake;
pub use pause::Pause;
pub use step::Step;

/// Index of a file in a ring's table of registered files.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FileId(u32);

/// Result of a finished operation.
#[derive(Clone, Copy, Debug)]
pub struct Completion {
    /// `user_data` of the submission.
    pub token: u64,
    /// Return value of the operation, mostly a number of bytes, or its error number.
    pub result: Result<u32, i32>,
    /// True after a receive if more bytes wait in the socket (`IORING_CQE_F_SOCK_NONEMPTY`).
    pub more: bool,
    /// True if the operation goes on and completes again (`IORING_CQE_F_MORE`).
    pub goes_on: bool,
}

/// One io_uring, its registered files and the arenas of its submissions.
pub struct Ring {
    ring: IoUring,
    files: Vec<Option<OwnedFd>>,
    /// Flags by file index: true if reads and writes go to a kernel worker at once (`IOSQE_ASYNC`).
    forced_async: Vec<bool>,
    /// Flags by file index: true if reads never wait for a device.
    instant: Vec<bool>,
    free_files: Vec<u32>,
    /// Read that is made without the ring, unless something else is prepared before the next turn.
    lone_read: Option<LoneRead>,
    /// Time for which turns look for completions before they sleep; `None`: they sleep at once.
    busy_poll: Option<BusyPoll>,
    /// A receive that starts after a pause was prepared for the next turn.
    pauses: bool,
    /// Arena of the vectors of prepared operations, emptied after submission. Its capacity is
    /// fixed, because the kernel is given addresses in it.
    vectors: Vec<Mem>,
    /// Arena of message headers, with the same rules.
    messages: Vec<libc::msghdr>,
    /// Completions that were taken to make room for submissions, and not yet by the caller.
    completions: Vec<Completion>,
    #[cfg(test)]
    fault_injector: faults::FaultInjector,
}

/// Number of vectors that may be listed between two submissions.
const VECTOR_ARENA_LEN: usize = 8192;
/// Maximum number of ranges in one operation (`UIO_MAXIOV` of Linux).
pub const RANGES_MAX: usize = 1024;
// The empty arena takes the ranges of any operation.
const _: () = assert!(RANGES_MAX <= VECTOR_ARENA_LEN);
/// `IORING_RECVSEND_POLL_FIRST`: waits for the socket to be readable before the first attempt.
const POLL_FIRST: u16 = 1;
const DSYNC: i32 = libc::RWF_DSYNC;
/// Flags of an entry that the next one waits for and that completes only if it fails; the next one
/// does not complete then.
const LINK: squeue::Flags = squeue::Flags::IO_LINK.union(squeue::Flags::SKIP_SUCCESS);

/// Receive that is linked to a send.
#[derive(Clone, Copy, Debug)]
pub struct ThenReceive {
    /// Memory of the bytes.
    pub to: Mem,
    /// Token of its completion.
    pub token: u64,
    /// Pause before it.
    pub pause: Pause,
}

impl Ring {
    /// Creates a ring with room for `entries` submissions at a time and a table of `files` files,
    /// restricted to what its methods do.
    ///
    /// # Errors
    /// Fails if the kernel is older than 6.1, io_uring is disabled, or memory must not be locked.
    pub fn new(entries: u32, files: u32) -> io::Result<Ring> {
        // A send, a pause and the receive linked to them must fit one submission.
        assert!(entries >= 3, "a ring of {entries} entries");
        let ring = IoUring::builder()
            .setup_single_issuer()
            // Completions are processed only while this thread waits, never in the middle of a
            // turn.
            .setup_defer_taskrun()
            .setup_taskrun_flag()
            // An entry that fails at submission must not stop those behind it.
            .setup_submit_all()
            // A smaller limit of the kernel is accepted, because a full queue is submitted early.
            .setup_clamp()
            // Receives of thousands of connections may complete between two turns, so the
            // completion queue is larger than the kernel's default of twice the submissions.
            .setup_cqsize(entries * 4)
            // Until it is restricted.
            .setup_r_disabled()
            .build(entries)?;
        if !ring.params().is_feature_submit_stable() {
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "io_uring is too old",
            ));
        }
        // Registered files save a reference count for each operation.
        ring.submitter().register_files_sparse(files)?;
        restrictions::restrict_and_enable(&ring)?;
        Ok(Ring {
            messages: Vec::with_capacity(ring.params().sq_entries() as usize),
            completions: Vec::with_capacity(ring.params().cq_entries() as usize),
            ring,
            files: (0..files).map(|_| None).collect(),
            forced_async: vec![false; files as usize],
            instant: vec![false; files as usize],
            lone_read: None,
            busy_poll: None,
            pauses: false,
            free_files: (0..files).rev().collect(),
            vectors: Vec::with_capacity(VECTOR_ARENA_LEN),
            #[cfg(test)]
            fault_injector: Default::default(),
        })
    }

    /// Adds a file to the table.
    ///
    /// # Errors
    /// Fails with `EMFILE` if the table is full, or with the error of the registration.
    pub fn add_file(&mut self, fd: OwnedFd) -> io::Result<FileId> {
        let Some(index) = self.free_files.pop() else {
            return Err(io::Error::from_raw_os_error(libc::EMFILE));
        };
        if let Err(error) = self
            .ring
            .submitter()
            .register_files_update(index, &[fd.as_raw_fd()])
        {
            self.free_files.push(index);
            return Err(error);
        }
        #[cfg(test)]
        self.fault_injector.add(index, &fd);
        self.files[index as usize] = Some(fd);
        self.forced_async[index as usize] = false;
        self.instant[index as usize] = false;
        Ok(FileId(index))
    }

    /// Makes reads and writes of a file start on a kernel worker (`IOSQE_ASYNC`), because its file
    /// system may block at submission and would stop the loop.
    pub fn force_async(&mut self, file: FileId) {
        assert!(
            self.files[file.0 as usize].is_some(),
            "the flag would be that of the next file at this index"
        );
        self.forced_async[file.0 as usize] = true;
    }

    /// Notes that reads of a file never wait for a device, so that one without company needs no
    /// ring.
    pub fn expect_instant(&mut self, file: FileId) {
        assert!(
            self.files[file.0 as usize].is_some(),
            "the flag would be that of the next file at this index"
        );
        self.instant[file.0 as usize] = true;
    }

    /// Removes a file from the table and returns it; the kernel keeps it until the last operation
    /// on it ends. Closing it may block if its file system does not answer.
    pub fn remove_file(&mut self, file: FileId) -> OwnedFd {
        // Operations prepared for this file must be submitted before its index can mean another
        // file.
        self.push_lone_read();
        while !self.ring.submission().is_empty() && self.submit(0, None).is_ok() {}
        let fd = self.files[file.0 as usize]
            .take()
            .expect("the file is in the table");
        #[cfg(test)]
        self.fault_injector.remove(file.0);
        // If the kernel refuses, the index stays unused rather than mean two files.
        let gone = self.ring.submitter().register_files_update(file.0, &[-1]);
        if gone.is_ok() {
            self.free_files.push(file.0);
        }
        fd
    }

    /// Shuts a socket down in both directions: its pending operations end and its peer is notified.
    pub fn shut_down_socket(&self, file: FileId) {
        let fd = self.files[file.0 as usize]
            .as_ref()
            .expect("the file is in the table");
        // SAFETY: `shutdown` takes no memory; the descriptor is open because we own it.
        unsafe { libc::shutdown(fd.as_raw_fd(), libc::SHUT_RDWR) };
    }

    /// Returns another handle to a file in the table.
    ///
    /// # Errors
    /// Fails if the process has no free descriptor.
    pub fn clone_file(&self, file: FileId) -> io::Result<File> {
        let fd = self.files[file.0 as usize]
            .as_ref()
            .expect("the file is in the table");
        Ok(File::from(fd.try_clone()?))
    }

    /// Prepares a read from `offset` into `to`, which is at most [`RANGES_MAX`] ranges.
    pub fn read(&mut self, file: FileId, to: &[Mem], offset: u64, token: u64) {
        let entry = match to {
            &[one] => {
                let read = LoneRead {
                    file,
                    to: one,
                    offset,
                    token,
                };
                if self.instant[file.0 as usize] && self.is_nothing_prepared() {
                    self.lone_read = Some(read);
                    return;
                }
                read.entry()
            }
            many => {
                let (list, n) = self.push_vectors(many);
                opcode::Readv::new(Fixed(file.0), list, n)
                    .offset(offset)
                    .build()
            }
        };
        self.push_io(file, entry, token);
    }

    /// Prepares a write of `from` at `offset`. With `dsync` the data is durable when the write
    /// completes (`RWF_DSYNC`).
    pub fn write(&mut self, file: FileId, from: &[Mem], offset: u64, dsync: bool, token: u64) {
        let flags = if dsync { DSYNC } else { 0 };
        let entry = match from {
            &[one] => opcode::Write::new(Fixed(file.0), one.addr() as *const u8, one.len() as u32)
                .offset(offset)
                .rw_flags(flags)
                .build(),
            many => {
                let (list, n) = self.push_vectors(many);
                opcode::Writev::new(Fixed(file.0), list, n)
                    .offset(offset)
                    .rw_flags(flags)
                    .build()
            }
        };
        self.push_io(file, entry, token);
    }

    /// Prepares an `fdatasync(2)`.
    pub fn sync_data(&mut self, file: FileId, token: u64) {
        self.push(
            opcode::Fsync::new(Fixed(file.0))
                .flags(FsyncFlags::DATASYNC)
                .build(),
            token,
        );
    }

    /// Sets the maximum number of io_uring workers that file I/O may occupy at once (bounded
    /// workers in `io_uring_register_iowq_max_workers(3)`); 0 leaves the limit as it is. Returns
    /// the previous limit.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn set_max_workers(&mut self, most: u32) -> io::Result<u32> {
        let mut limits = [most, 0];
        let submitter = self.ring.submitter();
        submitter.register_iowq_max_workers(&mut limits)?;
        Ok(limits[0])
    }

    /// Prepares a `fallocate(2)`.
    pub fn allocate(&mut self, file: FileId, mode: i32, offset: u64, len: u64, token: u64) {
        // Refused with EINVAL, which would be taken for a file system that lacks the operation.
        debug_assert!(len > 0, "an allocation of no bytes");
        self.push(
            opcode::Fallocate::new(Fixed(file.0), len)
                .offset(offset)
                .mode(mode)
                .build(),
            token,
        );
    }

    /// Prepares a read of an eventfd's count into eight bytes, which completes once the eventfd is
    /// signalled.
    pub fn await_wake(&mut self, file: FileId, to: Mem, token: u64) {
        // An eventfd's count has eight bytes, and a shorter read fails.
        const COUNT_BYTES: usize = 8;
        assert!(to.len() >= COUNT_BYTES, "no room for an eventfd's count");
        let entry = opcode::Read::new(Fixed(file.0), to.addr() as *mut u8, COUNT_BYTES as u32);
        self.push(entry.build(), token);
    }

    /// Prepares a poll that completes each time an eventfd is signalled, until it is
    /// [cancelled](Ring::cancel) or a completion does not go on. The count is not read, so that
    /// nothing waits for an eventfd that others read, too.
    pub fn await_signals(&mut self, file: FileId, token: u64) {
        let entry = opcode::PollAdd::new(Fixed(file.0), libc::POLLIN as u32).multi(true);
        self.push(entry.build(), token);
    }

    /// Prepares a signal to a non-blocking eventfd. Completes only if it fails, which it does where
    /// it would have to wait.
    pub fn signal(&mut self, file: FileId, token: u64) {
        static ONE: [u8; 8] = 1u64.to_ne_bytes();
        let entry = opcode::Write::new(Fixed(file.0), ONE.as_ptr(), ONE.len() as u32)
            .rw_flags(libc::RWF_NOWAIT)
            .build()
            .flags(squeue::Flags::SKIP_SUCCESS);
        self.push(entry, token);
    }

    /// Prepares the end of the operation that was submitted with the token `of`, which then
    /// completes with the error `ECANCELED`. Completes itself, with `token`, only if there is no
    /// such operation.
    pub fn cancel(&mut self, of: u64, token: u64) {
        let entry = opcode::AsyncCancel::new(of).build();
        self.push(entry.flags(squeue::Flags::SKIP_SUCCESS), token);
    }

    /// Prepares an operation that does nothing and completes with the next turn.
    pub fn complete_soon(&mut self, token: u64) {
        self.push(opcode::Nop::new().build(), token);
    }

    /// Prepares a timer that completes after one second, with the error `ETIME`. Unlike the
    /// time-out of a turn, it costs nothing while turns are short.
    pub fn tick(&mut self, token: u64) {
        static SECOND: Timespec = Timespec::new().sec(1);
        self.push(opcode::Timeout::new(&SECOND).build(), token);
    }

    /// Prepares a poll that completes once the socket has bytes to receive or was closed.
    pub fn await_readable(&mut self, file: FileId, token: u64) {
        let entry = opcode::PollAdd::new(Fixed(file.0), libc::POLLIN as u32);
        self.push(entry.build(), token);
    }

    /// Prepares a receive from a socket into `to`, which starts after `pause`. `idle` is true if no
    /// bytes are expected to be there at its submission, which saves the kernel a futile attempt.
    pub fn receive(&mut self, file: FileId, to: &[Mem], idle: bool, pause: Pause, token: u64) {
        // Polling first saves a receive that would find nothing. After a pause there are bytes.
        let prio = if idle && pause == Pause::NONE {
            POLL_FIRST
        } else {
            0
        };
        if pause != Pause::NONE {
            // Made before the message header is placed, which a submission would take away.
            self.make_room(2);
        }
        let entry = match to {
            &[one] => opcode::Recv::new(Fixed(file.0), one.addr() as *mut u8, one.len() as u32)
                .ioprio(prio)
                .build(),
            many => {
                let message = self.push_message(many);
                opcode::RecvMsg::new(Fixed(file.0), message)
                    .ioprio(prio)
                    .build()
            }
        };
        if pause != Pause::NONE {
            self.push_pause(pause.timer(), token);
        }
        self.push(entry, token);
    }

    /// Prepares a send of `from`, which is at most [`RANGES_MAX`] ranges.
    ///
    /// With `all` the send completes when everything was sent, or with an error. With `then`, which
    /// needs `all`, everything must fit the socket's buffer at once, and a receive follows. A send
    /// that fits reports nothing: it has ended when it was submitted, and only the receive
    /// completes. Otherwise the send reports how many bytes it sent, and the receive is cancelled
    /// without a completion. Such a send must not wait for the socket: a client that writes before
    /// it reads would wait for the receive, and both would wait for ever.
    pub fn send(
        &mut self,
        file: FileId,
        from: &[Mem],
        all: bool,
        token: u64,
        then: Option<ThenReceive>,
    ) {
        assert!(all || then.is_none(), "a short send does not break a link");
        // With `MSG_WAITALL` io_uring repeats short sends itself.
        let wait = if all { libc::MSG_WAITALL } else { 0 };
        let wait = if then.is_some() {
            wait | libc::MSG_DONTWAIT
        } else {
            wait
        };
        let flags = (libc::MSG_NOSIGNAL | wait) as u32;
        if then.is_some() {
            self.make_room(3);
        }
        let entry = match from {
            &[one] => opcode::Send::new(Fixed(file.0), one.addr() as *const u8, one.len() as u32)
                .flags(flags as i32)
                .build(),
            many => {
                let message = self.push_message(many);
                opcode::SendMsg::new(Fixed(file.0), message)
                    .flags(flags)
                    .build()
            }
        };
        let Some(then) = then else {
            return self.push(entry, token);
        };
        self.push(entry.flags(LINK), token);
        self.receive(file, &[then.to], true, then.pause, then.token);
    }

    /// Prepares a timer after which the entry that is pushed next starts. Only if the timer cannot
    /// be started, it completes, with `token` and an error, and the next entry does not.
    fn push_pause(&mut self, time: &'static Timespec, token: u64) {
        self.pauses = true;
        self.make_room(2);
        let entry = opcode::Timeout::new(time).flags(TimeoutFlags::ETIME_SUCCESS);
        self.push(entry.build().flags(LINK), token);
    }

    /// Submits unless there is room for `entries` linked entries, which must be in one submission.
    fn make_room(&mut self, entries: usize) {
        self.push_lone_read();
        if self.free_entries() < entries {
            self.flush_full();
        }
    }

    /// Submits all prepared operations and waits for one completion, for at most `timeout`: `None`
    /// waits without limit, zero does not wait. [`Ring::take`] then takes the completions.
    ///
    /// # Errors
    /// Fails if the kernel refuses a submission, after which the ring is unusable.
    pub fn turn(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        // Nothing else is prepared beside a lone read, and its completion is there. Others come by
        // a call only, however many lone reads follow each other.
        if self.make_lone_read() {
            return match self.is_nothing_to_enter_for() {
                true => Ok(()),
                false => self.submit(0, None),
            };
        }
        let pauses = std::mem::take(&mut self.pauses);
        // Completions that `submit` has taken to make room count too.
        let waiting = !self.completions.is_empty() || !self.ring.completion().is_empty();
        match timeout {
            Some(Duration::ZERO) if self.is_nothing_to_enter_for() => Ok(()),
            Some(Duration::ZERO) => self.submit(0, None),
            _ if waiting => self.submit(0, None),
            timeout => match self.busy_poll {
                // A pause is there to let requests gather: looking would only burn it.
                Some(poll) if !pauses => self.wait_busily(poll, timeout),
                _ => self.submit(1, timeout),
            },
        }
    }

    /// Returns true if the kernel has nothing to take and nothing to hand over.
    fn is_nothing_to_enter_for(&mut self) -> bool {
        let queue = self.ring.submission();
        queue.is_empty() && !queue.taskrun() && !queue.cq_overflow()
    }

    /// Appends the completions to `out`, oldest first.
    pub fn take(&mut self, out: &mut Vec<Completion>) {
        #[cfg(test)]
        let before = out.len();
        out.append(&mut self.completions);
        for entry in self.ring.completion() {
            out.push(completion(&entry));
        }
        #[cfg(test)]
        self.fault_injector.report(&mut out[before..]);
    }

    /// Returns true if the kernel has taken everything that was prepared and the last
    /// [`Ring::take`] has returned every operation that ended at its submission. Completions that
    /// overflowed the ring would be missing.
    pub fn is_caught_up(&mut self) -> bool {
        let queue = self.ring.submission();
        queue.is_empty() && !queue.cq_overflow()
    }

    fn submit(&mut self, want: usize, timeout: Option<Duration>) -> io::Result<()> {
        let submitter = self.ring.submitter();
        let result = match timeout {
            None => submitter.submit_and_wait(want),
            Some(timeout) => {
                let time = Timespec::from(timeout);
                submitter.submit_with_args(want, &SubmitArgs::new().timespec(&time))
            }
        };
        match result {
            Ok(_) => {}
            // Time-out or signal; below, completions that must be taken before the kernel accepts
            // more.
            Err(e) if matches!(e.raw_os_error(), Some(libc::ETIME | libc::EINTR)) => {}
            Err(e) if matches!(e.raw_os_error(), Some(libc::EBUSY | libc::EAGAIN)) => {
                for entry in self.ring.completion() {
                    self.completions.push(completion(&entry));
                }
            }
            Err(e) => return Err(e),
        }
        if self.ring.submission().is_empty() {
            self.vectors.clear();
            self.messages.clear();
        }
        Ok(())
    }

    fn free_entries(&mut self) -> usize {
        let queue = self.ring.submission();
        queue.capacity() - queue.len()
    }

    /// Submits until the submission queue is empty.
    fn flush_full(&mut self) {
        while !self.ring.submission().is_empty() {
            self.submit(0, None).expect("the kernel takes submissions");
        }
    }

    fn push_io(&mut self, file: FileId, entry: squeue::Entry, token: u64) {
        let entry = if self.forced_async[file.0 as usize] {
            entry.flags(squeue::Flags::ASYNC)
        } else {
            entry
        };
        self.push(entry, token);
    }

    fn push(&mut self, entry: squeue::Entry, token: u64) {
        self.push_lone_read();
        if self.ring.submission().is_full() {
            self.flush_full();
        }
        #[cfg(test)]
        self.fault_injector.check_next(token);
        let entry = entry.user_data(token).flags(restrictions::REQUIRED);
        // SAFETY: bytes are `Mem`, mapped for as long as an operation may use them; vectors and
        // message headers lie in arenas that neither move nor are emptied before this entry was
        // submitted; the file is in the registered table. See the module's documentation.
        unsafe { self.ring.submission().push(&entry) }.expect("room was made");
    }

    /// Copies ranges to the arena, where they stay until they were submitted.
    fn push_vectors(&mut self, ranges: &[Mem]) -> (*const libc::iovec, u32) {
        assert!(
            ranges.len() <= RANGES_MAX,
            "{} ranges in one operation",
            ranges.len()
        );
        debug_assert!(!ranges.is_empty(), "an operation without memory");
        // To submit empties the arena, so the entry with these vectors must find room.
        self.make_room(1);
        // The arena must not grow: that would move vectors whose addresses prepared entries hold.
        if self.vectors.capacity() - self.vectors.len() < ranges.len() {
            self.flush_full();
        }
        debug_assert!(
            self.vectors.capacity() - self.vectors.len() >= ranges.len(),
            "the arena grows and moves vectors that the kernel is to read"
        );
        let at = self.vectors.len();
        self.vectors.extend_from_slice(ranges);
        // `Mem` is a transparent `iovec`.
        (self.vectors[at..].as_ptr().cast(), ranges.len() as u32)
    }

    fn push_message(&mut self, ranges: &[Mem]) -> *mut libc::msghdr {
        if self.messages.len() == self.messages.capacity() {
            self.flush_full();
        }
        let (list, n) = self.push_vectors(ranges);
        // SAFETY: a message header of zeroes is valid: no name, no control data, no vectors.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        message.msg_iov = list.cast_mut();
        // musl's is an `int`.
        message.msg_iovlen = n as _;
        // Never reallocates: the capacity was checked above.
        self.messages.push(message);
        self.messages.last_mut().expect("just pushed")
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // The kernel frees a closed ring asynchronously; files, and their locks, must be released
        // now.
        let _ = self.ring.submitter().unregister_files();
    }
}

impl std::fmt::Debug for Ring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ring").finish_non_exhaustive()
    }
}

fn completion(entry: &cqueue::Entry) -> Completion {
    let result = entry.result();
    Completion {
        token: entry.user_data(),
        result: if result < 0 {
            Err(-result)
        } else {
            Ok(result as u32)
        },
        more: cqueue::sock_nonempty(entry.flags()),
        goes_on: cqueue::more(entry.flags()),
    }
}

/// Reads the monotonic clock.
pub fn clock() -> tidegate_core::time::Nanos {
    read_clock(libc::CLOCK_MONOTONIC)
}

/// Reads a clock of the system, whose origin is its own.
#[inline]
pub(crate) fn read_clock(clock: libc::clockid_t) -> tidegate_core::time::Nanos {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: writes one `timespec`, which is ours.
    unsafe { libc::clock_gettime(clock, &mut time) };
    tidegate_core::time::Nanos(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}
