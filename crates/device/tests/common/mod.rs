//! Drivers that tests and the benchmark share.

// Not every one of them needs every driver.
#![allow(dead_code, unreachable_pub)]

use tidegate_core::request::Op;
use tidegate_core::time::Nanos;
use tidegate_device::catalogue::{self, Entry};
use tidegate_device::{Completion, Model, ModelIo};

pub const KIB: u64 = 1 << 10;
pub const MIB: u64 = 1 << 20;

/// The text of an entry.
pub const HDD: &str = include_str!("../../../../devices/hdd-7200-1tb.toml");

/// The same drive, which serves its commands in order of arrival.
pub fn in_order() -> Entry {
    let ncq = HDD.find("\n[hdd.ncq]").expect("the last table");
    catalogue::parse(&HDD[..ncq], "in order").unwrap()
}

/// A small generator, so that a run is a function of its seed (xorshift64*).
pub struct Rng(pub u64);

impl Rng {
    pub fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 16) % n
    }
}

pub fn io(op: Op, id: u64, addr: u64, len: u64) -> ModelIo {
    ModelIo {
        op,
        ..ModelIo::read(id, addr, len as u32)
    }
}

/// One I/O alone: when it ends.
pub fn once(disk: &mut dyn Model, now: Nanos, io: ModelIo) -> Nanos {
    disk.submit(now, io);
    let at = disk.next_completion().unwrap();
    assert_eq!(disk.pop_completed(at), Some(Completion { id: io.id, at }));
    at
}

/// Keeps `depth` I/Os in flight from `now` on until `count` have ended; returns when.
pub fn keep(
    disk: &mut dyn Model,
    now: Nanos,
    depth: u32,
    count: u64,
    mut io: impl FnMut(u64) -> ModelIo,
) -> Nanos {
    let (mut now, mut sent, mut ended) = (now, 0, 0);
    while ended < count {
        while sent < count && disk.in_flight() < depth {
            disk.submit(now, io(sent));
            sent += 1;
        }
        now = disk.next_completion().unwrap();
        while disk.pop_completed(now).is_some() {
            ended += 1;
        }
    }
    now
}

/// What [`keep`] is told to send.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    pub op: Op,
    /// Bytes of an I/O.
    pub len: u64,
    pub depth: u32,
    /// At a random place, or else one after another from the first byte.
    pub random: bool,
    pub count: u64,
}

impl Load {
    pub fn random(op: Op, len: u64, depth: u32, count: u64) -> Load {
        Load {
            op,
            len,
            depth,
            random: true,
            count,
        }
    }

    pub fn sequential(op: Op, len: u64, depth: u32, count: u64) -> Load {
        Load {
            random: false,
            ..Load::random(op, len, depth, count)
        }
    }

    /// Its I/Os on a disk.
    pub fn ios(&self, disk: &dyn Model) -> Vec<ModelIo> {
        let (mut rng, places) = (Rng(7), disk.spec().capacity / self.len);
        let place = |id| match self.random {
            true => rng.below(places),
            false => id % places,
        };
        let places = (0..self.count).map(place).collect::<Vec<u64>>();
        let at = |(id, place): (u64, u64)| io(self.op, id, place * self.len, self.len);
        (0..).zip(places).map(at).collect()
    }

    /// How many I/Os a second it does from `now` on, and when it ends.
    pub fn run(&self, disk: &mut dyn Model, now: Nanos) -> (f64, Nanos) {
        let ios = self.ios(disk);
        let end = keep(disk, now, self.depth, self.count, |id| ios[id as usize]);
        (self.count as f64 / end.since(now).as_secs_f64(), end)
    }

    /// How many I/Os a second it does on a fresh disk.
    pub fn iops(&self, disk: &mut dyn Model) -> f64 {
        self.run(disk, Nanos::ZERO).0
    }
}

#[track_caller]
pub fn close(found: f64, expected: f64, percent: f64) {
    let off = (found / expected - 1.0) * 100.0;
    assert!(off.abs() <= percent, "{found} is {off:.2} % off {expected}");
}
