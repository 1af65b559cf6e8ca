//! Memory is bounded whatever VMs do.

use super::{BEGIN_MS, ask};
use crate::budget::{BYTES_MAX, BYTES_PER_VM, FINE_CHUNK_MAX, FINE_WINDOWS, WINDOW_MS};
use crate::chunk::VALUE_MAX;
use crate::column::{Column, Merge, Values};
use crate::latency::{BUCKETS, Latency};
use crate::query::Step;
use crate::recorder::{Recorder, vm};
use crate::sample::Sample;

/// Memory of the counters that the driver keeps for each VM, at most.
const DRIVER_BYTES: usize = 4 << 10;

/// Generator of bits that no code can make shorter (SplitMix64).
struct Noise(u64);

impl Noise {
    fn next(&mut self, bits: u32) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ z >> 31) >> (64 - bits)
    }

    /// A sample of a VM that does everything at once: each column is noise of its usual width.
    fn sample(&mut self, end_ms: u64, bits: u32) -> Sample {
        let mut values = Values::default();
        for column in Column::ALL {
            if column.merge() != Merge::Quantile {
                values[column] = self.next(bits);
            }
        }
        let cells = (0..BUCKETS).map(|bucket| (bucket, self.next(16) + 1));
        let latency = Latency::new(cells.collect());
        let behind = (0..4).map(|vm| (format!("neighbour-{vm}").into(), self.next(30)));
        let behind = behind.collect();
        Sample {
            end_ms,
            span_ms: 900 + self.next(7),
            values,
            latency,
            behind,
        }
    }
}

#[test]
fn the_busiest_vm_stays_within_its_memory() {
    // With the longest name that a VM may have.
    let key = vm(&"n".repeat(64));
    for bits in [8, 24, 32, 64] {
        let mut recorder = Recorder::new(1, BEGIN_MS, true);
        let mut noise = Noise(u64::from(bits));
        let (mut now, mut most) = (BEGIN_MS, 0);
        for second in 1..=30 * 60 {
            now += 1000;
            recorder.push(key.clone(), noise.sample(now, bits));
            most = most.max(recorder.bytes_of(&key) + DRIVER_BYTES);
            if second % 10 == 0 {
                recorder.close(now, now);
            }
        }
        assert!(
            most <= BYTES_PER_VM,
            "{most} bytes for noise of {bits} bits"
        );
        let (fine, _) = recorder.oldest_ms();
        let kept = now - fine.expect("there are fine points");
        assert_eq!(
            kept,
            FINE_WINDOWS as u64 * WINDOW_MS,
            "noise of {bits} bits"
        );
        let answer = ask(&recorder, &key, (0, u64::MAX), Step::Fine);
        assert!(answer.intervals.len() >= FINE_WINDOWS);
    }
}

/// A VM as they are: some columns are in use, rates vary by some per cent, latencies lie around two
/// modes.
fn usual(noise: &mut Noise, end_ms: u64) -> Sample {
    let (reads, writes) = (9_500 + noise.next(10), 4_700 + noise.next(9));
    let mut values = Values::default();
    values[Column::Reads] = reads;
    values[Column::ReadBytes] = 4096 * reads;
    values[Column::Writes] = writes;
    values[Column::WriteBytes] = 8192 * writes + 4096 * noise.next(8);
    values[Column::Others] = noise.next(4);
    values[Column::Regulated] = noise.next(20);
    values[Column::Queued] = 3_000_000 + noise.next(20);
    values[Column::Deliberate] = noise.next(12);
    values[Column::AtDevice] = 5_000_000 + noise.next(20);
    values[Column::Pending] = noise.next(5);
    values[Column::InFlight] = noise.next(4);
    values[Column::LatencyKept] = 1;
    let mut latency = Latency::default();
    for _ in 0..2000 {
        let base = if noise.next(2) == 0 { 60 } else { 110 };
        // A sum of noise has a mode.
        let bucket = base + noise.next(3) + noise.next(3) + noise.next(3);
        latency.merge(&Latency::new(vec![(bucket as u16, 7)]));
    }
    let behind = vec![("backup".into(), 2_000_000 + noise.next(18))];
    Sample {
        end_ms,
        span_ms: 990 + noise.next(4),
        values,
        latency,
        behind,
    }
}

#[test]
fn a_usual_busy_vm_keeps_every_second() {
    let key = vm("oltp");
    let mut recorder = Recorder::new(1, BEGIN_MS, false);
    let (mut noise, mut now) = (Noise(1), BEGIN_MS);
    for second in 1..=900 {
        now += 1000;
        recorder.push(key.clone(), usual(&mut noise, now));
        if second % 10 == 0 {
            recorder.close(now, now);
        }
    }
    let answer = ask(&recorder, &key, (0, u64::MAX), Step::Fine);
    assert_eq!(answer.intervals.len(), 900);
    assert!(
        answer
            .intervals
            .iter()
            .all(|interval| (990..1010).contains(&interval.observed_ms))
    );
}

#[test]
fn values_at_their_bounds_fit_a_chunk() {
    let mut values = Values::default();
    Column::ALL
        .into_iter()
        .for_each(|column| values[column] = u64::MAX);
    let cells = (0..BUCKETS).map(|bucket| (bucket, u64::MAX)).collect();
    let behind = (0..9)
        .map(|vm| (format!("vm-{vm}").into(), u64::MAX - vm))
        .collect();
    let sample = Sample {
        end_ms: u64::MAX,
        span_ms: u64::MAX,
        values,
        latency: Latency::new(cells),
        behind,
    };
    let mut recorder = Recorder::new(1, BEGIN_MS, false);
    (0..30).for_each(|_| recorder.push(vm("a"), sample.clone()));
    recorder.close(BEGIN_MS + WINDOW_MS, BEGIN_MS + WINDOW_MS);
    assert!(recorder.bytes_of(&vm("a")) <= FINE_CHUNK_MAX + 16);
    // Closed by the clock, although its samples lie in the far future.
    let answer = ask(&recorder, &vm("a"), (0, u64::MAX), Step::Every(10_000));
    let most = answer.intervals[0].values[Column::Reads];
    assert_eq!(most, VALUE_MAX);
}

#[test]
fn ten_thousand_vms_fit_and_come_back_by_name() {
    let mut recorder = Recorder::new(1, BEGIN_MS, true);
    let keys: Vec<_> = (0..10_000).map(|n| vm(&format!("vm-{n}"))).collect();
    let mut now = BEGIN_MS;
    for _ in 0..35 {
        now += WINDOW_MS;
        for (n, key) in keys.iter().enumerate() {
            let mut sample = Sample {
                end_ms: now,
                span_ms: 1000,
                ..Sample::default()
            };
            sample.values[Column::Reads] = n as u64;
            sample.latency = Latency::new(vec![((n % 400) as u16, 1 + n as u64)]);
            recorder.push(key.clone(), sample);
        }
        for (_, blocks) in recorder.close(now, now) {
            assert!(blocks.iter().all(|block| block.len() < 3 << 20));
        }
    }
    assert!(recorder.bytes() <= BYTES_MAX);
    for n in [0, 1, 4_999, 9_999] {
        for step in [Step::Fine, Step::Every(10_000), Step::Every(600_000)] {
            let answer = ask(&recorder, &keys[n], (0, u64::MAX), step);
            let reads: u64 = answer
                .intervals
                .iter()
                .map(|i| i.values[Column::Reads])
                .sum();
            assert_eq!(reads, 35 * n as u64, "vm-{n}, {step:?}");
        }
    }
    assert!(recorder.has(&keys[77]) && !recorder.has(&vm("vm-10000")));
}
