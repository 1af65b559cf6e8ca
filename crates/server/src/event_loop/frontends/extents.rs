//! Questions for a disk's extents. The engine knows nothing of them, and the device is not asked:
//! the file system is, by a thread of its own, since it may take its time.

use std::sync::Arc;

use super::{Frontends, Hall};
use crate::backing::Medium;
use crate::backing::extents::{Extent, Question, Surveyor};
use crate::frontend::Failure;
use crate::frontend::door::Answer;

impl Frontends {
    /// Has a question about extents answered, at once or by the surveyor.
    pub(super) fn ask_extents(
        &mut self,
        hall: &mut Hall<'_>,
        connection: u32,
        slot: u32,
        one: bool,
    ) {
        let token = hall.tools.requests.tag(slot);
        let entry = hall.tools.requests.get(slot);
        let (offset, len) = (entry.offset, entry.len);
        let disk = self.connections.get(connection).expect("it asks").disk;
        let state = &mut hall.device.disks[disk];
        if offset + u64::from(len) > state.disk.size {
            // The disk has become shorter than the client knows.
            let entry = hall.tools.requests.get_mut(slot);
            entry.answer = entry.kind.beyond_end();
            return self.answer(hall, slot);
        }
        let Medium::File(open) = &state.disk.medium else {
            // Memory does not keep account of what was never written.
            let all = Extent {
                len,
                hole: false,
                zero: false,
            };
            return self.extents_known(hall, slot, &[all]);
        };
        let file = match &state.survey {
            Some(file) => Ok(file.clone()),
            None => open.file.try_clone().map(Arc::new),
        };
        let asked = file.and_then(|file| {
            state.survey = Some(file.clone());
            if self.surveyor.is_none() {
                self.surveyor = Some(Surveyor::start(hall.wake.clone())?);
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
            Ok(()) => {
                self.connections
                    .get(connection)
                    .expect("it asks")
                    .outstanding += 1
            }
            Err(_) => {
                hall.tools.requests.get_mut(slot).answer =
                    Answer::Error(Failure::NoMemory, "try again");
                self.answer(hall, slot);
            }
        }
    }

    /// Takes what the surveyor has found out.
    pub(in crate::event_loop) fn take_extents(&mut self, hall: &mut Hall<'_>) {
        while let Some(answer) = self.surveyor.as_ref().and_then(Surveyor::answer) {
            let slot = hall.tools.requests.by_tag(answer.token);
            let who = hall.tools.requests.get(slot).owner;
            if let Some(connection) = self.connections.resolve(who) {
                connection.outstanding -= 1;
            }
            match answer.extents {
                Ok(extents) => self.extents_known(hall, slot, &extents),
                Err(_) => {
                    hall.tools.requests.get_mut(slot).answer =
                        Answer::Error(Failure::Io, "the filesystem does not tell");
                    self.answer(hall, slot);
                }
            }
        }
    }

    /// Answers a question with extents.
    fn extents_known(&mut self, hall: &mut Hall<'_>, slot: u32, extents: &[Extent]) {
        hall.tools.requests.set_extents(slot, extents);
        self.answer(hall, slot);
    }
}
