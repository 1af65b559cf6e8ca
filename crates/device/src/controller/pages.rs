//! Read cache of a controller: pages of the device in memory, replaced least recently used first.
//!
//! A page is pending while a fetch brings it, then valid. Only valid pages are replaced. The table
//! is a hash table with chains, and a list of the valid pages in the order of their last use, all
//! in arrays of fixed size.

/// Index that refers to no page.
const NONE: u32 = u32::MAX;

/// Value of [`Page::fetch`] for a valid page, which no fetch brings.
const VALID: u32 = u32::MAX;

/// Page of the cache.
#[derive(Clone, Copy, Debug)]
struct Page {
    /// Number of the page on the device: its address over the page size.
    number: u64,
    /// Fetch that brings the page; [`VALID`] if it is here.
    fetch: u32,
    /// Next page of the hash chain, or of the list of unused pages.
    chain: u32,
    /// Neighbours in the list of valid pages: used later, and used earlier.
    newer: u32,
    older: u32,
}

/// State of a page on the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum State {
    /// Neither in the cache nor on its way.
    Absent,
    /// On its way, brought by this fetch.
    Pending(u32),
    /// In the cache.
    Valid,
}

/// Read cache: which pages of the device are in memory.
#[derive(Debug)]
pub(super) struct PageCache {
    pages: Box<[Page]>,
    /// First page of each hash chain; a power of two of them.
    buckets: Box<[u32]>,
    /// Right shift of a 64-bit hash that leaves a bucket's index.
    shift: u32,
    /// First page of the list of unused pages.
    unused: u32,
    /// Valid pages used last and used longest ago.
    newest: u32,
    oldest: u32,
}

impl PageCache {
    /// Creates an empty cache of `count` pages.
    pub(super) fn new(count: u32) -> PageCache {
        let page = |index: u32| Page {
            number: 0,
            fetch: VALID,
            chain: if index + 1 < count { index + 1 } else { NONE },
            newer: NONE,
            older: NONE,
        };
        let bits = count.next_power_of_two().ilog2().max(1);
        PageCache {
            pages: (0..count).map(page).collect(),
            buckets: vec![NONE; 1 << bits].into(),
            shift: 64 - bits,
            unused: 0,
            newest: NONE,
            oldest: NONE,
        }
    }

    fn bucket(&self, number: u64) -> usize {
        // Fibonacci hashing: 2^64 over the golden ratio spreads neighbours over the table.
        (number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> self.shift) as usize
    }

    fn find(&self, number: u64) -> Option<u32> {
        let mut index = self.buckets[self.bucket(number)];
        while index != NONE {
            let page = &self.pages[index as usize];
            if page.number == number {
                return Some(index);
            }
            index = page.chain;
        }
        None
    }

    /// Returns the state of a page of the device.
    pub(super) fn state(&self, number: u64) -> State {
        match self.find(number).map(|index| self.pages[index as usize]) {
            None => State::Absent,
            Some(page) if page.fetch == VALID => State::Valid,
            Some(page) => State::Pending(page.fetch),
        }
    }

    /// Takes a valid page out of the list of valid pages.
    fn unlink(&mut self, index: u32) {
        let Page { newer, older, .. } = self.pages[index as usize];
        if newer == NONE {
            self.newest = older;
        } else {
            self.pages[newer as usize].older = older;
        }
        if older == NONE {
            self.oldest = newer;
        } else {
            self.pages[older as usize].newer = newer;
        }
    }

    fn link_newest(&mut self, index: u32) {
        let older = core::mem::replace(&mut self.newest, index);
        let page = &mut self.pages[index as usize];
        (page.newer, page.older) = (NONE, older);
        if older == NONE {
            self.oldest = index;
        } else {
            self.pages[older as usize].newer = index;
        }
    }

    fn link_oldest(&mut self, index: u32) {
        let newer = core::mem::replace(&mut self.oldest, index);
        let page = &mut self.pages[index as usize];
        (page.newer, page.older) = (newer, NONE);
        if newer == NONE {
            self.newest = index;
        } else {
            self.pages[newer as usize].older = index;
        }
    }

    /// Takes a page out of its hash chain and leaves it to the unused ones.
    fn release(&mut self, index: u32) {
        let (bucket, chain) = (
            self.bucket(self.pages[index as usize].number),
            self.pages[index as usize].chain,
        );
        if self.buckets[bucket] == index {
            self.buckets[bucket] = chain;
        } else {
            let mut before = self.buckets[bucket];
            while self.pages[before as usize].chain != index {
                before = self.pages[before as usize].chain;
            }
            self.pages[before as usize].chain = chain;
        }
        self.pages[index as usize].chain = self.unused;
        self.unused = index;
    }

    /// Gives an absent page a place, to be brought by `fetch`. Without an unused place, the page
    /// used longest ago is replaced. Returns `false` if all pages are pending.
    pub(super) fn reserve(&mut self, number: u64, fetch: u32) -> bool {
        if self.unused == NONE {
            if self.oldest == NONE {
                return false;
            }
            let oldest = self.oldest;
            self.unlink(oldest);
            self.release(oldest);
        }
        let (index, bucket) = (self.unused, self.bucket(number));
        let page = &mut self.pages[index as usize];
        self.unused = page.chain;
        (page.number, page.fetch, page.chain) = (number, fetch, self.buckets[bucket]);
        self.buckets[bucket] = index;
        true
    }

    /// Makes a page valid if `fetch` was to bring it.
    pub(super) fn arrive(&mut self, number: u64, fetch: u32) {
        if let Some(index) = self.find(number)
            && self.pages[index as usize].fetch == fetch
        {
            self.pages[index as usize].fetch = VALID;
            self.link_newest(index);
        }
    }

    fn find_valid(&self, number: u64) -> Option<u32> {
        self.find(number)
            .filter(|index| self.pages[*index as usize].fetch == VALID)
    }

    /// Makes a valid page the last to be replaced.
    pub(super) fn touch(&mut self, number: u64) {
        if let Some(index) = self.find_valid(number) {
            self.unlink(index);
            self.link_newest(index);
        }
    }

    /// Makes a valid page the next to be replaced: a stream has passed it.
    pub(super) fn demote(&mut self, number: u64) {
        if let Some(index) = self.find_valid(number) {
            self.unlink(index);
            self.link_oldest(index);
        }
    }

    /// Number of pages.
    pub(super) fn count(&self) -> u64 {
        self.pages.len() as u64
    }

    /// Drops all valid pages `first..=last`, in time proportional to the cache.
    pub(super) fn drop_between(&mut self, first: u64, last: u64) {
        let mut index = self.newest;
        while index != NONE {
            let page = self.pages[index as usize];
            if (first..=last).contains(&page.number) {
                self.unlink(index);
                self.release(index);
            }
            index = page.older;
        }
    }

    /// Drops a valid page; one on its way stays.
    pub(super) fn drop_page(&mut self, number: u64) {
        if let Some(index) = self.find_valid(number) {
            self.unlink(index);
            self.release(index);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_page_used_longest_ago_is_replaced_and_pending_ones_stay() {
        let mut cache = PageCache::new(3);
        for number in [10, 20, 30] {
            assert!(cache.reserve(number, number as u32));
        }
        assert!(!cache.reserve(40, 4), "all pages are pending");
        cache.arrive(10, 10);
        cache.arrive(20, 20);
        cache.arrive(30, 9);
        assert_eq!(
            cache.state(30),
            State::Pending(30),
            "another fetch brings it"
        );
        cache.touch(10);
        assert!(cache.reserve(40, 4));
        assert_eq!(cache.state(20), State::Absent);
        assert_eq!(cache.state(10), State::Valid);
        assert_eq!(cache.state(40), State::Pending(4));
        cache.arrive(40, 4);
        cache.demote(40);
        assert!(cache.reserve(50, 5));
        assert_eq!(cache.state(40), State::Absent, "a stream has passed it");
    }

    proptest! {
        /// Against a list of page numbers in the order of their last use.
        #[test]
        fn the_table_holds_what_a_list_holds(
            steps in proptest::collection::vec((0..5_u8, 0..12_u64), 1..200)
        ) {
            let (mut cache, count) = (PageCache::new(6), 6);
            let (mut valid, mut pending): (Vec<u64>, Vec<u64>) = (Vec::new(), Vec::new());
            for (what, number) in steps {
                let place = valid.iter().position(|known| *known == number);
                match what {
                    0 | 1 if place.is_none() && !pending.contains(&number) => {
                        let full = valid.len() + pending.len() == count;
                        let fits = cache.reserve(number, 7);
                        prop_assert_eq!(fits, !(full && valid.is_empty()));
                        if fits {
                            if full {
                                valid.remove(0);
                            }
                            pending.push(number);
                        }
                    }
                    2 => {
                        cache.arrive(number, 7);
                        if let Some(place) = pending.iter().position(|known| *known == number) {
                            pending.remove(place);
                            valid.push(number);
                        }
                    }
                    3 => {
                        cache.touch(number);
                        if let Some(place) = place {
                            let number = valid.remove(place);
                            valid.push(number);
                        }
                    }
                    4 if number % 2 == 0 => {
                        cache.demote(number);
                        if let Some(place) = place {
                            let number = valid.remove(place);
                            valid.insert(0, number);
                        }
                    }
                    4 => {
                        cache.drop_page(number);
                        if let Some(place) = place {
                            valid.remove(place);
                        }
                    }
                    _ => {}
                }
                for number in 0..12 {
                    let expected = if valid.contains(&number) {
                        State::Valid
                    } else if pending.contains(&number) {
                        State::Pending(7)
                    } else {
                        State::Absent
                    };
                    prop_assert_eq!(cache.state(number), expected);
                }
            }
        }
    }
}
