//! Tests of the exchange with engines on one array.

mod array_world;
#[cfg(feature = "nats")]
mod nats;
mod promises;
mod shares;
