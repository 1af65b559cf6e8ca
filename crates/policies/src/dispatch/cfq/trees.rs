//! Service trees: the waiting queues by class and due time, and by kind of workload where seekers
//! are grouped; the turns of the kinds, and the slice lengths that follow.

use super::params::{CfqParams, TURN_MIN};
use super::queue::{BEST_EFFORT, IDLE, Kind, Think, rank_of};
use crate::tournament::Tournament;
use tidegate_base::time::Nanos;

/// Number of priority classes.
const CLASSES: usize = 3;

/// Reciprocal of the weight of the smaller of two numbers of busy queues in their average: a
/// quarter.
const SMALLER_WEIGHT_DIVISOR: u64 = 4;

/// Kind of workload that has its turn, and the end of that turn.
#[derive(Clone, Copy, Debug)]
struct Serving {
    rank: u64,
    kind: Kind,
    expires: Nanos,
}

/// Service trees and the turns of the kinds of workload.
#[derive(Debug)]
pub(super) struct Trees {
    /// Trees: one in all, or one for each kind with the idle class in that of [`Kind::Sync`]. The
    /// tree of a kind that cannot occur has no room.
    trees: Vec<Tournament>,
    /// Number of queues in the trees, by class and kind.
    counts: [[u64; Kind::ALL.len()]; CLASSES],
    serving: Option<Serving>,
    /// Average number of busy queues by class; follows upwards fast and downwards slowly.
    busy_average: [u64; CLASSES],
    /// Think time of all queues of a class and a kind together, and the time at which their last
    /// I/O ended ([`Nanos::MAX`]: none has).
    thinks: [[Think; Kind::ALL.len()]; CLASSES],
    last_end: [[Nanos; Kind::ALL.len()]; CLASSES],
}

/// Returns the number of queues for which each tree has room.
fn tree_capacities(queues: usize, params: &CfqParams) -> impl Iterator<Item = usize> {
    // Without `async_writes` no queue is asynchronous, so the first tree needs no room.
    let asynchronous = if params.async_writes { queues } else { 0 };
    let by_kind = [asynchronous, queues, queues];
    let first = if params.group_seekers {
        0
    } else {
        by_kind.len() - 1
    };
    by_kind.into_iter().skip(first)
}

impl Trees {
    /// Creates empty trees for `queues` queues.
    pub(super) fn new(queues: usize, params: &CfqParams) -> Trees {
        let trees = tree_capacities(queues, params).map(Tournament::with_capacity);
        Trees {
            trees: trees.collect(),
            counts: [[0; Kind::ALL.len()]; CLASSES],
            serving: None,
            busy_average: [0; CLASSES],
            thinks: [[Think::UNKNOWN; Kind::ALL.len()]; CLASSES],
            last_end: [[Nanos::MAX; Kind::ALL.len()]; CLASSES],
        }
    }

    /// Returns the bytes of memory for `queues` queues.
    pub(super) fn bytes(queues: usize, params: &CfqParams) -> usize {
        tree_capacities(queues, params).map(Tournament::bytes).sum()
    }

    /// Returns the index of the tree that holds queues of a class and a kind.
    fn tree_index(&self, rank: u64, kind: Kind) -> usize {
        match (self.trees.len(), rank) {
            (1, _) => 0,
            // The idle class is served one I/O at a time, so its kinds have no turns of their own.
            (_, IDLE) => Kind::Sync as usize,
            _ => kind as usize,
        }
    }

    /// Inserts a queue under its key, which contains the rank of its class.
    pub(super) fn insert(&mut self, queue: usize, kind: Kind, key: u64) {
        let rank = rank_of(key);
        let index = self.tree_index(rank, kind);
        self.trees[index].set(queue, key);
        self.counts[rank as usize][kind as usize] += 1;
    }

    /// Removes a queue that was inserted with this kind, in a class of this rank.
    pub(super) fn remove(&mut self, queue: usize, kind: Kind, rank: u64) {
        let index = self.tree_index(rank, kind);
        self.trees[index].remove(queue);
        self.counts[rank as usize][kind as usize] -= 1;
    }

    /// Returns the number of waiting queues of a class and a kind.
    pub(super) fn count(&self, rank: u64, kind: Kind) -> u64 {
        self.counts[rank as usize][kind as usize]
    }

    /// Returns the number of waiting queues.
    pub(super) fn waiting(&self) -> u64 {
        self.counts.iter().flatten().sum()
    }

    /// Returns the number of waiting synchronous queues.
    pub(super) fn waiting_sync(&self) -> u64 {
        let asynchronous = self.counts.iter().map(|of| of[Kind::Async as usize]);
        self.waiting() - asynchronous.sum::<u64>()
    }

    /// Returns the number of waiting queues of a class.
    fn busy_in(&self, rank: u64) -> u64 {
        self.counts[rank as usize].iter().sum()
    }

    /// Returns the rank of the highest class that waits.
    pub(super) fn first_rank(&self) -> Option<u64> {
        let ranks = self.counts.iter().map(|of| of.iter().any(|&n| n > 0));
        ranks
            .into_iter()
            .position(|any| any)
            .map(|rank| rank as u64)
    }

    /// Returns the rank and queue whose turn is next: the first of the kind of workload that has
    /// its turn, else of the kind whose first queue is due first, which then begins its turn.
    pub(super) fn next_turn(&mut self, params: &CfqParams, now: Nanos) -> Option<(u64, usize)> {
        let rank = self.first_rank()?;
        if self.trees.len() == 1 || rank == IDLE {
            let index = self.tree_index(rank, Kind::Sync);
            return self.trees[index].peek().map(|(_, queue)| (rank, queue));
        }
        let of_kind = |kind: Kind| {
            let first = self.trees[kind as usize].peek();
            // The first of a tree may belong to a lower class: a tree holds all classes of its
            // kind.
            first.filter(|&(key, _)| rank_of(key) == rank)
        };
        // A kind without a waiting queue loses the rest of its turn, as in
        // `choose_wl_class_and_type`.
        let goes_on = self.serving.filter(|s| s.rank == rank && now <= s.expires);
        if let Some((_, queue)) = goes_on.and_then(|serving| of_kind(serving.kind)) {
            return Some((rank, queue));
        }
        let firsts = Kind::ALL
            .into_iter()
            .filter_map(|kind| Some((of_kind(kind)?, kind)));
        let ((_, queue), kind) = firsts.min_by_key(|&((key, _), _)| key)?;
        self.begin_turn(params, now, rank, kind);
        Some((rank, queue))
    }

    /// Records that a queue has preempted another, so that its kind of workload has its turn.
    pub(super) fn preempted(&mut self, params: &CfqParams, now: Nanos, rank: u64, kind: Kind) {
        let goes_on = self
            .serving
            .is_some_and(|s| (s.rank, s.kind) == (rank, kind));
        // With one tree there are no turns of kinds.
        if self.trees.len() > 1 && !goes_on {
            self.begin_turn(params, now, rank, kind);
        }
    }

    /// Begins the turn of a kind of workload: its part of the target latency is its queues' part of
    /// all busy queues in the class.
    fn begin_turn(&mut self, params: &CfqParams, now: Nanos, rank: u64, kind: Kind) {
        let target = params.target_latency.0;
        let (count, busy) = (self.count(rank, kind), self.busy_in(rank).max(1));
        // As in Linux, the larger of the present number of busy queues and its average counts.
        let share = target * count / busy.max(self.busy_average[rank as usize]);
        let turn = match kind {
            Kind::Async => {
                let all: u64 = self.counts.iter().map(|of| of[Kind::Async as usize]).sum();
                // As in Linux, at most the part of the asynchronous queues of all classes among all
                // queues.
                let share = share.min(target * all / self.waiting().max(1));
                // Asynchronous queues get less by the ratio of the slices, as in Linux's
                // `choose_wl_class_and_type`.
                let ratio = params.slice_async.0 as u128;
                (share as u128 * ratio / params.slice_sync.0 as u128) as u64
            }
            Kind::NoIdle | Kind::Sync => share.max(params.slice_idle.0.saturating_mul(2)),
        };
        self.serving = Some(Serving {
            rank,
            kind,
            expires: now + Nanos(turn.max(TURN_MIN.0)),
        });
    }

    /// Returns the slice that is granted: with `low_latency`, shorter where one slice for each busy
    /// queue of the class would take longer than the target latency.
    pub(super) fn granted_slice(&mut self, params: &CfqParams, rank: u64, slice: Nanos) -> Nanos {
        // The idle class is not shortened: its slices end with one I/O in any case.
        if !params.low_latency || rank > BEST_EFFORT {
            return slice;
        }
        // Rounded average as in Linux's `cfq_get_avg_queues`: the larger number weighs three
        // quarters.
        // The active queue is in no tree, hence the one more.
        let (busy, known) = (self.busy_in(rank) + 1, self.busy_average[rank as usize]);
        let average = (busy.max(known) * (SMALLER_WEIGHT_DIVISOR - 1)
            + busy.min(known)
            + SMALLER_WEIGHT_DIVISOR / 2)
            / SMALLER_WEIGHT_DIVISOR;
        self.busy_average[rank as usize] = average;
        let (base, target) = (params.slice_sync.0 as u128, params.target_latency.0 as u128);
        let (slice, expected) = (slice.0 as u128, base * average as u128);
        if expected <= target {
            return Nanos(slice as u64);
        }
        // At least two `slice_idle` for a slice of the base length, and in proportion for others.
        let least = slice.min(2 * params.slice_idle.0 as u128 * slice / base);
        Nanos((slice * target / expected).max(least) as u64)
    }

    /// Adds the think time before a queue's new request to the mean; it counts for `longest` at
    /// most.
    pub(super) fn sample_think_time(
        &mut self,
        (rank, kind): (u64, Kind),
        now: Nanos,
        longest: Nanos,
    ) {
        let last_end = self.last_end[rank as usize][kind as usize];
        // Without an answer to any queue of the kind there is nothing that a VM could have thought
        // about.
        if last_end != Nanos::MAX {
            let thought = now.since(last_end).min(longest);
            self.thinks[rank as usize][kind as usize].sample(thought);
        }
    }

    /// Records the end of an I/O of a class and a kind.
    pub(super) fn ended(&mut self, (rank, kind): (u64, Kind), now: Nanos) {
        self.last_end[rank as usize][kind as usize] = now;
    }

    /// Returns the mean think time of all queues of a class and a kind.
    pub(super) fn thinks(&self, rank: u64, kind: Kind) -> Option<Nanos> {
        self.thinks[rank as usize][kind as usize].mean()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dispatch::cfq::BackgroundClass;
    use crate::dispatch::cfq::queue::key_of;
    use tidegate_core::starvation::Bound;

    const MS: Nanos = Nanos::from_millis(1);

    fn params(target_latency: Nanos, slice_idle: Nanos) -> CfqParams {
        CfqParams {
            slice_sync: MS,
            slice_async: MS,
            slice_idle,
            quantum: 8,
            slice_async_rq: 2,
            group_seekers: true,
            low_latency: false,
            target_latency,
            fifo_expire: [Nanos::ZERO; 2],
            back_seek_max: 0,
            back_seek_penalty: 1,
            priorities: true,
            async_writes: true,
            shared_async: false,
            async_vm_writes: true,
            preemption: true,
            background_class: BackgroundClass::Idle,
            idle_grace: Nanos::ZERO,
            idle_overdue: Nanos::ZERO,
        }
    }

    #[test]
    fn no_kind_of_workload_has_its_turn_for_longer_than_is_stated() {
        let spans = [0, 1, 5, 100].map(Nanos::from_millis);
        for (target, idle) in spans[1..].iter().flat_map(|t| spans.map(|idle| (*t, idle))) {
            let params = params(target, idle);
            let Bound::Slices(stated) = params.starvation() else {
                panic!("CFQ is bounded by slices");
            };
            for kind in Kind::ALL {
                let mut trees = Trees::new(2, &params);
                trees.insert(1, kind, key_of(BEST_EFFORT, 0));
                assert_eq!(trees.next_turn(&params, MS), Some((BEST_EFFORT, 1)));
                let turn = trees.serving.expect("a turn began").expires.since(MS);
                assert!(
                    turn <= stated.workload,
                    "{kind:?}, {target}, {idle}: {turn}"
                );
            }
        }
    }
}
