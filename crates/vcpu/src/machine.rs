//! What a scheduler may read of the machine: pCPUs, virtual machines and their vCPUs.

use core::fmt;
use tidegate_core::time::Nanos;

/// A processor of the machine, by its number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PcpuId(pub u8);

/// A virtual processor, by its number among all of the machine.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct VcpuId(pub u32);

/// A virtual machine, by its number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct VmId(pub u32);

impl PcpuId {
    /// Its place in a list of all pCPUs.
    pub const fn at(self) -> usize {
        self.0 as usize
    }
}

impl VcpuId {
    /// Its place in a list of all vCPUs.
    pub const fn at(self) -> usize {
        self.0 as usize
    }
}

impl VmId {
    /// Its place in a list of all virtual machines.
    pub const fn at(self) -> usize {
        self.0 as usize
    }
}

/// A set of pCPUs.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct CpuSet(u64);

impl CpuSet {
    /// The most pCPUs that a machine can have.
    pub const MOST: usize = 64;
    /// None of them.
    pub const EMPTY: CpuSet = CpuSet(0);

    /// The pCPUs from `first` to `last`, both included.
    pub fn range(first: u8, last: u8) -> CpuSet {
        (first..=last).map(PcpuId).collect()
    }

    /// The first `n` pCPUs.
    pub fn first_n(n: usize) -> CpuSet {
        (0..n.min(CpuSet::MOST)).map(|p| PcpuId(p as u8)).collect()
    }

    /// Whether `p` is among them.
    pub const fn has(self, p: PcpuId) -> bool {
        (p.0 as usize) < CpuSet::MOST && self.0 >> p.0 & 1 == 1
    }

    /// Takes `p` in. Panics where a machine has no such pCPU.
    pub fn insert(&mut self, p: PcpuId) {
        assert!(p.at() < CpuSet::MOST, "no machine has a pCPU {}", p.0);
        self.0 |= 1 << p.0;
    }

    /// Takes `p` out.
    pub fn remove(&mut self, p: PcpuId) {
        if self.has(p) {
            self.0 &= !(1 << p.0);
        }
    }

    /// Those that are in both.
    pub const fn and(self, other: CpuSet) -> CpuSet {
        CpuSet(self.0 & other.0)
    }

    /// Those that are not in `other`.
    pub const fn without(self, other: CpuSet) -> CpuSet {
        CpuSet(self.0 & !other.0)
    }

    /// Whether there are none.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// How many there are.
    pub const fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// The one with the lowest number.
    pub fn first(self) -> Option<PcpuId> {
        (!self.is_empty()).then(|| PcpuId(self.0.trailing_zeros() as u8))
    }

    /// The next one after `p`, round the end; `p` itself last.
    pub fn after(self, p: PcpuId) -> Option<PcpuId> {
        let beyond = CpuSet(match p.0 {
            63.. => 0,
            n => self.0 & (u64::MAX << (n + 1)),
        });
        beyond.first().or(self.first())
    }

    /// All of them, in order.
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

/// What a vCPU is doing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// Its guest has nothing to do: it waits for an event.
    Blocked,
    /// It could run and does not.
    Waiting,
    /// It runs.
    Running,
}

/// A pCPU.
#[derive(Clone, Copy, Debug)]
pub struct Pcpu {
    /// Which package it lies in.
    pub socket: u8,
    /// Who runs on it; `None`: it idles.
    pub running: Option<VcpuId>,
    /// Since when.
    pub since: Nanos,
}

/// A vCPU.
#[derive(Clone, Copy, Debug)]
pub struct Vcpu {
    /// Whose it is.
    pub vm: VmId,
    /// What it does.
    pub state: State,
    /// Where it may run: never empty.
    pub affinity: CpuSet,
}

impl Vcpu {
    /// Whether it runs or could.
    pub fn is_runnable(&self) -> bool {
        self.state != State::Blocked
    }
}

/// A virtual machine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Vm {
    /// Its name.
    pub name: String,
    /// Its share of processor time, each of its vCPUs having all of it; 256 is the usual one.
    pub weight: u32,
    /// The most processor time it gets, in hundredths of a pCPU; 0: as much as there is.
    pub cap: u32,
    /// Its vCPUs.
    pub vcpus: Vec<VcpuId>,
}

/// The usual weight of a virtual machine.
pub const DEFAULT_WEIGHT: u32 = 256;

/// All of them. The world changes it, schedulers read it.
#[derive(Clone, Debug, Default)]
pub struct Machine {
    /// By number.
    pub pcpus: Vec<Pcpu>,
    /// By number.
    pub vcpus: Vec<Vcpu>,
    /// By number.
    pub vms: Vec<Vm>,
}

impl Machine {
    /// A machine of `pcpus` idle pCPUs, so many a socket. Panics beyond [`CpuSet::MOST`].
    pub fn new(pcpus: usize, per_socket: usize) -> Machine {
        assert!(pcpus <= CpuSet::MOST, "{pcpus} pCPUs are too many");
        let pcpu = |p: usize| Pcpu {
            socket: (p / per_socket.max(1)) as u8,
            running: None,
            since: Nanos::ZERO,
        };
        Machine {
            pcpus: (0..pcpus).map(pcpu).collect(),
            ..Machine::default()
        }
    }

    /// All its pCPUs.
    pub fn all(&self) -> CpuSet {
        CpuSet::first_n(self.pcpus.len())
    }

    /// Adds a virtual machine with `vcpus` vCPUs, blocked, that may run on `affinity`.
    pub fn add_vm(
        &mut self,
        name: &str,
        vcpus: usize,
        affinity: CpuSet,
        weight: u32,
        cap: u32,
    ) -> VmId {
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

    /// The pCPU at this number.
    pub fn pcpu(&self, p: PcpuId) -> &Pcpu {
        &self.pcpus[p.at()]
    }

    /// The vCPU at this number.
    pub fn vcpu(&self, v: VcpuId) -> &Vcpu {
        &self.vcpus[v.at()]
    }

    /// The virtual machine that this vCPU belongs to.
    pub fn vm_of(&self, v: VcpuId) -> &Vm {
        &self.vms[self.vcpu(v).vm.at()]
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
