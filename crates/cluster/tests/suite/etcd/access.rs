//! Users with rights on the prefix alone, and TLS with client certificates.

use std::fs;
use std::path::{Path, PathBuf};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use tidegate_cluster::store::{
    ClusterStore, EtcdOptions, EtcdStore, EtcdTls, Revision, StoreError,
};

use super::server::{Server, TlsFiles, is_installed};
use super::{host, load};

#[test]
fn a_user_needs_rights_on_the_prefix_and_no_others() {
    if !is_installed() {
        return;
    }
    let server = Server::start();
    // The commands of docs/cluster.md.
    for words in [
        "user add root:rootword",
        "user grant-role root root",
        "role add tidegate",
        "role grant-permission tidegate --prefix=true readwrite /tidegate/",
        "user add placer:secret",
        "user grant-role placer tidegate",
        "auth enable",
    ] {
        server.etcdctl(&words.split(' ').collect::<Vec<_>>());
    }
    let store = server.store_as("/tidegate/", "placer", "secret");
    let revision = store
        .commit(Revision::EMPTY, &[host("a")])
        .expect("its prefix");
    assert_eq!(store.load(revision).expect("reads"), None);
    let denied = |store: &EtcdStore| {
        let error = load(store).expect_err("denied");
        assert!(matches!(error, StoreError::Denied(_)), "{error}");
        error.to_string()
    };
    let message = denied(&server.store_as("/other/", "placer", "secret"));
    assert!(message.contains("permission denied"), "{message}");
    let message = denied(&server.store_as("/tidegate/", "placer", "guess"));
    assert!(message.contains("invalid user ID or password"), "{message}");
    let message = denied(&server.store("/tidegate/"));
    assert!(message.contains("user name is empty"), "{message}");
    // A restart makes all tokens worthless: the user is authenticated again.
    server.kill();
    server.restart();
    store.commit(revision, &[host("b")]).expect("a new token");
}

/// Authority with the certificates of a server and a client, in files.
fn certificates(dir: &Path) -> TlsFiles {
    let mut params = CertificateParams::default();
    params
        .distinguished_name
        .push(DnType::CommonName, "etcd authority");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().expect("a key");
    let authority = CertifiedIssuer::self_signed(params, key).expect("made");
    let write = |name: &str, text: &str| {
        let path = dir.join(name);
        fs::write(&path, text).expect("writable");
        path
    };
    let issue = |name: &str| -> (PathBuf, PathBuf) {
        let key = KeyPair::generate().expect("a key");
        let params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).expect("an address");
        let certificate = params.signed_by(&key, &authority).expect("made");
        (
            write(&format!("{name}.pem"), &certificate.pem()),
            write(&format!("{name}.key"), &key.serialize_pem()),
        )
    };
    let (certificate, key) = issue("server");
    TlsFiles {
        authority: write("authority.pem", &authority.pem()),
        certificate,
        key,
        client: issue("client"),
    }
}

#[test]
fn tls_needs_the_authority_and_the_certificate_that_etcd_asks_for() {
    if !is_installed() {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let (files, others) = (
        certificates(dir.path()),
        tempfile::tempdir().expect("a directory"),
    );
    let server = Server::start_in(dir, Some(files));
    let store = server.store("/t/");
    let revision = store
        .commit(Revision::EMPTY, &[host("a")])
        .expect("both are right");
    assert_eq!(store.load(revision).expect("reads"), None);
    let refused = |change: &dyn Fn(&mut EtcdTls)| {
        let mut options = server.options("/t/");
        change(options.tls.as_mut().expect("https"));
        let store = EtcdStore::new(&options).expect("valid");
        let error = load(&store).expect_err("refused");
        assert!(matches!(error, StoreError::Unavailable { .. }), "{error}");
        error.to_string()
    };
    refused(&|tls| tls.identity = None);
    let other = certificates(others.path());
    let authority = fs::read(&other.authority).expect("written");
    let message = refused(&|tls| tls.authority.clone_from(&authority));
    assert!(message.contains("certificate"), "{message}");
    let identity = [&other.client.0, &other.client.1].map(|path| fs::read(path).expect("written"));
    refused(&|tls| tls.identity = Some((identity[0].clone(), identity[1].clone())));
    // In the clear there is no answer.
    let plain = EtcdOptions {
        endpoints: vec![server.url().replace("https", "http")],
        tls: None,
        ..server.options("/t/")
    };
    let error = load(&EtcdStore::new(&plain).expect("valid")).expect_err("refused");
    assert!(matches!(error, StoreError::Unavailable { .. }), "{error}");
}
