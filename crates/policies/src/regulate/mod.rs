//! Regulators: how much of each VM may pass.

pub mod circ;
mod lateness;
pub mod merge_limit;
pub mod open;
pub mod proportion;
pub mod token_bucket;
mod turn;
pub mod vbc;
