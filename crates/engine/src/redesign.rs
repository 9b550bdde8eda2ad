//! Redesign: moves a live database to another design, while it is read and written.
//!
//! 1. The target is checked, and recorded in the manifest by one edit. From then on, also after a
//!    crash, it is the database's design.
//! 2. It is put in force ([`crate::settings::live`]): memtables, filters and compactions follow it
//!    from their next decision on.
//! 3. The tree now violates the shape of its design, as it can after a flush. The policy
//!    chooses the compactions that restore the shape, one after the other; each is a step from one
//!    valid tree to the next ([`crate::compaction::policy`]).
//!
//! So there is no intermediate state that a crash could corrupt: every tree is valid under every
//! design, and the remaining work follows from the tree and the design alone. A redesign during a
//! move replaces the target. Tables get the filter bits of the new plan when a compaction writes
//! them, or when a filter rewrite pays ([`crate::filter_rewrite`]).
//!
//! The cost is forecast before the move ([`crate::compaction::forecast`]). Where the policy's steps
//! would write more than all of the data, and the write rate allows it, everything is compacted at
//! once instead, as by `compact`.
//!
//! Not here: choosing a better design ([`crate::advise`]), and deciding on a move
//! ([`crate::tuner`]).

mod history;

use shamba_model::Design;
use shamba_model::allocation::Allocation;

use crate::core::Core;
use crate::db::Db;
use crate::error::{Error, Result};
use crate::event::Event;
use crate::metrics::WorkCounters;
use crate::settings::{LiveSettings, Settings};
use shamba_env::lock;
use shamba_tree::version::ManifestEdit;

pub(crate) use self::history::{History, KeptOff};
pub use self::history::{Redesigned, RedesignedBy};

/// The part of a database's design that [`crate::Db::redesign`] can change: the shape of the tree
/// and the plan of its filters.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct TreeDesign {
    /// Size ratio, runs, write buffer, filter bits per key.
    pub design: Design,
    /// Bytes of all filters together, in place of the design's bits per key; `None`: by the bits
    /// per key.
    pub filter_memory_bytes: Option<u64>,
    /// Distribution of filter bits over tables when they are built.
    pub allocation: Allocation,
}

impl std::fmt::Display for TreeDesign {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}, {} filters", self.design, self.allocation)?;
        self.filter_memory_bytes.map_or(Ok(()), |bytes| write!(f, " of {bytes} bytes"))
    }
}

impl LiveSettings {
    /// The public part of the settings.
    pub(crate) fn tree_design(&self) -> TreeDesign {
        TreeDesign {
            design: self.design,
            filter_memory_bytes: self.filter_memory_bytes,
            allocation: self.filter_allocation,
        }
    }

    /// The settings with another public part. The named policy stays while it gives the target's
    /// (K, Z).
    fn redesigned(&self, target: &TreeDesign) -> Self {
        let TreeDesign { design, filter_memory_bytes, allocation } = *target;
        let runs = (design.inner_runs, design.last_runs);
        let named = self.policy.filter(|policy| policy.runs(design.size_ratio) == runs);
        let policy = named.or_else(|| design.policy());
        Self { design, policy, filter_allocation: allocation, filter_memory_bytes }
    }
}

impl Db {
    /// The design in force and the plan of its filters: what [`Self::redesign`] changes.
    pub fn tree_design(&self) -> TreeDesign {
        self.core().settings.live.get().tree_design()
    }

    /// Moves the live database permanently to another design: when this returns, the design is
    /// recorded and in force. Compactions then move the trees there step by step, while reads and
    /// writes go on. [`crate::Stats::debt_bytes`] gives the bytes that they still have to move;
    /// [`Self::wait_idle`] waits for them. Called again during a move, the new target replaces the
    /// old one. Tables keep their filters until a compaction rewrites them.
    ///
    /// ```
    /// # fn main() -> shamba::Result<()> {
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// use shamba::{Db, Design, MergePolicy, TreeDesign};
    ///
    /// let db = Db::open(dir.path())?;
    /// let design = Design::new(MergePolicy::LazyLeveling, 4.0, 16 << 20, 8.0);
    /// db.redesign(&TreeDesign { design, ..db.tree_design() })?;
    /// assert_eq!(db.design(), design);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `Invalid` for an invalid design; `ReadOnly`, `Closed`, `Io` and `NoSpace` when it could not
    /// be recorded; it is then not in force.
    pub fn redesign(&self, target: &TreeDesign) -> Result<()> {
        self.core().redesign(target, RedesignedBy::Caller, "requested")
    }

    /// Returns to the design before the last redesign, and returns that design. The undone design
    /// is not advised ([`Self::advise`]) for an hour, and [`crate::Tuning::Auto`] does not move to
    /// it.
    ///
    /// # Errors
    /// `Invalid` if there was no redesign, if the last one was undone, or if an open has set
    /// another design since; errors of [`Self::redesign`].
    pub fn undo_redesign(&self) -> Result<TreeDesign> {
        self.core().undo_redesign()
    }

    /// The last redesigns, oldest first, each with its origin and reason.
    pub fn redesigns(&self) -> Vec<Redesigned> {
        lock(&self.core().redesigned).list().to_vec()
    }
}

impl Core {
    /// Moves the database to another design. When it returns, the design is durable and in force;
    /// compactions continue in the background.
    ///
    /// # Errors
    /// `Invalid` for an invalid design; otherwise the error of recording it, and it is not in
    /// force.
    pub(crate) fn redesign(&self, target: &TreeDesign, by: RedesignedBy, reason: &str) -> Result<()> {
        let event = self.redesign_locked(&mut lock(&self.redesigned), target, by, reason)?;
        self.begin_move(event);
        Ok(())
    }

    /// Returns to the design before the last redesign.
    ///
    /// # Errors
    /// `Invalid` if there is none, or if it was undone already; errors of [`Self::redesign`].
    pub(crate) fn undo_redesign(&self) -> Result<TreeDesign> {
        let mut history = lock(&self.redesigned);
        let last = history.last().filter(|last| last.by != RedesignedBy::Undo);
        let last = last.ok_or_else(|| Error::invalid("there is no redesign to undo"))?;
        let (target, now) = (last.from, self.settings.live.get().tree_design());
        if last.to != now {
            return Err(Error::invalid(format!(
                "the current design, {now}, was set by an open after the last redesign"
            )));
        }
        let event = self.redesign_locked(&mut history, &target, RedesignedBy::Undo, "undone")?;
        drop(history);
        self.begin_move(event);
        Ok(target)
    }

    /// Announces the design now in force and starts the compactions. Called without the history's
    /// lock, because listeners may take it.
    fn begin_move(&self, event: Option<Event>) {
        let Some(event) = event else { return };
        self.telemetry.emit(&event);
        self.writer.pressure_changed();
        self.request_rebalance();
        self.background.wake.notify_all();
        if self.is_inline() {
            self.run_background_inline();
        }
    }

    /// Records a design and puts it in force. The history's lock serializes calls: the design
    /// recorded last must be the one in force. Returns `None` if it was in force already.
    fn redesign_locked(
        &self,
        history: &mut History,
        target: &TreeDesign,
        by: RedesignedBy,
        reason: &str,
    ) -> Result<Option<Event>> {
        self.lifecycle.check_writable()?;
        let wanted = Settings::clone(&self.settings);
        wanted.live.change(|live| *live = live.redesigned(target));
        wanted.validate()?;
        let (before, next) = (self.settings.live.get(), wanted.live.get());
        if next == before {
            return Ok(None);
        }
        let (from, to) = (before.tree_design(), next.tree_design());
        let workload = self.workload();
        let way = self.way(&to, &workload).beyond(&self.way(&from, &workload));
        let mut after = history.clone();
        after.push(Redesigned { unix_ms: self.env.clock.unix_ms(), by, from, to, reason: reason.to_owned() });
        let mut settings = next.to_pairs();
        settings.extend(self.observed_pairs());
        settings.push(after.to_pair());
        self.catalog
            .install(&[], Vec::new(), |_| Ok(ManifestEdit { settings, ..ManifestEdit::default() }))?;
        *history = after;
        self.settings.live.set(next);
        // The memtable size chosen by the arbiter for the old write buffer does not apply to the
        // new one.
        self.residency.forget_memtable_bytes();
        WorkCounters::add(&self.telemetry.work().redesigns, 1);
        if way.is_whole {
            let mut state = lock(&self.background.state);
            state.full_compactions = self.catalog.keyspaces().keys().copied().collect();
        }
        Ok(Some(Event::Redesign {
            from: from.to_string(),
            to: to.to_string(),
            by: by.name(),
            reason: reason.to_owned(),
            bytes: way.written_bytes,
            tree_bytes: way.tree_bytes,
        }))
    }
}
