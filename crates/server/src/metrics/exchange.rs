//! Metrics of the exchange with the hosts that share arrays.

use tidegate_exchange::Presence;

use super::{Metric, Read, plain, seconds};
use crate::exchange::{ExchangeSnapshot, PeerSnapshot};

pub(super) static EXCHANGE_METRICS: &[Metric<ExchangeSnapshot>] = &[
    plain(
        "connected",
        "1 while messages can be sent and received",
        Read::Gauge(|exchange| f64::from(u8::from(exchange.transport.is_connected))),
    ),
    plain(
        "cut_off",
        "1 while no other host is heard, although at least one has not withdrawn",
        Read::Gauge(|exchange| f64::from(u8::from(exchange.is_cut_off))),
    ),
    plain(
        "weight",
        "Sum of the weights of this host's VMs that compete, as it was reported last",
        Read::Gauge(|exchange| exchange.weight),
    ),
    plain(
        "peer_live",
        "1 while messages of the host arrive, 0 while it is silent; absent once it has withdrawn",
        Read::Gauges("peer", |exchange| {
            let here = exchange.peers.iter();
            let here = here.filter(|peer| peer.presence != Presence::Withdrawn);
            let live = |peer: &PeerSnapshot| f64::from(u8::from(peer.presence == Presence::Live));
            here.map(|peer| (peer.name.clone(), live(peer))).collect()
        }),
    ),
    plain(
        "peer_weight",
        "Sum of weights in the last report of the host",
        Read::Gauges("peer", |exchange| {
            by_peer(exchange, |peer| Some(peer.weight))
        }),
    ),
    seconds(
        "peer_age",
        "Age of the last message of the host; absent before the first",
        Read::Gauges("peer", |exchange| {
            by_peer(exchange, |peer| Some(peer.age?.as_secs_f64()))
        }),
    ),
    seconds(
        "peer_skew",
        "Clock of this host less that of the other, with the delay of the message",
        Read::Gauges("peer", |exchange| {
            by_peer(exchange, |peer| peer.age.map(|_| peer.skew_ns as f64 / 1e9))
        }),
    ),
    plain(
        "connections",
        "Times that a connection to a NATS server was made",
        Read::Counter(|exchange| exchange.transport.connections as f64),
    ),
    plain(
        "unsent",
        "Messages that were not sent, because the server was away or too slow",
        Read::Counter(|exchange| exchange.transport.unsent as f64),
    ),
    plain(
        "dropped",
        "Messages that had arrived and made room for later ones",
        Read::Counter(|exchange| exchange.transport.dropped as f64),
    ),
    plain(
        "ignored",
        "Messages that did not count, by reason",
        Read::Counters("reason", |exchange| {
            let all = exchange.refused.iter();
            all.map(|(reason, count)| (*reason, *count as f64))
                .collect()
        }),
    ),
];

/// Returns a figure of each other host that has it.
fn by_peer(
    exchange: &ExchangeSnapshot,
    get: fn(&PeerSnapshot) -> Option<f64>,
) -> Vec<(String, f64)> {
    let peers = exchange.peers.iter();
    let with = peers.filter_map(|peer| Some((peer.name.clone(), get(peer)?)));
    with.collect()
}

#[cfg(test)]
mod tests {
    use crate::command::sample_snapshot::snapshot;
    use crate::exchange::sample_snapshot::exchange;
    use crate::listener::HandshakeCounts;
    use tidegate_exchange::Presence;

    #[test]
    fn an_array_has_metrics_of_its_hosts_and_another_device_has_none() {
        let mut array = snapshot("ssd", &[]);
        let mut exchange = exchange();
        exchange.peers[1].presence = Presence::Withdrawn;
        array.exchange = Some(exchange);
        let devices = vec![array, snapshot("other", &[])];
        let text =
            super::super::render(devices, Vec::new(), HandshakeCounts::default(), None, None);
        let labels = "array=\"san\",device=\"ssd\"";
        for line in [
            format!("tidegate_exchange_connected{{{labels}}} 1.0"),
            format!("tidegate_exchange_weight{{{labels}}} 100.0"),
            format!("tidegate_exchange_peer_live{{{labels},peer=\"b\"}} 1.0"),
            format!("tidegate_exchange_peer_weight{{{labels},peer=\"c\"}} 150.0"),
            format!("tidegate_exchange_peer_skew_seconds{{{labels},peer=\"b\"}} -0.002"),
            format!("tidegate_exchange_unsent_total{{{labels}}} 3.0"),
            format!("tidegate_exchange_ignored_total{{{labels},reason=\"replayed\"}} 4.0"),
        ] {
            assert!(text.contains(&line), "{line} is not in\n{text}");
        }
        assert!(!text.contains("peer_live{array=\"san\",device=\"ssd\",peer=\"c\"}"));
        assert!(!text.contains("tidegate_exchange_weight{array=\"other\""));
    }
}
