//! Tests of the contract that every model of the catalogue has with its driver.

use crate::common::{KIB, MIB, any_op, array_of, in_order, interleaved};
use proptest::prelude::*;
use std::sync::LazyLock;
use tidegate_core::request::Op;
use tidegate_core::time::Nanos;
use tidegate_device::catalogue::{self, Entry};
use tidegate_device::{Completion, Model, ModelIo};

/// Every built-in entry, and models of cases that no built-in entry has: order of arrival
/// with a write cache, a flash disk in garbage collection, arrays of every kind of member with I/Os
/// in several parts, flash disks with an interleaved interface, array controllers.
static ENTRIES: LazyLock<Vec<Entry>> = LazyLock::new(|| {
    let mut entries: Vec<Entry> = catalogue::entries().collect();
    entries.push(in_order());
    let parse = |text: &str| catalogue::parse(text, "test").unwrap();
    let cached = include_str!("../../../../devices/hdd-7200-1tb-cached.toml");
    entries.push(parse(&cached[..cached.find("\n[hdd.ncq]").unwrap()]));
    // A cache so small that it is always full.
    entries.push(parse(
        &cached.replace("size = \"16 MiB\"", "size = \"256 KiB\""),
    ));
    let small = |text: &str| {
        let text = text.replace("1000204886016 B", "512 MiB");
        let text = text.replace("99.3 GB", "32 MiB");
        text.replace("size = \"32 MiB\"", "size = \"1 MiB\"")
    };
    let nvme = small(include_str!("../../../../devices/nvme-1tb.toml"));
    entries.push(parse(&nvme));
    let (shared, sata) = (
        small(&interleaved("nvme-1tb")),
        interleaved("ssd-sata-300gb"),
    );
    entries.push(parse(&shared));
    entries.push(parse(&sata));
    entries.push(array_of(&shared, 3, 40));
    for member in ["hdd-7200-1tb-cached", "nvme-1tb"] {
        entries.push(parse(&format!(
            "name = \"{member} x 3\"\ndescription = \"test\"\n[raid0]\nmembers = 3\n\
             member = \"{member}\"\nchunk = \"16 KiB\"\nqueue_depth = 40\n\
             command_overhead = \"10 us\"\n"
        )));
    }
    for (text, cap) in [
        (cached, "iops = 40\nburst = \"2 s\""),
        (&nvme, "bandwidth = \"20 MB/s\""),
        (&sata, "iops = 5000"),
    ] {
        entries.push(parse(&format!("{text}\n[cap]\n{cap}\n")));
    }
    // Controllers with each of their parts, in front of devices that end I/Os out of order.
    let reads = "[controller.read_cache]\nsize = \"1 MiB\"\npage = \"16 KiB\"\n\
                 [controller.read_ahead]\ndistance = \"256 KiB\"\nio = \"64 KiB\"\n\
                 streams = 4\n";
    let writes = "[controller.write_cache]\nsize = \"2 MiB\"\nhigh_watermark = \"1 MiB\"\n\
                  low_watermark = \"512 KiB\"\nidle = \"10 ms\"\ndestage_io = \"64 KiB\"\n\
                  destage_depth = 8\n";
    for (model, tables, cap) in [
        ("raid0-16x250gb", [reads, writes], ""),
        ("hdd-7200-1tb-cached", [reads, ""], ""),
        ("nvme-1tb", ["", writes], ""),
        ("ssd-sata-300gb", ["", ""], ""),
        ("raid0-16x250gb", [reads, writes], "[cap]\niops = 300\n"),
    ] {
        entries.push(parse(&format!(
            "name = \"controller, {model}\"\ndescription = \"test\"\nmodel = \"{model}\"\n\
             [controller]\nqueue_depth = 48\ncommand_overhead = \"20 us\"\n\
             interface_rate = \"1 GB/s\"\n{}{cap}",
            tables.concat()
        )));
    }
    entries
});

/// Address of an I/O in terms that do not depend on the device.
#[derive(Clone, Copy, Debug)]
enum Place {
    /// Number of a block near the beginning, so that some I/Os overlap.
    Block(u64),
    /// Fraction of the capacity, in 65535ths.
    Fraction(u16),
}

/// I/O in terms that do not depend on the device, and the time that the driver waits before it.
#[derive(Clone, Copy, Debug)]
struct Step {
    op: Op,
    place: Place,
    blocks: u64,
    fua: bool,
    wait: u64,
    /// True if the driver polls before it submits.
    polls: bool,
}

fn any_step() -> impl Strategy<Value = Step> {
    let place = prop_oneof![
        (0_u64..2_000).prop_map(Place::Block),
        any::<u16>().prop_map(Place::Fraction)
    ];
    let blocks = prop_oneof![Just(8_u64), 1_u64..64, 1_u64..1_000];
    let wait = prop_oneof![4 => Just(0_u64), 2 => 0..300_000_u64, 1 => 0..100_000_000_u64];
    (any_op(), place, blocks, any::<bool>(), wait, any::<bool>()).prop_map(
        |(op, place, blocks, fua, wait, polls)| Step {
            op,
            place,
            blocks,
            fua: fua && op == Op::Write,
            wait,
            polls,
        },
    )
}

fn io(step: &Step, id: u64, disk: &dyn Model) -> ModelIo {
    let spec = disk.spec();
    let block = u64::from(spec.logical_block);
    let len = (step.blocks * block).min(u64::from(spec.max_io));
    let last = (spec.capacity - len) / block;
    let at = match step.place {
        Place::Block(block) => block.min(last),
        Place::Fraction(share) => {
            (u128::from(last) * u128::from(share) / u128::from(u16::MAX)) as u64
        }
    };
    let (addr, len) = if step.op == Op::Flush {
        // A flush has no address, so any value must be accepted: 0, or one beyond the capacity.
        (spec.capacity.saturating_mul(2 * (id % 2)), 0)
    } else {
        (at * block, len as u32)
    };
    ModelIo {
        id,
        op: step.op,
        addr,
        len,
        fua: step.fua,
    }
}

/// Result of a run.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Run {
    sent: Vec<(Nanos, ModelIo)>,
    ended: Vec<Completion>,
}

/// Submits all steps. With `prompt` the driver polls at every time at which an I/O ends, else only
/// where a step says so or the queue is full.
fn run(entry: &Entry, steps: &[Step], prompt: bool) -> Run {
    let mut disk = entry.build();
    let (mut now, mut sent, mut ended) = (Nanos::ZERO, Vec::new(), Vec::new());
    // An interleaved interface may postpone a completion when another transfer begins, and a
    // controller is polled at each step.
    let may_postpone = entry.name.contains("interleaved") || entry.name.starts_with("controller");
    for (id, step) in steps.iter().enumerate() {
        let mut target = now + Nanos(step.wait);
        loop {
            if !disk.has_room() {
                target = target.max(disk.next_completion().unwrap());
            }
            while let Some(at) = disk.next_completion().filter(|at| prompt && *at <= target) {
                // No I/O ends before the time that was named, and one ends then if it is known.
                if at > now {
                    assert_eq!(disk.pop_completed(Nanos(at.0 - 1)), None);
                }
                let completion = disk.pop_completed(at.max(now));
                match completion {
                    Some(ended) => assert_eq!(ended.at, at),
                    None => assert!(may_postpone && disk.next_completion() > Some(at)),
                }
                ended.extend(completion);
            }
            now = target;
            while (step.polls || !disk.has_room())
                && let Some(completion) = disk.pop_completed(now)
            {
                ended.push(completion);
            }
            if disk.has_room() {
                break;
            }
        }
        let io = io(step, id as u64, &*disk);
        let (before, promised) = (disk.in_flight(), disk.next_completion());
        disk.submit(now, io);
        assert_eq!(disk.in_flight(), before + 1);
        // The end that was named is kept, or an I/O submitted later ends sooner.
        let next = disk.next_completion().expect("something is in flight");
        assert!(may_postpone || promised.is_none_or(|at| next <= at));
        sent.push((now, io));
    }
    while let Some(at) = disk.next_completion() {
        match disk.pop_completed(at.max(now)) {
            Some(completion) => {
                assert!(completion.at == at || (may_postpone && completion.at > at && at < now));
                ended.push(completion);
            }
            None => assert!(may_postpone && disk.next_completion() > Some(at.max(now))),
        }
    }
    assert_eq!(disk.in_flight(), 0);
    Run { sent, ended }
}

/// Returns the minimum time of an I/O on the interface in nanoseconds, by the interface rates of
/// the entries' files. Arrays serve in parallel; they are named after their members.
fn min_interface_ns(entry: &Entry, io: &ModelIo) -> u64 {
    let fastest = match entry.name.as_str() {
        name if name.contains(" x 3") => 3 * 3_500_000_000,
        name if name.starts_with("controller") => 1_000_000_000,
        name if name.starts_with("raid0") => 16 * 300_000_000,
        name if name.starts_with("nvme") => 3_500_000_000,
        _ => 600_000_000,
    };
    match io.op {
        Op::Read | Op::Write => u64::from(io.len) * 1_000_000_000 / fastest,
        _ => 0,
    }
}

proptest! {
    // Each case is tried on a dozen devices.
    #![proptest_config(ProptestConfig {
        cases: ProptestConfig::default().cases.div_ceil(3),
        ..ProptestConfig::default()
    })]

    #[test]
    fn every_io_ends_once_in_order_and_not_too_soon(
        steps in proptest::collection::vec(any_step(), 1..150)
    ) {
        for entry in ENTRIES.iter() {
            let name = &entry.name;
            let Run { sent, ended } = run(entry, &steps, true);
            prop_assert_eq!(ended.len(), sent.len(), "{}", name);
            let mut at = vec![None; sent.len()];
            for pair in ended.windows(2) {
                prop_assert!(pair[0].at <= pair[1].at, "{}: {:?}", name, pair);
            }
            for c in &ended {
                prop_assert_eq!(at[c.id as usize].replace(c.at), None, "{} twice", c.id);
                let (begun, io) = &sent[c.id as usize];
                let took = c.at.since(*begun).0;
                prop_assert!(took >= min_interface_ns(entry, io), "{}: {:?}", name, io);
            }
            // A flush ends after all that was submitted before it.
            let mut latest = Nanos::ZERO;
            for (id, (_, io)) in sent.iter().enumerate() {
                let end = at[id].unwrap();
                if io.op == Op::Flush {
                    prop_assert!(end >= latest, "{}: flush {} at {}, {}", name, id, end, latest);
                }
                latest = latest.max(end);
            }
        }
    }

    #[test]
    fn the_same_inputs_give_the_same_outputs(
        steps in proptest::collection::vec(any_step(), 1..150)
    ) {
        for entry in ENTRIES.iter() {
            prop_assert_eq!(run(entry, &steps, true), run(entry, &steps, true), "{}", entry.name);
        }
    }

    /// Results depend on the times of submission and never on the times of polling.
    #[test]
    fn late_polling_does_not_change_completion_times(
        steps in proptest::collection::vec(any_step(), 1..30)
    ) {
        // Few enough that the queue is never full, or the late driver would submit later, too.
        for entry in ENTRIES.iter() {
            let (prompt, late) = (run(entry, &steps, true), run(entry, &steps, false));
            prop_assert_eq!(prompt, late, "{}", entry.name);
        }
    }
}

#[test]
fn a_full_queue_has_no_room_and_says_so() {
    for entry in ENTRIES.iter() {
        let mut disk = entry.build();
        let depth = disk.spec().queue_depth;
        for id in 0..u64::from(depth) {
            assert!(disk.has_room(), "{}", entry.name);
            disk.submit(Nanos::ZERO, ModelIo::read(id, id * 64 * KIB, 4_096));
        }
        assert!(!disk.has_room(), "{}", entry.name);
        let one_more = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            disk.submit(Nanos::ZERO, ModelIo::read(0, 0, 4_096));
        }));
        assert!(one_more.is_err(), "{}", entry.name);
    }
}

#[test]
fn misuse_is_refused_by_every_model() {
    for entry in ENTRIES.iter() {
        let spec = entry.spec().clone();
        let refused = |ios: [(u64, ModelIo); 2]| {
            std::panic::catch_unwind(|| {
                let mut disk = entry.build();
                for (now, io) in ios {
                    disk.submit(Nanos(now), io);
                }
            })
            .is_err()
        };
        let good = ModelIo::read(0, MIB, 4_096);
        assert!(!refused([(0, good), (0, good)]));
        assert!(refused([(1, good), (0, good)]), "time runs backwards");
        assert!(refused([
            (0, good),
            (0, ModelIo::read(0, spec.capacity, 4_096))
        ]));
        assert!(refused([(0, good), (0, ModelIo::read(0, 100, 4_096))]));
        assert!(refused([(0, good), (0, ModelIo::read(0, 0, 0))]));
    }
}
