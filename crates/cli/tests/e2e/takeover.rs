//! Takeover of a daemon under load by a new one: clients get no error, and their bytes are right.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use serde_json::{Value, json};

use crate::control::{requests, tidegate, tidegate_json};
use crate::daemon::{Backing, Daemon, noise, wait_for};
use crate::faults::{attach, request};
use crate::on_every_backing;
use crate::tool::{Running, fio, fio_result, have, qemu_io};

on_every_backing!(a_client_under_load_sees_no_error);

/// Commands of NBD.
pub(crate) const READ: u16 = 0;
pub(crate) const WRITE: u16 = 1;
pub(crate) const DISCONNECT: u16 = 2;
const FLUSH: u16 = 3;
pub(crate) const BLOCK: usize = 4096;

/// Backing whose bytes outlive their daemon.
fn on_files(backing: Backing) -> Backing {
    match backing {
        Backing::Memory | Backing::File => Backing::File,
        Backing::Emulated | Backing::EmulatedFile => Backing::EmulatedFile,
    }
}

/// Client that writes blocks with checksums and reads them back, until it is told to end or the
/// time is over.
fn verifier(daemon: &Daemon, uri: &str, depth: u32) -> Running {
    let depth = format!("--iodepth={depth}");
    let args = [
        "--rw=randwrite",
        "--bsrange=4k-128k",
        "--bs_unaligned=0",
        &depth,
        "--verify=crc32c",
        "--verify_fatal=1",
        "--verify_backlog=64",
        "--fsync=32",
        "--time_based",
        "--runtime=8",
        "--size=48m",
    ];
    fio(daemon.scratch(), uri, &args)
}

/// Takes the daemon over and returns the pause that clients saw, in milliseconds.
pub(crate) fn take_over(daemon: &mut Daemon) -> u64 {
    let before = daemon.pid();
    let ended = daemon.take_over();
    assert!(
        ended.is_ok_and(|status| status.success()),
        "the old daemon did not hand over: {ended:?}"
    );
    assert_ne!(daemon.pid(), before);
    let log = daemon.log();
    let line = log.lines().rev().find(|line| line.contains("taken over"));
    let line = line.expect("it says so");
    let pause = line.split("pause_ms=").nth(1).expect("with the pause");
    pause.trim().parse().expect("a number")
}

/// Takes a daemon over under the load of clients on a unix socket and on TCP, and returns the
/// longest pause in milliseconds.
fn under_load(backing: Backing, times: u32) -> u64 {
    let backing = on_files(backing);
    let config = [
        "[[listen]]\ntcp = \"127.0.0.1:0\"\n",
        &backing.device(""),
        &backing.vm("a", "64 MiB", ""),
        &backing.vm("b", "64 MiB", ""),
    ]
    .concat();
    let mut daemon = Daemon::start(&config);
    let mut port = None;
    wait_for("the port", || {
        let log = daemon.log();
        let line = log.split("listening on 127.0.0.1:").nth(1);
        port = line.and_then(|rest| rest.lines().next().map(str::to_owned));
        port.is_some()
    });
    let tcp = format!("nbd://127.0.0.1:{}/b", port.expect("waited for"));
    let mut longest = 0;
    let mut left = times;
    while left > 0 {
        let clients = [
            verifier(&daemon, &daemon.uri("a"), 32),
            verifier(&daemon, &tcp, 8),
        ];
        // A round of clients lives through several takeovers.
        for _ in 0..left.min(3) {
            let before = requests(&daemon, "a");
            wait_for("requests", || requests(&daemon, "a") > before + 20);
            longest = longest.max(take_over(&mut daemon));
            left -= 1;
        }
        for client in clients {
            let result = fio_result(client);
            assert!(result.writes > 0 && result.reads > 0, "it was not at work");
        }
    }
    println!("longest pause of {times} takeovers on {backing:?}: {longest} ms");
    daemon.stop();
    longest
}

fn a_client_under_load_sees_no_error(backing: Backing) {
    // The same as on files.
    if backing == Backing::Memory || !have(&["fio"]) {
        return;
    }
    under_load(backing, 3);
}

#[test]
#[ignore = "long: fifty takeovers on each kind of disk"]
fn fifty_takeovers_under_load() {
    for backing in [Backing::File, Backing::EmulatedFile] {
        let pause = under_load(backing, 50);
        assert!(pause < 1000, "clients were paused for {pause} ms");
    }
}

/// Client that compares what it reads with what it has written.
pub(crate) struct Client {
    pub(crate) stream: UnixStream,
    /// Expected content of each block by its number; zeroes if it was not written.
    pub(crate) blocks: Vec<u8>,
}

impl Client {
    pub(crate) fn new(daemon: &Daemon, export: &str) -> Client {
        Client {
            stream: attach(daemon, export),
            blocks: vec![0; 256],
        }
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).expect("it is open");
    }

    /// Returns a write of a block full of a byte.
    pub(crate) fn write(&mut self, block: usize, byte: u8) -> Vec<u8> {
        self.blocks[block] = byte;
        let mut bytes = request(WRITE, block as u64, (block * BLOCK) as u64, BLOCK as u32);
        bytes.extend([byte; BLOCK]);
        bytes
    }

    /// Receives a reply without data; returns its cookie.
    pub(crate) fn receive(&mut self) -> u64 {
        let mut head = [0; 16];
        self.stream.read_exact(&mut head).expect("a reply");
        assert_eq!(head[..8], [0x67, 0x44, 0x66, 0x98, 0, 0, 0, 0], "an error");
        u64::from_be_bytes(head[8..].try_into().expect("eight"))
    }

    /// Reads all blocks and compares them.
    pub(crate) fn check(&mut self) {
        (0..self.blocks.len()).for_each(|block| self.check_block(block));
    }

    fn check_block(&mut self, block: usize) {
        self.send(&request(READ, 7, (block * BLOCK) as u64, BLOCK as u32));
        assert_eq!(self.receive(), 7);
        let mut bytes = [0; BLOCK];
        self.stream.read_exact(&mut bytes).expect("data");
        assert_eq!(bytes, [self.blocks[block]; BLOCK], "block {block}");
    }
}

pub(crate) fn one_disk(more: &str) -> Daemon {
    let disk = Backing::File.vm("a", "1 MiB", "");
    Daemon::start(&[&Backing::File.device(""), &disk, more].concat())
}

#[test]
fn requests_that_wait_for_a_limit_are_answered_once_by_the_next_daemon() {
    let mut daemon = one_disk("[vm.objective]\nlimit = \"20 IOPS\"\n");
    let mut client = Client::new(&daemon, "a");
    let mut all = Vec::new();
    for block in 0..60 {
        all.extend(client.write(block, block as u8 + 1));
    }
    all.extend(request(FLUSH, 999, 0, 0));
    client.send(&all);
    wait_for("requests to wait", || pending(&daemon) > 20);
    take_over(&mut daemon);
    wait_for("requests to wait in the next daemon", || {
        pending(&daemon) > 0
    });
    take_over(&mut daemon);
    tidegate(&daemon, &["vm", "set", "a", "--limit", "none"]);
    let mut answered: Vec<u64> = (0..61).map(|_| client.receive()).collect();
    answered.sort_unstable();
    let expected: Vec<u64> = (0..60).chain([999]).collect();
    assert_eq!(answered, expected);
    client.check();
    // The objective that was set while it ran stays.
    take_over(&mut daemon);
    client.check();
    daemon.stop();
}

/// Returns the number of requests of VM `a` that wait.
fn pending(daemon: &Daemon) -> u64 {
    let vm = tidegate_json(daemon, &["vm", "show", "a"]);
    vm["pending"].as_u64().expect("a number")
}

/// Returns a client that has written each of the first blocks, most of which wait for a limit.
fn client_that_waits(daemon: &Daemon, writes: usize) -> Client {
    let mut client = Client::new(daemon, "a");
    let mut all = Vec::new();
    for block in 0..writes {
        all.extend(client.write(block, block as u8 + 1));
    }
    client.send(&all);
    wait_for("requests to wait", || pending(daemon) > 20);
    client
}

#[test]
fn clients_that_leave_while_their_requests_wait_harm_nobody_and_their_writes_are_done() {
    let mut daemon = one_disk("[vm.objective]\nlimit = \"20 IOPS\"\n");
    let mut client = client_that_waits(&daemon, 60);
    client.send(&request(DISCONNECT, 0, 0, 0));
    // Others vanish, one of them in the middle of a request.
    let mut gone = [Client::new(&daemon, "a"), Client::new(&daemon, "a")];
    for (at, other) in gone.iter_mut().enumerate() {
        let bytes = other.write(200, 77);
        other.send(&bytes.repeat(3)[..at * 40 + 2 * bytes.len()]);
    }
    let mut stays = Client::new(&daemon, "a");
    let [first, second] = gone;
    drop(first);
    take_over(&mut daemon);
    drop(second);
    wait_for("requests to wait in the next daemon", || {
        pending(&daemon) > 0
    });
    take_over(&mut daemon);
    tidegate(&daemon, &["vm", "set", "a", "--limit", "none"]);
    // All that was sent before the disconnect request is done and answered, then comes the end.
    for _ in 0..60 {
        client.receive();
    }
    let mut rest = Vec::new();
    client.stream.read_to_end(&mut rest).expect("the end");
    assert_eq!(rest, b"");
    stays.check_is_alive();
    let mut reader = Client::new(&daemon, "a");
    reader.blocks = client.blocks;
    // Writes of the clients that vanished may be done or not.
    for block in 0..60 {
        reader.check_block(block);
    }
    daemon.stop();
}

#[test]
fn a_refused_write_that_came_in_half_behind_requests_that_wait_is_skipped_in_its_place() {
    let mut daemon = one_disk("[vm.objective]\nlimit = \"20 IOPS\"\n");
    for cut in [28, 29, 28 + BLOCK / 2, 28 + BLOCK - 1, 28 + BLOCK] {
        tidegate(&daemon, &["vm", "set", "a", "--limit", "20 IOPS"]);
        // Each daemon lets a burst of some thirty pass.
        let mut client = client_that_waits(&daemon, 200);
        let mut beyond = request(WRITE, 777, 1 << 30, BLOCK as u32);
        beyond.extend([9; BLOCK]);
        client.send(&beyond[..cut]);
        // The refusal is sent before replies to the requests that wait.
        let mut head = [0; 16];
        let mut answered = Vec::new();
        while answered.last() != Some(&777) {
            client.stream.read_exact(&mut head).expect("a reply");
            answered.push(u64::from_be_bytes(head[8..].try_into().expect("eight")));
        }
        for _ in 0..2 {
            take_over(&mut daemon);
            wait_for("requests to wait in the next daemon", || {
                pending(&daemon) > 0
            });
        }
        client.send(&beyond[cut..]);
        let last = client.write(240, cut as u8);
        client.send(&last);
        tidegate(&daemon, &["vm", "set", "a", "--limit", "none"]);
        while answered.len() < 202 {
            answered.push(client.receive());
        }
        answered.sort_unstable();
        let expected: Vec<u64> = (0..200).chain([240, 777]).collect();
        assert_eq!(answered, expected, "cut at {cut}");
        client.check();
    }
    daemon.stop();
}

#[test]
fn a_request_that_came_in_half_goes_on_in_the_next_daemon() {
    let mut daemon = one_disk("");
    for cut in [1, 27, 28, 29, 1000, 28 + BLOCK - 1] {
        let mut client = Client::new(&daemon, "a");
        let mut bytes = client.write(3, cut as u8);
        // Of a rejected write, the payload is to be skipped.
        let mut beyond = request(WRITE, 77, 1 << 30, BLOCK as u32);
        beyond.extend([9; BLOCK]);
        let split = bytes.len();
        bytes.extend(beyond);
        bytes.extend(client.write(4, cut as u8 ^ 1));
        for at in [cut, split + cut] {
            let mut client = Client::new(&daemon, "a");
            client.blocks[3] = cut as u8;
            client.blocks[4] = cut as u8 ^ 1;
            client.send(&bytes[..at]);
            take_over(&mut daemon);
            client.send(&bytes[at..]);
            let mut answers = Vec::new();
            for _ in 0..3 {
                let mut head = [0; 16];
                client.stream.read_exact(&mut head).expect("a reply");
                let error = u32::from_be_bytes(head[4..8].try_into().expect("four"));
                let cookie = u64::from_be_bytes(head[8..].try_into().expect("eight"));
                answers.push((cookie, error));
            }
            answers.sort_unstable();
            // ENOSPC of NBD.
            assert_eq!(answers, [(3, 0), (4, 0), (77, 28)], "cut at {at}");
            client.check();
        }
    }
    daemon.stop();
}

#[test]
fn replies_that_a_client_does_not_read_are_there_after_a_takeover() {
    let disk = Backing::File.vm("a", "64 MiB", "");
    let mut daemon = Daemon::start(&[Backing::File.device(""), disk].concat());
    let bytes = noise(5, 8 << 20);
    std::fs::write(daemon.path("bytes"), &bytes).expect("room");
    let file = daemon.path("bytes");
    let command = format!("write -s {} 0 8M", file.display());
    qemu_io(daemon.scratch(), &daemon.uri("a"), &[&command]);
    let mut client = Client::new(&daemon, "a");
    // More than the sockets' buffers take.
    for at in 0..64 {
        client.send(&request(READ, at, at * (128 << 10), 128 << 10));
    }
    wait_for("the reads", || requests(&daemon, "a") > 8);
    // The next daemons get what the first could not send, and pass on what they cannot.
    take_over(&mut daemon);
    take_over(&mut daemon);
    let mut read = 0;
    for _ in 0..64 {
        if read == 20 {
            take_over(&mut daemon);
        }
        let at = client.receive() as usize * (128 << 10);
        let mut data = vec![0; 128 << 10];
        client.stream.read_exact(&mut data).expect("data");
        assert!(data == bytes[at..at + data.len()], "bytes at {at} differ");
        read += 1;
    }
    assert_eq!(read, 64);
    client.check_is_alive();
    daemon.stop();
}

impl Client {
    /// Has a request answered.
    pub(crate) fn check_is_alive(&mut self) {
        self.send(&request(FLUSH, 5, 0, 0));
        assert_eq!(self.receive(), 5);
    }
}

/// Returns what a test has changed: VMs, the policy, a deadline transfer.
fn changed(daemon: &Daemon) -> Value {
    let vms = ["a", "b", "c"].map(|vm| {
        let view = tidegate_json(daemon, &["vm", "show", vm]);
        let disks = view["disks"].as_array().expect("a list");
        let exports: Vec<_> = disks.iter().map(|disk| disk["export"].clone()).collect();
        json!([view["objective"], exports, view["background"]])
    });
    let device = tidegate_json(daemon, &["device", "show", "disk"]);
    let list = tidegate_json(daemon, &["transfer", "list"]);
    json!([vms, device["policy"], list["transfers"][0]["size"]])
}

#[test]
fn what_was_changed_while_the_daemon_ran_is_so_in_the_next_one() {
    let store = "[store]\npath = \"store\"\n";
    let config = [
        store,
        &Backing::File.device("policy = \"mclock\""),
        &Backing::File.vm("a", "1 MiB", ""),
        &Backing::File.vm("gone", "1 MiB", ""),
    ]
    .concat();
    let mut daemon = Daemon::start(&config);
    let changes: [&[&str]; 6] = [
        &[
            "vm",
            "add",
            "b",
            "--disk",
            "path=b.raw,size=1 MiB,create=sparse",
            "--weight",
            "70",
        ],
        &[
            "vm",
            "add",
            "c",
            "--disk",
            "path=c.raw,size=1 MiB,create=sparse",
            "--persist",
        ],
        &["vm", "set", "c", "--weight", "30"],
        &["vm", "set", "a", "--limit", "500 IOPS"],
        &["policy", "set", "disk", "token-bucket+mclock"],
        &["vm", "remove", "gone"],
    ];
    for change in changes {
        tidegate(&daemon, change);
    }
    tidegate(
        &daemon,
        &[
            "transfer",
            "start",
            "a",
            "--size",
            "1 GiB",
            "--deadline",
            "1 h",
        ],
    );
    let before = changed(&daemon);
    let mut clients = ["a", "b", "c"].map(|vm| Client::new(&daemon, vm));
    for _ in 0..2 {
        take_over(&mut daemon);
        assert_eq!(changed(&daemon), before);
        for client in &mut clients {
            client.check_is_alive();
        }
    }
    let list = tidegate_json(&daemon, &["vm", "list"]);
    let vms = list["vms"]
        .as_array()
        .or(list.as_array())
        .map_or(0, Vec::len);
    assert_eq!(vms, 3, "a VM that was removed is back: {list}");
    daemon.stop();
}

/// Connection to the socket of a takeover that speaks its protocol as far as a test wants.
pub(crate) struct Peer(UnixStream);

impl Peer {
    pub(crate) fn new(daemon: &Daemon) -> Peer {
        Peer(daemon.connect("control.sock.takeover").expect("it listens"))
    }

    pub(crate) fn send(&mut self, message: &Value) {
        let json = message.to_string();
        let mut head = b"TGTO".to_vec();
        head.extend((json.len() as u32).to_le_bytes());
        head.extend([0; 12]);
        self.0.write_all(&head).expect("it reads");
        self.0.write_all(json.as_bytes()).expect("it reads");
    }

    /// Receives a message; its descriptors are closed by the kernel.
    pub(crate) fn receive(&mut self) -> Value {
        let mut head = [0; 20];
        self.0.read_exact(&mut head).expect("a message");
        let number = |at: usize| u32::from_le_bytes(head[at..at + 4].try_into().expect("four"));
        let long = u64::from_le_bytes(head[8..16].try_into().expect("eight"));
        let groups = number(16).div_ceil(253) as usize;
        let mut rest = vec![0; groups + number(4) as usize + long as usize];
        self.0.read_exact(&mut rest).expect("all of it");
        let json = &rest[groups..groups + number(4) as usize];
        serde_json::from_slice(json).expect("JSON")
    }

    fn hello(&mut self, format: u64) {
        self.send(&json!({ "message": "hello", "format": format, "build": "test" }));
    }

    /// Goes through a takeover up to the state of the clients, which are paused then.
    pub(crate) fn pause(&mut self) {
        self.hello(2);
        assert_eq!(self.receive()["message"], "hello");
        assert_eq!(self.receive()["message"], "plan");
        for (step, answer) in [("prepare", "prepared"), ("pause", "state")] {
            self.send(&json!({ "message": step }));
            assert_eq!(self.receive()["message"], answer);
        }
    }
}

#[test]
fn a_new_daemon_that_ends_in_any_phase_leaves_the_old_one_as_it_was() {
    let config = [
        "[store]\npath = \"store\"\n",
        &Backing::File.device(""),
        &Backing::File.vm("a", "1 MiB", ""),
    ]
    .concat();
    let mut daemon = Daemon::start(&config);
    let mut client = Client::new(&daemon, "a");
    for phase in 0..6 {
        let bytes = client.write(phase, 40 + phase as u8);
        client.send(&bytes);
        assert_eq!(client.receive(), phase as u64);
        let half = client.write(100 + phase, 9);
        client.send(&half[..500]);
        let mut peer = Peer::new(&daemon);
        let steps = ["prepare", "pause", "taken"];
        if phase > 0 {
            peer.hello(2);
            assert_eq!(peer.receive()["message"], "hello");
        }
        if phase > 1 {
            let plan = peer.receive();
            assert_eq!(plan["message"], "plan");
            assert_eq!(plan["vms"][0]["name"], "a");
        }
        for (step, answer) in steps.iter().zip(["prepared", "state", ""]) {
            let at = steps.iter().position(|it| it == step).expect("it is there");
            if phase < 3 + at || *step == "taken" {
                break;
            }
            peer.send(&json!({ "message": step }));
            assert_eq!(peer.receive()["message"], answer);
        }
        if phase == 5 {
            // In the middle of a message.
            peer.0.write_all(b"TGTO").expect("it reads");
        }
        drop(peer);
        client.send(&half[500..]);
        assert_eq!(client.receive(), 100 + phase as u64);
        client.check();
        // The store and changes are its own again.
        wait_for("changes", || {
            let socket = daemon.path("control.sock");
            let set = std::process::Command::new(env!("CARGO_BIN_EXE_tidegate"))
                .args(["--socket", socket.to_str().expect("a plain name")])
                .args(["vm", "set", "a", "--weight", "50", "--persist"])
                .output();
            set.expect("it starts").status.success()
        });
    }
    take_over(&mut daemon);
    client.check();
    daemon.stop();
}

#[test]
fn a_daemon_of_another_version_is_refused_before_anything_is_touched() {
    let daemon = one_disk("");
    let mut client = Client::new(&daemon, "a");
    let mut peer = Peer::new(&daemon);
    peer.hello(99);
    assert_eq!(peer.receive()["format"], 2);
    let mut rest = Vec::new();
    peer.0.read_to_end(&mut rest).expect("the end");
    assert_eq!(rest, b"", "nothing is handed over");
    wait_for("the reason", || daemon.logged(&["format 99"]));
    client.check();
    daemon.stop();
}

#[test]
fn a_configuration_without_a_disk_in_use_is_refused() {
    let mut daemon = one_disk("");
    let mut client = Client::new(&daemon, "a");
    let path = daemon.path("tidegate.toml");
    let text = std::fs::read_to_string(&path).expect("it is there");
    let other = text.replace("name = \"a\"", "name = \"z\"");
    let other = other
        .replace("export = \"a\"", "export = \"z\"")
        .replace("a.raw", "z.raw");
    std::fs::write(&path, other).expect("writable");
    let ended = daemon.take_over();
    assert!(ended.is_err_and(|status| !status.success()), "{ended:?}");
    assert!(daemon.logged(&["export \"a\", which is not served here"]));
    client.check();
    std::fs::write(&path, text).expect("writable");
    take_over(&mut daemon);
    client.check();
    daemon.stop();
}

#[test]
fn a_disk_in_memory_is_not_taken_over() {
    let disk = Backing::Memory.vm("a", "1 MiB", "");
    let mut daemon = Daemon::start(&[Backing::Memory.device(""), disk].concat());
    let mut client = Client::new(&daemon, "a");
    let ended = daemon.take_over();
    assert!(ended.is_err_and(|status| !status.success()), "{ended:?}");
    assert!(daemon.logged(&["disk \"a\" is in memory"]));
    client.check();
    daemon.stop();
}

#[test]
fn a_daemon_is_not_taken_over_if_its_configuration_says_so() {
    let mut daemon = one_disk("[daemon]\ntakeover = false\n");
    let mut client = Client::new(&daemon, "a");
    let ended = daemon.take_over();
    assert!(ended.is_err_and(|status| !status.success()), "{ended:?}");
    assert!(daemon.logged(&["no daemon to take over"]));
    client.check();
    daemon.stop();
}
