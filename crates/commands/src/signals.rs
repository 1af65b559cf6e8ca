//! SIGINT and SIGTERM for commands that end in good order.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Result;
use tokio::signal::unix::{SignalKind, signal};

/// Starts a thread that sets `stop` on the first SIGINT or SIGTERM and exits on the second.
///
/// # Errors
/// If the signals cannot be had.
pub(crate) fn stop_on_first(stop: Arc<AtomicBool>) -> Result<()> {
    // 128 + SIGINT, as shells report a process that the signal has ended.
    set_on_signals(stop, || std::process::exit(130))
}

/// Starts a thread that sets `stop` on SIGINT and SIGTERM, and does nothing more however often they
/// come: for commands with child processes, which would be left behind.
///
/// # Errors
/// If the signals cannot be had.
pub(crate) fn stop_and_clean_up(stop: Arc<AtomicBool>) -> Result<()> {
    set_on_signals(stop, || ())
}

/// Starts a thread that sets `stop` on the first SIGINT or SIGTERM and calls `again` on others.
fn set_on_signals(stop: Arc<AtomicBool>, again: fn()) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let signals = runtime.block_on(async {
        Ok::<_, std::io::Error>((
            signal(SignalKind::interrupt())?,
            signal(SignalKind::terminate())?,
        ))
    });
    let (mut interrupt, mut terminate) = signals?;
    std::thread::spawn(move || {
        runtime.block_on(async {
            loop {
                tokio::select! {
                    _ = interrupt.recv() => {}
                    _ = terminate.recv() => {}
                }
                if stop.swap(true, Ordering::Relaxed) {
                    again();
                }
            }
        });
    });
    Ok(())
}
