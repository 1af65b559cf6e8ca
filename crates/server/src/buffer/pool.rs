//! Buffers in size classes, whose idle memory is given back to the kernel.
//!
//! Each class has addresses enough for the whole bound, so no mixture of sizes can fragment it;
//! what is bounded is what may be committed: buffers in use and *warm* ones (free, but with
//! pages behind them) together. A class that needs pages takes them from other classes' warm
//! buffers. Free lists are last-in first-out: what is handed out was used a moment ago and is
//! likely in the cache, and what lies at the bottom is what [`Pool::trim`] gives back.

use std::io;

use tidegate_core::budget::buffer_bytes;

use super::{Mem, Region};

/// Bytes of a page; every buffer is aligned to it.
pub const PAGE: usize = 4096;

const SMALLEST: u32 = PAGE.trailing_zeros();
const LARGEST: u32 = 25;
const CLASSES: usize = (LARGEST - SMALLEST + 1) as usize;

/// Memory of one owner, to be returned with [`Pool::put`].
#[derive(Debug)]
#[must_use = "a buffer that is dropped is lost to its pool"]
pub struct Buffer {
    mem: Mem,
    class: u8,
    index: u32,
}

impl Buffer {
    /// Its bytes, as many as the size class has.
    pub fn mem(&self) -> Mem {
        self.mem
    }

    /// Bytes it counts for.
    pub fn size(&self) -> u64 {
        self.mem.len() as u64
    }
}

/// See the module's documentation.
#[derive(Debug)]
pub struct Pool {
    classes: Vec<Class>,
    limit: u64,
    used: u64,
    warm: u64,
}

#[derive(Debug)]
struct Class {
    region: Region,
    size: usize,
    /// Free and committed; last returned at the end.
    warm: Vec<u32>,
    /// Free, their pages given back.
    cold: Vec<u32>,
    /// Never used from here on.
    fresh: u32,
    /// How short `warm` has been since the last trim: the first so many were not needed.
    least: usize,
}

impl Pool {
    /// Longest buffer there is: 32 MiB.
    pub const BUFFER_MAX: usize = 1 << LARGEST;

    /// Creates a pool for buffers of `limit` bytes in all, counted by [`buffer_bytes`].
    ///
    /// # Errors
    /// When the address space is exhausted.
    pub fn new(limit: u64) -> io::Result<Pool> {
        let mut classes = Vec::with_capacity(CLASSES);
        for shift in SMALLEST..=LARGEST {
            let size = 1usize << shift;
            let count = limit as usize / size + 2;
            classes.push(Class {
                region: Region::new(count * size)?,
                size,
                warm: Vec::with_capacity(count),
                cold: Vec::with_capacity(count),
                fresh: 0,
                least: 0,
            });
        }
        Ok(Pool {
            classes,
            limit,
            used: 0,
            warm: 0,
        })
    }

    /// Returns a buffer of at least `len` bytes. The callers bound what they take: the engine's
    /// budgets bound payloads, the number of connections bounds receive buffers.
    ///
    /// # Panics
    /// If more bytes are in use than the pool was created for.
    pub fn get(&mut self, len: usize) -> Buffer {
        let class = class_of(len);
        let size = self.classes[class].size as u64;
        let index = match self.classes[class].warm.pop() {
            Some(index) => {
                self.warm -= size;
                let class = &mut self.classes[class];
                class.least = class.least.min(class.warm.len());
                index
            }
            None => {
                self.make_room(size);
                let class = &mut self.classes[class];
                class.cold.pop().unwrap_or_else(|| {
                    class.fresh += 1;
                    class.fresh - 1
                })
            }
        };
        self.used += size;
        let size = size as usize;
        let mem = self.classes[class].region.mem(index as usize * size, size);
        Buffer {
            mem,
            class: class as u8,
            index,
        }
    }

    /// Takes a buffer back.
    pub fn put(&mut self, buffer: Buffer) {
        let size = buffer.size();
        self.used -= size;
        self.warm += size;
        self.classes[buffer.class as usize].warm.push(buffer.index);
    }

    /// Bytes in use.
    pub fn used(&self) -> u64 {
        self.used
    }

    /// Bytes free with pages behind them.
    pub fn warm(&self) -> u64 {
        self.warm
    }

    /// Gives back the pages of at most `most` buffers that were free since the last trim.
    pub fn trim(&mut self, most: usize) {
        let mut left = most;
        for class in &mut self.classes {
            let n = class.least.min(left);
            left -= n;
            for index in class.warm.drain(..n) {
                class
                    .region
                    .discard(index as usize * class.size, class.size);
                class.cold.push(index);
            }
            self.warm -= (n * class.size) as u64;
            class.least = class.warm.len();
        }
    }

    /// Gives warm buffers' pages back until `size` more bytes fit the bound, or none are left.
    fn make_room(&mut self, size: u64) {
        for class in &mut self.classes {
            while self.used + self.warm + size > self.limit {
                let Some(index) = class.warm.pop() else { break };
                class
                    .region
                    .discard(index as usize * class.size, class.size);
                class.cold.push(index);
                class.least = class.least.min(class.warm.len());
                self.warm -= class.size as u64;
            }
        }
    }
}

/// Returns the index of the smallest size class that holds `len` bytes.
fn class_of(len: usize) -> usize {
    assert!(len <= Pool::BUFFER_MAX, "a buffer of {len} bytes");
    let size = buffer_bytes(len.max(1) as u32);
    (size.trailing_zeros() - SMALLEST) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warm_memory_of_one_class_makes_room_for_another() {
        let mut pool = Pool::new(64 << 10).unwrap();
        let a = pool.get(32 << 10);
        let b = pool.get(20_000);
        assert_eq!(pool.used(), 64 << 10);
        pool.put(a);
        let small: Vec<_> = (0..8).map(|_| pool.get(1)).collect();
        assert_eq!(pool.used() + pool.warm(), 64 << 10, "warm memory counts");
        small.into_iter().for_each(|s| pool.put(s));
        pool.put(b);
        assert_eq!(pool.used(), 0);
    }

    #[test]
    fn buffers_are_as_large_as_they_are_counted() {
        let mut pool = Pool::new(64 << 20).unwrap();
        for len in [
            1,
            4095,
            4096,
            4097,
            100_000,
            1 << 20,
            Pool::BUFFER_MAX as u32,
        ] {
            let buffer = pool.get(len as usize);
            assert_eq!(buffer.size(), buffer_bytes(len), "{len}");
            pool.put(buffer);
        }
    }

    #[test]
    fn trimming_gives_back_only_what_lay_idle() {
        let mut pool = Pool::new(1 << 20).unwrap();
        let many: Vec<_> = (0..10).map(|_| pool.get(4096)).collect();
        many.into_iter().for_each(|b| pool.put(b));
        pool.trim(usize::MAX); // Begins to watch.
        let three: Vec<_> = (0..3).map(|_| pool.get(4096)).collect();
        three.into_iter().for_each(|b| pool.put(b));
        pool.trim(usize::MAX);
        assert_eq!(pool.warm(), 3 * 4096);
        pool.trim(usize::MAX);
        assert_eq!(pool.warm(), 0);
    }

    #[test]
    fn buffers_are_aligned_and_apart() {
        let mut pool = Pool::new(1 << 20).unwrap();
        let buffers: Vec<_> = (0..20).map(|_| pool.get(5000)).collect();
        let mut at: Vec<_> = buffers.iter().map(|b| b.mem().addr()).collect();
        at.sort_unstable();
        assert!(at.iter().all(|a| a % PAGE == 0));
        assert!(at.windows(2).all(|w| w[1] - w[0] >= 8192));
    }
}
