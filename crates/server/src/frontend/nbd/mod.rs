//! NBD frontend: exports, error numbers and reply heads (`translation`), and connections on
//! sockets.

mod connection;
mod translation;

pub use connection::Opening;
pub(crate) use connection::{Connection, Cookie, Moving, MovingWrite, encode_extents};
pub(crate) use translation::{Head, export};
