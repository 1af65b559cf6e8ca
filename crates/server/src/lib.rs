//! Tidegate's daemon: event loops on io_uring, backing stores, the NBD frontend, the control
//! API.
//!
//! ```text
//!   control thread (tokio)                    one thread a device
//!   listener:  accept, handshake --connect->  event_loop: receive, parse, schedule,
//!   control API               --Command--->     submit, answer; owns engine, ring, clients
//! ```

pub mod allowed_paths;
mod attainment_record;
pub mod backing;
mod blocking_call;
pub mod buffer;
pub mod calculation;
pub mod command;
pub mod config;
pub mod connections;
pub mod control;
pub mod daemon;
pub mod disk_file_monitor;
pub mod error_hints;
pub mod event_loop;
pub mod exchange;
pub mod fault;
pub mod feasibility;
pub mod frontend;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzz;
pub mod health;
mod history;
pub mod host_support;
mod labels;
pub mod learnt_state_file;
pub mod listener;
mod log_limit;
pub mod membership;
pub mod metrics;
pub mod ownership;
pub mod persisted_vms;
pub mod profile;
pub mod recording;
pub mod ring;
mod sandbox;
pub mod service_manager;
mod sigbus;
mod storage_identity;
pub mod store;
pub mod takeover;
mod timekeeping;
pub mod tls;
mod tokens;
pub mod transfer;
pub mod vm_resources;

// Test helpers of the integration tests; unit tests of this crate use them as well.
#[cfg(test)]
extern crate self as tidegate_server;
#[cfg(test)]
#[path = "../tests/suite/common/mod.rs"]
mod common;
