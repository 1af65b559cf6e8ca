//! `tidegate serve`: runs the daemon.

use std::io::IsTerminal;
use std::path::Path;

use anyhow::{Context, Result};
use tidegate_config::device::DEFAULT_POLICY;
use tidegate_config::document;
use tidegate_server::config::{self, Config, ConfigErrors, Diagnostic, Loaded, Place};
use tidegate_server::control;
use tidegate_server::daemon::{Daemon, StartError, Stopped, wait_for_forced_end};
use tidegate_server::feasibility;
use tidegate_server::listener::BindError;
use tracing::Level;

use crate::args::LogLevel;
use crate::file_kind::FileKind;
use crate::log::Log;
use crate::output;
use crate::problem::Problem;

/// Serves until a signal stops the daemon.
pub(super) fn run(file: &Path, log: LogLevel) -> Result<()> {
    let Loaded {
        config,
        warnings,
        notes,
    } = config::load(file).map_err(|errors| refused(errors, file))?;
    warn(&warnings);
    warn(&notes);
    let written = Log::to(std::io::stderr()).context("cannot start a thread for the log")?;
    start_log(log, &written);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let stopped = runtime.block_on(serve(config));
    if let Ok(Stopped::AtOnce) = stopped {
        // Dropping `written` flushes the log. Threads may be blocked in the kernel, so that only
        // `exit` ends them.
        drop(written);
        std::process::exit(0);
    }
    // Dropping the runtime would wait for its blocking threads, one of which may hang in a file
    // system call even after an orderly end.
    runtime.shutdown_background();
    stopped.map(drop)
}

/// Runs the daemon and its control API until they stop.
async fn serve(config: Config) -> Result<Stopped> {
    let (devices, vms) = (config.devices.len(), config.vms.len());
    let limits = config.daemon;
    let control = control::bind(&config.control)
        .map_err(|error| no_control(error, config.control.place.as_ref()))?;
    tracing::info!("control API at {}", control.name());
    tell_default_policy(&config);
    // Opening the disks may take long, or block for ever: signals are handled meanwhile.
    let daemon = tokio::select! {
        daemon = start(config) => daemon.context("cannot start")?,
        why = wait_for_forced_end(&limits) => {
            let why = why.context("cannot handle signals")?;
            tracing::warn!("{why} while starting: stopping at once");
            return Ok(Stopped::AtOnce);
        }
    };
    // After the restore, because the objectives of restored VMs have to fit the devices, too.
    let served = daemon.handle();
    warn(&feasibility::warnings(
        &served.devices().configs(),
        &served.vms().configs(),
    ));
    tracing::info!(devices, vms, "serving");
    let api = tokio::spawn(control::serve(control, daemon.handle()));
    let ended = daemon.run().await;
    api.abort();
    // `abort` takes effect at the task's next poll; awaiting the task closes its socket.
    let _ = api.await;
    if let Ok(Stopped::AtOnce) = ended {
        // Dropping the last handle closes the store, which may block on its file system.
        std::mem::forget(served);
    }
    Ok(ended?)
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

/// Starts the daemon on a thread that may block, then restores the persisted VMs.
async fn start(config: Config) -> Result<Daemon, StartError> {
    let starting = tokio::task::spawn_blocking(move || Daemon::start(config));
    let daemon = starting
        .await
        .unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()))?;
    // The API must not accept changes before the restore ends: they would race with the VMs that
    // are being added again.
    daemon.restore().await;
    Ok(daemon)
}

/// Prints warnings and notes on standard error.
fn warn(warnings: &[Diagnostic]) {
    for warning in warnings {
        output::tell(format_args!("{warning}\n"));
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

/// Returns the error for a control socket that cannot be opened.
fn no_control(error: BindError, place: Option<&Place>) -> anyhow::Error {
    let what = format!("cannot open the control socket: {error}");
    let problem = Problem::new(what).place(place);
    match error.help() {
        Some(help) => problem
            .help(format!("{help}: `socket` in [control]"))
            .into(),
        None => problem.into(),
    }
}

/// Installs the log, with colours on a terminal.
fn start_log(level: LogLevel, log: &Log) {
    let level = match level {
        LogLevel::Error => Level::ERROR,
        LogLevel::Warn => Level::WARN,
        LogLevel::Info => Level::INFO,
        LogLevel::Debug => Level::DEBUG,
        LogLevel::Trace => Level::TRACE,
    };
    let colours = std::io::stderr().is_terminal()
        && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    tracing_subscriber::fmt()
        .with_max_level(level)
        .with_target(false)
        .with_ansi(colours)
        .with_writer(log.lines())
        // Internal errors are printed with `eprintln!`, which panics if standard error is closed.
        // A panic in an event loop would take down the disks that it serves.
        .log_internal_errors(false)
        .init();
}
