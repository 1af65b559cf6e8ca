//! Fault injection: device I/Os of a disk with [fault rules](crate::fault) are judged here, between
//! the engine and the backing.
//!
//! Rules judge guest requests, each once. The verdict is stored in the request's slot, where its
//! later parts and its repetitions find it. If one request of a merged device I/O is struck, the
//! whole I/O fails before it reaches the backing. The engine then repeats it one request at a time,
//! each from its beginning, as after any error. Flushes that were joined are judged as one.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use tidegate_core::request::{DeviceIo, IoError, Op};
use tidegate_core::time::Nanos;
use tidegate_units::human::bytes_and_count;

use super::{Device, DiskState, LoopParts};
use crate::backing::Disk;
use crate::fault::{Effect, Faults, Judged, Verdict};

/// I/Os that stall, ordered by the time at which they go on.
#[derive(Debug)]
pub(super) struct Stalls(BinaryHeap<Reverse<(Nanos, u32)>>);

impl Stalls {
    /// Allocates room for the I/Os that can be in flight, so that a stall never allocates.
    pub(super) fn new(depth: u32) -> Stalls {
        Stalls(BinaryHeap::with_capacity(depth as usize))
    }

    /// Returns the time at which the first I/O goes on.
    pub(super) fn next(&self) -> Option<Nanos> {
        self.0.peek().map(|Reverse((until, _))| *until)
    }

    fn pop_due(&mut self, now: Nanos) -> Option<u32> {
        self.next().filter(|&until| until <= now)?;
        self.0.pop().map(|Reverse((_, index))| index)
    }
}

/// Arms the configured rules of a disk at the time `now`, and logs that there are some. Returns
/// `None` without rules: each I/O of such a disk only tests this option.
pub(super) fn arm_rules(disk: &Disk, now: Nanos) -> Option<Box<Faults>> {
    let mut faults = Box::<Faults>::default();
    for &rule in &disk.faults {
        let number = (faults.add(now, rule)).expect("the configuration has no more");
        if rule.from >= disk.size {
            let (export, size) = (&disk.export, bytes_and_count(disk.size));
            tracing::warn!(
                export,
                rule = number,
                "fault rule begins past the disk's end, at {size}: it applies to nothing"
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
        "fault injection is active: requests that meet a fault rule fail or are delayed"
    );
    Some(faults)
}

impl Device {
    /// Applies the fault rules of a disk to a device I/O. Returns the number of bytes that go to
    /// the backing; `None` if none do, because the I/O's bytes count as done or failed already.
    #[cold]
    pub(super) fn inject(
        &mut self,
        parts: &mut LoopParts<'_>,
        index: usize,
        disk: usize,
        io: &DeviceIo,
    ) -> Option<u32> {
        // Flushes name no bytes, so there are no parts to judge.
        let verdict = match io.op {
            Op::Flush => self.disks[disk].judge(parts.now, io.op, 0, 0),
            _ => self.judge_parts(parts, disk, io),
        };
        if verdict.stall > Nanos::ZERO && parts.may_stall {
            let until = Nanos(parts.now.0.saturating_add(verdict.stall.0));
            // The first of two ends would answer the I/O, the second one whatever follows it.
            assert!(!self.ios[index].stalled, "I/O {index} is delayed twice");
            self.ios[index].stalled = true;
            self.stalls.0.push(Reverse((until, index as u32)));
        }
        match verdict.effect {
            Effect::None => Some(io.len),
            Effect::Error(error) => {
                self.medium_ended(parts, index, Err(error));
                None
            }
            Effect::Torn { keep, answer } => {
                self.ios[index].answer = answer;
                assert!(
                    keep < u64::from(io.len),
                    "a tear after {keep} bytes of an I/O of {} bytes",
                    io.len
                );
                if keep > 0 {
                    return Some(keep as u32);
                }
                self.medium_ended(parts, index, Ok(()));
                None
            }
        }
    }

    /// Derives the verdict on an I/O from the verdicts on its requests. For a torn request, the
    /// kept bytes are counted from the I/O's first byte.
    fn judge_parts(&mut self, parts: &mut LoopParts<'_>, disk: usize, io: &DeviceIo) -> Verdict {
        let LoopParts {
            engine,
            requests: table,
            now,
            ..
        } = parts;
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
                effect = effect_on_part(verdict.effect, offset, len, io);
                // With several requests, `effect` only tells that some request is struck, so the
                // last one may win.
            }
        }
        if requests > 1 && effect != Effect::None {
            // The engine repeats each request by itself. Until then this I/O must have no effect.
            return Verdict {
                stall: Nanos::ZERO,
                effect: Effect::Error(IoError::Io),
            };
        }
        // A request stalls once, however many parts it is served in.
        for segment in engine.io_segments(io.id) {
            let slot = table.get_mut(table.by_tag(segment.tag));
            if let Some(verdict) = &mut slot.fault {
                verdict.stall = Nanos::ZERO;
            }
        }
        Verdict { stall, effect }
    }

    /// Releases the I/Os whose stall is over.
    pub(super) fn stalls_due(&mut self, parts: &mut LoopParts<'_>) {
        while let Some(index) = self.stalls.pop_due(parts.now) {
            self.stall_ended(parts, index as usize);
        }
    }

    /// Ends stalls at once: those of one disk, or all with `None`.
    pub(in super::super) fn end_stalls(&mut self, parts: &mut LoopParts<'_>, of: Option<usize>) {
        let ios = &self.ios;
        let ended = |index: u32| of.is_none_or(|disk| ios[index as usize].disk == disk);
        let mut stalls = std::mem::take(&mut self.stalls.0).into_vec();
        for Reverse((until, index)) in &mut stalls {
            if ended(*index) {
                *until = parts.now;
            }
        }
        // Rebuilt as a whole, because the times that order the heap have changed.
        self.stalls.0 = stalls.into();
        self.stalls_due(parts);
    }

    fn stall_ended(&mut self, parts: &mut LoopParts<'_>, index: usize) {
        let entry = &mut self.ios[index];
        assert!(
            entry.stalled,
            "a delay of I/O {index} ends that never began"
        );
        entry.stalled = false;
        if entry.medium.is_some() && !entry.held {
            self.io_ended(parts, index);
        }
    }
}

impl DiskState {
    /// Judges a request by the disk's rules, counts it if it was struck and logs that. Panics if
    /// the disk has no rules.
    fn judge(&mut self, now: Nanos, op: Op, offset: u64, len: u64) -> Verdict {
        let faults = self.faults.as_mut().expect("the disk has rules");
        let judged = faults.judge(now, op, offset, len);
        self.injected += u64::from(judged.struck);
        log_strike(&self.disk.export, op, &judged);
        judged.verdict
    }
}

/// Returns the effect on an I/O that serves all or a part of a request, from the `effect` on that
/// request at `offset` and with length `len`.
fn effect_on_part(effect: Effect, offset: u64, len: u64, io: &DeviceIo) -> Effect {
    let Effect::Torn { answer, .. } = effect else {
        return effect;
    };
    let Some(kept) = effect.kept_bytes(offset, len) else {
        return Effect::None;
    };
    let keep = (offset + kept).saturating_sub(io.offset);
    if keep >= io.len.into() {
        // The tear is in a later part, so this one is written in full. It must not fail either,
        // because the engine asks for no more parts of a failed request.
        Effect::None
    } else {
        Effect::Torn { keep, answer }
    }
}

/// Logs that a rule struck a request, unless its log lines are rate-limited.
fn log_strike(export: &str, op: Op, judged: &Judged) {
    let Some(log) = judged.log else { return };
    let rule = log.number;
    let operation = crate::config::fault::operation(op);
    let more = match log.suppressed {
        0 => String::new(),
        n => format!(" ({n} more since the last message)"),
    };
    tracing::warn!(
        export,
        rule,
        "fault injected into a {operation} by a fault rule{more}"
    );
}
