//! Checks of a placement by the daemon that is to start it, without the calls of etcd.
//!
//! The first check comes before the transfer begins. The second one, after that, confirms the
//! start: one transaction deletes its record only as long as registration, placement and record are
//! those that were read. A placer whose start was refused removes the placement only as long as the
//! record is there, so of the two one alone succeeds.
//!
//! ```text
//!   read --> has ended, or stands without a record: done
//!     |
//!     +----> stands, with its record --> transaction --holds--> done
//!                      ^                      |
//!                      +---- keys as they are now
//! ```

use super::keyed::Compared;
use super::keys::MEMBERS;
use super::records::{HOSTS, KeyValue, PLACEMENTS};
use super::starts::{StartValue, start_key};
use super::value::{HostValue, PlacementValue, read};
use crate::store::StoreError;

/// Result of the check of a placement.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Checked {
    /// The placement stands. Before the transfer begins also: the host takes transfers.
    Stands,
    /// The placement has ended; the reason.
    Ended(String),
    /// The host takes no transfers; the reason.
    Refused(String),
    /// Registration that is another daemon's, or gone.
    NotOurs,
}

/// Next step of the confirmation.
pub(super) enum Confirmation {
    /// Nothing is to be deleted.
    Done(Checked),
    /// The placement stands if this transaction succeeds.
    Delete(DeleteStart),
}

/// Transaction that deletes the record of a start.
#[derive(Clone, Debug)]
pub(super) struct DeleteStart {
    /// Registration, placement and record as they were read.
    pub(super) compares: [Compared; 3],
    /// Key of the record.
    pub(super) key: String,
}

/// Placement that a daemon is to start, or has started.
pub(super) struct StartedPlacement<'a> {
    /// Beginning of all keys.
    pub(super) prefix: &'a str,
    /// Host of the daemon.
    pub(super) host: &'a str,
    /// Name of the VM, and of the transfer.
    pub(super) vm: &'a str,
    /// Time of the placement in nanoseconds since 1970.
    pub(super) begun_ns: u64,
    /// Revision of etcd at which the daemon has registered.
    pub(super) registered_at: i64,
}

impl StartedPlacement<'_> {
    fn key(&self, folder: &str, name: &str) -> String {
        format!("{}{folder}{name}", self.prefix)
    }

    fn start_key(&self) -> String {
        self.key(&start_key(self.host, self.vm), "")
    }

    /// Returns the keys that a check reads, at one revision.
    pub(super) fn keys(&self) -> [String; 4] {
        [
            self.key(MEMBERS, self.host),
            self.key(PLACEMENTS, self.vm),
            self.key(HOSTS, self.host),
            self.start_key(),
        ]
    }

    /// Checks, before the transfer begins, that the placement stands and that the host takes
    /// transfers.
    ///
    /// # Errors
    /// A record is damaged or of another schema.
    pub(super) fn check(&self, pairs: &[KeyValue]) -> Result<Checked, StoreError> {
        if let Err(checked) = self.find_placement(pairs)? {
            return Ok(checked);
        }
        let key = self.key(HOSTS, self.host);
        let Some((_, host)) = find(pairs, &key) else {
            let why = format!("host {:?} was removed from the cluster", self.host);
            return Ok(Checked::Refused(why));
        };
        if read::<HostValue>(&key, host)?
            .into_record(self.host)
            .drained
        {
            return Ok(Checked::Refused(format!(
                "host {:?} is drained; place the transfer again, or end the draining with \
                 `tidegate cluster resume {}`",
                self.host, self.host
            )));
        }
        Ok(Checked::Stands)
    }

    /// Decides, after the transfer has begun, how its placement is confirmed. A host that is
    /// drained, or was removed by hand, ends no transfer that has begun.
    ///
    /// # Errors
    /// The placement is damaged or of another schema.
    pub(super) fn confirm(&self, pairs: &[KeyValue]) -> Result<Confirmation, StoreError> {
        let placement = match self.find_placement(pairs)? {
            Ok(placement) => placement,
            Err(checked) => return Ok(Confirmation::Done(checked)),
        };
        let key = self.start_key();
        let Some((start, value)) = find(pairs, &key) else {
            // None was recorded, or an earlier attempt whose answer was lost has deleted it.
            return Ok(Confirmation::Done(Checked::Stands));
        };
        // One that is not understood, or is left of an earlier placement, would let a placer remove
        // this one.
        let is_of_another = |value: StartValue| value.host != self.host;
        if read(&key, value).is_ok_and(is_of_another) {
            return Ok(Confirmation::Done(Checked::Stands));
        }
        let compares = [
            Compared::Created(self.key(MEMBERS, self.host), self.registered_at),
            Compared::Put(placement.key.clone(), placement.version),
            Compared::Put(key.clone(), start.version),
        ];
        Ok(Confirmation::Delete(DeleteStart { compares, key }))
    }

    /// Returns the key of the placement if it stands and the daemon is registered; otherwise the
    /// result of the check.
    fn find_placement<'p>(
        &self,
        pairs: &'p [KeyValue],
    ) -> Result<Result<&'p KeyValue, Checked>, StoreError> {
        let member = find(pairs, &self.key(MEMBERS, self.host));
        if member.is_none_or(|(member, _)| member.created != self.registered_at) {
            return Ok(Err(Checked::NotOurs));
        }
        let key = self.key(PLACEMENTS, self.vm);
        let Some((pair, value)) = find(pairs, &key) else {
            return Ok(Err(Checked::Ended(format!(
                "the placement of {:?} on host {:?} has ended; place the transfer again",
                self.vm, self.host
            ))));
        };
        let placement = read::<PlacementValue>(&key, value)?.into_record();
        if placement.host != self.host || placement.begun.0 != self.begun_ns {
            return Ok(Err(Checked::Ended(format!(
                "the placement of {:?} on host {:?} has ended, and another one has followed on \
                 host {:?}",
                self.vm, self.host, placement.host
            ))));
        }
        Ok(Ok(pair))
    }
}

/// Returns a key that is there, with its value.
fn find<'p>(pairs: &'p [KeyValue], key: &str) -> Option<(&'p KeyValue, &'p [u8])> {
    let pair = pairs.iter().find(|pair| pair.key == key)?;
    Some((pair, pair.value.as_deref()?))
}

#[cfg(test)]
mod tests {
    use tidegate_core::time::Nanos;

    use super::*;
    use crate::record::{HostRecord, Placement};
    use crate::store::etcd::value::write;

    const PLACED: StartedPlacement<'static> = StartedPlacement {
        prefix: "/t/",
        host: "a",
        vm: "x",
        begun_ns: 5,
        registered_at: 3,
    };

    fn pair(key: &str, value: Vec<u8>, version: i64) -> KeyValue {
        KeyValue {
            key: format!("/t/{key}"),
            value: Some(value),
            version,
            created: 3,
        }
    }

    /// Returns the keys of the placement `x` on host `a` with its recorded start.
    fn keys() -> Vec<KeyValue> {
        let placement = Placement::new("a", Nanos(5));
        let placement = write(&PlacementValue::new(&placement, 1)).expect("JSON");
        let host = HostRecord::new("a".to_owned(), 7, vec![], 4);
        let host = write(&HostValue::new(&host, 1)).expect("JSON");
        let start = write(&StartValue::for_test(5)).expect("JSON");
        vec![
            pair("members/a", b"{}".to_vec(), 4),
            pair("placements/x", placement, 8),
            pair("hosts/a", host, 6),
            pair("starts/a/x", start, 7),
        ]
    }

    fn without(key: &str) -> Vec<KeyValue> {
        let others = keys().into_iter();
        others.filter(|pair| !pair.key.ends_with(key)).collect()
    }

    #[test]
    fn a_start_is_deleted_only_beside_the_placement_and_the_record_that_were_read() {
        let Confirmation::Delete(delete) = PLACED.confirm(&keys()).expect("understood") else {
            panic!("there is a record");
        };
        assert_eq!(delete.key, "/t/starts/a/x");
        let compares = [
            Compared::Created("/t/members/a".to_owned(), 3),
            Compared::Put("/t/placements/x".to_owned(), 8),
            Compared::Put("/t/starts/a/x".to_owned(), 7),
        ];
        assert_eq!(delete.compares, compares);
        // A record that cannot be read would let a placer remove the placement.
        let mut damaged = keys();
        damaged[3].value = Some(b"[".to_vec());
        let damaged = PLACED
            .confirm(&damaged)
            .expect("the placement is understood");
        assert!(matches!(damaged, Confirmation::Delete(_)));
    }

    #[test]
    fn a_placement_without_a_record_is_confirmed_and_one_that_has_ended_is_not() {
        let done = |pairs: &[KeyValue]| match PLACED.confirm(pairs).expect("understood") {
            Confirmation::Done(checked) => checked,
            Confirmation::Delete(delete) => panic!("{delete:?}"),
        };
        assert_eq!(done(&without("starts/a/x")), Checked::Stands);
        let ended = done(&without("placements/x"));
        assert!(matches!(ended, Checked::Ended(_)), "{ended:?}");
        assert_eq!(done(&without("members/a")), Checked::NotOurs);
        let mut registered_again = keys();
        registered_again[0].created = 9;
        assert_eq!(done(&registered_again), Checked::NotOurs);
    }

    #[test]
    fn a_host_that_is_drained_or_gone_refuses_a_start_and_ends_none_that_has_begun() {
        assert_eq!(PLACED.check(&keys()).expect("understood"), Checked::Stands);
        let mut drained = keys();
        let value = String::from_utf8(drained[2].value.take().expect("put")).expect("JSON");
        drained[2].value = Some(value.replace("false", "true").into());
        for pairs in [drained, without("hosts/a")] {
            let refused = PLACED.check(&pairs).expect("understood");
            assert!(matches!(refused, Checked::Refused(_)), "{refused:?}");
            let confirmed = PLACED.confirm(&pairs).expect("understood");
            assert!(matches!(confirmed, Confirmation::Delete(_)));
        }
    }
}
