//! Lottery scheduling (Waldspurger, Weihl: Lottery scheduling: flexible proportional-share
//! resource management, OSDI 1994), of I/Os.
//!
//! Each VM that waits holds tickets. For each I/O one ticket is drawn, each as likely as any other,
//! and its holder's head goes. Draws are independent, so a VM that waits has its chance in every
//! draw.
//!
//! ```text
//!   weight          100          200     300
//!   last I/O        64 KiB       16      16
//!   tickets       |##|##################|############################|
//!                         ^ drawn: its holder's head goes
//! ```
//!
//! A VM's share of the draws is its share of the device only where all I/Os cost the same. So a
//! winner holds *compensation tickets* (section 4.5) until it wins again: having used a fraction
//! f of a quantum, it holds 1/f times its tickets. A quantum is here what the largest I/O costs;
//! f is then at most 1, as in the paper. A VM that was served c waits for c / weight draws of
//! the others', in the mean, whatever the sizes: shares of cost go by weight.
//!
//! Decisions where the paper leaves room:
//! - An I/O costs its bytes, at least `cost_size`. What moves no data costs `cost_size`. Each
//!   part of a large request is drawn for by itself.
//! - A VM that has just come counts as if its last I/O had been a smallest one. In the paper it
//!   holds its plain tickets, as if it had used a whole quantum: beside VMs of small I/Os, whose
//!   tickets are compensated 64 times over, it would wait for its first win as long as they take
//!   for one largest I/O each.
//! - A VM that was idle holds the tickets it left with, so idle time saves up no more than one win.
//! - A flush takes no draw (the engine's express lane). It adds `cost_size` to what its VM was
//!   served last, up to 32 of them in all, and so takes tickets away until the next win.
//! - Tickets are a weight divided by a cost, times 2^32: only their proportions matter.
//! - A VM whose gates are shut takes no part.
//!
//! Bounds. With v a VM's tickets, V those of all that wait, p = v/V in each draw:
//! - Of n draws with constant p a VM wins n p in the mean, with a variance of n p (1 - p).
//! - Starvation: that a VM takes part in draws and wins none has the probability of the product
//!   of all 1 - p, less than e^-(sum of p). So it is passed over while that sum is at most 45:
//!   for longer with a probability below 2^-64.

use super::cost::CostParams;
use crate::fenwick::Fenwick;
use tidegate_base::device::DeviceSpec;
use tidegate_base::objective::Objective;
use tidegate_base::random::SplitMix64;
use tidegate_base::request::{DeviceIo, Lane, Op, ReqId, VmId};
use tidegate_base::time::Nanos;
use tidegate_capacity::profile::Profile;
use tidegate_core::part::{Capacity, Enforces, ParamInfo, ParamKind, PartDescriptor};
use tidegate_core::roles::{Dispatcher, Event, Footprint, Interests, Knob, Pick};
use tidegate_core::starvation::{Bound, Cost, Draws};
use tidegate_core::view::{View, moved};

/// Parameters of [`Lottery`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LotteryParams {
    /// The smallest cost of an I/O, in bytes.
    pub cost_size: u32,
    /// Seed of the draws: the same seed and the same load give the same draws.
    pub seed: u64,
}

/// Registry entry of the `lottery` dispatcher.
pub(crate) static DESCRIPTOR: PartDescriptor<dyn Dispatcher> = PartDescriptor {
    name: "lottery",
    summary: "shares by weight, by a lottery",
    params: &[
        CostParams::SIZE,
        ParamInfo {
            name: "seed",
            kind: ParamKind::Count,
            default: 1,
            min: 0,
            max: u32::MAX as u64,
            help: "seed of the random numbers",
        },
    ],
    enforces: Enforces {
        weight: true,
        ..Enforces::NONE
    },
    build: |params, capacity| {
        let params = LotteryParams {
            cost_size: params.get("cost_size") as u32,
            seed: params.get("seed"),
        };
        Box::new(Lottery::new(params, capacity))
    },
};

/// Maximum number of flushes of a VM, in units of `cost_size`, that reduce its tickets.
const FLUSHES_CHARGED_MAX: u32 = 32;

/// Binary digits of a ticket's fraction: one ticket is 2^-32 of weight by byte. A VM holds fewer
/// than 2^37 tickets, so all VMs together hold fewer than 2^64.
const TICKET_FRACTION_BITS: u32 = 32;

/// Weight and last service of a VM, from which its tickets follow.
#[derive(Clone, Copy, Debug)]
struct Holder {
    weight: u32,
    /// Cost in bytes of the last I/O that the VM won, and of its flushes since.
    served: u32,
}

impl Holder {
    /// Returns the VM's tickets: its weight by the cost of its last win, which is the compensation
    /// of section 4.5 of the paper.
    fn tickets(self) -> u64 {
        ((self.weight as u64) << TICKET_FRACTION_BITS) / self.served as u64
    }
}

/// Dispatcher that draws a VM by its tickets for each I/O.
pub struct Lottery {
    params: LotteryParams,
    random: SplitMix64,
    holders: Vec<Holder>,
    /// Tickets of each VM that waits; 0 for all others.
    tickets: Fenwick,
    /// Winner of the last draw until it is served. A unit may have to be split first, and drawing
    /// again after that would take the win away.
    winner: Option<usize>,
}

impl Lottery {
    /// Creates the dispatcher with room for every VM of the engine.
    pub fn new(params: LotteryParams, capacity: &Capacity) -> Lottery {
        let vms = capacity.vms as usize;
        let holder = Holder {
            weight: Objective::DEFAULT_WEIGHT,
            served: params.cost_size,
        };
        Lottery {
            params,
            random: SplitMix64::new(params.seed),
            holders: vec![holder; vms],
            tickets: Fenwick::with_capacity(vms),
            winner: None,
        }
    }

    /// Updates a VM's tickets after its weight, its last service, its gates or its head changed.
    fn refresh(&mut self, view: &View, vm: VmId) {
        let tickets = if view.has_head(vm) {
            self.holders[vm.index()].tickets()
        } else {
            0
        };
        self.tickets.set(vm.index(), tickets);
    }

    fn charge(&mut self, view: &View, io: &DeviceIo) {
        let cost = moved(view, io.op, io.len).max(self.params.cost_size);
        let served = &mut self.holders[io.vm.index()].served;
        if io.op == Op::Flush {
            let most = (*served).max(FLUSHES_CHARGED_MAX * self.params.cost_size);
            // Bounded, so that a VM's flushes cannot take its other I/Os' chances for long.
            *served = served.saturating_add(cost).min(most);
        } else {
            *served = cost;
            // The win is used up; a flush is none, so it leaves the winner as it is.
            self.winner = None;
        }
        self.refresh(view, io.vm);
    }

    fn set_weight(&mut self, view: &View, vm: VmId, weight: u32) {
        self.holders[vm.index()].weight = weight;
        self.refresh(view, vm);
    }

    /// Draws a ticket and returns its holder; `None` if no VM waits.
    fn draw(&mut self) -> Option<usize> {
        let total = self.tickets.total();
        (total > 0).then(|| self.tickets.find(self.random.below(total)))
    }
}

impl Dispatcher for Lottery {
    fn interests(&self) -> Interests {
        Interests::STARTED.union(Interests::VMS)
    }

    fn by_lane(&self) -> bool {
        true
    }

    fn insert(&mut self, view: &View, unit: ReqId) {
        let (vm, _) = view.queued(unit).vm_lane();
        // A VM that waits already holds the tickets of its head.
        if self.tickets.get(vm.index()) == 0 {
            self.refresh(view, vm);
        }
    }

    fn remove(&mut self, view: &View, unit: ReqId) {
        let (vm, _) = view.queued(unit).vm_lane();
        self.refresh(view, vm);
    }

    fn gate(&mut self, view: &View, vm: VmId, _lane: Lane, _open: bool) {
        self.refresh(view, vm);
    }

    fn on_event(&mut self, view: &View, event: &Event) {
        match *event {
            Event::Started(io) => self.charge(view, io),
            Event::VmAdded(vm) => {
                self.holders[vm.index()].served = self.params.cost_size;
                self.set_weight(view, vm, view.objective(vm).weight);
            }
            Event::VmChanged(vm) => self.set_weight(view, vm, view.objective(vm).weight),
            Event::VmRemoved(vm) => self.tickets.set(vm.index(), 0),
            _ => {}
        }
    }

    fn set(&mut self, view: &View, vm: VmId, knob: Knob) {
        if let Knob::Weight(weight) = knob {
            self.set_weight(view, vm, weight.clamp(1, Objective::MAX_WEIGHT));
        }
    }

    fn starvation(&self, device: &DeviceSpec, _: Option<&Profile>) -> Bound {
        let least = self.params.cost_size.into();
        Bound::Draws(Draws {
            least,
            largest: Cost::Bytes { least }.largest(device),
            flushes: FLUSHES_CHARGED_MAX.into(),
        })
    }

    fn pick(&mut self, view: &View) -> Pick {
        // A winner whose gates were shut or whose units were cancelled has lost its win.
        let stands = self.winner.filter(|&vm| self.tickets.get(vm) > 0);
        self.winner = stands.or_else(|| self.draw());
        match self.winner {
            Some(vm) => Pick::Start {
                head: view
                    .head(view.vm_at(vm))
                    .expect("a VM with tickets has a head"),
                max: u32::MAX,
                held: Nanos::ZERO,
            },
            None => Pick::Idle(Nanos::MAX),
        }
    }

    fn footprint(&self) -> Footprint {
        Footprint {
            vm: size_of::<Holder>() + Fenwick::BYTES_PER_SLOT,
            ..Footprint::default()
        }
    }
}
