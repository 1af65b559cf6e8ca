//! Replies in transit to their clients, which hold payload memory until they arrive.

use crate::torture::TortureRng;
use tidegate_core::request::{Op, VmId};
use tidegate_core::time::Nanos;

/// Reply in transit to its client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Reply {
    pub(super) vm: VmId,
    pub(super) op: Op,
    pub(super) len: u32,
}

/// Stream of the seed's random numbers that delays replies; each generator of a run has its own.
const REPLY_STREAM: u64 = 19;

/// Replies in transit, by slot.
pub(super) struct Replies {
    replies: Vec<Option<Reply>>,
    /// Maximum time in transit; zero if replies take no time.
    max_delay: Nanos,
    rng: TortureRng,
}

impl Replies {
    /// Creates an empty table for the run of a seed.
    pub(super) fn new(seed: u64, max_delay: Nanos) -> Replies {
        Replies {
            replies: Vec::new(),
            max_delay,
            rng: TortureRng::new(seed, REPLY_STREAM),
        }
    }

    /// True if replies take time.
    pub(super) fn are_delayed(&self) -> bool {
        self.max_delay > Nanos::ZERO
    }

    /// Sends a reply. Returns its slot and its time in transit, which is log-uniform up to the
    /// maximum.
    pub(super) fn send(&mut self, reply: Reply) -> (u32, Nanos) {
        let slot = self.replies.iter().position(Option::is_none);
        let slot = slot.unwrap_or_else(|| {
            self.replies.push(None);
            self.replies.len() - 1
        });
        self.replies[slot] = Some(reply);
        (slot as u32, Nanos(self.rng.octaves(1, self.max_delay.0)))
    }

    /// Removes the reply of a slot; `None` if it was dropped.
    pub(super) fn arrive(&mut self, slot: u32) -> Option<Reply> {
        self.replies[slot as usize].take()
    }

    /// Slots of the replies to a VM, or to all.
    pub(super) fn slots(&self, of: Option<VmId>) -> Vec<u32> {
        let is_to_vm = |reply: &Reply| of.is_none_or(|vm| vm == reply.vm);
        let slots = 0..self.replies.len() as u32;
        slots
            .filter(|&slot| self.replies[slot as usize].as_ref().is_some_and(is_to_vm))
            .collect()
    }

    /// True if any reply is in transit, so that memory will be returned.
    pub(super) fn any_in_transit(&self) -> bool {
        self.replies.iter().any(Option::is_some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_arrives_once_and_frees_its_slot() {
        let mut replies = Replies::new(1, Nanos(100));
        let reply = |vm| Reply {
            vm: VmId::from_bits(vm),
            op: Op::Read,
            len: 512,
        };
        let sent = [7, 8, 7].map(|vm| replies.send(reply(vm)));
        assert_eq!(sent.map(|it| it.0), [0, 1, 2]);
        assert!(sent.iter().all(|it| (1..=100).contains(&it.1.0)));
        assert_eq!(replies.slots(Some(VmId::from_bits(7))), [0, 2]);
        assert_eq!(replies.arrive(0), Some(reply(7)));
        assert_eq!(replies.arrive(0), None);
        assert_eq!(replies.send(reply(9)).0, 0, "its slot is free again");
        assert_eq!(replies.slots(None), [0, 1, 2]);
        for slot in replies.slots(None) {
            assert!(replies.arrive(slot).is_some());
        }
        assert!(!replies.any_in_transit() && replies.are_delayed());
    }
}
