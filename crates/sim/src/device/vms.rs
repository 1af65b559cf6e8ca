//! VMs of a device with their workers, and the line of VMs whose requests were refused.

use super::vm::Vm;
use super::worker::Worker;
use crate::scenario::Tenant;
use crate::seed::generator;
use std::collections::VecDeque;
use tidegate_core::time::Nanos;
use tidegate_workload::source::Source;
use tidegate_workload::spec::Workload;

/// VMs and background processes that share a device, in the order of the scenario.
#[derive(Default)]
pub(super) struct VmTable {
    vms: Vec<Vm>,
    workers: Vec<Worker>,
    /// Workload of each worker, as an index among those of its VM.
    workloads: Vec<u32>,
    /// VMs with refused requests that may be taken now, in the order of their turns.
    line: VecDeque<u32>,
}

impl VmTable {
    /// Adds a VM that has not arrived and returns its index. `base`, `block`: first byte of its
    /// disk on the device, and the device's logical block, in bytes.
    pub(super) fn add(
        &mut self,
        seed: u64,
        (index, tenant): (usize, &Tenant),
        (base, block): (u64, u32),
    ) -> u32 {
        let vm = self.vms.len() as u32;
        let first = self.workers.len() as u32;
        for (j, workload) in tenant.workloads.iter().enumerate() {
            for copy in 0..workload.numjobs {
                let source = Source::new(workload, copy, tenant.disk_size, block);
                // Part 0 is the VM's delays, so workloads count from 1; the low half numbers the
                // copies.
                let part = (j as u64 + 1) << 32 | u64::from(copy);
                let rng = generator(seed, &tenant.name, part);
                // `Scenario::check` has placed every region on its disk.
                let source = source.expect("the scenario was checked");
                self.workers.push(Worker::new(vm, workload, source, rng));
                self.workloads.push(j as u32);
            }
        }
        let workers = first..self.workers.len() as u32;
        let mut own = self.workers[first as usize..].iter();
        let transfers = own.any(|worker| worker.transfers().is_some());
        let vm_there = Vm::new(seed, (index, tenant), base, workers, transfers);
        self.vms.push(vm_there);
        vm
    }

    /// VM of an index.
    pub(super) fn vm(&self, vm: u32) -> &Vm {
        &self.vms[vm as usize]
    }

    /// VM of an index, to be changed.
    pub(super) fn vm_mut(&mut self, vm: u32) -> &mut Vm {
        &mut self.vms[vm as usize]
    }

    /// All VMs.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Vm> {
        self.vms.iter()
    }

    /// All VMs, to be changed.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Vm> {
        self.vms.iter_mut()
    }

    /// Worker of an index.
    pub(super) fn worker(&self, worker: u32) -> &Worker {
        &self.workers[worker as usize]
    }

    /// Worker of an index, to be changed.
    pub(super) fn worker_mut(&mut self, worker: u32) -> &mut Worker {
        &mut self.workers[worker as usize]
    }

    /// All workers, each with its VM.
    pub(super) fn workers(&self) -> impl Iterator<Item = (&Worker, &Vm)> {
        let workers = self.workers.iter();
        workers.map(|worker| (worker, self.vm(worker.vm())))
    }

    /// VM of a worker.
    pub(super) fn of_worker(&self, worker: u32) -> &Vm {
        self.vm(self.worker(worker).vm())
    }

    /// VM of a worker, to be changed.
    pub(super) fn of_worker_mut(&mut self, worker: u32) -> &mut Vm {
        self.vm_mut(self.worker(worker).vm())
    }

    /// Worker of an index, to be changed, with its workload.
    pub(super) fn worker_with_workload(&mut self, worker: u32) -> (&mut Worker, &Workload) {
        let workload = self.workloads[worker as usize] as usize;
        let worker = &mut self.workers[worker as usize];
        let vm = &self.vms[worker.vm() as usize];
        (worker, &vm.details.workloads[workload])
    }

    /// Index of the VM that is this one of the scenario's tenants; `None` if it is on another
    /// device.
    pub(super) fn of_tenant(&self, tenant: usize) -> Option<u32> {
        let by_tenant = |vm: &Vm| vm.details.tenant;
        // VMs were added in the order of the scenario.
        let found = self.vms.binary_search_by_key(&tenant, by_tenant);
        found.ok().map(|vm| vm as u32)
    }

    /// True once a VM has completed its workloads.
    pub(super) fn is_over(&self, vm: u32) -> bool {
        let vm = self.vm(vm);
        vm.outstanding == 0
            && vm
                .workers
                .clone()
                .all(|worker| self.worker(worker).is_over())
    }

    /// VMs that have completed their workloads.
    pub(super) fn over(&self) -> impl Iterator<Item = &Vm> {
        let vms = 0..self.vms.len() as u32;
        vms.filter(|&vm| self.is_over(vm)).map(|vm| self.vm(vm))
    }

    /// True once every VM has completed its workloads.
    pub(super) fn are_over(&self) -> bool {
        // Requests first: the test is cheap, and mostly false.
        self.vms.iter().all(|vm| vm.outstanding == 0) && self.workers.iter().all(Worker::is_over)
    }

    /// Ends a second at `now`.
    pub(super) fn second(&mut self, now: Nanos) {
        for vm in 0..self.vms.len() as u32 {
            let over = self.is_over(vm);
            self.vm_mut(vm).second(now, over);
        }
    }

    /// Puts a VM at the end of the line, unless it is in it.
    pub(super) fn line_up(&mut self, vm: u32) {
        let it = &mut self.vms[vm as usize];
        if !it.in_line {
            it.in_line = true;
            self.line.push_back(vm);
        }
    }

    /// Removes the first VM of the line.
    pub(super) fn next_in_line(&mut self) -> Option<u32> {
        let vm = self.line.pop_front()?;
        self.vms[vm as usize].in_line = false;
        Some(vm)
    }

    /// True if no VM is in the line.
    pub(super) fn is_line_empty(&self) -> bool {
        self.line.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::{Delay, VmCpu};
    use tidegate_core::objective::Objective;

    fn table(workloads: &[Workload]) -> VmTable {
        let mut vms = VmTable::default();
        for (n, name) in ["a", "b", "c"].into_iter().enumerate() {
            let tenant = Tenant {
                name: name.to_owned(),
                device: 0,
                host: 0,
                background: false,
                objective: Objective::default(),
                disk_size: 1 << 20,
                disk_at: None,
                workloads: workloads.to_vec(),
                delay: Delay::default(),
                cpu: VmCpu::default(),
                arrives: Nanos::ZERO,
                leaves: None,
            };
            // Every second one of the scenario is on this device.
            assert_eq!(vms.add(1, (2 * n, &tenant), (0, 512)), n as u32);
        }
        vms
    }

    #[test]
    fn each_copy_of_a_workload_is_a_worker_of_its_vm() {
        let copied = |numjobs, io_size| Workload {
            numjobs,
            io_size,
            ..Workload::default()
        };
        let mut vms = table(&[copied(2, None), copied(1, Some(4096))]);
        assert_eq!(vms.vm(1).workers, 3..6);
        assert_eq!(vms.of_worker(5).details.tenant, 2);
        assert_eq!(vms.worker_with_workload(4).1.io_size, None);
        assert_eq!(vms.worker_with_workload(5).1.io_size, Some(4096));
        assert_eq!((vms.of_tenant(4), vms.of_tenant(3)), (Some(2), None));
    }

    #[test]
    fn a_vm_is_over_once_its_workers_are_and_all_is_answered() {
        let mut vms = table(&[Workload::default()]);
        vms.worker_mut(1).stop();
        vms.vm_mut(1).outstanding = 1;
        assert!(!vms.is_over(1));
        vms.vm_mut(1).outstanding = 0;
        let over: Vec<_> = vms.over().map(|vm| vm.details.tenant).collect();
        assert_eq!((over, vms.are_over()), (vec![2], false));
        [0, 2]
            .into_iter()
            .for_each(|worker| vms.worker_mut(worker).stop());
        assert!(vms.are_over());
    }

    #[test]
    fn a_vm_is_in_the_line_once() {
        let mut vms = table(&[]);
        [2, 0, 2].into_iter().for_each(|vm| vms.line_up(vm));
        assert_eq!((vms.next_in_line(), vms.next_in_line()), (Some(2), Some(0)));
        assert!(vms.is_line_empty());
        vms.line_up(2);
        assert_eq!(vms.next_in_line(), Some(2));
    }
}
