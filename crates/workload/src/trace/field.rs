//! Fields that several formats have: whole numbers, times with fractions, operations.

use super::{Op, SECTOR};
use tidegate_core::time::Nanos;

/// Parses an integer; `field` names it in the error.
pub(super) fn number(field: &str, text: &str) -> Result<u64, String> {
    text.parse()
        .map_err(|_| format!("{field} {text:?} is not a whole number from 0 to 2^64 - 1"))
}

/// Parses a number of sectors; returns bytes.
pub(super) fn sectors(field: &str, text: &str) -> Result<u64, String> {
    let sectors = number(field, text)?;
    (sectors.checked_mul(SECTOR)).ok_or_else(|| format!("{field} {sectors} is beyond any disk"))
}

/// Parses a number with up to nine decimals, in units of `unit` nanoseconds, exactly.
pub(super) fn decimal(field: &str, text: &str, unit: u64) -> Result<Nanos, String> {
    let wrong = || format!("{field} {text:?} is not a number with up to nine decimals");
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || fraction.len() > 9 || !digits(whole) || !digits(fraction) {
        return Err(wrong());
    }
    // Padded to billionths, so that no digit is rounded.
    let billionths: u64 = format!("{fraction:0<9}").parse().map_err(|_| wrong())?;
    let part = u128::from(billionths) * u128::from(unit) / 1_000_000_000;
    let nanos = whole
        .parse::<u64>()
        .ok()
        .and_then(|whole| whole.checked_mul(unit));
    let nanos = nanos.and_then(|nanos| nanos.checked_add(part as u64));
    (nanos.map(Nanos)).ok_or_else(|| format!("{field} {text} is more than 584 years"))
}

/// Multiplies a time by its unit in nanoseconds.
pub(super) fn in_nanos(field: &str, time: u64, unit: u64) -> Result<Nanos, String> {
    let nanos = time.checked_mul(unit).map(Nanos);
    nanos.ok_or_else(|| format!("{field} {time} is too large: 2^64 ns are 584 years"))
}

/// Operation in the letters of the Linux block layer (`RWBS`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Letters {
    /// Operation on bytes; `fua`: durable before the answer.
    Bytes { op: Op, fua: bool },
    /// Flush or another operation without bytes.
    NoBytes,
}

/// Parses the letters of an operation, such as `R`, `WS` or `FWFS`; blk_fill_rwbs() of Linux.
pub(super) fn letters(text: &str) -> Result<Letters, String> {
    // A flush may precede a write, whose letter follows; an F behind that one stands for FUA.
    let rest = text.trim_start_matches('F');
    let of = |op| Letters::Bytes {
        op,
        fua: op == Op::Write && rest.contains('F'),
    };
    Ok(match rest.chars().next() {
        Some('R') => of(Op::Read),
        Some('W') => of(Op::Write),
        Some('D') => of(Op::Discard),
        Some('N') => Letters::NoBytes,
        // Only letters of a flush, perhaps with those of its flags.
        None | Some('A' | 'B' | 'S' | 'M') if !text.is_empty() => Letters::NoBytes,
        _ => return Err(format!("operation {text:?}")),
    })
}
