//! Tests of the crate's public interface.

mod conformance;
#[cfg(feature = "etcd")]
mod etcd;
#[cfg(feature = "etcd")]
mod no_daemons;
mod redb;
