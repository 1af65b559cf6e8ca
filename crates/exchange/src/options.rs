//! Settings of a connection to NATS.

use std::path::PathBuf;

/// Settings of a connection to NATS core.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NatsOptions {
    /// Servers, `nats://HOST:PORT` or `tls://HOST:PORT`; one after the other is tried.
    pub servers: Vec<String>,
    /// PEM file with the authorities of the servers' certificates; `None`: no TLS.
    pub ca: Option<PathBuf>,
    /// PEM files with the certificate chain of this client and its private key.
    pub certificate: Option<(PathBuf, PathBuf)>,
    /// Proof of identity.
    pub login: Login,
}

/// Proof of identity at a server.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub enum Login {
    /// No login, or the certificate alone.
    #[default]
    None,
    /// User, and the file with its password.
    Password {
        /// Name of the user.
        user: String,
        /// File with the password.
        file: PathBuf,
    },
    /// File with the seed of an nkey.
    Nkey(PathBuf),
    /// File with a JWT and the seed of its nkey, as `nsc` writes it.
    Credentials(PathBuf),
}

impl NatsOptions {
    /// Returns the files that are read for the connection.
    pub fn files(&self) -> Vec<PathBuf> {
        let login = match &self.login {
            Login::None => None,
            Login::Password { file, .. } | Login::Nkey(file) | Login::Credentials(file) => {
                Some(file)
            }
        };
        let certificate = self
            .certificate
            .iter()
            .flat_map(|(chain, key)| [chain, key]);
        let all = self.ca.iter().chain(certificate).chain(login);
        all.cloned().collect()
    }
}
