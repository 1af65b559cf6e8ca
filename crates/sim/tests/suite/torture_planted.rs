//! Bugs planted on purpose: each is found within a few hundred seeds, by the checker whose it
//! is, and the same seeds pass without it.

use tidegate_core::engine::DeviceSpec;
use tidegate_core::profile::Profile;
use tidegate_core::request::{DeviceIo, Done, IoError, Lane, Op, ReqId, VmId};
use tidegate_core::roles::Roles;
use tidegate_core::roles::{
    Consumed, Dispatcher, Event, Gate, Interests, Interval, Knob, Pick, Regulator, Reopened, Stage,
};
use tidegate_core::starvation::Bound;
use tidegate_core::time::Nanos;
use tidegate_core::transfers::TransferEnd;
use tidegate_core::view::View;
use tidegate_policies::policy::PolicySpec;
use tidegate_sim::checker::Checker;
use tidegate_sim::torture::{self, Failure, Options, Passed, Plant, Window};

/// A few hundred.
const SEEDS: u64 = 300;

fn run(seed: u64, plant: &mut dyn Plant) -> Result<Passed, Box<Failure>> {
    let options = Options {
        plant: Some(plant),
        ..Options::default()
    };
    torture::run_with(seed, options)
}

/// Runs seeds until the bug is found, and asserts by whom; then the same seed without it, which is
/// returned.
fn found(by: Checker, mut planted: impl FnMut() -> Box<dyn Plant>) -> u64 {
    for seed in 0..SEEDS {
        let Err(failure) = run(seed, planted().as_mut()) else {
            continue;
        };
        assert_eq!(failure.broken.checker, by, "{failure}");
        if let Err(failure) = torture::run(seed) {
            panic!("not for the planted bug: {failure}");
        }
        return seed;
    }
    panic!("{SEEDS} seeds, and none of them found it");
}

/// Driver that never has the engine look for hung disks.
struct Blind;

impl Plant for Blind {
    fn runs_hung_check(&mut self) -> bool {
        false
    }
}

#[test]
fn a_hung_disk_that_holds_its_places_is_found() {
    found(Checker::Neighbours, || Box::new(Blind));
}

/// Keeps limits of disks from the engine.
struct Unlimited;

impl Plant for Unlimited {
    fn passes_disk_limits(&self) -> bool {
        false
    }
}

#[test]
fn limits_of_disks_that_are_not_kept_are_found() {
    found(Checker::Limits, || Box::new(Unlimited));
}

/// Tampers with the hundredth answer.
struct Answers {
    left: u32,
    tamper: fn(Done, &mut Vec<Done>),
}

impl Answers {
    fn boxed(tamper: fn(Done, &mut Vec<Done>)) -> Box<dyn Plant> {
        Box::new(Answers { left: 100, tamper })
    }
}

impl Plant for Answers {
    fn answers(&mut self, done: Done, heard: &mut Vec<Done>) {
        self.left = self.left.wrapping_sub(1);
        match self.left {
            0 => (self.tamper)(done, heard),
            _ => heard.push(done),
        }
    }
}

#[test]
fn a_lost_completion_is_found() {
    found(Checker::Answers, || Answers::boxed(|_, _| {}));
}

#[test]
fn a_double_completion_is_found() {
    found(Checker::Answers, || {
        Answers::boxed(|done, heard| heard.extend([done, done]))
    });
}

#[test]
fn an_answer_with_another_requests_tag_is_found() {
    found(Checker::Answers, || {
        Answers::boxed(|done, heard| {
            let tag = done.tag + 1;
            heard.push(Done { tag, ..done });
        })
    });
}

/// Plant that lets only half of the sectors of every twentieth large write reach the medium.
#[derive(Default)]
struct Torn(u32);

impl Plant for Torn {
    fn writes(&mut self, _: &DeviceIo, len: u32) -> u32 {
        self.0 += (len >= 1024) as u32;
        if len >= 1024 && self.0.is_multiple_of(20) {
            len / 1024 * 512
        } else {
            len
        }
    }
}

#[test]
fn a_torn_write_is_found() {
    found(Checker::Content, || Box::new(Torn::default()));
}

/// Dispatcher that misses some events, or picks units of another one.
struct Tampered {
    inner: Box<dyn Dispatcher>,
    hears: fn(&View, &Event) -> bool,
    picks: fn(&mut dyn Dispatcher, &View) -> Pick,
}

impl Tampered {
    fn around(roles: Roles, hears: fn(&View, &Event) -> bool) -> Roles {
        let tampered = Tampered {
            inner: roles.dispatcher,
            hears,
            picks: |inner, view| inner.pick(view),
        };
        Roles {
            dispatcher: Box::new(tampered),
            ..roles
        }
    }
}

impl Dispatcher for Tampered {
    fn interests(&self) -> Interests {
        self.inner.interests()
    }
    fn insert(&mut self, view: &View, unit: ReqId) {
        self.inner.insert(view, unit);
    }
    fn remove(&mut self, view: &View, unit: ReqId) {
        self.inner.remove(view, unit);
    }
    fn gate(&mut self, view: &View, vm: VmId, lane: Lane, open: bool) {
        self.inner.gate(view, vm, lane, open);
    }
    fn on_event(&mut self, view: &View, event: &Event) {
        if (self.hears)(view, event) {
            self.inner.on_event(view, event);
        }
    }
    fn set(&mut self, view: &View, vm: VmId, knob: Knob) {
        self.inner.set(view, vm, knob);
    }
    fn serves_background(&self) -> bool {
        self.inner.serves_background()
    }
    fn starvation(&self, device: &DeviceSpec, profile: Option<&Profile>) -> Bound {
        self.inner.starvation(device, profile)
    }
    fn pick(&mut self, view: &View) -> Pick {
        (self.picks)(self.inner.as_mut(), view)
    }
    fn consumed(&self, view: &View, vm: VmId) -> Consumed {
        self.inner.consumed(view, vm)
    }
    fn adopt(&mut self, view: &View, vm: VmId, consumed: &Consumed) {
        self.inner.adopt(view, vm, consumed);
    }
}

/// Filter that hides the service of the VM in slot 0, so that its tags stand still.
fn hog(roles: Roles) -> Roles {
    Tampered::around(roles, |view, event| match event {
        Event::Started(io) => {
            io.vm.index() > 0 || view.is_background(io.vm) || view.head(io.vm).is_none()
        }
        _ => true,
    })
}

/// Filter that hides changed objectives, so that deadlines stay those of before.
fn deaf(roles: Roles) -> Roles {
    Tampered::around(roles, |_, event| !matches!(event, Event::VmChanged(_)))
}

/// Whoever is in slot 0 wins only when nobody else waits.
fn rigged(roles: Roles) -> Roles {
    let tampered = Tampered {
        inner: roles.dispatcher,
        hears: |_, _| true,
        picks: |inner, view| {
            let may = |vm: &VmId| vm.index() > 0 && !view.is_background(*vm);
            match view.vms().filter(may).find_map(|vm| view.head(vm)) {
                Some(head) => Pick::Start {
                    head,
                    max: u32::MAX,
                    held: Nanos::ZERO,
                },
                None => inner.pick(view),
            }
        },
    };
    Roles {
        dispatcher: Box::new(tampered),
        ..roles
    }
}

/// Puts something around roles.
struct Around(fn(Roles) -> Roles);

impl Plant for Around {
    fn roles(&self) -> Option<fn(Roles) -> Roles> {
        Some(self.0)
    }
}

#[test]
fn a_tag_that_does_not_advance_is_found() {
    // Where a limit is kept by the same tags, that one may be overshot first.
    let named = ["mclock", "sfq", "drr"].map(|name| PolicySpec::named(name).expect("known"));
    a_standing_tag_is_found(&named);
    // And where weights are rates that a controller changes all the time.
    let allocated = PolicySpec::composed(Some("share-model"), "open", "sfq");
    a_standing_tag_is_found(&[allocated.expect("three parts")]);
}

fn a_standing_tag_is_found(policies: &[PolicySpec]) {
    let mut by = Vec::new();
    for seed in 0..SEEDS {
        let mut planted = Around(hog);
        let options = |plant| Options {
            plant,
            policies,
            ..Options::default()
        };
        let Err(failure) = torture::run_with(seed, options(Some(&mut planted))) else {
            continue;
        };
        let sound = torture::run_with(seed, options(None));
        assert!(sound.is_ok(), "seed {seed} fails without it");
        by.push(failure.broken.checker);
        match failure.broken.checker {
            Checker::Starvation => return,
            // Or a dispatcher that counts what is in flight notices by itself.
            Checker::Limits | Checker::Panic => {}
            other => panic!("found by {other:?}: {failure}"),
        }
    }
    panic!("{SEEDS} seeds, and it was not found as starvation, but {by:?}");
}

#[test]
fn a_lottery_that_is_rigged_is_found() {
    let policies = [PolicySpec::named("lottery").expect("registered")];
    found_under(&policies, rigged);
}

#[test]
fn deadlines_of_an_objective_that_is_over_are_found() {
    for dispatcher in ["edf", "bd-edf"] {
        let policies = [PolicySpec::composed(None, "open", dispatcher).expect("registered")];
        found_under(&policies, deaf);
    }
}

/// Runs seeds under these policies until what is planted around roles is found, as starvation;
/// then the same seed without it.
fn found_under(policies: &[PolicySpec], planted: fn(Roles) -> Roles) {
    let found = (0..SEEDS).find_map(|seed| {
        let options = Options {
            policies,
            plant: Some(&mut Around(planted)),
            ..Options::default()
        };
        Some((seed, torture::run_with(seed, options).err()?))
    });
    let (seed, failure) = found.unwrap_or_else(|| panic!("{policies:?}: nothing was found"));
    assert_eq!(failure.broken.checker, Checker::Starvation, "{failure}");
    let options = Options {
        policies,
        ..Options::default()
    };
    let without = torture::run_with(seed, options);
    assert!(without.is_ok(), "seed {seed} fails without it");
}

/// The regulator does not hear what was cancelled: its credit never comes back.
struct Leak(Box<dyn Regulator>);

impl Regulator for Leak {
    fn stage(&self) -> Stage {
        self.0.stage()
    }
    fn interests(&self) -> Interests {
        self.0.interests()
    }
    fn gate(&self, view: &View, unit: ReqId) -> Gate {
        self.0.gate(view, unit)
    }
    fn on_event(&mut self, view: &View, event: &Event, reopen: &mut Reopened) {
        match event {
            Event::Cancelled(_) => {}
            Event::Answered(done) if done.outcome == Err(IoError::Cancelled) => {}
            _ => self.0.on_event(view, event, reopen),
        }
    }
}

/// Credits of a VM that an open regulator is replaced by: so few that a run's leaks take them all.
const LEAKY_CREDITS: u32 = 8;

/// Replaces an open regulator by one with credits: of the runs that a seed draws, too few have one.
fn with_credits(roles: Roles) -> Roles {
    Window::instead_of_open(LEAKY_CREDITS, roles)
}

#[test]
fn a_leaked_credit_is_found() {
    let seed = found(Checker::Progress, || {
        Box::new(Around(|roles| {
            let roles = with_credits(roles);
            match roles.regulator.stage() {
                // Credits that are granted anew cannot leak.
                Stage::Admission if !roles.regulator.interests().has(Interests::TIMERS) => Roles {
                    regulator: Box::new(Leak(roles.regulator)),
                    ..roles
                },
                Stage::Admission | Stage::Open | Stage::Dispatch => roles,
            }
        }))
    });
    if let Err(failure) = run(seed, &mut Around(with_credits)) {
        panic!("for the credits, not for the leak: {failure}");
    }
}

/// Credits of which some are not charged, or whose turns end late.
struct Credits {
    inner: Box<dyn Regulator>,
    /// Number of requests inside beyond which a new one costs nothing.
    free_beyond: u32,
    late: Nanos,
}

impl Credits {
    /// Plants it around every regulator that grants credits anew.
    fn planted(free_beyond: u32, late: Nanos, roles: Roles) -> Roles {
        match roles.regulator.stage() {
            Stage::Admission if roles.regulator.interests().has(Interests::TIMERS) => Roles {
                regulator: Box::new(Credits {
                    inner: roles.regulator,
                    free_beyond,
                    late,
                }),
                ..roles
            },
            Stage::Admission | Stage::Open | Stage::Dispatch => roles,
        }
    }
}

impl Regulator for Credits {
    fn stage(&self) -> Stage {
        self.inner.stage()
    }
    fn interests(&self) -> Interests {
        self.inner.interests()
    }
    fn gate(&self, view: &View, unit: ReqId) -> Gate {
        self.inner.gate(view, unit)
    }
    fn on_event(&mut self, view: &View, event: &Event, reopen: &mut Reopened) {
        let inside = |unit| view.requests(view.queued(unit).vm_lane().0);
        match *event {
            Event::Admitted(unit) if inside(unit) > self.free_beyond => {}
            _ => self.inner.on_event(view, event, reopen),
        }
    }
    fn admits(&self, view: &View, vm: VmId) -> bool {
        self.inner.admits(view, vm)
    }
    fn set(&mut self, view: &View, vm: VmId, knob: Knob) {
        self.inner.set(view, vm, knob);
    }
    fn next_timer(&self) -> Nanos {
        match self.inner.next_timer() {
            Nanos::ZERO => Nanos::ZERO,
            due => due + self.late,
        }
    }
    fn on_timer(&mut self, view: &View, reopen: &mut Reopened) -> Option<Interval> {
        self.inner.on_timer(view, reopen)
    }
}

#[test]
fn a_credit_that_is_not_charged_is_found() {
    found(Checker::Credits, || {
        Box::new(Around(|roles| Credits::planted(8, Nanos::ZERO, roles)))
    });
}

#[test]
fn a_turn_that_ends_late_is_found() {
    found(Checker::Credits, || {
        Box::new(Around(|roles| {
            Credits::planted(u32::MAX, Nanos::SECOND, roles)
        }))
    });
}

/// Tampers with the third transfer that is over.
struct Ends {
    left: u32,
    tamper: fn(TransferEnd, &mut Vec<TransferEnd>),
}

impl Ends {
    fn boxed(tamper: fn(TransferEnd, &mut Vec<TransferEnd>)) -> Box<dyn Plant> {
        Box::new(Ends { left: 3, tamper })
    }
}

impl Plant for Ends {
    fn transfer_ends(&mut self, end: TransferEnd, heard: &mut Vec<TransferEnd>) {
        self.left = self.left.wrapping_sub(1);
        match self.left {
            0 => (self.tamper)(end, heard),
            _ => heard.push(end),
        }
    }
}

#[test]
fn a_transfer_that_ends_never_or_twice_is_found() {
    found(Checker::Transfers, || Ends::boxed(|_, _| {}));
    found(Checker::Transfers, || {
        Ends::boxed(|end, heard| heard.extend([end, end]))
    });
}

#[test]
fn a_transfer_that_has_moved_another_request_is_found() {
    found(Checker::Transfers, || {
        Ends::boxed(|mut end, heard| {
            end.transfer.moved += 512;
            heard.push(end);
        })
    });
}

/// Every tenth flush is said to have been done, and was not.
#[derive(Default)]
struct Forgetful(u32);

impl Plant for Forgetful {
    fn flushes(&mut self, io: &DeviceIo) -> bool {
        assert_eq!(io.op, Op::Flush);
        self.0 += 1;
        !self.0.is_multiple_of(10)
    }
}

#[test]
fn a_flush_that_was_not_done_is_found() {
    found(Checker::Durability, || Box::new(Forgetful::default()));
}

/// An engine whose VMs take what they find, whoever it is for.
struct Undivided;

impl Plant for Undivided {
    fn divides_resources(&self) -> bool {
        false
    }
}

#[test]
fn a_part_that_is_lent_is_found() {
    found(Checker::Budgets, || Box::new(Undivided));
}
