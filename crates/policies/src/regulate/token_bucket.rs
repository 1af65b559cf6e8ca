//! Token bucket: limits in requests and bytes a second, for reads, writes and both together.
//!
//! Everything QEMU's throttling expresses (`bps`, `iops`, their `_rd` and `_wr`, `_max` and
//! `_max_length`, `iops_size`), on exact integers. Each limit is a [`Pacer`]:
//! a request may go while its due time is no later than now plus the burst tolerance, and then
//! moves it on by its whole cost, so a large request goes at once and is paid for afterwards.
//!
//! Without `burst` a limit is paced strictly: nothing is saved up while idle, and a late
//! dispatch is made good for `slack` (0.9 ms), or for longer where requests waited and 100 ms have
//! room for it (see [`RatePacer::spend_late`]): no 100 ms hold more than one request and 1 % above
//! the rate. With `burst` two pacers hold: the limit's own with a tolerance of burst rate x
//! length, and the burst rate's.
//!
//! Flushes pass freely and cost nothing, as in QEMU: durability must not wait for a limit.
//! Discards and zeroing count as one request without bytes, unless the device can only write
//! zeroes out.
//!
//! [`Pacer`]: tidegate_core::pace::Pacer
//! [`RatePacer::spend_late`]: tidegate_core::pace::RatePacer::spend_late

use tidegate_core::limit_accounts::LimitAccounts;
use tidegate_core::part::{Enforces, PartDescriptor, SLACK};
use tidegate_core::request::{DeviceIo, Lane, Op, ReqId, VmId};
use tidegate_core::roles::{
    Consumed, Event, Footprint, Gate, Interests, Regulator, Reopened, Stage,
};
use tidegate_core::time::Nanos;
use tidegate_core::view::{View, moved};

/// Description for the registry of policy parts.
pub(crate) static DESCRIPTOR: PartDescriptor<dyn Regulator> = PartDescriptor {
    name: "token-bucket",
    summary: "limits in requests and bytes a second, for reads and writes, with bursts",
    params: &[SLACK],
    enforces: TokenBucket::ENFORCES,
    build: |params, _| Box::new(TokenBucket::new(Nanos(params.get("slack")))),
};

/// Regulator that enforces limits.
#[derive(Debug)]
pub struct TokenBucket {
    slack: Nanos,
    accounts: LimitAccounts,
}

impl TokenBucket {
    pub(crate) const ENFORCES: Enforces = Enforces {
        limit: true,
        limit_by_direction: true,
        burst: true,
        ..Enforces::NONE
    };

    /// Creates the regulator. Late dispatches are made good for `slack`, or for longer where 100 ms
    /// have room.
    pub fn new(slack: Nanos) -> TokenBucket {
        TokenBucket {
            slack,
            accounts: LimitAccounts::default(),
        }
    }

    /// Charges an I/O that starts to its VM's limits.
    #[inline(always)]
    pub(super) fn charge(&mut self, view: &View, io: &DeviceIo) {
        if io.op == Op::Flush {
            return;
        }
        let bytes = u64::from(moved(view, io.op, io.len));
        self.accounts.charge(view.now(), io, bytes, self.slack);
    }
}

impl Regulator for TokenBucket {
    fn stage(&self) -> Stage {
        Stage::Dispatch
    }

    fn interests(&self) -> Interests {
        Interests::STARTED.union(Interests::VMS)
    }

    fn gate(&self, view: &View, unit: ReqId) -> Gate {
        let (vm, lane) = view.queued(unit).vm_lane();
        self.lane_gate(view, vm, lane)
    }

    #[inline]
    fn lane_gate(&self, view: &View, vm: VmId, lane: Lane) -> Gate {
        match self.accounts.due(vm, lane) {
            Some(due) if due > view.now() => Gate::Until(due),
            _ => Gate::Pass,
        }
    }

    fn on_event(&mut self, view: &View, event: &Event, reopen: &mut Reopened) {
        match *event {
            Event::Started(io) => self.charge(view, io),
            Event::VmAdded(vm) => self.accounts.set(view.now(), vm, view.objective(vm)),
            Event::VmChanged(vm) => {
                self.accounts.set(view.now(), vm, view.objective(vm));
                // A raised limit may let waiting requests go at once.
                reopen.push(vm);
            }
            Event::VmRemoved(vm) => self.accounts.remove(vm),
            _ => {}
        }
    }

    fn footprint(&self) -> Footprint {
        Footprint {
            vm: LimitAccounts::BYTES_PER_VM,
            ..Footprint::default()
        }
    }

    fn consumed(&self, view: &View, vm: VmId) -> Consumed {
        self.accounts.consumed(view.now(), vm)
    }

    fn adopt(&mut self, view: &View, vm: VmId, consumed: &Consumed) {
        self.accounts.adopt(view.now(), vm, consumed);
    }
}
