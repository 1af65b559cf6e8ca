//! `tidegate export`, from a configuration file.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;

use crate::common::{stderr, stdout, tidegate};

/// A VM of two disks, one of them on a listener of its own, and one that nobody can attach.
const CONFIG: &str = r#"
[store]
path = "none.redb"
[[listen]]
unix = "/run/tidegate/nbd.sock"
exports = ["db"]
[[listen]]
tcp = "127.0.0.1:10809"
exports = ["logs"]
[[listen]]
vhost_user = "/run/tidegate/vhost/{vm}.sock"
exports = ["web"]
[[device]]
name = "ram"
kind = "memory"
[[vm]]
name = "db"
[[vm.disk]]
size = "8 MiB"
[[vm.disk]]
export = "logs"
size = "8 MiB"
[[vm]]
name = "ci"
[[vm.disk]]
size = "8 MiB"
[[vm]]
name = "web"
[[vm.disk]]
size = "8 MiB"
"#;

/// Runs `tidegate export` with the configuration. Returns standard output, or the message.
fn export(words: &[&str]) -> Result<String, String> {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("t.toml");
    fs::write(&file, CONFIG).expect("writable");
    let file = file.to_str().expect("plain");
    let output = tidegate(&[&["export"], words, &["--config", file]].concat());
    match output.status.code() {
        Some(0) => Ok(stdout(&output)),
        Some(1) => Err(stderr(&output)),
        code => panic!("{code:?}: {}", stderr(&output)),
    }
}

#[test]
fn arguments_of_qemu_are_one_option_a_line() {
    assert_eq!(
        export(&["qemu", "db"]).as_deref(),
        Ok(concat!(
            "-object iothread,id=tg-io \\\n",
            "-blockdev driver=nbd,node-name=tg-db,server.type=unix,",
            "server.path=/run/tidegate/nbd.sock,export=db,",
            "reconnect-delay=60,cache.direct=on,discard=unmap \\\n",
            "-device virtio-blk-pci,drive=tg-db,iothread=tg-io \\\n",
            "-blockdev driver=nbd,node-name=tg-logs,server.type=inet,",
            "server.host=127.0.0.1,server.port=10809,export=logs,",
            "reconnect-delay=60,cache.direct=on,discard=unmap \\\n",
            "-device virtio-blk-pci,drive=tg-logs,iothread=tg-io\n",
        ))
    );
}

#[test]
fn without_a_daemon_a_file_is_named_as_the_other_source() {
    let output = tidegate(&["--socket", "/nonexistent/c.sock", "export", "qemu", "db"]);
    assert_eq!(output.status.code(), Some(1));
    let message = stderr(&output);
    assert!(message.starts_with("error: no daemon listens"), "{message}");
    assert!(message.ends_with("; or add --config FILE\n"), "{message}");
}

#[test]
fn targets_of_libvirt_follow_each_other() {
    let printed = export(&["libvirt", "db"]).expect("a VM with listeners");
    let position = |text: &str| printed.find(text).unwrap_or_else(|| panic!("{printed}"));
    assert!(position("name='db'") < position("dev='vdb'"));
    assert!(position("dev='vdb'") < position("name='logs'"));
    assert!(position("port='10809'") < position("dev='vdc'"));
    let message = export(&["libvirt", "db", "--target", "vdz"]).expect_err("one letter is left");
    assert!(message.contains("use --disk"), "{message}");
    let one = export(&["libvirt", "db", "--target", "vdz", "--disk", "logs"]);
    assert!(one.expect("one disk").contains("dev='vdz'"));
}

#[test]
fn what_does_not_fit_is_said_with_what_would() {
    for (words, what, help) in [
        (
            &["qemu", "dbb"][..],
            "no VM \"dbb\"",
            "there are: db, ci, web",
        ),
        (
            &["qemu", "ci"],
            "no listener offers",
            "add \"ci\" to the exports",
        ),
        (
            &["libvirt", "db", "--disk", "x"],
            "name \"x\"",
            "there are: db, logs",
        ),
        (
            &["qemu", "db", "--listener", "/run/tidegate/nbd.sock"],
            "offers the disk \"logs\"",
            "127.0.0.1:10809 (nbd)",
        ),
        (
            &["cloud-hypervisor", "db"],
            "no NBD client",
            "add [[listen]] vhost_user =",
        ),
    ] {
        let message = export(words).expect_err("refused");
        assert!(message.starts_with("error: "), "{message}");
        assert!(message.contains(what), "{message}");
        assert!(
            message.contains("help: ") && message.contains(help),
            "{message}"
        );
    }
}

#[test]
fn a_socket_that_libvirts_qemu_cannot_open_is_noted() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("t.toml");
    fs::write(&file, CONFIG.replace("/run/tidegate/", "")).expect("writable");
    let words = ["export", "libvirt", "db", "--disk", "db", "--config"];
    let words = [&words[..], &[file.to_str().expect("plain")]].concat();
    let noted = || stderr(&tidegate(&words)).contains("only the daemon's user may connect");
    assert!(!noted(), "there is no socket");
    let socket = dir.path().join("nbd.sock");
    let _listener = UnixListener::bind(&socket).expect("a free path");
    for (mode, expected) in [(0o600, true), (0o660, false)] {
        fs::set_permissions(&socket, Permissions::from_mode(mode)).expect("it is ours");
        assert_eq!(noted(), expected, "{mode:o}");
    }
}

#[test]
fn a_vhost_user_disk_brings_shared_memory() {
    assert_eq!(
        export(&["cloud-hypervisor", "web", "--memory", "2 GiB"]).as_deref(),
        Ok("--memory size=2048M,shared=on \\\n\
            --disk vhost_user=true,socket=/run/tidegate/vhost/web.sock\n")
    );
    let printed = export(&["libvirt", "web"]).expect("a VM with a listener");
    assert!(printed.starts_with("<memoryBacking>\n"), "{printed}");
    assert!(
        printed.contains("path='/run/tidegate/vhost/web.sock'"),
        "{printed}"
    );
}
