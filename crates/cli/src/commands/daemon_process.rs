//! Process of a daemon: its log and runtime, and signals while it starts.

use std::io::IsTerminal;

use anyhow::{Context, Result};
use tidegate_server::config::Config;
use tidegate_server::daemon::{Daemon, Signals, StartError, Stopped, wait_for_forced_end};
use tracing::Level;

use crate::args::LogLevel;
use crate::log::Log;

/// Runs a daemon on a runtime of its own, with a log on standard error.
pub(super) fn run(log: LogLevel, serving: impl Future<Output = Result<Stopped>>) -> Result<()> {
    let written = Log::to(std::io::stderr()).context("cannot start a thread for the log")?;
    start_log(log, &written);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let stopped = runtime.block_on(serving);
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

/// Signals that end a daemon. To be installed before the daemon has a socket: who finds the socket
/// may send one.
pub(super) struct EndSignals {
    /// For the orderly end.
    orderly: Signals,
    /// For the end of a start that hangs.
    forced: Signals,
}

impl EndSignals {
    pub(super) fn install() -> Result<EndSignals> {
        let install = || Signals::install().context("signals cannot be handled");
        Ok(EndSignals {
            orderly: install()?,
            forced: install()?,
        })
    }
}

/// Starts a daemon; `None` if signals have ended the start.
///
/// # Errors
/// If anything of the configuration cannot be opened.
pub(super) async fn start(
    config: Config,
    signals: EndSignals,
) -> Result<Option<Daemon>, StartError> {
    let limits = config.daemon;
    // Opening the disks may take long, or block for ever: signals are handled meanwhile.
    tokio::select! {
        daemon = on_a_thread(config, signals.orderly) => daemon.map(Some),
        why = wait_for_forced_end(signals.forced, &limits) => {
            tracing::warn!("{why} while starting: stopping at once");
            Ok(None)
        }
    }
}

/// Starts the daemon on a thread that may block, then restores the persisted VMs.
async fn on_a_thread(config: Config, signals: Signals) -> Result<Daemon, StartError> {
    let starting = tokio::task::spawn_blocking(move || Daemon::start_with(config, signals));
    let daemon = starting
        .await
        .unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()))?;
    // Nothing may be changed before the restore ends: a change would race with the VMs that are
    // being added again.
    daemon.restore().await;
    Ok(daemon)
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
