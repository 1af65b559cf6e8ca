//! Seeds of random generators, one generator per component, so that the draws of one do not depend
//! on others or on their presence.
//!
//! Each worker, and each VM for its delays, has a generator that is seeded by the scenario's seed
//! and the VM's name.

use rand::SeedableRng;
use rand_pcg::Pcg64Mcg;
use tidegate_core::random::mix;

/// FNV-1a hash of a text, 64 bits.
pub fn fnv1a(text: &[u8]) -> u64 {
    // The offset basis of FNV-1a with 64 bits.
    fnv1a_from(0xcbf2_9ce4_8422_2325, text)
}

/// FNV-1a hash of a text whose beginning has the hash `hash`.
pub fn fnv1a_from(hash: u64, text: &[u8]) -> u64 {
    text.iter().fold(hash, |hash, &byte| {
        // The FNV prime with 64 bits.
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// Creates the generator of one part of one VM. A part is a number that the caller chooses; no two
/// components of a VM may share it.
pub(crate) fn generator(seed: u64, vm: &str, part: u64) -> Pcg64Mcg {
    // The increment of splitmix64, so that seed 0 is mixed too.
    let of_vm = mix(mix(seed.wrapping_add(0x9e37_79b9_7f4a_7c15)) ^ fnv1a(vm.as_bytes()));
    Pcg64Mcg::seed_from_u64(mix(of_vm ^ mix(part)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::Rng;
    use std::collections::BTreeSet;

    #[test]
    fn every_component_draws_something_else() {
        let mut first = BTreeSet::new();
        for seed in 0..10 {
            for vm in ["a", "b", "vm-1", "vm-2"] {
                for part in [0, 1, 2, 1 << 32, 1 << 32 | 1] {
                    assert!(first.insert(generator(seed, vm, part).next_u64()));
                }
            }
        }
    }

    #[test]
    fn the_hash_is_fnv_1a() {
        // Test vectors of the algorithm's authors.
        assert_eq!(fnv1a(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv1a(b"foobar"), 0x8594_4171_f739_67e8);
    }
}
