//! `tidegate serve`: runs the daemon, of a configuration file or of disks on the command line.

use std::path::Path;

use anyhow::{Context, Result};
use tidegate_config::device::DEFAULT_POLICY;
use tidegate_config::document;
use tidegate_server::calculation::Program;
use tidegate_server::config::{
    self, Config, ConfigErrors, Diagnostic, ListenAddress, Loaded, SocketOwner,
};
use tidegate_server::control::{SocketError, Sockets};
use tidegate_server::daemon::{Daemon, Stopped};
use tidegate_server::feasibility;
use tidegate_server::listener::{self, Bound};
use tidegate_server::service_manager::{self, Role};
use tidegate_server::takeover::{self, Inherited, TakeoverError, Taking};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::daemon_process::{self, EndSignals};
use super::runtime_directory::RuntimeDirectory;
use crate::args::{LogFormat, ServeArgs};
use crate::file_kind::FileKind;
use crate::output::{self, Output};
use crate::problem::Problem;

mod attach_lines;
mod cluster;
mod detach;
mod of_disks;

/// Serves until a signal stops the daemon, or another one takes over.
pub(super) fn run(args: &ServeArgs, out: Output) -> Result<()> {
    let Some(file) = &args.config else {
        return serve_disks(args, out);
    };
    if let [option, ..] = args.parts.words().as_slice() {
        let problem = Problem::new(format!("{option} is for disks of --file")).at(option.clone());
        let help = "a configuration file has the objective of each VM in [vm.objective]";
        return Err(problem.help(help).into());
    }
    let serve = |successor: Option<Successor>| {
        let format = args.log_format;
        daemon_process::run(args.log, format, async {
            let loaded = config::load(file).map_err(|errors| refused(errors, file))?;
            serve(told(loaded, format), format, successor, || Ok(())).await
        })
    };
    if args.detach {
        return detach::run(|word| serve(Some(Successor { word: Some(word) })));
    }
    serve(args.takeover.then(Successor::default))
}

/// Checks that the daemon of a configuration can join its cluster, as far as files and this build
/// are concerned.
///
/// # Errors
/// A file of `[cluster]` cannot be read or used, or this build has no etcd.
pub(super) fn check_cluster(config: &Config) -> Result<()> {
    cluster::Joining::prepare(config).map(drop)
}

/// Daemon that takes over from the one that runs.
#[derive(Default)]
struct Successor {
    /// Word for the command that has started it.
    word: Option<detach::Word>,
}

/// Serves the disks of the options, and prints how they are attached.
fn serve_disks(args: &ServeArgs, out: Output) -> Result<()> {
    let made = of_disks::configuration(args)?;
    if args.print_config {
        return Ok(out.verbatim(&made.text)?);
    }
    let format = args.log_format;
    daemon_process::run(args.log, format, async {
        let loaded = config::parse(&made.text, of_disks::NAME, Path::new(""))?;
        let mut config = told(loaded, format);
        // A new daemon would have no configuration to take over with, and its sockets would go with
        // this one's directory.
        config.daemon.takeover = false;
        of_disks::check_disks(&config)?;
        let directory = made.directory.map(RuntimeDirectory::create).transpose()?;
        let served = config.clone();
        let serving = || Ok(out.verbatim(&attach_lines::lines(&served)?)?);
        let stopped = serve(config, format, None, serving).await;
        // Once the sockets in it are gone, also where the process then ends at once.
        drop(directory);
        stopped
    })
}

/// Prints or logs warnings and notes of a configuration.
fn told(loaded: Loaded, format: LogFormat) -> Config {
    warn(&loaded.warnings, format);
    warn(&loaded.notes, format);
    loaded.config
}

/// Runs the daemon and its control API until they stop. A `successor` takes over from the daemon
/// that runs. `serving` is called once its disks are served.
async fn serve(
    config: Config,
    format: LogFormat,
    successor: Option<Successor>,
    serving: impl FnOnce() -> Result<()>,
) -> Result<Stopped> {
    let signals = EndSignals::install()?;
    let forced_end = daemon_process::forced_end(&config)?;
    let takes_over = successor.is_some();
    connect_to_manager(takes_over);
    listener::take_over_passed(&config)?;
    let joining = cluster::Joining::prepare(&config)?;
    let (devices, vms) = (config.devices.len(), config.vms.len());
    let open = move |config: &Config| {
        let (taking, inherited) = begin_takeover(config, takes_over)?;
        let sockets = Sockets::bind_or_inherit(config, &inherited.sockets);
        let sockets = sockets.map_err(|error| no_socket(&error))?;
        let sockets = sockets.with_calculations(config, Program::this(&["calculate"]));
        sockets.log();
        tell_default_policy(config);
        let offer = bind_offer(config, &inherited);
        let handed = inherited.membership.clone();
        Ok(((sockets, taking, offer, handed), inherited))
    };
    let failed = |error| anyhow::Error::new(error).context("cannot start");
    let started = daemon_process::start(config, signals, open, failed).await?;
    let Some((mut daemon, (sockets, taking, offer, handed))) = started else {
        return Ok(Stopped::AtOnce);
    };
    if let Some(offer) = offer {
        daemon.offer_takeover(offer, sockets.bound());
    }
    if let Some(taking) = taking {
        take_over(&mut daemon, taking, successor.unwrap_or_default()).await?;
    }
    // After the restore, because the objectives of restored VMs have to fit the devices, too.
    let served = daemon.handle();
    let (configs, vm_configs) = (served.devices().configs(), served.vms().configs());
    warn(&feasibility::warnings(&configs, &vm_configs), format);
    tracing::info!(devices, vms, "serving");
    serving()?;
    let member = joining.start(&served, handed);
    let (stop, stopped) = oneshot::channel::<()>();
    let handed_over = daemon.handed_over();
    let stopped = either(stopped, handed_over);
    let api = tokio::spawn(sockets.serve(daemon.handle(), stopped));
    let ended = daemon.run().await;
    member.end(ended.as_ref().ok().copied()).await;
    if let Ok(Stopped::AtOnce) = ended {
        api.abort();
    }
    // Ends the API, which sends its last replies.
    drop(stop);
    let cut_short = match ended {
        Ok(Stopped::AtOnce) => {
            // `abort` takes effect at the task's next poll; awaiting the task closes its socket.
            let _ = api.await;
            true
        }
        _ => is_cut_short(api, forced_end).await,
    };
    if cut_short || matches!(ended, Ok(Stopped::HandedOver | Stopped::ServiceHandedOver)) {
        // Dropping the last handle closes the store, which may block on its file system.
        std::mem::forget(served);
    }
    let ended = ended?;
    Ok(if cut_short { Stopped::AtOnce } else { ended })
}

/// Waits for the end of the daemon, or of a takeover: clients of the API are the new daemon's then,
/// while this one ends.
async fn either(stopped: oneshot::Receiver<()>, handed_over: impl Future<Output = ()>) {
    tokio::select! {
        _ = stopped => {}
        () = handed_over => {}
    }
}

/// Finds the service manager, which hears of a daemon that takes over later.
fn connect_to_manager(takes_over: bool) {
    let role = if takes_over {
        Role::Successor
    } else {
        Role::Main
    };
    if let Err(error) = service_manager::connect(role) {
        // Also of a shell or a container that was started by a service, so not fatal.
        tracing::warn!("no notifications to the service manager: {error}");
    }
}

/// Takes over from the daemon that runs, unless the command that has started this one is gone.
async fn take_over(daemon: &mut Daemon, mut taking: Taking, successor: Successor) -> Result<()> {
    let Successor { word } = successor;
    if let Some(word) = word.clone() {
        taking.check_before_pause(move || word.check_awaited());
    }
    let done = move |known: Result<(), TakeoverError>| {
        if let Some(word) = word {
            word.taken_over(known);
        }
    };
    let taken = daemon.take_over(taking, done).await;
    taken.map_err(|error| not_taken_over(&error))
}

/// Waits until the API has sent its last replies. Returns true if `forced_end` came first.
async fn is_cut_short<T>(mut api: JoinHandle<T>, forced_end: JoinHandle<String>) -> bool {
    tokio::select! {
        _ = &mut api => false,
        why = forced_end => {
            let why = why.unwrap_or_default();
            tracing::warn!("{why}: ending at once; the last replies of the API may be cut off");
            api.abort();
            true
        }
    }
}

/// Maximum number of newly enforced parts in the log, for hosts with a thousand VMs.
const NEWLY_ENFORCED_LISTED: usize = 16;

/// Logs the default policy of devices that name none, because an earlier default was another one.
fn tell_default_policy(config: &Config) {
    let unnamed = config::by_default(config);
    if unnamed.is_empty() {
        return;
    }
    let devices: Vec<_> = unnamed.iter().map(|of| of.device).collect();
    let newly: Vec<_> = unnamed.iter().flat_map(|of| &of.newly_enforced).collect();
    let listed = newly
        .iter()
        .take(NEWLY_ENFORCED_LISTED)
        .map(|part| part.to_string());
    let listed: Vec<_> = listed.collect();
    let more = match newly.len().saturating_sub(NEWLY_ENFORCED_LISTED) {
        0 => String::new(),
        more => format!("; and {more} more, which `tidegate check` lists"),
    };
    // Absent if the earlier default enforced as much: an empty field would look like a mistake.
    let newly_enforced = (!newly.is_empty()).then(|| format!("{}{more}", listed.join("; ")));
    tracing::info!(
        devices = devices.join(", "),
        newly_enforced,
        "no policy is configured, so the default {DEFAULT_POLICY} is used; earlier builds used {}",
        config::DEFAULT_BEFORE,
    );
}

/// Prints warnings and notes on standard error, or logs them if programs read the log.
fn warn(warnings: &[Diagnostic], format: LogFormat) {
    for warning in warnings {
        match format {
            LogFormat::Text => output::tell(format_args!("{warning}\n")),
            LogFormat::Json => config::log_diagnostic(warning),
        }
    }
}

/// Returns the error for a refused file. A file of another kind, such as a scenario, gets one error
/// that says so instead of one for each line.
fn refused(errors: ConfigErrors, file: &Path) -> anyhow::Error {
    let kind = document::read_text(file).map(|text| FileKind::detect(&text));
    match kind {
        Ok(Some(kind)) if kind != FileKind::Configuration => {
            kind.instead_of(FileKind::Configuration, file).into()
        }
        _ => errors.into(),
    }
}

/// Asks the running daemon for what it serves, and has it close its store; does nothing unless this
/// daemon `takes_over`.
fn begin_takeover(config: &Config, takes_over: bool) -> Result<(Option<Taking>, Inherited)> {
    if !takes_over {
        return Ok((None, Inherited::default()));
    }
    let path = takeover::socket_path(config);
    let path = path.context("[control] has no unix socket, beside which a takeover has its own")?;
    let begun = Taking::begin(&path, config.file.as_deref()).and_then(|(mut taking, inherited)| {
        taking.prepare()?;
        Ok((Some(taking), inherited))
    });
    begun.map_err(|error| not_taken_over(&error))
}

/// Binds the socket at which this daemon can be taken over, if the configuration allows it. Without
/// it the daemon serves all the same.
fn bind_offer(config: &Config, inherited: &Inherited) -> Option<Bound> {
    if !config.daemon.takeover {
        return None;
    }
    let path = takeover::socket_path(config)?;
    let address = ListenAddress::Unix { path, mode: 0o600 };
    let owner = SocketOwner::default();
    match Bound::new_or_inherited(&address, &owner, &inherited.sockets) {
        Ok(bound) => Some(bound),
        Err(error) => {
            tracing::warn!("this daemon cannot be taken over by a new one: {error}");
            None
        }
    }
}

/// Returns the error of a takeover.
fn not_taken_over(error: &TakeoverError) -> anyhow::Error {
    let problem = Problem::new(format!("not taken over: {error}"));
    match error.help() {
        Some(help) => problem.help(help).into(),
        None => problem.into(),
    }
}

/// Returns the error for a socket of the API or of metrics that cannot be opened.
fn no_socket(error: &SocketError) -> anyhow::Error {
    let problem = Problem::new(error.to_string()).place(error.place());
    match error.help() {
        Some(help) => problem.help(help).into(),
        None => problem.into(),
    }
}
