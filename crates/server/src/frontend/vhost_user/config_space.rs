//! Features and configuration space of a device (virtio 1.2, sections 5.2.3 and 5.2.4).

use super::connection::QUEUES_MAX;
use super::request::{RANGE_MAX, SECTOR};
use crate::frontend::Volume;

/// Numbers of feature bits.
const SIZE_MAX: u32 = 1;
const SEG_MAX: u32 = 2;
const RO: u32 = 5;
const BLK_SIZE: u32 = 6;
pub(super) const FLUSH: u32 = 9;
const TOPOLOGY: u32 = 10;
pub(super) const CONFIG_WCE: u32 = 11;
const MQ: u32 = 12;
const DISCARD: u32 = 13;
const WRITE_ZEROES: u32 = 14;
/// `VHOST_F_LOG_ALL`, which drivers never see: writes to guest memory are marked in a log.
pub(super) const LOG_ALL: u32 = 26;
pub(super) const INDIRECT_DESC: u32 = 28;
pub(super) const EVENT_IDX: u32 = 29;
/// `VHOST_USER_F_PROTOCOL_FEATURES`
pub(super) const PROTOCOL_FEATURES: u32 = 30;
const VERSION_1: u32 = 32;

/// Most buffers of a request.
const SEGMENTS_MAX: u32 = 254;
/// Unit of the longest buffer in bytes.
const SEGMENT_UNIT: u32 = 4096;

/// Bytes of the configuration space, up to the fields for zoned devices.
pub(super) const BYTES: usize = 60;
/// Offset of the field `writeback`.
pub(super) const WRITEBACK: u32 = 32;

/// Returns the features of a disk.
pub(super) fn features(volume: &Volume) -> u64 {
    let always = [
        SIZE_MAX,
        SEG_MAX,
        BLK_SIZE,
        FLUSH,
        TOPOLOGY,
        CONFIG_WCE,
        MQ,
        LOG_ALL,
        INDIRECT_DESC,
        EVENT_IDX,
        PROTOCOL_FEATURES,
        VERSION_1,
    ];
    let by_access: &[u32] = if volume.read_only {
        &[RO]
    } else {
        &[DISCARD, WRITE_ZEROES]
    };
    let all = always.iter().chain(by_access);
    all.fold(0, |bits, bit| bits | 1 << bit)
}

/// Returns the configuration space of a disk. `writeback` is the field of that name.
pub(super) fn bytes(volume: &Volume, writeback: bool) -> [u8; BYTES] {
    let block = volume.block_size.max(SECTOR);
    // Blocks as a power of two, and the preferred units of I/O, in logical blocks.
    let physical = volume.physical_block.max(block) / block;
    let segment = volume.payload_max / SEGMENTS_MAX / SEGMENT_UNIT * SEGMENT_UNIT;
    let range_sectors = RANGE_MAX / SECTOR;
    let mut space = Space::default();
    space.put(0, &(volume.size / u64::from(SECTOR)).to_le_bytes());
    space.put(8, &segment.to_le_bytes());
    space.put(12, &SEGMENTS_MAX.to_le_bytes());
    space.put(20, &block.to_le_bytes());
    space.put(24, &[physical.ilog2() as u8]);
    space.put(26, &(physical as u16).to_le_bytes());
    space.put(WRITEBACK as usize, &[u8::from(writeback)]);
    space.put(34, &(QUEUES_MAX as u16).to_le_bytes());
    space.put(36, &range_sectors.to_le_bytes());
    space.put(40, &1u32.to_le_bytes());
    space.put(44, &(physical * block / SECTOR).to_le_bytes());
    space.put(48, &range_sectors.to_le_bytes());
    space.put(52, &1u32.to_le_bytes());
    space.put(56, &[1]);
    space.0
}

/// Configuration space that is being written.
struct Space([u8; BYTES]);

impl Default for Space {
    fn default() -> Space {
        Space([0; BYTES])
    }
}

impl Space {
    fn put(&mut self, at: usize, bytes: &[u8]) {
        self.0[at..at + bytes.len()].copy_from_slice(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn volume() -> Volume {
        Volume {
            serial: 1,
            name: "disk".into(),
            size: 10 << 20,
            block_size: 1,
            physical_block: 4096,
            payload_max: 32 << 20,
            read_only: false,
            rotational: false,
            identity: None,
            activation: None,
        }
    }

    #[test]
    fn fields_are_where_the_specification_has_them() {
        let space = bytes(&volume(), true);
        let u32_at = |at: usize| u32::from_le_bytes(space[at..at + 4].try_into().unwrap());
        assert_eq!(space[..8], (20480u64).to_le_bytes(), "sectors");
        assert_eq!(u32_at(8), 131_072, "size_max: 32 pages");
        assert_eq!(u32_at(12), 254, "seg_max");
        assert_eq!(u32_at(20), 512, "blk_size, though the disk takes bytes");
        assert_eq!((space[24], space[25]), (3, 0), "2^3 blocks are physical");
        assert_eq!(space[26..28], 8u16.to_le_bytes(), "min_io_size");
        assert_eq!(space[32], 1, "writeback");
        assert_eq!(space[34..36], 64u16.to_le_bytes(), "num_queues");
        assert_eq!((u32_at(40), u32_at(52)), (1, 1), "segments of ranges");
        assert_eq!(u32_at(36), 8_388_600, "sectors of a discard: below 4 GiB");
        assert_eq!(u32_at(44), 8, "discard_sector_alignment");
        assert_eq!(space[56], 1, "write_zeroes_may_unmap");
    }

    #[test]
    fn the_longest_request_by_segments_is_within_the_disks_limit() {
        let space = bytes(&volume(), false);
        let u32_at = |at: usize| u32::from_le_bytes(space[at..at + 4].try_into().unwrap());
        assert!(u32_at(8) * u32_at(12) <= volume().payload_max);
        assert_eq!(space[32], 0);
    }

    #[test]
    fn a_disk_that_is_read_only_offers_no_changes() {
        let read_only = Volume {
            read_only: true,
            ..volume()
        };
        let has = |bits: u64, bit: u32| bits >> bit & 1 != 0;
        let (both, one) = (features(&volume()), features(&read_only));
        assert!(!has(both, RO) && has(both, DISCARD) && has(both, WRITE_ZEROES));
        assert!(has(one, RO) && !has(one, DISCARD) && !has(one, WRITE_ZEROES));
        for bit in [FLUSH, MQ, VERSION_1, EVENT_IDX, INDIRECT_DESC] {
            assert!(has(both, bit) && has(one, bit));
        }
    }
}
