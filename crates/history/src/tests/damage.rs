//! Damaged blocks are refused and panic nowhere.

use proptest::prelude::*;

use super::{BEGIN_MS, sample};
use crate::block::{Block, HEADER_BYTES, Header};
use crate::budget::WINDOW_MS;
use crate::recorder::{Recorder, vm};
use crate::sample::Sample;
use crate::{block, fuzz};

/// Blocks of a few windows.
fn blocks(samples: &[Sample]) -> Vec<Vec<u8>> {
    let mut recorder = Recorder::new(1, BEGIN_MS, true);
    let (mut now, mut all) = (BEGIN_MS, Vec::new());
    for sample in samples {
        now += WINDOW_MS;
        recorder.push(
            vm("a"),
            Sample {
                end_ms: now,
                ..sample.clone()
            },
        );
        for (_, group) in recorder.close(now, now) {
            all.extend(group.iter().map(|block| block.to_vec()));
        }
    }
    all
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_changed_byte_is_noticed(
        samples in prop::collection::vec(sample(), 1..4),
        at in any::<prop::sample::Index>(),
        change in 1u8..=255,
    ) {
        for mut bytes in blocks(&samples) {
            let at = at.index(bytes.len());
            bytes[at] ^= change;
            // The reserved byte is part of the checksum as all others are.
            prop_assert!(Block::parse(&bytes).is_err(), "byte {at}");
        }
    }

    #[test]
    fn a_torn_block_is_noticed(
        samples in prop::collection::vec(sample(), 1..3),
        at in any::<prop::sample::Index>(),
    ) {
        for bytes in blocks(&samples) {
            prop_assert!(Block::parse(&bytes[..at.index(bytes.len())]).is_err());
        }
    }

    #[test]
    fn damage_behind_a_right_checksum_does_not_panic(
        samples in prop::collection::vec(sample(), 1..4),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..20),
    ) {
        for mut bytes in blocks(&samples) {
            for (at, value) in &changes {
                let body = bytes.len() - HEADER_BYTES;
                if body > 0 {
                    bytes[HEADER_BYTES + at.index(body)] = *value;
                }
            }
            fuzz::blocks(&bytes);
        }
    }

    #[test]
    fn bytes_of_any_kind_do_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        fuzz::blocks(&bytes);
        let mut headed = b"TGHB\x01\x00\x01\x00".to_vec();
        headed.extend(&bytes);
        if let Ok(header) = Header::read(&headed) {
            headed.resize(header.total_bytes().min(1 << 20), 0);
            if header.total_bytes() <= headed.len() {
                fuzz::blocks(&block::with_checksum(headed));
            }
        }
    }
}
