//! Tests of the crate's public interface.

mod conformance;
#[cfg(feature = "etcd")]
mod etcd;
mod redb;
