//! Change of a service's main process when a new daemon takes over from the running one.
//!
//! ```text
//!   new daemon                                 systemd         running daemon
//!     (has the last word)  MAINPID, READY -->                    says nothing more
//!                          WATCHDOG_USEC
//!                          BARRIER        -->  closes its pipe
//!     Supervised  ---------------------------------------------> ends
//!     WATCHDOG, STATUS     -->
//! ```
//!
//! systemd takes `MAINPID` of any process of the service if the unit has `NotifyAccess=all`. It has
//! to have read the message before the main process ends: it would end the whole service
//! otherwise. The pipe of `BARRIER` is closed once all messages before it were read:
//! sd_notify_barrier(3).

use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::{Duration, Instant};

use super::{CONNECTION, half};
use crate::ring::sys;

/// Variable of the unit that says that systemd takes notifications of a new daemon.
const VARIABLE: &str = "TIDEGATE_RELOAD";
/// Value of [`VARIABLE`].
const TAKEOVER: &str = "takeover";

/// Time for systemd to have room for a message.
const SEND_TIMEOUT: Duration = Duration::from_secs(5);
/// Time for systemd to read what it was sent. A message that was sent is read before the end of a
/// process is noticed, so the running daemon may end after that, too.
const READ_TIMEOUT: Duration = Duration::from_secs(60);
/// Time within which messages that cannot be sent are repeated.
const REPEAT_TIMEOUT: Duration = Duration::from_secs(60);
/// Pause before another attempt to send.
const REPEAT_DELAY: Duration = Duration::from_millis(200);

/// Returns true if systemd lets this process, which is not the main process of the service, become
/// that: it is notified, and the unit says that it listens to all processes.
pub(crate) fn may_become_main() -> bool {
    let is_allowed = std::env::var_os(VARIABLE).is_some_and(|value| value == TAKEOVER);
    is_allowed && CONNECTION.get().is_some()
}

/// Returns the time in microseconds for which the watchdog waits for notifications of this process.
pub(crate) fn watchdog_micros() -> Option<u64> {
    let connection = CONNECTION.get()?;
    let begun = (*connection.manager.voice.begun.borrow()).flatten();
    begun.map(|every| (2 * every).as_micros() as u64)
}

/// Returns true if a process is in the control group of this one, which is that of the service.
///
/// # Errors
/// If the process is gone, or of another user and hidden.
pub(crate) fn is_of_own_service(pid: i32) -> io::Result<bool> {
    let group = |process: &str| std::fs::read_to_string(format!("/proc/{process}/cgroup"));
    Ok(group(&pid.to_string())? == group("self")?)
}

/// Sends no notifications from now on: another process is about to be the main process.
pub(crate) fn fall_silent() {
    super::with_manager(|manager| manager.voice.silence(true));
}

/// Sends notifications again, because this process goes on as the main process.
pub(crate) fn speak_again() {
    super::with_manager(|manager| manager.voice.silence(false));
}

/// Begins to send notifications as the process that the manager knows already.
pub(crate) fn begin() {
    if let Some(connection) = CONNECTION.get() {
        connection.manager.voice.begin(connection.own_watchdog);
    }
}

/// Makes this process the main process of the service, and begins to send its notifications.
/// `watched_for` is the time in microseconds for which the watchdog waits for those of the running
/// daemon. Blocks until systemd has read it.
///
/// # Errors
/// The reason, if systemd may not know the main process. Notifications are sent all the same.
pub(crate) fn become_main(watched_for: Option<u64>) -> Result<(), String> {
    let Some(connection) = CONNECTION.get() else {
        return Ok(());
    };
    let announced = announce_within(&connection.address, watched_for, REPEAT_TIMEOUT);
    let handed = watched_for.map(Duration::from_micros);
    connection.manager.voice.begin(handed.map(half));
    announced
}

/// Tells systemd the main process. Repeats for so long what cannot be sent.
fn announce_within(
    address: &SocketAddr,
    watched_for: Option<u64>,
    within: Duration,
) -> Result<(), String> {
    let until = Instant::now() + within;
    loop {
        match announce(address, watched_for) {
            Ok(true) => return Ok(()),
            Ok(false) => {
                return Err(format!(
                    "systemd has not read within {READ_TIMEOUT:?} that the new daemon is the main \
                     process"
                ));
            }
            Err(error) if Instant::now() < until => {
                tracing::debug!("systemd cannot be told the main process yet: {error}");
                std::thread::sleep(REPEAT_DELAY);
            }
            Err(error) => {
                return Err(format!(
                    "systemd cannot be told that the new daemon is the main process: {error}"
                ));
            }
        }
    }
}

/// Tells systemd the main process, that it serves, and the time in microseconds for which the
/// watchdog waits. Returns true once all were read.
fn announce(address: &SocketAddr, watched_for: Option<u64>) -> io::Result<bool> {
    let socket = UnixDatagram::unbound()?;
    socket.connect_addr(address)?;
    socket.set_write_timeout(Some(SEND_TIMEOUT))?;
    let mut lines = format!("MAINPID={}\nREADY=1\n", std::process::id());
    if let Some(micros) = watched_for {
        // Should systemd have another time for the new main process, as of a changed unit.
        lines.push_str(&format!("WATCHDOG_USEC={micros}\n"));
    }
    socket.send(lines.as_bytes())?;
    let (reader, writer) = io::pipe()?;
    sys::send_datagram(&socket, b"BARRIER=1", &[writer.as_fd()])?;
    drop(writer);
    // Confined threads can write to what is open.
    drop(socket);
    Ok(sys::is_hung_up(reader.as_fd(), READ_TIMEOUT))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_of_the_own_service_if_its_control_group_is() {
        let own = std::process::id() as i32;
        assert!(is_of_own_service(own).expect("it runs"));
        assert!(is_of_own_service(i32::MAX).is_err());
    }

    #[test]
    fn the_main_process_is_told_before_the_barrier_whose_end_is_waited_for() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("notify");
        let manager = UnixDatagram::bind(&path).expect("a free path");
        let address = SocketAddr::from_pathname(&path).expect("short");
        let announced = std::thread::spawn(move || announce(&address, Some(200_000)));
        let receive = || {
            let mut lines = [0; 256];
            let len = manager.recv(&mut lines).expect("a message");
            String::from_utf8(lines[..len].to_vec()).expect("text")
        };
        let pid = std::process::id();
        let expected = format!("MAINPID={pid}\nREADY=1\nWATCHDOG_USEC=200000\n");
        assert_eq!(receive(), expected);
        assert!(!announced.is_finished(), "the barrier was not read");
        // Received without its descriptor, which the kernel closes then.
        assert_eq!(receive(), "BARRIER=1");
        assert!(announced.join().expect("no panic").expect("all was sent"));
    }

    #[test]
    fn an_announcement_that_cannot_be_sent_is_an_error_and_one_that_is_read_is_none() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("notify");
        let address = SocketAddr::from_pathname(&path).expect("short");
        let why =
            announce_within(&address, None, Duration::ZERO).expect_err("the socket does not exist");
        assert!(why.contains("cannot be told"), "{why}");
        let manager = UnixDatagram::bind(&path).expect("a free path");
        let read = std::thread::spawn(move || {
            for _ in ["the main process", "the barrier"] {
                manager.recv(&mut [0; 256]).expect("a message");
            }
        });
        assert_eq!(announce_within(&address, None, Duration::ZERO), Ok(()));
        read.join().expect("no panic");
    }
}
