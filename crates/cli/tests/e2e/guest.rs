//! A guest: QEMU boots from a disk through virtio-blk, attached by NBD or by vhost-user.

use std::fs;

use crate::daemon::{Backing, Daemon, Scratch};
use crate::on_every_backing;
use crate::tool::{Running, arg, have, qemu_io, run};

on_every_backing!(a_guest_boots_reads_and_writes, a_guest_boots_by_vhost_user);

/// A boot sector that prints the text in sector 1 on the serial port, copies that sector to
/// sector 2 and ends the machine: with 0x10 if all went well, 0x11 if the BIOS reported an error.
#[rustfmt::skip]
const BOOT: [u8; 81] = [
    0xfa,                               // 7c00  cli
    0x31, 0xc0,                         //       xor  ax, ax
    0x8e, 0xd8, 0x8e, 0xc0, 0x8e, 0xd0, //       mov  ds, es, ss to 0
    0xbc, 0x00, 0x7c,                   //       mov  sp, 7c00
    0x88, 0x16, 0xfe, 0x7a,             //       mov  [7afe], dl     the drive
    0xb4, 0x42,                         //       mov  ah, 42         read
    0xe8, 0x1e, 0x00,                   //       call 7c33
    0xbe, 0x00, 0x80,                   //       mov  si, 8000
    0xba, 0xf8, 0x03,                   //       mov  dx, 3f8        the serial port
    0xac,                               // 7c1b  lodsb
    0x84, 0xc0,                         //       test al, al
    0x74, 0x03,                         //       jz   7c23
    0xee,                               //       out  dx, al
    0xeb, 0xf8,                         //       jmp  7c1b
    0xc6, 0x06, 0x49, 0x7c, 0x02,       // 7c23  mov  byte [7c49], 2 the sector
    0xb8, 0x00, 0x43,                   //       mov  ax, 4300       write
    0xe8, 0x05, 0x00,                   //       call 7c33
    0xb0, 0x10,                         //       mov  al, 10
    0xe6, 0xf4,                         // 7c30  out  f4, al         end
    0xf4,                               //       hlt
    0xbe, 0x41, 0x7c,                   // 7c33  mov  si, 7c41
    0x8a, 0x16, 0xfe, 0x7a,             //       mov  dl, [7afe]
    0xcd, 0x13,                         //       int  13
    0xb0, 0x11,                         //       mov  al, 11
    0x72, 0xf0,                         //       jc   7c30
    0xc3,                               //       ret
    0x10, 0x00, 0x01, 0x00,             // 7c41  packet: its length, one sector,
    0x00, 0x80, 0x00, 0x00,             //       to or from 0000:8000,
    1, 0, 0, 0, 0, 0, 0, 0,             // 7c49  and which one
];

/// Arguments of a machine for [`image`], before those of its disk.
pub(crate) const MACHINE: [&str; 9] = [
    "-accel",
    "tcg",
    "-m",
    "64",
    "-nodefaults",
    "-display",
    "none",
    "-device",
    "isa-debug-exit,iobase=0xf4,iosize=1",
];

/// Text that the guest of [`image`] prints on its serial port.
pub(crate) const TEXT: &str = "the disk it was promised\r\n";

/// Writes a disk from which a guest boots, prints [`TEXT`] and ends with 0x10 at port 0xf4.
pub(crate) fn image(scratch: &Scratch) -> std::path::PathBuf {
    let mut image = vec![0; 1024];
    image[..BOOT.len()].copy_from_slice(&BOOT);
    image[510..512].copy_from_slice(&[0x55, 0xaa]);
    image[512..512 + TEXT.len()].copy_from_slice(TEXT.as_bytes());
    let path = scratch.join("boot.raw");
    fs::write(&path, image).expect("the directory is ours");
    path
}

fn a_guest_boots_reads_and_writes(backing: Backing) {
    boots(backing, |daemon| {
        let node = format!(
            "driver=nbd,node-name=disk,server.type=unix,server.path={},export=a",
            daemon.path("nbd.sock").display()
        );
        let device = "virtio-blk-pci,drive=disk,bootindex=0";
        ["-blockdev", &node, "-device", device]
            .map(str::to_owned)
            .to_vec()
    });
}

fn a_guest_boots_by_vhost_user(backing: Backing) {
    boots(backing, |daemon| {
        let socket = daemon.path("a.vhost");
        vhost_user_disk(&socket, 64, "bootindex=0")
    });
}

/// Arguments of a disk by vhost-user, and of memory of so many MiB that the daemon can map.
pub(crate) fn vhost_user_disk(socket: &std::path::Path, mib: u32, more: &str) -> Vec<String> {
    let path = format!("reconnect=1,path={}", socket.display());
    vhost_user_disk_by(&path, mib, more)
}

/// Arguments as of [`vhost_user_disk`], with QEMU's words for the socket.
pub(crate) fn vhost_user_disk_by(socket: &str, mib: u32, more: &str) -> Vec<String> {
    let memory = format!("memory-backend-memfd,id=memory,size={mib}M,share=on");
    let socket = format!("socket,id=disk,{socket}");
    let device = format!("vhost-user-blk-pci,chardev=disk,{more}");
    let args = ["-object", &memory, "-machine", "memory-backend=memory"];
    let disk = ["-chardev", &socket, "-device", &device];
    args.into_iter().chain(disk).map(str::to_owned).collect()
}

fn boots(backing: Backing, disk: impl FnOnce(&Daemon) -> Vec<String>) {
    if !have(&["qemu-system-x86_64", "qemu-io", "nbdcopy"]) {
        return;
    }
    let config = [
        "[[listen]]\nvhost_user = \"{vm}.vhost\"\n",
        &backing.device(""),
        &backing.vm("a", "16 MiB", ""),
    ];
    let daemon = Daemon::start(&config.concat());
    let scratch = daemon.scratch();
    let boot = image(scratch);
    let uri = daemon.uri("a");
    run(scratch, "nbdcopy", &[arg(&boot), &uri]);
    let serial = daemon.path("serial");
    let serial_file = format!("file:{}", serial.display());
    let disk = disk(&daemon);
    let mut guest = MACHINE.to_vec();
    guest.extend(["-serial", &serial_file]);
    guest.extend(disk.iter().map(String::as_str));
    let done = Running::start(scratch, "qemu-system-x86_64", &guest).wait();
    let printed = fs::read_to_string(&serial).unwrap_or_default();
    // QEMU ends with twice the guest's number and one.
    assert_eq!(done.status.code(), Some(0x21), "{printed}{}", done.err);
    assert!(printed.contains(TEXT), "{printed}");
    let first = format!("read -P {} 1024 1", TEXT.as_bytes()[0]);
    let end = format!("read -P 0 {} {}", 1024 + TEXT.len(), 512 - TEXT.len());
    qemu_io(scratch, &uri, &[&first, &end, "read -P 0 1536 64k"]);
    daemon.stop();
}
