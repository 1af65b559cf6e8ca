//! Commands on a machine from which the daemon of a host that has joined is not reached.

use std::process::{Child, Command, Output};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::super::{Site, stderr};
use super::server::{Server, is_installed};
use crate::common::{drain_stderr, serve};

/// Time in which everything that is waited for happens, on a busy machine.
const LIMIT: Duration = Duration::from_secs(60);

/// Cluster of the hosts `a` and `b`, each with a daemon that has joined and serves a VM `dss`.
struct TwoDaemons {
    site: Site,
    server: Server,
    daemons: Vec<Child>,
}

impl TwoDaemons {
    fn start() -> TwoDaemons {
        let mut cluster = TwoDaemons {
            site: Site::new(),
            server: Server::start(),
            daemons: Vec::new(),
        };
        for host in ["a", "b"] {
            let config = format!(
                "[control]\nsocket = \"{host}.sock\"\n[[listen]]\nunix = \"{host}-nbd.sock\"\n\
                 [[device]]\nname = \"ram\"\nkind = \"memory\"\n\
                 [[vm]]\nname = \"dss\"\n[[vm.disk]]\nsize = \"8 MiB\"\n\
                 [cluster]\nhost = \"{host}\"\netcd = [\"{}\"]\nprefix = \"/cli/\"\n\
                 lease = \"2 s\"\n",
                cluster.server.url()
            );
            let path = cluster.site.file(&format!("{host}.toml"));
            std::fs::write(&path, config).expect("writable");
            let (child, log) = serve(&path);
            drain_stderr(log);
            cluster.daemons.push(child);
        }
        cluster.until("both publish their VMs", || {
            let has_names = |host| cluster.published(host)["vm_names"][0] == "dss";
            has_names("a") && has_names("b")
        });
        cluster
    }

    /// Writes a file of hosts in which `a`, which is the faster one, has a socket.
    fn write_hosts(&self, socket_of_a: &str) {
        let hosts = format!(
            "[[host]]\nname = \"a\"\nbandwidth = \"60 MB/s\"\nsocket = \"{socket_of_a}\"\n\
             [[host]]\nname = \"b\"\nbandwidth = \"50 MB/s\"\nsocket = \"b.sock\"\n"
        );
        std::fs::write(self.site.file("hosts.toml"), hosts).expect("writable");
    }

    fn run(&self, words: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
        let command = command.args(words).args(["-o", "json"]);
        let command = command
            .current_dir(self.site.file(""))
            .env_remove("TIDEGATE_PLACE_DB")
            .env("TIDEGATE_ETCD", self.server.url())
            .env("TIDEGATE_ETCD_PREFIX", "/cli/");
        command.output().expect("the binary runs")
    }

    /// Returns the results of a command, and its messages.
    fn good(&self, words: &[&str]) -> (Value, String) {
        let output = self.run(words);
        assert!(output.status.success(), "{words:?}: {}", stderr(&output));
        let results = serde_json::from_slice(&output.stdout).expect("JSON");
        (results, stderr(&output))
    }

    /// Returns what the daemon of a host has published of its device.
    fn published(&self, host: &str) -> Value {
        let key = format!("/cli/members/{host}");
        let value = self.server.etcdctl(&["get", &key, "--print-value-only"]);
        let value = serde_json::from_str::<Value>(value.trim()).unwrap_or_default();
        value["devices"][0].clone()
    }

    /// Returns the running transfer of the VM on the daemon of a host.
    fn transfer(&self, host: &str) -> Value {
        let socket = format!("{host}.sock");
        let (shown, _) = self.good(&["--socket", &socket, "transfer", "show", "dss"]);
        shown["job"].clone()
    }

    fn until(&self, what: &str, is_so: impl Fn() -> bool) {
        let end = Instant::now() + LIMIT;
        while !is_so() {
            assert!(Instant::now() < end, "never: {what}");
            thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for TwoDaemons {
    fn drop(&mut self) {
        for daemon in &mut self.daemons {
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
    }
}

/// Options of a job of 20 MB/s.
const JOB: [&str; 4] = ["--size", "72 GB", "--deadline", "1 h"];

/// The job of 72 GB is listed on `a`, and the transfer of 36 GB of its daemon on `b`.
fn check_listed(cluster: &TwoDaemons) {
    let (listed, messages) = cluster.good(&["place", "list"]);
    let jobs = |at: usize| {
        let jobs = listed["hosts"][at]["jobs"]
            .as_array()
            .expect("a list")
            .iter();
        let figures = |job: &Value| (job["name"].clone(), job["size_bytes"].clone());
        jobs.map(figures).collect::<Vec<_>>()
    };
    assert_eq!(
        jobs(0),
        [("dss".into(), 72_000_000_000_u64.into())],
        "{messages}"
    );
    assert_eq!(jobs(1), [("b/dss".into(), 36_000_000_000_u64.into())]);
    assert!(messages.contains("its jobs count as of 20"), "{messages}");
}

#[test]
fn jobs_are_placed_started_and_ended_where_the_daemon_of_their_host_is_not_reached() {
    if !is_installed() {
        return;
    }
    let cluster = TwoDaemons::start();
    // On the machine of b that of a has no path, or that of b has the path.
    for socket_of_a in ["nowhere.sock", "b.sock"] {
        cluster.write_hosts(socket_of_a);
        let words = ["place", "job", "dss", "--start", "--hosts", "hosts.toml"];
        let (placed, messages) = cluster.good(&[&words[..], &JOB].concat());
        assert_eq!(placed["host"]["host"], "a", "{messages}");
        assert!(
            messages.contains("host a is not reached from here")
                && messages.contains("dss stays on host a"),
            "{messages}"
        );
        cluster.until("the daemon of a starts it", || {
            !cluster.transfer("a").is_null()
        });
        assert!(cluster.transfer("b").is_null());
        // A transfer of the VM of that name on b is not the one that is placed.
        let socket = ["--socket", "b.sock"];
        let begun = [
            "transfer",
            "start",
            "dss",
            "--size",
            "36 GB",
            "--deadline",
            "1 h",
        ];
        cluster.good(&[&socket[..], &begun].concat());
        check_listed(&cluster);
        let (hosts, _) = cluster.good(&["cluster", "hosts"]);
        assert_eq!(
            (&hosts[0]["member"], &hosts[0]["jobs"]),
            (&"joined".into(), &1.into())
        );
        let (drained, _) = cluster.good(&["cluster", "drain", "a"]);
        assert_eq!(drained[0]["drained"], true);
        cluster.good(&["cluster", "resume", "a"]);
        cluster.good(&["place", "moved", "dss=1 GB"]);
        std::fs::write(
            cluster.site.file("jobs"),
            "name = \"other\", size = \"1 GB\", deadline = \"1 h\"\n",
        )
        .expect("writable");
        let (other, _) = cluster.good(&["place", "jobs", "jobs"]);
        assert_eq!(other["outcome"], "placed");
        for job in ["other", "dss"] {
            cluster.good(&["place", "end", job]);
        }
        for host in ["a", "b"] {
            let socket = format!("{host}.sock");
            cluster.good(&["--socket", &socket, "transfer", "cancel", "dss"]);
        }
        cluster.until("the daemon of a publishes that", || {
            let transfers = &cluster.published("a")["transfers"];
            transfers.as_array().is_some_and(Vec::is_empty)
        });
    }
}
