//! Promises kept and missed as an operator watches them: `vm list`, `/healthz`, and the alerts and
//! the dashboard of `contrib/` under Prometheus.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::thread;

use serde_json::Value;

use crate::control::{tidegate, tidegate_json};
use crate::daemon::{Backing, DEADLINE, Daemon, Scratch, wait_for};
use crate::media::get;
use crate::tool::{Running, arg, fio, have, json};

/// A hard disk under a policy that enforces nothing, with a VM whose reservation it cannot have.
fn start() -> Daemon {
    let objective = "[vm.objective]\nreservation = \"5000 IOPS\"\nlatency = \"2 s\"\n";
    let file = Backing::Emulated;
    let vm = file.vm("a", "64 MiB", "");
    let vm = vm.replace("[[vm.disk]]", &format!("{objective}[[vm.disk]]"));
    let config = [
        "[store]\npath = \"kept.redb\"\n".to_owned(),
        file.device("policy = \"fifo\""),
        vm,
        file.vm("b", "64 MiB", ""),
    ];
    Daemon::start(&config.concat())
}

/// Part of the objective of VM `a`, as `vm show` has it.
fn attained(daemon: &Daemon, part: &str) -> Value {
    let vm = tidegate_json(daemon, &["vm", "show", "a"]);
    let parts = vm["attainment"].as_array().cloned().unwrap_or_default();
    let found = parts.into_iter().find(|it| it["part"] == part);
    found.unwrap_or_else(|| panic!("{part} is not judged: {vm}"))
}

fn missed(daemon: &Daemon) -> u64 {
    attained(daemon, "reservation")["missed_s"]
        .as_u64()
        .expect("a count")
}

/// Random reads of VM `a` until the test has seen enough.
fn load(daemon: &Daemon) -> Running {
    let args = [
        "--rw=randread",
        "--bs=4k",
        "--iodepth=64",
        "--runtime=300",
        "--time_based=1",
    ];
    fio(daemon.scratch(), &daemon.uri("a"), &args)
}

#[test]
fn a_missed_promise_is_said_everywhere_and_outlives_a_restart() {
    if !have(&["fio"]) {
        return;
    }
    let daemon = start();
    let asks = load(&daemon);
    wait_for("some seconds to be missed", || missed(&daemon) >= 3);
    wait_for("the latency to be judged", || {
        attained(&daemon, "latency")["kept"] == true
    });
    drop(asks);
    let part = attained(&daemon, "reservation");
    assert_eq!(part["kept"], false, "{part}");
    assert_eq!(
        part["missed_by_cause"]["device"], part["missed_s"],
        "{part}"
    );
    let list = tidegate(&daemon, &["vm", "list"]);
    assert!(
        list.contains("KEPT") && list.contains("missed: reservation"),
        "{list}"
    );
    let shown = tidegate(&daemon, &["vm", "show", "a"]);
    assert!(shown.contains("the device was too slow"), "{shown}");
    let stats = tidegate(&daemon, &["stats"]);
    assert!(stats.contains("missed: reservation"), "{stats}");
    // An orchestrator that restarts an unhealthy daemon would take every disk away.
    let (status, health) = get(&daemon, "/healthz");
    assert_eq!(status, 200, "{health}");
    assert!(health.contains("\"ok\""), "{health}");
    let before = missed(&daemon);
    let daemon = daemon.restart();
    wait_for("the store to be read", || missed(&daemon) >= before);
    let part = attained(&daemon, "reservation");
    assert!(
        part["last_hour"]["missed_s"].as_u64() >= Some(before),
        "{part}"
    );
}

/// Has what comes on a TCP port go to the daemon's control socket, and its answers back: Prometheus
/// scrapes no unix sockets. Returns the port.
fn forward(socket: PathBuf) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let port = listener.local_addr().expect("bound").port();
    thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let Ok(server) = UnixStream::connect(&socket) else {
                return;
            };
            let (Ok(mut from), Ok(mut to)) = (client.try_clone(), server.try_clone()) else {
                return;
            };
            thread::spawn(move || std::io::copy(&mut from, &mut to));
            thread::spawn(move || std::io::copy(&mut &server, &mut &client));
        }
    });
    port
}

/// Folder of what others are given to watch Tidegate with.
fn contrib() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../contrib")
}

/// A Prometheus that scrapes a daemon and has the alert rules.
struct Prometheus {
    _process: Running,
    port: u16,
}

impl Prometheus {
    fn start(daemon: &Daemon) -> Prometheus {
        let rules = contrib().join("prometheus/tidegate.rules.yml");
        let target = forward(daemon.path("control.sock"));
        let config = format!(
            "global: {{ scrape_interval: 1s, evaluation_interval: 1s }}\n\
             rule_files: [ {rules:?} ]\n\
             scrape_configs:\n- job_name: tidegate\n  static_configs:\n\
             \x20 - targets: [ \"127.0.0.1:{target}\" ]\n"
        );
        fs::write(daemon.path("prometheus.yml"), config).expect("the directory is ours");
        // Free a moment ago, and not given out to another process so soon.
        let free = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let port = free.local_addr().expect("bound").port();
        drop(free);
        let listen = format!("--web.listen-address=127.0.0.1:{port}");
        let args = [
            "--config.file=prometheus.yml",
            "--storage.tsdb.path=tsdb",
            &listen,
        ];
        let process = Running::start(daemon.scratch(), "prometheus", &args);
        let this = Prometheus {
            _process: process,
            port,
        };
        wait_for("Prometheus to scrape", || {
            let up = this.get("/api/v1/query?query=tidegate_build_info");
            up.is_some_and(|answer| answer["data"]["result"][0].is_object())
        });
        this
    }

    /// Answer to a GET request; `None` while it does not answer.
    fn get(&self, path: &str) -> Option<Value> {
        let mut socket = TcpStream::connect(("127.0.0.1", self.port)).ok()?;
        // While nothing listens there, the kernel may connect the socket to itself.
        if socket.local_addr().ok()? == socket.peer_addr().ok()? {
            return None;
        }
        socket.set_read_timeout(Some(DEADLINE)).expect("not zero");
        let request = format!("GET {path} HTTP/1.0\r\nhost: prometheus\r\n\r\n");
        socket.write_all(request.as_bytes()).ok()?;
        let mut answer = String::new();
        socket.read_to_string(&mut answer).ok()?;
        let (_, body) = answer.split_once("\r\n\r\n")?;
        serde_json::from_str(body).ok()
    }

    /// Result of a query, which must be a good one.
    fn query(&self, query: &str) -> Vec<Value> {
        let hex = |byte: u8| format!("%{byte:02x}");
        let escaped: String = query.bytes().map(hex).collect();
        let answer = self.get(&format!("/api/v1/query?query={escaped}"));
        let answer = answer.expect("it answers");
        assert_eq!(answer["status"], "success", "{query}: {answer}");
        answer["data"]["result"]
            .as_array()
            .cloned()
            .unwrap_or_default()
    }

    /// Rules as it evaluates them.
    fn rules(&self) -> Vec<Value> {
        let answer = self.get("/api/v1/rules").expect("it answers");
        let rules = answer["data"]["groups"][0]["rules"].as_array();
        rules.cloned().expect("a group of rules")
    }
}

/// Queries of the dashboard with its variables filled in.
fn queries_of_dashboard() -> Vec<String> {
    let text = fs::read_to_string(contrib().join("grafana/tidegate.json")).expect("it is there");
    let dashboard = json(&text);
    let panels = dashboard["panels"].as_array().expect("panels");
    let targets = panels.iter().flat_map(|panel| {
        let targets = panel["targets"].as_array().expect("a panel has queries");
        assert!(!targets.is_empty(), "{panel}");
        targets.iter()
    });
    let filled = targets.map(|target| {
        let query = target["expr"].as_str().expect("a query");
        (query.replace("$__rate_interval", "1m"))
            .replace("$device", ".*")
            .replace("$vm", ".*")
    });
    filled.collect()
}

/// Names of this daemon's metrics in a query.
fn metrics_of(query: &str) -> impl Iterator<Item = &str> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    (query.split(move |c| !is_name(c))).filter(|word| word.starts_with("tidegate"))
}

#[test]
fn every_query_of_alerts_and_dashboard_is_evaluated_against_a_daemon() {
    if !have(&["fio", "prometheus", "promtool"]) {
        return;
    }
    let daemon = start();
    // Late as things are, so that its metrics are there.
    tidegate(
        &daemon,
        &["job", "start", "a", "--size", "64 MiB", "--deadline", "1 s"],
    );
    let rate = ["vm", "set", "a", "--limit", "100 MB/s"];
    tidegate(&daemon, &rate);
    let _asks = load(&daemon);
    let prometheus = Prometheus::start(&daemon);
    let rules = contrib().join("prometheus/tidegate.rules.yml");
    Running::start(
        daemon.scratch(),
        "promtool",
        &["check", "rules", arg(&rules)],
    )
    .succeed();
    wait_for("seconds to be missed", || missed(&daemon) >= 3);
    wait_for("the rate of missed seconds", || {
        !prometheus
            .query("tidegate:promise_missed:ratio_rate5m > 0.5")
            .is_empty()
    });
    let mut queries = queries_of_dashboard();
    let rules = prometheus.rules();
    for rule in &rules {
        assert_eq!(rule["health"], "ok", "{rule}");
        queries.push(rule["query"].as_str().expect("a query").to_owned());
    }
    assert!(rules.len() > 8 && queries.len() > 20, "{queries:?}");
    let mut names = BTreeSet::new();
    for query in &queries {
        prometheus.query(query);
        names.extend(metrics_of(query));
    }
    for name in names {
        wait_for(name, || {
            !prometheus.query(&format!("count({name})")).is_empty()
        });
    }
    let alert = |name: &str| {
        let found = (prometheus.rules().into_iter()).find(|rule| rule["name"] == name);
        found.expect("a rule")["state"].clone()
    };
    wait_for("the alert", || alert("TidegatePromiseMissed") == "firing");
    assert_eq!(alert("TidegateDown"), "inactive");
    let parts = prometheus.query("count by (part) (tidegate_device_suspended_objectives)");
    let parts = parts.iter().map(|found| found["metric"]["part"].as_str());
    let parts: BTreeSet<_> = parts.map(|part| part.expect("a label")).collect();
    let steps: BTreeSet<_> = STEPS.map(|(part, _)| part).into();
    assert_eq!(parts, steps, "each part has an alert");
}

/// Parts of objectives in the order in which they are suspended, with the alert of each.
const STEPS: [(&str, &str); 4] = [
    ("background", "TidegateBackgroundSuspended"),
    ("transfer", "TidegateTransfersSuspended"),
    ("target", "TidegateTargetsSuspended"),
    ("latency", "TidegateLatencyBoundsSuspended"),
];

#[test]
fn each_step_in_which_promises_give_way_has_an_alert() {
    if !have(&["promtool"]) {
        return;
    }
    let rules = contrib().join("prometheus/tidegate.rules.yml");
    let mut test = format!(
        "rule_files: [ {rules:?} ]\nevaluation_interval: 1m\ntests:\n- interval: 1m\n\
         \x20 input_series:\n\
         \x20 - {{ series: tidegate_build_info, values: '1x100' }}\n"
    );
    // One more step each ten minutes, and from the 50th on one less, in the opposite order.
    for (step, (part, _)) in STEPS.iter().enumerate() {
        let suspended = 10 * (step + 1)..90 - 10 * (step + 1);
        let values = (0..=100).map(|minute| u32::from(suspended.contains(&minute)).to_string());
        let values = values.collect::<Vec<_>>().join(" ");
        test += &format!(
            "  - series: 'tidegate_device_suspended_objectives{{device=\"d\",part=\"{part}\"}}'\n\
             \x20   values: '{values}'\n"
        );
    }
    test += "  promql_expr_test:\n";
    // An alert stays for five minutes after its part has come back, at 53 and 83 minutes.
    let firing = [
        (9, 0),
        (19, 1),
        (29, 2),
        (39, 3),
        (49, 4),
        (53, 4),
        (59, 3),
        (69, 2),
        (79, 1),
        (83, 1),
        (89, 0),
    ];
    for (minute, steps) in firing {
        test += &format!(
            "  - expr: 'count by (alertname, part) (ALERTS{{alertstate=\"firing\"}})'\n\
             \x20   eval_time: {minute}m\n    exp_samples:\n"
        );
        for (part, alert) in &STEPS[..steps] {
            let labels = format!("alertname=\"{alert}\", part=\"{part}\"");
            test += &format!("    - {{ labels: '{{{labels}}}', value: 1 }}\n");
        }
    }
    let scratch = Scratch::new();
    fs::write(scratch.join("steps.yml"), test).expect("the directory is ours");
    Running::start(&scratch, "promtool", &["test", "rules", "steps.yml"]).succeed();
}
