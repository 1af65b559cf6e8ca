//! Clients of a listener whose handshake is done: what they were admitted with, so that SIGHUP ends
//! the connections of those that would not be admitted any more.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustls::crypto::ring;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, TrustAnchor, UnixTime};
use tokio::sync::oneshot;
use webpki::{CertRevocationList, EndEntityCert, KeyUsage, OwnedCertRevocationList};

use super::Access;
use crate::config::TlsConfig;

/// Reason why the connection of a client that was admitted has to end.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub(super) enum Withdrawn {
    #[error("its certificate was revoked")]
    Revoked,
    #[error("its certificate does not come from an authority of client_ca any more")]
    Authority,
    #[error("its certificate does not have this export any more")]
    Export,
}

/// Revocation lists of a listener.
#[derive(Debug, Default)]
pub(super) struct Revocations(Vec<CertRevocationList<'static>>);

/// Error of reading revocation lists.
#[derive(Debug, thiserror::Error)]
pub(super) enum ListError {
    #[error("has a revocation list that cannot be read: {0}")]
    Unreadable(String),
    /// The verifier looks at the first list that covers a certificate, so the other is one that is
    /// out of date, or that nobody would look at.
    #[error(
        "has two revocation lists of one authority for the same certificates: number {0} and \
         number {1}"
    )]
    SameIssuer(usize, usize),
}

impl Revocations {
    /// Reads lists.
    ///
    /// # Errors
    /// If one is no revocation list, or two are of one issuer, unless each is for a part of its
    /// certificates, and not for the same one.
    pub(super) fn new(
        lists: &[CertificateRevocationListDer<'_>],
    ) -> Result<Revocations, ListError> {
        let read = |list: &CertificateRevocationListDer<'_>| {
            OwnedCertRevocationList::from_der(list).map(CertRevocationList::from)
        };
        let lists = lists.iter().map(read).collect::<Result<Vec<_>, _>>();
        let lists = lists.map_err(|error| ListError::Unreadable(error.to_string()))?;
        for (at, list) in lists.iter().enumerate() {
            let part = list.issuing_distribution_point();
            let same = |other: &CertRevocationList<'_>| {
                let part_of_other = other.issuing_distribution_point();
                let are_parts = part.is_some() && part_of_other.is_some();
                other.issuer() == list.issuer() && !(are_parts && part != part_of_other)
            };
            if let Some(other) = lists[at + 1..].iter().position(same) {
                return Err(ListError::SameIssuer(at + 1, at + other + 2));
            }
        }
        Ok(Revocations(lists))
    }

    /// Returns orders of the lists, so that each is the first of its issuer in one of them: of
    /// several that cover a certificate, a verifier looks at the first alone.
    pub(super) fn orders(&self) -> Vec<Vec<usize>> {
        let of_same_issuer = |a: usize, b: usize| self.0[a].issuer() == self.0[b].issuer();
        let place = |list: usize| (0..list).filter(|&it| of_same_issuer(it, list)).count();
        let places: Vec<usize> = (0..self.0.len()).map(place).collect();
        let most = places.iter().max().map_or(1, |place| place + 1);
        let order = |first: usize| {
            let mut order: Vec<usize> = (0..self.0.len()).collect();
            order.sort_by_key(|&list| (places[list] + most - first) % most);
            order
        };
        (0..most).map(order).collect()
    }

    /// Returns true if a certificate of a chain is in a list of its issuer. Its validity, and that
    /// of the list, do not matter: a verifier that finds a certificate expired does not say whether
    /// it was revoked as well.
    fn have(&self, chain: &[CertificateDer<'_>]) -> bool {
        let mut certificates = chain
            .iter()
            .filter_map(|certificate| EndEntityCert::try_from(certificate).ok());
        certificates.any(|certificate| {
            let mut lists = self.0.iter();
            lists.any(|list| {
                let is_listed = list.find_serial(certificate.serial());
                list.issuer() == certificate.issuer() && matches!(is_listed, Ok(Some(_)))
            })
        })
    }
}

/// Rules by which clients are admitted, as they were read last.
#[derive(Debug)]
pub(super) struct Rules {
    /// Number of times that they were read before.
    pub(super) generation: u64,
    pub(super) config: TlsConfig,
    pub(super) revoked: Revocations,
    /// Authorities that clients' certificates come from; none if clients need no certificate.
    pub(super) authorities: Vec<TrustAnchor<'static>>,
    /// Generation since which the authorities are these.
    pub(super) authorities_since: u64,
}

/// Time and rules of a client's handshake.
#[derive(Clone, Copy, Debug)]
pub(super) struct Admission {
    /// Generation of the rules by which the client was admitted.
    pub(super) generation: u64,
    pub(super) at: UnixTime,
}

/// Client that was admitted.
#[derive(Debug)]
pub(super) struct Client {
    /// Certificates that it has presented, its own first; none if it has none.
    pub(super) chain: Vec<CertificateDer<'static>>,
    /// VM and disk that it has opened; `None` for clients of the control API.
    pub(super) export: Option<(String, String)>,
    pub(super) admission: Admission,
}

impl Client {
    /// Returns true if the client's certificate comes from one of the authorities, as of the time
    /// of its handshake: a certificate that has expired since ends no connection.
    fn comes_from(&self, authorities: &[TrustAnchor<'_>]) -> bool {
        let Some((own, intermediate)) = self.chain.split_first() else {
            return false;
        };
        let algorithms = ring::default_provider().signature_verification_algorithms;
        EndEntityCert::try_from(own).is_ok_and(|own| {
            let verified = own.verify_for_usage(
                algorithms.all,
                authorities,
                intermediate,
                self.admission.at,
                KeyUsage::client_auth(),
                None,
                None,
            );
            verified.is_ok()
        })
    }
}

impl Rules {
    /// Returns the reason why a client would not be admitted; `None` if it would.
    fn refusal(&self, client: &Client) -> Option<Withdrawn> {
        if self.revoked.have(&client.chain) {
            return Some(Withdrawn::Revoked);
        }
        // Verifying costs signatures, so a client is looked at only where its handshake was by
        // other authorities.
        if client.admission.generation < self.authorities_since
            && !self.authorities.is_empty()
            && !client.comes_from(&self.authorities)
        {
            return Some(Withdrawn::Authority);
        }
        let (vm, export) = client.export.as_ref()?;
        let access = Access::of_client(&self.config, client.chain.first());
        (!access.allows(vm, export)).then_some(Withdrawn::Export)
    }
}

/// Open connections of a listener.
#[derive(Debug, Default)]
pub(super) struct OpenClients(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    next: u64,
    clients: BTreeMap<u64, (Client, oneshot::Sender<Withdrawn>)>,
}

/// Open connection, which is forgotten when this is dropped.
#[derive(Debug)]
pub(super) struct Registered {
    clients: Arc<OpenClients>,
    id: u64,
}

impl OpenClients {
    fn lock(&self) -> MutexGuard<'_, Table> {
        // Each change leaves the table valid, even if a later one panicked.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers a connection of a client that was admitted. `rules` returns those in force; they
    /// are asked for while the table is locked, so that a client is either looked at here or by
    /// [`OpenClients::end_refused`].
    ///
    /// Returns what tells the connection to end.
    ///
    /// # Errors
    /// If the client would not be admitted by the rules in force.
    pub(super) fn register(
        self: &Arc<Self>,
        client: Client,
        rules: impl FnOnce() -> Arc<Rules>,
    ) -> Result<(Registered, oneshot::Receiver<Withdrawn>), Withdrawn> {
        let mut table = self.lock();
        let rules = rules();
        // Of two lists with parts of an authority's certificates the verifier has looked at one.
        let why = if rules.generation == client.admission.generation {
            (rules.revoked.have(&client.chain)).then_some(Withdrawn::Revoked)
        } else {
            rules.refusal(&client)
        };
        if let Some(why) = why {
            return Err(why);
        }
        let (sender, withdrawn) = oneshot::channel();
        let id = table.next;
        table.next += 1;
        table.clients.insert(id, (client, sender));
        let clients = self.clone();
        Ok((Registered { clients, id }, withdrawn))
    }

    /// Ends the connections of clients that `rules`, which are in force already, do not admit.
    /// Returns their number.
    pub(super) fn end_refused(&self, rules: &Rules) -> usize {
        let mut table = self.lock();
        let refused: Vec<_> = (table.clients.iter())
            .filter_map(|(id, (client, _))| Some((*id, rules.refusal(client)?)))
            .collect();
        for (id, why) in &refused {
            if let Some((_, sender)) = table.clients.remove(id) {
                // It may have ended by itself.
                let _ = sender.send(*why);
            }
        }
        refused.len()
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.clients.lock().clients.remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{ClientName, TlsClientConfig};

    /// Returns rules by which a client without a certificate has every export, or none.
    fn rules(generation: u64, admits_all: bool) -> Rules {
        let named = TlsClientConfig {
            names: vec![ClientName::Dns("host.example".to_owned())],
            vms: vec!["vm".to_owned()],
            exports: Vec::new(),
        };
        let config = TlsConfig {
            certificate: "server.pem".into(),
            private_key: "server.key".into(),
            client_ca: None,
            client_crl: None,
            plain_exports: Vec::new(),
            clients: if admits_all { Vec::new() } else { vec![named] },
            place: None,
        };
        Rules {
            generation,
            config,
            revoked: Revocations::default(),
            authorities: Vec::new(),
            authorities_since: 0,
        }
    }

    fn client() -> Client {
        Client {
            chain: Vec::new(),
            export: Some(("vm".to_owned(), "disk".to_owned())),
            admission: Admission {
                generation: 0,
                at: UnixTime::now(),
            },
        }
    }

    #[test]
    fn a_client_that_earlier_rules_admitted_is_looked_at_again_once_it_has_an_export() {
        let open = Arc::new(OpenClients::default());
        let register = |generation, admits_all| {
            let in_force = Arc::new(rules(generation, admits_all));
            open.register(client(), move || in_force)
        };
        // Those by which it was admitted are not asked again.
        register(0, false).expect("admitted");
        register(1, true).expect("admitted");
        let refused = register(1, false).expect_err("read again meanwhile");
        assert_eq!(refused, Withdrawn::Export);
        // No connection is registered any more: all were dropped.
        assert_eq!(open.end_refused(&rules(2, false)), 0);
    }

    #[test]
    fn connections_that_new_rules_refuse_are_told_so_once() {
        let open = Arc::new(OpenClients::default());
        let in_force = Arc::new(rules(0, true));
        let register = || open.register(client(), || in_force.clone());
        let (_first, mut withdrawn) = register().expect("admitted");
        let (second, _) = register().expect("admitted");
        assert_eq!(open.end_refused(&rules(1, true)), 0);
        assert!(withdrawn.try_recv().is_err());
        // One that has ended by itself is forgotten.
        drop(second);
        assert_eq!(open.end_refused(&rules(2, false)), 1);
        assert_eq!(withdrawn.try_recv(), Ok(Withdrawn::Export));
        assert_eq!(open.end_refused(&rules(3, false)), 0);
    }
}
