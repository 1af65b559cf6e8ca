//! Takeovers around changes: of the configuration, of disks, and of the running daemon itself.

use std::io::Read as _;
use std::time::{Duration, Instant};

use crate::control::{requests, tidegate, tidegate_json};
use crate::daemon::{Backing, Daemon, signal, wait_for};
use crate::faults::{choose, connect, request};
use crate::resizing::ask;
use crate::takeover::{BLOCK, Client, Peer, READ, one_disk, take_over};
use crate::tool::{Running, arg};

#[test]
fn a_path_that_was_edited_to_another_file_is_refused() {
    let mut daemon = one_disk("");
    let mut client = Client::new(&daemon, "a");
    let bytes = client.write(3, 9);
    client.send(&bytes);
    assert_eq!(client.receive(), 3);
    let path = daemon.path("tidegate.toml");
    let text = std::fs::read_to_string(&path).expect("it is there");
    // Another file of the same size; the clients' own bytes are in the first.
    std::fs::write(daemon.path("b.raw"), vec![0; 1 << 20]).expect("room");
    std::fs::write(&path, text.replace("a.raw", "b.raw")).expect("writable");
    let ended = daemon.take_over();
    assert!(ended.is_err_and(|status| !status.success()), "{ended:?}");
    assert!(daemon.logged(&["disk \"a\" is on another file than the one that is served"]));
    client.check();
    // The file that is served, by another name.
    std::fs::hard_link(daemon.path("a.raw"), daemon.path("c.raw")).expect("one file system");
    std::fs::write(&path, text.replace("a.raw", "c.raw")).expect("writable");
    take_over(&mut daemon);
    client.check();
    daemon.stop();
}

/// Starts a daemon beside the one of a test with a file of its disk; returns what it says as it
/// ends, for which the file has to be locked.
fn refused_beside(daemon: &Daemon, file: &str) -> String {
    let config = format!(
        "[[listen]]\nunix = \"other.sock\"\n[control]\nsocket = \"other-control.sock\"\n\
         {}[[vm]]\nname = \"other\"\n[[vm.disk]]\npath = \"{file}\"\n",
        Backing::File.device("")
    );
    std::fs::write(daemon.path("other.toml"), config).expect("room");
    let file = daemon.path("other.toml");
    let args = ["serve", arg(&file)];
    let program = env!("CARGO_BIN_EXE_tidegate");
    let done = Running::start(daemon.scratch(), program, &args).wait();
    assert!(!done.status.success(), "{}", done.err);
    done.err
}

#[test]
fn a_daemon_that_is_stopped_while_the_next_one_prepares_leaves_it_the_locks() {
    // Opening many disks takes a while.
    let mut config = Backing::File.device("");
    for disk in 0..200 {
        config.push_str(&Backing::File.vm(&format!("d{disk}"), "64 KiB", ""));
    }
    let mut daemon = Daemon::start(&config);
    let mut next = daemon.spawn_next();
    // The running daemon's line, and the next one's once the running one has closed its store.
    wait_for("the next daemon to prepare", || {
        daemon.log().matches("control API at").count() == 2
    });
    signal(next.id(), "STOP");
    if daemon.logged(&["handed over"]) {
        // The next one was quicker than this test: nothing is left to be seen.
        signal(next.id(), "CONT");
        assert!(daemon.wait().success());
        daemon.replace(next);
        return daemon.stop();
    }
    daemon.signal("TERM");
    assert!(daemon.wait().success());
    signal(next.id(), "CONT");
    wait_for("the next daemon to serve", || {
        assert!(matches!(next.try_wait(), Ok(None)), "it has ended");
        daemon.logged(&["its clients have to connect again"])
            && daemon.log().matches("INFO serving").count() == 2
    });
    let error = refused_beside(&daemon, "d0.raw");
    assert!(error.contains("in use by another process"), "{error}");
    daemon.replace(next);
    // By the files of its sockets, which the daemon that has ended left.
    Client::new(&daemon, "d0").check_is_alive();
    tidegate(&daemon, &["vm", "set", "d0", "--weight", "30"]);
    take_over(&mut daemon);
    Client::new(&daemon, "d0").check_is_alive();
    daemon.stop();
}

#[test]
fn a_daemon_that_is_stopped_while_its_clients_are_paused_leaves_the_sockets() {
    let mut daemon = one_disk("");
    let mut peer = Peer::new(&daemon);
    peer.pause();
    daemon.signal("TERM");
    assert!(daemon.wait().success());
    // A new daemon in the place of this peer would go on with them.
    for socket in ["nbd.sock", "control.sock", "control.sock.takeover"] {
        assert!(daemon.path(socket).exists(), "{socket}");
    }
    // One that starts without any is not in the way of its own.
    let mut daemon = daemon.start_again();
    Client::new(&daemon, "a").check_is_alive();
    take_over(&mut daemon);
    daemon.stop();
}

#[test]
fn a_client_whose_handshake_ends_while_others_are_paused_is_served_after_a_refusal() {
    let daemon = one_disk("");
    let slow = connect(&daemon);
    let mut peer = Peer::new(&daemon);
    peer.pause();
    let slow = std::thread::spawn(move || choose(slow, "a"));
    // The client's last answer comes while clients are paused.
    let mut client = Client {
        stream: slow.join().expect("it is answered"),
        blocks: vec![0; 256],
    };
    drop(peer);
    client.check();
    daemon.stop();
}

#[test]
fn a_daemon_that_systemd_has_started_is_not_taken_over() {
    let config = [Backing::File.device(""), Backing::File.vm("a", "1 MiB", "")].concat();
    // A socket without a listener is only a warning.
    let mut daemon = Daemon::start_with(&[("NOTIFY_SOCKET", "/nonexistent/notify")], &config);
    let mut client = Client::new(&daemon, "a");
    let ended = daemon.take_over();
    assert!(ended.is_err_and(|status| !status.success()), "{ended:?}");
    assert!(daemon.logged(&["systemd has started the running daemon"]));
    assert!(daemon.logged(&["systemctl restart tidegate"]));
    client.check();
    daemon.stop();
}

#[test]
fn a_disk_that_was_resized_below_its_clients_goes_over() {
    let mut daemon = one_disk("");
    let mut client = Client::new(&daemon, "a");
    let bytes = client.write(255, 9);
    client.send(&bytes);
    assert_eq!(client.receive(), 255);
    tidegate(&daemon, &["vm", "resize", "a", "2 MiB"]);
    take_over(&mut daemon);
    client.check();
    let mut grown = Client::new(&daemon, "a");
    grown.send(&request(READ, 8, (2 << 20) - BLOCK as u64, BLOCK as u32));
    assert_eq!(grown.receive(), 8);
    daemon.stop();
}

/// Configuration of three VMs under one limit each: of a limit group, of a disk, and of a VM.
fn limited_in_each_way(limit: &str) -> String {
    [
        &Backing::File.device("policy = \"limit\""),
        "[[device.limit_group]]\nname = \"logs\"\n",
        limit,
        "\n",
        &Backing::File.vm("shared", "1 MiB", "limit_group = \"logs\""),
        &Backing::File.vm("own", "1 MiB", limit),
        &Backing::File.vm("vm", "1 MiB", ""),
        "[vm.objective]\n",
        limit,
        "\n",
    ]
    .concat()
}

#[test]
fn a_takeover_buys_no_burst() {
    const LIMIT: &str =
        "limit = { total = \"4 IOPS\", burst = { total = \"400 IOPS\", length = \"100 ms\" } }";
    /// Requests that the burst lets go.
    const BURST: usize = 40;
    let mut daemon = Daemon::start(&limited_in_each_way(LIMIT));
    let began = Instant::now();
    let clients = ["shared", "own", "vm"].map(|disk| Client::new(&daemon, disk));
    let read = |client: &mut Client, requests: usize| {
        for block in 0..requests {
            // Not beside each other: a VM's limit lets requests go together that were merged.
            let offset = (3 * block * BLOCK) as u64;
            client.send(&request(READ, 7, offset, BLOCK as u32));
        }
        let mut replies = vec![0; requests * (16 + BLOCK)];
        client.stream.read_exact(&mut replies).expect("replies");
    };
    let each = |clients: [Client; 3], requests| {
        let reads = clients.map(|mut client| {
            std::thread::spawn(move || {
                read(&mut client, requests);
                (client, began.elapsed())
            })
        });
        reads.map(|thread| thread.join().expect("it is answered"))
    };
    let clients = each(clients, BURST + 4).map(|(client, _)| client);
    take_over(&mut daemon);
    // No bound on the speed of this machine: the limits allow no more in a shorter time.
    for (at, (_, elapsed)) in each(clients, 12).into_iter().enumerate() {
        assert!(elapsed >= Duration::from_secs(3), "{at}: {elapsed:?}");
    }
    daemon.stop();
}

#[test]
fn a_limit_that_was_raised_in_the_file_ends_the_waits_under_the_former_one() {
    const LIMIT: &str = "limit = \"4 B/s\"";
    let mut daemon = Daemon::start(&limited_in_each_way(LIMIT));
    let mut clients = ["shared", "own", "vm"].map(|disk| Client::new(&daemon, disk));
    let ask = |client: &mut Client, offset: usize| {
        client.send(&request(READ, 7, offset as u64, BLOCK as u32));
    };
    let receive = |client: &mut Client| {
        let mut reply = vec![0; 16 + BLOCK];
        client.stream.read_exact(&mut reply).expect("a reply");
    };
    for client in &mut clients {
        ask(client, 0);
        receive(client);
        // Waits for minutes.
        ask(client, 3 * BLOCK);
    }
    let path = daemon.path("tidegate.toml");
    let text = std::fs::read_to_string(&path).expect("it is there");
    std::fs::write(&path, text.replace("4 B/s", "100 MB/s")).expect("writable");
    take_over(&mut daemon);
    clients.iter_mut().for_each(receive);
    daemon.stop();
}

#[test]
fn limits_that_were_changed_at_run_time_go_over_unless_the_file_has_others() {
    let config = [
        "[store]\npath = \"kept.redb\"\n\n",
        &Backing::File.device(""),
        "[[device.limit_group]]\nname = \"logs\"\nlimit = \"500 IOPS\"\n\
         [[device.limit_group]]\nname = \"rest\"\nlimit = \"9 MB/s\"\n\n",
        &Backing::File.vm("a", "1 MiB", "limit_group = \"logs\""),
    ]
    .concat();
    let mut daemon = Daemon::start(&config);
    let disk = "path=b.raw,size=1 MiB,create=sparse";
    tidegate(&daemon, &["vm", "add", "b", "--disk", disk, "--persist"]);
    tidegate(&daemon, &["disk", "set", "b", "--limit", "300 IOPS"]);
    let change = ["--limit", "400 IOPS", "--burst", "700 IOPS"];
    tidegate(
        &daemon,
        &[&["device", "limit", "disk", "logs"], &change[..]].concat(),
    );
    let group = |daemon: &Daemon, index: usize| {
        let device = tidegate_json(daemon, &["device", "show", "disk"]);
        device["limit_groups"][index]["limit"].clone()
    };
    let changed = group(&daemon, 0);
    assert_eq!(changed["burst"]["total"], "700 IOPS", "{changed}");
    let mut client = Client::new(&daemon, "a");
    for _ in 0..2 {
        take_over(&mut daemon);
        assert_eq!(group(&daemon, 0), changed);
        assert_eq!(group(&daemon, 1)["total"], "9 MB/s");
        let vm = tidegate_json(&daemon, &["vm", "show", "b"]);
        assert_eq!(vm["disks"][0]["limit"]["total"], "300 IOPS", "{vm}");
        client.check_is_alive();
    }
    // An operator who edits the file means what it says.
    let path = daemon.path("tidegate.toml");
    let text = std::fs::read_to_string(&path).expect("it is there");
    std::fs::write(&path, text.replace("500 IOPS", "600 IOPS")).expect("writable");
    take_over(&mut daemon);
    assert_eq!(group(&daemon, 0)["total"], "600 IOPS");
    client.check_is_alive();
    daemon.stop();
}

#[test]
fn a_socket_that_goes_over_gets_the_mode_of_the_new_configuration() {
    let mut daemon = one_disk("");
    let mode = |daemon: &Daemon| {
        let file = std::fs::metadata(daemon.path("nbd.sock")).expect("a socket");
        std::os::unix::fs::PermissionsExt::mode(&file.permissions()) & 0o777
    };
    let before = mode(&daemon);
    assert_ne!(before, 0o640);
    let path = daemon.path("tidegate.toml");
    let text = std::fs::read_to_string(&path).expect("it is there");
    let other = text.replace(
        "unix = \"nbd.sock\"",
        "unix = \"nbd.sock\"\nmode = \"0640\"",
    );
    // A daemon that is refused changes nothing.
    std::fs::write(&path, other.replace("a.raw", "b.raw")).expect("writable");
    assert!(daemon.take_over().is_err());
    assert_eq!(mode(&daemon), before);
    std::fs::write(&path, other).expect("writable");
    take_over(&mut daemon);
    wait_for("the mode", || mode(&daemon) == 0o640);
    Client::new(&daemon, "a").check();
    daemon.stop();
}

#[test]
fn replies_that_a_client_does_not_read_are_there_after_a_takeover_and_a_stop() {
    let disk = Backing::File.vm("a", "64 MiB", "");
    let mut daemon = Daemon::start(&[Backing::File.device(""), disk].concat());
    let mut client = Client::new(&daemon, "a");
    // More than the sockets' buffers take.
    const LEN: u32 = 128 << 10;
    let count: u64 = 16;
    for at in 0..count {
        client.send(&request(READ, at, at * u64::from(LEN), LEN));
    }
    wait_for("the reads", || requests(&daemon, "a") == count);
    take_over(&mut daemon);
    daemon.signal("TERM");
    wait_for("the stop", || {
        daemon.logged(&["SIGTERM: finishing requests"])
    });
    let mut data = vec![1; LEN as usize];
    let mut answered: Vec<u64> = (0..count)
        .map(|_| {
            let cookie = client.receive();
            client.stream.read_exact(&mut data).expect("data");
            cookie
        })
        .collect();
    answered.sort_unstable();
    assert!(answered.into_iter().eq(0..count));
    assert!(daemon.wait().success());
    assert!(daemon.logged(&["every request was finished"]));
}

/// Returns the exports that are served, in their order.
fn exports(daemon: &Daemon) -> Vec<String> {
    let list = tidegate_json(daemon, &["vm", "list"]);
    let vms = list.as_array().expect("a list").clone();
    let disks = vms.iter().flat_map(|vm| {
        let name = vm["name"].as_str().expect("a name");
        let shown = tidegate_json(daemon, &["vm", "show", name]);
        shown["disks"].as_array().expect("disks").clone()
    });
    let mut exports: Vec<_> = disks
        .map(|disk| disk["export"].as_str().expect("a name").to_owned())
        .collect();
    exports.sort();
    exports
}

#[test]
fn a_vm_of_the_store_goes_over_as_it_is_and_a_restart_has_its_record() {
    let store = "[store]\npath = \"store\"\n";
    let disk = Backing::File.vm("a", "1 MiB", "");
    let mut daemon = Daemon::start(&[store, &Backing::File.device(""), &disk].concat());
    let add = |name: &str, more: &[&str]| {
        let disks = [name, "logs", "extra"].map(|part| {
            format!("export={name}-{part},path={name}-{part}.raw,size=1 MiB,create=sparse")
        });
        let [first, logs, _] = &disks;
        let args = [
            "vm",
            "add",
            name,
            "--disk",
            first,
            "--disk",
            logs,
            "--persist",
        ];
        tidegate(&daemon, &[&args[..], more].concat());
    };
    add("b", &["--limit", "900 IOPS"]);
    add("gone", &[]);
    tidegate(&daemon, &["vm", "remove", "b", "--disk", "b-logs"]);
    tidegate(&daemon, &["vm", "set", "b", "--limit", "800 IOPS"]);
    tidegate(&daemon, &["vm", "resize", "b", "b-b", "2 MiB"]);
    tidegate(&daemon, &["vm", "remove", "gone"]);
    let extra = daemon.path("b-extra.raw");
    let extra = serde_json::json!({ "path": extra, "size": "1 MiB", "create": "sparse" });
    let mut control = daemon.connect("control.sock").expect("it listens");
    let place = "/v1/vms/b/disks/b-extra";
    let (status, answer) = ask(&mut control, "PUT", place, &extra.to_string());
    assert_eq!(status, 201, "{answer}");
    let mut clients = ["b-b", "b-extra"].map(|export| Client::new(&daemon, export));
    let served = ["a", "b-b", "b-extra"];
    assert_eq!(exports(&daemon), served);
    // The second daemon has it from the first one, the third from the second.
    for _ in 0..2 {
        take_over(&mut daemon);
        assert_eq!(exports(&daemon), served);
        let vm = tidegate_json(&daemon, &["vm", "show", "b"]);
        assert_eq!(vm["objective"]["limit"]["total"], "800 IOPS", "{vm}");
        for client in &mut clients {
            client.check_is_alive();
        }
    }
    drop(clients);
    let daemon = daemon.restart();
    assert_eq!(
        exports(&daemon),
        ["a", "b-b", "b-logs", "gone-gone", "gone-logs"]
    );
    let vm = tidegate_json(&daemon, &["vm", "show", "b"]);
    assert_eq!(vm["objective"]["limit"]["total"], "900 IOPS", "{vm}");
    daemon.stop();
}

#[test]
fn a_vm_of_the_store_that_could_not_be_served_is_tried_again_by_the_next_daemon() {
    let store = "[store]\npath = \"store\"\n";
    let daemon = Daemon::start(&[store, &Backing::File.device("")].concat());
    let disk = "path=b.raw,size=1 MiB,create=sparse";
    tidegate(&daemon, &["vm", "add", "b", "--disk", disk, "--persist"]);
    let (file, aside) = (daemon.path("b.raw"), daemon.path("aside"));
    std::fs::rename(&file, &aside).expect("one directory");
    let mut daemon = daemon.restart();
    assert!(exports(&daemon).is_empty());
    take_over(&mut daemon);
    assert!(exports(&daemon).is_empty());
    std::fs::rename(&aside, &file).expect("one directory");
    take_over(&mut daemon);
    assert_eq!(exports(&daemon), ["b"]);
    daemon.stop();
}
