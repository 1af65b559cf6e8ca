//! The priority database: what those on a host had, by how many they were and of which classes.
//! Section 5.2.1.

use tidegate_core::jobs::Class;
use tidegate_core::learnt::{Blob, BlobError};

use crate::interval::{Interval, RATE_MAX};
use crate::{Bandwidth, Combination, MOST, Rates};

/// The name of its bytes, and their version.
const PART: &str = "priority-database";
const VERSION: u16 = 1;
/// Of an interval that differs from what is known, so much is taken over: an eighth. The thesis
/// says only that it learns; at three seconds an interval this forgets within half a minute.
const PART_OF_NEW: i128 = 8;

/// What is known of a combination.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry {
    /// Of which.
    pub classes: Combination,
    /// What one of each class had: an exponential average.
    pub rates: Rates,
    /// How many intervals that was learnt from.
    pub intervals: u64,
}

/// All that is known of so many.
#[derive(Clone, Debug)]
struct Table {
    entries: Vec<Entry>,
    /// The nearest entry of each combination, by its place.
    nearest: Vec<u16>,
}

/// What each class has on a host, by how many are there and of which classes; learnt while they
/// run.
///
/// Of a combination that was never seen the nearest one is taken: as many, with the smallest sum of
/// differences between the classes; of several the one with the stronger classes. The classes of
/// both are set side by side, sorted, and each has what the one beside it had. Where nothing is
/// known of so many, each has its part of the bandwidth.
#[derive(Clone, Debug)]
pub struct PriorityDatabase {
    bandwidth: Bandwidth,
    /// By how many there are.
    tables: Vec<Option<Table>>,
}

impl PriorityDatabase {
    /// One that knows nothing yet of a host.
    pub fn new(bandwidth: Bandwidth) -> PriorityDatabase {
        let tables = Vec::new();
        PriorityDatabase { bandwidth, tables }
    }

    /// What is taken for granted where nothing is known.
    pub fn bandwidth(&self) -> &Bandwidth {
        &self.bandwidth
    }

    /// An interval is over: so much had each one, in bytes a second, all through it, and took all
    /// that it was given. What more than [`MOST`] had is not kept.
    pub fn learn(&mut self, had: impl IntoIterator<Item = (Class, u64)>) {
        self.learn_of(had.into_iter().map(|(class, rate)| (class, rate, true)));
    }

    /// The same, and whether each one took all that it was given. One that took less says how much
    /// its class has at least, and the weaker classes had what it left.
    pub fn learn_of(&mut self, had: impl IntoIterator<Item = (Class, u64, bool)>) {
        let Some(interval) = Interval::of(had) else {
            return;
        };
        let classes = interval.classes;
        let seen = self.find(&classes).map(|entry| entry.rates);
        let granted = self.bandwidth.with(classes.len());
        let Some(Rates(rates)) = interval.teaches(seen.as_ref(), granted) else {
            return;
        };
        match self.find(&classes) {
            Some(entry) => {
                entry.intervals = entry.intervals.saturating_add(1);
                for (known, new) in entry.rates.0.iter_mut().zip(rates) {
                    let (old, new) = (i128::from(*known), i128::from(new));
                    *known = (old + (new - old) / PART_OF_NEW) as u64;
                }
            }
            None => self.insert(Entry {
                classes,
                rates: Rates(rates),
                intervals: 1,
            }),
        }
    }

    /// What one of each class has in this combination.
    pub fn rates(&self, classes: &Combination) -> Rates {
        let entry = self.known(classes);
        if entry.classes == *classes {
            entry.rates
        } else {
            entry.rates.beside(&entry.classes, classes)
        }
    }

    /// The entry that a combination's rates are taken from; one of nobody told apart, each with its
    /// part of the bandwidth, where nothing is known of as many.
    pub(crate) fn known(&self, classes: &Combination) -> Entry {
        if let Some(entry) = self.nearest(classes) {
            return *entry;
        }
        let (n, own) = (classes.len(), Class::default());
        let each = self.bandwidth.with(n) / n.max(1) as u64;
        let mut rates = Rates::default();
        rates.0[own as usize] = each;
        Entry {
            classes: Combination::of((0..n).map(|_| own)),
            rates,
            intervals: 0,
        }
    }

    /// The entry that a combination's rates are taken from; `None`: nothing is known of as many.
    pub fn nearest(&self, classes: &Combination) -> Option<&Entry> {
        let table = self.tables.get(classes.len())?.as_ref()?;
        let at = table.nearest.get(classes.place())?;
        table.entries.get(usize::from(*at))
    }

    /// All that is known: by how many there are, and then as it was learnt.
    pub fn entries(&self) -> impl Iterator<Item = &Entry> {
        (self.tables.iter().flatten()).flat_map(|table| &table.entries)
    }

    /// What is known, as bytes for [`PriorityDatabase::import`]; not the bandwidth.
    pub fn export(&self) -> Blob {
        let mut blob = Blob::new(PART, VERSION);
        blob.push_u64(self.entries().count() as u64);
        for entry in self.entries() {
            for class in Class::ALL {
                blob.push_u64(entry.classes.count(class) as u64);
                blob.push_u64(entry.rates.of(class));
            }
            blob.push_u64(entry.intervals);
        }
        blob
    }

    /// Takes over what another one knew, in place of all that is known here.
    ///
    /// # Errors
    /// When these are not its bytes, or they say what cannot be. Nothing has changed then.
    pub fn import(&mut self, blob: &Blob) -> Result<(), BlobError> {
        let mut read = PriorityDatabase::new(self.bandwidth.clone());
        let mut fields = blob.fields(PART, VERSION)?;
        for _ in 0..fields.u64()? {
            let (mut counts, mut rates) = ([0; 3], [0; 3]);
            for (count, rate) in counts.iter_mut().zip(&mut rates) {
                *count = fields.u64_in("a number of jobs", 0..=MOST as u64)? as u16;
                *rate = fields.u64_in("a bandwidth", 0..=RATE_MAX)?;
            }
            let classes = Combination::new(counts);
            let impossible = |what, value: usize| BlobError::Value {
                what,
                value: value.to_string(),
            };
            if !(1..=MOST).contains(&classes.len()) {
                return Err(impossible("a number of jobs", classes.len()));
            }
            if read.find(&classes).is_some() {
                return Err(impossible(
                    "a combination that is there twice",
                    classes.len(),
                ));
            }
            read.insert(Entry {
                classes,
                rates: Rates(rates),
                intervals: fields.u64_in("a number of intervals", 1..=u64::MAX)?,
            });
        }
        fields.end()?;
        *self = read;
        Ok(())
    }

    fn find(&mut self, classes: &Combination) -> Option<&mut Entry> {
        let table = self.tables.get_mut(classes.len())?.as_mut()?;
        let at = usize::from(*table.nearest.get(classes.place())?);
        (table.entries.get_mut(at)).filter(|entry| entry.classes == *classes)
    }

    /// Of a combination that is not there yet.
    fn insert(&mut self, entry: Entry) {
        let n = entry.classes.len();
        if self.tables.len() <= n {
            self.tables.resize_with(n + 1, || None);
        }
        let table = self.tables[n].get_or_insert_with(|| Table {
            entries: Vec::new(),
            nearest: vec![0; (n + 1) * (n + 2) / 2],
        });
        table.entries.push(entry);
        let at = table.entries.len() - 1;
        // With 64 of three classes there are 2,145 combinations.
        for (all, nearest) in Combination::all(n).zip(&mut table.nearest) {
            let known = &table.entries[usize::from(*nearest)].classes;
            let of = |classes: &Combination| (classes.apart(&all), *classes);
            if of(&entry.classes) < of(known) {
                *nearest = at as u16;
            }
        }
    }
}
