//! Interface of scheduling policies: three roles, and the events, answers and knobs between them
//! and the engine. `docs/dev/adding-a-policy.md` builds a dispatcher step by step.
//!
//! A [`Controller`] turns knobs, a [`Regulator`] bounds how much of each VM may pass, a
//! [`Dispatcher`] picks what goes next. The engine owns requests, queues and I/Os in flight, which
//! roles read through [`View`]. It changes its own state first, then tells the roles whose
//! [`Interests`] cover the event.
//!
//! A *unit* is a guest request, or several that merged, and waits in its VM's *lane* of reads or of
//! writes. It passes [`Event::Arrived`], the gate and [`Event::Admitted`] under a regulator of
//! [`Stage::Admission`], [`Dispatcher::insert`], the gate under one of [`Stage::Dispatch`],
//! [`Dispatcher::pick`], then [`Event::Started`] and [`Event::Ended`] for each of its I/Os, and
//! [`Event::Answered`] for each of its guest requests.

mod consumed;
mod peer_report;

use crate::starvation::Bound;
use crate::tuning::{Throttle, Tuning};
use crate::view::View;
pub use consumed::{Consumed, Spent};
use core::fmt;
pub use peer_report::{HostWeight, PeerGroup, PeerGroups, PeerShare};
use tidegate_base::device::{DeviceSpec, DeviceTimeUse};
use tidegate_base::learnt_state::{Blob, BlobError};
use tidegate_base::objective::Priority;
use tidegate_base::request::{DeviceIo, Done, Lane, Outcome, ReqId, VmId};
use tidegate_base::time::Nanos;
use tidegate_capacity::profile::{Access, Direction, Profile};
use tidegate_capacity::transfers::{Admission, ClassStatus, ForecastParams};

/// Memory that a role or the engine takes, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Footprint {
    /// Scheduling state of one VM.
    pub vm: usize,
    /// Objective, statistics and histograms of one VM.
    pub vm_cold: usize,
    /// One guest request, with its place in the queues and its latency account.
    pub request: usize,
}

/// Default of [`Regulator::fill`], in per cent. A part that begins inside a stripe or a physical
/// block costs the device extra work, which outweighs the I/O saved when that is less than a
/// quarter.
pub const FILL: u32 = 75;

/// Point of the request path at which a regulator holds units back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stage {
    /// Nowhere: the engine never asks the gate.
    Open,
    /// Before the dispatcher learns of a unit, one gate a VM (credits, as in policy `vbc`).
    Admission,
    /// Between the dispatcher's index and the device; one gate a lane (token buckets).
    Dispatch,
}

/// Answer of a regulator's gate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Gate {
    /// The unit may go now.
    Pass,
    /// Closed until this time; the engine then asks again.
    Until(Nanos),
    /// Closed until the regulator reopens it ([`Reopened::push`]).
    Blocked,
}

/// Answer of [`Dispatcher::pick`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pick {
    /// Start the unit now, in an I/O of at most `max` bytes and the device's largest I/O. A longer
    /// unit goes in part; a shorter one may take along waiting requests of its VM that continue it.
    Start {
        /// Unit that goes next.
        head: ReqId,
        /// Largest I/O in bytes.
        max: u32,
        /// Time since its last pick for which the dispatcher's own limit held the VM back.
        held: Nanos,
    },
    /// Leave the device with room until this time or the next event, to anticipate a request.
    Wait(Nanos),
    /// No unit may go before this time; [`Nanos::MAX`]: before the next event.
    Idle(Nanos),
}

/// Waits in which a dispatcher left the device room unused for a request that might come, since the
/// policy took effect.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Waits {
    /// Waits that began.
    pub begun: u64,
    /// Waits that ended because the expected request came.
    pub succeeded: u64,
}

/// Setting of one VM that a controller changes.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Knob {
    /// Weight among VMs, in place of the objective's.
    Weight(u32),
    /// Credits that the VM gets in each interval of the regulator.
    Credits(u32),
    /// Priority class, in place of the objective's.
    Class(Priority),
    /// Rate granted, in thousandths of a request per second: [`Knob::ALLOCATION_MIN`] to
    /// [`Knob::ALLOCATION_MAX`], or 0 for a VM left out of the allocation for now.
    Allocation(u64),
    /// Size in bytes up to which requests merge and above which they are split, within the device's
    /// own bounds; [`u32::MAX`]: as [`Regulator::merge_limit`] says. The engine applies it itself;
    /// I/Os in flight are unaffected.
    MergeLimit(u32),
    /// Pace at which the VM's I/Os may follow each other.
    Throttle(Throttle),
    /// Delay caused by other VMs up to which a throttled VM may catch up immediately; zero: none.
    /// Setting it also clears the lateness that the throttle has recorded so far.
    Lateness(Nanos),
    /// Least rate in bytes per second, whatever the objective says, for a deadline transfer; 0:
    /// none. At most [`Rate::MAX`](tidegate_base::objective::Rate::MAX).
    Floor(u64),
    /// Part of the weight of the VM's group that the group's VMs on this host have beside those on
    /// other hosts, in [`Knob::GROUP_WHOLE`]ths: 1 to all of it, with which every group begins.
    GroupPart(u32),
}

impl Knob {
    /// Whole of a group's weight.
    pub const GROUP_WHOLE: u32 = 1 << 16;
    /// Smallest allocation: one request per second.
    pub const ALLOCATION_MIN: u64 = 1_000;
    /// Largest allocation: four million requests per second, beyond any device; fits 32 bits.
    pub const ALLOCATION_MAX: u64 = 4_000_000_000;
}

/// Change that roles hear of. [`View`] already shows the state after it.
#[derive(Clone, Copy, Debug)]
pub enum Event<'a> {
    /// A guest request arrived and became a unit of its own.
    Arrived(ReqId),
    /// A guest request arrived and merged into a waiting unit, which has grown.
    Merged {
        /// Unit that grew.
        into: ReqId,
        /// Guest request that joined.
        by: ReqId,
    },
    /// A unit passed the gate of [`Stage::Admission`], where regulators of that stage charge.
    Admitted(ReqId),
    /// A waiting unit was cancelled: its connection closed or its VM was removed.
    Cancelled(ReqId),
    /// An I/O went to the device. Regulators of [`Stage::Dispatch`] charge here.
    Started(&'a DeviceIo),
    /// An I/O was in flight when this policy took effect. The policy before it was charged for it.
    Inherited(&'a DeviceIo),
    /// An I/O completed, or counts as failed since its disk hangs; no second event follows when it
    /// really completes.
    Ended {
        /// I/O that ended.
        io: &'a DeviceIo,
        /// Success or error.
        outcome: Outcome,
        /// Time from submission to the device until now.
        took: Nanos,
    },
    /// A guest request was answered.
    Answered(&'a Done),
    /// An interval of the regulator ended. Knobs set now take effect before the first unit of
    /// the next interval is admitted.
    IntervalEnded(Interval),
    /// A VM was added.
    VmAdded(VmId),
    /// A VM's objective changed.
    VmChanged(VmId),
    /// A VM was removed; its slot will be reused.
    VmRemoved(VmId),
    /// A waiting unit begins further on: its beginning went with the I/O that just started.
    Advanced(ReqId),
    /// Another host that shares the device sent a report.
    Peer {
        /// Number of the sender among the hosts.
        host: u32,
        /// Report of the sender.
        share: &'a PeerShare,
    },
    /// Another host that shares the device does not report. VMs with this sum of weights are
    /// assumed to compete on it until its next report; 0: it has withdrawn, and none competes.
    PeerSilent {
        /// Number of the host, as in [`Event::Peer`].
        host: u32,
        /// Sum of weights; finite and not negative.
        weight: f64,
    },
    /// Rule for the sum of the weights of this host's VMs beside those of other hosts.
    HostWeight(HostWeight),
    /// The device's profile was set, replaced or removed ([`View::profile`]). A policy that takes
    /// effect hears this of an existing profile before it hears of VMs.
    ProfileChanged,
    /// Learnt costs of a device without a profile became known or changed ([`View::costs`]). A
    /// policy that uses costs and takes effect later hears this of existing ones.
    CostsLearnt,
    /// A VM's deadline transfer began ([`View::predictor`]), or was under way when this policy
    /// took effect.
    TransferBegan(VmId),
    /// The transfer that just began was admitted on these terms. Admission has examined all
    /// priority classes, so no [`Event::TransfersChanged`] follows.
    TransferAdmitted {
        /// VM of the transfer.
        vm: VmId,
        /// Terms of the admission.
        terms: &'a Admission,
    },
    /// A VM's deadline transfer ended, or the VM is about to be removed.
    TransferEnded(VmId),
    /// Transfers need a new evaluation: one began or ended, or the rates of VMs were measured again
    /// ([`View::predictor`]).
    TransfersChanged,
    /// A VM's reads lack payload memory, or have some again ([`View::lacks_memory`]). The engine
    /// has closed or opened the read lane already.
    Memory(VmId),
}

/// Interval of a regulator that has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Interval {
    /// Sequence number.
    pub number: u64,
    /// Reason for its end.
    pub end: IntervalEnd,
}

/// Reason for which an interval of a regulator ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IntervalEnd {
    /// All VMs had their turn: the grants are used up, or no VM wants the rest.
    Turn,
    /// The device was idle: no request waited and no I/O was in flight.
    Idle,
    /// A VM was added or removed.
    Members,
    /// The fixed interval length has passed.
    Period,
}

/// Set of events that a role hears, one bit each. Events outside the set cost the role nothing.
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
    /// [`Event::VmAdded`], [`Event::VmChanged`] and [`Event::VmRemoved`]; for state per VM.
    pub const VMS: Interests = Interests(1 << 8);
    /// [`Event::Inherited`].
    pub const INHERITED: Interests = Interests(1 << 9);
    /// Calls of [`Regulator::on_timer`]; controllers have them in any case.
    pub const TIMERS: Interests = Interests(1 << 10);
    /// [`Event::ProfileChanged`] and [`Event::CostsLearnt`].
    pub const PROFILE: Interests = Interests(1 << 11);
    /// [`Event::Peer`], [`Event::PeerSilent`] and [`Event::HostWeight`].
    pub const PEERS: Interests = Interests(1 << 12);
    /// [`Event::Advanced`].
    pub const ADVANCED: Interests = Interests(1 << 13);
    /// [`Event::TransferBegan`], [`Event::TransferAdmitted`], [`Event::TransferEnded`] and
    /// [`Event::TransfersChanged`].
    pub const TRANSFERS: Interests = Interests(1 << 14);
    /// [`Event::Memory`].
    pub const MEMORY: Interests = Interests(1 << 15);
    /// Empty set.
    pub const NONE: Interests = Interests(0);

    /// Returns the union of two sets.
    pub const fn union(self, other: Interests) -> Interests {
        Interests(self.0 | other.0)
    }

    /// Returns `true` if the set contains any event of `other`.
    pub const fn has(self, other: Interests) -> bool {
        self.0 & other.0 != 0
    }
}

impl Event<'_> {
    /// Returns the interest that covers this event.
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
            Event::Peer { .. } | Event::PeerSilent { .. } | Event::HostWeight(_) => {
                Interests::PEERS
            }
            Event::Advanced(_) => Interests::ADVANCED,
            Event::TransferBegan(_)
            | Event::TransferAdmitted { .. }
            | Event::TransferEnded(_)
            | Event::TransfersChanged => Interests::TRANSFERS,
            Event::Memory(_) => Interests::MEMORY,
        }
    }
}

/// VMs whose gates a regulator reopened.
#[derive(Debug, Default)]
pub struct Reopened(pub(crate) Vec<VmId>);

impl Reopened {
    /// Makes the engine ask this VM's gates again.
    #[inline]
    pub fn push(&mut self, vm: VmId) {
        self.0.push(vm);
    }
}

/// Settings of a controller in one call. The engine applies the bound of device time first, then
/// the settings of VMs, the last one first.
#[derive(Debug, Default)]
pub struct Knobs {
    pub(crate) of_vms: Vec<(VmId, Knob)>,
    /// Bound of the dispatcher's device time that was set in this call.
    pub(crate) device_time: Option<Option<u64>>,
    /// True while anything was set that is not applied: one test for each event, whatever may be
    /// set.
    pub(crate) is_pending: bool,
}

impl Knobs {
    pub(crate) fn with_room(vms: usize) -> Knobs {
        Knobs {
            of_vms: Vec::with_capacity(vms),
            device_time: None,
            is_pending: false,
        }
    }

    /// Sets a knob of a VM; at most once a call for each knob, since the order is not kept.
    #[inline]
    pub fn set(&mut self, vm: VmId, knob: Knob) {
        self.of_vms.push((vm, knob));
        self.is_pending = true;
    }

    /// Bounds the dispatcher's device time ([`Dispatcher::bound_device_time`]); at most once a
    /// call.
    pub fn bound_device_time(&mut self, rate_ppm: Option<u64>) {
        self.device_time = Some(rate_ppm);
        self.is_pending = true;
    }
}

/// Bounds how much of each VM may pass: limits, credits, delay slices. Owns no queues and no order.
pub trait Regulator: Send {
    /// Returns the point at which the regulator gates. Must never change.
    fn stage(&self) -> Stage;

    /// Returns the events that the role hears. Must never change.
    fn interests(&self) -> Interests {
        Interests::NONE
    }

    /// Decides if a unit may go now: the first of its lane or, at admission, the VM's oldest. Pure:
    /// charging happens on events. By default as [`Regulator::admits`] says, with closed gates
    /// waiting for [`Reopened::push`].
    fn gate(&self, view: &View, unit: ReqId) -> Gate {
        let admitted = self.admits(view, view.queued(unit).vm_lane().0);
        if admitted { Gate::Pass } else { Gate::Blocked }
    }

    /// Decides as [`Regulator::gate`] does for the first unit of a lane, at dispatch. Override it
    /// when the unit's size does not matter: with many VMs, its slot has long left the CPU caches.
    fn lane_gate(&self, view: &View, vm: VmId, lane: Lane) -> Gate {
        match view.lane_head(vm, lane) {
            Some(head) => self.gate(view, head),
            None => Gate::Pass,
        }
    }

    /// Handles an event: charges VMs, and pushes those whose gates the engine shall ask again.
    fn on_event(&mut self, _view: &View, _event: &Event, _reopen: &mut Reopened) {}

    /// Returns `true` if a VM's next unit, were there one, would be admitted. Asked of regulators
    /// that gate at admission, after each admission and reopening. Dispatchers read the answer as
    /// [`View::may_enter`], and do not idle the device for a VM that has nothing left to spend.
    fn admits(&self, _view: &View, _vm: VmId) -> bool {
        true
    }

    /// Returns the size in bytes up to which requests merge and above which they are split, for VMs
    /// without [`Knob::MergeLimit`]. Background processes have only the device's own bounds.
    fn merge_limit(&self) -> u32 {
        u32::MAX
    }

    /// Returns the part of a VM's merge limit, in per cent, below which an I/O that goes takes
    /// along as much of the next request as fits. Whole requests always go along; none is cut where
    /// the limit is the device's own largest I/O.
    fn fill(&self) -> u32 {
        FILL
    }

    /// Applies a knob. After [`Knob::Throttle`] the engine asks the VM's gates again.
    fn set(&mut self, _view: &View, _vm: VmId, _knob: Knob) {}

    /// Returns the time of the next timer ([`Interests::TIMERS`]); [`Nanos::MAX`]: none.
    fn next_timer(&self) -> Nanos {
        Nanos::MAX
    }

    /// Runs the timer, perhaps late. Returns the interval that ended, if any; the engine calls it
    /// again while [`Regulator::next_timer`] is due.
    fn on_timer(&mut self, _view: &View, _reopen: &mut Reopened) -> Option<Interval> {
        None
    }

    /// Returns the memory that one more VM and one more request take.
    fn footprint(&self) -> Footprint {
        Footprint::default()
    }

    /// Returns the use of a VM's limit, for the policy that takes over.
    fn consumed(&self, _view: &View, _vm: VmId) -> Consumed {
        Consumed::default()
    }

    /// Takes over the use of a VM's limit from the policy before; called once, after
    /// [`Event::VmAdded`]. A limit that was not tracked starts without burst allowance.
    fn adopt(&mut self, _view: &View, _vm: VmId, _consumed: &Consumed) {}
}

/// Promises suspended because the device is slower than promised, by kind.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct SteppedDown {
    /// True if background processes are throttled to their minimum: one chunk per 500 ms.
    pub background: bool,
    /// Deadline transfers that get only their VM's share.
    pub transfers: u32,
    /// Targets that get only their VM's reservation and share.
    pub targets: u32,
    /// Latency bounds that scheduling ignores.
    pub latencies: u32,
}

/// Orders the admitted units and picks the next one. Owns an index of them, which the engine can
/// rebuild at any time by inserting them again in the order of arrival.
pub trait Dispatcher: Send {
    /// Returns the events that the role hears. Must never change.
    fn interests(&self) -> Interests {
        Interests::NONE
    }

    /// Returns `true` if the index holds lanes, not units. [`Dispatcher::insert`] then reports that
    /// a lane has a first unit, or another one, and [`Dispatcher::remove`] that it is empty. Must
    /// never change.
    fn by_lane(&self) -> bool {
        false
    }

    /// Adds a unit: admitted, or back after a merged I/O failed or its first part left. Units come
    /// in the order of arrival, except those that are back.
    fn insert(&mut self, view: &View, unit: ReqId);

    /// Removes a unit: wholly started, cancelled (already out of its lane), or about to return as
    /// smaller units. A unit merged into the picked one leaves before [`Event::Started`].
    fn remove(&mut self, view: &View, unit: ReqId);

    /// Handles a lane's gate that opened or closed. Units of a closed lane must be neither picked
    /// nor waited for.
    fn gate(&mut self, view: &View, vm: VmId, lane: Lane, open: bool);

    /// Handles an event. [`Event::Started`] precedes the `remove` of a wholly started unit.
    fn on_event(&mut self, _view: &View, _event: &Event) {}

    /// Applies a knob.
    fn set(&mut self, _view: &View, _vm: VmId, _knob: Knob) {}

    /// Returns `true` if the dispatcher serves background processes itself
    /// ([`View::is_background`]). Otherwise it never hears of them, and the engine gives them what
    /// VMs leave.
    fn serves_background(&self) -> bool {
        false
    }

    /// Returns the longest device time of a background I/O beside VMs, if these go one at a time.
    fn background_part(&self, _profile: &Profile) -> Option<Nanos> {
        None
    }

    /// Returns `true` if the unit that the dispatcher would pick was promised and is due, so that
    /// the unit is dispatched beyond the adapted queue depth. Asked only at that depth. Each `true`
    /// lengthens the queue, so promises beyond the device's ability must get `false`.
    fn is_due_beyond_depth(&mut self, _view: &View) -> bool {
        false
    }

    /// Returns `true` if it uses request costs, which are then learnt for a device without a
    /// profile ([`View::estimator`]). Must never change.
    fn uses_costs(&self) -> bool {
        false
    }

    /// Returns the access pattern by whose cost it charged the I/O of this direction that it was
    /// told of last ([`Event::Started`]), so that costs are learnt for what they are charged for;
    /// `None`: it does not charge by access pattern.
    fn charged_access(&self, _direction: Direction) -> Option<Access> {
        None
    }

    /// Returns the bound on passing over a waiting VM whose gate is open, on this device and with
    /// its profile, if any. The torture test checks the bound.
    fn starvation(&self, device: &DeviceSpec, profile: Option<&Profile>) -> Bound;

    /// Returns `true` if the dispatcher, for a limit or depth of its own, may hold back a VM whose
    /// gate is open while the device has room.
    fn may_hold(&self) -> bool {
        false
    }

    /// Returns its own bound on I/Os in flight, below the device's depth. Must never change.
    fn depth(&self) -> u32 {
        u32::MAX
    }

    /// Chooses the next unit, as the device has room. The unit stays in the index until `remove`.
    fn pick(&mut self, view: &View) -> Pick;

    /// Returns the anticipatory waits so far; `None`: it never anticipates.
    fn waits(&self) -> Option<Waits> {
        None
    }

    /// Bounds the device time of I/Os that no promise makes due, in millionths of the device's time
    /// by its costs; `None`: unbounded. Time of promised I/Os counts as used. Without effect on a
    /// dispatcher that was not built for a shared device ([`Capacity::shared`]).
    ///
    /// [`Capacity::shared`]: crate::part::Capacity::shared
    fn bound_device_time(&mut self, _view: &View, _rate_ppm: Option<u64>) {}

    /// Returns the use of the bound on its device time; `None`: it has none on this device.
    fn device_time_use(&self, _view: &View) -> Option<DeviceTimeUse> {
        None
    }

    /// Returns the promises suspended now because the device is slower than promised.
    fn stepped_down(&self) -> SteppedDown {
        SteppedDown::default()
    }

    /// Returns the rate in bytes a second that writes without a promise are held to for the sake of
    /// promised requests; `None`: they are not.
    fn write_pace(&self) -> Option<u64> {
        None
    }

    /// Returns the memory that one more VM and one more request take.
    fn footprint(&self) -> Footprint {
        Footprint::default()
    }

    /// Returns the use of a VM's limit, if it enforces one, for the policy that takes over.
    fn consumed(&self, _view: &View, _vm: VmId) -> Consumed {
        Consumed::default()
    }

    /// Takes over the use of a VM's limit, as [`Regulator::adopt`] does.
    fn adopt(&mut self, _view: &View, _vm: VmId, _consumed: &Consumed) {}
}

/// Turns knobs on events and timers, from observed statistics. May use floating point, since it
/// never decides which unit goes next.
pub trait Controller: Send {
    /// Returns the events that the role hears. Must never change.
    fn interests(&self) -> Interests;

    /// Handles an event; knobs in `out` are applied right after it.
    fn on_event(&mut self, view: &View, event: &Event, out: &mut Knobs);

    /// Returns `false` if the controller never sets a timer, so that it need not be asked for the
    /// next one. Must never change.
    fn has_timer(&self) -> bool {
        true
    }

    /// Returns the time of the next timer; [`Nanos::MAX`]: none.
    fn next_timer(&self) -> Nanos;

    /// Runs the timer; knobs in `out` are applied right after it.
    fn on_timer(&mut self, view: &View, out: &mut Knobs);

    /// Returns `true` if it sets [`Knob::Allocation`] for every VM, background processes apart,
    /// inside [`Event::VmAdded`] and at any later time. Must never change.
    fn allocates(&self) -> bool {
        false
    }

    /// Returns `true` if it uses request costs, which are then learnt for a device without a
    /// profile ([`View::estimator`]). Must never change.
    fn uses_costs(&self) -> bool {
        false
    }

    /// Returns the parameters of the forecasts of deadline transfers. Must never change.
    fn forecast_params(&self) -> ForecastParams {
        ForecastParams::default()
    }

    /// Returns the class that the controller has given a VM to meet deadlines of transfers; `None`
    /// if it changes no classes.
    fn class_status(&self, _vm: VmId) -> Option<ClassStatus> {
        None
    }

    /// Returns the tuning of a VM; `None`: it is not tuned.
    fn tuning(&self, _view: &View, _vm: VmId) -> Option<Tuning> {
        None
    }

    /// Takes the report to the other hosts that share the device, if one is due since the last
    /// call. For controllers that hear [`Event::Peer`].
    fn poll_share(&mut self) -> Option<PeerShare> {
        None
    }

    /// Returns learnt state of a VM to persist beyond the engine's life; `None`: none.
    fn export(&self, _view: &View, _vm: VmId) -> Option<Blob> {
        None
    }

    /// Restores state that a controller of the same name exported, perhaps in another engine.
    /// Called for some or all VMs once all are added; then comes [`Controller::imported`].
    ///
    /// # Errors
    /// Returns an error, and changes nothing, if the state has another origin or no longer fits the
    /// VM.
    fn import(&mut self, _view: &View, _vm: VmId, _learnt: &Blob) -> Result<(), BlobError> {
        Err(BlobError::Unwanted("the controller learns nothing"))
    }

    /// Restores state as [`Controller::import`] does for a VM whose disks have moved. State of the
    /// disks is learnt anew, state of the VM is kept; by default everything is kept.
    ///
    /// # Errors
    /// Fails as [`Controller::import`] does.
    fn import_moved(&mut self, view: &View, vm: VmId, learnt: &Blob) -> Result<(), BlobError> {
        self.import(view, vm, learnt)
    }

    /// Ends the restore after the last [`Controller::import`]; may turn knobs for it.
    fn imported(&mut self, _view: &View, _out: &mut Knobs) {}
}

/// Roles of one policy, ready to work.
pub struct Roles {
    /// Turns knobs; `None` in most policies.
    pub controller: Option<Box<dyn Controller>>,
    /// Bounds how much of each VM may pass.
    pub regulator: Box<dyn Regulator>,
    /// Picks what goes next.
    pub dispatcher: Box<dyn Dispatcher>,
}

impl fmt::Debug for Roles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Roles").finish_non_exhaustive()
    }
}
