//! Gate for changes of the control API, which is closed while another daemon takes over: a change
//! that it does not know of would be lost.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::timeout;

/// Gate for changes. Clones are one gate.
#[derive(Clone, Debug, Default)]
pub struct ChangeGate(Arc<watch::Sender<State>>);

#[derive(Clone, Copy, Debug, Default)]
struct State {
    is_closed: bool,
    /// Number of changes that are being made.
    under_way: usize,
}

/// Change that is being made.
#[derive(Debug)]
pub struct UnderWay(ChangeGate);

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.0.send_modify(|state| state.under_way -= 1);
    }
}

impl ChangeGate {
    /// Lets a change in; `None` while the gate is closed. A part of a change that is under way gets
    /// in as well.
    pub fn enter(&self) -> Option<UnderWay> {
        let enters = |state: &mut State| {
            state.under_way += usize::from(!state.is_closed);
            !state.is_closed
        };
        self.0
            .send_if_modified(enters)
            .then(|| UnderWay(self.clone()))
    }

    /// Returns true while the gate is closed.
    pub fn is_closed(&self) -> bool {
        self.0.borrow().is_closed
    }

    /// Closes the gate once the changes under way have ended. Returns false if they have not within
    /// the time; the gate is open then.
    pub(crate) async fn close(&self, within: Duration) -> bool {
        let closed = async {
            let mut changes = self.0.subscribe();
            let close = |state: &mut State| {
                state.is_closed |= state.under_way == 0;
                state.is_closed
            };
            while !self.0.send_if_modified(close) {
                // The gate has the sender.
                let _ = changes.wait_for(|state| state.under_way == 0).await;
            }
        };
        timeout(within, closed).await.is_ok()
    }

    /// Opens the gate.
    pub(super) fn open(&self) {
        self.0.send_modify(|state| state.is_closed = false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_gate_closes_behind_the_changes_that_are_under_way() {
        let gate = ChangeGate::default();
        let change = gate.enter().expect("it is open");
        let part = gate.enter().expect("of the same change");
        assert!(!gate.close(Duration::from_secs(1)).await);
        assert!(gate.enter().is_some(), "it stays open");
        drop(change);
        assert!(!gate.close(Duration::from_secs(1)).await, "a part goes on");
        let closes = gate.clone();
        let closing = tokio::spawn(async move { closes.close(Duration::from_secs(60)).await });
        tokio::task::yield_now().await;
        drop(part);
        assert!(closing.await.expect("no panic"));
        assert!(gate.is_closed() && gate.enter().is_none());
        gate.open();
        assert!(gate.enter().is_some());
    }
}
