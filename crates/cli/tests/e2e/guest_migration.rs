//! Live migration of a Linux guest whose disk is by vhost-user, between two daemons that share the
//! disk's file: it goes on writing, and a last machine finds every file that it had fsynced.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;

use serde_json::{Value, json};

use crate::control::tidegate_json;
use crate::daemon::{DEADLINE, Daemon, Scratch, wait_at_most, wait_for};
use crate::guest_linux::{Attached, Guest, Kit, PATIENCE, assert_found};
use crate::tool::{arg, json as parse};

/// QEMU's monitor (QMP).
struct Monitor {
    lines: BufReader<UnixStream>,
}

impl Monitor {
    fn connect(socket: &Path) -> Monitor {
        let mut stream = None;
        wait_for("QEMU's monitor", || {
            stream = UnixStream::connect(socket).ok();
            stream.is_some()
        });
        let stream = stream.expect("connected");
        stream.set_read_timeout(Some(DEADLINE)).expect("a socket");
        let mut monitor = Monitor {
            lines: BufReader::new(stream),
        };
        assert!(monitor.read().get("QMP").is_some(), "it greets");
        monitor.ask("qmp_capabilities", &json!({}));
        monitor
    }

    fn read(&mut self) -> Value {
        let mut line = String::new();
        self.lines.read_line(&mut line).expect("QEMU answers");
        parse(&line)
    }

    /// Executes a command; returns what it returned.
    fn ask(&mut self, command: &str, arguments: &Value) -> Value {
        let request = json!({ "execute": command, "arguments": arguments });
        let stream = self.lines.get_mut();
        writeln!(stream, "{request}").expect("QEMU listens");
        loop {
            let answer = self.read();
            // Events come in between.
            if answer.get("event").is_none() {
                assert!(answer.get("error").is_none(), "{request}: {answer}");
                return answer["return"].clone();
            }
        }
    }

    /// Waits for a state of the migration.
    fn wait_for_migration(&mut self, state: &str) {
        wait_at_most(PATIENCE, &format!("the migration to be {state}"), || {
            let migration = self.ask("query-migrate", &json!({}));
            assert_ne!(migration["status"], "failed", "{migration}");
            migration["status"] == state
        });
    }
}

/// Daemon of a host, whose disk is on the shared file.
fn host(file: &Path, more: &str) -> Daemon {
    let config = format!(
        "[[listen]]\nvhost_user = \"{{vm}}.vhost\"\n\
         [[device]]\nname = \"disk\"\nkind = \"file\"\n\
         [[vm]]\nname = \"guest\"\n\
         [[vm.disk]]\nexport = \"guest\"\npath = \"{}\"\n{more}\n",
        arg(file)
    );
    Daemon::start(&config)
}

/// State of the disk if it is not served.
fn inactive(daemon: &Daemon) -> Option<String> {
    let vm = tidegate_json(daemon, &["vm", "show", "guest"]);
    let state = &vm["disks"][0]["inactive"];
    state.as_str().map(str::to_owned)
}

/// Two hosts, and a guest that writes on the first of them.
struct Scene {
    from: Daemon,
    to: Daemon,
    kit: Kit,
    guest: Guest,
    monitor: Monitor,
    shared: Scratch,
}

impl Scene {
    /// `None`, and a word on it, if a tool is missing.
    fn new() -> Option<Scene> {
        let shared = Scratch::new();
        let kit = Kit::new(&shared)?;
        let file = shared.join("guest.raw");
        let from = host(&file, "create = \"sparse\"\nsize = \"80 MiB\"");
        let to = host(&file, "incoming = true");
        let mut guest = machine(&from, &kit, &[]);
        guest.wait_for("kept", 5);
        let monitor = Monitor::connect(&from.path("qmp"));
        Some(Scene {
            from,
            to,
            kit,
            guest,
            monitor,
            shared,
        })
    }

    /// Starts a machine that waits for the guest at the second host.
    fn destination(&self) -> Guest {
        let from = format!("unix:{}", arg(&self.shared.join("migration")));
        machine(&self.to, &self.kit, &["-incoming", &from])
    }

    fn migrate(&mut self) {
        let to = format!("unix:{}", arg(&self.shared.join("migration")));
        let socket = self.shared.join("migration");
        wait_for("the destination to listen", || is_listening(&socket));
        // The guest writes as fast as it can, so QEMU needs bandwidth to catch up.
        let limits = json!({ "max-bandwidth": 1u64 << 30, "downtime-limit": 5000 });
        self.monitor.ask("migrate-set-parameters", &limits);
        self.monitor.ask("migrate", &json!({ "uri": to }));
    }
}

/// Returns true if connections to a unix socket are accepted. A connection would be taken for the
/// migration, so the kernel's table is asked; the socket's file is there a moment earlier.
fn is_listening(socket: &Path) -> bool {
    // Flags of the table's fourth column (`__SO_ACCEPTCON`).
    const LISTENING: &str = "00010000";
    let table = std::fs::read_to_string("/proc/net/unix").expect("there is procfs");
    table.lines().any(|line| {
        let mut columns = line.split_ascii_whitespace();
        columns.nth(3) == Some(LISTENING) && columns.last() == Some(arg(socket))
    })
}

fn machine(daemon: &Daemon, kit: &Kit, more: &[&str]) -> Guest {
    let monitor = format!("unix:{},server=on,wait=off", arg(&daemon.path("qmp")));
    let more = [&["-qmp", &monitor][..], more].concat();
    Guest::start_with(daemon, kit, "keep", Attached::VhostUser, &more)
}

#[test]
fn a_guest_migrates_and_keeps_every_file() {
    let Some(mut scene) = Scene::new() else {
        return;
    };
    assert_eq!(inactive(&scene.from), None);
    assert_eq!(inactive(&scene.to).as_deref(), Some("incoming"));
    let mut moved = scene.destination();
    scene.migrate();
    scene.monitor.wait_for_migration("completed");
    assert_eq!(inactive(&scene.from).as_deref(), Some("handed_over"));
    // The guest goes on at the destination, and what it writes reaches the file from there.
    moved.wait_for("kept", 10);
    assert_eq!(inactive(&scene.to), None);
    scene.guest.kill();
    moved.kill();
    let mut next = Guest::start(&scene.to, &scene.kit, "recover", Attached::VhostUser);
    next.succeeds();
    assert_found(&scene.guest.reported("kept"), &next);
    assert_found(&moved.reported("kept"), &next);
    scene.from.stop();
    scene.to.stop();
}

#[test]
fn a_migration_that_is_cancelled_after_the_hand_over_goes_on_at_the_source() {
    let Some(mut scene) = Scene::new() else {
        return;
    };
    let mut waits = scene.destination();
    let pauses = json!({ "capability": "pause-before-switchover", "state": true });
    scene.monitor.ask(
        "migrate-set-capabilities",
        &json!({ "capabilities": [pauses] }),
    );
    scene.migrate();
    scene.monitor.wait_for_migration("pre-switchover");
    assert_eq!(inactive(&scene.from).as_deref(), Some("handed_over"));
    scene.monitor.ask("migrate_cancel", &json!({}));
    scene.monitor.wait_for_migration("cancelled");
    let before = scene.guest.reported("kept").len();
    // More than the one that it may have been about to tell.
    scene.guest.wait_for("kept", before + 10);
    assert_eq!(inactive(&scene.from), None);
    assert_eq!(inactive(&scene.to).as_deref(), Some("incoming"));
    waits.kill();
    scene.guest.kill();
    let mut next = Guest::start(&scene.from, &scene.kit, "recover", Attached::VhostUser);
    next.succeeds();
    assert_found(&scene.guest.reported("kept"), &next);
    scene.from.stop();
    scene.to.stop();
}
