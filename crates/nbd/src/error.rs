//! Errors that a reply carries to the client, and errors that end a connection.

use thiserror::Error;

/// Error value of a reply ("Error values"); names and numbers are those of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Error)]
#[repr(u32)]
pub enum NbdError {
    /// `NBD_EPERM`.
    #[error("operation not permitted")]
    Eperm = 1,
    /// `NBD_EIO`.
    #[error("input/output error")]
    Eio = 5,
    /// `NBD_ENOMEM`; the specification asks servers to avoid it.
    #[error("cannot allocate memory")]
    Enomem = 12,
    /// `NBD_EINVAL`.
    #[error("invalid argument")]
    Einval = 22,
    /// `NBD_ENOSPC`.
    #[error("no space left on device")]
    Enospc = 28,
    /// `NBD_EOVERFLOW`; only for reads, and for lengths of commands without payload.
    #[error("value too large")]
    Eoverflow = 75,
    /// `NBD_ENOTSUP`; only for `NBD_CMD_WRITE_ZEROES` with `NBD_CMD_FLAG_FAST_ZERO`.
    #[error("operation not supported")]
    Enotsup = 95,
    /// `NBD_ESHUTDOWN`.
    #[error("server is shutting down")]
    Eshutdown = 108,
}

impl NbdError {
    /// Error value on the wire.
    pub const fn code(self) -> u32 {
        self as u32
    }

    /// Decodes an error value; 0 (success) gives `None`. A value that the specification does not
    /// define becomes `NBD_EINVAL`, as it asks of clients.
    pub const fn from_code(code: u32) -> Option<NbdError> {
        Some(match code {
            0 => return None,
            1 => NbdError::Eperm,
            5 => NbdError::Eio,
            12 => NbdError::Enomem,
            28 => NbdError::Enospc,
            75 => NbdError::Eoverflow,
            95 => NbdError::Enotsup,
            108 => NbdError::Eshutdown,
            _ => NbdError::Einval,
        })
    }
}

/// Protocol violation that ends a connection because no reply can report it.
///
/// Fields named `at` are positions in the client's byte stream, counted from its first byte.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Fatal {
    /// Client flag that the server did not offer ("Client flags").
    #[error(
        "handshake: client flags {flags:#x} contain one that was not offered; allowed are \
         0x1 (FIXED_NEWSTYLE) and 0x2 (NO_ZEROES)"
    )]
    UnknownClientFlags {
        /// All 32 flags, as sent.
        flags: u32,
    },
    /// Option that does not start with `IHAVEOPT` ("Newstyle negotiation").
    #[error(
        "handshake: option at byte {at} starts with {found:#018x}, not with IHAVEOPT \
         (0x49484156454f5054); the client speaks another protocol or has lost its place"
    )]
    BadOptionMagic {
        /// Bytes found instead of the magic number.
        found: u64,
        /// Position of the option in the client's stream, in bytes.
        at: u64,
    },
    /// Option other than `NBD_OPT_EXPORT_NAME` from a client without fixed newstyle ("Option
    /// types").
    #[error(
        "handshake: option {option} from a client that did not set FIXED_NEWSTYLE; it may use \
         only NBD_OPT_EXPORT_NAME (1)"
    )]
    NotFixedNewstyle {
        /// The option's number.
        option: u32,
    },
    /// Option payload longer than the server is willing to discard.
    #[error("handshake: option {option} announces {len} bytes of data; at most {max} are read")]
    OptionTooLong {
        /// The option's number.
        option: u32,
        /// Announced payload length in bytes.
        len: u32,
        /// [`Limits::option_discard_max`](crate::Limits::option_discard_max), or
        /// [`NAME_LEN_MAX`](crate::NAME_LEN_MAX) for `NBD_OPT_EXPORT_NAME`.
        max: u32,
    },
    /// Bytes in plain text behind `NBD_OPT_STARTTLS`, whose client has to wait for the answer and
    /// then for TLS. An attacker on the network may have injected them (CVE-2021-3716).
    #[error(
        "handshake: bytes in plain text follow NBD_OPT_STARTTLS at byte {at}; after it everything \
         is sent over TLS"
    )]
    PlaintextAfterStartTls {
        /// Position of the first of these bytes in the client's stream.
        at: u64,
    },
    /// `NBD_OPT_EXPORT_NAME` without TLS for an export that is served over TLS only, or that does
    /// not exist; the option has no error reply.
    #[error("handshake: NBD_OPT_EXPORT_NAME without TLS for an export that is not served so")]
    TlsRequired,
    /// More options than [`Limits::options_max`](crate::Limits::options_max).
    #[error("handshake: the client sent more than {max} options without choosing an export")]
    TooManyOptions {
        /// [`Limits::options_max`](crate::Limits::options_max).
        max: u32,
    },
    /// The client asked with `NBD_OPT_EXPORT_NAME` for an export that
    /// [`Exports::admit`](crate::Exports::admit) refused; the option has no error reply.
    #[error("handshake: export {name:?} refused: {why}")]
    NotAdmitted {
        /// The export's name, as the client gave it.
        name: String,
        /// The reason.
        why: String,
    },
    /// `NBD_OPT_EXPORT_NAME` with a name that is not a valid protocol string; the option has no
    /// error reply.
    #[error("handshake: NBD_OPT_EXPORT_NAME: {reason}; a name is UTF-8 of at most 4096 bytes")]
    BadExportName {
        /// Violated rule of protocol strings.
        reason: &'static str,
    },
    /// `NBD_OPT_EXPORT_NAME` for an unknown export; the option has no error reply.
    #[error("handshake: NBD_OPT_EXPORT_NAME: there is no export named {name:?}")]
    UnknownExport {
        /// The name asked for.
        name: String,
    },
    /// `NBD_OPT_EXPORT_NAME` for an export that requires negotiated block sizes; the option has no
    /// error reply.
    #[error(
        "handshake: NBD_OPT_EXPORT_NAME: export {name:?} needs clients that ask for \
         NBD_INFO_BLOCK_SIZE with NBD_OPT_GO"
    )]
    BlockSizeRequired {
        /// The name asked for.
        name: String,
    },
    /// `NBD_OPT_EXPORT_NAME` after [`Session::shut_down`](crate::Session::shut_down); the option
    /// has no error reply.
    #[error("handshake: NBD_OPT_EXPORT_NAME while the server is shutting down")]
    ShuttingDown,
    /// Request that does not start with `NBD_REQUEST_MAGIC` ("Request message").
    #[error(
        "transmission: request at byte {at} starts with {found:#010x}, not with \
         NBD_REQUEST_MAGIC (0x25609513); the client has lost its place in the stream"
    )]
    BadRequestMagic {
        /// Bytes found instead of the magic number.
        found: u32,
        /// Position of the request in the client's stream, in bytes.
        at: u64,
    },
    /// Rejected `NBD_CMD_WRITE` whose payload is longer than the server is willing to discard.
    #[error(
        "transmission: NBD_CMD_WRITE {cookie:#x} at byte {at} announces {len} bytes; a refused \
         payload is read up to {max} bytes"
    )]
    PayloadTooLong {
        /// The request's cookie.
        cookie: u64,
        /// Position of the request in the client's stream, in bytes.
        at: u64,
        /// Announced payload length in bytes.
        len: u32,
        /// The larger of the export's maximum payload and
        /// [`Limits::write_discard_max`](crate::Limits::write_discard_max).
        max: u32,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_round_trip_and_unknown_ones_are_einval() {
        for code in [1, 5, 12, 22, 28, 75, 95, 108] {
            assert_eq!(NbdError::from_code(code).unwrap().code(), code);
        }
        assert_eq!(NbdError::from_code(0), None);
        assert_eq!(NbdError::from_code(77), Some(NbdError::Einval));
    }
}
