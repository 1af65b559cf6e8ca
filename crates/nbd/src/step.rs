//! Words between a session and its driver: bounds, the next step, what a handshake agreed on.

use crate::export::Export;
use crate::reply::ReplyStyle;
use crate::request::{Rejected, Request};

/// How much a client may ask of a session before it is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Longest option payload that is kept, in bytes; up to
    /// [`option_discard_max`](Self::option_discard_max) it is skipped and answered with
    /// `NBD_REP_ERR_TOO_BIG`.
    pub option_len_max: u32,
    /// Longest option payload that is read at all; past it the connection is dropped.
    pub option_discard_max: u32,
    /// Most options one client may send.
    pub options_max: u32,
    /// Longest list of exports, in bytes; a longer one is answered with `NBD_REP_ERR_TOO_BIG`.
    pub list_len_max: u32,
    /// Longest payload of a refused write that is read and thrown away (the export's maximum
    /// payload if that is larger); past it the connection is dropped.
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

/// What the driver does next.
#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    /// All input was consumed, and this many bytes more are needed until the next step. They
    /// may be given in any pieces; the session remembers what it was given.
    NeedMore(usize),
    /// The handshake produced [`output`](crate::Session::output). It must be sent and consumed
    /// before the session takes more input.
    Output,
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
    /// The client said good-bye: send what is in [`output`](crate::Session::output), answer what is
    /// still in flight, close.
    Disconnect(Disconnect),
}

/// How a client said good-bye.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disconnect {
    /// `NBD_OPT_ABORT`, during the handshake.
    Abort,
    /// `NBD_CMD_DISC`, during transmission.
    Disc,
}

/// What the handshake agreed on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opened {
    /// The chosen export.
    pub export: Export,
    /// How replies must look.
    pub style: ReplyStyle,
    /// The transmission flags that were sent.
    pub flags: u16,
    /// The identifier of `base:allocation` if it was selected for this export; without it no
    /// [`BlockStatus`](crate::Command::BlockStatus) request is let through.
    pub allocation_context: Option<u32>,
    /// Whether the client asked for the block sizes and so promised to keep them.
    pub knows_block_size: bool,
}
