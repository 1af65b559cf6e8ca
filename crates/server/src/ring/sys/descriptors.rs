//! Descriptors that go from process to process, and processes by descriptor.

use std::io;
use std::mem::{MaybeUninit, size_of, zeroed};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::time::{Duration, Instant};

use super::check;

/// Most descriptors that the kernel takes in one message (`SCM_MAX_FD`).
pub const DESCRIPTORS_MAX: usize = 253;
/// Room for the control message of [`DESCRIPTORS_MAX`] descriptors, aligned as its header is.
const CONTROL_WORDS: usize = 160;

/// Control messages of one call.
type Control = [u64; CONTROL_WORDS];

/// Sends one byte with descriptors, at most [`DESCRIPTORS_MAX`].
///
/// # Errors
/// If the peer is gone, or does not take it within the time-out of the socket.
pub fn send_descriptors(stream: &UnixStream, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    send_message(stream.as_fd(), &[0], descriptors)
}

/// Sends a datagram with descriptors, at most [`DESCRIPTORS_MAX`], on a connected socket.
///
/// # Errors
/// As for [`send_descriptors`].
pub fn send_datagram(
    socket: &UnixDatagram,
    bytes: &[u8],
    descriptors: &[BorrowedFd<'_>],
) -> io::Result<()> {
    send_message(socket.as_fd(), bytes, descriptors)
}

/// Sends bytes with descriptors in one call, which must take all of them.
fn send_message(
    socket: BorrowedFd<'_>,
    bytes: &[u8],
    descriptors: &[BorrowedFd<'_>],
) -> io::Result<()> {
    assert!(
        descriptors.len() <= DESCRIPTORS_MAX,
        "{} descriptors in one message",
        descriptors.len()
    );
    let numbers: Vec<RawFd> = descriptors.iter().map(AsRawFd::as_raw_fd).collect();
    let room = size_of_val(descriptors);
    let mut control: Control = [0; CONTROL_WORDS];
    let mut part = libc::iovec {
        iov_base: bytes.as_ptr().cast_mut().cast(),
        iov_len: bytes.len(),
    };
    // SAFETY: zeroes are a message without name, parts and control messages; the header that
    // `CMSG_FIRSTHDR` returns lies in `control`, which has room for as many descriptors. The kernel
    // only reads the bytes.
    let sent = unsafe {
        let mut message: libc::msghdr = zeroed();
        message.msg_iov = &raw mut part;
        message.msg_iovlen = 1;
        if !numbers.is_empty() {
            message.msg_control = control.as_mut_ptr().cast();
            message.msg_controllen = libc::CMSG_SPACE(room as u32) as _;
            let header = libc::CMSG_FIRSTHDR(&raw const message);
            (*header).cmsg_level = libc::SOL_SOCKET;
            (*header).cmsg_type = libc::SCM_RIGHTS;
            (*header).cmsg_len = libc::CMSG_LEN(room as u32) as _;
            let data = libc::CMSG_DATA(header);
            std::ptr::copy_nonoverlapping(numbers.as_ptr().cast(), data, room);
        }
        libc::sendmsg(socket.as_raw_fd(), &raw const message, libc::MSG_NOSIGNAL)
    };
    match usize::try_from(sent) {
        Ok(sent) if sent == bytes.len() => Ok(()),
        Ok(_) => Err(io::ErrorKind::WriteZero.into()),
        Err(_) => Err(io::Error::last_os_error()),
    }
}

/// Receives one byte with descriptors, which are closed on `exec`.
///
/// # Errors
/// If the peer is gone, sends nothing within the time-out of the socket, or the process has no room
/// for the descriptors.
pub fn receive_descriptors(stream: &UnixStream) -> io::Result<Vec<OwnedFd>> {
    let mut control: Control = [0; CONTROL_WORDS];
    let mut byte = [0u8];
    let mut part = libc::iovec {
        iov_base: byte.as_mut_ptr().cast(),
        iov_len: byte.len(),
    };
    let mut descriptors = Vec::new();
    // SAFETY: zeroes are a message without name, parts and control messages; the kernel writes
    // headers and descriptors into `control` alone, and those that it has made are owned by nobody
    // else.
    let (received, flags) = unsafe {
        let mut message: libc::msghdr = zeroed();
        message.msg_iov = &raw mut part;
        message.msg_iovlen = 1;
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = size_of::<Control>() as _;
        let flags = libc::MSG_CMSG_CLOEXEC;
        let received = libc::recvmsg(stream.as_raw_fd(), &raw mut message, flags);
        let mut header = libc::CMSG_FIRSTHDR(&raw const message);
        while received > 0 && !header.is_null() {
            if ((*header).cmsg_level, (*header).cmsg_type) == (libc::SOL_SOCKET, libc::SCM_RIGHTS) {
                let bytes = (*header).cmsg_len as usize - libc::CMSG_LEN(0) as usize;
                let data = libc::CMSG_DATA(header).cast::<RawFd>();
                for at in 0..bytes / size_of::<RawFd>() {
                    let number = data.add(at).read_unaligned();
                    descriptors.push(OwnedFd::from_raw_fd(number));
                }
            }
            header = libc::CMSG_NXTHDR(&raw const message, header);
        }
        (received, message.msg_flags)
    };
    match received {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        1 if flags & libc::MSG_CTRUNC != 0 => Err(io::Error::from_raw_os_error(libc::EMFILE)),
        1 => Ok(descriptors),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Process ID and user of the peer of a connected unix socket, when it connected or began to
/// listen.
///
/// # Errors
/// If the kernel does not tell.
pub fn peer_process(stream: &UnixStream) -> io::Result<(i32, u32)> {
    let mut credentials = MaybeUninit::<libc::ucred>::zeroed();
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    let pointer = credentials.as_mut_ptr().cast();
    // SAFETY: the option writes a `ucred` to the pointer, which is ours.
    let got = unsafe {
        libc::getsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            pointer,
            &mut len,
        )
    };
    check(got)?;
    // SAFETY: zeroes are valid for its integers, and the call has filled them.
    let credentials = unsafe { credentials.assume_init() };
    Ok((credentials.pid, credentials.uid))
}

/// Sends as many of the bytes as a socket takes at once; fails with `EAGAIN` if it takes none.
///
/// # Errors
/// As for `send(2)`.
pub fn send_some(socket: &OwnedFd, bytes: &[u8]) -> io::Result<usize> {
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: the pointer and the length are those of the slice.
    let sent = unsafe {
        libc::send(
            socket.as_raw_fd(),
            bytes.as_ptr().cast(),
            bytes.len(),
            flags,
        )
    };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
}

/// Descriptor of a process, which another process with its number does not get.
///
/// # Errors
/// If there is no such process.
pub fn process(pid: i32) -> io::Result<OwnedFd> {
    // SAFETY: takes and returns integers.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) } as RawFd;
    check(fd)?;
    // SAFETY: the call has just opened the descriptor, which nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Waits until a process has ended; false if it has not within the time.
pub fn has_ended(process: &OwnedFd, within: Duration) -> bool {
    poll(process.as_fd(), libc::POLLIN, within) & libc::POLLIN != 0
}

/// Waits until the last write end of a pipe, or the other end of a socket, was closed; false if it
/// was not within the time.
pub fn is_hung_up(reader: BorrowedFd<'_>, within: Duration) -> bool {
    poll(reader, 0, within) & libc::POLLHUP != 0
}

/// Waits until a socket takes bytes, or fails; false if it has not within the time.
pub fn is_writable(socket: &OwnedFd, within: Duration) -> bool {
    poll(socket.as_fd(), libc::POLLOUT, within) != 0
}

/// Waits until one of two descriptors can be read, has failed or was hung up, however long that
/// takes. Returns true if `second` is one.
///
/// # Errors
/// As for `poll(2)`; a signal does not end the wait.
pub fn wait_for_either(first: BorrowedFd<'_>, second: BorrowedFd<'_>) -> io::Result<bool> {
    let mut polls = [first, second].map(|fd| libc::pollfd {
        fd: fd.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    });
    loop {
        // SAFETY: two `pollfd`s, which are ours.
        match check(unsafe { libc::poll(polls.as_mut_ptr(), 2, -1) }) {
            Ok(()) => return Ok(polls[1].revents != 0),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Makes a descriptor refer to the file of another one, and closes the file that it referred to.
///
/// # Errors
/// As for `dup3(2)`.
pub fn replace(number: &impl AsRawFd, by: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: takes integers. Both are open, and the owner of `number` owns the new file.
    check(unsafe { libc::dup3(by.as_raw_fd(), number.as_raw_fd(), libc::O_CLOEXEC) })
}

/// Waits for one of the events, an error or a hang-up; returns those that have come, 0 after that
/// time.
fn poll(fd: BorrowedFd<'_>, events: i16, within: Duration) -> i16 {
    let until = Instant::now() + within;
    let mut poll = libc::pollfd {
        fd: fd.as_raw_fd(),
        events,
        revents: 0,
    };
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let millis = left.as_millis().min(i32::MAX as u128) as libc::c_int;
        // SAFETY: one `pollfd`, which is ours.
        match unsafe { libc::poll(&mut poll, 1, millis) } {
            1 => return poll.revents,
            // A signal has come.
            -1 if !left.is_zero() => {}
            _ => return 0,
        }
    }
}
