//! Translation to NBD: volumes to exports, failures to error numbers, outcomes to reply heads.

use tidegate_nbd::{Abilities, BlockSize, Export, NbdError, ReplyStyle};

use crate::frontend::{Failure, Volume};

/// Parts of a reply that its head depends on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Head {
    /// Success without data.
    Done,
    /// Success with `len` bytes of data, which follow the head.
    Data {
        /// First byte of the disk that was read.
        offset: u64,
        /// Number of bytes that follow.
        len: u32,
    },
    /// Success whose payload is the encoded reply, head included.
    Encoded,
    /// Failure with a message for humans.
    Failed(Failure, &'static str),
}

impl Head {
    /// Writes the head to the front of `out` and returns its length in bytes.
    #[inline]
    pub(crate) fn encode(self, style: ReplyStyle, cookie: u64, out: &mut [u8]) -> usize {
        match self {
            Head::Failed(failure, message) => style.error(cookie, failure.into(), message, out),
            Head::Data { offset, len } => style.data(cookie, offset, len, out),
            Head::Encoded => 0,
            Head::Done => style.done(cookie, out),
        }
    }
}

/// Returns the export that offers a volume to clients; its `id` is the volume's serial number.
pub(crate) fn export(volume: Volume) -> Export {
    let mut export = Export::new(volume.serial, volume.name, volume.size);
    let preferred = volume.physical_block.max(volume.block_size);
    // Any alignment is served, so the minimum is 1 with 512-byte blocks, which are the default of
    // most tools and no demand. A configured block size of 4 KiB binds clients that negotiate block
    // sizes.
    let minimum = match volume.block_size {
        ..=512 => 1,
        larger => larger,
    };
    export.block = BlockSize::new(minimum, preferred, volume.payload_max)
        .expect("block sizes are powers of two up to 64 KiB");
    export.any_alignment_unasked = true;
    export.abilities = Abilities {
        read_only: volume.read_only,
        flush: true,
        fua: true,
        rotational: volume.rotational,
        trim: true,
        write_zeroes: true,
        fast_zero: true,
        df: true,
        // A flush covers all connections of a disk, as `NBD_FLAG_CAN_MULTI_CONN` requires.
        multi_conn: true,
        cache: true,
        block_status: true,
    };
    export
}

impl From<Failure> for NbdError {
    #[inline]
    fn from(failure: Failure) -> NbdError {
        match failure {
            Failure::NotPermitted => NbdError::Eperm,
            Failure::Io => NbdError::Eio,
            Failure::NoMemory => NbdError::Enomem,
            Failure::Invalid => NbdError::Einval,
            Failure::NoSpace => NbdError::Enospc,
            Failure::TooLong => NbdError::Eoverflow,
            Failure::Unsupported => NbdError::Enotsup,
            Failure::ShuttingDown => NbdError::Eshutdown,
        }
    }
}

impl From<NbdError> for Failure {
    #[inline]
    fn from(error: NbdError) -> Failure {
        match error {
            NbdError::Eperm => Failure::NotPermitted,
            NbdError::Eio => Failure::Io,
            NbdError::Enomem => Failure::NoMemory,
            NbdError::Einval => Failure::Invalid,
            NbdError::Enospc => Failure::NoSpace,
            NbdError::Eoverflow => Failure::TooLong,
            NbdError::Enotsup => Failure::Unsupported,
            NbdError::Eshutdown => Failure::ShuttingDown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_failure_has_an_error_of_its_own() {
        let codes = [1, 5, 12, 22, 28, 75, 95, 108];
        for code in codes {
            let error = NbdError::from_code(code).expect("the protocol defines it");
            assert_eq!(NbdError::from(Failure::from(error)), error);
        }
    }

    #[test]
    fn only_a_block_larger_than_a_sector_binds_clients() {
        let volume = |block_size| Volume {
            serial: 7,
            name: "disk".to_owned(),
            size: 1 << 20,
            block_size,
            physical_block: 4096,
            payload_max: 1 << 25,
            read_only: true,
            rotational: false,
            identity: None,
            activation: None,
        };
        for (block_size, minimum) in [(1, 1), (512, 1), (4096, 4096)] {
            let export = export(volume(block_size));
            let block = BlockSize::new(minimum, 4096, 1 << 25).expect("powers of two");
            assert_eq!((export.id, export.size, export.block), (7, 1 << 20, block));
            assert!(export.abilities.read_only && !export.abilities.rotational);
        }
    }
}
