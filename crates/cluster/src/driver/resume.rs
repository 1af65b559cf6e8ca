//! Reconstruction of [`Pcos`], the state machine that places transfers on hosts, from a stored
//! state: whole, or the hosts and waiting transfers that have changed.

use std::collections::{BTreeMap, BTreeSet};

use tidegate_core::learnt_state::Blob;
use tidegate_core::time::Nanos;
use tidegate_place::{
    Bandwidth, HostId, HostSpec, Pcos, RequestId, ResumedTransfer, VmState, WAITING_CAPACITY,
};

use super::Cluster;
use super::names::Names;
use crate::part::Touched;
use crate::record::{HostRecord, RunningTransfer, Transfer};
use crate::state::ClusterState;
use crate::store::StoreError;

/// Stored priority databases by host: rates that the I/O classes had there.
pub(super) type Databases = BTreeMap<String, Vec<u8>>;

/// Builds the state machine of a state. The numbers of hosts are their indices in the state.
pub(super) fn resume(
    state: &ClusterState,
    databases: &Databases,
    now: Nanos,
) -> Result<(Pcos, Names), StoreError> {
    let mut pcos = Pcos::new(WAITING_CAPACITY).with_grace(state.grace());
    let mut names = Names::default();
    let mut hosts = BTreeMap::new();
    for host in &state.hosts {
        let id = pcos.add_host(now, spec(state, host, databases)?);
        if !is_open(state, host) {
            pcos.close_host(now, id);
        }
        hosts.insert(host.name.as_str(), id);
    }
    for running in &state.running {
        let host = hosts.get(&*running.placement.host).ok_or_else(|| {
            StoreError::Damaged(
                "a running transfer is placed on a host that does not exist".to_owned(),
            )
        })?;
        let ResumedTransfer { vm, as_of, limit } = resumed(running);
        let id = pcos.resume(*host, vm, as_of);
        // Limits are declared by the operator and not part of the learnt database.
        if let Some(limit) = limit {
            pcos.limit(*host, id, limit);
        }
        names.add(id, running.name());
    }
    for transfer in &state.waiting {
        let id = resume_waiting(&mut pcos, transfer)?;
        names.add(id, &transfer.name);
    }
    // Rates of all hosts are computed once, after all transfers and limits are known.
    pcos.refresh_all(now);
    Ok((pcos, names))
}

/// Returns whether anything may be placed on a host.
pub(super) fn is_open(state: &ClusterState, host: &HostRecord) -> bool {
    let left = host.bandwidth_beside(state.reserved(host));
    !host.drained && !state.is_lost(&host.name) && matches!(left, Ok(Some(_)))
}

fn spec(
    state: &ClusterState,
    host: &HostRecord,
    databases: &Databases,
) -> Result<HostSpec, StoreError> {
    let damaged = |why: String| StoreError::Damaged(format!("host {}: {why}", host.name));
    let reserved = state.reserved(host);
    let left = host.bandwidth_beside(reserved);
    let left = left.map_err(|error| damaged(error.to_string()))?;
    let mut spec = HostSpec::new(left.unwrap_or_else(Bandwidth::least));
    spec.transfers = host.max_transfers;
    if let Some(learnt) = databases.get(&host.name) {
        let imported = spec.database.import(&Blob::from_bytes(learnt.clone()));
        imported.map_err(|error| damaged(error.to_string()))?;
    }
    if reserved > 0 {
        // Rates were measured beside other VMs than those of today.
        spec.database.cap_at_bandwidth();
    }
    Ok(spec)
}

fn resumed(running: &RunningTransfer) -> ResumedTransfer {
    ResumedTransfer {
        vm: VmState {
            class: running.entitlement.class,
            transfer: Some(running.progress()),
        },
        as_of: running.placement.as_of,
        limit: running.transfer.limit,
    }
}

fn resume_waiting(pcos: &mut Pcos, transfer: &Transfer) -> Result<RequestId, StoreError> {
    let request = transfer.request();
    let request = request.map_err(|error| StoreError::Damaged(error.to_string()))?;
    Ok(pcos.resume_waiting(transfer.arrived, request))
}

/// Names of the transfers that the state machine has on a host, in their order.
pub(super) fn names_on<'a>(
    pcos: &'a Pcos,
    names: &'a Names,
    host: HostId,
) -> impl Iterator<Item = &'a str> {
    let view = pcos.host(host);
    let running = view.map_or(&[][..], |view| view.running());
    running.iter().filter_map(|it| names.name(it.id))
}

impl Cluster<'_> {
    /// Returns the hosts on which touched transfers run, and touched hosts.
    pub(super) fn touched_hosts(&self, touched: &Touched) -> BTreeSet<HostId> {
        let running = touched.transfers.iter();
        let running = running.filter_map(|name| self.state.running(name));
        let there = running.map(|running| &running.placement.host);
        // Once each: a host is searched among all, and most transfers are on one of a few.
        let names: BTreeSet<&String> = there.chain(&touched.hosts).collect();
        let names = names.into_iter();
        names.filter_map(|name| self.state.host(name)).collect()
    }

    /// Names of the transfers that the state machine has on a host, in their order.
    pub(super) fn names_on(&self, host: HostId) -> Vec<String> {
        names_on(&self.pcos, &self.names, host)
            .map(str::to_owned)
            .collect()
    }

    /// Brings the state machine in line with the state after records were changed beneath it.
    /// `hosts` are those on which touched transfers run or ran.
    pub(super) fn resume_part(
        &mut self,
        touched: &Touched,
        hosts: &BTreeSet<HostId>,
    ) -> Result<(), StoreError> {
        // Transfers that ran and wait now, or the other way round, have an id on one side only.
        let mut members = BTreeMap::new();
        for host in hosts {
            members.insert(*host, self.names_on(*host));
            let view = self.pcos.host(*host);
            let running = view.map_or(&[][..], |view| view.running());
            running.iter().for_each(|it| self.names.remove(it.id));
        }
        self.resume_queue(touched)?;
        for (host, before) in members {
            let record = &self.state.hosts[host.0];
            let is_there = |name: &&String| {
                let running = self.state.running(name);
                running.is_some_and(|running| running.placement.host == record.name)
            };
            let there = before.iter().chain(&touched.transfers).filter(is_there);
            let there: BTreeMap<u64, &String> = there
                .filter_map(|name| Some((self.state.running.position(name)?, name)))
                .collect();
            let transfers = there.values().filter_map(|name| self.state.running(name));
            let transfers: Vec<_> = transfers.map(resumed).collect();
            let spec = spec(&self.state, record, &self.databases)?;
            let (is_open, now) = (is_open(&self.state, record), self.session.now);
            let ids = (self.pcos).replace_host(now, host, spec, is_open, &transfers);
            for (id, name) in ids.into_iter().zip(there.values()) {
                self.names.add(id, name);
            }
        }
        Ok(())
    }

    /// Withdraws touched requests, and lets those wait that wait by the state.
    fn resume_queue(&mut self, touched: &Touched) -> Result<(), StoreError> {
        for name in &touched.transfers {
            self.withdraw(name);
        }
        let is_touched = |transfer: &&Transfer| touched.transfers.contains(&transfer.name);
        let behind = self
            .state
            .waiting
            .iter()
            .rev()
            .take_while(is_touched)
            .count();
        let waiting = touched.transfers.iter();
        let waiting = waiting.filter(|name| self.state.waiting.get(name).is_some());
        let mut come: Vec<Transfer> = Vec::new();
        if waiting.count() == behind {
            let last = self.state.waiting.iter().rev().take(behind);
            come.extend(last.cloned());
            come.reverse();
        } else {
            // One of them waits before others: the whole queue is made again.
            come.extend(self.state.waiting.iter().cloned());
            come.iter()
                .for_each(|transfer| self.withdraw(&transfer.name));
        }
        for transfer in come {
            let id = resume_waiting(&mut self.pcos, &transfer)?;
            self.names.add(id, &transfer.name);
        }
        Ok(())
    }

    fn withdraw(&mut self, name: &str) {
        if let Some(id) = self.names.id(name)
            && self.pcos.withdraw(id)
        {
            self.names.remove(id);
        }
    }
}
