//! Clients of the hosts' daemons, at their control sockets.

use std::fmt;
use std::path::Path;

use hyper::Method;
use serde::Deserialize;
use tidegate_api::cluster::PlacementClaim;
use tidegate_api::query::percent_encode;
use tidegate_api::transfer::TransferRequest;
use tidegate_cluster::{DaemonError, Daemons, LiveTransfer, ServedVm, VmTransfer};
use tidegate_core::transfers::Class;
use tidegate_place::Request;

use super::exact;
use crate::client::{Client, Unanswered, read};
use crate::problem::Problem;

/// Daemons reached over their control API.
pub(super) struct Sockets;

/// Transfers of a VM, with only the fields that placement needs. Unlike the API's
/// [`VmTransfersView`](tidegate_api::transfer::VmTransfersView), it also reads answers of daemons
/// of other versions.
#[derive(Deserialize)]
struct VmTransfers {
    vm: String,
    device: String,
    #[serde(default)]
    job: Option<LiveJob>,
}

#[derive(Deserialize)]
struct LiveJob {
    size_bytes: u64,
    moved_bytes: u64,
    due_in_s: f64,
    class: String,
    #[serde(default)]
    bytes_per_s: Option<u64>,
}

/// Readiness with only the name of the host in its cluster, as daemons of all versions have it.
#[derive(Deserialize)]
struct ReadinessOfHost {
    #[serde(default)]
    cluster: Option<MembershipOfHost>,
}

#[derive(Deserialize)]
struct MembershipOfHost {
    host: String,
}

/// VM with only the fields that placement needs, to read answers of daemons of other versions.
#[derive(Deserialize)]
struct VmOfHost {
    name: String,
    device: String,
}

impl Daemons for Sockets {
    fn host(&self, socket: &str) -> Result<Option<String>, DaemonError> {
        let readiness = client(socket)?.readiness().map_err(unavailable)?;
        let readiness = readiness.map(read::<ReadinessOfHost>).transpose();
        let cluster = readiness.map_err(failed)?.and_then(|it| it.cluster);
        Ok(cluster.map(|membership| membership.host))
    }

    fn transfers(&self, socket: &str) -> Result<Vec<VmTransfer>, DaemonError> {
        let answer = client(socket)?.get("/v1/jobs").map_err(unavailable)?;
        let jobs: Vec<VmTransfers> = read(answer).map_err(failed)?;
        Ok(jobs.into_iter().map(VmTransfers::into_transfer).collect())
    }

    fn vms(&self, socket: &str) -> Result<Vec<ServedVm>, DaemonError> {
        let answer = client(socket)?.get("/v1/vms").map_err(unavailable)?;
        let vms: Vec<VmOfHost> = read(answer).map_err(failed)?;
        let served = |VmOfHost { name: vm, device }| ServedVm { vm, device };
        Ok(vms.into_iter().map(served).collect())
    }

    fn start(
        &self,
        socket: Option<&str>,
        vm: &str,
        request: &Request,
        placement: Option<&PlacementClaim>,
    ) -> Result<(), DaemonError> {
        let Some(socket) = socket else {
            return Err(DaemonError::NotAsked("the host has no control socket"));
        };
        let order = TransferRequest {
            size: format!("{} B", request.bytes()),
            deadline: Some(exact(request.deadline())),
            placement: placement.cloned(),
            ..TransferRequest::default()
        };
        let path = format!("/v1/vms/{}/job", percent_encode(vm));
        // Longer than a daemon takes that waits for etcd and other changes: a start whose placement
        // is removed while it is under way would have to be found and cancelled.
        let answer = client(socket)?.change_slowly(Method::PUT, &path, &order);
        answer.map(drop).map_err(|error| {
            if error.is::<Unanswered>() {
                DaemonError::Unanswered(Box::new(Carried(error)))
            } else {
                unavailable(error)
            }
        })
    }
}

fn client(socket: &str) -> Result<Client, DaemonError> {
    Client::new(Path::new(socket)).map_err(failed)
}

fn unavailable(error: anyhow::Error) -> DaemonError {
    DaemonError::Unavailable(Box::new(Carried(error)))
}

fn failed(error: anyhow::Error) -> DaemonError {
    DaemonError::Failed(Box::new(Carried(error)))
}

impl VmTransfers {
    fn into_transfer(self) -> VmTransfer {
        VmTransfer {
            vm: self.vm,
            device: self.device,
            transfer: self.job.map(|job| LiveTransfer {
                bytes: job.size_bytes,
                moved: job.moved_bytes,
                due_in_s: job.due_in_s,
                class: class(&job.class),
                bytes_per_s: job.bytes_per_s,
            }),
        }
    }
}

/// Returns the class with a name; the default for an unknown name of another version.
fn class(name: &str) -> Class {
    let mut all = Class::ALL.into_iter();
    all.find(|class| class.name() == name).unwrap_or_default()
}

/// Error of the client, carried through the driver.
#[derive(Debug)]
struct Carried(anyhow::Error);

impl fmt::Display for Carried {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl std::error::Error for Carried {}

/// Returns the client's error that was carried through the driver.
pub(super) fn unpack(error: DaemonError) -> anyhow::Error {
    let problem = Problem::new(error.to_string());
    let source = match error {
        DaemonError::OtherHost { host, socket, .. } => {
            let help = format!(
                "a path is looked up on the machine that runs the command: run it where the \
                 daemon of {host} is, or have that daemon join the cluster ([cluster], \
                 docs/cluster-members.md); if the host is gone: `tidegate place host drain \
                 {host}`, or `remove`"
            );
            return problem.at(socket).help(help).into();
        }
        DaemonError::NotAsked(_) => {
            let help = "add its socket to the file of hosts, or have its daemon join the cluster";
            return problem.help(help).into();
        }
        DaemonError::Unavailable(source)
        | DaemonError::Unanswered(source)
        | DaemonError::Failed(source) => source,
    };
    match source.downcast::<Carried>() {
        Ok(carried) => carried.0,
        Err(other) => anyhow::anyhow!("{other}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_of_the_client_comes_back_as_it_was() {
        let error = unavailable(Problem::new("no daemon").help("start one").into());
        assert!(error.to_string().contains("no daemon"), "{error}");
        let problem = unpack(error).downcast::<Problem>().expect("a problem");
        assert!(problem.to_string().contains("start one"), "{problem}");
    }

    #[test]
    fn a_vm_without_a_job_and_an_unknown_class_are_read() {
        let jobs = r#"[{"vm": "a", "device": "sdb"}, {"vm": "b", "device": "sdc", "job":
            {"size_bytes": 9, "moved_bytes": 3, "due_in_s": -1.5, "class": "newer"}}]"#;
        let jobs: Vec<VmTransfers> = serde_json::from_str(jobs).expect("an answer");
        let all: Vec<_> = jobs.into_iter().map(VmTransfers::into_transfer).collect();
        assert_eq!(all[0].transfer, None);
        let live = all[1].transfer.expect("a job");
        assert_eq!((live.class, live.bytes_per_s), (Class::default(), None));
        assert_eq!(class("idle"), Class::Idle);
    }
}
