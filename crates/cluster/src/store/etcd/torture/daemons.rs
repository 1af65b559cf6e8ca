//! Model of the hosts' daemons: they check placements in the model of etcd before a transfer
//! begins, confirm them after that, and look for recorded starts. The keys that they read and write
//! for it are those of [`start_checks`](crate::store::etcd::start_checks).
//!
//! ```text
//!   start of a placer --+                     +-- stands: transaction deletes the start
//!                       +--> check --> begin --> read --+
//!   recorded start -----+                     +-- has ended: cancel
//! ```
//!
//! Each arrow may take any time, and the daemon may end in between. A transaction may be carried
//! out late, twice, or without its answer.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};

use tidegate_api::cluster::PlacementClaim;
use tidegate_place::Request;
use tidegate_server::transfer::BegunPlacements;

use super::model::{Bug, Etcd, PREFIX, Random};
use crate::daemons::{DaemonError, Daemons, ServedVm, VmTransfer};
use crate::store::etcd::keyed::Compared;
use crate::store::etcd::keys::{MEMBERS, STARTS};
use crate::store::etcd::records::{KeyValue, PLACEMENTS};
use crate::store::etcd::start_checks::{Checked, Confirmation, DeleteStart, StartedPlacement};
use crate::store::etcd::starts::{StartValue, start_key};
use crate::store::etcd::value::{PlacementValue, read};

/// Outcomes of the start that a placer sends, of which the first nine are faults.
const OUTCOMES_OF_A_START: usize = 13;

/// Placement that a daemon is to start.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Placed {
    pub(super) host: String,
    pub(super) transfer: String,
    pub(super) begun_ns: u64,
}

impl Placed {
    /// Returns the placement for the checks of a daemon that has registered at a revision.
    fn started(&self, registered_at: i64) -> StartedPlacement<'_> {
        StartedPlacement {
            prefix: PREFIX,
            host: &self.host,
            vm: &self.transfer,
            begun_ns: self.begun_ns,
            registered_at,
        }
    }
}

/// Something that is under way, in the network or in a daemon.
#[derive(Clone, Debug)]
enum UnderWay {
    /// Start that is not checked yet.
    Start(Placed),
    /// Recorded start that a daemon has read at the revision of its put.
    Recorded(Placed, i64),
    /// Start whose placement stood.
    Checked(Placed),
    /// Transfer that has begun, to be confirmed.
    Begun(Placed),
    /// Transfer that has begun and whose placement stood, before the transaction that confirms it.
    Confirming(Placed, DeleteStart),
    /// Transaction whose daemon no longer waits for the answer.
    Late(Placed, DeleteStart),
}

impl UnderWay {
    /// Host in whose daemon it is under way; `None`: it is in the network.
    fn daemon(&self) -> Option<&str> {
        match self {
            UnderWay::Start(_) | UnderWay::Late(..) => None,
            UnderWay::Recorded(placed, _)
            | UnderWay::Checked(placed)
            | UnderWay::Begun(placed)
            | UnderWay::Confirming(placed, _) => Some(&placed.host),
        }
    }
}

/// Daemons of all hosts; those with a key of a member run.
pub(super) struct DaemonModel {
    etcd: Arc<Mutex<Etcd>>,
    hosts: Mutex<Hosts>,
}

struct Hosts {
    random: Random,
    under_way: Vec<UnderWay>,
    /// Placements whose transfers have begun at some time.
    begun: BTreeSet<Placed>,
    /// Placements in the daemons' stores that have begun, by host and transfer.
    stored: BTreeMap<(String, String), BegunPlacements>,
    /// Placements whose transfers run.
    running: BTreeSet<Placed>,
    /// Placements that daemons have confirmed.
    confirmed: BTreeSet<Placed>,
    /// Placements whose daemons ended between the beginning and the confirmation. Documented: if
    /// they end meanwhile, the new daemon logs it.
    interrupted: BTreeSet<Placed>,
    /// Placements whose placers were told that they are not started, by transfer and time.
    refused: BTreeSet<(String, u64)>,
    /// First violation of a property.
    violation: Option<String>,
}

impl DaemonModel {
    pub(super) fn new(etcd: &Arc<Mutex<Etcd>>, random: Random) -> DaemonModel {
        DaemonModel {
            etcd: Arc::clone(etcd),
            hosts: Mutex::new(Hosts {
                random,
                under_way: Vec::new(),
                begun: BTreeSet::new(),
                stored: BTreeMap::new(),
                running: BTreeSet::new(),
                confirmed: BTreeSet::new(),
                interrupted: BTreeSet::new(),
                refused: BTreeSet::new(),
                violation: None,
            }),
        }
    }

    fn lock(&self) -> (MutexGuard<'_, Etcd>, MutexGuard<'_, Hosts>) {
        let etcd = self.etcd.lock().expect("no panic");
        (etcd, self.hosts.lock().expect("no panic"))
    }

    /// Takes a step of something that is under way.
    pub(super) fn advance(&self) {
        let (mut etcd, mut hosts) = self.lock();
        if !hosts.under_way.is_empty() {
            let n = hosts.under_way.len();
            let at = hosts.random.below(n);
            let step = hosts.under_way.swap_remove(at);
            hosts.step(&mut etcd, step);
        }
    }

    /// Has the daemon of a host look for its recorded starts.
    pub(super) fn look(&self, host: &str) {
        let (mut etcd, mut hosts) = self.lock();
        hosts.look(&mut etcd, host);
    }

    /// Returns a host in whose daemon something is under way, if there is one.
    pub(super) fn busy_host(&self) -> Option<String> {
        let mut hosts = self.hosts.lock().expect("no panic");
        let busy = hosts.under_way.iter().filter_map(UnderWay::daemon);
        let busy: Vec<_> = busy.map(str::to_owned).collect();
        let n = busy.len();
        (n > 0).then(|| busy[hosts.random.below(n)].clone())
    }

    /// Ends the process of a host's daemon and starts another one, which looks for its recorded
    /// starts. What is in the network comes all the same.
    pub(super) fn restart(&self, host: &str) {
        let (mut etcd, mut hosts) = self.lock();
        if etcd.bug == Bug::ForgetsBegun {
            hosts.stored.retain(|(on, _), _| on != host);
        }
        let (ended, others): (Vec<_>, Vec<_>) = std::mem::take(&mut hosts.under_way)
            .into_iter()
            .partition(|it| it.daemon() == Some(host));
        hosts.under_way = others;
        for it in ended {
            match it {
                UnderWay::Begun(placed) => drop(hosts.interrupted.insert(placed)),
                UnderWay::Confirming(placed, delete) => {
                    hosts.interrupted.insert(placed.clone());
                    // The transaction was sent, or was not.
                    if hosts.random.one_in(2) {
                        hosts.under_way.push(UnderWay::Late(placed, delete));
                    }
                }
                _ => {}
            }
        }
        hosts.look(&mut etcd, host);
    }

    /// Ends everything that is under way, and has all daemons carry out what is recorded.
    pub(super) fn settle(&self, hosts_there: &[&str]) {
        let (mut etcd, mut hosts) = self.lock();
        loop {
            while let Some(step) = hosts.under_way.pop() {
                hosts.step(&mut etcd, step);
            }
            hosts_there
                .iter()
                .for_each(|host| hosts.look(&mut etcd, host));
            if hosts.under_way.is_empty() {
                return;
            }
        }
    }

    /// Checks what happened, once nothing is under way any more.
    ///
    /// # Errors
    /// The first violation.
    pub(super) fn check(&self) -> Result<(), String> {
        let (etcd, mut hosts) = self.lock();
        if let Some(violation) = hosts.violation.take() {
            return Err(violation);
        }
        // The placement of a confirmed transfer was ended by a command, without asking its daemon.
        let is_wrong = |placed: &&Placed| {
            !hosts.confirmed.contains(*placed)
                && !hosts.interrupted.contains(*placed)
                && registered_at(&etcd, &placed.host).is_some()
                && !stands(&etcd, placed)
        };
        match hosts.running.iter().find(is_wrong) {
            Some(placed) => Err(format!("{placed:?} runs without its placement")),
            None => Ok(()),
        }
    }

    /// Records that the placer of a transfer was told that it is not started.
    ///
    /// # Errors
    /// A daemon has confirmed it.
    pub(super) fn record_refused(&self, transfer: &str, begun_ns: u64) -> Result<(), String> {
        let mut hosts = self.hosts.lock().expect("no panic");
        let is_it = |placed: &&Placed| placed.transfer == transfer && placed.begun_ns == begun_ns;
        if let Some(placed) = hosts.confirmed.iter().find(is_it) {
            return Err(format!("{placed:?} runs, and {SAID_NOT_STARTED}"));
        }
        hosts.refused.insert((transfer.to_owned(), begun_ns));
        Ok(())
    }

    /// Checks that those placements have begun that were to be started, and stand.
    ///
    /// # Errors
    /// One has not, although its daemon runs and the host is not drained.
    pub(super) fn confirm_begun(&self, to_start: &BTreeSet<Placed>) -> Result<(), String> {
        let (etcd, hosts) = self.lock();
        let is_lost = |placed: &&Placed| {
            check(&etcd, placed) == Checked::Stands && !hosts.begun.contains(placed)
        };
        match to_start.iter().find(is_lost) {
            Some(placed) => Err(format!("{placed:?} never begins")),
            None => Ok(()),
        }
    }
}

/// End of the violation that a placer was told the contrary of what its daemon does.
const SAID_NOT_STARTED: &str = "its placer was told that it is not started";

impl Hosts {
    fn step(&mut self, etcd: &mut Etcd, step: UnderWay) {
        match step {
            UnderWay::Start(placed) => drop(self.handle(etcd, placed)),
            UnderWay::Recorded(placed, put_at) => self.handle_recorded(etcd, placed, put_at),
            UnderWay::Checked(placed) => self.begin(etcd, placed),
            UnderWay::Begun(placed) => self.confirm(etcd, placed),
            UnderWay::Confirming(placed, delete) => self.send_confirmation(etcd, placed, delete),
            UnderWay::Late(placed, delete) => drop(self.delete(etcd, &placed, &delete)),
        }
    }

    /// Checks the placement of a start, and begins it now or later.
    fn handle(&mut self, etcd: &mut Etcd, placed: Placed) -> Checked {
        let checked = match check(etcd, &placed) {
            Checked::Ended(_) if etcd.bug == Bug::BeginsUnchecked => Checked::Stands,
            checked => checked,
        };
        if checked == Checked::Stands {
            if self.is_slow(etcd) {
                self.under_way.push(UnderWay::Checked(placed));
            } else {
                self.begin(etcd, placed);
            }
        }
        checked
    }

    /// Carries out a recorded start, or deletes the record if its placement has ended.
    fn handle_recorded(&mut self, etcd: &mut Etcd, placed: Placed, put_at: i64) {
        if let Checked::Ended(_) = self.handle(etcd, placed.clone()) {
            let key = format!("{PREFIX}{}", start_key(&placed.host, &placed.transfer));
            let is_unchanged = Compared::Put(key.clone(), put_at);
            let delete = DeleteStart {
                compares: [is_unchanged.clone(), is_unchanged.clone(), is_unchanged],
                key,
            };
            self.send(etcd, &placed, &delete);
        }
    }

    fn begin(&mut self, etcd: &mut Etcd, placed: Placed) {
        let key = (placed.host.clone(), placed.transfer.clone());
        let stored = self.stored.entry(key).or_default();
        if !stored.contains(placed.begun_ns) {
            stored.add(placed.begun_ns);
            if !self.begun.insert(placed.clone()) {
                self.violate(format!("{placed:?} begins twice"));
            }
            self.running.insert(placed.clone());
        }
        if self.is_slow(etcd) {
            self.under_way.push(UnderWay::Begun(placed));
        } else {
            self.confirm(etcd, placed);
        }
    }

    /// Reads the placement of a transfer that has begun, and decides how it is confirmed.
    fn confirm(&mut self, etcd: &mut Etcd, placed: Placed) {
        if etcd.bug == Bug::BeginsUnchecked {
            return;
        }
        let is_away = etcd.has_faults && self.random.one_in(8);
        if is_away {
            // The confirmation is tried again until etcd answers.
            self.under_way.push(UnderWay::Begun(placed));
            return;
        }
        let confirmation = with_placement(etcd, &placed, |it, pairs| it.confirm(pairs));
        match confirmation.expect("as written") {
            Confirmation::Done(Checked::NotOurs) if !etcd.has_faults => {}
            Confirmation::Done(Checked::NotOurs) => self.under_way.push(UnderWay::Begun(placed)),
            Confirmation::Done(Checked::Stands) => self.record_confirmed(placed),
            Confirmation::Done(_) => drop(self.running.remove(&placed)),
            Confirmation::Delete(delete) => {
                if etcd.bug == Bug::ConfirmsBeforeDelete {
                    self.record_confirmed(placed.clone());
                }
                if self.is_slow(etcd) {
                    (self.under_way).push(UnderWay::Confirming(placed, delete));
                } else {
                    self.send_confirmation(etcd, placed, delete);
                }
            }
        }
    }

    /// Sends the transaction that confirms a transfer. Without an answer, or if something has
    /// changed, the placement is read again.
    fn send_confirmation(&mut self, etcd: &mut Etcd, placed: Placed, delete: DeleteStart) {
        let is_deleted = self.send(etcd, &placed, &delete);
        if etcd.bug == Bug::ConfirmsBeforeDelete {
            return;
        }
        if is_deleted {
            self.record_confirmed(placed);
        } else {
            self.under_way.push(UnderWay::Begun(placed));
        }
    }

    fn record_confirmed(&mut self, placed: Placed) {
        if (self.refused).contains(&(placed.transfer.clone(), placed.begun_ns)) {
            self.violate(format!("{placed:?} runs, and {SAID_NOT_STARTED}"));
        }
        self.confirmed.insert(placed);
    }

    /// Carries out a transaction now, late, or twice. Returns true if the daemon hears that its
    /// comparisons held.
    fn send(&mut self, etcd: &mut Etcd, placed: &Placed, delete: &DeleteStart) -> bool {
        if self.is_slow(etcd) {
            // An attempt that is given up comes after this one.
            let late = UnderWay::Late(placed.clone(), delete.clone());
            self.under_way.push(late);
            if self.is_slow(etcd) {
                return false;
            }
        }
        let is_deleted = self.delete(etcd, placed, delete);
        let is_answer_lost = etcd.has_faults && self.random.one_in(8);
        is_deleted && !is_answer_lost
    }

    /// Deletes a recorded start if the comparisons of the transaction hold.
    fn delete(&mut self, etcd: &mut Etcd, placed: &Placed, delete: &DeleteStart) -> bool {
        let holds = delete.compares.iter().all(|it| etcd.compare(it));
        if !holds && etcd.bug != Bug::DeletesAnyStart {
            return false;
        }
        if let Some(pair) = etcd.keys.get(&delete.key) {
            let value: StartValue = read_value(pair);
            let deleted = Placed {
                begun_ns: value.begun_ns,
                ..placed.clone()
            };
            if stands(etcd, &deleted) && !self.begun.contains(&deleted) {
                self.violate(format!(
                    "the start of {deleted:?} is deleted before it began"
                ));
            }
        }
        etcd.write(&[(delete.key.clone(), None)]);
        true
    }

    /// Reads the recorded starts of a host, and carries them out now or later.
    fn look(&mut self, etcd: &mut Etcd, host: &str) {
        if registered_at(etcd, host).is_none() {
            return;
        }
        let folder = format!("{PREFIX}{STARTS}{host}/");
        let pairs = etcd.pairs().into_iter();
        let recorded = pairs.filter_map(|pair| {
            let transfer = pair.key.strip_prefix(&folder)?.to_owned();
            let value: StartValue = read_value(&pair);
            let placed = Placed {
                host: host.to_owned(),
                transfer,
                begun_ns: value.begun_ns,
            };
            Some((placed, pair.version))
        });
        for (placed, put_at) in recorded.collect::<Vec<_>>() {
            if self.is_slow(etcd) {
                (self.under_way).push(UnderWay::Recorded(placed, put_at));
            } else {
                self.handle_recorded(etcd, placed, put_at);
            }
        }
    }

    /// Decides whether the next step of something comes later.
    fn is_slow(&mut self, etcd: &Etcd) -> bool {
        etcd.has_faults && self.random.one_in(3)
    }

    fn violate(&mut self, what: String) {
        self.violation.get_or_insert(what);
    }

    /// Carries out the start of a placement that a placer sends, with faults.
    fn start(&mut self, etcd: &mut Etcd, placed: Placed) -> Result<(), DaemonError> {
        let unreachable = || DaemonError::Unavailable("no connection".into());
        let unanswered = || DaemonError::Unanswered("no answer".into());
        let refused = || DaemonError::Unavailable("refused".into());
        let outcome = if etcd.has_faults {
            self.random.below(OUTCOMES_OF_A_START)
        } else {
            OUTCOMES_OF_A_START
        };
        match outcome {
            0..=1 => return Err(unreachable()),
            // The daemon finds the record before the placer knows that it cannot ask.
            2..=3 => {
                self.look(etcd, &placed.host);
                return Err(unreachable());
            }
            4 => return Err(unanswered()),
            5..=6 => {
                self.under_way.push(UnderWay::Start(placed));
                return Err(unanswered());
            }
            // For a reason of its own, such as what VMs reserve.
            7 if !self.begun.contains(&placed) => return Err(refused()),
            _ => {}
        }
        if self.handle(etcd, placed) != Checked::Stands {
            return Err(refused());
        }
        match outcome {
            8 => Err(unanswered()),
            _ => Ok(()),
        }
    }
}

impl Daemons for DaemonModel {
    fn host(&self, _: &str) -> Result<Option<String>, DaemonError> {
        Ok(None)
    }

    fn transfers(&self, _: &str) -> Result<Vec<VmTransfer>, DaemonError> {
        Ok(Vec::new())
    }

    fn vms(&self, _: &str) -> Result<Vec<ServedVm>, DaemonError> {
        Ok(Vec::new())
    }

    fn start(
        &self,
        _: Option<&str>,
        vm: &str,
        _: &Request,
        claim: Option<&PlacementClaim>,
    ) -> Result<(), DaemonError> {
        let (mut etcd, mut hosts) = self.lock();
        let Some(claim) = claim else {
            // A daemon that has never joined checks nothing.
            if etcd.has_faults && hosts.random.one_in(6) {
                return Err(DaemonError::Unavailable("no connection".into()));
            }
            return Ok(());
        };
        let placed = Placed {
            host: claim.host.clone(),
            transfer: vm.to_owned(),
            begun_ns: claim.begun_ns,
        };
        hosts.start(&mut etcd, placed)
    }
}

/// Returns the revision of etcd at which the daemon of a host has registered.
fn registered_at(etcd: &Etcd, host: &str) -> Option<i64> {
    let member = etcd.keys.get(&format!("{PREFIX}{MEMBERS}{host}"));
    member.map(|pair| pair.created)
}

/// Reads a placement as the daemon of its host does, at one revision of etcd.
fn with_placement<T>(
    etcd: &Etcd,
    placed: &Placed,
    judge: impl FnOnce(&StartedPlacement<'_>, &[KeyValue]) -> T,
) -> T {
    let placement = placed.started(registered_at(etcd, &placed.host).unwrap_or_default());
    let keys = placement.keys();
    let pairs = keys.iter().filter_map(|key| etcd.keys.get(key).cloned());
    judge(&placement, &pairs.collect::<Vec<_>>())
}

/// Checks a placement as a daemon does before the transfer begins.
fn check(etcd: &Etcd, placed: &Placed) -> Checked {
    with_placement(etcd, placed, |it, pairs| it.check(pairs)).expect("as written")
}

/// Returns whether a placement stands, whether or not the daemon of its host is registered.
fn stands(etcd: &Etcd, placed: &Placed) -> bool {
    let key = format!("{PREFIX}{PLACEMENTS}{}", placed.transfer);
    let value = etcd.keys.get(&key).and_then(|pair| pair.value.as_deref());
    value.is_some_and(|value| {
        let placement: PlacementValue = read(&key, value).expect("as written");
        let placement = placement.into_record();
        (placement.host, placement.begun.0) == (placed.host.clone(), placed.begun_ns)
    })
}

fn read_value(pair: &KeyValue) -> StartValue {
    let value = pair.value.as_deref().expect("it is there");
    read(&pair.key, value).expect("as written")
}
