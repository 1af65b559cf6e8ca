//! Operations on limits of disks.

use super::choices::objective;
use super::{Operator, at};

impl Operator {
    /// Limits a disk by the limit of an objective.
    pub(super) fn limit_disk(&mut self, disk: u8, choice: u8) {
        let Some(&disk) = at(&self.disks, disk) else {
            return;
        };
        let (now, limit) = (self.driver.now, objective(choice).limit);
        let limited = (self.driver.engine.vms_mut()).limit_disk(now, disk, &limit);
        assert_eq!(limited.is_ok(), self.driver.ledger.disk_is_live(disk));
    }

    /// Changes one of two shared limits, and has a disk share it, or none.
    pub(super) fn share_limit(&mut self, disk: u8, choice: u8, which: u8) {
        let Some(&disk) = at(&self.disks, disk) else {
            return;
        };
        let (now, limit) = (self.driver.now, objective(choice).limit);
        let mut vms = self.driver.engine.vms_mut();
        while self.shared.len() < 2 {
            let added = vms.add_shared_limit(now, &limit);
            self.shared.push(added.expect("the limit is valid"));
        }
        let with = self.shared.get(usize::from(which % 3)).copied();
        if let Some(with) = with {
            let changed = vms.change_shared_limit(now, with, &limit);
            changed.expect("it is there and the limit valid");
        }
        let shares = vms.share_limit(now, disk, with);
        assert_eq!(shares.is_ok(), self.driver.ledger.disk_is_live(disk));
    }
}
