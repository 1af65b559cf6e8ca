//! Things that an event is about, by the number that the event carries.

/// Numbers are used again, so there are as many places as were ever taken at once.
#[derive(Debug)]
pub(super) struct Slots<T> {
    all: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> Default for Slots<T> {
    fn default() -> Slots<T> {
        Slots {
            all: Vec::new(),
            free: Vec::new(),
        }
    }
}

impl<T> Slots<T> {
    /// Keeps it; its number.
    pub(super) fn put(&mut self, thing: T) -> u32 {
        match self.free.pop() {
            Some(slot) => {
                self.all[slot as usize] = Some(thing);
                slot
            }
            None => {
                self.all.push(Some(thing));
                self.all.len() as u32 - 1
            }
        }
    }

    /// The thing of this number, which is free again.
    ///
    /// # Panics
    /// When there is none.
    pub(super) fn take(&mut self, slot: u32) -> T {
        let thing = self.all[slot as usize].take();
        self.free.push(slot);
        thing.expect("an event is about something that is there, and happens once")
    }

    /// All there are; none is left.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = T> {
        self.free.clear();
        self.all.drain(..).flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_used_again_once_its_thing_is_taken() {
        let mut slots = Slots::default();
        let numbers: Vec<u32> = ["a", "b", "c"].map(|name| slots.put(name)).to_vec();
        assert_eq!(numbers, [0, 1, 2]);
        assert_eq!((slots.take(1), slots.put("d"), slots.put("e")), ("b", 1, 3));
        assert_eq!(slots.take(0), "a");
        assert_eq!(slots.drain().collect::<Vec<_>>(), ["d", "c", "e"]);
        assert_eq!(slots.put("f"), 0);
    }
}
