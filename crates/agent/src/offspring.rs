//! Whose every process is.

use std::collections::HashSet;

use crate::host::{Host, Process, TargetError, Thread, runs};
use crate::member::Member;

/// The processes of everybody that run now. One belongs to who names it, or else to the first of
/// those whose processes it comes of; nobody has what somebody else has. Processes whose parents
/// have ended stay where they were.
pub(crate) fn find(
    host: &mut impl Host,
    members: &mut [Member],
) -> Vec<Result<Vec<Process>, TargetError>> {
    let mut taken = HashSet::new();
    let mut named = |member: &mut Member| -> Result<Vec<Process>, TargetError> {
        let mut named = member.named(host)?;
        named.retain(|process| taken.insert(process.thread));
        Ok(named)
    };
    let named: Vec<_> = members.iter_mut().map(&mut named).collect();
    let mut all = |(member, named): (&Member, Result<Vec<Process>, TargetError>)| {
        if !member.target.has_offspring() {
            return named;
        }
        let known = member.processes.iter();
        let mut left: Vec<Process> = known.filter_map(|&thread| runs(host, thread)).collect();
        left.retain(|process| taken.insert(process.thread));
        match named {
            Err(error) if left.is_empty() => Err(error),
            named => {
                left.extend(named.unwrap_or_default());
                Ok(follow(host, left, &mut taken))
            }
        }
    };
    members.iter().zip(named).map(&mut all).collect()
}

/// With all that they started, and that those started.
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
