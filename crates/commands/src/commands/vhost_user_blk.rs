//! `tidegate vhost-user-blk`: serves one disk to one hypervisor, as QEMU's conventions for
//! vhost-user back-ends have it.
//!
//! The process is a daemon of one VM with one disk, without a control socket. Whatever serves disks
//! in `tidegate serve` serves this one.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::Serialize;
use tidegate_config::device::Scheduling;
use tidegate_core::objective::{Limit, Objective};
use tidegate_core::splitting::MaxIoShared;
use tidegate_policies::policy::PolicySpec;
use tidegate_server::config::vm::DEFAULT_MAX_CONNECTIONS;
use tidegate_server::config::{
    Config, ControlConfig, Create, DaemonConfig, DeviceConfig, DeviceKind, DiskConfig, DiskFormat,
    HistoryConfig, PathsConfig, VmConfig,
};
use tidegate_server::daemon::{StartError, Stopped};
use tidegate_server::event_loop::SetupError;
use tidegate_server::listener::{BindError, InheritError, OwnSocket};
use tidegate_server::takeover::Inherited;

use super::daemon_process::{self, EndSignals};
use super::own_disk;
use crate::args::{Content, LogFormat, VhostUserBlkArgs};
use crate::output::Output;
use crate::problem::Problem;

/// Name of the only disk, of its VM and of its device; guests see it as the disk's serial number.
const NAME: &str = "disk";

/// Capabilities of the program, `VHostUserBackendCapabilities` in QEMU's `vhost-user.json`.
#[derive(Serialize)]
struct Capabilities {
    #[serde(rename = "type")]
    kind: &'static str,
    /// Optional options that are supported.
    features: [&'static str; 2],
}

const CAPABILITIES: Capabilities = Capabilities {
    kind: "block",
    features: ["read-only", "blk-file"],
};

/// Serves until SIGTERM, or until the front-end of an inherited socket has gone.
pub(super) fn run(args: &VhostUserBlkArgs, out: Output) -> Result<()> {
    if args.print_capabilities {
        return out.json(&CAPABILITIES);
    }
    let socket = match (&args.socket_path, args.fd) {
        (Some(path), None) => Socket::Path(path.clone()),
        // Before anything else is opened, which might get the descriptor's number.
        (None, Some(number)) => Socket::Inherited(OwnSocket::inherit(number).map_err(no_socket)?),
        (Some(_), Some(_)) => return Err(two_sockets().into()),
        (None, None) => return Err(without_socket().into()),
    };
    let Some(path) = &args.blk_file else {
        return Err(Problem::new("no disk")
            .help("name a file or block device with --blk-file PATH")
            .into());
    };
    let config = config(path, args);
    daemon_process::run(args.log, LogFormat::Text, serve(config, socket))
}

/// Socket that the options name.
enum Socket {
    /// Path at which one is to be made.
    Path(PathBuf),
    Inherited(OwnSocket),
}

/// Runs a daemon of one disk with a socket.
async fn serve(config: Config, socket: Socket) -> Result<Stopped> {
    let signals = EndSignals::install()?;
    let open = |_: &Config| Ok(((), Inherited::default()));
    let started = daemon_process::start(config, signals, open, cannot_start).await?;
    let Some((mut daemon, ())) = started else {
        return Ok(Stopped::AtOnce);
    };
    let socket = match socket {
        // Only now, so that a front-end that finds the socket has the disk.
        Socket::Path(path) => OwnSocket::bind(&path).map_err(cannot_bind)?,
        Socket::Inherited(socket) => socket,
    };
    daemon.serve_at(NAME, socket);
    daemon.run().await.context("cannot go on")
}

/// Returns the configuration of a daemon that serves one disk. Its policy passes requests on as
/// they come, because there is no other VM to schedule against.
fn config(path: &Path, args: &VhostUserBlkArgs) -> Config {
    let policy = PolicySpec::named("fifo").expect("a policy of the registry");
    let device = DeviceConfig {
        array: None,
        name: NAME.to_owned(),
        kind: DeviceKind::File,
        names_policy: true,
        scheduling: Scheduling {
            adaptive_depth: false,
            max_io_shared: MaxIoShared::Off,
            ..Scheduling::new(policy)
        },
        limit_groups: Vec::new(),
        place: None,
    };
    let disk = DiskConfig {
        export: NAME.to_owned(),
        path: Some(path.to_owned()),
        within: None,
        size: None,
        create: Create::No,
        format: match args.format {
            Content::Probe => DiskFormat::Probe,
            Content::Raw => DiskFormat::Raw,
        },
        read_only: args.read_only,
        nbd: None,
        incoming: false,
        block_size: 1,
        limit: Limit::NONE,
        limit_group: None,
        faults: Vec::new(),
        place: None,
    };
    let vm = VmConfig {
        name: NAME.to_owned(),
        device: 0,
        background: false,
        objective: Objective::default(),
        schedule: None,
        max_connections: DEFAULT_MAX_CONNECTIONS,
        disks: vec![disk],
    };
    Config {
        paths: PathsConfig::of_directory(Path::new("")),
        daemon: DaemonConfig::default(),
        // Never bound.
        control: ControlConfig::default(),
        store: None,
        file: None,
        sections: serde_json::Value::Null,
        // Nobody could ask for it.
        history: HistoryConfig::off(),
        recording: None,
        exchange: None,
        metrics: Vec::new(),
        cluster: None,
        dashboards: Vec::new(),
        listeners: Vec::new(),
        devices: vec![device],
        vms: vec![vm],
    }
}

fn without_socket() -> Problem {
    Problem::new("no socket")
        .help("name one with --socket-path PATH, or pass an open one with --fd FDNUM")
}

fn two_sockets() -> Problem {
    Problem::new("two sockets: --socket-path and --fd")
        .help("--socket-path PATH makes a socket, --fd FDNUM takes an open one: give one of them")
}

fn no_socket(error: InheritError) -> Problem {
    Problem::new(error.to_string())
        .at("--fd")
        .help("pass a unix stream socket, such as one end of a socket pair")
}

fn cannot_bind(error: BindError) -> Problem {
    let problem = Problem::new(error.to_string()).at("--socket-path");
    match error.help() {
        Some(help) => problem.help(help),
        None => problem,
    }
}

/// Returns the error of a start in terms of the command line.
fn cannot_start(error: StartError) -> anyhow::Error {
    let StartError::Setup(SetupError::Disk { source, .. }) = error else {
        return anyhow::Error::new(error).context("cannot start");
    };
    own_disk::refused(
        &source,
        "--blk-file",
        "name a file or block device that exists",
    )
    .into()
}
