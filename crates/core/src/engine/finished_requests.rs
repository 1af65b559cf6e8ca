//! Finished guest requests that wait for the driver to take them.

use tidegate_base::request::Done;

/// Queue of answers that restarts at the beginning of its memory whenever it is empty. A ring would
/// walk through all its memory and fetch new cache lines for every answer.
pub(super) struct FinishedRequests {
    all: Vec<Done>,
    /// Index of the first answer that was not taken yet.
    next: usize,
}

impl FinishedRequests {
    pub(super) fn with_capacity(requests: usize) -> FinishedRequests {
        FinishedRequests {
            all: Vec::with_capacity(requests),
            next: 0,
        }
    }

    #[inline]
    pub(super) fn push(&mut self, done: Done) {
        if self.all.len() == self.all.capacity() {
            self.make_room();
        }
        self.all.push(done);
    }

    /// Makes room for drivers that never drain the queue: once more than half of it was taken, the
    /// rest moves to the front.
    #[cold]
    fn make_room(&mut self) {
        if self.next > self.all.len() / 2 {
            self.all.drain(..self.next);
            self.next = 0;
        }
    }

    #[inline]
    pub(super) fn pop(&mut self) -> Option<Done> {
        let done = self.all.get(self.next).copied();
        if done.is_some() {
            self.next += 1;
        } else {
            self.all.clear();
            self.next = 0;
        }
        done
    }

    /// Most recently finished answer, if it was not taken yet.
    pub(super) fn last(&self) -> Option<&Done> {
        self.all[self.next..].last()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_base::request::{Account, ClientId, Op, ReqId, VmId};

    fn done(tag: u64) -> Done {
        Done {
            req: ReqId::from_bits(0),
            tag,
            client: ClientId::from_bits(0),
            vm: VmId::from_bits(0),
            op: Op::Read,
            outcome: Ok(()),
            payload: 0,
            account: Account::default(),
        }
    }

    #[test]
    fn answers_leave_in_order_and_memory_stays_bounded_if_some_are_always_left() {
        let mut answers = FinishedRequests::with_capacity(8);
        assert_eq!(answers.pop(), None);
        answers.push(done(0));
        for tag in 1..1000 {
            answers.push(done(tag));
            assert_eq!(answers.last().map(|d| d.tag), Some(tag));
            assert_eq!(answers.pop().map(|d| d.tag), Some(tag - 1));
        }
        assert_eq!(answers.all.capacity(), 8);
        assert_eq!(answers.pop().map(|d| d.tag), Some(999));
        assert!(answers.last().is_none() && answers.pop().is_none());
        assert!(answers.all.is_empty());
    }
}
