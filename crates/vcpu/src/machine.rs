//! State of the machine that a scheduler may read: pCPUs, VMs and their vCPUs.

use core::fmt;
use tidegate_core::time::Nanos;

/// Physical CPU, by its number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PcpuId(pub u8);

/// Virtual CPU, by its number among all vCPUs of the machine.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct VcpuId(pub u32);

/// Virtual machine, by its number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct VmId(pub u32);

impl PcpuId {
    /// Index into a list of all pCPUs.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl VcpuId {
    /// Index into a list of all vCPUs.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl VmId {
    /// Index into a list of all VMs.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// Set of pCPUs, as a bit mask.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct CpuSet(u64);

impl CpuSet {
    /// Largest number of pCPUs of a machine.
    pub const MAX_PCPUS: usize = 64;
    /// Empty set.
    pub const EMPTY: CpuSet = CpuSet(0);

    /// pCPUs from `first` to `last`, both included.
    pub fn range(first: u8, last: u8) -> CpuSet {
        (first..=last).map(PcpuId).collect()
    }

    /// First `n` pCPUs; at most [`CpuSet::MAX_PCPUS`].
    pub fn first_n(n: usize) -> CpuSet {
        (0..n.min(CpuSet::MAX_PCPUS))
            .map(|p| PcpuId(p as u8))
            .collect()
    }

    /// Returns whether `p` is in the set.
    pub const fn has(self, p: PcpuId) -> bool {
        // A shift by 64 or more would overflow.
        (p.0 as usize) < CpuSet::MAX_PCPUS && self.0 >> p.0 & 1 == 1
    }

    /// Adds `p`.
    ///
    /// # Panics
    /// The number of `p` is [`CpuSet::MAX_PCPUS`] or more.
    pub fn insert(&mut self, p: PcpuId) {
        assert!(
            p.index() < CpuSet::MAX_PCPUS,
            "pCPU {} is beyond the maximum of {}",
            p.0,
            CpuSet::MAX_PCPUS
        );
        self.0 |= 1 << p.0;
    }

    /// Removes `p`.
    pub fn remove(&mut self, p: PcpuId) {
        if self.has(p) {
            self.0 &= !(1 << p.0);
        }
    }

    /// Intersection with `other`.
    pub const fn and(self, other: CpuSet) -> CpuSet {
        CpuSet(self.0 & other.0)
    }

    /// Difference: the pCPUs that are not in `other`.
    pub const fn without(self, other: CpuSet) -> CpuSet {
        CpuSet(self.0 & !other.0)
    }

    /// Returns whether the set is empty.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Number of pCPUs in the set.
    pub const fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// pCPU with the lowest number.
    pub fn first(self) -> Option<PcpuId> {
        (!self.is_empty()).then(|| PcpuId(self.0.trailing_zeros() as u8))
    }

    /// Next pCPU after `p` in cyclic order; `p` itself comes last.
    pub fn after(self, p: PcpuId) -> Option<PcpuId> {
        let beyond = CpuSet(match p.0 {
            // A shift by 64 would overflow, and nothing comes after pCPU 63.
            63.. => 0,
            n => self.0 & (u64::MAX << (n + 1)),
        });
        beyond.first().or(self.first())
    }

    /// Iterates over the pCPUs in ascending order.
    pub fn iter(self) -> impl Iterator<Item = PcpuId> {
        let mut rest = self;
        core::iter::from_fn(move || {
            let first = rest.first()?;
            rest.remove(first);
            Some(first)
        })
    }
}

impl FromIterator<PcpuId> for CpuSet {
    fn from_iter<I: IntoIterator<Item = PcpuId>>(all: I) -> CpuSet {
        let mut set = CpuSet::EMPTY;
        all.into_iter().for_each(|p| set.insert(p));
        set
    }
}

impl fmt::Debug for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter().map(|p| p.0)).finish()
    }
}

/// Run state of a vCPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// The guest has nothing to do and waits for an event.
    Blocked,
    /// Runnable, but on no pCPU.
    Waiting,
    /// Running on a pCPU.
    Running,
}

/// Physical CPU.
#[derive(Clone, Copy, Debug)]
pub struct Pcpu {
    /// Socket that the pCPU belongs to.
    pub socket: u8,
    /// vCPU that runs on the pCPU; `None`: idle.
    pub running: Option<VcpuId>,
    /// Time at which the current vCPU started to run or the pCPU became idle.
    pub since: Nanos,
}

/// Virtual CPU.
#[derive(Clone, Copy, Debug)]
pub struct Vcpu {
    /// VM that the vCPU belongs to.
    pub vm: VmId,
    /// Run state.
    pub state: State,
    /// pCPUs on which the vCPU may run; never empty.
    pub affinity: CpuSet,
}

impl Vcpu {
    /// Returns whether the vCPU runs or waits for a pCPU.
    pub fn is_runnable(&self) -> bool {
        self.state != State::Blocked
    }
}

/// Virtual machine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Vm {
    /// Name, unique within a scenario.
    pub name: String,
    /// Share of CPU time relative to other VMs. Each vCPU has the whole weight; 256 is the default.
    pub weight: u32,
    /// Maximum CPU time in hundredths of a pCPU; 0: no cap.
    pub cap: u32,
    /// vCPUs of the VM.
    pub vcpus: Vec<VcpuId>,
}

/// Weight of a VM for which none is configured, as in Xen.
pub const DEFAULT_WEIGHT: u32 = 256;

/// State of all pCPUs, vCPUs and VMs. The world changes it, schedulers read it.
#[derive(Clone, Debug, Default)]
pub struct Machine {
    /// pCPUs by number.
    pub pcpus: Vec<Pcpu>,
    /// vCPUs by number.
    pub vcpus: Vec<Vcpu>,
    /// VMs by number.
    pub vms: Vec<Vm>,
}

impl Machine {
    /// Creates a machine of `pcpus` idle pCPUs, `per_socket` in each socket.
    ///
    /// # Panics
    /// `pcpus` exceeds [`CpuSet::MAX_PCPUS`].
    pub fn new(pcpus: usize, per_socket: usize) -> Machine {
        assert!(
            pcpus <= CpuSet::MAX_PCPUS,
            "{pcpus} pCPUs, at most {} are supported",
            CpuSet::MAX_PCPUS
        );
        let pcpu = |p: usize| Pcpu {
            // At most 64 pCPUs, so the cast loses nothing.
            socket: (p / per_socket.max(1)) as u8,
            running: None,
            since: Nanos::ZERO,
        };
        Machine {
            pcpus: (0..pcpus).map(pcpu).collect(),
            ..Machine::default()
        }
    }

    /// Set of all pCPUs.
    pub fn all_pcpus(&self) -> CpuSet {
        CpuSet::first_n(self.pcpus.len())
    }

    /// Adds a VM with `vcpus` blocked vCPUs that may run on `affinity`.
    ///
    /// # Panics
    /// `vcpus` is 0, or no pCPU of the machine is in `affinity`.
    pub fn add_vm(
        &mut self,
        name: &str,
        vcpus: usize,
        affinity: CpuSet,
        weight: u32,
        cap: u32,
    ) -> VmId {
        assert!(vcpus > 0, "the VM {name} has no vCPU");
        // Such a vCPU would wait for ever without an error.
        assert!(
            !affinity.and(self.all_pcpus()).is_empty(),
            "the VM {name} may run on no pCPU of the machine: {affinity:?}"
        );
        let vm = VmId(self.vms.len() as u32);
        let first = self.vcpus.len();
        self.vcpus.extend((0..vcpus).map(|_| Vcpu {
            vm,
            state: State::Blocked,
            affinity,
        }));
        self.vms.push(Vm {
            name: name.to_owned(),
            weight,
            cap,
            vcpus: (first..first + vcpus).map(|v| VcpuId(v as u32)).collect(),
        });
        vm
    }

    /// pCPU with the number `p`.
    pub fn pcpu(&self, p: PcpuId) -> &Pcpu {
        &self.pcpus[p.index()]
    }

    /// vCPU with the number `v`.
    pub fn vcpu(&self, v: VcpuId) -> &Vcpu {
        &self.vcpus[v.index()]
    }

    /// VM that `v` belongs to.
    pub fn vm_of(&self, v: VcpuId) -> &Vm {
        &self.vms[self.vcpu(v).vm.index()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_go_round() {
        let set = CpuSet::range(2, 4);
        assert_eq!(set.len(), 3);
        let after = |p| set.after(PcpuId(p)).map(|p| p.0);
        assert_eq!(
            [after(0), after(2), after(3), after(4), after(63)],
            [2, 3, 4, 2, 2].map(Some)
        );
        assert_eq!(CpuSet::EMPTY.after(PcpuId(0)), None);
        let top: CpuSet = [PcpuId(63)].into_iter().collect();
        assert_eq!(top.after(PcpuId(63)), Some(PcpuId(63)));
        assert_eq!(CpuSet::first_n(64).len(), 64);
        assert_eq!(set.without(CpuSet::range(0, 3)), CpuSet::range(4, 4));
    }
}
