//! Row of the matrix of interference: behind which VMs a VM's sampled requests were.

use tidegate_base::request::VmId;
use tidegate_base::time::Nanos;

/// Number of VMs that a row names, those that delay its VM most of late; the others are summed.
pub const CULPRITS: usize = 8;
/// Divisor of the part of its score that a culprit loses with each sample.
const SCORE_DECAY: u64 = 16;

/// Times of one phase of sampled requests, in sum.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PhaseTimes {
    /// Behind the VM's own other requests.
    pub own: Nanos,
    /// Behind VMs that the row does not name.
    pub others: Nanos,
    /// Time in which the device ended far less than it usually does.
    pub slow: Nanos,
    /// Rest: before the device of no known cause, inside of it the requests' own service.
    pub rest: Nanos,
}

/// VM behind which another one's sampled requests were, with their time there.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Culprit {
    /// VM or background process; `None`: the entry is free.
    pub vm: Option<VmId>,
    /// Number of the entry's use. A VM that comes back after it made way for another one counts
    /// from zero, under another number.
    pub entry: u32,
    /// Time before the device.
    pub waited: Nanos,
    /// Time inside the device.
    pub inside: Nanos,
}

/// Times of a VM's sampled requests since it was added. Each sample counts as many times as it
/// stands for requests, so the sums estimate those over all requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Attribution {
    /// Requests that were sampled.
    pub samples: u64,
    /// Time before the device.
    pub waited: PhaseTimes,
    /// Time inside the device.
    pub inside: PhaseTimes,
    /// VMs that delayed its requests most of late, in no order.
    pub culprits: [Culprit; CULPRITS],
}

/// Attribution with the state by which its culprits are chosen.
#[derive(Clone, Copy, Default)]
pub(super) struct Row {
    pub(super) attribution: Attribution,
    /// Time of each culprit, in which older samples count less.
    scores: [u64; CULPRITS],
    /// Number of the last entry.
    entries: u32,
}

impl Row {
    /// Ends a sample, whose culprits were added before.
    pub(super) fn end_sample(&mut self) {
        self.attribution.samples += 1;
        for score in &mut self.scores {
            *score -= *score / SCORE_DECAY;
        }
    }

    /// Adds time behind a VM. One that is not in the row takes the entry of the one with the least
    /// time of late, if it has more, and the time of that one joins the others'.
    pub(super) fn add(&mut self, vm: VmId, waited: u64, inside: u64) {
        let Attribution {
            culprits,
            waited: waits,
            inside: insides,
            ..
        } = &mut self.attribution;
        let time = waited.saturating_add(inside);
        if time == 0 {
            return;
        }
        let known = culprits.iter().position(|it| it.vm == Some(vm));
        let place = known.unwrap_or_else(|| {
            let scores = self.scores.iter().enumerate();
            let (least, _) = scores
                .min_by_key(|&(_, score)| score)
                .expect("the row has entries");
            least
        });
        let culprit = &mut culprits[place];
        if known.is_none() {
            if culprit.vm.is_some() && time <= self.scores[place] {
                waits.others += Nanos(waited);
                insides.others += Nanos(inside);
                return;
            }
            waits.others += culprit.waited;
            insides.others += culprit.inside;
            self.entries = self.entries.wrapping_add(1);
            *culprit = Culprit {
                vm: Some(vm),
                entry: self.entries,
                ..Culprit::default()
            };
            self.scores[place] = 0;
        }
        culprit.waited += Nanos(waited);
        culprit.inside += Nanos(inside);
        self.scores[place] = self.scores[place].saturating_add(time);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vm(n: u64) -> VmId {
        VmId::from_bits(n)
    }

    fn sum(row: &Row) -> u64 {
        let named = row.attribution.culprits.iter();
        let named: u64 = named.map(|it| it.waited.0 + it.inside.0).sum();
        named + row.attribution.waited.others.0 + row.attribution.inside.others.0
    }

    #[test]
    fn the_heaviest_are_named_and_no_time_is_lost() {
        let mut row = Row::default();
        for n in 0..1000 {
            row.add(vm(7), 10, 5);
            row.add(vm(100 + n % 20), 1, 0);
            row.end_sample();
        }
        assert_eq!(sum(&row), 16_000);
        let of = |n| {
            let mut all = row.attribution.culprits.iter();
            all.find(|it| it.vm == Some(vm(n))).copied()
        };
        let heaviest = of(7).expect("it is named");
        assert_eq!(
            (heaviest.waited, heaviest.inside),
            (Nanos(10_000), Nanos(5000))
        );
    }

    #[test]
    fn those_of_yesterday_make_way() {
        let mut row = Row::default();
        for n in 0..CULPRITS as u64 {
            row.add(vm(n), 1_000_000, 0);
            row.end_sample();
        }
        for _ in 0..300 {
            row.add(vm(50), 1000, 0);
            row.end_sample();
        }
        let mut named = row.attribution.culprits.iter();
        let newcomer = named.find(|it| it.vm == Some(vm(50)));
        assert!(newcomer.expect("it is named").waited > Nanos(100_000));
        assert_eq!(sum(&row), 8_300_000);
    }
}
