//! Thread pool for independent runs.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;

/// Applies `work` to each item on `jobs` threads and returns the results in the order of the items,
/// independent of the order of completion. `done` gets the number of finished items and the number
/// of all items.
pub fn map_parallel<T: Sync, R: Send>(
    items: &[T],
    jobs: usize,
    done: &mut dyn FnMut(usize, usize),
    work: impl Fn(&T) -> R + Sync,
) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let mut results: Vec<Option<R>> = items.iter().map(|_| None).collect();
    thread::scope(|scope| {
        let (sender, receiver) = mpsc::channel();
        // No more threads than items, and one even without items.
        for _ in 0..jobs.clamp(1, items.len().max(1)) {
            let (sender, next, work) = (sender.clone(), &next, &work);
            scope.spawn(move || {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(item) = items.get(index) else { return };
                    // Only a panic of the receiver closes the channel, and that panic is
                    // propagated.
                    let _ = sender.send((index, work(item)));
                }
            });
        }
        // The threads have clones; with this one the receiver would wait for ever.
        drop(sender);
        for (n, (index, result)) in receiver.into_iter().enumerate() {
            // By index: threads finish in any order.
            results[index] = Some(result);
            done(n + 1, items.len());
        }
    });
    let all: Option<Vec<R>> = results.into_iter().collect();
    all.expect("each item was worked on, or its thread's panic was passed on")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_come_in_the_order_of_the_items() {
        let items: Vec<u64> = (0..100).collect();
        for jobs in [0, 1, 3, 200] {
            let mut heard = Vec::new();
            let squares = map_parallel(&items, jobs, &mut |n, of| heard.push((n, of)), |n| n * n);
            assert!(
                squares
                    .iter()
                    .zip(&items)
                    .all(|(square, n)| *square == n * n)
            );
            assert_eq!(heard, (1..=100).map(|n| (n, 100)).collect::<Vec<_>>());
        }
        let nothing: &[u64] = &[];
        let none = map_parallel(nothing, 4, &mut |_, _| panic!("nothing is done"), |n| *n);
        assert!(none.is_empty());
    }
}
