//! NBD: exports, error numbers and heads of replies (`words`), and connections on sockets.

mod connection;
mod words;

pub(crate) use connection::Connection;
pub use connection::Opening;
pub(crate) use words::{Head, export};
