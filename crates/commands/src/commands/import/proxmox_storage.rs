//! Storages of Proxmox VE (`/etc/pve/storage.cfg`), and the paths of their volumes.

use std::collections::BTreeMap;

use super::{Input, shown};

/// Storages of a new installation.
const DEFAULT: &str = "\
dir: local
    path /var/lib/vz
lvmthin: local-lvm
    vgname pve
zfspool: local-zfs
    pool rpool/data
";

/// Kind of a storage, with what its volumes' paths begin with.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Place {
    /// Files in a directory for images.
    Directory(String),
    /// Files in a directory for images on btrfs, each raw one in a subvolume of its own.
    Subvolumes(String),
    /// Block devices in a directory.
    Devices(String),
    /// Neither files nor block devices of this host, with the name of the kind.
    Elsewhere(String),
}

/// Storages by their names.
#[derive(Debug)]
pub(super) struct Storages {
    places: BTreeMap<String, Place>,
    is_default: bool,
}

impl Storages {
    /// Reads storages, or takes those of a new installation.
    pub(super) fn new(file: Option<&Input>) -> Storages {
        let text = file.map_or(DEFAULT, |input| input.text.as_str());
        Storages {
            places: read(text),
            is_default: file.is_none(),
        }
    }

    /// Returns the path of a volume such as `local:100/vm-100-disk-0.raw`.
    ///
    /// # Errors
    /// The reason why it has none.
    pub(super) fn path(&self, volume: &str) -> Result<String, String> {
        if volume.starts_with('/') {
            return Ok(volume.to_owned());
        }
        let Some((storage, name)) = volume.split_once(':') else {
            return Err(format!("{} is no volume and no path", shown(volume)));
        };
        let place = self.places.get(storage).ok_or_else(|| {
            let way = if self.is_default {
                "name the storages with --storage /etc/pve/storage.cfg"
            } else {
                "it is not in the file of --storage"
            };
            format!("the storage {} is not known: {way}", shown(storage))
        })?;
        // Linked clones have their base before them.
        let parts: Vec<&str> = name.split('/').collect();
        match place {
            Place::Directory(images) | Place::Subvolumes(images) => {
                let own = parts[parts.len().saturating_sub(2)..].join("/");
                let subvolume = own
                    .strip_suffix(".raw")
                    .filter(|_| matches!(place, Place::Subvolumes(_)));
                Ok(match subvolume {
                    Some(subvolume) => format!("{images}/{subvolume}/disk.raw"),
                    None => format!("{images}/{own}"),
                })
            }
            Place::Devices(path) => Ok(format!("{path}/{}", parts[parts.len() - 1])),
            Place::Elsewhere(kind) => {
                let kind = shown(kind);
                Err(format!(
                    "the storage {} ({kind}) has no file on this host",
                    shown(storage)
                ))
            }
        }
    }
}

/// Reads the format of `storage.cfg`: a heading `KIND: NAME`, and below it indented keys.
fn read(text: &str) -> BTreeMap<String, Place> {
    let mut places = BTreeMap::new();
    let mut current: Option<(String, String, BTreeMap<String, String>)> = None;
    let mut finish = |section: Option<(String, String, BTreeMap<String, String>)>| {
        if let Some((kind, name, keys)) = section {
            places.insert(name.clone(), place(&kind, &name, &keys));
        }
    };
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        if line.starts_with(char::is_whitespace) {
            if let Some((_, _, keys)) = &mut current {
                let line = line.trim();
                let (key, value) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
                keys.insert(key.to_owned(), value.trim().to_owned());
            }
        } else if let Some((kind, name)) = line.split_once(':') {
            let next = (
                kind.trim().to_owned(),
                name.trim().to_owned(),
                BTreeMap::new(),
            );
            finish(current.replace(next));
        }
    }
    finish(current);
    places
}

fn place(kind: &str, name: &str, keys: &BTreeMap<String, String>) -> Place {
    let key = |key: &str| keys.get(key).filter(|value| !value.is_empty());
    match kind {
        "dir" | "btrfs" | "nfs" | "cifs" | "cephfs" | "glusterfs" => {
            let default = format!("/mnt/pve/{name}");
            let images = format!(
                "{}/{}",
                key("path").unwrap_or(&default),
                images_directory(key("content-dirs"))
            );
            if kind == "btrfs" {
                Place::Subvolumes(images)
            } else {
                Place::Directory(images)
            }
        }
        "lvm" | "lvmthin" => match key("vgname") {
            Some(group) => Place::Devices(format!("/dev/{group}")),
            None => Place::Elsewhere(kind.to_owned()),
        },
        "zfspool" => match key("pool") {
            Some(pool) => Place::Devices(format!("/dev/zvol/{pool}")),
            None => Place::Elsewhere(kind.to_owned()),
        },
        _ => Place::Elsewhere(kind.to_owned()),
    }
}

/// Returns the directory of images below that of their storage. `content-dirs` has others than
/// usual: `images=vm-disks,iso=cds`.
fn images_directory(content_dirs: Option<&String>) -> &str {
    const USUAL: &str = "images";
    let separators = |c: char| c.is_whitespace() || ",;".contains(c);
    let mut dirs = content_dirs.map_or("", String::as_str).split(separators);
    let own = dirs.find_map(|dir| dir.strip_prefix("images="));
    own.map(|own| own.trim_matches('/'))
        .filter(|own| !own.is_empty())
        .unwrap_or(USUAL)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn storages(text: &str) -> Storages {
        let input = Input {
            name: "storage.cfg".to_owned(),
            text: text.to_owned(),
        };
        Storages::new(Some(&input))
    }

    #[test]
    fn images_are_where_their_storage_says() {
        let own = storages(
            "btrfs: fast\n\tpath /mnt/fast/pve\n\tcontent images\n\n\
             dir: odd\n\tpath /srv/odd\n\tcontent-dirs iso=cds,images=/vm/disks/\n\n\
             btrfs: both\n\tpath /mnt/both\n\tcontent-dirs images=disks\n\n\
             dir: isos\n\tpath /srv/isos\n\tcontent-dirs iso=cds\n",
        );
        for (volume, path) in [
            // Raw disks of a btrfs storage are files in subvolumes of their names.
            (
                "fast:100/vm-100-disk-0.raw",
                "/mnt/fast/pve/images/100/vm-100-disk-0/disk.raw",
            ),
            (
                "fast:9/base-9-disk-0.raw/100/vm-100-disk-0.raw",
                "/mnt/fast/pve/images/100/vm-100-disk-0/disk.raw",
            ),
            (
                "fast:100/vm-100-disk-1.qcow2",
                "/mnt/fast/pve/images/100/vm-100-disk-1.qcow2",
            ),
            (
                "odd:100/vm-100-disk-0.raw",
                "/srv/odd/vm/disks/100/vm-100-disk-0.raw",
            ),
            (
                "both:100/vm-100-disk-0.raw",
                "/mnt/both/disks/100/vm-100-disk-0/disk.raw",
            ),
            (
                "isos:100/vm-100-disk-0.raw",
                "/srv/isos/images/100/vm-100-disk-0.raw",
            ),
        ] {
            assert_eq!(own.path(volume).as_deref(), Ok(path));
        }
    }

    #[test]
    fn volumes_have_the_paths_of_their_storages() {
        let default = Storages::new(None);
        for (volume, path) in [
            ("local-lvm:vm-100-disk-0", "/dev/pve/vm-100-disk-0"),
            (
                "local:100/vm-100-disk-0.qcow2",
                "/var/lib/vz/images/100/vm-100-disk-0.qcow2",
            ),
            (
                "local-zfs:base-9-disk-0/vm-100-disk-0",
                "/dev/zvol/rpool/data/vm-100-disk-0",
            ),
            (
                "local:9/base-9.raw/100/vm.raw",
                "/var/lib/vz/images/100/vm.raw",
            ),
            ("/dev/sdb", "/dev/sdb"),
        ] {
            assert_eq!(default.path(volume).as_deref(), Ok(path));
        }
        assert!(
            default
                .path("nas:x")
                .expect_err("unknown")
                .contains("--storage")
        );
        assert!(default.path("x").is_err());
        let own = storages("nfs: nas\n\tserver 192.0.2.1\n\nrbd: ceph\n\tpool vms\nlvm: bad\n");
        assert_eq!(
            own.path("nas:1/a.raw").as_deref(),
            Ok("/mnt/pve/nas/images/1/a.raw")
        );
        assert!(
            own.path("ceph:x")
                .expect_err("remote")
                .contains("no file on this host")
        );
        assert!(own.path("bad:x").is_err());
        assert!(
            own.path("local:1/a.raw")
                .expect_err("other")
                .contains("not in the file")
        );
    }
}
