//! Thread that keeps the daemon of a host registered in a cluster in etcd.
//!
//! ```text
//!   look at members/HOST --another's--> wait, look again
//!          | free, or ours
//!          v
//!   lease, register --> renew, publish, check starts --lease over, or key gone--> (again)
//!          ^                      |
//!          +----------------------+
//! ```
//!
//! The thread has a runtime of its own, so etcd delays nothing else of the daemon. It holds the
//! registration under a lease that it renews about four times in the lease's length, publishes its
//! clock, and devices and standing reservations when they change, confirms placements for the
//! control API ([`tidegate_server::membership`]), and has those transfers started whose placers
//! could not ask.

mod attempts;
mod details;
mod reconcile;
mod recorded_starts;
mod running_transfers;
mod source;

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{self as std_mpsc, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tidegate_core::time::Nanos;
use tidegate_server::membership::{
    HandedMembership, Membership, Obstacle, PublishedDevice, StartCheck, StartRefusal,
};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::{Instant as TokioInstant, sleep_until, timeout, timeout_at};

use crate::clock;
use crate::store::member::{
    Checked, ClockValue, MemberDeviceValue, MemberStore, MemberValue, PublishedTransferValue,
    Registered, Registration, ReservationValue, Written,
};
use crate::store::{EtcdOptions, StoreError};

use attempts::Attempts;
use details::Details;
use reconcile::reconcile;
use recorded_starts::RecordedStarts;
use running_transfers::RunningTransfers;

pub use source::{DeviceDetails, MemberSource};

/// Interval at which the devices are compared with what was published.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);
/// Least pause between two looks, in times of their length.
const LOOK_PART: u32 = 20;
/// Renewals after which the key is looked at: a lease goes on although its key was deleted.
const RENEWALS_A_LOOK: u32 = 4;
/// Reason for the loss of a registration whose key has changed.
const REPLACED: &str = "the registration was removed or replaced in etcd";
/// First wait after a failed registration; it doubles up to a third of the lease, and to
/// `LONGEST_PAUSE`.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
/// Longest wait after a failed registration, and between attempts to publish what etcd refuses.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// Time for the last words to etcd when the daemon ends in order.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(2);
/// Time for the thread to end: that for the last words, and for the end of a look at the devices.
const END_TIMEOUT: Duration = Duration::from_secs(3);
/// Longest time for a call of etcd, whatever the lease.
const CALL_TIMEOUT: Duration = Duration::from_secs(3);

/// Registration of a daemon.
#[derive(Clone)]
pub struct MemberOptions {
    /// Address of the cluster's state. Its time-out is replaced by a part of the lease.
    pub etcd: EtcdOptions,
    /// Length of the lease, at least 2 s.
    pub lease: Duration,
    /// Socket or address of the control API, to be shown; `None` without one.
    pub api: Option<String>,
    /// Registration of the daemon that this one has taken over from.
    pub handed: Option<HandedMembership>,
}

/// Running thread.
#[derive(Debug)]
pub struct MemberThread {
    end: oneshot::Sender<End>,
    /// Disconnected once the thread has ended.
    ended: std_mpsc::Receiver<()>,
}

/// Manner of the thread's end.
#[derive(Debug)]
enum End {
    /// Withdraw the registration.
    Leave,
    /// Leave the registration to the daemon that has taken over.
    HandOver,
}

impl MemberThread {
    /// Starts the thread, which registers the daemon of `membership` as soon as etcd lets it.
    ///
    /// # Errors
    /// The options are not valid, the membership has a thread already, or the operating system
    /// gives none.
    pub fn start(
        options: MemberOptions,
        membership: Arc<Membership>,
        source: impl MemberSource,
    ) -> Result<MemberThread, StoreError> {
        let backend = |error: io::Error| StoreError::Backend(error.into());
        let etcd = EtcdOptions {
            call_timeout: CALL_TIMEOUT.min(options.lease / 3),
            ..options.etcd.clone()
        };
        let store = MemberStore::new(&etcd, membership.host())?;
        let checks = membership.take_checks();
        let checks = checks.ok_or_else(|| backend(io::ErrorKind::AlreadyExists.into()))?;
        let (end, ends) = oneshot::channel();
        let (running, ended) = std_mpsc::channel::<()>();
        let mut member = Member {
            length: Duration::from_secs(options.lease.as_secs_f64().ceil() as u64),
            instance: format!("{:032x}", rand::random::<u128>()),
            api: options.api,
            handed: options.handed,
            membership,
            source: Arc::new(source),
            checks,
            lease: None,
            renewals: 0,
            held: None,
            unconfirmed: None,
            details: Details::default(),
            transfers: RunningTransfers::default(),
            publishing: Publishing::default(),
            recorded: RecordedStarts::default(),
        };
        let run = move || {
            // Dropped as the thread ends, also by a panic.
            let _running = running;
            store.block_on(async {
                let end = tokio::select! {
                    () = member.run(&store) => return,
                    end = ends => end,
                };
                if let Ok(End::Leave) = end {
                    // Without etcd the lease ends by itself.
                    let _ = timeout(LEAVE_TIMEOUT, member.leave(&store)).await;
                }
            });
            store.shut_down();
        };
        let thread = thread::Builder::new().name("cluster".to_owned());
        thread.spawn(run).map_err(backend)?;
        Ok(MemberThread { end, ended })
    }

    /// Withdraws the registration and ends the thread; waits 2 s at most for etcd, and 3 s for the
    /// thread, so it is to be called where blocking delays nothing.
    pub fn leave(self) {
        self.end(End::Leave);
    }

    /// Ends the thread and leaves the registration to the daemon that has taken over.
    pub fn hand_over(self) {
        self.end(End::HandOver);
    }

    fn end(self, how: End) {
        // The thread may have ended by a panic, which it has printed.
        let _ = self.end.send(how);
        if let Err(RecvTimeoutError::Timeout) = self.ended.recv_timeout(END_TIMEOUT) {
            tracing::warn!("the thread of the cluster does not end; its lease will");
        }
    }
}

/// State of the thread.
struct Member<S> {
    /// Length of the lease in whole seconds.
    length: Duration,
    instance: String,
    api: Option<String>,
    handed: Option<HandedMembership>,
    membership: Arc<Membership>,
    source: Arc<S>,
    checks: mpsc::Receiver<StartCheck>,
    /// Lease that etcd has granted, and that may still run.
    lease: Option<i64>,
    /// Number of renewals so far.
    renewals: u32,
    held: Option<Held>,
    /// Reservation that was written last, or whose write is under way, while no registration is
    /// held.
    unconfirmed: Option<ReservationValue>,
    details: Details,
    transfers: RunningTransfers,
    publishing: Publishing,
    recorded: RecordedStarts,
}

/// Attempts to publish what has changed: reservations apart, because placers count on them, and
/// etcd may refuse a value with large budgets for ever.
#[derive(Default)]
struct Publishing {
    reservation: Attempts,
    value: Attempts,
}

/// Registration with what was published under it.
struct Held {
    registration: Registration,
    value: MemberValue,
    reservation: ReservationValue,
    /// End of the lease by this host's clock, unless it is renewed.
    valid_until: Instant,
}

/// Reason why the registration is not held any more.
struct Lost(Obstacle);

fn obstacle(error: StoreError) -> Obstacle {
    match error {
        StoreError::Unavailable { .. } => Obstacle::EtcdAway(error.to_string()),
        other => Obstacle::Refused(other.to_string()),
    }
}

/// Returns the time since 1970.
fn now() -> Nanos {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    Nanos(since.map_or(0, |it| u64::try_from(it.as_nanos()).unwrap_or(u64::MAX)))
}

/// Returns a random time from half of `about` to one and a half of it, so that daemons that lost
/// etcd at once do not ask it at once.
fn jittered(about: Duration) -> Duration {
    about.mul_f64(0.5 + rand::random::<f64>())
}

impl<S: MemberSource> Member<S> {
    /// Keeps the daemon registered, for ever.
    async fn run(&mut self, store: &MemberStore) {
        let mut pause = FIRST_PAUSE;
        loop {
            match self.register(store).await {
                Ok(held) => {
                    pause = FIRST_PAUSE;
                    self.held = Some(held);
                    let Lost(why) = self.hold(store).await;
                    self.unconfirmed = self.held.take().map(|held| held.reservation);
                    self.membership.lost(why);
                }
                Err(why) => self.membership.obstructed(why),
            }
            self.wait(jittered(pause).min(LONGEST_PAUSE)).await;
            pause = (pause * 2).min(self.length / 3).min(LONGEST_PAUSE);
        }
    }

    /// Waits while the daemon is not registered, and refuses starts meanwhile.
    async fn wait(&mut self, time: Duration) {
        let end = TokioInstant::now() + time;
        loop {
            tokio::select! {
                () = sleep_until(end) => return,
                Some(check) = self.checks.recv() => {
                    let why = "the daemon is not registered in the cluster; try again";
                    let _ = check.reply.send(Err(StartRefusal::at_present(why)));
                }
            }
        }
    }

    /// Registers the daemon, or goes on with a registration that is its own.
    async fn register(&mut self, store: &MemberStore) -> Result<Held, Obstacle> {
        let there = store.registered().await.map_err(obstacle)?;
        let (mut value, reservation) = self.published();
        // The rest follows: with many devices and VMs the value may be larger than etcd takes.
        for device in &mut value.devices {
            (device.budget, device.vm_names, device.transfers) = (None, None, None);
        }
        let asked = Instant::now();
        if there.as_ref().is_none_or(|there| self.is_own(there)) {
            // Known before it is written: the daemon may leave before the answer comes.
            self.unconfirmed = Some(reservation.clone());
        }
        let (written, former) = match there {
            Some(there) if !self.is_own(&there) => return Err(self.taken_by(&there)),
            Some(Registered { registration, .. }) => {
                // That of a daemon before this one may be of another length.
                let (lease, former) = (self.lease(store).await, registration.lease);
                let own = registration.under(lease.map_err(obstacle)?);
                let former = (own.lease != former).then_some(former);
                let written = store.publish(&own, &value, Some(&reservation)).await;
                (written, former)
            }
            None => {
                let lease = self.lease(store).await.map_err(obstacle)?;
                (store.register(lease, &value, &reservation).await, None)
            }
        };
        let registration = match written.map_err(obstacle)? {
            Written::Done(registration) => registration,
            Written::LeaseGone => {
                self.lease = None;
                return Err(Obstacle::Refused("etcd has ended the lease".to_owned()));
            }
            // Another daemon was first; the next attempt names it.
            Written::NotOurs => return Err(Obstacle::Starting),
        };
        if let Some(former) = former {
            // Nothing is under it any more; otherwise it ends by itself.
            let _ = store.revoke(former).await;
        }
        self.handed = None;
        let own = store.placements().await.map_err(obstacle)?;
        if !own.is_defined {
            tracing::warn!(
                host = self.membership.host(),
                "the cluster has no host of this name, so nothing is placed here: define it with \
                 `tidegate place host add`"
            );
        }
        reconcile(&self.source, &self.membership, own);
        let held = Held {
            registration,
            value,
            reservation,
            valid_until: asked + self.length,
        };
        match self.confirm(store, &held) {
            Ok(()) => Ok(held),
            Err(Lost(why)) => Err(why),
        }
    }

    /// Returns a lease that has just begun, or was just renewed.
    async fn lease(&mut self, store: &MemberStore) -> Result<i64, StoreError> {
        if let Some(lease) = self.lease
            && store.renew(lease).await?
        {
            return Ok(lease);
        }
        let lease = store.grant(self.length).await?;
        self.lease = Some(lease);
        Ok(lease)
    }

    /// Returns whether a registration is this daemon's, or was handed over to it.
    fn is_own(&self, there: &Registered) -> bool {
        // The predecessor may have got another lease since it has handed over.
        let predecessor = self.handed.as_ref().map(|handed| &handed.instance);
        [Some(&self.instance), predecessor].contains(&Some(&there.value.instance))
    }

    fn taken_by(&self, there: &Registered) -> Obstacle {
        let MemberValue { instance, api, .. } = &there.value;
        let api = api.as_deref().unwrap_or("unknown");
        Obstacle::NameTaken(format!(
            "another daemon is registered as host {:?}: instance {instance}, control API {api}. If \
             it was killed, its lease ends within {} s; if it runs, give this host another name",
            self.membership.host(),
            self.length.as_secs()
        ))
    }

    /// Returns the values to be published.
    fn published(&self) -> (MemberValue, ReservationValue) {
        let devices = self.source.devices();
        let reserved = reserved(&devices);
        let device = |device: PublishedDevice| {
            let mut all = self.details.computed.iter();
            let details = all.find(|details| details.name == device.name);
            let transfers = self.transfers.on_device(&device.name);
            MemberDeviceValue {
                policy: details.and_then(|details| details.policy.clone()),
                budget: details.and_then(|details| details.budget.clone()),
                name: device.name,
                vms: device.vms.len(),
                reserved_bytes_per_s: device.reserved_bytes_per_s,
                vm_names: Some(device.vms),
                transfers: transfers
                    .map(|all| all.iter().map(PublishedTransferValue::new).collect()),
            }
        };
        let value = MemberValue {
            schema: 1,
            instance: self.instance.clone(),
            joined_ns: now().0,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            api: self.api.clone(),
            vms: devices.iter().map(|device| device.vms.len()).sum(),
            devices: devices.into_iter().map(device).collect(),
        };
        (value, ReservationValue::new(reserved, now()))
    }

    /// Tells the daemon that its registration is held, unless the answers have come so late that
    /// the lease may have ended.
    fn confirm(&self, store: &MemberStore, held: &Held) -> Result<(), Lost> {
        if held.valid_until <= Instant::now() {
            let why = "etcd has answered only after the length of the lease";
            return Err(Lost(Obstacle::EtcdAway(why.to_owned())));
        }
        let reserved = held.reservation.devices.values();
        let sum = reserved.fold(0_u64, |sum, rate| sum.saturating_add(*rate));
        self.membership.reserved(sum);
        let handed = HandedMembership {
            key: store.key(),
            instance: self.instance.clone(),
            lease: held.registration.lease,
        };
        self.membership.joined(held.valid_until, handed);
        Ok(())
    }

    /// Confirms the registration that is held.
    fn confirm_held(&self, store: &MemberStore) -> Result<(), Lost> {
        self.held
            .as_ref()
            .map_or(Ok(()), |held| self.confirm(store, held))
    }

    /// Renews the lease, publishes changes and confirms placements until the registration is lost.
    async fn hold(&mut self, store: &MemberStore) -> Lost {
        let mut renew_at = Instant::now() + jittered(self.length / 4);
        let mut look_at = Instant::now();
        let mut starts_at = Instant::now();
        // Not with the first look and starts, which may delay the renewal already.
        let mut clock_at = Instant::now() + FIRST_PAUSE;
        self.recorded.retry();
        loop {
            let next = renew_at.min(look_at).min(starts_at).min(clock_at);
            tokio::select! {
                biased;
                () = sleep_until(next.into()) => {}
                Some(check) = self.checks.recv() => {
                    if let Some(lost) = self.check(store, check).await {
                        return lost;
                    }
                    continue;
                }
                () = self.details.finish() => {}
                transfers = finished(&mut self.transfers.task) => {
                    self.transfers.finish(transfers, Instant::now());
                }
            }
            if renew_at <= Instant::now() {
                match self.renew(store).await {
                    Ok(next) => renew_at = next,
                    Err(lost) => return lost,
                }
            }
            if look_at <= Instant::now() {
                // With thousands of VMs and schedules a look takes a while of a processor.
                let took = match self.publish(store).await {
                    Ok(took) => took,
                    Err(lost) => return lost,
                };
                look_at = Instant::now() + LOOK_INTERVAL.max(took * LOOK_PART);
            }
            if clock_at <= Instant::now() && Instant::now() < renew_at {
                let published = self.publish_clock(store);
                // Without etcd the renewal is not to wait for it.
                let _ = timeout_at(renew_at.into(), published).await;
                clock_at = Instant::now() + clock::PUBLISH_INTERVAL;
            }
            if starts_at <= Instant::now() {
                self.carry_out_starts(store, renew_at).await;
                starts_at = Instant::now() + jittered(self.length);
            }
        }
    }

    /// Renews the lease. Returns the time of the next renewal.
    async fn renew(&mut self, store: &MemberStore) -> Result<Instant, Lost> {
        let Some(held) = &mut self.held else {
            return Err(Lost(Obstacle::Starting));
        };
        let asked = Instant::now();
        self.renewals = self.renewals.wrapping_add(1);
        let renewed = match store.renew(held.registration.lease).await {
            Ok(true) if self.renewals.is_multiple_of(RENEWALS_A_LOOK) => {
                match store.is_held(&held.registration).await {
                    Ok(false) => return Err(Lost(Obstacle::Refused(REPLACED.to_owned()))),
                    looked => looked,
                }
            }
            renewed => renewed,
        };
        let why = match renewed {
            Ok(true) => {
                // A late answer says nothing of the time before it: placements may have ended then.
                if held.valid_until > Instant::now() {
                    held.valid_until = asked + self.length;
                }
                self.confirm_held(store)?;
                return Ok(Instant::now() + jittered(self.length / 4));
            }
            Ok(false) => {
                self.lease = None;
                let why = "etcd has ended the lease, of which it had not heard in time";
                return Err(Lost(Obstacle::Refused(why.to_owned())));
            }
            Err(error) => obstacle(error),
        };
        if held.valid_until <= Instant::now() {
            return Err(Lost(why));
        }
        self.membership.obstructed(why);
        Ok(Instant::now() + jittered(FIRST_PAUSE))
    }

    /// Publishes what has changed. Returns the time that it took to look at it.
    async fn publish(&mut self, store: &MemberStore) -> Result<Duration, Lost> {
        let begun = Instant::now();
        let (mut value, reservation) = self.published();
        let took = begun.elapsed();
        let Some(held) = &mut self.held else {
            return Err(Lost(Obstacle::Starting));
        };
        value.joined_ns = held.value.joined_ns;
        let is_reserved_anew = reservation.devices != held.reservation.devices;
        self.details.is_outdated |= is_reserved_anew;
        self.details.begin(&self.source);
        self.transfers.begin(&self.source);
        if is_reserved_anew && self.publishing.reservation.is_due() {
            let written = store.reserve(&held.registration, &reservation).await;
            let attempts = &mut self.publishing.reservation;
            if settled(attempts, "what VMs reserve", written)?.is_some() {
                held.reservation = reservation;
                self.confirm_held(store)?;
            }
        }
        let Some(held) = &mut self.held else {
            return Err(Lost(Obstacle::Starting));
        };
        if value != held.value && self.publishing.value.is_due() {
            let written = store.publish(&held.registration, &value, None).await;
            let attempts = &mut self.publishing.value;
            let written = settled(attempts, "devices with their budgets", written);
            if let Some(registration) = written? {
                (held.registration, held.value) = (registration, value);
                self.confirm_held(store)?;
            }
        }
        Ok(took)
    }

    /// Publishes the clock of this host, with which placers compare theirs.
    async fn publish_clock(&self, store: &MemberStore) {
        let Some(held) = &self.held else {
            return;
        };
        // Read last: a time that is older than its value is no difference of clocks.
        let clock = ClockValue::new(now());
        if let Err(error) = store.publish_clock(&held.registration, &clock).await {
            // Placers leave out a clock that they do not hear of.
            tracing::debug!("the clock is not published: {error}");
        }
    }

    /// Has transfers started that placers have recorded and that have not begun, until the lease is
    /// to be renewed.
    async fn carry_out_starts(&mut self, store: &MemberStore, renew_at: Instant) {
        let Some(held) = &self.held else {
            return;
        };
        let (held, membership) = (&held.registration, &self.membership);
        let carried_out = self
            .recorded
            .carry_out_due(store, held, membership, renew_at);
        if let Err(error) = carried_out.await {
            // The renewal of the lease meets the same, and decides what it means.
            tracing::debug!("recorded starts cannot be read: {error}");
        }
    }

    /// Confirms or refuses a placement.
    async fn check(&mut self, store: &MemberStore, check: StartCheck) -> Option<Lost> {
        let StartCheck {
            vm,
            claim,
            has_begun,
            reply,
        } = check;
        self.transfers.is_outdated |= has_begun;
        let held = self.held.as_ref()?;
        let checked = if has_begun {
            store.confirm(&held.registration, &vm, &claim).await
        } else {
            store.check(&held.registration, &vm, &claim).await
        };
        let (answer, lost) = match checked {
            Ok(Checked::Stands) => (Ok(()), None),
            Ok(Checked::Ended(why)) => (Err(StartRefusal::ended(why)), None),
            Ok(Checked::Refused(why)) => (Err(StartRefusal::invalid(why)), None),
            Ok(Checked::NotOurs) => {
                let why = "the registration is gone from etcd";
                let refusal = StartRefusal::at_present(format!("{why}; try again"));
                (Err(refusal), Some(Lost(Obstacle::Refused(why.to_owned()))))
            }
            Err(error) => {
                let why = format!("the placement cannot be confirmed: {error}; try again");
                (Err(StartRefusal::at_present(why)), None)
            }
        };
        // The client may have gone.
        let _ = reply.send(answer);
        lost
    }

    /// Withdraws the registration, also one whose confirmation is under way.
    async fn leave(&mut self, store: &MemberStore) {
        let left = match self.held.take() {
            Some(held) => store.withdraw(&held.registration, held.reservation).await,
            None => self.leave_unconfirmed(store).await,
        };
        if let Err(error) = left {
            tracing::debug!("the registration in the cluster ends with its lease: {error}");
        }
    }

    /// Withdraws a registration of which it is not known whether etcd has it.
    async fn leave_unconfirmed(&mut self, store: &MemberStore) -> Result<(), StoreError> {
        if let Some(lease) = self.lease {
            // First: a registration that is still on its way is refused without its lease.
            store.revoke(lease).await?;
        }
        let Some(reservation) = self.unconfirmed.take() else {
            return Ok(());
        };
        match store.registered().await? {
            // Under the lease of the daemon before this one.
            Some(there) if self.is_own(&there) => {
                store.withdraw(&there.registration, reservation).await
            }
            _ => store.mark_left(reservation).await,
        }
    }
}

/// Takes the result of a write into account. Returns the registration if it was written; an error
/// of the write alone is left to the renewal, which decides whether the registration is lost.
fn settled(
    attempts: &mut Attempts,
    what: &str,
    written: Result<Written, StoreError>,
) -> Result<Option<Registration>, Lost> {
    match written {
        Ok(Written::Done(registration)) => {
            attempts.succeeded(what);
            Ok(Some(registration))
        }
        Ok(Written::LeaseGone) => Err(Lost(Obstacle::Refused(
            "etcd has ended the lease".to_owned(),
        ))),
        Ok(Written::NotOurs) => Err(Lost(Obstacle::Refused(REPLACED.to_owned()))),
        Err(error) => {
            attempts.failed(what, &error);
            Ok(None)
        }
    }
}

fn reserved(devices: &[PublishedDevice]) -> BTreeMap<String, u64> {
    let pairs = devices.iter();
    let pairs = pairs.map(|device| (device.name.clone(), device.reserved_bytes_per_s));
    pairs.collect()
}

/// Waits for the end of a computation; for ever without one.
async fn finished<T: Default>(task: &mut Option<JoinHandle<T>>) -> T {
    match task {
        Some(task) => task.await.unwrap_or_default(),
        None => std::future::pending().await,
    }
}
