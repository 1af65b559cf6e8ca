//! VM or background process while it is simulated.

use super::per_second::PerSecond;
use super::promises::PastPromises;
use super::tally::Tally;
use crate::scenario::{Delay, DiskPart, VmSpec};
use crate::seed::generator;
use core::ops::Range;
use rand_pcg::Pcg64Mcg;
use std::collections::VecDeque;
use tidegate_core::engine::DiskSpec;
use tidegate_core::interference::VmTimes;
use tidegate_core::objective::Objective;
use tidegate_core::request::{ClientId, Op, VmId};
use tidegate_core::time::Nanos;
use tidegate_core::transfers::Admission;
use tidegate_workload::spec::Workload;

/// Fields of a VM that requests touch. Thousands of VMs exceed the CPU caches, so the rarely used
/// fields are apart in [`Details`].
pub(super) struct Vm {
    /// Handles in the host's engine; `None` while the VM is not there.
    pub(super) engine: Option<(VmId, ClientId)>,
    /// Parts of the disk with limits of their own, by their first byte, each with the connection
    /// that its requests take. Empty for most VMs, whose requests take the one of `engine`.
    pub(super) parts: Box<[(u64, ClientId)]>,
    /// Host of the VM among those that share the device.
    pub(super) host: usize,
    /// Workers of the VM, as indices into the device's.
    pub(super) workers: Range<u32>,
    /// Requests issued and not answered.
    pub(super) outstanding: u32,
    /// Time of the last answer, or of the VM's removal in the middle of its work.
    pub(super) last_answer: Nanos,
    pub(super) tally: Tally,
    pub(super) per_second: PerSecond,
    /// Requests that the engine had no room for, by slot, in order, each with the time since which
    /// it waits.
    pub(super) refused: VecDeque<(u32, Nanos)>,
    /// `true` while the VM waits in the line of VMs with refused requests.
    pub(super) retry_queued: bool,
    pub(super) details: Box<Details>,
    delay: Delay,
    /// Time at which the guest's processor is done with earlier answers.
    processor_free: Nanos,
    /// Generator of the VM's delays.
    rng: Pcg64Mcg,
}

/// Fields of a VM that are seldom used.
pub(super) struct Details {
    /// Index in the scenario.
    pub(super) scenario_index: usize,
    /// `true` for a process of the host.
    pub(super) background: bool,
    pub(super) disk: DiskSpec,
    /// Parts of the disk with limits of their own.
    pub(super) parts: Vec<DiskPart>,
    pub(super) workloads: Vec<Workload>,
    pub(super) objective: Objective,
    /// Promises that are not in force any more.
    pub(super) past: PastPromises,
    /// Terms on which the next deadline transfer was admitted.
    pub(super) terms: Option<Admission>,
    /// Time of its requests by cause, once it has left.
    pub(super) times: VmTimes,
    /// Handle that it has in the host's engine, or had.
    pub(super) last_id: Option<VmId>,
}

impl Vm {
    /// VM that has not arrived, with these workers and its disk from byte `base` of the device on.
    /// `index`: its index in the scenario; `transfers`: some of its workers have
    /// transfers.
    pub(super) fn new(
        seed: u64,
        (index, spec): (usize, &VmSpec),
        base: u64,
        workers: Range<u32>,
        transfers: bool,
    ) -> Vm {
        Vm {
            engine: None,
            parts: Box::default(),
            host: spec.host as usize,
            workers,
            outstanding: 0,
            last_answer: Nanos::ZERO,
            delay: spec.delay,
            processor_free: Nanos::ZERO,
            // Part 0 of the VM's generators; its workloads have the parts from 1 on.
            rng: generator(seed, &spec.name, 0),
            tally: Tally {
                transfers: transfers.then(Box::default),
                ..Tally::default()
            },
            per_second: PerSecond::default(),
            refused: VecDeque::new(),
            retry_queued: false,
            details: Box::new(Details {
                scenario_index: index,
                background: spec.background,
                disk: DiskSpec {
                    base,
                    size: spec.disk_size,
                    read_only: false,
                },
                parts: spec.parts.clone(),
                workloads: spec.workloads.clone(),
                objective: spec.objective,
                past: PastPromises::default(),
                terms: None,
                times: VmTimes::default(),
                last_id: None,
            }),
        }
    }

    /// Handle in the host's engine; `None` while the VM is not there.
    pub(super) fn id(&self) -> Option<VmId> {
        self.engine.map(|(vm, _)| vm)
    }

    /// Connection for a request at byte `offset` of the VM's disk, and its byte there; `None` while
    /// the VM is not there.
    pub(super) fn connection(&self, offset: u64) -> Option<(ClientId, u64)> {
        let (_, client) = self.engine?;
        let behind = self.parts.partition_point(|&(start, _)| start <= offset);
        let part = behind.checked_sub(1).map(|at| self.parts[at]);
        Some(part.map_or((client, offset), |(start, client)| (client, offset - start)))
    }

    /// True while the VM is there and has requests outstanding.
    pub(super) fn asks(&self) -> bool {
        self.engine.is_some() && self.outstanding > 0
    }

    /// Replaces the objective.
    pub(super) fn set_objective(&mut self, objective: &Objective) {
        let before = core::mem::replace(&mut self.details.objective, *objective);
        if before.target.bytes_per_s != objective.target.bytes_per_s {
            // Bytes that were moved under another target are no samples of this one.
            self.per_second.clear_counts(false);
        }
    }

    /// Time at which a request issued now reaches the scheduler; `None` if at once.
    pub(super) fn submission(&mut self, now: Nanos) -> Option<Nanos> {
        let delay = self.delay.submit.as_ref()?;
        Some(now + delay.draw(&mut self.rng))
    }

    /// Time at which the answer to a request that the engine has finished now reaches the guest's
    /// process; `None` if at once.
    pub(super) fn answer(&mut self, now: Nanos) -> Option<Nanos> {
        let mut at = now;
        if let Some(delay) = &self.delay.complete {
            at += delay.draw(&mut self.rng);
        }
        if let Some(takes) = &self.delay.processor {
            at = at.max(self.processor_free) + takes.draw(&mut self.rng);
            self.processor_free = at;
        }
        // A delay of zero still lets all other events of this instant come first.
        (self.delay.complete.is_some() || self.delay.processor.is_some()).then_some(at)
    }

    /// Counts a request that was answered now after a `latency`, well or with an error.
    pub(super) fn answered(&mut self, now: Nanos, op: Op, len: u32, latency: Nanos, well: bool) {
        self.last_answer = now;
        if !well {
            self.tally.errors += 1;
            return;
        }
        self.tally.answered(op, len, latency);
        // Targets promise bytes that are read or written, not discarded.
        if matches!(op, Op::Read | Op::Write) {
            self.per_second.moved(len);
        }
    }

    /// Ends a second; `over` is `true` if the VM has completed its workloads.
    pub(super) fn second(&mut self, now: Nanos, over: bool) {
        let asks = self.asks();
        // A VM that is done has no reason to ask; this second and later ones say nothing of its
        // service.
        let ended = over && self.last_answer < now;
        if self.engine.is_none() || ended {
            self.per_second.leave_out();
        }
        self.per_second.second(asks);
    }

    /// Clears all counts; `second` is `true` if a second begins right now.
    pub(super) fn clear_counts(&mut self, second: bool) {
        self.tally.clear();
        self.per_second.clear_counts(second);
        self.details.past.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::VmCpu;
    use tidegate_workload::time::TimeDistribution;

    fn fixed(ns: u64) -> Option<TimeDistribution> {
        Some(TimeDistribution::Fixed(Nanos(ns)))
    }

    fn vm(delay: Delay) -> Vm {
        let spec = VmSpec {
            name: "vm".to_owned(),
            device: 0,
            host: 0,
            background: false,
            objective: Objective::default(),
            disk_size: 1 << 20,
            disk_at: None,
            parts: Vec::new(),
            workloads: Vec::new(),
            delay,
            cpu: VmCpu::default(),
            arrives: Nanos::ZERO,
            leaves: None,
        };
        Vm::new(1, (0, &spec), 0, 0..1, false)
    }

    #[test]
    fn answers_go_one_after_the_other_through_the_only_processor() {
        let mut vm = vm(Delay {
            submit: fixed(3),
            complete: fixed(10),
            processor: fixed(100),
        });
        assert_eq!(vm.submission(Nanos(7)), Some(Nanos(10)));
        assert_eq!(vm.answer(Nanos(0)), Some(Nanos(110)));
        assert_eq!(vm.answer(Nanos(50)), Some(Nanos(210)), "after the first");
        let mut at_once = super::tests::vm(Delay::default());
        assert_eq!(at_once.submission(Nanos(7)), None);
        assert_eq!(at_once.answer(Nanos(7)), None);
    }
}
