//! Where the last requests of a stream ended: what makes the next one sequential.

use crate::request::{DeviceIo, VmId};
use crate::slab::NIL;

/// How many requests back a stream is remembered: a guest that reads as many files at once is
/// sequential in each of them.
pub const REACH: usize = 32;

/// No request begins here: the end of the address space.
const NOWHERE: u64 = u64::MAX;

/// The ends of the last [`REACH`] requests of a stream; its owner counts them.
///
/// Most requests continue none of them, and to know that all have to be looked at: so each has a
/// fingerprint of 16 bits, and those of all lie in one cache line. Only where one is met are the
/// ends themselves read, so the answer is exact.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub struct Ends {
    prints: [u16; REACH],
    ends: [u64; REACH],
}

const _: () = assert!(size_of::<Ends>() == 320);

impl Ends {
    /// Of a stream that has not begun.
    pub const NONE: Ends = Ends {
        prints: [0; REACH],
        ends: [NOWHERE; REACH],
    };

    #[inline]
    fn print(addr: u64) -> u16 {
        (addr.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 48) as u16
    }

    /// Whether a request that begins here begins where one of the last ended.
    #[inline]
    pub fn meet(&self, begin: u64) -> bool {
        let print = Ends::print(begin);
        // No early exit: the comparisons become a few vector instructions.
        let near = self.prints.iter().fold(false, |m, &p| m | (p == print));
        near && self.ends.contains(&begin)
    }

    /// A request of the stream ends here, before which there were `count`. It takes the place of
    /// the oldest.
    #[inline]
    pub fn push(&mut self, count: u64, end: u64) {
        let oldest = (count % REACH as u64) as usize;
        self.prints[oldest] = Ends::print(end);
        self.ends[oldest] = end;
    }

    /// The stream of `count` requests is over.
    #[inline]
    pub fn forget(&mut self, count: u64) {
        let known = count.min(REACH as u64) as usize;
        self.ends[..known].fill(NOWHERE);
    }
}

/// The ends of the I/Os that the device did last without doing something for another VM between
/// them.
#[derive(Clone, Debug)]
pub struct Run {
    ends: Ends,
    len: u64,
    /// Whose they are.
    of: u32,
}

impl Run {
    /// Of a device that has done nothing.
    pub const NONE: Run = Run {
        ends: Ends::NONE,
        len: 0,
        of: NIL,
    };

    /// An I/O that moves data went to the device. Returns whether it is sequential to it: it begins
    /// where one of the last [`REACH`] of the run ended.
    pub fn started(&mut self, io: &DeviceIo) -> bool {
        if self.of != io.vm.index {
            self.ends.forget(self.len);
            (self.len, self.of) = (0, io.vm.index);
        }
        let sequential = self.ends.meet(io.addr);
        self.ends.push(self.len, io.addr + u64::from(io.len));
        self.len += 1;
        sequential
    }

    /// A VM's slot is another one's now: what it does next is no part of the run.
    pub fn forget(&mut self, vm: VmId) {
        if self.of == vm.index {
            self.of = NIL;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::SplitMix64;
    use std::collections::VecDeque;

    #[test]
    fn it_is_as_looking_through_all_of_them() {
        for seed in 0..50 {
            let mut random = SplitMix64::new(seed);
            let (mut fast, mut slow, mut count) = (Ends::NONE, VecDeque::new(), 0);
            // Few places, so that most are met; in one run they share their fingerprint.
            let places: Vec<u64> = match seed {
                0 => (0..u64::MAX)
                    .map(|n| n * 512)
                    .filter(|&addr| Ends::print(addr) == Ends::print(4096))
                    .take(60)
                    .collect(),
                _ => (0..60).map(|n| n * 4096).collect(),
            };
            let mut place = || places[random.below(60) as usize];
            for step in 0..2000 {
                let begin = place();
                assert_eq!(fast.meet(begin), slow.contains(&begin));
                let end = place();
                fast.push(count, end);
                count += 1;
                slow.push_back(end);
                if slow.len() > REACH {
                    slow.pop_front();
                }
                if step % 97 == 0 {
                    fast.forget(count);
                    (slow, count) = (VecDeque::new(), 0);
                }
            }
        }
    }

    #[test]
    fn a_stream_that_has_not_begun_is_met_nowhere() {
        for addr in [0, 512, 1 << 40, u64::MAX - 1] {
            assert!(!Ends::NONE.meet(addr));
        }
    }
}
