//! Tests of locks that are taken and released.

use std::path::PathBuf;

use super::super::file::OpenFile;
use super::*;
use tidegate_core::objective::Limit;

use crate::config::{Create, DiskFormat};

/// Disk on a file of 8 KiB.
fn disk(path: &Path, incoming: bool) -> DiskConfig {
    DiskConfig {
        export: "disk".to_owned(),
        path: Some(path.to_owned()),
        within: None,
        size: None,
        create: Create::No,
        format: DiskFormat::Probe,
        read_only: false,
        nbd: None,
        incoming,
        block_size: 512,
        limit: Limit::NONE,
        limit_group: None,
        faults: Vec::new(),
        place: None,
    }
}

fn file(bytes: &[u8]) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("disk.raw");
    std::fs::write(&path, bytes).expect("writable");
    (dir, path)
}

fn open(path: &Path, incoming: bool) -> (OpenFile, Arc<Activation>) {
    let open = OpenFile::open(path, &disk(path, incoming)).expect("opened");
    let activation = open.activation.clone().expect("it is writable");
    (open, activation)
}

fn refusal(activation: &Activation) -> String {
    activation.lock().expect_err("refused").to_string()
}

#[test]
fn an_incoming_file_is_described_without_its_lock_and_locked_once_that_is_released() {
    let (_dir, path) = file(&[0; 8192]);
    let (source, from) = open(&path, false);
    let (target, to) = open(&path, true);
    assert_eq!(target.facts.size, 8192);
    assert!(!target.facts.takes(false) && !target.facts.takes(true));
    assert_eq!(
        [from.state(), to.state()],
        [ActivationState::Active, ActivationState::Incoming]
    );
    assert!(refusal(&to).contains("in use by another process"));
    assert_eq!([from.is_locked(), to.is_locked()], [true, false]);
    from.unlock().expect("flushed");
    to.lock().expect("it is free");
    assert_eq!([from.is_locked(), to.is_locked()], [false, true]);
    assert!(refusal(&from).contains("in use by another process"));
    to.unlock().expect("flushed");
    from.lock().expect("it is free again");
    drop(source);
    to.lock().expect("a closed file has no lock");
    drop(target);
    assert!(refusal(&to).contains("the disk was removed"));
}

#[test]
fn what_was_not_looked_at_before_is_checked_under_the_lock() {
    let mut image = vec![0; 8192];
    image[..4].copy_from_slice(b"QFI\xfb");
    let (_dir, path) = file(&image);
    let (_target, to) = open(&path, true);
    assert!(refusal(&to).contains("looks like a qcow2 image"));
    std::fs::write(&path, [0; 4096]).expect("writable");
    assert!(refusal(&to).contains("is 4 KiB long, but size says 8 KiB"));
    std::fs::write(&path, [0; 8192]).expect("writable");
    // No refusal has kept the lock.
    let (source, _) = open(&path, false);
    drop(source);
    to.lock().expect("a raw disk");
    to.set_state(ActivationState::HandedOver);
    to.unlock().expect("flushed");
    // The guest may write a header of another format before the disk comes back.
    std::fs::write(&path, &image).expect("writable");
    to.lock().expect("it was raw before");
    // Also where the guest could not be started, but others wrote meanwhile.
    to.set_state(ActivationState::Incoming);
    to.unlock().expect("flushed");
    to.lock().expect("it was raw before");
}

#[test]
fn a_file_that_cannot_be_flushed_stays_locked() {
    let (_dir, path) = file(&[0; 8192]);
    // Nobody can flush a pipe.
    let (_reader, writer) = std::io::pipe().expect("a pipe");
    let pipe = Arc::new(File::from(std::os::fd::OwnedFd::from(writer)));
    let again = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&*pipe));
    let other = File::options().write(true).open(again).expect("it is ours");
    let watched = Arc::new(Watched::new(&path, (false, 0, 0), 8192));
    let activation = Activation::new(
        &path,
        &disk(&path, false),
        (true, Ownership::default()),
        (&pipe, None),
        watched,
    );
    assert_eq!(sys::lock(&pipe, true).ok(), Some(true));
    activation.unlock().expect_err("it is a pipe");
    assert_eq!(sys::lock(&other, true).ok(), Some(false));
    drop(pipe);
    activation.unlock().expect("it was closed");
    assert_eq!(sys::lock(&other, true).ok(), Some(true));
}

#[test]
fn a_path_that_leads_to_another_file_is_refused() {
    let (dir, path) = file(&[0; 8192]);
    let (_target, to) = open(&path, true);
    std::fs::write(dir.path().join("other"), [1; 8192]).expect("writable");
    std::fs::rename(dir.path().join("other"), &path).expect("replaced");
    assert!(refusal(&to).contains("another file"));
    let (_other, _) = open(&path, false);
}

#[test]
fn a_file_that_was_extended_while_it_was_served_is_locked_again_as_long_as_it_stays_so() {
    let (_dir, path) = file(&[1; 8192]);
    let (source, from) = open(&path, false);
    let extended = File::options().write(true).open(&path).expect("ours");
    // For a resize, which has not come before the guest migrates.
    std::fs::write(&path, [2; 16384]).expect("writable");
    from.unlock().expect("flushed");
    from.set_state(ActivationState::HandedOver);
    from.lock().expect("as long as when its lock was released");
    assert_eq!(source.facts.size, 8192);
    // Nothing behind the end of the disk is touched.
    assert_eq!(std::fs::read(&path).expect("readable"), [2; 16384]);
    from.unlock().expect("flushed");
    extended.set_len(12288).expect("writable");
    assert!(refusal(&from).contains("is 12 KiB long, but size says 8 KiB"));
    extended.set_len(4096).expect("writable");
    assert!(refusal(&from).contains("is 4 KiB long, but size says 8 KiB"));
    extended.set_len(8192).expect("writable");
    from.lock().expect("as long as the disk");
}

#[test]
fn an_incoming_file_that_is_longer_by_now_is_refused() {
    let (_dir, path) = file(&[0; 8192]);
    let (_target, to) = open(&path, true);
    std::fs::write(&path, [0; 16384]).expect("writable");
    assert!(refusal(&to).contains("is 16 KiB long, but size says 8 KiB"));
}
