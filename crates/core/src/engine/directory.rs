//! Disks of VMs, and the clients that have them open.

use super::EngineError;
use super::disks::DiskSpec;
use crate::view::Requests;
use tidegate_base::request::{ClientId, DiskId};
use tidegate_base::slab::Slab;

/// Disk of a VM.
pub(super) struct Disk {
    /// The disk was removed, but the last request of its last client is not answered yet.
    pub leaving: bool,
    /// Requests may have to wait for a limit of the disk.
    pub limited: bool,
    /// Slot of the VM.
    pub vm: u32,
    /// Clients that have it open, or had it and have requests inside the engine still.
    pub clients: u32,
    pub spec: DiskSpec,
}

/// Connection of a client to a disk.
pub(super) struct Client {
    pub connected: bool,
    /// Payloads lie in memory of the client's own; see
    /// [`PayloadMemory::Own`](super::PayloadMemory::Own).
    pub own_memory: bool,
    /// Slots of the VM and of the disk.
    pub vm: u32,
    pub disk: u32,
    /// Requests of the client inside the engine.
    pub requests: u32,
}

/// Client one of whose requests was answered.
pub(super) struct LeftClient {
    pub id: ClientId,
    pub own_memory: bool,
    /// The client has gone, and the request was its last: [`Directory::free_client`] is due.
    pub is_last: bool,
}

/// All disks and clients. A client's slot stays taken until its last request is answered, a disk's
/// until its last client's slot is free.
pub(super) struct Directory {
    disks: Slab<Disk>,
    clients: Slab<Client>,
}

impl Directory {
    pub(super) fn new() -> Directory {
        Directory {
            disks: Slab::new(),
            clients: Slab::new(),
        }
    }

    /// Adds a disk to the VM in slot `vm`.
    pub(super) fn add_disk(&mut self, vm: u32, spec: DiskSpec) -> DiskId {
        let disk = Disk {
            leaving: false,
            limited: false,
            vm,
            clients: 0,
            spec,
        };
        let slot = self.disks.insert(disk);
        self.disk_id(slot)
    }

    /// Returns the number of disk slots, taken and free.
    pub(super) fn disk_slots(&self) -> usize {
        self.disks.len()
    }

    /// Handle of the disk in a slot.
    #[inline]
    pub(super) fn disk_id(&self, slot: u32) -> DiskId {
        DiskId {
            index: slot,
            generation: self.disks.generation(slot),
        }
    }

    /// Disk of a handle; `None`: it was removed, or never existed.
    pub(super) fn disk(&self, id: DiskId) -> Option<&Disk> {
        let disk = self.disks.get(id.index, id.generation);
        disk.filter(|disk| !disk.leaving)
    }

    /// Disk of a handle, or an error.
    ///
    /// # Errors
    /// [`EngineError::Unknown`]: it was removed, or never existed.
    pub(super) fn known_disk(&self, id: DiskId) -> Result<&Disk, EngineError> {
        let disk = self.disk(id);
        disk.ok_or(EngineError::Unknown { what: "the disk" })
    }

    /// Returns whether a handle names what is in its slot, be it leaving or free.
    pub(super) fn is_current(&self, id: DiskId) -> bool {
        id.index() < self.disks.len() && self.disks.generation(id.index) == id.generation
    }

    /// Handle of the disk in a slot, and its first byte on the device.
    #[inline]
    pub(super) fn id_and_base(&self, slot: u32) -> (DiskId, u64) {
        let (generation, disk) = self.disks.entry(slot);
        let id = DiskId {
            index: slot,
            generation,
        };
        (id, disk.spec.base)
    }

    /// Disk in a slot.
    #[inline]
    pub(super) fn disk_at(&self, slot: u32) -> &Disk {
        self.disks.value_at(slot)
    }

    /// Returns whether a request reaches beyond its disk's end, which may have been moved since it
    /// arrived.
    pub(super) fn is_beyond_end(&self, reqs: &Requests, slot: u32) -> bool {
        let hot = &reqs.hot[slot as usize];
        let spec = &self.disk_at(reqs.cold[slot as usize].disk).spec;
        // A request in flight beyond a new end keeps its offset when the disk moves, so its address
        // may have wrapped.
        hot.addr.wrapping_sub(spec.base) + u64::from(hot.len) > spec.size
    }

    /// Changes place and size of a disk.
    pub(super) fn set_spec(&mut self, slot: u32, spec: DiskSpec) {
        self.disks.value_at_mut(slot).spec = spec;
    }

    /// Notes whether a disk has a limit.
    pub(super) fn set_limited(&mut self, slot: u32, limited: bool) {
        self.disks.value_at_mut(slot).limited = limited;
    }

    /// Slots of a VM's disks that are not leaving.
    pub(super) fn disks_of(&self, vm: u32) -> Vec<u32> {
        let of_vm = |(_, disk): &(u32, &Disk)| disk.vm == vm && !disk.leaving;
        self.disks
            .taken()
            .filter(of_vm)
            .map(|(slot, _)| slot)
            .collect()
    }

    /// Begins to remove a disk: its clients are disconnected, and its slot is held until
    /// [`Directory::end_leaving`].
    pub(super) fn begin_leaving(&mut self, slot: u32) {
        let disk = self.disks.value_at_mut(slot);
        assert!(!disk.leaving, "a disk is removed twice");
        disk.leaving = true;
        // One client that does not exist: the slot must stay taken until the caller is done.
        disk.clients += 1;
    }

    /// Drops the hold of [`Directory::begin_leaving`] on a disk's slot, which is free without
    /// clients.
    pub(super) fn end_leaving(&mut self, slot: u32) {
        let disk = self.disks.value_at_mut(slot);
        assert!(
            disk.leaving && disk.clients > 0,
            "the hold on a disk's slot is dropped once, after its removal began"
        );
        disk.clients -= 1;
        if disk.clients == 0 {
            self.disks.give_back(slot);
        }
    }

    /// Frees the slot of a disk whose VM is gone with all its clients.
    ///
    /// # Panics
    /// If a client is left, which would find another disk in the slot.
    pub(super) fn remove_disk(&mut self, slot: u32) {
        let clients = self.disks.value_at(slot).clients;
        assert_eq!(clients, 0, "disk slot {slot} is freed with clients");
        self.disks.give_back(slot);
    }

    /// Connects a client to the disk in a slot, with memory of its own for payloads or without.
    pub(super) fn connect(&mut self, disk: u32, own_memory: bool) -> ClientId {
        let of_disk = self.disks.value_at_mut(disk);
        assert!(!of_disk.leaving, "a client connects to a removed disk");
        of_disk.clients += 1;
        let client = Client {
            connected: true,
            own_memory,
            vm: of_disk.vm,
            disk,
            requests: 0,
        };
        let slot = self.clients.insert(client);
        self.client_id(slot)
    }

    /// Handle of the client in a slot.
    #[inline]
    pub(super) fn client_id(&self, slot: u32) -> ClientId {
        ClientId {
            index: slot,
            generation: self.clients.generation(slot),
        }
    }

    /// Connected client of a handle; `None`: it was disconnected.
    #[inline]
    pub(super) fn client(&self, id: ClientId) -> Option<&Client> {
        let client = self.clients.get(id.index, id.generation);
        client.filter(|client| client.connected)
    }

    /// Client in a slot.
    #[inline]
    pub(super) fn client_at(&self, slot: u32) -> &Client {
        self.clients.value_at(slot)
    }

    /// Slots of the connected clients that `selects` returns true for.
    pub(super) fn connected(&self, selects: impl Fn(&Client) -> bool) -> Vec<u32> {
        let is_selected = |(_, client): &(u32, &Client)| client.connected && selects(client);
        self.clients
            .taken()
            .filter(is_selected)
            .map(|(slot, _)| slot)
            .collect()
    }

    /// Connected client of a handle, for a request that arrives, and its disk; `None`: it was
    /// disconnected.
    #[inline]
    pub(super) fn client_and_disk(&mut self, id: ClientId) -> Option<(&mut Client, &Disk)> {
        let client = self.clients.get_mut(id.index, id.generation)?;
        if !client.connected {
            return None;
        }
        let disk = self.disks.value_at(client.disk);
        Some((client, disk))
    }

    /// Counts a request of a client that is answered. Returns the client.
    #[inline]
    pub(super) fn request_left(&mut self, slot: u32) -> LeftClient {
        let (generation, client) = self.clients.entry_mut(slot);
        client.requests -= 1;
        LeftClient {
            id: ClientId {
                index: slot,
                generation,
            },
            own_memory: client.own_memory,
            is_last: !client.connected && client.requests == 0,
        }
    }

    /// Disconnects a client; its slot is free once its last request is answered.
    pub(super) fn release_client(&mut self, slot: u32) {
        let client = self.clients.value_at_mut(slot);
        assert!(client.connected, "client slot {slot} is disconnected twice");
        client.connected = false;
        if client.requests == 0 {
            self.free_client(slot);
        }
    }

    /// Frees the slot of a client that has gone, and with the last one that of a disk that was
    /// removed.
    pub(super) fn free_client(&mut self, slot: u32) {
        let client = self.clients.value_at(slot);
        assert!(
            !client.connected && client.requests == 0,
            "a client's slot is freed while it is in use"
        );
        self.clients.give_back(slot);
        // A slot that was given back stays readable until it is taken again.
        let disk = self.clients.value_at(slot).disk;
        let of_disk = self.disks.value_at_mut(disk);
        assert!(of_disk.clients > 0, "a client of a disk was not counted");
        of_disk.clients -= 1;
        if of_disk.leaving && of_disk.clients == 0 {
            // The disk was kept only for this client's requests.
            self.disks.give_back(disk);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPEC: DiskSpec = DiskSpec {
        base: 0,
        size: 4096,
        read_only: false,
    };

    #[test]
    fn a_removed_disk_stays_until_the_last_request_of_its_clients() {
        let mut all = Directory::new();
        let disk = all.add_disk(7, SPEC);
        let (idle, busy) = (
            all.connect(disk.index, false),
            all.connect(disk.index, false),
        );
        all.clients.value_at_mut(busy.index).requests += 1;
        all.begin_leaving(disk.index);
        assert!(all.disk(disk).is_none() && all.is_current(disk));
        for slot in all.connected(|client| client.disk == disk.index) {
            all.release_client(slot);
        }
        all.end_leaving(disk.index);
        assert!(all.client(idle).is_none() && all.client(busy).is_none());
        // The idle client's slot is free, the busy one's and the disk's are not.
        assert_eq!(all.add_disk(7, SPEC).index, 1);
        assert!(all.request_left(busy.index).is_last);
        all.free_client(busy.index);
        assert!(!all.is_current(disk));
        let again = all.add_disk(8, SPEC);
        assert_eq!((again.index, again == disk), (disk.index, false));
    }

    #[test]
    fn disks_and_clients_are_found_by_their_vm() {
        let mut all = Directory::new();
        let disks = [1, 2, 1].map(|vm| all.add_disk(vm, SPEC).index);
        let client = all.connect(disks[2], true);
        assert_eq!(all.disks_of(1), [disks[0], disks[2]]);
        assert_eq!(all.connected(|client| client.vm == 1), [client.index]);
        assert_eq!(all.connected(|client| client.vm == 2), []);
        assert!(!all.request_came_and_left(client.index));
    }

    impl Directory {
        fn request_came_and_left(&mut self, client: u32) -> bool {
            self.clients.value_at_mut(client).requests += 1;
            self.request_left(client).is_last
        }
    }
}
