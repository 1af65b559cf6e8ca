//! Deterministic worlds that run the engine: same seed, same bytes out, on any machine.
#![forbid(unsafe_code)]

pub mod checker;
pub mod fault;
pub mod torture;
