//! What goes wrong on purpose: device I/Os of a disk with [fault rules](crate::fault) meet them
//! here, between the engine and the medium.
//!
//! Judged are guest requests, each once: what becomes of one is written into its slot, where its
//! later parts and its repetitions find it. A device I/O that carries several, or parts of them, of
//! which one goes wrong fails as a whole before it touches the medium. The engine then repeats it
//! one request at a time, each from its beginning, as after any error. Flushes that wait together
//! are one.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use tidegate_core::request::{DeviceIo, IoError, Op};
use tidegate_core::time::Nanos;

use super::{Device, DiskState, Tools};
use crate::backing::Disk;
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

impl Device {
    /// Has a device I/O of a disk with rules meet them. How many of its bytes are for the medium;
    /// `None`: none, and as far as that goes it has ended.
    #[cold]
    pub(super) fn inject(
        &mut self,
        tools: &mut Tools<'_>,
        index: usize,
        disk: usize,
        io: &DeviceIo,
    ) -> Option<u32> {
        let verdict = match io.op {
            Op::Flush => self.disks[disk].judge(tools.now, io.op, 0, 0),
            _ => self.judge_parts(tools, disk, io),
        };
        if verdict.stall > Nanos::ZERO && tools.may_stall {
            let until = Nanos(tools.now.0.saturating_add(verdict.stall.0));
            self.ios[index].stalled = true;
            self.stalls.0.push(Reverse((until, index as u32)));
        }
        match verdict.effect {
            Effect::None => Some(io.len),
            Effect::Error(error) => {
                self.medium_ended(tools, index, Err(error));
                None
            }
            Effect::Torn { keep, answer } => {
                self.ios[index].answer = answer;
                if keep > 0 {
                    // Less than the I/O's own length.
                    return Some(keep as u32);
                }
                self.medium_ended(tools, index, Ok(()));
                None
            }
        }
    }

    /// What becomes of an I/O by what becomes of the requests it carries. Of one that is torn,
    /// the bytes that are kept are counted from the I/O's own first.
    fn judge_parts(&mut self, tools: &mut Tools<'_>, disk: usize, io: &DeviceIo) -> Verdict {
        let Tools {
            engine,
            requests: table,
            now,
            ..
        } = tools;
        let state = &mut self.disks[disk];
        let (mut requests, mut stall, mut effect) = (0, Nanos::ZERO, Effect::None);
        for segment in engine.io_segments(io.id) {
            let slot = table.get_mut(table.by_tag(segment.tag));
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
            let slot = table.get_mut(table.by_tag(segment.tag));
            if let Some(verdict) = &mut slot.fault {
                verdict.stall = Nanos::ZERO;
            }
        }
        Verdict { stall, effect }
    }

    /// Lets go the I/Os that have stalled for long enough.
    pub(super) fn stalls_due(&mut self, tools: &mut Tools<'_>) {
        while let Some(index) = self.stalls.pop_due(tools.now) {
            self.stall_ended(tools, index as usize);
        }
    }

    /// Ends stalls now: those of one disk, or all.
    pub(in super::super) fn end_stalls(&mut self, tools: &mut Tools<'_>, of: Option<usize>) {
        let ios = &self.ios;
        let ended = |index: u32| of.is_none_or(|disk| ios[index as usize].disk == disk);
        let mut stalls = std::mem::take(&mut self.stalls.0).into_vec();
        for Reverse((until, index)) in &mut stalls {
            if ended(*index) {
                *until = tools.now;
            }
        }
        self.stalls.0 = stalls.into();
        self.stalls_due(tools);
    }

    fn stall_ended(&mut self, tools: &mut Tools<'_>, index: usize) {
        let entry = &mut self.ios[index];
        entry.stalled = false;
        if entry.medium.is_some() && !entry.held {
            self.io_ended(tools, index);
        }
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
