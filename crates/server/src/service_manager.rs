//! Notifications to the service manager that has started the daemon, such as systemd, and its
//! watchdog: sd_notify(3).
//!
//! ```text
//!   daemon, reload of TLS --lines--> queue --> task on the control thread --datagram--> manager
//!                                              |
//!                                              +-- WATCHDOG=1 at half of WATCHDOG_USEC
//! ```
//!
//! In a takeover two daemons are processes of one service. The one that is to take over says
//! nothing until it is the main process (`succession`).
//!
//! The watchdog watches the control thread alone: its task sends while that thread runs. A hung
//! disk blocks an event loop and no control thread, and a daemon that is killed for it would take
//! the other disks with it; an event loop that ends, ends the daemon anyway.
//!
//! The crate sd-notify (0.5) sends from a blocking socket: a service manager that reads nothing
//! would stop the control thread.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::time::{Interval, MissedTickBehavior, interval};

use crate::ring::read_clock;

mod succession;

pub(crate) use succession::{
    become_main, begin, fall_silent, is_of_own_service, may_become_main, speak_again,
    watchdog_micros,
};

/// Time beyond the deadline of an orderly end within which the process ends.
const END_SLACK: Duration = Duration::from_secs(10);

/// Pause before another attempt at a manager that does not read.
const RETRY_DELAY: Duration = Duration::from_millis(20);

/// Manager of this process; empty if there is none, or if this program does not serve it.
static CONNECTION: OnceLock<Connection> = OnceLock::new();

/// Process of a service that connects to the manager.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// Main process, which notifies from now on.
    Main,
    /// Daemon that is to take over from the main process. Notifies once it has.
    Successor,
}

/// Finds the service manager by the environment, and begins to send its notifications. Must be
/// called within the runtime of the control thread, and once. Without a service manager nothing
/// happens, then and later.
///
/// # Errors
/// If the environment names a manager that cannot be reached.
pub fn connect(role: Role) -> Result<(), ConnectError> {
    let get = |name: &str| std::env::var_os(name);
    let Some(found) = Found::by(get, std::process::id())? else {
        return Ok(());
    };
    let (manager, notifications) = Manager::new();
    if role == Role::Main {
        manager.voice.begin(found.watchdog);
    }
    let voice = manager.voice.clone();
    let connection = Connection {
        manager,
        address: found.address.clone(),
        own_watchdog: found.watchdog,
    };
    tokio::spawn(found.send_all(notifications, voice));
    assert!(CONNECTION.set(connection).is_ok(), "connected twice");
    Ok(())
}

/// Manager that was found, and how this process notifies it.
#[derive(Debug)]
struct Connection {
    manager: Manager,
    address: SocketAddr,
    /// Interval of this process's notifications for the watchdog, if they are its own to send.
    own_watchdog: Option<Duration>,
}

/// Supervisor that ends with its first process whatever that has started.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Supervisor {
    /// A service of systemd, of whatever type.
    Systemd,
    /// A container, or another PID namespace, whose first process this one is.
    Container,
}

/// Returns the supervisor that has started this process.
pub(crate) fn supervisor() -> Option<Supervisor> {
    supervisor_by(|name: &str| std::env::var_os(name), std::process::id())
}

fn supervisor_by(get: impl Fn(&str) -> Option<OsString>, pid: u32) -> Option<Supervisor> {
    // First, because a container's manager may pass it a socket for notifications.
    if pid == 1 {
        return Some(Supervisor::Container);
    }
    // Also one that cannot be reached. The other variable is inherited by children of the service.
    let notified = get("NOTIFY_SOCKET").is_some_and(|name| !name.is_empty());
    let is_main = get("SYSTEMD_EXEC_PID").is_some_and(|of| of == pid.to_string().as_str());
    (notified || is_main).then_some(Supervisor::Systemd)
}

/// Reports that the daemon serves.
pub(crate) fn ready(status: &str) {
    with_manager(|manager| manager.ready(status));
}

/// Reports what the daemon does, in one line for people.
pub(crate) fn status(status: &str) {
    with_manager(|manager| manager.status(status));
}

/// Reports that the daemon ends, which takes at most `within` and then is cut short.
pub(crate) fn stopping(within: Duration) {
    with_manager(|manager| manager.stopping(within));
}

fn with_manager(act: impl FnOnce(&Manager)) {
    if let Some(connection) = CONNECTION.get() {
        act(&connection.manager);
    }
}

/// Reload of a part of the configuration; the manager is told of its beginning and, once all
/// reloads have ended, of the end.
#[derive(Debug)]
pub(crate) struct Reloading(());

impl Reloading {
    /// Reports the beginning of a reload; its end is when the value is dropped.
    pub(crate) fn begin() -> Reloading {
        with_manager(Manager::reload_begins);
        Reloading(())
    }
}

impl Drop for Reloading {
    fn drop(&mut self) {
        with_manager(Manager::reload_ends);
    }
}

/// Reason why the service manager gets no notifications.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The address is neither a path nor an abstract name.
    #[error("NOTIFY_SOCKET is {0:?}: neither an absolute path nor a name that begins with \"@\"")]
    Address(OsString),
    /// A system call failed.
    #[error("NOTIFY_SOCKET is {0:?}: {1}")]
    Io(OsString, io::Error),
}

/// Service manager as the environment describes it.
#[derive(Debug)]
struct Found {
    /// Not connected: confined threads can write to what is open, and may send to no address.
    socket: UnixDatagram,
    address: SocketAddr,
    /// Interval of the watchdog's notifications, half of what the manager waits, if it watches this
    /// process.
    watchdog: Option<Duration>,
}

/// Returns the interval of notifications for a watchdog that waits for so long.
fn half(time: Duration) -> Duration {
    time / 2
}

impl Found {
    /// Reads the environment of the process `pid` by `get`; `None` without a manager.
    fn by(get: impl Fn(&str) -> Option<OsString>, pid: u32) -> Result<Option<Found>, ConnectError> {
        let Some(name) = get("NOTIFY_SOCKET").filter(|name| !name.is_empty()) else {
            return Ok(None);
        };
        let address = match address(&name) {
            Some(Ok(address)) => address,
            Some(Err(error)) => return Err(ConnectError::Io(name, error)),
            None => return Err(ConnectError::Address(name)),
        };
        let opened = UnixDatagram::unbound().and_then(|socket| {
            socket.set_nonblocking(true)?;
            // Finds out whether somebody is there; the connection ends with its socket.
            UnixDatagram::unbound()?.connect_addr(&address)?;
            Ok(socket)
        });
        let socket = opened.map_err(|error| ConnectError::Io(name, error))?;
        let number = |name| get(name)?.to_str()?.parse::<u64>().ok();
        // Set for another process, such as a parent of this one.
        let is_others = number("WATCHDOG_PID").is_some_and(|watched| watched != u64::from(pid));
        let micros = number("WATCHDOG_USEC").filter(|micros| *micros > 1);
        let watched_for = micros.map(Duration::from_micros);
        Ok(Some(Found {
            socket,
            address,
            watchdog: watched_for.filter(|_| !is_others).map(half),
        }))
    }

    /// Sends notifications in their order, and those of the watchdog, from the beginning of `voice`
    /// until their queue is closed.
    async fn send_all(self, mut notifications: mpsc::UnboundedReceiver<String>, voice: Voice) {
        let mut watchdog = voice.has_begun().await.map(|every| {
            let mut ticks = interval(every);
            // One after a stall is enough.
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            ticks
        });
        let mut failing = false;
        loop {
            let lines = tokio::select! {
                lines = notifications.recv() => match lines {
                    Some(lines) => lines,
                    None => break,
                },
                () = tick(watchdog.as_mut()) => "WATCHDOG=1\n".to_owned(),
            };
            if voice.is_silent() {
                continue;
            }
            let sent = self.send(&lines).await;
            if let Err(error) = &sent
                && !failing
            {
                tracing::warn!("the service manager cannot be notified: {error}");
            }
            failing = sent.is_err();
        }
    }

    /// Sends a notification. Waits while the manager does not read, and other tasks go on.
    async fn send(&self, lines: &str) -> io::Result<()> {
        loop {
            match self.socket.send_to_addr(lines.as_bytes(), &self.address) {
                // A socket that is not connected counts as writable, so there is no event.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    tokio::time::sleep(RETRY_DELAY).await;
                }
                sent => return sent.map(drop),
            }
        }
    }
}

/// Returns the address that `NOTIFY_SOCKET` names; `None` if it is of another kind.
fn address(name: &OsStr) -> Option<io::Result<SocketAddr>> {
    match name.as_bytes() {
        [b'@', name @ ..] => Some(SocketAddr::from_abstract_name(name)),
        [b'/', ..] => Some(SocketAddr::from_pathname(name)),
        _ => None,
    }
}

/// Waits for the next tick; for ever if there are none.
async fn tick(ticks: Option<&mut Interval>) {
    match ticks {
        Some(ticks) => drop(ticks.tick().await),
        None => std::future::pending().await,
    }
}

/// Permission to notify, which only the main process of a service uses. Clones share it.
#[derive(Clone, Debug)]
struct Voice {
    /// Set once notifications may be sent: the interval of the watchdog's, if it has any.
    begun: watch::Sender<Option<Option<Duration>>>,
    silent: Arc<AtomicBool>,
}

impl Voice {
    fn new() -> Voice {
        Voice {
            begun: watch::Sender::new(None),
            silent: Arc::default(),
        }
    }

    fn begin(&self, watchdog: Option<Duration>) {
        self.begun.send_replace(Some(watchdog));
    }

    /// Waits until notifications may be sent. Returns the interval of the watchdog's.
    async fn has_begun(&self) -> Option<Duration> {
        let mut begun = self.begun.subscribe();
        let begun = begun.wait_for(Option::is_some).await;
        begun.expect("this has the sender").expect("waited for")
    }

    fn is_silent(&self) -> bool {
        self.silent.load(Ordering::Acquire)
    }

    fn silence(&self, is_silent: bool) {
        self.silent.store(is_silent, Ordering::Release);
    }
}

/// Service manager, as the daemon sees it.
#[derive(Debug)]
struct Manager {
    queue: mpsc::UnboundedSender<String>,
    voice: Voice,
    /// Reloads that go on.
    reloads: AtomicU32,
    /// Status before the first of those reloads.
    last_status: Mutex<String>,
}

impl Manager {
    /// Makes a manager, and the queue of its notifications.
    fn new() -> (Manager, mpsc::UnboundedReceiver<String>) {
        let (queue, notifications) = mpsc::unbounded_channel();
        let manager = Manager {
            queue,
            voice: Voice::new(),
            reloads: AtomicU32::new(0),
            last_status: Mutex::default(),
        };
        (manager, notifications)
    }

    fn notify(&self, lines: fmt::Arguments<'_>) {
        // The task ends with the runtime only.
        let _ = self.queue.send(lines.to_string());
    }

    fn ready(&self, status: &str) {
        self.remember(status);
        self.notify(format_args!("READY=1\nSTATUS={status}\n"));
    }

    fn status(&self, status: &str) {
        self.remember(status);
        self.notify(format_args!("STATUS={status}\n"));
    }

    fn remember(&self, status: &str) {
        assert!(
            !status.contains('\n'),
            "a line ends a notification's variable"
        );
        let mut last = self
            .last_status
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        status.clone_into(&mut last);
    }

    fn stopping(&self, within: Duration) {
        let micros = (within + END_SLACK).as_micros();
        self.notify(format_args!(
            "STOPPING=1\nSTATUS=finishing requests in flight\nEXTEND_TIMEOUT_USEC={micros}\n"
        ));
    }

    fn reload_begins(&self) {
        if self.reloads.fetch_add(1, Ordering::Relaxed) == 0 {
            let micros = read_clock(libc::CLOCK_MONOTONIC).0 / 1000;
            self.notify(format_args!(
                "RELOADING=1\nMONOTONIC_USEC={micros}\nSTATUS=reading the configuration again\n"
            ));
        }
    }

    fn reload_ends(&self) {
        if self.reloads.fetch_sub(1, Ordering::Relaxed) == 1 {
            let last = self
                .last_status
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            self.notify(format_args!("READY=1\nSTATUS={last}\n"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Environment with these variables.
    fn variables<'a>(set: &'a [(&'a str, &'a OsStr)]) -> impl Fn(&str) -> Option<OsString> + 'a {
        |name| {
            let variable = set.iter().find(|(set, _)| *set == name);
            variable.map(|(_, value)| (*value).to_owned())
        }
    }

    #[test]
    fn a_process_knows_by_whom_it_was_started() {
        let by = |set: &[(&str, &OsStr)], pid| supervisor_by(variables(set), pid);
        let (socket, own) = (OsStr::new("/run/notify"), OsStr::new("77"));
        assert_eq!(by(&[], 77), None);
        assert_eq!(by(&[("NOTIFY_SOCKET", OsStr::new(""))], 77), None);
        let notified = by(&[("NOTIFY_SOCKET", socket)], 77);
        assert_eq!(notified, Some(Supervisor::Systemd));
        let started = [("SYSTEMD_EXEC_PID", own)];
        assert_eq!(by(&started, 77), Some(Supervisor::Systemd));
        assert_eq!(
            by(&started, 78),
            None,
            "it was started by a process of a service"
        );
        assert_eq!(by(&[], 1), Some(Supervisor::Container));
        let in_container = by(&[("NOTIFY_SOCKET", socket)], 1);
        assert_eq!(in_container, Some(Supervisor::Container));
    }

    /// Socket of a manager at a path, with the directory that it is in.
    fn manager() -> (tempfile::TempDir, UnixDatagram, OsString) {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("notify");
        let socket = UnixDatagram::bind(&path).expect("a free path");
        let patience = Some(Duration::from_secs(30));
        socket.set_read_timeout(patience).expect("not zero");
        (dir, socket, path.into())
    }

    /// Sends a notification that the manager has room for.
    fn send(found: &Found, lines: &str) {
        let sent = found.socket.send_to_addr(lines.as_bytes(), &found.address);
        sent.expect("it listens");
    }

    /// Waits for the next notification.
    fn receive(socket: &UnixDatagram) -> String {
        let mut lines = [0; 4096];
        let len = socket.recv(&mut lines).expect("a notification");
        String::from_utf8(lines[..len].to_vec()).expect("text")
    }

    #[test]
    fn a_manager_is_found_by_path_or_abstract_name_and_nothing_else() {
        let (_dir, socket, path) = manager();
        let found = Found::by(variables(&[("NOTIFY_SOCKET", &path)]), 7);
        let found = found.expect("it listens").expect("it is set");
        assert_eq!(found.watchdog, None);
        send(&found, "READY=1");
        assert_eq!(receive(&socket), "READY=1");

        let name = format!("@tidegate-test-{}", std::process::id());
        let address = address(name.as_ref()).expect("abstract").expect("short");
        let socket = UnixDatagram::bind_addr(&address).expect("a free name");
        let found = Found::by(variables(&[("NOTIFY_SOCKET", name.as_ref())]), 7);
        let found = found.expect("it listens").expect("it is set");
        send(&found, "READY=1");
        assert_eq!(receive(&socket), "READY=1");

        for none in [&[][..], &[("NOTIFY_SOCKET", OsStr::new(""))]] {
            assert!(Found::by(variables(none), 7).expect("none").is_none());
        }
        for (wrong, why) in [
            ("vsock:2:1234", "neither an absolute path"),
            ("run/notify", "neither an absolute path"),
            ("/nonexistent/notify", "No such file"),
        ] {
            let wrong = [("NOTIFY_SOCKET", OsStr::new(wrong))];
            let error = Found::by(variables(&wrong), 7).expect_err("refused");
            assert!(error.to_string().contains(why), "{error}");
        }
    }

    #[test]
    fn the_watchdog_is_notified_at_half_of_its_time_if_it_is_this_process_s() {
        let (_dir, _socket, path) = manager();
        for (micros, pid, expected) in [
            ("3000000", None, Some(Duration::from_millis(1500))),
            ("3000000", Some("7"), Some(Duration::from_millis(1500))),
            ("3000000", Some("8"), None),
            ("0", None, None),
            ("1", None, None),
            ("soon", None, None),
        ] {
            let mut set = vec![
                ("NOTIFY_SOCKET", &*path),
                ("WATCHDOG_USEC", micros.as_ref()),
            ];
            set.extend(pid.map(|pid| ("WATCHDOG_PID", OsStr::new(pid))));
            let found = Found::by(variables(&set), 7).expect("it listens");
            let found = found.expect("it is set");
            assert_eq!(found.watchdog, expected, "{micros} {pid:?}");
        }
    }

    #[test]
    fn notifications_come_in_order_and_reloads_that_overlap_are_one() {
        let (manager, mut notifications) = Manager::new();
        manager.status("opening disks");
        manager.ready("serving 2 VMs on 1 device");
        manager.reload_begins();
        manager.reload_begins();
        manager.reload_ends();
        manager.reload_ends();
        manager.stopping(Duration::from_secs(60));
        let mut next = || notifications.try_recv().expect("one more");
        assert_eq!(next(), "STATUS=opening disks\n");
        assert_eq!(next(), "READY=1\nSTATUS=serving 2 VMs on 1 device\n");
        let reloading = next();
        let time = reloading
            .lines()
            .nth(1)
            .and_then(|line| line.strip_prefix("MONOTONIC_USEC="));
        let micros: u64 = time.expect("a time").parse().expect("a number");
        let now = read_clock(libc::CLOCK_MONOTONIC).0 / 1000;
        assert!(reloading.starts_with("RELOADING=1\n"), "{reloading}");
        assert!((1..=now).contains(&micros), "{micros} {now}");
        assert_eq!(next(), "READY=1\nSTATUS=serving 2 VMs on 1 device\n");
        assert_eq!(
            next(),
            "STOPPING=1\nSTATUS=finishing requests in flight\nEXTEND_TIMEOUT_USEC=70000000\n"
        );
        assert!(notifications.try_recv().is_err(), "no more");
    }

    #[test]
    fn a_manager_that_does_not_read_stops_nothing_and_gets_all_once_it_does() {
        let (_dir, socket, path) = manager();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        let (manager, notifications) = Manager::new();
        let found = Found::by(variables(&[("NOTIFY_SOCKET", &path)]), 7);
        let found = found.expect("it listens").expect("it is set");
        // More than the socket holds (net.unix.max_dgram_qlen, 10 by default).
        let many = 500;
        manager.voice.begin(None);
        let sending = runtime.spawn(found.send_all(notifications, manager.voice.clone()));
        runtime.block_on(async {
            for i in 0..many {
                manager.status(&i.to_string());
                // The thread goes on, whether the manager reads or not.
                tokio::task::yield_now().await;
            }
        });
        let reader =
            std::thread::spawn(move || (0..many).map(|_| receive(&socket)).collect::<Vec<_>>());
        drop(manager);
        runtime.block_on(sending).expect("it ends in order");
        let received = reader.join().expect("all of them");
        let expected: Vec<_> = (0..many).map(|i| format!("STATUS={i}\n")).collect();
        assert_eq!(received, expected);
    }
}
