//! Disks during a hand-over: both daemons have to mean the same files, and no disk may change
//! between the check and the last word.

use std::sync::{Arc, MutexGuard};
use std::time::{Duration, Instant};

use super::shared::Shared;
use crate::backing::{Activation, ActivationState, Users};
use crate::frontend::Volume;
use crate::takeover::{ClientPlan, DiskSummary, TakeoverError};

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

/// Refuses to go on without a disk that a client of the running daemon uses, of whatever kind.
///
/// # Errors
/// Names the first such client.
pub(super) fn refuse_lost_clients(
    own: &[DiskSummary],
    clients: &[ClientPlan],
) -> Result<(), TakeoverError> {
    let is_lost = |client: &&ClientPlan| own.iter().all(|disk| disk.export != client.export);
    let Some(ClientPlan { export, peer }) = clients.iter().find(is_lost) else {
        return Ok(());
    };
    Err(TakeoverError::refused(
        format!("{peer} uses export {export:?}, which is not served here"),
        "put the disk back into the configuration, end the client, or restart the daemon",
    ))
}

/// Time for front-ends that are being closed to leave their disks.
const USERS_TIMEOUT: Duration = Duration::from_millis(100);

/// Holds the users of all disks, so that no disk goes to another host. Blocks.
///
/// # Errors
/// Names the first disk that is on its way to another host.
pub(super) fn hold_users(
    activations: &[(String, Arc<Activation>)],
) -> Result<Vec<MutexGuard<'_, Users>>, TakeoverError> {
    let until = Instant::now() + USERS_TIMEOUT;
    let mut all = Vec::new();
    for (export, activation) in activations {
        // Not by waiting for the lock: a guest that leaves to another host may have it for long.
        let held = loop {
            match activation.try_users() {
                None if Instant::now() < until => std::thread::sleep(Duration::from_millis(1)),
                held => break held,
            }
        };
        match held {
            Some(held) if !held.is_releasing => all.push(held),
            _ => {
                let moves = format!("disk {export:?} is being handed to another host");
                return Err(TakeoverError::refused(moves, "try again"));
            }
        }
    }
    Ok(all)
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
    fn a_client_of_any_kind_whose_disk_is_not_served_is_refused() {
        let own = [DiskSummary {
            export: "a".to_owned(),
            file: None,
            size: 1 << 20,
            read_only: false,
            is_active: true,
        }];
        let client = |export: &str| ClientPlan {
            export: export.to_owned(),
            peer: "uid 7 pid 8".to_owned(),
        };
        refuse_lost_clients(&own, &[client("a")]).expect("served");
        let refused = refuse_lost_clients(&own, &[client("a"), client("b")]);
        let why = refused.expect_err("lost").to_string();
        assert_eq!(
            why,
            "uid 7 pid 8 uses export \"b\", which is not served here"
        );
    }

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
