//! Disks of a VM as a hypervisor attaches them: each with the one listener that is used.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use anyhow::Result;
use serde::Serialize;
use tidegate_api::endpoint::{DiskEndpointsView, EndpointView, NBD, NBD_TLS, VHOST_USER};
use tidegate_api::query::percent_encode;

use crate::args::AttachArgs;
use crate::problem::Problem;

/// Disk with the listener through which it is attached.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Attachment {
    /// Export name.
    pub(super) export: String,
    /// True if the disk refuses writes.
    pub(super) read_only: bool,
    /// Transport to the daemon.
    pub(super) transport: Transport,
}

impl Attachment {
    /// Returns the URI of a disk that is served over NBD, as NBD's `uri.md` defines it.
    pub(super) fn uri(&self) -> Option<String> {
        let export = percent_encode(&self.export);
        match &self.transport {
            Transport::NbdUnix { unix } => {
                // Slashes need no encoding in a query, and the path is meant to be read.
                let socket = percent_encode(unix).replace("%2F", "/");
                Some(format!("nbd+unix:///{export}?socket={socket}"))
            }
            Transport::NbdTcp { tcp } => Some(format!("nbd://{tcp}/{export}")),
            Transport::VhostUser { .. } => None,
        }
    }
}

/// Transport between a hypervisor and the daemon.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(tag = "protocol")]
pub(super) enum Transport {
    /// NBD over a unix socket.
    #[serde(rename = "nbd")]
    NbdUnix {
        /// Path of the socket.
        unix: String,
    },
    /// NBD over TCP.
    #[serde(rename = "nbd")]
    NbdTcp {
        /// Address to connect to.
        tcp: SocketAddr,
    },
    /// vhost-user-blk over a unix socket.
    #[serde(rename = "vhost-user")]
    VhostUser {
        /// Path of the socket.
        unix: String,
    },
}

impl Transport {
    /// Returns the transport to an endpoint; `None` if this build does not know its protocol.
    fn new(endpoint: &EndpointView) -> Option<Transport> {
        let EndpointView {
            protocol,
            unix,
            tcp,
        } = endpoint;
        match (protocol.as_str(), unix, tcp) {
            (NBD, Some(unix), _) => Some(Transport::NbdUnix { unix: unix.clone() }),
            (NBD, None, Some(tcp)) => {
                let tcp = reachable(tcp.parse().ok()?);
                Some(Transport::NbdTcp { tcp })
            }
            (VHOST_USER, Some(unix), _) => Some(Transport::VhostUser { unix: unix.clone() }),
            _ => None,
        }
    }

    /// Order of preference: vhost-user, which is configured on purpose, then NBD on a unix socket,
    /// whose file mode decides who may connect.
    fn rank(&self) -> u8 {
        match self {
            Transport::VhostUser { .. } => 0,
            Transport::NbdUnix { .. } => 1,
            Transport::NbdTcp { .. } => 2,
        }
    }

    /// Returns true if the guest's memory has to be shared with the daemon.
    pub(super) fn shares_memory(&self) -> bool {
        matches!(self, Transport::VhostUser { .. })
    }
}

/// Returns the address to connect to for a listener: one that listens on all addresses is reached
/// through the loopback.
fn reachable(listener: SocketAddr) -> SocketAddr {
    let ip = match listener.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, listener.port())
}

/// Key that the help of errors names for a listener of NBD.
const NBD_KEY: &str = "[[listen]] unix = \"/run/tidegate/nbd.sock\"";
/// Key that the help of errors names for a listener of vhost-user.
pub(super) const VHOST_USER_KEY: &str =
    "[[listen]] vhost_user = \"/run/tidegate/vhost/{disk}.sock\"";

/// Returns the disks that `args` choose, each with its listener.
///
/// # Errors
/// If the VM has no such disk, or no listener that fits offers it.
pub(super) fn choose(args: &AttachArgs, disks: &[DiskEndpointsView]) -> Result<Vec<Attachment>> {
    let chosen = |disk: &&DiskEndpointsView| match &args.disk {
        Some(export) => disk.export == *export,
        None => true,
    };
    let chosen: Vec<_> = disks.iter().filter(chosen).collect();
    match &args.disk {
        Some(export) if chosen.is_empty() => {
            let names: Vec<_> = disks.iter().map(|disk| disk.export.as_str()).collect();
            let problem = Problem::new(format!(
                "VM {:?} has no disk with the export name {export:?}",
                args.vm
            ));
            Err((problem.at("--disk"))
                .help(format!("there are: {}", names.join(", ")))
                .into())
        }
        _ => chosen
            .into_iter()
            .map(|disk| attachment(disk, args.listener.as_deref()))
            .collect(),
    }
}

/// Returns a disk with the best of its listeners that fit.
fn attachment(disk: &DiskEndpointsView, listener: Option<&str>) -> Result<Attachment> {
    let fits = disk.endpoints.iter().filter(|at| is_named(at, listener));
    let transports = fits.filter_map(Transport::new);
    // The first of equals, which is the first in the configuration.
    match transports.min_by_key(Transport::rank) {
        Some(transport) => Ok(Attachment {
            export: disk.export.clone(),
            read_only: disk.read_only,
            transport,
        }),
        None => Err(no_listener(disk, listener).into()),
    }
}

/// Returns true if an endpoint is the listener that is asked for, by protocol or address.
fn is_named(endpoint: &EndpointView, listener: Option<&str>) -> bool {
    listener.is_none_or(|name| endpoint.protocol == name || endpoint.address() == name)
}

fn no_listener(disk: &DiskEndpointsView, listener: Option<&str>) -> Problem {
    let export = &disk.export;
    let offering: Vec<_> = (disk.endpoints.iter())
        .map(|endpoint| format!("{} ({})", endpoint.address(), endpoint.protocol))
        .collect();
    let offered = format!("it is offered at: {}", offering.join(", "));
    let needs_tls = |at: &EndpointView| at.protocol == NBD_TLS && is_named(at, listener);
    if disk.endpoints.iter().any(needs_tls) {
        let what = format!("the disk {export:?} needs TLS there, which is not printed");
        let help = format!("docs/tls.md has the arguments of clients; or add {NBD_KEY}");
        return Problem::new(what).help(help);
    }
    match listener {
        Some(VHOST_USER) => {
            Problem::new(format!("no vhost-user listener offers the disk {export:?}"))
                .at("--listener")
                .help(format!("add {VHOST_USER_KEY}"))
        }
        Some(name) if !offering.is_empty() => {
            Problem::new(format!("no listener {name:?} offers the disk {export:?}"))
                .at("--listener")
                .help(offered)
        }
        _ => Problem::new(format!("no listener offers the disk {export:?}")).help(format!(
            "add {export:?} to the exports of a [[listen]], or add {NBD_KEY}"
        )),
    }
}

/// Disks for tests of what is printed.
#[cfg(test)]
pub(super) mod testing {
    use super::{Attachment, Transport};

    /// Makes a disk that may be written.
    pub(in super::super) fn disk(export: &str, transport: Transport) -> Attachment {
        Attachment {
            export: export.to_owned(),
            read_only: false,
            transport,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint(protocol: &str, address: &str) -> EndpointView {
        let is_path = address.starts_with('/');
        let address = Some(address.to_owned());
        EndpointView {
            protocol: protocol.to_owned(),
            unix: address.clone().filter(|_| is_path),
            tcp: address.filter(|_| !is_path),
        }
    }

    fn disk(endpoints: Vec<EndpointView>) -> DiskEndpointsView {
        DiskEndpointsView {
            export: "db".to_owned(),
            read_only: false,
            endpoints,
        }
    }

    fn args(disk: Option<&str>, listener: Option<&str>) -> AttachArgs {
        AttachArgs {
            vm: "db".to_owned(),
            disk: disk.map(str::to_owned),
            config: None,
            listener: listener.map(str::to_owned),
        }
    }

    fn everywhere() -> DiskEndpointsView {
        disk(vec![
            endpoint(NBD, "0.0.0.0:10809"),
            endpoint(NBD, "/run/nbd.sock"),
            endpoint(NBD, "/run/other.sock"),
            endpoint(VHOST_USER, "/run/db.sock"),
            endpoint("iscsi", "/run/later.sock"),
        ])
    }

    fn chosen(listener: Option<&str>) -> Transport {
        let mut chosen = choose(&args(None, listener), &[everywhere()]).expect("offered");
        chosen.pop().expect("one disk").transport
    }

    #[test]
    fn vhost_user_comes_before_nbd_and_the_first_unix_socket_before_tcp() {
        let unix = |path: &str| path.to_owned();
        let vhost_user = Transport::VhostUser {
            unix: unix("/run/db.sock"),
        };
        assert_eq!(chosen(None), vhost_user);
        let first = Transport::NbdUnix {
            unix: unix("/run/nbd.sock"),
        };
        assert_eq!(chosen(Some("nbd")), first);
        let other = Transport::NbdUnix {
            unix: unix("/run/other.sock"),
        };
        assert_eq!(chosen(Some("/run/other.sock")), other);
    }

    #[test]
    fn an_nbd_disk_has_a_uri() {
        let uri = |transport| testing::disk("a b", transport).uri();
        let unix = "/run/my dir/nbd.sock".to_owned();
        let socket = "nbd+unix:///a%20b?socket=/run/my%20dir/nbd.sock".to_owned();
        assert_eq!(uri(Transport::NbdUnix { unix: unix.clone() }), Some(socket));
        let tcp = "[::1]:10809".parse().expect("an address");
        let address = Some("nbd://[::1]:10809/a%20b".to_owned());
        assert_eq!(uri(Transport::NbdTcp { tcp }), address);
        assert_eq!(uri(Transport::VhostUser { unix }), None);
    }

    #[test]
    fn a_listener_on_all_addresses_is_reached_through_the_loopback() {
        let tcp = "127.0.0.1:10809".parse().expect("an address");
        assert_eq!(chosen(Some("0.0.0.0:10809")), Transport::NbdTcp { tcp });
        let all = "[::]:10809".parse().expect("an address");
        assert_eq!(reachable(all).to_string(), "[::1]:10809");
        let one = "192.0.2.1:10809".parse().expect("an address");
        assert_eq!(reachable(one), one);
    }

    #[test]
    fn errors_name_the_disks_and_listeners_that_there_are() {
        let refused = |args: &AttachArgs, disk: DiskEndpointsView| {
            let error = choose(args, &[disk]).expect_err("refused");
            error.to_string()
        };
        let message = refused(&args(Some("logs"), None), everywhere());
        assert!(message.contains("no disk with the export name \"logs\""));
        assert!(message.contains("there are: db"), "{message}");
        let message = refused(&args(None, Some("/run/x.sock")), everywhere());
        assert!(message.contains("/run/nbd.sock (nbd)"), "{message}");
        assert!(message.contains("/run/db.sock (vhost-user)"), "{message}");
        let nbd = disk(vec![endpoint(NBD, "/run/nbd.sock")]);
        let message = refused(&args(None, Some("vhost-user")), nbd);
        assert!(message.contains("add [[listen]] vhost_user"), "{message}");
        let message = refused(&args(None, None), disk(Vec::new()));
        assert!(message.contains("no listener offers"), "{message}");
        assert!(message.contains("add \"db\" to the exports"), "{message}");
        // A daemon newer than this build may name transports that it does not know.
        let unknown = disk(vec![endpoint("iscsi", "/run/later.sock")]);
        assert!(refused(&args(None, None), unknown).contains("no listener offers"));
        let over_tls = || disk(vec![endpoint(NBD_TLS, "127.0.0.1:10810")]);
        for listener in [None, Some("nbds"), Some("127.0.0.1:10810")] {
            let message = refused(&args(None, listener), over_tls());
            assert!(message.contains("needs TLS"), "{message}");
        }
    }
}
