//! Memory that event loop and kernel share: regions, ranges of them, pools of buffers.
//!
//! A [`Region`] is a range of anonymous memory whose addresses stay reserved until the process
//! ends; dropping it returns its pages, not its addresses. A [`Mem`] is a range of a region, freely
//! copied and therefore always mapped: whatever becomes of an I/O, the kernel never writes into
//! memory that has another use by now. Memory of other origin keeps this promise by its own means:
//! a mapped file is only read, and outlives the replies that are sent from it; memory of a guest
//! (`frontend::vhost_user`) stays mapped until no I/O uses it.
//!
//! Bytes are only copied in and out, never borrowed, because the kernel may be working on them. The
//! loop ensures that no other thread copies meanwhile: it does not touch a buffer of an I/O until
//! it has seen the I/O's completion.

#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod interference;
mod pool;

pub use pool::{Buffer, PAGE, Pool};

use std::io;
use std::sync::atomic::{AtomicU8, AtomicU16, Ordering};

/// Anonymous memory, committed page by page as it is touched.
#[derive(Debug)]
pub struct Region {
    base: *mut u8,
    len: usize,
}

// SAFETY: a region is plain process memory without thread affinity; `base` is only an address,
// and everything done through it goes through `Mem`.
unsafe impl Send for Region {}
// SAFETY: a shared region gives out addresses and has the kernel empty whole pages; no reference to
// its bytes is ever made. Who copies which of them when is settled by whoever holds the region.
unsafe impl Sync for Region {}

impl Region {
    /// Reserves at least `len` bytes of zeroes, rounded up to whole pages.
    ///
    /// # Errors
    /// Fails if the address space or the system's commit limit is exhausted.
    pub fn new(len: usize) -> io::Result<Region> {
        let len = len.max(1).next_multiple_of(PAGE);
        // SAFETY: a new private anonymous mapping at an address of the kernel's choosing
        // touches nothing that exists.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // With huge pages, the first byte written would commit 2 MiB. If this fails, only memory is
        // lost.
        // SAFETY: the range was mapped above and is owned by this region.
        unsafe { libc::madvise(base, len, libc::MADV_NOHUGEPAGE) };
        Ok(Region {
            base: base.cast(),
            len,
        })
    }

    /// Returns the length in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns false, because a region has at least one page.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the range of `len` bytes at `offset`. Panics if it is not inside the region.
    pub fn mem(&self, offset: usize, len: usize) -> Mem {
        assert!(
            offset <= self.len && len <= self.len - offset,
            "range outside its region"
        );
        // SAFETY: `offset` lies within the mapping, as was asserted.
        let base = unsafe { self.base.add(offset) };
        Mem(libc::iovec {
            iov_base: base.cast(),
            iov_len: len,
        })
    }

    /// Makes a range read as zeroes and returns its whole pages to the system.
    pub fn discard(&self, offset: usize, len: usize) {
        let range = self.mem(offset, len);
        let first = offset.next_multiple_of(PAGE);
        let last = (offset + len) / PAGE * PAGE;
        if first >= last {
            return range.zero();
        }
        self.mem(offset, first - offset).zero();
        self.mem(last, offset + len - last).zero();
        // SAFETY: whole pages inside this private anonymous mapping; they read as zeroes
        // afterwards, and no reference to their contents can exist.
        let failed = unsafe {
            libc::madvise(
                self.base.add(first).cast(),
                last - first,
                libc::MADV_DONTNEED,
            )
        };
        if failed != 0 {
            // Locked memory (mlockall) refuses; the promise to read as zeroes must hold anyway.
            self.mem(first, last - first).zero();
        }
    }
}

impl Region {
    /// Moves all pages to the front of `longer`, a region that was never used; this region reads
    /// as zeroes afterwards. No thread and no I/O may use either meanwhile. Panics if `longer` is
    /// shorter than this region.
    ///
    /// # Errors
    /// Fails if the kernel refuses; nothing has moved then.
    pub fn move_pages(&self, longer: &Region) -> io::Result<()> {
        assert!(longer.len >= self.len, "the other region is shorter");
        let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED | libc::MREMAP_DONTUNMAP;
        // SAFETY: both ranges are private anonymous mappings owned by these regions and do not
        // overlap. The target is mapped anew in place; the source stays mapped, empty
        // (`MREMAP_DONTUNMAP`), so every `Mem` of either keeps meaning mapped memory.
        let moved = unsafe {
            libc::mremap(
                self.base.cast(),
                self.len,
                self.len,
                flags,
                longer.base.cast::<libc::c_void>(),
            )
        };
        if moved == libc::MAP_FAILED {
            Err(io::Error::last_os_error())
        } else {
            Ok(())
        }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // The addresses stay mapped, because a `Mem` or an I/O in flight may still refer to them.
        // SAFETY: the range was mapped by `new` and is still reserved.
        unsafe { libc::madvise(self.base.cast(), self.len, libc::MADV_DONTNEED) };
    }
}

/// Range of a [`Region`], with the layout of an `iovec`.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct Mem(libc::iovec);

// SAFETY: as for `Region`: an address and a length of process memory that stays mapped.
unsafe impl Send for Mem {}
// SAFETY: as for `Region`: bytes are copied, never borrowed, and who copies which of them when is
// settled by whoever holds the range.
unsafe impl Sync for Mem {}

impl Mem {
    /// Range without bytes.
    pub const EMPTY: Mem = Mem(libc::iovec {
        iov_base: std::ptr::null_mut(),
        iov_len: 0,
    });

    /// Returns the range of `len` bytes at `offset` of a mapping that is not a region. It must be
    /// within the mapping, and out of use when the mapping goes.
    pub(crate) fn of_mapping(base: *mut libc::c_void, offset: usize, len: usize) -> Mem {
        Mem(libc::iovec {
            iov_base: base.wrapping_byte_add(offset),
            iov_len: len,
        })
    }

    /// Returns the length in bytes.
    pub fn len(&self) -> usize {
        self.0.iov_len
    }

    /// Returns true if the range has no bytes.
    pub fn is_empty(&self) -> bool {
        self.0.iov_len == 0
    }

    /// Returns the address of the first byte.
    pub fn addr(&self) -> usize {
        self.0.iov_base as usize
    }

    /// Returns the `len` bytes at `offset`. Panics if they are not inside the range.
    pub fn slice(&self, offset: usize, len: usize) -> Mem {
        assert!(
            offset <= self.len() && len <= self.len() - offset,
            "slice outside its range"
        );
        Mem(libc::iovec {
            iov_base: self.ptr().wrapping_add(offset).cast(),
            iov_len: len,
        })
    }

    /// Returns everything from `offset` on. Panics if `offset` is past the end.
    pub fn from(&self, offset: usize) -> Mem {
        self.slice(offset, self.len() - offset)
    }

    /// Joins this range with the one that begins where it ends. Panics if there is a gap.
    pub fn joined(&self, behind: Mem) -> Mem {
        assert_eq!(
            self.addr() + self.len(),
            behind.addr(),
            "ranges with a gap between"
        );
        Mem(libc::iovec {
            iov_base: self.0.iov_base,
            iov_len: self.len() + behind.len(),
        })
    }

    /// Copies `bytes` to the front of the range. Panics if they do not fit.
    pub fn write(&self, bytes: &[u8]) {
        assert!(bytes.len() <= self.len(), "more bytes than room");
        // SAFETY: the destination is mapped and writable for `self.len()` bytes (module
        // invariant); a borrowed slice cannot overlap a region, whose bytes are never borrowed.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.ptr(), bytes.len()) };
    }

    /// Copies the front of the range to `bytes`. Panics if `bytes` is longer than the range.
    pub fn read(&self, bytes: &mut [u8]) {
        assert!(
            bytes.len() <= self.len(),
            "more bytes wanted than there are"
        );
        // SAFETY: as in `write`, with the roles exchanged.
        unsafe { std::ptr::copy_nonoverlapping(self.ptr(), bytes.as_mut_ptr(), bytes.len()) };
    }

    /// Copies `from` to the front of the range. Panics if it does not fit. The ranges may overlap.
    pub fn copy(&self, from: Mem) {
        assert!(from.len() <= self.len(), "more bytes than room");
        // SAFETY: both ranges are mapped (module invariant); `ptr::copy` allows overlap.
        unsafe { std::ptr::copy(from.ptr(), self.ptr(), from.len()) };
    }

    /// Fills the range with zeroes.
    pub fn zero(&self) {
        if !self.is_empty() {
            // SAFETY: the range is mapped and writable (module invariant).
            unsafe { std::ptr::write_bytes(self.ptr(), 0, self.len()) };
        }
    }

    /// Returns the `N` bytes at `offset`, which are read exactly once: another process may change
    /// them at any time, so what was checked must be what is used. Panics if they are not inside
    /// the range.
    #[inline]
    pub fn read_once<const N: usize>(&self, offset: usize) -> [u8; N] {
        let from = self.slice(offset, N);
        // SAFETY: the range is mapped (module invariant); a volatile read of bytes needs no
        // alignment, is never repeated by the compiler, and any bytes are valid.
        let bytes = unsafe { from.ptr().cast::<[u8; N]>().read_volatile() };
        #[cfg(any(test, feature = "fuzzing"))]
        interference::after_read();
        bytes
    }

    /// Writes `N` bytes at `offset`. Panics if they do not fit.
    #[inline]
    pub fn write_once<const N: usize>(&self, offset: usize, bytes: [u8; N]) {
        let to = self.slice(offset, N);
        #[cfg(test)]
        if kill::has_come() {
            return;
        }
        // SAFETY: the range is mapped and writable (module invariant), and bytes need no alignment.
        unsafe { to.ptr().cast::<[u8; N]>().write_volatile(bytes) };
    }

    /// Loads the little-endian number of 16 bits at `offset`, and sees what was written before it
    /// was stored (acquire). Panics if it is not inside the range, or not aligned.
    #[inline]
    pub fn load_le16(&self, offset: usize) -> u16 {
        let value = u16::from_le(self.atomic16(offset).load(Ordering::Acquire));
        #[cfg(any(test, feature = "fuzzing"))]
        interference::after_read();
        value
    }

    /// Stores a little-endian number of 16 bits at `offset`, behind everything that was written
    /// before (release). Panics if it is not inside the range, or not aligned.
    #[inline]
    pub fn store_le16(&self, offset: usize, value: u16) {
        let at = self.atomic16(offset);
        #[cfg(test)]
        if kill::has_come() {
            return;
        }
        at.store(value.to_le(), Ordering::Release);
    }

    /// Sets bits of the byte at `offset`, behind everything that was written before (release).
    /// Panics if it is not inside the range.
    #[inline]
    pub fn set_bits(&self, offset: usize, bits: u8) {
        let at = self.slice(offset, 1).ptr();
        // SAFETY: a byte inside a mapped range (module invariant); other processes access it
        // atomically, and a byte needs no alignment.
        unsafe { AtomicU8::from_ptr(at) }.fetch_or(bits, Ordering::Release);
    }

    fn atomic16(&self, offset: usize) -> &AtomicU16 {
        let at = self.slice(offset, size_of::<u16>()).ptr().cast::<u16>();
        assert!(at.is_aligned(), "a number that is not aligned");
        // SAFETY: two bytes inside a mapped range (module invariant), aligned as was asserted;
        // other processes access them as one number of 16 bits.
        unsafe { AtomicU16::from_ptr(at) }
    }

    fn ptr(&self) -> *mut u8 {
        self.0.iov_base.cast()
    }
}

impl std::fmt::Debug for Mem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Mem({:#x}+{})", self.addr(), self.len())
    }
}

/// Copies the bytes of the ranges `from` to those of `to`, in order. Panics if `to` is shorter.
pub fn copy_ranges(to: &[Mem], from: &[Mem]) {
    let mut to = to.iter().copied();
    let mut room = Mem::EMPTY;
    for &range in from {
        let mut rest = range;
        while !rest.is_empty() {
            if room.is_empty() {
                room = to.next().expect("more bytes than room");
            }
            let n = room.len().min(rest.len());
            room.copy(rest.slice(0, n));
            room = room.from(n);
            rest = rest.from(n);
        }
    }
}

/// Appends the part of `ranges` that begins `offset` bytes in and is `len` bytes long to `out`.
/// Panics if `ranges` is shorter.
pub fn sub_ranges(ranges: &[Mem], mut offset: usize, mut len: usize, out: &mut Vec<Mem>) {
    for range in ranges {
        if offset >= range.len() {
            offset -= range.len();
            continue;
        }
        if len == 0 {
            break;
        }
        let n = (range.len() - offset).min(len);
        out.push(range.slice(offset, n));
        offset = 0;
        len -= n;
    }
    assert_eq!(len, 0, "ranges shorter than asked");
}

/// Kill of a process between two stores to memory that it shares, for tests.
#[cfg(test)]
pub(crate) mod kill {
    use std::cell::Cell;

    thread_local! {
        /// Stores that are still made; `None` outside of [`after`].
        static STORES: Cell<Option<usize>> = const { Cell::new(None) };
    }

    /// Runs `body` on this thread, of which only the first `stores` stores are made by
    /// [`Mem::write_once`](super::Mem::write_once) and [`Mem::store_le16`](super::Mem::store_le16).
    /// Returns true if that was all of them.
    pub(crate) fn after(stores: usize, body: impl FnOnce()) -> bool {
        // One more than are made, so that 0 means that one was not.
        STORES.set(Some(stores + 1));
        body();
        STORES.take() != Some(0)
    }

    /// Counts a store; returns true if it must not be made.
    pub(super) fn has_come() -> bool {
        let left = STORES.get().map(|left| left.saturating_sub(1));
        STORES.set(left);
        left == Some(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn discarded_bytes_read_as_zeroes_and_their_neighbours_do_not_change() {
        let region = Region::new(4 * PAGE).unwrap();
        let all = region.mem(0, 4 * PAGE);
        for (from, len) in [
            (0, 4 * PAGE),
            (1, 2),
            (100, 2 * PAGE),
            (PAGE, PAGE),
            (PAGE - 1, 2),
        ] {
            all.write(&vec![7; 4 * PAGE]);
            region.discard(from, len);
            let mut bytes = vec![1; 4 * PAGE];
            all.read(&mut bytes);
            for (i, byte) in bytes.iter().enumerate() {
                assert_eq!(*byte == 0, (from..from + len).contains(&i), "at {i}");
            }
        }
    }

    #[test]
    fn ranges_copy_across_uneven_borders() {
        let region = Region::new(PAGE).unwrap();
        region.mem(0, 10).write(b"abcdefghij");
        let from = [region.mem(0, 3), region.mem(3, 0), region.mem(3, 7)];
        let to = [region.mem(100, 5), region.mem(200, 5)];
        copy_ranges(&to, &from);
        let mut got = [0; 5];
        region.mem(200, 5).read(&mut got);
        assert_eq!(&got, b"fghij");
        let mut out = Vec::new();
        sub_ranges(&from, 2, 3, &mut out);
        let bytes: Vec<u8> = out
            .iter()
            .flat_map(|m| {
                let mut b = vec![0; m.len()];
                m.read(&mut b);
                b
            })
            .collect();
        assert_eq!(bytes, b"cde");
    }

    #[test]
    fn numbers_and_bytes_are_where_they_were_written() {
        let region = Region::new(PAGE).unwrap();
        let mem = region.mem(8, 16);
        mem.store_le16(2, 0x1234);
        assert_eq!(mem.load_le16(2), 0x1234);
        assert_eq!(mem.read_once::<4>(1), [0, 0x34, 0x12, 0]);
        mem.set_bits(0, 0b101);
        mem.set_bits(0, 0b110);
        assert_eq!(mem.read_once::<1>(0), [0b111]);
        mem.write_once(13, [1, 2, 3]);
        let mut bytes = [0; 3];
        mem.from(13).read(&mut bytes);
        assert_eq!(bytes, [1, 2, 3]);
    }

    #[test]
    #[should_panic(expected = "not aligned")]
    fn a_number_at_an_odd_address_is_refused() {
        let region = Region::new(PAGE).unwrap();
        region.mem(1, 2).load_le16(0);
    }

    #[test]
    #[should_panic(expected = "outside its range")]
    fn a_slice_past_the_end_is_refused() {
        let region = Region::new(PAGE).unwrap();
        let _ = region.mem(0, 10).slice(8, 3);
    }
}
