//! Tests of the store: on files, under concurrent use, on damaged files and on a full disk.

use std::fs::OpenOptions;
use std::io::{Seek, SeekFrom, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use redb::backends::FileBackend;
use redb::{BackendError, StorageBackend, TableDefinition};
use serde_json::json;
use std::ops::Bound;

use super::file::builder;
use super::*;

/// Record of a VM with this weight.
fn vm(name: &str, weight: u32) -> VmRecord {
    VmRecord::new(
        name,
        Scope::Whole,
        &json!({ "name": name, "objective": { "weight": weight } }),
    )
}

/// Returns a new directory, and the path of a store in it that does not exist yet.
fn new_path() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("tidegate.redb");
    (dir, path)
}

/// Returns the names of the VMs in the store, in its order.
fn names(store: &Store) -> Vec<String> {
    let vms = store.vms().expect("reads");
    vms.into_iter().map(|vm| vm.name).collect()
}

/// Opens a store that must be refused; returns the error.
fn refused(path: &Path) -> StoreError {
    Store::open(path).expect_err("opened")
}

#[test]
fn records_are_there_after_reopening() {
    let (dir, path) = new_path();
    let store = Store::open(&path).expect("made");
    assert_eq!(names(&store), Vec::<String>::new());
    store.put_vm(&vm("oltp", 1)).expect("writes");
    store.put_vm(&vm("bulk", 2)).expect("writes");
    store.put_vm(&vm("oltp", 3)).expect("writes");
    let objective = VmRecord::new("scan", Scope::Objective, &json!({ "weight": 4 }));
    store.put_vm(&objective).expect("writes");
    assert!(store.remove_vm("bulk").expect("writes"));
    assert!(!store.remove_vm("bulk").expect("writes"));
    (store.put_learnt("disk0", "flubber", "oltp", b"state")).expect("writes");
    drop(store);
    let store = Store::open(&path).expect("there");
    assert_eq!(
        store.vms().expect("reads"),
        [vm("oltp", 3), objective.clone()]
    );
    assert_eq!(store.vm("scan").expect("reads"), Some(objective));
    assert_eq!(store.vm("bulk").expect("reads"), None);
    let learnt = |policy| store.learnt("disk0", policy, "oltp").expect("reads");
    assert_eq!(learnt("flubber").as_deref(), Some(&b"state"[..]));
    assert_eq!(learnt("mclock"), None);
    // No temporary file is left beside the store.
    let files: Vec<_> = std::fs::read_dir(dir.path())
        .expect("a directory")
        .collect();
    assert_eq!(files.len(), 1, "{files:?}");
}

#[test]
fn learnt_state_of_a_vm_is_removed_on_all_devices_and_of_no_other_vm() {
    let (_dir, path) = new_path();
    let store = Store::open(&path).expect("made");
    let all = ["vm", "vm1", "vm-a", "vl", "vm\u{1}"];
    for name in all {
        for (device, policy) in [("a", "flubber"), ("a", "mclock"), ("z", "flubber")] {
            (store.put_learnt(device, policy, name, name.as_bytes())).expect("writes");
        }
    }
    assert!(store.forget_learnt("vm").expect("writes"));
    assert!(!store.forget_learnt("vm").expect("writes"));
    for name in all {
        for (device, policy) in [("a", "flubber"), ("a", "mclock"), ("z", "flubber")] {
            let learnt = store.learnt(device, policy, name).expect("reads");
            let expected = (name != "vm").then(|| name.as_bytes().to_owned());
            assert_eq!(learnt, expected, "{device} {policy} {name:?}");
        }
    }
}

#[test]
fn transfers_are_replaced_by_device_and_removed_by_vm() {
    let (_dir, path) = new_path();
    let store = Store::open(&path).expect("made");
    let transfer = |vm: &str, words: &str| (vm.to_owned(), words.to_owned());
    let put = |device, transfers: &[(String, String)]| {
        let change = Change::ReplaceTransfers { device, transfers };
        store.apply(&[change]).expect("writes") > 0
    };
    let transfers = |device| store.transfers(device).expect("reads");
    assert_eq!(transfers("a"), []);
    let two = [transfer("bulk", "1"), transfer("oltp", "2")];
    assert!(put("a", &two));
    assert!(put("aa", &[transfer("oltp", "3")]));
    assert!(!put("a", &two), "nothing changes");
    assert_eq!(
        (transfers("a"), transfers("aa")),
        (two.to_vec(), vec![transfer("oltp", "3")])
    );
    assert_eq!((transfers(""), transfers("b")), (vec![], vec![]));
    // One transfer has moved further, the other has ended.
    assert!(put("a", &[transfer("oltp", "4")]));
    assert_eq!(transfers("a"), [transfer("oltp", "4")]);
    let forget = |vm| {
        store
            .apply(&[Change::ForgetTransfer { vm }])
            .expect("writes")
            > 0
    };
    assert!(!forget("bulk"));
    assert!(forget("oltp"));
    drop(store);
    let store = Store::open(&path).expect("there");
    for device in ["a", "aa"] {
        assert_eq!(store.transfers(device).expect("reads"), []);
    }
}

#[test]
fn disks_are_stored_by_path_and_removed_by_path_or_export() {
    let (_dir, path) = new_path();
    let store = Store::open(&path).expect("made");
    let disk = |path: &str, export: &str| KnownDisk {
        path: path.to_owned(),
        export: export.to_owned(),
        vm: "vm".to_owned(),
    };
    let put = |disk: &KnownDisk| store.apply(&[Change::PutDisk(disk)]).expect("writes") > 0;
    let all = [
        disk("/a", "a"),
        disk("/b", "b"),
        disk("/c", "c"),
        disk("/d", "a"),
    ];
    assert!(all.iter().all(&put));
    assert!(!put(&all[0]), "nothing changes");
    assert_eq!(store.disks().expect("reads"), all);
    assert!(store.forget_disk("/b").expect("writes"));
    assert!(
        store.forget_disk("a").expect("writes"),
        "at both paths that had this export"
    );
    assert!(!store.forget_disk("a").expect("writes"));
    drop(store);
    let store = Store::open(&path).expect("there");
    assert_eq!(store.disks().expect("reads"), [disk("/c", "c")]);
}

#[test]
fn a_batch_is_applied_in_order_and_returns_the_number_of_changes() {
    let (_dir, path) = new_path();
    let store = Store::open(&path).expect("made");
    let (first, second) = (vm("oltp", 1), vm("oltp", 2));
    let learnt = Change::PutLearnt {
        device: "disk0",
        policy: "flubber",
        vm: "oltp",
        state: b"state",
    };
    let batch = [
        Change::PutVm(&first),
        Change::PutVm(&first),
        learnt,
        learnt,
        Change::PutVm(&second),
        Change::RemoveVm("bulk"),
    ];
    assert_eq!(store.apply(&batch).expect("writes"), 3);
    assert_eq!(store.vms().expect("reads"), std::slice::from_ref(&second));
    // An unchanged record is not written again.
    let content = std::fs::read(&path).expect("reads");
    assert_eq!(store.apply(&batch[3..]).expect("writes"), 0);
    assert!(std::fs::read(&path).expect("reads") == content, "written");
}

#[test]
fn a_store_is_opened_by_one_process_at_a_time() {
    let (_dir, path) = new_path();
    let store = Store::open(&path).expect("made");
    let error = refused(&path);
    assert!(matches!(error, StoreError::InUse { .. }), "{error}");
    assert!(error.to_string().contains("in use"), "{error}");
    drop(store);
    Store::open(&path).expect("free again");
}

#[test]
fn records_are_read_consistently_while_another_process_writes() {
    let (_dir, path) = new_path();
    assert_eq!(Store::read_vms(&path).expect("no store has no VMs"), []);
    let store = Store::open(&path).expect("made");
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for weight in 0..200 {
                // Both records in one transaction, with pages that are allocated and freed.
                let long = "x".repeat(weight as usize * 40);
                let long = VmRecord::new("long", Scope::Whole, &json!({ "note": long }));
                let both = [vm("short", weight), long];
                let changes: Vec<_> = both.iter().map(Change::PutVm).collect();
                store.apply(&changes).expect("writes");
            }
            done.store(true, Ordering::SeqCst);
        });
        let mut last = 0;
        while !done.load(Ordering::SeqCst) {
            let seen = Store::read_vms(&path).expect("reads");
            let [long, short] = &seen[..] else {
                assert!(seen.is_empty(), "{seen:?}");
                continue;
            };
            let weight = short.words().expect("words")["objective"]["weight"].as_u64();
            let weight = weight.expect("a number");
            let note = &long.words().expect("words")["note"];
            assert_eq!(note.as_str().map(str::len), Some(weight as usize * 40));
            assert!(weight >= last, "{weight} after {last}");
            last = weight;
        }
    });
    let seen = Store::read_vms(&path).expect("reads");
    assert_eq!(seen, store.vms().expect("reads"));
    drop(store);
    let before = std::fs::read(&path).expect("there");
    assert_eq!(Store::read_vms(&path).expect("reads"), seen);
    assert!(std::fs::read(&path).expect("there") == before, "touched");
}

#[test]
fn one_of_several_processes_that_create_a_store_at_once_opens_it() {
    for _ in 0..20 {
        let (dir, path) = new_path();
        let start = std::sync::Barrier::new(4);
        let open = || {
            start.wait();
            Store::open(&path)
        };
        let opened: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(open)).collect();
            (threads.into_iter())
                .map(|thread| thread.join().expect("no panic"))
                .collect()
        });
        let successes = opened.iter().filter(|opened| opened.is_ok()).count();
        assert_eq!(successes, 1, "{opened:?}");
        for error in opened.iter().filter_map(|opened| opened.as_ref().err()) {
            assert!(matches!(error, StoreError::InUse { .. }), "{error}");
        }
        let files = std::fs::read_dir(dir.path()).expect("a directory").count();
        assert_eq!(files, 1, "a temporary file is left");
    }
}

#[test]
fn other_files_are_refused_and_not_changed() {
    let (dir, path) = new_path();
    for (bytes, found) in [
        (Vec::new(), "an empty file"),
        (b"redb".to_vec(), "a file of another kind"),
        (vec![0; 1 << 16], "a file of another kind"),
        (
            b"[[vm]]\nname = \"oltp\"\n".to_vec(),
            "a file of another kind",
        ),
    ] {
        std::fs::write(&path, &bytes).expect("writable");
        let error = refused(&path);
        assert!(matches!(error, StoreError::NotAStore { .. }), "{error}");
        assert!(error.to_string().contains(found), "{error}");
        assert_eq!(std::fs::read(&path).expect("reads"), bytes);
    }
    assert!(matches!(refused(dir.path()), StoreError::NotAStore { .. }));

    let foreign = dir.path().join("foreign.redb");
    let database = Database::create(&foreign).expect("made");
    let write = database.begin_write().expect("writes");
    let table: TableDefinition<'_, u64, u64> = TableDefinition::new("cars");
    write.open_table(table).expect("writes");
    write.commit().expect("writes");
    drop(database);
    let error = refused(&foreign);
    assert!(error.to_string().contains("another program"), "{error}");
}

#[test]
fn a_newer_schema_is_refused() {
    let (_dir, path) = new_path();
    let database = Database::create(&path).expect("made");
    schema::upgrade(&database, &[(|_| Ok(())) as schema::Step; 9]).expect("made");
    drop(database);
    let error = refused(&path);
    let newer = matches!(error, StoreError::Newer { found: 9, .. });
    assert!(newer && error.help().is_some(), "{error}");
}

/// Changes single bytes of a store that was closed in order: each time opening is refused, or reads
/// return what was written; no read returns anything else, and nothing panics.
#[test]
fn a_damaged_store_is_refused_or_returns_what_was_written() {
    let (_dir, path) = new_path();
    let store = Store::open(&path).expect("made");
    let written: Vec<_> = (0..40).map(|i| vm(&format!("vm{i:02}"), i)).collect();
    let changes: Vec<_> = written.iter().map(Change::PutVm).collect();
    store.apply(&changes).expect("writes");
    drop(store);
    let whole = std::fs::read(&path).expect("reads");
    // Includes zero bytes between others, but not free pages.
    let used = whole
        .chunks(64)
        .enumerate()
        .filter(|(_, some)| some.iter().any(|&b| b != 0));
    let used: Vec<_> = used
        .flat_map(|(i, some)| i * 64..i * 64 + some.len())
        .collect();
    let (mut refusals, step) = (0, (used.len() / 300) | 1);
    for &at in used.iter().step_by(step) {
        let mut file = OpenOptions::new().write(true).open(&path).expect("opens");
        file.write_all(&whole).expect("writes");
        file.set_len(whole.len() as u64).expect("writes");
        file.seek(SeekFrom::Start(at as u64)).expect("seeks");
        file.write_all(&[whole[at] ^ (1 << (at % 8))])
            .expect("writes");
        drop(file);
        match Store::open(&path).and_then(|store| store.vms()) {
            Ok(read) => assert!(read == written, "byte {at}: other records"),
            Err(_) => refusals += 1,
        }
    }
    assert!(
        refusals > 30,
        "only {refusals} of some 300 damaged files are refused"
    );
    // Truncated files.
    for length in [1, 8, 9, 100, 4096, whole.len() / 2, whole.len() - 1] {
        std::fs::write(&path, &whole[..length]).expect("writes");
        if let Ok(read) = Store::open(&path).and_then(|store| store.vms()) {
            assert!(read == written, "cut at {length}: other records");
        }
    }
}

#[test]
fn a_missing_directory_is_named() {
    let (dir, _) = new_path();
    let path = dir.path().join("nowhere").join("tidegate.redb");
    let error = refused(&path);
    assert!(matches!(error, StoreError::Io { .. }), "{error}");
    let help = error.help().expect("help");
    assert!(help.contains("mkdir"), "{help}");
}

#[test]
fn errors_of_the_file_system_come_with_help() {
    for kind in [
        io::ErrorKind::PermissionDenied,
        io::ErrorKind::ReadOnlyFilesystem,
        io::ErrorKind::StorageFull,
        io::ErrorKind::QuotaExceeded,
    ] {
        let error = StoreError::Io {
            path: "/srv/tidegate.redb".into(),
            what: "write to the store",
            source: kind.into(),
        };
        let message = error.to_string();
        assert!(
            message.starts_with("/srv/tidegate.redb: cannot write to"),
            "{message}"
        );
        assert!(error.help().is_some(), "{kind}");
    }
}

#[test]
fn changes_of_a_store_whose_file_was_removed_or_replaced_are_refused() {
    let (_dir, path) = new_path();
    let store = Store::open(&path).expect("made");
    store.put_vm(&vm("oltp", 1)).expect("writes");
    std::fs::remove_file(&path).expect("removable");
    for _ in 0..2 {
        let error = store.put_vm(&vm("bulk", 1)).expect_err("the file is gone");
        assert!(matches!(error, StoreError::Replaced { .. }), "{error}");
    }
    Store::open(&path).expect("a new store at the same path");
    let error = store.put_vm(&vm("bulk", 1)).expect_err("the file is gone");
    assert!(matches!(error, StoreError::Replaced { .. }), "{error}");
}

/// Backend on a file that refuses writes with `ENOSPC` while `full` is set.
#[derive(Debug)]
struct FullDisk {
    file: FileBackend,
    full: Arc<AtomicBool>,
}

impl FullDisk {
    fn check_space(&self) -> io::Result<()> {
        if self.full.load(Ordering::Relaxed) {
            Err(io::Error::from_raw_os_error(libc::ENOSPC))
        } else {
            Ok(())
        }
    }
}

impl StorageBackend for FullDisk {
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }
    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.file.read(offset, out)
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }
    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()
    }
    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.check_space()?;
        self.file.write(offset, data)
    }
    fn close(&self) -> io::Result<()> {
        self.file.close()
    }
    fn try_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.file.try_lock_range(start, end)
    }
    fn unlock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.file.unlock_range(start, end)
    }
}

#[test]
fn a_full_disk_refuses_changes_until_there_is_space() {
    let (_dir, path) = new_path();
    drop(Store::open(&path).expect("made"));
    let full = Arc::new(AtomicBool::new(false));
    let (file, is_full) = (path.clone(), full.clone());
    let open = move || {
        let file = OpenOptions::new().read(true).write(true).open(&file)?;
        let backend = FullDisk {
            file: FileBackend::new(file)?,
            full: is_full.clone(),
        };
        let database = builder().create_with_backend(backend)?;
        Ok(Opened {
            database,
            identity: None,
        })
    };
    let store = Store::with_opener(path, open).expect("opens");
    store.put_vm(&vm("oltp", 1)).expect("room");
    full.store(true, Ordering::Relaxed);
    for _ in 0..3 {
        let error = store.put_vm(&vm("bulk", 1)).expect_err("no room");
        let kind = match &error {
            StoreError::Io { source, .. } => source.kind(),
            other => panic!("{other}"),
        };
        assert_eq!(kind, io::ErrorKind::StorageFull);
        assert!(error.help().expect("help").contains("free space"));
    }
    full.store(false, Ordering::Relaxed);
    assert_eq!(names(&store), ["oltp"]);
    store.put_vm(&vm("scan", 1)).expect("room again");
    assert_eq!(names(&store), ["oltp", "scan"]);
}
