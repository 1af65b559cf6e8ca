//! Cluster of hosts: its state in a store with revisions, and the driver that places deadline
//! transfers on the hosts.
//!
//! ```text
//!   Cluster::open --load--> ClusterStore (redb, memory, etcd)
//!      |                        ^
//!      | asks Daemons           | commit(revision, changes)
//!      v                        |
//!   Pcos decides --> ClusterState changes --> Cluster::save
//! ```
//!
//! [`ClusterState`] is plain data. [`Change`]s lead from one state to the next; a store accepts
//! them only if no other writer has committed since the state was loaded. [`Cluster`] runs the
//! state machine of `tidegate-place` on such a state. It reads no wall clock and prints nothing:
//! the caller passes in the time, which is compared with stored times and with the clocks of joined
//! daemons before a commit, and receives [`ClusterEvent`]s.
#![forbid(unsafe_code)]

mod change;
mod clock;
mod cluster_event;
mod daemons;
mod driver;
mod error;
mod hosts;
#[cfg(feature = "etcd")]
pub mod joining;
mod membership;
mod part;
mod record;
mod state;
pub mod store;
mod table;

pub use change::{Change, difference};
pub use clock::{ClockError, PublishedClock, TimedRecord};
pub use cluster_event::{ClusterEvent, Started};
pub use daemons::{DaemonError, DaemonSelection, Daemons, LiveTransfer, ServedVm, VmTransfer};
pub use driver::{Cluster, Session};
pub use error::Error;
pub use hosts::Hosts;
pub use membership::{MemberDevice, Membership, PublishedTransfer, RegisteredDaemon};
pub use part::Touched;
pub use record::{Entitlement, HostRecord, Placement, RunningTransfer, Settings, Transfer};
pub use state::{ClusterState, HostError, HostList, Inconsistent};
pub use table::{Named, Table};
