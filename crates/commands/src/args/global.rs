//! Options of every command: the output format, and how the daemon is reached.

use std::path::PathBuf;

use clap::{Args as ClapArgs, ValueHint};
use tidegate_server::config::DEFAULT_CONTROL_SOCKET;

use super::Format;
use crate::client::{ApiAddress, Client, TlsFiles};

/// Options of every command.
#[derive(Debug, ClapArgs)]
#[command(next_help_heading = "Options of every command")]
pub(crate) struct Global {
    /// Output format: tables, JSON, or CSV where offered
    #[arg(
        short,
        long,
        global = true,
        value_enum,
        default_value = "table",
        value_name = "FORMAT"
    )]
    pub(crate) output: Format,
    /// Control socket of the daemon
    #[arg(long, global = true, env = "TIDEGATE_SOCKET", value_name = "PATH",
          default_value = DEFAULT_CONTROL_SOCKET, value_hint = ValueHint::AnyPath)]
    pub(crate) socket: PathBuf,
    /// Address of the control API, in place of the socket; of loopback unless --tls-ca is given
    #[arg(long, global = true, env = "TIDEGATE_TCP", value_name = "ADDRESS")]
    pub(crate) tcp: Option<ApiAddress>,
    /// File with the token for --tcp
    #[arg(long, global = true, env = "TIDEGATE_TOKEN_FILE", value_name = "PATH",
          value_hint = ValueHint::FilePath)]
    pub(crate) token_file: Option<PathBuf>,
    /// TLS for --tcp: PEM file with the authority of the daemon's certificate
    #[arg(long, global = true, env = "TIDEGATE_TLS_CA", value_name = "PATH",
          value_hint = ValueHint::FilePath)]
    pub(crate) tls_ca: Option<PathBuf>,
    /// PEM file with the certificate of this client, if the daemon asks for one
    #[arg(long, global = true, env = "TIDEGATE_TLS_CERTIFICATE", value_name = "PATH",
          value_hint = ValueHint::FilePath)]
    pub(crate) tls_certificate: Option<PathBuf>,
    /// PEM file with the private key for --tls-certificate
    #[arg(long, global = true, env = "TIDEGATE_TLS_KEY", value_name = "PATH",
          value_hint = ValueHint::FilePath)]
    pub(crate) tls_key: Option<PathBuf>,
}

/// Identities of the options of [`Global`] that say how the daemon is reached.
pub(super) const TO_DAEMON: [&str; 6] = [
    "socket",
    "tcp",
    "token_file",
    "tls_ca",
    "tls_certificate",
    "tls_key",
];

impl Global {
    /// Makes a client of the daemon that the options name.
    pub(crate) fn client(&self) -> anyhow::Result<Client> {
        match &self.tcp {
            Some(address) => {
                let tls = TlsFiles {
                    ca: self.tls_ca.as_deref(),
                    certificate: self.tls_certificate.as_deref(),
                    key: self.tls_key.as_deref(),
                };
                Client::with_token(address, self.token_file.as_deref(), &tls)
            }
            None => Client::new(&self.socket),
        }
    }
}
