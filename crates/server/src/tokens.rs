//! Tokens of the control API: those that are valid, in memory, and their records in the store.
//!
//! Requests are checked against the tokens in memory, because a read of the store may block.

use std::hint::black_box;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::{SignedDuration, Timestamp};
use ring::digest::{SHA256, digest};
use tidegate_api::access::Role;
use tokio::task::spawn_blocking;

use crate::command::ControlError;
use crate::ring::sys;
use crate::store::{Change, Store, StoreError, TokenRecord};

/// Beginning of every secret, by which people and scanners recognise one.
const PREFIX: &str = "tidegate_";
/// Random bytes of a secret.
const RANDOM_BYTES: usize = 32;
/// Interval at which the last use of a token is recorded: a write for each request would let
/// clients occupy the store.
const USE_INTERVAL: SignedDuration = SignedDuration::from_hours(1);

/// Tokens of a daemon.
#[derive(Debug)]
pub(crate) struct Tokens {
    store: Option<Arc<Store>>,
    valid: Mutex<Vec<TokenRecord>>,
}

/// Makes the secret of a new token: 256 random bits in hexadecimal digits, with its hash.
///
/// # Errors
/// If the kernel has no random numbers.
pub(crate) fn new_secret() -> io::Result<(String, [u8; 32])> {
    let mut bytes = [0; RANDOM_BYTES];
    sys::fill_random(&mut bytes)?;
    let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let secret = format!("{PREFIX}{digits}");
    let hash = hash(&secret);
    Ok((secret, hash))
}

fn hash(secret: &str) -> [u8; 32] {
    let digest = digest(&SHA256, secret.as_bytes());
    (digest.as_ref().try_into()).expect("SHA-256 has 32 bytes")
}

/// Compares two hashes in a time that does not depend on the number of bytes that are equal.
fn is_same(a: &[u8; 32], b: &[u8; 32]) -> bool {
    let different = a.iter().zip(b).fold(0, |sum, (a, b)| sum | (a ^ b));
    black_box(different) == 0
}

impl Tokens {
    /// Loads the tokens of the store. One that cannot be read is not valid, which is logged.
    pub(crate) fn load(store: Option<Arc<Store>>) -> Tokens {
        let mut valid = Vec::new();
        match store.as_ref().map(|store| store.tokens()) {
            None => {}
            Some(Ok(records)) => {
                for record in records {
                    match record {
                        Ok(record) => valid.push(record),
                        Err(error) => tracing::error!("{error}"),
                    }
                }
            }
            Some(Err(error)) => {
                tracing::error!(
                    "the tokens in the store cannot be read, so none is valid: {error}"
                );
            }
        }
        let valid = Mutex::new(valid);
        Tokens { store, valid }
    }

    fn valid(&self) -> MutexGuard<'_, Vec<TokenRecord>> {
        // Each change leaves the list valid, even if a later one panicked.
        self.valid.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns all tokens, also those that have expired, ordered by name.
    pub(crate) fn list(&self) -> Vec<TokenRecord> {
        let mut all = self.valid().clone();
        all.sort_by(|a, b| a.name.cmp(&b.name));
        all
    }

    /// Returns name and role of the token with this secret; `None` if there is none, or it has
    /// expired. Begins to record the use from time to time.
    pub(crate) fn authenticate(&self, secret: &str, now: Timestamp) -> Option<(String, Role)> {
        let presented = hash(secret);
        let mut valid = self.valid();
        let mut found = None;
        // All are compared, so that the time says nothing about the place of one in the list.
        for token in valid.iter_mut() {
            if is_same(&token.hash, &presented) {
                found = Some(token);
            }
        }
        let token = found?;
        if token.expires.is_some_and(|expires| expires <= now) {
            return None;
        }
        let is_due = token
            .last_used
            .is_none_or(|last| now.duration_since(last) >= USE_INTERVAL);
        if is_due {
            token.last_used = Some(now);
            self.record_use(token.clone());
        }
        Some((token.name.clone(), token.role))
    }

    /// Writes the last use of a token to the store, on a thread that may block.
    fn record_use(&self, token: TokenRecord) {
        let Some(store) = self.store.clone() else {
            return;
        };
        spawn_blocking(move || {
            if let Err(error) = store.apply(&[Change::UseToken(&token)]) {
                tracing::warn!(
                    "the use of token {:?} cannot be recorded: {error}",
                    token.name
                );
            }
        });
    }

    /// Adds a token, durably. Only one change may be in progress at a time.
    ///
    /// # Errors
    /// If there is a token of this name, there is no store, or it cannot be written.
    pub(crate) async fn add(&self, token: TokenRecord) -> Result<(), ControlError> {
        let store = self.store.clone().ok_or(ControlError::NoStore)?;
        let name = token.name.clone();
        if self.valid().iter().any(|other| other.name == name) {
            return Err(ControlError::Taken {
                what: "token",
                name,
                by: "a valid or expired token: revoke it first".to_owned(),
            });
        }
        let record = token.clone();
        let put = move |store: &Store| store.apply(&[Change::PutToken(&record)]).map(drop);
        in_store(store, &name, put).await?;
        self.valid().push(token);
        Ok(())
    }

    /// Revokes a token at once, and deletes its record durably. Returns false if there is none.
    ///
    /// # Errors
    /// If there is no store, or it cannot be written: the token is refused until the daemon
    /// restarts, and has to be revoked again.
    pub(crate) async fn revoke(&self, name: &str) -> Result<bool, ControlError> {
        let store = self.store.clone().ok_or(ControlError::NoStore)?;
        let was_valid = {
            let mut valid = self.valid();
            let before = valid.len();
            valid.retain(|token| token.name != name);
            valid.len() < before
        };
        let own = name.to_owned();
        // Also one that an earlier attempt has left there, or that this build does not understand.
        let remove = move |store: &Store| store.apply(&[Change::RemoveToken(&own)]);
        let removed = in_store(store, name, remove).await?;
        Ok(was_valid || removed > 0)
    }
}

async fn in_store<T: Send + 'static>(
    store: Arc<Store>,
    name: &str,
    act: impl FnOnce(&Store) -> Result<T, StoreError> + Send + 'static,
) -> Result<T, ControlError> {
    let done = spawn_blocking(move || act(&store)).await;
    let failed = |why: &str, help| ControlError::Store {
        what: format!("the record of token {name:?} cannot be changed: {why}"),
        help,
    };
    match done {
        Ok(done) => done.map_err(|error| failed(&error.to_string(), error.help())),
        Err(_) => Err(failed("the call panicked", None)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("a time")
    }

    fn token(name: &str, expires: Option<Timestamp>) -> (String, TokenRecord) {
        let (secret, hash) = new_secret().expect("random numbers");
        let record = TokenRecord {
            name: name.to_owned(),
            hash,
            role: Role::Operate,
            created: at(1000),
            expires,
            last_used: None,
        };
        (secret, record)
    }

    fn store() -> (tempfile::TempDir, Arc<Store>) {
        let dir = tempfile::tempdir().expect("a directory");
        let store = Store::open(dir.path().join("s.redb")).expect("a store");
        (dir, Arc::new(store))
    }

    #[test]
    fn secrets_are_long_and_different_and_their_hash_is_sha_256() {
        let (one, _) = new_secret().expect("random numbers");
        let (other, _) = new_secret().expect("random numbers");
        assert_ne!(one, other);
        assert_eq!(one.len(), PREFIX.len() + 64);
        assert!(one.starts_with(PREFIX));
        // From FIPS 180-4's example of one block.
        let hex: String = hash("abc")
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        assert_eq!(
            hex,
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
        for byte in 0..32 {
            let mut b = [5; 32];
            assert!(is_same(&[5; 32], &b));
            b[byte] ^= 1;
            assert!(!is_same(&[5; 32], &b));
        }
    }

    #[tokio::test]
    async fn a_token_is_valid_until_it_expires_or_is_revoked_also_after_a_restart() {
        let (_dir, store) = store();
        let tokens = Tokens::load(Some(store.clone()));
        let (secret, record) = token("ci", Some(at(5000)));
        tokens.add(record).await.expect("added");
        let (other_secret, other) = token("other", None);
        tokens.add(other).await.expect("added");
        let taken = tokens.add(token("ci", None).1).await.expect_err("taken");
        assert!(matches!(taken, ControlError::Taken { .. }), "{taken}");
        let check = |tokens: &Tokens, second| tokens.authenticate(&secret, at(second));
        for tokens in [&tokens, &Tokens::load(Some(store.clone()))] {
            let expected = Some(("ci".to_owned(), Role::Operate));
            assert_eq!(check(tokens, 4999), expected);
            assert_eq!(check(tokens, 5000), None, "expired");
            for wrong in ["", PREFIX, &secret[1..], &format!("{secret}0"), "ci"] {
                assert_eq!(tokens.authenticate(wrong, at(2000)), None, "{wrong:?}");
            }
        }
        assert!(tokens.revoke("ci").await.expect("revoked"));
        assert!(!tokens.revoke("ci").await.expect("it is gone"));
        for tokens in [tokens, Tokens::load(Some(store))] {
            assert_eq!(check(&tokens, 4999), None, "revoked");
            assert!(tokens.authenticate(&other_secret, at(4999)).is_some());
        }
    }

    #[tokio::test]
    async fn the_secret_is_nowhere_in_the_store() {
        let (dir, store) = store();
        let tokens = Tokens::load(Some(store.clone()));
        let (secret, record) = token("ci", None);
        tokens.add(record).await.expect("added");
        tokens.authenticate(&secret, at(2000)).expect("valid");
        let bytes = std::fs::read(dir.path().join("s.redb")).expect("readable");
        let digits = &secret.as_bytes()[PREFIX.len()..];
        assert!(!bytes.windows(16).any(|window| window == &digits[..16]));
        assert!(
            bytes.windows(2).any(|window| window == b"ci"),
            "the name is"
        );
    }

    #[tokio::test]
    async fn the_last_use_is_recorded_once_an_hour_and_brings_no_revoked_token_back() {
        let (_dir, store) = store();
        let tokens = Tokens::load(Some(store.clone()));
        let (secret, record) = token("ci", None);
        tokens.add(record.clone()).await.expect("added");
        for (second, expected) in [(2000, 2000), (5599, 2000), (5600, 5600), (100, 5600)] {
            tokens.authenticate(&secret, at(second)).expect("valid");
            assert_eq!(tokens.list()[0].last_used, Some(at(expected)));
        }
        // Revoked before the use is written.
        tokens.revoke("ci").await.expect("revoked");
        let used = TokenRecord {
            last_used: Some(at(9000)),
            ..record
        };
        let changed = store.apply(&[Change::UseToken(&used)]).expect("written");
        assert_eq!(changed, 0);
        assert_eq!(store.tokens().expect("readable"), []);
    }

    #[tokio::test]
    async fn without_a_store_there_are_no_tokens() {
        let tokens = Tokens::load(None);
        let error = tokens.add(token("ci", None).1).await.expect_err("no store");
        assert!(matches!(error, ControlError::NoStore), "{error}");
        assert!(tokens.list().is_empty());
    }
}
