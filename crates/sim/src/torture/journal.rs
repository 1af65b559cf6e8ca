//! Journal of a torture run: a digest of all events, and the last of them in words.

use core::fmt;
use std::collections::VecDeque;
use tidegate_core::time::Nanos;

/// Number of lines in a report.
const SHOWN: usize = 50;

/// Kind of event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the line says it")]
pub enum What {
    VmAdded,
    VmRemoved,
    DiskAdded,
    DiskRemoved,
    DiskResized,
    Connected,
    Vanished,
    Accepted,
    Refused,
    Started,
    Served,
    Short,
    Ended,
    Duplicate,
    Answered,
    Timeout,
    Wake,
    Fault,
    Objective,
    Swap,
    Drain,
    Idle,
    Transfer,
    TransferEnded,
}

/// Event with its time and figures.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Line {
    /// Time of the event.
    pub at: Nanos,
    /// Kind of event.
    pub what: What,
    /// Figures, whose meaning depends on the kind.
    pub figures: [u64; 5],
    /// Names of a policy's regulator and dispatcher, for a policy swap.
    pub names: [&'static str; 2],
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
        let op = |n: u64| OPS.get(n as usize).unwrap_or(&"?");
        let outcome = |n: u64| OUTCOMES.get(n as usize).unwrap_or(&"?");
        let fua = |n: u64| if n & 1 == 1 { " FUA" } else { "" };
        match self.what {
            What::VmAdded => write!(f, "VM {a} was added, {}", promise(b, c, d)),
            What::VmRemoved => write!(f, "VM {a} was removed"),
            What::DiskAdded => write!(f, "disk {a} of VM {b}: {c} bytes at {d}"),
            What::DiskRemoved => write!(f, "disk {a} of VM {b} was removed"),
            What::DiskResized => write!(f, "disk {a} of VM {b} now has {c} bytes at {d}"),
            What::Connected => write!(f, "client {a} opened disk {b}"),
            What::Vanished => write!(f, "client {a} vanished"),
            What::Accepted => {
                let (op, fua) = (op(c & 15), fua(c >> 4));
                write!(f, "client {b} asks #{a}: {op} {e} at {d}{fua}")
            }
            What::Refused => write!(f, "client {b} was refused: {} {e} at {d}", op(c & 15)),
            What::Started => {
                let (op, fua) = (op(c & 15), fua(c >> 4));
                write!(f, "I/O {a:x} of VM {b} starts: {op} {e} at {d}{fua}")
            }
            What::Served => write!(f, "  it carries #{a}, {c} bytes from {b}"),
            What::Short => write!(f, "I/O {a:x} moved {b} bytes; {c} are left"),
            What::Ended => write!(f, "I/O {a:x} has ended: {}", outcome(b)),
            What::Duplicate => write!(f, "I/O {a:x} has ended, again"),
            What::Answered => write!(f, "#{a} is answered: {}", outcome(b)),
            What::Timeout => f.write_str("timeout"),
            What::Wake => write!(f, "the driver wakes; {a} in flight, {b} waiting"),
            What::Fault => {
                let kind = crate::fault::Kind::ALL.get(a as usize);
                let name = kind.map_or("?", |kind| kind.name());
                write!(f, "fault: {name}, for {}", Nanos(b))
            }
            What::Objective => write!(f, "VM {a} now has {}", promise(b, c, d)),
            What::Swap => {
                let [regulator, dispatcher] = self.names;
                write!(f, "the policy is now {regulator}+{dispatcher}")
            }
            What::Drain => write!(f, "faults stop; {a} requests are open"),
            What::Idle => write!(f, "everything has drained"),
            What::Transfer => write!(f, "VM {a} has a job: {b} bytes in {}", Nanos(c)),
            What::TransferEnded => {
                let how = if b == 0 { "done" } else { "cancelled" };
                write!(
                    f,
                    "the job of VM {a} is {how}: {c} bytes, late by {}",
                    Nanos(d)
                )
            }
        }
    }
}

/// Describes an objective by the parts that matter most.
fn promise(weight: u64, ops: u64, bytes: u64) -> String {
    let limit = match (ops, bytes) {
        (0, 0) => String::new(),
        (ops, 0) => format!(", limit {ops} IOPS"),
        (0, bytes) => format!(", limit {bytes} B/s"),
        (ops, bytes) => format!(", limit {ops} IOPS and {bytes} B/s"),
    };
    format!("weight {weight}{limit}")
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
            digest: 0xcbf2_9ce4_8422_2325,
            last: VecDeque::with_capacity(SHOWN),
            sink,
        }
    }

    /// Writes a line.
    pub(super) fn write(&mut self, at: Nanos, what: What, figures: [u64; 5]) {
        self.write_named(at, what, figures, ["", ""]);
    }

    /// Writes a line with names.
    pub(super) fn write_named(
        &mut self,
        at: Nanos,
        what: What,
        figures: [u64; 5],
        names: [&'static str; 2],
    ) {
        self.mix(at.0);
        self.mix(what as u64);
        figures.into_iter().for_each(|figure| self.mix(figure));
        if self.last.len() == SHOWN {
            self.last.pop_front();
        }
        let line = Line {
            at,
            what,
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
