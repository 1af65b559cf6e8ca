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
    /// Files in a directory.
    Directory(String),
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
            Place::Directory(path) => {
                let own = &parts[parts.len().saturating_sub(2)..];
                Ok(format!("{path}/images/{}", own.join("/")))
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
            Place::Directory(key("path").cloned().unwrap_or(default))
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

#[cfg(test)]
mod tests {
    use super::*;

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
        let text = "nfs: nas\n\tserver 192.0.2.1\n\nrbd: ceph\n\tpool vms\nlvm: bad\n";
        let input = Input {
            name: "storage.cfg".to_owned(),
            text: text.to_owned(),
        };
        let own = Storages::new(Some(&input));
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
