//! What a VM's requests are expected to be like: what a plan reckons with, and nothing else.
//!
//! A reservation of 500 IOPS is little for a disk when they follow each other and more than it can
//! do when they lie anywhere. Nothing that schedules reads this: a VM may ask for what it likes.

use core::fmt;

/// All of a thousand.
pub const THOUSAND: u32 = 1000;

/// Expectations of a VM's requests. For a field that is `None`, `tidegate_capacity::fit` assumes a
/// value.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Expects {
    /// Reads among the requests, in thousandths, 0 to 1000.
    pub reads: Option<u32>,
    /// Sequential ones among them, reads and writes alike, in thousandths, 0 to 1000.
    pub sequential: Option<u32>,
    /// Bytes of a request, at least 1.
    pub size: Option<u32>,
}

impl Expects {
    /// Nothing is said.
    pub const NOTHING: Expects = Expects {
        reads: None,
        sequential: None,
        size: None,
    };

    /// True when nothing is said.
    pub const fn is_nothing(&self) -> bool {
        self.reads.is_none() && self.sequential.is_none() && self.size.is_none()
    }
}

/// Thousandths as they are written: `70 %`, `12.5 %`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Thousandths(pub u32);

impl fmt::Display for Thousandths {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.0 / 10, self.0 % 10) {
            (whole, 0) => write!(f, "{whole} %"),
            (whole, tenth) => write!(f, "{whole}.{tenth} %"),
        }
    }
}

impl core::str::FromStr for Thousandths {
    type Err = ();

    /// `70 %`, `70%` or `12.5 %`: 0 to 100 with at most one decimal.
    fn from_str(text: &str) -> Result<Thousandths, ()> {
        let number = text.trim().strip_suffix('%').ok_or(())?.trim();
        let (whole, tenth) = number.split_once('.').unwrap_or((number, "0"));
        let digits = |part: &str| part.bytes().all(|b| b.is_ascii_digit());
        if !digits(whole) || !digits(tenth) || whole.len() > 3 || tenth.len() != 1 {
            return Err(());
        }
        let whole: u32 = whole.parse().map_err(|_| ())?;
        let tenth: u32 = tenth.parse().map_err(|_| ())?;
        let all = whole * 10 + tenth;
        (all <= THOUSAND).then_some(Thousandths(all)).ok_or(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_thousandth_is_read_as_it_is_written() {
        for n in 0..=THOUSAND {
            let written = Thousandths(n).to_string();
            assert_eq!(written.parse(), Ok(Thousandths(n)), "{written}");
        }
        assert_eq!(" 70% ".parse(), Ok(Thousandths(700)));
        for wrong in [
            "70", "100.1 %", "101 %", "-1 %", "1.25 %", "%", ". %", "+5 %", "1e1 %",
        ] {
            assert_eq!(wrong.parse::<Thousandths>(), Err(()), "{wrong}");
        }
    }
}
