//! State of an exchange for tests.

use tidegate_core::time::Nanos;
use tidegate_exchange::{Presence, Refusal, TransportStatus};

use super::{ExchangeSnapshot, PeerSnapshot};

/// Returns the state of host `a` at an array that it shares with `b` and `c`, which it hears.
pub(crate) fn exchange() -> ExchangeSnapshot {
    let peer = |name: &str| PeerSnapshot {
        name: name.to_owned(),
        weight: 150.0,
        weight_max: 200,
        presence: Presence::Live,
        age: Some(Nanos::from_millis(12)),
        skew_ns: -2_000_000,
        accepted: 7,
    };
    ExchangeSnapshot {
        cluster: "east".to_owned(),
        array: "san".to_owned(),
        host: "a".to_owned(),
        weight: 100.0,
        weight_max: 100,
        is_cut_off: false,
        transport: TransportStatus {
            is_connected: true,
            connections: 2,
            unsent: 3,
            ..TransportStatus::default()
        },
        peers: vec![peer("b"), peer("c")],
        refused: vec![(Refusal::Replayed.word(), 4)],
    }
}
