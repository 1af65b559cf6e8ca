//! VMs of Proxmox VE (`/etc/pve/qemu-server/VMID.conf`, qm.conf(5)).

use anyhow::Result;

use super::content::{OPTIONS_OF_QEMU, THROWN_AWAY, image_format};
use super::guest::{Guest, GuestDisk};
use super::options_list::{Pair, options};
use super::proxmox_storage::Storages;
use super::{Input, shown};
use crate::problem::Problem;

/// Beginnings of the keys of disks, which a number follows.
const DISKS: [&str; 4] = ["virtio", "scsi", "sata", "ide"];
/// Beginnings of the keys of disks that stay with Proxmox.
const NOT_SERVED: [&str; 3] = ["efidisk", "tpmstate", "unused"];
/// Options of a drive that say how the guest sees it or how QEMU opens it.
const OF_HYPERVISOR: [&str; 22] = [
    "aio",
    "backup",
    "cache",
    "detect_zeroes",
    "discard",
    "iothread",
    "replicate",
    "rerror",
    "werror",
    "size",
    "ssd",
    "serial",
    "wwn",
    "model",
    "shared",
    "queues",
    "scsiblock",
    "product",
    "vendor",
    "media",
    "format",
    "file",
];

/// Reads a VM. Snapshots behind the current state are left out.
///
/// # Errors
/// If the text has no `key: value` line.
pub(super) fn read(input: &Input, storages: &Storages) -> Result<Guest> {
    if !input.text.lines().any(has_key) {
        let problem = Problem::new("not the configuration of a VM: it has no line `key: value`");
        let help = "/etc/pve/qemu-server/VMID.conf is one; `tidegate import libvirt` reads the XML \
                    of a domain";
        return Err(problem.at(&input.name).help(help).into());
    }
    let mut guest = Guest {
        name: input.stem(),
        place: input.name.clone(),
        ..Guest::default()
    };
    for (index, line) in input.text.lines().enumerate() {
        if line.starts_with('[') {
            let what = "snapshots and pending changes are left out from here on";
            guest.remark(input.line(index), what);
            break;
        }
        let Some((key, value)) = line.split_once(':').filter(|_| !line.starts_with('#')) else {
            continue;
        };
        let place = format!("{} {key}", input.line(index));
        match key {
            "name" if !value.trim().is_empty() => value.trim().clone_into(&mut guest.name),
            "args" => guest.remark(place, OPTIONS_OF_QEMU),
            _ if is_numbered(key, &DISKS) => drive(key, value.trim(), place, storages, &mut guest),
            _ if is_numbered(key, &NOT_SERVED) => {
                guest.remark(place, "stays with the hypervisor");
            }
            _ => {}
        }
    }
    Ok(guest)
}

/// Returns true for a line `key: value`.
fn has_key(line: &str) -> bool {
    let key = line.split_once(':').map_or("", |(key, _)| key);
    let is_of_key = |character: char| character.is_ascii_alphanumeric() || "_-".contains(character);
    !key.is_empty() && key.chars().all(is_of_key)
}

/// Returns true if a key is one of `words` with a number behind it.
fn is_numbered(key: &str, words: &[&str]) -> bool {
    words.iter().any(|word| {
        let number = key.strip_prefix(word).unwrap_or_default();
        !number.is_empty() && number.bytes().all(|c| c.is_ascii_digit())
    })
}

fn drive(key: &str, value: &str, place: String, storages: &Storages, guest: &mut Guest) {
    let mut all = options(value);
    let volume = take_volume(value, &mut all);
    let is_cdrom = all.contains(&("media".to_owned(), "cdrom".to_owned()));
    if is_cdrom || volume == "none" || volume == "cdrom" {
        return guest.remark(place, "a CD-ROM stays with the hypervisor");
    }
    let mut disk = GuestDisk {
        label: key.to_owned(),
        place: place.clone(),
        ..GuestDisk::default()
    };
    match storages.path(&volume) {
        Ok(path) => disk.path = Some(path),
        Err(what) => guest.remark(place.clone(), what),
    }
    disk.format = image_format(&volume);
    for (option, value) in &all {
        match disk.throttle.set(option, value) {
            Ok(true) => {}
            Err(what) => guest.remark(format!("{place} {option}"), what),
            Ok(false) if option == "ro" => disk.read_only = value == "1" || value == "on",
            Ok(false) if option == "format" => {
                disk.format = Some(value.clone()).filter(|format| format != "raw");
            }
            Ok(false) if option == "snapshot" => {
                if value == "1" || value == "on" {
                    guest.remark(place.clone(), THROWN_AWAY);
                }
            }
            Ok(false) if OF_HYPERVISOR.contains(&option.as_str()) => {}
            Ok(false) => {
                let option = shown(option);
                guest.remark(place.clone(), format!("{option} has no counterpart"));
            }
        }
    }
    guest.disks.push(disk);
}

/// Takes the volume out of a drive's options: the value of `file`, or the first word.
fn take_volume(value: &str, all: &mut Vec<Pair>) -> String {
    if let Some(index) = all.iter().position(|(key, _)| key == "file") {
        return all.remove(index).1;
    }
    let first = value.split(',').next().unwrap_or_default();
    match all.first() {
        Some(_) if !first.contains('=') => all.remove(0).0,
        _ => String::new(),
    }
}
