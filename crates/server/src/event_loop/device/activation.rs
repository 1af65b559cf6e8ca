//! Hand-over of disks to other daemons: their I/O ends before the lock of their file is released,
//! and begins once it is held.
//!
//! ```text
//!   served --lock leaves--> new I/O fails, I/O in flight ends --answer--> lock is released
//!   served <--lock taken, or kept----------------------------------------+
//! ```
//!
//! The sender of the commands takes and releases the lock, which may block.

use super::super::respond;
use super::Device;
use crate::backing::AnyBacking;
use crate::command::{ActivationChange, CommandError, DiskLock, Reply};

/// Returns the reason why a disk stays where it is: what was acknowledged may be lost, and another
/// daemon would not know.
fn not_whole(medium: &AnyBacking) -> CommandError {
    let why = medium.failure().unwrap_or_default();
    CommandError::Refused(format!("the disk has failed: {why}"))
}

/// Disk whose I/O fails, and whose I/O in flight has to end.
#[derive(Debug)]
pub(super) struct PendingDeactivation {
    serial: u32,
    reply: Reply<()>,
}

impl Device {
    /// Returns the index of the disk with a serial number, unless it has been removed.
    fn disk_of_serial(&self, serial: u32) -> Result<usize, CommandError> {
        let mut disks = self.disks.iter();
        let found = disks.find(|(_, state)| state.serial == serial);
        let gone = || CommandError::Refused("the disk was removed".to_owned());
        found.map(|(at, _)| at).ok_or_else(gone)
    }

    /// Serves I/O of a disk whose file is locked, or makes it fail because the lock is to be
    /// released. The answer to the latter comes once the I/O in flight has ended.
    pub(in super::super) fn change_activation(&mut self, change: ActivationChange) {
        let ActivationChange {
            serial,
            lock,
            reply,
        } = change;
        let at = match self.disk_of_serial(serial) {
            Ok(at) => at,
            Err(error) => return respond(reply, Err(error)),
        };
        let state = &mut self.disks[at];
        let medium = &mut state.disk.medium;
        match lock {
            // The size of the file is changed without the loop.
            DiskLock::Leaves if state.resizing => {
                let what = "the disk is being resized".to_owned();
                respond(reply, Err(CommandError::Refused(what)));
            }
            DiskLock::Leaves if medium.failure().is_some() => {
                respond(reply, Err(not_whole(medium)));
            }
            DiskLock::Leaves => {
                medium.deactivate();
                let pending = PendingDeactivation { serial, reply };
                self.pending_deactivations.push(pending);
            }
            DiskLock::Taken(found) => {
                medium.activate(Some(found));
                respond(reply, Ok(()));
            }
            DiskLock::Kept(error) => {
                error.iter().for_each(|error| medium.sync_failed(error));
                medium.activate(None);
                self.pending_deactivations
                    .retain(|other| other.serial != serial);
                respond(reply, Ok(()));
            }
        }
    }

    /// Answers for the disks that have no I/O in flight any more.
    #[inline]
    pub(in super::super) fn answer_deactivations(&mut self) {
        let mut at = 0;
        while at < self.pending_deactivations.len() {
            let serial = self.pending_deactivations[at].serial;
            let answer = match self.disk_of_serial(serial) {
                Ok(disk) if self.disks[disk].in_flight > 0 => {
                    at += 1;
                    continue;
                }
                // I/O in flight may have failed since.
                Ok(disk) => match &self.disks[disk].disk.medium {
                    medium if medium.failure().is_some() => Err(not_whole(medium)),
                    _ => Ok(()),
                },
                Err(error) => Err(error),
            };
            // The last entry takes this index, so the loop looks at it again.
            let pending = self.pending_deactivations.swap_remove(at);
            respond(pending.reply, answer);
        }
    }
}
