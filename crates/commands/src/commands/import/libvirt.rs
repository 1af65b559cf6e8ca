//! Domains of libvirt (<https://libvirt.org/formatdomain.html>).
//!
//! XML with a document type is refused by the parser, and with it all entities of its own.

use anyhow::Result;
use roxmltree::{Document, Node};
use tidegate_core::objective::Objective;

use super::content::{OPTIONS_OF_QEMU, THROWN_AWAY, encrypted, part_of_file};
use super::guest::{Guest, GuestDisk};
use super::throttle::Throttle;
use super::{Input, shown};
use crate::problem::Problem;

/// Elements of a disk that say how the guest sees it or how QEMU opens it: they stay with libvirt.
const OF_HYPERVISOR: [&str; 14] = [
    "address", "alias", "boot", "serial", "wwn", "vendor", "product", "geometry", "blockio",
    "driver", "target", "source", "auth", "acpi",
];
/// Elements that are read elsewhere.
const READ: [&str; 5] = [
    "iotune",
    "throttlefilters",
    "readonly",
    "encryption",
    "transient",
];
/// Elements of a source that say how libvirt and QEMU open it, and change no byte of it.
const OF_SOURCE: [&str; 14] = [
    "address",
    "auth",
    "config",
    "cookies",
    "host",
    "identity",
    "initiator",
    "knownHosts",
    "privateData",
    "readahead",
    "reconnect",
    "seclabel",
    "ssl",
    "timeout",
];

/// Reads a domain.
///
/// # Errors
/// If the text is no XML, or not of a domain.
pub(super) fn read(input: &Input) -> Result<Guest> {
    let document = Document::parse(&input.text).map_err(|error| {
        let problem = Problem::new(format!("not the XML of a domain: {error}"));
        problem
            .at(&input.name)
            .help("`virsh dumpxml DOMAIN` prints it")
    })?;
    let root = document.root_element();
    // `virsh managedsave-dumpxml` and files of libvirt's state have the domain inside.
    let domain = root.descendants().find(|node| node.has_tag_name("domain"));
    let Some(domain) = domain else {
        let found = root.tag_name().name();
        let problem = Problem::new(format!("no <domain>, but <{found}>")).at(&input.name);
        return Err(problem
            .help("`virsh dumpxml DOMAIN` prints a domain")
            .into());
    };
    Ok(Reader {
        input,
        document: &document,
    }
    .guest(domain))
}

/// Document being read.
struct Reader<'a> {
    input: &'a Input,
    document: &'a Document<'a>,
}

impl Reader<'_> {
    /// Returns the place of an element, for remarks.
    fn place(&self, node: Node<'_, '_>) -> String {
        let row = self.document.text_pos_at(node.range().start).row as usize;
        format!(
            "{} <{}>",
            self.input.line(row.saturating_sub(1)),
            node.tag_name().name()
        )
    }

    fn guest(&self, domain: Node<'_, '_>) -> Guest {
        let name = child(domain, "name")
            .map(text)
            .filter(|name| !name.is_empty());
        let mut guest = Guest {
            name: name.unwrap_or_else(|| self.input.stem()),
            place: self.place(domain),
            ..Guest::default()
        };
        let groups = child(domain, "throttlegroups");
        for group in groups.iter().flat_map(|groups| elements(*groups)) {
            let mut throttle = Throttle::default();
            let name = self.limits(group, &mut throttle, &mut guest);
            match name {
                Some(name) => _ = guest.groups.insert(name, throttle),
                None => guest.remark(self.place(group), "has no <group_name>: left out"),
            }
        }
        if let Some(blkiotune) = child(domain, "blkiotune") {
            self.blkiotune(blkiotune, &mut guest);
        }
        if let Some(options) = child(domain, "commandline") {
            guest.remark(self.place(options), OPTIONS_OF_QEMU);
        }
        let disks = child(domain, "devices");
        let disks = disks.iter().flat_map(|devices| elements(*devices));
        for disk in disks.filter(|node| node.has_tag_name("disk")) {
            self.disk(disk, &mut guest);
        }
        guest
    }

    /// Reads limits of `<iotune>` or `<throttlegroup>`; returns the name of the group.
    fn limits(
        &self,
        node: Node<'_, '_>,
        throttle: &mut Throttle,
        guest: &mut Guest,
    ) -> Option<String> {
        let mut name = None;
        for key in elements(node) {
            if key.has_tag_name("group_name") {
                name = Some(text(key)).filter(|name| !name.is_empty());
                continue;
            }
            match throttle.set(key.tag_name().name(), &text(key)) {
                Ok(true) => {}
                Ok(false) => guest.remark(self.place(key), "has no counterpart"),
                Err(what) => guest.remark(self.place(key), what),
            }
        }
        name
    }

    /// Reads the weight and throttles of the host's devices.
    fn blkiotune(&self, blkiotune: Node<'_, '_>, guest: &mut Guest) {
        let is_device = |node: &Node<'_, '_>| node.has_tag_name("device");
        let devices = elements(blkiotune).filter(is_device).count();
        let only = elements(blkiotune).find(is_device).filter(|_| devices == 1);
        let of_device = only.and_then(|device| child(device, "weight"));
        for node in elements(blkiotune) {
            match node.tag_name().name() {
                // On its device, the weight of a device replaces that of the domain.
                "weight" if of_device.and_then(weight).is_some() => {
                    let what = "left out: the <weight> of the <device> counts";
                    guest.remark(self.place(node), what);
                }
                "weight" => guest.weight = self.weight(node, guest).or(guest.weight),
                "device" if devices == 1 => self.blkio_device(node, guest),
                "device" => guest.remark(
                    self.place(node),
                    "limits of one device of several have no counterpart, because the domain \
                     does not say which disks are on it",
                ),
                _ => guest.remark(self.place(node), "has no counterpart"),
            }
        }
    }

    /// Reads the only `<device>`: the one on which all disks are taken to be.
    fn blkio_device(&self, device: Node<'_, '_>, guest: &mut Guest) {
        let path = child(device, "path").map(text).unwrap_or_default();
        let mut throttle = Throttle::default();
        for node in elements(device) {
            match node.tag_name().name() {
                "path" => {}
                "weight" => guest.weight = self.weight(node, guest).or(guest.weight),
                key => match throttle.set(key, &text(node)) {
                    Ok(true) => {}
                    Ok(false) => guest.remark(self.place(node), "has no counterpart"),
                    Err(what) => guest.remark(self.place(node), what),
                },
            }
        }
        guest.remark(
            self.place(device),
            format!("taken for all disks: they are expected on {}", shown(&path)),
        );
        guest.limits = throttle;
    }

    fn weight(&self, node: Node<'_, '_>, guest: &mut Guest) -> Option<u32> {
        let value = text(node);
        let weight = weight(node);
        let what = match weight {
            Some(_) => {
                "taken as it is, relative to VMs with 100: with CFQ on cgroup v1 the default was \
                 500"
                .to_owned()
            }
            None => format!(
                "{} is not a weight from 1 to 10000: left out",
                shown(&value)
            ),
        };
        guest.remark(self.place(node), what);
        weight
    }

    fn disk(&self, node: Node<'_, '_>, guest: &mut Guest) {
        let place = self.place(node);
        let kind = node.attribute("device").unwrap_or("disk");
        if kind != "disk" && kind != "lun" {
            let kind = shown(kind);
            return guest.remark(place, format!("a {kind} stays with the hypervisor"));
        }
        let target = child(node, "target").and_then(|target| target.attribute("dev"));
        let number = guest.disks.len();
        let mut disk = GuestDisk {
            label: target.map_or_else(|| format!("disk{number}"), str::to_owned),
            place: place.clone(),
            read_only: child(node, "readonly").is_some(),
            ..GuestDisk::default()
        };
        match source(node) {
            Ok(path) => disk.path = Some(path),
            Err(what) => guest.remark(place, what),
        }
        self.content(node, &mut disk, guest);
        let format = child(node, "driver").and_then(|driver| driver.attribute("type"));
        disk.format = format.filter(|format| *format != "raw").map(str::to_owned);
        if let Some(iotune) = child(node, "iotune")
            && let Some(group) = self.limits(iotune, &mut disk.throttle, guest)
        {
            self.add_group(iotune, group, &mut disk, guest);
        }
        if let Some(filters) = child(node, "throttlefilters") {
            self.filters(filters, &mut disk, guest);
        }
        for other in elements(node) {
            let name = other.tag_name().name();
            if !OF_HYPERVISOR.contains(&name) && !READ.contains(&name) {
                guest.remark(
                    self.place(other),
                    "has no counterpart: it stays with the hypervisor",
                );
            }
        }
        guest.disks.push(disk);
    }

    /// Reads what makes the disk another one than the bytes of its file: such a disk has no path.
    fn content(&self, node: Node<'_, '_>, disk: &mut GuestDisk, guest: &mut Guest) {
        if let Some(transient) = child(node, "transient") {
            guest.remark(self.place(transient), THROWN_AWAY);
        }
        let of_source = child(node, "source");
        let of_source = of_source.iter().flat_map(|source| elements(*source));
        // Before libvirt 3.9 `<encryption>` was beside `<source>`, and it still may be.
        for element in of_source.chain(child(node, "encryption")) {
            let what = match element.tag_name().name() {
                "encryption" => {
                    let format = element.attribute("format").unwrap_or("an unknown format");
                    encrypted(format)
                }
                "slices" => {
                    let slice = child(element, "slice");
                    let figure = |key| slice.and_then(|slice| slice.attribute(key));
                    part_of_file(figure("offset"), figure("size"))
                }
                name if OF_SOURCE.contains(&name) => continue,
                _ => {
                    guest.remark(self.place(element), "has no counterpart");
                    continue;
                }
            };
            disk.path = None;
            guest.remark(self.place(element), what);
        }
    }

    /// Adds the limits of a disk's group to the guest. All disks of a group have the same.
    fn add_group(
        &self,
        iotune: Node<'_, '_>,
        group: String,
        disk: &mut GuestDisk,
        guest: &mut Guest,
    ) {
        disk.groups.push(group.clone());
        let throttle = std::mem::take(&mut disk.throttle);
        match guest.groups.get(&group) {
            None => _ = guest.groups.insert(group, throttle),
            Some(first) if *first == throttle || throttle.is_empty() => {}
            Some(_) => guest.remark(
                self.place(iotune),
                format!(
                    "other limits than the first disk of group {}: left out",
                    shown(&group)
                ),
            ),
        }
    }

    /// Reads references to `<throttlegroups>`.
    fn filters(&self, filters: Node<'_, '_>, disk: &mut GuestDisk, guest: &mut Guest) {
        for filter in elements(filters) {
            let group = filter.attribute("group").unwrap_or_default().to_owned();
            if guest.groups.contains_key(&group) {
                disk.groups.push(group);
            } else {
                let what = format!("there is no throttle group {}: left out", shown(&group));
                guest.remark(self.place(filter), what);
            }
        }
    }
}

/// Returns the weight that an element has; `None` if it is out of range or no number.
fn weight(node: Node<'_, '_>) -> Option<u32> {
    let weight = text(node).parse().ok();
    weight.filter(|weight| (1..=Objective::MAX_WEIGHT).contains(weight))
}

/// Returns the path of a disk, or the reason why there is none.
fn source(disk: Node<'_, '_>) -> Result<String, String> {
    let kind = disk.attribute("type").unwrap_or_default();
    let Some(source) = child(disk, "source") else {
        return Err("has no <source>: add its path".to_owned());
    };
    let attribute = match kind {
        "file" => "file",
        "block" => "dev",
        "volume" => {
            let named = |key| shown(source.attribute(key).unwrap_or_default());
            return Err(format!(
                "volume {} of pool {}: `virsh vol-path` has its path",
                named("volume"),
                named("pool")
            ));
        }
        _ => {
            let protocol = source.attribute("protocol").unwrap_or(kind);
            let protocol = shown(protocol);
            return Err(format!(
                "{protocol} is no file and no block device: it cannot be served"
            ));
        }
    };
    let path = source.attribute(attribute).filter(|path| !path.is_empty());
    path.map(str::to_owned)
        .ok_or_else(|| format!("<source> has no {attribute}: add its path"))
}

/// Returns the first child element with a name.
fn child<'a, 'input>(node: Node<'a, 'input>, name: &str) -> Option<Node<'a, 'input>> {
    elements(node).find(|child| child.tag_name().name() == name)
}

fn elements<'a, 'input>(node: Node<'a, 'input>) -> impl Iterator<Item = Node<'a, 'input>> {
    node.children().filter(Node::is_element)
}

/// Returns the text of an element without white space at both ends.
fn text(node: Node<'_, '_>) -> String {
    node.text().unwrap_or_default().trim().to_owned()
}
