//! Parameters of the tuner, and its description for the registry of policy parts.

use super::Tuners;
use super::action::Carry;
use super::target::TargetTerms;
use super::throughput::Gains;
use super::window::WindowTerms;
use tidegate_base::precision::MILLION;
use tidegate_base::time::Nanos;
use tidegate_core::part::{Enforces, ParamInfo, ParamKind, Params, PartDescriptor};
use tidegate_core::roles::Controller;

/// Parameters. Those in per cent or milliseconds are in the words of the paper's table I.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TunerParams {
    /// Selects the paced tuner, whose throttle holds targets at all times; `false` selects the
    /// paper's, which alternates between two merge limits by windows.
    pub paced: bool,
    /// Paced tuner: longest time that an I/O may take at the target's rate, where the tuner chooses
    /// its size.
    pub grain: Nanos,
    /// MAX_ML: largest merge limit in pages of 4 KiB, 1 to 4096; the paced tuner uses the device's
    /// instead.
    pub max_ml: u32,
    /// Longest window, with which the search begins, 1 ms to 1 minute.
    pub window_max: Nanos,
    /// Shortest window.
    pub window_min: Nanos,
    /// UN_WIN: width of a range of windows that is not searched further.
    pub window_step: Nanos,
    /// T_ps in whole seconds, 1 to 600.
    pub interval_s: u32,
    /// BEST_V, per cent.
    pub best_v: u64,
    /// V above which windows are revised again, per cent.
    pub worst_v: u64,
    /// B_threshold, per cent.
    pub threshold: u64,
    /// U, per cent.
    pub unsteady: u64,
    /// Largest error in per cent that TA and TR leave alone.
    pub tolerance: u64,
    /// Change of TR's factor in one step, per cent.
    pub adjust_step: u64,
    /// TR revises the aim of TA.
    pub revise_target: bool,
    /// Runs SBR profiling before tuning.
    pub profiling: bool,
    /// Rate above the aim that is allowed while merge limits alternate, in per cent; 0: no ceiling.
    pub headroom: u64,
    /// TA adds up the errors of windows; `false`: it decides by the last window alone, as in the
    /// paper.
    pub carry_error: bool,
    /// TA adds them up while the throttle holds, too, which then need not be exact.
    pub carry_throttled: bool,
    /// WR keeps the window that met the goal; `false`: it moves to the next first, as the paper
    /// prints it.
    pub goal_keeps_window: bool,
    /// Gains of PI throttling, proportional and integral, in thousandths; the integral one per
    /// second.
    pub pi: [u64; 2],
}

impl TunerParams {
    pub(super) fn window_terms(&self) -> WindowTerms {
        let ms = |span: Nanos| (span.0 / 1_000_000).max(1);
        WindowTerms {
            min: ms(self.window_min.min(self.window_max)),
            max: ms(self.window_max),
            undivided: ms(self.window_step),
            best_v: of_percent(self.best_v),
            threshold: of_percent(self.threshold),
            unsteady: of_percent(self.unsteady),
            worst_v: of_percent(self.worst_v),
            goal_keeps_window: self.goal_keeps_window,
        }
    }

    pub(super) fn carry(&self) -> Carry {
        match (self.carry_error, self.carry_throttled) {
            (false, _) => Carry::Nothing,
            (true, false) => Carry::UntilThrottled,
            (true, true) => Carry::Throughout,
        }
    }

    pub(super) fn target_terms(&self) -> TargetTerms {
        TargetTerms {
            tolerance: of_percent(self.tolerance),
            step: of_percent(self.adjust_step),
            threshold: of_percent(self.threshold),
        }
    }

    pub(super) fn gains(&self) -> Gains {
        Gains {
            proportional: self.pi[0],
            integral: self.pi[1],
        }
    }
}

/// Value of the parameter `tuner` that selects the paced tuner.
const PACED: u64 = 0;

/// Parameters that have a meaning only for tuning by windows.
const OF_WINDOWS: &[&str] = &[
    "max_ml",
    "window_max",
    "window_min",
    "window_step",
    "best_v",
    "worst_v",
    "beta_threshold",
    "unsteady",
    "adjust_step",
    "revise_target",
    "profiling",
    "headroom",
    "carry_error",
    "carry_throttled",
    "goal_keeps_window",
    "pi_proportional",
    "pi_integral",
];

/// Returns the value of `tuner` with which a parameter has a meaning that it lacks with the present
/// one; `None` if it has one now, or is not the tuner's.
pub(crate) fn would_need(params: &Params, name: &str) -> Option<&'static str> {
    match params.find("tuner")? {
        PACED => OF_WINDOWS.contains(&name).then_some("window"),
        _ => (name == "grain").then_some("paced"),
    }
}

fn of_percent(percent: u64) -> u64 {
    percent * MILLION / 100
}

const fn count(
    name: &'static str,
    default: u64,
    min: u64,
    max: u64,
    help: &'static str,
) -> ParamInfo {
    ParamInfo {
        name,
        kind: ParamKind::Count,
        default,
        min,
        max,
        help,
    }
}

const fn window(name: &'static str, default_ms: u64, help: &'static str) -> ParamInfo {
    ParamInfo {
        name,
        kind: ParamKind::Duration,
        default: default_ms * 1_000_000,
        min: 1_000_000,
        max: 60_000_000_000,
        help,
    }
}

/// Description for the registry of policy parts.
pub(crate) static DESCRIPTOR: PartDescriptor<dyn Controller> = PartDescriptor {
    name: "tuner",
    summary: "tunes merge limit and throttle of each VM with a target, by feedback",
    params: &[
        ParamInfo::choice(
            "tuner",
            &["paced", "window"],
            "method: pacing, or a search over windows of merge limits",
        ),
        ParamInfo {
            name: "grain",
            kind: ParamKind::Duration,
            default: 50_000_000,
            min: 0,
            max: 1_000_000_000,
            help: "paced: maximum duration of an I/O at the target rate, unless only larger ones \
                   reach it",
        },
        count(
            "max_ml",
            11,
            1,
            4096,
            "largest merge limit in pages of 4 KiB; paced: the device's",
        ),
        window(
            "window_max",
            1024,
            "maximum and first interval between two tuning actions",
        ),
        window(
            "window_min",
            32,
            "minimum interval between two tuning actions",
        ),
        window(
            "window_step",
            32,
            "size of the range of windows at which the search ends",
        ),
        ParamInfo {
            name: "statistical_interval",
            kind: ParamKind::Duration,
            default: 30_000_000_000,
            min: 1_000_000_000,
            max: 600_000_000_000,
            help: "interval at which windows and aims are revised, in seconds with demand",
        },
        count(
            "best_v",
            5,
            0,
            100,
            "V in per cent at which a window is accepted",
        ),
        count(
            "worst_v",
            20,
            0,
            1000,
            "V in per cent above which windows are revised again",
        ),
        count(
            "beta_threshold",
            10,
            1,
            100,
            "beta in per cent at which a window is accepted",
        ),
        count(
            "unsteady",
            3,
            0,
            100,
            "rise of V in per cent that does not count as worse",
        ),
        count(
            "tolerance",
            5,
            1,
            50,
            "error in per cent that is tolerated without a change",
        ),
        count(
            "adjust_step",
            2,
            1,
            50,
            "step of the revision of the aim, in per cent",
        ),
        ParamInfo::flag("revise_target", "revises the aim by the remaining error"),
        ParamInfo {
            name: "profiling",
            kind: ParamKind::Flag,
            default: 0,
            min: 0,
            max: 1,
            help: "measures each merge limit for a second without throttle at the start",
        },
        count(
            "headroom",
            10,
            0,
            1000,
            "ceiling above the aim at any merge limit, in per cent; 0: none",
        ),
        ParamInfo::flag(
            "carry_error",
            "adds up the errors of windows; off: the last window alone decides",
        ),
        ParamInfo {
            name: "carry_throttled",
            kind: ParamKind::Flag,
            default: 0,
            min: 0,
            max: 1,
            help: "carries the error of windows on while the throttle holds; for a throttle with a \
                   `tick`",
        },
        ParamInfo::flag(
            "goal_keeps_window",
            "keeps the window that met the goal; off: moves to the next one first",
        ),
        count(
            "pi_proportional",
            200,
            0,
            10_000,
            "PI throttling: proportional gain, in thousandths",
        ),
        count(
            "pi_integral",
            500,
            0,
            10_000,
            "PI throttling: integral gain per second, in thousandths",
        ),
    ],
    enforces: Enforces {
        target: true,
        ..Enforces::NONE
    },
    build: |params, capacity| {
        let of = TunerParams {
            paced: params.get("tuner") == PACED,
            grain: Nanos(params.get("grain")),
            max_ml: params.get("max_ml") as u32,
            window_max: Nanos(params.get("window_max")),
            window_min: Nanos(params.get("window_min")),
            window_step: Nanos(params.get("window_step")),
            interval_s: (params.get("statistical_interval") / 1_000_000_000) as u32,
            best_v: params.get("best_v"),
            worst_v: params.get("worst_v"),
            threshold: params.get("beta_threshold"),
            unsteady: params.get("unsteady"),
            tolerance: params.get("tolerance"),
            adjust_step: params.get("adjust_step"),
            revise_target: params.get("revise_target") != 0,
            profiling: params.get("profiling") != 0,
            headroom: params.get("headroom"),
            carry_error: params.get("carry_error") != 0,
            carry_throttled: params.get("carry_throttled") != 0,
            goal_keeps_window: params.get("goal_keeps_window") != 0,
            pi: [params.get("pi_proportional"), params.get("pi_integral")],
        };
        Box::new(Tuners::new(of, capacity.vms))
    },
};
