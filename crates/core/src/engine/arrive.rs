//! A guest request comes: checks, merging, admission, gates.

use super::{Engine, Refusal};
use crate::facts::{Edges, Facts, Hot, Life, NIL, flag, shut, state};
use crate::roles::{Event, Gate, Interests, Stage};
use tidegate_base::request::{ClientId, Lane, Op, ReqId, Request};
use tidegate_base::time::Nanos;

/// How many units, from the end of its lane, a new request is compared with, if it continues
/// one of as many that came before it. Linux's plug list merging looks as far back: streams
/// interleave a few at a time.
pub(super) const MERGE_SCAN: usize = Edges::COUNT;

/// A request that will be taken: whose it is, and where it falls on the device.
#[derive(Clone, Copy)]
pub(super) struct Accepted {
    pub(super) vm: u32,
    disk: u32,
    addr: u64,
    flags: u8,
    /// How long its lane has been shut in all.
    shut: Nanos,
}

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

    /// Takes a guest request. `claimed_since`: it has its slot, and memory if it needs some now, and has
    /// waited for them since then; `None`: they are taken for it.
    pub(super) fn hand_in(
        &mut self,
        now: Nanos,
        client: ClientId,
        request: &Request,
        claimed_since: Option<Nanos>,
    ) -> Result<ReqId, Refusal> {
        self.advance(now);
        let mut accepted = self.check(client, request)?;
        let since = match claimed_since {
            Some(since) => since.min(self.facts.now),
            None => {
                self.take_in(accepted.vm as usize, request.op, request.len)?;
                self.facts.now
            }
        };
        let slot = self.free_req;
        assert!(slot != NIL, "a request that has its slot finds one free");
        self.clients[client.index()].requests += 1;
        let continues = self.note_arrival(accepted, request.op, request.len);
        let company = match continues {
            true => self.find_company(&mut accepted, request.op, request.len),
            false => None,
        };
        let id = self.fill(slot, client, accepted, request, since);
        if let Some((unit, behind)) = company {
            self.join(unit, slot, behind);
        } else if request.op == Op::Flush {
            self.queue_flush(slot, accepted.disk);
        } else {
            self.queue_unit(id, accepted.vm, request.op.lane());
        }
        Ok(id)
    }

    #[inline(always)]
    fn check(&self, client: ClientId, request: &Request) -> Result<Accepted, Refusal> {
        let known = self.client(client).map_err(|_| Refusal::NotConnected)?;
        let spec = &self.disks[known.disk as usize].spec;
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
        let of_vm = &self.facts.vms[known.vm as usize];
        if of_vm.life != Life::Live {
            return Err(Refusal::NotConnected);
        }
        let mut flags = 0;
        if request.fua && matches!(request.op, Op::Write | Op::Discard | Op::WriteZeroes) {
            flags |= flag::FUA;
        }
        if request.keep_allocated {
            flags |= flag::KEEP_ALLOCATED;
        }
        if request.op == Op::Write && self.intake.bounds_payload() {
            flags |= flag::HOLDS;
        }
        let addr = match request.op {
            Op::Flush => 0,
            _ => spec.base.wrapping_add(request.offset),
        };
        Ok(Accepted {
            vm: known.vm,
            disk: known.disk,
            addr,
            flags,
            shut: of_vm.shut_time(request.op.lane(), self.facts.now),
        })
    }

    /// Takes the first free slot and writes the request into it, as a unit of its own. Field by
    /// field: a slot that is built elsewhere and copied here costs more than all the rest.
    #[inline(always)]
    fn fill(
        &mut self,
        slot: u32,
        client: ClientId,
        of: Accepted,
        request: &Request,
        since: Nanos,
    ) -> ReqId {
        let deliberate = self.deliberate_time();
        let hot = &mut self.facts.hot[slot as usize];
        self.free_req = hot.next;
        self.facts.device.requests += 1;
        hot.addr = of.addr;
        hot.seq = self.next_seq;
        self.next_seq += 1;
        hot.len = request.len;
        hot.issued = 0;
        hot.unit_len = request.len;
        hot.unit_reqs = 1;
        hot.next = NIL;
        hot.prev = NIL;
        hot.chain_next = NIL;
        hot.chain_last = slot;
        hot.chain_first = slot;
        hot.vm = of.vm;
        hot.state = state::EXPRESS;
        hot.op = request.op;
        hot.flags = of.flags;
        let cold = &mut self.facts.cold[slot as usize];
        cold.tag = request.tag;
        cold.client = client.index;
        cold.disk = of.disk;
        cold.open(since, of.shut, deliberate);
        hot.id(slot)
    }

    /// Counts the request; returns whether it may continue one that came shortly before.
    #[inline(always)]
    fn note_arrival(&mut self, of: Accepted, op: Op, len: u32) -> bool {
        if self.facts.vms[of.vm as usize].requests == 0 {
            self.facts.pass_seconds(of.vm as usize, false);
        }
        let of_vm = &mut self.facts.vms[of.vm as usize];
        let ledger = &mut self.facts.ledgers[of.vm as usize];
        of_vm.requests += 1;
        of_vm.waiting += 1;
        let mut thought = None;
        if of_vm.requests == 1 && of_vm.quiet_since != Nanos::MAX {
            let span = self.facts.now.since(of_vm.quiet_since);
            ledger.at_once().thought(span);
            thought = Some(span);
        }
        if let Some(sharing) = &mut self.sharing
            && !of_vm.background
        {
            sharing.arrived(self.facts.now, of.vm, thought);
        }
        let end = of.addr.wrapping_add(len as u64);
        let continues = op.merges() && of_vm.edges.meet(of_vm.arrived, op, of.addr, end);
        ledger.arrived(&mut of_vm.arrived, op, of.addr, len);
        continues
    }

    /// A waiting unit with room for this request that ends where it starts (true), or starts where
    /// it ends. Where one has none, or has begun to go, what comes first of the two is marked as followed.
    #[inline(never)]
    fn find_company(&mut self, of: &mut Accepted, op: Op, len: u32) -> Option<(u32, bool)> {
        let lane = self.facts.vms[of.vm as usize].lanes[op.lane().index()];
        let most = self.merged_most(of.vm, op);
        if lane.head == NIL || most == 0 {
            return None;
        }
        let Facts { hot, cold, .. } = &mut self.facts;
        let (kind, mut unit) = (of.flags & flag::KIND, lane.tail);
        for _ in 0..MERGE_SCAN {
            let other = &hot[unit as usize];
            let first = &hot[other.chain_first as usize];
            let (whole, last) = (first.issued == 0, other.chain_last);
            let behind = first.addr + other.unit_len as u64 == of.addr;
            let before = of.addr + len as u64 == first.addr && whole;
            let alike = other.op == op && other.flags & flag::KIND == kind;
            if alike && (behind || before) && cold[unit as usize].disk == of.disk {
                if whole && other.unit_len <= most.saturating_sub(len) {
                    return Some((unit, behind));
                }
                match behind {
                    true => hot[last as usize].flags |= flag::FOLLOWED,
                    false => of.flags |= flag::FOLLOWED,
                }
                if len >= most {
                    return None;
                }
            }
            if unit == lane.head {
                return None;
            }
            unit = hot[unit as usize].prev;
        }
        None
    }

    #[inline(never)]
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
        self.facts.ledgers[hot[slot as usize].vm as usize]
            .at_once()
            .merged += 1;
        let (into, by) = (self.facts.req_id(unit), self.facts.req_id(slot));
        if self.hears(Interests::MERGED) {
            self.emit(&Event::Merged { into, by });
        }
    }

    fn queue_unit(&mut self, id: ReqId, vm: u32, lane: Lane) {
        let slot = id.index;
        if self.stage == Stage::Admission && !self.facts.vms[vm as usize].background {
            self.link_last(slot, vm, lane, state::PENDING);
            self.emit(&Event::Arrived(id));
            self.admit(vm);
            return;
        }
        let was_empty = self.link_last(slot, vm, lane, state::ADMITTED);
        if self.hears(Interests::ARRIVED) {
            self.emit(&Event::Arrived(id));
        }
        if was_empty && self.stage == Stage::Dispatch {
            self.ask_gate(vm, lane);
        }
        if was_empty || !self.ears.by_lane {
            self.roles.dispatcher.insert(&self.facts, id);
        }
    }

    /// Whether any role hears such events; saves building those that none does.
    pub(super) fn hears(&self, interest: Interests) -> bool {
        self.ears.any.has(interest)
    }

    /// Admits a VM's units in the order of arrival, as far as the regulator lets them.
    pub(super) fn admit(&mut self, vm: u32) {
        if self.facts.vms[vm as usize].background {
            return;
        }
        let vm_id = self.facts.vm_at(vm as usize);
        let timer = vm as usize * Lane::ALL.len();
        self.gates.remove(timer);
        while let Some(head) = self.facts.pending_head(vm_id) {
            match self.roles.regulator.gate(&self.facts, head) {
                Gate::Pass => self.admit_unit(vm, head),
                Gate::Until(due) => {
                    self.gates.set(timer, due);
                    break;
                }
                Gate::Blocked => break,
            }
        }
        let spent = !self.roles.regulator.admits(&self.facts, vm_id);
        self.facts.vms[vm as usize].spent = spent;
    }

    fn admit_unit(&mut self, vm: u32, head: ReqId) {
        let slot = head.index;
        let Hot { next, op, .. } = self.facts.hot[slot as usize];
        self.facts.vms[vm as usize].lanes[op.lane().index()].pending = next;
        self.facts.hot[slot as usize].state = state::ADMITTED;
        self.facts.device.pending -= 1;
        let (now, deliberate) = (self.facts.now, self.deliberate_time());
        let shut = self.shut_time(vm, op.lane());
        let cold = &mut self.facts.cold[slot as usize];
        // Pending again after a swap, with parts in flight from before: it does not wait.
        if cold.outstanding == 0 {
            cold.admitted(now, shut, deliberate);
        }
        self.emit(&Event::Admitted(head));
        self.roles.dispatcher.insert(&self.facts, head);
    }

    /// Asks the regulator whether a lane's first unit (or, at admission, the VM's next) may go.
    pub(super) fn ask_gate(&mut self, vm: u32, lane: Lane) {
        match self.stage {
            Stage::Open => {}
            Stage::Admission => self.admit(vm),
            Stage::Dispatch => {
                let timer = vm as usize * Lane::ALL.len() + lane.index();
                let of_vm = &self.facts.vms[vm as usize];
                let gate = match of_vm.lanes[lane.index()].head {
                    NIL => Gate::Pass,
                    _ => {
                        let regulator = &self.roles.regulator;
                        regulator.lane_gate(&self.facts, of_vm.id(vm), lane)
                    }
                };
                match gate {
                    // Only shut gates have timers.
                    Gate::Pass if of_vm.shut[lane.index()] & shut::REGULATED == 0 => return,
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
        let of_vm = &mut self.facts.vms[vm as usize];
        let was_closed = of_vm.is_closed(lane);
        if !of_vm.set_regulated(lane, !open, now) {
            return;
        }
        let (id, is_closed) = (of_vm.id(vm), of_vm.is_closed(lane));
        if is_closed != was_closed {
            let roles = &mut self.roles;
            roles.dispatcher.gate(&self.facts, id, lane, !is_closed);
        }
    }

    /// Puts a flush into its disk's express lane: those that wait there go as one.
    #[inline(never)]
    fn queue_flush(&mut self, slot: u32, disk_slot: u32) {
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
