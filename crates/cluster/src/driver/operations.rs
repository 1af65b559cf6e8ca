//! Operations on transfers: request, start, end.

use tidegate_core::transfers::Class;
use tidegate_place::{Answer, HostId, Outcome, Placement, Request, RequestId, Update};

use super::pending::Pending;
use super::{Cluster, resume};
use crate::cluster_event::ClusterEvent;
use crate::daemons::DaemonError;
use crate::error::Error;
use crate::record::{self, Entitlement, HostRecord, RunningTransfer, Transfer};
use crate::state::Ended;

/// Knowledge of whether a host serves a VM.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Serves {
    Yes,
    No,
    /// The daemon is out of reach, and of a version that does not publish its VMs.
    Unknown,
}

impl Serves {
    fn known(serves: bool) -> Serves {
        if serves { Serves::Yes } else { Serves::No }
    }

    /// Adds the knowledge of another device; `None`: its VMs are not published.
    fn or(self, other: Option<bool>) -> Serves {
        match (self, other) {
            (Serves::Yes, _) | (_, Some(true)) => Serves::Yes,
            (Serves::Unknown, _) | (_, None) => Serves::Unknown,
            (Serves::No, Some(false)) => Serves::No,
        }
    }
}

impl Cluster<'_> {
    /// Returns the name for a new transfer: the given one, or the next free one of `job-1`,
    /// `job-2` and so on.
    ///
    /// # Errors
    /// The name is taken or empty.
    pub fn name_for(&mut self, name: Option<&str>) -> Result<String, Error> {
        match name {
            Some(name) if self.state.has_transfer(name) => Err(Error::NameTaken {
                transfer: name.to_owned(),
            }),
            Some("") => Err(Error::NameEmpty),
            Some(name) => Ok(name.to_owned()),
            None => loop {
                // The counter is stored, so a name is not reused after its transfer ended.
                self.state.settings.last_number += 1;
                let name = format!("job-{}", self.state.settings.last_number);
                if !self.state.has_transfer(&name) {
                    return Ok(name);
                }
            },
        }
    }

    /// Closes all hosts but those whose daemon serves a VM, for the rest of the session. A daemon
    /// that has published its VMs in the cluster need not answer.
    ///
    /// # Errors
    /// No daemon serves the VM, or one that has not joined the cluster does not answer.
    pub fn only_where_served(&mut self, vm: &str) -> Result<(), Error> {
        let (mut all_serve, mut unknown) = (Vec::new(), Vec::new());
        for host in &self.state.hosts {
            let serves = self.serves(host, vm)?;
            if serves == Serves::Unknown {
                unknown.push(host.name.clone());
            }
            all_serve.push(serves == Serves::Yes);
        }
        if all_serve.contains(&true) {
            // Closed only now: after an error the next request finds the hosts as they were.
            for (at, _) in all_serve.iter().enumerate().filter(|(_, serves)| !**serves) {
                self.pcos.close_host(self.session.now, HostId(at));
                self.closed.push(HostId(at));
            }
            return Ok(());
        }
        let hosts = self.state.hosts.iter();
        let with_daemon =
            hosts.filter(|host| host.socket.is_some() || self.state.is_registered(&host.name));
        Err(Error::NotServed {
            vm: vm.to_owned(),
            with_daemon: with_daemon.map(|host| host.name.clone()).collect(),
            unknown,
        })
    }

    /// Returns whether the daemon of a host serves a VM on the host's device, by what it has
    /// published, else by its answer.
    ///
    /// # Errors
    /// A daemon that is not registered does not answer.
    fn serves(&self, host: &HostRecord, vm: &str) -> Result<Serves, DaemonError> {
        if host.drained || self.state.is_lost(&host.name) {
            return Ok(Serves::No);
        }
        let is_on = |device: &str| host.device.as_ref().is_none_or(|own| own == device);
        let membership = self.state.memberships.get(&host.name);
        let daemon = membership.and_then(|membership| membership.daemon.as_ref());
        let published = daemon.map(|daemon| {
            // A value of another version may have no devices that are understood.
            if daemon.devices.is_empty() {
                return Serves::Unknown;
            }
            let devices = daemon.devices.iter().filter(|device| is_on(&device.name));
            let serve = devices.map(|device| device.serves(vm));
            serve.fold(Serves::No, Serves::or)
        });
        let is_asked = !self.unreached.contains(&host.name);
        let socket = host.socket.as_ref().filter(|_| is_asked);
        match (published, socket) {
            (Some(Serves::Yes), _) => Ok(Serves::Yes),
            // A VM that was added within the last second may not be published yet.
            (_, Some(socket)) => match (self.session.daemons.vms(socket), published) {
                (Err(_), Some(published)) => Ok(published),
                (all, _) => {
                    let mut all = all?.into_iter();
                    let is_there = all.any(|served| served.vm == vm && is_on(&served.device));
                    Ok(Serves::known(is_there))
                }
            },
            (published, None) => Ok(published.unwrap_or(Serves::No)),
        }
    }

    /// Opens the hosts again that were closed for one request.
    pub(super) fn open_closed(&mut self) {
        for host in std::mem::take(&mut self.closed) {
            let record = self.state.hosts.get(host.0);
            let is_open = record.is_some_and(|host| resume::is_open(&self.state, host));
            if self.is_kept && is_open {
                self.pcos.open_host(self.session.now, host);
            }
        }
    }

    /// Requests a host for a new transfer. With `start` it is started on the host's daemon once the
    /// placement is [saved](Cluster::save).
    pub fn request(&mut self, name: &str, request: Request, start: bool) -> Outcome {
        let Answer { id, outcome } = self.pcos.request(self.session.now, request);
        if !matches!(outcome, Outcome::Refused(_)) {
            self.names.add(id, name);
            self.touched.add_transfer(name);
        }
        let transfer = Transfer {
            start,
            ..Transfer::new(name, &request, self.session.now)
        };
        match &outcome {
            Outcome::Placed(placement) => {
                if start && !self.session.read_only {
                    let start = self.start_on(name, placement.host, request);
                    self.pending.push(Pending::Requested(start));
                }
                self.record_start(transfer, placement);
            }
            Outcome::Waiting => self.state.waiting.push(transfer),
            Outcome::Refused(_) => {}
        }
        self.apply_events();
        outcome
    }

    /// Records the start of a transfer on a host.
    pub(super) fn record_start(&mut self, transfer: Transfer, placement: &Placement) {
        let now = self.session.now;
        for (id, class) in &placement.lowered {
            let lowered = self.name_of(*id).to_owned();
            self.lower(&lowered, *class, &transfer.name);
        }
        let Some(host) = self.state.hosts.get_mut(placement.host.0) else {
            return;
        };
        host.steady_since = now;
        self.touched.hosts.insert(host.name.clone());
        self.touched.add_transfer(&transfer.name);
        self.state.running.push(RunningTransfer {
            transfer,
            placement: record::Placement::new(&host.name, now),
            entitlement: Entitlement {
                class: placement.class,
                lowered_for: Vec::new(),
            },
            live: false,
        });
    }

    /// Records that a transfer was lowered for another one.
    fn lower(&mut self, name: &str, class: Class, for_whom: &str) {
        self.touched.add_transfer(name);
        if let Some(running) = self.state.running.get_mut(name) {
            let entitlement = &mut running.entitlement;
            assert!(
                class <= entitlement.class,
                "{name:?} has class {:?} and cannot be lowered to {class:?}",
                entitlement.class
            );
            // One entry per class, so that the end of `for_whom` raises it by exactly as many.
            let steps = entitlement.class as usize - class as usize;
            (entitlement.lowered_for).extend(vec![for_whom.to_owned(); steps]);
            entitlement.class = class;
        }
    }

    /// Ends a running transfer or withdraws a waiting one, and saves.
    ///
    /// # Errors
    /// There is no such transfer, a daemon manages it, or the store fails.
    pub fn end(&mut self, name: &str) -> Result<(), Error> {
        let Some(id) = self.names.id(name) else {
            return Err(self.unknown_transfer(name));
        };
        self.check_not_live(name)?;
        // Only a waiting request can be withdrawn.
        if self.pcos.withdraw(id) {
            self.names.remove(id);
            self.state.waiting.remove(name);
            self.touched.add_transfer(name);
            let transfer = name.to_owned();
            self.pending
                .push(ClusterEvent::Withdrawn { transfer }.into());
        } else {
            self.remove_running(id, name);
        }
        self.apply_events();
        self.save()
    }

    /// Removes a running transfer, and restores the classes of those that were lowered for it.
    pub(super) fn remove_running(&mut self, id: RequestId, name: &str) {
        let place = self
            .state
            .running(name)
            .map(|running| &running.placement.host);
        let place = place.and_then(|name| self.state.host(name));
        let neighbours = place.map_or(Vec::new(), |host| self.names_on(host));
        let neighbours = neighbours.iter().map(String::as_str);
        let ended = self.state.end_running(name, neighbours, self.session.now);
        self.touched.add_transfer(name);
        let Some(Ended { host, raised }) = ended else {
            return;
        };
        self.touched
            .hosts
            .insert(self.state.hosts[host.0].name.clone());
        raised
            .iter()
            .for_each(|(name, _)| self.touched.add_transfer(name));
        let classes: Vec<_> = raised
            .into_iter()
            .filter_map(|(name, class)| Some((self.names.id(&name)?, class)))
            .collect();
        let ended = [id];
        let update = Update {
            ended: &ended,
            classes: &classes,
            ..Update::default()
        };
        self.pcos.update(self.session.now, host, &update);
        self.names.remove(id);
    }

    pub(super) fn unknown_transfer(&self, name: &str) -> Error {
        Error::UnknownTransfer {
            transfer: name.to_owned(),
            known: self.state.transfer_names().map(str::to_owned).collect(),
        }
    }

    /// Checks that no daemon manages a transfer.
    pub(super) fn check_not_live(&self, name: &str) -> Result<(), Error> {
        let Some(live) = self.state.running(name).filter(|running| running.live) else {
            return Ok(());
        };
        let mut hosts = self.state.hosts.iter();
        let host = hosts.find(|host| host.name == live.placement.host);
        let socket = host.and_then(|host| host.socket.clone());
        Err(Error::DaemonOwns {
            transfer: name.to_owned(),
            socket: socket.unwrap_or_default(),
        })
    }
}
