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
    /// `None`: not charged yet, because the run is not published.
    charge: Mutex<Option<Charge>>,
}

impl RunTombstones {
    /// The tombstones; the first call computes them from the list that `list` returns.
    pub(super) fn get_or_build(
        &self,
        list: impl FnOnce() -> Vec<RangeTombstone>,
    ) -> &Arc<FragmentedTombstones> {
        if let Some(built) = self.built.get() {
            return built;
        }
        let built = self.built.get_or_init(|| Arc::new(FragmentedTombstones::new(list())));
        // Outside of `get_or_init`: other readers wait for that, and must not wait for this lock.
        self.fit(&mut lock(&self.charge));
        built
    }

    pub(super) fn is_charged(&self) -> bool {
        lock(&self.charge).is_some()
    }

    /// Takes the charge, and reduces it if the tombstones were computed already.
    pub(super) fn take_charge(&self, charge: Charge) {
        let mut own = lock(&self.charge);
        *own = Some(charge);
        self.fit(&mut own);
    }

    fn fit(&self, charge: &mut Option<Charge>) {
        if let (Some(built), Some(charge)) = (self.built.get(), charge) {
            charge.resize(built.memory_bytes());
        }
    }
}
