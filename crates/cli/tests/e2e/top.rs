//! `tidegate top` on a terminal, which tmux provides: what it shows, what keys do, and that the
//! terminal is given back.

use std::process::Command;

use crate::control::tidegate_json;
use crate::daemon::{Backing, Daemon, Scratch, wait_for};
use crate::tool::{arg, fio, fio_result, have, run};

/// A shell on a terminal of 80 columns and 24 rows.
struct Terminal<'a> {
    scratch: &'a Scratch,
    socket: String,
}

impl Terminal<'_> {
    fn start(scratch: &Scratch) -> Terminal<'_> {
        let socket = arg(&scratch.join("tmux.sock")).to_owned();
        let terminal = Terminal { scratch, socket };
        let session = ["new-session", "-d", "-x", "80", "-y", "24"];
        // Without the user's own configuration, prompt and aliases.
        let shell = ["env", "PS1=shell: ", "LC_ALL=C.UTF-8", "sh", "-i"];
        terminal.tmux(&[&session[..], &shell].concat());
        terminal.wait_for("shell:");
        terminal
    }

    fn tmux(&self, args: &[&str]) -> String {
        let always = ["-S", &self.socket, "-f", "/dev/null", "-u"];
        run(self.scratch, "tmux", &[&always[..], args].concat())
    }

    /// Types text as it is.
    fn text(&self, text: &str) {
        self.tmux(&["send-keys", "-l", "--", text]);
    }

    /// Presses a key by tmux's name, such as `Enter`.
    fn key(&self, name: &str) {
        self.tmux(&["send-keys", name]);
    }

    fn screen(&self) -> String {
        self.tmux(&["capture-pane", "-p"])
    }

    /// Returns a property of the terminal, such as `cursor_flag`.
    fn property(&self, name: &str) -> String {
        let format = format!("#{{{name}}}");
        let value = self.tmux(&["display-message", "-p", &format]);
        value.trim().to_owned()
    }

    #[track_caller]
    fn wait_until(&self, what: &str, condition: impl Fn(&str) -> bool) {
        let mut last = String::new();
        let waited = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            wait_for(what, || {
                last = self.screen();
                condition(&last)
            });
        }));
        if let Err(panic) = waited {
            eprintln!("the screen:\n{last}");
            std::panic::resume_unwind(panic);
        }
    }

    #[track_caller]
    fn wait_for(&self, text: &str) {
        self.wait_until(text, |screen| screen.contains(text));
    }

    /// Starts `tidegate top` against a control socket of the daemon.
    fn start_top(&self, daemon: &Daemon, socket: &str, more: &str) {
        let program = env!("CARGO_BIN_EXE_tidegate");
        let socket = daemon.path(socket);
        self.text(&format!("{program} --socket {} top {more}", arg(&socket)));
        self.text("; echo \"ended with $?\"");
        self.key("Enter");
        self.wait_for("? help");
    }

    /// Asserts that the shell has its terminal as it was.
    fn assert_given_back(&self) {
        assert_eq!(self.property("alternate_on"), "0", "the first screen");
        assert_eq!(self.property("cursor_flag"), "1", "a cursor");
        // In raw mode both have a minus before them.
        self.text("clear; stty -a | tr ' ' '\\n' | grep -x -c -e icanon -e echo; echo looked");
        self.key("Enter");
        let has_line = |screen: &str, text: &str| screen.lines().any(|line| line == text);
        self.wait_until("the modes", |screen| has_line(screen, "looked"));
        let screen = self.screen();
        assert!(has_line(&screen, "2"), "icanon and echo: {screen}");
    }
}

impl Drop for Terminal<'_> {
    fn drop(&mut self) {
        let mut tmux = Command::new("tmux");
        tmux.args(["-S", &self.socket, "kill-server"]);
        let _ = tmux.status();
    }
}

fn start() -> Daemon {
    let read = "[[control.listen]]\nunix = \"read.sock\"\nrole = \"read\"\nroot_role = \"read\"\n";
    let promised = "[vm.objective]\nreservation = \"120 IOPS\"\n";
    let alpha = Backing::Memory.vm("alpha", "8 MiB", "");
    let config = [
        read.to_owned(),
        Backing::Memory.device("policy = \"mclock\""),
        alpha.replace("[[vm.disk]]", &format!("{promised}[[vm.disk]]")),
        Backing::Memory.vm("beta", "8 MiB", ""),
    ];
    Daemon::start(&config.concat())
}

#[test]
fn vms_are_shown_filtered_and_changed_and_the_terminal_is_given_back() {
    if !have(&["tmux", "fio"]) {
        return;
    }
    let daemon = start();
    let terminal = Terminal::start(daemon.scratch());
    terminal.start_top(&daemon, "control.sock", "--interval '100 ms'");
    assert_eq!(terminal.property("alternate_on"), "1");
    terminal.wait_for("1 device, 2 VMs");
    let has_row = |screen: &str, name: &str, text: &str| {
        let is_it = |line: &str| line.starts_with(name) && line.contains(text);
        screen.lines().any(is_it)
    };
    terminal.wait_until("both VMs", |screen| {
        has_row(screen, "alpha ", ">=120IOPS") && has_row(screen, "beta ", "w100")
    });
    // Requests are seen as rates while they last, and in the history after that.
    let args = ["--rw=randread", "--bs=4k", "--size=8m", "--iodepth=4"];
    fio_result(fio(daemon.scratch(), &daemon.uri("beta"), &args));
    terminal.wait_until("the requests of beta", |screen| {
        has_row(screen, "beta ", "█")
    });

    terminal.text("/ALP");
    terminal.wait_until("one VM", |screen| {
        screen.contains("1 of 2 VMs") && !has_row(screen, "beta ", "")
    });
    terminal.key("Enter");
    terminal.text("e");
    terminal.wait_for("vm set alpha --reservation '120 IOPS'");
    terminal.key("C-u");
    terminal.text("--reservation '150 IOPS' --weight 7");
    terminal.key("Enter");
    terminal.wait_for("alpha: in force: at least 150 IOPS; weight 7");
    let alpha = tidegate_json(&daemon, &["vm", "show", "alpha"]);
    assert_eq!(alpha["objective"]["reservation"], "150 IOPS");
    assert_eq!(alpha["objective"]["weight"], 7);
    // A part that is taken out of the line is removed; a mistake is told, and nothing changes.
    terminal.text("e");
    terminal.wait_for("--weight 7");
    terminal.key("C-u");
    terminal.text("--limit '100 furlongs'");
    terminal.key("Enter");
    terminal.wait_for("furlongs\"");
    terminal.key("C-u");
    terminal.text("--weight 9");
    terminal.key("Enter");
    terminal.wait_for("alpha: in force: weight 9");
    let alpha = tidegate_json(&daemon, &["vm", "show", "alpha"]);
    assert!(alpha["objective"]["reservation"].is_null(), "{alpha}");

    terminal.text("q");
    terminal.wait_for("ended with 0");
    terminal.assert_given_back();
    drop(terminal);
    daemon.stop();
}

#[test]
fn pages_open_and_a_reader_is_told_the_role_that_a_change_needs() {
    if !have(&["tmux"]) {
        return;
    }
    let daemon = start();
    let terminal = Terminal::start(daemon.scratch());
    terminal.start_top(&daemon, "read.sock", "--sort vm --filter beta");
    terminal.wait_for("1 of 2 VMs");
    terminal.key("Escape");
    terminal.wait_until("no filter", |screen| !screen.contains("of 2 VMs"));
    terminal.key("Down");
    terminal.key("Enter");
    terminal.wait_for("Esc back  e objective");
    terminal.wait_for("connections");
    terminal.key("e");
    terminal.text("--weight 9");
    terminal.key("Enter");
    terminal.wait_for("has the role read");
    // Keys that follow Escape at once would be one key with Alt.
    terminal.key("Escape");
    terminal.wait_for("Esc back  e objective");
    terminal.key("m");
    terminal.wait_for("Behind whom");
    terminal.key("t");
    terminal.wait_for("Deadline transfers");
    terminal.key("?");
    terminal.wait_for("Columns");
    let beta = tidegate_json(&daemon, &["vm", "show", "beta"]);
    assert_eq!(beta["objective"]["weight"], 100, "nothing was changed");
    terminal.key("C-c");
    terminal.wait_for("ended with 0");
    terminal.assert_given_back();
    drop(terminal);
    daemon.stop();
}

#[test]
fn a_daemon_that_restarts_is_waited_for() {
    if !have(&["tmux"]) {
        return;
    }
    let mut daemon = start();
    // A directory of its own: that of the daemon changes hands with the restart.
    let scratch = Scratch::new();
    let terminal = Terminal::start(&scratch);
    terminal.start_top(&daemon, "control.sock", "--interval '100 ms'");
    daemon.signal("TERM");
    assert!(daemon.wait().success());
    terminal.wait_for("no daemon listens at the control socket; trying again");
    assert!(terminal.screen().contains("alpha"), "the last values stay");
    let daemon = daemon.start_again();
    terminal.wait_until("new values", |screen| {
        screen.contains("alpha") && !screen.contains("trying again")
    });
    // A daemon that hangs keeps no key waiting.
    daemon.signal("STOP");
    terminal.wait_for("s old: ");
    terminal.key("?");
    terminal.wait_for("Columns");
    daemon.signal("CONT");
    terminal.wait_until("new values", |screen| !screen.contains("trying again"));
    terminal.key("q");
    terminal.wait_for("ended with 0");
    drop(terminal);
    daemon.stop();
}

#[test]
fn the_terminal_is_given_back_to_a_shell_that_continues_and_on_signals() {
    if !have(&["tmux"]) {
        return;
    }
    let daemon = start();
    let terminal = Terminal::start(daemon.scratch());
    terminal.start_top(&daemon, "control.sock", "");
    terminal.key("C-z");
    terminal.wait_for("Stopped");
    assert_eq!(terminal.property("alternate_on"), "0");
    terminal.text("clear; fg");
    terminal.key("Enter");
    terminal.wait_for("? help");
    assert_eq!(terminal.property("alternate_on"), "1");
    let resize = ["resize-window", "-x", "120", "-y", "40"];
    terminal.tmux(&resize);
    terminal.wait_until("a wider screen", |screen| {
        screen.lines().count() == 40 && screen.contains("Space pause  d device")
    });
    for signal in ["TERM", "HUP"] {
        let shell = terminal.property("pane_pid");
        let children = format!("/proc/{shell}/task/{shell}/children");
        let pid = std::fs::read_to_string(children).expect("the kernel lists them");
        let kill = format!("kill -{signal} {}", pid.trim());
        run(daemon.scratch(), "sh", &["-c", &kill]);
        terminal.wait_until("the shell", |screen| {
            !screen.contains("? help") && screen.contains("shell:")
        });
        terminal.assert_given_back();
        terminal.start_top(&daemon, "control.sock", "");
    }
    terminal.key("q");
    drop(terminal);
    daemon.stop();
}
