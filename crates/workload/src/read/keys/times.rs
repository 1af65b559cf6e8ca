//! Keys of a time that may be drawn.

use tidegate_config::keys::{KeyDefault, KeyInfo, KeyKind, SectionInfo, words};

use super::LONGEST;

/// Distributions of a time that is drawn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::read) enum Drawn {
    /// All times between two.
    Uniform,
    /// Memoryless.
    Exponential,
    /// A bell.
    Normal,
    /// A bell of the logarithm.
    LogNormal,
}

/// Words of `distribution`.
pub(in crate::read) const DISTRIBUTIONS: [(&str, Drawn); 4] = [
    ("uniform", Drawn::Uniform),
    ("exponential", Drawn::Exponential),
    ("normal", Drawn::Normal),
    ("lognormal", Drawn::LogNormal),
];

/// A time that a distribution has. The words for its default are `of`: the distributions that it
/// is required of.
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

/// A time that is always the same, or drawn, without a name yet.
pub const TIME: KeyInfo = KeyInfo::new(
    "",
    KeyKind::OneOf(&[KeyKind::Duration, KeyKind::Table(&DISTRIBUTION)]),
    KeyDefault::Unset(""),
    "",
)
.within(0, LONGEST.0);

/// Returns the key of a time that is always the same, or drawn, with the words for what holds
/// where it is left out.
pub const fn time(name: &'static str, otherwise: &'static str, help: &'static str) -> KeyInfo {
    TIME.named(name, KeyDefault::Unset(otherwise), help)
}
