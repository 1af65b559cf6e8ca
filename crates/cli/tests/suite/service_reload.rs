//! `systemctl reload` of a service: the command of the unit's `ExecReload=` has a new daemon take
//! over, and systemd, which is played by the test, knows its main process at any time.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};

use crate::common::live::until;
use crate::common::nbd::Disk;
use crate::common::systemd::{Systemd, wait_for_adopted};

/// Configuration of a daemon with one disk on a file.
const CONFIG: &str = r#"
[control]
socket = "control.sock"
[[listen]]
unix = "nbd.sock"
[[device]]
name = "disk"
kind = "file"
[[vm]]
name = "oltp"
[[vm.disk]]
path = "disk.raw"
size = "8 MiB"
create = "sparse"
"#;

/// Variables of the unit that packages install, as all its processes have them.
const UNIT: [(&str, &str); 1] = [("TIDEGATE_RELOAD", "takeover")];
/// Variable that the main process has beside them; systemd gives it to no command of `ExecReload=`.
const WATCHDOG: (&str, &str) = ("WATCHDOG_USEC", "200000");

/// Service that runs. Its processes are killed when this is dropped.
struct Service {
    systemd: Systemd,
    /// First main process.
    first: Child,
    dir: tempfile::TempDir,
}

impl Service {
    /// Starts the service and waits until it serves.
    fn start() -> Service {
        Service::start_in(tempfile::tempdir().expect("a directory"), None)
    }

    /// Starts the service in a directory, with a socket that systemd listens on.
    fn start_in(dir: tempfile::TempDir, socket: Option<OwnedFd>) -> Service {
        std::fs::write(dir.path().join("t.toml"), CONFIG).expect("writable");
        let mut systemd = Systemd::listen(&dir.path().join("notify"));
        let log = File::create(dir.path().join("log")).expect("writable");
        let mut start = command("serve \"$1\" 3<&0 0</dev/null", &dir);
        if let Some(socket) = socket {
            start.env("LISTEN_FDS", "1").stdin(socket);
        }
        let first = start
            .envs(UNIT)
            .env(WATCHDOG.0, WATCHDOG.1)
            .stderr(log)
            .spawn()
            .expect("there is a shell");
        systemd.main = first.id();
        let ready = systemd.next_change();
        assert_eq!((ready.pid, &*ready.lines[0]), (first.id(), "READY=1"));
        Service {
            systemd,
            first,
            dir,
        }
    }

    /// Starts the command of `ExecReload=` with variables of the unit.
    fn begin_reload(&self, variables: &[(&str, &str)]) -> Child {
        self.begin_reload_with("\"$1\"", variables)
    }

    /// Starts the command of `ExecReload=` with this configuration.
    fn begin_reload_with(&self, config: &str, variables: &[(&str, &str)]) -> Child {
        let log = File::create(self.path("reload.log")).expect("writable");
        command(&format!("serve --takeover --detach {config}"), &self.dir)
            .envs(variables.iter().copied())
            .env("MAINPID", self.systemd.main.to_string())
            .stderr(log)
            .spawn()
            .expect("there is a shell")
    }

    /// Runs the command of `ExecReload=`, which must fail. Returns what it has printed.
    fn refused_reload(&self, variables: &[(&str, &str)]) -> String {
        self.refusal(self.begin_reload(variables))
    }

    /// Waits for a command of `ExecReload=`, which must fail. Returns what it has printed.
    fn refusal(&self, mut reload: Child) -> String {
        let ended = end_of(&mut reload);
        assert!(!ended.success(), "{}", self.log("reload.log"));
        let printed = self.log("reload.log");
        assert!(printed.contains("not taken over"), "{printed}");
        printed
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn log(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    fn disk(&self) -> Disk {
        Disk::open(&self.path("nbd.sock"), "oltp")
    }

    /// Checks that the first daemon serves, and is the only one that systemd has heard.
    fn check_first_goes_on(&mut self, disk: &mut Disk) {
        disk.read(0, 4096).expect("it is served");
        let ended = self.first.try_wait().expect("a child");
        assert_eq!(ended, None, "{}", self.log("log"));
        while self.systemd.has_more() {
            let next = self.systemd.next();
            assert_eq!(next.pid, self.first.id(), "{next:?}");
        }
        assert_eq!(self.systemd.main, self.first.id());
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}\n{}", self.log("log"), self.log("reload.log"));
            // Tests that succeed have ended it.
            if self.systemd.main != self.first.id() {
                signal(self.systemd.main, "KILL");
            }
        }
        let _ = self.first.kill();
        let _ = self.first.wait();
    }
}

/// Returns a process of the service that is about to run `tidegate` with these arguments, of which
/// `$1` is the configuration.
fn command(args: &str, dir: &tempfile::TempDir) -> Command {
    // The variables name the process, whose number it is only to have.
    let run = format!("exec env SYSTEMD_EXEC_PID=$$ LISTEN_PID=$$ \"$0\" {args}");
    let mut command = Command::new("sh");
    command
        .args(["-c", &run, env!("CARGO_BIN_EXE_tidegate")])
        .arg(dir.path().join("t.toml"))
        .env("NOTIFY_SOCKET", dir.path().join("notify"))
        .env("NO_COLOR", "1")
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    command
}

/// Waits for the end of a process.
fn end_of(child: &mut Child) -> ExitStatus {
    let mut status = None;
    until("the end of a process", || {
        status = child.try_wait().expect("a child");
        status.is_some()
    });
    status.expect("it has ended")
}

fn signal(pid: u32, name: &str) {
    let sent = Command::new("sh")
        .args(["-c", &format!("kill -{name} {pid}")])
        .status();
    assert!(sent.is_ok_and(|it| it.success()) || std::thread::panicking());
}

#[test]
fn a_reload_makes_the_new_daemon_the_main_process_before_the_old_one_ends() {
    let mut service = Service::start();
    let mut disk = service.disk();
    disk.read(0, 4096).expect("it is served");
    let mut reload = service.begin_reload(&UNIT);
    let first = service.first.id();

    let named = service.systemd.next_change();
    let new = service.systemd.main;
    let main = format!("MAINPID={new}");
    assert_eq!(named.lines, [&*main, "READY=1", "WATCHDOG_USEC=200000"]);
    assert_eq!(named.pid, new, "it speaks for itself");
    assert!(
        new != first && new != reload.id(),
        "systemd refuses the command's process"
    );
    let barrier = service.systemd.next();
    assert_eq!(
        (barrier.pid, barrier.lines),
        (new, vec!["BARRIER=1".to_owned()])
    );
    assert_eq!(barrier.descriptors.len(), 1);
    // systemd is slow. Clients are served meanwhile, and whom it knows as the main process stays.
    for _ in 0..100 {
        disk.read(0, 4096).expect("the new daemon serves it");
    }
    assert_eq!(service.first.try_wait().expect("a child"), None);
    assert_eq!(
        reload.try_wait().expect("a child"),
        None,
        "the outcome is not known"
    );
    assert!(
        !service.systemd.has_more(),
        "nothing comes before the barrier was read"
    );
    drop(barrier.descriptors);

    assert!(end_of(&mut reload).success());
    // systemd ignores the status, unless it does not know the new daemon after all.
    assert_eq!(end_of(&mut service.first).code(), Some(1));
    let ready = service.systemd.next_change();
    let expected = ["READY=1", "STATUS=serving 1 VM on 1 device"];
    assert_eq!(
        (ready.pid, &*ready.lines),
        (new, &expected.map(str::to_owned)[..])
    );
    // As the running daemon has handed it over: the command has no variable of the watchdog.
    let watchdog = service.systemd.next();
    assert_eq!((watchdog.pid, &*watchdog.lines[0]), (new, "WATCHDOG=1"));
    disk.read(0, 4096).expect("it is served");

    // Nor is the new daemon the last one.
    let mut again = service.begin_reload(&UNIT);
    assert_eq!(service.systemd.next_change().lines.len(), 3);
    let third = service.systemd.main;
    assert!(third != new);
    drop(service.systemd.next_change());
    assert!(end_of(&mut again).success());
    assert_eq!(wait_for_adopted(new), 1);
    disk.read(0, 4096).expect("it is served");
    signal(third, "TERM");
    assert_eq!(service.systemd.next_change().lines[0], "READY=1");
    assert_eq!(service.systemd.next_change().lines[0], "STOPPING=1");
    assert_eq!(wait_for_adopted(third), 0);
}

#[test]
fn a_socket_of_systemd_goes_over_and_its_file_stays_systemd_s() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("nbd.sock");
    let socket = UnixListener::bind(&path).expect("bound");
    let own = socket.try_clone().expect("a descriptor");
    let mut service = Service::start_in(dir, Some(socket.into()));
    service.disk().read(0, 4096).expect("it is served");
    let mut reload = service.begin_reload(&UNIT);
    assert_eq!(service.systemd.next_change().lines.len(), 3);
    drop(service.systemd.next_change());
    assert!(end_of(&mut reload).success());
    assert_eq!(end_of(&mut service.first).code(), Some(1));
    let mut disk = service.disk();
    disk.read(0, 4096).expect("the new daemon accepts");
    signal(service.systemd.main, "TERM");
    assert_eq!(wait_for_adopted(service.systemd.main), 0);
    assert!(path.exists(), "systemd starts the next daemon by it");
    // A client that comes now waits for that.
    UnixStream::connect(&path).expect("it listens");
    drop(own);
}

#[test]
fn a_reload_that_is_refused_fails_with_the_reason_and_changes_nothing() {
    let mut service = Service::start();
    let mut disk = service.disk();
    let other = CONFIG.replace("oltp", "other");
    std::fs::write(service.path("t.toml"), other).expect("writable");
    let why = service.refused_reload(&UNIT);
    assert!(why.contains("export \"oltp\""), "{why}");
    service.check_first_goes_on(&mut disk);
}

#[test]
fn a_reload_with_another_configuration_than_the_service_s_is_refused() {
    let mut service = Service::start();
    let mut disk = service.disk();
    std::fs::write(service.path("t.toml.other"), CONFIG).expect("writable");
    let reload = service.begin_reload_with("\"$1.other\"", &UNIT);
    let why = service.refusal(reload);
    assert!(why.contains("t.toml.other, and the running one"), "{why}");
    assert!(why.contains("ExecReload="), "{why}");
    service.check_first_goes_on(&mut disk);
}

#[test]
fn a_unit_that_does_not_let_systemd_hear_a_new_daemon_is_refused_with_what_to_do() {
    let mut service = Service::start();
    let mut disk = service.disk();
    // An older unit has no such variable, and its other processes have no socket either.
    let without_socket = [("TIDEGATE_RELOAD", "takeover"), ("NOTIFY_SOCKET", "")];
    for older in [&[][..], &without_socket] {
        let why = service.refused_reload(older);
        assert!(why.contains("NotifyAccess=all"), "{why}");
        assert!(why.contains("systemctl restart tidegate"), "{why}");
        service.check_first_goes_on(&mut disk);
    }
}

#[test]
fn a_new_daemon_that_dies_before_systemd_knows_it_has_the_service_restarted() {
    let mut service = Service::start();
    let mut reload = service.begin_reload(&UNIT);
    let named = service.systemd.next_change();
    signal(named.pid, "KILL");
    assert_eq!(wait_for_adopted(named.pid), -libc::SIGKILL);
    // The pipe of the barrier is open still.
    let first = end_of(&mut service.first);
    assert_eq!((first.code(), first.signal()), (Some(1), None));
    assert!(
        service
            .log("log")
            .contains("the new daemon has ended before systemd knew it")
    );
    assert!(!end_of(&mut reload).success());
    assert!(
        service
            .log("reload.log")
            .contains("has ended without a reason")
    );
}

#[test]
#[ignore = "a new daemon tries for a minute to tell systemd"]
fn a_new_daemon_that_cannot_tell_systemd_has_the_reload_fail_and_the_service_restarted() {
    let mut service = Service::start();
    service.systemd.stop_reading(&service.path("notify"));
    let mut reload = service.begin_reload(&UNIT);
    assert_eq!(end_of(&mut service.first).code(), Some(1));
    let log = service.log("log");
    assert!(log.contains("cannot be told"), "{log}");
    assert!(!end_of(&mut reload).success());
    let printed = service.log("reload.log");
    assert!(printed.contains("cannot be told"), "{printed}");
    // systemd would end what is left of the service.
    let new = log.split_once("handed over pid=").expect("who has it").1;
    let new = new
        .split_whitespace()
        .next()
        .and_then(|pid| pid.parse().ok());
    let new = new.expect("a number");
    service.disk().read(0, 4096).expect("it serves until then");
    signal(new, "KILL");
    assert_eq!(wait_for_adopted(new), -libc::SIGKILL);
}

#[test]
fn a_new_daemon_whose_command_was_killed_before_clients_were_paused_does_not_take_over() {
    let mut service = Service::start();
    let mut disk = service.disk();
    let config = service.path("t.toml");
    std::fs::remove_file(&config).expect("it is there");
    let fifo = Command::new("mkfifo").arg(&config).status();
    assert!(fifo.expect("it runs").success());
    let mut reload = service.begin_reload(&UNIT);
    // Opens once the new daemon reads its configuration, in the background already.
    let writer = File::options().write(true).open(&config).expect("a reader");
    reload.kill().expect("a child");
    end_of(&mut reload);
    std::io::Write::write_all(&mut &writer, CONFIG.as_bytes()).expect("room");
    drop(writer);
    let reason = "the command that has started the new daemon has ended";
    until(reason, || service.log("reload.log").contains(reason));
    service.check_first_goes_on(&mut disk);
}
