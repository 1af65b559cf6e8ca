//! Mapped files that are cut short under their mapping: guest memory, and files on tmpfs.
//!
//! An access to such a page raises SIGBUS, which would end the daemon and all its other guests. The
//! handler puts zeroes there instead, up to the end of the mapping, and marks the mapping: the
//! connection of a guest whose memory it is is then closed before anything is answered, and what
//! was copied from a disk's file is read again by a system call. So it is for a page that the
//! hardware has lost. The kernel's own accesses, for I/O, fail with `EFAULT` and raise nothing.

use std::io;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};

use crate::vm_resources::VM_REGIONS_MAX;

/// Most mappings at a time, over all guests and files: those of sixteen VMs that have all they
/// may. The kernel's limit on mappings of a process, 65,530, has room for two of each, as one that
/// was cut short needs.
const ENTRIES: usize = 16_384;
const _: () = assert!(ENTRIES as u64 == 16 * VM_REGIONS_MAX);

/// Mapping that is looked after. All of it is atomic, because the handler interrupts any thread.
struct Entry {
    taken: AtomicBool,
    /// Number of times that the entry was filled or emptied.
    version: AtomicUsize,
    /// First address; 0 while the entry is not complete.
    base: AtomicUsize,
    len: AtomicUsize,
    /// Bytes of a page of the mapping, a power of two.
    page: AtomicUsize,
    faulted: AtomicBool,
}

impl Entry {
    /// Changes the mapping, by the one thread that has taken the entry.
    fn put(&self, base: usize, len: usize, page: usize) {
        // No mapping while its fields change: a reader that sees the version sees it.
        self.base.store(0, Ordering::Relaxed);
        self.version.fetch_add(1, Ordering::Release);
        // A reader that sees one of the fields sees the version behind them.
        fence(Ordering::Release);
        self.len.store(len, Ordering::Relaxed);
        self.page.store(page, Ordering::Relaxed);
        self.base.store(base, Ordering::Release);
    }

    /// Returns the bytes of the mapping from the page of an address to its end, as their first
    /// address and their number, and the bytes of a page; `None` if the address is not in the
    /// mapping.
    fn rest_from(&self, address: usize) -> Option<(usize, usize, usize)> {
        let version = self.version.load(Ordering::Acquire);
        let base = self.base.load(Ordering::Acquire);
        let len = self.len.load(Ordering::Relaxed);
        let page = self.page.load(Ordering::Relaxed);
        // Fields of two mappings make a third one, which may be memory of the daemon. The mapping
        // of the address stays while it is accessed, so its entry does not change meanwhile.
        fence(Ordering::Acquire);
        let is_one = self.version.load(Ordering::Relaxed) == version;
        if !is_one || base == 0 || address < base || address - base >= len {
            return None;
        }
        let from = address & !(page - 1);
        Some((from, base + len - from, page))
    }
}

/// Number of accesses that the handler has answered with zeroes.
static FAULTS: AtomicUsize = AtomicUsize::new(0);

/// Returns a number that changes whenever a page of any mapping was not there.
#[inline]
pub(crate) fn faults() -> usize {
    FAULTS.load(Ordering::Relaxed)
}

static TABLE: [Entry; ENTRIES] = [const {
    Entry {
        taken: AtomicBool::new(false),
        version: AtomicUsize::new(0),
        base: AtomicUsize::new(0),
        len: AtomicUsize::new(0),
        page: AtomicUsize::new(0),
        faulted: AtomicBool::new(false),
    }
}; ENTRIES];

/// Entry of a mapping, which must be dropped before it is unmapped.
#[derive(Debug)]
pub(crate) struct Guard(usize);

impl Guard {
    /// Looks after `len` bytes at `base`, in pages of `page` bytes.
    ///
    /// # Errors
    /// If there are too many mappings.
    pub(crate) fn new(base: usize, len: usize, page: usize) -> io::Result<Guard> {
        install();
        let free = |entry: &Entry| !entry.taken.swap(true, Ordering::Acquire);
        let Some(at) = TABLE.iter().position(free) else {
            return Err(io::Error::other(
                "too many mappings of guest memory and files",
            ));
        };
        let entry = &TABLE[at];
        entry.faulted.store(false, Ordering::Relaxed);
        entry.put(base, len, page);
        Ok(Guard(at))
    }

    /// Returns true if a page of the mapping was not there when it was accessed.
    #[inline]
    pub(crate) fn has_faulted(&self) -> bool {
        TABLE[self.0].faulted.load(Ordering::Relaxed)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        TABLE[self.0].put(0, 0, 0);
        TABLE[self.0].taken.store(false, Ordering::Release);
    }
}

/// Returns the number of mappings that are looked after.
#[cfg(any(test, feature = "fuzzing"))]
pub(super) fn mappings() -> usize {
    let taken = |entry: &&Entry| entry.taken.load(Ordering::Acquire);
    TABLE.iter().filter(taken).count()
}

/// Installs the handler, once.
pub(crate) fn install() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        // SAFETY: a signal action of zeroes is valid: no flags, no mask.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = handle as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        // SAFETY: both point to memory of ours; the handler makes only calls that may interrupt
        // anything.
        let failed = unsafe { libc::sigaction(libc::SIGBUS, &action, std::ptr::null_mut()) };
        // Fails only for a signal that cannot be handled, which SIGBUS is not.
        assert_eq!(failed, 0, "SIGBUS cannot be handled");
    });
}

/// Handler of SIGBUS: an access to a mapping finds zeroes, anything else ends the process.
extern "C" fn handle(_: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: with `SA_SIGINFO` the kernel passes the signal's description.
    let (code, address) = unsafe { ((*info).si_code, (*info).si_addr() as usize) };
    // A page that is broken and that nothing accesses: the mapping may go at any time.
    if code == libc::BUS_MCEERR_AO {
        return;
    }
    for entry in &TABLE {
        // Signals that a process sent have no address.
        if code <= 0 {
            break;
        }
        let Some((from, len, page)) = entry.rest_from(address) else {
            continue;
        };
        // All that follows, because each page by itself would be a mapping, of which a process may
        // have only so many. Where memory is not overcommitted there may not be so much of it.
        if map_zeroes(from, len) || map_zeroes(from, page) {
            entry.faulted.store(true, Ordering::Relaxed);
            FAULTS.fetch_add(1, Ordering::Relaxed);
            return;
        }
        break;
    }
    // SAFETY: sets the default action of a signal.
    if unsafe { libc::signal(libc::SIGBUS, libc::SIG_DFL) } == libc::SIG_ERR {
        // The sandbox refuses that, and the access would fault again without end.
        // SAFETY: takes no memory, and may be called while anything is interrupted.
        unsafe { libc::abort() };
    }
    // Ends the process once this handler has returned, as it would have without one.
    // SAFETY: sends a signal to this thread.
    unsafe { libc::raise(libc::SIGBUS) };
}

/// Maps zeroes in place of a part of a mapping that is looked after and in use by this thread.
/// Returns false if the kernel refuses.
fn map_zeroes(from: usize, len: usize) -> bool {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_NORESERVE;
    // SAFETY: pages inside a mapping that cannot be unmapped meanwhile, because its guard is
    // dropped first and the thread that is interrupted uses it.
    let mapped = unsafe {
        libc::mmap(
            from as *mut libc::c_void,
            len,
            libc::PROT_READ | libc::PROT_WRITE,
            flags,
            -1,
            0,
        )
    };
    mapped != libc::MAP_FAILED
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Addresses that no process has, so that the handler never finds them.
    const NOWHERE: usize = 1 << 60;
    const PAGE: usize = 4096;

    #[test]
    fn an_entry_that_changes_meanwhile_is_never_read_as_a_mixture_of_two() {
        let entry = Entry {
            taken: AtomicBool::new(true),
            version: AtomicUsize::new(0),
            base: AtomicUsize::new(0),
            len: AtomicUsize::new(0),
            page: AtomicUsize::new(0),
            faulted: AtomicBool::new(false),
        };
        // A short mapping below the address and a long one above it: the base of one with the
        // length of the other would have the address inside.
        let address = NOWHERE + 4 * PAGE;
        let mappings = [(NOWHERE, PAGE), (NOWHERE + (PAGE << 20), PAGE << 10)];
        let ends = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..200_000 {
                    for (base, len) in mappings {
                        entry.put(base, len, PAGE);
                    }
                }
                ends.store(true, Ordering::Relaxed);
            });
            while !ends.load(Ordering::Relaxed) {
                assert_eq!(entry.rest_from(address), None);
            }
        });
        entry.put(NOWHERE, 8 * PAGE, PAGE);
        let rest = Some((address, 4 * PAGE, PAGE));
        assert_eq!(entry.rest_from(address + 1), rest);
        assert_eq!(entry.rest_from(NOWHERE + 8 * PAGE), None);
        entry.put(0, 0, 0);
        assert_eq!(entry.rest_from(address), None);
    }
}
