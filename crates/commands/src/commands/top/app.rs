//! State of the screen beyond the values: page, selection, order, prompts, and what keys do.

use clap::ValueEnum as _;
use jiff::tz::TimeZone;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use tidegate_api::history::HistoryView;
use tidegate_api::vm::VmView;
use tidegate_report::Tone;

use super::answers::Answers;
use super::change::{Change, Edit};
use super::line::Line;
use super::model::{Model, VmRow};
use super::quantiles::Quantiles;
use super::rows::Choice;
use crate::args::SortColumn;
use crate::objective_line;

/// Rows that Page Up and Page Down move by.
const PAGE: isize = 10;

/// Page of the screen.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) enum Page {
    /// Devices and VMs.
    #[default]
    Vms,
    /// Matrix of who delayed whom.
    Delays,
    /// Deadline transfers.
    Transfers,
    /// The selected VM.
    Vm,
    /// Keys and columns.
    Help,
}

/// Line at the bottom that takes the keys.
#[derive(Clone, Default, Debug)]
pub(super) enum Prompt {
    /// Nothing is typed: keys are commands.
    #[default]
    None,
    /// Filter of VMs.
    Filter(Line),
    /// Objective of a VM; `is_sent` while the daemon has not answered.
    Objective { edit: Box<Edit>, is_sent: bool },
}

/// Work of the program for a key.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Request {
    Quit,
    /// Stop until the shell continues the program.
    Suspend,
    /// Draw everything anew, because something else has written on the terminal.
    Redraw,
    Change(Change),
}

/// State of the screen.
#[derive(Debug)]
pub(super) struct App {
    /// Values as they come.
    live: Model,
    /// Values that are shown while the screen is paused.
    paused: Option<Box<Model>>,
    pub(super) page: Page,
    /// Page that help goes back to.
    behind_help: Page,
    pub(super) choice: Choice,
    /// Name of the selected VM.
    selected: Option<String>,
    /// First line that a page without selection shows.
    pub(super) scroll: usize,
    /// VMs whose last minutes the last frame shows.
    pub(super) shown: Vec<String>,
    pub(super) prompt: Prompt,
    /// Changes whose prompt was left before their results came; results come in the order of the
    /// changes.
    left: u32,
    /// Result of the last change, until the next key.
    pub(super) message: Option<(Tone, String)>,
    /// Time between two requests in milliseconds.
    pub(super) interval_ms: u64,
    /// Place of the control API.
    pub(super) place: String,
    pub(super) zone: TimeZone,
}

impl App {
    /// Creates a screen without values.
    pub(super) fn new(choice: Choice, interval_ms: u64, place: String, zone: TimeZone) -> App {
        App {
            live: Model::default(),
            paused: None,
            page: Page::default(),
            behind_help: Page::default(),
            choice,
            selected: None,
            scroll: 0,
            shown: Vec::new(),
            prompt: Prompt::default(),
            left: 0,
            message: None,
            interval_ms,
            place,
            zone,
        }
    }

    /// Returns the values to show.
    pub(super) fn model(&self) -> &Model {
        self.paused.as_deref().unwrap_or(&self.live)
    }

    pub(super) fn is_paused(&self) -> bool {
        self.paused.is_some()
    }

    /// Takes answers in, or why there are none.
    pub(super) fn update(&mut self, answers: Result<Answers, String>) {
        match answers {
            Ok(answers) => self.live.update(answers),
            Err(why) => self.live.fail(why),
        }
        if self.page == Page::Vm && self.selected_vm().is_none() {
            let name = self.selected.take().unwrap_or_default();
            self.page = Page::Vms;
            self.message = Some((Tone::Warn, format!("{name} is not served any more")));
        }
    }

    /// Takes the history of a VM in.
    pub(super) fn fill(&mut self, history: &HistoryView) {
        self.live.fill(history);
        if let Some(paused) = &mut self.paused {
            paused.fill(history);
        }
    }

    /// Takes the result of a change in that came at `at_ms`: the VM with what is then in force, or
    /// an error.
    pub(super) fn changed(&mut self, result: Result<VmView, String>, at_ms: u64) {
        // The result of a change that was left must not close, or open for sending, the prompt
        // that is shown by now.
        let is_of_prompt = self.left == 0;
        self.left = self.left.saturating_sub(1);
        match result {
            Ok(vm) => {
                if is_of_prompt {
                    self.prompt = Prompt::None;
                }
                self.message = Some(in_force(&vm));
                if let Some(paused) = &mut self.paused {
                    paused.replace_vm(vm.clone(), at_ms);
                }
                self.live.replace_vm(vm, at_ms);
            }
            Err(why) => {
                match &mut self.prompt {
                    Prompt::Objective { is_sent, .. } if is_of_prompt => *is_sent = false,
                    _ => {}
                }
                self.message = Some((Tone::Bad, why));
            }
        }
    }

    /// Returns the VMs whose quantiles the last frame needs; `None` if it shows no VM.
    pub(super) fn quantiles(&self) -> Option<Quantiles> {
        if matches!(self.choice.sort, SortColumn::P50 | SortColumn::P99) {
            return Some(Quantiles::All);
        }
        (!self.shown.is_empty()).then(|| Quantiles::Of(self.shown.clone()))
    }

    /// Returns the VMs that are shown, in order.
    pub(super) fn rows(&self) -> Vec<&VmRow> {
        self.choice.rows(&self.model().vms)
    }

    /// Returns the place of the selected VM among `rows`; 0 where it is not shown.
    pub(super) fn selected_index(&self, rows: &[&VmRow]) -> usize {
        let name = self.selected.as_deref();
        let place = rows.iter().position(|row| Some(&*row.view.name) == name);
        place.unwrap_or(0)
    }

    /// Returns the VM of the page about one VM, or the one that is selected in the table.
    pub(super) fn selected_vm(&self) -> Option<&VmRow> {
        if self.page == Page::Vm {
            return self.model().vm(self.selected.as_deref()?);
        }
        let rows = self.rows();
        rows.get(self.selected_index(&rows)).copied()
    }

    /// Does what a key stands for, and returns what is left for the program to do.
    pub(super) fn key(&mut self, key: KeyEvent) -> Option<Request> {
        if key.kind == KeyEventKind::Release {
            return None;
        }
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            match key.code {
                KeyCode::Char('c') => return Some(Request::Quit),
                KeyCode::Char('z') => return Some(Request::Suspend),
                KeyCode::Char('l') => return Some(Request::Redraw),
                _ => {}
            }
        }
        self.message = None;
        match std::mem::take(&mut self.prompt) {
            Prompt::None => self.command(key),
            Prompt::Filter(line) => {
                self.filter_key(line, key);
                None
            }
            Prompt::Objective { edit, is_sent } => self.objective_key(edit, is_sent, key),
        }
    }

    fn filter_key(&mut self, mut line: Line, key: KeyEvent) {
        match key.code {
            KeyCode::Enter => {}
            KeyCode::Esc => self.choice.filter.clear(),
            _ => {
                line.key(key);
                self.choice.filter = line.text();
                self.prompt = Prompt::Filter(line);
            }
        }
    }

    fn objective_key(
        &mut self,
        mut edit: Box<Edit>,
        is_sent: bool,
        key: KeyEvent,
    ) -> Option<Request> {
        let mut request = None;
        let mut is_sent = is_sent;
        match key.code {
            // A change that was sent may be made all the same; its result is shown when it comes.
            KeyCode::Esc => {
                self.left += u32::from(is_sent);
                return None;
            }
            KeyCode::Enter if !is_sent => match edit.change() {
                Ok(change) => {
                    is_sent = true;
                    request = Some(Request::Change(change));
                }
                Err(why) => self.message = Some((Tone::Bad, why)),
            },
            _ if !is_sent => _ = edit.line.key(key),
            _ => {}
        }
        self.prompt = Prompt::Objective { edit, is_sent };
        request
    }

    /// Does what a key stands for where no prompt takes it.
    fn command(&mut self, key: KeyEvent) -> Option<Request> {
        match key.code {
            KeyCode::Char('q') | KeyCode::F(10) => return Some(Request::Quit),
            KeyCode::Char('?' | 'h') | KeyCode::F(1) => self.toggle_help(),
            KeyCode::Char(' ' | 'p') => self.toggle_pause(),
            KeyCode::Char('v') => self.open(Page::Vms),
            KeyCode::Char('m') => self.open(Page::Delays),
            KeyCode::Char('t') => self.open(Page::Transfers),
            KeyCode::Tab => self.open(match self.page {
                Page::Vms => Page::Delays,
                Page::Delays => Page::Transfers,
                Page::Transfers | Page::Vm | Page::Help => Page::Vms,
            }),
            KeyCode::Enter => self.drill_in(),
            KeyCode::Esc => self.back(),
            KeyCode::Char('e') => self.edit(),
            KeyCode::Char('/') | KeyCode::F(4) => {
                self.prompt = Prompt::Filter(Line::new(&self.choice.filter));
                self.open(Page::Vms);
            }
            KeyCode::Char('d') => self.next_device(),
            KeyCode::Char('<' | ',') => self.next_column(-1),
            KeyCode::Char('>' | '.') => self.next_column(1),
            KeyCode::Char('r' | 'R') => self.choice.reverse = !self.choice.reverse,
            KeyCode::Up | KeyCode::Char('k') => self.move_by(-1),
            KeyCode::Down | KeyCode::Char('j') => self.move_by(1),
            KeyCode::PageUp => self.move_by(-PAGE),
            KeyCode::PageDown => self.move_by(PAGE),
            KeyCode::Home | KeyCode::Char('g') => self.move_by(isize::MIN),
            KeyCode::End | KeyCode::Char('G') => self.move_by(isize::MAX),
            _ => {}
        }
        None
    }

    fn open(&mut self, page: Page) {
        self.page = page;
        self.scroll = 0;
    }

    fn toggle_help(&mut self) {
        if self.page == Page::Help {
            self.open(self.behind_help);
        } else {
            self.behind_help = self.page;
            self.open(Page::Help);
        }
    }

    fn toggle_pause(&mut self) {
        self.paused = match self.paused {
            Some(_) => None,
            None => Some(Box::new(self.live.clone())),
        };
    }

    fn drill_in(&mut self) {
        if self.page != Page::Vms {
            return;
        }
        if let Some(vm) = self.selected_vm() {
            self.selected = Some(vm.view.name.clone());
            self.open(Page::Vm);
        }
    }

    fn back(&mut self) {
        match self.page {
            Page::Vms => self.choice.filter.clear(),
            Page::Help => self.toggle_help(),
            Page::Delays | Page::Transfers | Page::Vm => self.open(Page::Vms),
        }
    }

    fn edit(&mut self) {
        if !matches!(self.page, Page::Vms | Page::Vm) {
            return;
        }
        let Some(vm) = self.selected_vm() else { return };
        let edit = Edit::new(&vm.view.name, &vm.view.objective);
        self.selected = Some(vm.view.name.clone());
        self.prompt = Prompt::Objective {
            edit: Box::new(edit),
            is_sent: false,
        };
    }

    /// Shows the VMs of the next device, and those of all devices after the last.
    fn next_device(&mut self) {
        let devices = self.model().devices.iter();
        let mut names = devices.map(|device| device.view.name.clone());
        self.choice.device = match &self.choice.device {
            None => names.next(),
            Some(shown) => names.skip_while(|name| name != shown).nth(1),
        };
    }

    fn next_column(&mut self, step: isize) {
        let all = SortColumn::value_variants();
        let at = all.iter().position(|column| *column == self.choice.sort);
        let next = at.unwrap_or(0) as isize + step;
        self.choice.sort = all[next.rem_euclid(all.len() as isize) as usize];
        self.choice.reverse = false;
    }

    /// Moves the selection in the table of VMs, and scrolls elsewhere.
    fn move_by(&mut self, rows: isize) {
        if self.page != Page::Vms {
            // The end of the page is known when it is drawn.
            self.scroll = self.scroll.saturating_add_signed(rows);
            return;
        }
        let shown = self.rows();
        let last = shown.len().saturating_sub(1);
        let index = self.selected_index(&shown).saturating_add_signed(rows);
        let name = shown.get(index.min(last)).map(|row| row.view.name.clone());
        self.selected = name;
    }
}

/// Returns what is in force for a VM after a change.
fn in_force(vm: &VmView) -> (Tone, String) {
    let objective = objective_line::in_words(vm.background, &vm.objective);
    let mut text = format!("{}: in force: {objective}", vm.name);
    let mut tone = Tone::Good;
    if let Some(feasible) = vm.feasible.as_deref().filter(|text| *text != "fits") {
        text += &format!("\nfeasibility: {feasible}");
        tone = Tone::Warn;
    }
    for part in &vm.not_enforced {
        let cell = crate::commands::wording::not_enforced(&vm.policy, part);
        text += &format!("\n{}", cell.text());
        tone = Tone::Warn;
    }
    for note in &vm.notes {
        text += &format!("\n{note}");
    }
    (tone, text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::top::fixture;

    fn press(app: &mut App, keys: &str) -> Option<Request> {
        let mut last = None;
        for c in keys.chars() {
            let code = match c {
                '\n' => KeyCode::Enter,
                '\x1b' => KeyCode::Esc,
                '\t' => KeyCode::Tab,
                '↓' => KeyCode::Down,
                '↑' => KeyCode::Up,
                c => KeyCode::Char(c),
            };
            last = app.key(KeyEvent::new(code, KeyModifiers::NONE));
        }
        last
    }

    fn control(app: &mut App, c: char) -> Option<Request> {
        app.key(KeyEvent::new(KeyCode::Char(c), KeyModifiers::CONTROL))
    }

    fn selected(app: &App) -> &str {
        app.selected_vm().map_or("", |vm| &vm.view.name)
    }

    #[test]
    fn keys_quit_suspend_and_redraw_also_in_a_prompt() {
        let mut app = fixture::app();
        assert_eq!(press(&mut app, "q"), Some(Request::Quit));
        press(&mut app, "/q");
        assert_eq!(app.choice.filter, "q", "a letter of the filter");
        assert_eq!(control(&mut app, 'c'), Some(Request::Quit));
        assert_eq!(control(&mut app, 'z'), Some(Request::Suspend));
        assert_eq!(control(&mut app, 'l'), Some(Request::Redraw));
    }

    #[test]
    fn the_selection_follows_its_vm() {
        let mut app = fixture::app();
        assert_eq!(selected(&app), "bulk", "the one with the largest share");
        press(&mut app, "↓↓↓");
        assert_eq!(selected(&app), "oltp", "it stays within the table");
        press(&mut app, "r");
        assert_eq!(selected(&app), "oltp", "whatever the order");
        press(&mut app, "G");
        assert_eq!(selected(&app), "bulk");
        press(&mut app, "/oltp\n");
        assert_eq!(selected(&app), "oltp", "the one that is left");
        press(&mut app, "\x1b");
        assert_eq!(app.choice.filter, "");
        assert_eq!(selected(&app), "bulk");
    }

    #[test]
    fn pages_are_opened_and_left() {
        let mut app = fixture::app();
        press(&mut app, "?");
        assert_eq!(app.page, Page::Help);
        press(&mut app, "?m?");
        assert_eq!((app.page, app.behind_help), (Page::Help, Page::Delays));
        press(&mut app, "\x1b");
        assert_eq!(app.page, Page::Delays);
        press(&mut app, "\t");
        assert_eq!(app.page, Page::Transfers);
        press(&mut app, "v↓\n");
        assert_eq!((app.page, selected(&app)), (Page::Vm, "oltp"));
        press(&mut app, "↓");
        assert_eq!((app.scroll, selected(&app)), (1, "oltp"), "scrolled");
        press(&mut app, "\x1b");
        assert_eq!(app.page, Page::Vms);
    }

    #[test]
    fn a_vm_that_is_removed_while_it_is_shown_closes_its_page() {
        let mut app = fixture::app();
        press(&mut app, "↓\n");
        let mut fewer = fixture::answers(9);
        fewer.vms.retain(|vm| vm.name != "oltp");
        app.update(Ok(fewer));
        assert_eq!(app.page, Page::Vms);
        let (_, message) = app.message.as_ref().expect("it is said");
        assert_eq!(message, "oltp is not served any more");
    }

    #[test]
    fn columns_and_devices_go_round() {
        let mut app = fixture::app();
        press(&mut app, ">");
        assert_eq!(app.choice.sort, SortColumn::Vm);
        press(&mut app, "<<");
        assert_eq!(app.choice.sort, SortColumn::P99);
        press(&mut app, "d");
        assert_eq!(app.choice.device.as_deref(), Some("nvme0"));
        press(&mut app, "d");
        assert_eq!(app.choice.device, None);
    }

    #[test]
    fn a_paused_screen_keeps_its_values_until_it_goes_on() {
        let mut app = fixture::app();
        let at = app.model().at_ms();
        press(&mut app, " ");
        app.update(Ok(fixture::answers(9)));
        assert_eq!(app.model().at_ms(), at);
        press(&mut app, " ");
        assert!(app.model().at_ms() > at);
    }

    #[test]
    fn an_objective_is_edited_sent_once_and_its_result_shown() {
        let mut app = fixture::app();
        press(&mut app, "↓e");
        let request = press(&mut app, " --weight 7\n");
        let Some(Request::Change(change)) = request else {
            panic!("{request:?}");
        };
        assert_eq!(change.path, "/v1/vms/oltp/objective");
        assert_eq!(change.body, serde_json::json!({ "weight": 7 }));
        assert_eq!(press(&mut app, "\n"), None, "it is not sent twice");
        app.changed(Err("error: no".to_owned()), 0);
        assert_eq!(app.message, Some((Tone::Bad, "error: no".to_owned())));
        assert!(press(&mut app, "0\n").is_some(), "corrected and sent again");
        let mut vm = app.model().vm("oltp").expect("served").view.clone();
        vm.objective.weight = 70;
        vm.notes = vec!["until the daemon stops".to_owned()];
        app.changed(Ok(vm), 0);
        let (_, message) = app.message.clone().expect("what is in force");
        assert!(message.contains("weight 70") && message.ends_with("daemon stops"));
        assert!(matches!(app.prompt, Prompt::None));
        let shown = &app.model().vm("oltp").expect("served").view;
        assert_eq!(shown.objective.weight, 70, "before the next answers");
    }

    #[test]
    fn the_result_of_a_change_that_was_left_closes_no_other_prompt() {
        let mut app = fixture::app();
        let mut vm = app.model().vm("bulk").expect("served").view.clone();
        vm.objective.weight = 9;
        assert!(press(&mut app, "e --persist\n").is_some());
        assert!(press(&mut app, "\x1b↓e --weight 7").is_none());
        app.changed(Ok(vm.clone()), 0);
        let (_, message) = app.message.clone().expect("what is in force");
        assert!(message.starts_with("bulk: in force"), "{message}");
        let Some(Request::Change(change)) = press(&mut app, "\n") else {
            panic!("the second prompt is still open");
        };
        assert_eq!(change.vm, "oltp");
        // Left while it waits; the third is sent before the second has failed.
        assert!(press(&mut app, "\x1be --weight 5\n").is_some());
        app.changed(Err("error: no".to_owned()), 0);
        assert_eq!(press(&mut app, "\n"), None, "it is not sent twice");
        app.changed(Err("error: no".to_owned()), 0);
        assert!(press(&mut app, "\n").is_some(), "its own result came");
    }

    #[test]
    fn an_edit_that_is_wrong_or_left_sends_nothing() {
        let mut app = fixture::app();
        assert_eq!(press(&mut app, "e --weight 0\n"), None);
        let (tone, _) = app.message.as_ref().expect("it is said");
        assert_eq!(*tone, Tone::Bad);
        assert_eq!(press(&mut app, "\x1b"), None);
        assert!(matches!(app.prompt, Prompt::None));
    }
}
