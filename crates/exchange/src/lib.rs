//! Exchange of shares among hosts that share one array (vFair, section 4.3): the format of its
//! messages, the rules by which a host believes them, and how they travel.
//!
//! ```text
//!   Engine::poll_share ──▶ ArrayExchange::share ──bytes──▶ Transport::publish
//!                                                               │  NATS core, or in process
//!   Engine::handle_peer ◀── ArrayExchange::receive ◀──bytes── Transport::receive
//!   DeviceMut::assume_peer ◀── ArrayExchange::tick
//! ```
//!
//! - [`message`] packs a report into one message of at most a kilobyte, and reads one, whatever its
//!   bytes are.
//! - [`entitlements`] says which hosts share an array, and how much weight each of them may claim.
//! - [`ArrayExchange`] is the state of one array on one host, without I/O and without a clock:
//!   which messages count, and which hosts are silent.
//! - [`Transport`] carries messages; [`in_process`] has one for tests, which loses, delays and
//!   reorders by a seed, and `nats`, behind the feature of that name, one over NATS core.

pub mod array;
pub mod entitlements;
#[cfg(feature = "fuzzing")]
pub mod fuzz;
pub mod in_process;
pub mod message;
pub mod name;
#[cfg(feature = "nats")]
pub mod nats;
pub mod options;
pub mod transport;

pub use array::{ArrayExchange, Presence, Refusal, Update};
pub use entitlements::{Entitlements, FixedEntitlements};
pub use name::Name;
pub use transport::{Received, Transport, TransportStatus};
