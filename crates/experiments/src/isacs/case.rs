//! Experiments of the paper: who runs beside whom, and where.

/// Source of dd's bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Source {
    Zero,
    Urandom,
}

/// Experiment of the paper, with the number of VMs that have I/O.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Case {
    /// Table 3: this many of twelve VMs receive a stream and answer packets, the others compute.
    PingHybrid(usize),
    /// Table 4: six mixed VMs answer packets and compute.
    PingMixed,
    /// Table 5: this many of twelve VMs receive a stream.
    IperfHybrid(usize),
    /// Table 6: this many VMs receive a stream and compute.
    IperfMixed(usize),
    /// Table 7: this many of twelve VMs write a file.
    DdHybrid(Source, usize),
    /// Table 8: this many VMs write a file and compute.
    DdMixed(Source, usize),
    /// Section 5.4.1: fixed work inside each of this many VMs, which receive a stream.
    Inside(usize),
    /// Section 5.4.2: fixed work in one of this many VMs; the others receive a stream.
    NeighbourHybrid(usize),
    /// Section 5.4.2: fixed work in one of this many VMs; the others receive a stream and compute.
    NeighbourMixed(usize),
}

/// Number of vCPUs of a guest and of the client.
pub(super) const VCPUS: usize = 4;
/// First and last pCPU of the guests in cases with a client.
pub(super) const GUEST_PCPUS_WITH_CLIENT: (u8, u8) = (2, 6);
/// First and last pCPU of the guests in cases without a client.
pub(super) const GUEST_PCPUS_WITHOUT_CLIENT: (u8, u8) = (2, 7);

impl Case {
    /// Returns whether the case is about round trips.
    pub(super) fn is_of_packets(self) -> bool {
        matches!(self, Case::PingHybrid(_) | Case::PingMixed)
    }

    /// Returns whether the case is about written files, and so has no client.
    pub(super) fn is_of_files(self) -> bool {
        matches!(self, Case::DdHybrid(..) | Case::DdMixed(..))
    }

    /// Returns whether a case has a pCPU for each vCPU that could run, so that none ever waits: its
    /// guests have four vCPUs each, all of which compute.
    pub(super) fn has_spare_pcpus(self) -> bool {
        let (vms, (first, last)) = match self {
            Case::IperfMixed(vms) => (vms, GUEST_PCPUS_WITH_CLIENT),
            Case::DdMixed(_, vms) => (vms, GUEST_PCPUS_WITHOUT_CLIENT),
            // Twelve VMs, or such that are counted otherwise.
            _ => return false,
        };
        VCPUS * vms <= usize::from(last - first + 1)
    }
}
