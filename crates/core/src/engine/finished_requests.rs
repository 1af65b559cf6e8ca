//! Finished guest requests that wait for the driver to take them.

use tidegate_base::request::Done;

/// Queue of replies that restarts at the beginning of its memory whenever it is empty. A ring would
/// walk through all its memory and fetch new cache lines for every reply.
pub(super) struct FinishedRequests {
    replies: Vec<Done>,
    /// Index of the first reply that was not taken yet.
    next: usize,
}

impl FinishedRequests {
    pub(super) fn with_capacity(requests: usize) -> FinishedRequests {
        FinishedRequests {
            replies: Vec::with_capacity(requests),
            next: 0,
        }
    }

    #[inline]
    pub(super) fn push(&mut self, done: Done) {
        // Reclaimed only where the push would allocate.
        if self.replies.len() == self.replies.capacity() {
            self.reclaim();
        }
        self.replies.push(done);
    }

    /// Reclaims the memory of taken replies for drivers that never drain the queue. It moves the
    /// rest to the front only once more than half was taken, so that a reply is moved at most once
    /// on average; otherwise the following push grows the memory.
    #[cold]
    fn reclaim(&mut self) {
        if self.next > self.replies.len() / 2 {
            self.replies.drain(..self.next);
            self.next = 0;
        }
    }

    #[inline]
    pub(super) fn pop(&mut self) -> Option<Done> {
        let done = self.replies.get(self.next).copied();
        if done.is_some() {
            self.next += 1;
        } else {
            // Empty: the next reply goes to the beginning, whose cache lines are warm.
            self.replies.clear();
            self.next = 0;
        }
        done
    }

    /// Returns the most recent reply, if it was not taken yet.
    pub(super) fn last(&self) -> Option<&Done> {
        self.replies[self.next..].last()
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
    fn replies_leave_in_order_and_memory_stays_bounded_if_the_queue_is_never_empty() {
        let mut replies = FinishedRequests::with_capacity(8);
        assert_eq!(replies.pop(), None);
        replies.push(done(0));
        for tag in 1..1000 {
            replies.push(done(tag));
            assert_eq!(replies.last().map(|d| d.tag), Some(tag));
            assert_eq!(replies.pop().map(|d| d.tag), Some(tag - 1));
        }
        assert_eq!(replies.replies.capacity(), 8);
        assert_eq!(replies.pop().map(|d| d.tag), Some(999));
        assert!(replies.last().is_none() && replies.pop().is_none());
        assert!(replies.replies.is_empty());
    }
}
