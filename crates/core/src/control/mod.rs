//! Controllers: what the knobs should be.

pub mod credit_feedback;
