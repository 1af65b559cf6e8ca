//! Company at the last moment: what continues a unit that goes to the device goes with it.
//!
//! Requests merge when they arrive, as far as there is room for them then (`arrive`). One that finds
//! none, or the unit it continues gone in part, waits as a unit of its own; but what it continues is
//! marked ([`flag::FOLLOWED`]), and so is what is left in front when a unit is split. Where a marked
//! request's last byte goes to the device and the I/O may be longer, the units that continue it go
//! along, whole. So a limit that rises joins what waits, and the last part of a large request is not
//! alone.
//!
//! For a VM whose I/Os are kept below the device's largest ([`Knob::MergeLimit`](crate::roles::Knob))
//! the next request may also be cut: as much of it as still fits goes along, up to a physical block,
//! and the rest waits on. So its I/Os come near the limit, wherever requests begin and end (Li et al., ToS
//! 2017, sections 3.3 and 4.1: segments of 4 KiB merge up to the limit). An I/O that is near it by itself
//! is left as it is ([`Regulator::fill`](crate::roles::Regulator::fill)): what follows a cut begins
//! where no request did, and crosses one more boundary of the stripes of an array.
//!
//! Those that go along wait admitted in the same lane, a few places behind: nothing passes a regulator
//! that did not let it in, and the lane's gate is open. Dispatchers are told that a unit has left
//! ([`Dispatcher::remove`](crate::roles::Dispatcher::remove)), or begins further on
//! ([`Event::Advanced`](crate::roles::Event)); one that reckons with the length of what it picks
//! names that as the most. Where a controller allocates rates, dispatchers charge the parts of a request
//! apart: there parts have no company.

use super::Engine;
use super::arrive::MERGE_SCAN;
use crate::facts::{Facts, Hot, NIL, flag, state};
use tidegate_base::request::Op;

/// The first bytes of a unit of one request, which go with what it continues.
#[derive(Clone, Copy)]
pub(super) struct Head {
    pub slot: u32,
    pub bytes: u32,
}

impl Engine {
    /// How far a VM's requests are merged just now.
    pub(super) fn merged_most(&self, vm: u32, op: Op) -> u32 {
        let most = self.facts.vms[vm as usize].merge_limit;
        most.min(self.shared_part(vm, op, most))
    }

    /// Whether a unit that goes now, wholly, may find company: mostly one look at a request that has
    /// to be looked at anyhow.
    #[inline]
    pub(super) fn is_followed(&self, unit: u32) -> bool {
        let this = &self.facts.hot[unit as usize];
        let last = &self.facts.hot[this.chain_last as usize];
        last.flags & flag::FOLLOWED != 0
            && this.flags & (flag::ALONE | flag::AGAIN) == 0
            && !(self.ears.allocates && this.issued > 0)
    }

    /// Bytes of a waiting unit that have not gone yet.
    pub(super) fn left_of(&self, unit: u32) -> u32 {
        let this = &self.facts.hot[unit as usize];
        this.unit_len - self.facts.hot[this.chain_first as usize].issued
    }

    /// Joins to a unit that goes now, wholly, those that continue it, as long as the I/O has at most
    /// `budget` bytes. Returns how much of the next one goes along, which waits on.
    #[inline(never)]
    pub(super) fn gather(&mut self, unit: u32, budget: u32) -> Option<Head> {
        let Hot { vm, op, .. } = self.facts.hot[unit as usize];
        let limit = self.merged_most(vm, op);
        let most = budget.min(limit);
        while self.is_followed(unit) {
            let room = most.saturating_sub(self.left_of(unit));
            if room == 0 {
                return None;
            }
            let next = self.continuation(unit)?;
            let Hot {
                unit_len,
                unit_reqs,
                ..
            } = self.facts.hot[next as usize];
            if unit_len <= room {
                if !self.may_go_along(next) {
                    return None;
                }
                self.absorb(unit, next);
                continue;
            }
            let (fit, cut) = (self.fitting(next, room), self.cut(next, room));
            let may_cut = cut > 0 && !self.is_full(unit, limit);
            if !self.cuts(vm) || (fit == 0 && !may_cut) {
                return None;
            }
            if unit_reqs == 1 {
                if !self.may_go_along(next) {
                    return None;
                }
                let (slot, bytes) = (next, cut);
                return Some(Head { slot, bytes });
            }
            // The requests that fit, or the one that is cut: next time round.
            self.split_unit(next, fit.max(1));
        }
        None
    }

    /// Whether requests of a VM that would fit an I/O may be cut all the same.
    fn cuts(&self, vm: u32) -> bool {
        let largest = self.facts.vms[vm as usize].largest_io;
        largest < self.config.device.max_io && !self.ears.allocates
    }

    /// Whether what goes of a unit is so near a limit that no request is cut for the rest.
    fn is_full(&self, unit: u32, limit: u32) -> bool {
        let fill = u64::from(self.roles.regulator.fill());
        u64::from(self.left_of(unit)) * 100 >= u64::from(limit) * fill
    }

    /// How much of a unit's first request fits, up to a physical block; 0: nothing.
    fn cut(&self, unit: u32, room: u32) -> u32 {
        let first = self.facts.hot[unit as usize].chain_first;
        let start = self.facts.hot[first as usize].addr;
        let block = u64::from(self.config.device.physical_block);
        let end = (start + u64::from(room)) / block * block;
        end.saturating_sub(start) as u32
    }

    /// How many of a unit's requests fit, whole.
    pub(super) fn fitting(&self, unit: u32, room: u32) -> u32 {
        let mut len = 0;
        let fits = self.chain(unit).take_while(|&slot| {
            len += self.facts.hot[slot as usize].len;
            len <= room
        });
        fits.count() as u32
    }

    /// The waiting unit that begins where this one ends and may go with it, if it stands near behind it.
    fn continuation(&self, unit: u32) -> Option<u32> {
        let Facts { hot, cold, .. } = &self.facts;
        let this = &hot[unit as usize];
        let end = hot[this.chain_first as usize].addr + u64::from(this.unit_len);
        let mut next = this.next;
        for _ in 0..MERGE_SCAN {
            if next == NIL {
                return None;
            }
            let other = &hot[next as usize];
            let first = &hot[other.chain_first as usize];
            let adjoins = first.addr == end && first.issued == 0;
            let alike = other.op == this.op
                && (other.flags & flag::KIND) == (this.flags & flag::KIND)
                && other.state == state::ADMITTED;
            if adjoins && alike && cold[next as usize].disk == cold[unit as usize].disk {
                return Some(next);
            }
            next = other.next;
        }
        None
    }

    /// A waiting unit joins the one before it on the disk, which goes now. To roles it has gone, too.
    fn absorb(&mut self, unit: u32, next: u32) {
        self.unlink(next);
        let hot = &mut self.facts.hot;
        let Hot {
            chain_first,
            chain_last,
            unit_len,
            unit_reqs,
            vm,
            ..
        } = hot[next as usize];
        let this = &mut hot[unit as usize];
        let last = core::mem::replace(&mut this.chain_last, chain_last);
        this.unit_len += unit_len;
        this.unit_reqs += unit_reqs;
        hot[last as usize].chain_next = chain_first;
        self.facts.ledgers[vm as usize].at_once().merged += 1;
        if !self.ears.by_lane {
            self.withdraw(next);
        }
    }
}
