//! Placement over hosts (figure 5.7 of Jain's thesis, chapter 5), with a list of waiting requests.
//! A state machine without clock and I/O.
//!
//! ```text
//!   request --> host that accepts it, the one with most free bandwidth --> Placed
//!      |  none
//!      +--> Waiting --- a host's number or classes of transfers change: oldest first --> Placed
//!      |       +------- its deadline has passed since it came --> Discarded
//!      +--> Refused: not even an empty host would be in time
//! ```
//!
//! The set of transfers that each host would accept ([`Acceptance`]) is cached, and recomputed when
//! something changes on the host or when its validity ends. An index of hosts by the highest rate
//! that they accept and by free bandwidth finds the one for a request, and an index of requests by
//! the rate that they need the oldest one for a host. So a decision costs what the hosts that it
//! changes cost, and hardly depends on the number of hosts and transfers.

mod decision;
mod host;
mod host_index;
#[cfg(test)]
mod tests;
mod waiting;

use std::collections::VecDeque;

use tidegate_core::time::Nanos;
use tidegate_core::transfers::Forecast;

use crate::{Acceptance, Grace, LateRule, PriorityDatabase, Rejection, Request, VmState};
use host::Host;
use host_index::{Figures, HostIndex};

pub use decision::{
    Answer, Event, Explanation, HostId, Outcome, Placement, Refusal, RequestId, Update,
};
pub use host::{HostSpec, ResumedTransfer, Running};
pub(crate) use waiting::{Waiter, Waiting};

/// Default capacity of the waiting list, in requests.
pub const WAITING_CAPACITY: usize = 1_000_000;

/// State of a host.
#[derive(Clone, Copy, Debug)]
pub struct HostView<'a> {
    /// Number of the host.
    pub id: HostId,
    host: &'a Host,
}

impl<'a> HostView<'a> {
    /// Transfers that run on the host, in order of arrival.
    pub fn running(&self) -> &'a [Running] {
        self.host.running()
    }

    /// Priority database of the host.
    pub fn database(&self) -> &'a PriorityDatabase {
        self.host.database()
    }

    /// Set of transfers that the host would accept.
    pub fn acceptance(&self) -> &'a Acceptance {
        self.host.acceptance()
    }

    /// Returns whether the host may accept transfers; `false` after
    /// [`close_host`](Pcos::close_host).
    pub fn is_open(&self) -> bool {
        self.host.is_open()
    }

    /// Current rate of a transfer on the host in bytes per second, by the priority database; 0 if
    /// it does not run there.
    pub fn rate(&self, running: &Running) -> u64 {
        let mut all = self.running().iter().zip(self.host.rates());
        let found = all.find(|(other, _)| other.id == running.id);
        found.map_or(0, |(_, rate)| rate)
    }

    /// Forecast of a transfer on the host at its current rate; `None` for a VM without a
    /// transfer.
    pub fn forecast(&self, now: Nanos, running: &Running) -> Option<Forecast> {
        let transfer = running.vm.transfer?;
        Some(transfer.forecast(now, self.rate(running)))
    }
}

/// Meta-scheduler above the hosts' own schedulers: chooses the host of each transfer.
#[derive(Clone, Debug)]
pub struct Pcos {
    /// Maximum number of waiting requests.
    waiting_max: usize,
    grace: Grace,
    late_rule: LateRule,
    hosts: Vec<Host>,
    /// Decision data by host.
    index: HostIndex,
    /// Host at which [`Pcos::refresh_next`] goes on.
    next_refresh: usize,
    waiting: Waiting,
    next: u64,
    events: VecDeque<Event>,
}

impl Pcos {
    /// Creates a meta-scheduler without hosts that lets at most `waiting_max` requests wait;
    /// [`WAITING_CAPACITY`] is a good value.
    pub fn new(waiting_max: usize) -> Pcos {
        Pcos {
            waiting_max,
            grace: Grace::default(),
            late_rule: LateRule::default(),
            hosts: Vec::new(),
            index: HostIndex::new(),
            next_refresh: 0,
            waiting: Waiting::new(),
            next: 0,
            events: VecDeque::new(),
        }
    }

    /// Replaces the [`Grace`] for hosts added from now on.
    #[must_use]
    pub fn with_grace(self, grace: Grace) -> Pcos {
        Pcos { grace, ..self }
    }

    /// Replaces the [`LateRule`] for hosts added from now on.
    #[must_use]
    pub fn with_late_rule(self, late_rule: LateRule) -> Pcos {
        Pcos { late_rule, ..self }
    }

    /// Places a transfer on a host, lets it wait or refuses it (figure 5.7).
    pub fn request(&mut self, now: Nanos, request: Request) -> Answer {
        // Expired requests must not be placed any more.
        self.handle_timeout(now);
        let waiter = self.new_waiter(now, request);
        // Hosts that would accept its rate, but reject the transfer after verification.
        let mut rejecting = Vec::new();
        let placed = loop {
            let Some(host) = self.best_host(now, request.rate(), &rejecting) else {
                break None;
            };
            if let Some(placement) = self.place(now, host, &waiter) {
                break Some(placement);
            }
            rejecting.push(host);
        };
        let id = waiter.id;
        let outcome = match placed {
            Some(placement) => {
                self.retry(now, placement.host);
                Outcome::Placed(placement)
            }
            None => self.enqueue_or_refuse(waiter),
        };
        Answer { id, outcome }
    }

    /// Registers a transfer that already runs on a host, with its progress at `as_of`, after a
    /// restart. [`Pcos::refresh_all`] must follow the last registration.
    ///
    /// # Panics
    /// There is no such host.
    pub fn resume(&mut self, host: HostId, vm: VmState, as_of: Nanos) -> RequestId {
        let id = self.next_id();
        self.hosts[host.0].push(Running::new(id, vm, as_of, u64::MAX));
        id
    }

    /// Sets the largest rate that a transfer can use, in bytes per second. Takes effect with the
    /// next update of the host or [`Pcos::refresh_all`].
    ///
    /// # Panics
    /// There is no such host.
    pub fn limit(&mut self, host: HostId, id: RequestId, bytes_per_s: u64) {
        self.hosts[host.0].limit(id, bytes_per_s);
    }

    /// Recomputes all hosts, assuming that transfers have moved at the forecast rates since their
    /// last reported progress.
    pub fn refresh_all(&mut self, now: Nanos) {
        for host in 0..self.hosts.len() {
            self.refresh(now, HostId(host));
        }
    }

    /// Recomputes the next `n` hosts, round robin, and tries waiting requests on those that accept
    /// a higher rate than before: transfers that have progressed need less. A caller that decides
    /// for a long time calls this between decisions, so that no figure of a host grows old.
    pub fn refresh_next(&mut self, now: Nanos, n: usize) {
        self.handle_timeout(now);
        for _ in 0..n.min(self.hosts.len()) {
            let host = HostId(self.next_refresh % self.hosts.len());
            self.next_refresh = host.0 + 1;
            let before = self.hosts[host.0].acceptance().max_rate();
            self.refresh(now, host);
            if self.hosts[host.0].acceptance().max_rate() > before {
                self.retry(now, host);
            }
        }
    }

    /// Registers a request that has waited since `arrived`, after a restart; older ones first. It
    /// is tried when something changes on a host, or by [`Pcos::retry_all`].
    pub fn resume_waiting(&mut self, arrived: Nanos, request: Request) -> RequestId {
        let waiter = self.new_waiter(arrived, request);
        self.waiting.push(waiter);
        waiter.id
    }

    /// Tries all waiting requests on every host.
    pub fn retry_all(&mut self, now: Nanos) {
        self.handle_timeout(now);
        self.refresh_all(now);
        for host in 0..self.hosts.len() {
            self.retry(now, HostId(host));
        }
    }

    /// Tries all waiting requests on a host, for instance after [`Pcos::replace_host`].
    ///
    /// # Panics
    /// There is no such host.
    pub fn retry_host(&mut self, now: Nanos, host: HostId) {
        self.handle_timeout(now);
        self.refresh(now, host);
        self.retry(now, host);
    }

    /// Processes changes on a host, and retries the waiting requests on it if the number or the
    /// classes of its transfers have changed. Ignores unknown transfers and removed hosts.
    ///
    /// # Panics
    /// There is no such host.
    pub fn update(&mut self, now: Nanos, host: HostId, update: &Update<'_>) {
        self.handle_timeout(now);
        if self.hosts[host.0].is_gone() {
            // Reports may still arrive after a host was removed.
            return;
        }
        let changed = self.hosts[host.0].update(now, update);
        self.refresh(now, host);
        if changed {
            self.retry(now, host);
        }
    }

    /// Withdraws a waiting request; returns `false` if it was not waiting.
    pub fn withdraw(&mut self, id: RequestId) -> bool {
        self.waiting.remove(id).is_some()
    }

    /// Discards the requests whose deadline is `now` or earlier.
    pub fn handle_timeout(&mut self, now: Nanos) {
        while let Some(waiter) = self.waiting.pop_due(now) {
            self.events.push_back(Event::Discarded(waiter.id));
        }
    }

    /// Deadline of the next request to be discarded.
    pub fn next_timeout(&self) -> Option<Nanos> {
        self.waiting.next_due()
    }

    /// Returns the next result of a request that waited.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// State of a host; `None` if it does not exist or was removed.
    pub fn host(&self, id: HostId) -> Option<HostView<'_>> {
        let host = self.hosts.get(id.0).filter(|host| !host.is_gone())?;
        Some(HostView { id, host })
    }

    /// State of all hosts.
    pub fn hosts(&self) -> impl Iterator<Item = HostView<'_>> {
        (0..self.hosts.len()).filter_map(|at| self.host(HostId(at)))
    }

    /// Waiting requests in order of arrival, with their arrival times.
    pub fn waiting(&self) -> impl Iterator<Item = (RequestId, Request, Nanos)> {
        let all = self.waiting.iter();
        all.map(|waiter| (waiter.id, waiter.request, waiter.arrived))
    }

    /// Returns the reason for which a host rejects a request at present; `None`: the host accepts
    /// it or does not exist.
    pub fn rejection(&mut self, now: Nanos, host: HostId, request: &Request) -> Option<Rejection> {
        self.explain(now, host, request)?.decision.err()
    }

    /// Returns the present decision of a host on a request, with its figures; `None`: the host does
    /// not exist.
    pub fn explain(&mut self, now: Nanos, host: HostId, request: &Request) -> Option<Explanation> {
        self.host(host)?;
        self.refresh(now, host);
        Some(self.hosts[host.0].explain(now, request))
    }

    /// Returns the shortest deadline, at least the request's own, with which the request would be
    /// placed at once, and the host.
    pub fn nearest(&mut self, now: Nanos, request: &Request) -> Option<(HostId, Nanos)> {
        self.refresh_all(now);
        let shortest = |(at, host): (usize, &Host)| {
            let deadline = host.acceptance().nearest(request)?;
            let with = Request::new(request.bytes(), deadline).ok()?;
            host.admit(now, &with).ok()?;
            Some((deadline, HostId(at)))
        };
        let nearest = self.hosts.iter().enumerate().filter_map(shortest).min();
        nearest.map(|(deadline, host)| (host, deadline))
    }

    fn next_id(&mut self) -> RequestId {
        self.next += 1;
        RequestId(self.next)
    }

    fn new_waiter(&mut self, arrived: Nanos, request: Request) -> Waiter {
        Waiter {
            id: self.next_id(),
            request,
            arrived,
        }
    }

    /// Returns the host with most free bandwidth among those that accept the needed rate, except
    /// `rejecting`.
    fn best_host(&mut self, now: Nanos, rate: u64, rejecting: &[HostId]) -> Option<HostId> {
        self.refresh_stale(now);
        let accepts =
            |at: usize| self.hosts[at].acceptance().takes(rate) && !rejecting.contains(&HostId(at));
        self.index.best(rate, accepts).map(HostId)
    }

    /// Recomputes the acceptance of hosts whose validity has ended.
    fn refresh_stale(&mut self, now: Nanos) {
        // Taken all at once, so that each host is recomputed once.
        let stale: Vec<_> = core::iter::from_fn(|| self.index.pop_stale(now)).collect();
        for host in stale {
            self.refresh(now, HostId(host));
        }
    }

    fn refresh(&mut self, now: Nanos, host: HostId) {
        let at = &mut self.hosts[host.0];
        at.refresh(now);
        let takes = at.acceptance();
        let figures = Figures {
            max_rate: takes.max_rate(),
            free: takes.free(),
            solo_rate: at.solo_rate(),
        };
        self.index.set(host.0, figures, takes.valid_until());
    }

    /// Places a request on a host if it accepts it; recomputes the host in any case.
    fn place(&mut self, now: Nanos, host: HostId, waiter: &Waiter) -> Option<Placement> {
        let taken = self.hosts[host.0].try_place(now, waiter.id, &waiter.request);
        self.refresh(now, host);
        let (class, lowered) = taken?;
        Some(Placement {
            id: waiter.id,
            host,
            class,
            lowered,
            waited: now.since(waiter.arrived),
        })
    }

    /// Tries the waiting requests on a host, oldest first, until it accepts none of them.
    fn retry(&mut self, now: Nanos, host: HostId) {
        if self.hosts[host.0].acceptance().valid_until() < now {
            self.refresh(now, host);
        }
        // Slot from which to continue: older requests were already rejected by this host.
        let mut from = 0;
        loop {
            let takes = self.hosts[host.0].acceptance();
            let Some((place, &waiter)) = self.waiting.oldest(from, takes.max_rate()) else {
                return;
            };
            from = place + 1;
            // Its rate lies between two accepted ranges.
            if !takes.takes(waiter.request.rate()) {
                continue;
            }
            if let Some(placement) = self.place(now, host, &waiter) {
                self.waiting.remove(waiter.id);
                self.events.push_back(Event::Placed(placement));
                // The additional VM changes the acceptance: older requests may fit now.
                from = 0;
            }
        }
    }

    fn enqueue_or_refuse(&mut self, waiter: Waiter) -> Outcome {
        let solo_rate = self.index.solo_rate();
        // Waiting would be futile: the request would be late even on an empty host.
        if waiter.request.rate() > solo_rate {
            let nearest = waiter.request.deadline_at(solo_rate);
            return Outcome::Refused(Refusal::Impossible { nearest });
        }
        let most = self.waiting_max;
        if self.waiting.len() >= most {
            return Outcome::Refused(Refusal::TooManyWait { most });
        }
        self.waiting.push(waiter);
        Outcome::Waiting
    }
}

// Life cycle of hosts.

impl Pcos {
    /// Adds a host and tries the waiting requests on it.
    pub fn add_host(&mut self, now: Nanos, spec: HostSpec) -> HostId {
        self.handle_timeout(now);
        let host = HostId(self.hosts.len());
        self.hosts.push(Host::new(spec, self.grace, self.late_rule));
        self.index.push();
        self.refresh(now, host);
        self.retry(now, host);
        host
    }

    /// Stops placing transfers on a host until it is opened again; running ones continue. Requests
    /// that only this host could serve wait.
    ///
    /// # Panics
    /// There is no such host.
    pub fn close_host(&mut self, now: Nanos, host: HostId) {
        self.hosts[host.0].set_open(false);
        self.refresh(now, host);
    }

    /// Allows a closed host to accept transfers again, and tries the waiting requests on it.
    ///
    /// # Panics
    /// There is no such host.
    pub fn open_host(&mut self, now: Nanos, host: HostId) {
        self.handle_timeout(now);
        self.hosts[host.0].set_open(true);
        self.refresh(now, host);
        self.retry(now, host);
    }

    /// Replaces a host and its transfers by what is known of them elsewhere, such as in a store
    /// that another scheduler has written. Returns the new identifiers of the transfers, in their
    /// order. Waiting requests are not tried:
    /// [`Pcos::retry_host`] does.
    ///
    /// # Panics
    /// There is no such host.
    pub fn replace_host(
        &mut self,
        now: Nanos,
        host: HostId,
        spec: HostSpec,
        is_open: bool,
        transfers: &[ResumedTransfer],
    ) -> Vec<RequestId> {
        let mut replaced = Host::new(spec, self.grace, self.late_rule);
        replaced.set_open(is_open);
        let resume = |transfer: &ResumedTransfer| {
            let id = self.next_id();
            replaced.push(transfer.to_running(id));
            id
        };
        let ids = transfers.iter().map(resume).collect();
        self.hosts[host.0] = replaced;
        self.refresh(now, host);
        ids
    }

    /// Fixes the estimated progress of a host's transfers as of `now`. Estimates after it continue
    /// from there, as those of a scheduler that resumes from a stored copy of them do.
    ///
    /// # Panics
    /// There is no such host.
    pub fn fix_progress(&mut self, now: Nanos, host: HostId) {
        self.hosts[host.0].fix_progress(now);
    }

    /// Removes a host and returns the transfers that ran there, with their estimated progress. The
    /// caller may request a host for the remainder of each. Later updates of the host are ignored;
    /// its number is not reused.
    ///
    /// # Panics
    /// There is no such host.
    pub fn remove_host(&mut self, now: Nanos, host: HostId) -> Vec<Running> {
        let lost = self.hosts[host.0].remove(now);
        self.refresh(now, host);
        lost
    }
}
