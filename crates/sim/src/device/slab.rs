//! Values by the number that an event or an I/O carries.

/// Panic message for a number whose value was taken: each event or completion occurs once.
const NOT_THERE: &str = "the number is of a value that is there";

/// Values by number. Freed numbers are reused, last freed first, so memory follows the largest
/// number of values held at once.
#[derive(Debug)]
pub(super) struct Slab<T> {
    all: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> Default for Slab<T> {
    fn default() -> Slab<T> {
        Slab {
            all: Vec::new(),
            free: Vec::new(),
        }
    }
}

impl<T> Slab<T> {
    /// Value of a number.
    ///
    /// # Panics
    /// When there is none.
    pub(super) fn get(&self, slot: u32) -> &T {
        self.all[slot as usize].as_ref().expect(NOT_THERE)
    }

    /// Value of a number, to be changed.
    ///
    /// # Panics
    /// When there is none.
    pub(super) fn get_mut(&mut self, slot: u32) -> &mut T {
        self.all[slot as usize].as_mut().expect(NOT_THERE)
    }

    /// Stores a value and returns its number.
    pub(super) fn put(&mut self, value: T) -> u32 {
        match self.free.pop() {
            Some(slot) => {
                self.all[slot as usize] = Some(value);
                slot
            }
            None => {
                self.all.push(Some(value));
                self.all.len() as u32 - 1
            }
        }
    }

    /// Removes the value of a number, which is free again.
    ///
    /// # Panics
    /// When there is none.
    pub(super) fn take(&mut self, slot: u32) -> T {
        let value = self.all[slot as usize].take();
        self.free.push(slot);
        value.expect(NOT_THERE)
    }

    /// Removes all values, in the order of their numbers.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = T> {
        // Numbers begin at 0 again; nobody may hold one of the drained values.
        self.free.clear();
        self.all.drain(..).flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_used_again_once_its_value_is_taken() {
        let mut slab = Slab::default();
        let numbers: Vec<u32> = ["a", "b", "c"].map(|name| slab.put(name)).to_vec();
        assert_eq!(numbers, [0, 1, 2]);
        assert_eq!((slab.take(1), slab.put("d"), slab.put("e")), ("b", 1, 3));
        assert_eq!(slab.take(0), "a");
        *slab.get_mut(1) = "D";
        assert_eq!((*slab.get(1), *slab.get(3)), ("D", "e"));
        assert_eq!(
            slab.all.iter().flatten().collect::<Vec<_>>(),
            [&"D", &"c", &"e"]
        );
        assert_eq!(slab.drain().collect::<Vec<_>>(), ["D", "c", "e"]);
        assert_eq!(slab.put("f"), 0);
    }

    #[test]
    #[should_panic(expected = "a value that is there")]
    fn a_value_is_taken_once() {
        let mut slab = Slab::default();
        let slot = slab.put(7);
        assert_eq!(slab.take(slot), 7);
        slab.take(slot);
    }
}
