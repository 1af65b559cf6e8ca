//! The new daemon's side of a takeover, until it has started.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use super::message::{ClientPlan, DiskSummary, LimitGroupPlan, PolicyPlan, Problem};
use super::{
    Channel, FORMAT, Hello, LifelineEnd, Message, Plan, Reader, Service, State, TakeoverError,
    VmPlan,
};
use crate::backing::LockedFile;
use crate::listener::{InheritedSocket, InheritedSockets};
use crate::membership::HandedMembership;
use crate::ownership::Ownership;
use crate::ring::sys;
use crate::service_manager;

/// Time for an answer of the running daemon that needs no I/O to end.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// Time until clients are paused: the running daemon waits for handshakes, clients over TLS and I/O
/// in flight, each for a bounded time.
const PAUSE_TIMEOUT: Duration = Duration::from_secs(30);
/// Time after which a wait for I/O of a process that has ended is logged.
const LOOK_TIMEOUT: Duration = Duration::from_millis(50);
/// Time for that I/O to end.
const IO_TIMEOUT: Duration = Duration::from_secs(60);
/// Time for a process whose end of the connection is closed to be gone.
const END_TIMEOUT: Duration = Duration::from_secs(5);

/// Sockets, files and VMs that a new daemon gets before it starts.
#[derive(Debug, Default)]
pub struct Inherited {
    /// Listening sockets.
    pub sockets: InheritedSockets,
    /// Disks that are served.
    pub(crate) disks: Vec<DiskSummary>,
    /// Open files of disks.
    pub(crate) files: Vec<LockedFile>,
    /// VMs of the running daemon's configuration file, as the file has them.
    pub(crate) file_vms: Vec<serde_json::Value>,
    /// VMs that are served.
    pub(crate) vms: Vec<VmPlan>,
    /// VMs of the store that could not be served, if the running daemon says which.
    pub(crate) not_served: Option<Vec<String>>,
    pub(crate) policies: Vec<PolicyPlan>,
    pub(crate) limit_groups: Vec<LimitGroupPlan>,
    pub(crate) clients: Vec<ClientPlan>,
    pub(crate) recorded: Vec<String>,
    /// Registration of the running daemon in its cluster; `None` without one.
    pub membership: Option<HandedMembership>,
    /// True if there is a running daemon.
    pub(crate) is_takeover: bool,
    /// Ownership of all sockets and files.
    pub(crate) ownership: Ownership,
}

/// Takeover that is under way.
#[derive(Debug)]
pub struct Taking {
    channel: Channel,
    /// Process of the running daemon, by number and descriptor.
    pub(crate) pid: i32,
    process: OwnedFd,
    lifeline: Option<LifelineEnd>,
    /// Service whose main process the running daemon is.
    service: Option<Service>,
    check: Option<Check>,
}

/// Check whether the takeover is still wanted.
struct Check(Box<dyn FnOnce() -> Result<(), TakeoverError> + Send>);

impl std::fmt::Debug for Check {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Check")
    }
}

/// Answer to [`Taking::pause`].
pub(crate) type Paused = (State, Reader<OwnedFd>);

impl Taking {
    /// Connects to the running daemon and asks what it serves. `config` is the configuration file
    /// of this one. Blocks.
    ///
    /// # Errors
    /// If there is none, it is another user's, of another version, or refuses.
    pub fn begin(path: &Path, config: Option<&Path>) -> Result<(Taking, Inherited), TakeoverError> {
        // Before the plan comes with a descriptor for each disk.
        sys::raise_open_files();
        let stream = UnixStream::connect(path).map_err(|source| TakeoverError::NoDaemon {
            path: path.to_owned(),
            source,
        })?;
        let (pid, user) = sys::peer_process(&stream)?;
        // Who listens could be anybody in a directory that others may write to.
        if user != sys::own_user() && user != 0 {
            let path = path.to_owned();
            return Err(TakeoverError::NotAllowed { path, user });
        }
        let process = sys::process(pid)?;
        let channel = Channel::new(stream)?;
        channel.allow(ANSWER_TIMEOUT)?;
        let mut taking = Taking {
            channel,
            pid,
            process,
            lifeline: None,
            service: None,
            check: None,
        };
        let service = service_manager::may_become_main().then_some(Service { watchdog_us: None });
        let config = config.map(std::path::absolute).transpose()?;
        let hello = Hello {
            config: config.map(|file| file.display().to_string()),
            ..Hello::of(service)
        };
        taking.channel.send(&Message::Hello(hello))?;
        match taking.answer()? {
            (Message::Hello(hello), _) if hello.format == FORMAT => taking.service = hello.service,
            (Message::Hello(hello), _) => return Err(other_format(&hello)),
            (other, _) => return Err(unexpected(&other)),
        }
        match taking.answer()? {
            (Message::Plan(plan), mut descriptors) => {
                let lifeline = descriptors.descriptor(plan.lifeline);
                taking.lifeline = Some(LifelineEnd::new(lifeline.map_err(io::Error::other)?));
                let inherited = inherit(*plan, descriptors);
                Ok((taking, inherited.map_err(io::Error::other)?))
            }
            (other, _) => Err(unexpected(&other)),
        }
    }

    /// Has the running daemon close its store. Blocks.
    ///
    /// # Errors
    /// If it refuses, or the connection fails.
    pub fn prepare(&mut self) -> Result<(), TakeoverError> {
        self.channel.send(&Message::Prepare)?;
        match self.answer()? {
            (Message::Prepared, _) => Ok(()),
            (other, _) => Err(unexpected(&other)),
        }
    }

    /// Has `check` called just before the clients of the running daemon are paused. With an error
    /// of it no client is paused, and this daemon does not take over.
    pub fn check_before_pause(
        &mut self,
        check: impl FnOnce() -> Result<(), TakeoverError> + Send + 'static,
    ) {
        self.check = Some(Check(Box::new(check)));
    }

    /// Has the running daemon pause its clients and send its state; `None` if the process has ended
    /// meanwhile and none of its I/O is with the kernel. Blocks.
    ///
    /// # Errors
    /// If this daemon is [wanted no more](Taking::check_before_pause), the running one refuses, the
    /// connection fails, or I/O of a process that has ended does not end.
    pub(crate) fn pause(&mut self) -> Result<Option<Paused>, TakeoverError> {
        if let Some(Check(check)) = self.check.take() {
            check().inspect_err(|error| self.refuse(error))?;
        }
        self.channel.allow(PAUSE_TIMEOUT)?;
        // An answer may have come before: the running daemon has refused, as this one was late.
        let _ = self.channel.send(&Message::Pause);
        match self.answer() {
            Ok((Message::State(state), descriptors)) => Ok(Some((state, descriptors))),
            Ok((other, _)) => Err(unexpected(&other)),
            Err(TakeoverError::Io(error)) if self.has_ended() => {
                self.wait_for_end(error)?;
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Says that everything was taken, and waits for the word to serve. Blocks.
    ///
    /// # Errors
    /// If the running daemon goes on.
    pub(crate) fn commit(&mut self) -> Result<(), TakeoverError> {
        self.channel.allow(ANSWER_TIMEOUT)?;
        // An answer may have come before: the running daemon has refused, and then ended.
        let _ = self.channel.send(&Message::Taken);
        let answer = match self.answer() {
            Err(TakeoverError::Io(error)) => {
                // The last word may come just now. From here on it cannot: the running daemon finds
                // that this one is gone, and goes on. One that was sent before is still there.
                self.channel.stop_receiving()?;
                self.answer().map_err(|_| TakeoverError::Io(error))
            }
            answer => answer,
        };
        match answer {
            Ok((Message::Yours, _)) => Ok(()),
            Ok((other, _)) => Err(unexpected(&other)),
            // Nothing was in flight there, and nobody else has what it sent.
            Err(TakeoverError::Io(error)) if self.has_ended() => self.wait_for_end(error),
            Err(error) => Err(error),
        }
    }

    /// Waits for the I/O of the running daemon, whose process has ended.
    ///
    /// # Errors
    /// `error` if that daemon had gone on: its clients, VMs and store may differ from what it has
    /// handed over.
    fn wait_for_end(&mut self, error: io::Error) -> Result<(), TakeoverError> {
        self.wait_for_io()?;
        match self.lifeline.as_mut().is_some_and(LifelineEnd::went_on) {
            true => Err(error.into()),
            false => Ok(()),
        }
    }

    /// Waits until no I/O of the running daemon, whose process has ended, is with the kernel: a
    /// late write could come after a newer one of this daemon.
    fn wait_for_io(&self) -> Result<(), TakeoverError> {
        let line = self.lifeline.as_ref().expect("it came with the plan");
        if line.has_ended(LOOK_TIMEOUT) {
            return Ok(());
        }
        tracing::warn!(
            "I/O of the daemon that has ended is still with the kernel: waiting up to {} s",
            IO_TIMEOUT.as_secs()
        );
        match line.has_ended(IO_TIMEOUT) {
            true => Ok(()),
            false => Err(TakeoverError::refused(
                format!(
                    "the running daemon has ended, and its I/O is still with the kernel after {} s",
                    IO_TIMEOUT.as_secs()
                ),
                "a disk hangs: start the daemon, without --takeover, once it answers",
            )),
        }
    }

    /// Has the service manager know this daemon, which has taken over, and the running one end.
    /// Blocks until the service manager has read it.
    ///
    /// # Errors
    /// If the service manager may not know this daemon, which serves all the same.
    pub(crate) fn become_main(&mut self) -> Result<(), TakeoverError> {
        let Some(Service { watchdog_us }) = self.service else {
            service_manager::begin();
            return Ok(());
        };
        let help = "systemd may start the service again: `systemctl status tidegate` says whether \
                    it has, and `systemctl restart tidegate` does";
        let known = service_manager::become_main(watchdog_us)
            .map_err(|why| TakeoverError::refused(why, help));
        match &known {
            // The other daemon may have ended by itself, and then does without.
            Ok(()) => drop(self.channel.send(&Message::Supervised)),
            Err(error) => {
                tracing::error!("{error}");
                self.refuse(error);
            }
        }
        known
    }

    /// Says that this daemon does not go on. Blocks.
    pub(crate) fn refuse(&mut self, error: &TakeoverError) {
        // The other daemon goes on without the word as well.
        self.channel.refuse(error);
    }

    /// Waits until the process of the running daemon has ended. Blocks.
    pub(crate) fn wait(&self, within: Duration) -> bool {
        sys::has_ended(&self.process, within)
    }

    /// Returns true if the process has ended, whose end of the connection is closed.
    fn has_ended(&self) -> bool {
        self.wait(END_TIMEOUT)
    }

    fn answer(&mut self) -> Result<(Message, Reader<OwnedFd>), TakeoverError> {
        match self.channel.receive()? {
            (Message::Refused(Problem { what, help }), _) => {
                Err(TakeoverError::Refused { what, help })
            }
            answer => Ok(answer),
        }
    }
}

/// Returns the refusal of a daemon whose hand-over has another version.
pub(crate) fn other_format(other: &Hello) -> TakeoverError {
    let Hello { format, build, .. } = other;
    TakeoverError::refused(
        format!(
            "the other daemon is Tidegate {build}, whose takeover has format {format}; this is \
             {}, with format {FORMAT}",
            Hello::own().build
        ),
        "stop the running daemon and start the new one: clients that reconnect go on",
    )
}

fn unexpected(message: &Message) -> TakeoverError {
    let text = format!("{message:?}");
    let word = text.split(['(', ' ']).next().unwrap_or_default().to_owned();
    io::Error::other(format!("unexpected message {word}")).into()
}

fn inherit(plan: Plan, mut descriptors: Reader<OwnedFd>) -> Result<Inherited, String> {
    let ownership = Ownership::pending();
    let sockets = plan.sockets.into_iter().map(|socket| {
        Ok(InheritedSocket {
            key: socket.key,
            file: socket.file,
            fd: descriptors.descriptor(socket.descriptor)?,
        })
    });
    let sockets = sockets.collect::<Result<_, String>>()?;
    let mut files = Vec::new();
    for disk in &plan.disks {
        let Some(descriptor) = disk.descriptor else {
            continue;
        };
        let claim = disk.claim.map(|claim| descriptors.descriptor(claim));
        files.push(LockedFile {
            file: File::from(descriptors.descriptor(descriptor)?),
            claim: claim.transpose()?.map(File::from),
            ownership: ownership.clone(),
        });
    }
    Ok(Inherited {
        // Apart from that of disks: a daemon gives sockets up before it gives up locks.
        sockets: InheritedSockets::new(sockets, Ownership::pending()),
        disks: plan.disks.into_iter().map(|plan| plan.disk).collect(),
        files,
        file_vms: plan.file_vms,
        vms: plan.vms,
        not_served: plan.not_served,
        policies: plan.policies,
        limit_groups: plan.limit_groups,
        membership: plan.membership,
        clients: plan.clients,
        recorded: plan.recorded,
        is_takeover: true,
        ownership,
    })
}
