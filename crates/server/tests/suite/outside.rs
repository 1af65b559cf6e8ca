//! No sequence of requests reads or writes a byte outside of the disks that it is for: NBD,
//! vhost-user, and the control API below the role `admin`.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rand::{Rng, RngExt, SeedableRng};
use rand_pcg::Pcg64;
use tidegate_api::access::Role;
use tidegate_nbd::Command;
use tidegate_server::config::{
    AccessConfig, Config, ControlListenConfig, DeviceKind, ListenAddress, SocketOwner,
};

use crate::common::control::{ControlApi, http};
use crate::common::vhost_guest::{
    ALL, DISCARD, FLUSH_REQUEST, GET_ID, Guest, IN, OUT, WRITE_ZEROES, listen,
};
use crate::common::{Client, Server, disk, single, vm};

const SIZE: u64 = 256 << 10;
const SECTOR: u64 = 512;
/// Bytes of neighbours and of files of the host; those that the tests write are below.
const FOREIGN: u8 = 0x80;
const REQUESTS: usize = 600;
const PATIENCE: Duration = Duration::from_secs(30);

/// Daemon with the disk `disk` between those of two other VMs, beside a file that is no disk.
struct Scene {
    server: Server,
    config: Config,
    dir: tempfile::TempDir,
    /// Bytes of `disk`; `None` where they may be any of its own.
    shadow: Vec<Option<u8>>,
    rng: Pcg64,
}

impl Scene {
    fn new(dir: tempfile::TempDir, kind: DeviceKind, in_files: bool) -> Scene {
        let path = |name: &str| in_files.then(|| dir.path().join(name));
        let mut config = single(dir.path(), kind, path("disk"), SIZE);
        let neighbour = |name: &str| vm(name, 0, vec![disk(name, path(name), SIZE)]);
        config.vms.insert(0, neighbour("left"));
        config.vms.push(neighbour("right"));
        listen(&mut config, dir.path());
        config.control.others.push(ControlListenConfig {
            address: ListenAddress::Unix {
                path: dir.path().join("operate"),
                mode: 0o600,
            },
            owner: SocketOwner::default(),
            access: AccessConfig {
                root: Role::Operate,
                ..AccessConfig::everyone(Role::Operate)
            },
            tls: None,
            place: None,
        });
        fs::write(dir.path().join("secret"), vec![FOREIGN | 3; 4096]).unwrap();
        let server = Server::start(config.clone());
        for (n, name) in (1..).zip(["left", "right"]) {
            let bytes = vec![FOREIGN | n; SIZE as usize];
            server.connect(name).write(0, &bytes);
        }
        let all = vec![0; SIZE as usize];
        server.connect("disk").write(0, &all);
        Scene {
            server,
            config,
            dir,
            shadow: vec![Some(0); SIZE as usize],
            rng: Pcg64::seed_from_u64(29),
        }
    }

    /// Returns a place at or around the ends of the disk or of numbers, or anywhere on it.
    fn place(&mut self, unit: u64) -> u64 {
        let ends = [0, SIZE, 2 * SIZE, 1 << 32, 1 << 41, 1 << 63, 0, SIZE];
        let near = match self.rng.random_range(0..3) {
            0 => return self.rng.random_range(0..SIZE / unit),
            _ => ends[self.rng.random_range(0..ends.len())] / unit,
        };
        let by = self.rng.random_range(0..8192 / unit);
        if self.rng.random() {
            near.wrapping_add(by)
        } else {
            near.wrapping_sub(by)
        }
    }

    /// Returns bytes to write, of which none is foreign.
    fn bytes(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.rng.fill_bytes(&mut bytes);
        bytes.iter_mut().for_each(|byte| *byte &= !FOREIGN);
        bytes
    }

    /// Compares what was read with the copy.
    fn is_own(&self, at: u64, read: &[u8]) {
        for (n, (byte, expected)) in read.iter().zip(&self.shadow[at as usize..]).enumerate() {
            assert!(byte & FOREIGN == 0, "byte {n} at {at} is another's: {byte}");
            assert!(
                expected.is_none_or(|it| it == *byte),
                "byte {n} at {at}: {byte}"
            );
        }
    }

    fn fill(&mut self, at: u64, len: u64, with: Option<u8>) {
        self.shadow[at as usize..(at + len) as usize].fill(with);
    }

    fn put(&mut self, at: u64, bytes: &[u8]) {
        let range = &mut self.shadow[at as usize..];
        range
            .iter_mut()
            .zip(bytes)
            .for_each(|(copy, byte)| *copy = Some(*byte));
    }

    /// Checks every byte that belongs to somebody else, and those of the disk.
    fn check(&self) {
        for (n, name) in (1..).zip(["left", "right"]) {
            let bytes = self.server.connect(name).read(0, SIZE as u32);
            let changed = bytes.iter().position(|byte| *byte != FOREIGN | n);
            assert_eq!(changed, None, "a byte of {name}");
        }
        let own = self.server.connect("disk").read(0, SIZE as u32);
        self.is_own(0, &own);
        let secret = fs::read(self.dir.path().join("secret")).unwrap();
        assert!(secret == vec![FOREIGN | 3; 4096]);
    }

    /// Returns the files of the host beside the daemon, with their lengths.
    fn files(&self) -> BTreeMap<PathBuf, u64> {
        let entries = fs::read_dir(self.dir.path()).unwrap();
        let files = entries.map(|entry| {
            let entry = entry.unwrap();
            (entry.path(), entry.metadata().unwrap().len())
        });
        files.collect()
    }
}

/// Memory, files on a disk and in memory, and an emulated disk, whose requests take the ways of
/// their own to the bytes.
fn scenes() -> impl Iterator<Item = Scene> {
    let on_disk = || tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let in_memory = || tempfile::tempdir_in("/dev/shm").unwrap_or_else(|_| on_disk());
    let model = tidegate_device::catalogue::load("nvme-1tb").unwrap();
    let emulated = DeviceKind::Emulated {
        model: Box::new(model),
    };
    [
        (on_disk(), DeviceKind::Memory, false),
        (on_disk(), DeviceKind::File, true),
        (in_memory(), DeviceKind::File, true),
        (on_disk(), emulated, false),
    ]
    .into_iter()
    .map(|(dir, kind, in_files)| Scene::new(dir, kind, in_files))
}

/// Sends a request by NBD; one that is not wholly on the disk must fail.
fn ask_by_nbd(scene: &mut Scene, client: &mut Client) {
    let lengths = [
        0,
        1,
        511,
        512,
        4096,
        4097,
        SIZE,
        SIZE + 1,
        u64::from(u32::MAX),
    ];
    let len = match scene.rng.random() {
        true => lengths[scene.rng.random_range(0..lengths.len())] as u32,
        false => scene.rng.random_range(0..10_000),
    };
    let at = scene.place(1);
    let is_inside = at.checked_add(len.into()).is_some_and(|end| end <= SIZE);
    let command = match scene.rng.random_range(0..7) {
        0 | 1 => Command::Read { df: false },
        // A client that announces more than it may write is cut off.
        2 | 3 if u64::from(len) <= SIZE + 1 => Command::Write,
        4 => Command::Trim,
        5 => Command::Cache,
        _ => Command::WriteZeroes {
            no_hole: scene.rng.random(),
            fast_zero: false,
        },
    };
    let payload = match command {
        Command::Write => scene.bytes(len as usize),
        _ => Vec::new(),
    };
    let answer = client.ask(command, at, len, &payload);
    assert!(
        answer.result.is_err() || is_inside,
        "{command:?} of {len} at {at} is done"
    );
    let Ok(read) = answer.result else {
        // Nothing may have changed, unless the request was sound and the daemon cannot do it.
        return;
    };
    match command {
        Command::Read { .. } => {
            assert_eq!(read.len(), len as usize);
            scene.is_own(at, &read);
        }
        Command::Write => scene.put(at, &payload),
        Command::Trim => scene.fill(at, len.into(), None),
        Command::WriteZeroes { .. } => scene.fill(at, len.into(), Some(0)),
        _ => {}
    }
}

#[test]
fn no_sequence_of_requests_by_nbd_reads_or_writes_a_byte_outside() {
    for mut scene in scenes() {
        let mut client = scene.server.connect("disk");
        for n in 0..REQUESTS {
            ask_by_nbd(&mut scene, &mut client);
            if n % 100 == 99 {
                scene.check();
            }
        }
        client.disconnect();
        scene.check();
    }
}

/// Sends a request by vhost-user; one that is not wholly on the disk must fail.
fn ask_by_vhost_user(scene: &mut Scene, guest: &mut Guest) {
    let kinds = [
        IN,
        IN,
        OUT,
        OUT,
        DISCARD,
        WRITE_ZEROES,
        FLUSH_REQUEST,
        GET_ID,
        99,
    ];
    let kind = kinds[scene.rng.random_range(0..kinds.len())];
    let sector = scene.place(SECTOR);
    let sectors = scene.rng.random_range(1..=16u64);
    let data = match kind {
        IN => vec![0; (sectors * SECTOR) as usize],
        OUT => scene.bytes((sectors * SECTOR) as usize),
        GET_ID => vec![0; 20],
        DISCARD | WRITE_ZEROES => segment(sector, sectors as u32),
        _ => Vec::new(),
    };
    let of_header = match kind {
        IN | OUT => sector,
        _ => 0,
    };
    let (answer, read) = guest.ask(kind, of_header, &data);
    let end = sector.checked_add(sectors);
    let is_inside = end.is_some_and(|end| end <= SIZE / SECTOR);
    let done = answer.status == 0;
    match kind {
        IN | OUT => assert_eq!(done, is_inside, "{kind}: {sectors} at {sector}"),
        // A file system may not be able to.
        DISCARD | WRITE_ZEROES => assert!(is_inside || !done, "{kind}: {sectors} at {sector}"),
        _ => {}
    }
    if !done {
        // The daemon may have written to the guest's memory, but no foreign byte.
        assert!(kind != IN || read.iter().all(|byte| byte & FOREIGN == 0));
        return;
    }
    let (at, len) = (sector.wrapping_mul(SECTOR), sectors * SECTOR);
    match kind {
        IN => scene.is_own(at, &read),
        OUT => scene.put(at, &data),
        DISCARD => scene.fill(at, len, None),
        WRITE_ZEROES => scene.fill(at, len, Some(0)),
        _ => {}
    }
}

/// Returns the segment of a discard: first sector, number of sectors, flags.
fn segment(sector: u64, sectors: u32) -> Vec<u8> {
    [&sector.to_le_bytes()[..], &sectors.to_le_bytes(), &[0; 4]].concat()
}

#[test]
fn no_sequence_of_requests_by_vhost_user_reads_or_writes_a_byte_outside() {
    for mut scene in scenes() {
        let mut guest = Guest::start(&scene.dir.path().join("disk.vhost"), ALL, 1);
        for n in 0..REQUESTS {
            ask_by_vhost_user(&mut scene, &mut guest);
            if n % 100 == 99 {
                scene.check();
            }
        }
        guest.leave();
        scene.check();
    }
}

/// Returns paths of the API with names of disks, and of files of the host.
fn paths(dir: &Path) -> Vec<String> {
    let secret = dir.join("secret").display().to_string().replace('/', "%2F");
    let names = ["disk", "left", "device", "..", "%2E%2E%2Fsecret", &secret];
    let templates = [
        "/v1/vms/{}",
        "/v1/vms/{}/objective",
        "/v1/vms/{}/schedule",
        "/v1/vms/{}/job",
        "/v1/vms/{}/learnt",
        "/v1/vms/disk/disks/{}",
        "/v1/vms/left/disks/{}",
        "/v1/disks/{}/faults",
        "/v1/disks/{}/known",
        "/v1/devices/{}/recording",
        "/v1/devices/{}/policy",
        "/v1/tokens/{}",
        "/{}",
    ];
    let each = |template: &str| names.map(|name| template.replace("{}", name));
    templates
        .iter()
        .flat_map(|template| each(template))
        .collect()
}

/// Returns bodies by which an administrator would make, read or resize files.
fn bodies(dir: &Path) -> Vec<String> {
    let secret = dir.join("secret").display().to_string();
    let left = dir.join("left").display().to_string();
    let mut bodies = vec![
        String::new(),
        "{}".to_owned(),
        "{\"weight\": 7}".to_owned(),
        "{\"size\": \"1 MiB\"}".to_owned(),
        "{\"size\": \"1 KiB\"}".to_owned(),
        "{\"operation\": \"write\", \"error\": \"EIO\"}".to_owned(),
        "{\"name\": \"t\", \"role\": \"admin\"}".to_owned(),
    ];
    for path in [&secret, &left, "made", "../made"] {
        bodies.push(format!(
            "{{\"path\": {path:?}, \"size\": \"1 MiB\", \"create\": \"sparse\"}}"
        ));
        bodies.push(format!(
            "{{\"device\": \"device\", \"disks\": [{{\"export\": \"new\", \"path\": {path:?}, \
             \"size\": \"1 MiB\", \"create\": \"sparse\"}}]}}"
        ));
        bodies.push(format!(
            "{{\"recording\": \"on\", \"directory\": {path:?}}}"
        ));
    }
    bodies
}

#[test]
fn no_sequence_of_requests_to_the_api_below_admin_reads_or_writes_a_byte_outside() {
    let dir = tempfile::tempdir().unwrap();
    let scene = Scene::new(dir, DeviceKind::File, true);
    let api = ControlApi::start(scene.config.clone(), &scene.server);
    let socket = api.names.last().expect("it has the role operate");
    assert!(socket.ends_with("operate"), "{socket}");
    let before = scene.files();
    let (mut refused, mut done) = (0, 0);
    for method in ["GET", "PUT", "POST", "PATCH", "DELETE"] {
        for path in paths(scene.dir.path()) {
            for body in bodies(scene.dir.path()) {
                if method == "GET" && !body.is_empty() {
                    continue;
                }
                let stream = UnixStream::connect(socket).expect("it listens");
                stream.set_read_timeout(Some(PATIENCE)).unwrap();
                let answer = http(stream, method, &path, "", &body).expect("an answer");
                assert!(answer.starts_with("HTTP/1.1 "), "{method} {path}: {answer}");
                refused += usize::from(answer.starts_with("HTTP/1.1 403"));
                done += usize::from(answer.starts_with("HTTP/1.1 20"));
            }
        }
    }
    // It reaches handlers, and what is an administrator's is refused.
    assert!(refused > 500 && done > 10, "{refused} refused, {done} done");
    assert_eq!(scene.files(), before);
    scene.check();
}
