//! Parameters of parts: what each is called, what its number means, and its value.

/// What a parameter's number means.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ParamKind {
    /// Bytes.
    Bytes,
    /// A span in nanoseconds.
    Duration,
    /// A plain number.
    Count,
    /// 0 or 1.
    Flag,
    /// One of these words, by its place among them.
    Choice(&'static [&'static str]),
}

/// One parameter of a part.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ParamInfo {
    /// What the configuration calls it.
    pub name: &'static str,
    /// What its number means.
    pub kind: ParamKind,
    /// Its value where none is given.
    pub default: u64,
    /// The smallest value allowed.
    pub min: u64,
    /// The largest value allowed.
    pub max: u64,
    /// One line: what it does.
    pub help: &'static str,
}

impl ParamInfo {
    /// A span of time, up to an hour.
    pub const fn span(name: &'static str, default: u64, help: &'static str) -> ParamInfo {
        ParamInfo {
            name,
            kind: ParamKind::Duration,
            default,
            min: 0,
            max: 3_600_000_000_000,
            help,
        }
    }

    /// On unless said.
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

    /// A choice among words, of which the first is the default.
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

    /// What may be given, in words.
    pub fn allowed(&self) -> String {
        let unit = match self.kind {
            ParamKind::Bytes => " bytes",
            ParamKind::Duration => " ns",
            ParamKind::Count | ParamKind::Flag => "",
            ParamKind::Choice(words) => return words.join(", "),
        };
        format!("{} to {}{unit}", self.min, self.max)
    }
}

/// Values of a composition's parameters.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Params(pub Vec<(&'static ParamInfo, u64)>);

impl Params {
    /// The value of a parameter, where the composition has it.
    pub fn find(&self, name: &str) -> Option<u64> {
        let param = self.0.iter().find(|(info, _)| info.name == name);
        param.map(|&(_, value)| value)
    }

    /// The value of a parameter that the part declares.
    pub fn get(&self, name: &str) -> u64 {
        self.find(name)
            .expect("a part asks only for parameters it declares")
    }
}

/// How late a paced dispatch may come and still be made good, whatever it costs. Well below 1 % of
/// 100 ms, so that no window of 100 ms is overshot by more than 1 % and one request; where the same
/// holds for longer, requests that waited are made good for longer.
pub const SLACK: ParamInfo = ParamInfo {
    name: "slack",
    kind: ParamKind::Duration,
    default: 900_000,
    min: 0,
    max: 1_000_000_000,
    help: "a limit makes good a late dispatch for this long, or more within its 100 ms",
};
