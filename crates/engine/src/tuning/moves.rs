//! Moves to another design: prices, and the parts that carry them out.

use std::sync::Arc;

use shamba_model::Design;
use shamba_tree::compaction::policy::Rules;

use super::Mover;
use super::advise::MovePrices;
use crate::residency::ResidencyManager;
use crate::scheduler::Scheduler;
use crate::writer::Writer;

/// Moves the trees by compactions of a scheduler.
pub(crate) struct Moves {
    scheduler: Arc<Scheduler>,
    writer: Arc<Writer>,
    residency: Arc<ResidencyManager>,
}

impl Moves {
    /// Moves by `scheduler`; back-pressure and residency follow the design.
    pub fn new(scheduler: Arc<Scheduler>, writer: Arc<Writer>, residency: Arc<ResidencyManager>) -> Self {
        Self { scheduler, writer, residency }
    }
}

impl MovePrices for Moves {
    fn rules_under(&self, design: Design) -> Rules {
        self.scheduler.rules_of(design, true)
    }

    fn full_table_bytes(&self) -> u64 {
        self.scheduler.table_size().full_bytes
    }

    fn read_ns(&self, bytes: u64) -> f64 {
        self.residency.read_price().ns(bytes)
    }
}

impl Mover for Moves {
    fn is_compacting_all(&self) -> bool {
        self.scheduler.is_compacting_all()
    }

    fn design_changed(&self, compacts_all: bool) {
        // The memtable size decided for the old write buffer does not apply to the new one.
        self.residency.memory().forget_memtable_bytes();
        if compacts_all {
            self.scheduler.request_full_compactions();
        }
    }

    fn begin_move(&self) {
        self.writer.pressure_changed();
        self.residency.request_settlement();
        self.scheduler.notify();
        if self.scheduler.is_inline() {
            self.scheduler.run_inline();
        }
    }
}
