//! Results that clients share: one is made after the other, at most every [`SPACING`], so that no
//! number of requests occupies the event loops.
//!
//! ```text
//!   request --> last result, if it is recent enough or being made
//!           --> next result: begins once the last one is complete and SPACING has passed,
//!               and is for all who wait for it
//! ```
//!
//! A task of its own makes a result. It goes on if its clients leave, so that clients that leave
//! early neither delay others nor have anything made again.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::http::StatusCode;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::error::{ApiError, ApiResult};

/// Least time between the beginnings of two results.
const SPACING: Duration = Duration::from_millis(10);

/// Series of results of one kind, each shared by all who ask for it meanwhile.
#[derive(Clone)]
pub(super) struct Shared<T> {
    series: Arc<Mutex<Series<T>>>,
    /// Time for which a result may be used, from its beginning.
    reused_for: Duration,
}

/// Series of exact results for each device or VM, by its name.
pub(super) struct SharedByName<T> {
    all: Arc<Mutex<HashMap<String, Shared<T>>>>,
}

/// Result, once it is complete; closed if its task has failed.
type Pending<T> = watch::Receiver<Option<T>>;

struct Series<T> {
    last: Option<Begun<T>>,
    next: Option<Pending<T>>,
}

/// Result that was made last or is being made.
#[derive(Clone)]
struct Begun<T> {
    at: Instant,
    /// `None` once it is complete and may not be used again.
    result: Option<Pending<T>>,
}

impl<T: Clone + Send + Sync + 'static> Shared<T> {
    /// Makes a series whose results are begun after each request for them, so that a client sees
    /// every change that was answered before it asked.
    pub(super) fn exact() -> Shared<T> {
        Shared::reused_for(Duration::ZERO)
    }

    /// Makes a series whose results may be used for some time from their beginning, and for as long
    /// as they are being made.
    pub(super) fn reused_for(reused_for: Duration) -> Shared<T> {
        let (last, next) = (None, None);
        Shared {
            series: Arc::new(Mutex::new(Series { last, next })),
            reused_for,
        }
    }

    /// Returns a result, which `make` makes unless there is one to share.
    ///
    /// # Errors
    /// 500 if the task that makes the result fails.
    pub(super) async fn get<F>(&self, make: impl FnOnce() -> F + Send + 'static) -> ApiResult<T>
    where
        F: Future<Output = T> + Send + 'static,
    {
        let mut pending = self.join(make);
        let result = match pending.wait_for(Option::is_some).await {
            Ok(result) => result.clone(),
            Err(_) => None,
        };
        result.ok_or_else(|| {
            let what = "the daemon failed while it made the answer";
            ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, what, "request")
        })
    }

    /// Returns the result to wait for, after beginning a task for it if necessary.
    fn join<F>(&self, make: impl FnOnce() -> F + Send + 'static) -> Pending<T>
    where
        F: Future<Output = T> + Send + 'static,
    {
        let mut series = self.lock();
        if let Some(Begun { at, result }) = &series.last
            && let Some(result) = result
            && !self.reused_for.is_zero()
        {
            let is_complete = result.borrow().is_some();
            // Neither complete nor with a sender: its task has failed.
            let is_made = !is_complete && result.has_changed().is_ok();
            if is_made || (is_complete && at.elapsed() < self.reused_for) {
                return result.clone();
            }
        }
        if let Some(next) = &series.next {
            return next.clone();
        }
        let (sender, next) = watch::channel(None);
        series.next = Some(next.clone());
        let last = series.last.clone();
        tokio::spawn(self.clone().make_next(last, sender, make));
        next
    }

    /// Makes the next result once the last one is complete.
    async fn make_next<F>(
        self,
        last: Option<Begun<T>>,
        sender: watch::Sender<Option<T>>,
        make: impl FnOnce() -> F + Send + 'static,
    ) where
        F: Future<Output = T> + Send + 'static,
    {
        if let Some(Begun { at, result }) = last {
            if let Some(mut result) = result {
                // An error is a task that has failed, which is over as well.
                let _ = result.wait_for(Option::is_some).await;
            }
            sleep_until(at + SPACING).await;
        }
        let at = Instant::now();
        {
            let mut series = self.lock();
            // From here on a request is later than the beginning.
            let result = series.next.take();
            series.last = Some(Begun { at, result });
        }
        let result = make().await;
        sender.send_replace(Some(result));
        // A result may be large, and is dropped with the last client that waits for it.
        if self.reused_for.is_zero()
            && let Some(last) = &mut self.lock().last
            && last.at == at
        {
            last.result = None;
        }
    }

    /// Returns true if an exact series has nothing that the next result has to keep apart from: a
    /// series made anew would do the same.
    fn is_over(&self) -> bool {
        let series = self.lock();
        let last = series.last.as_ref();
        let is_past = last.is_none_or(|it| it.result.is_none() && it.at.elapsed() >= SPACING);
        // One that was handed out and has not begun yet is held outside of the map, too.
        series.next.is_none() && is_past && Arc::strong_count(&self.series) == 1
    }

    fn lock(&self) -> MutexGuard<'_, Series<T>> {
        // Each field is replaced as a whole, so a panic elsewhere does no harm.
        self.series.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> fmt::Debug for SharedByName<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedByName").finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for Shared<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

impl<T: Clone + Send + Sync + 'static> SharedByName<T> {
    /// Returns a result for a name, which is begun after the call as one of [`Shared::exact`].
    ///
    /// # Errors
    /// 500 if the task that makes the result fails.
    pub(super) async fn get<F>(
        &self,
        name: &str,
        make: impl FnOnce() -> F + Send + 'static,
    ) -> ApiResult<T>
    where
        F: Future<Output = T> + Send + 'static,
    {
        let series = self.series(name);
        series.get(make).await
    }

    /// Returns the series of a name. Series that nobody needs any more leave the map.
    fn series(&self, name: &str) -> Shared<T> {
        // A panic elsewhere does no harm: entries come and go as a whole.
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(series) = all.get(name) {
            return series.clone();
        }
        all.retain(|_, series| !series.is_over());
        let series = Shared::exact();
        all.insert(name.to_owned(), series.clone());
        series
    }
}

impl<T> Default for SharedByName<T> {
    fn default() -> SharedByName<T> {
        SharedByName {
            all: Arc::default(),
        }
    }
}

impl<T> Clone for SharedByName<T> {
    fn clone(&self) -> SharedByName<T> {
        SharedByName {
            all: self.all.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::sync::atomic::{AtomicU32, Ordering};

    use tokio::task::JoinSet;
    use tokio::time::{sleep, timeout};

    use super::*;

    /// Time that a result takes.
    const TAKES: Duration = Duration::from_secs(1);

    type Making = Pin<Box<dyn Future<Output = u32> + Send>>;

    /// Returns a function that begins the next result: its number, from 1.
    fn numbers() -> impl Fn() -> Making + Clone + Send + 'static {
        let begun = Arc::new(AtomicU32::new(0));
        move || {
            let number = begun.fetch_add(1, Ordering::Relaxed) + 1;
            Box::pin(async move {
                sleep(TAKES).await;
                number
            })
        }
    }

    /// Asks for as many results at once as given, and returns them.
    async fn ask_together(
        shared: &Shared<u32>,
        make: &(impl Fn() -> Making + Clone + Send + 'static),
        count: usize,
    ) -> Vec<u32> {
        let mut asking = JoinSet::new();
        for _ in 0..count {
            let (shared, make) = (shared.clone(), make.clone());
            asking.spawn(async move { shared.get(make).await.expect("it is made") });
        }
        asking.join_all().await
    }

    #[tokio::test(start_paused = true)]
    async fn an_exact_result_is_begun_after_each_request_for_it() {
        let (shared, make) = (Shared::exact(), numbers());
        let first = tokio::spawn({
            let (shared, make) = (shared.clone(), make.clone());
            async move { shared.get(make).await.expect("it is made") }
        });
        sleep(TAKES / 2).await;
        // The first is being made: all of these have the next one.
        assert_eq!(ask_together(&shared, &make, 100).await, [2; 100]);
        assert_eq!(first.await.expect("no panic"), 1);
        assert!(shared.lock().last.as_ref().expect("begun").result.is_none());
        assert_eq!(ask_together(&shared, &make, 2).await, [3; 2]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_result_that_is_reused_is_made_again_once_it_is_old() {
        let reused_for = TAKES * 3;
        let (shared, make) = (Shared::reused_for(reused_for), numbers());
        let start = Instant::now();
        assert_eq!(ask_together(&shared, &make, 100).await, [1; 100]);
        sleep_until(start + reused_for - SPACING).await;
        assert_eq!(ask_together(&shared, &make, 1).await, [1]);
        sleep(SPACING).await;
        assert_eq!(ask_together(&shared, &make, 100).await, [2; 100]);
    }

    #[tokio::test(start_paused = true)]
    async fn clients_that_leave_neither_delay_others_nor_begin_anew() {
        for shared in [Shared::exact(), Shared::reused_for(TAKES)] {
            let make = numbers();
            let start = Instant::now();
            for _ in 0..50 {
                let left = timeout(SPACING / 5, shared.get(make.clone())).await;
                left.expect_err("it takes longer");
            }
            let number = shared.get(make.clone()).await.expect("it is made");
            assert!(number <= 2, "{number}");
            // The one that the first has begun, and the next one.
            assert!(start.elapsed() <= TAKES * 2 + SPACING);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn results_that_follow_each_other_have_a_distance() {
        let shared = Shared::exact();
        let start = Instant::now();
        for _ in 0..5 {
            shared.get(async || ()).await.expect("it is made");
        }
        assert!(start.elapsed() >= SPACING * 4);
    }

    #[tokio::test(start_paused = true)]
    async fn after_a_result_that_failed_the_next_one_is_made() {
        for shared in [Shared::exact(), Shared::reused_for(TAKES)] {
            let failed = shared.get(async || -> u32 { panic!("on purpose") }).await;
            let error = failed.expect_err("its task has panicked");
            assert_eq!(error.status, StatusCode::INTERNAL_SERVER_ERROR);
            assert_eq!(shared.get(numbers()).await.expect("it is made"), 1);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn results_are_shared_by_name_and_names_without_requests_are_forgotten() {
        let (shared, make) = (SharedByName::default(), numbers());
        let mut asking = JoinSet::new();
        for i in 0..100 {
            let (shared, make) = (shared.clone(), make.clone());
            let name = ["db", "web"][i % 2];
            asking.spawn(async move { (name, shared.get(name, make).await.expect("it is made")) });
        }
        sleep(TAKES / 2).await;
        assert_eq!(shared.all.lock().expect("no panic").len(), 2);
        let mut results = asking.join_all().await;
        results.sort_unstable();
        results.dedup();
        assert_eq!(results.len(), 2, "one for each name: {results:?}");
        sleep(SPACING).await;
        shared.get("new", make).await.expect("it is made");
        let all = shared.all.lock().expect("no panic");
        assert_eq!(all.keys().collect::<Vec<_>>(), ["new"]);
    }
}
