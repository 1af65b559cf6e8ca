use std::time::Duration;

use super::super::probe;
use super::*;
use tidegate_core::objective::Limit;

use crate::config::DiskFormat;

fn config(size: Option<u64>, create: Create) -> DiskConfig {
    DiskConfig {
        export: "e".into(),
        path: None,
        within: None,
        size,
        create,
        format: DiskFormat::Probe,
        read_only: false,
        nbd: None,
        incoming: false,
        block_size: 512,
        limit: Limit::NONE,
        limit_group: None,
        faults: Vec::new(),
        place: None,
    }
}

#[test]
fn a_second_opener_is_refused_and_may_come_later() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("d");
    let first = OpenFile::open(&path, &config(Some(1 << 20), Create::Sparse)).unwrap();
    let second = OpenFile::open(&path, &config(None, Create::No));
    assert!(matches!(second, Err(OpenError::InUse { .. })), "{second:?}");
    drop(first);
    let third = OpenFile::open(&path, &config(None, Create::No)).unwrap();
    assert_eq!(third.facts.size, 1 << 20);
}

#[test]
fn sizes_must_agree() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("d");
    std::fs::write(&path, vec![0; 8192]).unwrap();
    let error = OpenFile::open(&path, &config(Some(4096), Create::Sparse)).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("8 KiB long, but size says 4 KiB"),
        "{error}"
    );
    assert!(OpenFile::open(&path, &config(Some(8192), Create::No)).is_ok());
    let missing = OpenFile::open(&dir.path().join("x"), &config(Some(1), Create::No));
    assert!(matches!(missing, Err(OpenError::Io { what: "open", .. })));
}

#[test]
fn a_preallocated_disk_has_its_blocks() {
    use std::os::unix::fs::MetadataExt;
    let dir = tempfile::tempdir().unwrap();
    let open = |name: &str, create| {
        OpenFile::open(&dir.path().join(name), &config(Some(1 << 20), create)).unwrap()
    };
    let full = open("full", Create::Preallocated);
    assert!(full.file.metadata().unwrap().blocks() * 512 >= 1 << 20);
    let sparse = open("sparse", Create::Sparse);
    assert!(sparse.file.metadata().unwrap().blocks() * 512 < 1 << 20);
}

#[test]
fn an_empty_file_is_given_its_size_and_served_again() {
    use std::os::unix::fs::FileExt;
    let dir = tempfile::tempdir().unwrap();
    for (name, create) in [("sparse", Create::Sparse), ("full", Create::Preallocated)] {
        let path = dir.path().join(name);
        std::fs::write(&path, b"").unwrap();
        let config = config(Some(1 << 20), create);
        let read_only = DiskConfig {
            read_only: true,
            ..config.clone()
        };
        let refused = OpenFile::open(&path, &read_only);
        assert!(
            matches!(refused, Err(OpenError::Size { found: 0, .. })),
            "{refused:?}"
        );
        let open = OpenFile::open(&path, &config).unwrap();
        assert_eq!(open.file.metadata().unwrap().len(), 1 << 20);
        let writer = options(false, 0).open(&path).unwrap();
        writer.write_all_at(b"kept", 8192).unwrap();
        drop(open);
        let again = OpenFile::open(&path, &config).unwrap();
        assert_eq!(again.facts.size, 1 << 20);
        let mut found = [0; 4];
        writer.read_exact_at(&mut found, 8192).unwrap();
        assert_eq!(&found, b"kept");
    }
}

#[test]
fn a_disk_that_cannot_be_made_leaves_nothing_behind() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("d");
    // Larger than any filesystem.
    let too_large = config(Some(1 << 60), Create::Preallocated);
    let error = OpenFile::open(&path, &too_large).unwrap_err();
    assert!(
        matches!(
            error,
            OpenError::Io {
                what: "allocate",
                ..
            }
        ),
        "{error}"
    );
    assert!(!path.exists(), "what was half made was left behind");
    std::fs::write(&path, b"").unwrap();
    assert!(OpenFile::open(&path, &too_large).is_err());
    let length = std::fs::metadata(&path).expect("not ours to remove").len();
    assert_eq!(length, 0);
}

#[test]
fn a_lock_that_is_given_back_soon_is_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("d");
    let first = OpenFile::open(&path, &config(Some(1 << 20), Create::Sparse)).unwrap();
    let ending = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(150));
        drop(first);
    });
    assert!(OpenFile::open(&path, &config(None, Create::No)).is_ok());
    ending.join().unwrap();
}

#[test]
fn a_read_only_disk_that_is_made_has_its_size() {
    let dir = tempfile::tempdir().unwrap();
    let made = DiskConfig {
        read_only: true,
        ..config(Some(1 << 20), Create::Sparse)
    };
    let open = OpenFile::open(&dir.path().join("d"), &made).unwrap();
    assert_eq!(open.file.metadata().unwrap().len(), 1 << 20);
}

#[test]
fn images_are_refused_but_not_a_raw_disk_whose_guest_wrote_one() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("image");
    let mut header = b"QFI\xfb".to_vec();
    header.resize(1 << 16, 0);
    std::fs::write(&image, &header).unwrap();
    let error = OpenFile::open(&image, &config(None, Create::No))
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("qcow2") && error.contains("qemu-img convert -O raw"),
        "{error}"
    );
    let sized = OpenFile::open(&image, &config(Some(1 << 20), Create::Sparse));
    assert!(matches!(sized, Err(OpenError::Format { .. })), "{sized:?}");
    let message = DiskConfig {
        format: DiskFormat::Raw,
        ..config(None, Create::No)
    };
    assert!(OpenFile::open(&image, &message).is_ok());

    let raw = dir.path().join("raw");
    drop(OpenFile::open(&raw, &config(Some(1 << 16), Create::Sparse)).unwrap());
    let plain = File::open(&raw).unwrap();
    if !probe::is_marked(&plain) {
        return eprintln!("skipped: no extended attributes here");
    }
    std::fs::write(&raw, &header).unwrap();
    assert!(OpenFile::open(&raw, &config(None, Create::No)).is_ok());
}

/// Special files are refused without opening them: opening a FIFO would block.
#[test]
fn what_is_no_file_is_refused_before_it_is_opened() {
    let dir = tempfile::tempdir().unwrap();
    let fifo = dir.path().join("fifo");
    let name = std::ffi::CString::new(fifo.to_str().unwrap()).unwrap();
    // SAFETY: a C string that outlives the call.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
    let _socket = std::os::unix::net::UnixListener::bind(dir.path().join("socket")).unwrap();
    for (path, found) in [
        (fifo, "is a FIFO"),
        (dir.path().join("socket"), "is a socket"),
        ("/dev/null".into(), "is a character device"),
        (dir.path().to_owned(), "is a directory"),
    ] {
        for read_only in [true, false] {
            let mut config = config(None, Create::Sparse);
            config.read_only = read_only;
            let path = path.clone();
            let long = Duration::from_secs(30);
            let opened = crate::blocking_call::call(long, move || OpenFile::open(&path, &config));
            let error = opened.expect("it was opened, and waits").unwrap_err();
            assert!(error.to_string().contains(found), "{error}");
            assert!(error.help().is_some(), "{error}");
        }
    }
}

#[test]
fn an_open_file_waits_for_its_io() {
    let dir = tempfile::tempdir().unwrap();
    let made = config(Some(1 << 20), Create::Sparse);
    let open = OpenFile::open(&dir.path().join("d"), &made).unwrap();
    // SAFETY: takes no memory.
    let flags = unsafe { libc::fcntl(std::os::fd::AsRawFd::as_raw_fd(&open.file), libc::F_GETFL) };
    assert!(open.facts.in_memory || flags & libc::O_NONBLOCK == 0);
}
