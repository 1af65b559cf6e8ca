//! Sending side of an NBD connection: finished requests become replies, many to a send.

use std::collections::VecDeque;

use tidegate_core::time::Nanos;
use tidegate_nbd::reply::{ERROR_LEN, HEAD_LEN};

use super::{Connection, Cookie, HEADS, RECEIVE, RECEIVED};
use crate::buffer::{Buffer, Mem, sub_ranges};
use crate::frontend::interface::{Answer, Kind, Next, Port, Progress, SENT, Word};
use crate::frontend::nbd::Head;
use crate::frontend::request_table::Slot;
use crate::ring::{RANGES_MAX, ThenReceive};

/// Bytes after which a send takes no more replies. A longer send may end early (no `MSG_WAITALL`),
/// so that a slow client is distinguished from one that takes nothing.
const SEND_BYTES: u64 = 256 << 10;
/// Maximum number of replies in one send; each takes two ranges.
const SEND_REPLIES: usize = 256;
/// Largest send in bytes to which a receive is linked: it will mostly fit the socket's buffer.
const LINK_BYTES: u64 = 64 << 10;
// One operation takes all ranges of a send, and the buffer for heads at least one head.
const _: () = assert!(2 * SEND_REPLIES <= RANGES_MAX && ERROR_LEN <= HEADS);

/// Sending side of a connection.
#[derive(Debug)]
pub(super) struct Tx {
    /// Slots of finished requests that wait to be sent.
    pub(super) queue: VecDeque<u32>,
    /// Approximate bytes of the waiting replies.
    pub(super) bytes: u64,
    /// Slots of the replies in the send that is with the kernel.
    pub(super) sending: Vec<u32>,
    /// Memory of that send which is still to be sent.
    ranges: Vec<Mem>,
    /// Empty list that swaps places with `ranges` after a short send, to reuse its memory.
    rest: Vec<Mem>,
    pub(super) heads: Option<Buffer>,
    /// True while a receive is linked to the send, so that the send completes only if it fails.
    pub(super) linked: bool,
    /// True once the send is to end wherever it is.
    pub(super) stops: bool,
    /// True once it has, with `ranges` left.
    pub(super) has_stopped: bool,
    /// Loop time at which the client last took bytes.
    pub(super) moved: Nanos,
    /// Loop time at which the current send began, and its size in bytes (`began_bytes`).
    pub(super) began: Nanos,
    pub(super) began_bytes: u64,
}

impl Tx {
    pub(super) fn new(now: Nanos) -> Tx {
        Tx {
            queue: VecDeque::new(),
            bytes: 0,
            sending: Vec::new(),
            ranges: Vec::new(),
            rest: Vec::new(),
            heads: None,
            linked: false,
            stops: false,
            has_stopped: false,
            moved: now,
            began: now,
            began_bytes: 0,
        }
    }

    /// Returns the memory of the send that is still to be sent.
    pub(super) fn ranges(&self) -> &[Mem] {
        &self.ranges
    }

    #[inline]
    pub(super) fn is_sending(&self) -> bool {
        !self.sending.is_empty()
    }
}

impl Connection {
    /// Queues the reply to a request.
    pub(super) fn queue(&mut self, port: &Port<'_>, index: u32) {
        let slot = port.requests.get(index);
        let payload = port.requests.reply_memory(index).map_or(0, |_| slot.len);
        if self.tx.queue.is_empty() && !self.tx.is_sending() {
            self.tx.moved = port.now;
        }
        self.tx.queue.push_back(index);
        self.coalescing.answered();
        self.tx.bytes += HEAD_LEN as u64 + u64::from(payload);
    }

    /// Submits a send of queued replies unless one is under way. Returns true if the send is
    /// linked, so that its success is not reported.
    pub(super) fn send_replies(&mut self, port: &mut Port<'_>, alone: bool) -> bool {
        if self.tx.is_sending() || self.tx.queue.is_empty() || self.shut_down {
            return false;
        }
        let tx = &mut self.tx;
        let heads = tx.heads.get_or_insert_with(|| port.plumbing.get(HEADS));
        let heads = heads.mem();
        let (mut used, mut bytes) = (0, 0u64);
        tx.ranges.clear();
        while let Some(&reply) = tx.queue.front() {
            let full = tx.sending.len() == SEND_REPLIES || bytes >= SEND_BYTES;
            // An error reply has the longest head.
            if full || used + ERROR_LEN > HEADS {
                break;
            }
            tx.queue.pop_front();
            tx.sending.push(reply);
            let slot = port.requests.get(reply);
            let mut head = [0u8; ERROR_LEN];
            let Cookie(cookie) = Cookie::from_word(slot.token);
            let n = head_of(slot).encode(self.style, cookie, &mut head);
            let at = heads.slice(used, n);
            at.write(&head[..n]);
            used += n;
            push_joined(&mut tx.ranges, at);
            let mut size = HEAD_LEN as u64;
            if let Some(memory) = port.requests.reply_memory(reply) {
                tx.ranges.push(memory.slice(0, slot.len as usize));
                size += u64::from(slot.len);
            }
            bytes += size;
            tx.bytes -= size;
        }
        (tx.began, tx.began_bytes) = (port.now, bytes);
        let link = alone && tx.queue.is_empty() && bytes <= LINK_BYTES;
        self.submit_send(port, bytes, link)
    }

    /// Submits the unsent ranges. With `link`, and if no request is arriving, the receive of the
    /// next request is linked to the send. Returns true if it is.
    fn submit_send(&mut self, port: &mut Port<'_>, bytes: u64, link: bool) -> bool {
        // Two sends of one socket at once would mix their bytes.
        debug_assert!(
            self.tx.is_sending() && !self.tx.linked,
            "a send without replies, or beside one whose end is awaited"
        );
        let rx = &self.rx;
        // The linked receive starts at the buffer's front, so no bytes may be in it or expected.
        let linked = link && !rx.receiving && rx.payload.is_none() && rx.is_empty();
        let then = linked.then(|| ThenReceive {
            to: self.rx.buffer.mem().slice(0, RECEIVE),
            token: port.token(RECEIVED),
            pause: self.plan_receive(port.now),
        });
        if linked {
            self.rx.begin();
            self.tx.linked = true;
        }
        let (all, token) = (bytes <= SEND_BYTES, port.token(SENT));
        port.ring.send(self.file, &self.tx.ranges, all, token, then);
        linked
    }

    /// Handles the completion of a send, or the failure of a linked one.
    pub(super) fn sent(&mut self, port: &mut Port<'_>, result: Result<u32, i32>) -> Progress {
        let now = port.now;
        if std::mem::take(&mut self.tx.linked) {
            // The kernel cancelled the linked receive, which does not complete.
            self.rx.receiving = false;
        }
        let total: usize = self.tx.ranges.iter().map(Mem::len).sum();
        let (sent, next) = match result {
            Ok(n) if (n as usize) < total && !self.shut_down => {
                let tx = &mut self.tx;
                tx.moved = now;
                tx.rest.clear();
                let left = total - n as usize;
                sub_ranges(&tx.ranges, n as usize, left, &mut tx.rest);
                std::mem::swap(&mut tx.ranges, &mut tx.rest);
                if tx.stops {
                    tx.has_stopped = true;
                } else {
                    self.submit_send(port, left as u64, false);
                }
                (false, Next::Exchange)
            }
            Err(libc::ECANCELED) if self.tx.stops => {
                self.tx.has_stopped = true;
                (false, Next::Exchange)
            }
            Err(libc::EINTR | libc::EAGAIN) if !self.shut_down => {
                self.submit_send(port, total as u64, false);
                (false, Next::Exchange)
            }
            Err(errno) => {
                self.send_ended(port, None);
                (true, Next::Broken(errno))
            }
            Ok(n) => {
                self.send_ended(port, (n as usize == total).then_some(now));
                (true, Next::Exchange)
            }
        };
        Progress { sent, next }
    }

    /// Notes the end of a linked send, if there is one. Linked sends do not wait, so a submitted
    /// one has ended, and failures were reported and handled before this call. Without this,
    /// clients that send nothing more would keep the buffers of their last replies.
    pub(super) fn linked_send_ended(&mut self, port: &mut Port<'_>) -> bool {
        let linked = std::mem::take(&mut self.tx.linked);
        if linked {
            self.send_ended(port, Some(self.tx.began));
        }
        linked
    }

    /// Frees the replies of a send that ended. `sent` is the loop time at which the socket took
    /// them, `None` if it did not. A linked send has no completion of its own, and the loop may
    /// sleep before it notices the end. The caller then passes the time of the turn that submitted
    /// it, so that the client's idle time does not count.
    fn send_ended(&mut self, port: &mut Port<'_>, sent: Option<Nanos>) {
        self.tx.moved = port.now;
        if let Some(heads) = self.tx.heads.take() {
            port.plumbing.put(heads);
        }
        port.requests.end(self.tx.sending.drain(..), sent);
    }
}

/// Returns the head of the reply to a request.
pub(super) fn head_of(slot: &Slot) -> Head {
    match (slot.answer, slot.kind) {
        (Answer::Error(failure, message), _) => Head::Failed(failure, message),
        (Answer::Ok, Kind::Read) => Head::Data {
            offset: slot.offset,
            len: slot.len,
        },
        (Answer::Ok, Kind::Extents { .. }) => Head::Encoded,
        (Answer::Ok, _) => Head::Done,
    }
}

/// Appends a range, joined with the last one if it follows that in memory.
fn push_joined(ranges: &mut Vec<Mem>, range: Mem) {
    match ranges.last_mut() {
        _ if range.is_empty() => {}
        Some(last) if last.addr() + last.len() == range.addr() => {
            *last = last.joined(range);
        }
        _ => ranges.push(range),
    }
}
