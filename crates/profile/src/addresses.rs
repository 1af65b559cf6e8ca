//! Addresses and directions of the I/Os of a measurement.

use tidegate_core::profile::{Access, Direction};
use tidegate_core::random::{SplitMix64, mix};

/// 2^64 divided by the golden ratio. Its multiples modulo 2^64 are spread evenly, however many
/// there are (Weyl's sequence), so that any few places represent the whole disk.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// Generator of addresses, a function of its seed.
#[derive(Clone, Debug)]
pub(crate) struct Addresses {
    access: Access,
    size: u32,
    /// Number of requests that fit the span.
    slots: u64,
    random: SplitMix64,
    /// Next slot of a sequential stream.
    next: u64,
    /// Place of the present stream as a fraction of 2^64; each new place adds [`GOLDEN`].
    place: u64,
}

impl Addresses {
    /// Creates a generator for requests of `size` bytes within `span` bytes, which must fit at
    /// least one.
    pub(crate) fn new(access: Access, size: u32, span: u64, seed: u64) -> Addresses {
        let slots = span / u64::from(size);
        assert!(
            slots > 0,
            "a span of {span} bytes has no room for a request of {size} bytes"
        );
        let mut addresses = Addresses {
            access,
            size,
            slots,
            random: SplitMix64::new(seed),
            next: 0,
            place: mix(seed),
        };
        addresses.move_to_next_place();
        addresses
    }

    /// Moves a sequential stream to another place of the span.
    pub(crate) fn move_to_next_place(&mut self) {
        self.place = self.place.wrapping_add(GOLDEN);
        // A fraction of 2^64 becomes a slot by multiplication and shift.
        self.next = ((u128::from(self.place) * u128::from(self.slots)) >> 64) as u64;
    }

    /// Returns the next address in bytes.
    pub(crate) fn next(&mut self) -> u64 {
        let slot = match self.access {
            Access::Random => self.random.below(self.slots),
            Access::Sequential => {
                let slot = self.next;
                self.next = (slot + 1) % self.slots;
                slot
            }
        };
        slot * u64::from(self.size)
    }
}

/// Requests of a [`Deck`].
#[derive(Clone, Copy, Debug)]
struct Cards {
    reads: u64,
    /// Reads and writes.
    all: u64,
}

/// Generator of reads and writes in a fixed ratio, shuffled within each deck. A run then has the
/// exact share of reads; independent draws would add their variance to the measurement.
#[derive(Clone, Debug)]
pub(crate) struct Deck {
    random: SplitMix64,
    /// Requests of a new deck.
    whole: Cards,
    /// Requests that are left of the present deck.
    left: Cards,
}

impl Deck {
    /// Creates decks with `thousandths` reads in a thousand requests.
    pub(crate) fn new(thousandths: u32, seed: u64) -> Deck {
        let twentieth = 1000 / 20;
        // Decks of 20 if the share allows it, so that even short runs have the ratio.
        let whole = match u64::from(thousandths.min(1000)) {
            reads if reads.is_multiple_of(twentieth) => Cards {
                reads: reads / twentieth,
                all: 20,
            },
            reads => Cards { reads, all: 1000 },
        };
        Deck {
            random: SplitMix64::new(mix(seed)),
            whole,
            left: whole,
        }
    }

    /// Draws the direction of the next request.
    pub(crate) fn draw(&mut self) -> Direction {
        let Cards { reads, all } = self.left;
        let is_read = self.random.below(all) < reads;
        self.left = match all {
            1 => self.whole,
            _ => Cards {
                reads: reads - u64::from(is_read),
                all: all - 1,
            },
        };
        if is_read {
            Direction::Read
        } else {
            Direction::Write
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_wrap_and_places_are_spread() {
        let mut stream = Addresses::new(Access::Sequential, 4096, 4096 * 10 + 4095, 7);
        let first = stream.next();
        for i in 1..30 {
            assert_eq!(stream.next(), (first + 4096 * i) % 40960);
        }
        let mut far = Addresses::new(Access::Sequential, 4096, 1 << 40, 7);
        let mut eighths = [0; 8];
        for _ in 0..64 {
            far.move_to_next_place();
            eighths[(far.next() >> 37) as usize] += 1;
        }
        assert!(eighths.iter().all(|n| (7..=9).contains(n)), "{eighths:?}");
    }

    #[test]
    fn decks_have_the_exact_share_of_reads() {
        for (thousandths, all) in [(250, 20), (705, 1000), (999, 1000), (1, 1000), (950, 20)] {
            let mut deck = Deck::new(thousandths, 3);
            let mut orders = std::collections::BTreeSet::new();
            for _ in 0..10 {
                let is_read = |_| deck.draw() == Direction::Read;
                let order: Vec<bool> = (0..all).map(is_read).collect();
                let reads = order.iter().filter(|is_read| **is_read).count();
                assert_eq!(reads * 1000, thousandths as usize * all);
                orders.insert(order);
            }
            assert!(orders.len() > 5, "shuffled anew each time");
        }
    }

    #[test]
    fn random_addresses_stay_inside_and_follow_the_seed() {
        let draw = |seed| {
            let mut addresses = Addresses::new(Access::Random, 8192, 8192 * 100, seed);
            (0..1000).map(|_| addresses.next()).collect::<Vec<_>>()
        };
        assert!(draw(1).iter().all(|at| at % 8192 == 0 && *at < 819_200));
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
    }
}
