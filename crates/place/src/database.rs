//! Priority database: measured bandwidth of the VMs of a host, by their number and classes
//! (Jain's thesis, section 5.2.1).

use tidegate_core::learnt_state::{Blob, BlobError};
use tidegate_core::transfers::Class;

use crate::interval::{Interval, RATE_MAX};
use crate::{Bandwidth, ClassRates, Combination, MAX_VMS};

/// Descriptor of the exported bytes.
const DESCRIPTOR: &str = "priority-database";
/// Version of the exported bytes.
const VERSION: u16 = 1;
/// Reciprocal of the weight of a new interval in the exponential average. Jain's thesis says only
/// that the database learns; with intervals of three seconds and a weight of 1/8 the average
/// follows within half a minute.
const NEW_SAMPLE_DIVISOR: i128 = 8;

/// Measured rates of one combination of classes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry {
    /// Combination of classes.
    pub classes: Combination,
    /// Rate of one VM of each class, as an exponential average.
    pub rates: ClassRates,
    /// Number of intervals that contributed.
    pub intervals: u64,
}

impl Entry {
    /// Returns the entry with all rates lowered in proportion, so that they are `total` bytes per
    /// second at most together.
    fn capped_at(&self, total: u64) -> Entry {
        let measured = self.rates.total(&self.classes);
        let mut capped = *self;
        if measured > total {
            for rate in &mut capped.rates.0 {
                let part = u128::from(*rate) * u128::from(total) / u128::from(measured);
                // At most `total`, because a class has at most the measured sum or no VM.
                *rate = u64::try_from(part).unwrap_or(total).min(total);
            }
        }
        capped
    }
}

/// Entries for one number of VMs.
#[derive(Clone, Debug)]
struct Table {
    entries: Vec<Entry>,
    /// Index of the nearest entry of each combination, by the combination's index.
    nearest: Vec<u16>,
}

/// Bandwidth of each class on a host, by the number and classes of its VMs; learnt while they
/// run.
///
/// A combination without an entry uses the nearest one: the same number of VMs, with the
/// smallest sum of class differences; among equals the one with the higher classes. The VMs of
/// both are paired in the order of their classes, and each gets the rate of its counterpart. If
/// there is no entry for this number of VMs, all get equal parts of the bandwidth.
#[derive(Clone, Debug)]
pub struct PriorityDatabase {
    bandwidth: Bandwidth,
    /// True if entries give no more than the bandwidth.
    is_capped: bool,
    /// Tables by number of VMs.
    tables: Vec<Option<Table>>,
}

impl PriorityDatabase {
    /// Creates an empty database for a host whose disk has `bandwidth`.
    pub fn new(bandwidth: Bandwidth) -> PriorityDatabase {
        PriorityDatabase {
            bandwidth,
            is_capped: false,
            tables: Vec::new(),
        }
    }

    /// Caps the rates of entries at the bandwidth: for a host of which others have reserved a part
    /// since the entries were measured. The entries themselves stay as measured.
    pub fn cap_at_bandwidth(&mut self) {
        self.is_capped = true;
    }

    /// Bandwidth assumed where nothing was measured.
    pub fn bandwidth(&self) -> &Bandwidth {
        &self.bandwidth
    }

    /// Learns from an interval in which every VM had unlimited demand: class and rate in bytes
    /// per second of each VM throughout the interval. Ignored for more than [`MAX_VMS`] VMs.
    pub fn learn(&mut self, rates: impl IntoIterator<Item = (Class, u64)>) {
        self.learn_with_demand(rates.into_iter().map(|(class, rate)| (class, rate, true)));
    }

    /// Learns from an interval: class, rate in bytes per second, and whether the demand was
    /// unlimited, of each VM. The rate of a VM with limited demand is a lower bound for its
    /// class, and lower classes had the bandwidth that it did not use. Ignored for more than
    /// [`MAX_VMS`] VMs.
    pub fn learn_with_demand(&mut self, rates: impl IntoIterator<Item = (Class, u64, bool)>) {
        let Some(interval) = Interval::from_rates(rates) else {
            return;
        };
        let classes = interval.classes;
        let earlier = self.exact_entry_mut(&classes).map(|entry| entry.rates);
        let assumed = self.bandwidth.total_for(classes.len());
        let Some(ClassRates(rates)) = interval.class_rates(earlier.as_ref(), assumed) else {
            return;
        };
        match self.exact_entry_mut(&classes) {
            Some(entry) => {
                entry.intervals = entry.intervals.saturating_add(1);
                for (average, new) in entry.rates.0.iter_mut().zip(rates) {
                    let (old, new) = (i128::from(*average), i128::from(new));
                    *average = (old + (new - old) / NEW_SAMPLE_DIVISOR) as u64;
                }
            }
            None => self.insert(Entry {
                classes,
                rates: ClassRates(rates),
                intervals: 1,
            }),
        }
    }

    /// Rate of one VM of each class in this combination, in bytes per second.
    pub fn rates(&self, classes: &Combination) -> ClassRates {
        let entry = self.entry_or_default(classes);
        if entry.classes == *classes {
            entry.rates
        } else {
            entry.rates.extrapolate(&entry.classes, classes)
        }
    }

    /// Returns the entry from which the rates of a combination are derived. If nothing is known for
    /// this number of VMs, returns a synthetic entry with equal parts of the bandwidth.
    pub(crate) fn entry_or_default(&self, classes: &Combination) -> Entry {
        if let Some(entry) = self.nearest_entry(classes) {
            return if self.is_capped {
                entry.capped_at(self.bandwidth.total_for(classes.len()))
            } else {
                *entry
            };
        }
        let (n, own) = (classes.len(), Class::default());
        let each = self.bandwidth.total_for(n) / n.max(1) as u64;
        let mut rates = ClassRates::default();
        rates.0[own as usize] = each;
        Entry {
            classes: Combination::from_classes((0..n).map(|_| own)),
            rates,
            intervals: 0,
        }
    }

    /// Returns the entry from which the rates of a combination are derived; `None`: there is none
    /// for this number of VMs.
    pub fn nearest_entry(&self, classes: &Combination) -> Option<&Entry> {
        let table = self.tables.get(classes.len())?.as_ref()?;
        let at = table.nearest.get(classes.index())?;
        table.entries.get(usize::from(*at))
    }

    /// Returns all entries, by number of VMs, then in order of learning.
    pub fn entries(&self) -> impl Iterator<Item = &Entry> {
        (self.tables.iter().flatten()).flat_map(|table| &table.entries)
    }

    /// Serialises the entries, without the bandwidth, for [`PriorityDatabase::import`].
    pub fn export(&self) -> Blob {
        let mut blob = Blob::new(DESCRIPTOR, VERSION);
        blob.push_u64(self.entries().count() as u64);
        for entry in self.entries() {
            for class in Class::ALL {
                blob.push_u64(entry.classes.count(class) as u64);
                blob.push_u64(entry.rates.for_class(class));
            }
            blob.push_u64(entry.intervals);
        }
        blob
    }

    /// Replaces all entries by exported ones.
    ///
    /// # Errors
    /// The bytes are not those of a priority database or contain impossible values. The database is
    /// unchanged then.
    pub fn import(&mut self, blob: &Blob) -> Result<(), BlobError> {
        let mut read = PriorityDatabase::new(self.bandwidth.clone());
        read.is_capped = self.is_capped;
        let mut fields = blob.fields(DESCRIPTOR, VERSION)?;
        for _ in 0..fields.u64()? {
            let (mut counts, mut rates) = ([0; 3], [0; 3]);
            for (count, rate) in counts.iter_mut().zip(&mut rates) {
                *count = fields.u64_in("a number of transfers", 0..=MAX_VMS as u64)? as u16;
                *rate = fields.u64_in("a bandwidth", 0..=RATE_MAX)?;
            }
            let classes = Combination::new(counts);
            // `Combination` and the tables rely on these bounds.
            let impossible = |what, value: String| BlobError::Value { what, value };
            if !(1..=MAX_VMS).contains(&classes.len()) {
                let value = classes.len().to_string();
                return Err(impossible("a number of transfers", value));
            }
            if read.exact_entry_mut(&classes).is_some() {
                let [idle, best_effort, real_time] = counts;
                let value =
                    format!("{idle} idle, {best_effort} best effort, {real_time} real time");
                return Err(impossible("a repeated combination of classes", value));
            }
            read.insert(Entry {
                classes,
                rates: ClassRates(rates),
                intervals: fields.u64_in("a number of intervals", 1..=u64::MAX)?,
            });
        }
        fields.end()?;
        // Only now, so that a damaged blob leaves the database unchanged.
        *self = read;
        Ok(())
    }

    /// Returns the entry of exactly this combination.
    fn exact_entry_mut(&mut self, classes: &Combination) -> Option<&mut Entry> {
        let table = self.tables.get_mut(classes.len())?.as_mut()?;
        let at = usize::from(*table.nearest.get(classes.index())?);
        (table.entries.get_mut(at)).filter(|entry| entry.classes == *classes)
    }

    /// Inserts the entry of a combination that has none, and updates the nearest entries.
    fn insert(&mut self, entry: Entry) {
        let n = entry.classes.len();
        if self.tables.len() <= n {
            self.tables.resize_with(n + 1, || None);
        }
        let table = self.tables[n].get_or_insert_with(|| Table {
            entries: Vec::new(),
            // Number of combinations of n VMs of three classes.
            nearest: vec![0; (n + 1) * (n + 2) / 2],
        });
        table.entries.push(entry);
        let at = table.entries.len() - 1;
        // 64 VMs of three classes have 2,145 combinations, so a full update is cheap.
        for (all, nearest) in Combination::all_of_size(n).zip(&mut table.nearest) {
            let known = &table.entries[usize::from(*nearest)].classes;
            let rank = |classes: &Combination| (classes.distance_of_equal_len(&all), *classes);
            // Ties go to the combination with the higher classes, by the order of counts.
            if rank(&entry.classes) < rank(known) {
                *nearest = at as u16;
            }
        }
    }
}
