//! systemd as a daemon sees it: a socket for notifications that knows who sends them, the main
//! process of a service, and the adoption of orphans.

use std::io::ErrorKind;
use std::mem::{size_of, zeroed};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::time::Duration;

/// Time after which something does not happen.
const PATIENCE: Duration = Duration::from_secs(60);
/// Room for control messages: credentials and a few descriptors.
const CONTROL_WORDS: usize = 32;

/// Notification as it was sent.
#[derive(Debug)]
pub(crate) struct Notification {
    /// Sender by the kernel.
    pub(crate) pid: u32,
    pub(crate) lines: Vec<String>,
    pub(crate) descriptors: Vec<OwnedFd>,
}

/// Service manager of one service whose unit has `NotifyAccess=all`.
pub(crate) struct Systemd {
    socket: UnixDatagram,
    /// Main process of the service.
    pub(crate) main: u32,
}

impl Systemd {
    /// Listens at a path, and adopts orphans of this process from now on, as systemd does.
    pub(crate) fn listen(path: &Path) -> Systemd {
        let socket = UnixDatagram::bind(path).expect("a free path");
        socket.set_read_timeout(Some(PATIENCE)).expect("not zero");
        let on: libc::c_int = 1;
        // SAFETY: the option reads an integer that is ours; the other call takes no memory.
        let set = unsafe {
            libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
            libc::setsockopt(
                socket.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_PASSCRED,
                (&raw const on).cast(),
                size_of::<libc::c_int>() as libc::socklen_t,
            )
        };
        assert_eq!(set, 0);
        Systemd { socket, main: 0 }
    }

    /// Waits for the next notification. Its sender must be a process of the service, and a main
    /// process that it names a child of systemd.
    pub(crate) fn next(&mut self) -> Notification {
        let notification = self.receive();
        let Notification { pid, lines, .. } = &notification;
        // The main process is known by its number, also when it has ended by now.
        if *pid != self.main {
            let group = |process: &str| std::fs::read_to_string(format!("/proc/{process}/cgroup"));
            let own = group("self").expect("it runs");
            assert_eq!(group(&pid.to_string()).ok(), Some(own), "{lines:?}");
        }
        let named = lines.iter().find_map(|line| line.strip_prefix("MAINPID="));
        if let Some(named) = named {
            let named = named.parse().expect("a number");
            assert_eq!(
                parent(named),
                std::process::id(),
                "systemd supervises no stranger"
            );
            self.main = named;
        }
        notification
    }

    /// Waits for the next notification that is not the watchdog's. Those of the watchdog, too, must
    /// be the main process's.
    pub(crate) fn next_change(&mut self) -> Notification {
        loop {
            let next = self.next();
            if next.lines != ["WATCHDOG=1"] {
                return next;
            }
            assert_eq!(next.pid, self.main, "{next:?}");
        }
    }

    /// Fills the queue of notifications, whose senders wait for room from then on.
    pub(crate) fn stop_reading(&self, path: &Path) {
        let sender = UnixDatagram::unbound().expect("a socket");
        sender.connect(path).expect("it listens");
        sender.set_nonblocking(true).expect("a socket");
        let full = loop {
            if let Err(error) = sender.send(b"WATCHDOG=1") {
                break error;
            }
        };
        assert_eq!(full.kind(), ErrorKind::WouldBlock, "{full}");
    }

    /// Returns true if a notification waits.
    pub(crate) fn has_more(&self) -> bool {
        let flags = libc::MSG_PEEK | libc::MSG_DONTWAIT;
        let mut byte = 0u8;
        // SAFETY: one byte, which is ours.
        let peeked =
            unsafe { libc::recv(self.socket.as_raw_fd(), (&raw mut byte).cast(), 1, flags) };
        peeked >= 0
    }

    fn receive(&self) -> Notification {
        let mut bytes = [0u8; 4096];
        let mut control = [0u64; CONTROL_WORDS];
        let mut part = libc::iovec {
            iov_base: bytes.as_mut_ptr().cast(),
            iov_len: bytes.len(),
        };
        let (mut pid, mut descriptors) = (0, Vec::new());
        // SAFETY: zeroes are a message; parts and control messages are ours, the headers lie in
        // `control`, and the kernel has made the descriptors for this call.
        let len = unsafe {
            let mut message: libc::msghdr = zeroed();
            message.msg_iov = &raw mut part;
            message.msg_iovlen = 1;
            message.msg_control = control.as_mut_ptr().cast();
            message.msg_controllen = size_of_val(&control) as _;
            let len = libc::recvmsg(
                self.socket.as_raw_fd(),
                &raw mut message,
                libc::MSG_CMSG_CLOEXEC,
            );
            let mut header = libc::CMSG_FIRSTHDR(&raw const message);
            while len > 0 && !header.is_null() {
                let data = libc::CMSG_DATA(header);
                match (*header).cmsg_type {
                    libc::SCM_CREDENTIALS => {
                        pid = data.cast::<libc::ucred>().read_unaligned().pid;
                    }
                    libc::SCM_RIGHTS => {
                        let room = (*header).cmsg_len as usize - libc::CMSG_LEN(0) as usize;
                        for at in 0..room / size_of::<libc::c_int>() {
                            let number = data.cast::<libc::c_int>().add(at).read_unaligned();
                            descriptors.push(OwnedFd::from_raw_fd(number));
                        }
                    }
                    _ => {}
                }
                header = libc::CMSG_NXTHDR(&raw const message, header);
            }
            len
        };
        let len = usize::try_from(len).expect("a notification in time");
        let text = std::str::from_utf8(&bytes[..len]).expect("text");
        Notification {
            pid: pid as u32,
            lines: text.lines().map(str::to_owned).collect(),
            descriptors,
        }
    }
}

/// Returns the parent of a process.
fn parent(pid: u32) -> u32 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("PPid:"));
    line.expect("every process has one")
        .trim()
        .parse()
        .expect("a number")
}

/// Waits for the end of a process that was adopted. Returns its exit status, or the signal that has
/// ended it as a negative number.
pub(crate) fn wait_for_adopted(pid: u32) -> i32 {
    let mut status = 0;
    // SAFETY: takes an integer that is ours, and a child that no other code waits for.
    let ended = unsafe { libc::waitpid(pid as libc::pid_t, &mut status, 0) };
    assert_eq!(ended, pid as libc::pid_t, "it is no child");
    match libc::WIFEXITED(status) {
        true => libc::WEXITSTATUS(status),
        false => -libc::WTERMSIG(status),
    }
}
