//! Addresses of listeners: unix sockets with mode and owner, and TCP addresses.

use std::net::{IpAddr, SocketAddr};

use tidegate_config::diagnostic::Span;
use tidegate_config::{Field, Names, Section};

use super::context::Context;
use super::socket_owner::account;
use super::{ListenAddress, SocketOwner, keys};

/// Default mode of the sockets' files: the daemon's own user alone.
pub(super) const DEFAULT_SOCKET_MODE: u32 = keys::CONTROL_MODE.default_number() as u32;
/// Addresses and paths that a listener, the control API or the store has claimed.
#[derive(Default)]
pub(super) struct ClaimedAddresses {
    /// Sockets, addresses and files as they are written.
    pub(super) names: Names,
    /// TCP addresses with their places in the file.
    tcp: Vec<(SocketAddr, Span)>,
}

impl ClaimedAddresses {
    pub(super) fn claim_tcp(&mut self, address: SocketAddr, field: &Field<'_>) {
        if address.port() == 0 {
            // Port 0 takes any free port, so it never conflicts.
            return;
        }
        // The very same address is reported by the claim below, with its first place.
        let overlapping =
            (self.tcp.iter()).find(|(other, _)| *other != address && overlap(*other, address));
        match overlapping {
            Some((other, first)) => {
                let what = format!("{address} takes addresses of {other}");
                let allowed = "0.0.0.0 or [::] takes the port on every address: leave one \
                               out, or take another port";
                field.push(field.diagnostic(what).after(first).allowing(allowed));
            }
            None => self.names.claim(&address.to_string(), "address", field),
        }
        self.tcp.push((address, field.node().span.clone()));
    }
}

/// Returns true if Linux refuses to bind both addresses. `[::]` covers all addresses of IPv4 as
/// well.
fn overlap(a: SocketAddr, b: SocketAddr) -> bool {
    let wider = |a: IpAddr, b: IpAddr| match a {
        IpAddr::V4(all) => all.is_unspecified() && b.is_ipv4(),
        IpAddr::V6(all) => all.is_unspecified(),
    };
    // An IPv4 address may be written as an IPv4-mapped IPv6 address.
    let [ip, other] = [a, b].map(|address| address.ip().to_canonical());
    a.port() == b.port() && (ip == other || wider(ip, other) || wider(other, ip))
}

/// Reads owner and group of a listener's socket.
pub(super) fn owner(
    section: &mut Section<'_>,
    address: Option<&ListenAddress>,
) -> Option<SocketOwner> {
    let is_tcp = matches!(address, Some(ListenAddress::Tcp(_)));
    let mut places = Vec::new();
    let mut read = |key| match section.field(key) {
        Some(field) if is_tcp => {
            field.error(
                "a TCP port has no owner",
                "leave it out; the address and a firewall decide who may connect",
            );
            None
        }
        Some(field) => {
            places.extend(field.place());
            account(&field).map(Some)
        }
        None => Some(None),
    };
    let (user, group) = (read(&keys::LISTEN_OWNER), read(&keys::LISTEN_GROUP));
    Some(SocketOwner {
        user: user?,
        group: group?,
        place: places.into_iter().next(),
    })
}

/// Kind of a listener, for the messages about its address.
pub(super) struct AddressKind {
    /// Addresses that a section without one could have.
    pub(super) examples: &'static str,
    /// Heading of a second section.
    pub(super) heading: &'static str,
}

/// Returns true if only processes of this host reach an address.
pub(super) fn is_loopback(address: SocketAddr) -> bool {
    // An IPv4-mapped IPv6 address may be the loopback of IPv4.
    address.ip().to_canonical().is_loopback()
}

/// Reads the unix socket or the TCP address of a listener. The caller checks who reaches a TCP
/// address, which depends on the listener's TLS.
pub(super) fn unix_or_tcp(
    section: &mut Section<'_>,
    (unix, tcp, mode_field): (Option<Field<'_>>, Option<Field<'_>>, Option<Field<'_>>),
    context: &Context<'_>,
    taken: &mut ClaimedAddresses,
    kind: &AddressKind,
) -> Option<ListenAddress> {
    match (unix, tcp) {
        (Some(field), None) => {
            let mode = socket_mode(mode_field.as_ref());
            let path = context.socket_path(&field)?;
            (taken.names).claim(&path.display().to_string(), "socket", &field);
            Some(ListenAddress::Unix { path, mode: mode? })
        }
        (None, Some(field)) => {
            if let Some(mode) = mode_field {
                mode.error(
                    "a TCP port has no file mode",
                    "leave it out; the address and a firewall decide who may connect",
                );
            }
            let Ok(address) = field.text()?.parse::<SocketAddr>() else {
                field.error(
                    format!("{} is not an address and a port", field.describe()),
                    "such as \"127.0.0.1:10809\" or \"[::1]:10809\"; names are not looked up",
                );
                return None;
            };
            taken.claim_tcp(address, &field);
            Some(ListenAddress::Tcp(address))
        }
        (Some(_), Some(_)) => {
            let allowed = format!("one address each: add a second {}", kind.heading);
            section.error("unix and tcp together", &allowed);
            None
        }
        (None, None) => {
            section.error("no address is set", kind.examples);
            None
        }
    }
}

/// Reads the file mode of a socket.
pub(super) fn socket_mode(field: Option<&Field<'_>>) -> Option<u32> {
    match field {
        Some(field) => field.mode(),
        None => Some(DEFAULT_SOCKET_MODE),
    }
}
