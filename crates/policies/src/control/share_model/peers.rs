//! Hosts that share one device: the messages they exchange and the sums made of them (vFair,
//! section 4.3, after PARDA: Gulati et al., FAST 2009).
//!
//! Every period a host reports the sum of its VMs' weights, their loss through each other, and the
//! state of its part of the device. From all reports each host computes what one host with all VMs
//! would: the sum of weights, delta P, and the latency and throughput that the scale follows.
//!
//! Readings:
//! - The scale is an integral. Hosts that integrate by themselves, over figures that arrive late or
//!   not at all, drift apart for ever. So each reports its own scale, and moves `SCALE_STEP` of the
//!   way to the mean.
//! - With a given latency, the requests inside on all hosts are the sum of their means over a
//!   period, by Little's law from the times of requests that ended: the paper's system-wide
//!   latency. A single host samples them when its credits are spent. Several hosts are not in step:
//!   each would sample when it has the fewest inside, and the sum of such samples is less than
//!   there ever is.
//! - A host without a report for [`SILENT_PERIODS`] periods is gone, and its VMs' shares go to the
//!   others. A host whose VMs do not compete reports that once, and is silent. This is so under
//!   [`HostWeight::Sum`](tidegate_core::roles::HostWeight) alone: with another rule the driver says
//!   which hosts are silent, and a second clock would race with its own.
//! - A host whose VMs do not compete has no part in sums and scale, however often it is heard.
//! - A scale counts as at most four times this host's, and as at least a quarter of it.
//! - A host may be known to be silent ([`Event::PeerSilent`](tidegate_core::roles::Event)). Its
//!   entitled weight then competes until it is heard, and the scale is not raised above what it
//!   was when the host was heard last. Otherwise the feedback would pass the silent host's part on.
//! - A host whose VMs do not compete has the part that it is entitled to for its background, if all
//!   competing hosts are known to be silent: what they are assumed to use does not include it.
//! - A report that a later one overtook is dropped. One whose number is lower by more than
//!   [`SILENT_PERIODS`] is of a restarted host, and counts.
//! - Reports with figures that are not finite, or negative, are dropped: they would spoil every
//!   sum.
//! - A group of VMs has one weight on all hosts: a host reports the weights of its competing VMs in
//!   it, and has that part of the group's weight. Hosts know no more of each other's VMs.
//! - The device holds `depth` requests of all hosts together if credits are right.

use super::feedback::Period;
use super::strategy::Weights;
use tidegate_base::time::Nanos;
use tidegate_core::roles::{HostWeight, PeerGroup, PeerShare};

/// Periods of silence after which a host is taken to be gone.
pub const SILENT_PERIODS: u64 = 10;
/// Part of the difference to the hosts' mean scale that a host's scale moves each period.
const SCALE_STEP: f64 = 0.3;
/// Largest factor, up and down, by which another host's scale counts as different from this host's.
/// One host with a wrong scale would otherwise move those of all hosts as far as it likes.
const SCALE_FACTOR_MAX: f64 = 4.0;
/// Maximum number of other hosts; once it is reached, further hosts are ignored.
pub const PEERS_MAX: usize = 255;

#[derive(Clone, Copy, Debug)]
struct Peer {
    host: u32,
    heard: Nanos,
    share: PeerShare,
    /// Scale of this host at the peer's last message.
    scale_then: f64,
    /// The peer does not report: its weight is assumed, and it has no other figures.
    is_silent: bool,
}

/// Last message of each other host.
#[derive(Debug)]
pub struct Peers(Vec<Peer>);

impl Peers {
    /// Creates an empty list with room for [`PEERS_MAX`] hosts.
    pub fn new() -> Peers {
        Peers(Vec::with_capacity(PEERS_MAX))
    }

    /// Takes in a message from a host. Drops unsound figures and messages that a later one
    /// overtook. `scale`: that of this host.
    pub fn take_message(&mut self, now: Nanos, host: u32, share: &PeerShare, scale: f64) {
        // A message comes over the network; a figure that is no number would spread to all shares.
        if !is_sound(share) {
            return;
        }
        // A much smaller number is a host that restarted, not a message that was overtaken.
        let counts = |known: u64| share.number > known || known - share.number > SILENT_PERIODS;
        let new = Peer {
            host,
            heard: now,
            share: *share,
            scale_then: scale,
            is_silent: false,
        };
        match self.0.iter().position(|peer| peer.host == host) {
            Some(at) if self.0[at].is_silent || counts(self.0[at].share.number) => {
                self.0[at] = new;
            }
            None if self.0.len() < PEERS_MAX => self.0.push(new),
            Some(_) | None => {}
        }
    }

    /// Assumes a sum of weights of a host that does not report; 0 removes the host. `scale`: that
    /// of this host, for a host that was never heard.
    pub fn assume(&mut self, host: u32, weight: f64, scale: f64) {
        let known = self.0.iter().position(|peer| peer.host == host);
        if weight == 0.0 {
            if let Some(at) = known {
                self.0.remove(at);
            }
            return;
        }
        let share = PeerShare {
            weight,
            ..PeerShare::IDLE
        };
        let silent = |scale_then| Peer {
            host,
            heard: Nanos::ZERO,
            share,
            scale_then,
            is_silent: true,
        };
        match known {
            Some(at) => self.0[at] = silent(self.0[at].scale_then),
            None if self.0.len() < PEERS_MAX => self.0.push(silent(scale)),
            None => {}
        }
    }

    /// Returns the scale that this host is not to exceed, because hosts are silent whose part is
    /// not to be passed on; `None` while there is no such host.
    pub fn scale_max(&self) -> Option<f64> {
        let silent = self.0.iter().filter(|peer| peer.is_silent);
        silent.map(|peer| peer.scale_then).reduce(f64::min)
    }

    /// Returns `true` if VMs of any other host compete, or are assumed to.
    pub fn compete(&self) -> bool {
        self.0.iter().any(|peer| peer.share.weight > 0.0)
    }

    /// Returns the part of the device that this host is entitled to beside hosts that compete;
    /// `None` if none does, if a host that was heard competes, or if this host's weight has no
    /// bound.
    pub fn part_beside_silent(&self, own: HostWeight) -> Option<f64> {
        let (HostWeight::AtMost(own) | HostWeight::Fixed(own)) = own else {
            return None;
        };
        let mut competing = self.0.iter().filter(|peer| peer.share.weight > 0.0);
        let others = competing.try_fold(0.0, |sum, peer| {
            peer.is_silent.then_some(sum + peer.share.weight)
        })?;
        (own > 0.0 && others > 0.0).then(|| own / (own + others))
    }

    /// Returns the time at which [`Peers::drop_silent`] removes a host whose VMs compete;
    /// [`Nanos::MAX`] without such a host.
    pub fn first_dropped(&self, period: Nanos) -> Nanos {
        let heard = (self.0.iter()).filter(|peer| !peer.is_silent && peer.share.weight > 0.0);
        let first = heard.map(|peer| peer.heard).min();
        first.map_or(Nanos::MAX, |heard| {
            heard + longest_silence(period) + Nanos(1)
        })
    }

    /// Removes hosts that have been silent for more than [`SILENT_PERIODS`] periods of length
    /// `period`, except those whose weight is assumed.
    pub fn drop_silent(&mut self, now: Nanos, period: Nanos) {
        let most = longest_silence(period);
        self.0
            .retain(|peer| peer.is_silent || now.since(peer.heard) <= most);
    }

    /// Returns the sums of weights over the VMs of all known hosts.
    pub fn others(&self) -> Weights {
        let of_peer = |peer: &Peer| Weights {
            weight: peer.share.weight,
            lost: peer.share.lost,
        };
        let add = |sum: Weights, peer: &Peer| sum.with(&of_peer(peer));
        self.0.iter().fold(Weights::default(), add)
    }

    /// Returns the mean number of requests inside of all hosts together; `own` is this host's.
    pub fn mean_inside(&self, own: f64) -> f64 {
        own + self.measured().map(|share| share.mean_inside).sum::<f64>()
    }

    /// Returns the reports with measurements of the last period. A host whose VMs do not compete
    /// evaluates no periods, and repeats the figures and the scale of an earlier one.
    fn measured(&self) -> impl Iterator<Item = &PeerShare> {
        let heard = self.0.iter().filter(|peer| !peer.is_silent);
        heard.map(|peer| &peer.share).filter(|it| it.weight > 0.0)
    }

    /// Returns the groups in all hosts' messages.
    pub fn groups(&self) -> impl Iterator<Item = &PeerGroup> {
        self.0.iter().flat_map(|peer| peer.share.groups.iter())
    }

    /// Returns the measurements of a period as a single host with all VMs would have them, and the
    /// scale that this host is to adopt; `None` if no other host has VMs that compete.
    pub fn together(&self, own: &Period, scale: f64) -> (Period, Option<f64>) {
        let (mut period, mut scales, mut hosts) = (*own, scale, 1.0);
        let bounds = [scale / SCALE_FACTOR_MAX, scale * SCALE_FACTOR_MAX];
        for share in self.measured() {
            let (ended, admitted) = (share.ended * own.length, share.admitted * own.length);
            period.ended += ended;
            period.inside += share.inside;
            // The requests inside at the begin of the period follow from the other three counts.
            period.before += share.inside + ended - admitted;
            period.ran_out |= share.ran_out;
            scales += share.scale.clamp(bounds[0], bounds[1]);
            hosts += 1.0;
        }
        let mean = scales / hosts;
        let towards = (hosts > 1.0).then_some(scale + SCALE_STEP * (mean - scale));
        (period, towards)
    }
}

/// Returns the time of silence after which a host is taken to be gone.
fn longest_silence(period: Nanos) -> Nanos {
    Nanos(period.0.saturating_mul(SILENT_PERIODS))
}

/// Returns `true` if all figures of a message are finite and not negative.
fn is_sound(share: &PeerShare) -> bool {
    let PeerShare {
        number: _,
        weight,
        lost,
        inside,
        mean_inside,
        ended,
        admitted,
        ran_out: _,
        scale,
        // Any integers are sound here: they only divide a group's weight.
        groups: _,
    } = *share;
    let figures = [weight, lost, inside, mean_inside, ended, admitted, scale];
    figures.iter().all(|f| f.is_finite() && *f >= 0.0)
}

impl Default for Peers {
    fn default() -> Peers {
        Peers::new()
    }
}

#[cfg(test)]
mod tests {
    use super::super::feedback::Reserve;
    use super::*;
    use tidegate_core::roles::PeerGroups;

    fn share(number: u64, weight: f64) -> PeerShare {
        PeerShare {
            number,
            weight,
            lost: weight / 4.0,
            inside: 10.0,
            mean_inside: 14.0,
            ended: 1000.0,
            admitted: 900.0,
            ran_out: weight > 100.0,
            scale: 3.0,
            groups: PeerGroups::default(),
        }
    }

    #[test]
    fn shares_of_hosts_add_up_and_silent_hosts_are_removed() {
        let mut peers = Peers::new();
        let period = Nanos::from_millis(30);
        let own = Period {
            length: 0.03,
            ended: 60.0,
            inside: 12.0,
            before: 11.0,
            ran_out: false,
            inside_max: f64::INFINITY,
            reserve: Reserve::NONE,
        };
        assert_eq!(peers.together(&own, 1.0), (own, None));
        peers.take_message(Nanos::ZERO, 1, &share(5, 100.0), 1.0);
        peers.take_message(Nanos::from_millis(20), 2, &share(1, 200.0), 1.0);
        // Overtaken on its way.
        peers.take_message(Nanos::from_millis(25), 1, &share(4, 900.0), 1.0);
        assert_eq!(
            peers.others(),
            Weights {
                weight: 300.0,
                lost: 75.0
            }
        );
        let (all, scale) = peers.together(&own, 1.0);
        assert!((all.ended - 120.0).abs() < 1e-9 && (all.inside - 32.0).abs() < 1e-9);
        assert!((all.before - 37.0).abs() < 1e-9 && all.ran_out);
        assert_eq!(peers.mean_inside(3.0), 31.0);
        let mean = 7.0 / 3.0;
        assert!(scale.is_some_and(|s| (s - (1.0 + 0.3 * (mean - 1.0))).abs() < 1e-12));
        peers.drop_silent(Nanos::from_millis(300), period);
        assert!((peers.others().weight - 300.0).abs() < 1e-9);
        peers.drop_silent(Nanos::from_millis(301), period);
        assert!((peers.others().weight - 200.0).abs() < 1e-9);
        peers.drop_silent(Nanos::from_millis(321), period);
        assert_eq!(peers.others(), Weights::default());
    }

    #[test]
    fn a_silent_host_keeps_the_weight_that_is_assumed_and_bounds_the_scale() {
        let mut peers = Peers::new();
        let period = Nanos::from_millis(30);
        let own = Period {
            length: 0.03,
            ended: 60.0,
            inside: 12.0,
            before: 11.0,
            ran_out: false,
            inside_max: f64::INFINITY,
            reserve: Reserve::NONE,
        };
        peers.take_message(Nanos::ZERO, 1, &share(5, 100.0), 1.5);
        assert_eq!(peers.scale_max(), None);
        // Heard last at 1.5; the scale has risen since then, because the device was idle.
        peers.assume(1, 400.0, 2.5);
        peers.assume(2, 300.0, 2.5);
        peers.drop_silent(Nanos::from_secs(100), period);
        assert_eq!(peers.others().weight, 700.0, "assumed for any time");
        assert_eq!(peers.scale_max(), Some(1.5));
        assert_eq!(
            peers.together(&own, 2.0),
            (own, None),
            "no figures but weights"
        );
        assert_eq!(peers.mean_inside(3.0), 3.0);
        // A lower number counts: the host may have restarted.
        peers.take_message(Nanos::from_secs(100), 1, &share(4, 200.0), 1.0);
        assert_eq!(
            (peers.others().weight, peers.scale_max()),
            (500.0, Some(2.5))
        );
        peers.assume(2, 0.0, 1.0);
        assert_eq!((peers.others().weight, peers.scale_max()), (200.0, None));
        peers.assume(3, 0.0, 1.0);
        assert_eq!(peers.0.len(), 1, "a host that withdraws is not kept");
    }

    #[test]
    fn only_hosts_whose_vms_compete_move_the_scale_and_by_a_bounded_factor() {
        let mut peers = Peers::new();
        let own = Period {
            length: 0.03,
            ended: 60.0,
            inside: 12.0,
            before: 11.0,
            ran_out: false,
            inside_max: f64::INFINITY,
            reserve: Reserve::NONE,
        };
        for host in [1, 2] {
            // Its figures are those of the last period in which it had load.
            peers.take_message(Nanos::ZERO, host, &share(1, 0.0), 1.0);
        }
        assert!(!peers.compete());
        assert_eq!(peers.together(&own, 1.0), (own, None));
        assert_eq!(peers.mean_inside(3.0), 3.0);
        for (number, scale, counts_as) in [(2, 1e6, 4.0), (3, 0.05, 0.25), (4, 3.0, 3.0)] {
            let lying = PeerShare {
                scale,
                ..share(number, 100.0)
            };
            peers.take_message(Nanos::ZERO, 1, &lying, 1.0);
            assert!(peers.compete());
            let towards = peers.together(&own, 1.0).1.expect("a host competes");
            let wanted = 1.0 + SCALE_STEP * ((1.0 + counts_as) / 2.0 - 1.0);
            assert!((towards - wanted).abs() < 1e-12, "{scale}: {towards}");
        }
        peers.assume(1, 50.0, 1.0);
        assert!(peers.compete(), "assumed to");
    }

    #[test]
    fn a_host_that_restarts_is_heard_at_once() {
        let mut peers = Peers::new();
        peers.take_message(Nanos::ZERO, 1, &share(5000, 100.0), 1.0);
        // A number lower by at most `SILENT_PERIODS` is a late message, not one of a restarted
        // host.
        peers.take_message(Nanos::ZERO, 1, &share(4990, 300.0), 1.0);
        assert_eq!(peers.others().weight, 100.0);
        peers.take_message(Nanos::ZERO, 1, &share(5, 200.0), 1.0);
        assert_eq!(peers.others().weight, 200.0);
        peers.take_message(Nanos::ZERO, 1, &share(6, 250.0), 1.0);
        assert_eq!(peers.others().weight, 250.0);
    }

    #[test]
    fn unsound_shares_are_ignored() {
        let mut peers = Peers::new();
        let turns: [fn(&mut PeerShare) -> &mut f64; 7] = [
            |share| &mut share.weight,
            |share| &mut share.lost,
            |share| &mut share.inside,
            |share| &mut share.mean_inside,
            |share| &mut share.ended,
            |share| &mut share.admitted,
            |share| &mut share.scale,
        ];
        for turn in turns {
            for wrong in [f64::NAN, f64::INFINITY, -1.0] {
                let mut share = share(1, 100.0);
                *turn(&mut share) = wrong;
                peers.take_message(Nanos::ZERO, 1, &share, 1.0);
                assert!(peers.0.is_empty(), "{share:?}");
            }
        }
    }

    #[test]
    fn no_more_hosts_count_than_there_is_room_for() {
        let mut peers = Peers::new();
        for host in 0..1000 {
            peers.take_message(Nanos::ZERO, host, &share(1, 1.0), 1.0);
        }
        assert_eq!(peers.others().weight, PEERS_MAX as f64);
        assert_eq!(peers.0.capacity(), PEERS_MAX);
    }
}
