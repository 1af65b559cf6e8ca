//! Files of TLS: certificate, private key, authorities and revocation lists.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{
    CertificateDer, CertificateRevocationListDer, PrivateKeyDer, TrustAnchor, UnixTime,
};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{NoServerSessionStorage, VerifierBuilderError, WebPkiClientVerifier};
use rustls::{
    ClientConfig, DigitallySignedStruct, DistinguishedName, InconsistentKeys, RootCertStore,
    ServerConfig, SignatureScheme,
};

use super::clients::{ListError, Revocations};
use crate::config::TlsConfig;

/// Error of a file of TLS.
#[derive(Debug, thiserror::Error)]
#[error("{}: {what}", path.display())]
pub struct TlsFileError {
    path: PathBuf,
    what: String,
    help: &'static str,
}

impl TlsFileError {
    fn new(path: &Path, what: impl Into<String>, help: &'static str) -> TlsFileError {
        TlsFileError {
            path: path.to_owned(),
            what: what.into(),
            help,
        }
    }

    /// Returns what would be right.
    pub fn help(&self) -> &'static str {
        self.help
    }
}

/// Reads the files of a listener and checks that they fit each other.
///
/// # Errors
/// If one cannot be read or has not what it should.
pub fn check(config: &TlsConfig) -> Result<(), TlsFileError> {
    load(config).map(drop)
}

/// Returns a warning if users other than the daemon's can read a private key.
pub fn exposed_key(path: &Path) -> Option<String> {
    let mode = std::fs::metadata(path).ok()?.mode();
    let (exposed, mode) = (mode & 0o004 != 0, mode & 0o777);
    exposed.then(|| {
        format!(
            "{}: every user can read it (mode {mode:04o})",
            path.display()
        )
    })
}

/// Content of the files of a listener.
pub(super) struct Loaded {
    pub(super) server: Arc<ServerConfig>,
    pub(super) revoked: Revocations,
    /// Authorities that clients' certificates come from; none if clients need no certificate.
    pub(super) authorities: Vec<TrustAnchor<'static>>,
}

/// Reads the files of a listener.
pub(super) fn load(config: &TlsConfig) -> Result<Loaded, TlsFileError> {
    let provider = Arc::new(ring::default_provider());
    let chain = certificates(&config.certificate)?;
    let key = private_key(&config.private_key)?;
    let builder = ServerConfig::builder_with_provider(provider.clone())
        // AES-GCM encrypts 2^24 records with a key. TLS 1.3 changes keys then; with TLS 1.2 rustls
        // discards what is written, and reports no error.
        .with_protocol_versions(&[&rustls::version::TLS13])
        .expect("the provider has TLS 1.3");
    let (mut revoked, mut trusted) = (Revocations::default(), Vec::new());
    let builder = match &config.client_ca {
        None => builder.with_no_client_auth(),
        Some(ca) => {
            let crl = config.client_crl.as_deref();
            let lists = crl.map(revocation_lists).transpose()?;
            if let (Some(crl), Some(lists)) = (crl, &lists) {
                let read = Revocations::new(lists);
                revoked = read.map_err(|error| unusable_list(crl, &error))?;
            }
            let roots = authorities(ca)?;
            trusted.clone_from(&roots.roots);
            let lists = crl.zip(lists);
            let orders = revoked.orders();
            builder.with_client_cert_verifier(verifier((ca, roots), lists, orders, provider)?)
        }
    };
    let fits = builder.with_single_cert(chain, key);
    let mut server =
        fits.map_err(|error| unfit_key(&config.certificate, &config.private_key, error))?;
    // A resumed session would not verify the client's certificate again.
    server.session_storage = Arc::new(NoServerSessionStorage {});
    server.send_tls13_tickets = 0;
    let server = Arc::new(server);
    Ok(Loaded {
        server,
        revoked,
        authorities: trusted,
    })
}

/// Reads the files of a client: the authorities that the server's certificate
/// has to come from, and the client's own certificate and private key, if it has some.
///
/// # Errors
/// If one cannot be read or has not what it should.
pub fn client_config(
    ca: &Path,
    own: Option<(&Path, &Path)>,
) -> Result<Arc<ClientConfig>, TlsFileError> {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .expect("the provider has TLS 1.3")
        .with_root_certificates(authorities(ca)?);
    let client = match own {
        None => builder.with_no_client_auth(),
        Some((certificate, key)) => builder
            .with_client_auth_cert(certificates(certificate)?, private_key(key)?)
            .map_err(|error| unfit_key(certificate, key, error))?,
    };
    Ok(Arc::new(client))
}

/// Returns the error for a private key that does not fit its certificate.
fn unfit_key(certificate: &Path, key: &Path, error: rustls::Error) -> TlsFileError {
    match error {
        rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => {
            let what = format!("is not the key of {}", certificate.display());
            let help = "certificate and private key have to belong together";
            TlsFileError::new(key, what, help)
        }
        error => TlsFileError::new(
            key,
            format!("cannot be used: {error}"),
            "an ECDSA key of P-256 or P-384, Ed25519, or RSA of 2048 to 8192 bits",
        ),
    }
}

fn read(path: &Path) -> Result<Vec<u8>, TlsFileError> {
    std::fs::read(path).map_err(|error| {
        let help = "the user of this process needs to read it; a path in a configuration is \
                    relative to its directory";
        TlsFileError::new(path, error.to_string(), help)
    })
}

/// Returns the error for a file that is not in PEM.
fn not_pem(path: &Path, error: &pem::Error) -> TlsFileError {
    let help = "PEM is text with lines such as -----BEGIN CERTIFICATE-----";
    TlsFileError::new(path, format!("is not in PEM: {error}"), help)
}

/// Returns all items of a kind in a file, at least one.
fn items<T: PemObject>(
    path: &Path,
    what: &str,
    help: &'static str,
) -> Result<Vec<T>, TlsFileError> {
    let items = T::pem_slice_iter(&read(path)?).collect::<Result<Vec<T>, _>>();
    let items = items.map_err(|error| not_pem(path, &error))?;
    if items.is_empty() {
        return Err(TlsFileError::new(path, format!("has no {what}"), help));
    }
    Ok(items)
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsFileError> {
    let help = "a file with -----BEGIN CERTIFICATE-----";
    items(path, "certificate", help)
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsFileError> {
    PrivateKeyDer::from_pem_slice(&read(path)?).map_err(|error| match error {
        pem::Error::NoItemsFound => TlsFileError::new(
            path,
            "has no private key",
            "a file with -----BEGIN PRIVATE KEY-----; remove the passphrase of an encrypted one",
        ),
        error => not_pem(path, &error),
    })
}

/// Returns the authorities in a file.
fn authorities(ca: &Path) -> Result<RootCertStore, TlsFileError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(ca)? {
        roots.add(certificate).map_err(|error| {
            let what = format!("has a certificate that is no authority: {error}");
            TlsFileError::new(
                ca,
                what,
                "the certificates that those of peers are signed with",
            )
        })?;
    }
    Ok(roots)
}

/// Returns the revocation lists in a file.
fn revocation_lists(
    crl: &Path,
) -> Result<Vec<CertificateRevocationListDer<'static>>, TlsFileError> {
    let help = "a file with -----BEGIN X509 CRL-----, such as `openssl ca -gencrl` writes";
    items(crl, "revocation list", help)
}

/// Returns the error for a file whose revocation lists cannot be used.
fn unusable_list(crl: &Path, error: &ListError) -> TlsFileError {
    let help = match error {
        ListError::Unreadable(_) => "make it again, such as with `openssl ca -gencrl`",
        ListError::SameIssuer(..) => {
            "one list of each authority: the latest, which has all that are revoked; or lists for \
             different parts of its certificates, each with issuingDistributionPoint"
        }
    };
    TlsFileError::new(crl, error.to_string(), help)
}

/// Returns what verifies clients' certificates, with the files of authorities and of revocation
/// lists, and their content. Certificates are verified with the lists in each of the orders.
fn verifier(
    (ca, roots): (&Path, RootCertStore),
    crl: Option<(&Path, Vec<CertificateRevocationListDer<'static>>)>,
    orders: Vec<Vec<usize>>,
    provider: Arc<CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, TlsFileError> {
    let roots = Arc::new(roots);
    let path = crl.as_ref().map_or(ca, |(path, _)| *path);
    let verifier = |order: &Vec<usize>| {
        let mut builder =
            WebPkiClientVerifier::builder_with_provider(roots.clone(), provider.clone());
        if let Some((_, lists)) = &crl {
            let lists = order.iter().map(|&list| lists[list].clone());
            // A list that is out of date may lack those that were revoked last.
            builder = builder.with_crls(lists).enforce_revocation_expiration();
        }
        builder.build().map_err(|error| match error {
            VerifierBuilderError::InvalidCrl(error) => {
                unusable_list(path, &ListError::Unreadable(format!("{error:?}")))
            }
            error => TlsFileError::new(ca, error.to_string(), "a file with at least one authority"),
        })
    };
    let (first, others) = orders.split_first().expect("at least one order");
    let first = verifier(first)?;
    if others.is_empty() {
        return Ok(first);
    }
    let others = others.iter().map(verifier).collect::<Result<_, _>>()?;
    Ok(Arc::new(EachList { first, others }))
}

/// Verifier that admits a client's certificate if each of several does.
#[derive(Debug)]
struct EachList {
    first: Arc<dyn ClientCertVerifier>,
    others: Vec<Arc<dyn ClientCertVerifier>>,
}

impl ClientCertVerifier for EachList {
    fn offer_client_auth(&self) -> bool {
        self.first.offer_client_auth()
    }

    fn client_auth_mandatory(&self) -> bool {
        self.first.client_auth_mandatory()
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.first.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        for other in &self.others {
            other.verify_client_cert(end_entity, intermediates, now)?;
        }
        self.first
            .verify_client_cert(end_entity, intermediates, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.first
            .verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.first
            .verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.first.supported_verify_schemes()
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{Permissions, set_permissions, write};
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_key_that_every_user_can_read_is_warned_of() {
        let dir = tempfile::tempdir().unwrap();
        let private_key = dir.path().join("server.key");
        write(&private_key, "").unwrap();
        for (mode, warned) in [(0o600, false), (0o640, false), (0o644, true), (0o604, true)] {
            set_permissions(&private_key, Permissions::from_mode(mode)).unwrap();
            let warning = exposed_key(&private_key);
            assert_eq!(warning.is_some(), warned, "{mode:o}");
            let names_it = warning.is_none_or(|text| text.contains(&format!("{mode:04o}")));
            assert!(names_it);
        }
        // A file that is missing is refused elsewhere.
        std::fs::remove_file(&private_key).unwrap();
        assert_eq!(exposed_key(&private_key), None);
    }
}
