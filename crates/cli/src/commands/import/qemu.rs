//! Command lines of QEMU: `-drive`, `-blockdev`, `-object throttle-group`, `-device`.

use std::collections::BTreeSet;

use anyhow::Result;

use super::guest::{Guest, GuestDisk};
use super::options_list::{last, options};
use super::qemu_blocks::{Keys, Nodes, keys, path_of};
use super::throttle::Throttle;
use super::{Input, shown};
use crate::problem::Problem;
use crate::shell;

/// Options of QEMU that take no value.
const FLAGS: [&str; 22] = [
    "-nographic",
    "-S",
    "-s",
    "-snapshot",
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
/// Options, without dashes, whose value may be spelt like a program.
const TAKE_NAMES: [&str; 2] = ["accel", "name"];
/// Keys of a drive that say how the guest sees it or how QEMU opens it.
const OF_HYPERVISOR: [&str; 24] = [
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
    "format",
    "file",
    "node-name",
    "driver",
    "cache.direct",
    "cache.no-flush",
    "cache.writeback",
    "file.locking",
    "file.aio",
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
                    if model.ends_with("-cd") {
                        self.guest
                            .remark(place, "a CD-ROM stays with the hypervisor")
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
        self.set_path(&mut disk, name, &place);
        self.guest.disks.push(disk);
    }

    fn set_path(&mut self, disk: &mut GuestDisk, name: &str, place: &str) {
        match path_of(name) {
            Ok(path) => disk.path = Some(path),
            Err(what) => self.guest.remark(place, what),
        }
    }

    fn drive(&mut self, value: &str, place: String) {
        let all = options(value);
        let is = |key: &str, value: &str| last(&all, key) == Some(value);
        let id = last(&all, "id").map(str::to_owned);
        self.drives.extend(id.clone());
        if is("media", "cdrom") || is("if", "pflash") || is("if", "floppy") {
            let what = "a CD-ROM, floppy or firmware stays with the hypervisor";
            return self.guest.remark(place, what);
        }
        let mut disk = GuestDisk {
            label: id.unwrap_or_else(|| format!("disk{}", self.guest.disks.len())),
            place: place.clone(),
            format: last(&all, "format")
                .filter(|format| *format != "raw")
                .map(str::to_owned),
            ..GuestDisk::default()
        };
        let name = last(&all, "file")
            .or(last(&all, "file.filename"))
            .unwrap_or_default();
        self.set_path(&mut disk, name, &place);
        for (key, value) in &all {
            match key.as_str() {
                "readonly" | "read-only" => disk.read_only = value == "on" || value == "true",
                "throttling.group" | "group" => disk.group = Some(value.clone()),
                key => self.limit(&mut disk.throttle, key, value, &place),
            }
        }
        // QEMU throttles a -drive only if it has limits itself, whatever its group has.
        if let Some(group) = disk.group.take_if(|_| disk.throttle.is_empty()) {
            let what = format!(
                "group {} without limits of its own: QEMU does not throttle this drive",
                shown(&group)
            );
            self.guest.remark(&place, what);
        }
        if let Some(group) = disk.group.clone() {
            self.add_group(group, std::mem::take(&mut disk.throttle), &place);
        }
        self.guest.disks.push(disk);
    }

    /// Takes a limit; remarks on anything else that is not only about the hypervisor.
    fn limit(&mut self, throttle: &mut Throttle, key: &str, value: &str, place: &str) {
        match throttle.set(key, value) {
            Ok(true) => {}
            Err(what) => self.guest.remark(format!("{place} {key}"), what),
            Ok(false) if OF_HYPERVISOR.contains(&key) || key.starts_with("file.") => {}
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
            if below.path.is_none() {
                self.guest.remark(&*place, below.reason);
            }
            let mut groups = below.groups.into_iter();
            let group = groups.next();
            for other in groups {
                let what = format!(
                    "a disk in several throttle groups has no counterpart: {} is left out",
                    shown(&other)
                );
                self.guest.remark(&*place, what);
            }
            if let Some(group) = &group
                && !self.guest.groups.contains_key(group)
            {
                let what = format!("there is no throttle group {}: no limit", shown(group));
                self.guest.remark(&*place, what);
            }
            self.guest.disks.push(GuestDisk {
                label: node,
                place,
                path: below.path,
                format: below.format,
                read_only: below.read_only,
                group,
                ..GuestDisk::default()
            });
        }
        self.guest
    }
}
