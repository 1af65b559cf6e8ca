//! Command lines of QEMU: `-drive`, `-blockdev`, `-object throttle-group`, `-device`.

use std::collections::BTreeSet;

use anyhow::Result;

use super::content::{THROWN_AWAY, image_format};
use super::guest::{Guest, GuestDisk, Remark};
use super::options_list::{last, options};
use super::qemu_blocks::{Below, Keys, Nodes, keys, path_of};
use super::throttle::Throttle;
use super::{Input, shown};
use crate::problem::Problem;
use crate::shell;

/// Options of QEMU that take no value.
const FLAGS: [&str; 21] = [
    "-nographic",
    "-S",
    "-s",
    "-daemonize",
    "-enable-kvm",
    "-no-reboot",
    "-no-shutdown",
    "-nodefaults",
    "-no-user-config",
    "-no-hpet",
    "-no-acpi",
    "-mem-prealloc",
    "-usb",
    "-full-screen",
    "-h",
    "-version",
    "-no-fd-bootchk",
    "-preconfig",
    "-only-migratable",
    "-singlestep",
    "-win2k-hack",
];
/// Options that name a disk's image by itself.
const IMAGES: [&str; 4] = ["-hda", "-hdb", "-hdc", "-hdd"];
/// Options that name the image of something that stays with the hypervisor.
const NOT_SERVED: [&str; 6] = ["-cdrom", "-fda", "-fdb", "-sd", "-pflash", "-mtdblock"];
/// Interfaces of drives, by `if=`, that stay with the hypervisor, as media that are no disks do.
const NOT_DISKS: [&str; 4] = ["pflash", "floppy", "sd", "mtd"];
/// Remark on what stays with the hypervisor.
const STAYS: &str = "a CD-ROM, floppy, memory card or firmware stays with the hypervisor";
/// Option that has all writes to all disks thrown away.
const SNAPSHOT: &str = "-snapshot";
/// Options, without dashes, whose value may be spelt like a program.
const TAKE_NAMES: [&str; 2] = ["accel", "name"];
/// Keys of a drive that say how the guest sees it or how QEMU opens it.
const OF_HYPERVISOR: [&str; 19] = [
    "id",
    "if",
    "index",
    "bus",
    "unit",
    "media",
    "cache",
    "aio",
    "discard",
    "detect-zeroes",
    "werror",
    "rerror",
    "serial",
    "addr",
    "node-name",
    "cache.direct",
    "cache.no-flush",
    "cache.writeback",
    "copy-on-read",
];

/// Reads a file with a command line: for a shell, or with zero bytes between its words.
///
/// # Errors
/// If a quote is not closed, or the text is no command line of QEMU.
pub(super) fn read_file(input: &Input) -> Result<Guest> {
    if input.is_xml() {
        return Err(no_command_line(&input.name));
    }
    let words = if input.text.contains('\0') {
        let words = input.text.split('\0').filter(|word| !word.is_empty());
        words.map(str::to_owned).collect()
    } else {
        let commands = shell::commands(&input.text);
        let commands = commands.map_err(|what| Problem::new(what).at(&input.name))?;
        // Other commands of a script name no disks.
        let has_option = |words: &&Vec<String>| words.iter().any(|word| word.starts_with('-'));
        let of_qemu = commands.iter().find(|words| program(words).is_some());
        let chosen = of_qemu.or_else(|| commands.iter().find(has_option));
        chosen.cloned().unwrap_or_default()
    };
    read(&words, &input.name)
}

/// Returns the error for a text or words that are no command line of QEMU.
fn no_command_line(name: &str) -> anyhow::Error {
    let problem =
        Problem::new("not a command line of QEMU: it has no program of QEMU and no option");
    let help = "give the whole command line, as in /proc/PID/cmdline; `tidegate import libvirt` \
                reads the XML of a domain";
    problem.at(name).help(help).into()
}

/// Reads the words of a command line; `name` stands for it in messages.
///
/// # Errors
/// If there is neither a program of QEMU nor an option.
pub(super) fn read(words: &[String], name: &str) -> Result<Guest> {
    let mut line = CommandLine {
        guest: Guest {
            name: "guest".to_owned(),
            place: name.to_owned(),
            ..Guest::default()
        },
        nodes: Nodes::default(),
        devices: Vec::new(),
        drives: BTreeSet::new(),
    };
    // Only what follows the program in a script counts. Without a program, words before the first
    // option are another program, such as a wrapper, and no images.
    let program = program(words);
    let option = words.iter().position(|word| word.starts_with('-'));
    let first = program
        .map(|at| at + 1)
        .or(option)
        .ok_or_else(|| no_command_line(name))?;
    if program.is_none() {
        for (index, word) in words[..first].iter().enumerate() {
            let what = "stands before all options and is no program of QEMU: left out";
            let place = format!("{name}: argument {} ({})", index + 1, shown(word));
            line.guest.remark(place, what);
        }
    }
    // Counted from the program, if there is one.
    let counted_from = program.map_or(0, |at| at + 1);
    let mut rest = words.iter().skip(counted_from).enumerate();
    rest.by_ref().take(first - counted_from).for_each(drop);
    let mut rest = rest.peekable();
    while let Some((index, word)) = rest.next() {
        let place = format!("{name}: argument {} ({})", index + 1, shown(word));
        let option = word.strip_prefix('-').map(|_| word.replacen("--", "-", 1));
        match option {
            // A word of a script such as "$@", whose value only the shell knows.
            None if word.starts_with('$') => {
                let what = "a variable of the shell: what it stands for is not read";
                line.guest.remark(place, what);
            }
            None => line.image(word, place),
            Some(flag) if flag == SNAPSHOT => line.guest.remark(place, THROWN_AWAY),
            Some(flag) if FLAGS.contains(&flag.as_str()) => {}
            Some(option) => {
                if let Some((_, value)) = rest.next_if(|(_, next)| !next.starts_with('-')) {
                    line.option(&option, value, place);
                }
            }
        }
    }
    Ok(line.finish())
}

/// Returns the index of the program in a command line or script.
fn program(words: &[String]) -> Option<usize> {
    let is_value = |at: usize| {
        let option = at.checked_sub(1).map(|before| words[before].as_str());
        option.is_some_and(|option| TAKE_NAMES.contains(&option.trim_start_matches('-')))
    };
    (0..words.len()).find(|at| is_program(&words[*at]) && !is_value(*at))
}

/// Returns true if a word is the program: `qemu-system-x86_64`, `/usr/libexec/qemu-kvm`, `kvm`.
fn is_program(word: &str) -> bool {
    let name = word.rsplit('/').next().unwrap_or_default();
    let is_path = !word.starts_with('-') && !word.contains(['=', ',']);
    // Scripts make and check images by these.
    let is_tool = ["qemu-img", "qemu-io", "qemu-nbd"].contains(&name);
    is_path && !is_tool && (name.starts_with("qemu-") || name == "qemu" || name == "kvm")
}

/// Returns true for a key of a drive that its block node has, or a node below that.
fn is_of_node(key: &str) -> bool {
    let first = key.split('.').next().unwrap_or_default();
    let of_node = [
        "backing",
        "driver",
        "file",
        "filename",
        "offset",
        "size",
        "throttle-group",
    ];
    of_node.contains(&first)
}

/// Command line as far as it was read.
struct CommandLine {
    guest: Guest,
    nodes: Nodes,
    /// Nodes or drives that a device uses, with the place of the device.
    devices: Vec<(String, String)>,
    /// Identities of drives.
    drives: BTreeSet<String>,
}

impl CommandLine {
    fn option(&mut self, option: &str, value: &str, place: String) {
        match option {
            "-name" => {
                let all = options(value);
                let first = all
                    .first()
                    .filter(|(_, value)| value == "on")
                    .map(|(name, _)| name);
                let name = last(&all, "guest").or(first.map(String::as_str));
                if let Some(name) = name {
                    name.clone_into(&mut self.guest.name);
                }
            }
            "-drive" => self.drive(value, place),
            "-blockdev" => {
                let keys = keys(value);
                if keys.contains_key("node-name") {
                    self.nodes.add(keys);
                } else {
                    let what = "a block node without a name: left out";
                    self.guest.remark(place, what);
                }
            }
            "-object" => self.object(&keys(value), place),
            "-device" => {
                let keys = keys(value);
                if let Some(drive) = keys.get("drive") {
                    let model = options(value).first().map(|(model, _)| model.clone());
                    let model = keys.get("driver").cloned().or(model).unwrap_or_default();
                    if model.ends_with("-cd") || ["floppy", "sd-card"].contains(&model.as_str()) {
                        self.guest.remark(place, STAYS);
                    } else {
                        self.devices.push((drive.clone(), place))
                    }
                }
            }
            "-set" if value.starts_with("drive.") => {
                self.guest
                    .remark(place, "is not read: write it into -drive");
            }
            "-fsdev" if value.contains("throttling.") => {
                self.guest
                    .remark(place, "limits of a shared directory have no counterpart");
            }
            "-readconfig" => {
                self.guest
                    .remark(place, "the file is not read: its disks are missing");
            }
            _ if IMAGES.contains(&option) => self.image(value, place),
            _ if NOT_SERVED.contains(&option) => self.guest.remark(place, STAYS),
            _ => {}
        }
    }

    /// Adds a disk that is named by its image alone.
    fn image(&mut self, name: &str, place: String) {
        let mut disk = GuestDisk {
            label: format!("disk{}", self.guest.disks.len()),
            place: place.clone(),
            ..GuestDisk::default()
        };
        match path_of(name) {
            Ok(path) => {
                disk.format = image_format(&path);
                disk.path = Some(path);
            }
            Err(what) => self.guest.remark(place, what),
        }
        self.guest.disks.push(disk);
    }

    fn drive(&mut self, value: &str, place: String) {
        let all = options(value);
        let id = last(&all, "id").map(str::to_owned);
        self.drives.extend(id.clone());
        let is_cdrom = last(&all, "media") == Some("cdrom");
        if is_cdrom || last(&all, "if").is_some_and(|interface| NOT_DISKS.contains(&interface)) {
            return self.guest.remark(place, STAYS);
        }
        let mut disk = GuestDisk {
            label: id.unwrap_or_else(|| format!("disk{}", self.guest.disks.len())),
            place: place.clone(),
            ..GuestDisk::default()
        };
        let (mut group, mut node) = (None, Keys::new());
        for (key, value) in &all {
            match key.as_str() {
                "readonly" | "read-only" => disk.read_only = value == "on" || value == "true",
                "throttling.group" | "group" => group = Some(value.clone()),
                "snapshot" if value == "on" => self.guest.remark(&*place, THROWN_AWAY),
                "snapshot" => {}
                "file" => _ = node.insert("file.filename".to_owned(), value.clone()),
                "format" => _ = node.insert("driver".to_owned(), value.clone()),
                key if is_of_node(key) => _ = node.insert(key.to_owned(), value.clone()),
                key => self.limit(&mut disk.throttle, key, value, &place),
            }
        }
        // QEMU looks into a file for its format, which its ending tells mostly.
        let by_ending = || {
            node.get("file.filename")
                .and_then(|name| image_format(name))
        };
        let format = last(&all, "format").or(last(&all, "driver"));
        let format = format.map(str::to_owned).or_else(by_ending);
        let format = format.unwrap_or_else(|| "raw".to_owned());
        node.insert("driver".to_owned(), format);
        let below = self.nodes.below_keys(node);
        self.take_below(below, &mut disk);
        // QEMU throttles a -drive only if it has limits itself, whatever its group has.
        if let Some(group) = group.take_if(|_| disk.throttle.is_empty()) {
            let what = format!(
                "group {} without limits of its own: QEMU does not throttle this drive",
                shown(&group)
            );
            self.guest.remark(&place, what);
        }
        if let Some(group) = group {
            disk.groups.push(group.clone());
            self.add_group(group, std::mem::take(&mut disk.throttle), &place);
        }
        self.guest.disks.push(disk);
    }

    /// Gives a disk what its nodes lead to.
    fn take_below(&mut self, below: Below, disk: &mut GuestDisk) {
        if below.path.is_none() {
            self.guest.remark(&*disk.place, below.reason);
        }
        for key in &below.unknown {
            let what = format!("{} has no counterpart", shown(key));
            self.guest.remark(&*disk.place, what);
        }
        disk.groups.extend(below.groups);
        disk.path = below.path;
        disk.format = below.format;
        disk.read_only |= below.read_only;
    }

    /// Takes a limit; remarks on anything else that is not only about the hypervisor.
    fn limit(&mut self, throttle: &mut Throttle, key: &str, value: &str, place: &str) {
        match throttle.set(key, value) {
            Ok(true) => {}
            Err(what) => self.guest.remark(format!("{place} {key}"), what),
            Ok(false) if OF_HYPERVISOR.contains(&key) => {}
            Ok(false) => {
                let what = format!("{} has no counterpart", shown(key));
                self.guest.remark(place, what);
            }
        }
    }

    /// Adds a throttle group. In QEMU the limits that were set last count for all of its disks.
    fn add_group(&mut self, name: String, throttle: Throttle, place: &str) {
        if throttle.is_empty() {
            self.guest.groups.entry(name).or_default();
            return;
        }
        let shown = shown(&name);
        let before = self.guest.groups.insert(name, throttle.clone());
        if before.is_some_and(|before| !before.is_empty() && before != throttle) {
            let what = format!("other limits of group {shown} than before: the last ones count");
            self.guest.remark(place, what);
        }
    }

    fn object(&mut self, keys: &Keys, place: String) {
        let is_group = keys
            .get("qom-type")
            .is_some_and(|kind| kind == "throttle-group")
            || keys.contains_key("throttle-group");
        if !is_group {
            return;
        }
        let Some(id) = keys.get("id").cloned() else {
            return self
                .guest
                .remark(place, "a throttle group without an id: left out");
        };
        let mut throttle = Throttle::default();
        for (key, value) in keys {
            let limit = key
                .strip_prefix("x-")
                .or_else(|| key.strip_prefix("limits."));
            match limit {
                Some(limit) => self.limit(&mut throttle, limit, value, &place),
                None if ["id", "qom-type", "throttle-group"].contains(&key.as_str()) => {}
                None => self
                    .guest
                    .remark(&*place, format!("{} has no counterpart", shown(key))),
            }
        }
        self.add_group(id, throttle, &place);
    }

    /// Adds the disks of block nodes that devices use.
    fn finish(mut self) -> Guest {
        for (node, place) in std::mem::take(&mut self.devices) {
            if self.drives.contains(&node) {
                continue;
            }
            let Some(below) = self.nodes.below(&node) else {
                let what = format!("there is no block node {}: left out", shown(&node));
                self.guest.remark(place, what);
                continue;
            };
            let mut disk = GuestDisk {
                label: node,
                place,
                ..GuestDisk::default()
            };
            self.take_below(below, &mut disk);
            self.guest.disks.push(disk);
        }
        let groups = &self.guest.groups;
        for disk in &self.guest.disks {
            let unknown = disk.groups.iter().filter(|it| !groups.contains_key(*it));
            self.guest.remarks.extend(unknown.map(|group| Remark {
                place: disk.place.clone(),
                what: format!("there is no throttle group {}: no limit", shown(group)),
            }));
        }
        self.guest
    }
}
