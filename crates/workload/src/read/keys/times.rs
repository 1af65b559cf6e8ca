//! Keys of a duration that is fixed, or drawn from a distribution.

use tidegate_config::keys::{KeyDefault, KeyInfo, KeyKind, SectionInfo, words};

use super::LONGEST;

/// Distributions of a duration.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::read) enum Drawn {
    /// Uniform distribution between two durations.
    Uniform,
    /// Exponential distribution with a mean.
    Exponential,
    /// Normal distribution with a mean and a deviation.
    Normal,
    /// Log-normal distribution with a median and the deviation of the logarithm.
    LogNormal,
}

/// Values of the key `distribution`.
pub(in crate::read) const DISTRIBUTIONS: [(&str, Drawn); 4] = [
    ("uniform", Drawn::Uniform),
    ("exponential", Drawn::Exponential),
    ("normal", Drawn::Normal),
    ("lognormal", Drawn::LogNormal),
];

/// Creates the key of a distribution's parameter. `of` names the distributions that require it.
const fn parameter(name: &'static str, of: &'static str, help: &'static str) -> KeyInfo {
    KeyInfo::new(name, KeyKind::Duration, KeyDefault::Unset(of), help).within(0, LONGEST.0)
}

/// Key of the distribution from which durations are drawn.
pub(in crate::read) const KIND: KeyInfo = KeyInfo::new(
    "distribution",
    KeyKind::Choice(&words(&DISTRIBUTIONS)),
    KeyDefault::Required("distribution = \"exponential\""),
    "distribution from which the duration is drawn",
);
/// Key of the shortest duration of a uniform distribution.
pub(in crate::read) const FROM: KeyInfo = parameter("from", "of `uniform`", "shortest duration");
/// Key of the longest duration of a uniform distribution.
pub(in crate::read) const TO: KeyInfo = parameter("to", "of `uniform`", "longest duration");
/// Key of the mean of an exponential or normal distribution.
pub(in crate::read) const MEAN: KeyInfo =
    parameter("mean", "of `exponential` and `normal`", "mean duration");
/// Key of the standard deviation of a normal distribution.
pub(in crate::read) const DEVIATION: KeyInfo =
    parameter("deviation", "of `normal`", "standard deviation");
/// Key of the median of a log-normal distribution.
pub(in crate::read) const MEDIAN: KeyInfo =
    parameter("median", "of `lognormal`", "median duration");
/// Key of the standard deviation of the natural logarithm of a log-normal distribution.
pub(in crate::read) const SIGMA: KeyInfo = KeyInfo::new(
    "sigma",
    KeyKind::Decimal {
        min: 0.0,
        max: 10.0,
    },
    KeyDefault::Unset("of `lognormal`"),
    "standard deviation of the natural logarithm",
);

/// Table of a duration that is drawn.
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
