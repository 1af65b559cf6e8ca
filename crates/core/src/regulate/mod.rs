//! Regulators: how much of each VM may pass.

pub mod open;
pub mod token_bucket;

#[cfg(test)]
pub(crate) mod credit;
