//! Arguments of QEMU.

use super::attachment::{Attachment, Transport};
use super::{NBD_RECONNECT_S, VHOST_RECONNECT_S, mebibytes};

/// Id of the thread that does the block I/O of all NBD disks.
const IOTHREAD: &str = "tg-io";
/// Id of the guest memory that is shared with the daemon.
const MEMORY: &str = "tg-mem";
/// Largest number of characters in the name of a QEMU block node.
const NODE_NAME_MAX: usize = 31;

/// Returns the arguments that attach disks to a guest with `memory` bytes, which is used only if
/// one of the disks shares it. Options and their values follow each other.
pub(super) fn arguments(attachments: &[Attachment], memory: u64) -> Vec<String> {
    let mut arguments = Arguments::default();
    let shares = |disk: &Attachment| disk.transport.shares_memory();
    if attachments.iter().any(shares) {
        let size = mebibytes(memory);
        arguments.add("-m", size.clone());
        arguments.add(
            "-object",
            format!("memory-backend-memfd,id={MEMORY},size={size},share=on"),
        );
        arguments.add("-machine", format!("memory-backend={MEMORY}"));
    }
    if !attachments.iter().all(shares) {
        arguments.add("-object", format!("iothread,id={IOTHREAD}"));
    }
    for (index, disk) in attachments.iter().enumerate() {
        let id = id(&disk.export, index);
        let server = match &disk.transport {
            Transport::NbdUnix { unix } => {
                format!("server.type=unix,server.path={}", value(unix))
            }
            Transport::NbdTcp { tcp } => format!(
                "server.type=inet,server.host={},server.port={}",
                tcp.ip(),
                tcp.port()
            ),
            Transport::VhostUser { unix } => {
                let path = value(unix);
                arguments.add(
                    "-chardev",
                    format!("socket,id={id},path={path},reconnect={VHOST_RECONNECT_S}"),
                );
                arguments.add("-device", format!("vhost-user-blk-pci,chardev={id}"));
                continue;
            }
        };
        let export = value(&disk.export);
        let read_only = if disk.read_only { ",read-only=on" } else { "" };
        arguments.add(
            "-blockdev",
            format!(
                "driver=nbd,node-name={id},{server},export={export},\
                 reconnect-delay={NBD_RECONNECT_S},cache.direct=on,discard=unmap{read_only}"
            ),
        );
        arguments.add(
            "-device",
            format!("virtio-blk-pci,drive={id},iothread={IOTHREAD}"),
        );
    }
    arguments.0
}

/// Options with their values.
#[derive(Default)]
struct Arguments(Vec<String>);

impl Arguments {
    fn add(&mut self, option: &str, value: String) {
        self.0.extend([option.to_owned(), value]);
    }
}

/// Returns the id of a disk in QEMU: its export name where QEMU allows it, otherwise its number.
fn id(export: &str, index: usize) -> String {
    let named = format!("tg-{export}");
    let allowed = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
    if named.len() <= NODE_NAME_MAX && named.chars().all(allowed) {
        named
    } else {
        format!("tidegate{index}")
    }
}

/// Escapes a value for QEMU's `key=value,...`, where a comma separates options unless doubled.
fn value(text: &str) -> String {
    text.replace(',', ",,")
}

#[cfg(test)]
mod tests {
    use super::super::attachment::testing::disk;
    use super::*;

    fn unix(path: &str) -> Transport {
        Transport::NbdUnix {
            unix: path.to_owned(),
        }
    }

    #[test]
    fn nbd_disks_share_an_iothread_and_wait_for_a_restarted_daemon() {
        let tcp = "127.0.0.1:10809".parse().expect("an address");
        let mut logs = disk("logs", Transport::NbdTcp { tcp });
        logs.read_only = true;
        let disks = [disk("db", unix("/run/nbd.sock")), logs];
        assert_eq!(
            arguments(&disks, 1 << 30),
            [
                "-object",
                "iothread,id=tg-io",
                "-blockdev",
                "driver=nbd,node-name=tg-db,server.type=unix,server.path=/run/nbd.sock,export=db,\
                 reconnect-delay=60,cache.direct=on,discard=unmap",
                "-device",
                "virtio-blk-pci,drive=tg-db,iothread=tg-io",
                "-blockdev",
                "driver=nbd,node-name=tg-logs,server.type=inet,server.host=127.0.0.1,\
                 server.port=10809,export=logs,reconnect-delay=60,cache.direct=on,discard=unmap,\
                 read-only=on",
                "-device",
                "virtio-blk-pci,drive=tg-logs,iothread=tg-io",
            ]
        );
    }

    #[test]
    fn a_vhost_user_disk_shares_the_memory_of_the_guest() {
        let db = Transport::VhostUser {
            unix: "/run/db.sock".to_owned(),
        };
        assert_eq!(
            arguments(&[disk("db", db)], 4 << 30),
            [
                "-m",
                "4096M",
                "-object",
                "memory-backend-memfd,id=tg-mem,size=4096M,share=on",
                "-machine",
                "memory-backend=tg-mem",
                "-chardev",
                "socket,id=tg-db,path=/run/db.sock,reconnect=1",
                "-device",
                "vhost-user-blk-pci,chardev=tg-db",
            ]
        );
    }

    #[test]
    fn names_that_qemu_refuses_become_numbers_and_commas_are_doubled() {
        let long = "x".repeat(NODE_NAME_MAX - 3);
        assert_eq!(id(&long, 7), format!("tg-{long}"));
        assert_eq!(id(&format!("{long}x"), 7), "tidegate7");
        assert_eq!(id("a b", 0), "tidegate0");
        let printed = arguments(&[disk("a,b", unix("/run/n,bd.sock"))], 0);
        assert!(printed[3].contains("node-name=tidegate0,"), "{printed:?}");
        assert!(printed[3].contains("server.path=/run/n,,bd.sock,"));
        assert!(printed[3].contains("export=a,,b,"), "{printed:?}");
    }
}
