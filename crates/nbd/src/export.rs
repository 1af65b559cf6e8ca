//! Exports that a server offers, their capabilities and their block sizes.

use crate::reply::ReplyStyle;
use crate::wire::*;
use thiserror::Error;

/// Export directory of a [`Session`](crate::Session); the driver implements it.
pub trait Exports {
    /// Looks up the export named `name`. The empty name means the default export, if there is one
    /// (`NBD_OPT_EXPORT_NAME`).
    fn lookup(&self, name: &str) -> Option<Export>;

    /// Admits a client to the export it has chosen with `NBD_OPT_GO` or `NBD_OPT_EXPORT_NAME`, just
    /// before transmission begins. Not called for `NBD_OPT_INFO`. Admits every client by default.
    ///
    /// # Errors
    /// The reason of a refusal, for a human reader. `NBD_OPT_GO` is answered with it and
    /// `NBD_REP_ERR_POLICY`, and the handshake goes on; `NBD_OPT_EXPORT_NAME` has no error reply,
    /// so the connection ends.
    fn admit(&self, export: &Export) -> Result<(), String> {
        let _ = export;
        Ok(())
    }

    /// Calls `f` with the name and the description (may be empty) of each export that
    /// `NBD_OPT_LIST` is to show.
    fn list(&self, f: &mut dyn FnMut(&str, &str));
}

/// Export as offered to one client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Export {
    /// Driver's handle of the export; never sent.
    pub id: u32,
    /// Canonical name (`NBD_INFO_NAME`), at most [`NAME_LEN_MAX`] bytes.
    pub name: String,
    /// Description for a human reader (`NBD_INFO_DESCRIPTION`); not sent if empty.
    pub description: String,
    /// Size in bytes. Should be a multiple of the minimum block size: bytes after the last whole
    /// block cannot be reached.
    pub size: u64,
    /// Capabilities, sent as transmission flags.
    pub abilities: Abilities,
    /// Block sizes ("Size constraints").
    pub block: BlockSize,
    /// Refuses clients that do not ask for the block sizes (`NBD_REP_ERR_BLOCK_SIZE_REQD`)
    /// instead of merely failing their unaligned requests. Without effect for
    /// [`BlockSize::DEFAULT`].
    pub require_block_size: bool,
    /// Accepts requests of any offset and length from clients that did not negotiate block sizes,
    /// as the specification asks of servers. The minimum block size then binds only clients that
    /// requested it.
    pub any_alignment_unasked: bool,
}

impl Export {
    /// Returns a read-write export with default block sizes and no optional capability.
    pub fn new(id: u32, name: impl Into<String>, size: u64) -> Export {
        Export {
            id,
            name: name.into(),
            description: String::new(),
            size,
            abilities: Abilities::default(),
            block: BlockSize::DEFAULT,
            require_block_size: false,
            any_alignment_unasked: false,
        }
    }
}

/// Capabilities of an export ("Transmission flags").
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Abilities {
    /// `NBD_FLAG_READ_ONLY`: writes are answered with `NBD_EPERM`, and trim and write-zeroes
    /// are not advertised.
    pub read_only: bool,
    /// `NBD_FLAG_SEND_FLUSH`.
    pub flush: bool,
    /// `NBD_FLAG_SEND_FUA`.
    pub fua: bool,
    /// `NBD_FLAG_ROTATIONAL`.
    pub rotational: bool,
    /// `NBD_FLAG_SEND_TRIM`.
    pub trim: bool,
    /// `NBD_FLAG_SEND_WRITE_ZEROES`.
    pub write_zeroes: bool,
    /// `NBD_FLAG_SEND_FAST_ZERO`; only together with `write_zeroes`.
    pub fast_zero: bool,
    /// `NBD_FLAG_SEND_DF`; advertised only once structured replies are negotiated. The driver
    /// promises a single content chunk for such reads of up to 65,536 bytes at least.
    pub df: bool,
    /// `NBD_FLAG_CAN_MULTI_CONN`.
    pub multi_conn: bool,
    /// `NBD_FLAG_SEND_CACHE`.
    pub cache: bool,
    /// Offers the metadata context `base:allocation`, for `NBD_CMD_BLOCK_STATUS`.
    pub block_status: bool,
}

impl Abilities {
    /// Transmission flags that announce these capabilities to a client that negotiated `style`.
    pub fn transmission_flags(&self, style: ReplyStyle) -> u16 {
        // The specification forbids NBD_FLAG_SEND_TRIM and NBD_FLAG_SEND_WRITE_ZEROES on a
        // read-only export.
        let writable = !self.read_only;
        let zeroes = self.write_zeroes && writable;
        [
            (true, NBD_FLAG_HAS_FLAGS),
            (self.read_only, NBD_FLAG_READ_ONLY),
            (self.flush, NBD_FLAG_SEND_FLUSH),
            (self.fua, NBD_FLAG_SEND_FUA),
            (self.rotational, NBD_FLAG_ROTATIONAL),
            (self.trim && writable, NBD_FLAG_SEND_TRIM),
            (zeroes, NBD_FLAG_SEND_WRITE_ZEROES),
            (self.df && style == ReplyStyle::Structured, NBD_FLAG_SEND_DF),
            (self.multi_conn, NBD_FLAG_CAN_MULTI_CONN),
            (self.cache, NBD_FLAG_SEND_CACHE),
            (self.fast_zero && zeroes, NBD_FLAG_SEND_FAST_ZERO),
        ]
        .into_iter()
        .filter_map(|(set, flag)| set.then_some(flag))
        .fold(0, |flags, flag| flags | flag)
    }
}

/// Block sizes of an export ("Size constraints"), in bytes. Every value of this type satisfies the
/// specification's rules for exports of at least the preferred size; smaller exports, whose maximum
/// may be their own size, are held to the same rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockSize {
    minimum: u32,
    preferred: u32,
    maximum: u32,
}

impl BlockSize {
    /// Block sizes that apply where none are advertised: 1, 4096 and 2^25 bytes.
    pub const DEFAULT: BlockSize = BlockSize {
        minimum: 1,
        preferred: 4096,
        maximum: 1 << 25,
    };

    /// Checks the three sizes against the specification.
    ///
    /// # Errors
    /// The minimum is not a power of 2 up to 65,536, the preferred size is not a power of 2 of at
    /// least 512 and the minimum, or the maximum is below the preferred size or neither a multiple
    /// of the minimum nor `u32::MAX`.
    pub fn new(minimum: u32, preferred: u32, maximum: u32) -> Result<BlockSize, BlockSizeError> {
        // 64 KiB is the largest minimum that the specification allows.
        if !minimum.is_power_of_two() || minimum > 1 << 16 {
            return Err(BlockSizeError::Minimum(minimum));
        }
        let at_least = minimum.max(512);
        if !preferred.is_power_of_two() || preferred < at_least {
            return Err(BlockSizeError::Preferred {
                preferred,
                at_least,
            });
        }
        if maximum < preferred {
            return Err(BlockSizeError::Maximum { maximum, preferred });
        }
        // 0xffffffff means that the payload has no limit of its own.
        if maximum != u32::MAX && !maximum.is_multiple_of(minimum) {
            return Err(BlockSizeError::MaximumUnaligned { maximum, minimum });
        }
        Ok(BlockSize {
            minimum,
            preferred,
            maximum,
        })
    }

    /// Minimum block size in bytes, a power of 2. Offsets and lengths must be multiples of it.
    pub const fn minimum(self) -> u32 {
        self.minimum
    }

    /// Preferred block size in bytes, a power of 2: granularity of efficient I/O.
    pub const fn preferred(self) -> u32 {
        self.preferred
    }

    /// Maximum payload in bytes: longest read or write.
    pub const fn maximum(self) -> u32 {
        self.maximum
    }
}

impl Default for BlockSize {
    fn default() -> Self {
        BlockSize::DEFAULT
    }
}

/// Violated rule of the block sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum BlockSizeError {
    /// Minimum block size that is not a power of 2 from 1 to 65,536.
    #[error("minimum block size is {0} B; it must be a power of 2 from 1 to 65536")]
    Minimum(u32),
    /// Preferred block size that is not a power of 2 or too small.
    #[error("preferred block size is {preferred} B; it must be a power of 2, at least {at_least}")]
    Preferred {
        /// Given preferred block size in bytes.
        preferred: u32,
        /// Smallest preferred block size allowed, in bytes.
        at_least: u32,
    },
    /// Maximum payload below the preferred block size.
    #[error("maximum payload is {maximum} B; it must be at least the preferred {preferred}")]
    Maximum {
        /// Given maximum payload in bytes.
        maximum: u32,
        /// Preferred block size in bytes, the smallest maximum allowed.
        preferred: u32,
    },
    /// Maximum payload that is not a whole number of minimum blocks.
    #[error(
        "maximum payload is {maximum} B; it must be a multiple of the minimum block size \
         {minimum}, or 4294967295 for no limit"
    )]
    MaximumUnaligned {
        /// Given maximum payload in bytes.
        maximum: u32,
        /// Minimum block size in bytes.
        minimum: u32,
    },
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::ALL;

    #[test]
    fn block_sizes_are_checked_against_the_specification() {
        assert!(BlockSize::new(1, 4096, 1 << 25).is_ok());
        assert!(BlockSize::new(65536, 65536, u32::MAX).is_ok());
        assert_eq!(BlockSize::new(0, 512, 512), Err(BlockSizeError::Minimum(0)));
        assert_eq!(
            BlockSize::new(131072, 131072, 1 << 25),
            Err(BlockSizeError::Minimum(131072))
        );
        assert!(matches!(
            BlockSize::new(1, 256, 4096),
            Err(BlockSizeError::Preferred { .. })
        ));
        assert!(matches!(
            BlockSize::new(4096, 512, 4096),
            Err(BlockSizeError::Preferred { .. })
        ));
        assert!(matches!(
            BlockSize::new(512, 4096, 512),
            Err(BlockSizeError::Maximum { .. })
        ));
        assert!(matches!(
            BlockSize::new(512, 4096, 70_000),
            Err(BlockSizeError::MaximumUnaligned { .. })
        ));
    }

    #[test]
    fn transmission_flags_announce_the_capabilities() {
        let writable = NBD_FLAG_HAS_FLAGS
            | NBD_FLAG_SEND_FLUSH
            | NBD_FLAG_SEND_FUA
            | NBD_FLAG_ROTATIONAL
            | NBD_FLAG_SEND_TRIM
            | NBD_FLAG_SEND_WRITE_ZEROES
            | NBD_FLAG_CAN_MULTI_CONN
            | NBD_FLAG_SEND_CACHE
            | NBD_FLAG_SEND_FAST_ZERO;
        assert_eq!(ALL.transmission_flags(ReplyStyle::Simple), writable);
        assert_eq!(
            ALL.transmission_flags(ReplyStyle::Structured),
            writable | NBD_FLAG_SEND_DF
        );
        let zeroes = NBD_FLAG_SEND_WRITE_ZEROES | NBD_FLAG_SEND_FAST_ZERO;
        let read_only = Abilities {
            read_only: true,
            ..ALL
        };
        assert_eq!(
            read_only.transmission_flags(ReplyStyle::Simple),
            (writable & !(zeroes | NBD_FLAG_SEND_TRIM)) | NBD_FLAG_READ_ONLY
        );
        let no_zeroes = Abilities {
            write_zeroes: false,
            ..ALL
        };
        assert_eq!(
            no_zeroes.transmission_flags(ReplyStyle::Simple),
            writable & !zeroes
        );
        assert_eq!(
            Abilities::default().transmission_flags(ReplyStyle::Structured),
            NBD_FLAG_HAS_FLAGS
        );
    }
}
