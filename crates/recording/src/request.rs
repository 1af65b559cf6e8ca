//! Request of a recording.

use tidegate_base::request::{Account, IoError, Op, Outcome};
use tidegate_base::time::Nanos;

/// Request that has ended. Its times are since the beginning of the recording and ascend:
/// `arrived` ≤ `admitted` ≤ `sent` ≤ `done`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    /// Number of the disk in the recording.
    pub disk: u32,
    /// Operation.
    pub op: Op,
    /// Force unit access: the data was durable before the reply.
    pub fua: bool,
    /// WriteZeroes: the range had to stay allocated (NBD's `NO_HOLE`).
    pub keep_allocated: bool,
    /// Result of the request.
    pub outcome: Outcome,
    /// First byte on the disk; 0 for a flush.
    pub offset: u64,
    /// Length in bytes; 0 for a flush.
    pub len: u32,
    /// Time at which the request reached the scheduler with its payload.
    pub arrived: Nanos,
    /// Arrival and the time for which the VM's own limit or credit held the request back. The time
    /// before it had a request slot and payload memory comes behind it, with the queue's.
    pub admitted: Nanos,
    /// Begin of the time with the device, which is counted back from `done`: waits between the
    /// parts of a split request count as time before it. Equal to `done` for a request that never
    /// went to the device.
    pub sent: Nanos,
    /// End of the last device I/O, after which the request is answered at once.
    pub done: Nanos,
}

impl Request {
    /// Sets the four times from the end of a request and the stages that its engine has accounted.
    /// Returns `None` if it arrived before time 0.
    #[must_use]
    pub fn timed(self, done: Nanos, account: &Account) -> Option<Request> {
        let arrived = Nanos(done.0.checked_sub(account.total().0)?);
        let sent = done - account.device;
        let taken = account.queued + account.merged_wait + account.deliberate;
        let ready = account.admission + taken;
        Some(Request {
            arrived,
            admitted: sent - ready,
            sent,
            done,
            ..self
        })
    }

    /// Returns the time from arrival to end.
    pub fn latency(&self) -> Nanos {
        self.done.since(self.arrived)
    }

    /// Returns the address behind the last byte.
    pub fn end(&self) -> u64 {
        self.offset.saturating_add(self.len.into())
    }
}

/// Bits of [`Request::kind`] that hold the operation, and the positions of the others.
const OP_BITS: u8 = 0b111;
const FUA: u8 = 1 << 3;
const KEEP_ALLOCATED: u8 = 1 << 4;
const OUTCOME_SHIFT: u32 = 5;

/// Outcomes by their number in the format.
const OUTCOMES: [Outcome; 7] = [
    Ok(()),
    Err(IoError::Io),
    Err(IoError::NoSpace),
    Err(IoError::ReadOnly),
    Err(IoError::Unsupported),
    Err(IoError::Cancelled),
    Err(IoError::BeyondEnd),
];

impl Request {
    /// Returns operation, options and outcome as one byte.
    #[inline]
    pub fn kind(&self) -> u8 {
        let outcome = match self.outcome {
            Ok(()) => 0,
            Err(IoError::Io) => 1,
            Err(IoError::NoSpace) => 2,
            Err(IoError::ReadOnly) => 3,
            Err(IoError::Unsupported) => 4,
            Err(IoError::Cancelled) => 5,
            Err(IoError::BeyondEnd) => 6,
        };
        let fua = u8::from(self.fua) * FUA;
        let keep_allocated = u8::from(self.keep_allocated) * KEEP_ALLOCATED;
        self.op as u8 | fua | keep_allocated | outcome << OUTCOME_SHIFT
    }

    /// Sets operation, options and outcome from a byte of [`Request::kind`]; `None` if there is no
    /// such byte.
    #[must_use]
    pub fn with_kind(self, kind: u8) -> Option<Request> {
        Some(Request {
            op: *Op::ALL.get(usize::from(kind & OP_BITS))?,
            fua: kind & FUA != 0,
            keep_allocated: kind & KEEP_ALLOCATED != 0,
            outcome: *OUTCOMES.get(usize::from(kind >> OUTCOME_SHIFT))?,
            ..self
        })
    }

    /// Returns the request with its times counted from `start`; `None` if it arrived before that.
    #[must_use]
    pub fn since(self, start: Nanos) -> Option<Request> {
        let back = |time: Nanos| Nanos(time.0.wrapping_sub(start.0));
        (self.arrived >= start).then(|| Request {
            arrived: back(self.arrived),
            admitted: back(self.admitted),
            sent: back(self.sent),
            done: back(self.done),
            ..self
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::request;

    #[test]
    fn every_kind_is_read_as_it_was_written() {
        for op in Op::ALL {
            for outcome in OUTCOMES {
                for options in 0..4 {
                    let one = Request {
                        op,
                        outcome,
                        fua: options & 1 != 0,
                        keep_allocated: options & 2 != 0,
                        ..request(0)
                    };
                    assert_eq!(request(0).with_kind(one.kind()), Some(one));
                }
            }
        }
        let refused = (0..=u8::MAX).filter(|&kind| request(0).with_kind(kind).is_none());
        // Three operations and one outcome do not exist.
        assert_eq!(refused.count(), 3 * 32 + 5 * 4);
    }

    #[test]
    fn times_follow_from_the_account() {
        let account = Account {
            admission: Nanos(4),
            regulated: Nanos(10),
            queued: Nanos(16),
            merged_wait: Nanos(5),
            deliberate: Nanos(5),
            device: Nanos(60),
        };
        let one = request(0).timed(Nanos(100), &account).expect("after 0");
        let times = [one.arrived, one.admitted, one.sent, one.done].map(|time| time.0);
        assert_eq!(times, [0, 10, 40, 100]);
        assert_eq!(one.latency(), Nanos(100));
        assert_eq!(request(0).timed(Nanos(99), &account), None);
        let later = one.since(Nanos(0)).expect("it arrived then");
        assert_eq!(later, one);
        assert_eq!(one.since(Nanos(1)), None);
        let last = request(100).since(Nanos(60)).expect("later");
        assert_eq!((last.arrived, last.done), (Nanos(40), Nanos(40)));
    }
}
