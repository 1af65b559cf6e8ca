//! Questions for a disk's extents. The engine knows nothing of them: the disk's backing is asked,
//! which may take its time.

use super::{Frontends, Hall};
use crate::backing::extents::{Question, Untold};
use crate::frontend::Failure;
use crate::frontend::door::Answer;

impl Frontends {
    /// Has a question about extents answered, at once or later.
    pub(super) fn ask_extents(
        &mut self,
        hall: &mut Hall<'_>,
        connection: u32,
        slot: u32,
        most: u32,
    ) {
        let token = hall.tools.requests.tag(slot);
        let entry = hall.tools.requests.get(slot);
        let (offset, len) = (entry.offset, entry.len);
        let connection = self.connections.get(connection).expect("it asks");
        let disk = connection.disk;
        if offset + u64::from(len) > hall.device.disks[disk].disk.size {
            // The disk has become shorter than the client knows.
            let entry = hall.tools.requests.get_mut(slot);
            entry.answer = entry.kind.beyond_end();
            return self.answer(hall, slot);
        }
        connection.outstanding += 1;
        let question = Question {
            token,
            offset,
            len,
            most,
            extents: hall.tools.requests.take_extents(slot),
        };
        hall.device.ask_extents(&mut hall.tools, disk, question);
        self.take_extents(hall);
    }

    /// Takes what backings have found out.
    pub(in crate::event_loop) fn take_extents(&mut self, hall: &mut Hall<'_>) {
        let mut statuses = hall.device.take_statuses();
        for status in statuses.drain(..) {
            let slot = hall.tools.requests.by_tag(status.token);
            hall.tools.requests.put_extents(slot, status.extents);
            let entry = hall.tools.requests.get_mut(slot);
            match status.told {
                Ok(()) => {}
                Err(Untold::TryAgain) => {
                    entry.answer = Answer::Error(Failure::NoMemory, "try again");
                }
                Err(Untold::Failed) => {
                    entry.answer = Answer::Error(Failure::Io, "the filesystem does not tell");
                }
            }
            let who = entry.owner;
            if let Some(connection) = self.connections.resolve(who) {
                connection.outstanding -= 1;
            }
            self.answer(hall, slot);
        }
        hall.device.put_statuses(statuses);
    }
}
