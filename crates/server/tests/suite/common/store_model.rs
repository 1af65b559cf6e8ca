//! Random changes of a store, reproducible from a seed, and their expected result.

use std::collections::BTreeMap;

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use serde_json::json;
use tidegate_server::store::{Change, Scope, Store, StoreError, VmRecord};

/// Number of names, small enough that most changes meet an existing record.
const NAMES: u32 = 24;
const DEVICES: [&str; 2] = ["disk0", "disk1"];
const POLICIES: [&str; 2] = ["flubber", "edf-credit"];

/// Change of a store as plain data.
#[derive(Clone, Debug)]
pub enum Step {
    Put(VmRecord),
    Remove(String),
    Learn(Key, Vec<u8>),
    Forget(String),
    /// Replaces the learnt states of a policy on a device: device, policy, states by VM.
    Replace(&'static str, &'static str, Vec<(String, Vec<u8>)>),
    /// Several changes in one transaction.
    Batch(Vec<Step>),
}

/// Key of a learnt state: VM, device, policy.
type Key = (String, &'static str, &'static str);

fn name(number: u32) -> String {
    format!("vm{number:02}")
}

impl Step {
    /// Returns change number `number` of the series of `seed`.
    pub fn draw(seed: u64, number: u64) -> Step {
        let mut rng = Pcg64::seed_from_u64(seed ^ number.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        match rng.random_range(0..10) {
            0 => {
                let steps = rng.random_range(2..12);
                let mut steps: Vec<_> = (0..steps).map(|_| Step::single(&mut rng)).collect();
                steps.retain(|step| !matches!(step, Step::Replace(..)));
                Step::Batch(steps)
            }
            _ => Step::single(&mut rng),
        }
    }

    fn single(rng: &mut Pcg64) -> Step {
        let name = name(rng.random_range(0..NAMES));
        // Most states are small, a few take many pages.
        let size = match rng.random_range(0..8) {
            0 => rng.random_range(4_000..40_000),
            _ => rng.random_range(0..600),
        };
        match rng.random_range(0..10) {
            0..5 => {
                let letter = char::from(b'a' + rng.random_range(0..26));
                let words = json!({ "name": name, "note": String::from(letter).repeat(size) });
                let scope = match rng.random_range(0..3) {
                    0 => Scope::Objective,
                    _ => Scope::Whole,
                };
                Step::Put(VmRecord::new(name, scope, &words))
            }
            5 | 6 => Step::Remove(name),
            7 => Step::Forget(name),
            what => {
                let device = DEVICES[rng.random_range(0..DEVICES.len())];
                let policy = POLICIES[rng.random_range(0..POLICIES.len())];
                if what == 8 {
                    return Step::Learn((name, device, policy), vec![rng.random(); size]);
                }
                let states = (0..NAMES).step_by(rng.random_range(1..9));
                let states = states.map(|vm| (self::name(vm), vec![rng.random(); size % 50]));
                Step::Replace(device, policy, states.collect())
            }
        }
    }

    pub fn apply(&self, store: &Store) -> Result<(), StoreError> {
        match self {
            Step::Put(vm) => store.put_vm(vm),
            Step::Remove(name) => store.remove_vm(name).map(drop),
            Step::Learn((vm, device, policy), state) => store.put_learnt(device, policy, vm, state),
            Step::Forget(vm) => store.forget_learnt(vm).map(drop),
            Step::Replace(device, policy, states) => {
                let states: Vec<_> = (states.iter())
                    .map(|(vm, state)| (vm.as_str(), state.as_slice()))
                    .collect();
                let change = Change::ReplaceLearnt {
                    device,
                    policy,
                    states: &states,
                };
                store.apply(&[change]).map(drop)
            }
            Step::Batch(steps) => {
                let changes: Vec<_> = steps.iter().map(Step::change).collect();
                store.apply(&changes).map(drop)
            }
        }
    }

    fn change(&self) -> Change<'_> {
        match self {
            Step::Put(vm) => Change::PutVm(vm),
            Step::Remove(name) => Change::RemoveVm(name),
            Step::Learn((vm, device, policy), state) => Change::PutLearnt {
                device,
                policy,
                vm,
                state,
            },
            Step::Forget(vm) => Change::ForgetLearnt { vm },
            Step::Replace(..) | Step::Batch(_) => panic!("not in a batch"),
        }
    }
}

/// Expected content of a store.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct StoreModel {
    vms: BTreeMap<String, VmRecord>,
    learnt: BTreeMap<Key, Vec<u8>>,
}

impl StoreModel {
    pub fn after(mut self, step: &Step) -> StoreModel {
        self.take(step);
        self
    }

    fn take(&mut self, step: &Step) {
        match step {
            Step::Put(vm) => {
                self.vms.insert(vm.name.clone(), vm.clone());
            }
            Step::Remove(name) => {
                self.vms.remove(name);
            }
            Step::Learn(key, state) => {
                self.learnt.insert(key.clone(), state.clone());
            }
            Step::Forget(vm) => self.learnt.retain(|key, _| key.0 != *vm),
            Step::Replace(device, policy, states) => {
                (self.learnt).retain(|key, _| (key.1, key.2) != (*device, *policy));
                for (vm, state) in states {
                    let key = (vm.clone(), *device, *policy);
                    self.learnt.insert(key, state.clone());
                }
            }
            Step::Batch(steps) => steps.iter().for_each(|step| self.take(step)),
        }
    }

    /// Reads the content of a store.
    pub fn read(store: &Store) -> Result<StoreModel, StoreError> {
        let mut kept = StoreModel::default();
        for vm in store.vms()? {
            kept.vms.insert(vm.name.clone(), vm);
        }
        for number in 0..NAMES {
            let vm = name(number);
            for device in DEVICES {
                for policy in POLICIES {
                    if let Some(state) = store.learnt(device, policy, &vm)? {
                        kept.learnt.insert((vm.clone(), device, policy), state);
                    }
                }
            }
        }
        Ok(kept)
    }

    /// Lists the VMs and states that differ, for messages.
    pub fn differences(&self, other: &StoreModel) -> Vec<String> {
        let vms = (self.vms.keys().chain(other.vms.keys()))
            .filter(|name| self.vms.get(*name) != other.vms.get(*name))
            .cloned();
        let learnt = (self.learnt.keys().chain(other.learnt.keys()))
            .filter(|key| self.learnt.get(*key) != other.learnt.get(*key))
            .map(|key| format!("{key:?}"));
        vms.chain(learnt).collect()
    }
}
