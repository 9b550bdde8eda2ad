//! The range tombstones of a run, computed by the first reader, and the memory charged for them.
//!
//! The owner of the memory charges the maximum when it publishes the run, because readers cannot
//! make room. The first reader computes the tombstones and reduces the charge to their size.

use std::sync::{Arc, OnceLock};

use shamba_env::lock;
use shamba_table::{Charge, FragmentedTombstones, RangeTombstone};

use crate::sync::Mutex;

/// The range tombstones of a run.
#[derive(Default, Debug)]
pub(super) struct RunTombstones {
    built: OnceLock<Arc<FragmentedTombstones>>,
    memory: Mutex<Memory>,
}

#[derive(Default, Debug)]
struct Memory {
    /// Size of the structure, once it was computed.
    built_bytes: Option<u64>,
    /// `None`: not published, so no owner of memory knows the run.
    charge: Option<Charge>,
}

impl Memory {
    fn fit(&mut self) {
        if let (Some(bytes), Some(charge)) = (self.built_bytes, &mut self.charge) {
            charge.resize(bytes);
        }
    }
}

impl RunTombstones {
    /// The tombstones; the first call computes them from the list that `list` returns.
    pub(super) fn get_or_build(
        &self,
        list: impl FnOnce() -> Vec<RangeTombstone>,
    ) -> &Arc<FragmentedTombstones> {
        self.built.get_or_init(|| {
            let built = FragmentedTombstones::new(list());
            let mut memory = lock(&self.memory);
            memory.built_bytes = Some(built.memory_bytes());
            memory.fit();
            Arc::new(built)
        })
    }

    pub(super) fn is_charged(&self) -> bool {
        lock(&self.memory).charge.is_some()
    }

    /// Takes the charge, and reduces it if the tombstones were computed already.
    pub(super) fn take_charge(&self, charge: Charge) {
        let mut memory = lock(&self.memory);
        memory.charge = Some(charge);
        memory.fit();
    }
}
