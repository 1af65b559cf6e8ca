//! The bytes of a disk in memory, whose size may change.
//!
//! A [`Region`]'s addresses stay reserved until the process ends, because the kernel may still be
//! writing to them. The bytes of a disk are only ever copied at once, by the loop, and never
//! given to the kernel: so the addresses of one that went are the next one's, and VMs may come
//! and go for as long as the daemon runs.

use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::buffer::{Mem, Region};

/// Regions whose disk has gone, all zeroes. Asked when disks are opened and closed, never on a
/// request's path.
static SPARE: Mutex<Vec<Region>> = Mutex::new(Vec::new());

fn spare() -> MutexGuard<'static, Vec<Region>> {
    // A list of regions is whole, whoever panicked.
    SPARE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A disk's bytes.
#[derive(Debug)]
pub struct Memory {
    /// `None` once it was given back.
    region: Option<Region>,
    len: usize,
}

impl Memory {
    /// `len` bytes of zeroes.
    ///
    /// # Errors
    /// When the address space or the system's commit limit is exhausted.
    pub fn new(len: usize) -> io::Result<Memory> {
        Ok(Memory {
            region: Some(region(len)?),
            len,
        })
    }

    /// A range of it. Panics when it is not inside.
    pub fn mem(&self, offset: usize, len: usize) -> Mem {
        assert!(
            offset <= self.len && len <= self.len - offset,
            "range outside of the disk"
        );
        self.region().mem(offset, len)
    }

    /// Makes a range read as zeroes and gives its whole pages back to the system.
    pub fn discard(&self, offset: usize, len: usize) {
        self.region().discard(offset, len);
    }

    /// Makes it longer, by zeroes, or shorter. Longer, its pages may move to other addresses,
    /// which takes some milliseconds a GiB that was written to.
    ///
    /// # Errors
    /// When the address space or the system's commit limit is exhausted; then it stays as it is.
    pub fn resize(&mut self, len: usize) -> io::Result<()> {
        if len < self.len {
            // What grows again later reads as zeroes there.
            self.region().discard(len, self.len - len);
        } else if len > self.region().len() {
            let longer = region(len)?;
            self.region().move_pages(&longer)?;
            if let Some(before) = self.region.replace(longer) {
                spare().push(before);
            }
        }
        self.len = len;
        Ok(())
    }

    fn region(&self) -> &Region {
        self.region.as_ref().expect("given back only by the end")
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if let Some(region) = self.region.take() {
            region.discard(0, region.len());
            spare().push(region);
        }
    }
}

/// The shortest spare region that is long enough and not twice as long, or a new one.
fn region(len: usize) -> io::Result<Region> {
    let mut spare = spare();
    let fits = |region: &Region| region.len() >= len && region.len() / 2 <= len;
    let fitting = spare.iter().enumerate().filter(|(_, region)| fits(region));
    match fitting.min_by_key(|(_, region)| region.len()) {
        Some((at, _)) => Ok(spare.swap_remove(at)),
        None => Region::new(len),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(memory: &Memory, offset: usize, len: usize) -> Vec<u8> {
        let mut bytes = vec![9; len];
        memory.mem(offset, len).read(&mut bytes);
        bytes
    }

    #[test]
    fn what_grows_keeps_its_bytes_and_the_rest_is_zeroes() {
        const LEN: usize = 3 << 20;
        let mut memory = Memory::new(LEN).unwrap();
        memory.mem(0, LEN).write(&vec![7; LEN]);
        memory.resize(LEN + 12_345).unwrap();
        assert_eq!(bytes(&memory, 0, LEN), vec![7; LEN]);
        assert_eq!(bytes(&memory, LEN, 12_345), vec![0; 12_345]);
        memory.resize(4 * LEN).unwrap();
        assert_eq!(bytes(&memory, LEN - 1, 3), [7, 0, 0]);
        memory.resize(100).unwrap();
        memory.resize(2 * LEN).unwrap();
        assert_eq!(bytes(&memory, 99, 3), [7, 0, 0]);
        assert_eq!(bytes(&memory, LEN - 100, 200), [0; 200]);
    }

    #[test]
    fn what_went_leaves_zeroes_and_its_addresses_to_the_next() {
        // A length of its own: other tests take from the same spare regions.
        const LEN: usize = (37 << 20) + 4096;
        let first = Memory::new(LEN).unwrap();
        let at = first.mem(0, 1).addr();
        first.mem(0, 1).write(&[1]);
        drop(first);
        let next = Memory::new(LEN).unwrap();
        assert_eq!(next.mem(0, 1).addr(), at);
        assert_eq!(bytes(&next, 0, 2), [0, 0]);
    }

    #[test]
    #[should_panic(expected = "outside of the disk")]
    fn what_lies_beyond_the_end_is_not_there_even_where_there_is_memory() {
        let mut memory = Memory::new(4096).unwrap();
        memory.resize(100).unwrap();
        memory.mem(100, 1);
    }
}
