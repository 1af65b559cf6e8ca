//! `tidegate serve`: the daemon.

use std::io::{IsTerminal, Write};
use std::path::Path;

use anyhow::{Context, Result};
use tidegate_server::config::{self, Loaded};
use tidegate_server::control;
use tidegate_server::daemon::Daemon;
use tracing::Level;

use crate::args::LogLevel;

/// Serves until it is told to stop.
pub(super) fn run(file: &Path, log: LogLevel) -> Result<()> {
    let Loaded { config, warnings } = config::load(file)?;
    let mut err = std::io::stderr();
    for warning in &warnings {
        let _ = writeln!(err, "{warning}\n");
    }
    start_log(log);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let (devices, vms) = (config.devices.len(), config.vms.len());
        let control = control::bind(&config.control).context("cannot open the control socket")?;
        tracing::info!("control API at {}", control.name());
        let daemon = Daemon::start(config).context("cannot start")?;
        tracing::info!(devices, vms, "serving");
        let api = tokio::spawn(control::serve(control, daemon.handle()));
        let ended = daemon.run().await;
        api.abort();
        // Aborting takes effect when the task is next polled; its socket goes with it.
        let _ = api.await;
        Ok(ended?)
    })
}

fn start_log(level: LogLevel) {
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
        .with_writer(std::io::stderr)
        .init();
}
