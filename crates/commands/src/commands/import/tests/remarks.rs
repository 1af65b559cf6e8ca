//! Disks that would be other ones here than they are there, limits in several places, and what is
//! named because it has no counterpart.

use super::*;

/// The guest of a domain whose devices are `disks`.
fn of_libvirt(disks: &str) -> Imported {
    let text = format!("<domain><name>a</name><devices>\n{disks}</devices></domain>");
    imported(&[libvirt::read(&input("a.xml", &text)).expect("a domain")])
}

impl Imported {
    /// Asserts that the only disk is a comment without a path, which no command converts.
    fn assert_not_served(&self) {
        assert_eq!(self.config.vms.len(), 0, "{}", self.text);
        assert!(self.text.contains("#path = \"\"\n"), "{}", self.text);
        assert!(!self.text.contains("qemu-img convert -O"), "{}", self.text);
    }

    fn assert_no_remark(&self, part: &str) {
        let has = |remark: &&String| remark.contains(part);
        assert_eq!(self.remarks.iter().find(has), None, "{part}");
    }
}

#[test]
fn disks_that_are_not_their_whole_file_have_no_path() {
    let disk = |source: &str, beside: &str| {
        of_libvirt(&format!(
            "<disk type='file'><driver type='raw'/><source file='/a.raw'>\n{source}</source>\n\
             {beside}<target dev='vda'/></disk>"
        ))
    };
    let luks = "<encryption format='luks'><secret type='passphrase' uuid='x'/></encryption>\n";
    let found = disk(luks, "");
    found.assert_not_served();
    found.assert_remark(&["a.xml:3 <encryption>", "luks", "encrypted bytes"]);
    // As libvirt had it before 3.9.
    let found = disk("", luks);
    found.assert_not_served();
    found.assert_remark(&["a.xml:4 <encryption>", "luks"]);
    let slices = "<slices><slice type='storage' offset='10752' size='4063232'/></slices>";
    let found = disk(slices, "");
    found.assert_not_served();
    found.assert_remark(&["a.xml:3 <slices>", "10752", "4063232"]);
    // Other children leave the file what it is.
    let found = disk("<seclabel model='dac' relabel='no'/><sparkle/>", "");
    assert_eq!(found.paths("a"), ["/a.raw"]);
    found.assert_remark(&["a.xml:3 <sparkle>", "no counterpart"]);
    found.assert_no_remark("seclabel");
    let found = disk("", "<transient/>");
    assert_eq!(found.paths("a"), ["/a.raw"]);
    found.assert_remark(&["a.xml:4 <transient>", "permanent"]);
}

#[test]
fn nodes_of_qemu_that_are_not_their_whole_file_have_no_path() {
    let device = ["-device", "virtio-blk-pci,drive=top"];
    let node = |node: &str| {
        let words = ["-blockdev", node].into_iter().chain(device);
        imported(&[of_qemu(&words.collect::<Vec<_>>())])
    };
    let file = "file.driver=file,file.filename=/a.raw";
    for part in [
        format!("driver=raw,node-name=top,offset=1048576,{file}"),
        format!("driver=raw,node-name=top,size=1048576,{file}"),
        "{\"driver\":\"throttle\",\"node-name\":\"top\",\"file\":{\"driver\":\"raw\",\
         \"offset\":1048576,\"file\":{\"driver\":\"file\",\"filename\":\"/a.raw\"}}}"
            .to_owned(),
    ] {
        let found = node(&part);
        found.assert_not_served();
        found.assert_remark(&["\"-device\"", "a part of its file", "1048576"]);
    }
    for drive in [
        "format=raw,file=/a.raw,offset=1048576",
        "file=/a.raw,size=1048576",
        "file.driver=raw,file.offset=1048576,file.file.filename=/a.raw",
    ] {
        let found = imported(&[of_qemu(&["-drive", drive])]);
        found.assert_not_served();
        found.assert_remark(&["\"-drive\"", "a part of its file", "1048576"]);
    }
    let found = node(&format!("driver=luks,node-name=top,key-secret=s,{file}"));
    found.assert_not_served();
    found.assert_remark(&["\"-device\"", "encrypted"]);
    // Keys that change nothing, and an unknown one.
    let found = node(&format!(
        "driver=raw,node-name=top,offset=0,discard=unmap,file.aio=native,file.glow=1,{file}"
    ));
    assert_eq!(found.paths("guest"), ["/a.raw"]);
    found.assert_remark(&["\"-device\"", "\"glow\" has no counterpart"]);
    assert_eq!(found.remarks.len(), 1, "{:?}", found.remarks);
}

#[test]
fn images_of_qemu_are_known_without_their_format() {
    for words in [
        ["-hda", "/srv/web.qcow2"],
        ["-drive", "file=/srv/web.qcow2,if=virtio"],
        ["-drive", "driver=qcow2,file.filename=/srv/web.qcow2"],
        ["-drive", "driver=qcow2,file=/srv/web.qcow2"],
        ["-drive", "file=file:/srv/web.qcow2"],
    ] {
        let found = imported(&[of_qemu(&words)]);
        assert_eq!(found.paths("guest"), ["/srv/web.raw"], "{words:?}");
        let convert = "qemu-img convert -O raw /srv/web.qcow2 /srv/web.raw";
        assert!(found.text.contains(convert), "{}", found.text);
        found.assert_remark(&["a qcow2 image"]);
    }
    // The driver that QEMU is told counts more than the name.
    for drive in [
        "file=/srv/web.qcow2,format=raw",
        "driver=raw,file.filename=/srv/web.qcow2",
        "driver=file,filename=/srv/web.qcow2",
    ] {
        let found = imported(&[of_qemu(&["-drive", drive])]);
        assert_eq!(found.paths("guest"), ["/srv/web.qcow2"], "{drive}");
        assert_eq!(found.remarks, [""; 0]);
    }
}

/// A domain with four throttle groups, and disks that are in some of them.
fn of_throttle_groups(disks: &[(&str, &[&str])]) -> Imported {
    let groups = [
        ("shared", "<total_bytes_sec>9000</total_bytes_sec>"),
        ("own", "<total_iops_sec>50</total_iops_sec>"),
        ("lower", "<total_iops_sec>40</total_iops_sec>"),
        ("other", "<read_iops_sec>30</read_iops_sec>"),
    ];
    let groups = groups.map(|(name, limit)| {
        format!("<throttlegroup><group_name>{name}</group_name>{limit}</throttlegroup>")
    });
    let disks = disks.iter().map(|(name, groups)| {
        let filters = groups
            .iter()
            .map(|it| format!("<throttlefilter group='{it}'/>"));
        format!(
            "<disk type='file'><source file='/{name}.raw'/><target dev='{name}'/>\
             <throttlefilters>{}</throttlefilters></disk>\n",
            filters.collect::<String>()
        )
    });
    let text = format!(
        "<domain><name>a</name><throttlegroups>{}</throttlegroups><devices>\n{}</devices></domain>",
        groups.concat(),
        disks.collect::<String>()
    );
    imported(&[libvirt::read(&input("a.xml", &text)).expect("a domain")])
}

#[test]
fn all_throttle_groups_of_a_disk_count() {
    let total = |total: &str| limit(json!(total), Value::Null, Value::Null);
    // Groups of the disk's own become its limit, beside the group that it shares.
    let found = of_throttle_groups(&[("vda", &["own", "shared", "lower"]), ("vdb", &["shared"])]);
    assert_eq!(
        found.disk_limits("a"),
        [
            (total("40 IOPS"), Some("a-shared")),
            (Value::Null, Some("a-shared"))
        ]
    );
    assert_eq!(found.groups(), json!({ "a-shared": total("9 kB/s") }));
    assert_eq!(found.remarks, [""; 0]);
    // Groups of the same disks are one.
    let found = of_throttle_groups(&[("vda", &["own", "lower"]), ("vdb", &["lower", "own"])]);
    assert_eq!(found.groups(), json!({ "a-lower": total("40 IOPS") }));
    assert_eq!(found.remarks, [""; 0]);
    // One of several groups with different disks is shared; the others bind each disk alone.
    let found = of_throttle_groups(&[
        ("vda", &["shared", "other"]),
        ("vdb", &["shared"]),
        ("vdc", &["other"]),
    ]);
    let read = limit(Value::Null, json!("30 IOPS"), Value::Null);
    assert_eq!(
        found.disk_limits("a"),
        [
            (read, Some("a-shared")),
            (Value::Null, Some("a-shared")),
            (Value::Null, Some("a-other"))
        ]
    );
    found.assert_remark(&["a.xml:2 <disk>", "\"other\"", "this disk alone"]);
    assert_eq!(found.remarks.len(), 1, "{:?}", found.remarks);
    // A single disk has no group at all.
    let found = of_throttle_groups(&[("vda", &["own", "shared", "lower"])]);
    let both = limit(json!("40 IOPS, 9 kB/s"), Value::Null, Value::Null);
    assert_eq!(found.objective("a"), json!({ "limit": both }));
}

#[test]
fn all_throttle_nodes_above_a_disk_count() {
    let words = |top: &str| {
        let file = "file.driver=file,file.filename=/a.raw";
        [
            "-object".to_owned(),
            "throttle-group,id=g,x-iops-total=50".to_owned(),
            "-object".to_owned(),
            "throttle-group,id=h,x-bps-read=9000".to_owned(),
            "-blockdev".to_owned(),
            format!("driver=throttle,node-name=low,throttle-group=g,{file}"),
            "-blockdev".to_owned(),
            format!("driver=throttle,node-name=top,throttle-group={top},file=low"),
            "-device".to_owned(),
            "virtio-blk-pci,drive=top".to_owned(),
        ]
    };
    let found = imported(&[of_qemu(&words("h"))]);
    let both = limit(json!("50 IOPS"), json!("9 kB/s"), Value::Null);
    assert_eq!(found.objective("guest"), json!({ "limit": both }));
    assert_eq!(found.remarks, [""; 0]);
    let found = imported(&[of_qemu(&words("nowhere"))]);
    found.assert_remark(&["\"-device\"", "no throttle group \"nowhere\""]);
}

#[test]
fn what_stays_or_would_change_is_named() {
    let drive = ["-drive", "file=/a.raw,format=raw"];
    for (option, word) in [
        ("-cdrom", "x.iso"),
        ("-fda", "x.img"),
        ("-fdb", "x.img"),
        ("-sd", "x.img"),
        ("-pflash", "x.fd"),
        ("-mtdblock", "x.img"),
        ("-drive", "file=x.img,if=sd"),
    ] {
        let words = drive.iter().chain([&option, &word]).copied();
        let found = imported(&[of_qemu(&words.collect::<Vec<_>>())]);
        assert_eq!(found.paths("guest"), ["/a.raw"], "{option}");
        let place = format!("argument 3 ({option:?})");
        found.assert_remark(&[&place, "stays with the hypervisor"]);
    }
    let found = imported(&[of_qemu(&["-snapshot", drive[0], drive[1]])]);
    found.assert_remark(&["argument 1 (\"-snapshot\")", "permanent"]);
    let found = imported(&[of_qemu(&["-drive", "file=/a.raw,format=raw,snapshot=on"])]);
    found.assert_remark(&["argument 1", "permanent"]);
    let found = imported(&[of_qemu(&["-drive", "file=/a.raw,format=raw,snapshot=off"])]);
    assert_eq!(found.remarks, [""; 0]);
    let found = imported(&[of_qemu(&["-drive", "file=images/a.raw,format=raw"])]);
    found.assert_remark(&["argument 1", "\"images/a.raw\" is relative"]);
    let text = "<domain xmlns:qemu='http://libvirt.org/schemas/domain/qemu/1.0'><name>a</name>\n\
                <qemu:commandline><qemu:arg value='-drive'/></qemu:commandline><devices>\
                <disk type='file'><source file='/a.raw'/></disk></devices></domain>";
    let found = imported(&[libvirt::read(&input("a.xml", text)).expect("a domain")]);
    found.assert_remark(&["a.xml:2 <commandline>", "tidegate import qemu"]);
    let text = "scsi0: /dev/sdb,snapshot=1\nargs: -snapshot\n";
    let guest = proxmox::read(&input("1.conf", text), &Storages::new(None));
    let found = imported(&[guest.expect("keys")]);
    found.assert_remark(&["1.conf:1 scsi0", "permanent"]);
    found.assert_remark(&["1.conf:2 args", "tidegate import qemu"]);
}

#[test]
fn limits_per_gb_keep_their_bounds() {
    let specs = |specs: &[&str]| {
        let words: Vec<_> = specs.iter().chain(&["--path", "/a.raw"]).copied().collect();
        imported(&[openstack_guest(&words)])
    };
    for (bounds, iops) in [
        (&["total_iops_sec_per_gb_min=500"][..], "500 IOPS"),
        (&["total_iops_sec_per_gb_min=50"], "100 IOPS"),
        (&["total_iops_sec_max=70"], "70 IOPS"),
        (
            &["total_iops_sec_max=70", "total_iops_sec_per_gb_min=500"],
            "70 IOPS",
        ),
        (&["total_iops_sec_max=700"], "100 IOPS"),
    ] {
        let words = ["--size", "10 GiB", "total_iops_sec_per_gb=10"];
        let found = specs(&[&words, bounds].concat());
        let total = limit(json!(iops), Value::Null, Value::Null);
        assert_eq!(found.objective("flavor"), json!({ "limit": total }));
        assert_eq!(found.remarks, [""; 0]);
    }
    let found = specs(&["--size", "10 GiB", "total_iops_sec_per_gb_min=500"]);
    found.assert_remark(&["argument 1", "total_iops_sec_per_gb alone"]);
    let words = ["total_iops_sec_per_gb=10", "total_iops_sec_per_gb_min=x"];
    let found = specs(&[&["--size", "10 GiB"][..], &words].concat());
    found.assert_remark(&["argument 1", "\"x\" is no number"]);
    let words = ["total_iops_sec=7", "total_iops_sec_per_gb=10"];
    for words in [words, [words[1], words[0]]] {
        let found = specs(&[&["--size", "10 GiB"][..], &words].concat());
        let total = limit(json!("100 IOPS"), Value::Null, Value::Null);
        assert_eq!(found.objective("flavor"), json!({ "limit": total }));
        found.assert_remark(&["total_iops_sec_per_gb counts in its place"]);
    }
}

#[test]
fn shares_count_at_the_level_custom_alone() {
    let (custom, low) = ("disk_io_shares_level=custom", "disk_io_shares_level=low");
    let shares = "quota:disk_io_shares_share=3000";
    for (words, weight, remark) in [
        (&[custom, shares][..], json!({ "weight": 300 }), ""),
        (&[shares, custom], json!({ "weight": 300 }), ""),
        (&[low, shares], json!({ "weight": 50 }), "custom alone"),
        (&[shares, low], json!({ "weight": 50 }), "custom alone"),
        (&[shares], json!({}), "custom alone"),
        (&[custom], json!({}), "needs io_shares_share"),
    ] {
        let words: Vec<_> = words.iter().chain(&["--path", "/a.raw"]).copied().collect();
        let found = imported(&[openstack_guest(&words)]);
        assert_eq!(found.objective("flavor"), weight, "{words:?}");
        if remark.is_empty() {
            assert_eq!(found.remarks, [""; 0]);
        } else {
            found.assert_remark(&[remark]);
        }
    }
}
