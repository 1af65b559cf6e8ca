//! NBD frontend: exports, error numbers and reply heads (`translation`), and connections on
//! sockets.

mod connection;
mod translation;

pub(crate) use connection::Connection;
pub use connection::Opening;
pub(crate) use translation::{Head, export};
