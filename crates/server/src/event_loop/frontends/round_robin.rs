//! Round robin of the connections: each one that has something to poll gets a turn with a budget.

use std::collections::VecDeque;

use crate::frontend::interface::ConnectionRef;

/// Lists of connections to be served, by their index in the loop.
#[derive(Debug, Default)]
pub(super) struct RoundRobin {
    /// Connections with something to poll, in the order of their turns.
    ready: VecDeque<u32>,
    /// Connections with something to send or to receive.
    touched: Vec<u32>,
    /// Connections that wait for the kernel to take what they submitted.
    submitted: Vec<ConnectionRef>,
    /// Lists that each connection is in, by its index.
    marks: Vec<Marks>,
}

#[derive(Clone, Copy, Default, Debug)]
struct Marks {
    ready: bool,
    touched: bool,
}

impl RoundRobin {
    /// Makes room for the connection at an index. Its marks stay if the index was used before.
    pub(super) fn add(&mut self, index: u32) {
        let len = self.marks.len().max(index as usize + 1);
        self.marks.resize(len, Marks::default());
    }

    /// Queues a connection with something to poll for its turn.
    #[inline]
    pub(super) fn make_ready(&mut self, index: u32) {
        let marks = &mut self.marks[index as usize];
        if !std::mem::replace(&mut marks.ready, true) {
            self.ready.push_back(index);
        }
    }

    /// Returns true if the connection waits for its turn.
    #[inline]
    pub(super) fn is_ready(&self, index: u32) -> bool {
        self.marks[index as usize].ready
    }

    /// Returns the number of connections that wait for their turn.
    #[inline]
    pub(super) fn waiting(&self) -> usize {
        self.ready.len()
    }

    /// Takes the connection whose turn it is. The connection may have been removed meanwhile.
    #[inline]
    pub(super) fn next_ready(&mut self) -> Option<u32> {
        let index = self.ready.pop_front()?;
        self.marks[index as usize].ready = false;
        Some(index)
    }

    /// Marks a connection for the exchange at the end of this turn of the loop.
    #[inline]
    pub(super) fn touch(&mut self, index: u32) {
        let marks = &mut self.marks[index as usize];
        if !std::mem::replace(&mut marks.touched, true) {
            self.touched.push(index);
        }
    }

    /// Takes the list of touched connections. A connection in it counts as touched until
    /// [`RoundRobin::begin_exchange`] is called for it.
    #[inline]
    pub(super) fn take_touched(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.touched)
    }

    /// Notes that the exchange of a touched connection begins: from now on it may be touched anew.
    #[inline]
    pub(super) fn begin_exchange(&mut self, index: u32) {
        self.marks[index as usize].touched = false;
    }

    /// Notes that a connection stays in the list for the next turn.
    #[inline]
    pub(super) fn keep_touched(&mut self, index: u32) {
        self.marks[index as usize].touched = true;
    }

    /// Puts the list back with the connections that stay in it, ahead of those touched meanwhile.
    #[inline]
    pub(super) fn put_touched(&mut self, mut touched: Vec<u32>) {
        touched.append(&mut self.touched);
        self.touched = touched;
    }

    /// Has a connection notified once the kernel has taken what was submitted.
    pub(super) fn await_submission(&mut self, connection_ref: ConnectionRef) {
        self.submitted.push(connection_ref);
    }

    /// Takes a connection whose submission has ended; the order within a batch is arbitrary.
    pub(super) fn next_submitted(&mut self) -> Option<ConnectionRef> {
        self.submitted.pop()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turns(connections: u32) -> RoundRobin {
        let mut turns = RoundRobin::default();
        (0..connections).for_each(|index| turns.add(index));
        turns
    }

    #[test]
    fn each_connection_has_one_turn_before_any_has_a_second() {
        let mut turns = turns(3);
        for index in [2, 0, 2, 1, 0] {
            turns.make_ready(index);
        }
        assert_eq!(turns.waiting(), 3);
        assert_eq!(turns.next_ready(), Some(2));
        assert!(!turns.is_ready(2) && turns.is_ready(0));
        turns.make_ready(2);
        let rest: Vec<u32> = std::iter::from_fn(|| turns.next_ready()).collect();
        assert_eq!(rest, [0, 1, 2]);
    }

    #[test]
    fn what_is_touched_while_the_list_is_out_is_in_the_next_one() {
        let mut turns = turns(3);
        turns.touch(0);
        turns.touch(1);
        turns.touch(0);
        let mut list = turns.take_touched();
        assert_eq!(list, [0, 1]);
        turns.begin_exchange(0);
        turns.begin_exchange(1);
        turns.keep_touched(1);
        turns.touch(0);
        turns.touch(1);
        list.retain(|&index| index == 1);
        turns.put_touched(list);
        assert_eq!(turns.take_touched(), [1, 0]);
    }

    #[test]
    fn a_place_that_is_added_again_stays_in_its_lists() {
        let mut turns = turns(1);
        turns.make_ready(0);
        turns.add(0);
        turns.make_ready(0);
        assert_eq!((turns.next_ready(), turns.next_ready()), (Some(0), None));
    }
}
