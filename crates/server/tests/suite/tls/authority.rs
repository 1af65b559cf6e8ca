//! Authority that issues the certificates of the tests.

use std::path::{Path, PathBuf};

use rcgen::string::Ia5String;
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, CertifiedIssuer,
    CrlDistributionPoint, CrlIssuingDistributionPoint, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyIdMethod, KeyPair, KeyUsagePurpose, RevokedCertParams, SanType, SerialNumber, date_time_ymd,
};

/// Years in which a certificate is valid, from the first day of one to that of the other.
pub(crate) type Years = (i32, i32);

/// Validity of all that is not to be expired.
pub(crate) const VALID: Years = (2020, 4000);
/// Validity that is over.
pub(crate) const OVER: Years = (2020, 2021);

/// Certificate with its key, in PEM.
#[derive(Clone)]
pub(crate) struct Identity {
    pub(crate) certificate: String,
    pub(crate) key: String,
    serial: SerialNumber,
}

pub(crate) struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    pub(crate) fn new(name: &str) -> Authority {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = KeyPair::generate().unwrap();
        Authority(CertifiedIssuer::self_signed(params, key).unwrap())
    }

    pub(crate) fn pem(&self) -> String {
        self.0.pem()
    }

    /// Issues a certificate for DNS names, and for URIs where there is a colon. `URI:` in front
    /// makes any text a URI, as with OpenSSL.
    pub(crate) fn issue(&self, names: &[&str], years: Years) -> Identity {
        self.issue_for(names, years, &[])
    }

    /// Issues a certificate as [`Authority::issue`] does, for some purposes; if there are none, the
    /// certificate does not confine them.
    pub(crate) fn issue_for(
        &self,
        names: &[&str],
        (from, to): Years,
        purposes: &[ExtendedKeyUsagePurpose],
    ) -> Identity {
        let text = |name: &str| Ia5String::try_from(name).unwrap();
        let name = |name: &&str| match name.strip_prefix("URI:") {
            Some(uri) => SanType::URI(text(uri)),
            None if name.contains(':') => SanType::URI(text(name)),
            None => SanType::DnsName(text(name)),
        };
        let mut params = CertificateParams::default();
        params.subject_alt_names = names.iter().map(name).collect();
        params.extended_key_usages = purposes.to_vec();
        // Not a name that anything is to go by.
        params
            .distinguished_name
            .push(DnType::CommonName, "common.example");
        (params.not_before, params.not_after) =
            (date_time_ymd(from, 1, 1), date_time_ymd(to, 1, 1));
        let key = KeyPair::generate().unwrap();
        // As unique as the key.
        let serial = SerialNumber::from_slice(&key.public_key_raw()[1..17]);
        params.serial_number = Some(serial.clone());
        Identity {
            certificate: params.signed_by(&key, &self.0).unwrap().pem(),
            key: key.serialize_pem(),
            serial,
        }
    }

    /// Returns a revocation list of some certificates that is valid for some years.
    pub(crate) fn revoke(&self, revoked: &[&Identity], years: Years) -> String {
        self.revoke_in_part(None, revoked, years)
    }

    /// Returns a revocation list as [`Authority::revoke`] does, for the part of the authority's
    /// certificates that has this distribution point.
    pub(crate) fn revoke_in_part(
        &self,
        part: Option<&str>,
        revoked: &[&Identity],
        (from, to): Years,
    ) -> String {
        let scope = |uri: &str| CrlIssuingDistributionPoint {
            distribution_point: CrlDistributionPoint {
                uris: vec![uri.to_owned()],
            },
            scope: None,
        };
        let entry = |identity: &&Identity| RevokedCertParams {
            serial_number: identity.serial.clone(),
            revocation_time: date_time_ymd(from, 1, 1),
            reason_code: None,
            invalidity_date: None,
        };
        let list = CertificateRevocationListParams {
            this_update: date_time_ymd(from, 1, 1),
            next_update: date_time_ymd(to, 1, 1),
            crl_number: SerialNumber::from_slice(&[1]),
            issuing_distribution_point: part.map(scope),
            revoked_certs: revoked.iter().map(entry).collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        list.signed_by(&self.0).unwrap().pem().unwrap()
    }
}

/// Writes a file and returns its path.
pub(crate) fn write(dir: &Path, name: &str, text: &str) -> PathBuf {
    let path = dir.join(name);
    // Renamed into place, so that a daemon that reads meanwhile has the one or the other.
    let fresh = dir.join(format!(".{name}"));
    std::fs::write(&fresh, text).unwrap();
    std::fs::rename(fresh, &path).unwrap();
    path
}
