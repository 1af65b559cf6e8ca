//! The store as the daemon has it.

mod common;

use serde_json::json;
use tidegate_server::config::{DeviceKind, StoreConfig};
use tidegate_server::daemon::StartError;
use tidegate_server::store::{Scope, StoreError, VmRecord};

use common::{Server, single};

#[test]
fn the_daemon_holds_its_store_open_and_finds_it_again() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut config = single(dir.path(), DeviceKind::Memory, None, 1 << 20);
    let server = Server::start(config.clone());
    assert!(server.handle.store().is_none(), "none is configured");
    server.stop().expect("ends in order");

    let path = dir.path().join("tidegate.redb");
    config.store = Some(StoreConfig { path, place: None });
    let record = VmRecord::new("oltp", Scope::Objective, &json!({ "weight": 7 }));
    let server = Server::start(config.clone());
    let store = server.handle.store().expect("it is configured");
    store.put_vm(&record).expect("writes");
    // Another daemon on other sockets.
    let mut second = single(&dir.path().join("other"), DeviceKind::Memory, None, 1 << 20);
    second.store = config.store.clone();
    std::fs::create_dir(dir.path().join("other")).expect("a directory");
    match Server::try_start(second) {
        Err(StartError::Store { source, .. }) => {
            assert!(matches!(source, StoreError::InUse { .. }), "{source}");
        }
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("two daemons have one store"),
    }
    server.stop().expect("ends in order");
    let server = Server::start(config);
    let store = server.handle.store().expect("it is configured");
    assert_eq!(store.vms().expect("reads"), [record]);
}

#[test]
fn without_its_store_the_daemon_does_not_start_and_makes_no_disk() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("tidegate.redb");
    std::fs::write(&path, "no store").expect("writable");
    let disk = dir.path().join("disk.raw");
    let mut config = single(dir.path(), DeviceKind::File, Some(disk.clone()), 1 << 20);
    config.store = Some(StoreConfig { path, place: None });
    let error = Server::try_start(config).map(drop).expect_err("started");
    assert!(matches!(error, StartError::Store { .. }), "{error}");
    assert!(!disk.exists(), "made before the store was opened");
}
