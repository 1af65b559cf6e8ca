//! Metrics of half-open connections, over all listeners: clients of NBD that have not chosen an
//! export yet, and clients of the control API and of metrics whose TLS handshake is not done.

use super::{Metric, Read, plain};
use crate::listener::HandshakeCounts;

pub(super) static HANDSHAKE_METRICS: &[Metric<HandshakeCounts>] = &[
    plain(
        "half_open",
        "Connected clients that have not chosen an export yet, or, at the control API and metrics, \
         not finished their TLS handshake",
        Read::Gauge(|counts| counts.half_open as f64),
    ),
    plain(
        "ended",
        "Clients that ended half-open: displaced_by_all and displaced_by_peer gave way to \
         newcomers, timed_out chose none in 10 s, failed broke a rule, refused asked for a VM that \
         has max_connections, or for an export that their certificate does not have",
        Read::Counters("why", |counts| {
            let all = [
                ("displaced_by_all", counts.displaced),
                ("displaced_by_peer", counts.displaced_by_peer),
                ("timed_out", counts.timed_out),
                ("failed", counts.failed),
                ("refused", counts.refused),
            ];
            all.map(|(why, n)| (why, n as f64)).into()
        }),
    ),
];
