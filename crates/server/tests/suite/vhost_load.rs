//! Load of `make bench-vhost`, run against the daemon: figures of guests that do not notice other
//! data would say nothing of any server.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::common::{Server, disk, vm};
use crate::vhost_user::backing;

/// Size of each disk in bytes.
const DISK_BYTES: usize = 1 << 20;
/// Unit that begins with its own number, in bytes.
const PAGE: usize = 4096;

/// Compiles the load into `folder`; `None` if there is no C compiler.
fn compile(folder: &Path) -> Option<PathBuf> {
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../../bench/vhost_guest.c");
    let program = folder.join("vhost_guest");
    let mut cc = Command::new("cc");
    cc.args(["-O1", "-Wall", "-Wextra", "-Werror", "-pthread", "-o"]);
    let output = cc.arg(&program).arg(source).output().ok()?;
    assert!(output.status.success(), "{output:?}");
    Some(program)
}

/// Writes a disk whose pages begin with their numbers, as `bench/measure.py` fills it.
fn write_numbered_pages(path: &Path) {
    let mut bytes = vec![0xa5; DISK_BYTES];
    for (number, page) in bytes.chunks_mut(PAGE).enumerate() {
        page[..8].copy_from_slice(&(number as u64).to_le_bytes());
    }
    fs::write(path, bytes).unwrap();
}

fn numbers(path: &Path) -> Vec<Vec<u8>> {
    let bytes = fs::read(path).unwrap();
    bytes.chunks(PAGE).map(|page| page[..8].to_vec()).collect()
}

#[test]
fn the_load_of_the_benchmark_finds_wrong_data_and_keeps_what_it_writes_in_its_place() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let Some(program) = compile(dir.path()) else {
        println!("skipped: no C compiler");
        return;
    };
    let size = DISK_BYTES as u64;
    let (mut config, first) = backing(dir.path(), true, size);
    let (disks, second) = (
        ["disk.raw", "other.raw"].map(|name| dir.path().join(name)),
        dir.path().join("other.vhost"),
    );
    let other = disk("other", Some(disks[1].clone()), size);
    config.vms.push(vm("other", 0, vec![other]));
    disks.iter().for_each(|disk| write_numbered_pages(disk));
    let server = Server::start(config);
    let run = |sockets: &[&Path], rw: &str, block: &str, depth: &str, wait: &str| -> Output {
        let sockets: Vec<_> = sockets.iter().map(|it| it.display().to_string()).collect();
        let load = [rw, block, depth, wait, "1", &size.to_string()];
        let mut command = Command::new(&program);
        command.arg(sockets.join(",")).args(load).output().unwrap()
    };

    let both = [&*first, &*second];
    let before = numbers(&disks[0]);
    for (sockets, rw, block, depth, wait) in [
        (&both[..], "mixed", "4096", "32", "notify"),
        (&both[..1], "read", "131072", "128", "poll"),
        // Guests that read nothing write zeroes behind the numbers.
        (&both[..], "write", "4096", "1", "notify"),
    ] {
        let output = run(sockets, rw, block, depth, wait);
        assert!(output.status.success(), "{rw}: {output:?}");
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(text.starts_with("{\"requests\": "), "{text}");
        assert!(!text.starts_with("{\"requests\": 0,"), "{text}");
    }
    for disk in &disks {
        assert_eq!(numbers(disk), before, "pages of {} moved", disk.display());
        let bytes = fs::read(disk).unwrap();
        let is_written = |page: &[u8]| page[8..].iter().all(|&byte| byte == 0);
        assert!(bytes.chunks(PAGE).any(is_written), "{}", disk.display());
    }

    let wrong = fs::File::options().write(true).open(&disks[1]).unwrap();
    wrong.write_all_at(&[1], 6).unwrap();
    let output = run(&both[1..], "read", "4096", "32", "notify");
    assert!(!output.status.success(), "wrong data went unnoticed");
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("other data than the disk's"), "{said}");
    server.stop().unwrap();
}
