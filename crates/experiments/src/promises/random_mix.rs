//! Random mixes of VMs, in the form of the built-in ones, so that policies are judged on mixes that
//! were not chosen by hand.
//!
//! A mix has 2 to 6 kinds of VMs. Its promises add up to at most 25, 35 or 45 % of the device, and
//! its disks to at most [`ROOM_GIB`], so that it fits every device of the catalogue.
//!
//! VMs are drawn with their loads and main promises first, and then further parts of their
//! objectives ([`further`]) from random numbers of their own.

mod further;

use tidegate_core::random::{SplitMix64, mix};

/// Size of all disks of a mix in GiB: the smallest device has 279 GiB.
const ROOM_GIB: u64 = 270;
/// Size of a disk in GiB.
const DISK_GIB: u64 = 20;
/// Size of a desktop's disk in GiB.
const DESKTOP_GIB: u64 = 4;
/// Size of the disk of a background process in GiB.
const BACKUP_GIB: u64 = 80;

/// Returns the text of the mix with a number, under a seed.
pub(super) fn text(seed: u64, number: u64) -> String {
    // Hashed twice, so that neighbouring seeds and numbers have streams of their own.
    let mut random = Random(SplitMix64::new(mix(mix(seed).wrapping_add(number))));
    let promised = Part(100 * random.pick([25, 35, 45]));
    let vms = 2 + random.0.below(5);
    let backup = random.chance(40);
    let mut draft = Draft {
        promised,
        // Every kind of VM has room for one disk at least.
        spare_gib: ROOM_GIB - vms * DISK_GIB - if backup { BACKUP_GIB } else { 0 },
        random,
    };
    let drawn = (0..vms).map(|_| {
        let kind = draft.random.pick(KINDS);
        (kind, draft.vm(kind))
    });
    let mut drawn: Vec<(Kind, Vm)> = drawn.collect();
    // A stream of its own: VMs and loads do not depend on the further parts.
    let random = Random(SplitMix64::new(mix(mix(number).wrapping_add(seed))));
    further::add(random, draft.promised, &mut drawn);
    let mut text = format!("title = \"Random mix {number} of seed {seed}\"\n");
    for (index, (kind, vm)) in drawn.iter().enumerate() {
        text += &vm.table(&format!("{}{index}", kind.name()));
    }
    if backup {
        text += &format!(
            "\n[[background]]\nname = \"backup\"\ndisk = [{{ size = \"{BACKUP_GIB} GiB\" }}]\n\
             workload = [{{ rw = \"read\", bs = \"1 MiB\", iodepth = 8 }}]\n"
        );
    }
    text
}

/// Random choices.
#[derive(Debug)]
struct Random(SplitMix64);

impl Random {
    /// Draws one of the choices, each equally likely.
    fn pick<T: Copy, const N: usize>(&mut self, choices: [T; N]) -> T {
        choices[self.0.below(N as u64) as usize]
    }

    /// Returns `true` with a probability in percent.
    fn chance(&mut self, percent: u64) -> bool {
        self.0.below(100) < percent
    }
}

/// Part of a device in hundredths of a percent.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Part(u64);

impl Part {
    /// Returns this part times a percentage.
    fn times(self, percent: u64) -> Part {
        Part(self.0 * percent / 100)
    }

    /// Figure of a rate of requests, in quotes.
    fn iops(self, what: &str, kib: u64) -> String {
        format!("\"{{iops {self} % {what} {kib} KiB}}\"")
    }

    /// Figure of a rate of sequential reads in bytes, in quotes.
    fn read_bytes(self, kib: u64) -> String {
        format!("\"{{bytes {self} % sequential read {kib} KiB}}\"")
    }
}

impl std::fmt::Display for Part {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{:02}", self.0 / 100, self.0 % 100)
    }
}

/// Kind of VM.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    /// Database: random reads, often with a reservation, sometimes with a latency bound.
    Database,
    /// Web server, whose load comes in bursts or with pauses.
    Web,
    /// Log: sequential writes, mostly with an fsync.
    Log,
    /// Stream that is read at a rate.
    Stream,
    /// Large reads with many requests outstanding, sometimes limited.
    Etl,
    /// Random writes with many requests outstanding.
    Writer,
    /// Many desktops, each with little load.
    Desktops,
    /// Transfer with a deadline.
    Batch,
    /// Large writes, sometimes limited.
    BulkWriter,
}

/// Kinds to choose from; databases are twice as likely as the others.
const KINDS: [Kind; 10] = [
    Kind::Database,
    Kind::Database,
    Kind::Web,
    Kind::Log,
    Kind::Stream,
    Kind::Etl,
    Kind::Writer,
    Kind::Desktops,
    Kind::Batch,
    Kind::BulkWriter,
];

impl Kind {
    /// First part of the VM's name.
    const fn name(self) -> &'static str {
        match self {
            Kind::Database => "db",
            Kind::Web => "web",
            Kind::Log => "log",
            Kind::Stream => "stream",
            Kind::Etl => "etl",
            Kind::Writer => "writer",
            Kind::Desktops => "desktop",
            Kind::Batch => "batch",
            Kind::BulkWriter => "bulk",
        }
    }
}

/// VMs of a kind, as a table of a mix.
#[derive(Debug)]
struct Vm {
    count: u64,
    disk_gib: u64,
    /// Keys of the objective with their values.
    objective: Vec<String>,
    /// Limit; `None`: the VM has none.
    limit: Option<SequentialLimit>,
    /// Keys of the workload with their values.
    workload: Vec<String>,
}

/// Limit of a VM at a part of the rate of sequential I/Os.
#[derive(Clone, Copy, Debug)]
struct SequentialLimit {
    /// Part of the device, in percent.
    percent: u64,
    /// `read` or `write`.
    rw: &'static str,
    /// Longest burst at three times the limit, in seconds.
    burst_s: Option<u64>,
}

impl SequentialLimit {
    /// Key of the limit with its value.
    fn text(self) -> String {
        let SequentialLimit {
            percent,
            rw,
            burst_s,
        } = self;
        let figure = |percent| format!("\"{{bytes {percent} % sequential {rw} 1 MiB}}\"");
        let limit = figure(percent);
        let Some(length) = burst_s else {
            return format!("limit = {limit}");
        };
        let burst = format!(
            "{{ total = {}, length = \"{length} s\" }}",
            figure(3 * percent)
        );
        format!("limit = {{ total = {limit}, burst = {burst} }}")
    }
}

impl Vm {
    /// Table of the VMs in a mix.
    fn table(&self, name: &str) -> String {
        let mut text = format!("\n[[vm]]\nname = \"{name}\"\n");
        if self.count > 1 {
            text += &format!("count = {}\n", self.count);
        }
        text += &format!("disk = [{{ size = \"{} GiB\" }}]\n", self.disk_gib);
        let limit = self.limit.map(SequentialLimit::text);
        let objective: Vec<String> = self.objective.iter().cloned().chain(limit).collect();
        if !objective.is_empty() {
            text += &format!("objective = {{ {} }}\n", objective.join(", "));
        }
        text + &format!("workload = [\n  {{ {} }},\n]\n", self.workload.join(", "))
    }
}

/// Open loop at a rate, with exponential times between requests.
fn at_rate(figure: &str) -> [String; 2] {
    [
        format!("rate_iops = {figure}"),
        "rate_process = \"poisson\"".to_owned(),
    ]
}

/// Closed loop that pauses after some requests.
fn pause_ms(mean: u64, after_requests: u64) -> [String; 2] {
    [
        format!("thinktime = {{ distribution = \"exponential\", mean = \"{mean} ms\" }}"),
        format!("thinktime_blocks = {after_requests}"),
    ]
}

fn workload(rw: &str, kib: u64) -> Vec<String> {
    vec![format!("rw = \"{rw}\""), format!("bs = \"{kib} KiB\"")]
}

fn depth(depth: u64) -> String {
    format!("iodepth = {depth}")
}

/// Mix being drawn.
#[derive(Debug)]
struct Draft {
    random: Random,
    /// Part of the device that may still be promised.
    promised: Part,
    /// Space in GiB that further VMs of a kind may take.
    spare_gib: u64,
}

impl Draft {
    fn vm(&mut self, kind: Kind) -> Vm {
        let (drawn, disk_gib) = match kind {
            Kind::Desktops => (self.random.pick([5, 10, 20]), DESKTOP_GIB),
            Kind::Batch => (1, DISK_GIB),
            _ => (self.random.pick([1, 1, 1, 1, 2, 4]), DISK_GIB),
        };
        // One disk has its room already.
        let count = drawn.min(1 + self.spare_gib / disk_gib);
        self.spare_gib -= (count - 1) * disk_gib;
        let share = Part(100 * self.random.pick([2, 4, 6, 8, 10, 15]) / count);
        let mut vm = Vm {
            count,
            disk_gib,
            objective: Vec::new(),
            limit: None,
            workload: Vec::new(),
        };
        let weight = self.random.pick([
            None,
            None,
            None,
            Some(50),
            Some(200),
            Some(300),
            Some(400),
            Some(800),
        ]);
        let has_weight = match kind {
            Kind::Database => self.database(&mut vm, share),
            Kind::Web => self.web(&mut vm, share),
            Kind::Log => self.log(&mut vm, share),
            Kind::Stream => self.stream(&mut vm, share),
            Kind::Etl => self.large(&mut vm, "read", [512, 1024, 1024], [4, 16, 32]),
            Kind::BulkWriter => self.large(&mut vm, "write", [256, 256, 1024], [2, 8, 8]),
            Kind::Writer => self.writer(&mut vm),
            Kind::Desktops => self.desktops(&mut vm),
            Kind::Batch => self.batch(&mut vm),
        };
        if let Some(weight) = weight.filter(|_| has_weight) {
            vm.objective.push(format!("weight = {weight}"));
        }
        vm
    }

    /// Promises a part of the device to each of the VMs, if that much is left and a draw with a
    /// probability in percent says so.
    fn promise(&mut self, each: Part, count: u64, percent: u64) -> bool {
        let needed = Part(each.0 * count);
        let promised = self.random.chance(percent) && needed <= self.promised;
        if promised {
            self.promised.0 -= needed.0;
        }
        promised
    }

    /// Draws a database. Like the other kinds: returns `true` if the VMs may have a weight.
    fn database(&mut self, vm: &mut Vm, share: Part) -> bool {
        let kib = self.random.pick([4, 8, 16]);
        let reads = self.random.pick([100, 95, 70]);
        let (mut load, mut is_paced) = (share, self.random.chance(50));
        if self.promise(share, vm.count, 85) {
            let figure = share.iops("random read", kib);
            vm.objective.push(format!("reservation = {figure}"));
            load = share.times(self.random.pick([30, 50, 70]));
            if self.random.chance(50) {
                let bound = self.random.pick([2, 3, 4]);
                vm.objective.push(format!("latency = \"{{time {bound}}}\""));
                // The bound holds for requests within the reservation.
                is_paced = true;
            }
        }
        vm.workload = match reads {
            100 => workload("randread", kib),
            _ => workload("randrw", kib),
        };
        if reads < 100 {
            vm.workload.push(format!("rwmixread = {reads}"));
        }
        if self.random.chance(33) {
            let skewed = "random_distribution = \"zipf:1.1\"";
            vm.workload.push(skewed.to_owned());
        }
        if is_paced {
            vm.workload.extend(at_rate(&load.iops("random read", kib)));
        } else {
            vm.workload
                .push(depth(self.random.pick([1, 2, 4, 8, 16, 32])));
        }
        true
    }

    fn web(&mut self, vm: &mut Vm, share: Part) -> bool {
        let kib = self.random.pick([4, 16, 32]);
        if self.promise(share, vm.count, 60) {
            let figure = share.iops("random read", kib);
            vm.objective.push(format!("reservation = {figure}"));
        }
        vm.workload = workload("randread", kib);
        if self.random.chance(50) {
            let load = share.times(150).iops("random read", kib);
            vm.workload.extend(at_rate(&load));
            let (on, off) = (self.random.pick([100, 300]), self.random.pick([200, 700]));
            let bursts = format!("bursts = {{ on = \"{on} ms\", off = \"{off} ms\" }}");
            vm.workload.push(bursts);
        } else {
            vm.workload.push(depth(self.random.pick([2, 8, 16])));
            let (mean, after) = (self.random.pick([1, 5]), self.random.pick([4, 16]));
            vm.workload.extend(pause_ms(mean, after));
        }
        true
    }

    fn log(&mut self, vm: &mut Vm, share: Part) -> bool {
        let kib = self.random.pick([4, 16]);
        if self.promise(share, vm.count, 70) {
            let figure = share.iops("random write", kib);
            vm.objective.push(format!("reservation = {figure}"));
        }
        vm.workload = workload("write", kib);
        if let Some(writes) = self.random.pick([Some(1), Some(8), None]) {
            vm.workload.push(format!("fsync = {writes}"));
        }
        if self.random.chance(50) {
            vm.workload.push(depth(1));
        } else {
            let load = share.times(33).iops("random write", kib);
            vm.workload.extend(at_rate(&load));
        }
        true
    }

    fn stream(&mut self, vm: &mut Vm, share: Part) -> bool {
        let kib = self.random.pick([64, 128, 256]);
        let is_target = self.random.chance(50);
        let is_promised = self.promise(share, vm.count, 80);
        if is_promised {
            let part = if is_target { "target" } else { "reservation" };
            let figure = share.read_bytes(kib);
            vm.objective.push(format!("{part} = {figure}"));
        }
        vm.workload = workload("read", kib);
        vm.workload.push(depth(self.random.pick([1, 2, 8])));
        // A target is all that a VM gets, so that a weight would say nothing.
        !(is_target && is_promised)
    }

    /// Draws large reads or writes with many outstanding.
    fn large(&mut self, vm: &mut Vm, rw: &'static str, kib: [u64; 3], depths: [u64; 3]) -> bool {
        vm.workload = workload(rw, self.random.pick(kib));
        vm.workload.push(depth(self.random.pick(depths)));
        if self.random.chance(30) {
            vm.limit = Some(SequentialLimit {
                percent: self.random.pick([10, 20, 30]),
                rw,
                burst_s: None,
            });
        }
        true
    }

    fn writer(&mut self, vm: &mut Vm) -> bool {
        vm.workload = workload("randwrite", self.random.pick([4, 16, 64]));
        vm.workload.push(depth(self.random.pick([4, 16, 64])));
        true
    }

    fn desktops(&mut self, vm: &mut Vm) -> bool {
        vm.workload = vec![
            "rw = \"randrw\"".to_owned(),
            "rwmixread = 70".to_owned(),
            "bssplit = \"4 KiB/50 : 32 KiB/30 : 128 KiB/20\"".to_owned(),
            depth(self.random.pick([1, 4])),
        ];
        let (mean, after) = (self.random.pick([2, 10]), self.random.pick([1, 16]));
        vm.workload.extend(pause_ms(mean, after));
        true
    }

    fn batch(&mut self, vm: &mut Vm) -> bool {
        let part = Part(100 * self.random.pick([5, 10, 15]));
        let kib = self.random.pick([256, 512]);
        vm.workload = workload("read", kib);
        vm.workload.push(depth(4));
        let has_deadline = self.promise(part, vm.count, 100);
        if has_deadline {
            let delay = self.random.pick([1, 2]);
            let deadline = self.random.pick([2, 3]);
            let data = format!("{{data {part} % sequential read {kib} KiB for 2}}");
            vm.workload.extend([
                format!("startdelay = \"{{span {delay}}}\""),
                format!("io_size = \"{data}\""),
                format!("deadline = \"{{span {deadline}}}\""),
            ]);
        }
        !has_deadline
    }
}

#[cfg(test)]
mod tests {
    use super::super::device::devices;
    use super::super::mix::Mix;
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn seed_and_number_alone_determine_a_mix() {
        let drawn: Vec<String> = (1..=40).map(|number| text(7, number)).collect();
        // In another order: nothing is left of one draw in the next.
        let again: Vec<String> = (1..=40).rev().map(|number| text(7, number)).collect();
        assert!(drawn.iter().eq(again.iter().rev()));
        let others = (1..=40).map(|number| text(8, number));
        let all: BTreeSet<String> = drawn.iter().cloned().chain(others).collect();
        assert_eq!(all.len(), 80, "each is a mix of its own");
    }

    #[test]
    fn every_random_mix_is_a_scenario_on_every_device() {
        let devices = devices().expect("they are read");
        for number in 1..=40 {
            let mix = Mix::random(3, number);
            for device in &devices {
                if let Err(errors) = mix.check(device, 20) {
                    panic!("{} on {}: {errors}", mix.name, device.model);
                }
            }
        }
    }

    /// Number behind a word in a line of a mix, such as 4 behind `count = `.
    fn number(text: &str, word: &str) -> Option<f64> {
        let digits = text.split_once(word)?.1;
        let end = digits.find(|c: char| !c.is_ascii_digit() && c != '.');
        digits[..end.unwrap_or(digits.len())].parse().ok()
    }

    /// Parts of objectives of which each is drawn.
    const PARTS: [&str; 12] = [
        "target = ",
        "weight = ",
        "group = { name = \"red\"",
        "group = { name = \"blue\"",
        "latency = ",
        "expects = { burst = ",
        " KiB @ ",
        "priority = \"realtime\"",
        "priority = \"best-effort 7\"",
        "priority = \"idle\"",
        "burst = { total = ",
        "[[background]]",
    ];

    #[test]
    fn promises_and_disks_stay_within_their_bounds_and_every_kind_is_drawn() {
        let (mut kinds, mut parts) = (BTreeSet::new(), BTreeSet::new());
        let mut most_promised = 0.0_f64;
        for seed in 0..500 {
            let text = text(seed, 1);
            let (mut promised, mut gib, mut vms) = (0.0, 0.0, 0);
            for part in PARTS {
                if text.contains(part) {
                    parts.insert(part);
                }
            }
            for table in text.split("\n[[").skip(1) {
                let count = number(table, "count = ").unwrap_or(1.0);
                gib += count * number(table, "size = \"").expect("a disk");
                let floor = number(table, "reservation = \"{iops ")
                    .or(number(table, "reservation = \"{bytes "))
                    .or(number(table, "target = \"{bytes "));
                let transfer = number(table, "io_size = \"{data ");
                promised += count * (floor.unwrap_or(0.0) + transfer.unwrap_or(0.0));
                let name = table.split('"').nth(1).expect("a name");
                kinds.insert(
                    name.trim_end_matches(|c: char| c.is_ascii_digit())
                        .to_owned(),
                );
                vms += usize::from(table.starts_with("vm"));
            }
            assert!((2..=6).contains(&vms), "{text}");
            assert!(
                promised <= 45.0 + 1e-9 && gib <= 270.0,
                "{promised} {gib}: {text}"
            );
            most_promised = most_promised.max(promised);
        }
        assert!(most_promised > 40.0, "{most_promised}");
        assert_eq!(kinds.len(), 10, "{kinds:?}");
        assert!(parts.iter().eq(&BTreeSet::from(PARTS)), "{parts:?}");
    }
}
