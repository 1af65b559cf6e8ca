//! Addresses at which clients attach the disks of a VM.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Protocol of [`EndpointView`] for NBD.
pub const NBD: &str = "nbd";
/// Protocol of [`EndpointView`] for NBD that needs TLS, as in URIs.
pub const NBD_TLS: &str = "nbds";
/// Protocol of [`EndpointView`] for vhost-user-blk.
pub const VHOST_USER: &str = "vhost-user";

/// Disk of a VM with the addresses that offer it: item of `GET /v1/vms/{name}/endpoints`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct DiskEndpointsView {
    /// Export name of the disk.
    pub export: String,
    /// True if the disk refuses writes.
    pub read_only: bool,
    /// Addresses that offer the disk, in the order of the configuration; empty if no listener does.
    pub endpoints: Vec<EndpointView>,
}

/// Address that offers a disk.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct EndpointView {
    /// Protocol: [`NBD`], [`NBD_TLS`] or [`VHOST_USER`].
    pub protocol: String,
    /// Absolute path of a unix socket; absent for TCP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unix: Option<String>,
    /// TCP address and port, such as `127.0.0.1:10809`; absent for a unix socket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tcp: Option<String>,
}

impl EndpointView {
    /// Returns the path or the address; empty if the daemon sent neither.
    pub fn address(&self) -> &str {
        let address = self.unix.as_deref().or(self.tcp.as_deref());
        address.unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_json::round_trip;

    #[test]
    fn an_endpoint_has_a_path_or_an_address() {
        let unix = EndpointView {
            protocol: VHOST_USER.to_owned(),
            unix: Some("/run/db.sock".to_owned()),
            tcp: None,
        };
        assert_eq!(unix.address(), "/run/db.sock");
        let tcp = EndpointView {
            protocol: NBD.to_owned(),
            unix: None,
            tcp: Some("[::1]:10809".to_owned()),
        };
        assert_eq!(tcp.address(), "[::1]:10809");
        let disk = DiskEndpointsView {
            export: "db".to_owned(),
            read_only: false,
            endpoints: vec![unix, tcp],
        };
        let text = concat!(
            r#"{"export":"db","read_only":false,"endpoints":["#,
            r#"{"protocol":"vhost-user","unix":"/run/db.sock"},"#,
            r#"{"protocol":"nbd","tcp":"[::1]:10809"}]}"#
        );
        round_trip(&disk, text);
    }
}
