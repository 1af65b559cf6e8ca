//! NBD frontend: exports, error numbers and reply heads (`translation`), and connections on
//! sockets.

mod connection;
mod translation;

pub(crate) use connection::{Connection, Kept};
pub use connection::{Handed, Opening};
pub(crate) use translation::{Head, export};
