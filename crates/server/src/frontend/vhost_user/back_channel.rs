//! Notices that the size of a disk has changed, by a socket that its front-end hands over.
//!
//! ```text
//!   front-end -- SET_BACKEND_REQ_FD, socket --> session
//!   resized disk --> listener (control thread) -- CONFIG_CHANGE_MSG --> front-end
//!   front-end -- GET_CONFIG --> session: the new size
//! ```
//!
//! A notice asks for no reply and is sent without waiting. Where the socket has no room for it, the
//! front-end has an earlier notice to read, after which it reads the size of that time.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Mutex, MutexGuard, PoisonError};

use vhost::vhost_user::message::{BackendReq, FrontendReq};
use vmm_sys_util::sock_ctrl_msg::ScmSocket;

use crate::ring::sys;

/// Bytes of a message's header: request, flags and length of the body, of 32 bits each.
const HEADER: usize = 12;
/// Flag bits of a header: the protocol's version.
const VERSION: u32 = 1;
const VERSION_BITS: u32 = 3;
/// Flag bit of a reply.
const REPLY: u32 = 1 << 2;
/// Flag bit of a message whose sender waits for a reply.
const NEED_REPLY: u32 = 1 << 3;

/// Notices to one front-end.
#[derive(Default, Debug)]
pub(crate) struct ConfigNotices(Mutex<State>);

#[derive(Default, Debug)]
struct State {
    /// Socket of the front-end; `None` without one, or once it has failed.
    socket: Option<UnixStream>,
    /// Size in bytes that the front-end has read or was notified of last; `None` if it may know
    /// one from an earlier session.
    known: Option<u64>,
}

impl ConfigNotices {
    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic cannot leave the state half changed: each change is one assignment.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes over the front-end's socket for notices.
    ///
    /// # Errors
    /// A message if the file is not a connected unix socket.
    pub(super) fn connect(&self, socket: File) -> Result<(), String> {
        let socket = UnixStream::from(OwnedFd::from(socket));
        let checked = socket.peer_addr();
        checked.map_err(|error| format!("a file for notices that is no unix socket: {error}"))?;
        self.lock().socket = Some(socket);
        Ok(())
    }

    /// Returns the socket and the size that is known, for another daemon.
    ///
    /// # Errors
    /// If the process has no free descriptor.
    pub(super) fn state(&self) -> io::Result<(Option<OwnedFd>, Option<u64>)> {
        let state = self.lock();
        let socket = state.socket.as_ref().map(UnixStream::try_clone);
        Ok((socket.transpose()?.map(OwnedFd::from), state.known))
    }

    /// Goes on with a socket and a size that another daemon has had.
    ///
    /// # Errors
    /// As for [`ConfigNotices::connect`].
    pub(super) fn put_state(&self, socket: Option<File>, known: Option<u64>) -> Result<(), String> {
        if let Some(socket) = socket {
            self.connect(socket)?;
        }
        self.lock().known = known;
        Ok(())
    }

    /// Runs `read`, which looks up the disk's configuration for the front-end and returns the size;
    /// `reads_size` is true if the front-end gets that field.
    pub(super) fn note_read(&self, reads_size: bool, read: impl FnOnce() -> u64) {
        // Looked up under the lock: a change after that finds which size is known.
        let mut state = self.lock();
        let size = read();
        if reads_size {
            state.known = Some(size);
        }
    }

    /// Notifies a front-end that has not read the size in this session, because its driver may know
    /// that of an earlier one. Called when a queue has started, before which QEMU ignores notices.
    pub(super) fn queue_started(&self, size: u64) {
        let mut state = self.lock();
        if state.known.is_none() {
            state.send(size);
        }
    }

    /// Notifies the front-end if it knows another size than this one.
    pub(crate) fn size_is(&self, size: u64) {
        let mut state = self.lock();
        if state.known.is_some_and(|known| known != size) {
            state.send(size);
        }
    }
}

impl State {
    fn send(&mut self, size: u64) {
        let Some(socket) = &self.socket else {
            return;
        };
        let message = header(BackendReq::CONFIG_CHANGE_MSG.into(), VERSION, 0);
        match sys::send_now(socket, &message) {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => self.socket = None,
            _ => self.known = Some(size),
        }
    }
}

/// Message `SET_BACKEND_REQ_FD`. It is received here because the crate keeps the socket to itself,
/// and has no notice to send by it.
#[derive(Debug)]
pub(super) struct SocketOffer {
    /// File that was attached.
    pub(super) file: Option<File>,
    /// True if the front-end waits for a reply.
    pub(super) needs_reply: bool,
}

impl SocketOffer {
    /// Waits for the next message and receives it if it offers a socket. Any other message, also
    /// one that is not complete, stays where it is.
    ///
    /// # Errors
    /// If the offer has more than one file.
    pub(super) fn receive(front_end: &UnixStream) -> io::Result<Option<SocketOffer>> {
        let mut seen = [0; HEADER];
        // The reader of the other messages meets the error, too.
        let Ok(HEADER) = sys::peek(front_end, &mut seen) else {
            return Ok(None);
        };
        let [request, flags, len] = [0, 4, 8].map(|at| {
            let field: [u8; 4] = seen[at..at + 4].try_into().expect("four bytes");
            u32::from_ne_bytes(field)
        });
        let is_offer = request == u32::from(FrontendReq::SET_BACKEND_REQ_FD)
            && flags & (VERSION_BITS | REPLY) == VERSION
            && len == 0;
        if !is_offer {
            return Ok(None);
        }
        let mut files = receive_files(front_end, &mut seen)?;
        if files.len() > 1 {
            return Err(io::Error::other("an offer of more than one socket"));
        }
        Ok(Some(SocketOffer {
            file: files.pop(),
            needs_reply: flags & NEED_REPLY != 0,
        }))
    }

    /// Answers an offer by `REPLY_ACK`.
    ///
    /// # Errors
    /// If the front-end has gone.
    pub(super) fn answer(mut front_end: &UnixStream, accepted: bool) -> io::Result<()> {
        let status = u64::from(!accepted).to_ne_bytes();
        let request = FrontendReq::SET_BACKEND_REQ_FD.into();
        let header = header(request, VERSION | REPLY, status.len() as u32);
        front_end.write_all(&[&header[..], &status].concat())
    }
}

/// Receives bytes and the files that are attached to them.
///
/// # Errors
/// If there are more than two files, all of which are closed then.
fn receive_files(front_end: &UnixStream, to: &mut [u8; HEADER]) -> io::Result<Vec<File>> {
    let mut descriptors = [0; 2];
    let mut parts = [libc::iovec {
        iov_base: to.as_mut_ptr().cast(),
        iov_len: to.len(),
    }];
    // For two, because the kernel passes files in pairs: a control message for one has room for
    // another, which `recv_with_fd` neither returns nor closes.
    // SAFETY: the bytes are ours, and may be any.
    let received = unsafe { front_end.recv_with_fds(&mut parts, &mut descriptors) };
    let (_, files) = received.map_err(io::Error::from)?;
    // SAFETY: descriptors that were received just now have no other owner.
    let own = |&fd: &i32| unsafe { File::from_raw_fd(fd) };
    Ok(descriptors[..files].iter().map(own).collect())
}

/// Returns a message of a front-end that waits for no reply.
pub(super) fn request(request: FrontendReq, body: &[u8]) -> Vec<u8> {
    let header = header(request.into(), VERSION, body.len() as u32);
    [&header[..], body].concat()
}

fn header(request: u32, flags: u32, len: u32) -> [u8; HEADER] {
    let mut bytes = [0; HEADER];
    for (at, field) in [request, flags, len].into_iter().enumerate() {
        bytes[4 * at..4 * at + 4].copy_from_slice(&field.to_ne_bytes());
    }
    bytes
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::fd::AsFd;

    use super::*;

    /// Makes notices with a socket, and returns the front-end's end of it.
    fn connected() -> (ConfigNotices, UnixStream, UnixStream) {
        let (theirs, ours) = UnixStream::pair().expect("a pair");
        theirs.set_nonblocking(true).expect("set");
        let notices = ConfigNotices::default();
        let copy = ours.try_clone().expect("a descriptor");
        notices
            .connect(OwnedFd::from(ours).into())
            .expect("it is a socket");
        (notices, theirs, copy)
    }

    /// Returns the number of notices in a socket.
    fn count(socket: &mut UnixStream) -> usize {
        let mut bytes = [0; HEADER];
        let mut n = 0;
        while socket.read_exact(&mut bytes).is_ok() {
            assert_eq!(
                bytes,
                header(2, 1, 0),
                "CONFIG_CHANGE_MSG without NEED_REPLY"
            );
            n += 1;
        }
        n
    }

    #[test]
    fn a_notice_is_sent_for_each_size_that_is_not_known() {
        let (notices, mut theirs, _) = connected();
        notices.size_is(4096);
        assert_eq!(count(&mut theirs), 0, "nothing has been read");
        notices.note_read(false, || 512);
        notices.size_is(4096);
        assert_eq!(count(&mut theirs), 0, "the size was not among it");
        notices.note_read(true, || 4096);
        notices.size_is(4096);
        notices.queue_started(4096);
        assert_eq!(count(&mut theirs), 0);
        notices.size_is(8192);
        notices.size_is(8192);
        assert_eq!(count(&mut theirs), 1);
        notices.size_is(4096);
        assert_eq!(count(&mut theirs), 1);
    }

    #[test]
    fn a_session_that_reads_no_size_gets_one_notice_when_it_starts() {
        let (notices, mut theirs, _) = connected();
        notices.queue_started(4096);
        notices.queue_started(4096);
        assert_eq!(count(&mut theirs), 1);
    }

    #[test]
    fn a_socket_that_is_full_or_closed_holds_up_nobody() {
        let (notices, mut theirs, ours) = connected();
        notices.note_read(true, || 0);
        // More than the socket holds; the front-end may also have its other end, and clear flags.
        ours.set_nonblocking(false).expect("set");
        for size in 1..10_000 {
            notices.size_is(size);
        }
        let waiting = count(&mut theirs);
        assert!((1..9_999).contains(&waiting), "{waiting} of them");
        notices.size_is(0);
        assert_eq!(count(&mut theirs), 1, "there is room again");
        drop(theirs);
        notices.size_is(1);
        assert!(notices.lock().socket.is_none());
        notices.size_is(2);
    }

    #[test]
    fn only_offers_are_received() {
        let (mut theirs, ours) = UnixStream::pair().expect("a pair");
        let send = |bytes: &[u8], file: Option<&File>| {
            let files: Vec<_> = file
                .iter()
                .map(|file| std::os::fd::AsRawFd::as_raw_fd(*file))
                .collect();
            theirs.send_with_fds(&[bytes], &files).expect("room");
        };
        let file = File::from(theirs.as_fd().try_clone_to_owned().expect("a descriptor"));
        send(&header(21, 1 | NEED_REPLY, 0), Some(&file));
        send(&header(21, 1, 8), None);
        let offer = SocketOffer::receive(&ours)
            .expect("one file")
            .expect("an offer");
        assert!(offer.file.is_some() && offer.needs_reply);
        // A body, which an offer does not have, is the crate's affair.
        assert!(SocketOffer::receive(&ours).expect("peeked").is_none());
        let mut rest = [0; HEADER];
        (&ours).read_exact(&mut rest).expect("it is still there");
        assert_eq!(rest, header(21, 1, 8));
        SocketOffer::answer(&ours, true).expect("sent");
        let mut reply = [0; HEADER + 8];
        theirs.read_exact(&mut reply).expect("an answer");
        assert_eq!(reply[..HEADER], header(21, 5, 8));
        assert_eq!(reply[HEADER..], [0; 8]);
    }

    #[test]
    fn an_offer_of_several_files_is_refused_and_none_of_them_stays_open() {
        use std::os::fd::AsRawFd;
        for count in 2..=5 {
            let (theirs, ours) = UnixStream::pair().expect("a pair");
            let (reader, writer) = std::io::pipe().expect("a pipe");
            let files = vec![writer.as_raw_fd(); count];
            let offer = header(21, 1, 0);
            theirs.send_with_fds(&[&offer[..]], &files).expect("room");
            drop(writer);
            assert!(SocketOffer::receive(&ours).is_err(), "{count} files");
            let mut poll = libc::pollfd {
                fd: reader.as_raw_fd(),
                events: libc::POLLIN,
                revents: 0,
            };
            // SAFETY: one entry of ours.
            let ready = unsafe { libc::poll(&mut poll, 1, 0) };
            assert_eq!(ready, 1, "one of {count} files is open");
            assert_eq!(poll.revents, libc::POLLHUP, "no writer is left");
        }
    }

    #[test]
    fn a_file_that_is_no_socket_is_refused() {
        let notices = ConfigNotices::default();
        let file = tempfile::tempfile().expect("a file");
        let refused = notices.connect(file).expect_err("no socket");
        assert!(refused.contains("no unix socket"), "{refused}");
    }
}
