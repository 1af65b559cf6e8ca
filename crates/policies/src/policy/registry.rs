//! Table of policies: the only list of them, in the order in which they are shown.

use super::PolicyInfo;
use crate::control::share_model::strategy::Strategy;
use crate::dispatch::cost::CostBy;
use crate::{control, dispatch, regulate};

/// All policies, in the order in which they are shown.
pub(super) static REGISTRY: &[PolicyInfo] = &[
    PolicyInfo {
        name: "slo",
        summary: "every part of an objective together: the default",
        source: "Tidegate",
        about: "Limits and the caps of targets always hold. Reservations, targets, deadline \
                transfers and latency bounds are served by deadline. The remaining device time \
                is shared by priority, groups and weights; background processes get what the VMs \
                leave. On a device that is slower than promised, promises give way one by one: \
                background processes first, then transfers, targets and latency bounds; \
                reservations are reduced in proportion.",
        controller: Some(&control::transfers::DESCRIPTOR),
        regulator: &regulate::limit_target::DESCRIPTOR,
        dispatcher: &dispatch::slo::DESCRIPTOR,
        presets: &[],
    },
    PolicyInfo {
        name: "fifo",
        summary: "first in, first out: no isolation; the baseline of comparisons",
        source: "Linux without an I/O scheduler (none)",
        about: "Serves the requests of all VMs in order of arrival, without limits or \
                guarantees: a VM with a deep queue takes most of the device. It has the lowest \
                cost per request. Use it for a single VM, or as the baseline of a comparison.",
        controller: None,
        regulator: &regulate::open::DESCRIPTOR,
        dispatcher: &dispatch::fifo::DESCRIPTOR,
        presets: &[],
    },
    PolicyInfo {
        name: "limit",
        summary: "limits in IOPS and bytes/s for reads and writes, with bursts; then fifo",
        source: "QEMU block throttling, libvirt iotune",
        about: "Token buckets enforce each VM's limits: in total and for reads and writes \
                separately, in requests and bytes per second, with bursts of a length. \
                Neighbours are protected only as far as limits are set low. There are no \
                reservations: use mclock for those.",
        controller: None,
        regulator: &regulate::token_bucket::DESCRIPTOR,
        dispatcher: &dispatch::fifo::DESCRIPTOR,
        presets: &[],
    },
    PolicyInfo {
        name: "mclock",
        summary: "reservation, limit and weight of each VM",
        source: "Gulati, Merchant, Varman: mClock, OSDI 2010",
        about: "Serves overdue reservations first, then shares the remaining throughput by \
                weight among VMs below their limit. Together, reservations must fit the device. \
                Latency bounds are not enforced, but a VM that stays below its reservation sees \
                almost no queueing. Limits for reads or writes alone, and bursts, need the token \
                bucket: policy = { regulator = \"token-bucket\", dispatcher = \"mclock\" }.",
        controller: None,
        regulator: &regulate::open::DESCRIPTOR,
        dispatcher: &dispatch::mclock::DESCRIPTOR,
        presets: &[],
    },
    PolicyInfo {
        name: "mclock-ps",
        summary: "weights of mClock alone; a request costs one unit per 16 KiB",
        source: "Gulati et al.: mClock, OSDI 2010; as PS(mClock) in Lu et al., \"vFair\", SoCC \
                 2015",
        about: "mClock without reservations and limits: serves the waiting VM that has received \
                least for its weight. A request counts as one for each 16 KiB or part of it, \
                whatever it costs the device. Meant for comparisons. For shares of device time \
                use sfq with cost = \"device-time\"; for reservations and limits use mclock.",
        controller: None,
        regulator: &regulate::open::DESCRIPTOR,
        dispatcher: &dispatch::sfq::DESCRIPTOR,
        presets: &[("cost", CostBy::SizeClasses.word())],
    },
    PolicyInfo {
        name: "sfq",
        summary: "shares by weight, accurate to a request (start-time fair queueing)",
        source: "Goyal et al.: SFQ, SIGCOMM 1996; Jin, Chase, Kaur: SFQ(D), SIGMETRICS 2004",
        about: "Serves the waiting VM that has received least for its weight. The others share \
                at once what a VM leaves unused; idle VMs accumulate no credit. A small depth \
                keeps shares accurate, a large one keeps the device busier. It enforces no \
                reservations, limits or latency bounds: use mclock, or for limits the regulator \
                token-bucket.",
        controller: None,
        regulator: &regulate::open::DESCRIPTOR,
        dispatcher: &dispatch::sfq::DESCRIPTOR,
        presets: &[],
    },
    PolicyInfo {
        name: "drr",
        summary: "shares by weight in rounds (deficit round robin), at low cost",
        source: "Shreedhar, Varghese: Deficit round robin, SIGCOMM 1995",
        about: "VMs take turns; in each turn a VM may transfer bytes in proportion to its \
                weight. The cost of a decision does not depend on the number of VMs. A VM waits \
                for the turns of all others, so latencies vary more than with sfq, most where \
                weights differ much. It enforces no reservations, limits or latency bounds; for \
                limits use the regulator token-bucket.",
        controller: None,
        regulator: &regulate::open::DESCRIPTOR,
        dispatcher: &dispatch::drr::DESCRIPTOR,
        presets: &[],
    },
    PolicyInfo {
        name: "lottery",
        summary: "shares by weight, by a lottery that no request pattern can exploit",
        source: "Waldspurger, Weihl: Lottery scheduling, OSDI 1994",
        about: "Each waiting VM holds tickets in proportion to its weight, more after a small \
                I/O; one ticket is drawn for each I/O. Shares hold on average: over n I/Os they \
                deviate by about the square root of n, with sfq by one. A VM's chance does not \
                depend on when its requests arrive. It enforces no reservations, limits or \
                latency bounds; for limits use the regulator token-bucket.",
        controller: None,
        regulator: &regulate::open::DESCRIPTOR,
        dispatcher: &dispatch::lottery::DESCRIPTOR,
        presets: &[],
    },
    PolicyInfo {
        name: "deadline",
        summary: "batches sorted by address, reads preferred, no starvation",
        source: "Linux mq-deadline",
        about: "Serves batches of reads or writes sorted by address, prefers reads, and starts a \
                batch with the oldest request once that has expired. Made for hard disks, where \
                its throughput is far above that of fifo. It does not tell VMs apart: a VM with \
                a deep queue takes most of the device, as on a plain Linux host.",
        controller: None,
        regulator: &regulate::open::DESCRIPTOR,
        dispatcher: &dispatch::deadline::DESCRIPTOR,
        presets: &[],
    },
    PolicyInfo {
        name: "edf",
        summary: "earliest deadline first, by the latency bounds of VMs",
        source: "Flubber (its baseline, without credits); Liu and Layland, JACM 1973",
        about: "The deadline of a request is its arrival plus the `latency` of its VM, less a \
                margin for its service; the earliest deadline is served first. Latency bounds \
                hold while the device is fast enough for the whole load. There are no shares: a \
                VM that overloads the device delays all others, so add limits or credits where \
                VMs are not trusted. On hard disks this order costs throughput.",
        controller: None,
        regulator: &regulate::open::DESCRIPTOR,
        dispatcher: &dispatch::edf::DESCRIPTOR,
        presets: &[],
    },
    PolicyInfo {
        name: "edf-credit",
        summary: "credits in proportion to reservations, then earliest deadline first",
        source: "Jin et al., \"Flubber\", 2013 (its baseline, EDF with credit controlling)",
        about: "In each interval a VM gets credits for requests in proportion to its \
                reservation, more after it missed its IOPS or its latency. Admitted requests are \
                served by deadline. Addresses are ignored, which costs throughput on hard disks.",
        controller: Some(&control::credit_feedback::DESCRIPTOR),
        regulator: &regulate::vbc::DESCRIPTOR,
        dispatcher: &dispatch::edf::DESCRIPTOR,
        presets: &[],
    },
    PolicyInfo {
        name: "flubber",
        summary: "credits in proportion to reservations, then batches within deadlines",
        source: "Jin et al., \"Flubber: Two-level Disk Scheduling in Virtualized Environment\", \
                 2013",
        about: "In each interval a VM gets credits for requests in proportion to its \
                reservation, more after it missed its IOPS or its latency. Admitted requests are \
                served by deadline; while the earliest deadline allows, the disk continues with \
                requests that follow the last I/O or come from the same VM, and idles for them. \
                For hard disks whose VMs have IOPS reservations and latency bounds.",
        controller: Some(&control::credit_feedback::DESCRIPTOR),
        regulator: &regulate::vbc::DESCRIPTOR,
        dispatcher: &dispatch::bd_edf::DESCRIPTOR,
        presets: &[],
    },
    PolicyInfo {
        name: "cfq",
        summary: "time slices by I/O priority class and level",
        source: "Linux 2.6 to 4.20, CFQ (Axboe)",
        about: "Gives the device to one VM at a time for a time slice, longer for a higher \
                level, and idles briefly for the next request of a VM that reads sequentially. \
                Real-time VMs precede all others; idle ones are served when no other VM has \
                requests. Made for hard disks; on flash it keeps the queue shorter than \
                necessary.",
        controller: None,
        regulator: &regulate::open::DESCRIPTOR,
        dispatcher: &dispatch::cfq::DESCRIPTOR,
        presets: &[],
    },
    PolicyInfo {
        name: "pridyn",
        summary: "deadline transfers by I/O priority classes, over cfq",
        source: "Jain, Lakshmi: PriDyn, IEEE TSC 2014; Jain's thesis, chapters 3 and 4",
        about: "Forecasts the end of each deadline transfer every three seconds and whenever one \
                begins or ends. For a transfer that would be late, it lowers the classes of \
                others, one at a time, those with the most time left first; then it raises the \
                transfer's own class; if that does not suffice, the transfer loses its \
                precedence. Without transfers it is cfq. For hard disks and transfers of minutes \
                with different deadlines; it cannot measure transfers much shorter than its \
                interval.",
        controller: Some(&control::transfer_priorities::DESCRIPTOR),
        regulator: &regulate::open::DESCRIPTOR,
        dispatcher: &dispatch::cfq::DESCRIPTOR,
        presets: &[],
    },
    VFAIR,
    PolicyInfo {
        name: "vfair-bops",
        summary: "vfair without compensation for interference between VMs",
        about: "Each VM is allocated its share by weight of the throughput that it would have \
                alone (the paper's blender-oblivious proportional share). Where interleaving \
                makes requests more expensive, these rates exceed the device, at the cost of \
                sequential readers. Meant for comparisons; use vfair.",
        presets: &[
            VFAIR_PRESETS[0],
            VFAIR_PRESETS[1],
            ("strategy", Strategy::Bops.word()),
        ],
        ..VFAIR
    },
    PolicyInfo {
        name: "vfair-bsps",
        summary: "vfair with strict proportions, even if the device idles",
        about: "As vfair, but where interference leaves a VM below its share, the others are \
                reduced in steps of a twentieth until the rates of all are in proportion to \
                their weights and to their throughput alone (the paper's blender-aware strict \
                proportional share). The device may idle for it.",
        presets: &[
            VFAIR_PRESETS[0],
            VFAIR_PRESETS[1],
            ("strategy", Strategy::Bsps.word()),
        ],
        ..VFAIR
    },
    PolicyInfo {
        name: "vcup",
        summary: "precise targets by I/O size and pacing, over cfq",
        source: "Li et al., \"Customizable SLO and Its Near-Precise Enforcement for Storage \
                 Bandwidth\", ToS 2017",
        about: "Paces each VM with a target at its rate, making up for late slots, with I/Os \
                large enough for the device to reach it. With tuner = window, feedback makes \
                I/Os smaller or larger by a page at a time instead. cfq shares the disk among \
                VMs. VMs without a target are not tuned. For hard disks and arrays of them; on \
                flash use vcup-mclock or vcup-drr.",
        controller: Some(&control::tuner::DESCRIPTOR),
        regulator: &regulate::merge_limit::DESCRIPTOR,
        dispatcher: &dispatch::cfq::DESCRIPTOR,
        // Four other VMs may have slices of 100 ms before a VM's turn comes round.
        presets: &[("batch", 400_000_000)],
    },
    PolicyInfo {
        name: "vcup-mclock",
        summary: "precise targets over mclock, with reservations and weights",
        source: "Li et al., \"Customizable SLO and Its Near-Precise Enforcement for Storage \
                 Bandwidth\", ToS 2017",
        about: "The tuners of vcup over mClock: throttles keep a VM from exceeding its target, \
                and a reservation keeps neighbours from taking it. Other VMs have reservations \
                and weights. It uses the device's full queue depth.",
        controller: Some(&control::tuner::DESCRIPTOR),
        regulator: &regulate::merge_limit::DESCRIPTOR,
        dispatcher: &dispatch::mclock::DESCRIPTOR,
        // A slot may wait until the device has room, for some of the neighbours' I/Os.
        presets: &[("target_floor", 1), ("batch", 20_000_000)],
    },
    PolicyInfo {
        name: "vcup-drr",
        summary: "precise targets over drr, with weights",
        source: "Li et al., \"Customizable SLO and Its Near-Precise Enforcement for Storage \
                 Bandwidth\", ToS 2017",
        about: "The tuners of vcup over deficit round robin: precise targets, and shares of the \
                remaining bytes by weight, at low cost and at the device's full queue depth.",
        controller: Some(&control::tuner::DESCRIPTOR),
        regulator: &regulate::merge_limit::DESCRIPTOR,
        dispatcher: &dispatch::drr::DESCRIPTOR,
        presets: &[],
    },
];

/// SFQ(D) with the paper's depth. A request's cost is in its VM's allocation, so requests count
/// equally.
const VFAIR_PRESETS: &[(&str, u64)] = &[("depth", 32), ("cost", CostBy::Requests.word())];

/// Entry of vFair, on which the entries of its variants are based.
const VFAIR: PolicyInfo = PolicyInfo {
    name: "vfair",
    summary: "shares of the device by weight, whatever the size of requests",
    source: "Lu et al., \"vFair: Latency-Aware Fair Storage Scheduling\", SoCC 2015",
    about: "From the device's profile and the kind of a VM's requests it computes the rate at \
            which the VM alone would saturate the device, and allocates it a share of that rate \
            by weight. So a VM with small requests gets its share beside one with large \
            requests. Other VMs use what a VM leaves, and short bursts are admitted. It needs \
            the device's profile (tidegate profile).",
    controller: Some(&control::share_model::DESCRIPTOR),
    regulator: &regulate::circ::DESCRIPTOR,
    dispatcher: &dispatch::sfq::DESCRIPTOR,
    presets: VFAIR_PRESETS,
};
