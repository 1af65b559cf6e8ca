//! Accounts of an engine's deadline transfers: active ones, ended ones, and the next measurement.

use super::{
    DeviceBandwidth, ForecastParams, Predictor, Transfer, TransferEnd, TransferOutcome,
    TransferSpec,
};
use std::collections::VecDeque;
use tidegate_base::device::DeviceStats;
use tidegate_base::request::VmId;
use tidegate_base::time::Nanos;

/// Ended transfers that wait for [`TransferAccounts::poll_end`]; beyond them the oldest is dropped.
/// A driver polls with every batch of events, so only one that never does loses any.
const ENDS_QUEUE_MAX: usize = 1024;
/// Divisor that gives the largest idle part of an interval in which the device counts as busy, and
/// the largest part of background I/Os among the ended ones: 1/20 each, the same 95 % as for the
/// windows in which costs are learnt.
const IDLE_SHARE_DIVISOR: u64 = 20;

/// Cumulative device times and counts; the difference of two gives the load of an interval.
#[derive(Clone, Copy, Debug)]
pub struct DeviceTime {
    /// Total time without any I/O in flight.
    idle: Nanos,
    /// Total time in which the dispatcher left the device idle on purpose.
    deliberate: Nanos,
    /// I/Os ended, those of background processes included.
    ended: u64,
    /// I/Os of background processes ended.
    background_ended: u64,
}

impl DeviceTime {
    /// Takes the totals of a device at `now`, with `deliberate` idle time up to then.
    pub fn from_stats(device: &DeviceStats, now: Nanos, deliberate: Nanos) -> DeviceTime {
        DeviceTime {
            idle: device.idle_time(now),
            deliberate,
            ended: device.ended,
            background_ended: device.background.ended,
        }
    }

    /// Returns true if VMs kept the device busy for the time `elapsed` since `then`. Deliberate
    /// idle time counts as busy, because it serves the VMs.
    fn was_busy(&self, then: &DeviceTime, elapsed: Nanos) -> bool {
        let idle = self.idle.since(then.idle);
        // `since` saturates: deliberate time may exceed the idle time where flushes were in flight.
        let idle = idle.since(self.deliberate.since(then.deliberate));
        let background = self.background_ended - then.background_ended;
        idle.0.saturating_mul(IDLE_SHARE_DIVISOR) <= elapsed.0
            && background.saturating_mul(IDLE_SHARE_DIVISOR) <= self.ended - then.ended
    }
}

/// Transfers of one engine, as described in [`crate::transfers`]. Created with the first transfer.
pub struct TransferAccounts {
    predictor: Predictor,
    ends: VecDeque<TransferEnd>,
    params: ForecastParams,
    /// Number of active transfers.
    running: usize,
    /// True if any transfer was active in the current interval.
    had_transfers: bool,
    /// True while bandwidths are measured.
    is_measuring: bool,
    /// Totals of the device at the start of the current interval.
    interval_start: DeviceTime,
}

impl TransferAccounts {
    /// Creates the accounts, with measuring off. `single_vm`: bandwidth that the device is
    /// specified to give a single VM, in bytes per second; 0: not specified.
    pub fn new(
        now: Nanos,
        single_vm: u64,
        params: ForecastParams,
        device: DeviceTime,
    ) -> TransferAccounts {
        let mut accounts = TransferAccounts {
            predictor: Predictor::new(now, DeviceBandwidth::learnt(single_vm)),
            ends: VecDeque::new(),
            params,
            running: 0,
            had_transfers: false,
            is_measuring: false,
            interval_start: device,
        };
        accounts.set_params(params);
        accounts
    }

    /// Bandwidth measurements and forecasts of all VMs with transfers.
    pub fn predictor(&self) -> &Predictor {
        &self.predictor
    }

    /// Bandwidth measurements and forecasts of all VMs with transfers, mutable.
    pub fn predictor_mut(&mut self) -> &mut Predictor {
        &mut self.predictor
    }

    /// Sets the parameters of measurements and forecasts, which depend on the policy.
    pub fn set_params(&mut self, params: ForecastParams) {
        self.params = params;
        let capacity = self.predictor.capacity_mut();
        capacity.set_given(params.max_bandwidth, params.bandwidth_loss);
    }

    /// Returns the time of the next measurement; [`Nanos::MAX`] while measuring is off.
    pub fn due(&self) -> Nanos {
        if self.is_measuring {
            self.predictor.interval_start() + self.params.interval
        } else {
            Nanos::MAX
        }
    }

    /// Returns the length of a measurement interval.
    pub fn interval(&self) -> Nanos {
        self.params.interval
    }

    /// Returns true while measuring is off, because no VM had a transfer for a whole interval.
    pub fn is_paused(&self) -> bool {
        !self.is_measuring
    }

    /// Starts measuring again. `is_quiet` returns true for a VM that moved nothing for an interval.
    pub fn wake(&mut self, now: Nanos, device: DeviceTime, is_quiet: impl Fn(usize) -> bool) {
        (self.is_measuring, self.interval_start) = (true, device);
        self.predictor.restart(now, is_quiet);
    }

    /// Begins a transfer of a VM that has none.
    pub fn begin(&mut self, now: Nanos, vm: VmId, spec: &TransferSpec) {
        let running_before = self.predictor.transfer(vm.index());
        assert!(
            running_before.is_none(),
            "a VM's transfer ends before another one of the VM begins"
        );
        let transfer = Transfer {
            bytes: spec.bytes,
            begun: now,
            deadline: spec.deadline,
            moved: 0,
        };
        self.predictor
            .begin_transfer(vm.index(), transfer, self.params.keep_bandwidth);
        self.running += 1;
        self.had_transfers = true;
        // Reserves an entry for each active transfer, so that ending one never allocates.
        let room = (self.ends.len() + self.running).min(ENDS_QUEUE_MAX);
        self.ends.reserve(room.saturating_sub(self.ends.len()));
    }

    /// Counts bytes of successful replies of a VM with a transfer. Returns true if the transfer is
    /// complete with them.
    #[inline]
    pub fn record_moved(&mut self, vm: usize, bytes: u32) -> bool {
        self.predictor.record_transfer_moved(vm, bytes.into())
    }

    /// Ends a VM's transfer and records the end; `None`: the VM has no transfer.
    pub fn end(&mut self, now: Nanos, vm: VmId, outcome: TransferOutcome) -> Option<TransferEnd> {
        let transfer = self.predictor.end_transfer(vm.index())?;
        self.running -= 1;
        let end = TransferEnd {
            vm,
            transfer,
            ended: now,
            late: now.since(transfer.due_time()),
            outcome,
        };
        // The oldest end is dropped if no caller takes them, so that memory stays bounded.
        if self.ends.len() == ENDS_QUEUE_MAX {
            self.ends.pop_front();
        }
        self.ends.push_back(end);
        Some(end)
    }

    /// Takes the oldest recorded end.
    pub fn poll_end(&mut self) -> Option<TransferEnd> {
        self.ends.pop_front()
    }

    /// Ends an interval. The caller has reported the total bytes of each VM before.
    pub fn measure(&mut self, now: Nanos, device: DeviceTime) {
        let elapsed = now.since(self.predictor.interval_start());
        // An interval that ended far too late measures a stall of the driver, not the device.
        let in_time = elapsed.0
            <= self
                .params
                .interval
                .0
                .saturating_add(self.params.interval.0 / 4);
        let busy = in_time && device.was_busy(&self.interval_start, elapsed);
        self.predictor.measure(now, busy);
        self.interval_start = device;
        // One interval more after the last transfer, whose part of it is then measured.
        self.is_measuring = core::mem::replace(&mut self.had_transfers, self.running > 0);
    }
}
