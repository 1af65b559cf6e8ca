//! Interface of what carries messages between hosts.

use tidegate_core::time::Nanos;

use crate::name::Name;

/// Carrier of messages. Delivery is not guaranteed: messages may be lost, late, doubled or out of
/// order, and a carrier that is away drops them.
pub trait Transport: Send {
    /// Sends a message about an array to all other hosts, without waiting. Dropped while the
    /// carrier is away: a later one replaces it.
    fn publish(&mut self, now: Nanos, array: &Name, message: &[u8]);

    /// Returns the next message that has arrived until `now`, without waiting.
    fn receive(&mut self, now: Nanos) -> Option<Received>;

    /// Returns the state of the carrier.
    fn status(&self) -> TransportStatus;
}

/// Message as it arrived.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Received {
    /// Array to whose subject the message was sent.
    pub array: String,
    /// Host to whose subject the message was sent, which the carrier may have checked.
    pub host: String,
    /// Time of arrival, on the clock of the caller.
    pub at: Nanos,
    /// Bytes of the message.
    pub bytes: Vec<u8>,
}

/// State of a carrier.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct TransportStatus {
    /// Messages can be sent and received.
    pub is_connected: bool,
    /// Times that a connection was made.
    pub connections: u64,
    /// Messages that were not sent: the carrier was away, or too slow.
    pub unsent: u64,
    /// Messages that were dropped after they arrived, because they were not taken in time.
    pub dropped: u64,
    /// Last error, in words; empty if there was none.
    pub last_error: String,
}
