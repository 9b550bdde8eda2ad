//! Tuning: which design would be better, whether the move is worth it, and the move itself.
//!
//! [`DesignTuning`] owns the history of redesigns and the state of the tuner. It computes advice
//! from the observed workload, the trees and the memory ([`advise`]) and moves the database to
//! another design ([`redesign`]). With [`Tuning::Auto`](crate::Tuning::Auto) it makes such moves by
//! itself ([`worker`], [`tuner`]). It also decides from which length on values are stored in value
//! files, where the option leaves that to the database ([`values`]).
//!
//! It moves no table itself. Compactions do, by the rules of the design in force. A [`Mover`] is
//! notified of a new design, and [`MovePrices`] state the cost of a move; [`Moves`] implements
//! both.
//!
//! Locks: the history's lock is taken before the install lock and before leaves. It is not held
//! while an event is emitted, because listeners may ask for the history.

pub(crate) mod advise;
pub(crate) mod history;
mod moves;
mod redesign;
#[cfg(test)]
mod tests;
mod tuner;
mod values;
mod worker;

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

use shamba_env::{Clock, Env};
use shamba_table::Ledger;

use self::advise::{Advice, Advisor, MovePrices};
use self::history::{History, KeptOff, Redesigned};
pub(crate) use self::moves::Moves;
use self::tuner::Tuner;
use crate::catalog::Catalog;
use crate::error::Result;
use crate::filter_bits::FilterBits;
use crate::lifecycle::Lifecycle;
use crate::lock_order;
use crate::options::settings::Settings;
use crate::ranked::Ranked;
use crate::telemetry::Telemetry;
use crate::tree_design::TreeDesign;
use crate::workload::WorkloadObserver;

/// Moves the trees to a design that was put into force.
pub(crate) trait Mover: Send + Sync {
    /// Whether a compaction of a whole keyspace is requested.
    fn is_compacting_all(&self) -> bool;

    /// Another design is in force. With `compacts_all`, every keyspace is to be compacted into one
    /// run. The history's lock is held.
    fn design_changed(&self, compacts_all: bool);

    /// Starts the compactions that the design in force asks for, or runs them where there are no
    /// threads. No lock is held.
    fn begin_move(&self);
}

/// Advice on the design of a database, and its redesigns.
pub(crate) struct DesignTuning {
    clock: Arc<dyn Clock>,
    settings: Arc<Settings>,
    catalog: Arc<Catalog>,
    lifecycle: Arc<Lifecycle>,
    telemetry: Arc<Telemetry>,
    workload: Arc<WorkloadObserver>,
    advisor: Advisor,
    /// The redesigns so far. Locked while another design is put into force, before an install.
    history: Ranked<History>,
    mover: OnceLock<Arc<dyn Mover>>,
    is_stopping: AtomicBool,
    /// Whether [`Self::look`] was called.
    has_looked: AtomicBool,
    tuner: Ranked<Tuner>,
}

impl DesignTuning {
    /// For the trees in `catalog`. `recorded` are the manifest's settings, which hold the history;
    /// `lifecycle` and `telemetry` are those of the catalog.
    pub fn new(
        env: &Env,
        settings: Arc<Settings>,
        recorded: &BTreeMap<String, String>,
        catalog: Arc<Catalog>,
        (lifecycle, telemetry): (Arc<Lifecycle>, Arc<Telemetry>),
        (ledger, workload, filter_bits): (Arc<Ledger>, Arc<WorkloadObserver>, Arc<FilterBits>),
    ) -> Self {
        let advisor = Advisor::new(
            Arc::clone(&settings),
            Arc::clone(&catalog),
            ledger,
            Arc::clone(&workload),
            filter_bits,
        );
        Self {
            clock: Arc::clone(&env.clock),
            settings,
            catalog,
            lifecycle,
            telemetry,
            workload,
            advisor,
            history: Ranked::new(lock_order::REDESIGNS, History::from_settings(recorded)),
            mover: OnceLock::new(),
            is_stopping: AtomicBool::new(false),
            has_looked: AtomicBool::new(false),
            tuner: Ranked::new(lock_order::TUNER, Tuner::default()),
        }
    }

    /// Sets what moves the trees, and what that costs; later calls have no effect.
    pub fn connect(&self, mover: Arc<dyn Mover>, prices: Arc<dyn MovePrices>) {
        let _ = self.mover.set(mover);
        self.advisor.price_by(prices);
    }

    fn mover(&self) -> Option<&dyn Mover> {
        self.mover.get().map(Arc::as_ref)
    }

    /// The last redesigns, oldest first.
    pub fn redesigns(&self) -> Vec<Redesigned> {
        self.history.lock().list().to_vec()
    }

    /// Computes advice as of now.
    ///
    /// # Errors
    /// `Closed`; `Invalid` when the model rejects the measured values.
    pub fn advise(&self) -> Result<Advice> {
        self.workload.observe();
        let kept_off = self.history.lock().kept_off(self.clock.unix_ms());
        self.advise_with(None, &kept_off)
    }

    /// Computes advice, with `favourite` among the candidates and without designs like `kept_off`.
    ///
    /// # Errors
    /// As [`Self::advise`].
    fn advise_with(&self, favourite: Option<TreeDesign>, kept_off: &[KeptOff]) -> Result<Advice> {
        self.lifecycle.check_open()?;
        self.advisor.advise(favourite, kept_off)
    }
}
