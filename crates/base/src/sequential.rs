//! Detection of sequential I/O: the end addresses of a stream's last requests.

use crate::request::{DeviceIo, VmId};
use crate::slab::NIL;

/// Number of requests that a stream remembers, and therefore the number of files that a guest may
/// read in turn while each of them still counts as sequential. 32, because the fingerprints of that
/// many (2 bytes each) fill one cache line.
pub const REMEMBERED_ENDS: usize = 32;

/// Filler of unused entries: no request begins at the end of the address space.
const NO_END: u64 = u64::MAX;

/// End addresses, in bytes, of the last [`REMEMBERED_ENDS`] requests of a stream.
///
/// The owner counts the stream's requests and passes the count to [`Ends::push`] and
/// [`Ends::reset`].
/// Most requests continue none of the entries, which is known only after comparing all of them.
/// Each entry therefore has a fingerprint of 16 bits, and all fingerprints share one cache line.
/// The addresses are read only if a fingerprint is equal, so the answer is exact.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub struct Ends {
    fingerprints: [u16; REMEMBERED_ENDS],
    ends: [u64; REMEMBERED_ENDS],
}

// 64 bytes of fingerprints and 32 x 8 bytes of addresses: no padding.
const _: () = assert!(size_of::<Ends>() == 64 + 32 * 8);

impl Ends {
    /// Stream without requests.
    pub const NONE: Ends = Ends {
        fingerprints: [0; REMEMBERED_ENDS],
        ends: [NO_END; REMEMBERED_ENDS],
    };

    #[inline]
    fn fingerprint(addr: u64) -> u16 {
        // Multiplicative hash by 2^64 over the golden ratio; its upper bits depend on all of the
        // address.
        (addr.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 48) as u16
    }

    /// Returns true if a request that begins at `begin` starts at one of the remembered ends.
    #[inline]
    pub fn continues(&self, begin: u64) -> bool {
        let fingerprint = Ends::fingerprint(begin);
        // No early exit: the comparisons become a few vector instructions.
        let maybe = self
            .fingerprints
            .iter()
            .fold(false, |m, &p| m | (p == fingerprint));
        maybe && self.ends.contains(&begin)
    }

    /// Records the end of the stream's next request in place of the oldest; `count` is the number
    /// of requests before it.
    #[inline]
    pub fn push(&mut self, count: u64, end: u64) {
        // The entries are a ring, whose place follows from the count.
        let oldest = (count % REMEMBERED_ENDS as u64) as usize;
        self.fingerprints[oldest] = Ends::fingerprint(end);
        self.ends[oldest] = end;
    }

    /// Forgets the stream, which has had `count` requests so far.
    #[inline]
    pub fn reset(&mut self, count: u64) {
        let used = count.min(REMEMBERED_ENDS as u64) as usize;
        // Fingerprints may stay: a match only leads to the addresses, none of which is equal then.
        self.ends[..used].fill(NO_END);
    }
}

/// Run of consecutive device I/Os of one VM, with the end addresses of the last of them.
///
/// An I/O of another VM ends the run, because a disk's head has then moved elsewhere.
#[derive(Clone, Debug)]
pub struct Run {
    ends: Ends,
    /// Number of I/Os in the run.
    ios: u64,
    /// Slot of the VM that issued the run; [`NIL`] if there is none.
    owner: u32,
}

impl Run {
    /// Run of a device that has done nothing.
    pub const NONE: Run = Run {
        ends: Ends::NONE,
        ios: 0,
        owner: NIL,
    };

    /// Records an I/O that moves data and was handed to the device.
    ///
    /// Returns whether it is sequential: whether it begins where one of the last
    /// [`REMEMBERED_ENDS`] I/Os of the run ended.
    #[inline]
    pub fn started(&mut self, io: &DeviceIo) -> bool {
        if self.owner != io.vm.index {
            self.ends.reset(self.ios);
            (self.ios, self.owner) = (0, io.vm.index);
        }
        let sequential = self.ends.continues(io.addr);
        self.ends.push(self.ios, io.addr + u64::from(io.len));
        self.ios += 1;
        sequential
    }

    /// Ends the run of a VM that is removed, so that the next VM in its slot does not continue it.
    pub fn end_run_of(&mut self, vm: VmId) {
        if self.owner == vm.index {
            self.owner = NIL;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::SplitMix64;
    use std::collections::VecDeque;

    #[test]
    fn fingerprints_give_the_same_answer_as_a_full_search() {
        for seed in 0..50 {
            let mut random = SplitMix64::new(seed);
            let (mut fast, mut slow, mut count) = (Ends::NONE, VecDeque::new(), 0);
            // Few places, so that most are met; in one run they share their fingerprint.
            let places: Vec<u64> = match seed {
                0 => (0..u64::MAX)
                    .map(|n| n * 512)
                    .filter(|&addr| Ends::fingerprint(addr) == Ends::fingerprint(4096))
                    .take(60)
                    .collect(),
                _ => (0..60).map(|n| n * 4096).collect(),
            };
            let mut place = || places[random.below(60) as usize];
            for step in 0..2000 {
                let begin = place();
                assert_eq!(fast.continues(begin), slow.contains(&begin));
                let end = place();
                fast.push(count, end);
                count += 1;
                slow.push_back(end);
                if slow.len() > REMEMBERED_ENDS {
                    slow.pop_front();
                }
                if step % 97 == 0 {
                    fast.reset(count);
                    (slow, count) = (VecDeque::new(), 0);
                }
            }
        }
    }

    #[test]
    fn no_request_continues_an_empty_stream() {
        for addr in [0, 512, 1 << 40, u64::MAX - 1] {
            assert!(!Ends::NONE.continues(addr));
        }
    }
}
