//! Bytes of a disk in memory, whose size can change.
//!
//! The addresses of a [`Region`] stay reserved until the process ends, because the kernel might
//! still write to them. The kernel only reads the bytes of a disk in memory, for replies that are
//! sent from there, and no disk is removed, cut off or moved before they have ended. So the region
//! of a removed disk is reused for a later one, and VMs can come and go for as long as the daemon
//! runs.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tidegate_units::format_bytes;

use crate::buffer::{Mem, Region};
use crate::config::{DeviceConfig, DeviceKind, DiskConfig};
use crate::ring::sys;

/// Regions of removed disks, all zeroes. Used when disks are opened, resized and closed, never for
/// a request.
static SPARE: Mutex<Vec<Region>> = Mutex::new(Vec::new());

fn spare() -> MutexGuard<'static, Vec<Region>> {
    // A panic cannot leave the list of regions half changed.
    SPARE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Region that is zeroed and becomes spare when it is dropped.
#[derive(Debug)]
struct PooledRegion(Option<Region>);

impl PooledRegion {
    fn region(&self) -> &Region {
        self.0.as_ref().expect("given back only by the end")
    }
}

impl Drop for PooledRegion {
    fn drop(&mut self) {
        if let Some(region) = self.0.take() {
            region.discard(0, region.len());
            spare().push(region);
        }
    }
}

/// Memory of a disk.
#[derive(Debug)]
pub struct Memory {
    region: Arc<PooledRegion>,
    len: usize,
}

/// Memory behind the new end of a disk that becomes shorter. As long as this exists the region is
/// not reused, even if the disk is removed meanwhile.
#[derive(Debug)]
pub struct Tail {
    region: Arc<PooledRegion>,
    from: usize,
    to: usize,
}

impl Tail {
    /// Zeroes the memory by returning its pages to the system, which takes some tens of
    /// milliseconds for each GiB that was written to.
    pub fn discard(self) {
        let region = self.region.region();
        region.discard(self.from, self.to - self.from);
    }
}

impl Memory {
    /// Creates a memory of `len` zero bytes.
    ///
    /// # Errors
    /// Fails if the address space or the system's commit limit is exhausted.
    pub fn new(len: usize) -> io::Result<Memory> {
        Ok(Memory {
            region: Arc::new(PooledRegion(Some(region(len)?))),
            len,
        })
    }

    /// Returns the memory from `len` on, to be discarded by another thread before the disk is made
    /// shorter; `None` if there is none. Writes there must have ended.
    pub fn tail(&self, len: usize) -> Option<Tail> {
        (len < self.len).then(|| Tail {
            region: self.region.clone(),
            from: len,
            to: self.len,
        })
    }

    /// Returns a range of the memory. Panics if it is not inside the disk.
    pub fn mem(&self, offset: usize, len: usize) -> Mem {
        assert!(
            offset <= self.len && len <= self.len - offset,
            "range outside of the disk"
        );
        self.region.region().mem(offset, len)
    }

    /// Makes a range read as zeroes and returns its whole pages to the system.
    pub fn discard(&self, offset: usize, len: usize) {
        assert!(
            offset <= self.len && len <= self.len - offset,
            "range outside of the disk"
        );
        self.region.region().discard(offset, len);
    }

    /// Returns the length in bytes up to which the disk can grow in place.
    pub fn room(&self) -> usize {
        self.region.region().len()
    }

    /// Makes the disk longer by zeroes, or shorter after its [`Tail`] was discarded. When it grows,
    /// its pages may move to other addresses, which takes some milliseconds for each GiB that was
    /// written to.
    ///
    /// # Errors
    /// Fails if the address space or the system's commit limit is exhausted; the length then stays.
    pub fn set_len(&mut self, len: usize) -> io::Result<()> {
        if len > self.region.region().len() {
            let longer = PooledRegion(Some(region(len)?));
            self.region.region().move_pages(longer.region())?;
            // The old region has no pages any more, so zeroing it on drop takes no time.
            self.region = Arc::new(longer);
        }
        assert!(
            len <= self.region.region().len(),
            "a disk longer than its memory"
        );
        self.len = len;
        Ok(())
    }
}

/// Returns the shortest spare region that is long enough and at most twice as long, or a new one.
fn region(len: usize) -> io::Result<Region> {
    let mut spare = spare();
    // A much longer region would waste addresses that a longer disk may need.
    let fits = |region: &Region| region.len() >= len && region.len() / 2 <= len;
    let fitting = spare.iter().enumerate().filter(|(_, region)| fits(region));
    match fitting.min_by_key(|(_, region)| region.len()) {
        Some((at, _)) => Ok(spare.swap_remove(at)),
        None => Region::new(len),
    }
}

/// Returns a warning if the disks in memory are together larger than the host's physical memory:
/// guests that fill them would make the kernel kill the daemon, and with it every other disk.
/// `disks` gives each disk with its device.
pub fn beyond_host<'a>(
    disks: impl IntoIterator<Item = (&'a DeviceConfig, &'a DiskConfig)>,
) -> Option<String> {
    beyond(disks, sys::host_memory())
}

fn beyond<'a>(
    disks: impl IntoIterator<Item = (&'a DeviceConfig, &'a DiskConfig)>,
    host: u64,
) -> Option<String> {
    let memory = |(device, disk): (&DeviceConfig, &DiskConfig)| match device.kind {
        DeviceKind::Memory => disk.size,
        DeviceKind::Emulated { .. } => disk.size.filter(|_| disk.path.is_none()),
        DeviceKind::File | DeviceKind::Nbd => None,
    };
    // For what a server has not made durable.
    let log = |disk: &DiskConfig| disk.nbd.as_ref().map(|nbd| nbd.unflushed);
    let (mut in_memory, mut logs) = (0u64, 0u64);
    for (device, disk) in disks {
        in_memory = in_memory.saturating_add(memory((device, disk)).unwrap_or(0));
        logs = logs.saturating_add(log(disk).unwrap_or(0));
    }
    let total = in_memory.saturating_add(logs);
    (total > host).then(|| {
        let [total, host] = [total, host].map(format_bytes);
        let what = match (in_memory, logs) {
            (_, 0) => "disks in memory have",
            (0, _) => "unflushed changes of disks on NBD servers may have",
            _ => "disks in memory, and unflushed changes of disks on NBD servers, may have",
        };
        format!(
            "{what} {total} together, and the host has {host} of memory: once guests \
             have written that much, the kernel kills the daemon"
        )
    })
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
        memory.set_len(LEN + 12_345).unwrap();
        assert_eq!(bytes(&memory, 0, LEN), vec![7; LEN]);
        assert_eq!(bytes(&memory, LEN, 12_345), vec![0; 12_345]);
        memory.set_len(4 * LEN).unwrap();
        assert_eq!(bytes(&memory, LEN - 1, 3), [7, 0, 0]);
        assert!(memory.tail(4 * LEN).is_none());
        memory.tail(100).unwrap().discard();
        memory.set_len(100).unwrap();
        memory.set_len(2 * LEN).unwrap();
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
    fn addresses_are_the_next_ones_only_once_what_was_cut_off_is_gone_too() {
        // Not used by any other thread, as above.
        const LEN: usize = (211 << 20) + 4096;
        let first = Memory::new(LEN).unwrap();
        let at = first.mem(0, 1).addr();
        first.mem(LEN - 1, 1).write(&[1]);
        let tail = first.tail(4096).unwrap();
        drop(first);
        let second = Memory::new(LEN).unwrap();
        assert_ne!(second.mem(0, 1).addr(), at);
        tail.discard();
        let third = Memory::new(LEN).unwrap();
        assert_eq!(third.mem(0, 1).addr(), at);
        assert_eq!(bytes(&third, LEN - 1, 1), [0]);
    }

    #[test]
    #[should_panic(expected = "outside of the disk")]
    fn what_lies_beyond_the_end_is_not_there_even_where_there_is_memory() {
        let mut memory = Memory::new(4096).unwrap();
        memory.set_len(100).unwrap();
        memory.mem(100, 1);
    }

    #[test]
    fn disks_that_are_larger_than_the_host_are_told_all_together() {
        let text = "[[listen]]\nunix = \"s\"\n[[device]]\nname = \"m\"\nkind = \"memory\"\n\
                    [[device]]\nname = \"f\"\nkind = \"file\"\n\
                    [[vm]]\nname = \"a\"\ndevice = \"m\"\n[[vm.disk]]\nsize = \"3 GiB\"\n\
                    [[vm.disk]]\nexport = \"b\"\nsize = \"2 GiB\"\n\
                    [[vm]]\nname = \"c\"\ndevice = \"f\"\n[[vm.disk]]\npath = \"c\"\n\
                    size = \"9 GiB\"\n";
        let loaded = crate::config::parse(text, "t", std::path::Path::new("/"));
        let config = loaded.unwrap_or_else(|e| panic!("{e}")).config;
        assert_eq!(beyond(config.disks(), 5 << 30), None);
        let message = beyond(config.disks(), (5 << 30) - 1).expect("too large");
        assert!(
            message.starts_with("disks in memory have 5 GiB together"),
            "{message}"
        );
    }

    #[test]
    fn logs_of_disks_on_servers_are_told_for_what_they_are() {
        let text = |memory: &str| {
            format!(
                "[[listen]]\nunix = \"s\"\n[[device]]\nname = \"n\"\nkind = \"nbd\"\n{memory}\
                 [[vm]]\nname = \"a\"\ndevice = \"n\"\n[[vm.disk]]\n\
                 uri = \"nbd://a/\"\nsize = \"9 GiB\"\nunflushed = \"1 GiB\"\n"
            )
        };
        let message = |memory: &str| {
            let loaded = crate::config::parse(&text(memory), "t", std::path::Path::new("/"));
            let config = loaded.unwrap_or_else(|e| panic!("{e}")).config;
            beyond(config.disks(), (1 << 30) - 1).expect("too large")
        };
        let alone = message("");
        let expected = "unflushed changes of disks on NBD servers may have 1 GiB together";
        assert!(alone.starts_with(expected), "{alone}");
        let both = message(
            "[[device]]\nname = \"m\"\nkind = \"memory\"\n[[vm]]\nname = \"b\"\n\
             device = \"m\"\n[[vm.disk]]\nsize = \"2 GiB\"\n",
        );
        let expected = "disks in memory, and unflushed changes of disks on NBD servers, may have \
                        3 GiB together";
        assert!(both.starts_with(expected), "{both}");
    }
}
