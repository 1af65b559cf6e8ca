//! The terminal: its mode, its keys and the signals that end the program. It is given back as it
//! was however the program ends, short of SIGKILL.

use std::io::{self, IsTerminal, Stdout};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;

use anyhow::{Context, Result};
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::Show;
use ratatui::crossterm::event::{self, Event as TerminalEvent};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{
    Clear, ClearType, EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use ratatui::{Frame, Terminal};
use rustix::process::{Signal, kill_current_process_group};
use tokio::signal::unix::{SignalKind, signal};

use super::event::Event;
use crate::problem::Problem;

/// True while the terminal is in the mode of the screen.
static IS_TAKEN: AtomicBool = AtomicBool::new(false);

/// Checks that standard input and output are a terminal that can be drawn on.
///
/// # Errors
/// If they are not, with the commands that need none.
pub(super) fn check() -> Result<()> {
    let is_dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
    if io::stdin().is_terminal() && io::stdout().is_terminal() && !is_dumb {
        return Ok(());
    }
    let what = "`tidegate top` needs a terminal for its screen and keys";
    let help = "for a file, a pipe or a program: `tidegate stats`, `tidegate stats --follow -o \
                json` or `tidegate vm list -o json`; over ssh: `ssh -t`";
    Err(Problem::new(what).help(help).into())
}

/// The terminal while the screen is drawn on it.
pub(super) struct Screen {
    terminal: Terminal<CrosstermBackend<Stdout>>,
}

impl Screen {
    /// Takes the terminal.
    ///
    /// # Errors
    /// If it cannot be drawn on.
    pub(super) fn take() -> Result<Screen> {
        give_back_on_panic();
        take()?;
        let terminal = Terminal::new(CrosstermBackend::new(io::stdout()));
        let terminal = terminal.inspect_err(|_| give_back());
        Ok(Screen {
            terminal: terminal.context("cannot draw on the terminal")?,
        })
    }

    /// Draws a frame; only what has changed is written.
    ///
    /// # Errors
    /// If the terminal is gone.
    pub(super) fn draw(&mut self, draw: impl FnOnce(&mut Frame<'_>)) -> Result<()> {
        self.terminal.draw(draw).map(drop)?;
        Ok(())
    }

    /// Makes the next frame write everything.
    ///
    /// # Errors
    /// If the terminal is gone.
    pub(super) fn clear(&mut self) -> Result<()> {
        // Not `Terminal::clear`: it asks the terminal for the cursor's place, and the answer would
        // go to the thread that reads keys.
        execute!(io::stdout(), Clear(ClearType::All))?;
        self.terminal = Terminal::new(CrosstermBackend::new(io::stdout()))?;
        Ok(())
    }

    /// Gives the terminal back, stops this process with its group, as the terminal's driver does,
    /// until the shell continues it, and takes the terminal again.
    ///
    /// # Errors
    /// If the terminal is gone.
    pub(super) fn suspend(&mut self) -> Result<()> {
        give_back();
        kill_current_process_group(Signal::TSTP).context("cannot stop this process")?;
        take()?;
        self.clear()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        give_back();
    }
}

fn take() -> Result<()> {
    IS_TAKEN.store(true, Ordering::Relaxed);
    let taken = enable_raw_mode().and_then(|()| execute!(io::stdout(), EnterAlternateScreen));
    taken
        .inspect_err(|_| give_back())
        .context("cannot use the terminal")
}

/// Gives the terminal back. Failures are ignored: the terminal is where they would be shown.
fn give_back() {
    if IS_TAKEN.swap(false, Ordering::Relaxed) {
        // Cleared first, because tmux leaves a part of the screen behind if its window was resized.
        let clear = Clear(ClearType::All);
        let _ = execute!(io::stdout(), clear, LeaveAlternateScreen, Show);
        let _ = disable_raw_mode();
    }
}

/// Has a panic of any thread give the terminal back before its message is printed, which would be
/// lost with the alternate screen otherwise.
fn give_back_on_panic() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            give_back();
            before(panic);
        }));
    });
}

/// Sends keys and changes of size until `events` is closed or the terminal is gone.
pub(super) fn keys(events: &Sender<Event>) {
    loop {
        let event = match event::read() {
            Ok(TerminalEvent::Key(key)) => Event::Key(key),
            Ok(TerminalEvent::Resize(..)) => Event::Resized,
            Ok(_) => continue,
            Err(_) => return,
        };
        if events.send(event).is_err() {
            return;
        }
    }
}

/// Has SIGTERM, SIGINT, SIGHUP and SIGQUIT end the program in good order, and returns what waits
/// for one of them.
///
/// # Errors
/// If signals cannot be handled.
pub(super) fn signals() -> Result<impl FnOnce() + Send> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let kinds = [
        SignalKind::terminate(),
        SignalKind::interrupt(),
        SignalKind::hangup(),
        SignalKind::quit(),
    ];
    let entered = runtime.enter();
    let [mut terminate, mut interrupt, mut hangup, mut quit] = {
        let signals: io::Result<Vec<_>> = kinds.into_iter().map(signal).collect();
        let signals = signals.context("signals cannot be handled")?;
        <[_; 4]>::try_from(signals).ok().context("four signals")?
    };
    drop(entered);
    Ok(move || {
        runtime.block_on(async {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
                _ = hangup.recv() => {}
                _ = quit.recv() => {}
            }
        });
    })
}
