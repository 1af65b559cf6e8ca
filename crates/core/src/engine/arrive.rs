//! A guest request comes: checks, merging, admission, gates.

use super::{Engine, Refusal};
use crate::facts::{Cold, Hot, Life, NIL, flag, state};
use crate::request::{Account, ClientId, Lane, Op, ReqId, Request};
use crate::roles::{Event, Gate, Interests, Stage};
use crate::time::Nanos;

/// How many units, from the end of its lane, a new request is compared with. Linux's plug list
/// merging looks as far back: streams interleave a few at a time.
const MERGE_SCAN: usize = 8;

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
        self.advance(now);
        let slot = self.check_in(client, &request)?;
        let vm = self.facts.hot[slot as usize].vm;
        let id = self.facts.req_id(slot);
        let (addr, op) = (self.facts.hot[slot as usize].addr, request.op);
        self.note_arrival(vm, op, addr, request.len);
        if op == Op::Flush {
            self.queue_flush(slot);
        } else if !self.try_merge(slot) {
            self.queue_unit(slot);
        }
        Ok(id)
    }

    /// Checks the request and gives it a slot.
    fn check_in(&mut self, client: ClientId, request: &Request) -> Result<u32, Refusal> {
        let known = self.client(client).map_err(|_| Refusal::NotConnected)?;
        let (vm, disk_slot) = (known.vm, known.disk);
        let disk = &self.disks[disk_slot as usize];
        let (disk_id, addr) = (
            disk.id(disk_slot),
            disk.spec.base.wrapping_add(request.offset),
        );
        match request.op {
            Op::Flush => {}
            Op::Read | Op::Write | Op::Discard | Op::WriteZeroes => {
                let end = request.offset.saturating_add(request.len as u64);
                if request.len == 0 {
                    return Err(Refusal::Empty);
                }
                if end > disk.spec.size {
                    let (offset, size) = (request.offset, disk.spec.size);
                    return Err(Refusal::OutOfRange { offset, end, size });
                }
                if disk.spec.read_only && request.op != Op::Read {
                    return Err(Refusal::ReadOnly);
                }
            }
        }
        let of_vm = &self.facts.vms[vm as usize];
        if of_vm.life != Life::Live {
            return Err(Refusal::NotConnected);
        }
        if of_vm.requests >= self.config.max_pending_per_vm {
            return Err(Refusal::Full);
        }
        let slot = self.take_req().ok_or(Refusal::Full)?;
        self.facts.vms[vm as usize].requests += 1;
        self.facts.vms[vm as usize].waiting += 1;
        self.clients[client.index()].requests += 1;
        let now = self.facts.now;
        let lane = request.op.lane();
        let (shut_mark, deliberate_mark) = (self.shut_time(vm, lane), self.deliberate_time());
        let fua = request.fua && matches!(request.op, Op::Write | Op::Discard | Op::WriteZeroes);
        let hot = &mut self.facts.hot[slot as usize];
        *hot = Hot {
            generation: hot.generation,
            state: state::EXPRESS,
            op: request.op,
            flags: if fua { flag::FUA } else { 0 }
                | if request.keep_allocated {
                    flag::KEEP_ALLOCATED
                } else {
                    0
                },
            vm,
            len: request.len,
            issued: 0,
            unit_len: request.len,
            seq: self.next_seq,
            addr: if request.op == Op::Flush { 0 } else { addr },
            next: NIL,
            prev: NIL,
            chain_next: NIL,
            chain_last: slot,
            unit_reqs: 1,
            chain_first: slot,
        };
        self.next_seq += 1;
        self.facts.cold[slot as usize] = Cold {
            tag: request.tag,
            client,
            disk: disk_id,
            arrived: now,
            since: now,
            shut_mark,
            deliberate_mark,
            account: Account::default(),
            outstanding: 0,
            error: None,
        };
        Ok(slot)
    }

    fn note_arrival(&mut self, vm: u32, op: Op, addr: u64, len: u32) {
        let of_vm = &mut self.facts.vms[vm as usize];
        let stats = &mut self.facts.stats[vm as usize];
        if of_vm.requests == 1 && of_vm.quiet_since != Nanos::MAX {
            stats.thought(self.facts.now.since(of_vm.quiet_since));
        }
        stats.arrived(op, addr, len);
    }

    /// Joins a waiting unit that ends where this request starts, or starts where it ends.
    fn try_merge(&mut self, slot: u32) -> bool {
        let this = self.facts.hot[slot as usize];
        let vm = &self.facts.vms[this.vm as usize];
        if !this.op.merges() || this.len >= vm.merge_limit {
            return false;
        }
        let room = vm.merge_limit - this.len;
        let mut unit = vm.lanes[this.op.lane().index()].tail;
        for _ in 0..MERGE_SCAN {
            if unit == NIL {
                return false;
            }
            let other = &self.facts.hot[unit as usize];
            let first = &self.facts.hot[other.chain_first as usize];
            let fits = other.op == this.op
                && other.flags & !flag::CHARGED == this.flags
                && other.unit_len <= room
                && first.issued == 0;
            let behind = first.addr + other.unit_len as u64 == this.addr;
            let before = this.addr + this.len as u64 == first.addr;
            if fits && (behind || before) && self.same_disk(unit, slot) {
                self.join(unit, slot, behind);
                return true;
            }
            unit = other.prev;
        }
        false
    }

    fn same_disk(&self, a: u32, b: u32) -> bool {
        self.facts.cold[a as usize].disk == self.facts.cold[b as usize].disk
    }

    fn join(&mut self, unit: u32, slot: u32, behind: bool) {
        let hot = &mut self.facts.hot;
        let len = hot[slot as usize].len;
        let Hot {
            chain_first,
            chain_last,
            ..
        } = hot[unit as usize];
        if behind {
            hot[chain_last as usize].chain_next = slot;
            hot[unit as usize].chain_last = slot;
        } else {
            hot[slot as usize].chain_next = chain_first;
            hot[unit as usize].chain_first = slot;
        }
        hot[unit as usize].unit_len += len;
        hot[unit as usize].unit_reqs += 1;
        hot[slot as usize].state = state::PASSENGER;
        self.facts.stats[hot[slot as usize].vm as usize].merged += 1;
        let (into, by) = (self.facts.req_id(unit), self.facts.req_id(slot));
        if self.hears(Interests::MERGED) {
            self.emit(&Event::Merged { into, by });
        }
    }

    fn queue_unit(&mut self, slot: u32) {
        let Hot { vm, op, .. } = self.facts.hot[slot as usize];
        let id = self.facts.req_id(slot);
        if self.stage == Stage::Admission {
            self.facts.hot[slot as usize].state = state::PENDING;
            self.link(slot, NIL);
            self.emit(&Event::Arrived(id));
            self.admit(vm);
            return;
        }
        self.facts.hot[slot as usize].state = state::ADMITTED;
        let was_empty = self.facts.vms[vm as usize].lanes[op.lane().index()].head == NIL;
        self.link(slot, NIL);
        if self.hears(Interests::ARRIVED) {
            self.emit(&Event::Arrived(id));
        }
        if was_empty {
            self.ask_gate(vm, op.lane());
        }
        self.roles.dispatcher.insert(&self.facts, id);
    }

    /// Whether any role hears such events; saves building those that none does.
    pub(super) fn hears(&self, interest: Interests) -> bool {
        self.interests.iter().any(|i| i.has(interest))
    }

    /// Admits a VM's units in the order of arrival, as far as the regulator lets them.
    pub(super) fn admit(&mut self, vm: u32) {
        let vm_id = self.facts.vm_at(vm as usize);
        let timer = vm as usize * Lane::ALL.len();
        self.gates.remove(timer);
        while let Some(head) = self.facts.pending_head(vm_id) {
            match self.roles.regulator.gate(&self.facts, head) {
                Gate::Pass => {}
                Gate::Until(due) => {
                    self.gates.set(timer, due);
                    return;
                }
                Gate::Blocked => return,
            }
            let slot = head.index;
            let Hot { next, op, .. } = self.facts.hot[slot as usize];
            self.facts.vms[vm as usize].lanes[op.lane().index()].pending = next;
            self.facts.hot[slot as usize].state = state::ADMITTED;
            let cold = &mut self.facts.cold[slot as usize];
            cold.account.regulated += self.facts.now.since(cold.since);
            cold.since = self.facts.now;
            self.emit(&Event::Admitted(head));
            self.roles.dispatcher.insert(&self.facts, head);
        }
    }

    /// Asks the regulator whether a lane's first unit (or, at admission, the VM's next) may go.
    pub(super) fn ask_gate(&mut self, vm: u32, lane: Lane) {
        match self.stage {
            Stage::Open => {}
            Stage::Admission => self.admit(vm),
            Stage::Dispatch => {
                let timer = vm as usize * Lane::ALL.len() + lane.index();
                let head = self.facts.vms[vm as usize].lanes[lane.index()].head;
                let gate = match head {
                    NIL => Gate::Pass,
                    head => self
                        .roles
                        .regulator
                        .gate(&self.facts, self.facts.req_id(head)),
                };
                match gate {
                    Gate::Until(due) => self.gates.set(timer, due),
                    Gate::Pass | Gate::Blocked => {
                        self.gates.remove(timer);
                    }
                }
                self.set_gate(vm, lane, gate == Gate::Pass);
            }
        }
    }

    pub(super) fn set_gate(&mut self, vm: u32, lane: Lane, open: bool) {
        let now = self.facts.now;
        let queue = &mut self.facts.vms[vm as usize].lanes[lane.index()];
        if queue.shut != open {
            return;
        }
        if open {
            queue.shut_total = queue.shut_time(now);
        }
        queue.shut = !open;
        queue.shut_since = now;
        let id = self.facts.vm_at(vm as usize);
        self.roles.dispatcher.gate(&self.facts, id, lane, open);
    }

    /// Puts a flush into its disk's express lane: those that wait there go as one.
    fn queue_flush(&mut self, slot: u32) {
        let disk_slot = self.facts.cold[slot as usize].disk.index;
        let disk = &mut self.disks[disk_slot as usize];
        match disk.flush_last {
            NIL => disk.flush_first = slot,
            last => self.facts.hot[last as usize].chain_next = slot,
        }
        disk.flush_last = slot;
        disk.flushes += 1;
        if disk.flushes == 1 && !disk.flushing {
            self.express.push_back(disk_slot);
        }
    }
}
