//! Process of a daemon: its log and runtime, and signals while it starts.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::io::IsTerminal;
use std::panic::PanicHookInfo;

use anyhow::{Context, Result};
use tidegate_server::config::{self, Config, ConfigErrors};
use tidegate_server::daemon::{Daemon, Signals, StartError, Stopped, wait_for_forced_end};
use tidegate_server::takeover::Inherited;
use tokio::task::JoinHandle;
use tracing::Level;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::args::{LogFormat, LogLevel};
use crate::log::{Json, Log};
use crate::problem::{self, Logged};

/// Runs a daemon on a runtime of its own, with a log on standard error.
///
/// # Errors
/// That of the daemon; a [`Logged`] one in its place if programs read the log.
pub(super) fn run(
    log: LogLevel,
    format: LogFormat,
    serving: impl Future<Output = Result<Stopped>>,
) -> Result<()> {
    let written =
        Log::to(std::io::stderr(), format).context("cannot start a thread for the log")?;
    start_log(log, format, &written);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let stopped = runtime.block_on(serving);
    if let Ok(how @ (Stopped::AtOnce | Stopped::HandedOver | Stopped::ServiceHandedOver)) = stopped
    {
        // Dropping `written` flushes the log. Threads may be blocked in the kernel, so that only
        // `exit` ends them.
        drop(written);
        std::process::exit(i32::from(how == Stopped::ServiceHandedOver));
    }
    // Dropping the runtime would wait for its blocking threads, one of which may hang in a file
    // system call even after an orderly end.
    runtime.shutdown_background();
    match (stopped, format) {
        (Err(error), LogFormat::Json) => {
            log_error(&error);
            Err(Logged.into())
        }
        (stopped, _) => stopped.map(drop),
    }
}

/// Logs an error that ends the daemon.
fn log_error(error: &anyhow::Error) {
    if let Some(ConfigErrors(errors)) = error.downcast_ref() {
        return errors.iter().for_each(config::log_diagnostic);
    }
    let problem = problem::for_api(error);
    let at = Some(problem.at).filter(|at| !at.is_empty());
    tracing::error!(at, help = problem.allowed, "{}", problem.what);
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

/// Starts a task that ends, with the reason, once an orderly end has to be cut short: at a second
/// signal from now on, or when the time of [`wait_for_forced_end`] after the first is over.
pub(super) fn forced_end(config: &Config) -> Result<JoinHandle<String>> {
    let signals = Signals::install().context("signals cannot be handled")?;
    let limits = config.daemon;
    Ok(tokio::spawn(async move {
        wait_for_forced_end(signals, &limits).await
    }))
}

/// Opens what a daemon needs beside its disks, with `open`, which also returns what a running
/// daemon has handed over, and then starts the daemon; `None` if signals have ended the
/// start. `failed` makes the error of a daemon that does not start.
///
/// # Errors
/// If `open` fails, or anything of the configuration cannot be opened.
pub(super) async fn start<T: Send + 'static>(
    config: Config,
    signals: EndSignals,
    open: impl FnOnce(&Config) -> Result<(T, Inherited)> + Send + 'static,
    failed: impl FnOnce(StartError) -> anyhow::Error,
) -> Result<Option<(Daemon, T)>> {
    let limits = config.daemon;
    let starting = async {
        let opening = on_a_thread(move || open(&config).map(|opened| (opened, config)));
        let ((opened, inherited), config) = opening.await?;
        let daemon = start_daemon(config, signals.orderly, inherited).await;
        Ok(Some((daemon.map_err(failed)?, opened)))
    };
    // Opening the files of TLS or the disks may take long, or block for ever: signals are handled
    // meanwhile.
    tokio::select! {
        started = starting => started,
        why = wait_for_forced_end(signals.forced, &limits) => {
            tracing::warn!("{why} while starting: stopping at once");
            Ok(None)
        }
    }
}

/// Calls a function on a thread that may block.
async fn on_a_thread<T: Send + 'static>(act: impl FnOnce() -> T + Send + 'static) -> T {
    let result = tokio::task::spawn_blocking(act).await;
    result.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()))
}

/// Starts the daemon, then restores the persisted VMs.
async fn start_daemon(
    config: Config,
    signals: Signals,
    inherited: Inherited,
) -> Result<Daemon, StartError> {
    let start = move || Daemon::start_taking_over(config, signals, inherited);
    let daemon = on_a_thread(start).await?;
    // Nothing may be changed before the restore ends: a change would race with the VMs that are
    // being added again.
    daemon.restore().await;
    Ok(daemon)
}

/// Installs the log, with colours on a terminal.
fn start_log(level: LogLevel, format: LogFormat, log: &Log) {
    let level = match level {
        LogLevel::Error => Level::ERROR,
        LogLevel::Warn => Level::WARN,
        LogLevel::Info => Level::INFO,
        LogLevel::Debug => Level::DEBUG,
        LogLevel::Trace => Level::TRACE,
    };
    let colours = std::io::stderr().is_terminal()
        && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_target(false)
        .with_ansi(colours)
        .with_writer(log.lines())
        // Internal errors are printed with `eprintln!`, which panics if standard error is closed.
        // A panic in an event loop would take down the disks that it serves.
        .log_internal_errors(false);
    let filter = log_filter(level);
    match format {
        LogFormat::Text => subscriber.finish().with(filter).init(),
        LogFormat::Json => {
            subscriber.event_format(Json).finish().with(filter).init();
            std::panic::set_hook(Box::new(log_panic));
        }
    }
}

/// Returns the filter of the log. The client of NATS logs each attempt to connect, up to fifty a
/// second; the exchange says once that the server is away, and why.
fn log_filter(level: Level) -> Targets {
    Targets::new()
        .with_default(level)
        .with_target("async_nats", LevelFilter::OFF)
}

/// Logs a panic, with a backtrace if `RUST_BACKTRACE` asks for one.
fn log_panic(panic: &PanicHookInfo<'_>) {
    let location = panic.location().map(ToString::to_string);
    let thread = std::thread::current();
    let backtrace = Backtrace::capture();
    let captured = backtrace.status() == BacktraceStatus::Captured;
    tracing::error!(
        location,
        thread = thread.name(),
        backtrace = captured.then(|| backtrace.to_string()),
        "panicked: {}",
        panic.payload_as_str().unwrap_or("a value that is no text")
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_client_of_nats_has_no_lines_of_its_own_in_the_log() {
        let filter = log_filter(Level::INFO);
        assert!(filter.would_enable("tidegate_server::exchange", &Level::INFO));
        assert!(!filter.would_enable("tidegate_server::exchange", &Level::DEBUG));
        assert!(!filter.would_enable("async_nats::connector", &Level::ERROR));
    }
}
