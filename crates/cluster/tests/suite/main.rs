//! Tests of the crate's public interface.

mod conformance;
mod redb;
