//! What comes of those on a host when jobs end: a forecast that goes from one end to the next.
//!
//! The proactive agent of figure 5.9 takes what each has now for what it will have, as if nobody
//! ever ended. That is pessimistic for who is starved by a short job, and for a short job among
//! long ones. Here each has, from one end to the next, what the database knows of those that are
//! left; who was lowered for the newcomer is restored when that ends, and a job past its deadline
//! is real time (PriDyn's guard, section 4.2.2). It costs a look at all jobs for each end, and
//! depends on more of a newcomer than the rate it needs, so [`Pcos`](crate::Pcos) does not decide
//! by it.

use tidegate_core::jobs::{Class, Job};
use tidegate_core::time::Nanos;

use crate::{Assignment, Combination, MOST, PriorityDatabase, Request, Tenant};

/// Somebody who uses a host's disk, and whether it still will when its job is over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Present {
    /// Who.
    pub tenant: Tenant,
    /// Its VM goes on with something else, best effort.
    pub stays: bool,
}

/// Somebody in a forecast.
#[derive(Clone, Copy, Debug)]
struct Player {
    job: Option<Job>,
    class: Class,
    stays: bool,
    /// What it is again when the newcomer has ended.
    after: Class,
    /// It was done in time.
    in_time: bool,
}

/// On which terms a host takes a job by such a forecast: nobody who would be in time without it is
/// late because of it, and it is in time itself. Tried are the newcomer best effort, idle and real
/// time with nobody lowered, then best effort with one, two and more of those with most time to
/// spare idle. `None`: none of these will do.
pub fn admit_by_forecast(
    now: Nanos,
    database: &PriorityDatabase,
    present: &[Present],
    request: &Request,
) -> Option<Assignment> {
    if present.len() >= MOST {
        return None;
    }
    let player = |of: &Present| Player {
        job: of.tenant.job,
        class: of.tenant.class,
        stays: of.stays,
        after: of.tenant.class,
        in_time: false,
    };
    let players: Vec<Player> = present.iter().map(player).collect();
    let without = play(now, database, players.clone(), None);
    let fits = |class: Class, lowered: &[usize]| {
        let mut players = players.clone();
        for &who in lowered {
            players[who].class = Class::Idle;
        }
        players.push(Player {
            job: Some(request.begun(now)),
            class,
            stays: false,
            after: class,
            in_time: false,
        });
        let with = play(now, database, players, Some(present.len()));
        let harmed = without
            .iter()
            .zip(&with)
            .any(|(without, with)| *without && !*with);
        (!harmed && with[present.len()]).then(|| Assignment {
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

/// Those that can be lowered, who has most time left for what is left first; of those alike the
/// first.
fn by_spare(now: Nanos, present: &[Present]) -> Vec<usize> {
    let can = |who: &usize| present[*who].tenant.class > Class::Idle;
    let mut order: Vec<usize> = (0..present.len()).filter(can).collect();
    let need = |who: &usize| {
        let job = present[*who].tenant.job;
        job.map_or(0, |job| {
            crate::request::needed(job.left(), job.due().since(now))
        })
    };
    order.sort_by_key(need);
    order
}

/// Lets time pass until all jobs have ended, or nothing moves any more. Who was in time.
fn play(
    mut now: Nanos,
    database: &PriorityDatabase,
    mut players: Vec<Player>,
    newcomer: Option<usize>,
) -> Vec<bool> {
    // Each job ends once, and is past its deadline once.
    for _ in 0..2 * players.len() + 1 {
        let active = |of: &&Player| of.job.is_some() || of.stays;
        let classes = players.iter().filter(active).map(|of| of.class);
        let rates = database.rates(&Combination::of(classes));
        let next = |of: &Player| {
            let job = of.job?;
            let end = now.0.saturating_add(job.latency(rates.of(of.class)).0);
            let guard = if job.due() >= now && of.class < Class::RealTime {
                job.due().0.saturating_add(1)
            } else {
                u64::MAX
            };
            Some(Nanos(end.min(guard)))
        };
        let Some(at) = players
            .iter()
            .filter_map(next)
            .min()
            .filter(|at| *at < Nanos::MAX)
        else {
            break;
        };
        let mut newcomer_ended = false;
        for (who, of) in players.iter_mut().enumerate() {
            let Some(job) = &mut of.job else { continue };
            let moved = u128::from(rates.of(of.class)) * u128::from(at.since(now).0);
            let left = job.left();
            if job.latency(rates.of(of.class)) <= at.since(now) {
                of.in_time = at <= job.due();
                of.job = None;
                of.class = Class::BestEffort;
                newcomer_ended |= newcomer == Some(who);
                continue;
            }
            job.moved += u128::from(left).min(moved / u128::from(Nanos::SECOND.0)) as u64;
            if job.due() < at {
                of.class = Class::RealTime;
                of.after = Class::RealTime;
            }
        }
        if newcomer_ended {
            let there = players.iter_mut().filter(|of| of.job.is_some());
            there.for_each(|of| of.class = of.class.max(of.after));
        }
        now = at;
    }
    players.iter().map(|of| of.in_time).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Bandwidth;
    use tidegate_core::jobs::Class::{BestEffort, Idle, RealTime};

    const MB: u64 = 1_000_000;

    /// Strict classes, 40 MB/s in all.
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
        let job = Some(request.begun(Nanos::ZERO));
        let tenant = Tenant { class, job };
        let stays = false;
        Present { tenant, stays }
    }

    fn request(mb: u64, seconds: u64) -> Request {
        Request::new(mb * MB, Nanos::from_secs(seconds)).expect("it is one")
    }

    #[test]
    fn a_short_job_goes_first_where_who_runs_has_time_afterwards() {
        let database = database();
        // 10 s of work by 12 s; 1 s of work by 1 s.
        let long = present(BestEffort, 400, 12);
        let found =
            admit_by_forecast(Nanos::ZERO, &database, &[long], &request(40, 1)).expect("taken");
        assert_eq!((found.class, found.lowered), (RealTime, vec![]));
        // As if nobody ever ended it would be rejected.
        let tenants = [long.tenant];
        let snapshot = crate::HostSnapshot::new(Nanos::ZERO, &database, &tenants);
        assert!(crate::admit(&snapshot, &request(40, 1)).is_err());
        // With 3 s of work the one that runs would be late.
        assert_eq!(
            admit_by_forecast(Nanos::ZERO, &database, &[long], &request(120, 3)),
            None
        );
    }

    #[test]
    fn who_stays_takes_its_part_when_its_job_is_over() {
        let database = database();
        let mut first = present(BestEffort, 20, 2);
        // 1 s with half of the disk each, then 1 s with all of it.
        assert!(admit_by_forecast(Nanos::ZERO, &database, &[first], &request(60, 2)).is_some());
        first.stays = true;
        let found =
            admit_by_forecast(Nanos::ZERO, &database, &[first], &request(60, 2)).expect("taken");
        // Half of the disk is not enough any more, so it goes first.
        assert_eq!((found.class, found.lowered), (RealTime, vec![]));
    }

    #[test]
    fn who_is_late_anyway_has_the_disk_once_its_time_is_over() {
        let database = database();
        // 10 s of work by 1 s: real time from then on, and then the newcomer has half of the disk
        // at most.
        let late = present(BestEffort, 400, 1);
        let taken = |request| admit_by_forecast(Nanos::ZERO, &database, &[late], &request);
        assert_eq!(taken(request(40, 2)).map(|of| of.class), Some(RealTime));
        assert_eq!(taken(request(80, 4)).map(|of| of.class), Some(RealTime));
        assert_eq!(taken(request(100, 3)), None);
    }
}
