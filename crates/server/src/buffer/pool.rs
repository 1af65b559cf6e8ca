//! Pool of buffers in size classes, which returns idle memory to the kernel.
//!
//! Each class has enough addresses for the whole limit, so no mix of sizes can fragment it. The
//! limit bounds committed memory: buffers in use together with *warm* ones, which are free but have
//! pages. A class that needs pages takes them from warm buffers of other classes. Free lists are
//! last in, first out: the buffer handed out was used last and is likely in the CPU cache, and
//! those at the bottom are idle and go back in [`Pool::trim`].

use std::io;

use tidegate_core::budget::buffer_bytes;

use super::{Mem, Region};

/// Bytes of a page; every buffer is aligned to it.
pub const PAGE: usize = 4096;

/// Base-2 logarithm of the smallest size class in bytes.
const SMALLEST_LOG2: u32 = PAGE.trailing_zeros();
/// Base-2 logarithm of the largest size class in bytes: 32 MiB.
const LARGEST_LOG2: u32 = 25;
const CLASSES: usize = (LARGEST_LOG2 - SMALLEST_LOG2 + 1) as usize;

/// Buffer with one owner, to be returned with [`Pool::put`].
#[derive(Debug)]
#[must_use = "a buffer that is dropped is lost to its pool"]
pub struct Buffer {
    mem: Mem,
    class: u8,
    index: u32,
}

impl Buffer {
    /// Returns the memory of the buffer, as long as its size class.
    pub fn mem(&self) -> Mem {
        self.mem
    }

    /// Returns the bytes that the buffer counts for.
    pub fn size(&self) -> u64 {
        self.mem.len() as u64
    }
}

/// Pool of buffers in size classes with one limit on committed memory.
#[derive(Debug)]
pub struct Pool {
    classes: Vec<Class>,
    /// Bound on `used` + `warm`, in bytes.
    limit: u64,
    /// Bytes in use.
    used: u64,
    /// Bytes that are free and still have pages.
    warm: u64,
}

#[derive(Debug)]
struct Class {
    region: Region,
    size: usize,
    /// Indices of free buffers with pages, last returned at the end.
    warm: Vec<u32>,
    /// Indices of free buffers whose pages were returned to the system.
    cold: Vec<u32>,
    /// Index of the first buffer that was never used; all after it were not either.
    fresh: u32,
    /// Minimum length of `warm` since the last trim: that many buffers at its front were not
    /// needed.
    least: usize,
}

impl Pool {
    /// Size of the largest buffer, 32 MiB.
    pub const BUFFER_MAX: usize = 1 << LARGEST_LOG2;

    /// Creates a pool for buffers of `limit` bytes in all, counted by [`buffer_bytes`].
    ///
    /// # Errors
    /// Fails if the address space is exhausted.
    pub fn new(limit: u64) -> io::Result<Pool> {
        let mut classes = Vec::with_capacity(CLASSES);
        for shift in SMALLEST_LOG2..=LARGEST_LOG2 {
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
                // A warm buffer only changes hands between `warm` and `used`, so no room need be
                // made.
                self.warm -= size;
                let class = &mut self.classes[class];
                class.least = class.least.min(class.warm.len());
                index
            }
            None => {
                self.make_room(size);
                let class = &mut self.classes[class];
                // Cold before fresh, so that `fresh` grows only to the largest number ever in use.
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

    /// Returns a buffer to the pool.
    pub fn put(&mut self, buffer: Buffer) {
        let size = buffer.size();
        let class = &self.classes[buffer.class as usize];
        debug_assert!(
            class.size as u64 == size && buffer.index < class.fresh,
            "a buffer goes back to a pool that did not give it out"
        );
        self.used -= size;
        self.warm += size;
        self.classes[buffer.class as usize].warm.push(buffer.index);
    }

    /// Returns the bytes in use.
    pub fn used(&self) -> u64 {
        self.used
    }

    /// Returns the bytes that are free and still have pages.
    pub fn warm(&self) -> u64 {
        self.warm
    }

    /// Returns the pages of at most `most` buffers that were not used since the last trim.
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

    /// Returns pages of warm buffers to the system until `size` more bytes fit the limit or none
    /// are left.
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
    (size.trailing_zeros() - SMALLEST_LOG2) as usize
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
