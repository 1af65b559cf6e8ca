//! Events that the screen waits for.

use ratatui::crossterm::event::KeyEvent;
use tidegate_api::history::HistoryView;
use tidegate_api::vm::VmView;

use super::answers::Answers;

/// Event, sent by the thread that waits for it.
#[derive(Debug)]
pub(super) enum Event {
    Key(KeyEvent),
    /// The terminal has another size.
    Resized,
    /// Answers of the daemon, or why there are none.
    Answers(Box<Result<Answers, String>>),
    History(HistoryView),
    /// VM after a change of its objective, or why nothing was changed.
    Changed(Box<Result<VmView, String>>),
    /// A signal asks for the end, or a thread has ended.
    End,
}
