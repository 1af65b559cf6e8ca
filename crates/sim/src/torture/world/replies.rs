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

/// Replies in transit, by their places.
pub(super) struct Replies {
    replies: Vec<Option<Reply>>,
    /// Longest time in transit; zero if replies take no time.
    longest: Nanos,
    rng: TortureRng,
}

impl Replies {
    /// Creates an empty table for the run of a seed.
    pub(super) fn new(seed: u64, longest: Nanos) -> Replies {
        Replies {
            replies: Vec::new(),
            longest,
            rng: TortureRng::new(seed, 19),
        }
    }

    /// True if replies take time.
    pub(super) fn take_time(&self) -> bool {
        self.longest > Nanos::ZERO
    }

    /// Sends a reply. Returns its place and its time in transit.
    pub(super) fn send(&mut self, reply: Reply) -> (u32, Nanos) {
        let place = self.replies.iter().position(Option::is_none);
        let place = place.unwrap_or_else(|| {
            self.replies.push(None);
            self.replies.len() - 1
        });
        self.replies[place] = Some(reply);
        (place as u32, Nanos(self.rng.octaves(1, self.longest.0)))
    }

    /// Removes the reply of a place, unless it was given up.
    pub(super) fn arrive(&mut self, place: u32) -> Option<Reply> {
        self.replies[place as usize].take()
    }

    /// Places of the replies to a VM, or to all.
    pub(super) fn places(&self, of: Option<VmId>) -> Vec<u32> {
        let meant = |reply: &Reply| of.is_none_or(|vm| vm == reply.vm);
        let places = 0..self.replies.len() as u32;
        places
            .filter(|&place| self.replies[place as usize].as_ref().is_some_and(meant))
            .collect()
    }

    /// True if replies are in transit, whose memory will be returned.
    pub(super) fn are_out(&self) -> bool {
        self.replies.iter().any(Option::is_some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_arrives_once_in_the_place_that_it_was_given() {
        let mut replies = Replies::new(1, Nanos(100));
        let reply = |vm| Reply {
            vm: VmId::from_bits(vm),
            op: Op::Read,
            len: 512,
        };
        let sent = [7, 8, 7].map(|vm| replies.send(reply(vm)));
        assert_eq!(sent.map(|it| it.0), [0, 1, 2]);
        assert!(sent.iter().all(|it| (1..=100).contains(&it.1.0)));
        assert_eq!(replies.places(Some(VmId::from_bits(7))), [0, 2]);
        assert_eq!(replies.arrive(0), Some(reply(7)));
        assert_eq!(replies.arrive(0), None);
        assert_eq!(replies.send(reply(9)).0, 0, "its place is free again");
        assert_eq!(replies.places(None), [0, 1, 2]);
        for place in replies.places(None) {
            assert!(replies.arrive(place).is_some());
        }
        assert!(!replies.are_out() && replies.take_time());
    }
}
