//! Reports between hosts that share a device, for regulators that share it among all of
//! their VMs.

use tidegate_base::objective::Group;

/// Report that a host sends once a period to the others that share its device.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct PeerShare {
    /// Sequence number, rising; reveals messages that a later one has overtaken.
    pub number: u64,
    /// Sum of the weights of the host's VMs that compete; 0: none competes.
    pub weight: f64,
    /// Sum of those weights, each times the fraction of throughput that its VM loses by blending.
    pub lost: f64,
    /// Requests admitted and not completed, at the end of the period. With `ended`, they give the
    /// host's latency by Little's law.
    pub inside: f64,
    /// Mean of `inside` over the period.
    pub mean_inside: f64,
    /// Requests completed per second.
    pub ended: f64,
    /// Requests admitted per second.
    pub admitted: f64,
    /// True if some VM ran out of credits.
    pub ran_out: bool,
    /// Factor that the host applies to its saturation rates.
    pub scale: f64,
    /// Groups of the host's VMs that compete.
    pub groups: PeerGroups,
}

impl PeerShare {
    /// Report of a host without VMs that compete.
    pub const IDLE: PeerShare = PeerShare {
        number: 0,
        weight: 0.0,
        lost: 0.0,
        inside: 0.0,
        mean_inside: 0.0,
        ended: 0.0,
        admitted: 0.0,
        ran_out: false,
        scale: 1.0,
        groups: PeerGroups([None; PeerGroups::MAX_GROUPS]),
    };
}

/// Rule for the sum of the weights of a host's VMs beside those of the hosts that share its device.
///
/// A driver that sets another rule than [`HostWeight::Sum`] also says which hosts are silent
/// ([`Event::PeerSilent`](super::Event::PeerSilent)); under `Sum`, hosts that are not heard are
/// dropped after ten periods.
#[derive(Clone, Copy, PartialEq, Default, Debug)]
pub enum HostWeight {
    /// Sum of the weights of the VMs that compete.
    #[default]
    Sum,
    /// Sum of the weights, bounded. Beyond the bound, weights count in proportion.
    AtMost(f64),
    /// Fixed sum while any VM competes, whatever the VMs' weights. For a host that hears no other.
    Fixed(f64),
}

impl HostWeight {
    /// Returns the factor for the weights of VMs whose sum is `sum`; 1 for a sum of 0.
    pub fn factor(self, sum: f64) -> f64 {
        if sum <= 0.0 {
            return 1.0;
        }
        match self {
            HostWeight::Sum => 1.0,
            HostWeight::AtMost(most) => (most / sum).min(1.0),
            HostWeight::Fixed(weight) => weight / sum,
        }
    }
}

/// Members of a group on one host, as reported to the others that share its device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PeerGroup {
    /// Group, with the weight that this host's VMs name for it.
    pub group: Group,
    /// Sum of the own weights of the group's VMs on this host that compete.
    pub competing: u64,
}

/// List of at most [`PeerGroups::MAX_GROUPS`] groups.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PeerGroups([Option<PeerGroup>; PeerGroups::MAX_GROUPS]);

impl PeerGroups {
    /// Groups that fit a message between hosts.
    pub const MAX_GROUPS: usize = 16;

    /// Adds a group; drops it when [`PeerGroups::MAX_GROUPS`] are there already.
    pub fn push(&mut self, group: PeerGroup) {
        if let Some(room) = self.0.iter_mut().find(|room| room.is_none()) {
            *room = Some(group);
        }
    }

    /// Returns the groups in the order in which they were added.
    pub fn iter(&self) -> impl Iterator<Item = &PeerGroup> {
        self.0.iter().flatten()
    }
}
