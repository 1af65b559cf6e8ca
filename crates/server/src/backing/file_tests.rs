use super::*;

fn config(size: Option<u64>, create: Create) -> DiskConfig {
    DiskConfig {
        export: "e".into(),
        path: None,
        size,
        create,
        format: DiskFormat::Probe,
        read_only: false,
        block_size: 512,
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
            .contains("8192 bytes long, but size says 4096"),
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
    let said = DiskConfig {
        format: DiskFormat::Raw,
        ..config(None, Create::No)
    };
    assert!(OpenFile::open(&image, &said).is_ok());

    let raw = dir.path().join("raw");
    drop(OpenFile::open(&raw, &config(Some(1 << 16), Create::Sparse)).unwrap());
    let plain = File::open(&raw).unwrap();
    if !probe::is_marked(&plain) {
        return eprintln!("skipped: no extended attributes here");
    }
    std::fs::write(&raw, &header).unwrap();
    assert!(OpenFile::open(&raw, &config(None, Create::No)).is_ok());
}
