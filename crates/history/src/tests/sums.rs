//! Counters add up at both resolutions, and quantiles bound those of all latencies.

use proptest::prelude::*;

use super::{BEGIN_MS, ask, sample, sums};
use crate::block::{Block, BlockKind};
use crate::budget::WINDOW_MS;
use crate::column::Column;
use crate::latency::Latency;
use crate::query::{Query, Request, Running, Step};
use crate::recorder::{Bytes, Position, Recorder, device, vm};
use crate::sample::Sample;

/// Records a sample of VM `a` each second in which there is one. Returns the recorder, the end of
/// the run, all samples, and all blocks.
fn record(
    seconds: &[Option<Sample>],
    keeps_coarse: bool,
) -> (Recorder, u64, Vec<Sample>, Vec<(BlockKind, Bytes)>) {
    let mut recorder = Recorder::new(7, BEGIN_MS, keeps_coarse);
    let (mut now, mut all, mut written) = (BEGIN_MS, Vec::new(), Vec::new());
    for second in seconds {
        now += 1000;
        if let Some(sample) = second {
            let sample = Sample {
                end_ms: now,
                ..sample.clone()
            };
            recorder.push(vm("a"), sample.clone());
            // Another series in the same blocks must not be taken for this one.
            recorder.push(device("a"), sample.clone());
            all.push(sample);
        }
        if now.is_multiple_of(WINDOW_MS) {
            for (kind, blocks) in recorder.close(now, now) {
                written.extend(blocks.into_iter().map(|block| (kind, block)));
            }
        }
    }
    (recorder, now, all, written)
}

/// Position after these blocks.
fn position(written: &[(BlockKind, Bytes)]) -> Position {
    written
        .iter()
        .fold(Position::default(), |mut position, (kind, bytes)| {
            let (_, last) = Block::parse(bytes).expect("whole").header.windows;
            position.last_window = position.last_window.max(last);
            if *kind == BlockKind::Coarse {
                position.last_coarse = position.last_coarse.max(last);
            }
            position
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn counters_add_up_exactly_at_every_step(
        seconds in prop::collection::vec(prop::option::of(sample()), 1..70),
        repeats in 1usize..8,
        restarts in any::<bool>(),
    ) {
        // Up to 9 minutes, so that some windows are covered by a coarse block and others are not.
        let all = seconds.iter().cycle().take(seconds.len() * repeats);
        let seconds: Vec<_> = all.cloned().collect();
        let (mut recorder, now, all, written) = record(&seconds, !restarts);
        if restarts {
            // The open window is lost, as in a crash; close it first.
            for (kind, blocks) in recorder.close(now, now) {
                prop_assert!(kind != BlockKind::Mark || blocks.len() == 1);
            }
        }
        let span = (BEGIN_MS, now + 1);
        for step in [Step::Fine, Step::Every(10_000), Step::Every(60_000), Step::Every(3_600_000)] {
            let request = Request { key: vm("a"), from_ms: span.0, to_ms: span.1, step };
            let read = |mut query: Query| {
                if restarts {
                    // Coarse blocks are on disk alone.
                    let coarse = written.iter().filter(|it| it.0 == BlockKind::Coarse);
                    for (_, bytes) in coarse {
                        query.read(&Block::parse(bytes).expect("whole")).expect("sound");
                    }
                }
                recorder.query_all(query)
            };
            let answer = read(Query::new(request.clone())).remove(0);
            let others = [vm("nobody"), device("a")];
            let several = read(Query::of_several(request.clone(), others.clone()));
            prop_assert_eq!(&several[0], &answer);
            for (key, of_key) in others.into_iter().zip(&several[1..]) {
                let alone = read(Query::new(Request { key, ..request.clone() }));
                prop_assert_eq!(of_key, &alone[0]);
            }
            let got = sums(answer.intervals.iter().map(|interval| &interval.values), step);
            let expected = sums(all.iter().map(|sample| &sample.values), step);
            prop_assert_eq!(&got, &expected, "{:?}", step);
            let observed: u64 = answer.intervals.iter().map(|i| i.observed_ms).sum();
            prop_assert_eq!(observed, 1000 * all.len() as u64, "{:?}", step);
            let running = Running { from_ms: BEGIN_MS, to_ms: now + 1 };
            prop_assert_eq!(&answer.running, &[running]);
        }
    }

    #[test]
    fn an_hour_has_the_quantiles_of_all_its_latencies(
        seconds in prop::collection::vec(prop::option::of(sample()), 1..40),
    ) {
        let (recorder, now, all, _) = record(&seconds, true);
        let mut latency = Latency::default();
        all.iter().for_each(|sample| latency.merge(&sample.latency));
        let answer = ask(&recorder, &vm("a"), (BEGIN_MS, now + 1), Step::Every(3_600_000));
        let tens = ask(&recorder, &vm("a"), (BEGIN_MS, now + 1), Step::Every(10_000));
        prop_assert_eq!(&tens.latency, &answer.latency, "of all intervals, however long");
        prop_assert_eq!(answer.latency.count(), latency.count());
        for (column, per_mille) in Column::QUANTILES {
            let got = answer.intervals.first().and_then(|hour| hour.quantile_ns(column));
            let exact = latency.quantile(per_mille).map(crate::latency::upper_bound_ns);
            match (got, exact) {
                (Some(got), Some(exact)) => {
                    prop_assert!((exact..=2 * exact).contains(&got), "{exact} {got}");
                }
                other => prop_assert_eq!(other, (None, None)),
            }
        }
    }

    #[test]
    fn a_restarted_recorder_goes_on_where_the_last_one_ended(
        seconds in prop::collection::vec(prop::option::of(sample()), 10..60),
        repeats in 1usize..12,
        more in prop::collection::vec(sample(), 1..10),
    ) {
        let all = seconds.iter().cycle().take(seconds.len() * repeats);
        let seconds: Vec<_> = all.cloned().collect();
        let (_, now, mut all, written) = record(&seconds, false);
        // What was in the open window is lost.
        let closed = now / WINDOW_MS * WINDOW_MS;
        all.retain(|sample| sample.end_ms <= closed);
        let position = position(&written);
        let mut recorder = Recorder::new(8, now + 5000, false);
        let fine = written.iter().filter(|(kind, _)| *kind == BlockKind::Fine);
        recorder.restore(position, fine.map(|(_, bytes)| bytes.clone()));
        let mut later = now + 5000;
        for sample in &more {
            later += 1000;
            let sample = Sample { end_ms: later, ..sample.clone() };
            recorder.push(vm("a"), sample.clone());
            all.push(sample);
        }
        let groups = recorder.close(later, later);
        let request = Request {
            key: vm("a"),
            from_ms: BEGIN_MS,
            to_ms: later + 1,
            step: Step::Every(60_000),
        };
        let mut query = Query::new(request.clone());
        let on_disk = written.iter().map(|(kind, bytes)| (*kind, bytes));
        let added = groups.iter().flat_map(|(kind, blocks)| blocks.iter().map(|b| (*kind, b)));
        for (kind, bytes) in on_disk.chain(added) {
            if kind == BlockKind::Coarse {
                query.read(&Block::parse(bytes).expect("whole")).expect("sound");
            }
        }
        let answer = recorder.query(query);
        let got = sums(answer.intervals.iter().map(|interval| &interval.values), request.step);
        prop_assert_eq!(got, sums(all.iter().map(|sample| &sample.values), request.step));
    }
}

#[test]
fn idle_time_and_time_without_a_daemon_are_told_apart() {
    let busy = Some(Sample::default());
    let seconds: Vec<_> = [vec![busy.clone(); 10], vec![None; 60], vec![busy; 10]].concat();
    let (recorder, now, _, written) = record(&seconds, false);
    drop(recorder);
    let mut next = Recorder::new(8, now + 600_000, false);
    let fine = written.iter().filter(|(kind, _)| *kind == BlockKind::Fine);
    next.restore(position(&written), fine.map(|(_, bytes)| bytes.clone()));
    let answer = ask(
        &next,
        &vm("a"),
        (BEGIN_MS, now + 700_000),
        Step::Every(10_000),
    );
    assert_eq!(answer.intervals.len(), 2);
    let spans = [(BEGIN_MS, now), (now + 600_000, now + 700_000)];
    let running = spans.map(|(from_ms, to_ms)| Running { from_ms, to_ms });
    assert_eq!(answer.running, running);
    // The coarse block of the restored windows does not say that the daemon ran in between.
    next.push(
        vm("a"),
        Sample {
            end_ms: now + 605_000,
            ..Sample::default()
        },
    );
    let mut groups = next.close(now + 610_000, now + 610_000);
    groups.extend(next.close(now + 1_000_000, now + 1_000_000));
    groups.retain(|(kind, _)| *kind == BlockKind::Coarse);
    assert!(groups.len() >= 2, "of either run");
    let request = Request {
        key: vm("a"),
        from_ms: BEGIN_MS,
        to_ms: now + 700_000,
        step: Step::Every(10_000),
    };
    let mut query = Query::new(request.clone());
    for bytes in groups.iter().flat_map(|(_, blocks)| blocks) {
        let block = Block::parse(bytes).expect("whole");
        query.read(&block).expect("sound");
    }
    let answer = next.query(query);
    assert_eq!(answer.running, running);
    assert_eq!(answer.intervals.len(), 3);
}

#[test]
fn a_window_that_is_closed_late_is_in_the_interval_of_its_time() {
    for late_ms in [1, 17, 50, 999] {
        let mut recorder = Recorder::new(1, BEGIN_MS, true);
        // Busy in every other window.
        let is_busy = |window: u64| window.is_multiple_of(2);
        let mut written = Vec::new();
        for window in 0..60 {
            let end_ms = BEGIN_MS + (window + 1) * WINDOW_MS;
            if is_busy(window) {
                let mut sample = Sample {
                    end_ms: end_ms - 3_000,
                    span_ms: 1000,
                    ..Sample::default()
                };
                sample.values[Column::Reads] = window + 1;
                recorder.push(vm("a"), sample);
            }
            written.extend(recorder.close(end_ms + late_ms, end_ms + late_ms));
        }
        assert!(written.iter().any(|(kind, _)| *kind == BlockKind::Coarse));
        let answer = ask(&recorder, &vm("a"), (0, u64::MAX), Step::Every(WINDOW_MS));
        let got = answer.intervals.iter();
        let got: Vec<_> = got.map(|i| (i.from_ms, i.values[Column::Reads])).collect();
        let busy = (0..60).filter(|&window| is_busy(window));
        let due: Vec<_> = busy.map(|w| (BEGIN_MS + w * WINDOW_MS, w + 1)).collect();
        assert_eq!(got, due, "{late_ms} ms late");
    }
}

#[test]
fn memory_alone_keeps_a_day_of_a_vm_that_was_busy_for_a_while() {
    let mut recorder = Recorder::new(1, BEGIN_MS, true);
    let mut now = BEGIN_MS;
    let mut reads = 0;
    for window in 0..8_600 {
        now += WINDOW_MS;
        if window < 360 {
            let mut sample = Sample {
                end_ms: now,
                span_ms: 1000,
                ..Sample::default()
            };
            sample.values[Column::Reads] = 1;
            reads += 1;
            recorder.push(vm("a"), sample);
        }
        recorder.close(now, now);
    }
    let answer = ask(&recorder, &vm("a"), (0, u64::MAX), Step::Every(60_000));
    let kept = answer.intervals.iter().map(|i| i.values[Column::Reads]);
    assert_eq!(kept.sum::<u64>(), reads);
}

#[test]
fn an_idle_daemon_leaves_a_mark_each_minute() {
    let mut recorder = Recorder::new(1, BEGIN_MS, false);
    let marks = (1..=60).flat_map(|window| {
        let now = BEGIN_MS + window * WINDOW_MS;
        recorder.close(now, now)
    });
    let marks: Vec<_> = marks.collect();
    assert_eq!(marks.len(), 10);
    assert!(
        marks
            .iter()
            .all(|(kind, blocks)| *kind == BlockKind::Mark && blocks.len() == 1)
    );
}

#[test]
fn a_clock_that_is_set_keeps_all_points() {
    for jump in [-3_600_000i64, -5_000, 5_000, 3_600_000] {
        let mut recorder = Recorder::new(1, BEGIN_MS, true);
        let one = |end_ms| {
            let mut sample = Sample {
                end_ms,
                span_ms: 1000,
                ..Sample::default()
            };
            sample.values[Column::Reads] = 1;
            sample
        };
        let mut now = BEGIN_MS;
        for second in 0..40 {
            now += 1000;
            if second == 20 {
                let set = now.wrapping_add_signed(jump);
                recorder.close(now, set);
                now = set;
            }
            recorder.push(vm("a"), one(now));
            if second % 10 == 9 {
                recorder.close(now, now);
            }
        }
        for step in [Step::Fine, Step::Every(10_000)] {
            let answer = ask(&recorder, &vm("a"), (0, u64::MAX), step);
            let reads: u64 = answer
                .intervals
                .iter()
                .map(|i| i.values[Column::Reads])
                .sum();
            // Seconds before a jump of an hour are older than 15 minutes.
            let kept = if step == Step::Fine && jump > 900_000 {
                20
            } else {
                40
            };
            assert_eq!(reads, kept, "a jump of {jump} ms, {step:?}");
            let ends = answer.intervals.iter().map(|interval| interval.to_ms);
            assert!(ends.is_sorted(), "a jump of {jump} ms, {step:?}");
        }
    }
}
