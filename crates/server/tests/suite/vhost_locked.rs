//! Disks whose file another process has locked when the daemon starts, as a guest that migrated
//! leaves them in the configuration of its source: others are served meanwhile.

use std::path::Path;

use tidegate_server::backing::ActivationState;
use tidegate_server::config::{Config, DeviceKind};

use crate::common::vhost_guest::{ALL, Guest, listen, memory};
use crate::common::{Server, disk, single, vm, wait};
use crate::vhost_hand_over::nbd_refusal;

const SIZE: u64 = 1 << 20;

/// Configuration of a VM whose disk is on a file that another process may have.
fn alone(dir: &Path, file: &Path) -> Config {
    single(dir, DeviceKind::File, Some(file.to_owned()), SIZE)
}

/// Configuration like [`alone`], with another VM, and sockets of vhost-user.
fn beside_another(dir: &Path, file: &Path) -> Config {
    let mut config = alone(dir, file);
    listen(&mut config, dir);
    let own = disk("other", Some(dir.join("other.raw")), SIZE);
    config.vms.push(vm("other", 0, vec![own]));
    config
}

fn state(server: &Server) -> ActivationState {
    let vm = wait(server.handle.vm_snapshot("disk")).unwrap();
    vm.disks[0].activation.expect("it can be handed over")
}

#[test]
fn a_disk_that_another_process_has_keeps_no_other_from_being_served() {
    let dirs = [(); 2].map(|()| tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap());
    let file = dirs[0].path().join("disk.raw");
    let holder = Server::start(alone(dirs[0].path(), &file));
    let mut client = holder.connect("disk");
    client.write(0, &[7; 4096]);
    client.disconnect();

    let server = Server::start(beside_another(dirs[1].path(), &file));
    let mut client = server.connect("other");
    client.write(0, &[1; 4096]);
    assert_eq!(client.read(0, 4096), [1; 4096]);
    client.disconnect();
    assert_eq!(state(&server), ActivationState::LockedElsewhere);
    let refused = nbd_refusal(&server).expect("refused");
    assert!(refused.contains("locked by another process"), "{refused}");

    // A guest that comes back has to wait, too, and is served once the file is free.
    let socket = dirs[1].path().join("disk.vhost");
    let memory = memory(1);
    let arrive = || Guest::try_resume(&socket, ALL, memory.try_clone().unwrap());
    assert!(arrive().is_none(), "the other process has the file");
    holder.stop().unwrap();
    let mut guest = arrive().expect("the file is free");
    assert_eq!(guest.read(0, 4096), [7; 4096]);
    guest.write(0, &[8; 4096]);
    assert_eq!(state(&server), ActivationState::Active);
    guest.leave();
    server.stop().unwrap();
    assert_eq!(std::fs::read(&file).unwrap()[..4096], [8; 4096]);
}

#[test]
fn a_client_never_takes_the_lock_from_a_guest_that_is_between_two_hosts() {
    let dirs = [(); 2].map(|()| tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap());
    let file = dirs[0].path().join("disk.raw");
    let holder = Server::start(alone(dirs[0].path(), &file));
    let server = Server::start(beside_another(dirs[1].path(), &file));
    assert!(nbd_refusal(&server).is_some());
    // Nobody has the file now, as while the host of the guest starts its daemon again.
    holder.stop().unwrap();
    for _ in 0..200 {
        let refused = nbd_refusal(&server).expect("refused");
        assert!(refused.contains("once its guest runs here"), "{refused}");
        assert!(refused.contains("restart the daemon"), "{refused}");
    }
    assert_eq!(state(&server), ActivationState::LockedElsewhere);
    let holder = Server::start(alone(dirs[0].path(), &file));
    let mut client = holder.connect("disk");
    client.write(0, &[9; 512]);
    client.disconnect();
    assert!(nbd_refusal(&server).is_some());
    holder.stop().unwrap();
    server.stop().unwrap();
    assert_eq!(std::fs::read(&file).unwrap()[..512], [9; 512]);
}

#[test]
fn a_lock_that_no_guest_can_have_taken_along_is_an_error() {
    let dirs = [(); 2].map(|()| tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap());
    let file = dirs[0].path().join("disk.raw");
    let refusal = |config| {
        let error = Server::try_start(config).err().expect("refused");
        let source = std::error::Error::source(&error).map(ToString::to_string);
        format!("{error}: {}", source.unwrap_or_default())
    };
    // One file for two disks of a daemon.
    let mut config = beside_another(dirs[1].path(), &file);
    config.vms[1].disks[0].path = Some(file.clone());
    let error = refusal(config);
    assert!(error.contains("export \"disk\""), "{error}");
    // Disks without a socket of vhost-user.
    let holder = Server::start(alone(dirs[0].path(), &file));
    let mut config = beside_another(dirs[1].path(), &file);
    config.listeners[1].exports = vec!["other".to_owned()];
    let error = refusal(config);
    assert!(error.contains("in use by another process"), "{error}");
    holder.stop().unwrap();
}
