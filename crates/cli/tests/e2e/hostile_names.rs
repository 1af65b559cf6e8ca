//! Names that users choose, wherever the program shows them.

use std::io::{Read as _, Write as _};
use std::process::Command;

use serde_json::Value;

use crate::control::{tidegate, tidegate_json};
use crate::daemon::{Backing, Daemon, wait_for};
use crate::media::get;
use crate::tool::{arg, json};

/// Name of a disk as far as the configuration allows: no control characters, but quotes and marks
/// of XML, shells and OpenMetrics, and a mark that turns the rest of a row around.
const EXPORT: &str = "<b>&'\"\\ $(id)`id`; {x=\"1\"} 1 \u{202e}txt";
/// Name that a client asks for: clears the screen, and forges a line of the log.
const ASKED: &str = "x\u{1b}[2J\n2026-01-01T00:00:00Z ERROR forged\r\u{9b}2J";

/// Returns true for a character that a terminal takes as an order.
fn is_order(c: char) -> bool {
    c.is_control() && c != '\n' || c == '\u{202e}'
}

fn start() -> Daemon {
    Daemon::start(&config())
}

/// Configuration with a disk of that name.
fn config() -> String {
    let disk = Backing::Memory.disk("a", "1 MiB", "");
    let name = format!("export = '''{EXPORT}'''");
    let config = [
        Backing::Memory.device(""),
        "[[vm]]\nname = \"a\"\n".to_owned(),
        disk.replace("export = \"a\"", &name),
    ];
    config.concat()
}

/// Asks for an export by the option that has no error reply, so that the refusal is logged.
fn ask_for(daemon: &Daemon, name: &str) {
    let mut socket = daemon.connect("nbd.sock").expect("it listens");
    let mut greeting = [0; 18];
    socket.read_exact(&mut greeting).expect("a greeting");
    const FIXED_NEWSTYLE: u32 = 1;
    const EXPORT_NAME: u32 = 1;
    let mut bytes = FIXED_NEWSTYLE.to_be_bytes().to_vec();
    bytes.extend(b"IHAVEOPT");
    bytes.extend(EXPORT_NAME.to_be_bytes());
    bytes.extend((name.len() as u32).to_be_bytes());
    bytes.extend(name.as_bytes());
    socket.write_all(&bytes).expect("it reads");
    let mut rest = Vec::new();
    let _ = socket.read_to_end(&mut rest);
    assert!(rest.is_empty(), "the connection ends without an answer");
}

#[test]
fn names_of_users_are_escaped_in_the_log_in_tables_in_metrics_and_in_commands() {
    let daemon = start();
    ask_for(&daemon, ASKED);
    wait_for("the refusal", || daemon.logged(&["there is no export"]));
    let log = daemon.log();
    assert!(!log.contains(is_order), "{log:?}");
    // The forged line is within the one about the client.
    let forged = log.lines().filter(|line| line.contains("ERROR forged"));
    let forged: Vec<&str> = forged.collect();
    assert_eq!(forged.len(), 1, "{log}");
    assert!(forged[0].contains("WARN client cut off"), "{log}");

    for command in [
        &["vm", "show", "a"][..],
        &["vm", "list"],
        &["stats"],
        &["export", "qemu", "a"],
        &["export", "libvirt", "a"],
        &["-o", "json", "vm", "show", "a"],
    ] {
        let shown = tidegate(&daemon, command);
        assert!(!shown.contains(is_order), "{command:?}: {shown:?}");
    }
    // The name itself is not lost.
    let vm = tidegate_json(&daemon, &["vm", "show", "a"]);
    assert_eq!(vm["disks"][0]["export"], EXPORT);

    let xml = tidegate(&daemon, &["export", "libvirt", "a"]);
    assert!(xml.contains("&lt;b&gt;&amp;&apos;"), "{xml}");
    assert!(!xml.contains("<b>"), "{xml}");

    let (_, metrics) = get(&daemon, "/metrics");
    let label = EXPORT.replace('\\', "\\\\").replace('"', "\\\"");
    let label = format!("export=\"{label}\"");
    let lines = metrics.lines().filter(|line| line.contains("$(id)"));
    let lines: Vec<&str> = lines.collect();
    assert!(!lines.is_empty(), "{metrics}");
    assert!(lines.iter().all(|line| line.contains(&label)), "{lines:?}");
    daemon.stop();
}

#[test]
fn a_request_with_a_hostile_name_is_refused_in_plain_text() {
    let daemon = start();
    let socket = daemon.path("control.sock");
    let output = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args([
            "--socket",
            arg(&socket),
            "vm",
            "add",
            ASKED,
            "--disk",
            "size=1 MiB",
        ])
        .output()
        .expect("cargo built the binary");
    assert!(!output.status.success());
    let error = String::from_utf8(output.stderr).expect("text");
    assert!(!error.contains(is_order), "{error:?}");
    assert!(!daemon.log().contains(is_order), "{:?}", daemon.log());
    daemon.stop();
}

#[test]
fn every_line_of_a_busy_daemon_s_log_is_json_that_no_name_breaks() {
    let variables = [("TIDEGATE_LOG_FORMAT", "json"), ("TIDEGATE_LOG", "trace")];
    // A device without a VM, which a warning is about.
    let idle = "[[device]]\nname = \"idle\"\nkind = \"memory\"\n";
    let config = config().replace("name = \"a\"\n", "name = \"a\"\ndevice = \"disk\"\n");
    let mut daemon = Daemon::start_with(&variables, &(config + idle));
    let (vm, disk) = (
        ["--device", "idle", "--disk"],
        "export=\u{202e}x,size=1 MiB",
    );
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..50).for_each(|_| ask_for(&daemon, ASKED)));
        }
        scope.spawn(|| {
            for n in 0..5 {
                let name = format!("vm-{n}");
                let add = [&["vm", "add", &name][..], &vm, &[disk]].concat();
                tidegate(&daemon, &add);
                tidegate(&daemon, &["vm", "remove", &name]);
            }
        });
    });
    daemon.signal("TERM");
    assert!(daemon.wait().success());
    let log = daemon.log();
    assert!(!log.contains(is_order), "{log:?}");
    let lines: Vec<Value> = log.lines().map(json).collect();
    let (mut asked, mut warned) = (0, 0);
    for line in &lines {
        let text = |key: &str| {
            line[key]
                .as_str()
                .unwrap_or_else(|| panic!("{key} of {line}"))
        };
        assert!(
            ["error", "warn", "info", "debug", "trace"].contains(&text("level")),
            "{line}"
        );
        assert!(text("time").ends_with('Z'), "{line}");
        if text("message").contains(&format!("{ASKED:?}")) {
            assert!(text("peer").starts_with("uid "), "{line}");
            asked += 1;
        }
        warned += u32::from(text("message").contains("no VM has a disk on it"));
    }
    assert!(asked > 0, "{log}");
    assert!(warned > 0, "{log}");
    assert!(lines.iter().any(|line| line["vm"] == "vm-4"), "{log}");
    let ended = |line: &Value| {
        let message = line["message"].as_str();
        message.is_some_and(|message| message.starts_with("stopped: "))
    };
    assert!(lines.iter().any(ended), "{log}");
}
