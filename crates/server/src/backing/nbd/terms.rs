//! Requirements on the export of a disk, when it is opened and after each reconnect.

use tidegate_nbd::Abilities;
use tidegate_nbd::client::Negotiated;
use tidegate_nbd::client::recovery::Terms;
use tidegate_units::human::exact_bytes;

use crate::config::DiskConfig;

/// Longest payload of a request in bytes, whatever the server allows: the protocol's default.
const PAYLOAD_MAX: u32 = 32 << 20;
/// Minimum block size of a server that a disk with blocks of the same size keeps.
const LARGEST_BLOCK: u32 = 4096;

/// Largest export in bytes: addresses of a device are sums of sizes of disks.
const EXPORT_MAX: u64 = 1 << 62;

/// Requirements of an open disk.
#[derive(Clone, Copy, Debug)]
pub(super) struct Needs {
    pub(super) size: u64,
    read_only: bool,
    /// Block that all offsets and lengths of requests are multiples of.
    block: u32,
    /// Abilities that are in use.
    used: Abilities,
}

impl Needs {
    /// Checks an export for a disk that is about to be opened.
    ///
    /// # Errors
    /// Returns what is wrong and what would be right, to follow the URI and a colon.
    pub(super) fn new(config: &DiskConfig, negotiated: &Negotiated) -> Result<Needs, String> {
        if negotiated.size > EXPORT_MAX {
            return Err(format!(
                "the export has {}, and at most {} can be served",
                exact_bytes(negotiated.size),
                exact_bytes(EXPORT_MAX)
            ));
        }
        let size = config.size.unwrap_or(negotiated.size);
        let needs = Needs {
            size,
            read_only: config.read_only,
            // Others are told 1 byte, and may use it.
            block: if config.block_size == LARGEST_BLOCK {
                LARGEST_BLOCK
            } else {
                1
            },
            used: negotiated.abilities(),
        };
        needs.check(negotiated)?;
        Ok(needs)
    }

    /// Checks the export on a new connection, and returns what requests may be sent.
    ///
    /// # Errors
    /// Returns what is wrong and what would be right.
    pub(super) fn check(&self, negotiated: &Negotiated) -> Result<Terms, String> {
        let (found, abilities) = (negotiated.size, negotiated.abilities());
        if found < self.size {
            return Err(format!(
                "the export has {}, and the disk needs {}",
                exact_bytes(found),
                exact_bytes(self.size)
            ));
        }
        if !self.read_only && abilities.read_only {
            return Err(
                "the export is read-only: set `read_only = true`, or have the server \
                        offer it for writing"
                    .to_owned(),
            );
        }
        if !self.read_only && !abilities.flush {
            return Err(
                "the server does not offer flushes (NBD_FLAG_SEND_FLUSH), so that no \
                        write could ever be called durable: set `read_only = true`, or use a \
                        server that offers them"
                    .to_owned(),
            );
        }
        let minimum = negotiated.block.minimum();
        if minimum > self.block {
            let help = match minimum {
                0..=LARGEST_BLOCK => "set `block_size = \"4 KiB\"` for the disk",
                _ => "at most 4 KiB can be served",
            };
            let minimum = exact_bytes(minimum.into());
            return Err(format!(
                "the server takes whole blocks of {minimum}: {help}"
            ));
        }
        let lacks = |used: bool, has: bool| used && !has && !self.read_only;
        if lacks(self.used.write_zeroes, abilities.write_zeroes) {
            return Err(
                "the server has no write-zeroes any more: have it offer them again, or \
                        remove and add the disk"
                    .to_owned(),
            );
        }
        if lacks(self.used.trim, abilities.trim) {
            return Err(
                "the server has no trim any more: have it offer it again, or remove and add \
                        the disk"
                    .to_owned(),
            );
        }
        Ok(Terms {
            max_payload: negotiated.block.maximum().min(PAYLOAD_MAX),
            can_zero: abilities.write_zeroes,
            can_trim: abilities.trim,
            can_flush: abilities.flush,
        })
    }

    /// Returns true if the server zeroes ranges by itself.
    pub(super) fn can_zero(&self) -> bool {
        self.used.write_zeroes
    }
}
