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
        source: "Tidegate; what the published systems taught, in one order",
        about: "Limits and the caps of targets hold over everything. Reservations, targets, \
                deadline transfers and latency bounds are served by deadline; what they leave is \
                shared by priority, groups and weights in device time; background processes have \
                what VMs do not miss. Where the device is slower than promised, promises step \
                down kind by kind: the background, transfers, targets, latency bounds, and \
                reservations in proportion.",
        controller: Some(&control::transfers::DESCRIPTOR),
        regulator: &regulate::limit_target::DESCRIPTOR,
        dispatcher: &dispatch::slo::DESCRIPTOR,
        presets: &[],
    },
    PolicyInfo {
        name: "fifo",
        summary: "first in, first out: no isolation, the yardstick for all others",
        source: "what a host without an I/O scheduler does",
        about: "Serves requests of all VMs in the order they arrive. Nothing is held back and \
                nothing is promised: a VM that keeps many requests waiting takes the device. \
                Cheapest of all; right for one VM alone, or to see what the others are worth.",
        controller: None,
        regulator: &regulate::open::DESCRIPTOR,
        dispatcher: &dispatch::fifo::DESCRIPTOR,
        presets: &[],
    },
    PolicyInfo {
        name: "limit",
        summary: "caps in IOPS and bytes/s, by direction, with bursts; then in order of arrival",
        source: "QEMU block throttling, libvirt iotune",
        about: "Each VM's limit is kept by a token bucket: total, reads and writes apart, \
                requests and bytes a second, bursts with a length. It protects neighbours only as \
                far as limits are set low, and gives no VM a floor: use mclock for that.",
        controller: None,
        regulator: &regulate::token_bucket::DESCRIPTOR,
        dispatcher: &dispatch::fifo::DESCRIPTOR,
        presets: &[],
    },
    PolicyInfo {
        name: "mclock",
        summary: "reservation, limit and weight for every VM",
        source: "Gulati, Merchant, Varman: mClock, OSDI 2010",
        about: "Serves overdue reservations first, then shares what is left by weight among VMs \
                below their limit. Reservations must together fit the device. It knows no \
                latency: a VM's reservation stands in for it, since a VM that asks for less than \
                its reservation hardly waits. Caps by direction and bursts need the token bucket: \
                policy = { regulator = \"token-bucket\", dispatcher = \"mclock\" }.",
        controller: None,
        regulator: &regulate::open::DESCRIPTOR,
        dispatcher: &dispatch::mclock::DESCRIPTOR,
        presets: &[],
    },
    PolicyInfo {
        name: "mclock-ps",
        summary: "mClock's shares alone: a request counts one for every 16 KiB",
        source: "Gulati et al.: mClock, OSDI 2010; as PS(mClock) in Lu et al., \"vFair\", SoCC \
                 2015",
        about: "What is left of mClock where no VM has a reservation or a limit: of the VMs that \
                wait, the one goes that had least for its weight, and a request counts one for \
                every 16 KiB it begins, whatever it costs the device. It is there to be compared \
                with; for shares by what requests cost take sfq with cost = \"device-time\", for \
                floors and caps mclock.",
        controller: None,
        regulator: &regulate::open::DESCRIPTOR,
        dispatcher: &dispatch::sfq::DESCRIPTOR,
        presets: &[("cost", CostBy::SizeClasses.word())],
    },
    PolicyInfo {
        name: "sfq",
        summary: "shares by weight, fair from one request to the next",
        source: "Goyal et al.: SFQ, SIGCOMM 1996; Jin, Chase, Kaur: SFQ(D), SIGMETRICS 2004",
        about: "Of the VMs that wait, serves the one that had least for its weight. What one VM \
                leaves unused the others share at once; idle time saves nothing up. With a small \
                depth the order is kept closely, with a large one the device is kept busier. It \
                knows no floors, caps or latency: use mclock for those, or put the token bucket \
                in front.",
        controller: None,
        regulator: &regulate::open::DESCRIPTOR,
        dispatcher: &dispatch::sfq::DESCRIPTOR,
        presets: &[],
    },
    PolicyInfo {
        name: "drr",
        summary: "shares by weight in turns, nearly as cheap as the order of arrival",
        source: "Shreedhar, Varghese: Deficit round robin, SIGCOMM 1995",
        about: "Gives VMs turns one after the other, each for as many bytes as its weight says. A \
                decision takes as long among ten VMs as among a hundred thousand. A VM waits for \
                the turns of all others, so times vary more than with sfq, most where weights lie \
                far apart. It knows no floors, caps or latency; for caps put the token bucket in \
                front.",
        controller: None,
        regulator: &regulate::open::DESCRIPTOR,
        dispatcher: &dispatch::drr::DESCRIPTOR,
        presets: &[],
    },
    PolicyInfo {
        name: "lottery",
        summary: "shares by weight, by drawing tickets: nobody's pattern can play it",
        source: "Waldspurger, Weihl: Lottery scheduling, OSDI 1994",
        about: "Each VM that waits holds tickets by its weight, more if its last I/O was small; \
                one is drawn for each I/O. Shares hold in the long run: over n I/Os they stray by \
                about the square root of n, where sfq keeps them to one. What a VM may have does \
                not depend on when it asks. It knows no floors, caps or latency; for caps put the \
                token bucket in front.",
        controller: None,
        regulator: &regulate::open::DESCRIPTOR,
        dispatcher: &dispatch::lottery::DESCRIPTOR,
        presets: &[],
    },
    PolicyInfo {
        name: "deadline",
        summary: "batches in the order of addresses, reads before writes, nothing forgotten",
        source: "Linux mq-deadline",
        about: "Serves batches of reads or of writes in the order of their addresses, prefers \
                reads, and begins with the oldest once it has waited too long. Made for disks \
                that seek, where it gets much more done than the order of arrival. It knows no \
                VMs: one that keeps many requests waiting takes the device, as on a plain Linux \
                host.",
        controller: None,
        regulator: &regulate::open::DESCRIPTOR,
        dispatcher: &dispatch::deadline::DESCRIPTOR,
        presets: &[],
    },
    PolicyInfo {
        name: "edf",
        summary: "the earliest deadline first, by each VM's bound on latency",
        source: "Flubber (its baseline, without credits); Liu and Layland, JACM 1973",
        about: "Each request is due its VM's `latency` after it arrived, less a margin for \
                serving it, and the one that is due first goes next. Keeps bounds on latency as \
                long as the device is fast enough for all that is asked of it. It gives no \
                shares: a VM that asks for more than its part takes it from everybody, so put \
                limits or credits in front where VMs cannot be trusted. On disks that seek it \
                pays for the order it keeps.",
        controller: None,
        regulator: &regulate::open::DESCRIPTOR,
        dispatcher: &dispatch::edf::DESCRIPTOR,
        presets: &[],
    },
    PolicyInfo {
        name: "edf-credit",
        summary: "credits in proportion to reservations, then the earliest deadline first",
        source: "Jin et al., \"Flubber\", 2013 (its baseline, EDF with credit controlling)",
        about: "Each VM may have as many requests in a turn as its reservation is of all of them, \
                more once it missed its IOPS or its latency; what has been let in goes by \
                deadlines. It keeps proportions and bounds waiting, and looks at no addresses: on \
                a disk that seeks it pays for that.",
        controller: Some(&control::credit_feedback::DESCRIPTOR),
        regulator: &regulate::vbc::DESCRIPTOR,
        dispatcher: &dispatch::edf::DESCRIPTOR,
        presets: &[],
    },
    PolicyInfo {
        name: "flubber",
        summary: "credits in proportion to reservations, then batches as far as deadlines allow",
        source: "Jin et al., \"Flubber: Two-level Disk Scheduling in Virtualized Environment\", \
                 2013",
        about: "Each VM may have as many requests in a turn as its reservation is of all of them, \
                more once it missed its IOPS or its latency. What has been let in goes by \
                deadlines, but while the earliest lies ahead the disk goes on with what continues \
                the last I/O or comes from the same VM, and waits for it. For hard disks whose \
                VMs are promised IOPS and a latency.",
        controller: Some(&control::credit_feedback::DESCRIPTOR),
        regulator: &regulate::vbc::DESCRIPTOR,
        dispatcher: &dispatch::bd_edf::DESCRIPTOR,
        presets: &[],
    },
    PolicyInfo {
        name: "cfq",
        summary: "time slices of the disk, by class and level of priority",
        source: "Linux 2.6 to 4.20, CFQ (Axboe)",
        about: "Gives each VM the device for a slice of time, by turns, longer for a higher \
                level, and waits a little for the next request of one that reads one thing after \
                the other. Real-time VMs go before all others, idle ones when nobody else asks. \
                Made for disks that seek; on flash it keeps the device emptier than it need be.",
        controller: None,
        regulator: &regulate::open::DESCRIPTOR,
        dispatcher: &dispatch::cfq::DESCRIPTOR,
        presets: &[],
    },
    PolicyInfo {
        name: "pridyn",
        summary: "jobs (so many bytes, by when) end in time by classes of priority, over CFQ",
        source: "Jain, Lakshmi: PriDyn, IEEE TSC 2014; Jain's thesis, chapters 3 and 4",
        about: "Forecasts every three seconds, and whenever a job begins or ends, when each VM's \
                job will be done. One that would be late has others' classes lowered, one a time, \
                those with the most time to spare first; then its own raised; and if even that is \
                not enough nobody suffers for it any longer. Without jobs it is cfq. For hard \
                disks with jobs of minutes whose deadlines differ; jobs much shorter than its \
                interval are decided by a guess.",
        controller: Some(&control::transfer_priorities::DESCRIPTOR),
        regulator: &regulate::open::DESCRIPTOR,
        dispatcher: &dispatch::cfq::DESCRIPTOR,
        presets: &[],
    },
    VFAIR,
    PolicyInfo {
        name: "vfair-bops",
        summary: "vfair, but what VMs' requests cost each other is not counted",
        about: "Each VM is allocated its weight's part of what it could have alone (the paper's \
                blender-oblivious proportional share). Where requests of several VMs stand \
                between each other and become dearer for it, that is more than there is: who \
                reads in sequence bears it. There to be compared with; take vfair.",
        presets: &[
            VFAIR_PRESETS[0],
            VFAIR_PRESETS[1],
            ("strategy", Strategy::Bops.word()),
        ],
        ..VFAIR
    },
    PolicyInfo {
        name: "vfair-bsps",
        summary: "vfair, held strictly to the ratio of what VMs could have alone",
        about: "As vfair, but where a VM gets less than its part because of the others, they are \
                cut by a twentieth at a time until what everybody gets is in the ratio of their \
                weights and of what they could have alone (the paper's blender-aware strict \
                proportional share). That leaves the device idle where it must.",
        presets: &[
            VFAIR_PRESETS[0],
            VFAIR_PRESETS[1],
            ("strategy", Strategy::Bsps.word()),
        ],
        ..VFAIR
    },
    PolicyInfo {
        name: "vcup",
        summary: "a target's bandwidth precisely, by merge limit and throttle, over CFQ",
        source: "Li et al., \"Customizable SLO and Its Near-Precise Enforcement for Storage \
                 Bandwidth\", ToS 2017",
        about: "Each VM with a target is paced at it, late slots carried, with I/Os as large as \
                it takes for the device to do as much; or, with tuner = window, comes to it by \
                feedback, its I/Os made smaller or larger a page at a time. CFQ below shares the \
                disk among VMs. A VM without a target is not touched. For hard disks and arrays \
                of them; on flash use vcup-mclock or vcup-drr.",
        controller: Some(&control::tuner::DESCRIPTOR),
        regulator: &regulate::merge_limit::DESCRIPTOR,
        dispatcher: &dispatch::cfq::DESCRIPTOR,
        // Four other VMs may have slices of 100 ms before a VM's turn comes round.
        presets: &[("batch", 400_000_000)],
    },
    PolicyInfo {
        name: "vcup-mclock",
        summary: "the same over mClock: targets are floors, too; reservations, and weights for \
                  what is left",
        source: "Li et al., \"Customizable SLO and Its Near-Precise Enforcement for Storage \
                 Bandwidth\", ToS 2017",
        about: "The tuners of vcup above mClock: targets that are held precisely from above by \
                their throttles and from below as reservations, so that neighbours cannot take \
                them; and reservations and weights for the others, at the device's full depth.",
        controller: Some(&control::tuner::DESCRIPTOR),
        regulator: &regulate::merge_limit::DESCRIPTOR,
        dispatcher: &dispatch::mclock::DESCRIPTOR,
        // A slot may wait until the device has room, for some of the neighbours' I/Os.
        presets: &[("target_floor", 1), ("batch", 20_000_000)],
    },
    PolicyInfo {
        name: "vcup-drr",
        summary: "the same over deficit round robin: shares by weight for what is left",
        source: "Li et al., \"Customizable SLO and Its Near-Precise Enforcement for Storage \
                 Bandwidth\", ToS 2017",
        about: "The tuners of vcup above deficit round robin: besides targets that are held \
                precisely, shares by weight in bytes, cheaply and at the device's full depth.",
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
    summary: "shares of the device by weight, whatever each VM's requests cost it",
    source: "Lu et al., \"vFair: Latency-Aware Fair Storage Scheduling\", SoCC 2015",
    about: "By the device's profile and what a VM's requests are like it is known how many of \
            them a second would saturate the device; each VM may have its weight's part of \
            that, whatever the others do. So a VM with few small requests gets its share \
            beside one with many large ones. What a VM does not use the others have; a short \
            burst is let through. It needs the device's profile (tidegate profile).",
    controller: Some(&control::share_model::DESCRIPTOR),
    regulator: &regulate::circ::DESCRIPTOR,
    dispatcher: &dispatch::sfq::DESCRIPTOR,
    presets: VFAIR_PRESETS,
};
