//! Replay of device I/Os on a model: each is submitted when it was sent.

use tidegate_core::request::Op;
use tidegate_core::time::Nanos;
use tidegate_device::{Model, ModelIo, Spec};

use super::ios::DeviceIo;

/// Returns the time that a model takes for each I/O, from the time at which it was sent. An I/O for
/// which the queue has no room waits, which counts. The model's time is `shift` at time zero of the
/// I/Os.
pub(super) fn times(model: &mut dyn Model, ios: &[DeviceIo], shift: Nanos) -> Vec<Nanos> {
    let spec = model.spec().clone();
    let mut ends = vec![Nanos::ZERO; ios.len()];
    let mut now = Nanos::ZERO;
    for (index, io) in ios.iter().enumerate() {
        let sent = io.sent + shift;
        for part in parts(&spec, io, index as u64) {
            drain(model, sent, &mut ends);
            now = now.max(sent);
            while !model.has_room() {
                let next = model.next_completion().expect("the queue is full");
                drain(model, next, &mut ends);
                now = now.max(next);
            }
            model.submit(now, part);
        }
    }
    while let Some(next) = model.next_completion() {
        drain(model, next, &mut ends);
    }
    let pairs = ends.iter().zip(ios);
    pairs.map(|(end, io)| end.since(io.sent + shift)).collect()
}

/// Pops what has ended by `until`; an I/O of several parts ends with the last.
fn drain(model: &mut dyn Model, until: Nanos, ends: &mut [Nanos]) {
    while let Some(next) = model.next_completion().filter(|&next| next <= until) {
        while let Some(ended) = model.pop_completed(next) {
            let end = &mut ends[ended.id as usize];
            *end = (*end).max(ended.at);
        }
    }
}

/// Returns an I/O as a model takes it: whole blocks within the capacity, in parts of at most its
/// largest I/O.
fn parts(spec: &Spec, io: &DeviceIo, id: u64) -> impl Iterator<Item = ModelIo> + use<> {
    let block = u64::from(spec.logical_block);
    let begin = io.addr / block * block;
    let end = io.addr.saturating_add(io.len.into()).div_ceil(block) * block;
    let length = (end - begin).max(block).min(spec.capacity);
    // What lies beyond the model's end moves to it.
    let begin = begin.min(spec.capacity - length);
    let largest = match io.op {
        Op::Discard => u64::from(u32::MAX) / block * block,
        _ => spec.max_io.into(),
    };
    let (op, fua) = (io.op, io.fua);
    let count = match op {
        Op::Flush => 1,
        _ => length.div_ceil(largest),
    };
    (0..count).map(move |index| {
        let at = index * largest;
        let (addr, len) = match op {
            Op::Flush => (0, 0),
            _ => (begin + at, (length - at).min(largest) as u32),
        };
        ModelIo {
            id,
            op,
            addr,
            len,
            fua,
        }
    })
}
