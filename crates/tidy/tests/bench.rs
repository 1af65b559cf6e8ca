//! Client and floor of `make bench-nbd`, run against each other: figures of a client that does not
//! notice other data, or of a server that moves other bytes, would say nothing of any server.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

/// Size of each disk in bytes.
const DISK_BYTES: usize = 1 << 20;
/// Unit that begins with its own number, in bytes.
const PAGE: usize = 4096;

/// Compiles a program of `bench` into `folder`; `None` if there is no C compiler.
fn compile(name: &str, folder: &Path) -> Option<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../bench/{name}.c"));
    let program = folder.join(name);
    let mut cc = Command::new("cc");
    cc.args(["-O1", "-Wall", "-Wextra", "-Werror", "-pthread", "-o"]);
    let output = cc.arg(&program).arg(source).output().ok()?;
    assert!(output.status.success(), "{output:?}");
    Some(program)
}

/// A disk whose pages begin with their numbers, as `bench/measure.py` fills it.
fn numbered_pages() -> Vec<u8> {
    let mut disk = vec![0xa5; DISK_BYTES];
    for (number, page) in disk.chunks_mut(PAGE).enumerate() {
        page[..8].copy_from_slice(&(number as u64).to_le_bytes());
    }
    disk
}

/// The floor, serving `disks` on `socket`, until it is dropped.
struct Floor(Child);

impl Drop for Floor {
    fn drop(&mut self) {
        self.0.kill().expect("it runs");
        self.0.wait().expect("it was started");
    }
}

impl Floor {
    fn start(program: &Path, socket: &str, disks: &Path) -> Floor {
        let mut floor = Floor(
            Command::new(program)
                .arg(socket)
                .arg(disks)
                .stdout(Stdio::piped())
                .spawn()
                .unwrap(),
        );
        let mut said = String::new();
        let output = floor.0.stdout.as_mut().expect("it is a pipe");
        BufReader::new(output).read_line(&mut said).unwrap();
        assert_eq!(said, "listening\n");
        floor
    }
}

#[test]
fn the_client_finds_wrong_data_and_the_floor_moves_the_right_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let programs = ["nbd_floor", "nbd_client"].map(|name| compile(name, folder.path()));
    let [Some(floor), Some(client)] = programs else {
        println!("skipped: no C compiler");
        return;
    };
    let disks = folder.path().join("disks");
    fs::create_dir(&disks).unwrap();
    for disk in ["d0", "d1"] {
        fs::write(disks.join(disk), numbered_pages()).unwrap();
    }
    let socket = folder.path().join("floor.sock").display().to_string();
    let _floor = Floor::start(&floor, &socket, &disks);
    let run = |exports: &str, rw: &str, block: &str, depth: &str, bytes: usize| -> Output {
        let load = [exports, rw, block, depth, "2", "1", &bytes.to_string()];
        let mut command = Command::new(&client);
        command.arg(&socket).args(load).output().unwrap()
    };

    for (rw, block, depth) in [
        ("mixed", "131072", "32"),
        ("fsync", "4096", "128"),
        ("read", "4096", "1"),
    ] {
        let output = run("d0,d1", rw, block, depth, DISK_BYTES);
        assert!(output.status.success(), "{rw}: {output:?}");
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(text.starts_with("{\"requests\": "), "{text}");
        assert!(!text.starts_with("{\"requests\": 0,"), "{text}");
    }
    // Each disk was written by one of both connections, which keeps the numbers.
    for disk in ["d0", "d1"] {
        let (before, after) = (numbered_pages(), fs::read(disks.join(disk)).unwrap());
        assert!(after != before, "nothing was written to {disk}");
        let numbers = |disk: &[u8]| disk.chunks(PAGE).map(|page| page[..8].to_vec()).collect();
        let [before, after]: [Vec<Vec<u8>>; 2] = [numbers(&before), numbers(&after)];
        assert!(after == before, "pages of {disk} were written to others");
    }

    let wrong = fs::File::options()
        .write(true)
        .open(disks.join("d1"))
        .unwrap();
    wrong.write_all_at(&[1], 6).unwrap();
    let output = run("d0,d1", "read", "4096", "32", DISK_BYTES);
    assert!(!output.status.success(), "wrong data went unnoticed");
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("other data than the disk's"), "{said}");
    assert!(
        !run("d2", "read", "4096", "1", DISK_BYTES).status.success(),
        "there is no such export"
    );
}
