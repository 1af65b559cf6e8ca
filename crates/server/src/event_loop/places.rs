//! Slab: values by index, where the index of a removed value is reused.

use std::ops::{Index, IndexMut};

/// Values by index. An index stays valid until its value is removed and is then given to another.
#[derive(Debug)]
pub(super) struct Places<T> {
    places: Vec<Option<T>>,
    free: Vec<usize>,
}

impl<T> Default for Places<T> {
    fn default() -> Places<T> {
        Places {
            places: Vec::new(),
            free: Vec::new(),
        }
    }
}

impl<T> Places<T> {
    /// Stores a value and returns its index.
    pub(super) fn insert(&mut self, thing: T) -> usize {
        let at = self.free.pop().unwrap_or_else(|| {
            self.places.push(None);
            self.places.len() - 1
        });
        self.places[at] = Some(thing);
        at
    }

    /// Removes and returns the value at `at`. Panics if there is none.
    pub(super) fn remove(&mut self, at: usize) -> T {
        let thing = self.places[at].take().expect("the place is taken");
        self.free.push(at);
        thing
    }

    /// Returns true if `at` is the index of a value.
    pub(super) fn is_taken(&self, at: usize) -> bool {
        self.places.get(at).is_some_and(Option::is_some)
    }

    /// Iterates over indices and values, in order of index.
    pub(super) fn iter(&self) -> impl Iterator<Item = (usize, &T)> {
        (self.places.iter().enumerate()).filter_map(|(at, thing)| Some((at, thing.as_ref()?)))
    }

    /// Iterates over the values, mutably, in order of index.
    pub(super) fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.places.iter_mut().flatten()
    }
}

impl<T> Index<usize> for Places<T> {
    type Output = T;

    #[inline]
    fn index(&self, at: usize) -> &T {
        self.places[at].as_ref().expect("the place is taken")
    }
}

impl<T> IndexMut<usize> for Places<T> {
    #[inline]
    fn index_mut(&mut self, at: usize) -> &mut T {
        self.places[at].as_mut().expect("the place is taken")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_that_was_left_is_taken_again_and_the_others_keep_theirs() {
        let mut places = Places::default();
        let numbers = ["a", "b", "c"].map(|thing| places.insert(thing));
        assert_eq!(numbers, [0, 1, 2]);
        assert_eq!(places.remove(1), "b");
        let there: Vec<_> = places.iter().map(|(at, &thing)| (at, thing)).collect();
        assert_eq!(there, [(0, "a"), (2, "c")]);
        assert_eq!(places.insert("d"), 1);
        assert_eq!((places[1], places[2]), ("d", "c"));
        places.remove(0);
        assert_eq!(
            [0, 1, 3].map(|at| places.is_taken(at)),
            [false, true, false]
        );
    }
}
