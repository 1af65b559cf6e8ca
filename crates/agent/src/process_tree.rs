//! Process trees: assignment of every process to one target.

use std::collections::HashSet;

use crate::host::{Host, Process, TargetError, Thread, runs};
use crate::tracked_target::TrackedTarget;

/// Finds the running processes of all targets. A process belongs to the target that names it, or
/// else to the first target that it descends from; never to two. Orphans stay with their target.
pub(crate) fn find(
    host: &mut impl Host,
    targets: &mut [TrackedTarget],
) -> Vec<Result<Vec<Process>, TargetError>> {
    let mut taken = HashSet::new();
    let mut named = |tracked: &mut TrackedTarget| -> Result<Vec<Process>, TargetError> {
        let mut named = tracked.named(host)?;
        named.retain(|process| taken.insert(process.thread));
        Ok(named)
    };
    // All named processes first, so that no target takes another's by descent.
    let named: Vec<_> = targets.iter_mut().map(&mut named).collect();
    let mut all = |(tracked, named): (&TrackedTarget, Result<Vec<Process>, TargetError>)| {
        if !tracked.target.includes_descendants() {
            return named;
        }
        let known = tracked.processes.iter();
        // Known processes stay, even after their parent has ended and init has adopted them.
        let mut left: Vec<Process> = known.filter_map(|&thread| runs(host, thread)).collect();
        left.retain(|process| taken.insert(process.thread));
        match named {
            // Descendants may outlive the named process.
            Err(error) if left.is_empty() => Err(error),
            named => {
                left.extend(named.unwrap_or_default());
                Ok(follow(host, left, &mut taken))
            }
        }
    };
    targets.iter().zip(named).map(&mut all).collect()
}

/// Adds all descendants of `found` that no target has yet.
fn follow(
    host: &mut impl Host,
    mut found: Vec<Process>,
    taken: &mut HashSet<Thread>,
) -> Vec<Process> {
    let mut next = 0;
    while let Some(process) = found.get(next) {
        let mut children = host.children(process.thread);
        children.retain(|child| taken.insert(child.thread));
        found.extend(children);
        next += 1;
    }
    found
}
