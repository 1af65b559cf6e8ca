//! Payload memory, held by requests until their replies have reached their clients.

use super::TortureWorld;
use super::replies::Reply;
use super::schedule::Event;
use crate::checker::{Verdict, ensure};
use tidegate_core::request::{Done, VmId};

impl TortureWorld<'_, '_> {
    /// Sends the reply to a finished request; its memory is returned on arrival.
    pub(super) fn reply(&mut self, done: &Done) -> Verdict {
        let number = done.tag as u32;
        let holds = self.checks.budgets.is_bounded() && self.requests.is_fed(number);
        let len = self.checks.ledger.entries[number as usize].request.len;
        ensure!(
            Budgets,
            done.payload == if holds { len } else { 0 },
            "request {number} of {len} bytes ended with {} bytes of memory; it held some: {holds}",
            done.payload
        );
        if !holds {
            return Ok(());
        }
        let reply = Reply {
            vm: done.vm,
            op: done.op,
            len,
        };
        let live = self.checks.ledger.is_live(done.vm);
        // Replies to a VM that is gone, or at the end of a run, are dropped at once.
        if !self.replies.are_delayed() || !self.running || !live {
            return self.reply_sent(reply);
        }
        let (place, takes) = self.replies.send(reply);
        self.schedule
            .plan(self.now + takes, Event::ReplySent(place));
        Ok(())
    }

    /// Handles the arrival of a reply, unless it was given up.
    pub(super) fn reply_sent_at(&mut self, place: u32) -> Verdict {
        match self.replies.arrive(place) {
            Some(reply) => self.reply_sent(reply),
            None => Ok(()),
        }
    }

    fn reply_sent(&mut self, reply: Reply) -> Verdict {
        let Reply { vm, op, len } = reply;
        self.checks.budgets.returned(vm, op, len);
        self.memory_came_back = true;
        // The engine's time does not advance, because checkers time the answers already given after
        // this.
        let now = self.engine.view().now();
        self.engine.admission_mut().return_payload(now, vm, op, len);
        self.checks.ledger.memory_returned(vm);
        while self.engine.admission_mut().poll_unblocked().is_some() {}
        self.inventory
            .schedule_refused_clients(&mut self.schedule, self.now, self.running);
        Ok(())
    }

    /// Drops the replies in transit to one VM, or to all, and returns their memory.
    pub(super) fn drop_replies(&mut self, of: Option<VmId>) -> Verdict {
        for place in self.replies.slots(of) {
            self.reply_sent_at(place)?;
        }
        Ok(())
    }
}
