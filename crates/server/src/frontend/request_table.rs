//! Request table of a loop: each request from its arrival to the end of its reply.

use tidegate_core::budget::buffer_bytes;
use tidegate_core::request::Op;
use tidegate_core::time::Nanos;

use super::request::{Answer, ConnectionRef, Incoming, Kind};
use crate::backing::extents::Extent;
use crate::buffer::{Buffer, Mem, Pool};
use crate::fault::Verdict;

/// Request between its arrival and the end of its reply.
#[derive(Debug)]
pub(crate) struct Slot {
    /// Distinguishes the request from earlier and later users of the slot.
    generation: u32,
    /// Connection that sent the request.
    pub(crate) owner: ConnectionRef,
    /// Index in the loop's VMs; this VM's budgets are charged.
    pub(crate) vm: u32,
    /// Index in the loop's disks.
    pub(crate) disk: u32,
    /// Identifier that the peer gave the request; for NBD, the cookie.
    pub(crate) token: u64,
    pub(crate) kind: Kind,
    /// Loop time at which the request was parsed, or since which it waited to be admitted.
    pub(crate) since: Nanos,
    pub(crate) offset: u64,
    pub(crate) len: u32,
    pub(crate) fua: bool,
    pub(crate) payload: Payload,
    /// True while the slot holds a claim on an engine slot, until the engine takes the request.
    pub(crate) claimed: bool,
    pub(crate) answer: Answer,
    /// Time for which the engine's account of the request stands, once it has succeeded there;
    /// `None` for requests that failed or that the engine did not serve.
    pub(crate) accounted: Option<Nanos>,
    /// Verdict of the disk's fault rules, once they have judged the request.
    pub(crate) fault: Option<Verdict>,
}

/// Memory of a request's payload.
#[derive(Debug)]
pub(crate) enum Payload {
    None,
    /// Buffer from the loop's pool.
    Pool(Buffer),
    /// Guest memory, listed beside the slot.
    Guest,
    /// Memory of the disk itself, which has the bytes of this read.
    Disk(Mem),
}

/// Resources of the engine that a released slot held.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Released {
    /// Index in the loop's VMs.
    pub(crate) vm: usize,
    /// Operation whose budget was charged.
    pub(crate) op: Op,
    /// True if the slot held a claim on an engine slot.
    pub(crate) claimed: bool,
    /// True if the payload was in guest memory.
    pub(crate) is_guests: bool,
    /// Bytes of payload memory that were charged; `None` if the slot had no buffer.
    pub(crate) bytes: Option<u32>,
}

/// Lists that few requests need. They stay with the slot's index, so that their memory is reused.
#[derive(Debug, Default)]
struct Lists {
    ranges: Vec<Mem>,
    extents: Vec<Extent>,
}

/// Slots of a loop with their payloads. Grows to the largest number in use at a time and never
/// shrinks, so that no request allocates.
#[derive(Debug)]
pub(crate) struct Requests {
    slots: Vec<Option<Slot>>,
    lists: Vec<Lists>,
    generations: Vec<u32>,
    free: Vec<u32>,
    /// Buffers for payloads; the engine's budgets bound their use.
    pool: Pool,
    /// Guest memory of the request that was polled last.
    pub(crate) offered: Vec<Mem>,
    /// Slots whose replies have ended, with the loop time at which each was sent; `None` if
    /// dropped.
    ended: Vec<(u32, Option<Nanos>)>,
    /// Number of replies from memory of disks that have ended.
    disk_replies_ended: u64,
}

impl Requests {
    /// Creates an empty table whose payloads are in `pool`.
    pub(crate) fn new(pool: Pool) -> Requests {
        Requests {
            slots: Vec::new(),
            lists: Vec::new(),
            generations: Vec::new(),
            free: Vec::new(),
            pool,
            offered: Vec::new(),
            ended: Vec::new(),
            disk_replies_ended: 0,
        }
    }

    /// Takes a slot for a request of `(vm, disk)` and returns its index.
    pub(crate) fn insert(
        &mut self,
        owner: ConnectionRef,
        (vm, disk): (u32, u32),
        request: &Incoming<u64>,
        since: Nanos,
    ) -> u32 {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.lists.push(Lists::default());
            self.generations.push(0);
            // Reserved here, so that freeing a slot never allocates.
            self.free.reserve(self.slots.len());
            self.slots.len() as u32 - 1
        });
        debug_assert!(
            self.slots[index as usize].is_none(),
            "a free slot has a request"
        );
        self.slots[index as usize] = Some(Slot {
            generation: self.generations[index as usize],
            owner,
            vm,
            disk,
            token: request.token,
            kind: request.kind,
            since,
            offset: request.offset,
            len: request.len,
            fua: request.fua,
            payload: Payload::None,
            claimed: false,
            answer: Answer::Ok,
            accounted: None,
            fault: None,
        });
        index
    }

    /// Frees a slot. Its payload must have been [released](Requests::release).
    pub(crate) fn remove(&mut self, index: u32) {
        let slot = self.slots[index as usize]
            .take()
            .expect("the slot is in use");
        debug_assert!(matches!(slot.payload, Payload::None), "memory would leak");
        // Tags of this request are stale from now on.
        self.generations[index as usize] = slot.generation.wrapping_add(1);
        self.free.push(index);
    }

    #[inline]
    pub(crate) fn get(&self, index: u32) -> &Slot {
        self.slots[index as usize]
            .as_ref()
            .expect("the slot is in use")
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, index: u32) -> &mut Slot {
        self.slots[index as usize]
            .as_mut()
            .expect("the slot is in use")
    }

    /// Returns the tag by which the engine knows a slot: its generation and index.
    pub(crate) fn tag(&self, index: u32) -> u64 {
        // The upper half tells users of one slot apart; `by_tag` checks it.
        u64::from(self.generations[index as usize]) << 32 | u64::from(index)
    }

    /// Returns the index of the slot with this tag. Panics if the tag is an earlier user's, because
    /// going on would answer a request twice.
    pub(crate) fn by_tag(&self, tag: u64) -> u32 {
        // The lower half of the tag; the upper half is the generation.
        let index = tag as u32;
        assert_eq!(
            self.generations[index as usize],
            (tag >> 32) as u32,
            "answered twice"
        );
        index
    }

    /// Returns true if a slot in use satisfies `such`.
    pub(crate) fn any_of(&self, such: impl Fn(&Slot) -> bool) -> bool {
        self.slots.iter().flatten().any(such)
    }

    /// Returns the number of slots in use.
    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Gives a request a buffer of `len` bytes for its payload.
    pub(crate) fn give_buffer(&mut self, index: u32, len: usize) {
        let buffer = self.pool.get(len);
        debug_assert!(
            matches!(self.get(index).payload, Payload::None),
            "the buffer that the request has would leak"
        );
        self.get_mut(index).payload = Payload::Pool(buffer);
    }

    /// Gives the read with this tag a buffer unless it has memory already.
    pub(crate) fn give_read_buffer(&mut self, tag: u64) {
        let index = self.by_tag(tag);
        let slot = self.get(index);
        if matches!(slot.payload, Payload::None) {
            self.give_buffer(index, slot.len as usize);
        }
    }

    /// Answers the read with this tag from `memory` of its disk. The disk must not be resized or
    /// detached while [a read is answered so](Requests::has_disk_memory).
    pub(crate) fn answer_from_disk(&mut self, tag: u64, memory: Mem) {
        let index = self.by_tag(tag);
        let slot = self.get_mut(index);
        debug_assert!(
            slot.kind == Kind::Read && memory.len() == slot.len as usize,
            "memory of a disk for another request than a read of that length"
        );
        debug_assert!(matches!(slot.payload, Payload::None), "a buffer would leak");
        slot.payload = Payload::Disk(memory);
    }

    /// Returns true if a reply is still to be sent from memory of this disk beyond `end`.
    pub(crate) fn has_disk_memory(&self, disk: usize, end: u64) -> bool {
        self.any_of(|slot| {
            let is_beyond = slot.offset + u64::from(slot.len) > end;
            slot.disk as usize == disk && is_beyond && matches!(slot.payload, Payload::Disk(_))
        })
    }

    /// Returns the number of replies from memory of disks that have ended, which tells whether to
    /// [look again](Requests::has_disk_memory).
    pub(crate) fn disk_replies_ended(&self) -> u64 {
        self.disk_replies_ended
    }

    /// Makes the [offered](Requests::offered) memory the payload of a request.
    pub(crate) fn take_offered(&mut self, index: u32) {
        self.keep_offered(index);
        self.get_mut(index).payload = Payload::Guest;
    }

    /// Keeps the [offered](Requests::offered) memory for the reply, beside the payload of the
    /// request.
    pub(crate) fn keep_offered(&mut self, index: u32) {
        std::mem::swap(&mut self.lists[index as usize].ranges, &mut self.offered);
    }

    /// Returns the guest memory that was kept for the reply to a request, also after the payload
    /// was [released](Requests::release).
    pub(crate) fn guest_memory(&self, index: u32) -> &[Mem] {
        &self.lists[index as usize].ranges
    }

    /// Returns the buffer of a request's payload; `None` without a payload or with one in memory of
    /// a guest or a disk.
    #[inline]
    pub(crate) fn buffer(&self, index: u32) -> Option<Mem> {
        match &self.get(index).payload {
            Payload::Pool(buffer) => Some(buffer.mem()),
            Payload::None | Payload::Guest | Payload::Disk(_) => None,
        }
    }

    /// Returns the memory that has the bytes of a reply, at least as long as the request; `None`
    /// for a reply without any, or with its bytes in guest memory.
    #[inline]
    pub(crate) fn reply_memory(&self, index: u32) -> Option<Mem> {
        match &self.get(index).payload {
            Payload::Disk(memory) => Some(*memory),
            _ => self.buffer(index),
        }
    }

    /// Returns the memory of `len` bytes of a payload from `offset` on, for the request with this
    /// tag; none where the bytes are not transferred, because they stay in memory of the disk.
    #[inline]
    pub(crate) fn ranges(&self, tag: u64, offset: usize, len: usize) -> Ranges<'_> {
        let index = self.by_tag(tag);
        match &self.get(index).payload {
            Payload::None | Payload::Disk(_) => Ranges::default(),
            Payload::Pool(buffer) => Ranges {
                one: Some(buffer.mem().slice(offset, len)),
                ..Ranges::default()
            },
            Payload::Guest => Ranges {
                one: None,
                rest: &self.lists[index as usize].ranges,
                offset,
                len,
            },
        }
    }

    /// Takes the empty list of extents of a slot, to be filled with an answer.
    pub(crate) fn take_extents(&mut self, index: u32) -> Vec<Extent> {
        let mut extents = std::mem::take(&mut self.lists[index as usize].extents);
        extents.clear();
        extents
    }

    /// Stores the extents that answer a request.
    pub(crate) fn put_extents(&mut self, index: u32, extents: Vec<Extent>) {
        self.lists[index as usize].extents = extents;
    }

    /// Returns the extents that answer a request.
    pub(crate) fn extents(&self, index: u32) -> &[Extent] {
        &self.lists[index as usize].extents
    }

    /// Takes a slot's payload and claim, and returns its buffer to the pool. Returns what the
    /// caller has to return to the engine.
    pub(crate) fn release(&mut self, index: u32) -> Released {
        let slot = self.get_mut(index);
        let released = Released {
            vm: slot.vm as usize,
            // A reply without an engine operation is charged to the memory for reads.
            op: slot.kind.op().unwrap_or(Op::Read),
            claimed: std::mem::take(&mut slot.claimed),
            is_guests: matches!(slot.payload, Payload::Guest),
            bytes: None,
        };
        match std::mem::replace(&mut slot.payload, Payload::None) {
            Payload::Pool(buffer) => {
                // The buffer's size is what was charged, because both round up to powers of two.
                let bytes = Some(buffer.size() as u32);
                self.pool.put(buffer);
                Released { bytes, ..released }
            }
            // Charged as the buffer that it did not need.
            Payload::Disk(memory) => {
                self.disk_replies_ended += 1;
                let bytes = Some(buffer_bytes(memory.len() as u32) as u32);
                Released { bytes, ..released }
            }
            Payload::None | Payload::Guest => released,
        }
    }

    /// Queues slots whose replies have ended to be freed by the loop. `sent` is the loop time at
    /// which the transport took the replies; `None` if it did not.
    pub(crate) fn end(&mut self, slots: impl Iterator<Item = u32>, sent: Option<Nanos>) {
        self.ended.extend(slots.map(|slot| (slot, sent)));
    }

    /// Returns true if there are slots to free.
    #[inline]
    pub(crate) fn has_ended(&self) -> bool {
        !self.ended.is_empty()
    }

    /// Takes the slots to be freed, in the order in which their replies ended.
    #[inline]
    pub(crate) fn take_ended(&mut self) -> Vec<(u32, Option<Nanos>)> {
        std::mem::take(&mut self.ended)
    }

    /// Puts the emptied list back, so that its memory is used again.
    #[inline]
    pub(crate) fn put_ended(&mut self, ended: Vec<(u32, Option<Nanos>)>) {
        debug_assert!(
            self.ended.is_empty(),
            "a slot that was given back meanwhile would leak"
        );
        self.ended = ended;
    }

    /// Returns the bytes of free buffers that still have pages.
    pub(crate) fn warm(&self) -> u64 {
        self.pool.warm()
    }

    /// Returns pages of at most `most` idle buffers to the system, see [`Pool::trim`].
    pub(crate) fn trim(&mut self, most: usize) {
        self.pool.trim(most);
    }
}

/// Iterator over the memory of a part of a payload, in order.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Ranges<'a> {
    one: Option<Mem>,
    rest: &'a [Mem],
    /// Bytes of `rest` before the part begins.
    offset: usize,
    /// Bytes of `rest` that belong to the part.
    len: usize,
}

impl Iterator for Ranges<'_> {
    type Item = Mem;

    #[inline]
    fn next(&mut self) -> Option<Mem> {
        // A buffer of the pool is contiguous, so it is one range and `rest` is empty.
        if let Some(one) = self.one.take() {
            return Some(one);
        }
        while self.len > 0 {
            let (&first, rest) = self.rest.split_first()?;
            self.rest = rest;
            if self.offset >= first.len() {
                self.offset -= first.len();
                continue;
            }
            let len = (first.len() - self.offset).min(self.len);
            let range = first.slice(self.offset, len);
            (self.offset, self.len) = (0, self.len - len);
            return Some(range);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffer::{PAGE, Region};

    const OWNER: ConnectionRef = ConnectionRef {
        index: 0,
        generation: 0,
    };

    fn request(kind: Kind, len: u32) -> Incoming<u64> {
        Incoming {
            kind,
            offset: 0,
            len,
            fua: false,
            token: 0,
        }
    }

    fn table() -> Requests {
        Requests::new(Pool::new(1 << 20).expect("address space"))
    }

    #[test]
    #[should_panic(expected = "answered twice")]
    fn a_tag_of_an_earlier_user_is_noticed() {
        let mut table = table();
        let slot = table.insert(OWNER, (0, 0), &request(Kind::Flush, 0), Nanos::ZERO);
        let tag = table.tag(slot);
        table.remove(slot);
        let again = table.insert(OWNER, (0, 0), &request(Kind::Flush, 0), Nanos::ZERO);
        assert_eq!(again, slot);
        table.by_tag(tag);
    }

    #[test]
    fn a_part_of_guest_memory_is_cut_out_of_its_ranges() {
        let region = Region::new(PAGE).expect("memory");
        let mut table = table();
        let slot = table.insert(OWNER, (0, 0), &request(Kind::Write, 30), Nanos::ZERO);
        let lens = [10, 0, 5, 15];
        table.offered = lens.map(|len| region.mem(100 * len, len)).to_vec();
        table.take_offered(slot);
        assert_eq!(table.release(slot).bytes, None, "none of the pool");
        table.get_mut(slot).payload = Payload::Guest;
        let part = |offset, len| -> Vec<usize> {
            let ranges = table.ranges(table.tag(slot), offset, len);
            ranges.map(|range| range.len()).collect()
        };
        assert_eq!(part(0, 30), [10, 5, 15]);
        assert_eq!(part(9, 7), [1, 5, 1]);
        assert_eq!(part(10, 5), [5]);
        let base = region.mem(1500, 15).addr();
        let last = table.ranges(table.tag(slot), 20, 10).next();
        assert_eq!(last.map(|range| range.addr()), Some(base + 5));
    }

    #[test]
    fn lists_of_extents_keep_their_memory_for_the_next_answer() {
        let mut table = table();
        let slot = table.insert(OWNER, (0, 0), &request(Kind::Flush, 0), Nanos::ZERO);
        let mut extents = table.take_extents(slot);
        let extent = Extent {
            len: 512,
            hole: true,
            zero: true,
        };
        extents.resize(1000, extent);
        let at = extents.as_ptr();
        table.put_extents(slot, extents);
        assert_eq!(table.extents(slot).len(), 1000);
        table.remove(slot);
        let again = table.insert(OWNER, (0, 0), &request(Kind::Flush, 0), Nanos::ZERO);
        assert_eq!(again, slot);
        let extents = table.take_extents(slot);
        assert_eq!((extents.len(), extents.as_ptr()), (0, at));
    }

    #[test]
    fn a_buffer_is_given_back_once_with_what_was_charged() {
        let mut table = table();
        let slot = table.insert(OWNER, (3, 0), &request(Kind::Write, 5000), Nanos::ZERO);
        table.give_buffer(slot, 5000);
        assert_eq!(table.buffer(slot).map(|mem| mem.len()), Some(8192));
        let released = table.release(slot);
        assert_eq!((released.vm, released.bytes), (3, Some(8192)));
        assert_eq!(table.release(slot).bytes, None);
        table.remove(slot);
        assert_eq!(table.len(), 0);
    }
}
