//! `tidegate top`: devices, VMs and their promises on a screen that is kept up to date.
//!
//! [`model`] is made from the daemon's answers, [`app`] has what keys do, [`screen`] draws both
//! into a buffer of characters; none of them does I/O. [`fetch`] asks the daemon and [`terminal`]
//! has the terminal, on threads that send [`Event`]s to the loop here.

mod answers;
mod app;
mod change;
mod event;
mod fetch;
#[cfg(test)]
mod fixture;
mod line;
mod model;
mod names;
mod quantiles;
mod rows;
mod screen;
mod terminal;

use std::collections::HashSet;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::Result;
use jiff::tz::TimeZone;

use self::answers::Answers;
use self::app::{App, Request};
use self::change::Change;
use self::event::Event;
use self::quantiles::Quantiles;
use self::rows::Choice;
use self::screen::Look;
use self::terminal::Screen;
use crate::args::{Global, TopArgs};
use crate::output::Output;
use crate::plot_output;
use crate::problem::Problem;

/// Longest time without a new frame: the age of old values is shown in seconds.
const REDRAW: Duration = Duration::from_secs(1);

pub(super) fn run(args: &TopArgs, global: &Global, out: Output) -> Result<()> {
    terminal::check()?;
    let client = global.client()?;
    // Before the screen is taken: where no daemon listens, that is all there is to say.
    // VMs on the screen are not known yet, and the second answer is to have latencies.
    let first = fetch::answers(&client, &mut Quantiles::All)?;
    check_device(args.device.as_deref(), &first)?;
    let choice = Choice {
        sort: args.sort,
        reverse: args.reverse,
        filter: args.filter.clone(),
        device: args.device.clone(),
    };
    let interval_ms = u64::try_from(args.interval.as_millis()).unwrap_or(u64::MAX);
    let mut app = App::new(choice, interval_ms, client.place(), TimeZone::system());
    app.update(Ok(first));
    let look = Look {
        colours: out.style(),
        glyphs: plot_output::glyphs_of(args.ascii),
    };
    // Signals first: one that comes while the terminal is taken is to give it back.
    let signals = terminal::signals()?;
    let mut screen = Screen::take()?;
    let (events, received) = mpsc::channel();
    let (waker, wake) = mpsc::channel();
    let (changes, changes_received) = mpsc::channel();
    let (names, names_received) = mpsc::channel();
    let every = args.interval;
    let history_client = global.client()?;
    let change_client = global.client()?;
    spawn(&events, |_| signals());
    spawn(&events, terminal::keys);
    let wanted = Arc::new(Mutex::new(Quantiles::Of(Vec::new())));
    let wanted_by_poll = Arc::clone(&wanted);
    spawn(&events, move |events| {
        fetch::poll(&client, every, &wake, &wanted_by_poll, events);
    });
    spawn(&events, move |events| {
        fetch::histories(&history_client, &names_received, events);
    });
    spawn(&events, move |events| {
        fetch::changes(&change_client, &changes_received, events);
    });
    let mut before = HashSet::new();
    loop {
        screen.draw(|frame| screen::draw(frame, &mut app, look, fetch::now_ms()))?;
        want(&wanted, &app);
        for name in newly_shown(&mut before, std::mem::take(&mut app.shown)) {
            let _ = names.send(name);
        }
        let event = match received.recv_timeout(REDRAW) {
            Ok(event) => event,
            Err(RecvTimeoutError::Timeout) => continue,
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
        };
        for event in std::iter::once(event).chain(received.try_iter()) {
            if let Event::Changed(_) = &event {
                let _ = waker.send(());
            }
            if handle(event, &mut app, &mut screen, &changes)?.is_none() {
                return Ok(());
            }
        }
    }
}

/// Returns those of the VMs `shown` in a frame that were not in the frame before, and keeps the
/// frame's. Their histories are missing: a VM has no latencies for the time in which it is not
/// shown, and one that is added again under its name has a history of its own.
fn newly_shown(before: &mut HashSet<String>, shown: Vec<String>) -> Vec<String> {
    let new = shown.iter().filter(|name| !before.contains(*name));
    let new = new.cloned().collect();
    *before = shown.into_iter().collect();
    new
}

/// Has the next answers be those that the last frame needs.
fn want(wanted: &Mutex<Quantiles>, app: &App) {
    if let Some(quantiles) = app.quantiles() {
        *wanted.lock().unwrap_or_else(PoisonError::into_inner) = quantiles;
    }
}

/// Takes an event in; `None` if it is the end.
fn handle(
    event: Event,
    app: &mut App,
    screen: &mut Screen,
    changes: &Sender<Change>,
) -> Result<Option<()>> {
    let request = match event {
        Event::End => return Ok(None),
        Event::Key(key) => app.key(key),
        Event::Resized => None,
        Event::Answers(answers) => {
            app.update(*answers);
            None
        }
        Event::History(history) => {
            app.fill(&history);
            None
        }
        Event::Changed(result) => {
            app.changed(*result, fetch::now_ms());
            None
        }
    };
    match request {
        None => {}
        Some(Request::Quit) => return Ok(None),
        Some(Request::Suspend) => screen.suspend()?,
        Some(Request::Redraw) => screen.clear()?,
        Some(Request::Change(change)) => _ = changes.send(change),
    }
    Ok(Some(()))
}

/// Runs `work` on a thread whose end, expected or not, ends the program: without one of its
/// threads the screen would stand still.
fn spawn(events: &Sender<Event>, work: impl FnOnce(&Sender<Event>) + Send + 'static) {
    struct EndsWith(Sender<Event>);
    impl Drop for EndsWith {
        fn drop(&mut self) {
            let _ = self.0.send(Event::End);
        }
    }
    let events = EndsWith(events.clone());
    thread::spawn(move || work(&events.0));
}

/// Checks that the daemon has the device of `--device`.
fn check_device(wanted: Option<&str>, first: &Answers) -> Result<()> {
    let Some(wanted) = wanted else { return Ok(()) };
    let names = first.devices.iter().map(|device| device.name.as_str());
    let names: Vec<&str> = names.collect();
    if names.contains(&wanted) {
        return Ok(());
    }
    let help = format!("there are: {}", names.join(", "));
    let what = format!("no such device: {wanted:?}");
    Err(Problem::new(what).help(help).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_history_of_a_vm_is_asked_for_whenever_it_comes_back_to_the_screen() {
        let mut before = HashSet::new();
        let mut new = |shown: &[&str]| {
            let shown = shown.iter().map(|&name| name.to_owned()).collect();
            newly_shown(&mut before, shown)
        };
        assert_eq!(new(&["a", "b"]), ["a", "b"]);
        assert_eq!(new(&["a", "b"]), [""; 0]);
        assert_eq!(new(&["b", "c"]), ["c"]);
        assert_eq!(new(&["a", "b"]), ["a"], "it was away");
    }
}
