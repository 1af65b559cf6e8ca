//! Integration tests of the vCPU schedulers: one binary, a module for each subject.

mod common;
mod epochs;
mod latency;
mod shares;
mod turns;
mod waiting;
mod world;
