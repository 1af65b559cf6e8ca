//! Slab: values by index, where the index of a removed value is reused.

use std::ops::{Index, IndexMut};

/// Values by index. An index stays valid until its value is removed and is then given to another.
#[derive(Debug)]
pub(super) struct Slab<T> {
    values: Vec<Option<T>>,
    free: Vec<usize>,
}

impl<T> Default for Slab<T> {
    fn default() -> Slab<T> {
        Slab {
            values: Vec::new(),
            free: Vec::new(),
        }
    }
}

impl<T> Slab<T> {
    /// Stores a value and returns its index.
    pub(super) fn insert(&mut self, value: T) -> usize {
        let at = self.free.pop().unwrap_or_else(|| {
            self.values.push(None);
            self.values.len() - 1
        });
        assert!(
            self.values[at].is_none(),
            "index {at} is free and has a value"
        );
        self.values[at] = Some(value);
        at
    }

    /// Removes and returns the value at `at`. Panics if there is none.
    pub(super) fn remove(&mut self, at: usize) -> T {
        let value = self.values[at].take().expect("the index is of a value");
        self.free.push(at);
        value
    }

    /// Returns true if `at` is the index of a value.
    pub(super) fn is_taken(&self, at: usize) -> bool {
        self.values.get(at).is_some_and(Option::is_some)
    }

    /// Returns the number of indices, free ones included.
    pub(super) fn slots(&self) -> usize {
        self.values.len()
    }

    /// Returns the value at `at`; `None` if the index is free.
    pub(super) fn get(&self, at: usize) -> Option<&T> {
        self.values.get(at)?.as_ref()
    }

    /// Iterates over indices and values, in order of index.
    pub(super) fn iter(&self) -> impl Iterator<Item = (usize, &T)> {
        (self.values.iter().enumerate()).filter_map(|(at, value)| Some((at, value.as_ref()?)))
    }

    /// Iterates over the values, mutably, in order of index.
    pub(super) fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.values.iter_mut().flatten()
    }
}

impl<T> Index<usize> for Slab<T> {
    type Output = T;

    #[inline]
    fn index(&self, at: usize) -> &T {
        self.values[at].as_ref().expect("the index is of a value")
    }
}

impl<T> IndexMut<usize> for Slab<T> {
    #[inline]
    fn index_mut(&mut self, at: usize) -> &mut T {
        self.values[at].as_mut().expect("the index is of a value")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_freed_index_is_reused_and_other_indices_stay_valid() {
        let mut values = Slab::default();
        let numbers = ["a", "b", "c"].map(|value| values.insert(value));
        assert_eq!(numbers, [0, 1, 2]);
        assert_eq!(values.remove(1), "b");
        let there: Vec<_> = values.iter().map(|(at, &value)| (at, value)).collect();
        assert_eq!(there, [(0, "a"), (2, "c")]);
        assert_eq!(values.insert("d"), 1);
        assert_eq!((values[1], values[2]), ("d", "c"));
        values.remove(0);
        assert_eq!(
            [0, 1, 3].map(|at| values.is_taken(at)),
            [false, true, false]
        );
    }
}
