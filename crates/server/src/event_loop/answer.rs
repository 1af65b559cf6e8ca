//! From the engine to the socket: what has ended becomes replies, many to a send.

use tidegate_core::request::{Done, IoError, Op};
use tidegate_core::time::Nanos;
use tidegate_nbd::reply::{ERROR_LEN, HEAD_LEN};

use super::client::{HEADS, RECEIVE, Stall, State};
use super::slots::{Answer, ClientRef, Kind, Slot};
use super::{Loop, Token};
use crate::buffer::{Mem, sub_ranges};
use crate::frontend::Failure;
use crate::frontend::nbd::Head;

/// Bytes after which a send is long enough, and after which it may be cut short, so that a slow
/// client can be told from one that takes nothing.
const SEND_BYTES: u64 = 256 << 10;
/// Replies in one send at most; each takes two ranges.
const SEND_REPLIES: usize = 256;
/// A receive is linked to a send that will mostly fit the socket.
const LINK_BYTES: u64 = 64 << 10;

impl Loop {
    /// A request left the engine.
    pub(super) fn done(&mut self, done: &Done) {
        let index = self.slots.by_tag(done.tag);
        let slot = self.slots.get_mut(index);
        if let Err(error) = done.outcome {
            slot.answer = match error {
                IoError::Io => Answer::Error(Failure::Io, "the backing store failed"),
                IoError::NoSpace => Answer::Error(Failure::NoSpace, "the backing store is full"),
                IoError::ReadOnly => Answer::Error(Failure::NotPermitted, "the disk is read-only"),
                IoError::Unsupported => Answer::Error(Failure::Invalid, "not supported"),
                IoError::Cancelled => Answer::Error(Failure::ShuttingDown, "shutting down"),
                IoError::BeyondEnd => slot.kind.beyond_end(),
            };
        }
        let who = slot.client;
        if let Some(client) = self.clients.resolve(who) {
            client.outstanding -= 1;
        }
        self.answer(index);
    }

    /// Queues a request's reply, or forgets it where nobody waits for it.
    pub(super) fn answer(&mut self, index: u32) {
        let slot = self.slots.get_mut(index);
        let who = slot.client;
        if slot.answer != Answer::Ok || slot.kind != Kind::Read && slot.kind != Kind::BlockStatus {
            // Nothing of its payload is sent.
            self.release(index);
        }
        let slot = self.slots.get(index);
        let bytes = HEAD_LEN as u64 + slot.buffer.as_ref().map_or(0, |_| u64::from(slot.len));
        match self.clients.resolve(who) {
            Some(client) if client.state != State::Gone => {
                if client.is_quiet() {
                    client.tx.moved = self.now;
                }
                client.tx.queue.push_back(index);
                client.tx.bytes += bytes;
                self.touch(who.index);
            }
            _ => self.forget(index),
        }
    }

    /// Gives a slot and its memory back.
    pub(super) fn forget(&mut self, index: u32) {
        self.release(index);
        self.slots.remove(index);
    }

    /// Gives back the memory of a slot, and its claim on an engine slot if that was not used.
    fn release(&mut self, index: u32) {
        let slot = self.slots.get_mut(index);
        // A reply without an engine operation (block status) is charged to the memory for reads.
        let op = slot.kind.op().unwrap_or(Op::Read);
        let (vm, now) = (self.vms[slot.vm as usize].id, self.now);
        let claimed = std::mem::take(&mut slot.claimed);
        let buffer = slot.buffer.take();
        // The buffer's size is what was charged, because both round up to powers of two.
        let bytes = buffer.as_ref().map_or(0, |buffer| buffer.size() as u32);
        if claimed {
            self.engine.return_claim(now, vm, op, bytes);
        } else if buffer.is_some() {
            self.engine.return_payload(now, vm, op, bytes);
        }
        if let Some(buffer) = buffer {
            self.pool.put(buffer);
        }
    }

    /// Has a client looked at before the turn ends.
    pub(super) fn touch(&mut self, index: u32) {
        let Some(client) = self.clients.get(index) else {
            return;
        };
        if !client.touched {
            client.touched = true;
            self.touched.push(index);
        }
    }

    /// Sends and receives for all clients that have something to send or nothing to parse.
    pub(super) fn exchange(&mut self) {
        let mut touched = std::mem::take(&mut self.touched);
        let mut at = 0;
        while at < touched.len() {
            let index = touched[at];
            let Some(client) = self.clients.get(index) else {
                touched.swap_remove(at);
                continue;
            };
            client.touched = false;
            if !client.sending() && !client.tx.queue.is_empty() && client.state != State::Gone {
                self.send_replies(index);
            }
            let client = self.clients.get(index).expect("sending ends nobody");
            if client.state == State::Open && !client.rx.receiving {
                if self.device.answers_soon(client.disk) && client.outstanding > 0 {
                    // Its reply comes with the next turn, and the receive can go with that.
                    client.touched = true;
                    at += 1;
                    continue;
                }
                self.receive(index);
            } else {
                self.settle(index);
            }
            touched.swap_remove(at);
        }
        touched.append(&mut self.touched);
        self.touched = touched;
    }

    fn send_replies(&mut self, index: u32) {
        let client = self.clients.get(index).expect("it is there");
        if client.tx.heads.is_none() {
            client.tx.heads = Some(self.plumbing.get(HEADS));
        }
        let heads = client.tx.heads.as_ref().expect("just taken").mem();
        let (mut used, mut bytes) = (0, 0u64);
        client.tx.ranges.clear();
        while let Some(&reply) = client.tx.queue.front() {
            let full = client.tx.sending.len() == SEND_REPLIES || bytes >= SEND_BYTES;
            if full || used + ERROR_LEN > HEADS {
                break;
            }
            client.tx.queue.pop_front();
            client.tx.sending.push(reply);
            let slot = self.slots.get(reply);
            let mut head = [0u8; ERROR_LEN];
            let n = head_of(slot).encode(client.style, slot.token, &mut head);
            let at = heads.slice(used, n);
            at.write(&head[..n]);
            used += n;
            push_joined(&mut client.tx.ranges, at);
            let mut size = HEAD_LEN as u64;
            if let Some(buffer) = &slot.buffer {
                client
                    .tx
                    .ranges
                    .push(buffer.mem().slice(0, slot.len as usize));
                size += u64::from(slot.len);
            }
            bytes += size;
            client.tx.bytes -= size;
        }
        (client.tx.began, client.tx.began_bytes) = (self.now, bytes);
        self.submit_send(index, bytes, bytes <= LINK_BYTES);
    }

    /// Submits what is left of a send; with `link`, and where nothing else is expected of the
    /// client, together with the receive of its next request.
    fn submit_send(&mut self, index: u32, bytes: u64, link: bool) {
        let client = self.clients.get(index).expect("it is there");
        let who = ClientRef {
            index,
            generation: client.generation,
        };
        let alone = client.outstanding == 0
            && client.tx.queue.is_empty()
            && client.state == State::Open
            && client.stall.is_none()
            && !client.ready;
        let rx = &mut client.rx;
        let then = (alone
            && link
            && !rx.receiving
            && rx.payload.is_none()
            && rx.held.is_none()
            && rx.start == rx.end)
            .then(|| {
                (
                    rx.buffer.mem().slice(0, RECEIVE),
                    Token::Receive(who).encode(),
                )
            });
        if then.is_some() {
            rx.begin();
            client.tx.linked = true;
            self.linked.push(who);
        }
        let all = bytes <= SEND_BYTES;
        self.ring.send(
            client.file,
            &client.tx.ranges,
            all,
            Token::Send(who).encode(),
            then,
        );
    }

    /// A send ended, or a linked one failed.
    pub(super) fn sent(&mut self, who: ClientRef, result: Result<u32, i32>) {
        let now = self.now;
        let Some(client) = self.clients.resolve(who) else {
            return;
        };
        if std::mem::take(&mut client.tx.linked) {
            // The receive was cancelled with it, and does not report.
            client.rx.receiving = false;
        }
        let total: usize = client.tx.ranges.iter().map(Mem::len).sum();
        match result {
            Ok(n) if (n as usize) < total && client.state != State::Gone => {
                client.tx.moved = now;
                let mut rest = std::mem::take(&mut self.scratch);
                rest.clear();
                sub_ranges(&client.tx.ranges, n as usize, total - n as usize, &mut rest);
                std::mem::swap(&mut client.tx.ranges, &mut rest);
                self.scratch = rest;
                self.touch(who.index);
                self.submit_send(who.index, (total - n as usize) as u64, false);
            }
            Err(libc::EINTR | libc::EAGAIN) if client.state != State::Gone => {
                self.touch(who.index);
                self.submit_send(who.index, total as u64, false);
            }
            Err(errno) => {
                self.send_ended(who.index, None);
                self.vanish(who.index, Some(errno));
            }
            Ok(n) => self.send_ended(who.index, (n as usize == total).then_some(now)),
        }
    }

    /// Linked sends do not wait, so once they were submitted they have ended: those that failed
    /// have said so, and were told apart before this. Their memory must not stay with clients that
    /// ask for nothing more.
    pub(super) fn linked_sends_ended(&mut self) {
        let mut linked = std::mem::take(&mut self.linked);
        for who in linked.drain(..) {
            if let Some(client) = self.clients.resolve(who)
                && std::mem::take(&mut client.tx.linked)
            {
                let sent = client.tx.began;
                self.send_ended(who.index, Some(sent));
            }
        }
        self.linked = linked;
    }

    /// Frees the replies of a send that ended. `sent` is the loop time at which the socket took
    /// them, `None` if it did not. A linked send has no completion of its own, and the loop may
    /// sleep before it notices the end: the caller then passes the time of the turn that submitted
    /// it, so that the client's idle time does not count.
    pub(super) fn send_ended(&mut self, index: u32, sent: Option<Nanos>) {
        let now = self.now;
        let client = self.clients.get(index).expect("it is there");
        client.tx.moved = now;
        let mut replies = std::mem::take(&mut client.tx.sending);
        if let Some(heads) = client.tx.heads.take() {
            self.plumbing.put(heads);
        }
        for slot in replies.drain(..) {
            if let Some(sent) = sent {
                let entry = self.slots.get(slot);
                let took = sent.since(entry.since);
                self.vms[entry.vm as usize].reply_time[entry.kind.lane() as usize].record(took);
            }
            self.forget(slot);
        }
        let client = self.clients.get(index).expect("it is there");
        client.tx.sending = replies;
        if client.stall == Some(Stall::Unsent) {
            client.stall = None;
            self.make_ready(index);
        }
        self.touch(index);
    }
}

/// Returns the head of a request's reply.
fn head_of(slot: &Slot) -> Head {
    match (slot.answer, slot.kind) {
        (Answer::Error(failure, message), _) => Head::Failed(failure, message),
        (Answer::Ok, Kind::Read) => Head::Data {
            offset: slot.offset,
            len: slot.len,
        },
        (Answer::Ok, Kind::BlockStatus) => Head::Encoded,
        (Answer::Ok, _) => Head::Done,
    }
}

/// Appends a range, as one with the last if it follows that in memory.
fn push_joined(ranges: &mut Vec<Mem>, range: Mem) {
    match ranges.last_mut() {
        _ if range.is_empty() => {}
        Some(last) if last.addr() + last.len() == range.addr() => {
            *last = last.joined(range);
        }
        _ => ranges.push(range),
    }
}
