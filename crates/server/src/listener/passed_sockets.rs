//! Sockets that the service manager listens on and passes to the daemon: sd_listen_fds(3).
//!
//! They are taken over once, when the program starts, and kept until the listener with their
//! address is bound, which then uses them. Clients that come before the daemon is there, or between
//! two daemons, wait in their queues.

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{OwnedFd, RawFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::config::{Config, ListenAddress};
use crate::ring::sys;

/// Number of the first descriptor that is passed.
const FIRST: RawFd = 3;

/// Largest number of descriptors that are looked at, far more than there are listeners.
const PASSED_MAX: RawFd = 1024;

/// Sockets that no listener has used yet.
static UNUSED: Mutex<Vec<PassedSocket>> = Mutex::new(Vec::new());

fn unused() -> MutexGuard<'static, Vec<PassedSocket>> {
    UNUSED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Listening socket that the service manager has passed.
#[derive(Debug)]
pub(super) struct PassedSocket {
    /// Name by `FileDescriptorName=`.
    name: String,
    pub(super) address: PassedAddress,
    pub(super) fd: OwnedFd,
}

/// Address that a passed socket is bound to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum PassedAddress {
    Unix(PathBuf),
    Tcp(SocketAddr),
}

impl fmt::Display for PassedAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PassedAddress::Unix(path) => path.display().fmt(f),
            PassedAddress::Tcp(address) => address.fmt(f),
        }
    }
}

impl PassedAddress {
    /// Returns the address of a socket that listens.
    fn of(fd: &OwnedFd) -> io::Result<PassedAddress> {
        if let Ok(address) = UnixListener::from(fd.try_clone()?).local_addr() {
            let path = address.as_pathname();
            let path = path.ok_or_else(|| io::Error::other("it has no path"))?;
            return Ok(PassedAddress::Unix(path.to_owned()));
        }
        let address = TcpListener::from(fd.try_clone()?).local_addr()?;
        Ok(PassedAddress::Tcp(address))
    }

    /// Returns true if this is the address that a listener is configured with.
    fn is(&self, configured: &ListenAddress) -> bool {
        match (self, configured) {
            (PassedAddress::Unix(own), ListenAddress::Unix { path, .. }) => is_same_file(own, path),
            (PassedAddress::Tcp(own), ListenAddress::Tcp(address)) => own == address,
            _ => false,
        }
    }
}

/// Returns true if both paths lead to one file, such as by `/run` and `/var/run`.
fn is_same_file(a: &Path, b: &Path) -> bool {
    let identity = |path| {
        let meta = std::fs::metadata(path).ok()?;
        Some((meta.dev(), meta.ino()))
    };
    a == b || (identity(a).is_some() && identity(a) == identity(b))
}

/// Reason why a socket of the service manager cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PassedError {
    /// The descriptor is no socket that a listener can use.
    #[error(
        "descriptor {number} ({name}) of the service manager is not a listening stream socket: \
         {source}"
    )]
    Unusable {
        /// Number of the descriptor.
        number: RawFd,
        /// Name by `FileDescriptorName=`.
        name: String,
        /// Error of the system call.
        source: io::Error,
    },
    /// The name is that of another kind of listener than the one that has the address.
    #[error(
        "socket {address} of the service manager is named {name:?}, but the configuration has \
         this address in {section}"
    )]
    OtherKind {
        /// Address of the socket.
        address: String,
        /// Name by `FileDescriptorName=`.
        name: String,
        /// Section of the configuration.
        section: &'static str,
    },
}

/// Kinds of listeners: the names of their sockets, and their sections.
const KINDS: [(&str, &str); 4] = [
    ("nbd", "[[listen]]"),
    ("control", "[control]"),
    ("metrics", "[[metrics]]"),
    ("dashboard", "[[dashboard]]"),
];

/// Returns the listeners of a configuration, each with its kind.
fn listeners(config: &Config) -> impl Iterator<Item = (usize, &ListenAddress)> {
    let nbd = config.listeners.iter().map(|listen| (0, &listen.address));
    let control = config.control.listeners();
    let control = control.map(|listen| (1, &listen.address));
    let metrics = config.metrics.iter().map(|listen| (2, &listen.address));
    let dashboards = config.dashboards.iter();
    nbd.chain(control)
        .chain(metrics)
        .chain(dashboards.map(|listen| (3, &listen.address)))
}

/// Takes over the sockets that the service manager has passed to this process. Those that are bound
/// later use them in place of sockets of their own. A socket that is no listener's is closed, which
/// is logged. To be called once, before anything is bound.
///
/// # Errors
/// If a descriptor cannot be used, or has the name of another kind of listener.
pub fn take_over_passed(config: &Config) -> Result<(), PassedError> {
    let passed = passed_by(|name| std::env::var_os(name), std::process::id());
    let sockets = passed.into_iter().map(|(number, name)| {
        let taken = sys::inherited_listener(number);
        let socket = taken.and_then(|fd| Ok((PassedAddress::of(&fd)?, fd)));
        match socket {
            Ok((address, fd)) => Ok(PassedSocket { name, address, fd }),
            Err(source) => Err(PassedError::Unusable {
                number,
                name,
                source,
            }),
        }
    });
    for socket in sockets.collect::<Result<Vec<_>, _>>()? {
        if has_listener(&socket.address, &socket.name, config)? {
            unused().push(socket);
        } else {
            tracing::warn!(
                "no listener of the configuration has the address {} of the service manager's \
                 socket {:?}: its clients wait for ever",
                socket.address,
                socket.name
            );
        }
    }
    Ok(())
}

/// Returns true if a listener of the configuration has the address of a socket.
fn has_listener(address: &PassedAddress, name: &str, config: &Config) -> Result<bool, PassedError> {
    let mut listeners = listeners(config);
    let Some((kind, _)) = listeners.find(|(_, configured)| address.is(configured)) else {
        return Ok(false);
    };
    // Other names are those of units, which sockets have that are not named.
    let named = KINDS.iter().position(|(known, _)| *known == name);
    if named.is_some_and(|named| named != kind) {
        return Err(PassedError::OtherKind {
            address: address.to_string(),
            name: name.to_owned(),
            section: KINDS[kind].1,
        });
    }
    Ok(true)
}

/// Returns the number and the name of each descriptor that the environment, read by `get`, says the
/// process `pid` was started with.
fn passed_by(get: impl Fn(&str) -> Option<OsString>, pid: u32) -> Vec<(RawFd, String)> {
    let text = |name| get(name)?.into_string().ok();
    let number = |name| text(name)?.parse::<RawFd>().ok();
    // The variables of a parent are inherited as well.
    let is_own = text("LISTEN_PID").is_some_and(|for_process| for_process == pid.to_string());
    let count = number("LISTEN_FDS").filter(|_| is_own).unwrap_or(0);
    let names = text("LISTEN_FDNAMES").unwrap_or_default();
    let given = names.split(':').filter(|name| !name.is_empty());
    let names = given.chain(std::iter::repeat("unknown"));
    let names = names.map(str::to_owned);
    (FIRST..FIRST + count.clamp(0, PASSED_MAX))
        .zip(names)
        .collect()
}

/// Takes the passed socket with an address, if there is one.
pub(super) fn take(address: &ListenAddress) -> Option<PassedSocket> {
    let mut unused = unused();
    let at = unused
        .iter()
        .position(|passed| passed.address.is(address))?;
    Some(unused.swap_remove(at))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_are_those_of_this_process_and_named_in_their_order() {
        let passed = |set: &[(&str, &str)]| {
            let get = |name: &str| {
                let variable = set.iter().find(|(set, _)| *set == name);
                variable.map(|(_, value)| OsString::from(value))
            };
            passed_by(get, 77)
        };
        let named = |number, name: &str| (number, name.to_owned());
        let both = [("LISTEN_PID", "77"), ("LISTEN_FDS", "2")];
        assert_eq!(passed(&both), [named(3, "unknown"), named(4, "unknown")]);
        let names = [&both[..], &[("LISTEN_FDNAMES", "nbd:control")]].concat();
        assert_eq!(passed(&names), [named(3, "nbd"), named(4, "control")]);
        let one = [&both[..], &[("LISTEN_FDNAMES", "nbd")]].concat();
        assert_eq!(passed(&one), [named(3, "nbd"), named(4, "unknown")]);
        for none in [
            &[][..],
            &both[1..],
            &[("LISTEN_PID", "78"), ("LISTEN_FDS", "2")],
            &[("LISTEN_PID", "77"), ("LISTEN_FDS", "-1")],
            &[("LISTEN_PID", "77"), ("LISTEN_FDS", "two")],
        ] {
            assert_eq!(passed(none), [], "{none:?}");
        }
    }

    #[test]
    fn an_address_is_compared_with_that_of_listeners_of_all_kinds() {
        let dir = tempfile::tempdir().expect("a directory");
        let text = r#"
            [control]
            socket = "control.sock"
            [[listen]]
            unix = "nbd.sock"
            [[listen]]
            tcp = "127.0.0.1:10809"
            [[metrics]]
            tcp = "127.0.0.1:9100"
            [[dashboard]]
            tcp = "127.0.0.1:9101"
            [[device]]
            name = "ram"
            kind = "memory"
        "#;
        let loaded = crate::config::parse(text, "t.toml", dir.path()).expect("good");
        let unix = |name| PassedAddress::Unix(dir.path().join(name));
        let tcp = |address: &str| PassedAddress::Tcp(address.parse().expect("an address"));
        for (address, kind) in [
            (unix("nbd.sock"), Some("nbd")),
            (unix("control.sock"), Some("control")),
            (tcp("127.0.0.1:10809"), Some("nbd")),
            (tcp("127.0.0.1:9100"), Some("metrics")),
            (tcp("127.0.0.1:9101"), Some("dashboard")),
            (unix("other.sock"), None),
            (tcp("127.0.0.1:1"), None),
            (tcp("127.0.0.2:10809"), None),
        ] {
            for (name, _) in KINDS {
                let found = has_listener(&address, name, &loaded.config);
                match kind {
                    None => assert!(!found.expect("not refused"), "{address} {name}"),
                    Some(kind) if kind == name => assert!(found.expect("it fits"), "{address}"),
                    Some(_) => {
                        let error = found.expect_err("another kind").to_string();
                        assert!(error.contains(&format!("is named {name:?}")), "{error}");
                    }
                }
            }
            let unnamed = has_listener(&address, "tidegate.socket", &loaded.config);
            assert_eq!(unnamed.expect("not refused"), kind.is_some(), "{address}");
        }
    }

    #[test]
    fn one_file_by_two_paths_is_one_address() {
        let dir = tempfile::tempdir().expect("a directory");
        let (real, link) = (dir.path().join("run"), dir.path().join("link"));
        std::fs::create_dir(&real).expect("ours");
        std::os::unix::fs::symlink(&real, &link).expect("ours");
        let listener = UnixListener::bind(real.join("a.sock")).expect("bound");
        let address = PassedAddress::of(&listener.into()).expect("it listens");
        let at = |path: PathBuf| ListenAddress::Unix { path, mode: 0o600 };
        assert!(address.is(&at(link.join("a.sock"))));
        assert!(!address.is(&at(link.join("b.sock"))));
        assert!(!PassedAddress::Unix(real.join("b.sock")).is(&at(link.join("c.sock"))));
    }
}
