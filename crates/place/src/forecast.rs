//! Forecast of the transfers on a host that takes their ends into account.
//!
//! The proactive agent of figure 5.9 of Jain's thesis extrapolates the current rates as if no
//! transfer ever ended. That is pessimistic for a transfer that a short one starves, and for a
//! short one among long ones. This forecast goes from one end to the next, with the rates that the
//! database knows for the VMs that remain; VMs lowered for the newcomer are restored when it ends,
//! and a transfer past its deadline runs in the real-time class (PriDyn's guard, section
//! 4.2.2). The cost is a pass over all transfers per end. The result depends on more than the rate
//! a newcomer needs, so [`Pcos`](crate::Pcos) does not search by it. It verifies with it a decision
//! beside a transfer that is late at its present rate: such a transfer may be in time since another
//! one ends before, and it runs in the real-time class once it is past its deadline.

use tidegate_core::time::Nanos;
use tidegate_core::transfers::{Class, Transfer};

use crate::{
    Assignment, HostSnapshot, MAX_VMS, PriorityDatabase, Rejection, RejectionReason, Request,
    VmState, rates,
};

/// VM on a host, and its behaviour after its transfer ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Present {
    /// Class and transfer.
    pub vm: VmState,
    /// True if the VM continues with best-effort I/O after its transfer.
    pub stays: bool,
}

/// VM in a running forecast.
#[derive(Clone, Copy, Debug)]
struct Simulated {
    transfer: Option<Transfer>,
    class: Class,
    stays: bool,
    /// Class restored when the newcomer has ended.
    after: Class,
    /// Largest rate that it uses, in bytes per second; `None`: unlimited.
    limit: Option<u64>,
    /// Lateness of its transfer; [`Nanos::MAX`]: it has not ended.
    late: Nanos,
}

impl Simulated {
    fn new(vm: VmState, stays: bool, limit: Option<u64>) -> Simulated {
        Simulated {
            transfer: vm.transfer,
            class: vm.class,
            stays,
            after: vm.class,
            limit,
            late: Nanos::MAX,
        }
    }

    fn is_in_time(&self) -> bool {
        self.late == Nanos::ZERO
    }
}

/// Verifies by forecast the terms on which a host would admit a newcomer.
///
/// # Errors
/// A VM's transfer ends in time without the newcomer and late with it, or the newcomer itself
/// is late. A lateness of [`Nanos::MAX`]: it never ends.
pub(crate) fn verify(
    snapshot: &HostSnapshot<'_>,
    request: &Request,
    terms: &Assignment,
) -> Result<(), Rejection> {
    let limit = |who: usize| Some(snapshot.limit(who)).filter(|limit| *limit < u64::MAX);
    let vms = snapshot.vms.iter().enumerate();
    let all: Vec<Simulated> = vms
        // A VM without a transfer is ordinary I/O, which goes on.
        .map(|(who, vm)| Simulated::new(*vm, vm.transfer.is_none(), limit(who)))
        .collect();
    let mut beside = all.clone();
    for &(who, class) in &terms.lowered {
        beside[who].class = class;
    }
    let newcomer = VmState {
        class: terms.class,
        transfer: Some(request.start_at(snapshot.now)),
    };
    let own_limit = Some(request.limit()).filter(|limit| *limit < u64::MAX);
    beside.push(Simulated::new(newcomer, false, own_limit));
    let without = simulate(snapshot.now, snapshot.database, all, None);
    let newcomer = without.len();
    let with = simulate(snapshot.now, snapshot.database, beside, Some(newcomer));
    let own_late = with[newcomer].late;
    let mut both = without.iter().zip(&with).enumerate();
    let harmed = both.find(|(_, (without, with))| without.is_in_time() && !with.is_in_time());
    let why = match harmed {
        Some((who, (_, with))) => RejectionReason::Misses {
            who,
            late: with.late,
        },
        None if own_late > Nanos::ZERO => RejectionReason::OwnDeadline,
        None => return Ok(()),
    };
    Err(Rejection {
        why,
        class: terms.class,
        late: own_late,
    })
}

/// Decides by forecast whether a host accepts a transfer: it must be in time itself, and no
/// transfer that would be in time without it may be late because of it.
///
/// Tries the newcomer as best effort, idle and real time with no VM lowered; then as best
/// effort with one, two and more VMs idle, those with most slack first. `None`: no attempt
/// succeeds.
pub fn admit_by_forecast(
    now: Nanos,
    database: &PriorityDatabase,
    present: &[Present],
    request: &Request,
) -> Option<Assignment> {
    if present.len() >= MAX_VMS {
        return None;
    }
    let to_simulated = |present: &Present| Simulated::new(present.vm, present.stays, None);
    let simulated: Vec<Simulated> = present.iter().map(to_simulated).collect();
    let without = simulate(now, database, simulated.clone(), None);
    let fits = |class: Class, lowered: &[usize]| {
        let mut simulated = simulated.clone();
        for &who in lowered {
            simulated[who].class = Class::Idle;
        }
        let transfer = Some(request.start_at(now));
        simulated.push(Simulated::new(VmState { class, transfer }, false, None));
        let with = simulate(now, database, simulated, Some(present.len()));
        let harmed = without
            .iter()
            .zip(&with)
            .any(|(without, with)| without.is_in_time() && !with.is_in_time());
        (!harmed && with[present.len()].is_in_time()).then(|| Assignment {
            class,
            lowered: lowered.iter().map(|&who| (who, Class::Idle)).collect(),
        })
    };
    let alone = [Class::BestEffort, Class::Idle, Class::RealTime];
    let found = alone.into_iter().find_map(|class| fits(class, &[]));
    found.or_else(|| {
        let order = by_spare(now, present);
        (1..=order.len()).find_map(|n| fits(Class::BestEffort, &order[..n]))
    })
}

/// VMs that can be lowered, by falling slack (rising needed rate); stable among equals.
fn by_spare(now: Nanos, present: &[Present]) -> Vec<usize> {
    let can = |who: &usize| present[*who].vm.class > Class::Idle;
    let mut order: Vec<usize> = (0..present.len()).filter(can).collect();
    let need = |who: &usize| {
        let transfer = present[*who].vm.transfer;
        transfer.map_or(0, |transfer| {
            crate::request::needed(transfer.bytes_left(), transfer.due_time().since(now))
        })
    };
    order.sort_by_key(need);
    order
}

/// Simulates until all transfers have ended or none makes progress; returns all with their
/// lateness.
fn simulate(
    mut now: Nanos,
    database: &PriorityDatabase,
    mut simulated: Vec<Simulated>,
    newcomer: Option<usize>,
) -> Vec<Simulated> {
    // Each transfer ends once and passes its deadline once, which bounds the number of steps.
    for _ in 0..2 * simulated.len() + 1 {
        // Rates are constant until the next end or deadline.
        let rates = present_rates(now, database, &simulated);
        let next = |(vm, &rate): (&Simulated, &u64)| {
            let transfer = vm.transfer?;
            let end = now.0.saturating_add(transfer.latency(rate).0);
            // One nanosecond past the deadline PriDyn's guard raises the transfer to real time.
            let guard = if transfer.due_time() >= now && vm.class < Class::RealTime {
                transfer.due_time().0.saturating_add(1)
            } else {
                u64::MAX
            };
            Some(Nanos(end.min(guard)))
        };
        let Some(at) = simulated
            .iter()
            .zip(&rates)
            .filter_map(next)
            .min()
            .filter(|at| *at < Nanos::MAX)
        else {
            break;
        };
        let mut newcomer_ended = false;
        for ((who, vm), &rate) in simulated.iter_mut().enumerate().zip(&rates) {
            let Some(transfer) = &mut vm.transfer else {
                continue;
            };
            let moved = u128::from(rate) * u128::from(at.since(now).0);
            let left = transfer.bytes_left();
            if transfer.latency(rate) <= at.since(now) {
                vm.late = at.since(transfer.due_time());
                vm.transfer = None;
                // A VM that stays continues with ordinary I/O.
                vm.class = Class::BestEffort;
                newcomer_ended |= newcomer == Some(who);
                continue;
            }
            transfer.moved += u128::from(left).min(moved / u128::from(Nanos::SECOND.0)) as u64;
            if transfer.due_time() < at {
                vm.class = Class::RealTime;
                vm.after = Class::RealTime;
            }
        }
        if newcomer_ended {
            let there = simulated.iter_mut().filter(|vm| vm.transfer.is_some());
            // Restores lowered VMs, but never below the class that the guard gave them.
            there.for_each(|vm| vm.class = vm.class.max(vm.after));
        }
        now = at;
    }
    simulated
}

/// Present rate of each VM in bytes per second; 0 for one that is idle since its transfer ended.
fn present_rates(now: Nanos, database: &PriorityDatabase, simulated: &[Simulated]) -> Vec<u64> {
    let is_active = |vm: &&Simulated| vm.transfer.is_some() || vm.stays;
    let active = || simulated.iter().filter(is_active);
    let to_state = |of: &Simulated| VmState {
        class: of.class,
        transfer: of.transfer,
    };
    let vms: Vec<VmState> = active().map(to_state).collect();
    let limits: Vec<Option<u64>> = active().map(|of| of.limit).collect();
    let snapshot = HostSnapshot::new(now, database, &vms).with_limits(&limits);
    let mut rates = rates(&snapshot).into_iter();
    let rate_of = |of: &Simulated| match is_active(&of) {
        true => rates.next().unwrap_or(0),
        false => 0,
    };
    simulated.iter().map(rate_of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Bandwidth;
    use tidegate_core::transfers::Class::{BestEffort, Idle, RealTime};

    const MB: u64 = 1_000_000;

    /// Strict priority between classes, 40 MB/s in all.
    fn database() -> PriorityDatabase {
        let mut database = PriorityDatabase::new(Bandwidth::new(40 * MB, &[]).expect("it is one"));
        database.learn([(BestEffort, 40 * MB)]);
        database.learn([(BestEffort, 20 * MB); 2]);
        database.learn([(BestEffort, 40 * MB), (Idle, 0)]);
        database.learn([(RealTime, 40 * MB), (BestEffort, 0)]);
        database
    }

    fn present(class: Class, mb: u64, seconds: u64) -> Present {
        let request = Request::new(mb * MB, Nanos::from_secs(seconds)).expect("it is one");
        let transfer = Some(request.start_at(Nanos::ZERO));
        let vm = VmState { class, transfer };
        let stays = false;
        Present { vm, stays }
    }

    fn request(mb: u64, seconds: u64) -> Request {
        Request::new(mb * MB, Nanos::from_secs(seconds)).expect("it is one")
    }

    #[test]
    fn a_short_transfer_goes_first_where_who_runs_has_time_afterwards() {
        let database = database();
        // 10 s of work by 12 s; 1 s of work by 1 s.
        let long = present(BestEffort, 400, 12);
        let found =
            admit_by_forecast(Nanos::ZERO, &database, &[long], &request(40, 1)).expect("taken");
        assert_eq!((found.class, found.lowered), (RealTime, vec![]));
        // The admission test without ends of transfers rejects it.
        let vms = [long.vm];
        let snapshot = crate::HostSnapshot::new(Nanos::ZERO, &database, &vms);
        assert!(crate::admit(&snapshot, &request(40, 1)).is_err());
        // With 3 s of work for the newcomer the running transfer would be late.
        assert_eq!(
            admit_by_forecast(Nanos::ZERO, &database, &[long], &request(120, 3)),
            None
        );
    }

    #[test]
    fn who_stays_takes_its_part_when_its_transfer_is_over() {
        let database = database();
        let mut first = present(BestEffort, 20, 2);
        // 1 s with half of the disk each, then 1 s with all of it.
        assert!(admit_by_forecast(Nanos::ZERO, &database, &[first], &request(60, 2)).is_some());
        first.stays = true;
        let found =
            admit_by_forecast(Nanos::ZERO, &database, &[first], &request(60, 2)).expect("taken");
        // Half of the disk no longer suffices, so the newcomer goes first.
        assert_eq!((found.class, found.lowered), (RealTime, vec![]));
    }

    #[test]
    fn who_is_late_anyway_has_the_disk_once_its_time_is_over() {
        let database = database();
        // 10 s of work by 1 s: in the real-time class from then on, which leaves the newcomer at
        // most half of the disk.
        let late = present(BestEffort, 400, 1);
        let taken = |request| admit_by_forecast(Nanos::ZERO, &database, &[late], &request);
        assert_eq!(
            taken(request(40, 2)).map(|terms| terms.class),
            Some(RealTime)
        );
        assert_eq!(
            taken(request(80, 4)).map(|terms| terms.class),
            Some(RealTime)
        );
        assert_eq!(taken(request(100, 3)), None);
    }
}
