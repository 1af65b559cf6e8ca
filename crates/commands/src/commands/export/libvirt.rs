//! Elements of libvirt's domain XML (<https://libvirt.org/formatdomain.html>, "Hard drives").

use super::attachment::{Attachment, Transport};
use super::{NBD_RECONNECT_S, VHOST_RECONNECT_S};

/// Element below `<domain>` that makes guest memory sharable, without which no vhost-user disk
/// works.
pub(super) const MEMORY_BACKING: &str = "\
<memoryBacking>
  <source type='memfd'/>
  <access mode='shared'/>
</memoryBacking>
";

/// Returns the `<disk>` element of a disk. `target` is its name in the domain, such as `vdb`.
/// `reconnects` adds the reconnect delay of an NBD disk, which the schema of libvirt 9.0 does not
/// have.
pub(super) fn disk(attachment: &Attachment, target: &str, reconnects: bool) -> String {
    let source = match &attachment.transport {
        Transport::NbdUnix { unix } => {
            let host = format!("transport='unix' socket='{}'", escape(unix));
            nbd(&attachment.export, &host, reconnects)
        }
        Transport::NbdTcp { tcp } => {
            let host = format!("name='{}' port='{}'", tcp.ip(), tcp.port());
            nbd(&attachment.export, &host, reconnects)
        }
        Transport::VhostUser { unix } => vhost_user(unix),
    };
    // A vhost-user disk is read-only if its back-end says so.
    let read_only = if attachment.read_only && !attachment.transport.shares_memory() {
        "  <readonly/>\n"
    } else {
        ""
    };
    format!("{source}  <target dev='{target}' bus='virtio'/>\n{read_only}</disk>\n")
}

/// Returns the beginning of an NBD disk; `host` has the attributes of `<host>`.
fn nbd(export: &str, host: &str, reconnects: bool) -> String {
    let name = escape(export);
    let reconnect = if reconnects {
        format!("    <reconnect delay='{NBD_RECONNECT_S}'/>\n")
    } else {
        String::new()
    };
    format!(
        "\
<disk type='network' device='disk'>
  <driver name='qemu' type='raw' cache='none' discard='unmap'/>
  <source protocol='nbd' name='{name}'>
    <host {host}/>
{reconnect}  </source>
"
    )
}

/// Returns the beginning of a vhost-user disk. Cache and discard are the daemon's: libvirt refuses
/// such attributes, and snapshots.
fn vhost_user(socket: &str) -> String {
    let path = escape(socket);
    format!(
        "\
<disk type='vhostuser' device='disk' snapshot='no'>
  <driver name='qemu' type='raw'/>
  <source type='unix' path='{path}'>
    <reconnect enabled='yes' timeout='{VHOST_RECONNECT_S}'/>
  </source>
"
    )
}

/// Escapes text for an attribute in single quotes (XML 1.0, section 2.4).
fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('\'', "&apos;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attachment(export: &str, read_only: bool, transport: Transport) -> Attachment {
        Attachment {
            export: export.to_owned(),
            read_only,
            transport,
        }
    }

    #[test]
    fn an_nbd_disk_is_a_network_disk() {
        let unix = "/run/tidegate/nbd.sock".to_owned();
        let db = attachment("db", false, Transport::NbdUnix { unix });
        assert_eq!(
            disk(&db, "vdb", true),
            "\
<disk type='network' device='disk'>
  <driver name='qemu' type='raw' cache='none' discard='unmap'/>
  <source protocol='nbd' name='db'>
    <host transport='unix' socket='/run/tidegate/nbd.sock'/>
    <reconnect delay='60'/>
  </source>
  <target dev='vdb' bus='virtio'/>
</disk>
"
        );
    }

    #[test]
    fn a_read_only_disk_over_tcp_says_so() {
        let tcp = "[::1]:10809".parse().expect("an address");
        let db = attachment("db", true, Transport::NbdTcp { tcp });
        let xml = disk(&db, "vda", false);
        assert!(
            xml.contains("    <host name='::1' port='10809'/>\n  </source>\n"),
            "{xml}"
        );
        assert!(
            xml.contains("bus='virtio'/>\n  <readonly/>\n</disk>"),
            "{xml}"
        );
    }

    #[test]
    fn a_vhost_user_disk_reconnects_and_leaves_the_cache_to_the_daemon() {
        let unix = "/run/tidegate/vhost/db.sock".to_owned();
        let db = attachment("db", false, Transport::VhostUser { unix });
        assert_eq!(
            disk(&db, "vdb", true),
            "\
<disk type='vhostuser' device='disk' snapshot='no'>
  <driver name='qemu' type='raw'/>
  <source type='unix' path='/run/tidegate/vhost/db.sock'>
    <reconnect enabled='yes' timeout='1'/>
  </source>
  <target dev='vdb' bus='virtio'/>
</disk>
"
        );
    }

    #[test]
    fn names_are_escaped() {
        let unix = "/a&b'c.sock".to_owned();
        let db = attachment("<d b>", false, Transport::NbdUnix { unix });
        let xml = disk(&db, "vdb", true);
        assert!(xml.contains("name='&lt;d b&gt;'"), "{xml}");
        assert!(xml.contains("socket='/a&amp;b&apos;c.sock'"), "{xml}");
    }
}
