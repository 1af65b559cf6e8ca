//! Minimum of many keys, as a tournament: each match is between two neighbours, and a changed key
//! replays only the matches above it.
//!
//! ```text
//! best                   (2, 5)
//! matches       (2, 5)             (7, 13)
//! groups    (3, 1)     (2, 5)     (7, 13)    -
//! keys    9 3 . 4    8 2 . .    . 7 9 .    . . . .    (in truth eight a group)
//! ```
//!
//! A heap moves keys about, so which line comes next is known only after a comparison that is as
//! good as random: a cache miss and a mispredicted branch a level. Here the way up depends on
//! the id alone, so all lines are fetched at once, and a match is a conditional move. It needs
//! no table of positions either: 12 to 16 bytes an id. What it does not have is a heap's cheap
//! life while nearly empty: [`IndexedHeap`](tidegate_base::heap::IndexedHeap) is for that.
//!
//! Matches of four entrants have half as many levels and fewer instructions, and take longer
//! (mclock at 1,000 VMs: 160 instead of 145 ns a request): what is read next depends on who won.

/// Number of keys in a group: a cache line, which is searched as a whole.
const GROUP: usize = 8;

/// Marks an absent key; loses against every other key.
const ABSENT: u64 = u64::MAX - 1;

/// Set of `(key, id)` with its minimum; equal keys are ordered by id. Keys of
/// [`Tournament::LARGEST`] and above count as that. Never allocates after
/// [`Tournament::with_capacity`].
#[derive(Clone, Debug)]
pub struct Tournament {
    groups: Vec<Group>,
    /// Winners of all groups, then those of the matches between two of them, and so on: the match
    /// after `n` is `groups + n / 2`.
    winners: Vec<Winner>,
    /// Winner of all matches: the minimum.
    best: Winner,
    /// Index of the overall winner, and its number of matches. Both grow only as far as ids that
    /// were ever used need.
    top: usize,
    height: u32,
}

#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Group([u64; GROUP]);

/// Winner of a group or of a match.
#[derive(Clone, Copy, Debug)]
struct Winner {
    key: u64,
    id: u32,
    /// Number of keys in the group; without meaning for the winner of a match.
    present: u32,
}

const NO_WINNER: Winner = Winner {
    key: ABSENT,
    id: 0,
    present: 0,
};

impl Tournament {
    /// Largest key; larger ones are clamped to it and ordered by id alone.
    pub const LARGEST: u64 = ABSENT - 1;

    /// Creates an empty set of the ids `0..ids`.
    pub fn with_capacity(ids: usize) -> Tournament {
        let groups = ids.div_ceil(GROUP).next_power_of_two();
        Tournament {
            groups: vec![Group([ABSENT; GROUP]); groups],
            winners: vec![NO_WINNER; 2 * groups],
            best: NO_WINNER,
            top: 0,
            height: 0,
        }
    }

    /// Returns the memory of a set of `ids` ids, in bytes.
    pub fn bytes(ids: usize) -> usize {
        let groups = ids.div_ceil(GROUP).next_power_of_two();
        groups * (size_of::<Group>() + 2 * size_of::<Winner>())
    }

    /// Returns the smallest key and its id.
    #[inline]
    pub fn peek(&self) -> Option<(u64, usize)> {
        (self.best.key != ABSENT).then_some((self.best.key, self.best.id as usize))
    }

    /// Returns `true` if the smallest key is at most `key`.
    #[inline]
    pub fn reaches(&self, key: u64) -> bool {
        self.best.key <= key.min(Self::LARGEST)
    }

    /// Returns `true` if `id` is in the set.
    #[inline]
    pub fn contains(&self, id: usize) -> bool {
        self.groups[id / GROUP].0[id % GROUP] != ABSENT
    }

    /// Inserts `id` with `key`, or changes its key. Panics beyond the capacity.
    #[inline]
    pub fn set(&mut self, id: usize, key: u64) {
        let key = key.min(Self::LARGEST);
        match self.groups[id / GROUP].0[id % GROUP] {
            ABSENT => self.enter(id, key),
            held if held != key => self.replay(id, key),
            _ => {}
        }
    }

    /// Inserts `id`, which must not be in the set. Panics beyond the capacity.
    #[inline]
    pub fn insert(&mut self, id: usize, key: u64) {
        debug_assert!(!self.contains(id), "an id that is in the set is inserted");
        self.enter(id, key.min(Self::LARGEST));
    }

    /// Removes `id`, which must be in the set.
    #[inline]
    pub fn take_out(&mut self, id: usize) {
        debug_assert!(
            self.contains(id),
            "an id that is not in the set is taken out"
        );
        self.leave(id);
    }

    /// Removes `id`; does nothing if it is not in the set.
    #[inline]
    pub fn remove(&mut self, id: usize) {
        if self.contains(id) {
            self.leave(id);
        }
    }

    /// Subtracts `by` from every key. None may be less, so their order stays.
    pub fn lower(&mut self, by: u64) {
        let keys = self.groups.iter_mut().flat_map(|group| &mut group.0);
        let won = self.winners.iter_mut().chain([&mut self.best]);
        let won = won.map(|winner| &mut winner.key);
        for key in keys.chain(won).filter(|key| **key != ABSENT) {
            debug_assert!(*key >= by, "a key below zero");
            *key -= by;
        }
    }

    /// Removes all ids.
    pub fn clear(&mut self) {
        self.groups.fill(Group([ABSENT; GROUP]));
        self.winners.fill(NO_WINNER);
        self.best = NO_WINNER;
    }

    /// Inserts `id`, which must not be in the set.
    #[inline(never)]
    fn enter(&mut self, id: usize, key: u64) {
        let at = id / GROUP;
        self.groups[at].0[id % GROUP] = key;
        let winner = &mut self.winners[at];
        winner.present += 1;
        // In an empty group the last id that left is still the winner, with a key that loses.
        if key < winner.key || (key == winner.key && id < winner.id as usize) {
            (winner.key, winner.id) = (key, id as u32);
            self.update_winner(at, key, id as u32);
        }
    }

    /// Removes `id`, which must be in the set.
    #[inline(never)]
    fn leave(&mut self, id: usize) {
        let at = id / GROUP;
        let group = &mut self.groups[at];
        group.0[id % GROUP] = ABSENT;
        let winner = &mut self.winners[at];
        winner.present -= 1;
        if winner.id as usize != id {
            return;
        }
        (winner.key, winner.id) = match winner.present {
            0 => (ABSENT, winner.id),
            _ => group.winner(at * GROUP),
        };
        let (key, id) = (winner.key, winner.id);
        self.update_winner(at, key, id);
    }

    /// Changes the key of `id`, which is in the set, and replays the matches that depend on it.
    #[inline(never)]
    fn replay(&mut self, id: usize, key: u64) {
        let at = id / GROUP;
        let group = &mut self.groups[at];
        group.0[id % GROUP] = key;
        let winner = &mut self.winners[at];
        let won = winner.id as usize == id;
        let beats = key < winner.key || (key == winner.key && id < winner.id as usize);
        if beats || (won && winner.present == 1) {
            // No search needed: the key beats the winner, or no other key is left.
            (winner.key, winner.id) = (key, id as u32);
        } else if won {
            (winner.key, winner.id) = group.winner(at * GROUP);
        } else {
            return;
        }
        let (key, id) = (winner.key, winner.id);
        self.update_winner(at, key, id);
    }

    /// Takes in a change of the winner of group `at`, or of its key.
    #[inline(always)]
    fn update_winner(&mut self, at: usize, key: u64, id: u32) {
        if at == self.top {
            (self.best.key, self.best.id) = (key, id);
        } else {
            self.replay_above(at, key, id);
        }
    }

    /// Replays the matches above a group whose winner has changed.
    #[inline(never)]
    fn replay_above(&mut self, of: usize, mut key: u64, mut id: u32) {
        self.include_group(of);
        let mut at = of;
        while at != self.top {
            let other = self.winners[at ^ 1];
            // The left entrant has the smaller ids, so it wins a draw.
            let lost = other.key < key + (at & 1) as u64;
            key = if lost { other.key } else { key };
            id = if lost { other.id } else { id };
            at = self.groups.len() + at / 2;
            let winner = &mut self.winners[at];
            // Nothing changes further up, as those matches depend on this winner alone.
            if (winner.key, winner.id) == (key, id) {
                return;
            }
            (winner.key, winner.id) = (key, id);
        }
        (self.best.key, self.best.id) = (key, id);
    }

    /// Extends the tournament so that the winner of group `of` takes part; before, only the first
    /// groups did.
    fn include_group(&mut self, of: usize) {
        while of >> self.height > 0 {
            let next = self.groups.len() + self.top / 2;
            self.winners[next] = self.best;
            self.top = next;
            self.height += 1;
        }
    }
}

impl Group {
    /// Returns the smallest key of the group and its id; of equal keys the first. `first` is the id
    /// of the group's first key. All comparisons are made: that costs less than predicting which
    /// one to omit.
    fn winner(&self, first: usize) -> (u64, u32) {
        let mut best = (self.0[0], 0);
        for at in 1..GROUP {
            let less = self.0[at] < best.0;
            best.0 = if less { self.0[at] } else { best.0 };
            best.1 = if less { at } else { best.1 };
        }
        (best.0, (first + best.1) as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn behaves_like_a_sorted_set(
            capacity in prop::sample::select(vec![1usize, 7, 8, 9, 40, 300]),
            ops in prop::collection::vec((0usize..300, 0u64..50, 0u8..4), 1..300),
        ) {
            let mut tournament = Tournament::with_capacity(capacity);
            let mut oracle: BTreeSet<(u64, usize)> = BTreeSet::new();
            for (id, key, what) in ops {
                let id = id % capacity;
                // The largest keys, too.
                let key = if key < 45 { key } else { Tournament::LARGEST - (49 - key) };
                let was_in = oracle.iter().any(|&(_, i)| i == id);
                oracle.retain(|&(_, i)| i != id);
                match (what, was_in) {
                    (1, false) => tournament.insert(id, key),
                    (0..3, _) => tournament.set(id, key),
                    (_, true) if key < 25 => tournament.take_out(id),
                    _ => tournament.remove(id),
                }
                if what < 3 {
                    oracle.insert((key, id));
                }
                prop_assert_eq!(tournament.peek(), oracle.first().copied());
                prop_assert_eq!(tournament.contains(id), what < 3);
            }
            while let Some((key, id)) = tournament.peek() {
                prop_assert_eq!(oracle.pop_first(), Some((key, id)));
                tournament.remove(id);
            }
            prop_assert!(oracle.is_empty());
        }
    }

    #[test]
    fn a_key_beyond_the_largest_is_in_all_the_same() {
        let mut tournament = Tournament::with_capacity(2);
        tournament.set(1, u64::MAX);
        assert_eq!(tournament.peek(), Some((Tournament::LARGEST, 1)));
        tournament.clear();
        assert_eq!(tournament.peek(), None);
    }
}
