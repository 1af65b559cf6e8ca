//! Regulators: how much of each VM may pass.
//!
//! `vbc` (Flubber) and `circ` (vFair) grant credits and gate at admission; `token_bucket`,
//! `limit_target` and `merge_limit` gate at dispatch; `open` gates nothing. Shared pieces:
//! `proportion` (credits due to each VM), `turn` (end of a turn) and `lateness` (regular delay of
//! throttled I/Os).

pub mod circ;
mod lateness;
pub mod limit_target;
pub mod merge_limit;
pub mod open;
pub mod proportion;
pub mod token_bucket;
mod turn_holds;
pub mod vbc;
