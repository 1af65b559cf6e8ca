//! Unix sockets: whether a process listens, groups of a peer, and their files.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::mem::{size_of, zeroed};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::check;

/// Returns true if a process listens on the unix socket at a path. Does not wait: the error
/// `EAGAIN`, of a listener whose accept queue is full, shows that there is a listener.
///
/// # Errors
/// If the path is too long for a socket, or no socket can be opened.
pub fn is_listened_on(path: &Path) -> io::Result<bool> {
    let address = address_of(path)?;
    let socket = open_stream()?;
    match connect(&socket, &address) {
        // Only this error says that no process listens.
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Ok(false),
        Ok(()) | Err(_) => Ok(true),
    }
}

fn address_of(path: &Path) -> io::Result<libc::sockaddr_un> {
    let bytes = path.as_os_str().as_bytes();
    // SAFETY: `sockaddr_un` consists of integers, for which zeroes are valid.
    let mut address: libc::sockaddr_un = unsafe { zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    // The path ends with a zero byte, so it is shorter than the field.
    if bytes.len() >= address.sun_path.len() || bytes.contains(&0) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    for (to, from) in address.sun_path.iter_mut().zip(bytes) {
        *to = *from as libc::c_char;
    }
    Ok(address)
}

/// Opens a stream socket that does not block.
fn open_stream() -> io::Result<OwnedFd> {
    let kind = libc::SOCK_STREAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: takes and returns integers.
    let fd = unsafe { libc::socket(libc::AF_UNIX, kind, 0) };
    check(fd)?;
    // SAFETY: the call has just opened the descriptor, which nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn connect(socket: &OwnedFd, address: &libc::sockaddr_un) -> io::Result<()> {
    let pointer = std::ptr::from_ref(address).cast();
    let len = size_of::<libc::sockaddr_un>() as libc::socklen_t;
    // SAFETY: `pointer` and `len` describe `address`, which outlives the call.
    check(unsafe { libc::connect(socket.as_raw_fd(), pointer, len) })
}

/// Opens a file of any kind, such as that of a socket, as a reference that neither reads nor writes
/// (`O_PATH`); a symbolic link is not followed. The standard library leaves the flag out with musl,
/// where it counts as an access mode.
///
/// # Errors
/// The error of `open(2)`.
pub fn open_reference(path: &Path) -> io::Result<File> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    let flags = libc::O_PATH | libc::O_NOFOLLOW | libc::O_CLOEXEC;
    // SAFETY: the path ends with a zero byte and outlives the call.
    let fd = unsafe { libc::open(path.as_ptr(), flags) };
    check(fd)?;
    // SAFETY: the call has just opened the descriptor, which nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) }.into())
}

/// Returns the supplementary groups that the peer of a connected unix socket had when it connected
/// (`SO_PEERGROUPS`). Unlike `/proc`, this cannot name the groups of another process that got the
/// number of the peer meanwhile.
///
/// # Errors
/// The error of `getsockopt(2)`.
pub fn peer_groups(socket: BorrowedFd<'_>) -> io::Result<Vec<u32>> {
    /// Groups for which there is room at first; Linux allows 65536 a process.
    const USUAL: usize = 64;
    let mut groups = vec![0_u32; USUAL];
    loop {
        let mut len = (groups.len() * size_of::<u32>()) as libc::socklen_t;
        // SAFETY: the kernel writes at most `len` bytes to `groups`, which has as many, and then
        // the length to `len`; both outlive the call.
        let done = check(unsafe {
            libc::getsockopt(
                socket.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_PEERGROUPS,
                groups.as_mut_ptr().cast(),
                &mut len,
            )
        });
        let count = len as usize / size_of::<u32>();
        match done {
            Ok(()) => {
                groups.truncate(count);
                return Ok(groups);
            }
            // The length is the one that is needed.
            Err(error) if error.raw_os_error() == Some(libc::ERANGE) && count > groups.len() => {
                groups.resize(count, 0);
            }
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixListener;

    use super::*;

    /// Connects to a listener until its accept queue is full.
    fn fill(path: &Path) -> Vec<OwnedFd> {
        let address = address_of(path).expect("short");
        let mut clients = Vec::new();
        loop {
            let socket = open_stream().expect("opens");
            match connect(&socket, &address) {
                Ok(()) => clients.push(socket),
                Err(error) => {
                    assert_eq!(error.kind(), io::ErrorKind::WouldBlock, "{error}");
                    return clients;
                }
            }
        }
    }

    #[test]
    fn the_groups_of_a_peer_are_those_of_its_process() {
        let (own, _peer) = std::os::unix::net::UnixStream::pair().expect("a pair");
        let mut expected = vec![0_u32; 65_536];
        // SAFETY: the kernel writes at most as many groups as there is room for.
        let n = unsafe { libc::getgroups(65_536, expected.as_mut_ptr()) };
        expected.truncate(usize::try_from(n).expect("no error"));
        let mut groups = peer_groups(own.as_fd()).expect("it has a peer");
        groups.sort_unstable();
        expected.sort_unstable();
        assert_eq!(groups, expected);
        let file = tempfile::tempfile().expect("a file");
        assert!(peer_groups(file.as_fd()).is_err(), "no socket");
    }

    #[test]
    fn a_listener_that_accepts_nobody_is_seen_without_waiting() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("s");
        let listener = UnixListener::bind(&path).expect("binds");
        assert!(is_listened_on(&path).expect("looked"));
        let clients = fill(&path);
        assert!(!clients.is_empty());
        // A connect that waits for room would wait for ever.
        assert!(is_listened_on(&path).expect("looked"));
        drop(listener);
        assert!(!is_listened_on(&path).expect("looked"));
        let long = dir.path().join("x".repeat(120));
        assert!(is_listened_on(&long).is_err());
    }
}
