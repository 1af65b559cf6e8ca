//! Schedulers as data: self-description, and a scheduler with values for its parameters.

use core::fmt;

use tidegate_core::time::Nanos;
use tidegate_units::exact_duration;

use crate::machine::Machine;
use crate::scheduler::Scheduler;

/// Largest number of parameters of one scheduler.
pub const MAX_PARAMS: usize = 24;

/// Interpretation of a parameter's value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ParamKind {
    /// Duration in nanoseconds.
    Duration,
    /// Whole number without a unit.
    Count,
    /// 0 or 1, written `false` or `true`.
    Flag,
    /// Fraction in thousandths, 0 to 1,000; written in percent.
    Part,
    /// One of the listed words, stored as its index.
    Choice(&'static [&'static str]),
}

/// Description of one scheduler parameter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ParamInfo {
    /// Key in a scenario, unique within a scheduler.
    pub name: &'static str,
    /// Interpretation of the value.
    pub kind: ParamKind,
    /// Value used if the key is absent.
    pub default: u64,
    /// Smallest value allowed.
    pub min: u64,
    /// Largest value allowed.
    pub max: u64,
    /// Description in one line.
    pub help: &'static str,
}

/// Group of related parameters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ParamGroup {
    /// Name of a group that several schedulers share. Its values carry over if one of them replaces
    /// another. `None`: specific to this scheduler.
    pub shared: Option<&'static str>,
    /// Parameters in the order in which they are read and documented.
    pub params: &'static [ParamInfo],
}

/// Static description of a scheduler.
pub struct SchedulerInfo {
    /// Name in scenarios and tables.
    pub name: &'static str,
    /// Summary in one line.
    pub summary: &'static str,
    /// Paper or source code whose rules the scheduler follows.
    pub source: &'static str,
    /// Names of earlier releases, which are accepted with a note.
    pub old_names: &'static [&'static str],
    /// Parameters by group.
    pub groups: &'static [ParamGroup],
    /// Constructor for a machine whose vCPUs are all blocked.
    pub build: fn(&SchedulerSpec, &Machine) -> Box<dyn Scheduler>,
}

/// Scheduler with values for its parameters.
#[derive(Clone, Copy)]
pub struct SchedulerSpec {
    info: &'static SchedulerInfo,
    /// Values in the order of the parameters; unused entries are 0.
    values: [u64; MAX_PARAMS],
}

impl ParamInfo {
    /// Minimum time that a vCPU runs before it may be preempted, as in Xen (`sched_ratelimit_us`).
    pub const RATE_LIMIT: ParamInfo = ParamInfo::duration(
        "rate_limit",
        Nanos::from_millis(1),
        (Nanos::ZERO, Nanos::from_millis(500)),
        "minimum time that a vCPU runs before it may be preempted",
    );

    /// Declares a duration parameter.
    pub const fn duration(
        name: &'static str,
        default: Nanos,
        (min, max): (Nanos, Nanos),
        help: &'static str,
    ) -> ParamInfo {
        ParamInfo {
            name,
            kind: ParamKind::Duration,
            default: default.0,
            min: min.0,
            max: max.0,
            help,
        }
    }

    /// Declares a flag parameter.
    pub const fn flag(name: &'static str, default: bool, help: &'static str) -> ParamInfo {
        ParamInfo {
            name,
            kind: ParamKind::Flag,
            default: default as u64,
            min: 0,
            max: 1,
            help,
        }
    }

    /// Formats a value as a scenario writes it, without quotes and exactly.
    pub fn written(&self, value: u64) -> String {
        match self.kind {
            ParamKind::Duration => exact_duration(Nanos(value)),
            ParamKind::Count => value.to_string(),
            ParamKind::Flag => (value != 0).to_string(),
            // Thousandths, written in percent.
            ParamKind::Part => format!("{} %", value as f64 / 10.0),
            ParamKind::Choice(words) => words[value as usize].to_owned(),
        }
    }

    /// Describes the allowed values for an error message.
    pub fn allowed(&self) -> String {
        match self.kind {
            ParamKind::Choice(words) => words.join(", "),
            ParamKind::Flag => "true or false".to_owned(),
            _ => format!("{} to {}", self.written(self.min), self.written(self.max)),
        }
    }
}

impl SchedulerInfo {
    /// Returns whether `name` is the scheduler's name, or one of an earlier release.
    pub fn is_named(&self, name: &str) -> bool {
        self.name == name || self.old_names.contains(&name)
    }

    /// Parameters of all groups, in their order.
    pub fn params(&self) -> impl Iterator<Item = &'static ParamInfo> + use<> {
        self.groups.iter().flat_map(|group| group.params)
    }
}

impl fmt::Debug for SchedulerInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl SchedulerSpec {
    /// Creates the scheduler with default parameters.
    ///
    /// # Panics
    /// The scheduler declares more than [`MAX_PARAMS`] parameters.
    pub fn new(info: &'static SchedulerInfo) -> SchedulerSpec {
        let mut values = [0; MAX_PARAMS];
        for (at, param) in info.params().enumerate() {
            assert!(at < MAX_PARAMS, "{} has too many parameters", info.name);
            values[at] = param.default;
        }
        SchedulerSpec { info, values }
    }

    /// Static description of the scheduler.
    pub fn info(&self) -> &'static SchedulerInfo {
        self.info
    }

    /// Name of the scheduler.
    pub fn name(&self) -> &'static str {
        self.info.name
    }

    /// Value of a parameter.
    ///
    /// # Panics
    /// The scheduler does not declare the parameter.
    pub fn get(&self, param: &str) -> u64 {
        self.values[self.place(param)]
    }

    /// Value of a duration parameter.
    ///
    /// # Panics
    /// The scheduler does not declare the parameter.
    pub fn duration(&self, param: &str) -> Nanos {
        Nanos(self.get(param))
    }

    /// Value of a flag parameter.
    ///
    /// # Panics
    /// The scheduler does not declare the parameter.
    pub fn flag(&self, param: &str) -> bool {
        self.get(param) != 0
    }

    /// Replaces the value of a parameter.
    ///
    /// # Panics
    /// The scheduler does not declare the parameter.
    #[must_use]
    pub fn with(mut self, param: &str, value: u64) -> SchedulerSpec {
        self.values[self.place(param)] = value;
        self
    }

    /// Replaces the values of several parameters.
    ///
    /// # Panics
    /// The scheduler does not declare one of them.
    #[must_use]
    pub fn with_all(self, values: &[(&str, u64)]) -> SchedulerSpec {
        let all = values.iter();
        all.fold(self, |spec, (param, value)| spec.with(param, *value))
    }

    /// Returns the scheduler to use if `other` is requested for a scenario that names this one. A
    /// scheduler of the same name keeps this one's parameters; a different one takes over the
    /// values of the groups that both share.
    #[must_use]
    pub fn replaced_by(self, other: SchedulerSpec) -> SchedulerSpec {
        // Naming the scenario's own scheduler must not reset its parameters.
        if self.name() == other.name() {
            return self;
        }
        let shared = |group: &&ParamGroup| {
            let own = self.info.groups.iter();
            let mut own = own.filter(|own| own.shared == group.shared);
            // Groups without a name are equal in nothing but that.
            group.shared.is_some() && own.next().is_some()
        };
        let groups = other.info.groups.iter().filter(shared);
        let params = groups.flat_map(|group| group.params);
        params.fold(other, |spec, param| {
            spec.with(param.name, self.get(param.name))
        })
    }

    /// Builds the scheduler for a machine whose vCPUs are all blocked.
    pub fn build(&self, machine: &Machine) -> Box<dyn Scheduler> {
        (self.info.build)(self, machine)
    }

    fn place(&self, param: &str) -> usize {
        let mut all = self.info.params();
        all.position(|info| info.name == param)
            .unwrap_or_else(|| panic!("{} declares no parameter {param:?}", self.info.name))
    }
}

impl PartialEq for SchedulerSpec {
    fn eq(&self, other: &SchedulerSpec) -> bool {
        self.name() == other.name() && self.values == other.values
    }
}

impl Eq for SchedulerSpec {}

impl fmt::Debug for SchedulerSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut all = f.debug_struct(self.name());
        for (param, value) in self.info.params().zip(self.values) {
            all.field(param.name, &format_args!("{}", param.written(value)));
        }
        all.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHARED: ParamGroup = ParamGroup {
        shared: Some("both"),
        params: &[ParamInfo::flag("a", false, "")],
    };

    static ONE: SchedulerInfo = SchedulerInfo {
        name: "one",
        summary: "",
        source: "",
        old_names: &[],
        groups: &[
            SHARED,
            ParamGroup {
                shared: None,
                params: &[ParamInfo::flag("b", true, "")],
            },
        ],
        build: |_, _| unreachable!("never built"),
    };

    static OTHER: SchedulerInfo = SchedulerInfo {
        name: "other",
        groups: &[
            ParamGroup {
                shared: None,
                params: &[ParamInfo::flag("b", true, "")],
            },
            SHARED,
        ],
        ..ONE_AGAIN
    };

    const ONE_AGAIN: SchedulerInfo = SchedulerInfo {
        name: "",
        summary: "",
        source: "",
        old_names: &[],
        groups: &[],
        build: |_, _| unreachable!("never built"),
    };

    #[test]
    fn another_scheduler_takes_over_what_both_share_and_nothing_else() {
        let one = SchedulerSpec::new(&ONE).with_all(&[("a", 1), ("b", 0)]);
        let other = one.replaced_by(SchedulerSpec::new(&OTHER));
        assert_eq!((other.flag("a"), other.flag("b")), (true, true));
        assert_eq!(one.replaced_by(SchedulerSpec::new(&ONE)), one);
        assert_ne!(other, SchedulerSpec::new(&OTHER));
        assert_eq!(format!("{one:?}"), "one { a: true, b: false }");
    }

    #[test]
    #[should_panic(expected = "one declares no parameter \"c\"")]
    fn an_unknown_parameter_is_a_mistake_of_the_program() {
        _ = SchedulerSpec::new(&ONE).get("c");
    }

    #[test]
    fn values_are_written_as_a_scenario_has_them() {
        let slice = (Nanos(1), Nanos::SECOND);
        let slice = ParamInfo::duration("slice", Nanos::from_millis(30), slice, "");
        assert_eq!(slice.written(slice.default), "30 ms");
        assert_eq!(slice.written(30_000_001), "30000.001 us");
        assert_eq!(slice.allowed(), "1 ns to 1 s");
        let part = ParamInfo {
            kind: ParamKind::Part,
            ..slice
        };
        assert_eq!(
            (part.written(900), part.written(25)),
            ("90 %".into(), "2.5 %".into())
        );
        let words = ParamInfo {
            kind: ParamKind::Choice(&["core", "all"]),
            ..slice
        };
        assert_eq!(
            (words.written(1), words.allowed()),
            ("all".into(), "core, all".into())
        );
    }
}
