//! The three roles every scheduler here is composed of, and the words they speak.
//!
//! The engine owns requests, queues and what is in flight ([`Facts`]). It changes its own
//! state first, then tells the roles that asked to hear of it ([`Interests`]).

use crate::facts::Facts;
use crate::starvation::Bound;
use crate::tuning::{Throttle, Tuning};
use core::fmt;
use tidegate_base::device::DeviceSpec;
use tidegate_base::learnt::{Blob, BlobError};
use tidegate_base::objective::{Group, Priority};
use tidegate_base::request::{DeviceIo, Done, Lane, Outcome, ReqId, VmId};
use tidegate_base::time::Nanos;
use tidegate_capacity::jobs::{Admission, JobTerms, Standing};
use tidegate_capacity::profile::Profile;

/// Memory in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Footprint {
    /// Scheduling state a VM.
    pub vm: usize,
    /// Objective, statistics and histograms a VM.
    pub vm_cold: usize,
    /// A guest request, with its place in the queues and its account.
    pub request: usize,
}

/// What [`Regulator::fill`] is unless it is said: a part that begins within a stripe or a block of
/// the medium's own costs the device more than the I/O that it saves, where it saves less than a
/// quarter.
pub const FILL: u32 = 75;

/// Where a regulator holds requests back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stage {
    /// It holds nothing back; its gate is never asked.
    Open,
    /// Before the dispatcher knows of them (credits: VBC, CIRC).
    Admission,
    /// Between the dispatcher's index and the device, a lane at a time (token bucket, delay
    /// slice).
    Dispatch,
}

/// A regulator's answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Gate {
    /// The unit may go.
    Pass,
    /// Not before this time; the engine asks again then.
    Until(Nanos),
    /// Not until the regulator reopens it.
    Blocked,
}

/// A dispatcher's answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pick {
    /// This unit goes next, in an I/O of at most `max` bytes (the engine also keeps to the device's
    /// largest I/O): a part of it, or with it what continues it of its VM. `held`: how long the
    /// dispatcher itself held this VM back for its limit since its last pick, for the account.
    Start {
        /// The unit.
        head: ReqId,
        /// Bytes at most.
        max: u32,
        /// For the account.
        held: Nanos,
    },
    /// Something could go, and is left waiting on purpose until this time or the next event.
    Wait(Nanos),
    /// Nothing may go before this time ([`Nanos::MAX`]: before the next event).
    Idle(Nanos),
}

/// How often a dispatcher left the device waiting for a request that might come, since its
/// policy took over.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Waits {
    /// Waits begun.
    pub begun: u64,
    /// Those that such a request ended.
    pub succeeded: u64,
}

/// What a controller turns.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Knob {
    /// Weight among VMs.
    Weight(u32),
    /// Credits an interval.
    Credits(u32),
    /// Class of priority, in place of the objective's.
    Class(Priority),
    /// Rate granted, in thousandths of a request a second: from [`Knob::LEAST_ALLOCATION`] to
    /// [`Knob::MOST_ALLOCATION`]; or 0, for a VM that is counted out for now.
    Allocation(u64),
    /// Merge at most to, and split above, this many bytes, within the device's own bounds;
    /// [`u32::MAX`]: as the regulator has it for all ([`Regulator::merge_limit`]). The engine
    /// itself keeps it; what is in flight stays as it is.
    MergeLimit(u32),
    /// How fast its I/Os may follow each other.
    Throttle(Throttle),
    /// A throttle that makes good late slots begins anew, with none late; and from now on those
    /// that are regularly late because others have their turn first go at once, by up to so long.
    /// Zero: none, as without this knob.
    Lateness(Nanos),
    /// Bytes a second that the VM is to have whatever its objective says, for a deadline transfer;
    /// 0: no more than that. At most [`Rate::MAX`](tidegate_base::objective::Rate::MAX).
    Floor(u64),
}

impl Knob {
    /// One request a second.
    pub const LEAST_ALLOCATION: u64 = 1_000;
    /// Four million requests a second: more than devices do, and below 2^32.
    pub const MOST_ALLOCATION: u64 = 4_000_000_000;
}

/// What happened. The engine's own state already shows it.
#[derive(Clone, Copy, Debug)]
pub enum Event<'a> {
    /// A guest request came and became a unit.
    Arrived(ReqId),
    /// A guest request came and joined a waiting unit, which has grown.
    Merged {
        /// The unit.
        into: ReqId,
        /// The guest request.
        by: ReqId,
    },
    /// A unit was admitted (regulators that gate at admission charge here).
    Admitted(ReqId),
    /// A waiting unit was taken back: its client vanished or its VM was removed.
    Cancelled(ReqId),
    /// An I/O went to the device (regulators that gate at dispatch charge here).
    Started(&'a DeviceIo),
    /// An I/O that was already in flight when this policy took over. Its cost is spent.
    Inherited(&'a DeviceIo),
    /// An I/O came back; or its disk hangs, so that it does not count any more: then with an error,
    /// and when it truly ends no role is told.
    Ended {
        /// The I/O.
        io: &'a DeviceIo,
        /// How.
        outcome: Outcome,
        /// Its time with the device.
        took: Nanos,
    },
    /// A guest request was finished.
    Answered(&'a Done),
    /// The regulator's interval ended. What the controller turns now is in force before the
    /// first unit of the next one is let in.
    IntervalEnded(Interval),
    /// A VM came.
    VmAdded(VmId),
    /// Its objective changed.
    VmChanged(VmId),
    /// It is gone; its slot will be used again.
    VmRemoved(VmId),
    /// A waiting unit begins further on: what was its beginning goes with the I/O that just started
    /// before it.
    Advanced(ReqId),
    /// Another host that shares the device says how it is.
    Peer {
        /// Its number among them.
        host: u32,
        /// What it says.
        share: &'a PeerShare,
    },
    /// There is a profile of the device, or another one, or none any more ([`Facts::profile`]);
    /// also when this policy takes over with one there, before it hears of VMs.
    ProfileChanged,
    /// Costs were learnt ([`Facts::costs`]), or other ones than before, of a device without a
    /// profile; also when a policy takes over that reckons with costs and some were learnt.
    CostsLearnt,
    /// A VM's job begins ([`Facts::predictor`]); or has begun before, when this policy takes over.
    JobBegan(VmId),
    /// The job that has just begun was let in on these terms. Whoever did that has looked at all
    /// classes, so no [`Event::JobsChanged`] follows.
    JobAdmitted {
        /// Whose.
        vm: VmId,
        /// Which.
        terms: &'a Admission,
    },
    /// It is over, or the VM about to leave.
    JobEnded(VmId),
    /// Jobs are to be looked at: one has begun or ended, or what VMs have was measured anew
    /// ([`Facts::predictor`]).
    JobsChanged,
    /// A VM's reads lack payload memory, or have some again ([`Facts::lacks_memory`]). Its lane has
    /// been closed or opened before.
    Memory(VmId),
}

/// What a host tells the others that share its device, once a period.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct PeerShare {
    /// Rising: a message that a later one has overtaken is told by it.
    pub number: u64,
    /// What its VMs that compete weigh together; 0: none does.
    pub weight: f64,
    /// The sum of their weights, each by the part of its throughput that it loses by blending.
    pub lost: f64,
    /// Requests that it has let in and that are not done: its latency by Little's law, with
    /// `ended`.
    pub inside: f64,
    /// The same in the mean over the period, where `inside` is what it was at its end.
    pub mean_inside: f64,
    /// Requests that ended, a second.
    pub ended: f64,
    /// Requests that it let in, a second.
    pub admitted: f64,
    /// Somebody's credits ran out.
    pub ran_out: bool,
    /// What its saturation rates are multiplied by.
    pub scale: f64,
    /// The groups that its VMs that compete are of.
    pub groups: PeerGroups,
}

/// Part of a group of VMs, as a host tells the others that share its device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PeerGroup {
    /// The group, with the weight that this host's VMs name.
    pub group: Group,
    /// What those of its VMs on this host that compete weigh by themselves, together.
    pub competing: u64,
}

/// Some groups, [`PeerGroups::MOST`] at most.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PeerGroups([Option<PeerGroup>; PeerGroups::MOST]);

impl PeerGroups {
    /// So many groups fit a message.
    pub const MOST: usize = 16;

    /// One more; past [`PeerGroups::MOST`] it is left out.
    pub fn push(&mut self, group: PeerGroup) {
        if let Some(room) = self.0.iter_mut().find(|room| room.is_none()) {
            *room = Some(group);
        }
    }

    /// All of them, in the order in which they came.
    pub fn iter(&self) -> impl Iterator<Item = &PeerGroup> {
        self.0.iter().flatten()
    }
}

/// An interval of a regulator, when it has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Interval {
    /// They are numbered as they come.
    pub number: u64,
    /// Why it ended.
    pub end: IntervalEnd,
}

/// Why a regulator's interval ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IntervalEnd {
    /// Everybody had its turn: what was granted is used up, or nobody wants the rest.
    Turn,
    /// Nobody wanted anything: nothing waited, nothing was in flight.
    Idle,
    /// A VM came or went.
    Members,
    /// Its time is over: intervals of this regulator are as long as one another.
    Period,
}

/// Which events a role hears, as a set of bits. The others cost it nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Interests(pub u16);

impl Interests {
    /// [`Event::Arrived`].
    pub const ARRIVED: Interests = Interests(1);
    /// [`Event::Merged`].
    pub const MERGED: Interests = Interests(1 << 1);
    /// [`Event::Admitted`].
    pub const ADMITTED: Interests = Interests(1 << 2);
    /// [`Event::Cancelled`].
    pub const CANCELLED: Interests = Interests(1 << 3);
    /// [`Event::Started`].
    pub const STARTED: Interests = Interests(1 << 4);
    /// [`Event::Ended`].
    pub const ENDED: Interests = Interests(1 << 5);
    /// [`Event::Answered`].
    pub const ANSWERED: Interests = Interests(1 << 6);
    /// [`Event::IntervalEnded`].
    pub const INTERVALS: Interests = Interests(1 << 7);
    /// VMs coming, changing, going: every role with a state per VM needs these.
    pub const VMS: Interests = Interests(1 << 8);
    /// [`Event::Inherited`].
    pub const INHERITED: Interests = Interests(1 << 9);
    /// The role has timers of its own.
    pub const TIMERS: Interests = Interests(1 << 10);
    /// [`Event::ProfileChanged`] and [`Event::CostsLearnt`].
    pub const PROFILE: Interests = Interests(1 << 11);
    /// [`Event::Peer`].
    pub const PEERS: Interests = Interests(1 << 12);
    /// [`Event::Advanced`].
    pub const ADVANCED: Interests = Interests(1 << 13);
    /// [`Event::JobBegan`], [`Event::JobAdmitted`], [`Event::JobEnded`] and [`Event::JobsChanged`].
    pub const JOBS: Interests = Interests(1 << 14);
    /// [`Event::Memory`].
    pub const MEMORY: Interests = Interests(1 << 15);
    /// Nothing.
    pub const NONE: Interests = Interests(0);

    /// Both sets.
    pub const fn and(self, other: Interests) -> Interests {
        Interests(self.0 | other.0)
    }

    /// Whether any of `other` is in it.
    pub const fn has(self, other: Interests) -> bool {
        self.0 & other.0 != 0
    }
}

impl Event<'_> {
    /// The interest that covers this event.
    pub const fn interest(&self) -> Interests {
        match self {
            Event::Arrived(_) => Interests::ARRIVED,
            Event::Merged { .. } => Interests::MERGED,
            Event::Admitted(_) => Interests::ADMITTED,
            Event::Cancelled(_) => Interests::CANCELLED,
            Event::Started(_) => Interests::STARTED,
            Event::Inherited(_) => Interests::INHERITED,
            Event::Ended { .. } => Interests::ENDED,
            Event::Answered(_) => Interests::ANSWERED,
            Event::IntervalEnded(_) => Interests::INTERVALS,
            Event::VmAdded(_) | Event::VmChanged(_) | Event::VmRemoved(_) => Interests::VMS,
            Event::ProfileChanged | Event::CostsLearnt => Interests::PROFILE,
            Event::Peer { .. } => Interests::PEERS,
            Event::Advanced(_) => Interests::ADVANCED,
            Event::JobBegan(_)
            | Event::JobAdmitted { .. }
            | Event::JobEnded(_)
            | Event::JobsChanged => Interests::JOBS,
            Event::Memory(_) => Interests::MEMORY,
        }
    }
}

/// How far a VM's limit is used up, handed from one policy to the next so that a swap never
/// buys a burst: requests and bytes, for the total, reads and writes. `None`: not tracked.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Consumed(pub [[Option<Spent>; 2]; 3]);

/// How far one limit is used up.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Spent {
    /// How long from now until anything may go again.
    pub owed: Nanos,
    /// What is still saved up for a burst, as the time the limit takes to save it. `None`:
    /// not tracked, so nothing.
    pub saved: Option<Nanos>,
    /// How long from now until the burst's own rate lets anything go again.
    pub burst_owed: Nanos,
}

impl Consumed {
    /// Where this one does not track a limit, the other may.
    pub fn or(self, other: Consumed) -> Consumed {
        let mut all = self.0;
        for (mine, theirs) in all.iter_mut().flatten().zip(other.0.iter().flatten()) {
            *mine = mine.or(*theirs);
        }
        Consumed(all)
    }

    /// The debts alone: nobody counted what might have been saved up.
    pub(crate) fn debts(mut self) -> Consumed {
        for spent in self.0.iter_mut().flatten().flatten() {
            spent.saved = None;
        }
        self
    }
}

/// VMs whose gate a regulator reopened.
#[derive(Debug, Default)]
pub struct Reopened(pub(crate) Vec<VmId>);

impl Reopened {
    /// The engine shall ask this VM's gate again.
    pub fn push(&mut self, vm: VmId) {
        self.0.push(vm);
    }
}

/// Knobs a controller turned.
#[derive(Debug, Default)]
pub struct Knobs(pub(crate) Vec<(VmId, Knob)>);

impl Knobs {
    /// Turns one.
    pub fn turn(&mut self, vm: VmId, knob: Knob) {
        self.0.push((vm, knob));
    }
}

/// How much of each VM may pass? Owns credits or tokens, nothing else.
pub trait Regulator: Send {
    /// Where it gates. Must never change.
    fn stage(&self) -> Stage;

    /// Which events it hears.
    fn interests(&self) -> Interests {
        Interests::NONE
    }

    /// May this unit, the first of its lane, go? Pure: charging happens on events. Unless a
    /// regulator says otherwise, as [`Regulator::admits`] has it, and if not, not until it reopens
    /// the gate.
    fn gate(&self, facts: &Facts, unit: ReqId) -> Gate {
        match self.admits(facts, facts.queued(unit).vm_lane().0) {
            true => Gate::Pass,
            false => Gate::Blocked,
        }
    }

    /// The same of the first unit of a lane, asked at dispatch. A regulator that need not look
    /// at the unit answers without: with many VMs its memory has long left the caches.
    fn lane_gate(&self, facts: &Facts, vm: VmId, lane: Lane) -> Gate {
        match facts.lane_head(vm, lane) {
            Some(head) => self.gate(facts, head),
            None => Gate::Pass,
        }
    }

    /// Charges, and learns of VMs.
    fn on_event(&mut self, _facts: &Facts, _event: &Event, _reopen: &mut Reopened) {}

    /// Whether a VM's next unit would be let in, were there one; only asked of those that gate
    /// at admission, after each unit let in and each reopening. Dispatchers read it as
    /// [`Facts::may_enter`]: nobody waits for a VM that has nothing left to spend.
    fn admits(&self, _facts: &Facts, _vm: VmId) -> bool {
        true
    }

    /// How far a VM's requests are merged, and above how many bytes they are split, as long as no
    /// controller says so ([`Knob::MergeLimit`]); for background tenants only the device's own
    /// bounds hold.
    fn merge_limit(&self) -> u32 {
        u32::MAX
    }

    /// In per cent of a VM's merge limit: an I/O that is shorter when it goes takes as much of the
    /// next request along as fits. Whole requests go along in any case, and where the device's own
    /// bounds hold, none is cut.
    fn fill(&self) -> u32 {
        FILL
    }

    /// A controller's knob. After [`Knob::Throttle`] the VM's gates are asked again.
    fn set(&mut self, _facts: &Facts, _vm: VmId, _knob: Knob) {}

    /// When it wants to be woken (with [`Interests::TIMERS`]).
    fn next_timer(&self) -> Nanos {
        Nanos::MAX
    }

    /// It is that time, or later. Returns the interval that ended, if one did; then it is asked
    /// again for as long as [`Regulator::next_timer`] is due.
    fn on_timer(&mut self, _facts: &Facts, _reopen: &mut Reopened) -> Option<Interval> {
        None
    }

    /// What one more VM and one more request take in it.
    fn footprint(&self) -> Footprint {
        Footprint::default()
    }

    /// How far a VM's limit is used up.
    fn consumed(&self, _facts: &Facts, _vm: VmId) -> Consumed {
        Consumed::default()
    }

    /// Takes over what another policy's limit had used; called once after `VmAdded`. What is
    /// not tracked there counts as used: no burst.
    fn adopt(&mut self, _facts: &Facts, _vm: VmId, _consumed: &Consumed) {}
}

/// Promises that have given way on a device that is slower than promised, by kind.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct SteppedDown {
    /// True if background processes have their least rate.
    pub background: bool,
    /// Number of deadline transfers that have their VM's share alone.
    pub transfers: u32,
    /// Number of targets that have their VM's reservation and share.
    pub targets: u32,
    /// Number of latency bounds that are not scheduled by.
    pub latencies: u32,
}

/// Which of the admitted units goes to the device next? Owns an index of them, which the
/// engine can rebuild at any time by inserting all of them again in the order of arrival.
pub trait Dispatcher: Send {
    /// Which events it hears.
    fn interests(&self) -> Interests {
        Interests::NONE
    }

    /// True where VMs compete and their units do not: then [`Dispatcher::insert`] need only say
    /// that a lane has got a first unit (or another one), and [`Dispatcher::remove`] that it has
    /// none left. Must never change.
    fn by_lane(&self) -> bool {
        false
    }

    /// A unit was admitted, or comes again after it failed in company or its first part left.
    /// Units come in the order of arrival except for those.
    fn insert(&mut self, facts: &Facts, unit: ReqId);

    /// A unit leaves the index: wholly started or cancelled (then it is out of its lane already),
    /// or about to come again in smaller units. One that goes with the unit that was picked leaves
    /// before `Started`.
    fn remove(&mut self, facts: &Facts, unit: ReqId);

    /// A lane's gate opened or shut. Units of a shut lane must not be picked, and must not be
    /// waited for.
    fn gate(&mut self, facts: &Facts, vm: VmId, lane: Lane, open: bool);

    /// What happened. `Started` comes before the `remove` of a unit that was wholly started.
    fn on_event(&mut self, _facts: &Facts, _event: &Event) {}

    /// A controller's knob.
    fn set(&mut self, _facts: &Facts, _vm: VmId, _knob: Knob) {}

    /// Whether it serves background tenants itself ([`Facts::is_background`]). Where not, it
    /// never hears of them, and the engine gives them what the VMs leave.
    fn serves_background(&self) -> bool {
        false
    }

    /// Returns whether what it would pick now was promised and is due, so that it goes although as
    /// many I/Os are in flight as the load needs. Asked only where that is so, and answered `true`
    /// for no more than the device can do: each one lengthens the queue.
    fn is_due_beyond_depth(&mut self, _facts: &Facts) -> bool {
        false
    }

    /// Returns true if it uses what requests cost of the device; costs are then learnt where there
    /// is no profile ([`Facts::estimator`]). Must never change.
    fn reckons_with_costs(&self) -> bool {
        false
    }

    /// How long it may pass over a VM that waits with its gate open, on such a device, with such a
    /// profile of it if there is one. Torture holds it to that.
    fn starvation(&self, device: &DeviceSpec, profile: Option<&Profile>) -> Bound;

    /// Whether it may leave a VM waiting whose gate is open while the device has room, for a limit
    /// or a depth that it keeps itself.
    fn may_hold(&self) -> bool {
        false
    }

    /// I/Os with the device at most, by a depth that it keeps itself, whatever more the device
    /// takes. Must never change.
    fn depth(&self) -> u32 {
        u32::MAX
    }

    /// The device has room: what goes next? The unit stays in the index until `remove`.
    fn pick(&mut self, facts: &Facts) -> Pick;

    /// Waits on purpose so far, where it waits for something that may or may not come.
    fn waits(&self) -> Option<Waits> {
        None
    }

    /// Returns the promises that are not scheduled by at present, because the device is slower than
    /// promised.
    fn stepped_down(&self) -> SteppedDown {
        SteppedDown::default()
    }

    /// What one more VM and one more request take in it.
    fn footprint(&self) -> Footprint {
        Footprint::default()
    }

    /// How far a VM's limit is used up.
    fn consumed(&self, _facts: &Facts, _vm: VmId) -> Consumed {
        Consumed::default()
    }

    /// See [`Regulator::adopt`].
    fn adopt(&mut self, _facts: &Facts, _vm: VmId, _consumed: &Consumed) {}
}

/// What should the knobs be? Acts on events and timers, from observed statistics; may compute
/// in floating point, for it never decides who goes next.
pub trait Controller: Send {
    /// Which events it hears.
    fn interests(&self) -> Interests;

    /// What happened.
    fn on_event(&mut self, facts: &Facts, event: &Event, out: &mut Knobs);

    /// When it wants to be woken.
    fn next_timer(&self) -> Nanos;

    /// It is that time.
    fn on_timer(&mut self, facts: &Facts, out: &mut Knobs);

    /// Whether it turns [`Knob::Allocation`]: for every VM, background tenants apart, inside
    /// [`Event::VmAdded`] and whenever it sees fit. Must never change.
    fn allocates(&self) -> bool {
        false
    }

    /// Whether it reckons with what requests cost of the device, which is learnt then where there
    /// is no profile ([`Facts::estimator`]). Must never change.
    fn reckons_with_costs(&self) -> bool {
        false
    }

    /// How jobs are measured while it is in force. Must never change.
    fn job_terms(&self) -> JobTerms {
        JobTerms::default()
    }

    /// How a VM stands just now, where it turns classes so that jobs end in time; `None`: it does
    /// not.
    fn standing(&self, _vm: VmId) -> Option<Standing> {
        None
    }

    /// How it tunes a VM just now; `None`: it does not.
    fn tuning(&self, _facts: &Facts, _vm: VmId) -> Option<Tuning> {
        None
    }

    /// What the other hosts that share the device are to be told, since it was asked last; for
    /// those that hear of [`Event::Peer`].
    fn poll_share(&mut self) -> Option<PeerShare> {
        None
    }

    /// What it has learnt of a VM that is worth keeping beyond the engine's life; `None`: nothing.
    fn export(&self, _facts: &Facts, _vm: VmId) -> Option<Blob> {
        None
    }

    /// Takes over what a part of its name exported of a VM, in another engine maybe. Comes for
    /// some of the VMs or all of them, when all are there; then [`Controller::imported`].
    ///
    /// # Errors
    /// When it is not its own, or does not fit the VM any more. Then nothing has changed.
    fn import(&mut self, _facts: &Facts, _vm: VmId, _learnt: &Blob) -> Result<(), BlobError> {
        Err(BlobError::Unwanted("the controller learns nothing"))
    }

    /// The same of a VM whose disks lie elsewhere now: what was learnt of them is found out anew,
    /// and what was learnt of the VM is taken over. Unless a controller says otherwise, that is all
    /// of it.
    ///
    /// # Errors
    /// As [`Controller::import`].
    fn import_moved(&mut self, facts: &Facts, vm: VmId, learnt: &Blob) -> Result<(), BlobError> {
        self.import(facts, vm, learnt)
    }

    /// All that there is to import has been: knobs may be turned for it.
    fn imported(&mut self, _facts: &Facts, _out: &mut Knobs) {}
}

/// The parts of a composition, ready to work.
pub struct Roles {
    /// Turns knobs; most compositions have none.
    pub controller: Option<Box<dyn Controller>>,
    /// Says how much of each VM may pass.
    pub regulator: Box<dyn Regulator>,
    /// Says which of that goes next.
    pub dispatcher: Box<dyn Dispatcher>,
}

impl fmt::Debug for Roles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Roles").finish_non_exhaustive()
    }
}
