//! State of the exchange of an array, as views, metrics and the health report show it.

use std::sync::{Mutex, PoisonError};

use tidegate_core::time::Nanos;
use tidegate_exchange::array::PeerState;
use tidegate_exchange::{ArrayExchange, Presence, Refusal, TransportStatus};

use crate::config::ExchangeConfig;

/// State of the exchange of an array at one moment.
#[derive(Clone, PartialEq, Debug)]
pub struct ExchangeSnapshot {
    /// Name of the cluster.
    pub cluster: String,
    /// Name of the array.
    pub array: String,
    /// Name of this host.
    pub host: String,
    /// Sum of weights in this host's last report.
    pub weight: f64,
    /// Largest sum of weights that this host may claim.
    pub weight_max: u32,
    /// True if no other host is heard, although at least one has not withdrawn.
    pub is_cut_off: bool,
    /// State of what carries the messages.
    pub transport: TransportStatus,
    /// Other hosts, ordered by name.
    pub peers: Vec<PeerSnapshot>,
    /// Messages that were ignored, by reason.
    pub refused: Vec<(&'static str, u64)>,
}

/// State of another host at one moment.
#[derive(Clone, PartialEq, Debug)]
pub struct PeerSnapshot {
    /// Name of the host.
    pub name: String,
    /// Sum of weights in its last report.
    pub weight: f64,
    /// Largest sum of weights that it may claim.
    pub weight_max: u32,
    /// Presence of the host.
    pub presence: Presence,
    /// Time since its last message that counted; `None` before the first.
    pub age: Option<Nanos>,
    /// Clock of this host less that of the other, with the delay of the message, in nanoseconds.
    pub skew_ns: i64,
    /// Messages that counted.
    pub accepted: u64,
}

impl PeerSnapshot {
    fn new(peer: &PeerState, now: Nanos) -> PeerSnapshot {
        PeerSnapshot {
            name: peer.name.to_string(),
            weight: peer.weight,
            weight_max: peer.weight_max,
            presence: peer.presence,
            age: peer.heard_at.map(|at| now.since(at)),
            skew_ns: peer.skew_ns,
            accepted: peer.accepted,
        }
    }
}

/// Place where the thread publishes the state of an array.
#[derive(Debug)]
pub(super) struct Published(Mutex<ExchangeSnapshot>);

impl Published {
    /// Creates a place with the state before the exchange begins.
    pub(super) fn new(config: &ExchangeConfig, rules: &ArrayExchange) -> Published {
        let published = Published(Mutex::new(ExchangeSnapshot {
            cluster: config.cluster.to_string(),
            array: rules.array().to_string(),
            host: config.host.to_string(),
            weight: 0.0,
            weight_max: rules.weight_max(),
            is_cut_off: rules.is_cut_off(),
            transport: TransportStatus::default(),
            peers: Vec::new(),
            refused: Vec::new(),
        }));
        published.put(Nanos::ZERO, rules, TransportStatus::default());
        published
    }

    /// Publishes the present state.
    pub(super) fn put(&self, now: Nanos, rules: &ArrayExchange, transport: TransportStatus) {
        // Made before the lock is taken, which a loop waits for.
        let peers = rules.peers().iter();
        let peers = peers.map(|peer| PeerSnapshot::new(peer, now)).collect();
        let reasons = Refusal::ALL.into_iter();
        let refused = reasons.map(|reason| (reason.word(), rules.refused(reason)));
        let refused = refused.collect();
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.weight = rules.weight();
        state.is_cut_off = rules.is_cut_off();
        state.transport = transport;
        state.peers = peers;
        state.refused = refused;
    }

    pub(super) fn get(&self) -> ExchangeSnapshot {
        let state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.clone()
    }
}
