//! vhost-user-blk frontend: guests reach a disk by virtqueues in memory that they share.
//!
//! ```text
//!   hypervisor --messages--> session (a thread) --changes--> mailbox --> connection (event loop)
//!   guest -----virtqueues, data-----------------------------------------> connection
//! ```
//!
//! A `session` maps guest memory and checks what the hypervisor sends; the `connection` takes
//! requests from the queues. Data is read and written where the guest has it. Neither side of the
//! socket is trusted.

mod assistant;
mod back_channel;
mod cache_mode;
mod config_space;
mod connection;
mod dirty_log;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzz;
mod guest_memory;
mod inflight;
mod mailbox;
mod request;
mod session;
mod session_state;
mod token;
mod virtqueue;

pub(crate) use assistant::Assistant;
pub(crate) use back_channel::ConfigNotices;
pub(crate) use connection::Connection;
pub use connection::{Handed, Opening};
pub(crate) use mailbox::Summons;
pub(crate) use session::{QueueUser, Session};
pub(crate) use session_state::SessionState;
