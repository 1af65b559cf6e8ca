//! Errors: those a reply carries to the client, and those that end a connection.

use thiserror::Error;

/// An error a reply may carry ("Error values"); the variants' names and numbers are the wire's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Error)]
#[repr(u32)]
pub enum NbdError {
    /// `NBD_EPERM`.
    #[error("operation not permitted")]
    Eperm = 1,
    /// `NBD_EIO`.
    #[error("input/output error")]
    Eio = 5,
    /// `NBD_ENOMEM`; to be avoided, says the specification.
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
    /// The number on the wire.
    pub const fn code(self) -> u32 {
        self as u32
    }

    /// Reads a number off the wire. As the specification asks of clients, one it does not
    /// define is taken for `NBD_EINVAL`; zero is no error.
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

/// Why a connection must be dropped: the client broke a rule to which no reply can be sent.
///
/// `at` is the position in the client's byte stream, counted from its first byte.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Fatal {
    /// "Client flags": a flag the server did not offer.
    #[error(
        "handshake: client flags {flags:#x} contain one that was not offered; allowed are \
         0x1 (FIXED_NEWSTYLE) and 0x2 (NO_ZEROES)"
    )]
    UnknownClientFlags {
        /// All 32 flags, as sent.
        flags: u32,
    },
    /// "Newstyle negotiation": an option that does not start with `IHAVEOPT`.
    #[error(
        "handshake: option at byte {at} starts with {found:#018x}, not with IHAVEOPT \
         (0x49484156454f5054); the client speaks another protocol or has lost its place"
    )]
    BadOptionMagic {
        /// What stood in its place.
        found: u64,
        /// Where the option starts.
        at: u64,
    },
    /// "Option types": only `NBD_OPT_EXPORT_NAME` may be used without fixed newstyle.
    #[error(
        "handshake: option {option} from a client that did not set FIXED_NEWSTYLE; it may use \
         only NBD_OPT_EXPORT_NAME (1)"
    )]
    NotFixedNewstyle {
        /// The option's number.
        option: u32,
    },
    /// An option too long to be read and thrown away.
    #[error("handshake: option {option} announces {len} bytes of data; at most {max} are read")]
    OptionTooLong {
        /// The option's number.
        option: u32,
        /// The announced length.
        len: u32,
        /// [`Limits::option_discard_max`](crate::Limits::option_discard_max), or
        /// [`NAME_LEN_MAX`](crate::NAME_LEN_MAX) for `NBD_OPT_EXPORT_NAME`.
        max: u32,
    },
    /// More options than any client needs.
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
    /// `NBD_OPT_EXPORT_NAME` with a name that is no protocol string; the option has no error
    /// reply.
    #[error("handshake: NBD_OPT_EXPORT_NAME: {reason}; a name is UTF-8 of at most 4096 bytes")]
    BadExportName {
        /// What is wrong with it.
        reason: &'static str,
    },
    /// `NBD_OPT_EXPORT_NAME` for an export there is not; the option has no error reply.
    #[error("handshake: NBD_OPT_EXPORT_NAME: there is no export named {name:?}")]
    UnknownExport {
        /// The name asked for.
        name: String,
    },
    /// `NBD_OPT_EXPORT_NAME` for an export that needs clients that know its block sizes; the
    /// option has no error reply.
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
    /// "Request message": a request that does not start with `NBD_REQUEST_MAGIC`.
    #[error(
        "transmission: request at byte {at} starts with {found:#010x}, not with \
         NBD_REQUEST_MAGIC (0x25609513); the client has lost its place in the stream"
    )]
    BadRequestMagic {
        /// What stood in its place.
        found: u32,
        /// Where the request starts.
        at: u64,
    },
    /// A refused `NBD_CMD_WRITE` whose payload is too long to be read and thrown away.
    #[error(
        "transmission: NBD_CMD_WRITE {cookie:#x} at byte {at} announces {len} bytes; a refused \
         payload is read up to {max} bytes"
    )]
    PayloadTooLong {
        /// The request's cookie.
        cookie: u64,
        /// Where the request starts.
        at: u64,
        /// The announced length.
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
