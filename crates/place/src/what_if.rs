//! What-if: bandwidths and lateness of the jobs on a host if they had other classes. The proactive
//! agent of figure 5.9.
//!
//! A job is in time at some bandwidth exactly where that is no less than the rate it needs: what is
//! left of it over the time that is left. So each one's rate is reckoned once, and a look at a
//! combination compares numbers.

use tidegate_core::jobs::{Class, Forecast, Job};
use tidegate_core::time::Nanos;

use crate::fair_share::{FairShare, fair_share};
use crate::request::needed;
use crate::{Combination, Grace, HostSnapshot, Rates, Tenant};

/// Until when a job that does not move is not late anyway at this rate.
fn stands_until(job: &Job, bytes_per_s: u64, grace: Grace) -> Nanos {
    match job.left() {
        0 => Nanos::MAX,
        // Never in time, at no time.
        _ if bytes_per_s == 0 => Nanos::ZERO,
        _ => (job.due() + grace.of_deadline(job.deadline)).since(job.latency(bytes_per_s)),
    }
}

/// Bandwidths that jobs of a host have at present, in bytes per second, in the order of the
/// snapshot's tenants.
pub fn rates(snapshot: &HostSnapshot<'_>) -> Vec<u64> {
    let what_if = WhatIf::without(snapshot);
    (0..what_if.len()).map(|who| what_if.has(who)).collect()
}

/// Forecasts of the jobs of a host at their present bandwidths, in the order of the snapshot's
/// tenants; `None` for a tenant without a job.
pub fn forecasts(snapshot: &HostSnapshot<'_>) -> Vec<Option<Forecast>> {
    let both = snapshot.tenants.iter().zip(rates(snapshot));
    both.map(|(tenant, rate)| Some(tenant.job?.forecast(snapshot.now, rate)))
        .collect()
}

/// Tenants of a host with the classes that are tried on them, and a newcomer.
#[derive(Debug)]
pub(crate) struct WhatIf<'a> {
    of: &'a HostSnapshot<'a>,
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

impl<'a> WhatIf<'a> {
    /// Those that run alone.
    pub(crate) fn without(of: &'a HostSnapshot<'a>) -> WhatIf<'a> {
        let tenants = of.tenants;
        let mut limited: Vec<usize> = (0..tenants.len())
            .filter(|&who| of.limit(who) < u64::MAX)
            .collect();
        limited.sort_by_key(|&who| of.limit(who));
        let classes: Vec<Class> = tenants.iter().map(|tenant| tenant.class).collect();
        let mut what_if = WhatIf {
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
        what_if.look();
        what_if
    }

    /// With a newcomer of the default class among those that run.
    pub(crate) fn new(of: &'a HostSnapshot<'a>) -> WhatIf<'a> {
        let mut what_if = WhatIf::without(of);
        for (who, tenant) in of.tenants.iter().enumerate() {
            let has = what_if.has(who);
            let need = tenant
                .job
                .map_or(0, |job| needed(job.left(), job.due().since(of.now)));
            let stands_until =
                (tenant.job).map_or(Nanos::MAX, |job| stands_until(&job, has, of.grace));
            let late_anyway = stands_until < of.now;
            if !late_anyway {
                what_if.until = what_if.until.min(stands_until);
            }
            what_if.needs.push(if late_anyway { 0 } else { need });
            what_if.least.push(u64::MAX);
        }
        what_if.start();
        what_if
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
        self.rates = if self.limited.is_empty() {
            self.of.database.rates(&self.combination)
        } else {
            self.with_leftovers()
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
            let FairShare { each, rest } = fair_share(all, n - limits.len(), limits.into_iter());
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
