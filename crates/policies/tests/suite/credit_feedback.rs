//! Tests of the feedback on credits: against equations 2 to 4 in plain loops, and its behaviours.

use crate::common::*;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use tidegate_core::learnt_state::{Blob, BlobError};
use tidegate_core::objective::{Objective, Rate};
use tidegate_core::request::{Op, ReqId, Request, VmId};
use tidegate_core::roles::*;
use tidegate_core::time::Nanos;
use tidegate_core::view::View;
use tidegate_policies::policy::PolicySpec;

fn promised(iops: u64, latency: Option<u64>) -> Objective {
    Objective {
        reservation: Rate::iops(iops),
        latency: latency.map(Nanos::from_millis),
        ..Objective::default()
    }
}

fn with(params: &[(&str, u64)]) -> PolicySpec {
    let mut spec = policy("credit-feedback+vbc+fifo");
    for &(name, value) in params {
        spec.set(name, value).expect("in range");
    }
    spec
}

/// Events of a VM in an interval, with their times, to compute figures from first principles.
#[derive(Clone, Debug, Default)]
struct Diary {
    arrivals: Vec<u64>,
    answers: Vec<(u64, u64)>,
    /// Times without a request inside: from, to.
    quiet: Vec<(u64, u64)>,
    quiet_since: u64,
    inside: u32,
    admitted: u32,
}

/// Record of an interval: the reason of its end, its first admission and its end, diaries, and
/// credits in force.
#[derive(Clone, Debug)]
struct Chapter {
    end: IntervalEnd,
    from: u64,
    to: u64,
    diaries: BTreeMap<VmId, Diary>,
    before: BTreeMap<VmId, u32>,
    after: BTreeMap<VmId, u32>,
}

#[derive(Debug, Default)]
struct Notes {
    diaries: BTreeMap<VmId, Diary>,
    from: Option<u64>,
    credits: BTreeMap<VmId, u32>,
    chapters: Vec<Chapter>,
    resets: usize,
}

type Shared = Arc<Mutex<Notes>>;

/// Regulator that records the events and knobs that the real one gets.
struct Noted {
    real: Box<dyn Regulator>,
    notes: Shared,
}

impl Regulator for Noted {
    fn stage(&self) -> Stage {
        self.real.stage()
    }

    fn interests(&self) -> Interests {
        self.real.interests()
    }

    fn gate(&self, view: &View, unit: ReqId) -> Gate {
        self.real.gate(view, unit)
    }

    fn admits(&self, view: &View, vm: VmId) -> bool {
        self.real.admits(view, vm)
    }

    fn on_event(&mut self, view: &View, event: &Event, reopen: &mut Reopened) {
        let now = view.now().0;
        let mut notes = self.notes.lock().expect("no panic before");
        let notes = &mut *notes;
        match *event {
            Event::Arrived(unit) => {
                let diary = notes
                    .diaries
                    .entry(view.queued(unit).vm_lane().0)
                    .or_default();
                diary.arrivals.push(now);
                if diary.inside == 0 {
                    diary.quiet.push((diary.quiet_since, now));
                }
                diary.inside += 1;
            }
            Event::Admitted(unit) => {
                notes
                    .diaries
                    .entry(view.queued(unit).vm_lane().0)
                    .or_default()
                    .admitted += 1;
                notes.from.get_or_insert(now);
            }
            // Flushes are not told when they arrive.
            Event::Answered(done) if done.op != Op::Flush => {
                let diary = notes.diaries.entry(done.vm).or_default();
                diary.inside -= 1;
                diary.quiet_since = now;
                diary.answers.push((now, done.account.total().0));
            }
            Event::VmAdded(_) | Event::VmChanged(_) | Event::VmRemoved(_) => {
                notes.credits.clear();
                notes.resets += 1;
            }
            _ => {}
        }
        self.real.on_event(view, event, reopen);
    }

    fn set(&mut self, view: &View, vm: VmId, knob: Knob) {
        if let Knob::Credits(credits) = knob {
            let mut notes = self.notes.lock().expect("no panic before");
            notes.credits.insert(vm, credits);
            let after = notes.credits.clone();
            // None has ended where they are imported.
            if let Some(chapter) = notes.chapters.last_mut() {
                chapter.after = after;
            }
        }
        self.real.set(view, vm, knob);
    }

    fn next_timer(&self) -> Nanos {
        self.real.next_timer()
    }

    fn on_timer(&mut self, view: &View, reopen: &mut Reopened) -> Option<Interval> {
        let ended = self.real.on_timer(view, reopen)?;
        let mut notes = self.notes.lock().expect("no panic before");
        let now = view.now().0;
        let next = notes.diaries.iter().map(|(&vm, diary)| {
            let next = Diary {
                quiet_since: diary.quiet_since,
                inside: diary.inside,
                ..Diary::default()
            };
            (vm, next)
        });
        let next = next.collect();
        let mut diaries = std::mem::replace(&mut notes.diaries, next);
        for diary in diaries.values_mut().filter(|diary| diary.inside == 0) {
            diary.quiet.push((diary.quiet_since, now));
        }
        let chapter = Chapter {
            end: ended.end,
            from: notes.from.take().unwrap_or(now),
            to: now,
            diaries,
            before: notes.credits.clone(),
            after: notes.credits.clone(),
        };
        notes.chapters.push(chapter);
        Some(ended)
    }
}

fn noted(world: &mut World) -> Shared {
    let notes = Shared::default();
    let inner = Arc::clone(&notes);
    world
        .driver
        .engine
        .wrap_roles(Nanos::ZERO, move |roles| Roles {
            regulator: Box::new(Noted {
                real: roles.regulator,
                notes: Arc::clone(&inner),
            }),
            ..roles
        });
    notes
}

/// Returns credits by equations 1 and 4 from reservations, in integers; halves round up.
fn by_reservations(vms: &[(VmId, u64, Option<u64>)], beta: u32, most: f64) -> Vec<u32> {
    let least = vms.iter().map(|v| v.1).min().expect("one");
    let sum: u64 = vms.iter().map(|v| v.1).sum();
    let (beta, most) = (beta as u64, most as u64);
    let bounded = beta * sum < most * least;
    let (times, over) = if bounded { (beta, least) } else { (most, sum) };
    let round = |v: &(VmId, u64, Option<u64>)| (2 * times * v.1 + over) / (2 * over);
    vms.iter().map(|v| (round(v) as u32).max(1)).collect()
}

/// Returns `true` if `exact` rounds to `credits`. A half may go either way: the same sum in another
/// order may differ in a float's last digit.
fn rounds_to(exact: f64, credits: u32) -> bool {
    (exact - credits as f64).abs() <= 0.5 + 1e-9 || (exact < 1.0 && credits == 1)
}

/// Computes equations 2 to 4 over a chapter: each VM's Ind, and the resulting credits, not rounded.
fn by_the_book(
    chapter: &Chapter,
    vms: &[(VmId, u64, Option<u64>)],
    beta: u32,
    most: f64,
) -> (Vec<f64>, Vec<f64>) {
    let seconds = (chapter.to - chapter.from) as f64 / 1e9;
    let coarse = by_reservations(vms, beta, most);
    let a: Vec<u32> = vms
        .iter()
        .zip(&coarse)
        .map(|((vm, ..), coarse)| *chapter.before.get(vm).unwrap_or(coarse))
        .collect();
    let mut ind = Vec::new();
    for &(vm, iops, latency) in vms {
        let nothing = Diary::default();
        let diary = chapter.diaries.get(&vm).unwrap_or(&nothing);
        let did = !diary.arrivals.is_empty() || !diary.answers.is_empty() || diary.admitted > 0;
        let quiet: u64 = diary
            .quiet
            .iter()
            .map(|&(from, to)| to.saturating_sub(from.max(chapter.from)))
            .sum();
        let at_once = diary.arrivals.len() as f64 / (quiet as f64 / 1e9);
        let wanted = quiet == 0 || at_once >= iops as f64;
        let mut worst = 0.0_f64;
        if did && wanted {
            let got = diary.answers.len() as f64 / seconds;
            worst = worst.max((iops as f64 - got) / iops as f64);
        }
        if let Some(bound) = latency.filter(|_| !diary.answers.is_empty()) {
            let sum: u64 = diary.answers.iter().map(|a| a.1).sum();
            let mean = sum as f64 / diary.answers.len() as f64 / 1e6;
            worst = worst.max((mean - bound as f64) / bound as f64);
        }
        ind.push(worst.min(1.0));
    }
    let c: Vec<f64> = a
        .iter()
        .zip(&ind)
        .map(|(&a, ind)| a as f64 + ind * beta as f64)
        .collect();
    let least = c.iter().copied().fold(f64::MAX, f64::min);
    let c: Vec<f64> = c.iter().map(|c| c / least).collect();
    let factor = (beta as f64).min(most / c.iter().sum::<f64>());
    (ind, c.iter().map(|c| c * factor).collect())
}

/// Compares every chapter with the equations. Returns the number that fed something back.
fn check(notes: &Notes, vms: &[(VmId, u64, Option<u64>)], beta: u32, most: f64) -> usize {
    let (mut fed, mut held) = (0, 0);
    for chapter in &notes.chapters {
        let answers: usize = chapter.diaries.values().map(|d| d.answers.len()).sum();
        let whole = chapter.end == IntervalEnd::Turn && chapter.to > chapter.from;
        if !whole || answers < beta as usize {
            assert_eq!(chapter.before, chapter.after, "cut short");
            continue;
        }
        let (ind, credits) = by_the_book(chapter, vms, beta, most);
        if ind.iter().all(|&ind| ind == 0.0) {
            held += 1;
            assert!(held >= 10 || chapter.before == chapter.after, "{chapter:?}");
            continue;
        }
        held = 0;
        fed += 1;
        for (&(vm, ..), credits) in vms.iter().zip(credits) {
            // Where no knob was turned it stands where it stood.
            let got = chapter.after.get(&vm);
            assert!(
                got.is_none_or(|&got| rounds_to(credits, got)),
                "{got:?} instead of {credits} by {ind:?}"
            );
            let granted: u32 = chapter.after.values().sum();
            assert!(granted as f64 <= most + vms.len() as f64);
        }
    }
    fed
}

#[test]
fn a_vm_that_misses_its_latency_gets_a_larger_part() {
    // 1 ms an I/O: 16 requests of one VM alone take 16 ms each. The first may take 10 ms.
    let mut world = World::with_policy(config(1, 0), &with(&[]), MS);
    let notes = noted(&mut world);
    let (a, b) = (
        world.guest(&promised(300, Some(10))),
        world.guest(&promised(300, None)),
    );
    world.load(a, Op::Read, 4096, 8);
    world.load(b, Op::Read, 4096, 40);
    world.run(SECOND);
    let first = total(&world.ops(a));
    world.run(9 * SECOND);
    let vms = [(a.vm, 300, Some(10)), (b.vm, 300, None)];
    let notes = notes.lock().expect("no panic before");
    let fed = check(&notes, &vms, 32, 20_000.0);
    assert!(fed > 5, "{fed}");
    assert!(total(&world.ops(a)) > first * 10);
}

#[test]
fn proportions_converge_to_what_keeps_both_objectives() {
    // 1000 I/Os a second, 16 requests of each VM. By reservations they get 250 and 750 of them,
    // and the first VM's take 64 ms; for 40 ms it needs 400, which leaves the other enough.
    let run = |feedback| {
        let mut world = World::with_policy(config(1, 0), &with(&[("feedback", feedback)]), MS);
        let (a, b) = (
            world.guest(&promised(100, Some(40))),
            world.guest(&promised(300, None)),
        );
        world.load(a, Op::Read, 4096, 16);
        world.load(b, Op::Read, 4096, 16);
        world.run(5 * SECOND);
        world.keep_done = true;
        world.run(10 * SECOND);
        let of_a = world.done.iter().filter(|done| done.vm == a.vm);
        let latencies: Vec<u64> = of_a.map(|done| done.account.total().0).collect();
        let mean = latencies.iter().sum::<u64>() / latencies.len() as u64;
        (mean / MS, within(&world.ops(b), 5 * SECOND, 15 * SECOND))
    };
    let (latency, others) = run(0);
    assert!(
        latency.abs_diff(64) <= 1 && others.abs_diff(7500) < 100,
        "{latency} {others}"
    );
    // Proportions drift back by a tenth to test whether less suffices.
    let (latency, others) = run(1);
    assert!(
        (37..=44).contains(&latency) && others > 5000,
        "{latency} {others}"
    );
}

#[test]
fn a_vm_that_asks_for_less_than_its_reservation_has_no_deficit() {
    // A guest that asks again within its grace time limits the other one to its reservation. A
    // guest too rare to be waited for leaves the device to the other one.
    for (wait_for, least, most) in [(SECOND, 400, 440), (10 * MS, 3_900, 4_000)] {
        asks_for_less(wait_for, least, most, &[Op::Read]);
    }
}

#[test]
fn a_flush_before_each_request_makes_no_deficit() {
    // Flushes take turns of the device: twenty a second.
    asks_for_less(10 * MS, 3_800, 3_940, &[Op::Flush, Op::Read]);
}

/// A guest that is to have 500 a second asks for these 20 times a second; another one has between
/// `least` and `most` in four seconds beside it.
fn asks_for_less(wait_for: u64, least: u64, most: u64, ops: &[Op]) {
    let mut world = World::with_policy(config(1, 0), &with(&[("wait_for", wait_for)]), MS);
    let notes = noted(&mut world);
    let (a, b) = (
        world.guest(&promised(500, None)),
        world.guest(&promised(100, None)),
    );
    world.load(b, Op::Read, 4096, 8);
    // 20 a second.
    for n in 0..100 {
        for &op in ops {
            let mut request = Request::read(n << 21, 4096, u64::MAX);
            if op == Op::Flush {
                (request.op, request.offset, request.len) = (op, 0, 0);
            }
            let taken = world.driver.request(a.client, request);
            taken.expect("there is room");
        }
        world.run(50 * MS);
    }
    let notes = notes.lock().expect("no panic before");
    let whole = notes.chapters.iter().filter(|c| c.end == IntervalEnd::Turn);
    assert!(whole.count() > 10);
    let other = within(&world.ops(b), SECOND, 5 * SECOND);
    assert!((least..=most).contains(&other), "{other}");
    assert!(notes.credits.is_empty(), "{:?}", notes.credits);
}

#[test]
fn without_feedback_credits_stay_as_reservations_have_them() {
    let mut world = World::with_policy(config(1, 0), &with(&[("feedback", 0)]), MS);
    let notes = noted(&mut world);
    let (a, b) = (
        world.guest(&promised(5000, Some(1))),
        world.guest(&promised(100, Some(1))),
    );
    world.load(a, Op::Read, 4096, 8);
    world.load(b, Op::Read, 4096, 8);
    world.run(10 * SECOND);
    let notes = notes.lock().expect("no panic before");
    assert!(notes.chapters.len() > 3);
    assert!(notes.chapters.iter().all(|c| c.after.is_empty()));
}

#[test]
fn when_objectives_hold_again_proportions_go_back() {
    let mut world = World::with_policy(config(1, 0), &with(&[]), MS);
    let notes = noted(&mut world);
    let (a, b) = (
        world.guest(&promised(200, None)),
        world.guest(&promised(600, None)),
    );
    world.load(a, Op::Read, 4096, 8);
    world.load(b, Op::Read, 4096, 8);
    // The device does half of what both need, then twice.
    world.device.service = 2 * MS + MS / 2;
    world.run(5 * SECOND);
    let off = notes.lock().expect("no panic before").credits.clone();
    // Both miss by as much of it, so their parts grow alike: the smaller one's relative to it.
    assert!(off[&b.vm] < 96, "{off:?}");
    world.device.service = MS / 2;
    world.run(20 * SECOND);
    let notes = notes.lock().expect("no panic before");
    assert_eq!(notes.credits[&b.vm], 96, "{:?}", notes.credits);
    // A tenth of the way at a time.
    let steps: Vec<u32> = notes
        .chapters
        .iter()
        .filter_map(|c| c.after.get(&b.vm))
        .copied()
        .collect();
    let back = steps
        .iter()
        .rposition(|&n| n == off[&b.vm])
        .expect("it was there");
    assert!(
        steps[back..]
            .windows(2)
            .all(|w| w[0] <= w[1] && w[1] - w[0] <= 8)
    );
}

#[test]
fn any_change_of_the_vms_puts_proportions_back() {
    let mut world = World::with_policy(config(1, 0), &with(&[]), 3 * MS);
    let notes = noted(&mut world);
    let (a, b) = (
        world.guest(&promised(200, None)),
        world.guest(&promised(600, None)),
    );
    world.load(a, Op::Read, 4096, 8);
    world.load(b, Op::Read, 4096, 8);
    world.run(5 * SECOND);
    assert!(!notes.lock().expect("no panic before").credits.is_empty());
    world.set(b, &promised(500, None));
    world.run(MS);
    assert!(notes.lock().expect("no panic before").credits.is_empty());
    world.run(5 * SECOND);
    assert!(!notes.lock().expect("no panic before").credits.is_empty());
    let c = world.guest(&promised(100, None));
    world.run(MS);
    assert!(notes.lock().expect("no panic before").credits.is_empty());
    world.remove_vm(c);
    let notes = notes.lock().expect("no panic before");
    let vms = [(a.vm, 200, None), (b.vm, 500, None)];
    let last = notes.chapters.last().expect("one");
    let (_, credits) = by_the_book(last, &vms, 32, 20_000.0);
    let fits = |&got: &u32| credits.iter().any(|&credits| rounds_to(credits, got));
    assert!(last.after.values().all(fits), "{last:?}");
}

/// Reservations of 100 and 300 requests a second, the first within 40 ms: see
/// `proportions_converge_to_what_keeps_both_objectives`.
const PROMISES: [(u64, Option<u64>); 2] = [(100, Some(40)), (300, None)];

/// Creates a world with VMs of these promises, each with 16 requests inside at any time.
fn loaded(promises: &[(u64, Option<u64>)]) -> (World, Shared, Vec<Guest>) {
    let mut world = World::with_policy(config(1, 0), &with(&[]), MS);
    let notes = noted(&mut world);
    let guests: Vec<Guest> = (promises.iter())
        .map(|&(iops, latency)| world.guest(&promised(iops, latency)))
        .collect();
    (world, notes, guests)
}

fn run(world: &mut World, guests: &[Guest], nanos: u64) {
    for &guest in guests {
        world.load(guest, Op::Read, 4096, 16);
    }
    world.run(nanos);
}

/// Returns each VM's credits, also of those for which no knob was set.
fn credits(notes: &Shared, guests: &[Guest], promises: &[(u64, Option<u64>)]) -> Vec<u32> {
    let vms: Vec<_> = (guests.iter().zip(promises))
        .map(|(guest, &(iops, latency))| (guest.vm, iops, latency))
        .collect();
    let notes = notes.lock().expect("no panic before");
    (guests.iter().zip(by_reservations(&vms, 32, 20_000.0)))
        .map(|(guest, coarse)| notes.credits.get(&guest.vm).copied().unwrap_or(coarse))
        .collect()
}

fn export(world: &World, guests: &[Guest]) -> Vec<Blob> {
    let of = |guest: &Guest| {
        let vms = world.driver.engine.vms();
        vms.export_learnt(guest.vm).expect("it is there")
    };
    guests.iter().filter_map(of).collect()
}

/// Imports blobs. Returns the reason of each refusal.
fn import(world: &mut World, guests: &[Guest], blobs: &[Blob]) -> Vec<(VmId, BlobError)> {
    let learnt = guests.iter().map(|guest| guest.vm).zip(blobs);
    let now = world.time();
    world.driver.engine.vms_mut().import_learnt(now, learnt)
}

/// Returns the credits and blobs that [`PROMISES`] lead to in ten seconds.
fn lesson() -> (Vec<u32>, Vec<Blob>) {
    let (mut world, notes, guests) = loaded(&PROMISES);
    assert_eq!(export(&world, &guests), [], "nothing is learnt yet");
    run(&mut world, &guests, 10 * SECOND);
    (credits(&notes, &guests, &PROMISES), export(&world, &guests))
}

#[test]
fn what_was_learnt_goes_on_in_another_engine() {
    let (learnt, blobs) = lesson();
    // By reservations they have 32 and 96.
    assert!(learnt[0] == 32 && learnt[1] < 70, "{learnt:?}");
    assert_eq!(blobs.len(), 2);
    let (mut world, notes, guests) = loaded(&PROMISES);
    assert_eq!(import(&mut world, &guests, &blobs), []);
    assert_eq!(credits(&notes, &guests, &PROMISES), learnt);
    assert_eq!(export(&world, &guests), blobs, "the same once more");

    // The first interval begins with it, where a new engine has 32 to 96.
    run(&mut world, &guests, SECOND / 4);
    let (mut fresh, _, others) = loaded(&PROMISES);
    run(&mut fresh, &others, SECOND / 4);
    let [imported, coarse] =
        [(&world, guests[0]), (&fresh, others[0])].map(|(world, guest)| total(&world.ops(guest)));
    let share = f64::from(learnt[0]) / f64::from(learnt[0] + learnt[1]);
    assert!(
        (imported as f64 - 250.0 * share).abs() < 20.0,
        "{imported} of 250"
    );
    assert!(imported > coarse + 20, "{imported} against {coarse}");

    // And the next one feeds back from there.
    world.run(5 * SECOND);
    let vms = [
        (guests[0].vm, PROMISES[0].0, PROMISES[0].1),
        (guests[1].vm, PROMISES[1].0, PROMISES[1].1),
    ];
    let notes = notes.lock().expect("no panic before");
    let first = &notes.chapters.first().expect("some have ended").before;
    // No knob was turned for the first VM: it had 32 anyway.
    assert_eq!(first.get(&guests[1].vm), Some(&learnt[1]), "{first:?}");
    assert!(check(&notes, &vms, 32, 20_000.0) > 3);
}

#[test]
fn only_what_was_learnt_under_the_same_objective_is_taken_over() {
    let (learnt, blobs) = lesson();
    // The other one was promised half of that then.
    let changed = [PROMISES[0], (600, None)];
    let (mut world, notes, guests) = loaded(&changed);
    let refused = import(&mut world, &guests, &blobs);
    assert_eq!(refused, [(guests[1].vm, BlobError::Objective)]);
    let now = credits(&notes, &guests, &changed);
    // By reservations they have 32 and 192. The first one keeps as much more of an interval than
    // by reservations as it had.
    let grown = 128.0 / f64::from(learnt[0] + learnt[1]);
    let expected = 192.0 / grown;
    assert_eq!(now[0], 32);
    assert!(
        (f64::from(now[1]) - expected).abs() < 4.0,
        "{now:?}, not {expected}"
    );
}

#[test]
fn a_vm_of_which_nothing_is_known_has_its_part_by_reservations() {
    let (learnt, blobs) = lesson();
    let more = [PROMISES[0], PROMISES[1], (50, None)];
    let (mut world, notes, guests) = loaded(&more);
    assert_eq!(import(&mut world, &guests[..2], &blobs), []);
    // The smallest reservation is half of what it was. The two stand to each other as before, and
    // have together as much more than the third as by reservations: eight times.
    let each = 256.0 / f64::from(learnt[0] + learnt[1]);
    let expected: Vec<f64> = (learnt.iter().map(|&had| f64::from(had) * each))
        .chain([32.0])
        .collect();
    let now = credits(&notes, &guests, &more);
    let near = |(&now, &expected): (&u32, &f64)| (f64::from(now) - expected).abs() <= 2.0;
    assert!(
        now.iter().zip(&expected).all(near),
        "{now:?}, not {expected:?}"
    );

    assert!(now[0] > 64 + 16 && now[1] < 192 - 16, "{now:?}");

    // One that comes afterwards voids all of it, as ever.
    world.guest(&promised(70, None));
    assert_eq!(export(&world, &guests), []);
}

#[test]
fn what_nobody_here_has_learnt_is_refused_with_the_reason() {
    let (_, blobs) = lesson();
    let refusal = |spec: &PolicySpec, blob: &Blob| {
        let mut world = World::with_policy(config(1, 0), spec, MS);
        let guest = world.guest(&promised(100, Some(40)));
        let refused = import(&mut world, &[guest], std::slice::from_ref(blob));
        refused
            .into_iter()
            .map(|(_, error)| error.to_string())
            .collect::<Vec<_>>()
    };
    assert_eq!(refusal(&with(&[]), &blobs[0]), Vec::<String>::new());
    for (spec, blob, why) in [
        (with(&[("feedback", 0)]), &blobs[0], "do not change"),
        (policy("mclock"), &blobs[0], "no controller"),
        (
            with(&[]),
            &Blob::new("thermostat", 1),
            "learnt by thermostat",
        ),
        (with(&[]), &Blob::new("credit-feedback", 9), "version 9"),
        (with(&[]), &Blob::new("credit-feedback", 1), "wrong length"),
        (with(&[]), &Blob::from_bytes(Vec::new()), "no bytes"),
    ] {
        let said = refusal(&spec, blob);
        assert!(said.len() == 1 && said[0].contains(why), "{said:?}: {why}");
    }
    let (mut world, _, guests) = loaded(&PROMISES);
    world.remove_vm(guests[0]);
    world.run(MS);
    let refused = import(&mut world, &guests, &blobs);
    assert_eq!(refused.len(), 1, "{refused:?}");
    assert_eq!(refused[0].0, guests[0].vm);
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: ProptestConfig::default().cases.max(60),
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn credits_follow_the_equations_whatever_the_load(
        loads in prop::collection::vec((1u64..2000, prop::option::of(1u64..100), 1u32..40), 2..6),
        beta in 1u64..40,
        most in 5u64..500,
        service in 100_000u64..5_000_000,
    ) {
        let params = [("beta", beta), ("max_interval", most)];
        let mut world = World::with_policy(config(2, 0), &with(&params), service);
        let notes = noted(&mut world);
        let mut vms = Vec::new();
        for &(iops, latency, depth) in &loads {
            let guest = world.guest(&promised(iops, latency));
            world.load(guest, Op::Read, 4096, depth);
            vms.push((guest.vm, iops, latency));
        }
        world.run(3 * SECOND);
        let notes = notes.lock().expect("no panic before");
        check(&notes, &vms, beta as u32, most as f64);
    }

    #[test]
    fn whatever_bytes_are_imported_credits_stay_in_range(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        parts in prop::array::uniform3(prop::option::of(any::<u64>())),
        cut in prop::option::weighted(0.2, any::<prop::sample::Index>()),
    ) {
        let (mut world, notes, guests) = loaded(&PROMISES);
        // As `credit-feedback` writes them for the first VM, but for its part.
        let mut blob = Blob::new("credit-feedback", 1);
        blob.push_u64(100).push_u64(0).push_u64(0).push_u64(40 * MS);
        for part in parts {
            blob.push_f64(part.map_or(1.5, f64::from_bits));
        }
        let mut bytes = blob.as_bytes().to_vec();
        for (at, value) in changes {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        bytes.truncate(cut.map_or(bytes.len(), |cut| cut.index(bytes.len() + 1)));
        import(&mut world, &guests, &[Blob::from_bytes(bytes)]);
        run(&mut world, &guests, SECOND / 2);
        let now = credits(&notes, &guests, &PROMISES);
        prop_assert!(now.iter().all(|&n| (1..=1 << 30).contains(&n)), "{now:?}");
    }
}
