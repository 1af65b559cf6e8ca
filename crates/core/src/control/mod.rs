//! Controllers: what the knobs should be.

pub mod credit_feedback;
pub mod share_model;
