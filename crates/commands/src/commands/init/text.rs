//! Text of the configuration that `tidegate init` writes.
//!
//! Options that are not chosen stand behind a `#` without a space, so that removing it is enough;
//! lines of explanation begin with `# `.

use std::path::{Path, PathBuf};

use tidegate_device::catalogue;
use tidegate_units::human::bytes;

use crate::commands::runtime_directory::RuntimeDirectory;
use crate::configuration_text::{TakenNames, comment, path as quoted, string};
use crate::host::{BlockDevice, HostRoot, Medium};

/// Size below which a hard disk resembles the smaller model of the catalogue.
const SMALL_HARD_DISK: u64 = 500 << 30;

/// Returns a configuration for a host with these disks.
pub(super) fn configuration(host: &HostRoot, disks: &[BlockDevice]) -> String {
    let name = host.read("/proc/sys/kernel/hostname");
    let name = name.unwrap_or_else(|| "this host".to_owned());
    let directories = Directories::of_user();
    let mut text = head(&name, &directories) + &sockets(&directories) + &options(&directories);
    text +=
        "\n# One device for each physical disk or array: VMs compete with VMs on the same one.\n";
    let mut names = TakenNames::default();
    let named: Vec<_> = disks
        .iter()
        .map(|disk| (names.take(&disk.name), disk))
        .collect();
    if named.is_empty() {
        text += "# No disk was found: name the one that stores the files of VMs.\n";
        text += &device("disk0", None);
    }
    for (name, disk) in &named {
        text = text + "\n" + &described(disk) + &device(name, model_like(disk));
    }
    text + &vms(&named, &directories)
}

/// Directories for sockets and state.
struct Directories {
    run: PathBuf,
    state: PathBuf,
}

impl Directories {
    fn of_user() -> Directories {
        let state = match std::env::var_os("HOME") {
            Some(home) if !rustix::process::geteuid().is_root() => {
                Path::new(&home).join(".local/share/tidegate")
            }
            _ => PathBuf::from("/var/lib/tidegate"),
        };
        Directories {
            run: RuntimeDirectory::path(),
            state,
        }
    }
}

fn head(host: &str, directories: &Directories) -> String {
    let intro = format!(
        "Configuration of Tidegate for {host}, by `tidegate init`. Lines that begin with # and no \
         space are options: remove the # to use them. docs/configuration.md has all keys."
    );
    let run = directories.run.display();
    let state = directories.state.display();
    format!(
        "{}#\n# mkdir -p {run} {state}    the directories of sockets and store\n\
         # tidegate check FILE     finds mistakes, and shows what would be served\n\
         # tidegate doctor FILE    finds what is missing or slow on this host\n\
         # tidegate serve FILE\n",
        comment(&intro)
    )
}

fn sockets(directories: &Directories) -> String {
    let run = &directories.run;
    format!(
        "
# For tidegate vm, stats, top ...
[control]
socket = {}

# Changes made with --persist, and what policies have learnt.
[store]
path = {}

# NBD clients, such as QEMU. Only this user may connect, unless mode and group say otherwise.
[[listen]]
unix = {}
#mode = \"0660\"

# Guests without a socket for their data: a vhost-user socket for each disk.
#[[listen]]
#vhost_user = {}
",
        quoted(&run.join("control.sock")),
        quoted(&directories.state.join("tidegate.redb")),
        quoted(&run.join("nbd.sock")),
        quoted(&run.join("{disk}.vhost.sock")),
    )
}

fn options(directories: &Directories) -> String {
    format!(
        "
# A page for browsers on this host.
#[[dashboard]]
#tcp = \"127.0.0.1:9807\"

# Metrics for Prometheus, without the control API.
#[[metrics]]
#tcp = \"127.0.0.1:9808\"

# Every request of a device, once `tidegate record on` asks for it; best on a disk of its own.
#[recording]
#directory = {}
#max_size = \"4 GiB\"
",
        quoted(&directories.state.join("recordings")),
    )
}

/// Returns lines that describe a disk.
fn described(disk: &BlockDevice) -> String {
    let medium = match disk.medium {
        Medium::Rotational => "hard disk",
        Medium::Nvme => "NVMe flash",
        Medium::Flash => "flash",
        Medium::Unknown => "disk of a hypervisor",
    };
    let model = disk.model.as_deref().unwrap_or("no model");
    let usage = match disk.uses.as_slice() {
        [] => "nothing on it is known".to_owned(),
        uses => format!("in use: {}", uses.join("; ")),
    };
    comment(&format!(
        "{}: {} {medium}, {model}; {usage}.",
        disk.name,
        bytes(disk.size)
    ))
}

/// Returns the model of the catalogue that resembles a disk most.
fn model_like(disk: &BlockDevice) -> Option<&'static str> {
    let name = match disk.medium {
        Medium::Rotational if disk.size < SMALL_HARD_DISK => "hdd-7200-250gb",
        Medium::Rotational => "hdd-7200-1tb",
        Medium::Nvme => "nvme-1tb",
        Medium::Flash => "ssd-sata-300gb",
        Medium::Unknown => return None,
    };
    catalogue::names().find(|known| *known == name)
}

fn device(name: &str, model: Option<&str>) -> String {
    let profile = match model {
        Some(model) => format!(
            "# Plans and promises need a profile: measure the disk with `tidegate profile`, or\n\
             # begin with that of the nearest model of the catalogue.\n\
             #profile = {}\n",
            string(model)
        ),
        None => "# Plans and promises need a profile: measure the disk with `tidegate profile`.\n"
            .to_owned(),
    };
    format!(
        "[[device]]\nname = {}\nkind = \"file\"\n{profile}",
        string(name)
    )
}

/// Returns VMs to begin with: one in a file, and one for each disk that nothing is known to use.
fn vms(disks: &[(String, &BlockDevice)], directories: &Directories) -> String {
    let holds_files = |disk: &&(String, &BlockDevice)| !disk.1.mounted.is_empty();
    let first = disks.iter().find(holds_files).or(disks.first());
    let device = first.map_or("disk0", |(name, _)| name);
    let mut text = format!(
        "
# A VM with a disk in a file, which is created. docs/choose-objectives.md helps to choose.
#[[vm]]
#name = \"web\"
#device = {}
#[vm.objective]
#reservation = \"200 IOPS\"
#limit = \"100 MB/s\"
#[[vm.disk]]
#path = {}
#size = \"20 GiB\"
#create = \"sparse\"
",
        string(device),
        quoted(&directories.state.join("web.raw"))
    );
    for (name, disk) in disks.iter().filter(|(_, disk)| disk.uses.is_empty()) {
        text += "\n# A VM that gets a whole disk. Look at it first: `lsblk -f` and `wipefs` show \
                 what is on it.\n";
        text += &format!(
            "#[[vm]]\n#name = {}\n#device = {}\n#[[vm.disk]]\n#path = {}\n",
            string(&format!("on-{name}")),
            string(name),
            quoted(&disk.path())
        );
    }
    text
}
