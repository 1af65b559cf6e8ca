//! Drivers that tests and the benchmark share.

// Not every one of them needs every driver.
#![allow(dead_code, unreachable_pub)]

pub mod flash;

use proptest::prelude::*;
use tidegate_core::request::Op;
use tidegate_core::time::Nanos;
use tidegate_device::catalogue::{self, Entry};
use tidegate_device::{Completion, Model, ModelIo};

pub const KIB: u64 = 1 << 10;
pub const MIB: u64 = 1 << 20;

/// The text of an entry.
pub const HDD: &str = include_str!("../../../../../devices/hdd-7200-1tb.toml");

/// Returns the drive without NCQ, which serves commands in order of arrival.
pub fn in_order() -> Entry {
    let ncq = HDD.find("\n[hdd.ncq]").expect("the last table");
    catalogue::parse(&HDD[..ncq], "in order").unwrap()
}

/// A flash disk of the catalogue whose commands share the interface.
pub fn interleaved(name: &str) -> String {
    let text = match name {
        "nvme-1tb" => include_str!("../../../../../devices/nvme-1tb.toml"),
        _ => include_str!("../../../../../devices/ssd-sata-300gb.toml"),
    };
    let text = text.replace(name, &format!("{name}, interleaved")).replace(
        "full_duplex",
        "interface_sharing = \"interleaved\"\nfull_duplex",
    );
    assert!(text.contains("sharing") && text.contains("interleaved\"\ndesc"));
    text
}

/// An array of members described by a table `[ssd]`.
pub fn array_of(text: &str, members: u32, depth: u32) -> Entry {
    let table = &text[text.find("[ssd]").expect("a flash disk")..];
    let member = table.replace("[ssd", "[raid0.ssd");
    let name = text.lines().find_map(|line| line.strip_prefix("name = \""));
    let text = format!(
        "name = \"{} x {members}\"\ndescription = \"test\"\n[raid0]\nmembers = {members}\n\
         chunk = \"16 KiB\"\nqueue_depth = {depth}\ncommand_overhead = \"10 us\"\n{member}",
        name.expect("a name").trim_end_matches('"')
    );
    catalogue::parse(&text, "test").unwrap()
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

/// Reads and writes, and now and then something else.
pub fn any_op() -> impl Strategy<Value = Op> {
    prop_oneof![
        6 => Just(Op::Read),
        6 => Just(Op::Write),
        1 => Just(Op::Flush),
        1 => Just(Op::Discard),
        1 => Just(Op::WriteZeroes),
    ]
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
    loop {
        let at = disk.next_completion().unwrap();
        if let Some(ended) = disk.pop_completed(at) {
            assert_eq!(ended, Completion { id: io.id, at });
            return at;
        }
    }
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

/// Load that [`keep`] sends.
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

    /// Returns the I/Os of this load on a disk.
    pub fn ios(&self, disk: &dyn Model) -> Vec<ModelIo> {
        let (mut rng, places) = (Rng(7), disk.spec().capacity / self.len);
        let place = |id| {
            if self.random {
                rng.below(places)
            } else {
                id % places
            }
        };
        let places = (0..self.count).map(place).collect::<Vec<u64>>();
        let at = |(id, place): (u64, u64)| io(self.op, id, place * self.len, self.len);
        (0..).zip(places).map(at).collect()
    }

    /// Returns the I/Os per second from `now` on, and the time of the last end.
    pub fn run(&self, disk: &mut dyn Model, now: Nanos) -> (f64, Nanos) {
        let ios = self.ios(disk);
        let end = keep(disk, now, self.depth, self.count, |id| ios[id as usize]);
        (self.count as f64 / end.since(now).as_secs_f64(), end)
    }

    /// Returns the I/Os per second on a fresh disk.
    pub fn iops(&self, disk: &mut dyn Model) -> f64 {
        self.run(disk, Nanos::ZERO).0
    }
}

#[track_caller]
pub fn close(found: f64, expected: f64, percent: f64) {
    let off = (found / expected - 1.0) * 100.0;
    assert!(off.abs() <= percent, "{found} is {off:.2} % off {expected}");
}
