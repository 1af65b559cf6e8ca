//! Metrics of the membership in a cluster.

use tidegate_api::cluster::MembershipState;

use super::{Metric, Read, plain};
use crate::membership::MembershipStatus;

pub(super) static CLUSTER_METRICS: &[Metric<MembershipStatus>] = &[
    plain(
        "joined",
        "1 while the daemon is registered in its cluster",
        Read::Gauge(|status| f64::from(u8::from(status.view.state == MembershipState::Joined))),
    ),
    plain(
        "losses",
        "Times that the lease of the registration ended, or was not confirmed in time",
        Read::Counter(|status| status.losses as f64),
    ),
    plain(
        "starts_refused",
        "Transfers that placers asked to start, and that were refused",
        Read::Counter(|status| status.refused_starts as f64),
    ),
    plain(
        "reserved_bytes_per_second",
        "Standing reservation of the VMs, as last published",
        Read::Gauge(|status| status.reserved_bytes_per_s as f64),
    ),
];
