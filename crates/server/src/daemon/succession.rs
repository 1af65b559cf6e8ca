//! Running daemon's side of the change of a service's main process. The new daemon's is
//! [`service_manager::become_main`].

use std::path::Path;
use std::time::Duration;

use crate::ring::sys;
use crate::service_manager::{self, Supervisor};
use crate::takeover::{Channel, Hello, Message, Problem, TakeoverError};

/// Time for the service manager to know the new daemon, which tries for as long as that.
const SUPERVISED_TIMEOUT: Duration = Duration::from_secs(130);
/// Time for a new daemon that has closed its end of the connection to be gone.
const END_TIMEOUT: Duration = Duration::from_secs(5);

/// Refuses a new daemon that the supervisor of this one would end with it, or whose configuration
/// is not `own_file`, with which the supervisor starts the next one.
///
/// # Errors
/// If the supervisor knows this process only, would not take the other one for its own, or starts
/// daemons with another configuration.
pub(super) fn refuse_unless_supervised(
    supervisor: Option<Supervisor>,
    own_file: Option<&Path>,
    pid: i32,
    new: &Hello,
) -> Result<(), TakeoverError> {
    let (why, help) = match supervisor {
        None => return Ok(()),
        Some(Supervisor::Container) => (
            "a container has started the running daemon, and would end the new one with it",
            "restart the container instead; clients that reconnect go on",
        ),
        Some(Supervisor::Systemd) if !service_manager::is_of_own_service(pid).unwrap_or(false) => (
            "systemd has started the running daemon, and the new one is no process of that service",
            "`systemctl reload tidegate` starts one that is; `systemctl restart tidegate` works, \
             too: clients that reconnect go on",
        ),
        Some(Supervisor::Systemd) if new.service.is_none() => (
            "systemd has started the running daemon, and the unit does not let a new one take its \
             place",
            "install the unit of this version (NotifyAccess=all, ExecReload= and \
             Environment=TIDEGATE_RELOAD=takeover) and run `systemctl daemon-reload`; or \
             `systemctl restart tidegate`: clients that reconnect go on",
        ),
        Some(Supervisor::Systemd) => return refuse_other_file(own_file, new),
    };
    Err(TakeoverError::refused(why, help))
}

/// Refuses a new daemon that says that it has another configuration file than this one.
fn refuse_other_file(own: Option<&Path>, new: &Hello) -> Result<(), TakeoverError> {
    let (Some(own), Some(new)) = (own, &new.config) else {
        return Ok(());
    };
    // By other links, too. The name counts first: a link may point to a newer file by now.
    let is_same_file = || {
        let (own, new) = (own.canonicalize(), Path::new(new).canonicalize());
        own.is_ok_and(|own| new.is_ok_and(|new| own == new))
    };
    if own.display().to_string() == *new || is_same_file() {
        return Ok(());
    }
    Err(TakeoverError::refused(
        format!(
            "the new daemon has the configuration {new}, and the running one {}",
            own.display()
        ),
        "give ExecReload= of the unit the configuration of ExecStart=, and run `systemctl \
         daemon-reload`; or `systemctl restart tidegate`: clients that reconnect go on",
    ))
}

/// Waits until the new daemon says that the service manager knows it. Blocks.
///
/// # Errors
/// The reason, if the new daemon does not say so. It may have ended, or be known all the same.
pub(super) fn wait_for(channel: &mut Channel, pid: i32) -> Result<(), String> {
    let received = channel
        .allow(SUPERVISED_TIMEOUT)
        .and_then(|()| channel.receive());
    let why = match received {
        Ok((Message::Supervised, _)) => return Ok(()),
        Ok((Message::Refused(Problem { what, .. }), _)) => return Err(what),
        Ok((other, _)) => format!("unexpected message: {other:?}"),
        Err(error) => error.to_string(),
    };
    // A process that is gone has no descriptor.
    let has_ended = sys::process(pid).map_or(true, |it| sys::has_ended(&it, END_TIMEOUT));
    Err(match has_ended {
        true => "the new daemon has ended before systemd knew it".to_owned(),
        false => format!("the new daemon does not say that systemd knows it: {why}"),
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;
    use std::process::{Command, Stdio};

    use super::*;
    use crate::takeover::Service;

    const SERVICE: Option<Service> = Some(Service { watchdog_us: None });

    fn refusal(supervisor: Supervisor, pid: i32, new: &Hello) -> Option<String> {
        let own_file = Some(Path::new("/etc/t.toml"));
        let refused = refuse_unless_supervised(Some(supervisor), own_file, pid, new).err()?;
        Some(format!("{refused}: {}", refused.help().expect("advice")))
    }

    #[test]
    fn a_supervisor_that_would_end_the_new_daemon_is_a_reason_to_refuse() {
        let own = std::process::id() as i32;
        let (member, stranger) = (Hello::of(SERVICE), Hello::own());
        assert!(refuse_unless_supervised(None, None, own, &stranger).is_ok());
        assert_eq!(refusal(Supervisor::Systemd, own, &member), None);
        let refused = refusal(Supervisor::Systemd, own, &stranger).expect("an older unit");
        assert!(refused.contains("NotifyAccess=all"), "{refused}");
        let refused = refusal(Supervisor::Systemd, i32::MAX, &member).expect("it is elsewhere");
        assert!(refused.contains("systemctl reload tidegate"), "{refused}");
        let refused = refusal(Supervisor::Container, own, &member).expect("process 1");
        assert!(refused.contains("restart the container"), "{refused}");
    }

    #[test]
    fn a_new_daemon_of_a_service_has_the_configuration_of_the_running_one() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = |name: &str| dir.path().join(name);
        std::fs::write(file("t.toml"), "").expect("writable");
        std::fs::write(file("other.toml"), "").expect("writable");
        std::os::unix::fs::symlink(file("t.toml"), file("link.toml")).expect("writable");
        let own = std::process::id() as i32;
        let by = |supervisor, name: &str| {
            let config = Some(file(name).display().to_string());
            let hello = Hello {
                config,
                ..Hello::of(SERVICE)
            };
            refuse_unless_supervised(supervisor, Some(&file("t.toml")), own, &hello)
        };
        let systemd = Some(Supervisor::Systemd);
        for same in ["t.toml", "link.toml"] {
            assert!(by(systemd, same).is_ok(), "{same}");
        }
        assert!(by(None, "other.toml").is_ok(), "by an operator");
        for other in ["other.toml", "gone.toml"] {
            let refused = by(systemd, other).expect_err(other);
            assert!(refused.to_string().contains(other), "{refused}");
            let help = refused.help().expect("advice");
            assert!(help.contains("ExecReload="), "{help}");
        }
    }

    #[test]
    fn a_new_daemon_that_systemd_may_not_know_is_told_from_one_that_it_knows() {
        let pair = || {
            let (here, there) = UnixStream::pair().expect("sockets");
            [here, there].map(|it| Channel::new(it).expect("a socket"))
        };
        let own = std::process::id() as i32;
        let [mut here, mut there] = pair();
        there.send(&Message::Supervised).expect("room");
        assert_eq!(wait_for(&mut here, own), Ok(()));

        let [mut here, mut there] = pair();
        let (what, help) = ("systemd cannot be told".to_owned(), String::new());
        there
            .send(&Message::Refused(Problem { what, help }))
            .expect("room");
        let why = wait_for(&mut here, own).expect_err("it could not tell systemd");
        assert_eq!(why, "systemd cannot be told");

        let [mut here, there] = pair();
        let mut child = Command::new("cat")
            .stdin(Stdio::piped())
            .spawn()
            .expect("it runs");
        drop(there);
        drop(child.stdin.take());
        let why = wait_for(&mut here, child.id() as i32).expect_err("it has ended");
        assert!(why.contains("has ended before systemd knew it"), "{why}");
        child.wait().expect("it ended");
    }
}
