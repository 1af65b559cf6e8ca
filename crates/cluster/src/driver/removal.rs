//! Removal of a host, and the transfers that ran there.

use tidegate_place::{Answer, Outcome, Request, Running};

use super::Cluster;
use crate::error::Error;
use crate::notice::Notice;
use crate::record::Transfer;

impl Cluster<'_> {
    /// Removes a host, and saves. Its transfers look for another host for what is left of them if
    /// `requeue` says so, and are lost otherwise. What was learnt of the host stays in the store.
    ///
    /// # Errors
    /// If there is no such host, or the store fails.
    pub fn remove_host(&mut self, name: &str, requeue: bool) -> Result<(), Error> {
        // What daemons have taught is not in what the state machine is made of again.
        self.save()?;
        let host = self.state.known_host(name)?;
        let lost = self.pcos.remove_host(self.session.now, host);
        let limit = |name: &str| self.state.running(name)?.transfer.limit;
        let lost: Vec<_> = lost
            .iter()
            .map(|running| (self.name_of(running.id).to_owned(), *running))
            .map(|(name, running)| (limit(&name), name, running))
            .collect();
        self.state.hosts.remove(host.0);
        let all = &mut self.state.running;
        all.retain(|running| running.placement.host != name);
        self.rebuild()?;
        for (limit, transfer, running) in lost {
            match requeue {
                true => self.requeue(transfer, &running, limit),
                false => (self.session.notify)(Notice::Lost { transfer }),
            }
        }
        self.retry_and_save()
    }

    /// Asks for a host for what is left of a transfer, in the time that is left.
    fn requeue(&mut self, transfer: String, running: &Running, limit: Option<u64>) {
        let Some(job) = running.tenant.job else {
            return;
        };
        let now = self.session.now;
        let Ok(request) = Request::new(job.left(), job.due().since(now)) else {
            return (self.session.notify)(match job.left() {
                0 => Notice::Done { transfer },
                _ => Notice::Overdue { transfer },
            });
        };
        // One whose limit is too low for what is left is late anyway: it is asked for without.
        let limited = limit.and_then(|limit| request.limited(limit).ok());
        let request = limited.unwrap_or(request);
        let left = request.bytes();
        let Answer { id, outcome } = self.pcos.request(now, request);
        self.names.add(id, &transfer);
        let again = Transfer::new(&transfer, &request, now);
        let notice = match outcome {
            Outcome::Placed(placement) => {
                self.begin(again, &placement);
                Notice::Moved {
                    transfer,
                    host: self.state.hosts[placement.host.0].name.clone(),
                    left,
                    class: placement.class,
                }
            }
            Outcome::Waiting => {
                self.state.waiting.push(again);
                Notice::Requeued { transfer, left }
            }
            Outcome::Refused(_) => Notice::Homeless { transfer, left },
        };
        (self.session.notify)(notice);
    }
}
