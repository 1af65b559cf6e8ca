//! Inputs in the shapes that the other systems write, and hostile ones.

mod remarks;

use std::path::Path;

use clap::Parser;
use serde_json::{Value, json};
use tidegate_config::objective_view::limit_view;
use tidegate_core::objective::Limit;
use tidegate_server::config::{self, objective};

use super::guest::Guest;
use super::proxmox_storage::Storages;
use super::*;
use crate::args::Args;

/// A domain with throttle groups, limits of single disks and a weight.
const DOMAIN: &str = r#"<domain type='kvm' id='7'>
  <name>web</name>
  <blkiotune>
    <weight>800</weight>
  </blkiotune>
  <devices>
    <disk type='file' device='disk'>
      <driver name='qemu' type='raw' cache='none' io='native'/>
      <source file='/srv/vms/web "1".raw'/>
      <target dev='vda' bus='virtio'/>
      <iotune>
        <total_bytes_sec>40000000</total_bytes_sec>
        <total_iops_sec>500</total_iops_sec>
        <total_iops_sec_max>2000</total_iops_sec_max>
        <total_iops_sec_max_length>10</total_iops_sec_max_length>
        <size_iops_sec>16384</size_iops_sec>
      </iotune>
      <address type='pci' domain='0x0000' bus='0x04' slot='0x00' function='0x0'/>
    </disk>
    <disk type='block' device='disk'>
      <source dev='/dev/vg0/a'/>
      <target dev='vdb' bus='virtio'/>
      <iotune><read_iops_sec>100</read_iops_sec><group_name>data</group_name></iotune>
    </disk>
    <disk type='file' device='disk'>
      <driver name='qemu' type='qcow2'/>
      <source file='/srv/vms/b.qcow2'/>
      <target dev='vdc' bus='virtio'/>
      <iotune><read_iops_sec>100</read_iops_sec><group_name>data</group_name></iotune>
      <readonly/>
      <shareable/>
    </disk>
    <disk type='network' device='disk'>
      <source protocol='rbd' name='pool/image'/>
      <target dev='vdd' bus='virtio'/>
    </disk>
    <disk type='file' device='cdrom'><target dev='sda'/></disk>
  </devices>
</domain>
"#;

fn input(name: &str, text: &str) -> Input {
    Input {
        name: name.to_owned(),
        text: text.to_owned(),
    }
}

/// The configuration of guests, read by the daemon's reader, and what was remarked.
struct Imported {
    config: config::Config,
    text: String,
    remarks: Vec<String>,
}

fn imported(guests: &[Guest]) -> Imported {
    let (text, remarks) = tables(guests, None, true);
    let remarks: Vec<String> = remarks.iter().map(Remark::to_string).collect();
    let loaded = config::parse(&text, "import.toml", Path::new("/"));
    let loaded = loaded.unwrap_or_else(|errors| panic!("{errors}\n{text}"));
    for remark in &remarks {
        let first = remark.split_whitespace().next().expect("a place");
        assert!(text.contains(first), "{remark} is no comment of {text}");
    }
    Imported {
        config: loaded.config,
        text,
        remarks,
    }
}

impl Imported {
    /// The parts of an objective that are not at their defaults.
    fn objective(&self, vm: &str) -> Value {
        let vm = self.config.vms.iter().find(|known| known.name == vm);
        let vm = vm.unwrap_or_else(|| panic!("no {vm:?} in {}", self.text));
        let Value::Object(mut parts) = objective::to_json(&vm.objective) else {
            panic!("a table")
        };
        parts.retain(|_, value| !value.is_null());
        parts.remove("priority");
        if parts["weight"] == 100 {
            parts.remove("weight");
        }
        Value::Object(parts)
    }

    fn disks(&self, vm: &str) -> &[config::DiskConfig] {
        let mut vms = self.config.vms.iter();
        &vms.find(|known| known.name == vm).expect("a VM").disks
    }

    fn paths(&self, vm: &str) -> Vec<&str> {
        let disks = self.disks(vm).iter();
        disks
            .map(|disk| disk.path.as_deref().and_then(Path::to_str).expect("text"))
            .collect()
    }

    /// The limit of each disk, and the group whose limit it shares.
    fn disk_limits(&self, vm: &str) -> Vec<(Value, Option<&str>)> {
        let disks = self.disks(vm).iter();
        disks
            .map(|disk| (limit_json(&disk.limit), disk.limit_group.as_deref()))
            .collect()
    }

    /// Limit groups of the device by their names.
    fn groups(&self) -> Value {
        let groups = self.config.devices[0].limit_groups.iter();
        groups
            .map(|group| (group.name.clone(), limit_json(&group.limit)))
            .collect::<serde_json::Map<_, _>>()
            .into()
    }

    fn assert_remark(&self, parts: &[&str]) {
        let has = |remark: &&String| parts.iter().all(|part| remark.contains(part));
        assert!(
            self.remarks.iter().any(|it| has(&it)),
            "{parts:?}: {:#?}",
            self.remarks
        );
    }
}

fn limit_json(limit: &Limit) -> Value {
    serde_json::to_value(limit_view(limit)).expect("JSON")
}

fn limit(total: Value, read: Value, burst: Value) -> Value {
    json!({ "total": total, "read": read, "write": null, "burst": burst })
}

#[test]
fn a_domain_becomes_a_vm_whose_disks_have_its_limits() {
    let found = imported(&[libvirt::read(&input("web.xml", DOMAIN)).expect("a domain")]);
    let names: Vec<_> = found.config.vms.iter().map(|vm| vm.name.as_str()).collect();
    assert_eq!(names, ["web"], "{}", found.text);
    assert_eq!(found.objective("web"), json!({ "weight": 800 }));
    let burst = json!({ "total": "2000 IOPS @ 16 KiB", "read": null, "write": null,
        "length": "10 s" });
    let of_vda = limit(json!("500 IOPS @ 16 KiB, 40 MB/s"), Value::Null, burst);
    let in_data = (Value::Null, Some("web-data"));
    assert_eq!(
        found.disk_limits("web"),
        [(of_vda, None), in_data.clone(), in_data],
        "{}",
        found.text
    );
    let of_data = limit(Value::Null, json!("100 IOPS"), Value::Null);
    assert_eq!(found.groups(), json!({ "web-data": of_data }));
    assert_eq!(
        found.paths("web"),
        ["/srv/vms/web \"1\".raw", "/dev/vg0/a", "/srv/vms/b.raw"]
    );
    let exports: Vec<_> = found.config.disks().map(|(_, disk)| &disk.export).collect();
    assert_eq!(exports, ["web-vda", "web-vdb", "web-vdc"]);
    let read_only: Vec<_> = found
        .config
        .disks()
        .map(|(_, disk)| disk.read_only)
        .collect();
    assert_eq!(read_only, [false, false, true]);
    assert!(
        found
            .text
            .contains("qemu-img convert -O raw /srv/vms/b.qcow2 /srv/vms/b.raw")
    );
    // The disk that cannot be served is there, as a comment.
    assert!(
        found.text.contains("#[[vm.disk]]\n#export = \"web-vdd\"\n"),
        "{}",
        found.text
    );
    found.assert_remark(&["web.xml:4 <weight>", "500"]);
    found.assert_remark(&["web.xml:31 <shareable>"]);
    found.assert_remark(&["web.xml:33 <disk>", "rbd"]);
    found.assert_remark(&["web.xml:37 <disk>", "cdrom"]);
}

#[test]
fn limits_of_guests_are_theirs_alone() {
    let text = "<domain><name>a</name>
<blkiotune><device><path>/dev/sda</path><write_bytes_sec>9000</write_bytes_sec></device></blkiotune>
<devices>
<disk type='file'><source file='/N1.raw'/><target dev='vda'/>
<iotune><total_iops_sec>50</total_iops_sec><group_name>g</group_name></iotune></disk>
<disk type='file'><source file='/N2.raw'/><target dev='vdb'/>
<iotune><total_iops_sec>50</total_iops_sec><group_name>g</group_name></iotune></disk>
<disk type='file'><source file='/N3.raw'/><target dev='vdc'/>
<iotune><total_iops_sec>7</total_iops_sec><group_name>h</group_name></iotune></disk>
</devices></domain>";
    let read = |name: &str, text: &str| libvirt::read(&input(name, text)).expect("a domain");
    let [first, second] = ["a", "b"].map(|name| {
        let text = text.replace("/N", &format!("/{name}"));
        read(&format!("{name}.xml"), &text)
    });
    let nowhere = text.replace("type='file'", "type='network'");
    let found = imported(&[first, second, read("c.xml", &nowhere)]);
    let group = limit(json!("50 IOPS"), Value::Null, Value::Null);
    assert_eq!(
        found.groups(),
        json!({ "a-g": group, "a-g-2": group }),
        "{}",
        found.text
    );
    // A group of one disk is that disk's limit.
    let own = limit(json!("7 IOPS"), Value::Null, Value::Null);
    for (vm, group) in [("a", Some("a-g")), ("a-2", Some("a-g-2"))] {
        let limits = found.disk_limits(vm);
        let shared = (Value::Null, group);
        assert_eq!(limits, [shared.clone(), shared, (own.clone(), None)]);
        assert_eq!(found.objective(vm)["limit"]["write"], "9 kB/s");
    }
    assert!(found.text.contains("#name = \"a-g-3\"\n"), "{}", found.text);
}

#[test]
fn a_disk_that_guests_share_is_served_once() {
    let text = "<domain><name>a</name><devices><disk type='file'><source file='/s.raw'/>
<target dev='vda'/><shareable/></disk></devices></domain>";
    let read = |name: &str| libvirt::read(&input(name, text)).expect("a domain");
    let found = imported(&[read("a.xml"), read("b.xml")]);
    assert_eq!(found.config.vms.len(), 1, "{}", found.text);
    assert!(found.text.contains("#name = \"a-2\"\n"), "{}", found.text);
    found.assert_remark(&["b.xml:1 <disk>", "a file is served once"]);
}

#[test]
fn parts_of_a_configuration_have_their_limit_groups_first() {
    let mut words = vec!["-name".to_owned(), "b".to_owned()];
    for file in ["x", "y"] {
        let drive =
            format!("file=/{file}.raw,if=virtio,throttling.group=g,throttling.bps-read=9000");
        words.extend(["-drive".to_owned(), drive]);
    }
    let (text, remarks) = tables(&[of_qemu(&words)], Some("ssd"), false);
    assert_eq!(remarks, []);
    let begin = "# limit groups belong to the [[device]] of the disks: behind it, and before the \
                 next [[device]]\n[[device.limit_group]]\nname = \"b-g\"\n\
                 limit = { read = \"9 kB/s\" }\n\n[[vm]]\nname = \"b\"\ndevice = \"ssd\"\n";
    assert!(text.starts_with(begin), "{text}");
}

#[test]
fn throttle_groups_and_devices_of_a_domain_are_read() {
    let text = "<domain><name>a/b</name>
<throttlegroups><throttlegroup><group_name>g</group_name>
<write_bytes_sec>5000000</write_bytes_sec></throttlegroup></throttlegroups>
<blkiotune><device><path>/dev/sda</path><read_iops_sec>70</read_iops_sec>
<weight>50</weight></device></blkiotune>
<devices><disk type='file'><source file='/a.raw'/><target dev='vda'/>
<throttlefilters><throttlefilter group='g'/><throttlefilter group='h'/></throttlefilters>
</disk></devices></domain>";
    let found = imported(&[libvirt::read(&input("a.xml", text)).expect("a domain")]);
    assert_eq!(
        found.objective("a-b"),
        json!({ "limit": { "total": null, "read": "70 IOPS", "write": "5 MB/s", "burst": null },
            "weight": 50 })
    );
    found.assert_remark(&["a.xml:4 <device>", "expected on \"/dev/sda\""]);
    found.assert_remark(&["a.xml:7 <throttlefilter>", "no throttle group \"h\""]);
}

#[test]
fn hostile_domains_are_refused_or_named() {
    let refused = |text: &str| {
        let error = libvirt::read(&input("x.xml", text)).expect_err("refused");
        error.to_string()
    };
    let laughs = "<!DOCTYPE d [<!ENTITY a \"aaaa\"><!ENTITY b \"&a;&a;&a;\">]>\
                  <domain><name>&b;</name></domain>";
    assert!(refused(laughs).contains("not the XML of a domain"));
    assert!(refused("<domain>").contains("not the XML"));
    assert!(refused("<network/>").contains("<network>"));
    let text = format!(
        "<domain><name>{}\u{1b}[2J</name><devices>
<disk type='file'><source file=''/></disk>
<disk type='volume'><source pool='p' volume='v'/><target dev='vdb'/></disk>
<disk type='file'><source file='/a'/><target dev='vdc'/><iotune>
<total_iops_sec>99999999999999999999999</total_iops_sec>
<total_bytes_sec>-5</total_bytes_sec><read_iops_sec>10 MB/s</read_iops_sec>
<surprise>1</surprise></iotune></disk></devices></domain>",
        "é".repeat(100)
    );
    // A control character is no character of XML.
    assert!(refused(&text).contains("not the XML"));
    let found =
        imported(
            &[libvirt::read(&input("x.xml", &text.replace('\u{1b}', "!"))).expect("a domain")],
        );
    found.assert_remark(&["x.xml:5 <total_iops_sec>", "above every rate"]);
    found.assert_remark(&["x.xml:6 <total_bytes_sec>", "not a whole number"]);
    found.assert_remark(&["x.xml:6 <read_iops_sec>", "not a whole number"]);
    found.assert_remark(&["x.xml:7 <surprise>", "no counterpart"]);
    found.assert_remark(&["x.xml:2 <disk>", "no file"]);
    found.assert_remark(&["x.xml:3 <disk>", "virsh vol-path"]);
}

#[test]
fn a_vm_of_proxmox_is_read_with_the_units_of_its_drives() {
    let text = "#comment: x\nboot: order=scsi0\nname: db\nmemory: 4096\n\
        scsi0: local-lvm:vm-100-disk-0,cache=none,iops_rd=1000,iops_rd_max=2000,\
        iops_rd_max_length=10,mbps_rd=100,mbps_wr=0.5,size=32G,ssd=1\n\
        virtio1: local:100/vm-100-disk-1.qcow2,ro=1,size=8G\n\
        sata2: ceph:vm-100-disk-2,mbps=20\nide2: none,media=cdrom\nefidisk0: local-lvm:x,size=4M\n\
        scsi3: /dev/disk/by-id/ata-x,glow=1\n[before]\nscsi0: local-lvm:old,iops=1\n";
    let storages = Storages::new(None);
    let guest = proxmox::read(&input("/etc/pve/100.conf", text), &storages);
    let found = imported(&[guest.expect("keys")]);
    let burst = json!({ "total": null, "read": "2000 IOPS", "write": null, "length": "10 s" });
    assert_eq!(
        found.disk_limits("db"),
        [
            (
                json!({ "total": null, "read": "1000 IOPS, 104857.6 kB/s",
                    "write": "524.288 kB/s", "burst": burst }),
                None
            ),
            (Value::Null, None),
            (Value::Null, None),
        ],
        "{}",
        found.text
    );
    assert_eq!(
        found.paths("db"),
        [
            "/dev/pve/vm-100-disk-0",
            "/var/lib/vz/images/100/vm-100-disk-1.raw",
            "/dev/disk/by-id/ata-x"
        ]
    );
    found.assert_remark(&["100.conf:7 sata2", "storage \"ceph\" is not known"]);
    found.assert_remark(&["100.conf:8 ide2", "CD-ROM"]);
    found.assert_remark(&["100.conf:9 efidisk0"]);
    found.assert_remark(&["100.conf:10 scsi3", "\"glow\" has no counterpart"]);
    found.assert_remark(&["100.conf:11", "snapshots"]);
    assert!(!found.text.contains("vm-100-disk-old"));
}

#[test]
fn a_command_line_of_qemu_is_read_in_all_its_notations() {
    let text = "#!/bin/sh\nexec qemu-system-x86_64 -name guest=web,debug-threads=on -nographic \\\n\
        -drive file=/a,,b.raw,if=virtio,format=raw,throttling.iops-total=500,\
        throttling.iops-size=4096,werror=stop \\\n\
        -drive file=/c.raw,if=none,id=c,iops_rd=7,group=g -device virtio-blk-pci,drive=c \\\n\
        -drive file=/d.raw,if=virtio,throttling.group=g,colour=red \\\n\
        -object throttle-group,id=t,x-bps-write=1000000 \\\n\
        -blockdev '{\"driver\":\"throttle\",\"node-name\":\"top\",\"throttle-group\":\"t\",\
        \"file\":{\"driver\":\"qcow2\",\"file\":{\"driver\":\"file\",\
        \"filename\":\"/e.qcow2\"}}}' \\\n\
        -device virtio-blk-pci,drive=top \\\n\
        -object '{\"qom-type\":\"throttle-group\",\"id\":\"u\",\
        \"limits\":{\"bps-read\":9000}}' \\\n\
        -blockdev driver=raw,node-name=loop,file=loop -device scsi-hd,drive=loop \\\n\
        -drive file=/f.raw,if=virtio,iops_rd=7,group=g \\\n\
        -drive file=x.iso,media=cdrom -hda rbd:pool/image\n";
    let found = imported(&[qemu::read_file(&input("start.sh", text)).expect("closed")]);
    let total = limit(json!("500 IOPS @ 4 KiB"), Value::Null, Value::Null);
    let read = limit(Value::Null, json!("7 IOPS"), Value::Null);
    let write = json!({ "total": null, "read": null, "write": "1 MB/s", "burst": null });
    assert_eq!(
        found.paths("web"),
        ["/a,b.raw", "/c.raw", "/d.raw", "/f.raw", "/e.raw"],
        "{}",
        found.text
    );
    let in_g = (Value::Null, Some("web-g"));
    assert_eq!(
        found.disk_limits("web"),
        [
            (total, None),
            in_g.clone(),
            (Value::Null, None),
            in_g,
            (write, None),
        ]
    );
    assert_eq!(found.groups(), json!({ "web-g": read }));
    found.assert_remark(&["\"-drive\"", "group \"g\" without limits of its own"]);
    found.assert_remark(&["start.sh: argument", "\"colour\" has no counterpart"]);
    found.assert_remark(&["\"-device\"", "lead back to each other"]);
    found.assert_remark(&["\"-hda\"", "\"rbd\" is no file"]);
    found.assert_remark(&["\"-drive\"", "CD-ROM"]);
    // As the kernel shows a command line.
    let shown = "/usr/bin/qemu-kvm\0-name\0db\0-hda\0/x.raw\0";
    let found = imported(&[qemu::read_file(&input("cmdline", shown)).expect("words")]);
    assert_eq!(found.paths("db"), ["/x.raw"]);
    assert!(qemu::read_file(&input("bad", "qemu -name 'x")).is_err());
}

/// The guest of words of QEMU.
fn of_qemu(words: &[impl ToString]) -> Guest {
    let words: Vec<String> = words.iter().map(ToString::to_string).collect();
    qemu::read(&words, "arguments").expect("a command line")
}

#[test]
fn words_that_are_no_images_make_no_disks() {
    let drive = "file=/a.raw,format=raw";
    for words in [
        &["sudo", "qemu-system-x86_64", "-drive", drive][..],
        &["qemu", "-accel", "kvm", "-drive", drive],
        &["-drive", drive, "-accel", "kvm", "-name", "qemu-1"],
        &["sudo", "emulator", "-drive", drive],
        &["kvm", "-drive", drive, "$@"],
    ] {
        let guest = of_qemu(words);
        let paths: Vec<_> = guest.disks.iter().map(|disk| &disk.path).collect();
        assert_eq!(paths, [&Some("/a.raw".to_owned())], "{words:?}");
    }
    // Without a program of QEMU nothing tells which program the first words are.
    let found = imported(&[of_qemu(&["emulator", "-drive", drive])]);
    found.assert_remark(&["argument 1 (\"emulator\")", "no program of QEMU"]);
    let script = "exec qemu-system-x86_64 -drive file=/a.raw,format=raw \"$@\"\n";
    let found = imported(&[qemu::read_file(&input("start.sh", script)).expect("closed")]);
    assert_eq!(found.paths("guest"), ["/a.raw"]);
    found.assert_remark(&["start.sh: argument 3", "a variable of the shell"]);
    let script = "#!/bin/sh\nqemu-img create /a.raw 1G\nqemu-system-x86_64 \\\n  \
                  -drive file=/a.raw,format=raw -smp $(nproc --all) 2>&1 >log &  # leave it\n\
                  echo $! > pid\nwait\n";
    let found = imported(&[qemu::read_file(&input("start.sh", script)).expect("closed")]);
    assert_eq!(found.paths("guest"), ["/a.raw"]);
    // The only positional argument that QEMU has is still an image.
    assert_eq!(of_qemu(&["kvm", "/b.raw"]).disks.len(), 1);
}

#[test]
fn inputs_of_another_kind_are_errors_that_name_their_reader() {
    let names_libvirt = |read: Result<Guest>| {
        let message = read.expect_err("another kind").to_string();
        assert!(message.contains("tidegate import libvirt"), "{message}");
    };
    names_libvirt(qemu::read(&["db01.xml".to_owned()], "arguments"));
    names_libvirt(qemu::read(&[], "arguments"));
    names_libvirt(qemu::read_file(&input("web.xml", DOMAIN)));
    let with_option = "<domain>\n<!-- -drive file=/a.raw -->\n</domain>";
    names_libvirt(qemu::read_file(&input("web.xml", with_option)));
    let storages = Storages::new(None);
    names_libvirt(proxmox::read(&input("web.xml", DOMAIN), &storages));
    names_libvirt(proxmox::read(&input("empty.conf", ""), &storages));
    assert!(proxmox::read(&input("100.conf", "name: a\n"), &storages).is_ok());
}

#[test]
fn an_image_without_a_path_has_no_command_that_converts_it() {
    let text = "scsi0: nas:100/vm-100-disk-0.qcow2,size=8G\nscsi1: /b.raw\n";
    let guest = proxmox::read(&input("100.conf", text), &Storages::new(None));
    let found = imported(&[guest.expect("keys")]);
    assert!(!found.text.contains("qemu-img convert"), "{}", found.text);
    let comment = "qcow2: convert it to raw with qemu-img, and add the path";
    assert!(found.text.contains(comment), "{}", found.text);
}

#[test]
fn the_weight_of_the_only_device_replaces_that_of_the_domain() {
    let domain = "<weight>800</weight>";
    let device = "<device><path>/dev/sda</path>\n<weight>500</weight></device>";
    for tune in [format!("{domain}{device}"), format!("{device}{domain}")] {
        let text = format!(
            "<domain><name>a</name><blkiotune>{tune}</blkiotune><devices><disk type='file'>\
             <source file='/a.raw'/></disk></devices></domain>"
        );
        let found = imported(&[libvirt::read(&input("a.xml", &text)).expect("a domain")]);
        assert_eq!(found.objective("a"), json!({ "weight": 500 }));
        found.assert_remark(&["<weight>", "left out: the <weight> of the <device> counts"]);
        let taken = |remark: &&String| remark.contains("taken as it is");
        assert_eq!(found.remarks.iter().filter(taken).count(), 1, "{text}");
    }
}

/// Options of `import openstack` as they are typed.
fn openstack_guest(words: &[&str]) -> Guest {
    let words = ["tidegate", "import", "openstack"].iter().chain(words);
    let args = Args::try_parse_from(words).expect("arguments");
    let crate::args::Command::Import(ImportCommand::Openstack(args)) = args.command else {
        panic!("another command")
    };
    openstack::read(&args).expect("specs")
}

#[test]
fn specs_of_openstack_are_taken_by_their_consumers() {
    let found = imported(&[openstack_guest(&[
        "quota:disk_read_bytes_sec=1000000",
        "quota:disk_total_iops_sec_max=9",
        "quota:vif_inbound_average=1",
        "--name",
        "small",
    ])]);
    let read = limit(Value::Null, json!("1 MB/s"), Value::Null);
    assert_eq!(found.objective("small"), json!({ "limit": read }));
    found.assert_remark(&["argument 3", "vif_inbound_average", "no counterpart"]);
    found.assert_remark(&["limit.burst.total", "no limit that it exceeds"]);
    found.assert_remark(&["specs name no disk"]);

    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("gold.json");
    let printed = "{\n\"consumer\": \"both\",\n\"name\": \"gold\",\n\"properties\": {\n\
        \"minIOPS\": \"200\",\n\"total_iops_sec_per_gb\": \"10\",\n\"colour\": \"1\"}\n}";
    std::fs::write(&file, printed).expect("writable");
    let file = file.to_str().expect("text");
    let found = imported(&[openstack_guest(&[
        file, "--size", "50 GiB", "--path", "/g.raw",
    ])]);
    let total = limit(json!("500 IOPS"), Value::Null, Value::Null);
    assert_eq!(
        found.objective("gold"),
        json!({ "reservation": "200 IOPS", "limit": total })
    );
    found.assert_remark(&["gold.json:7", "colour"]);
    let found = imported(&[openstack_guest(&[
        "consumer=back-end",
        "total_iops_sec_per_gb=10",
        "quota:disk_io_shares_level=high",
        "quota:disk_io_limit=x",
    ])]);
    assert_eq!(found.objective("flavor"), json!({ "weight": 200 }));
    found.assert_remark(&["back-end"]);
    found.assert_remark(&["argument 2", "--size"]);
    found.assert_remark(&["argument 4", "not a whole number"]);
}
