//! Division of a late request's wait between the VM itself and others.
//!
//! The VM served just before a request is a poor witness: of two requests that a VM sends at once,
//! the second one follows the first however long both waited behind others. So the time that the
//! VM's own I/Os took of the device while the request was inside is estimated, from their number
//! and a usual I/O's time. The rest of the wait is others', if there are any. All of it is computed
//! for late requests only; others have the number of answers at their arrival recorded, no more.

use tidegate_base::request::Account;
use tidegate_base::time::Nanos;

/// Circumstances of a late request that its account does not tell.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Circumstances {
    /// Another VM was served just before the request, or has requests inside now.
    pub beside_others: bool,
    /// The device serves I/Os one after the other, however many it has: it seeks.
    pub is_serial: bool,
    /// I/Os with the device when the request's ended, itself included: at least 1.
    pub concurrency: u32,
    /// Requests of the VM that were answered so far, the late one included, modulo 2^32.
    pub answered: u32,
    /// Requests of the VM for each 1024 I/Os of its requests so far, at least 1024: more where
    /// requests were merged.
    pub requests_per_1024_ios: u64,
    /// Mean time of the VM's requests with the device so far.
    pub mean_device: Nanos,
}

/// Divides the time of a late request among the VM's own limit, others and the device, in
/// nanoseconds. `answered`: requests of the VM that had been answered when this one arrived.
pub(super) fn divide(account: &Account, answered: u32, of: Circumstances) -> [u64; 3] {
    let (device, concurrency) = (account.device.0, u64::from(of.concurrency.max(1)));
    // A device that serves n I/Os in turn gives each of them 1 / n of its time there as its own
    // service (Little's law); the rest of that time is a wait like that in the queue.
    let own_service = if of.is_serial {
        device / concurrency
    } else {
        device
    };
    let waits = account.admission + account.queued + account.merged_wait;
    let wait = waits.0 + (device - own_service);
    let for_others = if of.beside_others {
        let requests = of.answered.wrapping_sub(answered).saturating_sub(1);
        let ios = u64::from(requests) * 1024 / of.requests_per_1024_ios.max(1024);
        // The mean alone would lag behind a device that has become slower.
        let each = device.max(of.mean_device.0) / concurrency;
        wait.saturating_sub(ios.saturating_mul(each))
    } else {
        0
    };
    [
        account.regulated.0,
        account.deliberate.0 + for_others,
        own_service + (wait - for_others),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A queue in front of a device that has one I/O at a time, beside others.
    const ONE_AT_A_TIME: Circumstances = Circumstances {
        beside_others: true,
        is_serial: true,
        concurrency: 1,
        answered: 1,
        requests_per_1024_ios: 1024,
        mean_device: Nanos(10),
    };

    fn account(queued: u64, device: u64) -> Account {
        Account {
            queued: Nanos(queued),
            device: Nanos(device),
            ..Account::default()
        }
    }

    #[test]
    fn what_the_own_ios_did_not_take_of_a_wait_is_others() {
        // The VM's own I/Os take 10 each of a wait of 250: none was answered since the late one
        // arrived in the first case, one in the second, and more than fit in the last two.
        for (answered, others) in [(1, 250), (2, 240), (26, 0), (100, 0)] {
            let of = Circumstances {
                answered,
                ..ONE_AT_A_TIME
            };
            let divided = divide(&account(250, 10), 0, of);
            assert_eq!(divided, [0, others, 260 - others], "{answered}");
        }
        // The number of answers wraps around.
        let of = Circumstances {
            answered: 0,
            ..ONE_AT_A_TIME
        };
        assert_eq!(divide(&account(250, 10), u32::MAX - 1, of), [0, 240, 20]);
        // Four requests went in each I/O.
        let of = Circumstances {
            answered: 101,
            requests_per_1024_ios: 4096,
            ..ONE_AT_A_TIME
        };
        assert_eq!(divide(&account(350, 10), 0, of), [0, 100, 260]);
    }

    #[test]
    fn a_vm_alone_waits_for_itself_however_short_its_usual_ios() {
        let alone = Circumstances {
            beside_others: false,
            ..ONE_AT_A_TIME
        };
        assert_eq!(divide(&account(250, 10), 0, alone), [0, 0, 260]);
        // Beside others, a device that became slower is no work of theirs.
        let of = Circumstances {
            answered: 3,
            ..ONE_AT_A_TIME
        };
        assert_eq!(divide(&account(200, 100), 0, of), [0, 0, 300]);
    }

    #[test]
    fn time_inside_a_device_that_seeks_is_a_wait_for_the_ios_in_it() {
        // 32 I/Os inside for 320 each: 10 for each of them, one more of which was the VM's.
        let of = Circumstances {
            concurrency: 32,
            answered: 2,
            mean_device: Nanos(320),
            ..ONE_AT_A_TIME
        };
        assert_eq!(divide(&account(0, 320), 0, of), [0, 300, 20]);
        let parallel = Circumstances {
            is_serial: false,
            ..of
        };
        assert_eq!(divide(&account(0, 320), 0, parallel), [0, 0, 320]);
    }

    #[test]
    fn limits_and_deliberate_waits_are_not_divided() {
        let account = Account {
            regulated: Nanos(7),
            deliberate: Nanos(5),
            merged_wait: Nanos(4),
            ..account(2, 1)
        };
        let of = Circumstances {
            answered: 4,
            mean_device: Nanos(1),
            ..ONE_AT_A_TIME
        };
        assert_eq!(divide(&account, 0, of), [7, 5 + 3, 1 + 3]);
    }

    proptest! {
        /// Causes share the time of a request: nothing is left out, and nothing counts twice.
        #[test]
        fn causes_add_up_to_the_time_of_the_request(
            parts in prop::array::uniform6(0u64..1 << 40),
            before in any::<u32>(),
            since in 0u32..1000,
            mean in 0u64..1 << 40,
            concurrency in 1u32..1000,
            requests_per_1024_ios in 1024u64..1 << 20,
            beside_others in any::<bool>(),
            is_serial in any::<bool>(),
        ) {
            let mut account = Account::default();
            account.add(parts);
            let of = Circumstances {
                beside_others,
                is_serial,
                concurrency,
                answered: before.wrapping_add(since),
                requests_per_1024_ios,
                mean_device: Nanos(mean),
            };
            let divided = divide(&account, before, of);
            prop_assert_eq!(divided.iter().sum::<u64>(), parts.iter().sum::<u64>());
            prop_assert_eq!(divided[0], account.regulated.0);
            prop_assert!(divided[1] >= account.deliberate.0);
            prop_assert!(beside_others || divided[1] == account.deliberate.0);
        }
    }
}
