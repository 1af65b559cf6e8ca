//! Slab: values in numbered slots that are reused, with generations that detect stale handles.

/// Slot number that means "no slot", such as the end of a list threaded through a slab.
pub const NIL: u32 = u32::MAX;

/// Values in numbered slots, reused in last-in, first-out order.
///
/// A slot's generation changes when it is given back, which tells handles of its former value from
/// those of its present one. A free slot keeps its last value, so giving back and taking move no
/// data.
#[derive(Debug)]
pub struct Slab<T> {
    slots: Vec<Slot<T>>,
    /// First free slot, or [`NIL`].
    free: u32,
}

#[derive(Debug)]
struct Slot<T> {
    value: T,
    /// Number of times that the slot was given back, modulo 2^32.
    generation: u32,
    /// Next slot in the list of free slots, or [`NIL`]; meaningful only while this slot is free.
    next_free: u32,
    taken: bool,
}

impl<T> Default for Slab<T> {
    fn default() -> Slab<T> {
        Slab::new()
    }
}

impl<T> Slab<T> {
    /// Creates a slab without slots.
    pub const fn new() -> Slab<T> {
        Slab {
            slots: Vec::new(),
            free: NIL,
        }
    }

    /// Adds slots until there are `slots`, each with a value made by `vacant`. New slots are taken
    /// after all slots that are free now, in ascending order.
    pub fn grow(&mut self, slots: u32, vacant: impl Fn() -> T) {
        let before = self.slots.len() as u32;
        // Slots are never taken away: handles and links name them.
        if slots <= before {
            return;
        }
        let slot = |next: u32| Slot {
            value: vacant(),
            generation: 0,
            next_free: if next == slots { NIL } else { next },
            taken: false,
        };
        self.slots.extend((before + 1..=slots).map(slot));
        // New slots go behind the last free one, so that used ones, which are cached, are taken
        // first.
        let (mut last, mut next) = (NIL, self.free);
        while next != NIL {
            (last, next) = (next, self.slots[next as usize].next_free);
        }
        match last {
            NIL => self.free = before,
            last => self.slots[last as usize].next_free = before,
        }
    }

    /// Returns the number of slots, taken and free.
    #[inline]
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Returns true if the slab has no slots at all.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Takes a free slot for `value` and returns its number; adds a slot if none is free.
    pub fn insert(&mut self, value: T) -> u32 {
        if let Some((index, _, slot)) = self.take() {
            *slot = value;
            return index;
        }
        self.slots.push(Slot {
            value,
            generation: 0,
            next_free: NIL,
            taken: true,
        });
        self.slots.len() as u32 - 1
    }

    /// Takes a free slot without adding any. Returns its number, its generation and its last value,
    /// or `None` if no slot is free.
    #[inline]
    pub fn take(&mut self) -> Option<(u32, u32, &mut T)> {
        let index = self.free;
        let slot = self.slots.get_mut(index as usize)?;
        self.free = slot.next_free;
        slot.taken = true;
        Some((index, slot.generation, &mut slot.value))
    }

    /// Gives a slot back and changes its generation.
    ///
    /// # Panics
    /// If the slot is free.
    #[inline]
    pub fn give_back(&mut self, index: u32) {
        let slot = &mut self.slots[index as usize];
        assert!(slot.taken, "a slot that is free is given back");
        slot.taken = false;
        slot.generation = slot.generation.wrapping_add(1);
        slot.next_free = self.free;
        self.free = index;
    }

    /// Gives a slot back if it is taken in this generation. Returns the value, which stays in the
    /// slot until it is taken again, or `None` if the handle is stale and nothing has changed.
    #[inline]
    pub fn give_back_if_current(&mut self, index: u32, generation: u32) -> Option<&T> {
        let slot = self.slots.get_mut(index as usize)?;
        // A stale handle must not free the slot of a later value.
        if !slot.taken || slot.generation != generation {
            return None;
        }
        slot.taken = false;
        slot.generation = generation.wrapping_add(1);
        // Last in, first out: the slot given back last is the most likely to be cached.
        slot.next_free = core::mem::replace(&mut self.free, index);
        Some(&slot.value)
    }

    /// Returns the generation of a slot.
    ///
    /// # Panics
    /// If the slab has no such slot, as with all methods that take a slot's number alone.
    #[inline]
    pub fn generation(&self, index: u32) -> u32 {
        self.slots[index as usize].generation
    }

    /// Returns whether a slot is taken.
    #[inline]
    pub fn is_taken(&self, index: u32) -> bool {
        self.slots[index as usize].taken
    }

    /// Returns the value of a taken slot, or `None` if the handle is stale.
    #[inline]
    pub fn get(&self, index: u32, generation: u32) -> Option<&T> {
        let slot = self.slots.get(index as usize)?;
        (slot.taken && slot.generation == generation).then_some(&slot.value)
    }

    /// Returns the value in a taken slot of this generation for changes; `None` if there is none.
    #[inline]
    pub fn get_mut(&mut self, index: u32, generation: u32) -> Option<&mut T> {
        let slot = self.slots.get_mut(index as usize)?;
        (slot.taken && slot.generation == generation).then_some(&mut slot.value)
    }

    /// Returns a slot's generation and value; a free slot has its last value.
    #[inline]
    pub fn entry(&self, index: u32) -> (u32, &T) {
        let slot = &self.slots[index as usize];
        (slot.generation, &slot.value)
    }

    /// Returns a slot's generation and mutable value; a free slot has its last value.
    #[inline]
    pub fn entry_mut(&mut self, index: u32) -> (u32, &mut T) {
        let slot = &mut self.slots[index as usize];
        (slot.generation, &mut slot.value)
    }

    /// Returns a slot's value whatever its generation; a free slot has its last value.
    #[inline]
    pub fn value_at(&self, index: u32) -> &T {
        &self.slots[index as usize].value
    }

    /// Returns a slot's mutable value whatever its generation.
    #[inline]
    pub fn value_at_mut(&mut self, index: u32) -> &mut T {
        &mut self.slots[index as usize].value
    }

    /// Iterates over the taken slots in the order of their numbers.
    pub fn taken(&self) -> impl Iterator<Item = (u32, &T)> {
        let slots = self.slots.iter().zip(0..);
        slots
            .filter(|(slot, _)| slot.taken)
            .map(|(slot, index)| (index, &slot.value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_used_again_under_another_generation() {
        let mut slab = Slab::new();
        assert_eq!(
            [slab.insert('a'), slab.insert('b'), slab.insert('c')],
            [0, 1, 2]
        );
        let before = slab.generation(1);
        assert_eq!(slab.get(1, before), Some(&'b'));
        slab.give_back(1);
        assert_eq!((slab.get(1, before), slab.is_taken(1)), (None, false));
        assert_eq!(*slab.value_at(1), 'b', "a free slot keeps its value");
        slab.give_back(0);
        // The slot that was given back last is taken first.
        assert_eq!(
            [slab.insert('d'), slab.insert('e'), slab.insert('f')],
            [0, 1, 3]
        );
        assert_eq!(
            (slab.get(1, before), slab.get(1, before + 1)),
            (None, Some(&'e'))
        );
        assert_eq!(slab.get(9, 0), None);
    }

    #[test]
    fn slots_that_were_added_are_taken_last_and_in_order() {
        let mut slab = Slab::new();
        slab.grow(2, || 0);
        let (index, _, value) = slab.take().expect("both are free");
        assert_eq!(index, 0);
        *value = 5;
        slab.grow(4, || 9);
        slab.grow(3, || 7);
        assert_eq!(slab.len(), 4);
        assert_eq!([slab.insert(1), slab.insert(2), slab.insert(3)], [1, 2, 3]);
        assert!(slab.take().is_none());
        let all: Vec<_> = slab.taken().map(|(index, &value)| (index, value)).collect();
        assert_eq!(all, [(0, 5), (1, 1), (2, 2), (3, 3)]);
    }

    #[test]
    #[should_panic(expected = "free is given back")]
    fn a_slot_is_given_back_once() {
        let mut slab = Slab::new();
        let index = slab.insert(());
        slab.give_back(index);
        slab.give_back(index);
    }
}
