//! Split virtqueue, seen from the device (virtio 1.2, section 2.7).
//!
//! The driver may change every byte of the rings at any time. Indices and descriptors are read once
//! each and checked after that; a queue that breaks a rule is a [`Fault`], after which its device
//! is stopped.

use std::sync::atomic::{Ordering, fence};

use serde::{Deserialize, Serialize};

use super::dirty_log::{DirtyLog, UsedAddress};
use super::guest_memory::GuestMemory;
use super::inflight::{InflightQueue, Left, QueueRecord};
use crate::buffer::Mem;

/// Largest queue in entries, as in QEMU.
pub(super) const SIZE_MAX: u16 = 1024;
/// Most descriptors of a chain. An indirect table may have more entries than its queue.
const CHAIN_MAX: usize = SIZE_MAX as usize;

/// Most pieces of memory of a chain, which has more than one for a descriptor across regions.
const RANGES_MAX: usize = CHAIN_MAX + 64;

/// Bytes of a descriptor.
const DESCRIPTOR: usize = 16;
/// Bytes before the entries of both rings: flags and index.
const RING_HEAD: usize = 4;
/// Offset of both rings' index.
const INDEX: usize = 2;
/// Bytes of an entry of the used ring.
const USED_ENTRY: usize = 8;

/// `VIRTQ_DESC_F_NEXT`: another descriptor follows.
const NEXT: u16 = 1;
/// `VIRTQ_DESC_F_WRITE`: the device writes into the buffer.
const WRITE: u16 = 2;
/// `VIRTQ_DESC_F_INDIRECT`: the buffer is a table of descriptors.
const INDIRECT: u16 = 4;
/// `VIRTQ_AVAIL_F_NO_INTERRUPT`: the driver wants no notification.
const NO_INTERRUPT: u16 = 1;
/// `VIRTQ_USED_F_NO_NOTIFY`: the device wants no kick.
const NO_NOTIFY: u16 = 1;

/// Rule of virtqueues that a driver has broken.
pub(super) type Fault = &'static str;

/// Addresses of a queue's parts in the front-end's address space.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct RingAddresses {
    pub(crate) descriptors: u64,
    pub(crate) available: u64,
    pub(crate) used: u64,
}

/// Returns the bytes of the used ring of a queue with `size` entries.
pub(super) fn used_bytes(size: usize) -> usize {
    RING_HEAD + USED_ENTRY * size + 2
}

/// Parts of a queue in guest memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rings {
    descriptors: Mem,
    available: Mem,
    used: Mem,
}

impl Rings {
    /// Returns the rings of a queue with `size` entries.
    ///
    /// # Errors
    /// A message if one is outside of guest memory or not aligned.
    pub(super) fn locate(
        memory: &GuestMemory,
        size: u16,
        at: &RingAddresses,
    ) -> Result<Rings, String> {
        let size = usize::from(size);
        // Rings of two-byte entries and of eight-byte entries, each followed by an event index.
        let parts = [
            ("descriptor table", at.descriptors, size * DESCRIPTOR, 16),
            ("available ring", at.available, RING_HEAD + 2 * size + 2, 2),
            ("used ring", at.used, used_bytes(size), 4),
        ];
        let mut found = [Mem::EMPTY; 3];
        for (mem, (what, address, len, align)) in found.iter_mut().zip(parts) {
            *mem = (memory.at_user(address, len))
                .filter(|mem| mem.addr().is_multiple_of(align))
                .ok_or_else(|| format!("the {what} at {address:#x} is not in guest memory"))?;
        }
        let [descriptors, available, used] = found;
        Ok(Rings {
            descriptors,
            available,
            used,
        })
    }
}

/// Features and place of a queue that starts.
#[derive(Clone, Copy, Debug)]
pub(super) struct QueueSetup {
    pub(super) rings: Rings,
    /// Number of entries, a power of two.
    pub(super) size: u16,
    /// Index of the next available entry.
    pub(super) base: u16,
    /// True with `VIRTIO_F_EVENT_IDX`.
    pub(super) event_index: bool,
    /// True with `VIRTIO_F_INDIRECT_DESC`.
    pub(super) indirect: bool,
    /// Place of the used ring in a dirty log.
    pub(super) logged_at: UsedAddress,
}

/// Buffers of a chain.
#[derive(Default, Debug)]
pub(super) struct Chain {
    /// Memory that the device reads, in order.
    pub(super) readable: Vec<Mem>,
    /// Memory that the device writes, in order.
    pub(super) writable: Vec<Mem>,
}

/// Request that was taken from the queue and not answered yet, by the head of its chain.
#[derive(Clone, Copy, Debug)]
struct Taken {
    /// Memory of the status byte; `None` while the head is free.
    status: Option<Mem>,
}

/// State of a queue.
#[derive(Debug)]
pub(super) struct Virtqueue {
    rings: Rings,
    size: u16,
    event_index: bool,
    indirect: bool,
    logged_at: UsedAddress,
    /// Next entry of the available ring to take.
    next_available: u16,
    /// Available index when it was read last.
    seen_available: u16,
    /// Next entry of the used ring to fill.
    next_used: u16,
    /// Number of answers that the driver does not see yet, at most the queue's entries.
    unpublished: u16,
    /// True if kicks are suppressed by the flag in the used ring.
    suppressed: bool,
    taken: Box<[Taken]>,
    /// Number of requests that were taken and not answered.
    in_flight: u16,
    /// Heads of requests that an earlier session took, to be taken again from the back; until then
    /// no new one is.
    left: Vec<u16>,
    /// Record of requests in flight; `None` if the front-end keeps none.
    inflight: Option<InflightQueue>,
}

impl Virtqueue {
    /// Makes a queue that goes on where the rings are.
    pub(super) fn new(setup: &QueueSetup) -> Virtqueue {
        assert!(
            setup.size.is_power_of_two() && setup.size <= SIZE_MAX,
            "a queue of {} entries",
            setup.size
        );
        let used = setup.rings.used.load_le16(INDEX);
        Virtqueue {
            rings: setup.rings,
            size: setup.size,
            event_index: setup.event_index,
            indirect: setup.indirect,
            logged_at: setup.logged_at,
            next_available: setup.base,
            seen_available: setup.base,
            next_used: used,
            unpublished: 0,
            suppressed: false,
            taken: vec![Taken { status: None }; usize::from(setup.size)].into_boxed_slice(),
            in_flight: 0,
            left: Vec::new(),
            inflight: None,
        }
    }

    /// Goes on with the record of an earlier session, and records requests from now on. Nothing may
    /// have been taken yet.
    ///
    /// # Errors
    /// If the record cannot be one of this queue.
    pub(super) fn recover(&mut self, record: QueueRecord) -> Result<(), Fault> {
        let (inflight, left) = InflightQueue::recover(record, self.size, self.next_used)?;
        self.inflight = Some(inflight);
        if let Left::Requests(left) = left {
            // Each entry that was taken is answered or left, whatever index the front-end sent: it
            // knows the used index alone.
            self.next_available = self.next_used.wrapping_add(left.len() as u16);
            self.seen_available = self.next_available;
            self.left = left;
        }
        Ok(())
    }

    /// Returns the number of requests of an earlier session that were not taken again yet, at most
    /// the queue's entries.
    pub(super) fn left(&self) -> u16 {
        self.left.len() as u16
    }

    /// Returns true if the memory that records requests in flight is gone.
    pub(super) fn has_lost_record(&self) -> bool {
        (self.inflight.as_ref()).is_some_and(InflightQueue::is_truncated)
    }

    /// Returns the index of the next available entry.
    pub(super) fn next_available(&self) -> u16 {
        self.next_available
    }

    /// Returns the number of requests that were taken and not answered.
    pub(super) fn in_flight(&self) -> u16 {
        self.in_flight
    }

    /// Returns true if nothing was taken that was not answered, and the driver sees all answers.
    pub(super) fn is_drained(&self) -> bool {
        self.in_flight == 0 && self.unpublished == 0
    }

    /// Moves the rings to where they are in a new memory table. Nothing may be in flight.
    pub(super) fn move_rings(&mut self, rings: Rings) {
        assert!(
            self.is_drained(),
            "a queue is moved with requests in flight"
        );
        self.rings = rings;
    }

    /// Sets the place of the used ring in dirty logs.
    pub(super) fn log_at(&mut self, logged_at: UsedAddress) {
        self.logged_at = logged_at;
    }

    /// Marks bytes of the used ring that were written.
    #[inline]
    fn mark_used(&self, log: Option<&DirtyLog>, offset: usize, len: usize) {
        if let (Some(log), Some(guest)) = (log, self.logged_at) {
            log.mark(guest + offset as u64, len as u64);
        }
    }

    /// Marks the entries of the used ring that the driver does not see yet.
    fn mark_entries(&self, log: Option<&DirtyLog>) {
        let size = usize::from(self.size);
        let first = usize::from(self.next_used.wrapping_sub(self.unpublished)) & (size - 1);
        // Up to the ring's end, and the rest from its start on.
        let until_end = usize::from(self.unpublished).min(size - first);
        let from_start = usize::from(self.unpublished) - until_end;
        for (first, entries) in [(first, until_end), (0, from_start)] {
            if entries > 0 {
                self.mark_used(log, RING_HEAD + USED_ENTRY * first, USED_ENTRY * entries);
            }
        }
    }

    /// Takes the next available chain: its head, with its buffers in `chain`; `None` if there is
    /// none.
    ///
    /// # Errors
    /// If the driver broke a rule.
    #[inline]
    pub(super) fn take(
        &mut self,
        memory: &GuestMemory,
        chain: &mut Chain,
    ) -> Result<Option<u16>, Fault> {
        if self.next_available == self.seen_available {
            if let Some(head) = self.left.pop() {
                self.read_chain(memory, head, chain)?;
                return Ok(Some(head));
            }
            if !self.look()? {
                return Ok(None);
            }
        }
        let at = RING_HEAD + 2 * usize::from(self.next_available & (self.size - 1));
        let head = u16::from_le_bytes(self.rings.available.read_once(at));
        if head >= self.size {
            return Err("an available entry is not a descriptor");
        }
        // A driver that has not seen an answer cannot use its entry again.
        if self.in_flight + self.unpublished >= self.size {
            return Err("more requests at a time than the queue has entries");
        }
        if self.taken[usize::from(head)].status.is_some() {
            return Err("a descriptor is available twice");
        }
        self.next_available = self.next_available.wrapping_add(1);
        if let Some(inflight) = &mut self.inflight {
            inflight.take(head);
        }
        self.read_chain(memory, head, chain)?;
        Ok(Some(head))
    }

    /// Reads the available index; returns true if there is an entry to take.
    fn look(&mut self) -> Result<bool, Fault> {
        self.seen_available = self.rings.available.load_le16(INDEX);
        let ready = self.seen_available.wrapping_sub(self.next_available);
        if ready > self.size {
            return Err("more entries are available than the queue has");
        }
        Ok(ready > 0)
    }

    fn read_chain(&self, memory: &GuestMemory, head: u16, chain: &mut Chain) -> Result<(), Fault> {
        chain.readable.clear();
        chain.writable.clear();
        let (mut table, mut entries) = (self.rings.descriptors, self.size);
        let (mut index, mut is_indirect) = (head, false);
        // A chain that has more descriptors than this is a loop, or as bad.
        for _ in 0..CHAIN_MAX {
            if index >= entries {
                return Err("a descriptor is outside of its table");
            }
            let at = usize::from(index) * DESCRIPTOR;
            let descriptor = Descriptor::new(table.read_once(at));
            if descriptor.flags & INDIRECT != 0 {
                if !self.indirect || is_indirect || descriptor.flags & NEXT != 0 {
                    return Err("an indirect descriptor where none may be");
                }
                (table, entries) = indirect_table(memory, &descriptor)?;
                (index, is_indirect) = (0, true);
                continue;
            }
            if descriptor.len == 0 {
                return Err("a descriptor without bytes");
            }
            let writable = descriptor.flags & WRITE != 0;
            if !writable && !chain.writable.is_empty() {
                return Err("memory to read behind memory to write");
            }
            let list = if writable {
                &mut chain.writable
            } else {
                &mut chain.readable
            };
            if !memory.push(descriptor.address, descriptor.len, list) {
                return Err("a descriptor's memory is not the guest's");
            }
            // Each descriptor may lie across regions, but not all of them across many.
            if chain.readable.len() + chain.writable.len() > RANGES_MAX {
                return Err("a chain of too many pieces of memory");
            }
            if descriptor.flags & NEXT == 0 {
                return Ok(());
            }
            index = descriptor.next;
        }
        Err("a chain of descriptors without an end")
    }

    /// Notes the status byte of the request that was taken with `head`.
    #[inline]
    pub(super) fn begin(&mut self, head: u16, status: Mem) {
        let taken = &mut self.taken[usize::from(head)];
        assert!(taken.status.is_none(), "a descriptor is taken twice");
        taken.status = Some(status);
        self.in_flight += 1;
    }

    /// Answers a request: its status, and the number of bytes written to its memory, status
    /// included. The driver sees it with the next [`Virtqueue::publish`]. Returns the memory of the
    /// status, which was written.
    #[inline]
    pub(super) fn end(&mut self, head: u16, status: u8, written: u32) -> Mem {
        let taken = self.taken[usize::from(head)].status.take();
        let memory = taken.expect("it is in flight");
        memory.write_once(0, [status]);
        self.in_flight -= 1;
        let at = RING_HEAD + USED_ENTRY * usize::from(self.next_used & (self.size - 1));
        let mut entry = [0; USED_ENTRY];
        entry[..4].copy_from_slice(&u32::from(head).to_le_bytes());
        entry[4..].copy_from_slice(&written.to_le_bytes());
        self.rings.used.write_once(at, entry);
        if let Some(inflight) = &mut self.inflight {
            inflight.end(head);
        }
        self.next_used = self.next_used.wrapping_add(1);
        self.unpublished += 1;
        memory
    }

    /// Shows the driver all answers; returns true if it wants to be notified. Marks in the log what
    /// was written to the used ring.
    pub(super) fn publish(&mut self, log: Option<&DirtyLog>) -> bool {
        if log.is_some() {
            self.mark_entries(log);
        }
        let shown = std::mem::take(&mut self.unpublished);
        if shown == 0 {
            return false;
        }
        self.rings.used.store_le16(INDEX, self.next_used);
        if let Some(inflight) = &mut self.inflight {
            inflight.publish(self.next_used);
        }
        self.mark_used(log, INDEX, size_of::<u16>());
        // The index must be visible before the driver's wish is read: it writes its wish and then
        // reads the index.
        fence(Ordering::SeqCst);
        if !self.event_index {
            return self.rings.available.load_le16(0) & NO_INTERRUPT == 0;
        }
        let wish = (self.rings.available).load_le16(RING_HEAD + 2 * usize::from(self.size));
        // True if the index has gone past the wish (`vring_need_event`).
        let past = self.next_used.wrapping_sub(wish).wrapping_sub(1);
        past < shown
    }

    /// Asks the driver for no kicks. With event indices nothing has to be done: the driver kicks
    /// once for the entry that the last [`Virtqueue::want_kicks`] named.
    #[inline]
    pub(super) fn suppress_kicks(&mut self, log: Option<&DirtyLog>) {
        if !self.event_index && !self.suppressed {
            self.suppressed = true;
            self.rings.used.store_le16(0, NO_NOTIFY);
            self.mark_used(log, 0, size_of::<u16>());
        }
    }

    /// Asks the driver for a kick with its next entry. Returns true if there is one already.
    ///
    /// # Errors
    /// If the driver broke a rule.
    pub(super) fn want_kicks(&mut self, log: Option<&DirtyLog>) -> Result<bool, Fault> {
        let (at, value) = if self.event_index {
            let at = RING_HEAD + USED_ENTRY * usize::from(self.size);
            (at, self.next_available)
        } else {
            self.suppressed = false;
            (0, 0)
        };
        self.rings.used.store_le16(at, value);
        self.mark_used(log, at, size_of::<u16>());
        // The wish must be visible before the index is read, as in `publish`.
        fence(Ordering::SeqCst);
        // New entries are not looked at before those that are left.
        Ok(self.left() > 0 || self.look()?)
    }
}

/// Descriptor as it was read.
struct Descriptor {
    address: u64,
    len: u32,
    flags: u16,
    next: u16,
}

impl Descriptor {
    fn new(bytes: [u8; DESCRIPTOR]) -> Descriptor {
        // One number, so that the fields are taken out of registers.
        let all = u128::from_le_bytes(bytes);
        Descriptor {
            address: all as u64,
            len: (all >> 64) as u32,
            flags: (all >> 96) as u16,
            next: (all >> 112) as u16,
        }
    }
}

/// Returns an indirect table and its number of entries.
fn indirect_table(memory: &GuestMemory, of: &Descriptor) -> Result<(Mem, u16), Fault> {
    let len = of.len as usize;
    if len == 0 || !len.is_multiple_of(DESCRIPTOR) || len / DESCRIPTOR > CHAIN_MAX {
        return Err("an indirect table of a wrong length");
    }
    let table = memory.at_guest(of.address, len);
    let table = table.ok_or("an indirect table is not in the guest's memory")?;
    Ok((table, (len / DESCRIPTOR) as u16))
}

#[cfg(test)]
#[path = "virtqueue_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "recovery_tests.rs"]
mod recovery_tests;
