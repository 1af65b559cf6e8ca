//! Figures of a mix, relative to a device: `{WHAT AMOUNT ...}` in the text of a mix.
//!
//! ```text
//!   {iops 10 % random read 8 KiB}                 rate that takes 10 % of the device: "4238 IOPS"
//!   {iops 10 % random read 64 KiB @ 16 KiB}       in requests of 16 KiB: "2880 IOPS @ 16 KiB"
//!   {bytes 20 % sequential write 1 MiB}           the same in bytes: "34187771 B/s"
//!   {data 50 % sequential read 1 MiB for 2}       bytes which that moves in two of its spans
//!   {time 2}                                      twice the device's unit of latency bounds
//!   {span 2}                                      two of its spans
//! ```
//!
//! Percentages are of the rate at saturation by the device's profile, so that the percentages of
//! all floors of a mix add up to the promised device time.

use super::device::PromiseDevice;

use std::ops::Range;

use tidegate_core::profile::{Access, Direction};
use tidegate_core::time::Nanos;
use tidegate_units::{format_duration, parse_bytes};

/// Block size of a device in bytes; amounts of data are multiples of it.
const BLOCK: u64 = 4096;

/// Examples of all figures, for messages.
pub(super) const FORMS: &str = "figures are like \"{iops 10 % random read 8 KiB}\", \
     \"{bytes 20 % sequential write 1 MiB}\", \"{data 50 % sequential read 1 MiB for 2}\", \
     \"{time 2}\" and \"{span 2}\"";

/// Figure that cannot be read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct FigureError {
    /// Byte range of the figure in the text, without its quotes.
    pub(super) span: Range<usize>,
    /// Mistake.
    pub(super) what: String,
}

/// Replaces every figure in quotes and braces by its value on a device.
///
/// # Errors
/// Describes the first figure that cannot be read.
pub(super) fn expand(text: &str, device: &PromiseDevice) -> Result<String, FigureError> {
    let mut expanded = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find("\"{") {
        let (before, from) = rest.split_at(start + 1);
        let begin = text.len() - from.len();
        // A figure ends on its line, so that one without its end does not take the next one's.
        let line = from.lines().next().unwrap_or_default();
        let Some(end) = line.find("}\"") else {
            return Err(FigureError {
                span: begin..begin + line.len(),
                what: format!("a figure without its end: {line:.40}"),
            });
        };
        expanded += before;
        // Without the brace, but within the quotes of the figure.
        let value = value(&from[1..end], device).map_err(|what| FigureError {
            span: begin..begin + end + 1,
            what,
        })?;
        expanded += &value;
        rest = &from[end + 1..];
    }
    Ok(expanded + rest)
}

/// Returns the value of a figure, given without its braces.
///
/// Describes the mistake in a figure that cannot be read.
pub(super) fn value(figure: &str, device: &PromiseDevice) -> Result<String, String> {
    let unknown = || format!("{{{figure}}} is no figure of a mix");
    let words: Vec<&str> = figure.split_whitespace().collect();
    let number = |word: &str| word.parse::<f64>().ok().filter(|n| *n > 0.0);
    match words.as_slice() {
        ["time", times] => {
            let times = number(times).ok_or_else(unknown)?;
            Ok(format_duration(scaled(device.bound, times)))
        }
        ["span", times] => {
            let times = number(times).ok_or_else(unknown)?;
            Ok(format_duration(scaled(device.span, times)))
        }
        [what, percent, "%", access, direction, size, unit, more @ ..] => {
            let percent = number(percent).ok_or_else(unknown)?;
            let access = match *access {
                "random" => Access::Random,
                "sequential" => Access::Sequential,
                _ => return Err(unknown()),
            };
            let direction = match *direction {
                "read" => Direction::Read,
                "write" => Direction::Write,
                _ => return Err(unknown()),
            };
            let size = parse_bytes(&format!("{size} {unit}")).map_err(|_| unknown())?;
            let size = u32::try_from(size).map_err(|_| unknown())?;
            if size == 0 {
                return Err(unknown());
            }
            let curve = device.profile.curve(direction, access);
            let iops = curve.iops(size) * percent / 100.0;
            let size = f64::from(size);
            match (*what, more) {
                ("iops", []) => Ok(format!("{} IOPS", (iops as u64).max(1))),
                ("iops", ["@", norm, unit]) => {
                    let norm_text = format!("{norm} {unit}");
                    let norm = parse_bytes(&norm_text).ok().filter(|norm| *norm > 0);
                    // A request of up to the size counts as one of it.
                    let each = (size / norm.ok_or_else(unknown)? as f64).max(1.0);
                    Ok(format!(
                        "{} IOPS @ {norm_text}",
                        ((iops * each) as u64).max(1)
                    ))
                }
                ("bytes", []) => Ok(format!("{} B/s", (iops * size) as u64)),
                ("data", ["for", spans]) => {
                    let spans = number(spans).ok_or_else(unknown)?;
                    let bytes = iops * size * device.span.as_secs_f64() * spans;
                    // At least a block: a workload without bytes would be refused.
                    Ok(format!("{} B", (bytes as u64 / BLOCK).max(1) * BLOCK))
                }
                _ => Err(unknown()),
            }
        }
        _ => Err(unknown()),
    }
}

fn scaled(time: Nanos, times: f64) -> Nanos {
    Nanos((time.0 as f64 * times) as u64)
}

#[cfg(test)]
mod tests {
    use super::super::device::devices;
    use super::*;

    #[test]
    fn figures_follow_the_devices_profile_and_the_rest_stays() {
        let devices = devices().expect("they are read");
        let nvme = devices.iter().find(|it| it.model == "nvme-1tb");
        let nvme = nvme.expect("it is among them");
        let text = "a = \"{iops 10 % random read 8 KiB}\"\nb = [{ c = \"{time 2}\" }] # {x}";
        let expanded = expand(text, nvme).expect("it is sound");
        assert_eq!(expanded, "a = \"42383 IOPS\"\nb = [{ c = \"2 ms\" }] # {x}");
        // As many bytes as 10 % of the reads of 64 KiB; a smaller request counts as one.
        let value = |figure| value(figure, nvme).expect("it is sound");
        let reads = |figure| {
            let value: String = value(figure);
            let (number, rest) = value.split_once(' ').expect("a number");
            (number.parse::<u64>().expect("a number"), rest.to_owned())
        };
        let (plain, _) = reads("iops 10 % random read 64 KiB");
        let (sized, unit) = reads("iops 10 % random read 64 KiB @ 16 KiB");
        assert_eq!((sized / 4, unit.as_str()), (plain, "IOPS @ 16 KiB"));
        assert_eq!(reads("iops 10 % random read 64 KiB @ 128 KiB").0, plain);
        let data = expand("\"{data 50 % sequential read 1 MiB for 2}\"", nvme);
        let data = data.expect("it is sound").replace([' ', 'B', '"'], "");
        let data: u64 = data.parse().expect("a number of bytes");
        assert!((3_499_000_000..3_501_000_000).contains(&data) && data.is_multiple_of(BLOCK));
        for wrong in [
            "{iops 10 random read 8 KiB}",
            "{time x}",
            "{iops 1 % odd read 4 KiB}",
            "{iops 1 % random read 0 KiB}",
            "{iops 1 % random read 8 GiB}",
            "{iops 1 % random read 8 KiB @ 0 KiB}",
            "{iops 1 % random read 8 KiB @ 8}",
        ] {
            assert!(expand(&format!("\"{wrong}\""), nvme).is_err(), "{wrong}");
        }
    }
}
