//! Model of a split virtqueue: slow, and independent of the code that it is compared with.
//!
//! Reads guest memory by system calls on its files, byte by byte, and describes memory by guest
//! addresses.

use std::collections::BTreeSet;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use crate::buffer::Mem;
use crate::frontend::vhost_user::guest_memory::testing::memfd;
use crate::frontend::vhost_user::guest_memory::{GuestMemory, Region, RegionAddress};
use crate::frontend::vhost_user::virtqueue::RingAddresses;

/// Most descriptors of a chain, and most pieces of memory.
const DESCRIPTORS_MAX: usize = 1024;
const PIECES_MAX: usize = DESCRIPTORS_MAX + 64;

/// Range of guest memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Piece {
    pub(super) guest: u64,
    pub(super) len: u64,
}

/// Guest memory with its files.
pub(super) struct Memory {
    pub(super) table: GuestMemory,
    regions: Vec<(RegionAddress, Arc<File>)>,
}

impl Memory {
    /// Maps regions, each of a file of its own.
    pub(super) fn new(addresses: &[RegionAddress]) -> Memory {
        let mut regions = Vec::new();
        let mut mapped = Vec::new();
        for &address in addresses {
            let file = memfd(address.offset + address.len);
            mapped.push(Arc::new(
                Region::map(address, &file, &Arc::default()).expect("a sound region"),
            ));
            regions.push((address, Arc::new(file)));
        }
        let table = GuestMemory::new(mapped).expect("a sound table");
        Memory { table, regions }
    }

    /// Returns the number of regions.
    pub(super) fn regions(&self) -> usize {
        self.regions.len()
    }

    /// Returns the file of a region and the offset of its first byte.
    pub(super) fn file(&self, index: usize) -> (Arc<File>, RegionAddress) {
        let (address, file) = &self.regions[index];
        (file.clone(), *address)
    }

    fn byte(&self, at: u64, first: impl Fn(&RegionAddress) -> u64) -> Option<u8> {
        let (address, file) = (self.regions.iter())
            .find(|(address, _)| at >= first(address) && at - first(address) < address.len)?;
        let mut byte = [0];
        let offset = address.offset + (at - first(address));
        file.read_exact_at(&mut byte, offset).expect("inside");
        Some(byte[0])
    }

    /// Returns `N` bytes at an address of the guest; `None` if one is not in its memory.
    pub(super) fn at_guest<const N: usize>(&self, at: u64) -> Option<[u8; N]> {
        let mut bytes = [0; N];
        for (n, byte) in bytes.iter_mut().enumerate() {
            *byte = self.byte(at.checked_add(n as u64)?, |address| address.guest)?;
        }
        Some(bytes)
    }

    /// Returns `N` bytes at an address of the front-end, which must be in memory.
    pub(super) fn at_user<const N: usize>(&self, at: u64) -> [u8; N] {
        let byte = |n: usize| self.byte(at + n as u64, |address| address.user);
        std::array::from_fn(|n| byte(n).expect("rings are in memory"))
    }

    fn u16_at(&self, user: u64) -> u16 {
        u16::from_le_bytes(self.at_user(user))
    }

    /// Returns true if `len` bytes at an address of the front-end are inside one region.
    pub(super) fn has_user(&self, user: u64, len: u64) -> bool {
        self.regions.iter().any(|(address, _)| {
            user >= address.user
                && u128::from(user - address.user) + u128::from(len) <= u128::from(address.len)
        })
    }

    /// Returns the number of regions that a range is in; `None` if part of it is in none.
    fn pieces(&self, guest: u64, len: u64) -> Option<usize> {
        let end = u128::from(guest) + u128::from(len);
        let (mut pieces, mut covered) = (0, 0);
        for (address, _) in &self.regions {
            let last = u128::from(address.guest) + u128::from(address.len);
            let from = u128::from(guest).max(address.guest.into());
            if from < end.min(last) {
                pieces += 1;
                covered += end.min(last) - from;
            }
        }
        (covered == u128::from(len)).then_some(pieces)
    }

    /// Returns memory that the device would use as guest memory, joined where pieces meet.
    ///
    /// # Panics
    /// If a byte is in no region, or a range is empty.
    pub(super) fn locate(&self, memory: &[Mem]) -> Vec<Piece> {
        let mut pieces = Vec::new();
        for mem in memory {
            let inside = self.regions.iter().find_map(|(address, _)| {
                let all = self.table.at_guest(address.guest, address.len as usize)?;
                let from = mem.addr().checked_sub(all.addr())? as u64;
                let is_inside = from < address.len && mem.len() as u64 <= address.len - from;
                is_inside.then(|| address.guest + from)
            });
            let guest = inside.unwrap_or_else(|| panic!("{mem:?} is not in guest memory"));
            assert!(!mem.is_empty(), "a range without bytes");
            push(&mut pieces, guest, mem.len() as u64);
        }
        pieces
    }
}

/// Appends a range, joined with the last one if they meet.
pub(super) fn push(pieces: &mut Vec<Piece>, guest: u64, len: u64) {
    match pieces.last_mut() {
        Some(last) if last.guest + last.len == guest => last.len += len,
        _ => pieces.push(Piece { guest, len }),
    }
}

/// Result of taking a chain.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum Taken {
    Nothing,
    Fault,
    Chain {
        head: u16,
        readable: Vec<Piece>,
        writable: Vec<Piece>,
    },
}

/// State of a queue.
pub(super) struct Model {
    pub(super) rings: RingAddresses,
    pub(super) size: u16,
    pub(super) event_index: bool,
    pub(super) indirect: bool,
    /// Index of the next available entry, and the last index that was seen.
    pub(super) next: u16,
    pub(super) seen: u16,
    pub(super) used: u16,
    pub(super) unpublished: u16,
    pub(super) in_flight: BTreeSet<u16>,
}

impl Model {
    /// Returns the result of taking the next chain, which then has to be noted.
    pub(super) fn take(&mut self, memory: &Memory) -> Taken {
        if self.next == self.seen {
            match self.look(memory) {
                None => return Taken::Fault,
                Some(false) => return Taken::Nothing,
                Some(true) => {}
            }
        }
        let entry = 4 + 2 * u64::from(self.next % self.size);
        let head = memory.u16_at(self.rings.available + entry);
        let taken = self.in_flight.len() + usize::from(self.unpublished);
        if head >= self.size || taken >= usize::from(self.size) || self.in_flight.contains(&head) {
            return Taken::Fault;
        }
        self.next = self.next.wrapping_add(1);
        self.chain(memory, head).unwrap_or(Taken::Fault)
    }

    /// Reads the available index; returns true if there is an entry, `None` for a fault.
    pub(super) fn look(&mut self, memory: &Memory) -> Option<bool> {
        self.seen = memory.u16_at(self.rings.available + 2);
        let ready = self.seen.wrapping_sub(self.next);
        (ready <= self.size).then_some(ready > 0)
    }

    fn chain(&self, memory: &Memory, head: u16) -> Option<Taken> {
        let (mut readable, mut writable) = (Vec::new(), Vec::new());
        // Address, entries and whether it is an indirect one: of the table that is read.
        let (mut table, mut entries, mut inner) = (None, u64::from(self.size), false);
        let (mut index, mut pieces) = (head, 0);
        for _ in 0..DESCRIPTORS_MAX {
            if u64::from(index) >= entries {
                return None;
            }
            let at = 16 * u64::from(index);
            let bytes: [u8; 16] = match table {
                None => memory.at_user(self.rings.descriptors + at),
                Some(guest) => memory.at_guest(guest + at)?,
            };
            let field = |from: usize, len: usize| {
                bytes[from..from + len]
                    .iter()
                    .rev()
                    .fold(0, |all, &byte| all << 8 | u64::from(byte))
            };
            let (address, len, flags) = (field(0, 8), field(8, 4), field(12, 2));
            let (next, write, indirect) = (flags & 1 != 0, flags & 2 != 0, flags & 4 != 0);
            if indirect {
                let is_sound = self.indirect && !inner && !next && len > 0 && len % 16 == 0;
                if !is_sound
                    || len / 16 > DESCRIPTORS_MAX as u64
                    || memory.pieces(address, len) != Some(1)
                {
                    return None;
                }
                (table, entries, inner, index) = (Some(address), len / 16, true, 0);
                continue;
            }
            pieces += memory.pieces(address, len).filter(|_| len > 0)?;
            if (!write && !writable.is_empty()) || pieces > PIECES_MAX {
                return None;
            }
            push(
                if write { &mut writable } else { &mut readable },
                address,
                len,
            );
            if !next {
                return Some(Taken::Chain {
                    head,
                    readable,
                    writable,
                });
            }
            index = field(14, 2) as u16;
        }
        None
    }

    /// Notes that a chain was answered: the entry of the used ring must be there.
    pub(super) fn end(&mut self, memory: &Memory, head: u16, written: u32) {
        assert!(self.in_flight.remove(&head), "an answer to no request");
        let at = self.rings.used + 4 + 8 * u64::from(self.used % self.size);
        let entry: [u8; 8] = memory.at_user(at);
        let expected = u64::from(head) | u64::from(written) << 32;
        assert_eq!(
            u64::from_le_bytes(entry),
            expected,
            "an entry of the used ring"
        );
        self.used = self.used.wrapping_add(1);
        self.unpublished += 1;
    }

    /// Returns true if the driver must be notified of what was published just now.
    pub(super) fn publish(&mut self, memory: &Memory) -> bool {
        let shown = std::mem::take(&mut self.unpublished);
        if shown == 0 {
            return false;
        }
        if !self.event_index {
            return memory.u16_at(self.rings.available) & 1 == 0;
        }
        let wish = memory.u16_at(self.rings.available + 4 + 2 * u64::from(self.size));
        // The driver wants to know of the entry `wish` as soon as it is there.
        let first = self.used.wrapping_sub(shown);
        wish.wrapping_sub(first) < shown
    }

    /// Returns the used index that the driver sees.
    pub(super) fn used_index(&self, memory: &Memory) -> u16 {
        memory.u16_at(self.rings.used + 2)
    }
}
