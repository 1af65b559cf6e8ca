//! Whole disks in and out: `nbdcopy`, `qemu-img convert` and `compare`.

use std::fs;

use crate::daemon::{Backing, Daemon, noise};
use crate::on_every_backing;
use crate::tool::{Running, arg, have, run};

on_every_backing!(
    nbdcopy_brings_back_what_it_took_in,
    qemu_img_converts_and_compares,
);

/// Content of a disk: data, zeroes and holes, and an end that is not a round number.
fn image() -> Vec<u8> {
    let mut image = noise(1, 3 << 20);
    image.resize(7 << 20, 0);
    image.extend(noise(2, (1 << 20) + 512));
    image.resize((12 << 20) + 1536, 0);
    image.extend(noise(3, 512));
    image
}

fn config(backing: Backing, len: usize) -> String {
    [backing.device(""), backing.vm("a", &format!("{len} B"), "")].concat()
}

fn nbdcopy_brings_back_what_it_took_in(backing: Backing) {
    if !have(&["nbdcopy"]) {
        return;
    }
    let image = image();
    let daemon = Daemon::start(&config(backing, image.len()));
    let (into, out) = (daemon.path("in.raw"), daemon.path("out.raw"));
    fs::write(&into, &image).expect("the directory is ours");
    let uri = daemon.uri("a");
    run(daemon.scratch(), "nbdcopy", &["--flush", arg(&into), &uri]);
    run(daemon.scratch(), "nbdcopy", &[&uri, arg(&out)]);
    assert!(fs::read(&out).expect("nbdcopy wrote it") == image);
    // Over what is there already, with zeroes that are to be written out, on one connection.
    let other = noise(4, image.len());
    fs::write(&into, &other).expect("the directory is ours");
    run(
        daemon.scratch(),
        "nbdcopy",
        &["--allocated", "--connections=1", arg(&into), &uri],
    );
    run(
        daemon.scratch(),
        "nbdcopy",
        &["--synchronous", &uri, arg(&out)],
    );
    assert!(fs::read(&out).expect("nbdcopy wrote it") == other);
    if backing == Backing::File {
        daemon.signal("TERM");
        let file = daemon.path("a.raw");
        let mut daemon = daemon;
        assert!(daemon.wait().success());
        assert!(fs::read(file).expect("the daemon made it") == other);
    } else {
        daemon.stop();
    }
}

fn qemu_img_converts_and_compares(backing: Backing) {
    if !have(&["qemu-img"]) {
        return;
    }
    let mut image = image();
    let daemon = Daemon::start(&config(backing, image.len()));
    let scratch = daemon.scratch();
    let (raw, qcow2) = (daemon.path("in.raw"), daemon.path("in.qcow2"));
    fs::write(&raw, &image).expect("the directory is ours");
    let uri = daemon.uri("a");
    let (raw, qcow2) = (arg(&raw), arg(&qcow2));
    run(
        scratch,
        "qemu-img",
        &["convert", "-f", "raw", "-O", "qcow2", raw, qcow2],
    );
    run(
        scratch,
        "qemu-img",
        &["convert", "-n", "-f", "qcow2", "-O", "raw", qcow2, &uri],
    );
    let compare = ["compare", "-f", "raw", "-F", "raw", raw, &uri];
    let out = run(scratch, "qemu-img", &compare);
    assert!(out.contains("Images are identical"), "{out}");

    let back = daemon.path("out.qcow2");
    run(
        scratch,
        "qemu-img",
        &["convert", "-f", "raw", "-O", "qcow2", &uri, arg(&back)],
    );
    let strict = ["compare", "-f", "raw", "-F", "qcow2", raw, arg(&back)];
    let out = run(scratch, "qemu-img", &strict);
    assert!(out.contains("Images are identical"), "{out}");

    // The comparison can tell.
    image[5 << 20] = 1;
    fs::write(raw, &image).expect("the directory is ours");
    let done = Running::start(scratch, "qemu-img", &compare).wait();
    assert_eq!(done.status.code(), Some(1), "{}", done.out);
    daemon.stop();
}
