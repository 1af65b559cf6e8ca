//! Three hosts on one array: a daemon that serves an emulated flash disk over NBD on TCP, three
//! daemons whose disks are there, and a NATS server that carries their messages.

use std::fs;
use std::net::{TcpListener, TcpStream};

use serde_json::Value;

use crate::daemon::{Daemon, Scratch, wait_for};
use crate::tool::{FioResult, Running, arg, fio, fio_result, have, run_json};

const HOSTS: [(&str, u32); 3] = [("a", 100), ("b", 200), ("c", 300)];
/// Most weight of each host: without messages each would have a third of the array.
const WEIGHT_MAX: u32 = 400;

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("bound").port()
}

/// NATS server on a port of its own, at which each host may publish under its own name alone.
struct Nats {
    scratch: Scratch,
    port: u16,
    server: Running,
}

impl Nats {
    fn start() -> Nats {
        let (scratch, port) = (Scratch::new(), free_port());
        let user = |(host, _)| {
            format!(
                "{{ user: {host}, password: \"secret-{host}\", permissions: {{ publish: \
                 \"tidegate.east.shares.*.{host}\", subscribe: \"tidegate.east.shares.*.*\" }} }}"
            )
        };
        let users = HOSTS.map(user).join(",\n");
        let config = format!("listen: \"127.0.0.1:{port}\"\nauthorization {{ users = [{users}] }}");
        fs::write(scratch.join("nats.conf"), config).expect("the directory is ours");
        let server = Nats::spawn(&scratch, port);
        Nats {
            scratch,
            port,
            server,
        }
    }

    fn spawn(scratch: &Scratch, port: u16) -> Running {
        let config = scratch.join("nats.conf");
        let server = Running::start(scratch, "nats-server", &["-c", arg(&config)]);
        wait_for("nats-server", || {
            TcpStream::connect(("127.0.0.1", port)).is_ok()
        });
        server
    }

    fn restart(&mut self) {
        self.server = Nats::spawn(&self.scratch, self.port);
    }
}

/// Starts the array, with a disk for each host.
fn array() -> (Daemon, u16) {
    let port = free_port();
    let disks = HOSTS.map(|(host, _)| {
        format!("[[vm]]\nname = \"{host}\"\n[[vm.disk]]\nexport = \"{host}\"\nsize = \"1 GiB\"\n")
    });
    let text = format!(
        "[[listen]]\ntcp = \"127.0.0.1:{port}\"\n[[device]]\nname = \"ssd\"\nkind = \"emulated\"\n\
         model = \"ssd-sata-300gb\"\npolicy = \"fifo\"\nadaptive_depth = false\n{}",
        disks.concat()
    );
    (Daemon::start(&text), port)
}

/// Starts a host whose VM has this weight.
fn host((name, weight): (&str, u32), array: u16, nats: u16) -> Daemon {
    let scratch = Scratch::new();
    fs::write(scratch.join("password"), format!("secret-{name}\n")).expect("the directory is ours");
    let entitled = HOSTS.map(|(host, _)| {
        format!(
            "[[exchange.entitlement]]\narray = \"san\"\nhost = \"{host}\"\n\
             weight_max = {WEIGHT_MAX}\n"
        )
    });
    let text = format!(
        "[exchange]\ncluster = \"east\"\nhost = \"{name}\"\nnats = [\"nats://127.0.0.1:{nats}\"]\n\
         user = \"{name}\"\npassword_file = \"password\"\n{}[[device]]\nname = \"san\"\n\
         kind = \"nbd\"\narray = \"san\"\npolicy = \"vfair\"\nprofile = \"ssd-sata-300gb\"\n\
         learn_cap = false\nadaptive_depth = false\n[[vm]]\nname = \"{name}\"\n\
         objective = {{ weight = {weight} }}\n[[vm.disk]]\nexport = \"{name}\"\n\
         uri = \"nbd://127.0.0.1:{array}/{name}\"\n",
        entitled.concat()
    );
    Daemon::start_in(scratch, &text)
}

/// Returns the exchange of a host as `tidegate device show` has it.
fn exchange(host: &Daemon) -> Value {
    let socket = host.path("control.sock");
    let args = [
        "--socket",
        arg(&socket),
        "device",
        "show",
        "san",
        "-o",
        "json",
    ];
    let device = run_json(host.scratch(), env!("CARGO_BIN_EXE_tidegate"), &args);
    device["exchange"].clone()
}

/// Returns true if a host hears both others.
fn hears_all(host: &Daemon) -> bool {
    let peers = exchange(host)["peers"].clone();
    let peers = peers.as_array().expect("a list");
    assert_eq!(peers.len(), 2);
    peers.iter().all(|peer| peer["presence"] == "live")
}

/// Has every host read at random, all at once; calls `meanwhile` in between.
fn load(hosts: &[Daemon], meanwhile: impl FnOnce()) -> Vec<FioResult> {
    let args = [
        "--rw=randread",
        "--bs=128k",
        "--iodepth=64",
        "--size=1g",
        "--time_based",
        "--ramp_time=3s",
        "--runtime=8s",
    ];
    let begin =
        |(host, (name, _)): (&Daemon, (&str, u32))| fio(host.scratch(), &host.uri(name), &args);
    let running: Vec<Running> = hosts.iter().zip(HOSTS).map(begin).collect();
    meanwhile();
    running.into_iter().map(fio_result).collect()
}

#[test]
fn three_hosts_share_an_array_by_weight_and_go_on_without_nats() {
    if !have(&["nats-server", "fio"]) {
        return;
    }
    let mut nats = Nats::start();
    let (array, port) = array();
    let hosts = HOSTS.map(|it| host(it, port, nats.port));
    wait_for("hosts to hear each other", || hosts.iter().all(hears_all));
    let results = load(&hosts, || ());
    let all: u64 = results.iter().map(|result| result.bytes_read).sum();
    let weights: u32 = HOSTS.iter().map(|(_, weight)| weight).sum();
    for (result, (name, weight)) in results.iter().zip(HOSTS) {
        let part = result.bytes_read as f64 / all as f64;
        let due = f64::from(weight) / f64::from(weights);
        println!("{name}: {part:.3} of the array, {due:.3} due");
        assert!(
            (part - due).abs() < 0.06,
            "{name}: {part}, not {due}: {results:?}"
        );
    }
    for host in &hosts {
        let ignored = exchange(host)["ignored"].clone();
        assert_eq!(ignored, serde_json::json!({}), "{}", host.log());
    }
    // The server dies and comes back while guests read: none of them sees an error.
    load(&hosts, || {
        nats.server.kill();
        wait_for("hosts to be cut off", || {
            hosts.iter().all(|host| exchange(host)["cut_off"] == true)
        });
        assert!(
            hosts[0].logged(&["the server is away"]),
            "{}",
            hosts[0].log()
        );
        nats.restart();
        wait_for("hosts to hear each other again", || {
            hosts.iter().all(hears_all)
        });
    });
    // A host that stops in order leaves its share to the others; one that is killed does not.
    let [a, b, c] = hosts;
    c.stop();
    wait_for("the withdrawal", || {
        exchange(&a)["peers"][1]["presence"] == "withdrawn"
    });
    crate::daemon::signal(b.pid(), "KILL");
    wait_for("the silence", || {
        let exchange = exchange(&a);
        exchange["peers"][0]["presence"] == "silent" && exchange["cut_off"] == true
    });
    a.stop();
    array.stop();
}
