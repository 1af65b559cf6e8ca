//! Changes of a cluster's state: puts and deletes of records, and the difference of two states.

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
    /// not part of the state and are skipped.
    ///
    /// # Errors
    /// A placement or entitlement has no transfer, or the result is inconsistent. The state may be
    /// partly changed then.
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
        state.check()
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
                state.running.retain(|running| running.name() != name);
                state.waiting.retain(|transfer| transfer.name != *name);
            }
            Change::PutPlacement {
                transfer,
                placement,
            } => put_placement(state, transfer, placement)?,
            Change::DeletePlacement { transfer } => {
                if let Some(at) = position(&state.running, transfer) {
                    // Last: its place in the queue was given up when it was placed.
                    state.waiting.push(state.running.remove(at).transfer);
                }
            }
            Change::PutEntitlement {
                transfer,
                entitlement,
            } => {
                let at = position(&state.running, transfer).ok_or_else(|| {
                    let transfer = transfer.clone();
                    Inconsistent::NotPlaced { transfer }
                })?;
                state.running[at].entitlement = entitlement.clone();
            }
            Change::DeleteEntitlement { transfer } => {
                if let Some(at) = position(&state.running, transfer) {
                    state.running[at].entitlement = Entitlement::default();
                }
            }
            Change::PutSettings(settings) => state.settings = *settings,
        }
        Ok(())
    }
}

fn position(running: &[RunningTransfer], name: &str) -> Option<usize> {
    running.iter().position(|running| running.name() == name)
}

fn put_transfer(state: &mut ClusterState, transfer: &Transfer) {
    let name = transfer.name.as_str();
    let waiting = state.waiting.iter_mut();
    let mut same = state
        .running
        .iter_mut()
        .map(|running| &mut running.transfer)
        .chain(waiting)
        .filter(|known| known.name == name);
    match same.next() {
        Some(known) => *known = transfer.clone(),
        None => state.waiting.push(transfer.clone()),
    }
}

fn put_placement(
    state: &mut ClusterState,
    name: &str,
    placement: &Placement,
) -> Result<(), Inconsistent> {
    if let Some(at) = position(&state.running, name) {
        state.running[at].placement = placement.clone();
        return Ok(());
    }
    let waits = state.waiting.iter().position(|known| known.name == name);
    let at = waits.ok_or_else(|| Inconsistent::NoTransfer {
        transfer: name.to_owned(),
    })?;
    state.running.push(RunningTransfer {
        transfer: state.waiting.remove(at),
        placement: placement.clone(),
        entitlement: Entitlement::default(),
        live: false,
    });
    Ok(())
}

/// Returns the changes that lead from one state to another, without learnt databases. Live
/// transfers are ignored.
pub fn difference(from: &ClusterState, to: &ClusterState) -> Vec<Change> {
    let (mut from, mut to) = (from.clone(), to.clone());
    from.drop_live();
    to.drop_live();
    let mut changes = Vec::new();
    // Live transfers come from the daemons, so no commit may hold them.
    transfer_changes(&from, &to, &mut changes);
    // Hosts between the deletes and puts of transfers: placements need their hosts, and a host may
    // only go after its transfers.
    let puts = changes.split_off(leading_deletes(&changes));
    host_changes(&from.hosts, &to.hosts, &mut changes);
    // Of daemons that were never hosts, or of hosts that are gone since: a reservation is deleted
    // with its host.
    let forgotten = from.memberships.keys().filter(|name| {
        let name = name.as_str();
        from.host(name).is_none() && to.host(name).is_none() && !to.memberships.contains_key(name)
    });
    changes.extend(forgotten.cloned().map(Change::DeleteHost));
    changes.extend(puts);
    if from.settings != to.settings {
        changes.push(Change::PutSettings(to.settings));
    }
    changes
}

/// Number of deletes at the beginning of `changes`.
fn leading_deletes(changes: &[Change]) -> usize {
    let is_delete = |change: &&Change| matches!(change, Change::DeleteTransfer(_));
    changes.iter().take_while(is_delete).count()
}

/// Number of records at the beginning of `to` that keep their positions, because `from` starts with
/// them apart from deleted ones. Later records must be put again to get the right order.
fn unmoved_prefix_len<'a>(
    from: impl Iterator<Item = &'a str>,
    to: impl Iterator<Item = &'a str> + Clone,
) -> usize {
    let left = from.filter(|name| to.clone().any(|there| there == *name));
    left.zip(to.clone()).take_while(|(a, b)| a == b).count()
}

fn host_changes(from: &[HostRecord], to: &[HostRecord], changes: &mut Vec<Change>) {
    let name = |host: &'_ HostRecord| host.name.clone();
    let n = unmoved_prefix_len(
        from.iter().map(|host| host.name.as_str()),
        to.iter().map(|host| host.name.as_str()),
    );
    let (stays, comes) = to.split_at(n);
    let leaves = |host: &&HostRecord| stays.iter().all(|there| there.name != host.name);
    changes.extend(
        from.iter()
            .filter(leaves)
            .map(|host| Change::DeleteHost(name(host))),
    );
    let is_new = |host: &&HostRecord| !from.contains(host);
    let changed = stays.iter().filter(is_new).chain(comes);
    changes.extend(changed.cloned().map(Change::PutHost));
}

fn transfer_changes(from: &ClusterState, to: &ClusterState, changes: &mut Vec<Change>) {
    let running = unmoved_prefix_len(
        from.running.iter().map(RunningTransfer::name),
        to.running.iter().map(RunningTransfer::name),
    );
    let waiting = unmoved_prefix_len(
        from.waiting.iter().map(|transfer| transfer.name.as_str()),
        to.waiting.iter().map(|transfer| transfer.name.as_str()),
    );
    let known = |name: &str| from.running(name);
    let waits = |name: &str| from.waiting.iter().find(|transfer| transfer.name == name);
    // A waiting transfer that runs now needs no delete, because its placement moves it.
    let again = |name: &str| {
        let is_running = to.running[running..]
            .iter()
            .any(|later| later.name() == name);
        let is_waiting = to.waiting[waiting..].iter().any(|later| later.name == name);
        is_waiting || is_running && known(name).is_some()
    };
    let gone = |name: &&str| !to.has_transfer(name) || again(name);
    let gone: Vec<_> = from.transfer_names().filter(gone).collect();
    changes.extend(
        gone.iter()
            .map(|name| Change::DeleteTransfer((*name).to_owned())),
    );
    for running in &to.running {
        let name = running.name();
        let there = |name: &str| !gone.contains(&name);
        let before = known(name).filter(|_| there(name));
        let transfer = before.map(|before| &before.transfer);
        let transfer = transfer.or_else(|| waits(name).filter(|_| there(name)));
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
    for (at, transfer) in to.waiting.iter().enumerate() {
        let stays = at < waiting && waits(&transfer.name) == Some(transfer);
        if !stays {
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

    /// Random states with few names, so that two states share many records in different orders.
    fn state() -> impl Strategy<Value = ClusterState> {
        let hosts = prop::collection::vec((0_u8..4, 0_u64..2), 1..4);
        let running = prop::collection::vec((0_u8..6, 0_u64..2, 0_usize..4, 0_usize..3), 0..5);
        let waiting = prop::collection::vec((0_u8..6, 0_u64..2), 0..5);
        (hosts, running, waiting, 0_u64..2).prop_map(|(hosts, running, waiting, last_number)| {
            let mut state = ClusterState::default();
            state.settings.last_number = last_number;
            for (name, bandwidth) in hosts {
                let _ = state.add_host(host(name, bandwidth));
            }
            for (name, bytes, at, class) in running {
                let transfer = transfer(name, bytes);
                if !state.has_transfer(&transfer.name) {
                    let host = &state.hosts[at % state.hosts.len()].name;
                    let entitlement = Entitlement {
                        class: Class::ALL[class],
                        lowered_for: Vec::new(),
                    };
                    state.running.push(RunningTransfer {
                        placement: Placement::new(host, Nanos(4)),
                        transfer,
                        entitlement,
                        live: false,
                    });
                }
            }
            for (name, bytes) in waiting {
                let transfer = transfer(name, bytes);
                if !state.has_transfer(&transfer.name) {
                    state.waiting.push(transfer);
                }
            }
            state
        })
    }

    proptest! {
        #[test]
        fn the_difference_leads_from_one_state_to_the_other((from, to) in (state(), state())) {
            let mut reached = from.clone();
            let changes = difference(&from, &to);
            prop_assert_eq!(Change::apply(&changes, &mut reached), Ok(()));
            prop_assert_eq!(&reached, &to, "{:?}", changes);
            prop_assert_eq!(difference(&to, &to), []);
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
            hosts: vec![named("a"), named("b"), named("c")],
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
