//! The proactive agent: what would come of those on a host if they had other classes. Figure 5.9.
//!
//! A job is in time at some bandwidth exactly where that is no less than the rate it needs: what is left of it over the
//! time that is left. So each one's rate is reckoned once, and a look at a combination compares numbers.

use tidegate_core::jobs::{Class, Job};
use tidegate_core::time::Nanos;

use crate::request::needed;
use crate::{Combination, PriorityDatabase, Rates};

/// Late by so small a part of its deadline, a hundredth, is not late anyway. What is foreseen is an average, and jobs are
/// let in until those that run have nothing to spare: one that was taken for late at the first figure that is off by a
/// byte would protect nobody any more, itself least.
const GRACE: u64 = 100;

/// Somebody who uses a host's disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tenant {
    /// Its class just now.
    pub class: Class,
    /// Its job; `None`: it has all the time there is.
    pub job: Option<Job>,
}

/// Until when a job that does not move is not late anyway at this rate.
fn stands_until(job: &Job, bytes_per_s: u64) -> Nanos {
    let grace = Nanos(job.deadline.0 / GRACE);
    match job.left() {
        0 => Nanos::MAX,
        // Never in time, at no time.
        _ if bytes_per_s == 0 => Nanos::ZERO,
        _ => (job.due() + grace).since(job.latency(bytes_per_s)),
    }
}

/// Those who run on a host, with the classes that they are thought to have.
#[derive(Debug)]
pub(crate) struct Theory<'a> {
    now: Nanos,
    database: &'a PriorityDatabase,
    tenants: &'a [Tenant],
    /// What each one needs to be in time, in bytes a second; 0: it is, whatever happens. One that is late without the
    /// newcomer needs nothing from the newcomer.
    needs: Vec<u64>,
    classes: Vec<Class>,
    /// The least that each one was in time with, wherever that was asked.
    least: Vec<u64>,
    /// Until when nobody who is not late without the newcomer will be, as long as nothing moves.
    until: Nanos,
    /// What the newcomer has.
    own: Class,
    combination: Combination,
    rates: Rates,
}

impl<'a> Theory<'a> {
    /// With a newcomer of the default class among those that run.
    pub(crate) fn new(
        now: Nanos,
        database: &'a PriorityDatabase,
        tenants: &'a [Tenant],
    ) -> Theory<'a> {
        let without = Combination::of(tenants.iter().map(|tenant| tenant.class));
        let rates = database.rates(&without);
        let mut theory = Theory {
            now,
            database,
            tenants,
            needs: Vec::with_capacity(tenants.len()),
            classes: Vec::with_capacity(tenants.len()),
            least: Vec::with_capacity(tenants.len()),
            until: Nanos::MAX,
            own: Class::default(),
            combination: without,
            rates,
        };
        for tenant in tenants {
            let has = rates.of(tenant.class);
            let need = tenant
                .job
                .map_or(0, |job| needed(job.left(), job.due().since(now)));
            let stands_until = tenant.job.map_or(Nanos::MAX, |job| stands_until(&job, has));
            let late_anyway = stands_until < now;
            if !late_anyway {
                theory.until = theory.until.min(stands_until);
            }
            theory.needs.push(if late_anyway { 0 } else { need });
            theory.least.push(u64::MAX);
        }
        theory.start();
        theory
    }

    /// Everybody as they are, the newcomer of the default class.
    pub(crate) fn start(&mut self) {
        self.classes.clear();
        self.classes
            .extend(self.tenants.iter().map(|tenant| tenant.class));
        self.own = Class::default();
        self.combination = Combination::of(self.classes.iter().copied()).with(self.own);
        self.look();
    }

    fn look(&mut self) {
        self.rates = self.database.rates(&self.combination);
    }

    /// How many run, without the newcomer.
    pub(crate) fn len(&self) -> usize {
        self.tenants.len()
    }

    /// The newcomer's class.
    pub(crate) fn own(&self) -> Class {
        self.own
    }

    /// What the newcomer would have, in bytes a second.
    pub(crate) fn own_rate(&self) -> u64 {
        self.rates.of(self.own)
    }

    /// The newcomer has another class.
    pub(crate) fn set_own(&mut self, class: Class) {
        self.combination = self.combination.changed(self.own, class);
        self.own = class;
        self.look();
    }

    /// Whether somebody who runs would be late because of the newcomer. Figure 5.8, steps 5 to 8.
    pub(crate) fn is_violated(&mut self) -> bool {
        let Theory {
            classes,
            needs,
            least,
            rates,
            ..
        } = self;
        let mut violated = false;
        for ((class, &need), least) in classes.iter().zip(&*needs).zip(least) {
            let has = rates.of(*class);
            match has < need {
                true => violated = true,
                false if need > 0 => *least = has.min(*least),
                false => {}
            }
        }
        violated
    }

    /// One that runs is a class lower: of those that can be, the first with the most time to spare. `false`: nobody
    /// can. Figure 5.10, steps 1 to 7.
    pub(crate) fn lower_one(&mut self) -> bool {
        let mut best: Option<(i128, usize)> = None;
        for (who, &class) in self.classes.iter().enumerate() {
            let spare = match self.tenants[who].job {
                _ if class == Class::Idle => continue,
                None => i128::MAX,
                // Where it is late, what it lacks.
                Some(job) => {
                    let latency = job.latency(self.rates.of(class));
                    i128::from(job.due().0) - i128::from(self.now.0) - i128::from(latency.0)
                }
            };
            if best.is_none_or(|(most, _)| spare > most) {
                best = Some((spare, who));
            }
        }
        let Some((_, who)) = best else {
            return false;
        };
        let (from, to) = (self.classes[who], self.classes[who].lowered(1));
        self.classes[who] = to;
        self.combination = self.combination.changed(from, to);
        self.look();
        true
    }

    /// Those whose class is another than it was, with what it would be.
    pub(crate) fn changed(&self) -> Vec<(usize, Class)> {
        let both = self.tenants.iter().zip(&self.classes).enumerate();
        both.filter(|(_, (tenant, class))| tenant.class != **class)
            .map(|(who, (_, class))| (who, *class))
            .collect()
    }

    /// Who would be late because of the newcomer, the latest, and by how much.
    pub(crate) fn latest(&self) -> Option<(usize, Nanos)> {
        let late = |(who, &class): (usize, &Class)| {
            let has = self.rates.of(class);
            let job = self.tenants[who].job.filter(|_| has < self.needs[who])?;
            Some((who, job.forecast(self.now, has).late))
        };
        // The first of those that are alike.
        let all = self.classes.iter().enumerate().filter_map(late);
        all.reduce(|most, next| if next.1 > most.1 { next } else { most })
    }

    /// Until when all that was found of those that run is so, as long as nothing moves: from then on somebody who was
    /// in time is late.
    pub(crate) fn holds_until(&self) -> Nanos {
        let until = |(tenant, &least): (&Tenant, &u64)| {
            let job = tenant.job.filter(|_| least < u64::MAX)?;
            // A job that is done is in time for ever.
            (job.left() > 0).then(|| job.due().since(job.latency(least)))
        };
        let both = self.tenants.iter().zip(&self.least);
        both.filter_map(until)
            .min()
            .unwrap_or(Nanos::MAX)
            .min(self.until)
    }

    /// What those that run need together in order to be in time, but for those that are late anyway.
    pub(crate) fn needed(&self) -> u64 {
        self.needs
            .iter()
            .fold(0, |sum, &need| sum.saturating_add(need))
    }

    /// What the disk would do in all: what they had who were as many, and no less than is taken for granted, since they
    /// may have asked for less.
    pub(crate) fn total(&self) -> u64 {
        let granted = self.database.bandwidth().with(self.combination.len());
        self.rates.total(&self.combination).max(granted)
    }
}
