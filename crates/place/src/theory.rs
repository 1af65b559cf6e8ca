//! The proactive agent: what would come of those on a host if they had other classes. Figure 5.9.
//!
//! A job is in time at some bandwidth exactly where that is no less than the rate it needs: what is
//! left of it over the time that is left. So each one's rate is reckoned once, and a look at a
//! combination compares numbers.

use tidegate_core::jobs::{Class, Job};
use tidegate_core::time::Nanos;

use crate::level::{Level, level};
use crate::request::needed;
use crate::{Combination, Rates, Situation};

/// Late by so small a part of its deadline is not late anyway, in thousandths.
///
/// What is foreseen is an average, and jobs are let in until those that run have nothing to spare:
/// one that was taken for late at the first figure that is off by a byte would protect nobody any
/// more, itself least. The thesis says nothing of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Grace(u32);

impl Grace {
    /// Who would be late without a newcomer, however little, is late anyway: to the letter.
    pub const NONE: Grace = Grace(0);

    /// So many thousandths of a deadline; more than all of it is all of it.
    pub fn thousandths(n: u32) -> Grace {
        Grace(n.min(1_000))
    }

    /// How many thousandths.
    pub fn as_thousandths(self) -> u32 {
        self.0
    }

    fn of(self, deadline: Nanos) -> Nanos {
        Nanos((u128::from(deadline.0) * u128::from(self.0) / 1_000) as u64)
    }
}

impl Default for Grace {
    /// A hundredth.
    fn default() -> Grace {
        Grace(10)
    }
}

/// Somebody who uses a host's disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tenant {
    /// Its class just now.
    pub class: Class,
    /// Its job; `None`: it has all the time there is.
    pub job: Option<Job>,
}

/// Until when a job that does not move is not late anyway at this rate.
fn stands_until(job: &Job, bytes_per_s: u64, grace: Grace) -> Nanos {
    match job.left() {
        0 => Nanos::MAX,
        // Never in time, at no time.
        _ if bytes_per_s == 0 => Nanos::ZERO,
        _ => (job.due() + grace.of(job.deadline)).since(job.latency(bytes_per_s)),
    }
}

/// Those who run on a host, with the classes that they are thought to have.
#[derive(Debug)]
pub(crate) struct Theory<'a> {
    of: &'a Situation<'a>,
    /// Those that cannot take all they are given, by how much they take.
    limited: Vec<usize>,
    /// What each one needs to be in time, in bytes a second; 0: it is, whatever happens. One that
    /// is late without the newcomer needs nothing from the newcomer.
    needs: Vec<u64>,
    classes: Vec<Class>,
    /// The least that each one was in time with, wherever that was asked.
    least: Vec<u64>,
    /// Until when nobody who is not late without the newcomer will be, as long as nothing moves.
    until: Nanos,
    /// What the newcomer has.
    own: Class,
    combination: Combination,
    /// What who takes all that it is given has, of each class.
    rates: Rates,
}

impl<'a> Theory<'a> {
    /// Those that run alone.
    pub(crate) fn without(of: &'a Situation<'a>) -> Theory<'a> {
        let tenants = of.tenants;
        let mut limited: Vec<usize> = (0..tenants.len())
            .filter(|&who| of.limit(who) < u64::MAX)
            .collect();
        limited.sort_by_key(|&who| of.limit(who));
        let classes: Vec<Class> = tenants.iter().map(|tenant| tenant.class).collect();
        let mut theory = Theory {
            of,
            limited,
            needs: Vec::with_capacity(tenants.len()),
            combination: Combination::of(classes.iter().copied()),
            classes,
            least: Vec::with_capacity(tenants.len()),
            until: Nanos::MAX,
            own: Class::default(),
            rates: Rates::default(),
        };
        theory.look();
        theory
    }

    /// With a newcomer of the default class among those that run.
    pub(crate) fn new(of: &'a Situation<'a>) -> Theory<'a> {
        let mut theory = Theory::without(of);
        for (who, tenant) in of.tenants.iter().enumerate() {
            let has = theory.has(who);
            let need = tenant
                .job
                .map_or(0, |job| needed(job.left(), job.due().since(of.now)));
            let stands_until =
                (tenant.job).map_or(Nanos::MAX, |job| stands_until(&job, has, of.grace));
            let late_anyway = stands_until < of.now;
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
        (self.classes).extend(self.of.tenants.iter().map(|tenant| tenant.class));
        self.own = Class::default();
        self.combination = Combination::of(self.classes.iter().copied()).with(self.own);
        self.look();
    }

    /// What each class has now.
    fn look(&mut self) {
        self.rates = match self.limited.is_empty() {
            true => self.of.database.rates(&self.combination),
            false => self.with_leftovers(),
        };
    }

    /// The same where some cannot take their part: what they leave goes to the others of their
    /// class, and then to the classes below; not above, where it is not known whether they would
    /// have it.
    ///
    /// That is reckoned in the combination that was seen, with everybody beside one of those in it:
    /// who is a class lower than they were leaves nothing more by that.
    fn with_leftovers(&self) -> Rates {
        let entry = self.of.database.known(&self.combination);
        let sides = self.combination.beside(&entry.classes);
        let (mut levels, mut left) = ([0; 3], 0);
        for class in Class::ALL.into_iter().rev() {
            let n = entry.classes.count(class);
            if n == 0 {
                continue;
            }
            // Of a class that stands beside several nobody knows which of it stands where.
            let is_here = |who: &&usize| {
                let own = self.classes[**who];
                sides[own as usize][class as usize] == self.combination.count(own)
            };
            let limited = self.limited.iter().filter(is_here);
            let limits: Vec<u64> = limited.map(|&who| self.of.limit(who)).collect();
            let all = u128::from(entry.rates.of(class)) * n as u128 + left;
            let Level { each, rest } = level(all, n - limits.len(), limits.into_iter());
            (levels[class as usize], left) = (each, rest);
        }
        Rates(levels).beside(&entry.classes, &self.combination)
    }

    /// What one of those that run has, in bytes a second.
    pub(crate) fn has(&self, who: usize) -> u64 {
        (self.rates.of(self.classes[who])).min(self.of.limit(who))
    }

    /// How many run, without the newcomer.
    pub(crate) fn len(&self) -> usize {
        self.of.tenants.len()
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
        let mut violated = false;
        for who in 0..self.needs.len() {
            let (has, need) = (self.has(who), self.needs[who]);
            match has < need {
                true => violated = true,
                false if need > 0 => self.least[who] = has.min(self.least[who]),
                false => {}
            }
        }
        violated
    }

    /// One that runs is a class lower: of those that can be, the first with the most time to spare.
    /// `false`: nobody can. Figure 5.10, steps 1 to 7.
    pub(crate) fn lower_one(&mut self) -> bool {
        let mut best: Option<(i128, usize)> = None;
        for (who, &class) in self.classes.iter().enumerate() {
            let spare = match self.of.tenants[who].job {
                _ if class == Class::Idle => continue,
                None => i128::MAX,
                // Where it is late, what it lacks.
                Some(job) => {
                    let latency = job.latency(self.has(who));
                    i128::from(job.due().0) - i128::from(self.of.now.0) - i128::from(latency.0)
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
        let both = self.of.tenants.iter().zip(&self.classes).enumerate();
        both.filter(|(_, (tenant, class))| tenant.class != **class)
            .map(|(who, (_, class))| (who, *class))
            .collect()
    }

    /// Who would be late because of the newcomer, the latest, and by how much.
    pub(crate) fn latest(&self) -> Option<(usize, Nanos)> {
        let late = |who: usize| {
            let has = self.has(who);
            let job = (self.of.tenants[who].job).filter(|_| has < self.needs[who])?;
            Some((who, job.forecast(self.of.now, has).late))
        };
        // The first of those that are alike.
        let all = (0..self.classes.len()).filter_map(late);
        all.reduce(|most, next| if next.1 > most.1 { next } else { most })
    }

    /// Until when all that was found of those that run is so, as long as nothing moves: from then
    /// on somebody who was in time is late.
    pub(crate) fn holds_until(&self) -> Nanos {
        let until = |(tenant, &least): (&Tenant, &u64)| {
            let job = tenant.job.filter(|_| least < u64::MAX)?;
            // A job that is done is in time for ever.
            (job.left() > 0).then(|| job.due().since(job.latency(least)))
        };
        let both = self.of.tenants.iter().zip(&self.least);
        both.filter_map(until)
            .min()
            .unwrap_or(Nanos::MAX)
            .min(self.until)
    }

    /// What those that run need together in order to be in time, but for those that are late
    /// anyway.
    pub(crate) fn needed(&self) -> u64 {
        self.needs
            .iter()
            .fold(0, |sum, &need| sum.saturating_add(need))
    }

    /// What the disk would do in all: what they had who were as many, and no less than is taken for
    /// granted, since they may have asked for less.
    pub(crate) fn total(&self) -> u64 {
        let database = self.of.database;
        let granted = database.bandwidth().with(self.combination.len());
        (database.rates(&self.combination).total(&self.combination)).max(granted)
    }
}
