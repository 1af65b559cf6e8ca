//! Views of the addresses at which clients attach disks.

use std::path::Path;

use tidegate_api::endpoint::{DiskEndpointsView, EndpointView, NBD, NBD_TLS, VHOST_USER};

use crate::config::{ListenAddress, ListenConfig, TlsConfig, VmConfig};

/// Returns the disks of a VM, each with the listeners that offer it, in the order of the
/// configuration.
pub fn disk_endpoints(vm: &VmConfig, listeners: &[ListenConfig]) -> Vec<DiskEndpointsView> {
    let disks = vm.disks.iter().map(|disk| DiskEndpointsView {
        export: disk.export.clone(),
        read_only: disk.read_only,
        endpoints: (listeners.iter())
            .filter(|listen| listen.offers(&disk.export))
            .map(|listen| endpoint(listen, &vm.name, &disk.export))
            .collect(),
    });
    disks.collect()
}

fn endpoint(listen: &ListenConfig, vm: &str, disk: &str) -> EndpointView {
    let is_plain = |tls: &TlsConfig| tls.plain_exports.iter().any(|export| export == disk);
    let (protocol, unix, tcp) = match &listen.address {
        ListenAddress::Unix { path, .. } => (NBD, Some(absolute(path)), None),
        ListenAddress::Tcp(address) => {
            let needs_none = listen.tls.as_ref().is_none_or(is_plain);
            let protocol = if needs_none { NBD } else { NBD_TLS };
            (protocol, None, Some(address.to_string()))
        }
        ListenAddress::VhostUser { path, .. } => {
            (VHOST_USER, Some(absolute(&path.expand(vm, disk))), None)
        }
    };
    EndpointView {
        protocol: protocol.to_owned(),
        unix,
        tcp,
    }
}

/// Returns the absolute form of a path, as a process with another working directory needs it.
fn absolute(path: &Path) -> String {
    // Fails only for an empty path, or where the working directory is gone.
    let absolute = std::path::absolute(path);
    absolute.as_deref().unwrap_or(path).display().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_has_the_listeners_that_offer_it() {
        let text = r#"
            [[listen]]
            unix = "nbd.sock"
            [[listen]]
            tcp = "127.0.0.1:10809"
            exports = ["logs"]
            [[listen]]
            vhost_user = "vhost/{vm}-{disk}"
            exports = ["db"]
            [[listen]]
            tcp = "127.0.0.1:10810"
            [listen.tls]
            certificate = "server.pem"
            private_key = "server.key"
            plain_exports = ["logs"]
            [[device]]
            name = "ram"
            kind = "memory"
            [[vm]]
            name = "db"
            [[vm.disk]]
            size = "1 MiB"
            [[vm.disk]]
            export = "logs"
            size = "1 MiB"
            read_only = true
        "#;
        let loaded = crate::config::parse(text, "t", Path::new("/run/tidegate"));
        let config = loaded.unwrap_or_else(|errors| panic!("{errors}")).config;
        let disks = disk_endpoints(&config.vms[0], &config.listeners);
        let addresses = |disk: &DiskEndpointsView| {
            let all = disk.endpoints.iter();
            all.map(|at| format!("{} {}", at.protocol, at.address()))
                .collect::<Vec<_>>()
        };
        assert_eq!(disks[0].export, "db");
        assert!(!disks[0].read_only);
        assert_eq!(
            addresses(&disks[0]),
            [
                "nbd /run/tidegate/nbd.sock",
                "vhost-user /run/tidegate/vhost/db-db",
                "nbds 127.0.0.1:10810"
            ]
        );
        assert_eq!(disks[1].export, "logs");
        assert!(disks[1].read_only);
        assert_eq!(
            addresses(&disks[1]),
            [
                "nbd /run/tidegate/nbd.sock",
                "nbd 127.0.0.1:10809",
                "nbd 127.0.0.1:10810"
            ]
        );
    }
}
