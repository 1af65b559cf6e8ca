//! Export list of the daemon: `nbdinfo`, over unix sockets and TCP.

use std::net::TcpListener;

use serde_json::Value;

use crate::daemon::{Backing, Daemon};
use crate::on_every_backing;
use crate::tool::{have, qemu_io, run, run_json};

on_every_backing!(exports_are_listed, the_map_shows_what_was_written);

fn exports_are_listed(backing: Backing) {
    if !have(&["nbdinfo"]) {
        return;
    }
    let config = [
        backing.device(""),
        backing.vm("one", "16 MiB", ""),
        backing.vm("two", "64 MiB", "block_size = \"4 KiB\""),
        backing.disk("two-data", "32 MiB", "read_only = true"),
    ]
    .concat();
    let config = match backing {
        // A disk that is only read must be there.
        Backing::File | Backing::EmulatedFile => config.replace("read_only = true", ""),
        _ => config,
    };
    let daemon = Daemon::start(&config);
    let socket = daemon.uri("");
    let list = run_json(daemon.scratch(), "nbdinfo", &["--list", "--json", &socket]);
    let exports = list["exports"].as_array().expect("a list");
    let find = |name: &str| {
        exports
            .iter()
            .find(|export| export["export-name"] == name)
            .unwrap_or_else(|| panic!("{name} in {list}"))
    };
    assert_eq!(exports.len(), 3, "{list}");
    assert_eq!(find("one")["export-size"], 16 << 20);
    assert_eq!(find("one")["block_size_minimum"], 1);
    assert_eq!(find("two")["export-size"], 64 << 20);
    assert_eq!(find("two")["block_size_minimum"], 4096);
    for ability in [
        "can_flush",
        "can_fua",
        "can_trim",
        "can_zero",
        "can_multi_conn",
        "can_df",
    ] {
        assert_eq!(find("one")[ability], true, "{ability} in {list}");
    }
    assert_eq!(find("one")["is_read_only"], false);
    let read_only = config.contains("read_only");
    assert_eq!(find("two-data")["is_read_only"], read_only);
    for export in exports {
        let contexts = export["contexts"].as_array().expect("a list");
        assert!(contexts.iter().any(|c| c == "base:allocation"), "{list}");
    }
    daemon.stop();
}

/// From where to where.
const WRITTEN: (u64, u64) = (4 << 20, 5 << 20);

fn the_map_shows_what_was_written(backing: Backing) {
    if !have(&["nbdinfo", "qemu-io"]) {
        return;
    }
    let daemon = Daemon::start(&[backing.device(""), backing.vm("a", "16 MiB", "")].concat());
    let uri = daemon.uri("a");
    let map = |when: &str| -> Vec<(u64, u64, u64)> {
        let map = run_json(daemon.scratch(), "nbdinfo", &["--map", "--json", &uri]);
        let extents = map.as_array().unwrap_or_else(|| panic!("{when}: {map}"));
        let number = |extent: &Value, name: &str| extent[name].as_u64().expect("a number");
        extents
            .iter()
            .map(|e| (number(e, "offset"), number(e, "length"), number(e, "type")))
            .collect()
    };
    // Types are bits: 1 a hole, 2 reads as zeroes.
    let covers = |extents: &[(u64, u64, u64)]| {
        let mut at = 0;
        for &(offset, len, kind) in extents {
            assert_eq!(offset, at, "{extents:?}");
            // Nothing that was written is said to be zeroes.
            let (start, end) = WRITTEN;
            let touches = offset < end && start < offset + len;
            assert!(!touches || kind == 0, "{extents:?}");
            at += len;
        }
        assert_eq!(at, 16 << 20, "{extents:?}");
    };
    qemu_io(daemon.scratch(), &uri, &["write -P 0x5a 4M 1M", "flush"]);
    let after_write = map("after the write");
    covers(&after_write);
    if backing == Backing::File {
        // A disk in memory may be called data all over; a sparse file knows its holes.
        let holes = [
            (0, 4 << 20, 3),
            (4 << 20, 1 << 20, 0),
            (5 << 20, 11 << 20, 3),
        ];
        assert_eq!(after_write, holes);
        qemu_io(daemon.scratch(), &uri, &["discard 4M 1M", "flush"]);
        assert_eq!(map("after the discard"), [(0, 16 << 20, 3)]);
    }
    daemon.stop();
}

#[test]
fn tcp_serves_as_unix_sockets_do() {
    if !have(&["nbdinfo", "qemu-io"]) {
        return;
    }
    let backing = Backing::Memory;
    // The port is free now; another process is unlikely to take it before the daemon does.
    let port = TcpListener::bind("127.0.0.1:0")
        .and_then(|listener| listener.local_addr())
        .expect("a port is free")
        .port();
    let daemon = Daemon::start(
        &[
            format!("[[listen]]\ntcp = \"127.0.0.1:{port}\"\nexports = [\"b\"]\n"),
            backing.device(""),
            backing.vm("a", "16 MiB", ""),
            backing.vm("b", "8 MiB", ""),
        ]
        .concat(),
    );
    let uri = format!("nbd://127.0.0.1:{port}/b");
    let size = run(daemon.scratch(), "nbdinfo", &["--size", &uri]);
    assert_eq!(size.trim(), (8 << 20).to_string());
    // The first export that a listener offers is its default.
    let default = format!("nbd://127.0.0.1:{port}");
    let size = run(daemon.scratch(), "nbdinfo", &["--size", &default]);
    assert_eq!(size.trim(), (8 << 20).to_string());
    qemu_io(
        daemon.scratch(),
        &uri,
        &["write -P 7 1M 64k", "read -P 7 1M 64k"],
    );
    // It is the same disk on the other listener.
    qemu_io(daemon.scratch(), &daemon.uri("b"), &["read -P 7 1M 64k"]);
    // And what is not offered here is not to be had here.
    let list = run(daemon.scratch(), "nbdinfo", &["--list", &default]);
    assert!(
        list.contains("export=\"b\"") && !list.contains("export=\"a\""),
        "{list}"
    );
    daemon.stop();
}
