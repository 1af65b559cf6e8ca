//! Body of the fuzz target `exchange_messages`: bytes that a host claims to be a message.

use tidegate_core::time::Nanos;

use crate::array::ArrayExchange;
use crate::entitlements::FixedEntitlements;
use crate::message::Message;
use crate::name::Name;
use crate::transport::Received;

/// Reads bytes as a message, and takes them as one that arrived.
pub fn message(data: &[u8]) {
    if let Ok(message) = Message::decode(data) {
        assert_eq!(message.encode(), data, "one message, one form");
    }
    let names: [Name; 4] =
        ["east", "san", "a", "b"].map(|name| name.parse().expect("letters alone"));
    let mut entitled = FixedEntitlements::default();
    entitled.add(names[1].clone(), names[2].clone(), 100);
    entitled.add(names[1].clone(), names[3].clone(), 100);
    let mut exchange = ArrayExchange::new([&names[0], &names[1], &names[2]], 1, &entitled)
        .expect("the host is entitled");
    let received = Received {
        array: "san".to_owned(),
        host: "b".to_owned(),
        at: Nanos::from_secs(1),
        bytes: data.to_vec(),
    };
    let first = exchange.receive(Nanos::from_secs(1), 1, &received);
    if first.is_ok() {
        let again = exchange.receive(Nanos::from_secs(1), 1, &received);
        assert!(again.is_err(), "a message counted twice");
    }
    assert!(
        exchange.peers()[0].weight <= 100.001,
        "beyond the entitlement"
    );
}
