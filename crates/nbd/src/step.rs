//! Types exchanged between a session and its driver: limits, steps, the result of a handshake.

use crate::export::Export;
use crate::reply::ReplyStyle;
use crate::request::{Rejected, Request};

/// Bounds on what one client may make a session read or store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Longest option payload that is stored, in bytes. A longer one, up to
    /// [`option_discard_max`](Self::option_discard_max), is discarded and answered with
    /// `NBD_REP_ERR_TOO_BIG`.
    pub option_len_max: u32,
    /// Longest option payload that is discarded, in bytes; a longer one ends the connection.
    pub option_discard_max: u32,
    /// Largest number of options that one client may send.
    pub options_max: u32,
    /// Longest reply to `NBD_OPT_LIST`, in bytes; a longer one becomes `NBD_REP_ERR_TOO_BIG`.
    pub list_len_max: u32,
    /// Longest payload of a rejected write that is discarded, in bytes; the export's maximum
    /// payload applies instead if it is larger. A longer payload ends the connection.
    pub write_discard_max: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            option_len_max: 16 << 10,
            option_discard_max: 1 << 20,
            options_max: 256,
            list_len_max: 1 << 20,
            write_discard_max: 64 << 20,
        }
    }
}

/// Next action of the driver.
#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    /// All input was consumed; the number of further bytes until the next step. The bytes may
    /// arrive in any pieces, because the session stores incomplete headers.
    NeedMore(usize),
    /// The handshake produced [`output`](crate::Session::output). It must be sent and consumed
    /// before the session takes more input.
    Output,
    /// The client starts TLS. [`output`](crate::Session::output) holds the acknowledgement, which
    /// must be sent and consumed; then follows the TLS handshake, and after it
    /// [`tls_established`](crate::Session::tls_established). Until that call the session takes no
    /// input: bytes that came in plain text behind the option end the connection.
    StartTls,
    /// Transmission begins. [`output`](crate::Session::output) still holds the end of the handshake
    /// and must be sent before any reply.
    Opened(Box<Opened>),
    /// A valid request. After a [`Write`](crate::Command::Write), the next
    /// [`len`](Request::len) bytes of the stream are its payload: the driver takes them itself,
    /// straight into its own buffer (or has them thrown away with
    /// [`skip_payload`](crate::Session::skip_payload)), and gives `handle` what follows them.
    Request(Request),
    /// A request to answer with an error. Its payload, if any, is skipped by the session.
    Rejected(Rejected),
    /// The client ends the connection: send [`output`](crate::Session::output), answer the requests
    /// still in flight, close.
    Disconnect(Disconnect),
}

/// Message with which a client ended the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disconnect {
    /// `NBD_OPT_ABORT`, during the handshake.
    Abort,
    /// `NBD_CMD_DISC`, during transmission.
    Disc,
}

/// Result of a handshake that opened an export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opened {
    /// Export that the client chose.
    pub export: Export,
    /// Negotiated form of replies.
    pub style: ReplyStyle,
    /// Transmission flags as sent.
    pub flags: u16,
    /// Identifier of `base:allocation` if the client selected it for this export; `None` rejects
    /// every [`BlockStatus`](crate::Command::BlockStatus) request.
    pub allocation_context: Option<u32>,
    /// The client requested the block sizes and thereby promised to respect them.
    pub knows_block_size: bool,
}
