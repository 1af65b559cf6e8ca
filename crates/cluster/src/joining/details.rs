//! Budgets and policies of the devices, computed beside the thread's other work.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task;

use super::{DeviceDetails, MemberSource};

/// Shortest time between two computations of what devices can still promise.
const DETAILS_MIN: Duration = Duration::from_secs(5);
/// Longest time between two of them: running transfers change them, too.
const DETAILS_MAX: Duration = Duration::from_secs(60);

/// Budgets and policies of the devices, which take long to compute.
#[derive(Default)]
pub(super) struct Details {
    pub(super) computed: Vec<DeviceDetails>,
    begun: Option<Instant>,
    /// Computation that is under way.
    task: Option<task::JoinHandle<Vec<DeviceDetails>>>,
    pub(super) is_outdated: bool,
}

impl Details {
    /// Begins to compute what devices can still promise, if it is due.
    pub(super) fn begin(&mut self, source: &Arc<impl MemberSource>) {
        let age = self.begun.map(|begun| begun.elapsed());
        let is_due = match age {
            None => true,
            Some(age) => age >= DETAILS_MAX || (self.is_outdated && age >= DETAILS_MIN),
        };
        if !is_due || self.task.is_some() {
            return;
        }
        self.is_outdated = false;
        self.begun = Some(Instant::now());
        let source = source.clone();
        self.task = Some(task::spawn(async move { source.details().await }));
    }

    /// Waits for the end of a computation, and takes its result; waits for ever without one.
    pub(super) async fn finish(&mut self) {
        match &mut self.task {
            Some(task) => {
                self.computed = task.await.unwrap_or_default();
                self.task = None;
            }
            None => std::future::pending().await,
        }
    }
}
