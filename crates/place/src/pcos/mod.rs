//! Placement over hosts: figure 5.7, with those that wait. A state machine without clock or I/O.
//!
//! ```text
//!   request --> host that takes it, of several the one with most free bandwidth --> Placed
//!      |  none
//!      +--> Waiting --- a host's number or classes of jobs change: oldest first, there --> Placed
//!      |       +------- its deadline has passed since it came --> Discarded
//!      +--> Refused: not even an empty host would do it
//! ```
//!
//! What each host would take is kept ([`Acceptance`]) and reckoned again when something moves
//! there, or when it has been so long that somebody there would be late meanwhile; a decision
//! compares one number of each host.

mod answer;
mod host;
mod waiting;

use std::collections::VecDeque;

use tidegate_core::jobs::Forecast;
use tidegate_core::time::Nanos;

use crate::{Acceptance, Grace, PriorityDatabase, Rejection, Request, Tenant};
use host::Host;

pub use answer::{Answer, Event, HostId, Outcome, Placement, Refusal, RequestId, Update};
pub use host::{HostSpec, Running};
pub(crate) use waiting::{Waiter, Waiting};

/// As many requests may wait, where nobody says otherwise.
pub const MOST_WAITING: usize = 1_000_000;

/// How a host stands.
#[derive(Clone, Copy, Debug)]
pub struct HostView<'a> {
    /// Which.
    pub id: HostId,
    host: &'a Host,
}

impl<'a> HostView<'a> {
    /// Who runs there, in the order they came.
    pub fn running(&self) -> &'a [Running] {
        self.host.running()
    }

    /// What is known of it.
    pub fn database(&self) -> &'a PriorityDatabase {
        self.host.database()
    }

    /// What it would take.
    pub fn acceptance(&self) -> &'a Acceptance {
        self.host.acceptance()
    }

    /// Whether it may take jobs: it was not closed.
    pub fn is_open(&self) -> bool {
        self.host.is_open()
    }

    /// What a job there has as things are, in bytes a second, by what is known of the host.
    pub fn rate(&self, running: &Running) -> u64 {
        let mut all = self.running().iter().zip(self.host.rates());
        let found = all.find(|(other, _)| other.id == running.id);
        found.map_or(0, |(_, rate)| rate)
    }

    /// What comes of a job there at that rate; `None`: it is somebody without a job.
    pub fn forecast(&self, now: Nanos, running: &Running) -> Option<Forecast> {
        let job = running.tenant.job?;
        Some(job.forecast(now, self.rate(running)))
    }
}

/// The meta-scheduler.
#[derive(Clone, Debug)]
pub struct Pcos {
    most_waiting: usize,
    grace: Grace,
    hosts: Vec<Host>,
    /// What decisions look at, by host.
    boards: Vec<Board>,
    waiting: Waiting,
    next: u64,
    events: VecDeque<Event>,
}

/// What a decision looks at of a host: half a cache line.
#[derive(Clone, Copy, Debug)]
struct Board {
    most: u64,
    free: u64,
    until: Nanos,
    /// What one alone would have at most, were the host open.
    alone: u64,
}

impl Pcos {
    /// Without hosts yet. As many requests wait at most; [`MOST_WAITING`] is a good number.
    pub fn new(most_waiting: usize) -> Pcos {
        Pcos {
            most_waiting,
            grace: Grace::default(),
            hosts: Vec::new(),
            boards: Vec::new(),
            waiting: Waiting::new(),
            next: 0,
            events: VecDeque::new(),
        }
    }

    /// With another [`Grace`], for the hosts that are added from then on.
    #[must_use]
    pub fn with_grace(self, grace: Grace) -> Pcos {
        Pcos { grace, ..self }
    }

    /// A job looks for a host. Figure 5.7.
    pub fn request(&mut self, now: Nanos, request: Request) -> Answer {
        self.handle_timeout(now);
        let waiter = self.number(now, request);
        // One that does not take it after all is reckoned again, and is not found twice.
        let placed = loop {
            let Some(host) = self.find(now, request.rate()) else {
                break None;
            };
            if let Some(placement) = self.place(now, host, &waiter) {
                break Some(placement);
            }
        };
        let id = waiter.id;
        let outcome = match placed {
            Some(placement) => {
                self.retry(now, placement.host);
                Outcome::Placed(placement)
            }
            None => self.let_wait(waiter),
        };
        Answer { id, outcome }
    }

    /// A job that runs on a host already, and how far it was as of then. When all are told of,
    /// [`Pcos::refresh_all`] has them go on.
    ///
    /// # Panics
    /// When there is no such host.
    pub fn resume(&mut self, host: HostId, tenant: Tenant, as_of: Nanos) -> RequestId {
        let id = self.take_number();
        self.hosts[host.0].push(Running::new(id, tenant, as_of, u64::MAX));
        id
    }

    /// A job takes no more than so many bytes a second, whatever it is given. Where it runs is
    /// reckoned anew by the next update, or [`Pcos::refresh_all`].
    ///
    /// # Panics
    /// When there is no such host.
    pub fn limit(&mut self, host: HostId, id: RequestId, bytes_per_s: u64) {
        self.hosts[host.0].limit(id, bytes_per_s);
    }

    /// Reckons all hosts anew, where jobs are taken to have moved as it was foreseen since they
    /// were told of.
    pub fn refresh_all(&mut self, now: Nanos) {
        for host in 0..self.hosts.len() {
            self.refresh(now, HostId(host));
        }
    }

    /// A request that has waited since then; those that came before it first. It is tried when
    /// something changes on a host, or by [`Pcos::retry_all`].
    pub fn resume_waiting(&mut self, arrived: Nanos, request: Request) -> RequestId {
        let waiter = self.number(arrived, request);
        self.waiting.push(waiter);
        waiter.id
    }

    /// Tries all that wait on every host.
    pub fn retry_all(&mut self, now: Nanos) {
        self.handle_timeout(now);
        self.refresh_all(now);
        for host in 0..self.hosts.len() {
            self.retry(now, HostId(host));
        }
    }

    /// Something has happened on a host. Those that wait are tried on it where the number or the
    /// classes of its jobs are others now. Jobs that it does not have are passed over, and so is a
    /// host that was removed.
    ///
    /// # Panics
    /// When there is no such host.
    pub fn update(&mut self, now: Nanos, host: HostId, update: &Update<'_>) {
        self.handle_timeout(now);
        if self.hosts[host.0].is_gone() {
            return;
        }
        let changed = self.hosts[host.0].update(now, update);
        self.refresh(now, host);
        if changed {
            self.retry(now, host);
        }
    }

    /// A request that waits is not wanted any more. Whether it waited.
    pub fn withdraw(&mut self, id: RequestId) -> bool {
        self.waiting.remove(id).is_some()
    }

    /// Discards those whose time is over: at their deadline, neither before nor after.
    pub fn handle_timeout(&mut self, now: Nanos) {
        while let Some(waiter) = self.waiting.pop_due(now) {
            self.events.push_back(Event::Discarded(waiter.id));
        }
    }

    /// When somebody is to be discarded next.
    pub fn next_timeout(&self) -> Option<Nanos> {
        self.waiting.next_due()
    }

    /// What came of those that waited, in the order it came.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// How a host stands; `None`: there is none.
    pub fn host(&self, id: HostId) -> Option<HostView<'_>> {
        let host = self.hosts.get(id.0).filter(|host| !host.is_gone())?;
        Some(HostView { id, host })
    }

    /// How all hosts stand.
    pub fn hosts(&self) -> impl Iterator<Item = HostView<'_>> {
        (0..self.hosts.len()).filter_map(|at| self.host(HostId(at)))
    }

    /// Those that wait, in the order they came: which, what, and since when.
    pub fn waiting(&self) -> impl Iterator<Item = (RequestId, Request, Nanos)> {
        let all = self.waiting.iter();
        all.map(|waiter| (waiter.id, waiter.request, waiter.arrived))
    }

    /// Why a host does not take a request just now; `None`: it does, or there is no such host.
    pub fn rejection(&mut self, now: Nanos, host: HostId, request: &Request) -> Option<Rejection> {
        self.host(host)?;
        self.refresh(now, host);
        self.hosts[host.0].admit(now, request).err()
    }

    /// The shortest deadline, no shorter than its own, with which a request would be placed at
    /// once, and where.
    pub fn nearest(&mut self, now: Nanos, request: &Request) -> Option<(HostId, Nanos)> {
        self.refresh_all(now);
        let of = |(at, host): (usize, &Host)| {
            let deadline = host.acceptance().nearest(request)?;
            Some((deadline, HostId(at)))
        };
        let nearest = self.hosts.iter().enumerate().filter_map(of).min();
        nearest.map(|(deadline, host)| (host, deadline))
    }

    fn take_number(&mut self) -> RequestId {
        self.next += 1;
        RequestId(self.next)
    }

    fn number(&mut self, arrived: Nanos, request: Request) -> Waiter {
        Waiter {
            id: self.take_number(),
            request,
            arrived,
        }
    }

    /// Of the hosts that take who needs this rate, the one with most free bandwidth.
    fn find(&mut self, now: Nanos, rate: u64) -> Option<HostId> {
        self.keep_fresh(now);
        let mut best: Option<(u64, usize)> = None;
        for (at, board) in self.boards.iter().enumerate() {
            // The first of those that are alike.
            let better = board.most >= rate && best.is_none_or(|(free, _)| board.free > free);
            if better && self.hosts[at].acceptance().takes(rate) {
                best = Some((board.free, at));
            }
        }
        best.map(|(_, at)| HostId(at))
    }

    /// Reckons again what hosts would take of which that does not hold any more.
    fn keep_fresh(&mut self, now: Nanos) {
        for at in 0..self.boards.len() {
            if self.boards[at].until < now {
                self.refresh(now, HostId(at));
            }
        }
    }

    fn refresh(&mut self, now: Nanos, host: HostId) {
        let at = &mut self.hosts[host.0];
        at.refresh(now);
        let takes = at.acceptance();
        self.boards[host.0] = Board {
            most: takes.most(),
            free: takes.free(),
            until: takes.until(),
            alone: at.alone(),
        };
    }

    /// Puts a job onto a host, if it takes it; the host is reckoned again in any case.
    fn place(&mut self, now: Nanos, host: HostId, waiter: &Waiter) -> Option<Placement> {
        let taken = self.hosts[host.0].take(now, waiter.id, &waiter.request);
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

    /// Tries those that wait on a host, the oldest first, until it takes nobody more.
    fn retry(&mut self, now: Nanos, host: HostId) {
        if self.boards[host.0].until < now {
            self.refresh(now, host);
        }
        let mut from = 0;
        loop {
            let takes = self.hosts[host.0].acceptance();
            let Some((place, &waiter)) = self.waiting.oldest(from, takes.most()) else {
                return;
            };
            from = place + 1;
            if !takes.takes(waiter.request.rate()) {
                continue;
            }
            if let Some(placement) = self.place(now, host, &waiter) {
                self.waiting.remove(waiter.id);
                self.events.push_back(Event::Placed(placement));
                // There is one more on it: older ones may be taken now.
                from = 0;
            }
        }
    }

    fn let_wait(&mut self, waiter: Waiter) -> Outcome {
        let alone = self.boards.iter().map(|board| board.alone).max();
        let alone = alone.unwrap_or(0);
        if waiter.request.rate() > alone {
            let nearest = waiter.request.deadline_at(alone);
            return Outcome::Refused(Refusal::Impossible { nearest });
        }
        let most = self.most_waiting;
        if self.waiting.len() >= most {
            return Outcome::Refused(Refusal::TooManyWait { most });
        }
        self.waiting.push(waiter);
        Outcome::Waiting
    }
}

// Hosts come, are closed and go.

impl Pcos {
    /// A host more. Those that wait are tried on it.
    pub fn add_host(&mut self, now: Nanos, spec: HostSpec) -> HostId {
        self.handle_timeout(now);
        let host = HostId(self.hosts.len());
        self.hosts.push(Host::new(spec, self.grace));
        self.boards.push(Board {
            most: 0,
            free: 0,
            until: Nanos::MAX,
            alone: 0,
        });
        self.refresh(now, host);
        self.retry(now, host);
        host
    }

    /// A host takes no more jobs until it is opened; those that run there go on. What only it would
    /// do waits.
    ///
    /// # Panics
    /// When there is no such host.
    pub fn close_host(&mut self, now: Nanos, host: HostId) {
        self.hosts[host.0].set_open(false);
        self.refresh(now, host);
    }

    /// A host that was closed takes jobs again. Those that wait are tried on it.
    ///
    /// # Panics
    /// When there is no such host.
    pub fn open_host(&mut self, now: Nanos, host: HostId) {
        self.handle_timeout(now);
        self.hosts[host.0].set_open(true);
        self.refresh(now, host);
        self.retry(now, host);
    }

    /// A host is gone, and with it the jobs that ran there: they are returned as far as they are
    /// taken to be. Whoever wants one to go on elsewhere asks for a host for what is left of it.
    /// News of the host are passed over from then on, and its number is never used again.
    ///
    /// # Panics
    /// When there is no such host.
    pub fn remove_host(&mut self, now: Nanos, host: HostId) -> Vec<Running> {
        let lost = self.hosts[host.0].leave(now);
        self.refresh(now, host);
        lost
    }
}
