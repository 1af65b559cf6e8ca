//! Changes of a cluster's state: puts and deletes of records, and the difference of two states.

use std::collections::{BTreeMap, BTreeSet};

use crate::part::Touched;
use crate::record::{Entitlement, HostRecord, Placement, RunningTransfer, Settings, Transfer};
use crate::state::{ClusterState, Inconsistent};

/// Put or delete of a record in a commit.
/// A put of an existing record replaces it and keeps its position in the state's order; a new
/// record comes last. A delete of an absent record changes nothing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Change {
    /// Puts a host.
    PutHost(HostRecord),
    /// Deletes the host with this name; its learnt priority database stays, and so does the
    /// membership of a daemon that is still registered.
    DeleteHost(String),
    /// Puts a host's learnt priority database.
    PutLearnt {
        /// Name of the host, which need not exist.
        host: String,
        /// Bytes of [`PriorityDatabase::export`](tidegate_place::PriorityDatabase::export).
        database: Vec<u8>,
    },
    /// Puts a deadline transfer; a new one waits for a host.
    PutTransfer(Transfer),
    /// Deletes the transfer with this name, including placement and entitlement.
    DeleteTransfer(String),
    /// Puts the placement of a transfer; a waiting one runs from then on.
    PutPlacement {
        /// Name of the transfer.
        transfer: String,
        /// Host and progress.
        placement: Placement,
    },
    /// Deletes a placement with its entitlement; the transfer waits again, in the last position.
    DeletePlacement {
        /// Name of the transfer.
        transfer: String,
    },
    /// Puts the entitlement of a placed transfer, replacing the default one.
    PutEntitlement {
        /// Name of the transfer.
        transfer: String,
        /// Class on the host.
        entitlement: Entitlement,
    },
    /// Deletes an entitlement, which restores the default one.
    DeleteEntitlement {
        /// Name of the transfer.
        transfer: String,
    },
    /// Puts the settings of the cluster.
    PutSettings(Settings),
}

impl Change {
    /// Applies changes to a state in order; every store uses this function. Learnt databases are
    /// not part of the state and are skipped. The time taken depends on the number of changes, not
    /// on the size of the state, unless a host is deleted.
    ///
    /// # Errors
    /// A placement or entitlement has no transfer, or the result is inconsistent, provided that the
    /// state was consistent. The state may be partly changed then.
    pub fn apply(changes: &[Change], state: &mut ClusterState) -> Result<(), Inconsistent> {
        for change in changes {
            change.apply_one(state)?;
        }
        for change in changes {
            // A host that is moved is deleted and put again.
            if let Change::DeleteHost(name) = change
                && state.host(name).is_none()
                && state.is_lost(name)
            {
                state.memberships.remove(name);
            }
        }
        // Once at the end, because a state may be inconsistent between two changes of a commit.
        for change in changes {
            match change {
                Change::DeleteHost(_) => return state.check(),
                Change::PutPlacement { transfer, .. } => state.check_placement(transfer)?,
                _ => {}
            }
        }
        Ok(())
    }

    /// Returns the records that a commit with some changes reads and changes.
    pub(crate) fn touched(changes: &[Change]) -> Touched {
        let mut touched = Touched::default();
        for change in changes {
            match change {
                Change::PutHost(host) => drop(touched.hosts.insert(host.name.clone())),
                // Whatever runs there must be known.
                Change::DeleteHost(_) => touched.everything = true,
                Change::PutTransfer(transfer) => touched.add_transfer(&transfer.name),
                Change::PutPlacement {
                    transfer,
                    placement,
                } => {
                    touched.add_transfer(transfer);
                    touched.hosts.insert(placement.host.clone());
                }
                Change::DeleteTransfer(transfer)
                | Change::DeletePlacement { transfer }
                | Change::PutEntitlement { transfer, .. }
                | Change::DeleteEntitlement { transfer } => touched.add_transfer(transfer),
                Change::PutLearnt { .. } | Change::PutSettings(_) => {}
            }
        }
        touched
    }

    fn apply_one(&self, state: &mut ClusterState) -> Result<(), Inconsistent> {
        match self {
            Change::PutHost(host) => match state.host(&host.name) {
                Some(at) => state.hosts[at.0] = host.clone(),
                None => state.hosts.push(host.clone()),
            },
            Change::DeleteHost(name) => state.hosts.retain(|host| host.name != *name),
            // Stored beside the state, by host name, and so kept when the host is deleted.
            Change::PutLearnt { .. } => {}
            Change::PutTransfer(transfer) => put_transfer(state, transfer),
            Change::DeleteTransfer(name) => {
                state.running.remove(name);
                state.waiting.remove(name);
            }
            Change::PutPlacement {
                transfer,
                placement,
            } => put_placement(state, transfer, placement)?,
            Change::DeletePlacement { transfer } => {
                if let Some(running) = state.running.remove(transfer) {
                    // Last: its place in the queue was given up when it was placed.
                    state.waiting.push(running.transfer);
                }
            }
            Change::PutEntitlement {
                transfer,
                entitlement,
            } => {
                let running = state.running.get_mut(transfer).ok_or_else(|| {
                    let transfer = transfer.clone();
                    Inconsistent::NotPlaced { transfer }
                })?;
                running.entitlement = entitlement.clone();
            }
            Change::DeleteEntitlement { transfer } => {
                if let Some(running) = state.running.get_mut(transfer) {
                    running.entitlement = Entitlement::default();
                }
            }
            Change::PutSettings(settings) => state.settings = *settings,
        }
        Ok(())
    }
}

fn put_transfer(state: &mut ClusterState, transfer: &Transfer) {
    if let Some(running) = state.running.get_mut(&transfer.name) {
        running.transfer = transfer.clone();
    } else if let Some(waiting) = state.waiting.get_mut(&transfer.name) {
        *waiting = transfer.clone();
    } else {
        state.waiting.push(transfer.clone());
    }
}

fn put_placement(
    state: &mut ClusterState,
    name: &str,
    placement: &Placement,
) -> Result<(), Inconsistent> {
    if let Some(running) = state.running.get_mut(name) {
        running.placement = placement.clone();
        return Ok(());
    }
    let transfer = state.waiting.remove(name);
    let transfer = transfer.ok_or_else(|| Inconsistent::NoTransfer {
        transfer: name.to_owned(),
    })?;
    state.running.push(RunningTransfer {
        transfer,
        placement: placement.clone(),
        entitlement: Entitlement::default(),
        live: false,
    });
    Ok(())
}

/// Returns the changes that lead from a state to another one that was made from it, without learnt
/// databases: records that stay have the positions that they had. Live transfers are ignored.
pub fn difference(from: &ClusterState, to: &ClusterState) -> Vec<Change> {
    // Live transfers come from the daemons, so no commit may hold them.
    let running = |state: &'_ ClusterState, name: &str| {
        let known = state.running.get(name).filter(|running| !running.live);
        known.and(state.running.position(name))
    };
    let names = from.transfer_names();
    let is_deleted = |name: &&str| match (running(from, name), from.waiting.position(name)) {
        // A live transfer of this name was never stored.
        (None, None) => false,
        (Some(at), _) => running(to, name) != Some(at),
        // A waiting transfer that runs now needs no delete, because its placement moves it.
        (None, at) => to.waiting.position(name) != at && running(to, name).is_none(),
    };
    let deleted: BTreeSet<&str> = names.filter(is_deleted).collect();
    let mut changes: Vec<_> = deleted
        .iter()
        .map(|name| Change::DeleteTransfer((*name).to_owned()))
        .collect();
    // Hosts between the deletes and puts of transfers: placements need their hosts, and a host may
    // only go after its transfers.
    host_changes(&from.hosts, &to.hosts, &mut changes);
    // Of daemons that were never hosts, or of hosts that are gone since: a reservation is deleted
    // with its host.
    let forgotten = from.memberships.keys().filter(|name| {
        let name = name.as_str();
        from.host(name).is_none() && to.host(name).is_none() && !to.memberships.contains_key(name)
    });
    changes.extend(forgotten.cloned().map(Change::DeleteHost));
    transfer_puts(from, to, &deleted, &mut changes);
    if from.settings != to.settings {
        changes.push(Change::PutSettings(to.settings));
    }
    changes
}

/// Returns the number of hosts at the beginning of `to` that keep their positions, because `from`
/// starts with them apart from deleted ones. Later hosts must be put again to get the right order.
fn unmoved_prefix_len(from: &[HostRecord], to: &[HostRecord]) -> usize {
    let there: BTreeSet<&str> = to.iter().map(|host| host.name.as_str()).collect();
    let left = from.iter().filter(|host| there.contains(&*host.name));
    left.zip(to).take_while(|(a, b)| a.name == b.name).count()
}

fn host_changes(from: &[HostRecord], to: &[HostRecord], changes: &mut Vec<Change>) {
    let (stays, comes) = to.split_at(unmoved_prefix_len(from, to));
    let kept: BTreeSet<&str> = stays.iter().map(|host| host.name.as_str()).collect();
    let leaves = |host: &&HostRecord| !kept.contains(&*host.name);
    changes.extend(
        from.iter()
            .filter(leaves)
            .map(|host| Change::DeleteHost(host.name.clone())),
    );
    let before: BTreeMap<&str, &HostRecord> =
        from.iter().map(|host| (host.name.as_str(), host)).collect();
    let is_new = |host: &&HostRecord| before.get(&*host.name) != Some(host);
    let changed = stays.iter().filter(is_new).chain(comes);
    changes.extend(changed.cloned().map(Change::PutHost));
}

fn transfer_puts(
    from: &ClusterState,
    to: &ClusterState,
    deleted: &BTreeSet<&str>,
    changes: &mut Vec<Change>,
) {
    let known = |name: &str| {
        let known = from.running.get(name).filter(|running| !running.live);
        known.filter(|_| !deleted.contains(name))
    };
    let waits = |name: &str| {
        let known = from.waiting.get(name);
        known.filter(|_| !deleted.contains(name))
    };
    for running in to.running.iter().filter(|running| !running.live) {
        let name = running.name();
        let before = known(name);
        let transfer = before.map(|before| &before.transfer).or(waits(name));
        if transfer != Some(&running.transfer) {
            changes.push(Change::PutTransfer(running.transfer.clone()));
        }
        if before.map(|before| &before.placement) != Some(&running.placement) {
            changes.push(Change::PutPlacement {
                transfer: name.to_owned(),
                placement: running.placement.clone(),
            });
        }
        let entitlement = before.map(|before| before.entitlement.clone());
        if entitlement.unwrap_or_default() != running.entitlement {
            changes.push(Change::PutEntitlement {
                transfer: name.to_owned(),
                entitlement: running.entitlement.clone(),
            });
        }
    }
    for transfer in &to.waiting {
        if waits(&transfer.name) != Some(transfer) {
            changes.push(Change::PutTransfer(transfer.clone()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::membership::{Membership, RegisteredDaemon};
    use proptest::prelude::*;
    use tidegate_core::time::Nanos;
    use tidegate_core::transfers::Class;
    use tidegate_place::Request;

    fn host(name: u8, bandwidth: u64) -> HostRecord {
        HostRecord::new(format!("host-{name}"), 1 + bandwidth, Vec::new(), 4)
    }

    fn transfer(name: u8, bytes: u64) -> Transfer {
        let request = Request::new(1 + bytes, Nanos::SECOND).expect("valid");
        Transfer::new(&format!("t-{name}"), &request, Nanos(3))
    }

    /// Step that changes a state: an operation, a transfer or host, and a value.
    type Step = (u8, u8, u8);

    /// Applies a step to a state, which stays consistent.
    fn change(state: &mut ClusterState, (step, name, value): Step) {
        let named = format!("t-{name}");
        match step {
            0 => drop(state.add_host(host(name % 4, value.into()))),
            1 => {
                let gone = format!("host-{}", name % 4);
                state.running.retain(|it| it.placement.host != gone);
                state.hosts.retain(|host| host.name != gone);
            }
            2 => {
                let n = usize::from(value).min(state.hosts.len());
                state.hosts.rotate_left(n);
            }
            3 | 4 if !state.has_transfer(&named) => {
                state.waiting.push(transfer(name, value.into()));
            }
            5 | 6 if !state.hosts.is_empty() => {
                let waited = state.waiting.remove(&named);
                let host = &state.hosts[usize::from(value) % state.hosts.len()].name;
                if state.running.get(&named).is_none() {
                    state.running.push(RunningTransfer {
                        placement: Placement::new(host, Nanos(4)),
                        transfer: waited.unwrap_or_else(|| transfer(name, value.into())),
                        entitlement: Entitlement {
                            class: Class::ALL[usize::from(value) % 3],
                            lowered_for: Vec::new(),
                        },
                        live: false,
                    });
                }
            }
            7 => {
                if let Some(running) = state.running.remove(&named) {
                    state.waiting.push(running.transfer);
                }
            }
            8 => drop((state.running.remove(&named), state.waiting.remove(&named))),
            9 => {
                if let Some(running) = state.running.get_mut(&named) {
                    running.placement.moved = value.into();
                }
                state.settings.last_number = value.into();
            }
            _ => {
                if let Some(waiting) = state.waiting.remove(&named) {
                    state.waiting.push(waiting);
                }
            }
        }
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        prop::collection::vec((0_u8..11, 0_u8..6, 0_u8..3), 0..40)
    }

    proptest! {
        #[test]
        fn the_difference_leads_from_one_state_to_the_other((first, then) in (steps(), steps())) {
            let mut from = ClusterState::default();
            first.into_iter().for_each(|step| change(&mut from, step));
            let mut to = from.clone();
            then.into_iter().for_each(|step| change(&mut to, step));
            let mut reached = from.clone();
            let changes = difference(&from, &to);
            prop_assert_eq!(Change::apply(&changes, &mut reached), Ok(()));
            prop_assert_eq!(&reached, &to, "{:?}", changes);
            prop_assert_eq!(difference(&to, &to), []);
            // What the changes touch is all that a part must have.
            let touched = Change::touched(&changes);
            let mut part = from.part(&touched);
            prop_assert_eq!(Change::apply(&changes, &mut part), Ok(()));
            let mut adopted = from.clone();
            adopted.adopt(&part, &touched);
            prop_assert_eq!(&adopted, &to);
        }
    }

    #[test]
    fn a_transfer_that_is_placed_is_not_put_again() {
        let mut from = ClusterState::default();
        from.add_host(host(0, 1)).expect("new");
        from.waiting.push(transfer(0, 1));
        let mut to = from.clone();
        let placement = Placement::new("host-0", Nanos(9));
        let name = "t-0".to_owned();
        let put = Change::PutPlacement {
            transfer: name,
            placement,
        };
        Change::apply(std::slice::from_ref(&put), &mut to).expect("it waits");
        assert_eq!(difference(&from, &to), [put]);
        // Live transfers are neither put nor deleted.
        to.running[0].live = true;
        let gone = Change::DeleteTransfer("t-0".to_owned());
        assert_eq!(difference(&from, &to), [gone]);
    }

    #[test]
    fn what_belongs_to_nothing_is_refused() {
        let mut state = ClusterState::default();
        let name = || "x".to_owned();
        let placement = Placement::new("host-0", Nanos(9));
        let put = Change::PutPlacement {
            transfer: name(),
            placement,
        };
        let refused = Change::apply(std::slice::from_ref(&put), &mut state);
        assert_eq!(refused, Err(Inconsistent::NoTransfer { transfer: name() }));
        let entitlement = Entitlement::default();
        let entitle = Change::PutEntitlement {
            transfer: name(),
            entitlement,
        };
        let refused = Change::apply(&[entitle], &mut state);
        assert_eq!(refused, Err(Inconsistent::NotPlaced { transfer: name() }));
        let of_x = Change::PutTransfer(Transfer {
            name: name(),
            ..transfer(0, 1)
        });
        let refused = Change::apply(&[of_x, put], &mut state);
        assert!(
            matches!(refused, Err(Inconsistent::NoHost { .. })),
            "{refused:?}"
        );
    }

    #[test]
    fn the_removal_of_a_host_ends_the_membership_of_a_daemon_that_is_gone() {
        let named = |name: &str| HostRecord::new(name.to_owned(), 60, Vec::new(), 4);
        let daemon = RegisteredDaemon {
            instance: "1f".to_owned(),
            joined: Nanos::ZERO,
            version: String::new(),
            api: None,
            vms: 0,
            devices: Vec::new(),
        };
        let joined = Membership {
            daemon: Some(daemon),
            ..Membership::default()
        };
        let mut state = ClusterState {
            hosts: vec![named("a"), named("b"), named("c")].into(),
            ..ClusterState::default()
        };
        state.memberships.insert("a".to_owned(), joined);
        for gone in ["b", "c"] {
            state
                .memberships
                .insert(gone.to_owned(), Membership::default());
        }
        assert!(state.is_lost("b") && !state.is_lost("a") && !state.is_lost("d"));
        // The last one only moves.
        let deletes = ["a", "b", "c"].map(|name| Change::DeleteHost(name.to_owned()));
        let changes: Vec<_> = deletes
            .into_iter()
            .chain([Change::PutHost(named("c"))])
            .collect();
        Change::apply(&changes, &mut state).expect("consistent");
        let left: Vec<_> = state.memberships.keys().map(String::as_str).collect();
        assert_eq!(left, ["a", "c"]);
    }
}
