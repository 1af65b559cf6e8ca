//! Disks during a hand-over: both daemons have to mean the same files, and no disk may change
//! between the check and the last word.

use std::sync::Arc;

use super::shared::Shared;
use crate::backing::{Activation, ActivationState};
use crate::frontend::Volume;
use crate::takeover::{DiskSummary, TakeoverError};

/// Advice for a disk that is not the one that is served.
const SAME_DISK: &str = "put it back, remove the disk from the running daemon first (`tidegate vm \
                         remove`), or restart the daemon";

/// Returns the disks that are served, by name of the export.
pub(super) fn summaries(shared: &Shared) -> Vec<DiskSummary> {
    let mut all = Vec::new();
    shared.disks.offered().for_each(|_, volume| {
        all.push(summary(volume));
    });
    all.sort_by(|one, other| one.export.cmp(&other.export));
    all
}

fn summary(volume: &Volume) -> DiskSummary {
    let state = volume.activation.as_ref().map(|it| it.state());
    DiskSummary {
        export: volume.name.clone(),
        file: volume.identity,
        size: volume.size,
        read_only: volume.read_only,
        is_active: state.is_none_or(|state| state == ActivationState::Active),
    }
}

/// Returns the locks of all writable disks, each with the name of its export.
pub(super) fn activations(shared: &Shared) -> Vec<(String, Arc<Activation>)> {
    let mut all = Vec::new();
    shared.disks.offered().for_each(|_, volume| {
        let activation = volume.activation.clone();
        all.extend(activation.map(|it| (volume.name.clone(), it)));
    });
    all
}

/// Refuses disks here that have the export of one of the running daemon and are not that disk: its
/// clients, or those that connect again, would find other bytes.
///
/// # Errors
/// Names the first such disk, and what differs.
pub(super) fn refuse_others(
    own: &[DiskSummary],
    theirs: &[DiskSummary],
) -> Result<(), TakeoverError> {
    for disk in own {
        let Some(other) = theirs.iter().find(|it| it.export == disk.export) else {
            continue;
        };
        let DiskSummary {
            export,
            file,
            size,
            read_only,
            is_active,
        } = disk;
        let what = if *file != other.file {
            "is on another file than the one that is served".to_owned()
        } else if *size != other.size {
            format!("has {size} bytes instead of {}", other.size)
        } else if *read_only != other.read_only {
            format!("has read_only = {read_only}, unlike the one that is served")
        } else if *is_active != other.is_active {
            "waits for its guest in one daemon and not in the other".to_owned()
        } else {
            continue;
        };
        return Err(TakeoverError::refused(
            format!("disk {export:?} {what}"),
            SAME_DISK,
        ));
    }
    Ok(())
}

/// Takes the locks of all active disks again: the other daemon, which had them too, may have
/// released them as it ended.
///
/// # Errors
/// If another process has locked one meanwhile.
pub(super) fn lock_again(shared: &Shared) -> Result<(), TakeoverError> {
    for (export, activation) in activations(shared) {
        if activation.state() == ActivationState::Active
            && let Err(error) = activation.lock_again()
        {
            return Err(TakeoverError::refused(
                format!("disk {export:?}: {error}"),
                "end the other process, and start the daemon without --takeover",
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_of_the_same_name_that_is_another_one_is_refused() {
        let disk = |export: &str| DiskSummary {
            export: export.to_owned(),
            file: Some((false, 1, 2)),
            size: 1 << 20,
            read_only: false,
            is_active: true,
        };
        let served = [disk("a"), disk("b")];
        refuse_others(&served, &served).expect("the same");
        refuse_others(&[disk("new"), disk("b")], &served).expect("of other names");
        let others = [
            DiskSummary {
                file: Some((false, 1, 3)),
                ..disk("b")
            },
            DiskSummary {
                file: Some((true, 1, 2)),
                ..disk("b")
            },
            DiskSummary {
                file: None,
                ..disk("b")
            },
            DiskSummary {
                size: 2 << 20,
                ..disk("b")
            },
            DiskSummary {
                read_only: true,
                ..disk("b")
            },
            DiskSummary {
                is_active: false,
                ..disk("b")
            },
        ];
        for other in others {
            let error = refuse_others(&[disk("a"), other], &served).expect_err("another");
            assert!(error.to_string().starts_with("disk \"b\""), "{error}");
        }
    }
}
