//! Failures of the driver, with the option they are about and what would help.

use tidegate_cluster::store::StoreError;
use tidegate_cluster::{Error, HostError};

use super::daemons;
use crate::problem::Problem;

/// Returns a failure of the driver as the command line shows it.
pub(super) fn problem(error: impl Into<Error>) -> anyhow::Error {
    match error.into() {
        Error::Store(error) => of_store(error),
        Error::Daemon(error) => daemons::unpack(error),
        Error::Host(error) => of_host(&error).into(),
        other => of_transfer(&other).into(),
    }
}

fn of_store(error: StoreError) -> anyhow::Error {
    let problem = Problem::new(error.to_string()).at("--db");
    let help = match error {
        StoreError::Backend(source) => {
            // It knows what would help, and `problem::report` knows it by its type.
            return match source.downcast::<tidegate_server::store::StoreError>() {
                Ok(source) => (*source).into(),
                Err(_) => problem.into(),
            };
        }
        StoreError::Conflict { .. } => "run the command again: it begins with what is there now",
        StoreError::Version { .. } => "use the Tidegate that wrote it, or another file",
        StoreError::Inconsistent(_) | StoreError::Damaged(_) => {
            "put a copy of the file back, or name another one"
        }
    };
    problem.help(help).into()
}

fn of_host(error: &HostError) -> Problem {
    let problem = Problem::new(error.to_string());
    match error {
        HostError::LeftOut { host, transfer } => problem.at("--hosts").help(format!(
            "leave it in the file until that has ended (`tidegate place end {transfer}`), or take \
             it out with what runs there: `tidegate place host remove {host}`"
        )),
        HostError::Exists { .. } => problem
            .at("NAME")
            .help("a file of all hosts (`tidegate place job --hosts`) changes one that is there"),
        HostError::Unknown { known, .. } => problem.at("NAME").help(there_are(known)),
        HostError::Busy { .. } => problem.help(
            "--requeue has them wait for another host, --lose gives them up; or drain it, and \
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
        Error::MovedBack { allowed, .. } | Error::MovedBeyond { allowed, .. } => {
            problem.help(format!(
                "from {} to {} bytes, all that has moved since it began",
                allowed.0, allowed.1
            ))
        }
        Error::DaemonOwns { socket, .. } => problem.help(format!(
            "ask that one: `tidegate --socket {socket} job --help`"
        )),
        Error::NotServed { with_daemon, .. } => {
            problem.at("--start").help(match with_daemon.as_slice() {
                [] => "no host names the control socket of a daemon: socket = \"PATH\" in the \
                       file of hosts"
                    .to_owned(),
                hosts => format!(
                    "a job that is started has the name of a VM of the daemon of {}; without \
                     --start it is only placed",
                    hosts.join(", ")
                ),
            })
        }
        Error::Waits { .. } | Error::Host(_) | Error::Store(_) | Error::Daemon(_) => problem,
    }
}

fn there_are(names: &[String]) -> String {
    match names {
        [] => "there is none at all".to_owned(),
        names => format!("there are: {}", names.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_cluster::store::Revision;

    #[test]
    fn failures_are_shown_with_their_place_and_a_remedy() {
        let known = vec!["x".to_owned(), "y".to_owned()];
        let transfer = "z".to_owned();
        let said = problem(Error::UnknownTransfer { transfer, known }).to_string();
        assert_eq!(
            said,
            "error: there is no job \"z\"\n  help: there are: x, y"
        );
        let host = "c".to_owned();
        let known = Vec::new();
        let said = problem(HostError::Unknown { host, known }).to_string();
        let expected = "error: there is no host \"c\"\n  where: NAME\n  help: there is none at all";
        assert_eq!(said, expected);
        let present = Revision(7);
        let said = problem(StoreError::Conflict { present }).to_string();
        assert!(
            said.contains("revision 7") && said.contains("again"),
            "{said}"
        );
    }
}
