//! Requests of a guest that thinks before it issues them, several at once.

use crate::stream::Io;
use std::collections::BTreeMap;
use tidegate_core::time::Nanos;

/// Requests that will be issued, by the time at which their think time is over.
#[derive(Clone, Debug, Default)]
pub(crate) struct Thoughts {
    planned: BTreeMap<(Nanos, u64), Io>,
    /// Number of requests planned so far, which keeps those of one time in order.
    count: u64,
}

impl Thoughts {
    /// Plans a request, whose think time begins now.
    pub(crate) fn plan(&mut self, now: Nanos, io: Io) {
        let at = now + io.pause;
        // The pause is made here, and nowhere else.
        let pause = Nanos::ZERO;
        self.planned.insert((at, self.count), Io { pause, ..io });
        self.count += 1;
    }

    /// Takes the next request whose think time is over.
    pub(crate) fn take_due(&mut self, now: Nanos) -> Option<Io> {
        let next = self.planned.first_entry()?;
        (next.key().0 <= now).then(|| next.remove())
    }

    /// Returns the time at which the next think time is over.
    pub(crate) fn next(&self) -> Option<Nanos> {
        self.planned.keys().next().map(|(at, _)| *at)
    }

    /// Returns the number of requests that are planned.
    pub(crate) fn len(&self) -> usize {
        self.planned.len()
    }
}
