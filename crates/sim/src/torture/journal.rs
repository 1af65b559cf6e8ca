//! Journal of a torture run: a digest of all events, and the last of them in words.

use core::fmt;
use std::collections::VecDeque;
use tidegate_core::time::Nanos;

/// Number of lines in a report.
const SHOWN: usize = 50;

/// Kind of event. In brackets its figures, in order. The order of the kinds is part of a run's
/// digest.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EventKind {
    /// A VM was added (VM, weight, IOPS limit, bandwidth limit).
    VmAdded,
    /// A VM was removed (VM).
    VmRemoved,
    /// A disk was added (disk, VM, size, first byte on the device).
    DiskAdded,
    /// A disk was removed (disk, VM).
    DiskRemoved,
    /// A disk was resized (disk, VM, size, first byte on the device).
    DiskResized,
    /// A client opened a disk (client, disk).
    Connected,
    /// A client closed its connection without notice (client).
    Vanished,
    /// The engine accepted a request (request, client, operation, offset, length).
    Accepted,
    /// The engine refused a request (request, client, operation, offset, length).
    Refused,
    /// The device started an I/O (I/O, VM, operation, address, length).
    Started,
    /// Request that the I/O started last carries (request, first byte, bytes).
    Served,
    /// The device moved only a part of an I/O (I/O, bytes moved, bytes left).
    Short,
    /// The device completed an I/O (I/O, outcome).
    Ended,
    /// The device completed an I/O that had ended before (I/O).
    Duplicate,
    /// The engine answered a request (request, outcome).
    Answered,
    /// The engine's timeout expired.
    Timeout,
    /// The driver's loop began a turn (I/Os in flight, requests waiting).
    Wake,
    /// A fault struck (kind, duration in nanoseconds).
    Fault,
    /// A VM got another objective (VM, weight, IOPS limit, bandwidth limit).
    Objective,
    /// The policy was replaced; the line names it.
    Swap,
    /// Faults and new requests stopped (open requests).
    Drain,
    /// All requests were answered.
    Idle,
    /// A deadline transfer began (VM, bytes, deadline in nanoseconds).
    Transfer,
    /// A deadline transfer ended (VM, 0: done or 1: cancelled, bytes moved, lateness in
    /// nanoseconds).
    TransferEnded,
    /// A disk got another limit of its own (disk, IOPS, bandwidth).
    DiskLimit,
    /// A limit that disks share was added or changed (number from 1, IOPS, bandwidth).
    SharedLimit,
    /// A disk shares another limit (disk, number of the limit from 1; 0: none).
    DiskShares,
}

/// Bits of an operation figure that are the operation; the bit above them is FUA.
const OPERATION_BITS: u32 = 4;
const OPERATION_MASK: u64 = (1 << OPERATION_BITS) - 1;

/// Event with its time and figures.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Line {
    /// Time of the event.
    pub at: Nanos,
    /// Kind of event.
    pub kind: EventKind,
    /// Figures in the order that [`EventKind`] documents; 0 beyond them.
    pub figures: [u64; 5],
    /// Names of a policy's controller, regulator and dispatcher, for a policy swap; empty without
    /// one.
    pub names: [&'static str; 3],
}

const OPS: [&str; 5] = ["read", "write", "flush", "discard", "write-zeroes"];

/// Outcomes by their figure; 0 is success.
const OUTCOMES: [&str; 7] = [
    "ok",
    "EIO",
    "ENOSPC",
    "EPERM",
    "ENOTSUP",
    "cancelled",
    "beyond the end",
];

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e] = self.figures;
        write!(f, "{:>14.6} ms  ", self.at.as_millis_f64())?;
        let op = |n: u64| OPS.get((n & OPERATION_MASK) as usize).unwrap_or(&"?");
        let outcome = |n: u64| OUTCOMES.get(n as usize).unwrap_or(&"?");
        let fua = |n: u64| {
            if n >> OPERATION_BITS & 1 == 1 {
                " FUA"
            } else {
                ""
            }
        };
        match self.kind {
            EventKind::VmAdded => write!(f, "VM {a} was added, {}", objective_in_words(b, c, d)),
            EventKind::VmRemoved => write!(f, "VM {a} was removed"),
            EventKind::DiskAdded => write!(f, "disk {a} of VM {b}: {c} bytes at {d}"),
            EventKind::DiskRemoved => write!(f, "disk {a} of VM {b} was removed"),
            EventKind::DiskResized => write!(f, "disk {a} of VM {b} now has {c} bytes at {d}"),
            EventKind::Connected => write!(f, "client {a} opened disk {b}"),
            EventKind::Vanished => write!(f, "client {a} closed its connection"),
            EventKind::Accepted => {
                let (op, fua) = (op(c), fua(c));
                write!(f, "client {b} submits request #{a}: {op} {e} at {d}{fua}")
            }
            EventKind::Refused => write!(f, "client {b} was refused: {} {e} at {d}", op(c)),
            EventKind::Started => {
                let (op, fua) = (op(c), fua(c));
                write!(f, "I/O {a:x} of VM {b} starts: {op} {e} at {d}{fua}")
            }
            EventKind::Served => write!(f, "  it carries #{a}, {c} bytes from {b}"),
            EventKind::Short => write!(f, "I/O {a:x} moved {b} bytes; {c} are left"),
            EventKind::Ended => write!(f, "I/O {a:x} has ended: {}", outcome(b)),
            EventKind::Duplicate => write!(f, "I/O {a:x} has ended, again"),
            EventKind::Answered => write!(f, "#{a} is answered: {}", outcome(b)),
            EventKind::Timeout => f.write_str("timeout"),
            EventKind::Wake => write!(f, "the driver wakes; {a} in flight, {b} waiting"),
            EventKind::Fault => {
                let kind = crate::fault::Kind::ALL.get(a as usize);
                let name = kind.map_or("?", |kind| kind.name());
                write!(f, "fault: {name}, for {}", Nanos(b))
            }
            EventKind::Objective => write!(f, "VM {a} now has {}", objective_in_words(b, c, d)),
            EventKind::Swap => write!(f, "the policy is now {}", parts_in_words(self.names)),
            EventKind::Drain => write!(f, "fault injection ends; {a} requests are outstanding"),
            EventKind::Idle => write!(f, "everything has drained"),
            EventKind::Transfer => {
                write!(f, "transfer of VM {a} begins: {b} bytes in {}", Nanos(c))
            }
            EventKind::DiskLimit => {
                write!(f, "disk {a} has a limit of {b} IOPS, {c} B/s (0: none)")
            }
            EventKind::DiskShares => write!(f, "disk {a} shares limit {b} (0: none)"),
            EventKind::SharedLimit => {
                write!(f, "shared limit {a} is {b} IOPS, {c} B/s (0: none)")
            }
            EventKind::TransferEnded => {
                let how = if b == 0 { "done" } else { "cancelled" };
                write!(
                    f,
                    "transfer of VM {a} is {how}: {c} bytes, late by {}",
                    Nanos(d)
                )
            }
        }
    }
}

/// Describes an objective by the parts that matter most.
fn objective_in_words(weight: u64, ops: u64, bytes: u64) -> String {
    let limit = match (ops, bytes) {
        (0, 0) => String::new(),
        (ops, 0) => format!(", limit {ops} IOPS"),
        (0, bytes) => format!(", limit {bytes} B/s"),
        (ops, bytes) => format!(", limit {ops} IOPS and {bytes} B/s"),
    };
    format!("weight {weight}{limit}")
}

/// Joins the names of a policy's parts.
fn parts_in_words([controller, regulator, dispatcher]: [&str; 3]) -> String {
    let plus = if controller.is_empty() { "" } else { "+" };
    format!("{controller}{plus}{regulator}+{dispatcher}")
}

/// Receiver of lines as they are written.
pub type Sink<'a> = &'a mut dyn FnMut(&Line);

/// Journal with its digest and the last [`SHOWN`] lines.
pub(super) struct Journal<'a> {
    digest: u64,
    last: VecDeque<Line>,
    sink: Option<Sink<'a>>,
}

impl<'a> Journal<'a> {
    /// Creates an empty journal.
    pub(super) fn new(sink: Option<Sink<'a>>) -> Journal<'a> {
        Journal {
            // The offset basis of FNV-1a with 64 bits, so that leading zeroes change the digest.
            digest: 0xcbf2_9ce4_8422_2325,
            last: VecDeque::with_capacity(SHOWN),
            sink,
        }
    }

    /// Adds a line.
    pub(super) fn record(&mut self, at: Nanos, kind: EventKind, figures: [u64; 5]) {
        self.record_named(at, kind, figures, [""; 3]);
    }

    /// Adds a line with names.
    pub(super) fn record_named(
        &mut self,
        at: Nanos,
        kind: EventKind,
        figures: [u64; 5],
        names: [&'static str; 3],
    ) {
        // Names are left out: the policy is drawn from the seed, and a digest has no use for text.
        self.mix(at.0);
        self.mix(kind as u64);
        figures.into_iter().for_each(|figure| self.mix(figure));
        // A ring: a run has far more events than a report should show.
        if self.last.len() == SHOWN {
            self.last.pop_front();
        }
        let line = Line {
            at,
            kind,
            figures,
            names,
        };
        self.last.push_back(line);
        if let Some(sink) = &mut self.sink {
            sink(&line);
        }
    }

    /// Mixes a word into the digest.
    pub(super) fn mix(&mut self, word: u64) {
        // Each step is a bijection of the digest, so no difference is lost.
        // The multiplier is 2^64 over the golden ratio, an odd number.
        let mixed = (self.digest ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.digest = mixed ^ (mixed >> 29);
    }

    /// Digest of all lines; equal for equal runs.
    pub(super) fn digest(&self) -> u64 {
        self.digest
    }

    /// Returns the last lines, oldest first.
    pub(super) fn last(&self) -> impl Iterator<Item = &Line> {
        self.last.iter()
    }
}

impl fmt::Debug for Journal<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Journal")
            .field("digest", &self.digest)
            .finish_non_exhaustive()
    }
}
