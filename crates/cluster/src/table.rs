//! Table of records by name, in an order of their own.

use std::collections::btree_map::Values;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::iter::Map;
use std::ops::{Index, IndexMut};
use std::sync::Arc;

/// Record with a name that is unique in its table.
pub trait Named {
    /// Name of the record.
    fn name(&self) -> &str;
}

/// Records by name, each at a position that it keeps until it is removed. A new record comes last.
/// Every operation on one record takes logarithmic time.
///
/// Copies share their records until one of them is changed, so a copy, and a record that is taken
/// over from another table, cost no copies of names and lists.
///
/// Tables are equal if they have equal records in the same order. Positions may differ: those of a
/// clone, and of tables that took over records of another one, are comparable with the original's.
#[derive(Clone)]
pub struct Table<T> {
    records: BTreeMap<u64, Arc<T>>,
    positions: HashMap<String, u64>,
    /// Largest position that was ever taken; 0: none.
    last: u64,
}

impl<T: Named> Table<T> {
    /// Number of records.
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Returns whether there is no record.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Returns the records in order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &T> + Clone {
        self.records.values().map(Arc::as_ref)
    }

    /// Returns the record with a name.
    pub fn get(&self, name: &str) -> Option<&T> {
        self.records.get(self.positions.get(name)?).map(Arc::as_ref)
    }

    /// Returns the position of the record with a name; positions rise in order.
    pub(crate) fn position(&self, name: &str) -> Option<u64> {
        self.positions.get(name).copied()
    }

    /// Largest position that was ever taken; 0: none.
    pub(crate) fn last(&self) -> u64 {
        self.last
    }

    /// Adds a record as the last one. One with the same name is removed.
    pub fn push(&mut self, record: T) {
        self.put_at(self.last + 1, record);
    }

    /// Puts a record at a position, in place of one with its name; at the next free position if
    /// another record is there.
    pub(crate) fn put_at(&mut self, position: u64, record: T) {
        self.put_shared_at(position, Arc::new(record));
    }

    /// Does what [`Table::put_at`] does, with a record that other tables may share.
    fn put_shared_at(&mut self, mut position: u64, record: Arc<T>) {
        self.take(record.name());
        while self.records.contains_key(&position) {
            position += 1;
        }
        self.last = self.last.max(position);
        self.positions.insert(record.name().to_owned(), position);
        self.records.insert(position, record);
    }

    /// Raises the largest position that counts as taken.
    pub(crate) fn raise_last(&mut self, last: u64) {
        self.last = self.last.max(last);
    }

    /// Sets the largest position that counts as taken to `last`, or to that of the last record.
    pub(crate) fn set_last(&mut self, last: u64) {
        let largest = self.records.last_key_value().map_or(0, |(at, _)| *at);
        self.last = last.max(largest);
    }

    /// Removes the record with a name, which other tables may share.
    fn take(&mut self, name: &str) -> Option<Arc<T>> {
        self.records.remove(&self.positions.remove(name)?)
    }

    /// Removes the records that `stays` does not hold for.
    pub fn retain(&mut self, mut stays: impl FnMut(&T) -> bool) {
        let positions = &mut self.positions;
        self.records.retain(|_, record| {
            let stays = stays(record);
            if !stays {
                positions.remove(record.name());
            }
            stays
        });
    }
}

impl<T: Named + Clone> Table<T> {
    /// Returns the records in order, to be changed. Names must stay.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.records.values_mut().map(Arc::make_mut)
    }

    /// Returns the record with a name, to be changed. The name must stay.
    pub fn get_mut(&mut self, name: &str) -> Option<&mut T> {
        self.records
            .get_mut(self.positions.get(name)?)
            .map(Arc::make_mut)
    }

    /// Removes the record with a name.
    pub fn remove(&mut self, name: &str) -> Option<T> {
        self.take(name).map(Arc::unwrap_or_clone)
    }
    /// Makes the records with some names what they are in another table, with their positions.
    pub(crate) fn adopt<'a>(&mut self, names: impl Iterator<Item = &'a str>, other: &Table<T>) {
        // Most have changed where they are.
        let mut moved = Vec::new();
        for name in names {
            let position = other.position(name);
            let there = position.and_then(|at| other.records.get(&at));
            let own = position.filter(|at| self.position(name) == Some(*at));
            let own = own.and_then(|at| self.records.get_mut(&at));
            match own.zip(there) {
                Some((own, there)) => own.clone_from(there),
                None => moved.push(name),
            }
        }
        // All are removed first: one may be at the position that another one takes.
        for name in &moved {
            self.take(name);
        }
        for name in moved {
            let position = other.position(name);
            if let Some((position, record)) =
                position.and_then(|at| Some((at, other.records.get(&at)?)))
            {
                self.put_shared_at(position, Arc::clone(record));
            }
        }
    }
}

impl<T> Default for Table<T> {
    fn default() -> Table<T> {
        Table {
            records: BTreeMap::new(),
            positions: HashMap::new(),
            last: 0,
        }
    }
}

impl<T: Named> FromIterator<T> for Table<T> {
    fn from_iter<I: IntoIterator<Item = T>>(records: I) -> Table<T> {
        let mut table = Table::default();
        records.into_iter().for_each(|record| table.push(record));
        table
    }
}

impl<T: Named> From<Vec<T>> for Table<T> {
    fn from(records: Vec<T>) -> Table<T> {
        records.into_iter().collect()
    }
}

impl<'a, T: Named> IntoIterator for &'a Table<T> {
    type Item = &'a T;
    type IntoIter = Map<Values<'a, u64, Arc<T>>, fn(&'a Arc<T>) -> &'a T>;

    fn into_iter(self) -> Self::IntoIter {
        self.records.values().map(Arc::as_ref)
    }
}

/// Record by its number in the order, in linear time.
///
/// # Panics
/// There are not as many.
impl<T: Named> Index<usize> for Table<T> {
    type Output = T;

    fn index(&self, at: usize) -> &T {
        let mut all = self.records.values();
        all.nth(at).expect("fewer records than the index")
    }
}

impl<T: Named + Clone> IndexMut<usize> for Table<T> {
    fn index_mut(&mut self, at: usize) -> &mut T {
        let mut all = self.records.values_mut();
        Arc::make_mut(all.nth(at).expect("fewer records than the index"))
    }
}

impl<T: PartialEq> PartialEq for Table<T> {
    fn eq(&self, other: &Table<T>) -> bool {
        self.records.values().eq(other.records.values())
    }
}

impl<T: Eq> Eq for Table<T> {}

impl<T: Named + PartialEq> PartialEq<Vec<T>> for Table<T> {
    fn eq(&self, other: &Vec<T>) -> bool {
        self.iter().eq(other)
    }
}

impl<T: Named + PartialEq, const N: usize> PartialEq<[T; N]> for Table<T> {
    fn eq(&self, other: &[T; N]) -> bool {
        self.iter().eq(other)
    }
}

impl<T: fmt::Debug> fmt::Debug for Table<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.records.values()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Clone, PartialEq, Eq, Debug)]
    struct Record(String, u8);

    impl Named for Record {
        fn name(&self) -> &str {
            &self.0
        }
    }

    proptest! {
        #[test]
        fn a_table_is_a_list_without_its_searches(
            steps in prop::collection::vec((0_u8..4, 0_u8..6, any::<u8>()), 0..40),
        ) {
            let (mut table, mut list) = (Table::default(), Vec::<Record>::new());
            let mut other = Table::default();
            for (step, name, value) in steps {
                let name = format!("{name}");
                match step {
                    0 => {
                        list.retain(|record| record.0 != name);
                        list.push(Record(name.clone(), value));
                        table.push(Record(name.clone(), value));
                    }
                    1 => {
                        let at = list.iter().position(|record| record.0 == name);
                        let removed = at.map(|at| list.remove(at));
                        prop_assert_eq!(table.remove(&name), removed);
                    }
                    2 => {
                        let stays = |record: &Record| record.1 != value;
                        list.retain(stays);
                        table.retain(stays);
                    }
                    _ => {
                        if let Some(record) = table.get_mut(&name) {
                            record.1 = value;
                        }
                        if let Some(record) = list.iter_mut().find(|record| record.0 == name) {
                            record.1 = value;
                        }
                    }
                }
                prop_assert_eq!(&table, &list);
                prop_assert_eq!(table.get(&name), list.iter().find(|record| record.0 == name));
                // A copy follows by the touched names alone.
                let names: Vec<_> = (0..6).map(|name| format!("{name}")).collect();
                other.adopt(names.iter().map(String::as_str), &table);
                prop_assert_eq!(&other, &table);
            }
        }
    }
}
