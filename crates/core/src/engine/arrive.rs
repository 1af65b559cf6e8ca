//! A guest request comes: checks, merging, admission, gates.

use super::{Engine, Refusal};
use crate::facts::{Filling, Life, NIL, Queues, flag};
use tidegate_base::request::{ClientId, Op, ReqId, Request};
use tidegate_base::time::Nanos;

impl Engine {
    /// Takes a guest request. It will come out of [`Engine::poll_done`] exactly once.
    ///
    /// # Errors
    /// See [`Refusal`]; nothing has changed then.
    pub fn handle_request(
        &mut self,
        now: Nanos,
        client: ClientId,
        request: Request,
    ) -> Result<ReqId, Refusal> {
        self.hand_in(now, client, &request, None)
    }

    /// Takes a guest request. `claimed_since`: it has its slot, and memory if it needs some now,
    /// and has waited for them since then; `None`: they are taken for it.
    pub(super) fn hand_in(
        &mut self,
        now: Nanos,
        client: ClientId,
        request: &Request,
        claimed_since: Option<Nanos>,
    ) -> Result<ReqId, Refusal> {
        self.facts.queues.advance(now);
        let mut with = self.check(client, request)?;
        match claimed_since {
            Some(since) => with.since = since.min(self.facts.queues.now),
            None => self.intake.take_in(
                &mut self.facts,
                with.vm as usize,
                with.own_memory,
                request.op,
                request.len,
            )?,
        }
        let slot = self.facts.queues.reqs.next_slot();
        self.directory.request_came(client.index);
        let continues = self
            .facts
            .note_arrival(&with, self.control.sharing.as_deref_mut());
        let company = match continues {
            true => {
                let (company, is_followed) = self.find_company(with);
                with.flags |= if is_followed { flag::FOLLOWED } else { 0 };
                company
            }
            false => None,
        };
        let id = self.facts.queues.reqs.fill(slot, &with);
        self.facts.queues.device.requests += 1;
        if with.judged {
            let names = [with.vm, slot];
            let Queues {
                now, vms, device, ..
            } = &self.facts.queues;
            (self.attainment).arrived(*now, names, with.since, with.len, || {
                vms[with.vm as usize].standing(device)
            });
        }
        if let Some((unit, behind)) = company {
            self.active.join(&mut self.facts, unit, slot, behind);
        } else if request.op == Op::Flush {
            self.flushes
                .push(&mut self.facts.queues.reqs, slot, with.disk);
        } else {
            self.active
                .queue_unit(&mut self.facts, id, with.vm, request.op.lane());
            if with.own_memory {
                // Its lane may be closed for want of memory, which this request does not need.
                self.facts.queues.count_holder(slot);
                self.active.let_holder_go(&mut self.facts, slot);
            }
        }
        Ok(id)
    }

    /// Checks a request. Returns what its slot is filled with, its wait beginning now.
    #[inline(always)]
    fn check(&self, client: ClientId, request: &Request) -> Result<Filling, Refusal> {
        let known = self.directory.client(client).ok_or(Refusal::NotConnected)?;
        let spec = &self.directory.disk_at(known.disk).spec;
        if request.op != Op::Flush {
            let end = request.offset.saturating_add(request.len as u64);
            if request.len == 0 {
                return Err(Refusal::Empty);
            }
            if end > spec.size {
                let (offset, size) = (request.offset, spec.size);
                return Err(Refusal::OutOfRange { offset, end, size });
            }
            if spec.read_only && request.op != Op::Read {
                return Err(Refusal::ReadOnly);
            }
        }
        let of_vm = &self.facts.queues.vms[known.vm as usize];
        if of_vm.life != Life::Live {
            return Err(Refusal::NotConnected);
        }
        let mut flags = match request.fua | request.keep_allocated {
            true => kind_of(request),
            false => 0,
        };
        // A read into the client's own memory has its payload memory from the start, too.
        let has_memory = request.op == Op::Write || request.op == Op::Read && known.own_memory;
        if has_memory && self.intake.bounds_payload() {
            flags |= flag::HOLDS;
        }
        let addr = match request.op {
            Op::Flush => 0,
            _ => spec.base.wrapping_add(request.offset),
        };
        Ok(Filling {
            addr,
            len: request.len,
            op: request.op,
            flags,
            vm: known.vm,
            client: client.index,
            disk: known.disk,
            tag: request.tag,
            since: self.facts.queues.now,
            shut: of_vm.shut_time(request.op.lane(), self.facts.queues.now),
            deliberate: self.facts.queues.deliberate_time(),
            own_memory: known.own_memory,
            judged: of_vm.judged && request.op != Op::Flush,
        })
    }

    /// A waiting unit with room for this request that ends where it starts (true), or starts where
    /// it ends; and whether a unit that has no room begins where the request ends. The request
    /// comes by value: one whose address was taken would have to lie in memory for those that
    /// continue nothing, too.
    #[inline(never)]
    fn find_company(&mut self, of: Filling) -> (Option<(u32, bool)>, bool) {
        let lane = self.facts.queues.vms[of.vm as usize].lanes[of.op.lane().index()];
        let most = self.control.merged_most(&self.facts, of.vm, of.op);
        if lane.head == NIL || most == 0 {
            return (None, false);
        }
        self.facts.queues.reqs.find_company(lane, &of, most)
    }
}

/// Bits of [`flag`] that tell how a request is to be done.
#[cold]
fn kind_of(request: &Request) -> u8 {
    let mut flags = 0;
    if request.fua && matches!(request.op, Op::Write | Op::Discard | Op::WriteZeroes) {
        flags |= flag::FUA;
    }
    if request.keep_allocated {
        flags |= flag::KEEP_ALLOCATED;
    }
    flags
}
