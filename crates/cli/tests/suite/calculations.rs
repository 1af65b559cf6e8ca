//! Calculations: what-if runs and reports that a daemon makes for clients of its API.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::common::live::{Daemon, Guests, until};
use crate::common::page;

const CONFIG: &str = r#"
[control]
socket = "control.sock"
[recording]
directory = "recordings"
[[listen]]
unix = "nbd.sock"
[[dashboard]]
tcp = "127.0.0.1:0"
[[device]]
name = "disk0"
kind = "emulated"
model = "nvme-1tb"
[[vm]]
name = "db"
[vm.objective]
reservation = "50 IOPS"
[[vm.disk]]
size = "16 MiB"
"#;

/// Answer of the API.
struct Answer {
    status: u16,
    head: String,
    body: String,
}

impl Answer {
    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|_| panic!("no JSON: {}", self.body))
    }
}

/// Sends a request and reads the answer up to the end of the connection.
fn ask(mut stream: impl Read + Write, method: &str, path: &str, body: &str) -> Answer {
    let length = body.len();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\
         content-length: {length}\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes()).expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    Answer {
        status: head[9..12].parse().expect("a status"),
        head: head.to_ascii_lowercase(),
        body: body.to_owned(),
    }
}

fn control(daemon: &Daemon, method: &str, path: &str, body: Value) -> Answer {
    let stream = UnixStream::connect(daemon.dir.join("control.sock")).expect("it listens");
    let body = match body {
        Value::Null => String::new(),
        body => body.to_string(),
    };
    ask(stream, method, path, &body)
}

fn run(daemon: &Daemon) -> Value {
    control(daemon, "GET", "/v1/whatif", Value::Null).json()["run"].clone()
}

/// Waits for the end of the run and returns it.
fn ended(daemon: &Daemon) -> Value {
    until("the run is over", || run(daemon)["state"] != "running");
    run(daemon)
}

/// Starts a daemon, of which the guest `db` has sent requests that were recorded.
fn recorded(dir: &std::path::Path) -> Daemon<'_> {
    fs::write(dir.join("t.toml"), CONFIG).expect("writable");
    let daemon = Daemon::start(dir);
    daemon.text(&["record", "on"]);
    let mut guests = Guests::default();
    guests.begin(dir, "db", |disk, n| disk.read(n % 4096 * 4096, 4096));
    until("requests are recorded", || {
        let status = daemon.json(&["record", "status"]);
        status["devices"][0]["requests"].as_u64() > Some(1000)
    });
    guests.end();
    daemon
}

#[test]
fn a_recorded_span_is_replayed_under_other_policies_one_run_at_a_time() {
    let dir = tempfile::tempdir().expect("a directory");
    let daemon = recorded(dir.path());
    let objectives = json!({"db": {"reservation": null, "limit": {"total": "20 IOPS"}}});
    let request = json!({
        "device": "disk0", "from": "-10m", "policies": ["fifo", "limit"], "objectives": objectives,
    });
    let begun = control(&daemon, "POST", "/v1/whatif", request.clone());
    assert_eq!(begun.status, 202, "{}", begun.body);
    let begun = begun.json();
    assert_eq!(begun["run"]["number"], 1);
    assert_eq!(begun["run"]["request"], request);
    assert_eq!(begun["bounds"]["memory_bytes"], 1 << 30);
    let run = ended(&daemon);
    assert_eq!(run["state"], "done", "{run}");
    let answer = &run["answer"];
    assert_eq!(answer["own_policy"], "slo");
    assert!(
        answer["reproduction"]["throughput_error"].is_number(),
        "{answer}"
    );
    let policies = answer["vms"][0]["policies"].as_array().expect("a list");
    let iops: BTreeMap<&str, f64> = (policies.iter())
        .map(|it| {
            (
                it["policy"].as_str().expect("text"),
                it["iops"].as_f64().expect("a rate"),
            )
        })
        .collect();
    // FIFO keeps no limit.
    assert!(iops["limit"] < 25.0, "{iops:?}");
    assert!(iops["fifo"] > 2.0 * iops["limit"], "{iops:?}");
    let page = control(&daemon, "GET", "/v1/whatif/report", Value::Null);
    assert_eq!(page.status, 200);
    page::assert_loads_nothing(&page.body);
    assert!(
        page.body
            .contains("<title>What if: disk0, -10m to now</title>")
    );

    let nothing = json!({"device": "disk0", "to": "2020-01-01T00:00:00Z"});
    let begun = control(&daemon, "POST", "/v1/whatif", nothing);
    assert_eq!(begun.status, 202, "{}", begun.body);
    let run = ended(&daemon);
    let what = run["problem"]["what"].as_str().expect("a problem");
    assert_eq!(run["state"], "failed");
    assert!(
        what.starts_with("there is no recording of device \"disk0\""),
        "{run}"
    );
    // The page is that of the last run.
    assert_eq!(
        control(&daemon, "GET", "/v1/whatif/report", Value::Null).status,
        404
    );
}

#[test]
fn a_run_is_refused_where_it_is_wrong_and_says_what_the_recording_lacks() {
    let dir = tempfile::tempdir().expect("a directory");
    let daemon = recorded(dir.path());
    for (body, status, what) in [
        (
            json!({"device": "disk1"}),
            404,
            "there is no device \"disk1\"",
        ),
        (json!({"policies": []}), 400, "missing field `device`"),
        (
            json!({"device": "disk0", "policies": ["magic"]}),
            422,
            "magic",
        ),
        (
            json!({"device": "disk0", "model": "/etc/passwd"}),
            422,
            "there is no model",
        ),
        (
            json!({"device": "disk0", "from": "soon"}),
            400,
            "from is \"soon\"",
        ),
        (
            json!({"device": "disk0", "objectives": {"db": {"latency": "5 apples"}}}),
            422,
            "apples",
        ),
        (
            json!({"device": "disk0", "policies": vec!["slo"; 9]}),
            422,
            "9 policies",
        ),
    ] {
        let answer = control(&daemon, "POST", "/v1/whatif", body.clone());
        assert_eq!(answer.status, status, "{body}: {}", answer.body);
        assert!(
            answer.body.replace("\\\"", "\"").contains(what),
            "{body}: {}",
            answer.body
        );
    }
    assert_eq!(run(&daemon), Value::Null);
    assert_eq!(
        control(&daemon, "DELETE", "/v1/whatif", Value::Null).status,
        409
    );
    // An error that only the recording shows fails the run, in the words of the API.
    let stranger = json!({"device": "disk0", "objectives": {"ghost": {"weight": 7}}});
    assert_eq!(control(&daemon, "POST", "/v1/whatif", stranger).status, 202);
    let problem = &ended(&daemon)["problem"];
    assert_eq!(problem["what"], "no VM ghost in the recording", "{problem}");
    assert_eq!(
        (&problem["where"], &problem["allowed"]),
        (&json!("objectives"), &json!("it has: db"))
    );
}

#[test]
fn the_process_of_a_calculation_is_idle_and_bounded() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .arg("calculate")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    let proc = format!("/proc/{}", child.id());
    let read = |name: &str| fs::read_to_string(format!("{proc}/{name}")).expect("it waits");
    // The memory is bounded before it reads its order; the CPU time after that.
    until("it is bounded", || {
        read("limits").contains("Max cpu time              300 ")
    });
    let limits = read("limits");
    let bytes = 1u64 << 30;
    assert!(
        limits.contains(&format!("Max address space         {bytes} ")),
        "{limits}"
    );
    until("it writes no file", || {
        read("limits").contains("Max file size             0 ")
    });
    let stat = read("stat");
    let fields: Vec<&str> = stat
        .rsplit_once(") ")
        .expect("a name")
        .1
        .split(' ')
        .collect();
    // Fields 19 and 41 of proc(5), nice and policy, where the list lacks the first two: SCHED_IDLE.
    assert_eq!((fields[16], fields[38]), ("19", "5"), "{stat}");
    assert_eq!(read("oom_score_adj").trim(), "1000");
    // Without an order it says what is wrong, as a line of its protocol.
    drop(child.stdin.take());
    let mut said = String::new();
    let mut output = child.stdout.take().expect("piped");
    output.read_to_string(&mut said).expect("text");
    assert!(
        said.contains("this command is for the daemon alone"),
        "{said}"
    );
    assert!(child.wait().expect("a child").success());
}

#[test]
fn a_report_is_a_page_with_a_content_policy_of_its_own() {
    let dir = tempfile::tempdir().expect("a directory");
    fs::write(
        dir.path().join("t.toml"),
        CONFIG.replace("127.0.0.1:0", &address()),
    )
    .expect("writable");
    let daemon = Daemon::start(dir.path());
    let config = fs::read_to_string(dir.path().join("t.toml")).expect("readable");
    let tcp = config
        .split("tcp = \"")
        .nth(1)
        .and_then(|it| it.split('"').next())
        .expect("an address");
    // A visitor without a token may read.
    let stream = || TcpStream::connect(tcp).expect("it listens");
    let report = ask(stream(), "GET", "/v1/report?from=-5m", "");
    assert_eq!(report.status, 200, "{}", report.body);
    page::assert_loads_nothing(&report.body);
    let policy = |answer: &Answer| {
        let mut lines = answer.head.lines();
        let line = lines.find(|line| line.starts_with("content-security-policy: "));
        line.expect("a policy").to_owned()
    };
    let own = policy(&report);
    assert!(
        own.contains("default-src 'none'; style-src 'sha256-"),
        "{own}"
    );
    for weak in ["unsafe", "script-src", "'self'", "*"] {
        assert!(!own.contains(weak), "{own}");
    }
    assert!(
        report.head.contains("x-frame-options: deny"),
        "{}",
        report.head
    );
    let page = policy(&ask(stream(), "GET", "/", ""));
    assert!(
        page.contains("style-src 'self'") && !page.contains("sha256"),
        "{page}"
    );
    let wrong = ask(stream(), "GET", "/v1/report?from=soon", "");
    assert_eq!(wrong.status, 400, "{}", wrong.body);
    // Nothing is started without a token.
    let refused = ask(stream(), "POST", "/v1/whatif", "{\"device\": \"disk0\"}");
    assert_eq!(refused.status, 401, "{}", refused.body);
    drop(daemon);
}

/// Returns an address of loopback with a port that is free.
fn address() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("bound").to_string()
}
