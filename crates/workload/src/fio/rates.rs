//! Options of rates: `rate`, `rate_iops` and `rate_process`.

use super::section_options::{Word, Words};
use super::value::{self, INTEGER, triple};
use crate::arrival_process::{Arrivals, Spacing};
use crate::spec::{Mix, Workload};

/// Returns the arrivals of a workload with a rate, and its mix, which the rates of reads and writes
/// determine if they differ.
pub(super) fn arrivals(words: &mut Words, workload: &Workload) -> Option<(Arrivals, Mix)> {
    let processes = [("linear", Spacing::Fixed), ("poisson", Spacing::Poisson)];
    let spacing = words.one_of("rate_process", &processes);
    let spacing = spacing.unwrap_or(Spacing::Fixed);
    let bytes = rates(words, "rate");
    let requests = rates(words, "rate_iops");
    let (word, per_s) = match (bytes, requests) {
        (None, None) => return None,
        // fio refuses the two together as well.
        (Some(_), Some((word, _))) => {
            let what = "does not go with `rate`";
            words.error(&word, what, "either `rate` or `rate_iops`");
            return None;
        }
        (Some((word, rates)), None) => {
            let mut per_s = rates;
            for (rate, sizes) in per_s.iter_mut().zip(&workload.sizes) {
                // A bandwidth becomes a rate of requests of the mean size.
                *rate /= sizes.mean();
            }
            (word, per_s)
        }
        (None, Some(rates)) => rates,
    };
    let (per_s, mix) = combined(words, &word, per_s, workload.rw.mix)?;
    let arrivals = Arrivals {
        per_s,
        spacing,
        bursts: None,
    };
    if arrivals.check().is_err() {
        let what = format!("{per_s} requests a second are out of range");
        words.error(&word, what, "0.001 to 10 million requests a second");
        return None;
    }
    Some((arrivals, mix))
}

/// Reads an option's values for reads, writes and trims; zero means no rate.
fn rates<'a>(words: &mut Words<'a, '_>, name: &str) -> Option<(Word<'a>, [f64; 3])> {
    let rates = words.parsed(name, INTEGER, |text, kb| {
        triple(text, |part| value::integer(part, kb))
    })?;
    Some((
        words.word(name)?,
        // Rates are at most 64-bit integers; those above 2^53, where f64 rounds, are refused as out
        // of range.
        rates.map(|rate| rate.unwrap_or(0) as f64),
    ))
}

/// Combines the rates into one rate of all requests and the resulting mix. `None`: no rate, or it
/// was refused.
fn combined(words: &mut Words, word: &Word, per_s: [f64; 3], mix: Mix) -> Option<(f64, Mix)> {
    let [read, write, trim] = per_s;
    let rate = match mix {
        Mix::Read => read,
        Mix::Write => write,
        Mix::Trim => trim,
        // Each write has a discard before it, so there are twice as many requests.
        Mix::TrimWrite => write * 2.0,
        Mix::ReadWrite { .. } => return mixed(words, word, read, write),
    };
    (rate > 0.0).then_some((rate, mix))
}

/// Combines the rates of the reads and writes of a mix.
fn mixed(words: &mut Words, word: &Word, read: f64, write: f64) -> Option<(f64, Mix)> {
    let sum = read + write;
    if sum == 0.0 {
        return None;
    }
    // fio would issue the other half without a limit; one open loop has no such half.
    if read == 0.0 || write == 0.0 {
        let what = "a rate for reads or for writes alone is not supported in a mix";
        words.error(word, what, "rates for both, or a section each");
        return None;
    }
    // Rounded to whole percent, as `Mix` holds it.
    let read_percent = (read / sum * 100.0 + 0.5) as u8;
    let what = format!("{sum} requests a second in all, {read_percent} % of them reads");
    words.note(word, what);
    Some((sum, Mix::ReadWrite { read_percent }))
}
