//! What goes wrong on purpose: device I/Os of a disk with [fault rules](crate::fault) meet them
//! here, between the engine and the medium.
//!
//! Judged are guest requests, each once: what becomes of one is written into its slot, where its
//! later parts and its repetitions find it. A device I/O that carries several, or parts of them, of which
//! one goes wrong fails as a whole before it touches the medium, and the engine repeats it one request
//! at a time, each from its beginning, as after any error. Flushes that wait together are one.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use tidegate_core::request::{DeviceIo, IoError, Op};
use tidegate_core::time::Nanos;

use super::device::DiskState;
use super::{Loop, Phase};
use crate::backing::Disk;
use crate::command::{CommandError, DiskSnapshot, FaultChange};
use crate::fault::{Effect, Faults, Judged, Verdict};

/// I/Os that stall, by when they go on.
#[derive(Debug)]
pub(super) struct Stalls(BinaryHeap<Reverse<(Nanos, u32)>>);

impl Stalls {
    /// With room for as many as can be in flight, so that none of them allocates.
    pub(super) fn new(depth: u32) -> Stalls {
        Stalls(BinaryHeap::with_capacity(depth as usize))
    }

    /// When the first goes on.
    pub(super) fn next(&self) -> Option<Nanos> {
        self.0.peek().map(|Reverse((until, _))| *until)
    }

    fn pop_due(&mut self, now: Nanos) -> Option<u32> {
        self.next().filter(|&until| until <= now)?;
        self.0.pop().map(|Reverse((_, index))| index)
    }
}

/// A disk's rules as configured, armed at this time, and a word in the log. `None` where there are
/// none: a disk without rules costs its I/Os the one look at this.
pub(super) fn armed(disk: &Disk, now: Nanos) -> Option<Box<Faults>> {
    let mut faults = Box::<Faults>::default();
    for &rule in &disk.faults {
        let number = (faults.add(now, rule)).expect("the configuration has no more");
        if rule.from >= disk.size {
            let (export, size) = (&disk.export, disk.size);
            tracing::warn!(
                export,
                rule = number,
                "fault rule begins past the disk's end, at {size} bytes: it meets nothing"
            );
        }
    }
    if faults.is_empty() {
        return None;
    }
    let (export, rules) = (&disk.export, disk.faults.len());
    tracing::warn!(
        export,
        rules,
        "fault rules are set: this disk misbehaves on purpose"
    );
    Some(faults)
}

impl Loop {
    /// Has a device I/O of a disk with rules meet them. How many of its bytes are for the medium;
    /// `None`: none, and as far as that goes it has ended.
    #[cold]
    pub(super) fn inject(&mut self, index: usize, disk: usize, io: &DeviceIo) -> Option<u32> {
        let verdict = match io.op {
            Op::Flush => self.device.disks[disk].judge(self.now, io.op, 0, 0),
            _ => self.judge_parts(disk, io),
        };
        if verdict.stall > Nanos::ZERO && self.phase == Phase::Running {
            let until = Nanos(self.now.0.saturating_add(verdict.stall.0));
            self.device.ios[index].stalled = true;
            self.device.stalls.0.push(Reverse((until, index as u32)));
        }
        match verdict.effect {
            Effect::None => Some(io.len),
            Effect::Error(error) => {
                self.medium_ended(index, Err(error));
                None
            }
            Effect::Torn { keep, answer } => {
                self.device.ios[index].answer = answer;
                if keep > 0 {
                    // Less than the I/O's own length.
                    return Some(keep as u32);
                }
                self.medium_ended(index, Ok(()));
                None
            }
        }
    }

    /// What becomes of an I/O by what becomes of the requests it carries. Of one that is torn,
    /// the bytes that are kept are counted from the I/O's own first.
    fn judge_parts(&mut self, disk: usize, io: &DeviceIo) -> Verdict {
        let Loop {
            engine,
            slots,
            device,
            now,
            ..
        } = self;
        let state = &mut device.disks[disk];
        let (mut requests, mut stall, mut effect) = (0, Nanos::ZERO, Effect::None);
        for segment in engine.io_segments(io.id) {
            let slot = slots.get_mut(slots.by_tag(segment.tag));
            let (offset, len) = (slot.offset, slot.len.into());
            let verdict =
                *(slot.fault).get_or_insert_with(|| state.judge(*now, io.op, offset, len));
            requests += 1;
            stall = stall.max(verdict.stall);
            if verdict.effect != Effect::None {
                effect = of_part(verdict.effect, offset, len, io);
            }
        }
        if requests > 1 && effect != Effect::None {
            // Each goes again by itself. Until then nothing of this I/O has happened.
            return Verdict {
                stall: Nanos::ZERO,
                effect: Effect::Error(IoError::Io),
            };
        }
        // A request stalls once, whatever parts it is served in.
        for segment in engine.io_segments(io.id) {
            let slot = slots.get_mut(slots.by_tag(segment.tag));
            if let Some(verdict) = &mut slot.fault {
                verdict.stall = Nanos::ZERO;
            }
        }
        Verdict { stall, effect }
    }

    /// Lets go the I/Os that have stalled for long enough.
    pub(super) fn stalls_due(&mut self) {
        while let Some(index) = self.device.stalls.pop_due(self.now) {
            self.stall_ended(index as usize);
        }
    }

    /// Ends stalls now: those of one disk, or all.
    pub(super) fn end_stalls(&mut self, of: Option<usize>) {
        let Loop { device, now, .. } = self;
        let ios = &device.ios;
        let ended = |index: u32| of.is_none_or(|disk| ios[index as usize].disk == disk);
        let mut stalls = std::mem::take(&mut device.stalls.0).into_vec();
        for Reverse((until, index)) in &mut stalls {
            if ended(*index) {
                *until = *now;
            }
        }
        device.stalls.0 = stalls.into();
        self.stalls_due();
    }

    fn stall_ended(&mut self, index: usize) {
        let entry = &mut self.device.ios[index];
        entry.stalled = false;
        if entry.medium.is_some() && !entry.held {
            self.io_ended(index);
        }
    }

    /// Changes the rules of a disk; with one fewer, what stalls on that disk goes on.
    pub(super) fn change_faults(
        &mut self,
        export: &str,
        change: FaultChange,
    ) -> Result<DiskSnapshot, CommandError> {
        let disks = &mut self.device.disks;
        let of_vms = self.vms.iter().flat_map(|(_, vm)| &vm.disks);
        let index = (of_vms.copied())
            .find(|&at| disks[at].disk.export == export)
            .ok_or_else(|| CommandError::UnknownExport(export.to_owned()))?;
        let state = &mut disks[index];
        match change {
            FaultChange::Add(rule) => {
                if rule.from >= state.disk.size {
                    let size = state.disk.size;
                    let what = format!("the rule begins past the disk's end, at {size} bytes");
                    return Err(CommandError::Refused(what));
                }
                let faults = state.faults.get_or_insert_default();
                if faults.add(self.now, *rule).is_none() {
                    let max = Faults::RULES_MAX;
                    let what = format!("the disk has {max} fault rules, and no room for more");
                    return Err(CommandError::Refused(what));
                }
            }
            FaultChange::Remove(number) => {
                let faults = state.faults.as_mut();
                if !faults.is_some_and(|faults| faults.remove(number)) {
                    return Err(CommandError::UnknownFault(number));
                }
                state.faults.take_if(|faults| faults.is_empty());
                self.end_stalls(Some(index));
            }
            FaultChange::Clear => {
                state.faults = None;
                self.end_stalls(Some(index));
            }
        }
        Ok(self.disk_snapshot(index))
    }
}

impl DiskState {
    /// Asks the rules, which there are, and counts and says what comes of it.
    fn judge(&mut self, now: Nanos, op: Op, offset: u64, len: u64) -> Verdict {
        let faults = self.faults.as_mut().expect("the disk has rules");
        let judged = faults.judge(now, op, offset, len);
        self.injected += u64::from(judged.struck);
        say(&self.disk.export, op, &judged);
        judged.verdict
    }
}

/// What becomes of an I/O that serves a request, or a part of one, of which this becomes.
fn of_part(effect: Effect, offset: u64, len: u64, io: &DeviceIo) -> Effect {
    let Effect::Torn { answer, .. } = effect else {
        return effect;
    };
    let Some(kept) = effect.kept(offset, len) else {
        return Effect::None;
    };
    let keep = (offset + kept).saturating_sub(io.offset);
    match keep >= io.len.into() {
        // The tear is in a part behind this one, which must be written, and so must not fail:
        // the engine asks for no more parts of a request that has failed.
        true => Effect::None,
        false => Effect::Torn { keep, answer },
    }
}

/// Says that a rule struck, where it is time to.
fn say(export: &str, op: Op, judged: &Judged) {
    let Some(heard) = judged.heard else { return };
    let rule = heard.number;
    let operation = crate::config::fault::operation(op);
    let more = match heard.unsaid {
        0 => String::new(),
        n => format!(" ({n} more since the last time this was said)"),
    };
    tracing::warn!(
        export,
        rule,
        "fault injected into a {operation}{more}: a rule asks for it"
    );
}
