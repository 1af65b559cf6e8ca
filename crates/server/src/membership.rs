//! Membership of the daemon in a cluster, as the control API, health and metrics see it.
//!
//! A thread of the crate `cluster` holds the lease in etcd. It records here how that goes, answers
//! the [`StartCheck`]s of transfers that placers ask the daemon to start, and has those started
//! that placers have recorded without being able to ask ([`RecordedStart`]).
//!
//! ```text
//!   Waiting --registered--> Joined --not confirmed in time--> Lost
//!                             ^                                 |
//!                             +---- registered, placements read +
//! ```

use std::collections::HashSet;
use std::fmt;
use std::mem::Discriminant;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tidegate_api::cluster::{MembershipState, MembershipView, PlacementClaim};
use tidegate_core::time::Nanos;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

/// Starts of transfers that wait for etcd at a time; more are refused.
const CHECKS_MAX: usize = 64;
/// Time for etcd to confirm a placement, below that in which the API answers.
const CHECK_TIMEOUT: Duration = Duration::from_secs(4);
/// Time for the control API to carry out a recorded start: that for changes, and for two checks.
const START_TIMEOUT: Duration = Duration::from_secs(75);

/// Reason why a daemon is not registered in its cluster.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Obstacle {
    /// The daemon has just started.
    Starting,
    /// etcd does not answer; its error.
    EtcdAway(String),
    /// Another daemon is registered under the name of the host; what is known of it.
    NameTaken(String),
    /// etcd or a stored value keeps the daemon out; the error.
    Refused(String),
}

impl Obstacle {
    /// Returns the reason without names and addresses of other machines, for clients that are not
    /// to know them.
    pub fn summary(&self) -> &'static str {
        match self {
            Obstacle::Starting => "not registered yet",
            Obstacle::EtcdAway(_) => "etcd does not answer",
            Obstacle::NameTaken(_) => "another daemon is registered as this host",
            Obstacle::Refused(_) => "etcd refuses the registration; the log has the error",
        }
    }
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Obstacle::Starting => f.write_str(self.summary()),
            Obstacle::EtcdAway(why) | Obstacle::Refused(why) | Obstacle::NameTaken(why) => {
                f.write_str(why)
            }
        }
    }
}

/// Placement that a placer asks the daemon to start, for etcd to confirm.
#[derive(Debug)]
pub struct StartCheck {
    /// Name of the VM, and of the transfer in the cluster.
    pub vm: String,
    /// Placement as the placer knows it.
    pub claim: PlacementClaim,
    /// True if the transfer has begun: the record of its start is to be removed in the transaction
    /// that confirms the placement.
    pub has_begun: bool,
    /// Channel for the result.
    pub reply: oneshot::Sender<Result<(), StartRefusal>>,
}

/// Start that a placer has recorded in etcd together with the placement, and that no daemon has
/// confirmed: the placer, the daemon or the connection has ended in between.
#[derive(Debug)]
pub struct RecordedStart {
    /// Name of the VM, and of the transfer in the cluster.
    pub vm: String,
    /// Size of the transfer in bytes.
    pub bytes: u64,
    /// Deadline, from the time of the placement on.
    pub deadline: Nanos,
    /// Placement.
    pub claim: PlacementClaim,
    /// Channel for the result.
    pub reply: oneshot::Sender<Result<(), StartRefusal>>,
}

/// Reason why a transfer is not started for a placer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StartRefusal {
    /// Explanation with the way out, for the placer's operator.
    pub why: String,
    /// True if the placement cannot be started later, either, or not as things are: it is not one
    /// of this host's, or the host is drained.
    pub is_final: bool,
    /// True if the placement has ended: a transfer that has begun for it must not go on.
    pub has_ended: bool,
}

impl StartRefusal {
    /// Creates the refusal of a placement that is not valid.
    pub fn invalid(why: impl Into<String>) -> StartRefusal {
        StartRefusal {
            why: why.into(),
            is_final: true,
            has_ended: false,
        }
    }

    /// Creates the refusal of a placement that has ended.
    pub fn ended(why: impl Into<String>) -> StartRefusal {
        StartRefusal {
            has_ended: true,
            ..StartRefusal::invalid(why)
        }
    }

    /// Creates the refusal of a start that may succeed later.
    pub fn at_present(why: impl Into<String>) -> StartRefusal {
        StartRefusal {
            why: why.into(),
            is_final: false,
            has_ended: false,
        }
    }
}

/// Running transfer that was started for a placer.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct PlacedTransfer {
    /// Name of the VM, and of the transfer in the cluster.
    pub vm: String,
    /// Time of its placement in nanoseconds since 1970.
    pub placed_ns: u64,
}

/// Registration that a new daemon takes over.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct HandedMembership {
    /// Key of the registration in etcd.
    pub key: String,
    /// Identifier of the registered daemon.
    pub instance: String,
    /// Identifier of the lease.
    pub lease: i64,
}

/// Figures of a membership.
#[derive(Clone, Debug)]
pub struct MembershipStatus {
    /// State, time of its last change, and reason.
    pub view: MembershipView,
    /// Number of times that the membership was lost.
    pub losses: u64,
    /// Number of starts by placers that were refused.
    pub refused_starts: u64,
    /// Standing reservation as last published, in bytes per second.
    pub reserved_bytes_per_s: u64,
}

/// Membership of a daemon in the cluster of its section `[cluster]`.
#[derive(Debug)]
pub struct Membership {
    host: String,
    record: Mutex<Record>,
    checks: mpsc::Sender<StartCheck>,
    /// Receiver of `checks` until a thread has taken it.
    receiver: Mutex<Option<mpsc::Receiver<StartCheck>>>,
    starts: mpsc::Sender<RecordedStart>,
    /// Receiver of `starts` until the control API has taken it.
    starts_receiver: Mutex<Option<mpsc::Receiver<RecordedStart>>>,
    /// Running transfers whose placements tasks have etcd confirm.
    confirming: Mutex<HashSet<PlacedTransfer>>,
}

/// Right to have etcd confirm the placement of a running transfer, one at a time for each.
#[derive(Debug)]
pub(crate) struct Confirmation {
    membership: Arc<Membership>,
    transfer: PlacedTransfer,
}

impl Drop for Confirmation {
    fn drop(&mut self) {
        self.membership.confirming().remove(&self.transfer);
    }
}

#[derive(Debug)]
struct Record {
    state: MembershipState,
    since: Timestamp,
    /// Reason for a state other than joined.
    obstacle: Obstacle,
    /// State that was logged last, and the kind of its reason: other threads may see first that a
    /// lease is over.
    announced: MembershipState,
    announced_kind: Discriminant<Obstacle>,
    /// Time up to which etcd keeps the lease, by this host's monotonic clock.
    valid_until: Option<Instant>,
    losses: u64,
    refused_starts: u64,
    reserved_bytes_per_s: u64,
    handed: Option<HandedMembership>,
}

impl Membership {
    /// Creates the membership of a host that is not registered yet.
    pub fn new(host: &str) -> Membership {
        let (checks, receiver) = mpsc::channel(CHECKS_MAX);
        let (starts, starts_receiver) = mpsc::channel(CHECKS_MAX);
        Membership {
            host: host.to_owned(),
            record: Mutex::new(Record {
                state: MembershipState::Waiting,
                since: Timestamp::now(),
                obstacle: Obstacle::Starting,
                announced: MembershipState::Waiting,
                announced_kind: std::mem::discriminant(&Obstacle::Starting),
                valid_until: None,
                losses: 0,
                refused_starts: 0,
                reserved_bytes_per_s: 0,
                handed: None,
            }),
            checks,
            receiver: Mutex::new(Some(receiver)),
            starts,
            starts_receiver: Mutex::new(Some(starts_receiver)),
            confirming: Mutex::default(),
        }
    }

    fn confirming(&self) -> MutexGuard<'_, HashSet<PlacedTransfer>> {
        self.confirming
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the right to have the placement of a running transfer confirmed, until it is
    /// dropped; `None` if another task has it.
    pub(crate) fn begin_confirmation(
        self: &Arc<Membership>,
        transfer: &PlacedTransfer,
    ) -> Option<Confirmation> {
        let is_first = self.confirming().insert(transfer.clone());
        is_first.then(|| Confirmation {
            membership: self.clone(),
            transfer: transfer.clone(),
        })
    }

    /// Returns true if the placement of a running transfer is to be confirmed yet: the transfer is
    /// cancelled if the placement has ended.
    pub fn is_confirming(&self, transfer: &PlacedTransfer) -> bool {
        self.confirming().contains(transfer)
    }

    fn record(&self) -> MutexGuard<'_, Record> {
        // No change of several fields can panic between them.
        self.record.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Name of the host in the cluster.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Returns the placements to be confirmed, once: for the thread that holds the lease.
    pub fn take_checks(&self) -> Option<mpsc::Receiver<StartCheck>> {
        let mut receiver = self.receiver.lock().unwrap_or_else(PoisonError::into_inner);
        receiver.take()
    }

    /// Returns the recorded starts to be carried out, once: for the control API.
    pub fn take_starts(&self) -> Option<mpsc::Receiver<RecordedStart>> {
        let receiver = self.starts_receiver.lock();
        receiver.unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Has the control API start a transfer that a placer has recorded, as if the placer had asked
    /// for it. One that has begun already is left as it is. Waits up to 75 s.
    ///
    /// # Errors
    /// The control API refuses, or does not answer.
    pub async fn start_recorded(
        &self,
        vm: &str,
        bytes: u64,
        deadline: Nanos,
        claim: PlacementClaim,
    ) -> Result<(), StartRefusal> {
        let (reply, answer) = oneshot::channel();
        let start = RecordedStart {
            vm: vm.to_owned(),
            bytes,
            deadline,
            claim,
            reply,
        };
        let busy = |_| StartRefusal::at_present("the control API is busy");
        self.starts.try_send(start).map_err(busy)?;
        match timeout(START_TIMEOUT, answer).await {
            Ok(Ok(started)) => started,
            _ => Err(StartRefusal::at_present("the control API does not answer")),
        }
    }

    /// Records that the daemon is registered, under a lease that etcd keeps until `valid_until`. An
    /// answer that comes when this has passed makes it lost, or leaves it as it is.
    pub fn joined(&self, valid_until: Instant, handed: HandedMembership) {
        let mut record = self.record();
        let now = Instant::now();
        record.expire(now);
        if valid_until <= now {
            if record.state == MembershipState::Joined {
                record.valid_until = Some(valid_until);
                record.expire(now);
            }
            return;
        }
        record.valid_until = Some(valid_until);
        record.handed = Some(handed);
        if record.state != MembershipState::Joined {
            (record.state, record.since) = (MembershipState::Joined, Timestamp::now());
        }
        let before = std::mem::replace(&mut record.announced, MembershipState::Joined);
        drop(record);
        let host = &self.host;
        match before {
            MembershipState::Joined => {}
            MembershipState::Waiting => tracing::info!(%host, "joined the cluster"),
            MembershipState::Lost => tracing::info!(%host, "in the cluster again"),
        }
    }

    /// Records why the daemon is not registered, or that a renewal of its lease has failed. In the
    /// latter case it stays joined until the lease is over.
    pub fn obstructed(&self, obstacle: Obstacle) {
        let mut record = self.record();
        record.expire(Instant::now());
        self.announce(record, obstacle);
    }

    /// Records that the registration is gone: etcd has ended the lease, or a time without an
    /// answer has.
    pub fn lost(&self, obstacle: Obstacle) {
        let mut record = self.record();
        record.expire(Instant::now());
        record.valid_until = None;
        record.handed = None;
        record.lose(Timestamp::now());
        self.announce(record, obstacle);
    }

    /// Sets the reason, and logs it if the daemon is not joined and neither state nor kind of
    /// reason were logged last.
    fn announce(&self, mut record: MutexGuard<'_, Record>, obstacle: Obstacle) {
        record.obstacle = obstacle.clone();
        let kind = std::mem::discriminant(&obstacle);
        let is_news = record.announced != record.state || record.announced_kind != kind;
        if record.state == MembershipState::Joined || !is_news {
            return;
        }
        (record.announced, record.announced_kind) = (record.state, kind);
        drop(record);
        tracing::warn!(
            host = self.host,
            "not in the cluster: {obstacle}; running VMs and transfers keep their objectives, \
             placers start nothing here until the daemon is registered again"
        );
    }

    /// Records the standing reservation that was published, in bytes per second.
    pub fn reserved(&self, bytes_per_s: u64) {
        self.record().reserved_bytes_per_s = bytes_per_s;
    }

    /// Returns the registration for a new daemon that takes over; `None` while there is none.
    pub fn handed(&self) -> Option<HandedMembership> {
        self.record().handed.clone()
    }

    /// Returns the state and figures. The state is lost from the end of the lease on, also if the
    /// thread that renews it hangs.
    pub fn status(&self) -> MembershipStatus {
        let mut record = self.record();
        record.expire(Instant::now());
        let reason =
            (record.state != MembershipState::Joined).then(|| record.obstacle.summary().to_owned());
        MembershipStatus {
            view: MembershipView {
                host: self.host.clone(),
                state: record.state,
                since: record.since.to_string(),
                reason,
            },
            losses: record.losses,
            refused_starts: record.refused_starts,
            reserved_bytes_per_s: record.reserved_bytes_per_s,
        }
    }

    /// Has etcd confirm that a placement stands and that this daemon is the one registered for its
    /// host. Waits up to 4 s.
    ///
    /// # Errors
    /// The placement is of another host or has ended, the host is drained, or the daemon is not
    /// registered at present.
    pub async fn check_start(&self, vm: &str, claim: &PlacementClaim) -> Result<(), StartRefusal> {
        self.count(self.try_check(vm, claim, false).await)
    }

    /// Has etcd confirm that the placement of a transfer that has begun stands, and remove the
    /// record of its start in the same transaction, after which no placer removes the placement
    /// because its start has failed. Waits up to 4 s.
    ///
    /// # Errors
    /// As for [`check_start`](Membership::check_start), but a host that is drained is no error.
    /// After an error other than that the placement has ended it may be confirmed nevertheless.
    pub async fn confirm_begun(
        &self,
        vm: &str,
        claim: &PlacementClaim,
    ) -> Result<(), StartRefusal> {
        let checked = self.try_check(vm, claim, true).await;
        // Otherwise it is asked again, which refuses nothing.
        if checked.as_ref().is_err_and(|refusal| refusal.has_ended) {
            self.count_refused();
        }
        checked
    }

    /// Checks by this host's clock alone that the daemon is registered, and counts a refusal.
    ///
    /// # Errors
    /// The daemon is not registered at present.
    pub(crate) fn check_joined(&self) -> Result<(), StartRefusal> {
        self.count(self.joined_now())
    }

    /// Counts a start that was refused.
    fn count(&self, checked: Result<(), StartRefusal>) -> Result<(), StartRefusal> {
        if checked.is_err() {
            self.count_refused();
        }
        checked
    }

    fn joined_now(&self) -> Result<(), StartRefusal> {
        let view = self.status().view;
        if view.state == MembershipState::Joined {
            Ok(())
        } else {
            Err(self.refusal_outside(&view))
        }
    }

    /// Counts a start that was refused by what the daemon itself knows.
    pub(crate) fn count_refused(&self) {
        self.record().refused_starts += 1;
    }

    async fn try_check(
        &self,
        vm: &str,
        claim: &PlacementClaim,
        has_begun: bool,
    ) -> Result<(), StartRefusal> {
        if claim.host != self.host {
            return Err(StartRefusal::invalid(format!(
                "the transfer is placed on host {:?}, and this daemon is host {:?}: the socket of \
                 {:?} in the cluster leads to the wrong daemon on the machine of the placer",
                claim.host, self.host, claim.host
            )));
        }
        self.joined_now()?;
        let (reply, answer) = oneshot::channel();
        let check = StartCheck {
            vm: vm.to_owned(),
            claim: claim.clone(),
            has_begun,
            reply,
        };
        let busy = |_| StartRefusal::at_present("too many starts wait for etcd; try again");
        self.checks.try_send(check).map_err(busy)?;
        match timeout(CHECK_TIMEOUT, answer).await {
            Ok(Ok(checked)) => checked,
            _ => Err(StartRefusal::at_present(format!(
                "etcd has not confirmed the placement within {} s; try again",
                CHECK_TIMEOUT.as_secs()
            ))),
        }
    }

    /// Returns the refusal of a daemon that is not registered.
    fn refusal_outside(&self, view: &MembershipView) -> StartRefusal {
        let reason = view.reason.as_deref().unwrap_or_default();
        StartRefusal::at_present(format!(
            "host {:?} is not in the cluster since {}: {reason}. Running VMs and transfers go on; \
             place again once `tidegate cluster hosts` shows the host as joined",
            self.host, view.since
        ))
    }
}

impl Record {
    /// Loses the membership if the lease is over by the host's own clock.
    fn expire(&mut self, now: Instant) {
        let Some(end) = self.valid_until.filter(|end| *end <= now) else {
            return;
        };
        let ago = now.saturating_duration_since(end);
        let since = Timestamp::now().checked_sub(ago);
        self.valid_until = None;
        self.lose(since.unwrap_or_else(|_| Timestamp::now()));
    }

    fn lose(&mut self, since: Timestamp) {
        if self.state == MembershipState::Joined {
            self.losses += 1;
            (self.state, self.since) = (MembershipState::Lost, since);
        }
    }
}

/// Device as a member of a cluster publishes it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PublishedDevice {
    /// Name.
    pub name: String,
    /// Names of the VMs.
    pub vms: Vec<String>,
    /// Standing reservation in bytes per second.
    pub reserved_bytes_per_s: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn handed() -> HandedMembership {
        HandedMembership {
            key: "/t/members/a".to_owned(),
            instance: "1f".to_owned(),
            lease: 7,
        }
    }

    fn claim(host: &str) -> PlacementClaim {
        PlacementClaim {
            host: host.to_owned(),
            begun_ns: 5,
            reserved_bytes_per_s: 0,
            device: None,
        }
    }

    fn later() -> Instant {
        Instant::now() + Duration::from_secs(3600)
    }

    #[test]
    fn a_late_renewal_does_not_revive_a_lease_that_is_over() {
        let membership = Membership::new("a");
        let state = || membership.status().view.state;
        assert_eq!(state(), MembershipState::Waiting);
        membership.joined(later(), handed());
        assert_eq!(state(), MembershipState::Joined);
        // A renewal that fails loses nothing yet.
        membership.obstructed(Obstacle::EtcdAway("http://b: gone".to_owned()));
        assert_eq!(state(), MembershipState::Joined);
        membership.joined(Instant::now(), handed());
        assert_eq!(state(), MembershipState::Lost);
        // A late answer does not bring the membership back.
        membership.joined(Instant::now(), handed());
        assert_eq!(
            (state(), membership.status().losses),
            (MembershipState::Lost, 1)
        );
        let status = membership.status();
        assert_eq!(status.losses, 1);
        // Addresses stay in the log.
        assert_eq!(status.view.reason.as_deref(), Some("etcd does not answer"));
        membership.joined(later(), handed());
        assert_eq!(
            (state(), membership.status().view.reason),
            (MembershipState::Joined, None)
        );
        membership.lost(Obstacle::Refused("ended".to_owned()));
        membership.lost(Obstacle::Refused("ended".to_owned()));
        assert_eq!(
            (state(), membership.status().losses),
            (MembershipState::Lost, 2)
        );
        assert_eq!(membership.handed(), None);
    }

    #[tokio::test]
    async fn starts_are_refused_unless_the_thread_confirms_them() {
        let membership = Membership::new("a");
        let refused = membership
            .check_start("x", &claim("a"))
            .await
            .expect_err("waits");
        assert!(
            !refused.is_final && refused.why.contains("not registered yet"),
            "{refused:?}"
        );
        membership.joined(later(), handed());
        let wrong = membership
            .check_start("x", &claim("b"))
            .await
            .expect_err("another");
        assert!(
            wrong.is_final && wrong.why.contains("this daemon is host \"a\""),
            "{wrong:?}"
        );
        let mut checks = membership.take_checks().expect("the first");
        assert!(membership.take_checks().is_none());
        let answer = async {
            let check = checks.recv().await.expect("a check");
            assert_eq!((check.vm.as_str(), check.claim), ("x", claim("a")));
            check.reply.send(Ok(())).expect("awaited");
        };
        let own = claim("a");
        let (checked, ()) = tokio::join!(membership.check_start("x", &own), answer);
        assert_eq!(checked, Ok(()));
        assert_eq!(membership.status().refused_starts, 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_start_without_confirmation_is_refused_in_time() {
        let membership = Membership::new("a");
        membership.joined(later(), handed());
        let _checks = membership.take_checks().expect("the first");
        let refused = membership
            .check_start("x", &claim("a"))
            .await
            .expect_err("late");
        assert!(
            !refused.is_final && refused.why.contains("within 4 s"),
            "{refused:?}"
        );
    }
}
