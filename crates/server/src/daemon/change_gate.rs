//! Gate for changes of the control API, which is closed while another daemon takes over: a change
//! that it does not know of would be lost.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedRwLockReadGuard, RwLock};
use tokio::time::timeout;

/// Gate for changes. Clones are one gate.
#[derive(Clone, Debug, Default)]
pub struct ChangeGate(Arc<RwLock<bool>>);

/// Change that is being made.
#[derive(Debug)]
pub struct UnderWay(
    #[expect(dead_code, reason = "held until it is dropped")] OwnedRwLockReadGuard<bool>,
);

impl ChangeGate {
    /// Lets a change in; `None` while the gate is closed.
    pub async fn enter(&self) -> Option<UnderWay> {
        let is_closed = self.0.clone().read_owned().await;
        (!*is_closed).then(|| UnderWay(is_closed))
    }

    /// Closes the gate once the changes under way have ended. Returns false if they have not within
    /// the time; the gate is open then.
    pub(super) async fn close(&self, within: Duration) -> bool {
        match timeout(within, self.0.write()).await {
            Ok(mut is_closed) => {
                *is_closed = true;
                true
            }
            Err(_) => false,
        }
    }

    /// Opens the gate.
    pub(super) async fn open(&self) {
        *self.0.write().await = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_gate_closes_behind_the_changes_that_are_under_way() {
        let gate = ChangeGate::default();
        let change = gate.enter().await.expect("it is open");
        assert!(!gate.close(Duration::from_secs(1)).await);
        assert!(gate.enter().await.is_some(), "it stays open");
        drop(change);
        assert!(gate.close(Duration::from_secs(1)).await);
        assert!(gate.enter().await.is_none());
        gate.open().await;
        assert!(gate.enter().await.is_some());
    }
}
