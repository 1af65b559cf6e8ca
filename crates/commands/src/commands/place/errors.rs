//! Errors of the driver, with the option concerned and help texts.

use tidegate_cluster::store::StoreError;
use tidegate_cluster::{ClockError, Error, HostError};

use tidegate_units::human::bytes;

use super::daemons;
use crate::problem::Problem;

/// Converts an error of the driver into one of the command line.
pub(in crate::commands) fn problem(error: impl Into<Error>) -> anyhow::Error {
    match error.into() {
        Error::Store(error) => of_store(error),
        Error::Daemon(error) => daemons::unpack(error),
        Error::Host(error) => of_host(&error).into(),
        other => of_transfer(&other).into(),
    }
}

fn of_store(error: StoreError) -> anyhow::Error {
    let problem = Problem::new(error.to_string());
    let (option, help) = match error {
        StoreError::Backend(source) => {
            // `problem::report` takes the help text of this type from the error itself.
            return match source.downcast::<tidegate_server::store::StoreError>() {
                Ok(source) => (*source).into(),
                Err(_) => problem.into(),
            };
        }
        StoreError::Conflict { .. } => (
            "",
            "other commands change the cluster all the time: run this one again",
        ),
        StoreError::Version { .. } => (
            "--db",
            "use the Tidegate version that wrote it, or another file",
        ),
        StoreError::Inconsistent(_) | StoreError::Damaged(_) => {
            ("", "restore a copy of the database, or use another one")
        }
        StoreError::Unavailable { endpoints, .. } => {
            let help = "running VMs and jobs keep their objectives, and new jobs have to wait: run \
                        this again when etcd answers";
            return problem.at(format!("--etcd {endpoints}")).help(help).into();
        }
        StoreError::OutcomeUnknown(_) => (
            "--etcd",
            "`tidegate place list` shows whether it was; if so, a job with --start is started by \
             the daemon of a host that has joined the cluster, and by no other one",
        ),
        StoreError::HasBegun { .. } => ("", "`tidegate transfer cancel` ends it on its host"),
        StoreError::Denied(_) => (
            "--etcd",
            "etcd's user needs a role with readwrite on the prefix (docs/cluster.md); --etcd-user, \
             --etcd-password-file and --etcd-prefix name them",
        ),
        StoreError::TooLarge(_) => (
            "--etcd",
            "change fewer hosts or jobs at once; etcd's limits are --max-txn-ops and \
             --max-request-bytes",
        ),
        StoreError::RecordVersion { .. } => (
            "--etcd",
            "use the newest version of Tidegate on all machines",
        ),
        StoreError::DamagedRecord { .. } => (
            "--etcd",
            "`etcdctl get KEY` shows it; put what is right, or restore a snapshot of etcd",
        ),
    };
    problem.at(option).help(help).into()
}

fn of_host(error: &HostError) -> Problem {
    let problem = Problem::new(error.to_string());
    match error {
        HostError::LeftOut { host, transfer } => problem.at("--hosts").help(format!(
            "keep it in the file until the job has ended (`tidegate place end {transfer}`), or \
             remove it with its jobs: `tidegate place host remove {host}`"
        )),
        HostError::Exists { .. } => problem.at("NAME").help(
            "to change an existing host, use a file of all hosts: `tidegate place job --hosts`",
        ),
        HostError::SameDaemon { socket, .. } => problem.at(socket.clone()).help(
            "a socket is a path on the machine that runs the command, where it leads to one \
             daemon: give each host another device of it, or have the daemons of both join the \
             cluster first ([cluster], docs/cluster-members.md)",
        ),
        HostError::Unknown { known, .. } => problem.at("NAME").help(there_are(known)),
        HostError::Busy { .. } => problem.help(
            "--requeue places them on other hosts, --lose gives them up; or drain the host, and \
             remove it when they have ended",
        ),
    }
}

fn of_transfer(error: &Error) -> Problem {
    let problem = Problem::new(error.to_string());
    match error {
        Error::NameTaken { transfer } => problem.at("NAME").help(format!(
            "choose another name, or `tidegate place end {transfer}` first"
        )),
        Error::NameEmpty => problem.at("NAME"),
        Error::UnknownTransfer { known, .. } => problem.help(there_are(known)),
        Error::MovedBack { reported, size, .. } | Error::MovedBeyond { reported, size, .. } => {
            problem.help(format!(
                "from {} to {}, counted since the job began",
                bytes(*reported),
                bytes(*size)
            ))
        }
        Error::DaemonOwns { socket, .. } => problem.help(format!(
            "use its daemon: `tidegate --socket {socket} transfer --help`"
        )),
        Error::NotServed { unknown, .. } if !unknown.is_empty() => {
            problem.at("--start").help(format!(
                "the VMs of {} are not known on this machine: the daemon is not reached, and is of \
                 a version that does not publish them; run this where it is, or upgrade it",
                unknown.join(", ")
            ))
        }
        Error::NotServed { with_daemon, .. } => {
            problem.at("--start").help(match with_daemon.as_slice() {
                [] => "no host has a control socket: add socket = \"PATH\" in the file of hosts"
                    .to_owned(),
                hosts => format!(
                    "a started job must have the name of a VM of the daemon of {}; without \
                     --start it is only placed",
                    hosts.join(", ")
                ),
            })
        }
        Error::NotRemoved { transfer, .. } => {
            problem.help(format!("`tidegate place end {transfer}` ends it"))
        }
        Error::Clock(ClockError::StoredAhead { .. }) => problem.help(
            "synchronise the clocks of all machines (NTP; `timedatectl` shows the state); if that \
             of this machine is right and the times stay ahead, `tidegate place repair-times` sets \
             them to now",
        ),
        Error::Clock(ClockError::Ahead { .. } | ClockError::Behind { .. }) => problem.help(
            "synchronise the clocks of all machines (NTP; `timedatectl` shows the state), and run \
             this again",
        ),
        Error::StillWaiting { .. } | Error::Host(_) | Error::Store(_) | Error::Daemon(_) => problem,
    }
}

fn there_are(names: &[String]) -> String {
    match names {
        [] => "there are none".to_owned(),
        names => format!("there are: {}", names.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_cluster::TimedRecord;
    use tidegate_cluster::store::Revision;
    use tidegate_core::time::Nanos;

    #[test]
    fn failures_are_shown_with_their_place_and_a_remedy() {
        let known = vec!["x".to_owned(), "y".to_owned()];
        let transfer = "z".to_owned();
        let message = problem(Error::UnknownTransfer { transfer, known }).to_string();
        assert_eq!(
            message,
            "error: there is no job \"z\"\n  help: there are: x, y"
        );
        let host = "c".to_owned();
        let known = Vec::new();
        let message = problem(HostError::Unknown { host, known }).to_string();
        let expected = "error: there is no host \"c\"\n  where: NAME\n  help: there are none";
        assert_eq!(message, expected);
        let (by, hosts) = (Nanos::from_secs(3_600), vec!["host \"a\"".to_owned()]);
        let message = problem(Error::from(ClockError::Ahead { by, hosts })).to_string();
        assert!(
            message.contains("3600 s ahead of that of host \"a\"") && message.contains("NTP"),
            "{message}"
        );
        let record = TimedRecord::Transfer("x".to_owned());
        let message = problem(Error::from(ClockError::StoredAhead { record, ahead: by }));
        let message = message.to_string();
        assert!(
            message.contains("job \"x\"") && message.contains("place repair-times"),
            "{message}"
        );
        let present = Revision(7);
        let message = problem(StoreError::Conflict { present }).to_string();
        assert!(
            message.contains("revision 7") && message.contains("again"),
            "{message}"
        );
    }
}
