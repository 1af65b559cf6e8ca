//! Memory of a guest, mapped from the files that its hypervisor passes.
//!
//! The table that a front-end sends has regions with two addresses each: descriptors hold guest
//! physical addresses, messages about rings hold addresses in the front-end's own address space. A
//! region that is in several tables, because others were added or removed beside it, is mapped
//! once. A table is dropped, and its regions unmapped, by the thread of its session, after the loop
//! has let go of it.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::buffer::{Mem, PAGE};
use crate::ring::sys;
use crate::sigbus;
use crate::vm_resources::{Resource, Share, VmResources};

/// Smallest page in bytes.
const PAGE_BYTES: u64 = PAGE as u64;
/// Most regions of a table: the memory slots of a guest in QEMU.
pub(super) const REGIONS_MAX: usize = 509;

/// Region of a table as a message describes it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct RegionAddress {
    /// First guest physical address.
    pub(crate) guest: u64,
    /// First address in the front-end's address space.
    pub(crate) user: u64,
    /// Length in bytes.
    pub(crate) len: u64,
    /// Offset of the first byte in the file.
    pub(crate) offset: u64,
}

impl RegionAddress {
    fn check(&self) -> Result<(), String> {
        let fits = |start: u64| self.len > 0 && start.checked_add(self.len).is_some();
        if !(fits(self.guest) && fits(self.user) && fits(self.offset)) {
            return Err(format!("a region of {} bytes wraps around", self.len));
        }
        // Many small regions would make a long list of each request's memory.
        if !self.len.is_multiple_of(PAGE_BYTES) {
            return Err(format!(
                "a region of {} bytes, which are no pages",
                self.len
            ));
        }
        Ok(())
    }

    fn overlaps(&self, other: &RegionAddress) -> bool {
        let shares = |a: u64, b: u64| a < b + other.len && b < a + self.len;
        shares(self.guest, other.guest) || shares(self.user, other.user)
    }
}

/// Mapped region.
#[derive(Debug)]
pub(super) struct Region {
    address: RegionAddress,
    /// All bytes of the region.
    mem: Mem,
    mapping: Mapping,
    /// File, for a daemon that takes over.
    file: File,
    _descriptor: Share,
}

impl Region {
    /// Maps a region of a file.
    ///
    /// # Errors
    /// A message if the region wraps around or is not inside its file, the file may block, the VM
    /// has as much memory or as many descriptors as it may, or the kernel refuses.
    pub(super) fn map(
        address: RegionAddress,
        file: &File,
        limits: &Arc<VmResources>,
    ) -> Result<Region, String> {
        address.check()?;
        let (offset, len) = (address.offset, address.len);
        let (mapping, mem) = Mapping::of_file("guest memory", file, offset, len, limits)?;
        let descriptor = limits.take(Resource::Descriptors, 1)?;
        let failed = |error: io::Error| format!("the file of guest memory: {error}");
        let file = file.try_clone().map_err(failed)?;
        // The region has the mapping and lives until no I/O uses its memory, which its connection
        // sees to.
        Ok(Region {
            address,
            mem,
            mapping,
            file,
            _descriptor: descriptor,
        })
    }

    /// Returns the file of the region.
    pub(super) fn file(&self) -> &File {
        &self.file
    }

    /// Returns the region's addresses.
    pub(super) fn address(&self) -> &RegionAddress {
        &self.address
    }
}

/// Shared mapping of a file, with its entry in the table of the SIGBUS handler.
#[derive(Debug)]
pub(super) struct Mapping {
    base: *mut u8,
    len: usize,
    guard: Option<sigbus::Guard>,
    /// The region and its bytes in the VM's limits, given back once it is unmapped.
    _shares: [Share; 2],
}

// SAFETY: a mapping is process memory without thread affinity, and `base` is only an address.
unsafe impl Send for Mapping {}
// SAFETY: as above; what is done with the bytes goes through `Mem`.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `len` bytes at `offset` of a file, and returns the mapping with these bytes. `what`
    /// names them in messages.
    ///
    /// # Errors
    /// A message if the range is not inside the file, the file may block, the VM has as much mapped
    /// as it may, or the kernel refuses.
    pub(super) fn of_file(
        what: &str,
        file: &File,
        offset: u64,
        len: u64,
        limits: &Arc<VmResources>,
    ) -> Result<(Mapping, Mem), String> {
        let failed = |error: io::Error| format!("{what} cannot be mapped: {error}");
        let meta = file.metadata().map_err(failed)?;
        // A page of any other file system may take for ever to come, and would stop the loop.
        let page = match sys::filesystem(file).map_err(failed)? {
            libc::TMPFS_MAGIC => PAGE_BYTES,
            libc::HUGETLBFS_MAGIC => meta.blksize(),
            _ => {
                return Err(format!(
                    "{what} is not in memory: use memfd, tmpfs or hugetlbfs"
                ));
            }
        };
        let end = offset.checked_add(len).filter(|&end| end <= meta.size());
        let Some(end) = end.filter(|_| meta.is_file() && len > 0) else {
            return Err(format!(
                "{what}: {len} bytes from byte {offset} on of a file of {} bytes",
                meta.size()
            ));
        };
        if !page.is_power_of_two() || page < PAGE_BYTES {
            return Err(format!("{what} in pages of {page} bytes"));
        }
        // Whole pages, because mappings of huge pages must begin and end at them.
        let start = offset / page * page;
        let whole = usize::try_from(end.next_multiple_of(page) - start)
            .map_err(|_| format!("{what} is larger than the address space"))?;
        let shares = [
            limits.take(Resource::Regions, 1)?,
            limits.take(Resource::AddressSpace, whole as u64)?,
        ];
        let mapping = Mapping::new(file, start, whole, page as usize, shares).map_err(failed)?;
        let mem = Mem::of_mapping(mapping.base.cast(), (offset - start) as usize, len as usize);
        Ok((mapping, mem))
    }

    /// Returns true if a page of the mapping could not be read.
    pub(super) fn is_truncated(&self) -> bool {
        let guard = self.guard.as_ref();
        guard.is_some_and(sigbus::Guard::has_faulted)
    }

    fn new(
        file: &File,
        offset: u64,
        len: usize,
        page: usize,
        shares: [Share; 2],
    ) -> io::Result<Mapping> {
        // SAFETY: a new mapping at an address of the kernel's choosing touches nothing that exists.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_NORESERVE,
                file.as_raw_fd(),
                offset as libc::off_t,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // A core dump of the daemon must not hold the memory of guests.
        // SAFETY: the range was mapped above.
        unsafe { libc::madvise(base, len, libc::MADV_DONTDUMP) };
        let mut mapping = Mapping {
            base: base.cast(),
            len,
            guard: None,
            _shares: shares,
        };
        // The mapping is owned by now, so that a full table unmaps it.
        mapping.guard = Some(sigbus::Guard::new(base as usize, len, page)?);
        Ok(mapping)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // Before the addresses can be another mapping's.
        self.guard = None;
        // SAFETY: the range was mapped by `new`, and no `Mem` of it is used any more.
        unsafe { libc::munmap(self.base.cast(), self.len) };
    }
}

/// Memory table of a guest.
#[derive(Clone, Default, Debug)]
pub(super) struct GuestMemory {
    /// Ordered by guest physical address.
    regions: Vec<Arc<Region>>,
    /// Indices of the regions, ordered by the address at which they are mapped.
    by_mapping: Vec<u16>,
}

impl GuestMemory {
    /// Makes a table.
    ///
    /// # Errors
    /// A message if regions overlap or there are too many.
    pub(super) fn new(mut regions: Vec<Arc<Region>>) -> Result<GuestMemory, String> {
        if regions.len() > REGIONS_MAX {
            return Err(format!("{} regions of guest memory", regions.len()));
        }
        for (at, region) in regions.iter().enumerate() {
            let address = region.address();
            if let Some(other) = (regions[..at].iter()).find(|r| r.address().overlaps(address)) {
                return Err(format!(
                    "regions of guest memory overlap at {:#x} and {:#x}",
                    address.guest,
                    other.address().guest
                ));
            }
        }
        regions.sort_by_key(|region| region.address.guest);
        let mut by_mapping: Vec<u16> = (0..regions.len() as u16).collect();
        by_mapping.sort_by_key(|&at| regions[usize::from(at)].mem.addr());
        Ok(GuestMemory {
            regions,
            by_mapping,
        })
    }

    /// Returns the regions of the table.
    pub(super) fn regions(&self) -> &[Arc<Region>] {
        &self.regions
    }

    /// Returns the end of the last region in guest physical addresses; 0 without any.
    pub(super) fn end(&self) -> u64 {
        let last = self.regions.last().map(|region| &region.address);
        last.map_or(0, |address| address.guest + address.len)
    }

    /// Returns the guest physical address of memory; `None` if it is not of this table.
    pub(super) fn guest_address(&self, mem: &Mem) -> Option<u64> {
        let region = |at: u16| &self.regions[usize::from(at)];
        let after = (self.by_mapping).partition_point(|&at| region(at).mem.addr() <= mem.addr());
        let region = region(self.by_mapping[after.checked_sub(1)?]);
        let from = mem.addr() - region.mem.addr();
        let room = region.mem.len().checked_sub(from)?;
        (mem.len() <= room).then(|| region.address.guest + from as u64)
    }

    /// Appends the memory of `len` bytes from a guest physical address to `out`; returns false if
    /// part of it is not in the table.
    #[inline]
    pub(super) fn push(&self, mut guest: u64, len: u32, out: &mut Vec<Mem>) -> bool {
        let mut left = u64::from(len);
        while left > 0 {
            let after = (self.regions).partition_point(|region| region.address.guest <= guest);
            let Some(region) = after.checked_sub(1).map(|at| &self.regions[at]) else {
                return false;
            };
            let from = guest - region.address.guest;
            if from >= region.address.len {
                return false;
            }
            let n = left.min(region.address.len - from);
            out.push(region.mem.slice(from as usize, n as usize));
            left -= n;
            // Wraps only where the region ends at the last address, and then finds none.
            guest = guest.wrapping_add(n);
        }
        true
    }

    /// Returns the memory of `len` bytes from a guest physical address; `None` if it is not inside
    /// one region.
    pub(super) fn at_guest(&self, guest: u64, len: usize) -> Option<Mem> {
        self.find(guest, len, |address| address.guest)
    }

    /// Returns the memory of `len` bytes from an address in the front-end's address space; `None`
    /// if it is not inside one region.
    pub(super) fn at_user(&self, user: u64, len: usize) -> Option<Mem> {
        self.find(user, len, |address| address.user)
    }

    fn find(&self, at: u64, len: usize, first: impl Fn(&RegionAddress) -> u64) -> Option<Mem> {
        self.regions.iter().find_map(|region| {
            let from = at.checked_sub(first(&region.address))?;
            let room = region.address.len.checked_sub(from)?;
            (len as u64 <= room).then(|| region.mem.slice(from as usize, len))
        })
    }

    /// Returns true if the file of a region has become shorter than the region, or a page of it
    /// cannot be read. What was read there are zeroes.
    pub(super) fn is_truncated(&self) -> bool {
        self.regions.iter().any(|r| r.mapping.is_truncated())
    }
}

/// Guest memory for tests, in one memfd.
#[cfg(any(test, feature = "fuzzing"))]
pub(super) mod testing {
    use super::*;

    /// Makes a file in memory of `len` bytes.
    pub(in crate::frontend::vhost_user) fn memfd(len: u64) -> File {
        named_memfd(c"guest", len)
    }

    /// Makes a file in memory of `len` bytes, whose mappings have this name.
    pub(in crate::frontend::vhost_user) fn named_memfd(name: &std::ffi::CStr, len: u64) -> File {
        use std::os::fd::FromRawFd;
        // SAFETY: a name that ends with a zero; the result is checked before it is owned.
        let fd = unsafe { libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC) };
        assert!(fd >= 0, "a memfd");
        // SAFETY: a descriptor with no other owner.
        let file = unsafe { File::from_raw_fd(fd) };
        file.set_len(len).expect("room");
        file
    }

    /// Makes a table of regions with `(guest, user, len)`, each of its own file.
    #[cfg(test)]
    pub(in crate::frontend::vhost_user) fn table(regions: &[(u64, u64, u64)]) -> GuestMemory {
        let map = |&(guest, user, len): &(u64, u64, u64)| {
            let address = RegionAddress {
                guest,
                user,
                len,
                offset: 0,
            };
            Arc::new(Region::map(address, &memfd(len), &Arc::default()).expect("mapped"))
        };
        GuestMemory::new(regions.iter().map(map).collect()).expect("a table")
    }
}

#[cfg(test)]
mod tests {
    use super::testing::{memfd, table};
    use super::*;

    const PAGE: u64 = PAGE_BYTES;

    #[test]
    fn a_range_is_cut_where_regions_meet_and_refused_where_there_is_none() {
        let memory = table(&[(0, 0x10_0000, PAGE), (PAGE, 0x50_0000, 2 * PAGE)]);
        let lens = |guest, len| {
            let mut out = Vec::new();
            let found = memory.push(guest, len, &mut out);
            found.then(|| out.iter().map(Mem::len).collect::<Vec<_>>())
        };
        let mut out = Vec::new();
        assert!(memory.push(PAGE - 96, 200, &mut out));
        let guests: Vec<_> = out.iter().map(|mem| memory.guest_address(mem)).collect();
        assert_eq!(guests, [Some(PAGE - 96), Some(PAGE)]);
        assert_eq!(table(&[(0, 0, PAGE)]).guest_address(&out[0]), None);
        assert_eq!(memory.end(), 3 * PAGE);
        assert_eq!(lens(0, 4096), Some(vec![4096]));
        assert_eq!(lens(4000, 200), Some(vec![96, 104]));
        assert_eq!(lens(PAGE, 8192), Some(vec![8192]));
        assert_eq!(lens(PAGE, 8193), None);
        assert_eq!(lens(3 * PAGE, 1), None);
        assert_eq!(lens(u64::MAX, 2), None);
        assert!(memory.at_user(0x50_0000 + PAGE, PAGE as usize).is_some());
        assert!(
            memory
                .at_user(0x50_0000 + PAGE, PAGE as usize + 1)
                .is_none()
        );
        assert!(memory.at_user(0x10_0000 - 1, 1).is_none());
        assert!(memory.at_user(u64::MAX, 1).is_none());
    }

    #[test]
    fn both_sides_see_the_same_bytes() {
        use std::os::unix::fs::FileExt;
        let file = memfd(3 * PAGE);
        let address = RegionAddress {
            guest: 0x1000,
            user: 0,
            len: PAGE,
            offset: PAGE + 512,
        };
        let region = Arc::new(Region::map(address, &file, &Arc::default()).expect("mapped"));
        let memory = GuestMemory::new(vec![region]).expect("a table");
        let mut out = Vec::new();
        assert!(memory.push(0x1010, 4, &mut out));
        out[0].write(b"abcd");
        let mut bytes = [0; 4];
        file.read_exact_at(&mut bytes, PAGE + 512 + 16)
            .expect("read");
        assert_eq!(&bytes, b"abcd");
    }

    #[test]
    fn regions_that_make_no_sense_are_refused() {
        let file = memfd(2 * PAGE);
        let map = |guest, user, len, offset| {
            let address = RegionAddress {
                guest,
                user,
                len,
                offset,
            };
            Region::map(address, &file, &Arc::default())
        };
        assert!(map(0, 0, 2 * PAGE, 0).is_ok());
        assert!(map(0, 0, 0, 0).is_err(), "no bytes");
        assert!(map(0, 0, 2 * PAGE, 1).is_err(), "beyond its file");
        assert!(map(u64::MAX - 1, 0, PAGE, 0).is_err(), "guest addresses");
        assert!(map(0, u64::MAX - 1, PAGE, 0).is_err(), "user addresses");
        assert!(map(0, 0, PAGE, u64::MAX - 1).is_err(), "offsets");
        let of_disk = tempfile::tempfile_in(env!("CARGO_MANIFEST_DIR")).expect("a file");
        of_disk.set_len(PAGE).expect("room");
        let address = RegionAddress {
            guest: 0,
            user: 0,
            len: PAGE,
            offset: 0,
        };
        let refused = Region::map(address, &of_disk, &Arc::default()).expect_err("it may block");
        assert!(refused.contains("memfd"), "{refused}");
        let two = [map(0, 0, PAGE, 0), map(PAGE - 1, 2 * PAGE, PAGE, 0)];
        let two = two.map(|region| Arc::new(region.expect("mapped")));
        assert!(GuestMemory::new(two.to_vec()).is_err(), "they overlap");
    }

    #[test]
    fn memory_that_is_cut_short_reads_as_zeroes_and_is_noticed() {
        let file = memfd(2 * PAGE);
        let address = RegionAddress {
            guest: 0,
            user: 0,
            len: 2 * PAGE,
            offset: 0,
        };
        let region = Arc::new(Region::map(address, &file, &Arc::default()).expect("mapped"));
        let memory = GuestMemory::new(vec![region]).expect("a table");
        let other = table(&[(0, 0, PAGE)]);
        let mem = memory.at_user(0, 2 * PAGE as usize).expect("inside");
        mem.write_once(PAGE as usize, [7; 8]);
        file.set_len(PAGE).expect("shorter");
        assert!(!memory.is_truncated(), "nobody has looked yet");
        assert_eq!(mem.read_once::<8>(PAGE as usize), [0; 8]);
        assert!(memory.is_truncated() && !other.is_truncated());
        // The pages belong to nobody now, and take whatever is written.
        mem.write_once(PAGE as usize, [1; 8]);
        assert_eq!(mem.read_once::<8>(PAGE as usize), [1; 8]);
    }
}
