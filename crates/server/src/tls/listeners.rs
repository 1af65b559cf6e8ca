//! TLS of listeners that share threads: opened at the start, and read again on SIGHUP.
//!
//! One task reads everything again, so a second SIGHUP waits until the first has had its effect,
//! and any number of them meanwhile count as one.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::JoinSet;

use super::{ListenerTls, READ_WITHIN, ReloadError, TlsFileError, TlsThreads};
use crate::blocking_call;
use crate::config::{self, Config, ListenAddress, Loaded, Place, TlsConfig};
use crate::service_manager::Reloading;

/// TLS of those listeners of a kind that have it.
#[derive(Debug, Default)]
pub(crate) struct TlsListeners {
    /// Indices of the listeners in the configuration, with the TLS of each.
    listeners: Vec<(usize, Arc<ListenerTls>)>,
    /// Threads, where a listener has TLS.
    threads: Option<Arc<TlsThreads>>,
    /// Task that reads everything again on SIGHUP, and ends with this value. A process without a
    /// listener with TLS has none.
    _reloading: JoinSet<()>,
}

/// Listener with TLS in the configuration.
#[derive(Clone, Debug)]
pub(crate) struct Configured<'a> {
    /// Index of the listener among those of its kind.
    at: usize,
    address: SocketAddr,
    /// Address with the kind of TLS, for messages.
    name: String,
    tls: &'a TlsConfig,
}

impl Configured<'_> {
    /// Describes a listener; `None` if it has no TLS.
    pub(crate) fn new<'a>(
        at: usize,
        address: &ListenAddress,
        name: String,
        tls: Option<&'a TlsConfig>,
    ) -> Option<Configured<'a>> {
        let ListenAddress::Tcp(address) = *address else {
            // Unix sockets have no TLS.
            return None;
        };
        let tls = tls?;
        Some(Configured {
            at,
            address,
            name,
            tls,
        })
    }
}

/// Error of opening the TLS of listeners.
#[derive(Debug, thiserror::Error)]
pub enum TlsOpenError {
    /// Files of a listener cannot be used.
    #[error("TLS of a listener: {source}")]
    Files {
        /// Place of the section in the configuration.
        place: Option<Box<Place>>,
        /// Reason.
        source: TlsFileError,
    },
    /// The threads could not be started.
    #[error("cannot start the threads for TLS: {0}")]
    Threads(io::Error),
    /// Signals cannot be received.
    #[error("cannot handle signals: {0}")]
    Signals(io::Error),
}

impl TlsOpenError {
    /// Returns the place in the configuration; `None` if the error concerns no part of it, or the
    /// configuration was not read from a file.
    pub fn place(&self) -> Option<&Place> {
        match self {
            TlsOpenError::Files { place, .. } => place.as_deref(),
            TlsOpenError::Threads(_) | TlsOpenError::Signals(_) => None,
        }
    }

    /// Returns what would be right; `None` if the configuration is not the cause.
    pub fn help(&self) -> Option<&'static str> {
        match self {
            TlsOpenError::Files { source, .. } => Some(source.help()),
            TlsOpenError::Threads(_) | TlsOpenError::Signals(_) => None,
        }
    }
}

impl TlsListeners {
    /// Reads the files of the listeners of a kind, which `find` finds in a configuration, and
    /// starts the threads if there are any, confined where the configuration has a sandbox. Must be
    /// called within a tokio runtime, which receives SIGHUP from then on. `kind` names the
    /// listeners in messages.
    ///
    /// # Errors
    /// If a file cannot be used, or a thread cannot be started.
    pub(crate) fn open(
        config: &Config,
        kind: &'static str,
        find: fn(&Config) -> Vec<Configured<'_>>,
    ) -> Result<TlsListeners, TlsOpenError> {
        let configured = find(config);
        if configured.is_empty() {
            return Ok(TlsListeners::default());
        }
        let hangup = signal(SignalKind::hangup()).map_err(TlsOpenError::Signals)?;
        let threads = TlsThreads::start(config.daemon.sandbox).map_err(TlsOpenError::Threads)?;
        let threads = Arc::new(threads);
        let open = |Configured { at, name, tls, .. }: &Configured<'_>| {
            let opened = ListenerTls::open(name.clone(), (*tls).clone(), threads.clone());
            let opened = opened.map_err(|source| TlsOpenError::Files {
                place: tls.place.clone().map(Box::new),
                source,
            })?;
            Ok((*at, Arc::new(opened)))
        };
        let listeners: Vec<_> = configured.iter().map(open).collect::<Result<_, _>>()?;
        let addresses = configured.iter().map(|configured| configured.address);
        let opened = listeners.iter().map(|(_, tls)| tls.clone());
        let reload = Reload {
            kind,
            find,
            file: config.file.clone(),
            listeners: addresses.zip(opened).collect(),
        };
        let mut reloading = JoinSet::new();
        reloading.spawn(reload.on_each(hangup));
        Ok(TlsListeners {
            listeners,
            threads: Some(threads),
            _reloading: reloading,
        })
    }

    /// Returns the TLS of the listener at an index of the configuration.
    pub(crate) fn of(&self, at: usize) -> Option<Arc<ListenerTls>> {
        let listener = self.listeners.iter().find(|(index, _)| *index == at);
        listener.map(|(_, tls)| tls.clone())
    }

    /// Waits until the tunnels of closed connections have sent what they had, or should have.
    pub(crate) async fn finished(&self) {
        if let Some(threads) = &self.threads {
            threads.finished().await;
        }
    }

    /// Returns the threads, if there are any.
    pub(crate) fn threads(&self) -> Option<Arc<TlsThreads>> {
        self.threads.clone()
    }
}

/// Listeners and configuration that SIGHUP reads again.
struct Reload {
    /// Kind of the listeners, for messages.
    kind: &'static str,
    find: fn(&Config) -> Vec<Configured<'_>>,
    /// Configuration; `None` if it was not read from a file.
    file: Option<PathBuf>,
    listeners: Vec<(SocketAddr, Arc<ListenerTls>)>,
}

impl Reload {
    /// Reads everything again on each signal. Signals that come meanwhile count as one.
    async fn on_each(self, mut signal: Signal) {
        while signal.recv().await.is_some() {
            self.read_again().await;
        }
    }

    /// Reads the configuration and the files of all listeners again, and logs the outcome.
    async fn read_again(&self) {
        let _reloading = Reloading::begin();
        let config = match &self.file {
            Some(file) => self.config(file.clone()).await,
            None => None,
        };
        let mut found = config.as_ref().map(self.find);
        // Concurrently, because the file system of one listener may hang.
        let mut reading = JoinSet::new();
        for (address, tls) in &self.listeners {
            let tls = tls.clone();
            let in_force = tls.section();
            let next = match &mut found {
                Some(found) => next(&in_force, *address, found),
                None => Ok(in_force.clone()),
            };
            let section = next.unwrap_or_else(|why| {
                tracing::error!(
                    listener = %tls.name,
                    "SIGHUP: the keys of TLS stay as they were, and the files are read again: \
                     {why}; restart the daemon if that is intended"
                );
                in_force.clone()
            });
            reading.spawn(async move {
                let changed = changed(&in_force, &section);
                log(&tls.name, &changed, tls.reload(section).await);
            });
        }
        while reading.join_next().await.is_some() {}
    }

    /// Reads the configuration again, and logs its warnings; `None` if it cannot be used, which is
    /// logged.
    async fn config(&self, file: PathBuf) -> Option<Config> {
        let path = file.clone();
        let read = blocking_call::call_async(READ_WITHIN, move || config::load(&path)).await;
        let why = match read {
            Ok(Ok(Loaded {
                config, warnings, ..
            })) => {
                for warning in warnings {
                    tracing::warn!(listeners = self.kind, "SIGHUP: {warning}");
                }
                return Some(config);
            }
            Ok(Err(errors)) => format!("it has errors (`tidegate check`): {errors}"),
            Err(not_done) => not_done.to_string(),
        };
        tracing::error!(
            file = %file.display(),
            listeners = self.kind,
            "SIGHUP: the configuration was not taken over, so that paths of certificates and the \
             exports of clients stay as they were, and only the files are read again: {why}"
        );
        None
    }
}

/// Reason why SIGHUP does not take a listener's section over from the configuration.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
enum Kept {
    #[error("the configuration has no listener with TLS at this address any more")]
    Gone,
    /// Without the key more clients would be admitted, or have more exports. A deletion by mistake
    /// must not open disks to everybody while the daemon runs.
    #[error("the configuration has no {0} here any more, which would admit more clients")]
    Unchecked(&'static str),
    #[error("plain_exports was changed, which decides whether clients need TLS")]
    PlainExports,
}

/// Returns the section of the listener at an address, and removes it from those that were found: a
/// port of 0, which the kernel chooses, may be in the configuration more than once.
fn next(
    in_force: &TlsConfig,
    address: SocketAddr,
    found: &mut Vec<Configured<'_>>,
) -> Result<TlsConfig, Kept> {
    let at = found
        .iter()
        .position(|listener| listener.address == address);
    let next = found.remove(at.ok_or(Kept::Gone)?).tls;
    let lost = |before: bool, now: bool| before && !now;
    if lost(in_force.client_ca.is_some(), next.client_ca.is_some()) {
        return Err(Kept::Unchecked("client_ca"));
    }
    if lost(in_force.client_crl.is_some(), next.client_crl.is_some()) {
        return Err(Kept::Unchecked("client_crl"));
    }
    if lost(!in_force.clients.is_empty(), !next.clients.is_empty()) {
        return Err(Kept::Unchecked("[[listen.tls.client]]"));
    }
    if in_force.plain_exports != next.plain_exports {
        return Err(Kept::PlainExports);
    }
    Ok(next.clone())
}

/// Returns the keys of a section that differ from those in force.
fn changed(in_force: &TlsConfig, next: &TlsConfig) -> Vec<&'static str> {
    let keys = [
        ("certificate", in_force.certificate != next.certificate),
        ("private_key", in_force.private_key != next.private_key),
        ("client_ca", in_force.client_ca != next.client_ca),
        ("client_crl", in_force.client_crl != next.client_crl),
        ("client", in_force.clients != next.clients),
    ];
    let changed = keys.into_iter().filter(|(_, is_changed)| *is_changed);
    changed.map(|(key, _)| key).collect()
}

/// Logs what SIGHUP has changed at a listener.
fn log(listener: &str, changed: &[&str], reloaded: Result<usize, ReloadError>) {
    match reloaded {
        Ok(ended) => {
            let changed = match changed {
                [] => "none".to_owned(),
                keys => keys.join(", "),
            };
            tracing::info!(
                listener,
                ended,
                "SIGHUP: certificates were read again; changed keys: {changed}; connections that \
                 end because their client lost the right to them: {ended}"
            );
        }
        Err(ReloadError::Files(error)) => tracing::error!(
            listener,
            help = error.help(),
            "SIGHUP: certificates and the exports of clients stay as they were: {error}"
        ),
        Err(error @ ReloadError::NotDone(_)) => tracing::error!(
            listener,
            "SIGHUP: certificates and the exports of clients stay as they were: {error}"
        ),
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::CString;
    use std::fs::{File, write};
    use std::os::unix::ffi::OsStrExt;
    use std::path::Path;

    use super::*;
    use crate::blocking_call::NotDone;
    use crate::config::{ClientName, TlsClientConfig};

    /// Section of a listener with all checks of clients.
    fn checked() -> TlsConfig {
        let client = TlsClientConfig {
            names: vec![ClientName::Dns("host.example".to_owned())],
            vms: vec!["vm".to_owned()],
            exports: Vec::new(),
        };
        TlsConfig {
            client_ca: Some("ca.pem".into()),
            client_crl: Some("crl.pem".into()),
            clients: vec![client],
            ..unchecked(Path::new(""))
        }
    }

    fn unchecked(dir: &Path) -> TlsConfig {
        TlsConfig {
            certificate: dir.join("server.pem"),
            private_key: dir.join("server.key"),
            client_ca: None,
            client_crl: None,
            plain_exports: Vec::new(),
            clients: Vec::new(),
            place: None,
        }
    }

    fn at(port: u16, tls: &TlsConfig) -> Configured<'_> {
        let address = ListenAddress::Tcp(([127, 0, 0, 1], port).into());
        Configured::new(0, &address, String::new(), Some(tls)).expect("on TCP")
    }

    #[test]
    fn listeners_are_found_by_their_address() {
        let (first, second) = (unchecked(Path::new("1")), unchecked(Path::new("2")));
        let mut found = vec![at(2, &second), at(0, &first), at(0, &second)];
        let mut next = |port: u16| next(&first, ([127, 0, 0, 1], port).into(), &mut found);
        // Of those with a port that the kernel chooses, each has its own.
        assert_eq!(next(0), Ok(first.clone()));
        assert_eq!(next(0), Ok(second.clone()));
        assert_eq!(next(2), Ok(second.clone()));
        assert_eq!(next(1), Err(Kept::Gone));
    }

    #[test]
    fn a_section_that_lost_a_check_of_clients_is_not_taken_over() {
        let kept = |in_force: &TlsConfig, fresh: &TlsConfig| {
            let address = ([127, 0, 0, 1], 1).into();
            next(in_force, address, &mut vec![at(1, fresh)]).map(drop)
        };
        let checked = checked();
        let mut fresh = checked.clone();
        fresh.client_ca = None;
        assert_eq!(kept(&checked, &fresh), Err(Kept::Unchecked("client_ca")));
        fresh = checked.clone();
        fresh.client_crl = None;
        assert_eq!(kept(&checked, &fresh), Err(Kept::Unchecked("client_crl")));
        fresh = checked.clone();
        fresh.clients.clear();
        let clients = Kept::Unchecked("[[listen.tls.client]]");
        assert_eq!(kept(&checked, &fresh), Err(clients));
        fresh = checked.clone();
        fresh.plain_exports.push("disk".to_owned());
        assert_eq!(kept(&checked, &fresh), Err(Kept::PlainExports));
        // Further checks are taken over.
        assert_eq!(kept(&unchecked(Path::new("")), &checked), Ok(()));
        assert_eq!(changed(&checked, &checked), Vec::<&str>::new());
        let all = changed(&unchecked(Path::new("other")), &checked);
        let keys = [
            "certificate",
            "private_key",
            "client_ca",
            "client_crl",
            "client",
        ];
        assert_eq!(all, keys);
    }

    #[tokio::test(start_paused = true)]
    async fn files_that_are_not_read_in_time_leave_everything_as_it_was() {
        let dir = tempfile::tempdir().expect("a directory");
        let own = rcgen::generate_simple_self_signed(["server.example".to_owned()]);
        let own = own.expect("a certificate");
        let section = unchecked(dir.path());
        write(&section.certificate, own.cert.pem()).expect("written");
        write(&section.private_key, own.signing_key.serialize_pem()).expect("written");
        let threads = Arc::new(TlsThreads::start(true).expect("threads"));
        let tls = ListenerTls::open("t".to_owned(), section.clone(), threads);
        let tls = Arc::new(tls.expect("it has its files"));

        // Reading a FIFO does not return until somebody writes to it.
        let fifo = dir.path().join("fifo");
        let name = CString::new(fifo.as_os_str().as_bytes()).expect("no NUL");
        // SAFETY: `name` is a path that ends with NUL.
        assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
        let hanging = TlsConfig {
            private_key: fifo.clone(),
            ..section.clone()
        };
        let late = tls.reload(hanging).await;
        assert!(matches!(late, Err(ReloadError::NotDone(NotDone::Late(_)))));
        let message = late.expect_err("late").to_string();
        assert!(message.contains("in 10 s"), "{message}");
        assert_eq!(tls.section(), section);

        drop(File::options().write(true).open(&fifo).expect("a reader"));
        tokio::time::resume();
        assert_eq!(tls.reload(section).await.expect("read"), 0);
    }
}
