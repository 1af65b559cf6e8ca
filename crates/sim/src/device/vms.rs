//! VMs of a device with their workers, and the queue of VMs whose refused requests are retried.

use super::vm::Vm;
use super::worker::Worker;
use crate::scenario::VmSpec;
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
    retry_queue: VecDeque<u32>,
}

impl VmTable {
    /// Adds a VM that has not arrived and returns its index. `base`, `block`: first byte of its
    /// disk on the device, and the device's logical block, in bytes.
    pub(super) fn add(
        &mut self,
        seed: u64,
        (index, spec): (usize, &VmSpec),
        (base, block): (u64, u32),
    ) -> u32 {
        let vm = self.vms.len() as u32;
        let first = self.workers.len() as u32;
        for (j, workload) in spec.workloads.iter().enumerate() {
            for copy in 0..workload.numjobs {
                let source = Source::new(workload, copy, spec.disk_size, block);
                // Random stream 0 of a VM draws its delays, so workloads count from 1; the low half
                // numbers the copies.
                let part = (j as u64 + 1) << 32 | u64::from(copy);
                let rng = generator(seed, &spec.name, part);
                // `Scenario::check` has placed every region on its disk.
                let source = source.expect("the scenario was checked");
                self.workers.push(Worker::new(vm, workload, source, rng));
                self.workloads.push(j as u32);
            }
        }
        let workers = first..self.workers.len() as u32;
        let mut own = self.workers[first as usize..].iter();
        let transfers = own.any(|worker| worker.transfers().is_some());
        self.vms
            .push(Vm::new(seed, (index, spec), base, workers, transfers));
        vm
    }

    /// Returns the VM with this index.
    pub(super) fn vm(&self, vm: u32) -> &Vm {
        &self.vms[vm as usize]
    }

    /// Returns the VM with this index, mutably.
    pub(super) fn vm_mut(&mut self, vm: u32) -> &mut Vm {
        &mut self.vms[vm as usize]
    }

    /// Iterates over all VMs.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Vm> {
        self.vms.iter()
    }

    /// Iterates over all VMs, mutably.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Vm> {
        self.vms.iter_mut()
    }

    /// Returns the worker with this index.
    pub(super) fn worker(&self, worker: u32) -> &Worker {
        &self.workers[worker as usize]
    }

    /// Returns the worker with this index, mutably.
    pub(super) fn worker_mut(&mut self, worker: u32) -> &mut Worker {
        &mut self.workers[worker as usize]
    }

    /// Iterates over all workers, each with its VM.
    pub(super) fn workers(&self) -> impl Iterator<Item = (&Worker, &Vm)> {
        let workers = self.workers.iter();
        workers.map(|worker| (worker, self.vm(worker.vm())))
    }

    /// Returns the VM of a worker.
    pub(super) fn vm_of_worker(&self, worker: u32) -> &Vm {
        self.vm(self.worker(worker).vm())
    }

    /// Returns the VM of a worker, mutably.
    pub(super) fn vm_of_worker_mut(&mut self, worker: u32) -> &mut Vm {
        self.vm_mut(self.worker(worker).vm())
    }

    /// Returns the worker with this index, mutably, with its workload.
    pub(super) fn worker_with_workload(&mut self, worker: u32) -> (&mut Worker, &Workload) {
        let workload = self.workloads[worker as usize] as usize;
        let worker = &mut self.workers[worker as usize];
        let vm = &self.vms[worker.vm() as usize];
        (worker, &vm.details.workloads[workload])
    }

    /// Returns the index in this table of the scenario's VM number `index`; `None` if that is on
    /// another device.
    pub(super) fn vm_of_scenario(&self, index: usize) -> Option<u32> {
        let scenario_index = |vm: &Vm| vm.details.scenario_index;
        // VMs were added in the order of the scenario.
        let position = self.vms.binary_search_by_key(&index, scenario_index);
        position.ok().map(|vm| vm as u32)
    }

    /// True once a VM has completed its workloads.
    pub(super) fn is_finished(&self, vm: u32) -> bool {
        let vm = self.vm(vm);
        vm.outstanding == 0
            && vm
                .workers
                .clone()
                .all(|worker| self.worker(worker).issuer().is_over())
    }

    /// VMs that have completed their workloads.
    pub(super) fn finished(&self) -> impl Iterator<Item = &Vm> {
        let vms = 0..self.vms.len() as u32;
        vms.filter(|&vm| self.is_finished(vm)).map(|vm| self.vm(vm))
    }

    /// True once every VM has completed its workloads.
    pub(super) fn all_finished(&self) -> bool {
        // Requests first: the test is cheap, and mostly false.
        let is_over = |worker: &Worker| worker.issuer().is_over();
        self.vms.iter().all(|vm| vm.outstanding == 0) && self.workers.iter().all(is_over)
    }

    /// Closes every VM's counters of the second that ends at `now`.
    pub(super) fn end_second(&mut self, now: Nanos) {
        for vm in 0..self.vms.len() as u32 {
            let finished = self.is_finished(vm);
            self.vm_mut(vm).second(now, finished);
        }
    }

    /// Puts a VM at the end of the retry queue, unless it is in it.
    pub(super) fn enqueue_retry(&mut self, vm: u32) {
        let state = &mut self.vms[vm as usize];
        if !state.retry_queued {
            state.retry_queued = true;
            self.retry_queue.push_back(vm);
        }
    }

    /// Removes the first VM of the retry queue and returns it.
    pub(super) fn next_retry(&mut self) -> Option<u32> {
        let vm = self.retry_queue.pop_front()?;
        self.vms[vm as usize].retry_queued = false;
        Some(vm)
    }

    /// True if no VM waits for a retry.
    pub(super) fn has_no_retries(&self) -> bool {
        self.retry_queue.is_empty()
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
            let spec = VmSpec {
                name: name.to_owned(),
                device: 0,
                host: 0,
                background: false,
                objective: Objective::default(),
                disk_size: 1 << 20,
                disk_at: None,
                parts: Vec::new(),
                workloads: workloads.to_vec(),
                delay: Delay::default(),
                cpu: VmCpu::default(),
                arrives: Nanos::ZERO,
                leaves: None,
            };
            // Every second one of the scenario is on this device.
            assert_eq!(vms.add(1, (2 * n, &spec), (0, 512)), n as u32);
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
        assert_eq!(vms.vm_of_worker(5).details.scenario_index, 2);
        assert_eq!(vms.worker_with_workload(4).1.io_size, None);
        assert_eq!(vms.worker_with_workload(5).1.io_size, Some(4096));
        assert_eq!(
            (vms.vm_of_scenario(4), vms.vm_of_scenario(3)),
            (Some(2), None)
        );
    }

    #[test]
    fn a_vm_is_finished_once_its_workers_are_and_all_is_answered() {
        let mut vms = table(&[Workload::default()]);
        vms.worker_mut(1).issuer_mut().stop();
        vms.vm_mut(1).outstanding = 1;
        assert!(!vms.is_finished(1));
        vms.vm_mut(1).outstanding = 0;
        let finished: Vec<_> = vms.finished().map(|vm| vm.details.scenario_index).collect();
        assert_eq!((finished, vms.all_finished()), (vec![2], false));
        [0, 2]
            .into_iter()
            .for_each(|worker| vms.worker_mut(worker).issuer_mut().stop());
        assert!(vms.all_finished());
    }

    #[test]
    fn a_vm_is_in_the_retry_queue_once() {
        let mut vms = table(&[]);
        [2, 0, 2].into_iter().for_each(|vm| vms.enqueue_retry(vm));
        assert_eq!((vms.next_retry(), vms.next_retry()), (Some(2), Some(0)));
        assert!(vms.has_no_retries());
        vms.enqueue_retry(2);
        assert_eq!(vms.next_retry(), Some(2));
    }
}
