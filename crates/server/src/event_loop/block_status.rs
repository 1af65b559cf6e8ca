//! Block status: what a client asks of a disk's extents. The engine knows nothing of it, and the device
//! is not asked: the file system is, by a thread of its own, since it may take its time.

use std::sync::Arc;

use tidegate_nbd::{Extent, reply};

use super::Loop;
use super::slots::Answer;
use crate::backing::Medium;
use crate::backing::extents::{EXTENTS_MAX, Question, Surveyor};
use crate::frontend::Failure;

impl Loop {
    /// Has a question about extents answered, at once or by the surveyor.
    pub(super) fn ask_extents(&mut self, client: u32, slot: u32, one: bool) {
        let token = self.slots.tag(slot);
        let entry = self.slots.get(slot);
        let (offset, len) = (entry.offset, entry.len);
        let disk = self.clients.get(client).expect("it asks").disk;
        let state = &mut self.device.disks[disk];
        if offset + u64::from(len) > state.disk.size {
            // The disk has become shorter than the client knows.
            let slot = self.slots.get_mut(slot);
            slot.answer = slot.kind.beyond_end();
            return self.answer(token as u32);
        }
        let Medium::File(open) = &state.disk.medium else {
            // Memory does not keep account of what was never written.
            let all = Extent {
                len,
                hole: false,
                zero: false,
            };
            return self.extents_known(slot, &[all]);
        };
        let file = match &state.survey {
            Some(file) => Ok(file.clone()),
            None => open.file.try_clone().map(Arc::new),
        };
        let asked = file.and_then(|file| {
            state.survey = Some(file.clone());
            if self.surveyor.is_none() {
                self.surveyor = Some(Surveyor::start(self.wake.clone())?);
            }
            let surveyor = self.surveyor.as_ref().expect("just made");
            surveyor.ask(Question {
                token,
                file,
                offset,
                len,
                one,
            });
            Ok(())
        });
        match asked {
            Ok(()) => self.clients.get(client).expect("it asks").outstanding += 1,
            Err(_) => {
                self.slots.get_mut(slot).answer = Answer::Error(Failure::NoMemory, "try again");
                self.answer(slot);
            }
        }
    }

    /// Takes what the surveyor has found out.
    pub(super) fn take_extents(&mut self) {
        while let Some(answer) = self.surveyor.as_ref().and_then(Surveyor::answer) {
            let slot = self.slots.by_tag(answer.token);
            let who = self.slots.get(slot).client;
            if let Some(client) = self.clients.resolve(who) {
                client.outstanding -= 1;
            }
            match answer.extents {
                Ok(extents) => self.extents_known(slot, &extents),
                Err(_) => {
                    self.slots.get_mut(slot).answer =
                        Answer::Error(Failure::Io, "the filesystem does not tell");
                    self.answer(slot);
                }
            }
        }
    }

    /// Encodes a block status reply into the slot's buffer, which has room for the longest.
    fn extents_known(&mut self, index: u32, extents: &[Extent]) {
        let who = self.slots.get(index).client;
        let context = self.clients.resolve(who).and_then(|c| c.allocation_context);
        let mut bytes = [0u8; reply::block_status_len(EXTENTS_MAX)];
        let slot = self.slots.get_mut(index);
        match (context, &slot.buffer) {
            (Some(context), Some(buffer)) => {
                let n = reply::block_status(slot.token, context, extents, &mut bytes);
                buffer.mem().write(&bytes[..n]);
                slot.len = n as u32;
            }
            // Without a context no such request is let through: the client has gone.
            _ => slot.answer = Answer::Error(Failure::ShuttingDown, "gone"),
        }
        self.answer(index);
    }
}
