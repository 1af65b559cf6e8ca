//! Requests of a torture run: their clients, the floors of reads, and payload memory.

/// Requests that were accepted, by their numbers in the ledger.
#[derive(Default)]
pub(super) struct RequestTable {
    /// Number of each request's client.
    clients: Vec<u32>,
    /// Floors that were current when each read was accepted.
    floors: Vec<Vec<u64>>,
    /// Lists of floors for reuse.
    spare_floors: Vec<Vec<u64>>,
    /// `true` for requests that hold, or held, payload memory.
    fed: Vec<bool>,
}

impl RequestTable {
    /// Empty list for the floors of a request that is about to be added.
    pub(super) fn empty_floors(&mut self) -> Vec<u64> {
        let mut floors = self.spare_floors.pop().unwrap_or_default();
        floors.clear();
        floors
    }

    /// Adds the next request; `fed` states that it holds payload memory.
    pub(super) fn add(&mut self, client: u32, floors: Vec<u64>, fed: bool) {
        self.clients.push(client);
        self.floors.push(floors);
        self.fed.push(fed);
    }

    /// Number of a request's client.
    pub(super) fn client(&self, request: u32) -> u32 {
        self.clients[request as usize]
    }

    /// Floors of a request that is open.
    pub(super) fn floors(&self, request: u32) -> &[u64] {
        &self.floors[request as usize]
    }

    /// Frees the floors of a request that is answered.
    pub(super) fn answered(&mut self, request: u32) {
        let floors = core::mem::take(&mut self.floors[request as usize]);
        self.spare_floors.push(floors);
    }

    /// True if a request holds, or held, payload memory.
    pub(super) fn is_fed(&self, request: u32) -> bool {
        self.fed[request as usize]
    }

    /// Notes that a request holds payload memory. True if it did not before.
    pub(super) fn feed(&mut self, request: u32) -> bool {
        !core::mem::replace(&mut self.fed[request as usize], true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floors_are_those_of_the_request_and_gone_once_it_is_answered() {
        let mut requests = RequestTable::default();
        for client in [7, 9] {
            let mut floors = requests.empty_floors();
            assert!(floors.is_empty());
            floors.push(client.into());
            requests.add(client, floors, client == 9);
        }
        assert_eq!((requests.client(1), requests.floors(1)), (9, &[9][..]));
        requests.answered(1);
        assert!(requests.floors(1).is_empty() && requests.empty_floors().is_empty());
        assert_eq!(requests.floors(0), [7]);
    }

    #[test]
    fn a_request_is_fed_once() {
        let mut requests = RequestTable::default();
        requests.add(0, Vec::new(), false);
        assert!(!requests.is_fed(0));
        assert_eq!((requests.feed(0), requests.feed(0)), (true, false));
        assert!(requests.is_fed(0));
    }
}
