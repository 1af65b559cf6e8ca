//! Parts of a whole in percent, exact to a fixed number of decimals: `70 %`, `12.5 %`.

use core::fmt;

/// Refusal of a text that is not a part of a whole in percent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PercentError {
    /// Text that was found.
    pub found: String,
    /// Maximum number of decimals.
    pub decimals: u32,
}

impl fmt::Display for PercentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let decimals = match self.decimals {
            1 => "one decimal".to_owned(),
            n => format!("{n} decimals"),
        };
        write!(
            f,
            "found {:?}, expected a part of the whole from \"0 %\" to \"100 %\" with at most \
             {decimals}, such as \"70 %\"",
            self.found
        )
    }
}

impl std::error::Error for PercentError {}

/// Parses 0 to 100 percent with at most `decimals` decimals, into units of the last decimal.
fn parse(text: &str, decimals: u32) -> Result<u32, PercentError> {
    let fail = || PercentError {
        found: text.to_owned(),
        decimals,
    };
    let step = 10_u32.pow(decimals);
    let number = text.trim().strip_suffix('%').ok_or_else(fail)?.trim_end();
    // Without a point the fraction is 0, which also passes the check for digits below.
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    // No sign and no exponent, which `parse` would take.
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    let fits = whole.len() <= 3 && fraction.len() <= decimals as usize;
    if !fits || !digits(whole) || !digits(fraction) {
        return Err(fail());
    }
    let whole: u32 = whole.parse().map_err(|_| fail())?;
    let padded = format!("{fraction:0<width$}", width = decimals as usize);
    let fraction: u32 = padded.parse().map_err(|_| fail())?;
    let part = whole * step + fraction;
    (part <= 100 * step).then_some(part).ok_or_else(fail)
}

/// Formats a value in units of the last decimal, with as many decimals as it needs.
fn format(part: u32, decimals: u32, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let step = 10_u32.pow(decimals);
    let fraction = format!("{:0width$}", part % step, width = decimals as usize);
    match fraction.trim_end_matches('0') {
        "" => write!(f, "{} %", part / step),
        fraction => write!(f, "{}.{fraction} %", part / step),
    }
}

/// Declares a part of a whole with a fixed number of decimals.
macro_rules! part {
    ($(#[$doc:meta])* $name:ident, $decimals:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub struct $name(pub u32);

        impl $name {
            /// 100 %.
            pub const WHOLE: $name = $name(100 * 10_u32.pow($decimals));
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                format(self.0, $decimals, f)
            }
        }

        impl core::str::FromStr for $name {
            type Err = PercentError;
            fn from_str(text: &str) -> Result<$name, PercentError> {
                parse(text, $decimals).map($name)
            }
        }
    };
}

part! {
    /// Thousandths of a whole, written with at most one decimal: `70 %`, `12.5 %`. Parsing accepts
    /// 0 to [`Thousandths::WHOLE`]; larger values can be formatted.
    Thousandths, 1
}
part! {
    /// Millionths of a whole, written with at most four decimals: `0.0001 %`. Parsing accepts 0 to
    /// [`Millionths::WHOLE`]; larger values can be formatted.
    Millionths, 4
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_thousandth_is_read_as_it_is_written() {
        for n in 0..=Thousandths::WHOLE.0 {
            let written = Thousandths(n).to_string();
            assert_eq!(written.parse(), Ok(Thousandths(n)), "{written}");
        }
        assert_eq!(" 70% ".parse(), Ok(Thousandths(700)));
        for wrong in [
            "70", "100.1 %", "101 %", "-1 %", "1.25 %", "%", ". %", "+5 %", "1e1 %", ".5 %", "5. %",
        ] {
            assert!(wrong.parse::<Thousandths>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn millionths_have_four_decimals() {
        for (text, ppm) in [
            ("0.0001 %", 1),
            ("0.1 %", 1_000),
            ("12.5 %", 125_000),
            ("100 %", 1_000_000),
        ] {
            assert_eq!(text.parse(), Ok(Millionths(ppm)));
            assert_eq!(Millionths(ppm).to_string(), text);
        }
        for wrong in [
            "0.00001 %",
            "1.23456 %",
            "100.0001 %",
            "1000 %",
            "1",
            "1,5 %",
            "-1 %",
        ] {
            assert!(wrong.parse::<Millionths>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_refusal_says_what_was_found_and_what_is_allowed() {
        let error = "70".parse::<Thousandths>().expect_err("no percent sign");
        assert_eq!(
            error.to_string(),
            "found \"70\", expected a part of the whole from \"0 %\" to \"100 %\" with at most one \
             decimal, such as \"70 %\""
        );
    }

    proptest! {
        #[test]
        fn every_millionth_is_read_as_it_is_written(ppm in 0..=Millionths::WHOLE.0) {
            prop_assert_eq!(Millionths(ppm).to_string().parse(), Ok(Millionths(ppm)));
        }

        #[test]
        fn what_is_read_is_a_part_of_the_whole(text in "[0-9]{0,4}[.]?[0-9]{0,5} ?%?") {
            if let Ok(part) = text.parse::<Millionths>() {
                prop_assert!(part <= Millionths::WHOLE);
            }
            if let Ok(part) = text.parse::<Thousandths>() {
                prop_assert!(part <= Thousandths::WHOLE);
            }
        }
    }
}
