//! NBD frontend: exports, error numbers and reply heads (`words`), and connections on sockets.

mod connection;
mod words;

pub(crate) use connection::Connection;
pub use connection::Opening;
pub(crate) use words::{Head, export};
