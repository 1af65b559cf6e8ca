//! Integration tests of the device models: one binary, a module for each subject.

mod cap;
mod common;
mod contract;
mod controller;
mod hdd;
mod hdd_queue;
mod raid0;
mod ssd;
mod ssd_interleaved;
