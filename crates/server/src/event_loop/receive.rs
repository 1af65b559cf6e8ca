//! From the socket to the engine: received bytes become requests. Whose are taken is in `turns`.

use std::time::Instant;

use tidegate_core::engine::Refusal;
use tidegate_core::request as engine;
use tidegate_nbd::{Command, Exports, REQUEST_LEN, Request, Step, reply};

use super::client::{RECEIVE, Stall, State};
use super::slots::{Answer, ClientRef, Kind};
use super::turns::{Served, queue_of};
use super::{Loop, Token};
use crate::backing::extents::EXTENTS_MAX;
use crate::buffer::Mem;
use crate::frontend::Failure;
use crate::log_limit;
use crate::ring::Completion;

/// Requests of one client that are parsed before it is the next one's turn.
const REQUESTS_A_TURN: u32 = 64;
/// Payload bytes of one client that are copied before it is the next one's turn.
const BYTES_A_TURN: usize = 256 << 10;
/// Replies that may wait for a client to take them, and their bytes.
const UNSENT_MAX: usize = 1024;
const UNSENT_BYTES_MAX: u64 = 16 << 20;
/// Longest range that is read for `NBD_CMD_CACHE`; longer ones are only said to be.
const CACHE_MAX: u32 = 4 << 20;

/// During transmission no export is looked up.
struct NoExports;

impl Exports for NoExports {
    fn lookup(&self, _: &str) -> Option<tidegate_nbd::Export> {
        None
    }
    fn list(&self, _: &mut dyn FnMut(&str, &str)) {}
}

impl Loop {
    /// A receive ended.
    pub(super) fn received(&mut self, who: ClientRef, completion: Completion) {
        let Some(client) = self.clients.resolve(who) else {
            return;
        };
        client.rx.receiving = false;
        if std::mem::take(&mut client.tx.linked) {
            let sent = client.tx.began;
            self.send_ended(who.index, Some(sent));
        }
        let now = self.now;
        let Some(client) = self.clients.resolve(who) else {
            return;
        };
        if client.state != State::Open {
            return self.settle(who.index);
        }
        match completion.result {
            Ok(0) => self.vanish(who.index, None),
            Ok(n) => {
                let n = n as usize;
                client.rx.drained = !completion.more;
                client.rx.moved = now;
                let mut direct = 0;
                if let Some((slot, filled)) = &mut client.rx.payload {
                    let len = self.slots.get(*slot).len as usize;
                    direct = n.min(len - *filled);
                    *filled += direct;
                }
                client.rx.start = 0;
                client.rx.end = n - direct;
                self.make_ready(who.index);
            }
            Err(libc::EINTR | libc::EAGAIN) => self.touch(who.index),
            Err(errno) => self.vanish(who.index, Some(errno)),
        }
    }

    /// Takes requests of a client until its budget, its bytes or some room is used up.
    pub(super) fn take_requests(&mut self, index: u32, first: bool) -> Served {
        let (mut requests, mut bytes) = (REQUESTS_A_TURN, BYTES_A_TURN);
        loop {
            let client = self.clients.get(index).expect("it is being served");
            if client.state != State::Open {
                return Served::Ended;
            }
            if client.rx.payload.is_some() {
                bytes = bytes.saturating_sub(self.fill_payload(index));
                let client = self.clients.get(index).expect("it is being served");
                if client.rx.payload.is_some() {
                    return Served::Hungry;
                }
                continue;
            }
            if client.rx.held.is_none() && client.rx.start == client.rx.end {
                return Served::Hungry;
            }
            if requests == 0 || bytes == 0 {
                return Served::Again;
            }
            requests -= 1;
            if let Some(served) = self.take_request(index, first) {
                return served;
            }
        }
    }

    /// Takes one request, or what there is of its header. `None`: go on.
    fn take_request(&mut self, index: u32, first: bool) -> Option<Served> {
        let client = self.clients.get(index).expect("it is being served");
        if client.tx.queue.len() + client.tx.sending.len() >= UNSENT_MAX
            || client.tx.bytes >= UNSENT_BYTES_MAX
        {
            return Some(Served::Stalled(Stall::Unsent));
        }
        let first = first && client.rx.held.is_some();
        let request = match client.rx.held.take() {
            Some(request) => request,
            None => match self.parse(index) {
                Ok(Some(request)) => request,
                Ok(None) => return None,
                Err(served) => return Some(served),
            },
        };
        let disk = self.clients.get(index).expect("it is being served").disk;
        let len = match request.command {
            Command::Read { .. } | Command::Write => request.len as usize,
            Command::Cache if request.len <= CACHE_MAX => request.len as usize,
            // Its reply: the memory is there before the question is asked.
            Command::BlockStatus { one } => {
                reply::block_status_len(if one { 1 } else { EXTENTS_MAX })
            }
            _ => 0,
        };
        match self.claim(index, disk, &request, len, first) {
            Ok(claimed) => self.accept(index, disk, request, len, claimed),
            Err(Refusal::Full) => {
                let client = self.clients.get(index).expect("it is being served");
                client.rx.held = Some(request);
                Some(Served::Stalled(Stall::Intake { first }))
            }
            Err(_) => {
                // The VM or the disk was removed.
                self.close(index);
                Some(Served::Ended)
            }
        }
    }

    /// Claims a request slot of the engine and payload memory for a request. Returns false if the
    /// loop answers the request itself and needs no slot. With `first` the client is at the head of
    /// its VM's queue, so that the queue does not hold it back. Fails with [`Refusal::Full`] while
    /// there is no slot or memory; any other error means that the VM or the disk was removed.
    fn claim(
        &mut self,
        index: u32,
        disk: usize,
        request: &Request,
        len: usize,
        first: bool,
    ) -> Result<bool, Refusal> {
        let vm = self.device.vm_of(disk);
        if !first && !self.vms[vm].stalled[queue_of(request)].is_empty() {
            return Err(Refusal::Full);
        }
        let client = self.clients.get(index).expect("it is being served").engine;
        let op = match request.command {
            Command::Read { .. } => engine::Op::Read,
            Command::Write => engine::Op::Write,
            Command::Flush => engine::Op::Flush,
            Command::Trim => engine::Op::Discard,
            Command::WriteZeroes { .. } => engine::Op::WriteZeroes,
            Command::Cache if len > 0 => engine::Op::Read,
            // A `NBD_CMD_CACHE` without bytes is answered at once.
            Command::Cache => return Ok(false),
            Command::BlockStatus { .. } => {
                return match self.engine.take_reply(self.now, client, len as u32) {
                    true => Ok(false),
                    false => Err(Refusal::Full),
                };
            }
        };
        self.engine.claim(self.now, client, op, len as u32)?;
        Ok(true)
    }

    /// Lets the session look at the next bytes.
    fn parse(&mut self, index: u32) -> Result<Option<Request>, Served> {
        let client = self.clients.get(index).expect("it is being served");
        let rx = &mut client.rx;
        let mut bytes = [0u8; 4 * REQUEST_LEN];
        let n = (rx.end - rx.start).min(bytes.len());
        rx.buffer.mem().slice(rx.start, n).read(&mut bytes[..n]);
        match client.session.handle(&bytes[..n], &NoExports) {
            Ok((used, step)) => {
                rx.start += used;
                match step {
                    Step::Request(request) => return Ok(Some(request)),
                    Step::Rejected(r) => {
                        // Answered without data, as a flush is.
                        let slot = self.insert(index, Kind::Flush, r.cookie);
                        self.slots.get_mut(slot).answer =
                            Answer::Error(r.error.into(), r.reason.message());
                        self.answer(slot);
                    }
                    Step::Disconnect(_) => {
                        client.state = State::Leaving;
                        self.settle(index);
                        return Err(Served::Ended);
                    }
                    Step::NeedMore(_) => {}
                    Step::Output | Step::Opened(_) => {
                        unreachable!("the handshake was carried through before")
                    }
                }
                Ok(None)
            }
            Err(fatal) => {
                if log_limit::CUT_OFF.allows(Instant::now()) {
                    let export = &self.device.disks[client.disk].disk.export;
                    tracing::warn!(%export, peer = %client.peer, "client cut off: {fatal}");
                }
                self.close(index);
                Err(Served::Ended)
            }
        }
    }

    /// A slot for a client's request.
    fn insert(&mut self, index: u32, kind: Kind, cookie: u64) -> u32 {
        let client = self.clients.get(index).expect("it is being served");
        let who = ClientRef {
            index,
            generation: client.generation,
        };
        let since = client.rx.since.unwrap_or(self.now);
        let of = (self.device.vm_of(client.disk) as u32, client.disk as u32);
        self.slots.insert(who, of, kind, cookie, since)
    }

    /// Makes a request of the loop's own out of one that was parsed.
    fn accept(
        &mut self,
        index: u32,
        disk: usize,
        request: Request,
        len: usize,
        claimed: bool,
    ) -> Option<Served> {
        let kind = match request.command {
            Command::Read { .. } => Kind::Read,
            Command::Write => Kind::Write,
            Command::Flush => Kind::Flush,
            Command::Trim => Kind::Discard,
            Command::WriteZeroes { no_hole, .. } => Kind::WriteZeroes {
                keep_allocated: no_hole,
            },
            Command::Cache => Kind::Cache,
            Command::BlockStatus { .. } => Kind::BlockStatus,
        };
        let slot = self.insert(index, kind, request.cookie);
        let entry = self.slots.get_mut(slot);
        (entry.offset, entry.len, entry.fua) = (request.offset, request.len, request.fua);
        entry.claimed = claimed;
        // A read gets its buffer only when it is dispatched to the device.
        if matches!(kind, Kind::Write | Kind::BlockStatus) {
            entry.buffer = Some(self.pool.get(len));
        }
        match request.command {
            Command::Write => {
                let now = self.now;
                let client = self.clients.get(index).expect("it is being served");
                client.rx.payload = Some((slot, 0));
                (client.rx.moved, client.rx.began) = (now, now);
                return None;
            }
            Command::BlockStatus { one } => {
                self.ask_extents(index, slot, one);
                return None;
            }
            Command::Cache if len == 0 => {
                self.answer(slot);
                return None;
            }
            Command::WriteZeroes {
                fast_zero: true,
                no_hole,
            } if !self.device.disks[disk].zeroes_fast(no_hole) => {
                self.slots.get_mut(slot).answer =
                    Answer::Error(Failure::Unsupported, "zeroes would have to be written");
                self.answer(slot);
                return None;
            }
            _ => {}
        }
        self.hand_in(index, slot);
        None
    }

    /// Copies what was received of a write's payload; hands the write in when all is there.
    /// Returns how many bytes were copied.
    fn fill_payload(&mut self, index: u32) -> usize {
        let client = self.clients.get(index).expect("it is being served");
        let rx = &mut client.rx;
        let Some((slot, filled)) = rx.payload else {
            return 0;
        };
        let entry = self.slots.get(slot);
        let buffer = entry.buffer.as_ref().expect("a write has a buffer").mem();
        let n = (entry.len as usize - filled).min(rx.end - rx.start);
        buffer.from(filled).copy(rx.buffer.mem().slice(rx.start, n));
        rx.start += n;
        if filled + n == entry.len as usize {
            rx.payload = None;
            self.hand_in(index, slot);
        } else {
            rx.payload = Some((slot, filled + n));
        }
        n
    }

    /// Hands a request to the engine. A refusal is queued as an error reply.
    fn hand_in(&mut self, index: u32, slot: u32) {
        let entry = self.slots.get_mut(slot);
        let op = entry
            .kind
            .op()
            .expect("the engine knows nothing of extents");
        let keep_allocated = matches!(
            entry.kind,
            Kind::WriteZeroes {
                keep_allocated: true
            }
        );
        let (offset, len, fua) = (entry.offset, entry.len, entry.fua);
        let tag = self.slots.tag(slot);
        let request = engine::Request {
            op,
            offset,
            len,
            fua,
            keep_allocated,
            tag,
        };
        let client = self.clients.get(index).expect("it is being served");
        let since = client.rx.since.unwrap_or(self.now);
        let taken = (self.engine).handle_claimed_request(self.now, client.engine, request, since);
        let entry = self.slots.get_mut(slot);
        entry.answer = match taken {
            Ok(_) => {
                entry.claimed = false;
                client.outstanding += 1;
                return;
            }
            Err(Refusal::ReadOnly) => Answer::Error(Failure::NotPermitted, "the disk is read-only"),
            Err(Refusal::NotConnected | Refusal::Full) => {
                Answer::Error(Failure::ShuttingDown, "the VM was removed")
            }
            Err(Refusal::OutOfRange { .. } | Refusal::Empty) => entry.kind.beyond_end(),
        };
        self.answer(slot);
    }

    /// Submits a receive for a client that has parsed everything.
    pub(super) fn receive(&mut self, index: u32) {
        let client = self.clients.get(index).expect("it is there");
        let rx = &mut client.rx;
        if client.state != State::Open
            || rx.receiving
            || client.stall.is_some()
            || client.ready
            || rx.start != rx.end
            || rx.held.is_some()
        {
            return;
        }
        let token = Token::Receive(ClientRef {
            index,
            generation: client.generation,
        })
        .encode();
        let room = rx.buffer.mem().slice(0, RECEIVE);
        rx.begin();
        match rx.payload {
            Some((slot, filled)) => {
                let entry = self.slots.get(slot);
                let buffer = entry.buffer.as_ref().expect("a write has a buffer").mem();
                let rest: Mem = buffer.slice(filled, entry.len as usize - filled);
                self.ring
                    .receive(client.file, &[rest, room], rx.drained, token);
            }
            None => self.ring.receive(client.file, &[room], rx.drained, token),
        }
    }
}
