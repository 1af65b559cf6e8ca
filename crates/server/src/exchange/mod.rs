//! Exchange of shares with the other hosts of arrays.
//!
//! ```text
//!   event loop of a device ── own report, at most one a period ──▶ bounded channel ─┐
//!        ▲                                                                          ▼
//!        └── Inbox: last state of each host ◀── thread "exchange": rules, silence, heartbeats
//!                                                      │    ▲
//!                                                      ▼    │
//!                                              Transport: NATS core, on a thread of its own
//! ```
//!
//! An event loop never waits for the exchange: it tries the channel and the lock of its inbox, once
//! a turn, and goes on without. A loop whose device is no array makes one test.

mod inbox;
mod link;
#[cfg(test)]
pub(crate) mod sample_snapshot;
mod snapshot;
#[cfg(test)]
mod tests;
mod thread;

use std::sync::Arc;
#[cfg(any(test, feature = "nats"))]
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use tidegate_core::roles::PeerShare;
use tidegate_exchange::{ArrayExchange, Name, Transport};

use crate::config::{Config, ExchangeConfig, Place};
use inbox::Inbox;
pub(crate) use link::ExchangeLink;
use snapshot::Published;
pub use snapshot::{ExchangeSnapshot, PeerSnapshot};

/// Inputs that wait for the thread, at most; it takes them at once.
const INPUTS_MAX: usize = 64;

/// Error of starting the exchange.
#[derive(Debug, thiserror::Error)]
pub enum ExchangeError {
    /// The client of NATS cannot be set up, or this build has none.
    #[error("exchange: {what}")]
    Client {
        /// Place of the section in the configuration.
        place: Option<Box<Place>>,
        /// Reason.
        what: String,
    },
}

/// Input of the thread.
// The channel's places are made once; an event loop that boxed its report would allocate.
#[allow(clippy::large_enum_variant)]
enum Input {
    /// Report of the loop of an array, by its index.
    Share(usize, PeerShare),
    /// The transport has something. The flag is that of its [`Waker`].
    #[cfg(any(test, feature = "nats"))]
    Wake(Arc<AtomicBool>),
    /// End; with a withdrawal of this host if it stops in order.
    Stop { withdraws: bool },
}

/// Wakes the thread for the transport. At most one wake waits in the channel, so that reports have
/// room whatever other hosts send.
#[cfg(any(test, feature = "nats"))]
struct Waker {
    inputs: SyncSender<Input>,
    is_waiting: Arc<AtomicBool>,
}

#[cfg(any(test, feature = "nats"))]
impl Waker {
    fn new(inputs: SyncSender<Input>) -> Waker {
        Waker {
            inputs,
            is_waiting: Arc::default(),
        }
    }

    fn wake(&self) {
        if self.is_waiting.swap(true, Ordering::AcqRel) {
            return;
        }
        let input = Input::Wake(self.is_waiting.clone());
        // A full channel wakes the thread as well.
        if self.inputs.try_send(input).is_err() {
            self.is_waiting.store(false, Ordering::Release);
        }
    }
}

/// State of one array that the thread works on.
struct Member {
    rules: ArrayExchange,
    inbox: Arc<Inbox>,
    published: Arc<Published>,
}

/// Exchange of a daemon: the thread, once it has begun, or what it will work on.
pub(crate) struct Exchange {
    inputs: SyncSender<Input>,
    waiting: Option<Waiting>,
    thread: Option<JoinHandle<()>>,
}

struct Waiting {
    inputs: Receiver<Input>,
    transport: Box<dyn Transport>,
    members: Vec<Member>,
}

impl std::fmt::Debug for Exchange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Exchange").finish_non_exhaustive()
    }
}

/// Exchange of a daemon, with the link of each device; `None` for devices that are no arrays.
pub(crate) type Opened = (Option<Exchange>, Vec<Option<ExchangeLink>>);

impl Exchange {
    /// Opens the exchange that a configuration names, over NATS.
    ///
    /// # Errors
    /// If the client of NATS cannot be set up; servers that are away are no error.
    pub(crate) fn open(config: &Config) -> Result<Opened, ExchangeError> {
        let none = || (None, config.devices.iter().map(|_| None).collect());
        let Some(exchange) = &config.exchange else {
            return Ok(none());
        };
        let arrays: Vec<Name> = (config.devices.iter())
            .filter_map(|device| device.array.clone())
            .collect();
        // A build without the client refuses the section whether or not it is used.
        if arrays.is_empty() && cfg!(feature = "nats") {
            return Ok(none());
        }
        let (sender, inputs) = sync_channel(INPUTS_MAX);
        let transport = connect(exchange, &arrays, sender.clone())?;
        let devices = config.devices.iter().map(|device| device.array.as_ref());
        Ok(Exchange::over(
            transport,
            exchange,
            devices,
            (sender, inputs),
        ))
    }

    /// Opens an exchange over a transport. `devices`: the array of each, if it is one.
    fn over<'a>(
        transport: Box<dyn Transport>,
        config: &ExchangeConfig,
        devices: impl Iterator<Item = Option<&'a Name>>,
        (sender, inputs): (SyncSender<Input>, Receiver<Input>),
    ) -> Opened {
        let instance = thread::unix_ns();
        let mut members = Vec::new();
        let mut links = Vec::new();
        for array in devices {
            let Some(array) = array else {
                links.push(None);
                continue;
            };
            let names = [&config.cluster, array, &config.host];
            let rules = ArrayExchange::new(names, instance, &config.entitlements)
                .expect("the configuration was checked");
            let inbox = Arc::new(Inbox::new(&rules));
            let published = Arc::new(Published::new(config, &rules));
            links.push(Some(ExchangeLink::new(
                members.len(),
                sender.clone(),
                inbox.clone(),
                published.clone(),
            )));
            members.push(Member {
                rules,
                inbox,
                published,
            });
        }
        let exchange = Exchange {
            inputs: sender,
            waiting: Some(Waiting {
                inputs,
                transport,
                members,
            }),
            thread: None,
        };
        (Some(exchange), links)
    }

    /// Begins to send and to believe messages. Until then, other hosts do not hear this one, which
    /// takes them to be silent: a daemon that takes over does not speak while another serves.
    pub(crate) fn begin(&mut self) {
        let Some(waiting) = self.waiting.take() else {
            return;
        };
        let thread = thread::Thread::new(waiting.transport, waiting.members);
        let spawned = std::thread::Builder::new()
            .name("exchange".to_owned())
            .spawn(move || thread.run(&waiting.inputs));
        match spawned {
            Ok(thread) => self.thread = Some(thread),
            Err(error) => {
                tracing::error!("exchange: no thread, so hosts do not hear of this one: {error}");
            }
        }
    }

    /// Ends the exchange in order: the other hosts hear that this one withdraws. Waits for at most
    /// a second.
    pub(crate) fn withdraw(mut self) {
        self.stop(true);
    }

    fn stop(&mut self, withdraws: bool) {
        // Without a thread there is no receiver.
        let _ = self.inputs.send(Input::Stop { withdraws });
        if let Some(thread) = self.thread.take() {
            // A panic has been reported where it happened.
            let _ = thread.join();
        }
    }
}

impl Drop for Exchange {
    /// Ends the thread without a withdrawal: other hosts keep this one's entitlement free.
    fn drop(&mut self) {
        if self.thread.take().is_some() {
            // The thread ends by itself, within a turn, and is not waited for.
            self.stop(false);
        }
    }
}

#[cfg(feature = "nats")]
fn connect(
    config: &ExchangeConfig,
    arrays: &[Name],
    inputs: SyncSender<Input>,
) -> Result<Box<dyn Transport>, ExchangeError> {
    use tidegate_exchange::nats::{Callbacks, NatsTransport};
    let waker = Waker::new(inputs);
    let callbacks = Callbacks {
        clock: crate::ring::clock,
        wake: Box::new(move || waker.wake()),
    };
    let names = [&config.cluster, &config.host];
    let started = NatsTransport::start(&config.nats, names, arrays, callbacks);
    match started {
        Ok(transport) => Ok(Box::new(transport)),
        Err(error) => Err(ExchangeError::Client {
            place: config.place.clone().map(Box::new),
            what: error.to_string(),
        }),
    }
}

#[cfg(not(feature = "nats"))]
fn connect(
    config: &ExchangeConfig,
    _arrays: &[Name],
    _inputs: SyncSender<Input>,
) -> Result<Box<dyn Transport>, ExchangeError> {
    Err(ExchangeError::Client {
        place: config.place.clone().map(Box::new),
        what: "this build of tidegate has no client of NATS; build it with --features cluster"
            .to_owned(),
    })
}
