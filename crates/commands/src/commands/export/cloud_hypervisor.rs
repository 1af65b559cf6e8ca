//! Arguments of Cloud Hypervisor, by the help texts of its `--memory` and `--disk` and its
//! `docs/vhost-user-blk-testing.md`. They were not run with it.

use anyhow::Result;

use super::attachment::{Attachment, Transport, VHOST_USER_KEY};
use super::mebibytes;
use crate::problem::Problem;

/// Returns the arguments that attach disks to a guest with `memory` bytes, which it shares with the
/// daemon.
///
/// # Errors
/// If a disk is offered over NBD only, or a socket's path cannot be written in an argument.
pub(super) fn arguments(vm: &str, attachments: &[Attachment], memory: u64) -> Result<Vec<String>> {
    let mut arguments = vec![
        "--memory".to_owned(),
        format!("size={},shared=on", mebibytes(memory)),
        "--disk".to_owned(),
    ];
    for disk in attachments {
        match &disk.transport {
            // A comma ends the value of a key, and there is no way to write one inside.
            Transport::VhostUser { unix } if unix.contains(',') => {
                let what = "Cloud Hypervisor takes no socket with a comma in its path";
                let problem = Problem::new(what).at(unix.as_str());
                return Err(problem.help("rename the socket in [[listen]]").into());
            }
            // All disks follow one `--disk`, which is given once.
            Transport::VhostUser { unix } => {
                arguments.push(format!("vhost_user=true,socket={unix}"));
            }
            nbd => return Err(without_nbd(vm, disk, nbd).into()),
        }
    }
    Ok(arguments)
}

/// Returns the error for a disk that is offered over NBD only.
fn without_nbd(vm: &str, disk: &Attachment, nbd: &Transport) -> Problem {
    let export = &disk.export;
    let server = match nbd {
        Transport::NbdTcp { tcp } => format!("{} {}", tcp.ip(), tcp.port()),
        Transport::NbdUnix { unix } | Transport::VhostUser { unix } => format!("-unix {unix}"),
    };
    Problem::new(format!(
        "Cloud Hypervisor has no NBD client, and the disk {export:?} of VM {vm:?} is offered over \
         NBD only"
    ))
    .help(format!(
        "add {VHOST_USER_KEY}; or let the kernel connect, `nbd-client {server} -N {export} \
         /dev/nbd0`, and use --disk path=/dev/nbd0,direct=on,image_type=raw"
    ))
}

#[cfg(test)]
mod tests {
    use super::super::attachment::testing::disk;
    use super::*;

    #[test]
    fn vhost_user_disks_follow_one_option_and_memory_is_shared() {
        let at = |path: &str| Transport::VhostUser {
            unix: path.to_owned(),
        };
        let disks = [disk("db", at("/run/db.sock")), disk("l", at("/run/l.sock"))];
        assert_eq!(
            arguments("db", &disks, 2 << 30).expect("vhost-user"),
            [
                "--memory",
                "size=2048M,shared=on",
                "--disk",
                "vhost_user=true,socket=/run/db.sock",
                "vhost_user=true,socket=/run/l.sock",
            ]
        );
        let comma = [disk("db", at("/run/d,b.sock"))];
        let refused = arguments("db", &comma, 2 << 30).expect_err("a comma");
        assert!(refused.to_string().contains("comma"), "{refused}");
    }

    #[test]
    fn an_nbd_disk_is_refused_with_what_works() {
        let unix = "/run/nbd.sock".to_owned();
        let disks = [disk("db", Transport::NbdUnix { unix })];
        let refused = arguments("db", &disks, 1 << 30).expect_err("no NBD");
        let text = refused.to_string();
        assert!(text.contains("no NBD client"), "{text}");
        assert!(text.contains("add [[listen]] vhost_user ="), "{text}");
        assert!(
            text.contains("nbd-client -unix /run/nbd.sock -N db /dev/nbd0"),
            "{text}"
        );
    }
}
