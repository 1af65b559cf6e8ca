//! Workers: one for each copy of a workload, with the VM and the transfers that its requests belong
//! to.

use super::transfers::{Transfer, Transfers};
use rand_pcg::Pcg64Mcg;
use tidegate_core::time::Nanos;
use tidegate_workload::issuer::Issuer;
use tidegate_workload::source::Source;
use tidegate_workload::spec::Workload;

/// One copy of a workload.
#[derive(Clone, Debug)]
pub(super) struct Worker {
    /// VM of the worker, as an index into the device's.
    vm: u32,
    issuer: Issuer,
    /// Transfers of the worker; `None` where it has none.
    transfers: Option<Box<Transfers>>,
}

impl Worker {
    /// Worker of a VM, by the VM's index, that has not begun.
    pub(super) fn new(vm: u32, workload: &Workload, source: Source, rng: Pcg64Mcg) -> Worker {
        Worker {
            vm,
            issuer: Issuer::new(workload, source, rng),
            transfers: Transfers::of_workload(workload),
        }
    }

    /// VM of the worker, as an index into the device's.
    pub(super) fn vm(&self) -> u32 {
        self.vm
    }

    /// Issuer of the worker's requests.
    pub(super) fn issuer(&self) -> &Issuer {
        &self.issuer
    }

    /// Issuer of the worker's requests, to be driven.
    pub(super) fn issuer_mut(&mut self) -> &mut Issuer {
        &mut self.issuer
    }

    /// Transfers of the worker; `None` where it has none.
    pub(super) fn transfers(&self) -> Option<&Transfers> {
        self.transfers.as_deref()
    }

    /// Transfers of the worker, to be changed.
    pub(super) fn transfers_mut(&mut self) -> Option<&mut Transfers> {
        self.transfers.as_deref_mut()
    }

    /// Counts a request of `len` bytes that it has just issued, wanted `since`. Returns the
    /// transfer that begins with it, if one does.
    pub(super) fn issued(&mut self, since: Nanos, len: u32) -> Option<Transfer> {
        let whole = self.issuer.whole()?;
        let of_trace = (whole.index, whole.bytes);
        self.transfers.as_mut()?.issued(of_trace, since, len)
    }

    /// Counts the answer to its request in a slot. Returns the transfer that is done with it, if
    /// one is.
    pub(super) fn answered(&mut self, slot: u32, len: u32) -> Option<Transfer> {
        let over = self.issuer.is_over() && self.issuer.is_idle();
        self.transfers.as_mut()?.answered(slot, len, over)
    }
}
