//! State of a cluster: plain data, and the invariants that every state satisfies.

mod times;

use std::collections::{BTreeMap, BTreeSet};

use tidegate_core::time::Nanos;
use tidegate_core::transfers::Class;
use tidegate_place::{Grace, HostId};

use crate::hosts::Hosts;
use crate::membership::Membership;
use crate::part::Touched;
use crate::record::{HostRecord, RunningTransfer, Settings, Transfer};
use crate::table::Table;

/// Hosts, their running transfers, waiting transfers, and settings of a cluster.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct ClusterState {
    /// Hosts in the order in which they were added.
    pub hosts: Hosts,
    /// Transfers that run on a host, in the order in which they were placed.
    pub running: Table<RunningTransfer>,
    /// Transfers that wait for a host, in order of arrival.
    pub waiting: Table<Transfer>,
    /// Settings of the whole cluster.
    pub settings: Settings,
    /// Memberships of hosts whose daemons have joined, by host, which need not be in `hosts`. The
    /// daemons write them; no [`Change`](crate::Change) does, but the removal of a host whose
    /// daemon is gone ends its membership.
    pub memberships: BTreeMap<String, Membership>,
}

/// Contents of a host list file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HostList {
    /// Hosts in the order of the file.
    pub hosts: Vec<HostRecord>,
    /// [`Settings::grace`].
    pub grace: Option<u32>,
}

/// Refused change of hosts.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum HostError {
    /// Host on which a transfer runs is missing from a host list.
    #[error("host {host:?} is missing from the file, but job {transfer:?} runs there")]
    LeftOut {
        /// Name of the missing host.
        host: String,
        /// Name of the first transfer on that host.
        transfer: String,
    },
    /// Name of a new host is taken.
    #[error("a host named {host:?} already exists")]
    Exists {
        /// Name of the host.
        host: String,
    },
    /// Two hosts with one socket and device that have not both joined: the transfers of one daemon
    /// would count twice.
    #[error("hosts {host:?} and {other:?} have the same daemon: {socket}")]
    SameDaemon {
        /// Name of the later host.
        host: String,
        /// Name of the earlier one.
        other: String,
        /// Control socket of both.
        socket: String,
    },
    /// No host has this name.
    #[error("there is no host {host:?}")]
    Unknown {
        /// Requested name.
        host: String,
        /// Names of all hosts.
        known: Vec<String>,
    },
    /// Host to be removed still runs transfers.
    #[error("{} on host {host:?}: {}", transfers_run(transfers.len()), transfers.join(", "))]
    Busy {
        /// Name of the host.
        host: String,
        /// Names of the transfers.
        transfers: Vec<String>,
    },
}

fn transfers_run(n: usize) -> String {
    match n {
        1 => "a job runs".to_owned(),
        n => format!("{n} jobs run"),
    }
}

/// Violated invariant of a state.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Inconsistent {
    /// Placement on a host that does not exist.
    #[error("transfer {transfer:?} is placed on host {host:?}, which does not exist")]
    NoHost {
        /// Name of the transfer.
        transfer: String,
        /// Name of the host.
        host: String,
    },
    /// Placement of a transfer that does not exist.
    #[error("placement of transfer {transfer:?}, which does not exist")]
    NoTransfer {
        /// Name of the transfer.
        transfer: String,
    },
    /// Entitlement of a transfer that is not placed.
    #[error("entitlement of transfer {transfer:?}, which is not placed")]
    NotPlaced {
        /// Name of the transfer.
        transfer: String,
    },
}

/// Effect of the end of a running transfer.
pub(crate) struct Ended {
    /// Host where it ran.
    pub(crate) host: HostId,
    /// Names and classes of the transfers that had been lowered for it.
    pub(crate) raised: Vec<(String, Class)>,
}

/// Checks that a host has its daemon, or its device of the daemon, alone among `others`. Hosts that
/// have joined have a daemon each, whatever the paths of their sockets.
fn check_daemon(
    host: &HostRecord,
    others: &[HostRecord],
    memberships: &BTreeMap<String, Membership>,
) -> Result<(), HostError> {
    let Some(socket) = &host.socket else {
        return Ok(());
    };
    let same = others.iter().find(|other| {
        let on_one_device = match (&host.device, &other.device) {
            (Some(own), Some(device)) => own == device,
            _ => true,
        };
        let have_joined = [host, other].map(|it| memberships.contains_key(&it.name));
        other.socket.as_ref() == Some(socket) && on_one_device && have_joined != [true, true]
    });
    match same {
        None => Ok(()),
        Some(other) => Err(HostError::SameDaemon {
            host: host.name.clone(),
            other: other.name.clone(),
            socket: socket.clone(),
        }),
    }
}

impl ClusterState {
    /// Returns the index of the host named `name`.
    pub fn host(&self, name: &str) -> Option<HostId> {
        self.hosts.index_of(name).map(HostId)
    }

    /// Returns the standing reservation of a host's VMs in bytes per second; 0 for a host whose
    /// daemon has never joined.
    pub fn reserved(&self, host: &HostRecord) -> u64 {
        let membership = self.memberships.get(&host.name);
        membership.map_or(0, |it| it.reserved_on(host.device.as_deref()))
    }

    /// Returns true if the daemon of a host has joined and is gone, so that nothing may be placed
    /// there.
    pub fn is_lost(&self, host: &str) -> bool {
        let membership = self.memberships.get(host);
        membership.is_some_and(|membership| membership.daemon.is_none())
    }

    /// Returns true if the daemon of a host is registered under a lease.
    pub fn is_registered(&self, host: &str) -> bool {
        let membership = self.memberships.get(host);
        membership.is_some_and(|membership| membership.daemon.is_some())
    }

    /// Returns the running transfer named `name`.
    pub fn running(&self, name: &str) -> Option<&RunningTransfer> {
        self.running.get(name)
    }

    /// Returns the names of all transfers, running ones first.
    pub fn transfer_names(&self) -> impl Iterator<Item = &str> {
        let waiting = self.waiting.iter().map(|transfer| transfer.name.as_str());
        self.running
            .iter()
            .map(RunningTransfer::name)
            .chain(waiting)
    }

    /// Returns whether a transfer is named `name`.
    pub fn has_transfer(&self, name: &str) -> bool {
        self.running.get(name).is_some() || self.waiting.get(name).is_some()
    }

    /// Returns the grace for late transfers.
    pub fn grace(&self) -> Grace {
        let grace = self.settings.grace;
        grace.map_or_else(Grace::default, Grace::thousandths)
    }

    /// Returns the index of the host named `name`.
    ///
    /// # Errors
    /// There is no such host.
    pub fn known_host(&self, name: &str) -> Result<HostId, HostError> {
        self.host(name).ok_or_else(|| HostError::Unknown {
            host: name.to_owned(),
            known: self.hosts.iter().map(|host| host.name.clone()).collect(),
        })
    }

    /// Adds a host.
    ///
    /// # Errors
    /// The name is taken, or a host has the same daemon and device.
    pub fn add_host(&mut self, host: HostRecord) -> Result<(), HostError> {
        if self.host(&host.name).is_some() {
            return Err(HostError::Exists { host: host.name });
        }
        check_daemon(&host, &self.hosts, &self.memberships)?;
        self.hosts.push(host);
        Ok(())
    }

    /// Drains a host, or ends its draining.
    ///
    /// # Errors
    /// There is no such host.
    pub fn set_drained(&mut self, name: &str, drained: bool) -> Result<(), HostError> {
        let HostId(at) = self.known_host(name)?;
        self.hosts[at].drained = drained;
        Ok(())
    }

    /// Replaces the hosts by those of a file. Remaining hosts keep their transfers and their drain
    /// state.
    ///
    /// # Errors
    /// A host on which a transfer runs is missing, or two hosts have the same daemon and device.
    pub fn replace_hosts(&mut self, list: HostList) -> Result<(), HostError> {
        let HostList { mut hosts, grace } = list;
        for (at, host) in hosts.iter().enumerate() {
            check_daemon(host, &hosts[..at], &self.memberships)?;
        }
        for running in &self.running {
            let own = &running.placement.host;
            if hosts.iter().all(|host| host.name != *own) {
                return Err(HostError::LeftOut {
                    host: own.clone(),
                    transfer: running.name().to_owned(),
                });
            }
        }
        for host in &mut hosts {
            if let Some(before) = self.hosts.iter().find(|before| before.name == host.name) {
                // A file describes hosts, but not what happened on them.
                host.steady_since = before.steady_since;
                host.rates_recorded_at = before.rates_recorded_at;
                host.drained = before.drained;
            }
        }
        self.hosts = hosts.into();
        self.settings.grace = grace;
        Ok(())
    }

    /// Checks that no transfer runs on a host.
    ///
    /// # Errors
    /// There is no such host, or it runs transfers.
    pub fn check_empty(&self, name: &str) -> Result<(), HostError> {
        self.known_host(name)?;
        let there = self.running.iter();
        let there = there.filter(|running| running.placement.host == name);
        let transfers: Vec<_> = there.map(|running| running.name().to_owned()).collect();
        if transfers.is_empty() {
            return Ok(());
        }
        Err(HostError::Busy {
            host: name.to_owned(),
            transfers,
        })
    }

    /// Checks that each placement is on a host of the cluster.
    ///
    /// # Errors
    /// The first placement that is not.
    pub fn check(&self) -> Result<(), Inconsistent> {
        let hosts: BTreeSet<&str> = self.hosts.iter().map(|host| host.name.as_str()).collect();
        let mut all = self.running.iter();
        match all.find(|running| !hosts.contains(&*running.placement.host)) {
            None => Ok(()),
            Some(running) => self.check_placement(running.name()),
        }
    }

    /// Checks that the placement of a transfer, if it has one, is on a host of the cluster.
    pub(crate) fn check_placement(&self, name: &str) -> Result<(), Inconsistent> {
        match self.running.get(name) {
            Some(running) if self.host(&running.placement.host).is_none() => {
                Err(Inconsistent::NoHost {
                    transfer: name.to_owned(),
                    host: running.placement.host.clone(),
                })
            }
            _ => Ok(()),
        }
    }

    /// Removes a running transfer, and restores the classes of those that were lowered for it,
    /// which are among `neighbours`, the names of transfers on its host. `None`: there is no such
    /// transfer, or its host does not exist.
    pub(crate) fn end_running<'a>(
        &mut self,
        name: &str,
        neighbours: impl IntoIterator<Item = &'a str>,
        now: Nanos,
    ) -> Option<Ended> {
        let ended = self.running.remove(name)?;
        let mut raised = Vec::new();
        for neighbour in neighbours {
            let Some(running) = self.running.get_mut(neighbour) else {
                continue;
            };
            let entitlement = &mut running.entitlement;
            let before = entitlement.lowered_for.len();
            entitlement.lowered_for.retain(|whom| whom != name);
            let steps = before - entitlement.lowered_for.len();
            if steps > 0 {
                entitlement.class = entitlement.class.raised(steps);
                raised.push((running.transfer.name.clone(), entitlement.class));
            }
        }
        let host = self.host(&ended.placement.host)?;
        // Rates over an interval with a change in it say nothing about either combination.
        self.hosts[host.0].steady_since = now;
        Some(Ended { host, raised })
    }

    /// Returns the touched records, at their positions, and the settings.
    pub(crate) fn part(&self, touched: &Touched) -> ClusterState {
        if touched.everything {
            return self.clone();
        }
        let mut part = ClusterState {
            settings: self.settings,
            ..ClusterState::default()
        };
        let hosts = touched.hosts.iter().filter_map(|name| self.host(name));
        let mut hosts: Vec<_> = hosts.collect();
        hosts.sort_unstable();
        part.hosts = hosts.iter().map(|at| self.hosts[at.0].clone()).collect();
        part.adopt_memberships(self, touched);
        let names = touched.transfers.iter().map(String::as_str);
        part.running.adopt(names.clone(), &self.running);
        part.waiting.adopt(names, &self.waiting);
        // New records of the part come after all others.
        part.raise_last(self);
        part
    }

    /// Makes the touched records, and the settings, those of a part of another state. Hosts that
    /// are new there come last. Positions count as taken if a record is there.
    pub(crate) fn adopt(&mut self, part: &ClusterState, touched: &Touched) {
        if touched.everything {
            let (running, waiting) = (self.running.last(), self.waiting.last());
            *self = part.clone();
            self.running.set_last(running);
            self.waiting.set_last(waiting);
            return;
        }
        self.settings = part.settings;
        for host in part
            .hosts
            .iter()
            .filter(|host| touched.hosts.contains(&host.name))
        {
            match self.host(&host.name) {
                Some(at) => self.hosts[at.0] = host.clone(),
                None => self.hosts.push(host.clone()),
            }
        }
        self.adopt_memberships(part, touched);
        let names = touched.transfers.iter().map(String::as_str);
        self.running.adopt(names.clone(), &part.running);
        self.waiting.adopt(names, &part.waiting);
    }

    /// Makes the memberships of touched hosts those of another state.
    pub(crate) fn adopt_memberships(&mut self, other: &ClusterState, touched: &Touched) {
        if touched.everything {
            self.memberships.clone_from(&other.memberships);
            return;
        }
        for host in &touched.hosts {
            match other.memberships.get(host) {
                Some(membership) => {
                    self.memberships.insert(host.clone(), membership.clone());
                }
                None => drop(self.memberships.remove(host)),
            }
        }
    }

    /// Counts positions as taken that another state counts so.
    pub(crate) fn raise_last(&mut self, other: &ClusterState) {
        self.running.raise_last(other.running.last());
        self.waiting.raise_last(other.waiting.last());
    }

    /// Removes live transfers, which every session requests from the daemons again.
    pub fn drop_live(&mut self) {
        self.running.retain(|running| !running.live);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Entitlement, Placement};
    use tidegate_core::time::Nanos;
    use tidegate_place::Request;

    fn host(name: &str) -> HostRecord {
        HostRecord::new(name.to_owned(), 60, Vec::new(), 4)
    }

    fn with_one_running() -> ClusterState {
        let request = Request::new(600, Nanos::SECOND).expect("valid");
        ClusterState {
            hosts: vec![host("a"), host("b")].into(),
            running: Table::from(vec![RunningTransfer {
                transfer: Transfer::new("x", &request, Nanos(1)),
                placement: Placement::new("a", Nanos(1)),
                entitlement: Entitlement::default(),
                live: false,
            }]),
            ..ClusterState::default()
        }
    }

    #[test]
    fn a_list_of_hosts_keeps_what_runs_and_refuses_to_lose_it() {
        let mut state = with_one_running();
        state.hosts[0].steady_since = Nanos(5);
        state.set_drained("a", true).expect("known");
        let grace = Some(20);
        let list = |names: &[&str]| HostList {
            hosts: names.iter().map(|name| host(name)).collect(),
            grace,
        };
        let refused = state.replace_hosts(list(&["b"])).expect_err("x runs on a");
        assert!(matches!(refused, HostError::LeftOut { transfer, .. } if transfer == "x"));
        state.replace_hosts(list(&["c", "a"])).expect("a is there");
        assert_eq!(state.host("a"), Some(HostId(1)));
        let stays = &state.hosts[1];
        assert_eq!((stays.steady_since, stays.drained), (Nanos(5), true));
        assert_eq!(state.grace(), Grace::thousandths(20));
    }

    #[test]
    fn a_host_with_a_transfer_is_not_empty() {
        let state = with_one_running();
        state.check_empty("b").expect("nothing runs there");
        assert!(matches!(
            state.check_empty("a"),
            Err(HostError::Busy { transfers, .. }) if transfers == ["x"]
        ));
        assert!(matches!(
            state.check_empty("c"),
            Err(HostError::Unknown { known, .. }) if known == ["a", "b"]
        ));
        let mut lost = state.clone();
        lost.hosts.remove(0);
        assert_eq!(state.check(), Ok(()));
        assert!(matches!(lost.check(), Err(Inconsistent::NoHost { host, .. }) if host == "a"));
    }

    #[test]
    fn two_hosts_may_not_have_one_daemon_unless_each_has_a_device_of_it() {
        let on = |name: &str, device: Option<&str>| HostRecord {
            socket: Some("/run/c.sock".to_owned()),
            device: device.map(str::to_owned),
            ..host(name)
        };
        let mut state = ClusterState::default();
        state.add_host(on("a", Some("sda"))).expect("the first");
        state
            .add_host(on("b", Some("sdb")))
            .expect("another device");
        for device in [Some("sda"), None] {
            let refused = state.add_host(on("c", device)).expect_err("counted twice");
            assert_eq!(
                refused.to_string(),
                "hosts \"c\" and \"a\" have the same daemon: /run/c.sock"
            );
        }
        let list = |hosts| HostList { hosts, grace: None };
        let twice = state.replace_hosts(list(vec![on("a", None), on("b", None)]));
        assert!(
            matches!(twice, Err(HostError::SameDaemon { .. })),
            "{twice:?}"
        );
        let kept = state.replace_hosts(list(vec![on("a", None), host("b")]));
        assert_eq!(kept, Ok(()));
        // The path is that of each machine, where both have a daemon that has joined.
        let both = || list(vec![on("a", None), on("b", None)]);
        state
            .memberships
            .insert("a".to_owned(), Membership::default());
        let one = state.replace_hosts(both());
        assert!(matches!(one, Err(HostError::SameDaemon { .. })), "{one:?}");
        state
            .memberships
            .insert("b".to_owned(), Membership::default());
        assert_eq!(state.replace_hosts(both()), Ok(()));
    }
}
