//! NBD URIs (`doc/uri.md` of <https://github.com/NetworkBlockDevice/nbd>): the address of a server
//! and the name of an export.

use std::fmt;

use thiserror::Error;

use crate::wire::NAME_LEN_MAX;

/// TCP port of NBD.
const DEFAULT_PORT: u16 = 10809;

/// URI of an export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NbdUri {
    /// Address of the server.
    pub address: Address,
    /// Name of the export; empty for the server's default one.
    pub export: String,
    /// TLS is required (`nbds://`). False on a unix socket.
    pub tls: bool,
}

/// Address of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// Path of a unix socket.
    Unix(String),
    /// TCP.
    Tcp {
        /// Name or IP address of the host, the latter without brackets.
        host: String,
        /// Port.
        port: u16,
    },
}

/// Reason why a text is no URI of an export.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum UriError {
    /// The scheme is that of another protocol or transport.
    #[error("its scheme is none of nbd://, nbds:// and nbd+unix://")]
    Scheme,
    /// TLS over a unix socket.
    #[error(
        "TLS on a unix socket (nbds+unix://) is not supported: write nbd+unix://, and have the \
         file modes of the socket's directory decide who may connect"
    )]
    TlsOnSocket,
    /// `nbd+unix://` without a socket.
    #[error("`?socket=PATH` is missing: nbd+unix:// needs the path of a socket")]
    NoSocket,
    /// `nbd+unix://HOST`.
    #[error(
        "there is a host, which nbd+unix:// does not have: write nbd+unix:///EXPORT?socket=PATH"
    )]
    HostOfSocket,
    /// `nbd://` without a host.
    #[error("the host is missing")]
    NoHost,
    /// The port is no number from 1 to 65535.
    #[error("the port is not a number from 1 to 65535")]
    Port,
    /// A user before the host, the identity of a pre-shared key.
    #[error("there is a user before the host, which TLS with pre-shared keys alone has a use for")]
    User,
    /// A parameter that does not exist, or not with this scheme.
    #[error("the parameter {0:?} does not exist, or not with this scheme")]
    Parameter(String),
    /// A parameter that is given more than once.
    #[error("the parameter {0:?} is given more than once")]
    Repeated(&'static str),
    /// A `%` without two hexadecimal digits, or bytes that are no text.
    #[error("a `%` is not followed by two hexadecimal digits, or the result is not UTF-8")]
    Encoding,
    /// The name of the export is longer than the protocol allows.
    #[error("the name of the export is longer than 4096 bytes")]
    Export,
}

impl NbdUri {
    /// Reads a URI.
    ///
    /// # Errors
    /// Names what is wrong, to follow the text and a colon.
    pub fn parse(text: &str) -> Result<NbdUri, UriError> {
        let (scheme, rest) = text.split_once("://").ok_or(UriError::Scheme)?;
        let (is_unix, tls) = match scheme {
            "nbd" => (false, false),
            "nbds" => (false, true),
            "nbd+unix" => (true, false),
            "nbds+unix" => return Err(UriError::TlsOnSocket),
            _ => return Err(UriError::Scheme),
        };
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let export = decode(path)?;
        if export.len() > NAME_LEN_MAX {
            return Err(UriError::Export);
        }
        let mut socket = None;
        for parameter in query.split('&').filter(|it| !it.is_empty()) {
            match parameter.split_once('=') {
                Some(("socket", path)) if is_unix => {
                    if socket.replace(decode(path)?).is_some() {
                        return Err(UriError::Repeated("socket"));
                    }
                }
                _ => return Err(UriError::Parameter(parameter.to_owned())),
            }
        }
        let address = if is_unix {
            if !authority.is_empty() {
                return Err(UriError::HostOfSocket);
            }
            let socket = socket.filter(|path| !path.is_empty());
            Address::Unix(socket.ok_or(UriError::NoSocket)?)
        } else {
            tcp(authority)?
        };
        Ok(NbdUri {
            address,
            export,
            tls,
        })
    }
}

fn tcp(authority: &str) -> Result<Address, UriError> {
    if authority.contains('@') {
        return Err(UriError::User);
    }
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest.split_once(']').ok_or(UriError::NoHost)?;
            (host, port)
        }
        None => match authority.find(':') {
            Some(at) => authority.split_at(at),
            None => (authority, ""),
        },
    };
    let port = match port.strip_prefix(':') {
        None if port.is_empty() => DEFAULT_PORT,
        None => return Err(UriError::Port),
        Some(port) => {
            // Rust reads a sign as well, which a URI does not have.
            let is_number = port.bytes().all(|byte| byte.is_ascii_digit());
            let number = port.parse().ok().filter(|port| is_number && *port > 0);
            number.ok_or(UriError::Port)?
        }
    };
    let host = decode(host)?;
    if host.is_empty() {
        return Err(UriError::NoHost);
    }
    Ok(Address::Tcp { host, port })
}

/// Replaces `%XX` by the bytes that they stand for.
fn decode(text: &str) -> Result<String, UriError> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, behind)) = rest.split_first() {
        rest = behind;
        if first != b'%' {
            bytes.push(first);
            continue;
        }
        let digit = |at: usize| char::from(*behind.get(at)?).to_digit(16);
        let (Some(high), Some(low)) = (digit(0), digit(1)) else {
            return Err(UriError::Encoding);
        };
        bytes.push((high * 16 + low) as u8);
        rest = &behind[2..];
    }
    String::from_utf8(bytes).map_err(|_| UriError::Encoding)
}

/// Writes a part of a URI: bytes that stand for themselves everywhere, and those of `plain`, which
/// do so in this part; others as `%XX`.
fn encode(text: &str, plain: &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) || plain.contains(&byte) {
            write!(f, "{}", char::from(byte))?;
        } else {
            write!(f, "%{byte:02X}")?;
        }
    }
    Ok(())
}

impl fmt::Display for NbdUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.address {
            Address::Unix(path) => {
                f.write_str("nbd+unix:///")?;
                encode(&self.export, b"/", f)?;
                f.write_str("?socket=")?;
                encode(path, b"/", f)
            }
            Address::Tcp { host, port } => {
                f.write_str(if self.tls { "nbds://" } else { "nbd://" })?;
                if host.contains(':') {
                    // The `%` before the zone of an address is `%25` (RFC 6874).
                    f.write_str("[")?;
                    encode(host, b":", f)?;
                    f.write_str("]")?;
                } else {
                    encode(host, b"", f)?;
                }
                write!(f, ":{port}/")?;
                encode(&self.export, b"/", f)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn unix(path: &str, export: &str) -> NbdUri {
        NbdUri {
            address: Address::Unix(path.to_owned()),
            export: export.to_owned(),
            tls: false,
        }
    }

    fn tcp(host: &str, port: u16, export: &str) -> NbdUri {
        NbdUri {
            address: Address::Tcp {
                host: host.to_owned(),
                port,
            },
            export: export.to_owned(),
            tls: false,
        }
    }

    fn over_tls(uri: NbdUri) -> NbdUri {
        NbdUri { tls: true, ..uri }
    }

    #[test]
    fn uris_are_read() {
        for (text, expected) in [
            ("nbd+unix:///?socket=/run/x.sock", unix("/run/x.sock", "")),
            ("nbd+unix:///a/b?socket=/x", unix("/x", "a/b")),
            ("nbd+unix:///%C3%A4%20b?socket=/x%3F", unix("/x?", "ä b")),
            ("nbd+unix://?socket=x", unix("x", "")),
            ("nbd://example.com", tcp("example.com", 10809, "")),
            ("nbd://example.com/a", tcp("example.com", 10809, "a")),
            ("nbd://10.0.0.1:7/%2Fa", tcp("10.0.0.1", 7, "/a")),
            ("nbd://[::1]:7/", tcp("::1", 7, "")),
            (
                "nbds://example.com/a",
                over_tls(tcp("example.com", 10809, "a")),
            ),
            ("nbd://[fe80::1%25eth0]", tcp("fe80::1%eth0", 10809, "")),
        ] {
            assert_eq!(NbdUri::parse(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn parts_are_written_so_that_they_are_read_back() {
        for (uri, expected) in [
            (tcp("fe80::1%eth0", 7, "x"), "nbd://[fe80::1%25eth0]:7/x"),
            (tcp("a/b", 7, "a/b"), "nbd://a%2Fb:7/a/b"),
            (tcp("a:]", 7, ""), "nbd://[a:%5D]:7/"),
            (unix("/a b", "c?"), "nbd+unix:///c%3F?socket=/a%20b"),
        ] {
            assert_eq!(uri.to_string(), expected);
            assert_eq!(NbdUri::parse(expected), Ok(uri));
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        let parameter = |text: &str| UriError::Parameter(text.to_owned());
        for (text, expected) in [
            ("", UriError::Scheme),
            ("/run/x.sock", UriError::Scheme),
            ("http://a", UriError::Scheme),
            ("nbds+unix:///?socket=/x", UriError::TlsOnSocket),
            ("nbds:///a", UriError::NoHost),
            ("nbds://me@a/", UriError::User),
            (
                "nbds://a/?tls-certificates=/x",
                parameter("tls-certificates=/x"),
            ),
            ("nbd+unix:///a", UriError::NoSocket),
            ("nbd+unix:///a?socket=", UriError::NoSocket),
            ("nbd+unix://host/a?socket=/x", UriError::HostOfSocket),
            ("nbd:///a", UriError::NoHost),
            ("nbd://:7/a", UriError::NoHost),
            ("nbd://a:0/", UriError::Port),
            ("nbd://a:65536/", UriError::Port),
            ("nbd://[::1]7/", UriError::Port),
            ("nbd://a:+7/", UriError::Port),
            ("nbd://me@a/", UriError::User),
            ("nbd://a/?socket=/x", parameter("socket=/x")),
            (
                "nbd+unix:///?socket=/x&tls-type=anon",
                parameter("tls-type=anon"),
            ),
            (
                "nbd+unix:///?socket=/x&socket=/y",
                UriError::Repeated("socket"),
            ),
            ("nbd://a/%zz", UriError::Encoding),
            ("nbd://a/%", UriError::Encoding),
            ("nbd://a/%ff", UriError::Encoding),
        ] {
            assert_eq!(NbdUri::parse(text), Err(expected), "{text}");
        }
        let long = format!("nbd://a/{}", "a".repeat(NAME_LEN_MAX + 1));
        assert_eq!(NbdUri::parse(&long), Err(UriError::Export));
    }

    proptest! {
        #[test]
        fn a_uri_that_was_written_is_read_as_it_was(
            path in "\\PC{1,20}",
            export in "\\PC{0,20}",
            host in "\\PC{1,20}",
            zone in "\\PC{1,20}",
            port in 1u16..,
        ) {
            for uri in [
                unix(&path, &export),
                tcp(&host, port, &export),
                over_tls(tcp(&host, port, &export)),
                tcp("::1", port, &export),
                tcp(&format!("fe80::1%{zone}"), port, &export),
            ] {
                assert_eq!(NbdUri::parse(&uri.to_string()), Ok(uri));
            }
        }

        #[test]
        fn no_text_panics(text in "(nbds?|nbd\\+unix)://\\PC{0,40}") {
            if let Ok(uri) = NbdUri::parse(&text) {
                assert_eq!(NbdUri::parse(&uri.to_string()), Ok(uri));
            }
        }
    }
}
