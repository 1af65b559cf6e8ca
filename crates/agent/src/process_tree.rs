//! Process trees: assignment of every process to one target.

use std::collections::HashSet;

use crate::host::{Host, Process, TargetError, TaskId, running_process};
use crate::tracked_target::TrackedTarget;

/// Finds the running processes of all targets. A process belongs to the target that names it, or
/// else to the first target that it descends from; never to two. Orphans stay with their target.
pub(crate) fn find(
    host: &mut impl Host,
    targets: &mut [TrackedTarget],
) -> Vec<Result<Vec<Process>, TargetError>> {
    let mut assigned = HashSet::new();
    // All named processes first, so that no target takes another's by descent.
    let mut named_by_target = Vec::new();
    for tracked in targets.iter_mut() {
        let named = tracked.named_processes(host).map(|mut processes| {
            processes.retain(|process| assigned.insert(process.task));
            processes
        });
        named_by_target.push(named);
    }
    (targets.iter().zip(named_by_target))
        .map(|(tracked, named)| {
            if tracked.target.includes_descendants() {
                with_descendants(host, tracked, named, &mut assigned)
            } else {
                named
            }
        })
        .collect()
}

/// Adds to the named processes of a target those that it had at the last scan, and all descendants
/// of both, as far as no target has them.
fn with_descendants(
    host: &mut impl Host,
    tracked: &TrackedTarget,
    named: Result<Vec<Process>, TargetError>,
    assigned: &mut HashSet<TaskId>,
) -> Result<Vec<Process>, TargetError> {
    // Known processes stay, even after their parent has ended and init has adopted them.
    let known = tracked.processes.iter();
    let mut processes: Vec<Process> = known
        .filter_map(|&task| running_process(host, task))
        .collect();
    processes.retain(|process| assigned.insert(process.task));
    match named {
        // Descendants may outlive the named process.
        Err(error) if processes.is_empty() => return Err(error),
        Err(_) => {}
        Ok(named) => processes.extend(named),
    }
    let mut next = 0;
    while let Some(process) = processes.get(next) {
        let mut children = host.children(process.task);
        children.retain(|child| assigned.insert(child.task));
        processes.extend(children);
        next += 1;
    }
    Ok(processes)
}
