//! Parameters of parts: name, unit, range and value.

/// Unit of a parameter's value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ParamKind {
    /// Size in bytes.
    Bytes,
    /// Duration in nanoseconds.
    Duration,
    /// Number without a unit.
    Count,
    /// Boolean: 0 or 1.
    Flag,
    /// Index of one of these words.
    Choice(&'static [&'static str]),
}

/// Description of one parameter of a part.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ParamInfo {
    /// Name in the configuration.
    pub name: &'static str,
    /// Unit of the value.
    pub kind: ParamKind,
    /// Value used where the configuration gives none.
    pub default: u64,
    /// Smallest allowed value.
    pub min: u64,
    /// Largest allowed value.
    pub max: u64,
    /// Effect of the parameter, in one line.
    pub help: &'static str,
}

impl ParamInfo {
    /// Describes a duration of 0 to one hour, in nanoseconds.
    ///
    /// # Panics
    /// If the default is longer than an hour; at compile time where the description is a constant.
    pub const fn span(name: &'static str, default: u64, help: &'static str) -> ParamInfo {
        let max = 3_600_000_000_000;
        assert!(
            default <= max,
            "the default of a duration is above its maximum"
        );
        ParamInfo {
            name,
            kind: ParamKind::Duration,
            default,
            min: 0,
            max,
            help,
        }
    }

    /// Describes a boolean that is on by default.
    pub const fn flag(name: &'static str, help: &'static str) -> ParamInfo {
        ParamInfo {
            name,
            kind: ParamKind::Flag,
            default: 1,
            min: 0,
            max: 1,
            help,
        }
    }

    /// Describes a choice among words; the first is the default.
    pub const fn choice(
        name: &'static str,
        words: &'static [&'static str],
        help: &'static str,
    ) -> ParamInfo {
        ParamInfo {
            name,
            kind: ParamKind::Choice(words),
            default: 0,
            min: 0,
            max: words.len() as u64 - 1,
            help,
        }
    }

    /// Returns the allowed values in words, for messages.
    pub fn allowed(&self) -> String {
        let unit = match self.kind {
            ParamKind::Bytes => " bytes",
            ParamKind::Duration => " ns",
            ParamKind::Count | ParamKind::Flag => "",
            // Users write the word, not its index.
            ParamKind::Choice(words) => return words.join(", "),
        };
        format!("{} to {}{unit}", self.min, self.max)
    }
}

/// Parameters of a composition, with their values.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Params(pub Vec<(&'static ParamInfo, u64)>);

impl Params {
    /// Returns the value of a parameter; `None` if the composition does not have it.
    pub fn find(&self, name: &str) -> Option<u64> {
        let param = self.0.iter().find(|(info, _)| info.name == name);
        param.map(|&(_, value)| value)
    }

    /// Returns the value of a parameter that the part declares.
    ///
    /// # Panics
    /// When the composition does not have the parameter.
    pub fn get(&self, name: &str) -> u64 {
        self.find(name)
            .expect("a part asks only for parameters it declares")
    }
}

/// Longest delay of a paced dispatch that is always made good, in nanoseconds. The default is well
/// below 1 % of 100 ms, so that no window of 100 ms exceeds the limit by more than 1 % and one
/// request. Requests that waited are made good for longer where that bound still holds.
pub const SLACK: ParamInfo = ParamInfo {
    name: "slack",
    kind: ParamKind::Duration,
    default: 900_000,
    min: 0,
    max: 1_000_000_000,
    help: "a limit makes good a late dispatch for this long, or more within its 100 ms",
};
