//! Front-ends of vhost-user that ask for more of the process than a VM may have: they are refused,
//! what they had comes back, and other VMs go on.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tidegate_server::config::{DeviceKind, ListenAddress, SocketTemplate};
use tidegate_server::vm_resources::{VM_ADDRESS_SPACE_MAX, VM_DESCRIPTORS_MAX, VM_REGIONS_MAX};
use vhost::vhost_user::{Frontend, VhostUserFrontend};
use vhost::{VhostBackend, VhostUserMemoryRegionInfo};
use vmm_sys_util::eventfd::{EFD_NONBLOCK, EventFd};
use vmm_sys_util::sock_ctrl_msg::ScmSocket;

use crate::common::vhost_guest::{ALL, Guest, connect, listen};
use crate::common::{Client, Server, config, device, disk, vm};

const MIB: u64 = 1 << 20;
const PAGE: u64 = 4096;
const PATIENCE: Duration = Duration::from_secs(30);

/// Daemon with a VM of many disks, and a neighbour on the same device.
struct Scene {
    server: Server,
    neighbour: Client,
    other: PathBuf,
    sockets: Vec<PathBuf>,
    _dir: tempfile::TempDir,
}

impl Scene {
    fn new(disks: usize) -> Scene {
        let dir = tempfile::tempdir().unwrap();
        let mut config = config(dir.path());
        config.devices.push(device("memory", DeviceKind::Memory));
        let name = |n: usize| format!("d{n}");
        let all = (0..disks).map(|n| disk(&name(n), None, MIB)).collect();
        config.vms.push(vm("hostile", 0, all));
        config.vms[0].max_connections = 1000;
        config
            .vms
            .push(vm("other", 0, vec![disk("other", None, MIB)]));
        listen(&mut config, dir.path());
        let socket = |name: &str| dir.path().join(format!("{name}.vhost"));
        let Some(ListenAddress::VhostUser { path, .. }) = config
            .listeners
            .last_mut()
            .map(|listener| &mut listener.address)
        else {
            panic!("it was just added");
        };
        *path = SocketTemplate::new(&socket("{disk}")).unwrap();
        let (sockets, other) = (
            (0..disks).map(|n| socket(&name(n))).collect(),
            socket("other"),
        );
        let server = Server::start(config);
        let neighbour = server.connect("other");
        Scene {
            server,
            neighbour,
            other,
            sockets,
            _dir: dir,
        }
    }

    /// Checks that the neighbour is served, and a front-end of it that connects now.
    fn goes_on(&mut self) {
        self.neighbour.write(0, &[1; 512]);
        let mut guest = Guest::start(&self.other, ALL, 2);
        assert_eq!(guest.read(0, 512), [1; 512]);
        guest.leave();
    }
}

/// Connects a front-end, for which the one before it has to be gone.
fn connected(socket: &Path) -> Frontend {
    let until = Instant::now() + PATIENCE;
    loop {
        match connect(socket, ALL) {
            Ok(frontend) => return frontend,
            Err(error) => assert!(Instant::now() < until, "no back-end: {error}"),
        }
    }
}

fn sparse(len: u64) -> File {
    let file = tempfile::tempfile_in("/dev/shm").unwrap();
    file.set_len(len).unwrap();
    file
}

/// Returns the region with a number, which is far from all others.
fn region(file: &File, number: u64, len: u64) -> VhostUserMemoryRegionInfo {
    VhostUserMemoryRegionInfo {
        guest_phys_addr: number << 32,
        memory_size: len,
        userspace_addr: number << 32,
        mmap_offset: 0,
        mmap_handle: file.as_raw_fd(),
    }
}

#[test]
fn a_vm_has_so_many_regions_over_all_its_disks() {
    let mut scene = Scene::new(3);
    let file = sparse(PAGE);
    for _ in 0..2 {
        let mut added = 0;
        let mut all: Vec<Frontend> = scene.sockets.iter().map(|path| connected(path)).collect();
        'all: for frontend in &mut all {
            for number in 0..509 {
                if frontend
                    .add_mem_region(&region(&file, number, PAGE))
                    .is_err()
                {
                    break 'all;
                }
                added += 1;
            }
        }
        assert_eq!(added, VM_REGIONS_MAX, "all that it may have");
        scene.goes_on();
        // The next round shows that all of them came back.
    }
    scene.server.stop().unwrap();
}

#[test]
fn a_vm_has_so_much_address_space_over_all_its_disks() {
    let mut scene = Scene::new(2);
    let (most, rest) = (VM_ADDRESS_SPACE_MAX - 8 * PAGE, sparse(9 * PAGE));
    let huge = sparse(VM_ADDRESS_SPACE_MAX + PAGE);
    let mut first = connected(&scene.sockets[0]);
    let beyond = region(&huge, 0, VM_ADDRESS_SPACE_MAX + PAGE);
    first.add_mem_region(&beyond).unwrap_err();
    for _ in 0..2 {
        let mut first = connected(&scene.sockets[0]);
        first.add_mem_region(&region(&huge, 0, most)).unwrap();
        let mut second = connected(&scene.sockets[1]);
        second.add_mem_region(&region(&rest, 0, 8 * PAGE)).unwrap();
        second.add_mem_region(&region(&rest, 1, PAGE)).unwrap_err();
        scene.goes_on();
    }
    scene.server.stop().unwrap();
}

#[test]
fn a_vm_has_so_many_descriptors_over_all_its_disks() {
    let mut scene = Scene::new(40);
    let eventfd = EventFd::new(EFD_NONBLOCK).unwrap();
    let mut frontends = Vec::new();
    let mut files = 0;
    'all: for socket in &scene.sockets {
        // Refused where the descriptors of the session itself are too many.
        let Ok(frontend) = connect(socket, ALL) else {
            break;
        };
        for queue in 0..64 {
            if frontend.set_vring_call(queue, &eventfd).is_err() {
                break 'all;
            }
            files += 2;
        }
        frontends.push(frontend);
    }
    assert!(files > 0 && files <= VM_DESCRIPTORS_MAX, "{files}");
    scene.goes_on();
    drop(frontends);
    // Those that are replaced come back at once.
    let frontend = connected(&scene.sockets[0]);
    for _ in 0..VM_DESCRIPTORS_MAX {
        frontend.set_vring_call(0, &eventfd).unwrap();
    }
    scene.server.stop().unwrap();
}

/// Reads until all writers of a pipe are closed; a socket that sent one of them is not.
fn expect_closed(mut reader: impl Read) {
    let until = Instant::now() + PATIENCE;
    loop {
        match reader.read(&mut [0]) {
            Ok(n) => return assert_eq!(n, 0, "nobody writes"),
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
        assert!(Instant::now() < until, "a descriptor is still open");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn pipe() -> (File, OwnedFd) {
    let (reader, writer) = std::io::pipe().unwrap();
    let reader = File::from(OwnedFd::from(reader));
    // SAFETY: takes no memory; the descriptor is open.
    let set = unsafe { libc::fcntl(reader.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) };
    assert_eq!(set, 0);
    (reader, writer.into())
}

#[test]
fn descriptors_that_nobody_asked_for_are_closed() {
    let mut scene = Scene::new(1);
    // SET_OWNER, SET_VRING_CALL, SET_MEM_TABLE, SET_BACKEND_REQ_FD and one that does not exist.
    for request in [3u32, 13, 5, 21, 99] {
        for many in [1, 20, 100] {
            let (reader, writer) = pipe();
            let socket = UnixStream::connect(&scene.sockets[0]).unwrap();
            let mut message: Vec<u8> = [request, 1, 8]
                .iter()
                .flat_map(|n| n.to_ne_bytes())
                .collect();
            message.extend([0; 8]);
            let files = vec![writer.as_raw_fd(); many];
            socket.send_with_fds(&[&message[..]], &files).unwrap();
            drop(writer);
            expect_closed(reader);
        }
    }
    let mut frontend = connected(&scene.sockets[0]);
    let (reader, writer) = pipe();
    // SAFETY: a descriptor with no other owner; that it is no eventfd is the point.
    let file = unsafe {
        use std::os::fd::{FromRawFd, IntoRawFd};
        EventFd::from_raw_fd(writer.into_raw_fd())
    };
    frontend.set_vring_err(0, &file).unwrap();
    drop(file);
    expect_closed(reader);
    frontend.get_queue_num().expect("the session goes on");
    drop(frontend);
    scene.goes_on();
    scene.server.stop().unwrap();
}
