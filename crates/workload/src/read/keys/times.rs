//! Keys of a duration that may be drawn.

use tidegate_config::keys::{KeyDefault, KeyInfo, KeyKind, SectionInfo, words};

use super::LONGEST;

/// Distributions of a duration.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::read) enum Drawn {
    /// Uniform between two durations.
    Uniform,
    /// Exponential.
    Exponential,
    /// Normal.
    Normal,
    /// Log-normal.
    LogNormal,
}

/// Words of `distribution`.
pub(in crate::read) const DISTRIBUTIONS: [(&str, Drawn); 4] = [
    ("uniform", Drawn::Uniform),
    ("exponential", Drawn::Exponential),
    ("normal", Drawn::Normal),
    ("lognormal", Drawn::LogNormal),
];

/// Creates the key of a distribution's parameter. `of` names the distributions that require it.
const fn figure(name: &'static str, of: &'static str, help: &'static str) -> KeyInfo {
    KeyInfo::new(name, KeyKind::Duration, KeyDefault::Unset(of), help).within(0, LONGEST.0)
}

/// Distribution of a time.
pub(in crate::read) const KIND: KeyInfo = KeyInfo::new(
    "distribution",
    KeyKind::Choice(&words(&DISTRIBUTIONS)),
    KeyDefault::Required("distribution = \"exponential\""),
    "how it is drawn",
);
/// Shortest of uniform times.
pub(in crate::read) const FROM: KeyInfo = figure("from", "of `uniform`", "the shortest time");
/// Longest of uniform times.
pub(in crate::read) const TO: KeyInfo = figure("to", "of `uniform`", "the longest time");
/// Mean of times.
pub(in crate::read) const MEAN: KeyInfo =
    figure("mean", "of `exponential` and `normal`", "the mean");
/// Deviation of normal times.
pub(in crate::read) const DEVIATION: KeyInfo =
    figure("deviation", "of `normal`", "the standard deviation");
/// Median of log-normal times.
pub(in crate::read) const MEDIAN: KeyInfo = figure("median", "of `lognormal`", "the median");
/// Deviation of the logarithm of log-normal times.
pub(in crate::read) const SIGMA: KeyInfo = KeyInfo::new(
    "sigma",
    KeyKind::Decimal {
        min: 0.0,
        max: 10.0,
    },
    KeyDefault::Unset("of `lognormal`"),
    "the standard deviation of the logarithm",
);

/// Table of a time that is drawn.
pub const DISTRIBUTION: SectionInfo = SectionInfo {
    name: "distribution",
    keys: &[KIND, FROM, TO, MEAN, DEVIATION, MEDIAN, SIGMA],
};

/// Key of a duration that is fixed or drawn, without a name.
pub const TIME: KeyInfo = KeyInfo::new(
    "",
    KeyKind::OneOf(&[KeyKind::Duration, KeyKind::Table(&DISTRIBUTION)]),
    KeyDefault::Unset(""),
    "",
)
.within(0, LONGEST.0);

/// Creates the key of a duration that is fixed or drawn; `otherwise` describes the effect of
/// leaving it out.
pub const fn time(name: &'static str, otherwise: &'static str, help: &'static str) -> KeyInfo {
    TIME.named(name, KeyDefault::Unset(otherwise), help)
}
