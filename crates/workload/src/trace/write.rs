//! Writer of traces in those formats that other tools read.

use super::{Format, Record, SECTOR};
use std::collections::{HashMap, HashSet};
use std::io::{self, Write};
use tidegate_core::request::Op;
use tidegate_core::time::Nanos;

/// Unit of a format's times in nanoseconds: MSR's ticks, and microseconds.
const TICK_NS: u64 = 100;
const MICROSECOND_NS: u64 = 1_000;

/// Numbers of requests of which a format could not say everything.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Losses {
    /// Discards left out, because the format has none.
    pub discards: u64,
    /// Arrivals rounded down to the unit of the format's times.
    pub times: u64,
    /// Addresses and lengths extended to whole sectors.
    pub sectors: u64,
}

/// Writer of a trace.
#[derive(Debug)]
pub struct Writer<W> {
    to: W,
    format: Format,
    /// Names of disks in the format, by their numbers in the trace.
    names: HashMap<u32, String>,
    used: HashSet<String>,
    /// Files in the order in which they were opened.
    opened: Vec<u32>,
    first: Option<Nanos>,
    last: Nanos,
    losses: Losses,
}

impl Format {
    /// Formats that can be written.
    pub const WRITABLE: [Format; 4] =
        [Format::Msr, Format::DiskSim, Format::Iolog, Format::Alibaba];
}

impl<W: Write> Writer<W> {
    /// Begins a trace in a format of [`Format::WRITABLE`].
    ///
    /// # Errors
    /// If the output fails.
    ///
    /// # Panics
    /// If the format cannot be written.
    pub fn new(mut to: W, format: Format) -> io::Result<Writer<W>> {
        assert!(Format::WRITABLE.contains(&format), "{format} is only read");
        if format == Format::Iolog {
            writeln!(to, "fio version 3 iolog")?;
        }
        Ok(Writer {
            to,
            format,
            names: HashMap::new(),
            used: HashSet::new(),
            opened: Vec::new(),
            first: None,
            last: Nanos::ZERO,
            losses: Losses::default(),
        })
    }

    /// Writes a request of the disk `name`. Times must not decrease.
    ///
    /// # Errors
    /// If the output fails.
    pub fn write(&mut self, record: &Record, name: &str) -> io::Result<()> {
        if record.op == Op::Discard && self.format != Format::Iolog {
            self.losses.discards += 1;
            return Ok(());
        }
        let first = *self.first.get_or_insert(record.at);
        self.last = record.at.since(first);
        let unit = match self.format {
            Format::Msr => TICK_NS,
            Format::DiskSim => 1,
            _ => MICROSECOND_NS,
        };
        // fio counts from the begin of the log; the others keep the trace's epoch.
        let at = if self.format == Format::Iolog {
            self.last.0
        } else {
            record.at.0
        };
        self.losses.times += u64::from(!at.is_multiple_of(unit));
        if !self.names.contains_key(&record.disk) {
            self.add_disk(record.disk, name, at / unit)?;
        }
        self.line(record, at / unit)
    }

    /// Ends the trace; returns the output, and what the format could not say.
    ///
    /// # Errors
    /// If the output fails.
    pub fn finish(mut self) -> io::Result<(W, Losses)> {
        for disk in &self.opened {
            let (at, name) = (self.last.0 / MICROSECOND_NS, &self.names[disk]);
            writeln!(self.to, "{at} {name} close")?;
        }
        Ok((self.to, self.losses))
    }

    fn line(&mut self, record: &Record, at: u64) -> io::Result<()> {
        let name = &self.names[&record.disk];
        let (offset, len) = (record.offset, record.len);
        let is_read = record.op == Op::Read;
        match self.format {
            Format::Msr => {
                let kind = if is_read { "Read" } else { "Write" };
                // Up, because 0 stands for an unknown time.
                let took = record
                    .took
                    .get()
                    .map_or(0, |it| it.0.div_ceil(TICK_NS).max(1));
                writeln!(self.to, "{at},{name},{kind},{offset},{len},{took}")
            }
            Format::DiskSim => {
                let (first, end) = (offset / SECTOR, record.end().div_ceil(SECTOR));
                let whole = offset.is_multiple_of(SECTOR) && u64::from(len).is_multiple_of(SECTOR);
                self.losses.sectors += u64::from(!whole);
                let (count, kind) = (end - first, u8::from(is_read));
                writeln!(self.to, "{at} {name} {first} {count} {kind}")
            }
            Format::Alibaba => {
                let code = if is_read { 'R' } else { 'W' };
                writeln!(self.to, "{name},{code},{offset},{len},{at}")
            }
            _ => {
                let action = match record.op {
                    Op::Read => "read",
                    Op::Discard => "trim",
                    _ => "write",
                };
                writeln!(self.to, "{at} {name} {action} {offset} {len}")
            }
        }
    }

    /// Gives a disk a name that the format can have and no other disk has.
    fn add_disk(&mut self, disk: u32, name: &str, at: u64) -> io::Result<()> {
        let plain = |name: &str| -> String {
            let odd = |c: char| c == ',' || c.is_whitespace() || c.is_control();
            name.replace(odd, "_")
        };
        let number = |text: &str| text.parse::<u64>().ok().map(|number| number.to_string());
        let wanted = match self.format {
            Format::DiskSim => number(name).unwrap_or_else(|| disk.to_string()),
            Format::Msr => {
                let parts = name.rsplit_once('.').filter(|(host, _)| !host.is_empty());
                let parts = parts.and_then(|(host, disk)| Some((host, number(disk)?)));
                let (host, number) = parts.unwrap_or((name, disk.to_string()));
                format!("{},{number}", plain(host))
            }
            _ => plain(name),
        };
        let mut unique = wanted.clone();
        let mut more = 0u64;
        while !self.used.insert(unique.clone()) {
            more += 1;
            unique = match self.format {
                // Only numbers can name a disk.
                Format::DiskSim => more.to_string(),
                Format::Msr => format!("{}_{more},{disk}", plain(name)),
                _ => format!("{wanted}_{more}"),
            };
        }
        if self.format == Format::Iolog {
            writeln!(self.to, "{at} {unique} add\n{at} {unique} open")?;
            self.opened.push(disk);
        }
        self.names.insert(disk, unique);
        Ok(())
    }
}
